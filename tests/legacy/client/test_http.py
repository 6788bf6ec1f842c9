"""Old servers over HTTP: sessions, streams that break and are taken up again, and what is asked on them."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import Accepted, CallTimeout, Change, Client, Disconnected, PeerBroken, Refused, Root
from antiphon.client import listening
from antiphon.legacy.client import http
from antiphon.legacy.client.http import HttpTransport
from antiphon.legacy.client.link import LegacyLink
from antiphon.transports.http_client import HttpLink
from client.hostile import END, STREAM, answer, chunk
from client.until import until
from examples import examples

from .old_http import OldHttp, ask, event, result, stream

PATIENCE = 10.0


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(http, "RETRY", 0.01)
    monkeypatch.setattr(http, "SHORTEST_RETRY", 0.001)
    monkeypatch.setattr(listening, "FIRST_WAIT", 0.01)


def yes(question):
    return Accepted("yes")


def old(server, **options):
    return Client(server.url, era="legacy", **options)


async def test_the_session_and_the_revision_are_named_in_every_request_after_the_first():
    async with OldHttp() as server, old(server, headers={"Authorization": "Bearer x"}) as client:
        await client.call_tool("x")
        await until(lambda: server.heads_of("GET"))
    first, *others = server.heads
    assert "mcp-session-id" not in first[1]
    assert "mcp-protocol-version" not in first[1]
    assert {headers["mcp-session-id"] for _, headers in others} == {"s-1"}
    assert {headers["mcp-protocol-version"] for _, headers in others} == {"2025-11-25"}
    assert {headers["authorization"] for _, headers in server.heads} == {"Bearer x"}
    assert sorted(server.said) == sorted(
        [
            ("POST", "initialize"),
            ("POST", "notifications/initialized"),
            ("GET", None),
            ("POST", "tools/call"),
            ("DELETE", None),
        ]
    )
    assert server.said[-1] == ("DELETE", None)
    assert not any(
        name.startswith(("mcp-method", "mcp-name", "mcp-param")) for _, head in server.heads for name in head
    )


async def test_a_server_without_sessions_is_not_told_of_the_end():
    async with OldHttp(session=None) as server, old(server) as client:
        assert (await client.call_tool("x")).text == "done"
    assert not server.heads_of("DELETE")


async def test_a_question_on_the_stream_of_a_call():
    async def post(server, message, writer):
        await stream(writer, event(ask()), end=False)
        answered = await server.answers.get()
        writer.write(event(result(message, {"content": [], "structuredContent": answered["result"]})) + END)

    async with OldHttp(post) as server, old(server, elicit=yes) as client:
        result_ = await client.call_tool("x")
    assert result_.structured == {"action": "accept", "content": {"value": "yes"}}
    assert result_.rounds == 2


async def test_questions_of_parallel_calls_do_not_mix():
    async def post(server, message, writer):
        name = message["params"]["name"]
        await stream(writer, event(ask(id=name)), end=False)
        await until(lambda: sum("result" in (one or {}) for one in server.requests) == 3)
        (answered,) = [one for one in server.requests if one and one.get("id") == name]
        text = answered["result"]["content"]["value"]
        writer.write(event(result(message, {"content": [{"type": "text", "text": text}]})) + END)

    async with OldHttp(post) as server, old(server, elicit=lambda question: Accepted(question.tool)) as client:
        results = await asyncio.gather(*[client.call_tool(name) for name in ("a", "b", "c")])
    assert [one.text for one in results] == ["a", "b", "c"]


async def test_answers_do_not_wait_behind_the_calls_that_wait_for_them():
    async def post(server, message, writer):
        await stream(writer, event(ask()), end=False)
        await server.answers.get()
        writer.write(event(result(message)) + END)

    async with OldHttp(post) as server:

        def dial(ear):
            return HttpTransport(HttpLink(server.url, max_connections=1), HttpLink(server.url), ear)

        async with asyncio.timeout(PATIENCE), Client(LegacyLink(dial), elicit=yes) as client:
            results = await asyncio.gather(*[client.call_tool("x") for _ in range(3)])
    assert [one.text for one in results] == ["done"] * 3


async def test_a_call_that_is_left_is_cancelled_there_and_its_question_answered():
    gone = asyncio.Event()

    async def post(server, message, writer):
        await stream(writer, event(ask()), end=False)
        await gone.wait()

    def elicit(question):
        raise ZeroDivisionError

    async with OldHttp(post) as server:
        async with old(server, elicit=elicit) as client:
            with pytest.raises(ZeroDivisionError):
                await client.call_tool("x")
            await until(lambda: server.sent_of("notifications/cancelled"))
        gone.set()
        answered = await server.answers.get()
    (call,), (cancelled,) = server.sent_of("tools/call"), server.sent_of("notifications/cancelled")
    assert answered["error"]["code"] == -32603
    assert cancelled["params"]["requestId"] == call["id"]


async def test_a_call_that_takes_too_long_is_cancelled_there():
    gone = asyncio.Event()

    async def post(server, message, writer):
        await gone.wait()

    async with OldHttp(post) as server:
        async with old(server) as client:
            with pytest.raises(CallTimeout):
                await client.call_tool("x", timeout=0.05)
            await until(lambda: server.sent_of("notifications/cancelled"))
        gone.set()


async def test_a_server_that_refuses_the_answer_ends_the_call():
    async def post(server, message, writer):
        await stream(writer, event(ask()), end=False)
        server.session = "another"
        await asyncio.Event().wait()

    class Strict(OldHttp):
        async def _response(self, verb, headers, message, writer):
            if message and "method" not in message:
                return answer({"jsonrpc": "2.0", "error": {"code": -32600, "message": "Too late"}}, "400 Bad Request")
            return await super()._response(verb, headers, message, writer)

    async with Strict(post) as server, old(server, elicit=yes) as client:
        with pytest.raises(Refused, match="Too late"):
            await client.call_tool("x")


# --- streams that break -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["ends", "breaks"])
async def test_a_stream_that_ends_too_early_is_taken_up_again(how):
    async def post(server, message, writer):
        server.message = message
        await stream(writer, event(id="e-1", retry=30), end=how == "ends")
        server.closed_at = asyncio.get_running_loop().time()
        if how == "breaks":
            writer.close()

    async def get(server, headers, writer):
        if "last-event-id" not in headers:
            return answer(b"", "405 Method Not Allowed")
        server.waited = asyncio.get_running_loop().time() - server.closed_at
        await stream(writer, event(result(server.message), id="e-2"))
        return None

    async with OldHttp(post, get) as server, old(server) as client:
        assert (await client.call_tool("x")).text == "done"
    assert [headers["last-event-id"] for headers in server.heads_of("GET") if "last-event-id" in headers] == ["e-1"]
    assert server.waited >= 0.028


async def test_a_call_may_be_polled_as_often_as_something_new_comes():
    async def post(server, message, writer):
        server.message, server.times = message, 0
        await stream(writer, event(id="0"))

    async def get(server, headers, writer):
        if "last-event-id" not in headers:
            return answer(b"", "405 Method Not Allowed")
        server.times += 1
        assert headers["last-event-id"] == str(server.times - 1)
        note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
        await stream(writer, event(note if server.times < 8 else result(server.message), id=server.times, retry=1))
        return None

    seen = []
    async with OldHttp(post, get) as server, old(server) as client:
        assert (await client.call_tool("x", progress=lambda *report: seen.append(report))).text == "done"
    assert (server.times, len(seen)) == (8, 7)


async def test_a_question_on_a_stream_that_was_taken_up_again():
    async def post(server, message, writer):
        server.message = message
        await stream(writer, event(id="0"))

    async def get(server, headers, writer):
        if "last-event-id" not in headers:
            return answer(b"", "405 Method Not Allowed")
        await stream(writer, event(ask(), id="1"), end=False)
        await server.answers.get()
        writer.write(event(result(server.message)) + END)
        return None

    async with OldHttp(post, get) as server, old(server, elicit=yes) as client:
        result_ = await client.call_tool("x")
    assert (result_.text, result_.rounds) == ("done", 2)


async def test_a_stream_that_cannot_be_taken_up_ends_the_call():
    async def post(server, message, writer):
        await stream(writer, chunk(b": nothing\n\n"))

    async with OldHttp(post) as server, old(server) as client:
        with pytest.raises(Disconnected, match="closed the stream before it had answered"):
            await client.call_tool("x")
        await until(lambda: server.sent_of("notifications/cancelled"))


@pytest.mark.parametrize("status", ["405 Method Not Allowed", "400 Bad Request", "404 Not Found"])
async def test_a_server_that_does_not_let_a_stream_be_taken_up_ends_the_call(status):
    async def post(server, message, writer):
        await stream(writer, event(id="0"))

    async def get(server, headers, writer):
        return answer(b"", status)

    async with OldHttp(post, get) as server, old(server) as client:
        with pytest.raises(Disconnected, match="cannot be taken up|ended the session"):
            await client.call_tool("x")
        calls = len(server.sent_of("tools/call"))
    assert calls == 1, "what may have run is not sent again"


@pytest.mark.parametrize("how", ["empty", "500", "closed"])
async def test_a_stream_is_not_taken_up_for_ever(how):
    async def post(server, message, writer):
        await stream(writer, event(id="0", retry=1))

    async def get(server, headers, writer):
        if "last-event-id" not in headers:
            return answer(b"", "405 Method Not Allowed")
        if how == "500":
            return answer(b"", "500 Internal Server Error")
        if how == "closed":
            raise ConnectionError
        await stream(writer)
        return None

    async with OldHttp(post, get) as server, old(server) as client, asyncio.timeout(PATIENCE):
        with pytest.raises(Disconnected, match="nothing came of taking it up 5 times"):
            await client.call_tool("x")
    assert sum("last-event-id" in headers for headers in server.heads_of("GET")) == 5


async def test_the_time_of_the_call_runs_while_its_stream_is_taken_up():
    async def post(server, message, writer):
        await stream(writer, event(id="0", retry=60_000))

    async with OldHttp(post) as server, old(server) as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("x", timeout=0.05)


# --- sessions that end --------------------------------------------------------------------------------------------


async def test_a_session_that_the_server_ended_is_begun_again():
    async with OldHttp() as server, old(server) as client:
        await client.call_tool("x")
        server.session = "s-2"
        assert (await client.call_tool("x")).text == "done"
        assert len(server.sent_of("initialize")) == 2
        assert "mcp-session-id" not in server.heads[server.said.index(("POST", "initialize"))][1]
    assert [headers["mcp-session-id"] for headers in server.heads_of("DELETE")] == ["s-2"]


async def test_calls_that_find_the_session_gone_at_the_same_time_begin_one_new():
    async with OldHttp() as server, old(server) as client:
        await client.call_tool("x")
        server.session = "s-2"
        results = await asyncio.gather(*[client.call_tool("x") for _ in range(5)])
    assert [one.text for one in results] == ["done"] * 5
    assert len(server.sent_of("initialize")) == 2


async def test_a_server_that_ends_every_session_is_not_asked_for_ever():
    async def post(server, message, writer):
        return answer(b"", "404 Not Found")

    async with OldHttp(post) as server, old(server) as client:
        with pytest.raises(Disconnected, match="ended the session"):
            await client.call_tool("x")
    assert len(server.sent_of("tools/call")) == 2


def bad(message, status="400 Bad Request"):
    """The error of a server that does not even look into a request."""
    return answer({"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": message}}, status)


@pytest.mark.parametrize(
    "response",
    [
        bad("Bad Request: No valid session ID provided"),
        bad("Bad Request: Server not initialized"),
        answer(b"Invalid session ID", "400 Bad Request", kind="text/plain"),
    ],
)
async def test_a_server_that_was_restarted_and_says_400_is_greeted_again(response):
    async with OldHttp() as server, old(server, elicit=yes) as client:
        server.to_strangers = response
        await client.call_tool("x")
        server.session = "s-2"
        results = await asyncio.gather(*[client.call_tool("x") for _ in range(3)])
    assert [one.text for one in results] == ["done"] * 3
    assert len(server.sent_of("initialize")) == 2
    assert [headers["mcp-session-id"] for headers in server.heads_of("DELETE")] == ["s-2"]


@pytest.mark.parametrize(
    ("told", "tries"), [("You have too many sessions", 2), ("The arguments are too long", 1), ("", 1)]
)
async def test_a_400_that_a_new_session_does_not_help_against_is_what_it_is(told, tries):
    async def post(server, message, writer):
        return bad(told) if message["params"]["name"] == "x" else answer(result(message))

    async with OldHttp(post) as server, old(server) as client:
        with pytest.raises(Refused) as refused:
            await client.call_tool("x")
        assert (str(refused.value), refused.value.status, refused.value.code) == (told, 400, -32600)
        assert len(server.sent_of("tools/call")) == tries
        assert (await client.call_tool("y")).text == "done"


async def test_a_400_without_a_session_is_what_it_is():
    async def post(server, message, writer):
        return bad("No valid session ID provided")

    async with OldHttp(post, session=None) as server, old(server) as client:
        with pytest.raises(Refused, match="No valid session"):
            await client.call_tool("x")
    assert len(server.sent_of("tools/call")) == 1


async def test_a_call_under_way_is_not_sent_again_to_a_server_that_was_restarted():
    async def post(server, message, writer):
        await stream(writer, event(id="1", retry=1))

    async def get(server, headers, writer):
        return bad("No valid session ID provided")

    async with OldHttp(post, get) as server, old(server) as client:
        with pytest.raises(Disconnected, match="ended the session before it had answered"):
            await client.call_tool("x")
    assert len(server.sent_of("tools/call")) == 1


async def test_changes_are_heard_again_of_a_server_that_was_restarted():
    async def get(server, headers, writer):
        if headers["mcp-session-id"] != server.session:
            return bad("No valid session ID provided")
        changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        await stream(writer, event(changed, id="1"), end=False)
        if server.session == "s-1":
            await restart.wait()
            server.session = "s-2"
            return END
        await asyncio.Event().wait()
        return None

    restart = asyncio.Event()
    async with asyncio.timeout(PATIENCE), OldHttp(get=get) as server, old(server) as client:
        subscription = client.subscribe(tools=True)
        hearing = asyncio.create_task(anext(subscription))
        await until(lambda: server.heads_of("GET"))
        restart.set()
        assert await hearing == Change("tools")
        await until(lambda: len(server.sent_of("initialize")) == 2)
        await subscription.aclose()


async def test_a_404_without_a_session_is_what_it_is():
    async def post(server, message, writer):
        return answer(b"", "404 Not Found")

    async with OldHttp(post, session=None) as server, old(server) as client:
        with pytest.raises(Refused, match="404"):
            await client.call_tool("x")
    assert len(server.sent_of("tools/call")) == 1


@pytest.mark.parametrize("session", ["a b", "\u00fc", "x\x7f"])
async def test_a_session_that_no_header_can_carry_ends_it(session):
    async with OldHttp(session=session.encode("latin-1").decode("latin-1")) as server:
        with pytest.raises((PeerBroken, Disconnected)):
            async with old(server):
                raise AssertionError


async def test_a_server_that_does_not_hear_the_end_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(http, "FAREWELL", 0.05)

    class Slow(OldHttp):
        async def _response(self, verb, headers, message, writer):
            if verb == "DELETE":
                await asyncio.Event().wait()
            return await super()._response(verb, headers, message, writer)

    async with Slow() as server, asyncio.timeout(PATIENCE / 2), old(server) as client:
        await client.call_tool("x")


# --- the server's own stream --------------------------------------------------------------------------------------


NOT_THERE = {
    "405": answer(b"", "405 Method Not Allowed"),
    "404": answer(b"", "404 Not Found"),
    "400": answer(b"{", "400 Bad Request"),
    "500": answer(b"", "500 Internal Server Error"),
    "JSON": answer({"what": "is this"}),
    "HTML": answer(b"<html>", kind="text/html"),
    "garbage": STREAM + chunk(b"data: {garbage\n\n"),
    "no HTTP": b"nonsense\r\n\r\n",
}


@pytest.mark.parametrize("response", NOT_THERE.values(), ids=NOT_THERE.keys())
async def test_a_server_without_a_stream_of_its_own_is_no_worse_for_it(response):
    async def get(server, headers, writer):
        return response

    async with OldHttp(get=get) as server, old(server) as client:
        await until(lambda: server.heads_of("GET"))
        for _ in range(2):
            assert (await client.call_tool("x")).text == "done"
        assert len(server.sent_of("initialize")) == 1


async def test_what_belongs_to_no_call_arrives_on_the_servers_own_stream():
    async def get(server, headers, writer):
        log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "hello"}}
        await stream(writer, event(ask(method="roots/list", params={})), event(log), end=False)
        server.writer = writer
        await asyncio.Event().wait()

    told = []
    async with (
        OldHttp(get=get) as server,
        old(server, roots=[Root("file:///a")], on_log=lambda *log: told.append(log)),
        asyncio.timeout(PATIENCE),
    ):
        answered = await server.answers.get()
        await until(lambda: told)
    assert answered["result"] == {"roots": [{"uri": "file:///a"}]}
    assert told == [("info", "hello", None)]


async def test_a_question_on_the_servers_own_stream_belongs_to_the_call_under_way():
    listening = asyncio.Event()

    async def get(server, headers, writer):
        await stream(writer, end=False)
        server.writer = writer
        listening.set()
        await asyncio.Event().wait()

    async def post(server, message, writer):
        await listening.wait()
        server.writer.write(event(ask()))
        await server.answers.get()
        return answer(result(message))

    async with OldHttp(post, get) as server, old(server, elicit=yes) as client:
        result_ = await client.call_tool("x")
    assert (result_.text, result_.rounds) == ("done", 2)


async def test_the_servers_own_stream_is_taken_up_where_it_ended():
    async def get(server, headers, writer):
        count = len(server.heads_of("GET"))
        changed = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "note://1"}}
        await stream(writer, event(id="e-0"), end=False)
        await until(lambda: server.sent_of("resources/subscribe"))
        writer.write(event(changed, id=f"e-{count}", retry=1) + (END if count < 3 else b""))

    async with OldHttp(get=get) as server, old(server) as client, asyncio.timeout(PATIENCE):
        subscription = client.subscribe(resources=["note://1"])
        assert [await anext(subscription) for _ in range(3)] == [Change("resource", "note://1")] * 3
        await subscription.aclose()
    assert [headers.get("last-event-id") for headers in server.heads_of("GET")] == [None, "e-1", "e-2"]


async def test_a_stream_of_changes_that_cannot_be_taken_up_may_have_missed_some():
    broke = asyncio.Event()

    async def get(server, headers, writer):
        await stream(writer, chunk(b": hello\n\n"), end=False)
        if len(server.heads_of("GET")) == 1:
            await broke.wait()
            writer.write(END)

    async with OldHttp(get=get) as server, old(server) as client, asyncio.timeout(PATIENCE):
        subscription = client.subscribe(tools=True, resources=["note://1"])
        heard = asyncio.create_task(anext(subscription))
        await until(lambda: server.sent_of("resources/subscribe"))
        await asyncio.sleep(0.01)
        broke.set()
        assert await heard == Change("tools")
        assert await anext(subscription) == Change("resource", "note://1")
        await subscription.aclose()


async def test_a_subscription_at_a_server_that_cannot_tell_says_so(caplog):
    async with OldHttp() as server, old(server) as client, asyncio.timeout(PATIENCE):
        subscription = client.subscribe(tools=True)
        heard = asyncio.create_task(anext(subscription))
        await until(lambda: "will not tell of toolsListChanged" in caplog.text)
        heard.cancel()
        await asyncio.gather(heard, return_exceptions=True)


# --- nonsense -----------------------------------------------------------------------------------------------------

LINES = st.sampled_from([b"id: 1", b"id:", b"retry: 1", b"retry: x", b"data:", b"event: x", b": x", b""])
NONSENSE = st.lists(LINES | st.binary(max_size=20).map(lambda data: b"data: " + data), max_size=8).map(b"\n".join)


@examples(30)
@given(nonsense=NONSENSE, end=st.booleans())
async def test_whatever_a_stream_says_the_call_ends_and_nothing_is_left(nonsense, end):
    async def post(server, message, writer):
        await stream(writer, *([chunk(nonsense)] if nonsense else []), end=end)
        if not end:
            raise ConnectionError

    before = asyncio.all_tasks()
    async with OldHttp(post) as server, asyncio.timeout(PATIENCE), old(server) as client:
        with pytest.raises((Disconnected, PeerBroken)):
            await client.call_tool("x")
    assert asyncio.all_tasks() == before


# --- the transport before this one --------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_url_that_takes_no_post_may_be_one_of_the_first_http_transport(era):
    class First(OldHttp):
        async def _response(self, verb, headers, message, writer):
            assert verb == "POST"
            return answer(b"", "405 Method Not Allowed")

    async with First() as server:
        with pytest.raises(Refused, match=r"status 405.*HTTP\+SSE transport of 2024-11-05.*streamable HTTP"):
            async with Client(server.url, era=era) as client:
                await client.call_tool("x")
