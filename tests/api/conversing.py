"""A server with one of everything that travels: the three ways of asking, and all that a handler can send or raise."""

import asyncio
from dataclasses import dataclass
from typing import Annotated, Literal

from antiphon import (
    Annotations,
    Ask,
    Completion,
    Context,
    Email,
    Header,
    Icon,
    Image,
    InputRequired,
    InvalidParams,
    Message,
    Question,
    ResourceLink,
    ResourceNotFound,
    Server,
    ToolAnnotations,
    ToolError,
    ToolResult,
    ask,
    input_required,
)

app = Server("conversing", version="1.0.0", title="Conversing", instructions="Answers, and asks.")


@dataclass
class Trip:
    """Where to, and for how long."""

    city: Literal["Kyoto", "Lisbon", "Oslo"]
    nights: int = 3
    mail: Email | None = None


@dataclass
class Place:
    name: str
    tags: list[str]


# --- tools that ask -----------------------------------------------------------------------------------------------


@app.tool
async def book(traveller: str, ctx: Context) -> str:
    """Ask by awaiting, with a step between the questions."""
    trip = (await ctx.elicit(f"Where to, {traveller}?", Trip, key="trip")).unwrap()
    price = await ctx.step("price", lambda: trip.nights * 80)
    if not await ctx.confirm(f"{trip.city} for {price} euros?", key="sure"):
        return "Nothing booked"
    return f"Booked {trip.city} for {price} euros in round {ctx.round}"


@app.tool
async def book_returning(traveller: str, ctx: Context) -> str | InputRequired:
    """Ask by returning, with a state."""
    trip = ctx.accepted("trip", Trip)
    if trip is None:
        return input_required({"trip": ask.form(f"Where to, {traveller}?", Trip)}, state={"asked": 1})
    return f"Booked {trip.city} with {ctx.state(dict[str, int])} in round {ctx.round}"


def sure(trip: Trip) -> Question:
    return ask.form(f"{trip.city}?", bool)


@app.tool
async def book_declaring(
    traveller: str, trip: Annotated[Trip, Ask("Where to, {traveller}?")], sure: Annotated[bool, Ask(sure)]
) -> str:
    """Ask by declaring, one question after the other."""
    return f"Booked {trip.city}: {sure}"


@app.tool
async def page(ctx: Context) -> str:
    """Ask for a page to be opened."""
    return (await ctx.elicit_url("Sign in", "https://example.com/sign-in", key="page")).action


@app.tool
async def summary(ctx: Context) -> str:
    """Ask the client's model."""
    return (await ctx.sample("Summarise.", system="Be brief.", max_tokens=50, key="summary")).text


@app.tool
async def folders(ctx: Context) -> list[str]:
    """Ask for the roots."""
    return [root.uri for root in await ctx.roots(key="roots")]


@app.tool
async def all_at_once(ctx: Context) -> str:
    """Ask three things in one round."""
    trip, text, roots = await asyncio.gather(
        ctx.elicit("Where to?", Trip, key="trip"),
        ctx.sample("Greet.", max_tokens=20, key="summary"),
        ctx.roots(key="roots"),
    )
    return f"{trip.unwrap().city} {text.text} {len(roots)}"


@app.tool
def in_a_thread(ctx: Context) -> str:
    """Ask from a plain function."""
    return "yes" if ctx.sync.confirm("Really?", key="sure") else "no"


# --- tools that tell ----------------------------------------------------------------------------------------------


@app.tool(title="Work", annotations=ToolAnnotations(read_only_hint=True), icons=[Icon("https://example.com/icon.png")])
async def work(parts: int, ctx: Context) -> str:
    """Report progress and log.

    Args:
        parts: How many there are.
    """
    for part in range(1, parts + 1):
        await ctx.progress(part, total=parts, message=f"part {part}")
        await ctx.log("info", {"part": part}, logger="work")
    await ctx.log("debug", "done")
    return "Worked"


@app.tool
def find(name: str, region: Annotated[str, Header("Region")] = "eu") -> Place:
    """Return structured content, and take an argument that travels in a header."""
    return Place(name, [region])


@app.tool
def several() -> ToolResult:
    """Return several blocks."""
    blocks = ["text", Image(b"png"), ResourceLink("note://1", name="one", annotations=Annotations(priority=0.5))]
    return ToolResult(content=blocks, structured={"count": 3}, meta={"example.com/x": 1})


@app.tool
def number() -> int:
    """Return structured content that is no object."""
    return 42


@app.tool
def fail(how: Literal["tool", "params", "bug"]) -> str:
    """Fail."""
    raise {"tool": ToolError("Cannot."), "params": InvalidParams("Wrong."), "bug": RuntimeError("secret")}[how]


@app.tool
def touch() -> str:
    """Change a list and a resource."""
    app.changed("tools")
    app.updated("note://1")
    return "Touched"


# --- resources, prompts, completion -------------------------------------------------------------------------------


@app.resource("note://1", mime_type="text/markdown", ttl=60, scope="public", size=5)
def first() -> str:
    """The first note."""
    return "# One"


@app.resource("blob://1")
def blob() -> bytes:
    """Bytes."""
    return b"\x00\x01"


@app.resource("note://{id}{?page}", title="Notes")
async def note(id: str, page: int = 1) -> dict[str, object]:
    """A note by its number."""
    if id == "9":
        raise ResourceNotFound("note://9")
    return {"id": id, "page": page}


@app.resource("secret://{id}")
async def secret(id: str, ctx: Context) -> str:
    """A resource that asks."""
    return f"{id}: {await ctx.confirm('Show it?', key='sure')}"


@app.prompt(title="Greeting")
def greet(name: str, tone: str = "warm") -> list[Message]:
    """Greet somebody.

    Args:
        name: Whom.
        tone: How.
    """
    return [Message.user(f"Greet {name}"), Message.assistant(f"In a {tone} tone.")]


@app.prompt
async def plan(ctx: Context) -> str:
    """A prompt that asks."""
    return f"Plan a trip to {(await ctx.elicit('Where to?', Trip, key='trip')).unwrap().city}"


@app.complete(greet, "name")
def names(value: str) -> list[str]:
    return [name for name in ("Ada", "Alan", "Grace") if name.startswith(value)]


@app.complete("note://{id}{?page}", "id")
def ids(value: str) -> Completion:
    return Completion(["1", "2"], total=20, has_more=True)


if __name__ == "__main__":
    app.run()
