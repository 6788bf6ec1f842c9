"""The log: a line for each round, the reason for each failure, and nothing that is nobody's business."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from antiphon import Context, InputRequired, Seal, Server, SignedState, ToolError, ask, input_required
from antiphon.rounds.token import generate_key
from antiphon.server.run import Run

ASKABLE: dict[str, object] = {"elicitation": {}}
ANSWER = "the-emerald-of-the-crown"
KEY = generate_key(b"l" * 32)
FROZEN = {"code": -32602, "message": "Invalid or expired requestState"}

Json = dict[str, Any]
Caller = Callable[..., Any]


def served(**options: Any) -> Server:
    """A server with a tool that asks twice, and some that fail."""
    app = Server("logged", version="1.0.0", **{"seal": Seal(KEY), **options})

    @app.tool
    async def fetch(shelf: str, ctx: Context) -> str:
        what = (await ctx.elicit("What?", str, key="what")).unwrap()
        count = await ctx.step("count", len, what)
        why = (await ctx.elicit("Why?", str, key="why")).unwrap()
        return f"{what} {count} {why}"

    @app.tool
    async def fetch_returning(shelf: str, ctx: Context) -> str | InputRequired:
        what = ctx.accepted("what", str)
        why = ctx.accepted("why", str)
        if what is None:
            return input_required({"what": ask.form("What?", str)})
        if why is None:
            return input_required({"why": ask.form("Why?", str)}, state={"seen": what})
        return f"{what} {len(what)} {why}"

    @app.tool
    async def ping() -> str:
        return "pong"

    @app.tool
    async def break_down(shelf: str, ctx: Context) -> str:
        await ctx.elicit("What?", str, key="what")
        raise RuntimeError("the disk is full")

    @app.tool
    async def refuse() -> str:
        raise ToolError("not today")

    @app.tool
    async def hoard(shelf: str, ctx: Context) -> str:
        first = await ctx.elicit("First?", str, key="first")
        await ctx.elicit("Second?", str, key="second")
        return str(first)

    return app


def accept(value: object) -> Json:
    return {"action": "accept", "content": {"value": value}}


async def converse(call: Caller, app: Server, name: str = "fetch", **about: Any) -> list[Json]:
    """A call to its end; every question gets the answer. The replies, round by round."""
    params: Json = {"name": name, "arguments": {"shelf": "top"}}
    replies: list[Json] = []
    while True:
        reply = await call(app, "tools/call", params, id=f"leg-{len(replies) + 1}", capabilities=ASKABLE, **about)
        replies.append(reply)
        result = reply.get("result", {})
        if result.get("resultType") != "input_required":
            return replies
        answers = dict.fromkeys(result["inputRequests"], accept(ANSWER))
        params = {**params, "requestState": result["requestState"], "inputResponses": answers}


def fields(record: logging.LogRecord) -> Json:
    return {name: value for name, value in vars(record).items() if name.startswith("mcp_")}


def ours(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "antiphon" and record.levelno == level]


def whole(caplog: pytest.LogCaptureFixture) -> str:
    """All that any handler could write: messages, tracebacks and the fields of every record."""
    return caplog.text + "".join(repr(vars(record)) for record in caplog.records)


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


async def test_every_round_is_one_line_with_its_number_and_the_flow(
    caplog: pytest.LogCaptureFixture, call: Caller
) -> None:
    await converse(call, served())
    records = ours(caplog)
    assert [record.getMessage() for record in records] == [
        "tools/call 'fetch' id='leg-1' round=1 input_required",
        "tools/call 'fetch' id='leg-2' round=2 input_required",
        "tools/call 'fetch' id='leg-3' round=3 complete",
    ]
    (flow,) = {fields(record)["mcp_flow"] for record in records}
    assert len(bytes.fromhex(flow)) == 12
    assert [fields(record) for record in records] == [
        {
            "mcp_method": "tools/call",
            "mcp_name": "fetch",
            "mcp_request_id": f"leg-{number}",
            "mcp_round": number,
            "mcp_flow": flow,
            "mcp_result": result,
        }
        for number, result in [(1, "input_required"), (2, "input_required"), (3, "complete")]
    ]
    assert len(caplog.records) == 3


async def test_the_return_style_is_logged_alike(caplog: pytest.LogCaptureFixture, call: Caller) -> None:
    await converse(call, served(), "fetch_returning")
    told = [fields(record) for record in ours(caplog)]
    assert [record["mcp_round"] for record in told] == [1, 2, 3]
    assert len({record["mcp_flow"] for record in told}) == 1


async def test_the_flow_in_the_log_is_the_one_that_the_handler_sees(
    caplog: pytest.LogCaptureFixture, call: Caller
) -> None:
    app = served()
    seen: list[tuple[int, str]] = []

    @app.tool
    async def look(shelf: str, ctx: Context) -> str:
        seen.append((ctx.round, ctx.flow))
        return str(await ctx.elicit("What?", str))

    await converse(call, app, "look")
    told = [fields(record) for record in ours(caplog)]
    assert [(record["mcp_round"], record["mcp_flow"]) for record in told] == seen


async def test_a_call_that_asks_nothing_is_one_line_without_a_flow(
    caplog: pytest.LogCaptureFixture, call: Caller
) -> None:
    await call(served(), "tools/call", {"name": "ping", "arguments": {}}, id=7)
    (record,) = ours(caplog)
    assert record.getMessage() == "tools/call 'ping' id=7 round=1 complete"
    assert fields(record)["mcp_flow"] is None


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR])
async def test_nothing_is_computed_for_a_line_that_is_not_logged(
    caplog: pytest.LogCaptureFixture, call: Caller, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    def unwanted(*_: object) -> str:
        raise AssertionError("computed for the log, which is off")

    monkeypatch.setattr(Run, "__str__", unwanted)
    monkeypatch.setattr(Run, "facts", unwanted)
    caplog.set_level(level, logger="antiphon")
    replies = await converse(call, served())
    assert replies[-1]["result"]["resultType"] == "complete"
    assert caplog.records == []


async def test_a_failure_is_logged_with_its_traceback_and_the_peer_learns_nothing_of_it(
    caplog: pytest.LogCaptureFixture, call: Caller
) -> None:
    replies = await converse(call, served(), "break_down")
    assert replies[-1]["error"] == {"code": -32603, "message": "Internal error"}
    (record,) = ours(caplog, logging.ERROR)
    assert record.getMessage() == "tools/call 'break_down' id='leg-2' round=2 failed"
    assert record.exc_info is not None
    assert "RuntimeError: the disk is full" in caplog.text
    assert "in break_down" in caplog.text
    assert "disk" not in str(replies)


async def test_a_line_about_a_failure_carries_the_fields_of_its_round(
    caplog: pytest.LogCaptureFixture, call: Caller
) -> None:
    await converse(call, served(), "break_down")
    (asked,), (failed,) = ours(caplog), ours(caplog, logging.ERROR)
    assert fields(failed)["mcp_round"] == 2
    assert fields(failed)["mcp_flow"] == fields(asked)["mcp_flow"]


async def test_a_tool_error_is_a_result_like_any_other(caplog: pytest.LogCaptureFixture, call: Caller) -> None:
    await call(served(), "tools/call", {"name": "refuse", "arguments": {}})
    (record,) = caplog.records
    assert (record.levelno, fields(record)["mcp_result"]) == (logging.INFO, "complete")


async def test_a_refused_token_is_logged_with_the_reason_and_the_peer_hears_the_frozen_error(
    caplog: pytest.LogCaptureFixture, call: Caller
) -> None:
    app = served()
    token = (await converse(call, app))[0]["result"]["requestState"]
    caplog.clear()
    for bad, reason in [
        (f"{token[:-6]}AAAAAA", "forged"),
        (token[:20], "malformed"),
        (f"ap9{token[3:]}", "wrong version"),
        (7, "malformed"),
    ]:
        params = {"name": "fetch", "arguments": {"shelf": "top"}, "requestState": bad}
        assert (await call(app, "tools/call", params, capabilities=ASKABLE))["error"] == FROZEN
        record = caplog.records.pop()
        assert record.getMessage() == f"requestState refused for tools/call 'fetch': {reason}"
        assert record.levelno == logging.WARNING
    assert caplog.records == []


async def test_a_conversation_that_outgrows_its_token_is_logged_with_what_filled_it(
    caplog: pytest.LogCaptureFixture, call: Caller
) -> None:
    replies = await converse(call, served(seal=SignedState(KEY, max_bytes=400)), "hoard")
    assert replies[-1]["error"] == {"code": -32603, "message": "The conversation has grown too large to continue"}
    (record,) = ours(caplog, logging.ERROR)
    assert "max_bytes=400" in record.getMessage()
    assert "answer 'first': " in record.getMessage()
    assert ANSWER not in whole(caplog)


@pytest.mark.parametrize("name", ["fetch", "fetch_returning", "hoard", "break_down"])
@pytest.mark.parametrize("seal", [Seal(KEY), SignedState(KEY)], ids=["sealed", "signed"])
async def test_no_token_no_answer_and_no_argument_is_in_any_line(
    caplog: pytest.LogCaptureFixture, call: Caller, name: str, seal: object
) -> None:
    replies = await converse(call, served(seal=seal), name)
    tokens = [reply["result"]["requestState"] for reply in replies[:-1]]
    forged = {"name": name, "arguments": {"shelf": "bottom"}, "requestState": tokens[0]}
    await call(served(seal=seal), "tools/call", forged, capabilities=ASKABLE)
    assert any("refused" in record.getMessage() for record in caplog.records)
    for private in (*tokens, ANSWER, "shelf", "bottom"):
        assert private not in whole(caplog)


async def test_a_name_from_the_wire_cannot_forge_a_line(caplog: pytest.LogCaptureFixture, call: Caller) -> None:
    app = served()

    @app.resource("note://{+id}")
    async def note(id: str) -> str:
        return id

    forged = "note://x\nINFO antiphon: all is well"
    await call(app, "resources/read", {"uri": forged}, id="1\n2")
    await call(app, "tools/call", {"name": forged, "arguments": {}, "requestState": "ap1.x"})
    for record in caplog.records:
        assert "\n" not in record.getMessage()


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Server:
    """What the `http` fixture serves: a server that nobody gave a key."""
    monkeypatch.delenv("ANTIPHON_KEYS", raising=False)
    return served(seal=Seal())


async def test_a_key_of_this_process_alone_is_warned_about_once_and_over_http_only(
    caplog: pytest.LogCaptureFixture, call: Caller, app: Server, http: Any
) -> None:
    await converse(call, app)
    assert ours(caplog, logging.WARNING) == []
    for _ in range(2):
        await http.tool("fetch", {"shelf": "top"}, capabilities=ASKABLE)
    (record,) = ours(caplog, logging.WARNING)
    assert "ANTIPHON_KEYS" in record.getMessage()


async def test_a_middleware_sees_one_entry_per_round(call: Caller) -> None:
    app = served()
    seen: list[tuple[int, str, object]] = []

    async def watch(ctx: Context, proceed: Any) -> Json:
        result: Json = await proceed(ctx)
        seen.append((ctx.round, ctx.flow, result["resultType"]))
        return result

    app.middleware(watch)
    await converse(call, app)
    assert [(number, result) for number, _, result in seen] == [
        (1, "input_required"),
        (2, "input_required"),
        (3, "complete"),
    ]
    assert len({flow for _, flow, _ in seen}) == 1
