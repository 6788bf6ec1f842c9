"""HTTP/1.1 as the wire sees it: raw sockets against a real server, on both event loops."""

import asyncio
import contextlib
import json
import logging
import select
import socket
import ssl
import subprocess
import threading
from itertools import pairwise
from types import SimpleNamespace

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st

from antiphon import Context, Server
from antiphon.http import connection as front
from antiphon.http.states import Reading, Writing
from antiphon.transports.serve import SETTINGS
from examples import examples

DEADLINE = 8
EXAMPLES = examples(60)
LARGE = 4 << 20


# --- an application for every case --------------------------------------------------------------------------------


class Site:
    """An ASGI application whose paths do what their names say."""

    def __init__(self):
        self.seen = []
        self.events = []
        self.gate = threading.Event()
        self.waiting = threading.Event()
        self.gone = threading.Event()
        self.sent = 0

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await receive()
            scope["state"]["opened"] = True
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        self.seen.append(scope["path"])
        name = scope["path"].strip("/").replace("-", "_")
        await getattr(self, f"do_{name}", self.do_echo)(scope, receive, send)

    async def do_echo(self, scope, receive, send):
        body = await whole(receive)
        told = {
            **{key: scope[key] for key in ("method", "path", "http_version", "scheme", "root_path", "state")},
            "raw_path": scope["raw_path"].decode("latin-1"),
            "query": scope["query_string"].decode("latin-1"),
            "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in scope["headers"]],
            "body": body.decode("latin-1"),
        }
        await reply(send, json.dumps(told).encode(), [(b"Content-Type", b"application/json")])

    async def do_body(self, scope, receive, send):
        await reply(send, await whole(receive), [])

    async def do_events(self, scope, receive, send):
        """How the body came, and what comes after the response."""
        got, events = [], self.events
        while True:
            event = await receive()
            got.append((len(event["body"]), event["more_body"]))
            if not event["more_body"]:
                break
        await reply(send, json.dumps(got).encode(), [])
        events.append((await receive())["type"])

    async def do_nothing(self, scope, receive, send):
        pass

    async def do_raise(self, scope, receive, send):
        raise ValueError("a secret")

    async def do_exit(self, scope, receive, send):
        raise SystemExit(9)

    async def do_raise_after_start(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError("a secret")

    async def do_raise_midway(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise ValueError("a secret")

    async def do_raise_afterwards(self, scope, receive, send):
        await reply(send, b"fine", [])
        raise ValueError("a secret")

    async def do_stream(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"one", b"", b"two", b"three"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body"})

    async def do_measured(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [[b"Content-Length", b"6"]]})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": bytearray(b"two")})

    async def do_unmeasured(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 201})
        await send({"type": "http.response.body", "body": b"whole"})

    async def do_short(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
        await send({"type": "http.response.body", "body": b"one"})

    async def do_long(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"one"})

    async def do_long_midway(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})

    async def do_unfinished(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    async def do_empty(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def do_unchanged(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 304, "headers": [(b"content-length", b"100")]})
        await send({"type": "http.response.body", "body": b"ignored"})

    async def do_early(self, scope, receive, send):
        await reply(send, b"no need", [])

    async def do_goodbye(self, scope, receive, send):
        await reply(send, b"bye", [(b"Connection", b"close")])

    async def do_last_stream(self, scope, receive, send):
        """A stream that ends the connection, of an application that reads its request late."""
        await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await whole(receive)
        self.waiting.set()
        await asyncio.to_thread(self.gate.wait, DEADLINE)
        await send({"type": "http.response.body", "body": b"two"})

    async def do_large(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(64):
            await send({"type": "http.response.body", "body": b"x" * (LARGE // 64), "more_body": True})
            self.sent += LARGE // 64
        await send({"type": "http.response.body"})
        if (await receive())["type"] == "http.disconnect":
            self.gone.set()

    async def do_whole(self, scope, receive, send):
        await reply(send, b"x" * LARGE, [])

    async def do_wait(self, scope, receive, send):
        await whole(receive)
        self.waiting.set()
        listeners = [asyncio.create_task(receive()) for _ in range(2)]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(listeners[0]), 0.01)
        abandoned = asyncio.create_task(receive())
        await asyncio.sleep(0)
        abandoned.cancel()
        self.events += [(await listener)["type"] for listener in listeners]
        await send({"type": "http.response.start", "status": 200})
        self.gone.set()

    async def do_hear(self, scope, receive, send):
        self.waiting.set()
        while (await receive())["type"] == "http.request":
            pass

    async def do_hold(self, scope, receive, send):
        self.waiting.set()
        await asyncio.to_thread(self.gate.wait, DEADLINE)
        await reply(send, await whole(receive), [])

    async def do_slow_reader(self, scope, receive, send):
        self.waiting.set()
        await asyncio.to_thread(self.gate.wait, DEADLINE)
        size, more = 0, True
        while more:
            event = await receive()
            size, more = size + len(event["body"]), event["more_body"]
        await reply(send, b"%d" % size, [])

    async def do_wrong(self, scope, receive, send):
        """What an application must not send; it is told, and answers something else."""
        refused, events = 0, self.events
        for event in WRONG:
            try:
                await send(event)
            except (RuntimeError, TypeError, AttributeError):
                refused += 1
        await reply(send, b"%d" % refused, [])
        for event in ({"type": "http.response.body"}, {"type": "http.response.start", "status": 200}):
            try:
                await send(event)
            except RuntimeError:
                events.append("refused")


WRONG = [
    {"type": "http.response.body", "body": b"too early"},
    {"type": "http.response.trailers"},
    *(
        {"type": "http.response.start", "status": 200, "headers": [header]}
        for header in (
            (b"x", b"a\r\nb: c"),
            (b"x", b"a\nb"),
            (b"x\r\ny", b"a"),
            (b"x y", b"a"),
            (b"", b"a"),
            (b"x", b"\x00"),
            ("x", "a"),
            (b"content-length", b"-1"),
            (b"content-length", b"1 "),
            (b"transfer-encoding", b"gzip"),
        )
    ),
    {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1"), (b"content-length", b"1")]},
    {"type": "http.response.start", "status": 101},
    {"type": "http.response.start", "status": "200"},
]


async def whole(receive):
    body = b""
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise OSError("gone")
        body += event["body"]
        if not event["more_body"]:
            return body


async def reply(send, body, headers):
    headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# --- a server, and a client that knows every byte -----------------------------------------------------------------


class Announced(uvicorn.Server):
    def __init__(self, config):
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, sockets=None):
        await super().startup(sockets)
        self.ready.set()

    @property
    def port(self):
        return self.servers[0].sockets[0].getsockname()[1]


@contextlib.contextmanager
def serving(application, **options):
    chosen = {**SETTINGS, "log_level": logging.CRITICAL, "timeout_graceful_shutdown": 5, **options}
    server = Announced(uvicorn.Config(application, port=0, **chosen))
    thread = threading.Thread(target=server.run)
    thread.start()
    assert server.ready.wait(10), "uvicorn did not start"
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive(), "uvicorn did not stop"


LOOPS = ["asyncio", "uvloop"]


@pytest.fixture(scope="module", params=LOOPS)
def shared(request):
    pytest.importorskip(request.param)
    application = Site()
    with serving(application, loop=request.param) as server:
        yield SimpleNamespace(application=application, server=server, port=server.port)


@pytest.fixture
def site(shared, caplog):
    """The application, fresh; what it is served by is shared."""
    shared.application.__init__()
    caplog.set_level(logging.INFO, "antiphon")
    return shared.application


@pytest.fixture
def wire(shared, site):
    with Wire(shared.port) as wire:
        yield wire


@pytest.fixture
def dial(shared, site):
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(Wire(shared.port, **options))


class Reply(SimpleNamespace):
    @property
    def json(self):
        return json.loads(self.body)


class Wire:
    def __init__(self, port, *, tls=None, buffer=None):
        self.socket = socket.socket()
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(DEADLINE)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.rest = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def ask(self, data, **about):
        self.send(data)
        return self.reply(**about)

    def get(self, path="/", *headers, method="GET", version="1.1"):
        lines = "".join(f"{line}\r\n" for line in ("Host: x", *headers))
        return self.ask(f"{method} {path} HTTP/{version}\r\n{lines}\r\n".encode(), method=method)

    def _more(self):
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            data = b""
        self.rest += data
        return bool(data)

    def until(self, mark):
        while mark not in self.rest:
            assert self._more(), f"closed after {self.rest[:300]!r}"
        found, _, self.rest = self.rest.partition(mark)
        return found

    def take(self, size):
        while len(self.rest) < size:
            assert self._more(), f"closed after {self.rest[:300]!r}"
        found, self.rest = self.rest[:size], self.rest[size:]
        return found

    def all(self):
        """Everything up to the connection's end."""
        while self._more():
            pass
        found, self.rest = self.rest, b""
        return found

    @property
    def closed(self):
        return self.all() == b""

    def reply(self, method="GET"):
        start, *lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, status, _phrase = start.split(" ", 2)
        pairs = [tuple(line.split(": ", 1)) for line in lines]
        headers = dict(pairs)
        assert len(headers) == len(pairs), f"a header comes twice: {pairs}"
        found = Reply(version=version, status=int(status), headers=headers, body=b"", chunks=0)
        if method == "HEAD" or found.status in {100, 204, 304}:
            return found
        if headers.get("transfer-encoding") == "chunked":
            while size := int(self.until(b"\r\n"), 16):
                found.body += self.take(size)
                found.chunks += 1
                assert self.take(2) == b"\r\n"
            assert self.take(2) == b"\r\n"
        elif "content-length" in headers:
            found.body = self.take(int(headers["content-length"]))
        else:
            found.body = self.all()
        return found


def post(body, *headers, path="/body"):
    lines = "".join(f"{line}\r\n" for line in ("Host: x", *headers, f"Content-Length: {len(body)}"))
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def chunked(*pieces, path="/body", trailers=b""):
    coded = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return b"POST %b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%b0\r\n%b\r\n" % (
        path.encode(),
        coded,
        trailers,
    )


# --- requests -----------------------------------------------------------------------------------------------------


def test_a_request_reaches_the_application_as_asgi_wants_it(wire, shared):
    told = wire.get("/caf%C3%A9/a%2Fb?x=%20&y", "X-Mixed-CASE: Value", "X-Twice: 1", "X-Twice: 2").json
    assert (told["method"], told["http_version"], told["scheme"], told["root_path"]) == ("GET", "1.1", "http", "")
    assert (told["path"], told["raw_path"], told["query"]) == ("/café/a/b", "/caf%C3%A9/a%2Fb", "x=%20&y")
    assert told["headers"] == [["host", "x"], ["x-mixed-case", "Value"], ["x-twice", "1"], ["x-twice", "2"]]
    assert told["state"] == {"opened": True}


def test_a_connection_is_kept(wire):
    for number in range(5):
        reply = wire.ask(post(b"%d" % number))
        assert (reply.version, reply.status, reply.body) == ("HTTP/1.1", 200, b"%d" % number)
        assert "connection" not in reply.headers
        assert reply.headers["date"].endswith("GMT")
        assert "server" not in reply.headers


@pytest.mark.parametrize("value", ["close", "Close", "te, close"])
def test_a_client_that_wants_the_connection_closed_gets_that(wire, value):
    reply = wire.get("/", f"Connection: {value}")
    assert reply.headers["connection"] == "close"
    assert wire.closed


@pytest.mark.parametrize("header", ["X: y", "Connection: keep-alive"])
def test_http_1_0_is_answered_and_the_connection_closed(dial, header):
    plain, streamed = dial(), dial()
    reply = plain.get("/", header, version="1.0")
    assert (reply.status, reply.headers["connection"], reply.json["http_version"]) == (200, "close", "1.0")
    assert plain.closed
    reply = streamed.get("/stream", header, version="1.0")
    assert "transfer-encoding" not in reply.headers
    assert reply.body == b"onetwothree"


def test_http_1_0_needs_no_host(wire):
    assert wire.ask(b"GET / HTTP/1.0\r\n\r\n").status == 200


def test_nothing_after_the_last_request_is_served(dial, site):
    following = b"GET /after HTTP/1.1\r\nHost: x\r\n\r\n"
    for first in (
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    ):
        wire = dial()
        assert wire.ask(first + following * 2).status == 200
        assert wire.closed
    assert "/after" not in site.seen


def test_a_body_that_comes_with_its_head_is_given_at_once(wire):
    assert wire.ask(post(b"x" * 1000, path="/events")).json == [[1000, False]]
    assert wire.get("/events").json == [[0, False]]
    assert wire.ask(chunked(b"a", b"b", b"c", path="/events")).json == [[3, False]]


def test_after_the_response_there_is_only_disconnect(wire, site):
    wire.get("/events")
    wire.get("/")
    assert site.events == ["http.disconnect"]


def test_a_chunked_body_is_read(wire):
    pieces = [b"one", b"x" * 100_000, b"", b"three"][:2]
    assert wire.ask(chunked(*pieces, b"three")).body == b"".join(pieces) + b"three"
    assert wire.get("/").status == 200


def test_trailers_are_no_headers_of_this_request_or_of_the_next(wire):
    trailers = b"Authorization: me\r\nHost: other\r\nExpect: 100-continue\r\n"
    told = wire.ask(chunked(b"x", path="/", trailers=trailers)).json
    assert told["headers"] == [["host", "x"], ["transfer-encoding", "chunked"]]
    told = wire.ask(post(b"y", path="/")).json
    assert told["headers"] == [["host", "x"], ["content-length", "1"]]


@pytest.mark.parametrize("size", [1, 70_000, LARGE])
def test_a_body_may_come_in_pieces(wire, size):
    head, _, body = post(b"x" * size).partition(b"\r\n\r\n")
    wire.send(head[:20])
    wire.send(head[20:] + b"\r\n\r\n")
    wire.send(body)
    assert len(wire.reply().body) == size


def test_every_byte_may_come_alone(wire):
    for byte in post(b"hello", "X-Y: z", path="/a?b=c"):
        wire.send(bytes([byte]))
    told = wire.reply().json
    assert (told["path"], told["query"], told["body"]) == ("/a", "b=c", "hello")
    assert ["x-y", "z"] in told["headers"]


def test_a_client_that_asks_whether_to_go_on_is_told(wire):
    wire.send(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    assert wire.reply().status == 100
    assert wire.ask(b"hello").body == b"hello"
    assert wire.get("/").status == 200


def test_a_client_that_does_not_wait_is_not_told(wire):
    assert wire.ask(post(b"hello", "Expect: 100-continue")).body == b"hello"


def test_a_client_that_was_not_told_to_go_on_is_not_believed_afterwards(wire, site):
    """Whether it sends the body or not cannot be known: what comes next might be either."""
    reply = wire.ask(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\nExpect: 100-continue\r\n\r\n")
    assert (reply.body, reply.headers["connection"]) == (b"no need", "close")
    wire.send(b"GET /after HTTP/1.1\r\nHost: x\r\n\r\n")
    assert wire.closed
    assert site.seen == ["/early"]


def test_an_answer_before_the_body_leaves_the_connection_usable(wire):
    body = b"x" * 1_000_000
    assert wire.ask(post(body, path="/early")).body == b"no need"
    assert wire.get("/").status == 200
    head, _, rest = chunked(body, path="/early").partition(b"\r\n\r\n")
    assert wire.ask(head + b"\r\n\r\n").body == b"no need"
    wire.send(rest)
    assert wire.get("/").status == 200


def test_an_absolute_target_names_the_host(wire):
    told = wire.ask(b"GET http://real.example:81/p?q HTTP/1.1\r\nHost: other\r\n\r\n").json
    assert (told["path"], told["query"], told["headers"]) == ("/p", "q", [["host", "real.example:81"]])
    assert wire.ask(b"GET http://bare.example HTTP/1.1\r\nHost: other\r\n\r\n").json["path"] == "/"
    assert wire.ask(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").json["path"] == "*"


@pytest.mark.parametrize("protocol", ["websocket", "h2c"])
def test_a_wish_for_another_protocol_is_passed_over(wire, protocol):
    wish = ("Connection: Upgrade, HTTP2-Settings", f"Upgrade: {protocol}", "HTTP2-Settings: AAMAAABkAAQ")
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    told = wire.ask(post(smuggled, *wish, path="/a?b")).json
    assert (told["body"], told["path"], told["query"]) == (smuggled.decode(), "/a", "b")
    head, _, body = post(b"hello", *wish, path="/").partition(b"\r\n\r\n")
    wire.send(head + b"\r\n\r\n")
    wire.send(body)
    assert wire.reply().json["body"] == "hello"
    told = wire.ask(
        chunked(b"one", b"two", path="/").replace(b"Host", b"Connection: upgrade\r\nUpgrade: x\r\nHost")
    ).json
    assert told["body"] == "onetwo"
    assert wire.get("/", *wish).status == 200


def test_many_wishes_at_once_are_passed_over_as_well(wire):
    wire.send(post(b"x", "Connection: upgrade", "Upgrade: h2c") * 500)
    assert [wire.reply().body for _ in range(1 + front.MAX_PIPELINED)] == [b"x"] * (1 + front.MAX_PIPELINED)
    assert wire.closed


def test_there_is_no_tunnel(wire):
    assert wire.ask(b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\nGET / HTTP/1.1\r\n\r\n").status == 501
    assert wire.closed


# --- pipelining ---------------------------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order(wire):
    wire.send(b"".join(post(b"%d" % number) for number in range(20)))
    assert [wire.reply().body for _ in range(20)] == [b"%d" % number for number in range(20)]
    assert wire.get("/").status == 200


def test_a_pipelined_request_waits_for_the_one_before(wire, site):
    wire.send(post(b"first", path="/hold") + post(b"second"))
    assert site.waiting.wait(5)
    wire.send(post(b"third"))
    assert site.seen == ["/hold"]
    site.gate.set()
    assert [wire.reply().body for _ in range(3)] == [b"first", b"second", b"third"]


def test_a_pipelined_body_may_come_later(wire, site):
    head, _, body = post(b"x" * 200_000).partition(b"\r\n\r\n")
    wire.send(post(b"first", path="/hold") + head + b"\r\n\r\n")
    assert site.waiting.wait(5)
    site.gate.set()
    assert wire.reply().body == b"first"
    wire.send(body)
    assert len(wire.reply().body) == 200_000


def test_the_requests_that_wait_are_bounded(wire, site):
    """Those beyond are not answered; a client that pipelines knows to send them again."""
    wire.send(post(b"first", path="/hold") + post(b"next") * 200)
    assert site.waiting.wait(5)
    site.gate.set()
    replies = [wire.reply() for _ in range(1 + front.MAX_PIPELINED)]
    assert [reply.headers.get("connection") for reply in replies] == [None] * front.MAX_PIPELINED + ["close"]
    assert wire.closed


def test_what_is_refused_in_a_pipeline_is_refused_in_its_turn(wire, site):
    wire.send(post(b"first", path="/hold") + post(b"second") + b"NONSENSE\r\n\r\n")
    assert site.waiting.wait(5)
    site.gate.set()
    assert [wire.reply().body for _ in range(2)] == [b"first", b"second"]
    assert wire.reply().status == 400
    assert wire.closed


def test_a_broken_body_in_a_pipeline_is_refused_in_its_turn(wire, site):
    wire.send(post(b"first", path="/hold") + chunked(b"x").replace(b"1\r\nx", b"?"))
    assert site.waiting.wait(5)
    site.gate.set()
    assert wire.reply().body == b"first"
    assert wire.reply().status == 400
    assert wire.closed
    assert site.seen == ["/hold"]


def test_a_close_in_the_middle_of_a_pipeline_ends_it(wire, site):
    wire.send(post(b"1") + post(b"2", path="/goodbye") + post(b"3"))
    assert [wire.reply().body for _ in range(2)] == [b"1", b"bye"]
    assert wire.closed
    assert site.seen == ["/body", "/goodbye"]


def test_nothing_follows_the_response_that_ends_a_pipeline(wire, site):
    start, broken = b"POST /body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"no chunk\r\n"
    wire.send(post(b"x", path="/last-stream") + start)
    assert site.waiting.wait(5)
    wire.send(broken)
    wire.until(b"one")
    select.select([wire.socket], [], [], 0.1)  # the server reads what is broken before it ends the response
    site.gate.set()
    assert wire.until(b"two") == b"\r\n3\r\n"
    assert wire.all() == b"\r\n0\r\n\r\n"


HALF = b"GET /body HTTP/1.1\r\nHo"


@pytest.mark.parametrize(
    "data", [b"GET /goodbye HTTP/1.1\r\nHost: x\r\n\r\n" + HALF, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 70]
)
async def test_a_client_that_is_still_sending_is_given_time_to_read_the_last_response(data):
    class Halves(Recorder):
        ended = False

        def write_eof(self):
            assert not self.closing
            self.ended = True

    transport = Halves()
    await converse(transport, [data], turns=500)
    assert transport.ended


@pytest.mark.parametrize("size", [1, 30_000])
def test_a_client_that_goes_is_noticed_behind_what_it_has_pipelined(dial, site, size):
    wire = dial()
    wire.send(post(b"first", path="/wait") + post(b"x" * size))
    assert site.waiting.wait(5)
    wire.send(post(b"y" * size))
    wire.socket.close()
    assert site.gone.wait(5)
    assert site.seen == ["/wait"]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.skipif(not hasattr(select, "POLLRDHUP"), reason="this system cannot tell")
def test_a_client_that_goes_is_noticed_even_behind_what_is_not_read(loop):
    pytest.importorskip(loop)
    site = Site()
    with serving(site, loop=loop, timeout_keep_alive=0.1) as server, Wire(server.port) as wire:
        wire.send(post(b"first", path="/wait") + post(b"second"))
        assert site.waiting.wait(5)
        wire.send(b"x" * (front.HIGH_WATER + 1000))
        wire.socket.close()
        assert site.gone.wait(5)


def test_what_is_held_for_a_pipeline_is_bounded(wire, site):
    wire.send(post(b"first", path="/hold") + post(b"second"))
    assert site.waiting.wait(5)
    wire.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        wire.send(b"x" * (64 << 20))
    site.gate.set()


# --- responses ----------------------------------------------------------------------------------------------------


def test_head_and_body_come_in_one_piece(shared):
    """Seen from the protocol: one write for a response."""
    transport = Recorder()
    asyncio.run(converse(transport, [post(b"hello")]))
    assert len(transport.writes) == 1


def test_a_body_of_unknown_length_is_chunked(wire):
    reply = wire.get("/stream")
    assert (reply.body, reply.chunks) == (b"onetwothree", 3)
    assert wire.get("/").status == 200


def test_a_body_that_is_known_at_once_has_its_length(wire):
    reply = wire.get("/unmeasured")
    assert (reply.status, reply.body, reply.headers["content-length"]) == (201, b"whole", "5")


def test_a_measured_body_may_come_in_pieces(wire):
    assert wire.get("/measured").body == b"onetwo"
    assert wire.get("/").status == 200


@pytest.mark.parametrize("path", ["/", "/stream", "/measured", "/unmeasured", "/unchanged"])
def test_head_is_answered_without_a_body(wire, path):
    assert wire.get(path, method="HEAD").body == b""
    assert wire.get("/body").body == b""


@pytest.mark.parametrize("headers", [[], ["Host: y"], ["Transfer-Encoding: gzip"]])
def test_a_refusal_of_head_has_no_body_either(wire, headers):
    assert wire.get("/raise", *headers, method="HEAD").status in {400, 500, 501}
    assert wire.closed


@pytest.mark.parametrize("path", ["/empty", "/unchanged"])
def test_some_statuses_have_no_body(wire, path):
    reply = wire.get(path)
    assert reply.status in {204, 304}
    assert "transfer-encoding" not in reply.headers
    assert wire.get("/").status == 200


def test_the_application_may_close(wire):
    reply = wire.get("/goodbye")
    assert (reply.body, reply.headers["connection"]) == (b"bye", "close")
    assert wire.closed


@pytest.mark.parametrize("path", ["/nothing", "/raise", "/raise-after-start", "/short", "/long", "/exit"])
def test_an_application_that_fails_before_it_answers_is_a_500(wire, dial, caplog, path):
    reply = wire.get(path)
    assert (reply.status, reply.body, reply.headers["connection"]) == (500, b"Internal Server Error", "close")
    assert wire.closed
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1
    assert dial().get("/").status == 200


@pytest.mark.parametrize("path", ["/raise-midway", "/unfinished", "/long-midway"])
def test_an_application_that_fails_midway_leaves_a_response_that_is_visibly_broken(wire, dial, caplog, path):
    wire.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    said = wire.all()
    assert said.startswith(b"HTTP/1.1 200")
    assert not said.endswith(b"0\r\n\r\n")
    assert b"secret" not in said
    assert b"two" not in said
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1
    assert dial().get("/").status == 200


def test_an_application_that_fails_afterwards_harms_nobody(wire, caplog):
    assert wire.get("/raise-afterwards").body == b"fine"
    assert wire.get("/").status == 200
    assert [record.message.partition(":")[0] for record in caplog.records] == ["the application failed"]


def test_what_must_not_be_sent_is_refused(wire, site):
    assert int(wire.get("/wrong").body) == len(WRONG)
    wire.get("/")
    assert site.events == ["refused", "refused"]


# --- refusals -----------------------------------------------------------------------------------------------------

CHUNKED_HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
MALFORMED = {
    "nonsense": b"\x16\x03\x01\x02\x00\x01",
    "unknown method": b"FROB / HTTP/1.1\r\nHost: x\r\n\r\n",
    "no target": b"GET HTTP/1.1\r\nHost: x\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: x\n\n",
    "space before the colon": b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
    "null in a header": b"GET / HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "length and coding": CHUNKED_HEAD + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    "coding and length": CHUNKED_HEAD.replace(b"Host", b"Content-Length: 5\r\nHost") + b"\r\n0\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    "a list of lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\nx",
    "a signed length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\nx",
    "a huge length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\nx",
    "coding that is not chunked": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity\r\n\r\nx",
    "chunked twice": CHUNKED_HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a chunk without size": CHUNKED_HEAD + b"\r\n?\r\n",
    "a chunk that is longer than it says": CHUNKED_HEAD + b"\r\n1\r\nxx\r\n0\r\n\r\n",
    "a space after a chunk's size": CHUNKED_HEAD + b"\r\n1 \r\nx\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_not_http_is_refused_and_not_served(wire, site, name):
    reply = wire.ask(MALFORMED[name])
    assert reply.status in ({400, 501} if name == "chunked twice" or "not chunked" in name else {400})
    assert reply.headers["connection"] == "close"
    assert reply.headers["content-type"].startswith("text/plain")
    assert reply.body
    assert wire.closed
    assert site.seen == []


def test_another_version_is_not_spoken(dial):
    for version in ("2.0", "0.9"):
        wire = dial()
        assert wire.get("/", version=version).status == 505
        assert wire.closed


@pytest.mark.parametrize("line", [b"GET / RTSP/1.0", b"POST / RTSP/1.1", b"OPTIONS / RTSP/1.0", b"SOURCE / ICE/1.0"])
@pytest.mark.parametrize("cut", [100, 9, 15])
def test_a_protocol_that_only_looks_like_http_is_refused(wire, site, line, cut):
    request = b"\r\n" + line + b"\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    wire.send(request[:cut])
    with contextlib.suppress(OSError):
        wire.send(request[cut:])
    assert wire.reply().status == 505
    assert wire.closed
    assert site.seen == []


def test_a_body_may_speak_of_other_protocols(wire):
    assert wire.ask(post(b"GET / RTSP/1.0\r\n")).body == b"GET / RTSP/1.0\r\n"


def test_a_coding_that_is_not_understood_is_refused(wire, site):
    assert wire.ask(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n").status == 501
    assert wire.closed
    assert site.seen == []


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nX: ", b"GET /"])
@pytest.mark.parametrize("filler", [b"x" * 50_000, b"a: b\r\n" * 10_000])
def test_a_head_without_end_is_refused(wire, head, filler):
    if head.endswith(b"\r\n"):
        filler = b"a:" + filler if b":" not in filler else filler
    elif b":" in filler:
        filler = filler.replace(b"\r\n", b"").replace(b" ", b"")
    with contextlib.suppress(OSError):
        wire.send(head)
        for _ in range(20):
            wire.send(filler)
    assert wire.reply().status == 431


def test_trailers_without_end_are_refused(wire):
    wire.send(chunked(b"x").removesuffix(b"\r\n"))
    with contextlib.suppress(OSError):
        for _ in range(200):
            wire.send(b"a: " + b"b" * 5_000 + b"\r\n")
    said = wire.all()
    assert said.startswith(b"HTTP/1.1 400")


def test_whoever_is_still_sending_can_read_why_he_was_refused(wire):
    wire.send(b"NONSENSE\r\n" * 100_000)
    assert wire.reply().status == 400


# --- clients that go away, and those that do not read ------------------------------------------------------------


def test_whoever_waits_is_told_that_the_client_has_gone(wire, site):
    wire.send(post(b"x", path="/wait"))
    assert site.waiting.wait(5)
    wire.socket.close()
    assert site.gone.wait(5)
    assert site.events == ["http.disconnect"] * 2


def test_a_client_that_goes_in_the_middle_of_its_body_harms_nobody(wire, dial, caplog):
    wire.send(post(b"x" * 1000)[:-500])
    wire.socket.close()
    assert dial().get("/").status == 200


def test_a_response_waits_for_a_client_that_does_not_read(dial, site):
    wire = dial(buffer=4096)
    wire.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    wire.until(b"\r\n\r\n")
    assert dial().get("/").status == 200  # a turn of the loop later
    assert site.sent < LARGE
    wire.rest = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + wire.rest
    assert len(wire.reply().body) == LARGE


def test_a_client_that_goes_while_it_is_waited_for_harms_nobody(dial, site):
    wire = dial(buffer=4096)
    wire.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    wire.until(b"\r\n\r\n")
    wire.socket.close()
    assert dial().get("/").status == 200


def test_a_body_that_is_not_read_is_held_back(wire, site):
    size = 8 * LARGE
    wire.send(f"POST /slow-reader HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
    sent = 0
    wire.socket.settimeout(0.3)
    with contextlib.suppress(TimeoutError):
        while sent < size:
            sent += wire.socket.send(b"x" * min(1_000_000, size - sent))
    assert sent < size
    wire.socket.settimeout(DEADLINE)
    site.gate.set()
    wire.send(b"x" * (size - sent))
    assert int(wire.reply().body) == size


# --- time ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch):
    """A server without patience."""
    monkeypatch.setattr(front, "HEAD_TIMEOUT", 0.2)
    site = Site()
    with serving(site, timeout_keep_alive=0.1) as server:
        yield SimpleNamespace(site=site, port=server.port)


@pytest.fixture
def pauses(monkeypatch):
    """A server with little patience, and twelve pauses that together are longer than that."""
    monkeypatch.setattr(front, "HEAD_TIMEOUT", 1.0)
    monkeypatch.setattr(front, "MIN_RATE", 100)
    with serving(Site(), timeout_keep_alive=0.1) as server:

        def each():
            for _ in range(12):
                with Wire(server.port) as clock:
                    clock.get("/")
                    clock.all()  # as long as an idle connection is kept
                yield

        yield SimpleNamespace(port=server.port, each=each)


def test_a_request_that_does_not_come_to_its_end_is_given_up(hasty):
    starts = [b"", b"GE", b"GET / HTTP/1.1\r\nHost:", post(b"12345")[:-2], chunked(b"x")[:-2]]
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(hasty.port)) for _ in starts]
        for wire, start in zip(wires, starts, strict=True):
            wire.send(start)
        assert [wire.all()[:12] for wire in wires] == [b""] + [b"HTTP/1.1 408"] * 4


def test_a_head_that_drips_is_given_up(hasty):
    with Wire(hasty.port) as wire:
        wire.get("/")
        with contextlib.suppress(OSError):
            for byte in b"GET / HTTP/1.1\r\nX: " + b"x" * 200:
                wire.send(bytes([byte]))
                wire.socket.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    wire._more()
                    break
        wire.socket.settimeout(DEADLINE)
        assert wire.reply().status == 408


@pytest.mark.parametrize("head", [post(b"x" * 1000)[:-1000], CHUNKED_HEAD + b"\r\n"])
def test_a_body_that_drips_is_given_up(hasty, head):
    with Wire(hasty.port) as wire:
        wire.send(head)
        wire.socket.settimeout(0.05)
        pieces = 0
        while pieces < 100:
            pieces += 1
            with contextlib.suppress(OSError):
                wire.send(b"1\r\nx\r\n" if b"chunked" in head else b"x")
            with contextlib.suppress(TimeoutError):
                wire._more()
                break
        assert pieces < 100
        wire.socket.settimeout(DEADLINE)
        assert wire.reply().status == 408
        assert wire.closed


def test_a_body_that_comes_slowly_but_steadily_is_read(pauses):
    body = b"x" * 1200
    with Wire(pauses.port) as wire:
        wire.send(post(body)[:-1200])
        for _ in pauses.each():
            wire.send(b"x" * 100)
        assert wire.reply().body == body


@pytest.mark.parametrize("then", ["another request", "a stream"])
def test_a_response_that_is_not_read_does_not_hold_its_connection(hasty, then):
    with Wire(hasty.port, buffer=4096) as wire:
        if then == "a stream":
            wire.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        else:
            wire.send(b"GET /whole HTTP/1.1\r\nHost: x\r\n\r\nGET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        wire.until(b"\r\n\r\n")
        assert hasty.site.gone.wait(DEADLINE)


def test_a_response_that_is_read_slowly_is_sent_to_its_end(pauses):
    with Wire(pauses.port, buffer=4096) as wire:
        wire.send(b"GET /whole HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        wire.until(b"\r\n\r\n")
        for _ in pauses.each():
            wire.take(LARGE // 16)
        assert len(wire.all()) == LARGE // 4


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(hasty):
    with Wire(hasty.port) as idle, Wire(hasty.port) as busy:
        busy.send(post(b"patience", path="/hold"))
        assert idle.get("/").status == 200
        assert idle.closed
        hasty.site.gate.set()
        assert busy.reply().body == b"patience"


def test_a_body_that_the_application_is_slow_to_read_is_not_given_up(hasty):
    with Wire(hasty.port) as wire, Wire(hasty.port) as clock:
        sender = threading.Thread(target=wire.send, args=[post(b"x" * LARGE, path="/slow-reader")])
        sender.start()
        assert hasty.site.waiting.wait(5)
        clock.send(b"GE")
        clock.all()  # as long as the server waits at all
        hasty.site.gate.set()
        sender.join(5)
        assert int(wire.reply().body) == LARGE


def test_nobody_holds_a_closing_connection_by_not_reading(hasty):
    with Wire(hasty.port, buffer=4096) as wire:
        wire.send(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" * 1)
        wire.until(b"\r\n\r\n")
        hasty.site.gate.set()
    # The server stops when the fixture ends: what is not read does not hold it up.


# --- the end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_that_stops_closes_what_is_idle_and_finishes_what_is_not(loop):
    site = Site()
    with serving(site, loop=loop) as server, contextlib.ExitStack() as stack:
        idle, fresh, busy, piped = (stack.enter_context(Wire(server.port)) for _ in range(4))
        assert idle.get("/").status == 200
        busy.send(post(b"busy", path="/hold"))
        assert site.waiting.wait(5)
        site.waiting.clear()
        piped.send(post(b"1", path="/hold") + post(b"2"))
        assert site.waiting.wait(5)
        server.should_exit = True
        assert idle.closed
        assert fresh.closed
        site.gate.set()
        reply = busy.reply()
        assert (reply.body, reply.headers["connection"]) == (b"busy", "close")
        first, second = piped.reply(), piped.reply()
        assert (first.body, second.body, second.headers["connection"]) == (b"1", b"2", "close")
        assert busy.closed
        assert piped.closed


def test_a_server_that_stops_does_not_wait_for_those_it_refused():
    with serving(Site()) as server, Wire(server.port) as refused, Wire(server.port) as piped:
        assert refused.ask(b"NONSENSE\r\n").status == 400
        assert piped.ask(post(b"x") + b"NONSENSE\r\n").body == b"x"
        server.should_exit = True
        assert piped.reply().status == 400
        assert piped.closed
        assert refused.closed


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("start", [b"", b"POST /bo", post(b"x" * 100)[:-50], chunked(b"x" * 100)[:-60]])
def test_a_server_that_stops_does_not_wait_for_a_request_that_is_not_whole(loop, start):
    pytest.importorskip(loop)
    site = Site()
    with serving(site, loop=loop) as server, Wire(server.port) as wire, Wire(server.port) as busy:
        busy.send(post(b"first", path="/hold") + start)
        assert site.waiting.wait(5)
        site.waiting.clear()
        wire.send(start.replace(b"/body", b"/hear"))
        if b"\r\n\r\n" in start:
            assert site.waiting.wait(5)
        server.should_exit = True
        assert wire.closed
        site.gate.set()
        assert busy.reply().body == b"first"
        assert busy.closed
    assert site.seen == ["/hold", "/hear"][: 1 + (b"\r\n\r\n" in start)]


def test_a_server_that_can_wait_no_longer_cancels(caplog):
    site = Site()
    with serving(site, timeout_graceful_shutdown=0.1) as server, Wire(server.port) as wire:
        wire.send(post(b"x", path="/wait"))
        assert site.waiting.wait(5)
        server.should_exit = True
        assert wire.reply().status == 500


def test_more_than_the_limit_are_turned_away():
    site = Site()
    with serving(site, limit_concurrency=2) as server, Wire(server.port) as one:
        assert one.get("/").status == 200
        with Wire(server.port) as two:
            reply = two.get("/")
            assert (reply.status, reply.headers["connection"]) == (503, "close")


def test_requests_are_counted_for_uvicorn():
    with serving(Site()) as server:
        with Wire(server.port) as wire:
            for path in ("/", "/", "/raise"):
                wire.get(path)
        assert server.server_state.total_requests == 3


def test_the_path_that_a_proxy_cut_off_is_put_back():
    with serving(Site(), root_path="/api") as server, Wire(server.port) as wire:
        told = wire.get("/x%20y").json
        assert (told["root_path"], told["path"], told["raw_path"]) == ("/api", "/api/x y", "/api/x%20y")


def test_more_headers_may_be_stated_for_all_responses():
    with serving(Site(), headers=[("X-Site", "mine")], date_header=False) as server, Wire(server.port) as wire:
        headers = wire.get("/body").headers
        assert headers == {"x-site": "mine", "content-length": "0"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return {"ssl_keyfile": str(key), "ssl_certfile": str(cert)}


@pytest.mark.parametrize("loop", LOOPS)
def test_tls_is_spoken(certificate, loop):
    trust = ssl.create_default_context(cafile=certificate["ssl_certfile"])
    with serving(Site(), loop=loop, **certificate) as server:
        with Wire(server.port, tls=trust) as wire:
            assert wire.get("/").json["scheme"] == "https"
            assert len(wire.ask(post(b"x" * LARGE)).body) == LARGE
        with Wire(server.port, tls=trust) as wire:
            assert wire.ask(b"NONSENSE\r\n\r\n").status == 400
            assert wire.closed


# --- the library's own endpoint -----------------------------------------------------------------------------------


def test_a_fallback_application_is_served_as_well():
    app = Server("tests", version="1.0.0")
    with serving(app.asgi(fallback=Site())) as server, Wire(server.port) as wire:
        assert wire.get("/stream").body == b"onetwothree"
        assert wire.ask(post(b"{}", path="/mcp")).status == 403


def test_a_stream_is_sent_event_by_event():
    app, gate = Server("tests", version="1.0.0"), threading.Event()

    @app.tool
    async def slow(ctx: Context) -> str:
        await ctx.progress(1)
        await asyncio.to_thread(gate.wait, DEADLINE)
        return "done"

    from messages import headers_for, tool_call

    message = tool_call("slow", progress="t")
    headers = [f"{name}: {value}" for name, value in headers_for(message).items() if name != "host"]
    with serving(app.asgi(allowed_hosts=["x"])) as server, Wire(server.port) as wire:
        wire.send(post(json.dumps(message).encode(), *headers, path="/mcp"))
        assert b"transfer-encoding: chunked" in wire.until(b"\r\n\r\n")
        assert b"progress" in wire.until(b"\n\n")
        gate.set()
        assert b"done" in wire.until(b"0\r\n\r\n")


# --- any bytes, split anywhere ------------------------------------------------------------------------------------


class Recorder(asyncio.Transport):
    """A transport that keeps what is written: it hands over pieces exactly as they are given."""

    def __init__(self):
        super().__init__()
        self.writes = []
        self.closing = False
        self.protocol = None

    def write(self, data):
        assert not self.closing
        self.writes.append(bytes(data))

    def can_write_eof(self):
        return True

    def write_eof(self):
        self.close()

    def close(self):
        if not self.closing:
            self.closing = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def is_closing(self):
        return self.closing

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    def get_write_buffer_size(self):
        return 0


def agrees(connection):
    """What a connection holds is what its states say."""
    assert (connection._incoming is not None) is (connection._reading in {Reading.BODY, Reading.LAST_BODY})
    assert (connection._current is not None) is (connection._writing is Writing.ANSWERING)
    assert not connection._queue or connection._current is not None


async def converse(transport, pieces, turns=0):
    """What a connection says to these pieces, which come so many turns of the loop one after the other."""
    config = SimpleNamespace(loaded_app=Site(), root_path="", limit_concurrency=None, timeout_keep_alive=5)
    state = SimpleNamespace(connections=set(), tasks=set(), total_requests=0, default_headers=[])
    protocol = transport.protocol = front.ServerConnection(config, state, {}, asyncio.get_running_loop())
    protocol.connection_made(transport)
    for piece in pieces:
        if not transport.closing:
            protocol.data_received(piece)
        agrees(protocol)
        for _ in range(turns):
            await asyncio.sleep(0)
            agrees(protocol)
    async with asyncio.timeout(DEADLINE):
        while any(not (turn := task).done() for task in list(state.tasks)):
            stuck = protocol._current is not None and protocol._current is protocol._incoming
            if stuck:  # it waits for the rest of its body
                break
            await asyncio.wait({turn}, timeout=0.01)
        transport.close()
        await asyncio.sleep(0)
        if state.tasks:
            await asyncio.wait(set(state.tasks))
    assert state.connections == set()
    assert state.tasks == set()
    return b"".join(transport.writes)


paths = st.sampled_from(["/", "/body", "/stream", "/measured", "/empty", "/early", "/a%20b?c=%20", "/raise", "/short"])
bodies = st.binary(max_size=40)
BARE_HEAD = b"%b %b HTTP/1.1\r\nHost: x\r\n\r\n"
requests = (
    st.builds(lambda body, path: post(body, path=path), bodies, paths)
    | st.builds(lambda pieces, path: chunked(*filter(None, pieces), path=path), st.lists(bodies, max_size=3), paths)
    | st.tuples(st.sampled_from([b"GET", b"HEAD"]), paths.map(str.encode)).map(BARE_HEAD.__mod__)
    | st.sampled_from(list(MALFORMED.values()))
    | st.just(post(b"hello", "Connection: upgrade", "Upgrade: h2c"))
)
mutations = st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=2)), max_size=3)


def split(data, cuts):
    places = sorted({round(cut * len(data)) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


@EXAMPLES
@given(st.lists(requests, min_size=1, max_size=4).map(b"".join), st.lists(st.floats(0, 1), max_size=8))
def test_it_does_not_matter_how_the_bytes_are_split(data, cuts):
    whole = asyncio.run(converse(Recorder(), [data]))
    assert asyncio.run(converse(Recorder(), split(data, cuts))) == whole


@EXAMPLES
@given(
    st.lists(requests | st.binary(max_size=200), max_size=3).map(b"".join),
    mutations,
    st.lists(st.floats(0, 1), max_size=4),
    st.integers(0, 5),
)
def test_no_bytes_do_harm(data, mutations, cuts, turns):
    for place, put in mutations:
        at = round(place * len(data))
        data = data[:at] + put + data[at + len(put) :]
    said = asyncio.run(converse(Recorder(), split(data, cuts), turns))
    assert said == b"" or said.startswith(b"HTTP/1.1 ")


@examples(25)
@given(st.lists(requests | st.binary(max_size=200), min_size=1, max_size=3).map(b"".join), st.integers(0, 400))
def test_no_bytes_stop_a_real_server(shared, data, cut):
    with Wire(shared.port) as wire:
        with contextlib.suppress(OSError):
            for piece in (data[:cut], data[cut:]):
                wire.send(piece)
            wire.socket.shutdown(socket.SHUT_WR)
        wire.all()
    with Wire(shared.port) as wire:
        assert wire.get("/").status == 200


# --- beside uvicorn's own protocol --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair():
    with serving(Site()) as ours, serving(Site(), http="httptools") as theirs:
        yield ours.port, theirs.port


names = st.from_regex(r"\AX-[A-Za-z0-9!#$%&'*+.^_`|~-]{1,10}\Z")
values = st.from_regex(r"\A[!-~\xa0-\xff]([ -~\xa0-\xff]{0,10}[!-~\xa0-\xff])?\Z")
targets = st.from_regex(r"\A/([a-z0-9/._~-]|%[0-9A-F]{2}){0,12}(\?[a-z0-9=&%+?/]{0,10})?\Z")
fixed = st.sampled_from(["/stream", "/measured", "/unmeasured", "/empty", "/body", "/early", "/goodbye", "/raise"])
verbs = st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])


@EXAMPLES
@given(verbs, targets | fixed, st.lists(st.tuples(names, values), max_size=4), st.none() | st.lists(bodies, max_size=3))
def test_well_formed_requests_are_answered_as_uvicorn_answers_them(pair, verb, target, fields, pieces):
    lines = [f"{verb} {target} HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in fields)]
    body = b""
    if pieces is not None and len(pieces) % 2:
        body = b"".join(pieces)
        lines.append(f"Content-Length: {len(body)}")
    elif pieces is not None:
        body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece) + b"0\r\n\r\n"
        lines.append("Transfer-Encoding: chunked")
    data = "".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1") + body
    assert _told(pair[0], data, verb) == _told(pair[1], data, verb)


def _told(port, data, verb):
    with Wire(port) as wire:
        found = wire.ask(data, method=verb)
    del found.headers["date"]
    for framing in ("transfer-encoding", "content-length") if verb != "HEAD" else ():
        found.headers.pop(framing, None)
    return found.status, found.headers, found.body
