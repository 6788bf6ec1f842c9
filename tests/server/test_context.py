"""The Context: what a handler knows of its call, and what it can tell the client."""

import asyncio
import threading

import pytest

from antiphon import Context
from asgi import Http
from messages import LOG_LEVEL, tool_call

LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


def note(seen):
    async def look(ctx: Context, text: str = "") -> None:
        seen.append(ctx)

    return look


# --- the call -----------------------------------------------------------------------------------------------------


async def test_the_call_is_known_to_its_handler(app, use):
    seen = []
    app.add_tool(note(seen), name="look")
    await use(app, "look", {"text": "x"}, id="seven", **{"com.example/a": 1})
    (ctx,) = seen
    assert (ctx.request_id, ctx.method, ctx.name) == ("seven", "tools/call", "look")
    assert ctx.params["arguments"] == {"text": "x"}
    assert ctx.meta["com.example/a"] == 1
    assert ctx.protocol_version == "2026-07-28"
    assert ctx.server is app
    assert ctx.round == 1


async def test_the_client_is_known_by_what_it_says(app, use):
    seen = []
    app.add_tool(note(seen), name="look")
    await use(app, "look", client={"name": "Probe", "version": "9", "title": "P"})
    assert (seen[0].client.name, seen[0].client.version) == ("Probe", "9")


async def test_a_client_may_stay_anonymous(app, call, use):
    from antiphon.transports.memory import MemoryLink
    from messages import CLIENT, check_reply

    seen = []
    app.add_tool(note(seen), name="look")
    message = tool_call("look")
    del message["params"]["_meta"][CLIENT]
    check_reply(message, await MemoryLink(app).send(message))
    assert seen[0].client.name is None
    assert seen[0].client.version is None


@pytest.mark.parametrize(
    ("declared", "supported", "missing"),
    [
        ({}, [], ["elicitation", "elicitation.form", "elicitation.url", "sampling", "sampling.tools", "roots"]),
        ({"elicitation": {}}, ["elicitation", "elicitation.form"], ["elicitation.url", "sampling"]),
        ({"elicitation": {"form": {}}}, ["elicitation", "elicitation.form"], ["elicitation.url"]),
        ({"elicitation": {"form": {}, "url": {}}}, ["elicitation", "elicitation.url"], ["roots"]),
        ({"elicitation": {"url": {}}}, ["elicitation.url"], ["elicitation.form"]),
        ({"sampling": {}}, ["sampling"], ["sampling.tools", "sampling.context"]),
        ({"sampling": {"tools": {}}}, ["sampling", "sampling.tools"], ["elicitation"]),
        ({"roots": {}}, ["roots"], ["sampling"]),
        ({"experimental": {"x": {}}}, ["experimental.x"], ["experimental.y"]),
    ],
)
async def test_what_the_client_can_do_is_what_it_declared(app, use, declared, supported, missing):
    seen = []
    app.add_tool(note(seen), name="look")
    await use(app, "look", capabilities=declared)
    client = seen[0].client
    assert [name for name in supported if not client.supports(name)] == []
    assert [name for name in missing if client.supports(name)] == []


async def test_headers_are_those_of_the_request_whatever_their_case(app, http):
    seen = []
    app.add_tool(note(seen), name="look")
    await http.tool("look", headers={"x-request-id": "r1", "authorization": "Bearer t"})
    headers = seen[0].headers
    assert headers["X-Request-Id"] == "r1"
    assert headers["AUTHORIZATION"] == "Bearer t"
    assert headers.get("x-none") is None
    assert headers.get("no\u0142") is None
    assert "mcp-method" in headers
    assert "x-request-id" in list(headers)
    assert len(headers) == len(list(headers))


async def test_without_http_there_are_no_headers(app, use):
    seen = []
    app.add_tool(note(seen), name="look")
    await use(app, "look")
    assert dict(seen[0].headers) == {}


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_principal_is_whom_the_application_says(app, is_async):
    def now(scope):
        return dict(scope["headers"])[b"authorization"].decode().removeprefix("Bearer ")

    async def soon(scope):
        return now(scope)

    seen = []
    app.add_tool(note(seen), name="look")
    http = Http(app.asgi(principal=soon if is_async else now))
    await http.tool("look", headers={"authorization": "Bearer ann"})
    assert seen[0].principal == "ann"


async def test_without_a_hook_nobody_is_authenticated(app, http, use):
    seen = []
    app.add_tool(note(seen), name="look")
    await http.tool("look")
    await use(app, "look")
    await use(app, "look", principal="bob")
    assert [ctx.principal for ctx in seen] == [None, None, "bob"]


# --- progress -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["t", 0, ""])
async def test_progress_goes_to_the_token_of_the_request(app, use, token):
    @app.tool
    async def work(ctx: Context) -> None:
        await ctx.progress(1)
        await ctx.progress(2.5, 10, "half-way")

    told = []
    await use(app, "work", told=told, progress=token)
    assert [message["params"] for message in told] == [
        {"progressToken": token, "progress": 1},
        {"progressToken": token, "progress": 2.5, "total": 10, "message": "half-way"},
    ]


async def test_progress_that_nobody_asked_for_is_not_sent(app, use):
    @app.tool
    async def work(ctx: Context) -> None:
        await ctx.progress(1)

    told = []
    await use(app, "work", told=told)
    assert told == []


async def test_progress_only_goes_forwards(app, use):
    @app.tool
    async def work(ctx: Context) -> None:
        for done in (0, 1, 1, 0.5, 2, -1):
            await ctx.progress(done)

    told = []
    await use(app, "work", told=told, progress="t")
    assert [message["params"]["progress"] for message in told] == [0, 1, 2]


async def test_progress_of_calls_side_by_side_is_not_mixed_up(app, use):
    gate = asyncio.Barrier(2)

    @app.tool
    async def work(ctx: Context) -> None:
        await gate.wait()
        await ctx.progress(1)
        await gate.wait()
        await ctx.progress(2)

    first, second = [], []
    await asyncio.gather(
        use(app, "work", id=1, told=first, progress="a"), use(app, "work", id=2, told=second, progress="b")
    )
    assert [message["params"]["progressToken"] for message in first] == ["a", "a"]
    assert [message["params"]["progressToken"] for message in second] == ["b", "b"]


# --- logging ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", LEVELS)
async def test_log_messages_from_the_wanted_level_up_are_sent(app, use, wanted):
    @app.tool
    async def chatter(ctx: Context) -> None:
        for level in LEVELS:
            await ctx.log(level, {"said": level}, logger="db")

    told = []
    await use(app, "chatter", told=told, log_level=wanted)
    assert [message["method"] for message in told] == ["notifications/message"] * len(told)
    assert [message["params"] for message in told] == [
        {"level": level, "data": {"said": level}, "logger": "db"} for level in LEVELS[LEVELS.index(wanted) :]
    ]


async def test_without_a_level_in_the_request_nothing_is_logged_to_it(app, use):
    @app.tool
    async def chatter(ctx: Context) -> None:
        await ctx.log("emergency", "fire")

    told = []
    await use(app, "chatter", told=told)
    assert told == []


async def test_a_log_message_is_any_json_and_needs_no_logger(app, use):
    @app.tool
    async def chatter(ctx: Context) -> None:
        for data in ("text", None, [1, {"a": 2}], 1.5):
            await ctx.log("info", data)

    told = []
    await use(app, "chatter", told=told, log_level="info")
    assert [message["params"] for message in told] == [
        {"level": "info", "data": data} for data in ("text", None, [1, {"a": 2}], 1.5)
    ]


async def test_an_unknown_level_is_the_handlers_mistake_asked_for_or_not(app, call, caplog):
    @app.tool
    async def chatter(ctx: Context) -> None:
        await ctx.log("loud", "x")  # type: ignore[arg-type]

    assert (await call(app, "tools/call", {"name": "chatter"}))["error"]["code"] == -32603
    assert "debug, info" in caplog.text


@pytest.mark.parametrize("level", ["INFO", "x", 5])
async def test_a_level_that_does_not_exist_is_refused(app, call, level):
    app.add_tool(lambda: "x", name="echo")
    error = (await call(app, "tools/call", {"name": "echo"}, **{LOG_LEVEL: level}))["error"]
    assert error["code"] == -32602


async def test_the_server_says_that_it_logs(app, call):
    assert (await call(app, "server/discover"))["result"]["capabilities"]["logging"] == {}


# --- plain functions ----------------------------------------------------------------------------------------------


async def test_plain_functions_report_and_log_as_well(app, use):
    @app.tool
    def work(ctx: Context) -> bool:
        ctx.sync.progress(1, 2, "one")
        ctx.sync.log("info", "done")
        return threading.current_thread() is threading.main_thread()

    told = []
    result = await use(app, "work", told=told, progress="t", log_level="info")
    assert result["structuredContent"] is False
    assert [message["method"] for message in told] == ["notifications/progress", "notifications/message"]


# --- the end ------------------------------------------------------------------------------------------------------


async def test_nothing_is_told_after_the_result(app, http):
    # basic/patterns/progress: "Progress notifications MUST stop after completion".
    late = []

    @app.tool
    async def leave_something(ctx: Context) -> str:
        async def linger():
            await asyncio.sleep(0)
            await finished.wait()
            await ctx.progress(1)
            await ctx.log("info", "late")

        late.append(asyncio.ensure_future(linger()))
        return "done"

    finished = asyncio.Event()
    exchange = http.open(tool_call("leave_something", progress="t", log_level="info"))
    reply = await exchange.reply()
    finished.set()
    await asyncio.wait(late)
    assert late[0].exception() is None
    assert exchange.body == reply.body


async def test_every_handler_has_a_context_of_its_own(app, use):
    gate = asyncio.Barrier(2)

    @app.tool
    async def whose(ctx: Context) -> str:
        await gate.wait()
        return str(ctx.request_id)

    one, two = await asyncio.gather(use(app, "whose", id="a"), use(app, "whose", id="b"))
    assert (one["content"][0]["text"], two["content"][0]["text"]) == ("a", "b")
