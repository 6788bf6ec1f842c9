"""Older clients of whom nothing is kept: they are served, but cannot be asked."""

import json
from typing import Annotated

import pytest

from antiphon import Ask, Context, InputRequired, Server, ask, input_required

from .driver import LATEST, REVISIONS, SESSION, Client, initialize, notification, request, text_of, tool_call


@pytest.fixture
def app():
    app = Server("tests")

    @app.tool
    async def echo(text: str) -> str:
        return text

    @app.tool
    async def count(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.log("warning", "careful")
        return "counted"

    @app.tool
    async def awaiting(ctx: Context) -> str:
        return str(await ctx.confirm("Sure?"))

    @app.tool
    def in_a_thread(ctx: Context) -> str:
        return str(ctx.sync.confirm("Sure?"))

    @app.tool
    async def returning(ctx: Context) -> str | InputRequired:
        return input_required({"sure": ask.confirm("Sure?")})

    @app.tool
    async def declaring(sure: Annotated[bool, Ask("Sure?")]) -> str:
        return str(sure)

    @app.tool
    async def shedding(ctx: Context) -> str | InputRequired:
        done = ctx.state(int) or 0
        return f"{done} in {ctx.round} rounds" if done == 2 else input_required(state=done + 1)

    @app.tool
    async def sign_in(ctx: Context, form: bool = False) -> str | InputRequired:
        pages = {name: ask.url(f"Sign in to {name}", f"https://{name}.example") for name in ("a", "b")}
        return input_required({**pages, "sure": ask.confirm("Sure?")} if form else pages)

    @app.tool
    async def careful(ctx: Context) -> str:
        return "asked" if ctx.client.supports("elicitation") else "did without"

    @app.prompt
    async def report(ctx: Context) -> str:
        return str(await ctx.confirm("Sure?"))

    @app.resource("note://1")
    async def note() -> str:
        return "a note"

    return app


@pytest.fixture
async def client(app):
    made = Client(app.asgi(legacy="stateless"))
    await made.connect()
    return made


@pytest.mark.parametrize("revision", REVISIONS)
async def test_initialize_opens_no_session(app, revision):
    client = Client(app.asgi(legacy="stateless"), revision=revision)
    said = await client.connect()
    assert said["protocolVersion"] == revision
    assert client.session is None
    assert text_of(await client.use("echo", {"text": "hi"})) == "hi"


async def test_nothing_is_promised_that_needs_to_be_remembered(app):
    said = await Client(app.asgi(legacy="stateless")).connect()
    assert said["capabilities"] == {"logging": {}, "tools": {}, "prompts": {}, "resources": {}}


async def test_a_request_needs_no_initialize_before(app):
    client = Client(app.asgi(legacy="stateless"))
    for version in (None, LATEST, "2025-03-26"):
        reply = await client.post(tool_call("echo", {"text": "hi"}), headers={"mcp-protocol-version": version})
        assert text_of(reply.message) == "hi"
    assert (await client.post(request("ping"))).result == {}
    assert (await client.post(request("logging/setLevel", {"level": "error"}))).result == {}
    assert (await client.post(notification("notifications/initialized"))).status == 202


async def test_a_session_of_another_time_does_not_matter(client):
    assert (await client.post(request("ping"), headers={SESSION: "from-before"})).result == {}


async def test_what_happens_during_a_call_is_told(client):
    told = await client.converse(tool_call("count", _meta={"progressToken": 1}), {})
    assert [message["method"] for message in told.notified] == ["notifications/progress", "notifications/message"]
    assert told.text == "counted"


async def test_who_takes_only_a_stream_gets_one(client):
    exchange = client.open(tool_call("echo", {"text": "hi"}), headers={"accept": "text/event-stream"})
    assert text_of((await exchange.closed())[-1]) == "hi"
    assert exchange.is_stream


@pytest.mark.parametrize("tool", ["awaiting", "in_a_thread", "returning", "declaring"])
async def test_a_tool_that_asks_fails_with_what_to_do(client, tool):
    result = (await client.use(tool))["result"]
    assert result["isError"]
    text = result["content"][0]["text"]
    assert "legacy='sessions'" in text
    assert "2026-07-28" in text


async def test_a_tool_that_only_sheds_load_asks_nobody(client):
    assert text_of(await client.use("shedding")) == "2 in 3 rounds"


async def test_a_prompt_that_asks_fails_with_what_to_do(client):
    assert "legacy='sessions'" in (await client.call("prompts/get", {"name": "report"}))["error"]["message"]


async def test_a_handler_is_told_that_nobody_can_be_asked(client):
    assert text_of(await client.use("careful")) == "did without"


async def test_pages_are_named_in_an_error(client):
    fault = (await client.use("sign_in"))["error"]
    # 2025-11-25, client/elicitation, URL Elicitation Required Error.
    assert fault["code"] == -32042
    pages = fault["data"]["elicitations"]
    assert [(page["mode"], page["message"], page["url"]) for page in pages] == [
        ("url", "Sign in to a", "https://a.example"),
        ("url", "Sign in to b", "https://b.example"),
    ]
    again = (await client.use("sign_in"))["error"]["data"]["elicitations"]
    assert len({page["elicitationId"] for page in (*pages, *again)}) == 4


async def test_pages_beside_a_form_are_not(client):
    assert (await client.use("sign_in", {"form": True}))["result"]["isError"]


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-03-26", None])
async def test_pages_are_not_named_to_those_who_know_none(client, revision):
    reply = await client.post(tool_call("sign_in"), headers={"mcp-protocol-version": revision})
    assert reply.result["isError"]


async def test_there_is_no_stream_no_end_and_nothing_to_subscribe_to(client):
    for verb in ("GET", "DELETE"):
        for session in (None, "x"):
            reply = await client.open(b"", verb=verb, headers={SESSION: session}).reply()
            assert reply.status == 405
            assert reply.headers["allow"] == "POST"
    assert (await client.call("resources/subscribe", {"uri": "note://1"}))["error"]["code"] == -32601


async def test_an_answer_to_nothing_is_taken_and_forgotten(client):
    assert (await client.post({"jsonrpc": "2.0", "id": "a-1", "result": {}})).status == 202


async def test_equal_ids_of_different_clients_do_not_meet(client):
    import asyncio

    replies = await asyncio.gather(*(client.post(tool_call("echo", {"text": str(n)}, id=1)) for n in range(20)))
    assert [text_of(reply.message) for reply in replies] == [str(number) for number in range(20)]


async def test_nothing_is_kept(app, client):
    await client.use("count", _meta={"progressToken": 1})
    await client.use("returning")
    app.changed("tools")
    assert len(app.store) == 0
    assert client.app.dialect.router._running == {}


async def test_a_malformed_initialize_is_refused(client):
    assert (await client.post(request("initialize", {}))).error["code"] == -32602
    assert (await client.post(initialize(id=3))).message["id"] == 3


async def test_modern_requests_are_modern_here_too(client):
    from asgi import Http

    reply = await Http(client.app).tool("awaiting", capabilities={"elicitation": {}})
    assert reply.result["resultType"] == "input_required"


async def test_errors_keep_their_old_codes(client):
    reply = await client.post(request("resources/read", {"uri": "x:y"}))
    assert (reply.status, reply.error["code"]) == (200, -32002)
    assert "batches" in json.dumps((await client.post([request("ping")])).error)


async def test_a_batch_is_answered_by_a_batch(app):
    client = Client(app.asgi(legacy="stateless"))
    messages = [tool_call("echo", {"text": "a"}), notification("notifications/x"), tool_call("echo", {"text": "b"})]
    reply = await client.post(messages)
    assert [(each["id"], text_of(each)) for each in reply.message] == [
        (messages[0]["id"], "a"),
        (messages[2]["id"], "b"),
    ]


async def test_a_batch_that_tells_something_is_a_stream(app):
    client = Client(app.asgi(legacy="stateless"))
    messages = [tool_call("echo", {"text": "a"}), tool_call("count", _meta={"progressToken": "t"})]
    told = (await client.post(messages)).messages
    assert told[0]["method"] == "notifications/progress"
    assert {each["id"]: text_of(each) for each in told if "id" in each} == {
        messages[0]["id"]: "a",
        messages[1]["id"]: "counted",
    }


async def test_newer_revisions_know_no_batches(app):
    client = Client(app.asgi(legacy="stateless"), headers={"mcp-protocol-version": "2025-06-18"})
    reply = await client.post([request("ping")])
    assert reply.status == 400
