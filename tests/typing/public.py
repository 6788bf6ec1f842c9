"""Only checked, never run: what mypy and pyright must make of the public API."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, assert_type

from antiphon import (
    Accepted,
    Answer,
    Ask,
    Browser,
    Cancelled,
    Client,
    Context,
    Declined,
    Inbox,
    InputRequired,
    MemoryStore,
    Middleware,
    Pending,
    Proceed,
    Root,
    Sample,
    Server,
    Tool,
    ask,
    input_required,
)
from antiphon.client.results import CallResult, Complete

app = Server("typed", version="1.0.0")


@dataclass
class Where:
    region: str


@app.tool
async def provision(name: str, ctx: Context) -> str:
    answer = await ctx.elicit("Where?", Where)
    assert_type(answer, Answer[Where])
    match answer:
        case Accepted(where):
            assert_type(where, Where)
        case Declined() | Cancelled():
            return "no"
    assert_type(answer.unwrap(), Where)
    assert_type(await ctx.confirm("Sure?"), bool)
    assert_type(await ctx.sample("Hi", max_tokens=5), Sample)
    assert_type(await ctx.roots(), list[Root])
    assert_type(await ctx.step("reserve", reserve, name), int)
    assert_type(await ctx.random(), float)
    return where.region


async def reserve(name: str) -> int:
    return len(name)


@app.tool(title="By returning")
def returning(ctx: Context) -> str | InputRequired:
    where = ctx.accepted("where", Where)
    assert_type(where, Where | None)
    if where is None:
        return input_required({"where": ask.form("Where?", Where)}, state={"step": 1})
    return where.region


@app.tool
async def declaring(cache: str, sure: Annotated[bool, Ask("Really wipe {cache}?")]) -> str:
    return cache if sure else ""


@app.tool
async def declaring_by_default(cache: str, sure: bool = Ask("Really wipe {cache}?")) -> str:
    return cache if sure else ""


Region = Literal["eu", "us"]


@app.tool("shaped")
async def shaped(ctx: Context) -> None:
    assert_type(await ctx.elicit("Where?", Literal["eu", "us"]), Answer[Region])
    assert_type(await ctx.elicit("Where?", Region), Answer[Region])
    assert_type(await ctx.elicit("How many?", Annotated[int, "at most five"]), Answer[int])
    assert_type(await ctx.elicit("Which?", list[str]), Answer[list[str]])
    assert_type(await ctx.elicit("What?", {"type": "object"}), Answer[Any])
    assert_type(ctx.accepted("where", Region), Region | None)
    assert_type(ctx.sync.elicit("Where?", Region), Answer[Region])
    assert_type(ctx.lifespan, Any)


class Database:
    def count(self) -> int:
        return 0


@app.tool
async def counted(ctx: Context[Database]) -> int:
    assert_type(ctx.lifespan, Database)
    return ctx.lifespan.count()


async def timed(ctx: Context, proceed: Proceed) -> dict[str, Any]:
    result: dict[str, Any] = await proceed(ctx)
    return result


around: Middleware = timed
app.middleware(around)
Server("ops", elsewhere=Inbox(MemoryStore(), page="https://ops.example.com/inbox"))
Server("ops", elsewhere=Browser(patience=30))


@app.tool(needs="elicitation")
async def erase(ctx: Context) -> bool:
    return assert_type(await ctx.confirm("Sure?"), bool)


async def use() -> None:
    async with Client(app) as client:
        assert_type(await client.list_tools(), list[Tool])
        async for tool in client.list_tools():
            assert_type(tool, Tool)
        assert_type(await client.call_tool("provision", {"name": "x"}), CallResult)
        assert_type(await client.begin("tools/call", name="provision"), Complete | Pending)
