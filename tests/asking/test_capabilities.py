"""Who can be asked: what a client did not declare is never asked, and never taken for a yes."""

import asyncio

import httpx
import pytest

from antiphon import (
    CannotAsk,
    Context,
    Server,
    Tool,
    ToolError,
    UserRefused,
)

from .driver import EVERYTHING, converse, leg, prompt, resource, tool
from .handlers import ANSWERS, Where, asks, everywhere, together, turns

NEEDS = {
    "form": {"elicitation": {"form": {}}},
    "page": {"elicitation": {"url": {}}},
    "completion": {"sampling": {}},
    "tools": {"sampling": {"tools": {}}},
    "context": {"sampling": {"context": {}}},
    "roots": {"roots": {}},
    "box": {"elicitation": {"form": {}}},
}


async def asks_for(ctx: Context, kind: str, pause: int = 0) -> object:
    await turns(pause)
    match kind:
        case "form":
            return await ctx.elicit("Where?", Where)
        case "page":
            return await ctx.elicit_url("Sign in", "https://example.com/")
        case "completion":
            return await ctx.sample("Hi", max_tokens=1)
        case "tools":
            return await ctx.sample("Hi", max_tokens=1, tools=[Tool(name="t", input_schema={"type": "object"})])
        case "context":
            return await ctx.sample("Hi", max_tokens=1, context="thisServer")
        case "roots":
            return await ctx.roots()
        case _:
            return await ctx.confirm("Sure?")


def missing(*kinds: str) -> dict[str, object]:
    tree: dict[str, dict[str, object]] = {}
    for kind in kinds:
        for name, below in NEEDS[kind].items():
            tree.setdefault(name, {}).update(below)
    return tree  # type: ignore[return-value]


@pytest.mark.parametrize("kind", NEEDS)
@pytest.mark.parametrize("plain", [True, False], ids=["bare", "behind except Exception"])
async def test_asking_a_client_for_what_it_did_not_declare_ends_the_call(app: Server, kind: str, plain: bool) -> None:
    effects: list[str] = []

    @app.tool
    async def work(ctx: Context) -> str:
        try:
            await asks_for(ctx, kind)
        except Exception:
            if plain:
                raise
        effects.append("went on")
        return "went on"

    told = await converse(app, *tool("work"), capabilities={})
    assert told.error["code"] == -32021
    assert told.error["data"] == {"requiredCapabilities": missing(kind)}
    assert effects == []


@pytest.mark.parametrize(
    ("capabilities", "kinds"),
    [
        ({"elicitation": {}}, ["form", "box"]),
        ({"elicitation": {"form": {}}}, ["form", "box"]),
        ({"elicitation": {"url": {}}}, ["page"]),
        ({"elicitation": {"form": {}, "url": {}}}, ["form", "box", "page"]),
        ({"sampling": {}}, ["completion"]),
        ({"sampling": {"tools": {}}}, ["completion", "tools"]),
        ({"sampling": {"context": {}}}, ["completion", "context"]),
        ({"roots": {}}, ["roots"]),
        ({}, []),
    ],
    ids=str,
)
async def test_each_kind_of_question_needs_its_own_capability(
    app: Server, capabilities: dict[str, object], kinds: list[str]
) -> None:
    @app.tool
    async def work(kind: str, ctx: Context) -> None:
        await asks_for(ctx, kind)

    asked = []
    for kind in NEEDS:
        first = await leg(app, *tool("work", kind=kind), capabilities=capabilities)
        if first.asks:
            asked.append(kind)
        else:
            assert first.reply["error"]["code"] == -32021
    assert sorted(asked) == sorted(kinds)


@together
@pytest.mark.parametrize("pause", [0, 1, 2])
async def test_all_that_is_missing_for_a_round_is_named(app: Server, together, pause: int) -> None:
    kinds = ["box", "page", "tools", "roots"]

    @app.tool
    async def work(ctx: Context) -> str:
        await together(*(asks_for(ctx, kind, pause * place) for place, kind in enumerate(kinds)))
        return "went on"

    told = await converse(app, *tool("work"), capabilities={})
    assert told.error["code"] == -32021
    required = told.error["data"]["requiredCapabilities"]
    assert required == missing(*kinds)
    for name in ("elicitation.form", "elicitation.url", "sampling.tools", "roots"):
        assert name in told.error["message"]


@together
@pytest.mark.parametrize("first", [True, False], ids=["missing first", "missing last"])
async def test_nothing_is_asked_if_one_question_of_the_round_cannot_be(app: Server, together, first: bool) -> None:
    kinds = ["page", "form"] if first else ["form", "page"]

    @app.tool
    async def work(ctx: Context) -> str:
        await together(*(asks_for(ctx, kind) for kind in kinds))
        return "went on"

    told = await converse(app, *tool("work"), capabilities={"elicitation": {"form": {}}})
    assert told.error["data"] == {"requiredCapabilities": missing("page")}


async def test_a_plain_function_cannot_ask_a_client_that_cannot_be_asked(app: Server) -> None:
    @app.tool
    def work(ctx: Context) -> str:
        try:
            return "yes" if ctx.sync.confirm("Sure?") else "no"
        except Exception:
            return "yes"

    told = await converse(app, *tool("work"), capabilities={})
    assert told.error["code"] == -32021


@pytest.mark.parametrize(
    "call",
    [prompt("brief", topic="news"), resource("brief://news"), resource("brief://by-topic/news")],
    ids=["prompt", "static resource", "template resource"],
)
async def test_prompts_and_resources_name_what_is_missing(call) -> None:
    told = await converse(everywhere(), *call, capabilities={"roots": {}})
    assert told.error["code"] == -32021
    assert told.error["data"] == {"requiredCapabilities": missing("form")}


async def test_a_client_that_no_longer_declares_what_it_did_is_not_asked(app: Server) -> None:
    @app.tool
    async def work(ctx: Context) -> str:
        return await asks(ctx, "a") + await asks(ctx, "b")

    first = await leg(app, *tool("work"))
    second = await leg(app, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]}, capabilities={})
    assert second.reply["error"]["code"] == -32021


async def test_a_handler_may_catch_by_name_that_it_cannot_ask(app: Server) -> None:
    @app.tool
    async def work(ctx: Context) -> str:
        try:
            return await asks(ctx, "a")
        except CannotAsk as fault:
            return f"Pass it as an argument: {dict(fault.required)}"

    told = await converse(app, *tool("work"), capabilities={})
    assert told.text == f"Pass it as an argument: {missing('form')}"


async def test_that_a_question_could_not_be_asked_is_not_taken_for_a_yes(app: Server) -> None:
    wiped: list[str] = []

    @app.tool
    async def wipe(ctx: Context) -> str:
        (sure,) = await asyncio.gather(ctx.confirm("Wipe?"), return_exceptions=True)
        if sure:
            wiped.append("all of it")
        return "over"

    await converse(app, *tool("wipe"), capabilities={})
    assert wiped == []


def test_not_being_able_to_ask_is_no_ordinary_exception() -> None:
    assert not issubclass(CannotAsk, Exception)
    assert issubclass(UserRefused, ToolError)


async def test_over_http_a_missing_capability_is_a_bad_request(app: Server) -> None:
    @app.tool
    async def work(ctx: Context) -> str:
        return await asks(ctx, "a")

    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "work", "_meta": meta}}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "work"}
    transport = httpx.ASGITransport(app.asgi())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.post("/mcp", json=body, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == -32021
    assert response.json()["error"]["data"] == {"requiredCapabilities": missing("form")}


@pytest.mark.parametrize(
    ("capabilities", "supported"),
    [
        ({}, []),
        (EVERYTHING, ["elicitation", "elicitation.form", "elicitation.url", "sampling", "sampling.tools", "roots"]),
        ({"elicitation": {}}, ["elicitation", "elicitation.form"]),
        ({"elicitation": {"form": {}}}, ["elicitation", "elicitation.form"]),
        ({"sampling": {}}, ["sampling"]),
        ({"sampling": {"tools": {}}}, ["sampling", "sampling.tools"]),
        ({"roots": {}}, ["roots"]),
        ({"roots": {"listChanged": True}}, ["roots"]),
        ({"elicitation": None, "sampling": 1, "roots": []}, []),
        ({"elicitation": True, "sampling": {"tools": None}}, ["sampling"]),
    ],
    ids=str,
)
async def test_a_handler_can_tell_what_the_client_supports(
    app: Server, capabilities: dict[str, object], supported: list[str]
) -> None:
    names = ["elicitation", "elicitation.form", "elicitation.url", "sampling", "sampling.tools", "roots"]

    @app.tool
    async def look(ctx: Context) -> str:
        return " ".join(name for name in names if ctx.client.supports(name))

    told = await converse(app, *tool("look"), capabilities=capabilities)
    assert told.text.split() == supported


async def test_a_client_with_pages_only_supports_pages_only(app: Server) -> None:
    @app.tool
    async def look(ctx: Context) -> str:
        return f"{ctx.client.supports('elicitation.form')} {ctx.client.supports('elicitation.url')}"

    told = await converse(app, *tool("look"), capabilities={"elicitation": {"url": {}}})
    assert told.text == "False True"
