"""Whatever is sent: never an exception, never a 500, never a hang, and the server keeps serving."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import Context, Server
from examples import examples

from .driver import LATEST, REVISIONS, SESSION, Client, accept, initialize, request, tool_call

FEW = examples(60)
LESS = examples(25)

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
)
methods = st.sampled_from(
    [
        "initialize",
        "ping",
        "tools/call",
        "tools/list",
        "prompts/get",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "logging/setLevel",
        "completion/complete",
        "server/discover",
        "subscriptions/listen",
        "notifications/cancelled",
        "notifications/initialized",
        "elicitation/create",
    ]
)
params = st.dictionaries(
    st.sampled_from(["name", "arguments", "uri", "level", "_meta", "requestId", "cursor", "protocolVersion", "ref"])
    | st.text(max_size=8),
    anything | st.sampled_from(["sure", "note://1", "echo", LATEST]),
    max_size=5,
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | anything,
        "id": anything,
        "method": methods | anything,
        "params": params | anything,
        "result": anything,
        "error": anything,
    },
)
odd = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=60)
versions = st.sampled_from([None, *REVISIONS, "2026-07-28", "2099-01-01", ""]) | odd
sessions = st.sampled_from(["own", None, "", "nobody"]) | odd
accepts = st.sampled_from(["application/json, text/event-stream", "application/json", "text/event-stream", "*/*"])


@pytest.fixture
def loop():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def app():
    app = Server("tests", ask_timeout=0.02)

    @app.tool
    async def echo(text: str) -> str:
        return text

    @app.tool
    async def sure(ctx: Context) -> str:
        return str(await ctx.confirm("Sure?"))

    @app.resource("note://{id}")
    async def note(id: str) -> str:
        return id

    @app.prompt
    async def greet(name: str) -> str:
        return name

    return app


@pytest.fixture
def target(app, loop):
    client = Client(app.asgi())
    loop.run(client.connect())
    return client


async def settle(exchange):
    """Wait for the answer; a stream that does not end by itself is left."""
    try:
        async with asyncio.timeout(0.2):
            await asyncio.wait({exchange.task})
    except TimeoutError:
        assert exchange.is_stream, "no answer"
        exchange.disconnect()
    await exchange.finished()
    assert exchange.status is not None
    assert exchange.status < 500, exchange.body
    assert exchange.messages is not None  # all of them are well-formed


async def still_serves(client):
    reply = await client.post(tool_call("echo", {"text": "hi"}))
    assert reply.result["content"][0]["text"] == "hi"


def about(client, session, version, accept):
    return {
        SESSION: client.session if session == "own" else session,
        "mcp-protocol-version": version,
        "accept": accept,
    }


@FEW
@given(message=messages | anything, session=sessions, version=versions, accept=accepts)
def test_any_message_with_any_headers(loop, target, message, session, version, accept):
    async def run():
        headers = about(target, session, version, accept)
        await settle(target.open(json.dumps(message).encode(), headers=headers))
        await still_serves(target)

    loop.run(run())


@FEW
@given(message=messages)
def test_any_message_in_a_session(loop, target, message):
    async def run():
        await settle(target.open({**message, "jsonrpc": "2.0"}))
        await still_serves(target)

    loop.run(run())


@LESS
@given(body=st.binary(max_size=60), session=sessions)
def test_any_bytes(loop, target, body, session):
    async def run():
        headers = about(target, session, None, "*/*")
        await settle(target.open(body, headers=headers))
        await still_serves(target)

    loop.run(run())


@LESS
@given(batch=st.lists(messages | anything, max_size=5))
def test_any_batch(app, loop, batch):
    async def run():
        client = Client(app.asgi(), revision="2025-03-26")
        await client.connect()
        await settle(client.open(json.dumps(batch).encode()))
        await still_serves(client)

    loop.run(run())


@LESS
@given(message=messages, version=versions)
def test_any_message_without_sessions(app, loop, message, version):
    async def run():
        client = Client(app.asgi(legacy="stateless"))
        await settle(client.open({**message, "jsonrpc": "2.0"}, headers={"mcp-protocol-version": version}))
        await still_serves(client)

    loop.run(run())


names = st.sampled_from(["changes", "x", "", "a-1", "a-1.b", ":", "antiphon"]) | odd
places = st.sampled_from(["", "0", "1", "0" * 19, "9" * 19, "9" * 20, "0" * 18 + "1", "-1", "1.5", "¹"]) | odd


@FEW
@given(last=odd | st.builds("{}.{}".format, names, places))
def test_any_last_event_id(loop, target, last):
    async def run():
        exchange = target.listen(last)
        await exchange.until(lambda: exchange.status is not None)
        assert exchange.status in {200, 400}
        exchange.disconnect()
        await exchange.finished()
        await still_serves(target)

    loop.run(run())


@LESS
@given(verb=st.sampled_from(["GET", "DELETE", "PUT", "HEAD", "OPTIONS"]), session=sessions, version=versions, last=odd)
def test_any_verb(loop, target, verb, session, version, last):
    async def run():
        headers = {**about(target, session, version, "text/event-stream"), "last-event-id": last}
        if verb == "DELETE" and session == "own":
            headers[SESSION] = "nobody"
        exchange = target.open(b"", verb=verb, headers=headers)
        await exchange.until(lambda: exchange.status is not None)
        assert exchange.status < 500
        exchange.disconnect()
        await exchange.finished()
        await still_serves(target)

    loop.run(run())


@LESS
@given(result=anything, key=st.sampled_from(["result", "error"]))
def test_any_answer_to_a_question(app, loop, result, key):
    async def run():
        client = Client(app.asgi())
        await client.connect()
        call = client.tool("sure")
        question = await call.next_message()
        reply = await client.post({"jsonrpc": "2.0", "id": question["id"], key: result})
        assert reply.status == 202
        await call.finished()
        assert "result" in call.messages[-1] or "error" in call.messages[-1]
        await still_serves(client)

    loop.run(run())


@LESS
@given(params=params | anything)
def test_any_initialize(app, loop, params):
    async def run():
        client = Client(app.asgi())
        await settle(client.open(request("initialize", params) if params is not None else request("initialize")))
        await client.connect()
        await still_serves(client)

    loop.run(run())


@LESS
@given(
    capabilities=st.dictionaries(
        st.sampled_from(["elicitation", "sampling", "roots", "tasks"]), anything | st.just({"form": {}}), max_size=4
    )
)
def test_any_capabilities(app, loop, capabilities):
    async def run():
        client = Client(app.asgi(), capabilities=capabilities)
        await client.connect()
        await settle(client.tool("sure"))
        await still_serves(client)

    loop.run(run())


# --- by hand ------------------------------------------------------------------------------------------------------


async def test_questions_cannot_be_answered_by_guessing(app, client):
    app.ask_timeout = None
    victim = Client(client.app)
    await victim.connect()
    call = victim.tool("sure")
    question = await call.next_message()
    instance, _, number = question["id"].rpartition("-")
    for guess in (f"{instance}-{int(number) + offset}" for offset in range(-2, 3)):
        reply = await client.post({"jsonrpc": "2.0", "id": guess, "result": accept(confirm=True)})
        assert reply.status == 202
    await call.finished()
    assert "True" not in json.dumps(call.messages)


async def test_a_body_that_is_too_large_is_refused(app):
    client = Client(app.asgi(max_body=1000))
    await client.connect()
    reply = await client.post(tool_call("echo", {"text": "x" * 2000}))
    assert reply.status == 413
    await still_serves(client)


@pytest.mark.parametrize(("name", "value"), [("host", "evil.example"), ("origin", "https://evil.example")])
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_other_peoples_pages_do_not_reach_a_session(client, verb, name, value):
    body = json.dumps(initialize()).encode() if verb == "POST" else b""
    assert (await client.open(body, verb=verb, headers={name: value}).reply()).status == 403
    assert (await client.call("ping"))["result"] == {}
