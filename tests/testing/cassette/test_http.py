"""Over HTTP: the gateway changes nothing, the endpoint plays in both eras, and failures are recorded too."""

import asyncio
import http.client
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from conversation import META, Conversation, call, note, request, result, said

from antiphon import Accepted, Client, Context, Refused, Server
from antiphon.testing.cassette import Cassette
from antiphon.testing.cassette.http import LiveUrl, RecordingProxy, ReplayApp
from antiphon.testing.cassette.recording import Recording
from antiphon.testing.cassette.replaying import Replay
from antiphon.testing.cassette.verifying import Verification
from antiphon.testing.suite.model import Place, Target
from antiphon.testing.suite.server import SuiteServer
from antiphon.types import JsonObject

Live = Callable[[Any], int]
YES = {"confirm": True}


@pytest.fixture
def app() -> Server:
    app = Server("releases", version="1.0.0")

    @app.tool
    async def deploy(env: str, ctx: Context) -> str:
        """Deploy after a yes."""
        await ctx.progress(1, 2)
        return f"Deployed to {env}" if await ctx.confirm(f"Deploy to {env}?") else "Not deployed"

    return app


class Recorded:
    def __init__(self, live: Live, target: str, **options: Any) -> None:
        self.recording = Recording(**options)
        self.url = f"http://127.0.0.1:{live(RecordingProxy(target, self.recording))}{urlsplit(target).path}"

    @property
    def cassette(self) -> Cassette:
        return self.recording.cassette()


def played(live: Live, cassette: Cassette) -> tuple[Replay, str]:
    replay = Replay(cassette)
    return replay, f"http://127.0.0.1:{live(ReplayApp(replay))}/mcp"


def served(live: Live, app: Server) -> str:
    return f"http://127.0.0.1:{live(app.asgi())}/mcp"


async def talk(url: str, era: str) -> list[Any]:
    heard: list[Any] = []
    async with Client(url, elicit=lambda _: Accepted(YES), era=era, headers={"X-Tenant": "a"}) as client:
        for env in ("prod", "test"):
            made = await client.call_tool("deploy", {"env": env}, progress=lambda *step: heard.append(step[0]))
            heard.append(made.text)
        heard.append([tool.name for tool in await client.list_tools()])
    return heard


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_a_conversation_is_recorded_twice_the_same_and_played(app: Server, live: Live, era: str) -> None:
    target = served(live, app)
    tapes = [Recorded(live, target) for _ in range(2)]
    heard = [await talk(tape.url, era) for tape in tapes]
    assert heard[0] == heard[1]
    assert [text for text in heard[0] if isinstance(text, str)] == ["Deployed to prod", "Deployed to test"]
    assert tapes[0].cassette.to_json() == tapes[1].cassette.to_json()
    replay, url = played(live, tapes[0].cassette)
    assert await talk(url, era) == heard[0]
    assert (replay.drifts, replay.unplayed) == ([], [])
    verification = Verification(tapes[0].cassette, lambda: LiveUrl(target))
    assert [each.diff or each.status async for each in verification.verdicts()] == ["same"] * len(
        tapes[0].cassette.entries
    )
    assert tapes[0].cassette.is_old is (era == "legacy")
    assert tapes[0].cassette.clients[0].headers == {"x-tenant": "a"}


async def test_streams_pass_as_they_come(live: Live) -> None:
    app, heard = Server("slow"), asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.tool
    async def slow(ctx: Context) -> str:
        """Wait until the progress was heard."""
        await ctx.progress(1)
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(heard.wait(), loop))
        return "heard"

    tape = Recorded(live, served(live, app))
    async with Client(tape.url, timeout=10) as client:
        assert (await client.call_tool("slow", progress=lambda *_: heard.set())).text == "heard"


def test_bodies_pass_unchanged(live: Live) -> None:
    body = b' {"jsonrpc" : "2.0", "id": 1, "method": "x", "params": {"n": 1.0e2, "s": "\\u00e9"}}\n'
    seen: list[Any] = []

    async def server(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for moment in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{moment}.complete"})
            return
        seen.append((scope["method"], scope["raw_path"], scope["query_string"], (await receive())["body"]))
        seen.append(dict(scope["headers"])[b"x-tenant"])
        headers = [(b"content-type", b"application/json"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    tape = Recorded(live, f"http://127.0.0.1:{live(server)}/mcp")
    response = asked(tape.url + "?q=1", "POST", body, {"X-Tenant": "a"})
    assert seen == [("POST", b"/mcp", b"q=1", body), b"a"]
    assert response.body == body
    assert response.headers.get_all("set-cookie") == ["a=1", "b=2"]
    assert asked(tape.url.replace("/mcp", "/.well-known/x%20y"), "GET", None, {"X-Tenant": "a"}).body == body
    assert seen[2][:2] == ("GET", b"/.well-known/x%20y")


class Response:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = response.status, response.headers, response.read()


def asked(url: str, method: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Response:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=10)
    try:
        connection.request(method, parts.path + (f"?{parts.query}" if parts.query else ""), body, headers or {})
        return Response(connection.getresponse())
    finally:
        connection.close()


def test_a_server_that_is_not_there_is_a_502(live: Live) -> None:
    tape = Recorded(live, "http://127.0.0.1:9/mcp")
    response = asked(tape.url, "POST", json.dumps(call(1)).encode())
    assert response.status == 502
    assert b"cannot reach 127.0.0.1:9" in response.body


def test_foreign_pages_are_not_let_through(live: Live) -> None:
    tape = Recorded(live, "http://127.0.0.1:9/mcp")
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        assert asked(tape.url, "POST", b"{}", headers).status == 403


async def test_a_refusal_without_a_message_is_recorded_and_played(live: Live) -> None:
    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"Who are you?"})

    tape = Recorded(live, f"http://127.0.0.1:{live(guarded)}/mcp")
    heard = []
    for place in (lambda: tape.url, lambda: played(live, tape.cassette)[1]):
        async with Client(place(), era="2026-07-28") as client:
            with pytest.raises(Refused) as fault:
                await client.call_tool("x")
        heard.append(fault.value.status)
    assert heard == [401, 401]
    turn = tape.cassette.entries[0].turns[1]
    assert turn.status == 401
    assert turn.server == {"id": "${id:1}", "error": {"code": -32603, "message": "Who are you?"}}


async def test_a_client_that_leaves_is_left_by_the_server(live: Live) -> None:
    app, begun, ended = Server("slow"), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.tool
    async def forever() -> str:
        """Never end."""
        loop.call_soon_threadsafe(begun.set)
        try:
            await asyncio.Event().wait()
        finally:
            loop.call_soon_threadsafe(ended.set)
        return ""

    tape = Recorded(live, served(live, app))
    async with Client(tape.url, era="2026-07-28") as client, asyncio.timeout(10):
        waiting = asyncio.ensure_future(client.call_tool("forever"))
        await begun.wait()
        waiting.cancel()
        await ended.wait()
    assert [len(entry.turns) for entry in tape.cassette.entries] == [1]


def opened(url: str, headers: dict[str, str]) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """Open a stream, whose head has come."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=10)
    connection.request("GET", parts.path, headers=headers)
    return connection, connection.getresponse()


async def endless(scope: Any, receive: Any, send: Any) -> None:
    """Serve a stream that ends when its client has gone."""
    if scope["type"] == "http":
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b": open\n\n", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass


def test_a_proxy_that_is_closed_ends_its_streams_and_opens_no_more(live: Live) -> None:
    proxy = RecordingProxy(f"http://127.0.0.1:{live(endless)}/mcp", Recording())
    url = f"http://127.0.0.1:{live(proxy)}/mcp"
    connection, stream = opened(url, {})
    assert stream.readline() == b": open\n"
    proxy.close()
    assert stream.read() == b"\n"
    connection.close()
    assert asked(url, "GET").status == 503
    assert asked(url, "POST", json.dumps(call(1)).encode()).status == 503


async def test_a_proxy_that_is_closed_while_it_connects_opens_no_stream(live: Live) -> None:
    proxy = RecordingProxy(f"http://127.0.0.1:{live(endless)}/mcp", Recording())
    sent: list[Any] = []
    events = iter([{"type": "http.request", "body": b""}])

    async def receive() -> Any:
        event = next(events, None)
        if event is None:
            await asyncio.Event().wait()
        proxy.close()
        return event

    async def send(event: Any) -> None:
        sent.append(event)

    headers = [(b"host", b"127.0.0.1")]
    scope = {"type": "http", "method": "GET", "path": "/mcp", "query_string": b"", "headers": headers}
    async with asyncio.timeout(10):
        await proxy(scope, receive, send)
    assert sent[0]["status"] == 502


def test_an_oauth_error_is_no_message(live: Live) -> None:
    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b'{"error": "invalid_token"}'})

    tape = Recorded(live, f"http://127.0.0.1:{live(guarded)}/mcp")
    assert asked(tape.url, "POST", json.dumps(call(1)).encode()).status == 401
    (entry,) = tape.cassette.entries
    server = entry.turns[1]
    assert server.status == 401
    assert server.server is not None
    assert (server.server["id"], server.server["error"]["code"]) == ("${id:1}", -32603)
    _, url = played(live, Cassette.from_json(tape.cassette.to_json()))
    reply = asked(url, "POST", json.dumps(call(1)).encode())
    assert (reply.status, json.loads(reply.body)["id"]) == (401, 1)


# --- the endpoint -------------------------------------------------------------------------------------------------


def old() -> Cassette:
    return Conversation().hear(
        (">", request(0, "initialize")), ("<", result(0, protocolVersion="2025-11-25")), (">", note("initialized")),
        ("<", note("tools/list_changed")), (">", call(1)), ("<", said(1, "x")),
    ).recording.cassette()  # fmt: skip


def test_a_session_has_a_stream_of_its_own(live: Live) -> None:
    _, url = played(live, old())
    welcome = asked(url, "POST", json.dumps(request(0, "initialize")).encode())
    session = {"Mcp-Session-Id": str(welcome.headers["mcp-session-id"])}
    assert asked(url, "POST", json.dumps(note("initialized")).encode(), session).status == 202
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=10)
    connection.request("GET", parts.path, headers=session)
    stream = connection.getresponse()
    data = next(line for line in iter(stream.readline, b"") if line.startswith(b"data: "))
    connection.close()
    assert json.loads(data.removeprefix(b"data: "))["method"] == "notifications/tools/list_changed"
    assert asked(url, "DELETE", headers=session).status == 204
    assert asked(url, "POST", json.dumps(call(1)).encode(), session).status == 404


def test_news_come_on_the_stream_of_their_subscription(live: Live) -> None:
    def about(id_: Any) -> JsonObject:
        return {"_meta": {"io.modelcontextprotocol/subscriptionId": id_}}

    tape = Conversation().hear(
        (">", request(1, "subscriptions/listen")), ("<", note("subscriptions/acknowledged", **about(1))),
        (">", call(2)), ("<", said(2, "changed")), ("<", note("tools/list_changed", **about(1))),
    )  # fmt: skip
    _, url = played(live, tape.recording.cassette())
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=10)
    connection.request("POST", parts.path, json.dumps(request("s", "subscriptions/listen")).encode())
    stream = connection.getresponse()
    lines = (json.loads(line.removeprefix(b"data: ")) for line in iter(stream.readline, b"") if line[:5] == b"data:")
    assert next(lines) == note("subscriptions/acknowledged", **about("s"))
    assert json.loads(asked(url, "POST", json.dumps(call(1)).encode()).body) == said(1, "changed")
    assert next(lines) == note("tools/list_changed", **about("s"))
    connection.close()


def test_a_session_s_stream_is_open_before_there_is_news(live: Live) -> None:
    tape = Conversation().hear(
        (">", request(0, "initialize")), ("<", result(0, protocolVersion="2025-11-25")), (">", note("initialized")),
        (">", call(1)), ("<", said(1, "changed")), ("<", note("tools/list_changed")),
    )  # fmt: skip
    _, url = played(live, tape.recording.cassette())
    welcome = asked(url, "POST", json.dumps(request(0, "initialize")).encode())
    session = {"Mcp-Session-Id": str(welcome.headers["mcp-session-id"])}
    asked(url, "POST", json.dumps(note("initialized")).encode(), session)
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=10)
    connection.request("GET", parts.path, headers=session)
    stream = connection.getresponse()
    assert json.loads(asked(url, "POST", json.dumps(call(5)).encode(), session).body) == said(5, "changed")
    data = next(line for line in iter(stream.readline, b"") if line.startswith(b"data: "))
    assert json.loads(data.removeprefix(b"data: ")) == note("tools/list_changed")
    connection.close()


def test_a_replay_that_is_closed_ends_its_streams_and_opens_no_more(live: Live) -> None:
    app = ReplayApp(Replay(old()))
    url = f"http://127.0.0.1:{live(app)}/mcp"
    welcome = asked(url, "POST", json.dumps(request(0, "initialize")).encode())
    session = {"Mcp-Session-Id": str(welcome.headers["mcp-session-id"])}
    connection, stream = opened(url, session)
    app.close()
    assert stream.status == 200
    assert asked(url, "GET", headers=session).status == 503
    assert asked(url, "POST", json.dumps(call(1)).encode(), session).status == 503
    connection.close()


def test_what_an_endpoint_answers_to_the_rest(live: Live) -> None:
    _, url = played(live, old())
    for method, path, body, status in (
        ("POST", "/other", b"{}", 404),
        ("GET", "/mcp", None, 405),
        ("POST", "/mcp", b"nonsense", 400),
        ("POST", "/mcp", b"[" * 900 + b"]" * 900, 400),
        ("POST", "/mcp", json.dumps(call([1])).encode(), 400),
        ("POST", "/mcp", json.dumps(note("initialized")).encode(), 202),
    ):
        assert asked(url.replace("/mcp", path), method, body).status == status


def test_drift_is_an_error_in_the_reply(live: Live) -> None:
    replay, url = played(live, old())
    reply = json.loads(asked(url, "POST", json.dumps(call(3, "y", _meta=META)).encode()).body)
    assert reply["error"]["message"] == "Not as recorded: tools/call y: it is not what was recorded"
    assert len(replay.drifts) == 1


async def test_what_a_suite_sends_beside_its_messages_is_not_written(live: Live, tmp_path: Path) -> None:
    app = Server("echo")

    @app.tool
    def echo(ctx: Context) -> str:
        """Say what came."""
        return f"{ctx.headers.get('authorization')} of {ctx.headers.get('x-tenant')}"

    headers = {"Authorization": "Bearer hdr-secret", "X-Tenant": "acme"}
    place = Place(file=tmp_path / "s.mcp.yaml", line=1, column=1)
    target = Target(place=place, url=served(live, app), cwd=tmp_path, headers=headers)
    async with SuiteServer(target, record=tmp_path / "s.json") as server:
        assert (await server.client.call_tool("echo")).text == "Bearer hdr-secret of acme"
    assert "hdr-secret" not in (tmp_path / "s.json").read_text()
    cassette = Cassette.load(tmp_path / "s.json")
    assert cassette.clients[0].headers == {"authorization": "${secret:authorization}"}
    assert "${secret:authorization} of acme" in cassette.to_json()
