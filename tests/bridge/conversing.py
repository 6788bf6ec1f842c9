"""A server that asks everything, and clients that answer it: what stands on either side of a bridge."""

import asyncio

from antiphon import Accepted, Client, Context, Root, Server, eras
from antiphon.bridge.upstream import Upstream
from antiphon.transports.link import Around

ERAS = ("2026-07-28", "legacy")


def upstream():
    app = Server("shop", version="2.0.0", instructions="Ask first.")
    app.left, app.entered = asyncio.Event(), asyncio.Event()

    @app.tool
    async def echo(text: str) -> str:
        return text

    @app.tool
    async def order(ctx: Context) -> str:
        name = (await ctx.elicit("Your name?", str)).unwrap()
        page = await ctx.elicit_url("Sign in", "https://example.com/in")
        sure = await ctx.confirm("Sure?")
        roots = await ctx.roots()
        said = await ctx.sample("Greet", max_tokens=5)
        return f"{name} {page.action} {sure} {roots[0].uri} {said.text}"

    @app.tool
    async def both(ctx: Context) -> str:
        one, two = await asyncio.gather(ctx.elicit("One?", str), ctx.elicit("Two?", str))
        return f"{one.unwrap()} {two.unwrap()}"

    @app.tool
    async def confirm(ctx: Context) -> str:
        return str(await ctx.confirm("Sure?"))

    @app.tool
    async def tell(ctx: Context) -> dict[str, int]:
        await ctx.log("warning", "nearly")
        await ctx.progress(1, 2, "half")
        return {"total": 3}

    @app.tool
    async def wait(ctx: Context) -> str:
        app.entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            app.left.set()
        return ctx.name

    @app.tool
    async def slowly(ctx: Context) -> str:
        await ctx.elicit("Your name?", str)
        return await wait(ctx)

    @app.tool
    async def ask_and_wait(ctx: Context) -> str:
        try:
            return (await ctx.elicit("Your name?", str)).unwrap()
        except asyncio.CancelledError:
            app.left.set()
            raise

    @app.prompt
    async def greet(name: str, ctx: Context) -> str:
        return f"Hello {name}" if await ctx.confirm("Sure?") else "Nothing"

    @app.complete("greet", "name")
    def names(value: str) -> list[str]:
        return [name for name in ("Ann", "Bob") if name.startswith(value)]

    @app.resource("note://{number}")
    async def note(number: int, ctx: Context) -> str:
        return f"note {number}" if await ctx.confirm("Sure?") else "Nothing"

    @app.resource("note://all")
    def notes() -> str:
        return "all notes"

    return app


def bridged(app, era="2026-07-28", *, prefix="", wrap=None, **options):
    """A server in front of another one, to which it speaks an era."""
    server = Server("bridge", **options)

    def connect():
        link = eras.connect(app, era=era)
        return link if wrap is None else wrap(link)

    server.add_mount(Upstream(prefix, connect, server))
    return server


def asker(target, **options):
    """A client that answers everything."""

    def form(question):
        return Accepted({"confirm": True} if question.message == "Sure?" else "Ann")

    def visit(question):
        assert question.url == "https://example.com/in"
        return Accepted(None)

    given = {"elicit": form, "elicit_url": visit, "sample": lambda _: "Hi!", "roots": [Root("file:///work")]}
    return Client(target, **{**given, **options})


class Tapped(Around):
    """A link that keeps what it carries."""

    def __init__(self, link, seen):
        super().__init__(link)
        self._seen = seen

    async def request(self, message, *, headers, on_notification=None):
        reply = await self._link.request(message, headers=headers, on_notification=on_notification)
        self._seen.append((message, reply))
        return reply


SAMPLE = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}


class Rude(Around):
    """A link to a server that asks this whatever the client declares, and even if it is no question."""

    def __init__(self, link, asked=SAMPLE):
        super().__init__(link)
        self._asked = asked

    async def request(self, message, *, headers, on_notification=None):
        reply = await super().request(message, headers=headers, on_notification=on_notification)
        if "inputRequests" in reply.get("result", {}):
            reply["result"]["inputRequests"] = {"asked": self._asked}
        return reply
