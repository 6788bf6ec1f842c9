"""Requests in a session: what older revisions know that the modern one does not, and how results are told to them."""

import asyncio
import logging
from dataclasses import dataclass

import pytest

from antiphon import Context, Server, ToolResult

from .driver import LATEST, REVISIONS, Client, notification, request, text_of, tool_call


@dataclass
class Point:
    x: int
    y: int


@pytest.fixture
def app():
    app = Server("tests", page_size=2)

    @app.tool
    async def point() -> Point:
        return Point(1, 2)

    @app.tool
    async def numbers() -> list[int]:
        return [1, 2]

    @app.tool
    async def number() -> int:
        return 7

    @app.tool
    async def stated() -> ToolResult:
        return ToolResult(content="hi", structured=[1], meta={"mine": 1})

    @app.tool
    async def talk(ctx: Context) -> str:
        for level in ("debug", "info", "warning", "emergency"):
            await ctx.log(level, f"{level}!", logger="tests")
        return "said"

    @app.tool
    async def count(ctx: Context) -> str:
        for number in (1, 2, 2, 1, 3):
            await ctx.progress(number, 3, "counting")
        return "counted"

    @app.tool
    async def who(ctx: Context) -> str:
        return f"{ctx.client.name} {ctx.client.version} {ctx.protocol_version} {ctx.headers['accept'][:16]}"

    @app.prompt
    async def greet(name: str) -> str:
        return f"Hello {name}"

    @app.complete(greet, "name")
    async def names(value: str) -> list[str]:
        return [name for name in ("ada", "alan", "bob") if name.startswith(value)]

    @app.resource("note://{id}", ttl=5, scope="public")
    async def note(id: str) -> str:
        return f"note {id}"

    @app.resource("note://first")
    async def first() -> str:
        return "first"

    return app


# --- small things -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("params", [None, {}, {"_meta": {}}])
async def test_ping_is_answered_with_nothing(client, params):
    assert (await client.call("ping", params))["result"] == {}


@pytest.mark.parametrize(
    ("level", "heard"),
    [
        ("debug", ["debug", "info", "warning", "emergency"]),
        ("info", ["info", "warning", "emergency"]),
        ("notice", ["warning", "emergency"]),
        ("error", ["emergency"]),
        ("emergency", ["emergency"]),
    ],
)
async def test_a_session_hears_what_its_level_lets_through(client, level, heard):
    assert (await client.call("logging/setLevel", {"level": level}))["result"] == {}
    told = await client.converse(tool_call("talk"), {})
    assert [message["params"]["level"] for message in told.notified] == heard
    assert told.notified[0] == notification(
        "notifications/message", {"level": heard[0], "data": f"{heard[0]}!", "logger": "tests"}
    )


async def test_a_level_is_one_sessions_own(client):
    other = Client(client.app)
    await other.connect()
    await client.call("logging/setLevel", {"level": "emergency"})
    assert len((await client.converse(tool_call("talk"), {})).notified) == 1
    assert len((await other.converse(tool_call("talk"), {})).notified) == 3


@pytest.mark.parametrize("params", [{}, {"level": "loud"}, {"level": 1}, {"level": None}, {"level": []}])
async def test_an_unknown_level_is_refused_and_changes_nothing(client, params):
    fault = (await client.call("logging/setLevel", params))["error"]
    assert fault["code"] == -32602
    assert "debug" in fault["message"]
    assert len((await client.converse(tool_call("talk"), {})).notified) == 3


@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
@pytest.mark.parametrize("params", [{}, {"uri": 1}, {"uri": None}])
async def test_a_subscription_needs_a_uri(client, method, params):
    assert (await client.call(method, params))["error"]["code"] == -32602


async def test_a_session_subscribes_to_only_so_much(client):
    async def until_refused(make):
        for number in range(1100):
            reply = await client.call("resources/subscribe", {"uri": make(number)})
            if "error" in reply:
                assert reply["error"]["code"] == -32602
                return number
        return None

    assert await until_refused(lambda number: f"note://{number}") == 1000
    for number in range(1000):
        await client.call("resources/unsubscribe", {"uri": f"note://{number}"})
    assert await until_refused(lambda number: f"note://{number}/{'x' * 7_000}") == 2


async def test_what_came_later_is_not_there(client):
    for method in ("server/discover", "subscriptions/listen"):
        fault = (await client.call(method, {"notifications": {}}))["error"]
        assert fault["code"] == -32601
        assert LATEST in fault["message"]


async def test_an_unknown_method_does_not_look_like_an_ended_session(client):
    reply = await client.post(request("nothing/known"))
    assert reply.status == 200
    assert reply.error["code"] == -32601


async def test_tasks_are_not_there(client):
    assert (await client.call("tasks/list"))["error"]["code"] == -32601


async def test_a_method_of_ones_own_serves_both_eras(app):
    from asgi import Http

    @app.on("house/rules")
    async def rules(params: dict) -> dict:
        return {"asked": params.get("for")}

    client = Client(app.asgi())
    await client.connect()
    assert (await client.call("house/rules", {"for": "me"}))["result"] == {"asked": "me"}
    assert (await Http(client.app).call("house/rules", {"for": "me"})).result["asked"] == "me"


# --- results ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
async def test_results_say_nothing_that_came_later(app, revision):
    client = Client(app.asgi(), revision=revision)
    await client.connect()
    # The driver's referee looks at every one of them.
    assert (await client.call("prompts/list"))["result"]["prompts"][0]["name"] == "greet"
    assert (await client.call("resources/list"))["result"] == {"resources": [{"uri": "note://first", "name": "first"}]}
    assert "ttlMs" not in (await client.call("resources/read", {"uri": "note://1"}))["result"]
    got = await client.call("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}})
    assert got["result"]["messages"] == [{"role": "user", "content": {"type": "text", "text": "Hello Ada"}}]
    ref = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "a"}}
    assert (await client.call("completion/complete", ref))["result"]["completion"]["values"] == ["ada", "alan"]
    templates = (await client.call("resources/templates/list"))["result"]
    assert templates["resourceTemplates"][0]["uriTemplate"] == "note://{id}"


async def test_structured_content_is_an_object_or_not_there(client):
    assert (await client.use("point"))["result"]["structuredContent"] == {"x": 1, "y": 2}
    for name, text in (("numbers", "[1,2]"), ("number", "7")):
        result = (await client.use(name))["result"]
        assert "structuredContent" not in result
        assert result["content"] == [{"type": "text", "text": text}]
    stated = (await client.use("stated"))["result"]
    assert stated == {"content": [{"type": "text", "text": "hi"}], "_meta": {"mine": 1}}


async def test_an_output_schema_is_one_of_an_object_or_not_there(client):
    tools, cursor = {}, None
    while True:
        result = (await client.call("tools/list", {"cursor": cursor} if cursor else {}))["result"]
        tools.update({tool["name"]: tool for tool in result["tools"]})
        cursor = result.get("nextCursor")
        if cursor is None:
            break
    assert len(tools) == 7
    assert tools["point"]["outputSchema"]["type"] == "object"
    assert [name for name, tool in tools.items() if "outputSchema" in tool] == ["point"]


async def test_the_modern_list_keeps_what_the_old_one_drops(client):
    from asgi import Http

    await client.call("tools/list")
    listed = (await Http(client.app).call("tools/list")).result["tools"]
    assert listed[1]["outputSchema"]["type"] == "array"


async def test_a_middleware_sees_the_same_and_the_result_is_still_an_old_one(app):
    seen = []

    @app.middleware
    async def watch(ctx, proceed):
        result = await proceed(ctx)
        seen.append(result["resultType"])
        return result

    client = Client(app.asgi())
    await client.connect()
    assert (await client.use("number"))["result"] == {"content": [{"type": "text", "text": "7"}]} | {"_meta": {}}
    assert seen == ["complete"]


async def test_a_resource_that_is_not_there_has_its_old_code(client):
    reply = await client.post(request("resources/read", {"uri": "file:///nothing"}))
    assert reply.status == 200
    assert reply.error == {"code": -32002, "message": "Resource not found", "data": {"uri": "file:///nothing"}}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools/call", {"name": "nobody"}, -32602),
        ("tools/call", {}, -32602),
        ("tools/call", {"name": 1}, -32602),
        ("tools/call", {"name": "number", "arguments": []}, -32602),
        ("tools/call", {"name": "number", "_meta": 1}, -32602),
        ("tools/call", {"name": "number", "_meta": {"progressToken": []}}, -32602),
        ("prompts/get", {"name": "nobody"}, -32602),
        ("resources/read", {}, -32602),
        ("tools/list", {"cursor": "nonsense"}, -32602),
    ],
)
async def test_a_fault_of_the_callers_is_an_error_with_status_200(client, method, params, code):
    reply = await client.post(request(method, params))
    assert reply.status == 200
    assert reply.error["code"] == code


async def test_an_error_inside_tells_nothing(app, caplog):
    @app.tool
    async def broken() -> str:
        raise RuntimeError("secret")

    client = Client(app.asgi())
    await client.connect()
    assert (await client.use("broken"))["error"] == {"code": -32603, "message": "Internal error"}
    assert "secret" in caplog.text


async def test_a_handler_knows_who_calls_and_how(client):
    assert text_of(await client.use("who")) == "by hand 1.0 2025-11-25 application/json"


# --- progress -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["mine", 7])
async def test_progress_goes_on_the_stream_of_its_call(client, token):
    stream = client.listen()
    await stream.opened()
    told = await client.converse(tool_call("count", _meta={"progressToken": token}), {})
    assert [message["params"] for message in told.notified] == [
        {"progressToken": token, "progress": number, "total": 3, "message": "counting"} for number in (1, 2, 3)
    ]
    assert stream.messages == []
    stream.disconnect()
    await stream.finished()


async def test_progress_that_nobody_asked_for_is_not_told(client):
    reply = await client.post(tool_call("count"))
    assert not reply.is_stream


async def test_who_takes_no_streams_is_told_no_progress(client):
    message = tool_call("count", _meta={"progressToken": 1})
    reply = await client.post(message, headers={"accept": "application/json"})
    assert reply.result["content"][0]["text"] == "counted"


# --- cancellation -------------------------------------------------------------------------------------------------


@pytest.fixture
def working(app):
    """A tool that works until it is told, and what happened to it."""
    seen = {"running": asyncio.Event(), "go": asyncio.Event(), "cancelled": 0}

    @app.tool
    async def work(ctx: Context, loud: bool = False) -> str:
        if loud:
            await ctx.log("warning", "at it")
        seen["running"].set()
        try:
            await seen["go"].wait()
        except asyncio.CancelledError:
            seen["cancelled"] += 1
            raise
        return "worked"

    return seen


@pytest.mark.parametrize("loud", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("id", [5, "5", "é"])
async def test_a_cancelled_request_ends_and_is_not_answered(app, working, client, id, loud):
    call = client.tool("work", {"loud": loud}, id=id)
    await working["running"].wait()
    await client.tell("notifications/cancelled", {"requestId": id, "reason": "enough"})
    await call.finished()
    assert working["cancelled"] == 1
    assert [message for message in call.messages if "method" not in message] == []
    assert call.ended
    assert call.status == (200 if loud else 202)
    assert call.task.cancelling() == 0  # a host's timeout around it must not be confused


@pytest.mark.parametrize(
    "params", [None, {}, {"requestId": None}, {"requestId": []}, {"requestId": 99}, {"requestId": "5"}]
)
async def test_a_cancellation_of_something_else_is_ignored(working, client, params):
    call = client.tool("work", id=5)
    await working["running"].wait()
    await client.tell("notifications/cancelled", params)
    working["go"].set()
    assert text_of((await call.reply()).message) == "worked"


async def test_nobody_cancels_the_request_of_another_session(working, client):
    other = Client(client.app)
    await other.connect()
    call = client.tool("work", id=5)
    await working["running"].wait()
    await other.tell("notifications/cancelled", {"requestId": 5})
    working["go"].set()
    assert text_of((await call.reply()).message) == "worked"


async def test_one_id_is_used_once_at_a_time(working, client):
    call = client.tool("work", id=5)
    await working["running"].wait()
    reply = await client.post(request("ping", id=5))
    assert reply.status == 400
    assert "5" in reply.error["message"]
    other = Client(client.app)
    await other.connect()
    assert (await other.post(request("ping", id=5))).result == {}
    working["go"].set()
    assert text_of((await call.reply()).message) == "worked"
    assert (await client.post(request("ping", id=5))).result == {}


async def test_a_host_that_cancels_a_request_is_not_taken_for_the_client(working, client):
    call = client.tool("work")
    await working["running"].wait()
    call.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.task
    assert call.messages == []
    assert working["cancelled"] == 1


# --- batches ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def batching(app):
    client = Client(app.asgi(), revision="2025-03-26")
    await client.connect()
    return client


async def test_a_batch_is_answered_as_one(batching):
    messages = [request("ping", id="a"), notification("notifications/x"), tool_call("number", id="b")]
    reply = await batching.post(messages)
    assert {message["id"]: "result" in message for message in reply.message} == {"a": True, "b": True}


async def test_a_batch_of_one_is_a_batch(batching):
    assert (await batching.post([request("ping", id="a")])).message == [{"jsonrpc": "2.0", "id": "a", "result": {}}]


async def test_a_batch_may_begin_with_white_space(batching):
    assert len((await batching.post(b' \r\n\t[{"jsonrpc":"2.0","id":1,"method":"ping"}]')).message) == 1


async def test_a_batch_without_requests_is_accepted(batching):
    messages = [notification("notifications/x"), {"jsonrpc": "2.0", "id": "x", "result": {}}]
    reply = await batching.post(messages)
    assert (reply.status, reply.body) == (202, b"")


async def test_a_batch_whose_requests_have_something_to_say_is_a_stream(batching):
    messages = [request("ping", id="a"), tool_call("count", id="b", _meta={"progressToken": 1})]
    exchange = batching.open(messages)
    await exchange.finished()
    assert exchange.is_stream
    assert {message["id"] for message in exchange.messages if "id" in message} == {"a", "b"}
    assert len([message for message in exchange.messages if "method" in message]) == 3


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [[]],
        [1],
        ["x"],
        [None],
        [request("initialize", {}, id=1)],
        [{"jsonrpc": "2.0", "id": None, "method": "ping"}],
        [{"id": 1, "method": "ping"}],
        [request("ping", id=1), request("ping", id=1)],
        [request("ping", id=number) for number in range(101)],
    ],
    ids=lambda messages: str(messages)[:40],
)
async def test_a_batch_that_is_none_is_refused(batching, messages):
    reply = await batching.post(messages)
    assert 400 <= reply.status < 500
    assert (await batching.post([request("ping", id=1)])).status == 200


async def test_a_deep_batch_is_refused(batching):
    for depth in (60, 100, 300, 900, 2000, 100_000):
        body = b'[{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"[" * depth + b"]" * depth + b"}}]"
        assert (await batching.open(body).reply()).status == (200 if depth == 60 else 400), depth


@pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18", "2024-11-05"])
async def test_no_other_revision_knows_batches(app, revision):
    client = Client(app.asgi(), revision=revision)
    await client.connect()
    for header in (None, revision, "2025-03-26"):
        reply = await client.post([request("ping")], headers={"mcp-protocol-version": header})
        assert reply.status == 400
        assert "batches" in reply.error["message"]


async def test_one_request_of_a_batch_is_cancelled(app, working, batching):
    call = batching.open([tool_call("work", id=5), tool_call("number", id=6)])
    await working["running"].wait()
    assert (await batching.post(request("ping", id=5))).status == 400
    await batching.tell("notifications/cancelled", {"requestId": 5})
    assert [message["id"] for message in (await call.reply()).message] == [6]
    assert working["cancelled"] == 1


async def test_a_whole_batch_is_cancelled(app, working, batching):
    call = batching.open([tool_call("work", id=5)])
    await working["running"].wait()
    await batching.tell("notifications/cancelled", {"requestId": 5})
    reply = await call.reply()
    assert (reply.status, reply.body) == (202, b"")


async def test_a_batch_asks(app, batching):
    @app.tool
    async def sure(ctx: Context) -> str:
        return str(await ctx.confirm("Sure?"))

    call = batching.open([tool_call("sure", id="a"), tool_call("sure", id="b")])
    for _ in range(2):
        await batching.answer(await call.next_message(), {"action": "accept", "content": {"confirm": True}})
    await call.finished()
    assert {message["id"]: text_of(message) for message in call.messages if "result" in message} == {
        "a": "True",
        "b": "True",
    }


# --- at once ------------------------------------------------------------------------------------------------------


async def test_what_a_session_remembers_survives_requests_at_once(store):
    app = Server("tests", store=store)
    client = Client(app.asgi())
    await client.connect()
    uris = [f"note://{number}" for number in range(20)]
    wanted = [client.call("resources/subscribe", {"uri": uri}) for uri in uris]
    wanted.append(client.call("logging/setLevel", {"level": "error"}))
    await asyncio.gather(*wanted)
    session = await client.app.dialect.sessions.find(client.session.encode(), None)
    assert sorted(session.uris) == sorted(uris)
    assert session.level == "error"


async def test_many_requests_at_once_are_each_answered_by_their_own(client):
    replies = await asyncio.gather(*(client.post(tool_call("number", id=number)) for number in range(100)))
    assert [reply.message["id"] for reply in replies] == list(range(100))


async def test_an_ordinary_day_warns_of_nothing(client, caplog):
    caplog.set_level(logging.DEBUG)
    await client.use("count", _meta={"progressToken": 1})
    await client.call("ping")
    await client.delete()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
