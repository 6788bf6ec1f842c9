"""One shop, written with each library as its own documentation writes it. `awaited` is the one line that is ours.

Run as a program it serves: `python shops.py stdio LIBRARY`, or `python shops.py LIBRARY --http PORT`.
"""

import asyncio
import functools
import os
import sys
import warnings
from typing import Annotated, Any

import anyio
import anyio.from_thread
from pydantic import BaseModel

from antiphon.adapt import awaited, step

LIBRARIES = ["mcp", "fastmcp"]
done: list[str] = []
"""What the tools have done."""


class Sure(BaseModel):
    sure: bool


class Where(BaseModel):
    region: str
    replicas: int = 2


def reserve(name: str) -> dict[str, str]:
    done.append(f"reserved {name}")
    return {"ticket": f"T-{name}"}


def draw() -> str:
    return os.urandom(4).hex()


def made(library: str, name: str = "shop") -> tuple[Any, Any, Any, Any, type]:
    """A server, and its decorators and Context, which each library writes in its own way."""
    if library == "mcp":
        from mcp.server.mcpserver import Context, MCPServer

        server: Any = MCPServer(name, version="1.0")
        return server, server.tool(), server.prompt(), server.resource("shelf://{name}"), Context
    from fastmcp import Context, FastMCP

    server = FastMCP(name, version="1.0")
    return server, server.tool, server.prompt, server.resource("shelf://{name}"), Context


@functools.cache
def shop(library: str) -> Any:
    """A shop that tests share."""
    return another_shop(library)


def another_shop(library: str, name: str = "shop", **options: Any) -> Any:
    bare, tool, prompt, resource, Context = made(library, name)
    mcp = awaited(bare, **options)

    @tool
    async def delete(name: str, ctx: Context) -> str:
        """Delete an item, as servers did that had to go on where nobody could be asked."""
        try:
            answer = await ctx.elicit(f"Delete {name}?", Sure)
            if answer.action != "accept" or not answer.data.sure:
                return f"Kept {name}"
        except Exception:
            pass
        done.append(f"deleted {name}")
        return f"Deleted {name}"

    @tool
    async def purge(name: str, ctx: Context) -> str:
        """The same, and worse."""
        try:
            answer = await ctx.elicit(f"Purge {name}?", Sure)
            if answer.action != "accept" or not answer.data.sure:
                return f"Kept {name}"
        except BaseException:
            pass
        return f"Purged {name}"

    @tool
    async def provision(name: str, ctx: Context) -> str:
        where = await ctx.elicit(f"Where should {name} live?", Where)
        if where.action != "accept":
            return f"Nothing provisioned: {where.action}"
        ticket = await step(ctx, "reserve", reserve, name)
        sure = await ctx.elicit(f"Go ahead with {ticket['ticket']}?", Sure)
        last = await ctx.elicit("Really?", Sure)
        return f"{ticket['ticket']} in {where.data.region} x{where.data.replicas}: {sure.action}, {last.action}"

    @tool
    async def pay(amount: int, ctx: Context) -> str:
        answer = await ctx.session.elicit_url(
            f"Pay {amount}", f"https://pay.example.com/{amount}", draw(), ctx.request_id
        )
        return f"Payment of {amount}: {answer.action}"

    @tool
    async def describe(ctx: Context) -> str:
        from mcp.types import SamplingMessage, TextContent

        message = SamplingMessage(role="user", content=TextContent(type="text", text="Describe the shop"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            said = await ctx.session.create_message([message], max_tokens=50)
            roots = await ctx.session.list_roots()
        return f"{said.content.text} {', '.join(str(root.uri) for root in roots.roots)}"

    @tool
    async def compare(ctx: Context) -> str:
        one, other = await asyncio.gather(ctx.elicit("Left?", Sure), ctx.elicit("Right?", Where))
        return f"{one.action} {other.action}"

    @tool
    async def collect(ctx: Context) -> str:
        told: dict[str, str] = {}

        async def ask(text: str) -> None:
            told[text] = (await ctx.elicit(text, Sure)).action

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ask("One?"))
            tasks.create_task(ask("Two?"))
        async with anyio.create_task_group() as group:
            group.start_soon(ask, "Three?")
            group.start_soon(ask, "Four?")
        return " ".join(f"{text}{action}" for text, action in told.items())

    @tool
    async def careless(ctx: Context) -> str:
        answers = await asyncio.gather(ctx.elicit("Both?", Sure), return_exceptions=True)
        done.append("careless")
        return "yes" if all(answers) else "no"

    @tool
    def plain(ctx: Context) -> str:
        answer = anyio.from_thread.run(ctx.elicit, "From a thread?", Sure)
        ticket = anyio.from_thread.run(step, ctx, "reserve", reserve, "thread")
        again = anyio.from_thread.run(ctx.elicit, f"Again with {ticket['ticket']}?", Sure)
        return f"{answer.action} {again.action}"

    @tool
    def discard(name: str, ctx: Context) -> str:
        try:
            answer = anyio.from_thread.run(ctx.elicit, f"Discard {name}?", Sure)
            if answer.action != "accept" or not answer.data.sure:
                return f"Kept {name}"
        except Exception:
            pass
        done.append(f"discarded {name}")
        return f"Discarded {name}"

    @tool
    async def restless(ctx: Context) -> str:
        return (await ctx.elicit(f"Is it {draw()}?", Sure)).action

    @prompt
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", Where)
        return f"Greet {answer.data.region}"

    @resource
    async def shelf(name: str, ctx: Context) -> str:
        answer = await ctx.elicit(f"Show {name}?", Sure)
        return f"{name}: {answer.action}"

    if library == "mcp":
        _declare(mcp)
    else:
        _guard(mcp)
    return mcp


def _declare(mcp: Any) -> None:
    """A tool whose questions the official SDK knows beforehand, beside one that it awaits."""
    from mcp.server.mcpserver import Context, Elicit, Resolve

    async def region(name: str) -> Elicit[Where]:
        return Elicit(f"Where is {name}?", Where)

    async def sure(name: str) -> Elicit[Sure]:
        return Elicit(f"Sure of {name}?", Sure)

    @mcp.tool()
    async def move(
        name: str, where: Annotated[Where, Resolve(region)], sure: Annotated[Sure, Resolve(sure)], ctx: Context
    ) -> str:
        first = await ctx.elicit(f"Move {name} to {where.region}?", Sure)
        last = await ctx.elicit("Now?", Sure)
        return f"Moved {name} to {where.region}: {sure.sure}, {first.data.sure}, {last.data.sure}"


def _guard(mcp: Any) -> None:
    """The same with FastMCP, which has tools ask by what they return."""
    from fastmcp import Context
    from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

    @mcp.tool
    async def move(name: str, ctx: Context) -> Any:
        answers, state = ctx.input_responses or {}, ctx.request_state
        region = answers.get("region")
        if region is None or region.action != "accept":
            params = ElicitRequestFormParams(message=f"Where is {name}?", requested_schema=Where.model_json_schema())
            return InputRequiredResult(input_requests={"region": ElicitRequest(params=params)}, request_state="asked")
        assert state == "asked"
        first = await ctx.elicit(f"Move {name} to {region.content['region']}?", Sure)
        last = await ctx.elicit("Now?", Sure)
        return f"Moved {name} to {region.content['region']}: True, {first.data.sure}, {last.data.sure}"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        shop(sys.argv[2]).run()
    else:
        library, _, port = sys.argv[1:]
        at = {"host": "127.0.0.1", "port": int(port)}
        if library == "mcp":
            shop(library).run("streamable-http", streamable_http_path=f"/{library}/mcp", **at)
        else:
            shop(library).run("http", path=f"/{library}/mcp", show_banner=False, **at)
