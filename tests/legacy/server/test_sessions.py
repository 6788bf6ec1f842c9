"""Sessions: how they open, who may use them, how they end."""

import asyncio
import json
import time

import pytest

from antiphon import MemoryStore, Server
from messages import request as modern_request

from .driver import LATEST, REVISIONS, SESSION, Client, initialize, notification, request, text_of, tool_call


@pytest.fixture
def app():
    app = Server("tests", version="1.2.3", title="Tests", instructions="Be kind.")

    @app.tool
    async def echo(text: str) -> str:
        return text

    @app.resource("note://1")
    async def note() -> str:
        return "a note"

    return app


class Clock:
    """Time that passes when told, for the event loop's timers too."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    async def passes(self, seconds):
        """Let the timers run that are due by then, and what they start."""
        self.now += seconds
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


# --- initialize ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
async def test_every_older_revision_is_spoken(app, revision):
    client = Client(app.asgi(), revision=revision)
    said = await client.connect()
    assert said["protocolVersion"] == revision
    called = await client.call("tools/call", {"name": "echo", "arguments": {"text": "hi"}})
    assert called["result"]["content"] == [{"type": "text", "text": "hi"}]
    assert [tool["name"] for tool in (await client.call("tools/list"))["result"]["tools"]] == ["echo"]


@pytest.mark.parametrize("revision", ["2026-07-28", "2099-01-01", "1.0.0", "", "2025-11-25 "])
async def test_an_unknown_revision_is_answered_with_the_latest(app, revision):
    said = await Client(app.asgi(), revision=revision).connect()
    assert said["protocolVersion"] == LATEST


async def test_the_server_says_who_it_is_and_what_it_can(app):
    said = await Client(app.asgi()).connect()
    assert said["serverInfo"] == {"name": "tests", "version": "1.2.3", "title": "Tests"}
    assert said["instructions"] == "Be kind."
    assert said["capabilities"] == {
        "logging": {},
        "tools": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
    }


async def test_session_ids_are_long_different_and_of_visible_ascii(app):
    endpoint = app.asgi()
    found = set()
    for _ in range(50):
        client = Client(endpoint)
        await client.connect()
        found.add(client.session)
    assert len(found) == 50
    for session in found:
        # 2025-11-25, basic/transports, Session Management: 0x21 to 0x7E; 18 random bytes are 24 letters.
        assert len(session) >= 22
        assert all(0x21 <= ord(letter) <= 0x7E for letter in session)


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"protocolVersion": LATEST},
        {"protocolVersion": LATEST, "capabilities": {}},
        {"protocolVersion": 1, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
        {"protocolVersion": LATEST, "capabilities": [], "clientInfo": {"name": "x", "version": "1"}},
        {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": 1, "version": "1"}},
        {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": "me"},
    ],
    ids=json.dumps,
)
async def test_a_malformed_initialize_opens_no_session(app, params):
    reply = await Client(app.asgi()).post(request("initialize", params, id=7))
    assert reply.error["code"] == -32602
    assert reply.message["id"] == 7
    assert SESSION not in reply.headers


async def test_an_initialize_without_an_id_opens_no_session(app):
    reply = await Client(app.asgi()).post({key: value for key, value in initialize().items() if key != "id"})
    assert reply.status == 400
    assert SESSION not in reply.headers


@pytest.mark.parametrize("place", ["clientInfo", "capabilities"])
async def test_a_client_cannot_fill_the_memory_by_introducing_itself(app, place):
    message = initialize()
    message["params"][place]["more"] = "x" * 5000
    reply = await Client(app.asgi()).post(message)
    assert reply.error["code"] == -32602
    assert "4096" in reply.error["message"]
    assert SESSION not in reply.headers


async def test_the_icons_of_a_client_are_not_kept(app):
    message = initialize()
    message["params"]["clientInfo"]["icons"] = [{"src": "data:image/png;base64," + "A" * 60_000}]
    client = Client(app.asgi())
    reply = await client.post(message)
    client.headers[SESSION] = session = reply.headers[SESSION]
    assert len(await app.store.get(f"antiphon:session:{session}")) < 300
    assert (await client.use("echo", {"text": "hi"}))["result"]["content"][0]["text"] == "hi"


async def test_who_accepts_only_a_stream_gets_one(app):
    client = Client(app.asgi(), headers={"accept": "text/event-stream"})
    exchange = client.open(initialize())
    await exchange.finished()
    assert exchange.is_stream
    assert exchange.headers[SESSION]
    assert exchange.messages[0]["result"]["protocolVersion"] == LATEST


async def test_who_accepts_only_json_gets_that(app):
    client = Client(app.asgi(), headers={"accept": "application/json"})
    await client.connect()
    reply = await client.post(tool_call("echo", {"text": "hi"}))
    assert reply.headers["content-type"] == "application/json"
    assert reply.result["content"][0]["text"] == "hi"


# --- who may use one ----------------------------------------------------------------------------------------------


async def test_a_request_without_a_session_is_told_to_initialize(app, client):
    reply = await client.post(request("tools/list"), headers={SESSION: None})
    assert reply.status == 400
    assert "initialize" in reply.error["message"]


@pytest.mark.parametrize("session", ["nobody", "", "x" * 5000, "a b", "é", "a:b", "../../x", "antiphon:session:"])
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_an_unknown_session_is_not_found(client, session, verb):
    body = json.dumps(request("tools/list")).encode() if verb == "POST" else b""
    reply = await client.open(body, verb=verb, headers={SESSION: session}).reply()
    assert reply.status == 404
    assert "Initialize" in reply.error["message"]


async def test_two_session_headers_are_none(client):
    exchange = client.open(request("ping"), headers={SESSION: f"{client.session}, {client.session}"})
    assert (await exchange.reply()).status == 404


async def test_another_ones_session_does_not_exist(app):
    endpoint = app.asgi(principal=lambda scope: dict(scope["headers"]).get(b"authorization", b"").decode() or None)
    alice = Client(endpoint, headers={"authorization": "alice"})
    await alice.connect()
    assert (await alice.call("ping"))["result"] == {}
    for who in ("mallory", None):
        stolen = {"authorization": who}
        for verb, body in (("POST", request("ping")), ("GET", b""), ("DELETE", b"")):
            assert (await alice.open(body, verb=verb, headers=stolen).reply()).status == 404
        answer = {"jsonrpc": "2.0", "id": "x-1", "result": {}}
        assert (await alice.post(answer, headers=stolen)).status == 404
    assert (await alice.call("ping"))["result"] == {}


async def test_a_principal_that_cannot_be_told_is_an_error_that_tells_nothing(app):
    def principal(scope):
        raise RuntimeError("secret")

    reply = await Client(app.asgi(principal=principal)).post(initialize())
    assert reply.error == {"code": -32603, "message": "Internal error"}


@pytest.mark.parametrize("version", ["2099-01-01", "1", "2025-11-26"])
async def test_an_unsupported_version_header_is_refused(client, version):
    reply = await client.post(request("ping"), headers={"mcp-protocol-version": version})
    assert reply.status == 400
    assert "2025-11-25" in reply.error["message"]


@pytest.mark.parametrize("revision", [None, *REVISIONS])
async def test_a_session_knows_its_revision_whatever_the_header_says(client, revision):
    reply = await client.post(request("ping"), headers={"mcp-protocol-version": revision})
    assert reply.result == {}


async def test_a_client_may_initialize_again(client):
    first = client.session
    await client.connect()
    assert client.session != first
    assert (await client.post(request("ping"), headers={SESSION: first})).result == {}


# --- how it ends --------------------------------------------------------------------------------------------------


async def test_delete_ends_a_session(client):
    reply = await client.delete()
    assert (reply.status, reply.body) == (204, b"")
    assert (await client.post(request("ping"))).status == 404
    assert (await client.delete()).status == 404
    assert (await client.listen().reply()).status == 404


async def test_delete_ends_the_streams_and_calls_of_its_session_and_no_other(app):
    running = asyncio.Event()
    cancelled = []

    @app.tool
    async def work() -> str:
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("work")
            raise
        return "never"

    endpoint = app.asgi()
    ours, other = Client(endpoint), Client(endpoint)
    await ours.connect()
    await other.connect()
    streams = [ours.listen(), other.listen()]
    for stream in streams:
        await stream.opened()
    call = ours.tool("work")
    await running.wait()
    await ours.delete()
    await streams[0].closed()
    await call.finished()
    assert cancelled == ["work"]
    assert call.messages == []
    assert not streams[1].ended
    app.changed("tools")
    assert (await streams[1].next_message())["method"] == "notifications/tools/list_changed"
    streams[1].disconnect()
    await streams[1].finished()


async def test_a_session_that_is_not_used_expires(clock):
    client = Client(Server("tests", store=MemoryStore(clock=clock)).asgi(session_ttl=10))
    await client.connect()
    clock.now += 9
    assert (await client.post(request("ping"))).status == 200
    clock.now += 11
    assert (await client.post(request("ping"))).status == 404


async def test_a_session_that_is_used_does_not(clock):
    client = Client(Server("tests", store=MemoryStore(clock=clock)).asgi(session_ttl=10))
    await client.connect()
    for _ in range(10):
        clock.now += 8
        assert (await client.post(request("ping"))).status == 200


async def test_a_session_whose_stream_is_open_does_not_expire(clock):
    client = Client(Server("tests", store=MemoryStore(clock=clock)).asgi(session_ttl=10))
    await client.connect()
    stream = client.listen()
    await stream.opened()
    for _ in range(10):
        await clock.passes(6)
    assert (await client.post(request("ping"))).status == 200
    stream.disconnect()
    await stream.finished()


async def test_a_session_with_a_call_under_way_does_not_expire(clock):
    app = Server("tests", store=MemoryStore(clock=clock))
    running, open_ = asyncio.Event(), asyncio.Event()

    @app.tool
    async def work() -> str:
        running.set()
        await open_.wait()
        return "worked"

    client = Client(app.asgi(session_ttl=10))
    await client.connect()
    call = client.tool("work")
    await running.wait()
    for _ in range(10):
        await clock.passes(6)
    open_.set()
    assert text_of((await call.reply()).message) == "worked"
    assert (await client.post(request("ping"))).status == 200


async def test_expired_sessions_are_forgotten(clock):
    app = Server("tests", store=MemoryStore(clock=clock))
    endpoint = app.asgi(session_ttl=10)
    for _ in range(20):
        await Client(endpoint).connect()
    sessions = endpoint.dialect.sessions
    await clock.passes(9)
    assert (len(sessions), len(app.store)) == (20, 20)
    for _ in range(3):
        await clock.passes(6)
    assert (len(sessions), len(app.store)) == (0, 0)


async def test_a_session_is_not_forgotten_before_the_store_has_dropped_it(clock):
    app = Server("tests", store=MemoryStore(clock=clock))
    endpoint = app.asgi(session_ttl=10)
    await Client(endpoint).connect()
    clock.now += 0.09
    await Client(endpoint).connect()
    # Between the ends of the two, which count as one moment.
    await clock.passes(9.95)
    for _ in range(3):
        await clock.passes(6)
    assert (len(endpoint.dialect.sessions), len(app.store)) == (0, 0)


async def test_when_there_are_too_many_sessions_the_one_unused_for_longest_ends():
    endpoint = Server("tests").asgi(max_sessions=3)
    clients = [Client(endpoint) for _ in range(4)]
    for client in clients[:3]:
        await client.connect()
    assert (await clients[0].post(request("ping"))).status == 200
    await clients[3].connect()
    assert [(await client.post(request("ping"))).status for client in clients] == [200, 404, 200, 200]


async def test_sessions_in_use_never_make_room():
    app = Server("tests")
    running, open_ = asyncio.Event(), asyncio.Event()

    @app.tool
    async def work() -> str:
        running.set()
        await open_.wait()
        return "worked"

    endpoint = app.asgi(max_sessions=2)
    calling, listening = Client(endpoint), Client(endpoint)
    await calling.connect()
    call = calling.tool("work")
    await running.wait()
    await listening.connect()
    stream = listening.listen()
    await stream.opened()
    refused = await Client(endpoint).post(initialize())
    assert refused.status == 503
    assert "in use" in refused.error["message"]
    open_.set()
    assert text_of((await call.reply()).message) == "worked"
    await Client(endpoint).connect()
    assert (await calling.post(request("ping"))).status == 404
    assert (await listening.post(request("ping"))).status == 200
    stream.disconnect()


async def test_an_initialize_that_is_refused_ends_no_session():
    endpoint = Server("tests").asgi(max_sessions=1)
    client = Client(endpoint)
    await client.connect()
    assert (await Client(endpoint).post(request("initialize", {}))).error["code"] == -32602
    assert (await client.post(request("ping"))).status == 200


async def test_sessions_that_expired_make_room(clock):
    endpoint = Server("tests", store=MemoryStore(clock=clock)).asgi(max_sessions=2, session_ttl=10)
    for _ in range(2):
        await Client(endpoint).connect()
    clock.now += 11
    await Client(endpoint).connect()


@pytest.mark.parametrize("bad", [{"session_ttl": 0}, {"session_ttl": -1}, {"max_sessions": 0}, {"event_buffer": 0}])
def test_senseless_limits_are_refused(bad):
    with pytest.raises(ValueError, match="must be"):
        Server("tests").asgi(**bad)


def test_an_unknown_way_with_older_clients_is_refused():
    with pytest.raises(ValueError, match="'sessions', 'stateless' or 'reject'"):
        Server("tests").asgi(legacy="perhaps")


# --- beside the modern era ----------------------------------------------------------------------------------------


async def test_both_eras_share_one_endpoint(app, client):
    from asgi import Http

    http = Http(client.app)
    for _ in range(2):
        modern = await http.tool("echo", {"text": "modern"})
        assert modern.result["resultType"] == "complete"
        assert (await client.use("echo", {"text": "old"}))["result"]["content"][0]["text"] == "old"


async def test_a_modern_request_is_modern_even_with_a_session(app, client):
    from asgi import Http

    reply = await Http(client.app).call("tools/list", headers={SESSION: client.session})
    assert reply.result["resultType"] == "complete"


async def test_what_says_that_it_is_modern_is_modern_whatever_its_headers_say(client):
    message = modern_request("tools/list")
    reply = await client.post(message, headers={"mcp-protocol-version": "2025-11-25"})
    assert reply.status == 400
    assert reply.error["code"] == -32020  # the header contradicts the body


async def test_a_2026_request_touches_nothing_of_the_older_era(app, monkeypatch):
    from asgi import Http

    endpoint = app.asgi()

    class Untouchable:
        def __getattribute__(self, name):
            raise AssertionError(f"a modern request used {name}")

    endpoint.dialect = Untouchable()
    http = Http(endpoint)
    assert (await http.tool("echo", {"text": "hi"})).result["content"][0]["text"] == "hi"
    assert "tools" in (await http.call("tools/list")).result
    assert (await http.call("server/discover")).result["supportedVersions"] == ["2026-07-28"]
    assert (await http.call("nothing/known")).status == 404
    assert (await http.open(b"{", message={}).reply()).status == 400
    assert (await http.open(notification("notifications/cancelled", {"requestId": 1})).reply()).status == 202


async def test_a_page_of_an_allowed_origin_can_open_a_session_and_read_its_streams(app):
    page = "https://app.example.com"
    client = Client(app.asgi(allowed_origins=[page]), headers={"origin": page})
    asked = await client.open(b"", verb="OPTIONS", headers={"access-control-request-method": "DELETE"}).reply()
    assert asked.headers["access-control-allow-methods"] == "DELETE, GET, POST"
    opened = await client.post(initialize())
    client.headers[SESSION] = opened.headers[SESSION]
    assert SESSION in opened.headers["access-control-expose-headers"].split(", ")
    stream = client.listen()
    await stream.opened()
    refused = await client.post(request("ping"), headers={SESSION: "unknown"})
    for response in (asked, opened, stream, refused):
        assert response.headers["access-control-allow-origin"] == page
    stream.disconnect()
    await stream.finished()


# --- those who are not served -------------------------------------------------------------------------------------


async def test_a_client_of_http_with_sse_is_told_what_to_use(app):
    exchange = Client(app.asgi()).listen()
    reply = await exchange.reply()
    assert reply.status == 405
    assert reply.headers["allow"]
    assert "HTTP+SSE" in reply.error["message"]
    assert "initialize" in reply.error["message"]
    assert "POST" in reply.error["message"]


async def test_reject_serves_no_older_client_and_says_what_it_speaks(app):
    client = Client(app.asgi(legacy="reject"))
    reply = await client.post(initialize())
    assert 400 <= reply.status < 500
    # 2026-07-28, basic/versioning: the error is all that an older client can show its user.
    assert "2026-07-28" in json.dumps(reply.error)
    assert SESSION not in reply.headers
    for verb in ("GET", "DELETE"):
        refused = await client.open(b"", verb=verb).reply()
        assert refused.status == 405
        assert refused.headers["allow"] == "POST"
