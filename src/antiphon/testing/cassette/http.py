"""Record, replay and verify over HTTP: a proxy before the server, an application that answers, and a client."""

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from antiphon.errors import CallFailed, Disconnected, InvalidRequest, ParseError
from antiphon.http.client import ClientConnection
from antiphon.http.exchange import Receive, Scope, Send
from antiphon.testing.cassette.format import CassetteTurn
from antiphon.testing.cassette.placeholders import read_json
from antiphon.testing.cassette.recording import RecordedConnection, Recording
from antiphon.testing.cassette.replaying import REFUSED, Inbox, Inboxes, Replay, ReplayClient, ReplayMessage
from antiphon.testing.cassette.verifying import LiveServer
from antiphon.transports.admission import AllowList
from antiphon.transports.asgi import LOCAL_HOSTS
from antiphon.transports.asgi_exchange import Exchange
from antiphon.transports.http_client import MAX_REPLY, HttpLink, Response, content_type
from antiphon.types import JsonObject
from antiphon.wire import sse
from antiphon.wire.jsonrpc import encode

MAX_BODY: Final = 64 * 1024 * 1024
_TEXT: Final = "text/plain; charset=utf-8"


class LocalApp:
    """An ASGI application for requests to a name of this machine: a web page could have others sent here."""

    def __init__(self, *, hosts: Iterable[str] = ()) -> None:
        self._hosts = AllowList({*LOCAL_HOSTS, *hosts})
        self._is_closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            raw = dict(scope["headers"])
            origin = raw.get(b"origin")
            is_admitted = self._hosts.admits(raw.get(b"host"), url=False)
            if not is_admitted or (origin is not None and not self._hosts.admits(origin, url=True)):
                await respond(send, 403, "This Host or Origin is not allowed: --allow-host admits it")
            elif self._is_closed:
                # A client may open its stream again at once, and nothing would end that one.
                await respond(send, 503, "antiphon is stopping")
            else:
                headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw.items()}
                await self.serve(scope, headers, receive, send)

    async def serve(self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send) -> None:
        """Answer a request that is admitted."""
        raise NotImplementedError

    def close(self) -> None:
        """End the streams that are open, and serve no more."""
        self._is_closed = True


async def respond(
    send: Send, status: int, body: str | bytes = b"", kind: str = _TEXT, headers: Iterable[tuple[str, str]] = ()
) -> None:
    """Send a whole response."""
    data = body.encode() if isinstance(body, str) else body
    pairs = [("content-length", str(len(data))), *([("content-type", kind)] if data else []), *headers]
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": data})


async def body_of(receive: Receive, most: int = MAX_BODY) -> bytes | None:
    """Return the whole body; None if it is too large, or the client has gone."""
    body = bytearray()
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None
        body += event.get("body", b"")
        if len(body) > most:
            return None
        if not event.get("more_body", False):
            return bytes(body)


@contextlib.contextmanager
def when_gone(receive: Receive, then: Callable[[], object]) -> Generator[None]:
    """Call ``then`` if the client goes meanwhile."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        then()

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()


class ResponseReader:
    """Finds the messages in a response to the request of this id. A status without a message becomes an error."""

    def __init__(self, response: ClientConnection, request: Any) -> None:
        self._request = request
        self._status = None if response.status == 200 else response.status
        self._events = sse.Events(MAX_REPLY) if content_type(response) == "text/event-stream" else None
        self._body = bytearray()

    def feed(self, chunk: bytes) -> list[CassetteTurn]:
        """Take a piece of the body; raise ValueError for an event that is too large."""
        if self._events is None:
            self._body += chunk[: MAX_REPLY - len(self._body)]
            return []
        return [turn for data in self._events.feed(chunk) for turn in self._turns(read_json(data))]

    def end(self) -> list[CassetteTurn]:
        """Return what the whole body says, if it was no stream."""
        if self._events is not None:
            return []
        found = self._turns(read_json(bytes(self._body)))
        if not found and self._status is not None and self._status >= 300:
            text = self._body.decode(errors="replace") or f"The server answered with HTTP status {self._status}"
            return self._turns({"id": self._request, "error": {"code": REFUSED, "message": text}})
        return found

    def _turns(self, message: object) -> list[CassetteTurn]:
        return [
            CassetteTurn(server={name: value for name, value in each.items() if name != "jsonrpc"}, status=self._status)
            for each in (message if isinstance(message, list) else [message])
            # The error of a message is an object; OAuth has a text under that name.
            if isinstance(each, dict) and ("method" in each or "result" in each or isinstance(each.get("error"), dict))
        ]


# --- recording ----------------------------------------------------------------------------------------------------

_NOT_FORWARDED: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect"}
    | {"host", "content-length", "accept-encoding"}
)
"""Headers that are not passed on to the server: RFC 9110, 7.6.1; and compression, which would hide the messages."""
_CLOSED: Final = "The proxy was closed"
_NOT_RETURNED: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "trailer", "upgrade"})


class _Upstream(Response):
    """A connection to the server that keeps the headers as they were, repeated ones too."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self.pairs.append((name, value))


class RecordingProxy(LocalApp):
    """Passes everything on to the server's origin, unchanged and as it comes; records what goes to its MCP path.

    ``after`` is called after each exchange. ``headers`` are sent to the server in place of the client's, and are not
    recorded.
    """

    def __init__(
        self,
        url: str,
        recording: Recording,
        *,
        hosts: Iterable[str] = (),
        headers: Mapping[str, str] | None = None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(hosts=hosts)
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"A server's URL starts with http:// or https:// and a host, got {url!r}")
        self.path = parts.path or "/"
        self._host = parts.netloc.rpartition("@")[2]
        self._address = (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._recording = recording
        self._headers = {name.lower(): value for name, value in (headers or {}).items()}
        self._after = after
        self._sessions: dict[str, RecordedConnection] = {}
        self._upstreams: set[_Upstream] = set()

    def close(self) -> None:
        super().close()
        for upstream in list(self._upstreams):
            upstream.close(Disconnected(_CLOSED))

    async def serve(self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send) -> None:
        body = await body_of(receive)
        if body is None:
            return
        is_recorded = scope["path"] == self.path
        connection = self._sessions.get(headers.get("mcp-session-id", "")) or self._recording.connect()
        exchange, message = None, read_json(body)
        if is_recorded and scope["method"] == "POST":
            exchange = connection.sent(message, headers)

        def record(turn: CassetteTurn) -> None:
            names_its_request = "method" in turn.message or turn.message.get("id") is not None
            if is_recorded and (exchange is not None or names_its_request):
                connection.take(turn, exchange)

        try:
            upstream = await self._connect()
        except OSError as fault:
            await respond(send, 502, f"antiphon record: cannot reach {self._host}: {fault}")
            return
        try:
            with when_gone(receive, lambda: upstream.close(Disconnected("The client has gone"))):
                await upstream.send(self._head(scope, len(body)) + body)
                session = upstream.headers.get("mcp-session-id")  # known from the response to its first request on
                if session is not None:
                    self._sessions.setdefault(session, connection)
                reader = ResponseReader(upstream, message.get("id") if isinstance(message, dict) else None)
                await _pass_on(upstream, send, reader, record)
        except CallFailed as fault:
            if not upstream.headers:
                await respond(send, 502, f"antiphon record: {fault}")
        finally:
            self._upstreams.discard(upstream)
            upstream.close()
            self._after()

    async def _connect(self) -> _Upstream:
        name = self._address[0] if self._tls else None
        loop = asyncio.get_running_loop()
        _, upstream = await loop.create_connection(_Upstream, *self._address, ssl=self._tls, server_hostname=name)
        self._upstreams.add(upstream)
        if self._is_closed:  # meanwhile
            upstream.close(Disconnected(_CLOSED))
        return upstream

    def _head(self, scope: Scope, length: int) -> bytes:
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope["query_string"]
        lines = [scope["method"].encode() + b" " + path + (b"?" + query if query else b"") + b" HTTP/1.1"]
        lines.append(b"host: " + self._host.encode())
        replaced = {*_NOT_FORWARDED, *self._headers}
        kept = [pair for pair in scope["headers"] if pair[0].decode("latin-1") not in replaced]
        lines += [name + b": " + value for name, value in kept]
        lines += [f"{name}: {value}".encode("latin-1") for name, value in self._headers.items()]
        lines += [b"accept-encoding: identity", b"connection: close", b"content-length: %d" % length, b"", b""]
        return b"\r\n".join(lines)


async def _pass_on(
    upstream: _Upstream, send: Send, reader: ResponseReader, record: Callable[[CassetteTurn], None]
) -> None:
    pairs = [pair for pair in upstream.pairs if pair[0].decode("latin-1").lower() not in _NOT_RETURNED]
    await send({"type": "http.response.start", "status": upstream.status, "headers": pairs})
    with contextlib.suppress(CallFailed):  # a stream that breaks ends here as well
        while chunk := await upstream.next_chunk():
            with contextlib.suppress(ValueError):  # too large to be recorded
                for turn in reader.feed(chunk):
                    record(turn)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    for turn in reader.end():
        record(turn)
    await send({"type": "http.response.body", "body": b""})


# --- replaying ----------------------------------------------------------------------------------------------------


class _ReplayExchange(Exchange):
    """A request to a replay, and the inbox of what it gets."""

    def __init__(self, receive: Receive, send: Send, inbox: Inbox) -> None:
        super().__init__(receive, send, None)
        self._inbox = inbox

    def disconnected(self) -> None:
        self.gone = True
        self._inbox.put_nowait(None)

    async def stream(self) -> None:
        """Send what belongs to no request, for as long as the client listens."""
        await self.begin()
        await self._give_sign()  # a server may hold the head of a response back until there is a body
        await self.until_reply()

    async def until_reply(self) -> ReplayMessage | None:
        """Send what comes before a reply, and return that; None if none comes."""
        self.watch()
        try:
            while (came := await self._inbox.get()) is not None and not came.is_reply:
                await self.emit(came.message)
            if came is None and self.streaming and not self.gone:
                await self._send({"type": "http.response.body", "body": b""})
            return came
        finally:
            self.let_go()


class ReplayApp(LocalApp):
    """Answers from a cassette at a path, in either era."""

    def __init__(self, replay: Replay, *, path: str = "/mcp", hosts: Iterable[str] = ()) -> None:
        super().__init__(hosts=hosts)
        self._inboxes = Inboxes(replay)
        self._path = path
        self._sessions: dict[str, ReplayClient] = {}

    def close(self) -> None:
        super().close()
        self._inboxes.close()

    async def serve(self, scope: Scope, headers: dict[str, str], receive: Receive, send: Send) -> None:
        session = headers.get("mcp-session-id")
        client = ReplayClient() if session is None else self._sessions.get(session)
        if scope["path"] != self._path:
            await respond(send, 404, f"There is nothing here: the recording is played at {self._path}")
        elif client is None:
            await respond(send, 404, "There is no such session")
        elif scope["method"] == "POST":
            await self._post(client, receive, send)
        elif scope["method"] == "GET" and session is not None:
            await _ReplayExchange(receive, send, self._inboxes.of(client)).stream()
        elif scope["method"] == "DELETE" and session is not None:
            del self._sessions[session]
            await respond(send, 204)
        else:
            await respond(send, 405, "Only POST is played")

    async def _post(self, client: ReplayClient, receive: Receive, send: Send) -> None:
        body = await body_of(receive)
        message = None if body is None else read_json(body)
        if not isinstance(message, dict):
            await Exchange(receive, send, None).refuse(ParseError("This is not a message"))
        elif "method" in message and type(message.get("id", 0)) not in {int, str}:
            await Exchange(receive, send, None).refuse(InvalidRequest("The id must be a string or an integer"))
        elif "id" not in message or "method" not in message:
            self._inboxes.take(client, message)
            await respond(send, 202)
        else:
            with self._inboxes.request(client, message) as inbox:
                exchange = _ReplayExchange(receive, send, inbox)
                reply = await exchange.until_reply()
                if reply is not None:
                    if message["method"] == "initialize" and "result" in reply.message:
                        session = secrets.token_urlsafe(18)
                        self._sessions[session] = client
                        exchange.add_headers({"mcp-session-id": session})
                    await exchange.reply(reply.status or 200, encode(reply.message))


# --- verifying ----------------------------------------------------------------------------------------------------


class LiveUrl(LiveServer):
    """A server behind a URL."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._link = HttpLink(url, headers=headers)
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: dict[str, str] = {}

    async def open(self) -> None:
        await self._link.open()

    async def send(self, message: JsonObject, headers: Mapping[str, str]) -> None:
        verbs = ["POST"]
        if message.get("method") == "initialize":
            self._session = {}
        if message.get("method") == "notifications/initialized" and self._session:
            verbs.append("GET")  # the server's own stream
        for verb in verbs:
            task = asyncio.create_task(self._exchange(verb, {**headers, **self._session}, message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._link.close()

    async def _exchange(self, verb: str, headers: Mapping[str, str], message: JsonObject) -> None:
        response, answered = None, False
        try:
            response = await self._link.exchange(verb, headers, encode(message) if verb == "POST" else b"")
            if "mcp-session-id" in response.headers:
                self._session = {"Mcp-Session-Id": response.headers["mcp-session-id"]}
            reader = ResponseReader(response, message.get("id"))
            while chunk := await response.next_chunk():
                for turn in reader.feed(chunk):
                    self.inbox.put_nowait(turn)
            for turn in reader.end() if verb == "POST" else ():
                self.inbox.put_nowait(turn)
            answered = True
        except (CallFailed, ValueError) as fault:
            self.inbox.put_nowait(Disconnected(str(fault)))
        finally:
            if response is not None:
                self._link.give_back(response, answered=answered)
