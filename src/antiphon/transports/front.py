"""HTTP/1.1 in front of an ASGI application: the protocol that uvicorn, the runner, gives each connection to.

A request costs one scope, one object that is both ``receive`` and ``send``, one task and one write. Nobody sets a timer
or an event for it: a connection looks at its own clock now and then, and only who waits is woken.
"""

import asyncio
import logging
import select
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

import httptools

from antiphon.transports.asgi import Application, Receive, Scope, Send
from antiphon.transports.turn import Head, Turn, release, status_line

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

MAX_HEAD = 128 * 1024
"""Bytes without a whole head, or without a piece of a body, that are read at most; one read more may come with them.
More than an application's own limit, so that it can refuse in its own words."""
HIGH_WATER = 64 * 1024
"""Bytes of a body that may wait unread before no more is looked at, and bytes of that before the socket is paused."""
MAX_PIPELINED = 64
"""Requests that may wait for the one before them. Those that one read brings beyond are left to be sent again
(RFC 9112, 9.3.2)."""
HEAD_TIMEOUT = 30.0
"""Seconds for a whole head, and between two pieces of a body."""
LINGER = 2.0
"""Seconds in which a client that is still sending may read why it was refused."""

log = logging.getLogger("antiphon")

_CLOSE: Final = b"connection: close\r\n"
_NOTABLE: Final = frozenset((b"host", b"expect", b"transfer-encoding"))


class Front(asyncio.Protocol):
    """One connection, as uvicorn wants it: what is read becomes turns, and each turn's response is written in order."""

    def __init__(
        self,
        config: "Config",
        server_state: "ServerState",
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._application = cast("Application", config.loaded_app)
        self._root = config.root_path
        self._limit = config.limit_concurrency
        self._idle_timeout = config.timeout_keep_alive
        self._served = server_state
        self._connections = cast("set[Front]", server_state.connections)
        self._tasks = server_state.tasks
        self._state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._feed: Callable[[bytes], object] = self._parser.feed_data
        self._stated: object = None
        self._defaults = b""
        # The request that is being read.
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._hosts = 0
        self._expects = self._odd_coding = False
        self._head_incomplete = False
        self._incoming: Turn | None = None
        """The turn whose body is not whole yet."""
        self._fresh = True
        self._unfruitful = 0
        self._url_seen = b""
        self._target = ("", b"", b"")
        # The requests that are being answered.
        self._current: Turn | None = None
        self._queue: deque[tuple[Turn, Application]] = deque()
        self._final = False
        """Whether no further request is taken."""
        self._refusal = b""
        """What is said after the last response."""
        self._lingers = self._stops = False
        self.reading_paused = False
        self._held = bytearray()
        """What has arrived since. The socket is read for a while all the same: so a client that goes is noticed."""
        self._socket_paused = False
        self.writing_paused = False
        self._blocked: list[asyncio.Future[None]] = []
        self._unsent = 0
        self._answered = False

    # --- asyncio.Protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.write: Callable[[bytes], None] = self._transport.write
        self._connections.add(self)
        self._server = _address(transport.get_extra_info("sockname"))
        self._client = _address(transport.get_extra_info("peername"))
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        self._since = self._loop.time()
        self._timer = self._loop.call_later(self._period, self._look)

    def data_received(self, data: bytes) -> None:
        if self.reading_paused:
            self._hold(data)
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        try:
            self._feed(data)
        except httptools.HttpParserUpgrade as pause:
            self._decline_upgrade(data[pause.args[0] :])
            return
        except httptools.HttpParserError as fault:
            self._refuse_unreadable(fault)
            return
        if self._head_incomplete or self._incoming is not None:
            self._count(len(data))

    def eof_received(self) -> None:
        """A client that closes its side has gone: nothing tells the one from the other."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        self._connections.discard(self)
        self._timer.cancel()
        self._feed = _ignore
        self._parser = None
        if self._current is not None:
            self._current.drop()
            self._current = None
        self._end_after_this()
        self.resume_writing()

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False
        blocked, self._blocked = self._blocked, []
        release(blocked)

    async def drained(self) -> None:
        while self.writing_paused:
            waiter = self.new_waiter()
            self._blocked = [other for other in self._blocked if not other.done()]
            self._blocked.append(waiter)
            await waiter

    def new_waiter(self) -> "asyncio.Future[None]":
        return self._loop.create_future()

    def shutdown(self) -> None:
        """What uvicorn calls when it stops: an idle connection closes, a busy one after its responses.

        A request that is not whole yet is not waited for: its client can tell that nobody has acted on it.
        """
        self._final = self._stops = True
        turn, self._incoming = self._incoming, None
        if turn is not None:
            self._feed = _ignore
            turn.drop()
            if self._queue and self._queue[-1][0] is turn:
                self._queue.pop()
        if self._current is None or self._current is turn:
            self._transport.close()

    # --- httptools ------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._hosts = 0
        self._expects = self._odd_coding = False
        self._head_incomplete = self._fresh = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._headers.append((name, value))
        if name in _NOTABLE:
            if name == b"host":
                self._hosts += 1
            elif name == b"expect":
                self._expects = value.lower() == b"100-continue"
            else:
                self._odd_coding |= value.lower() != b"chunked"

    def on_headers_complete(self) -> None:
        headers, self._headers = self._headers, []  # trailers are not headers
        self._head_incomplete = False
        if self._final:
            return
        parser = self._parser
        version: str = parser.get_http_version()
        if version != "1.1" or self._hosts != 1 or self._odd_coding or parser.should_upgrade():
            if parser.should_upgrade():
                self._headers = headers
                return
            if not self._accepts(version):
                return
        method: str = parser.get_method().decode()
        try:
            path, raw_path, query = self._target if self._url == self._url_seen else self._read_target(headers)
        except (httptools.HttpParserError, UnicodeDecodeError):
            self._refuse(400, "The target of the request is not a valid URL")
            return
        turn = Turn(
            self,
            {
                "type": "http",
                "asgi": {"version": "3.0", "spec_version": "2.3"},
                "http_version": version,
                "server": self._server,
                "client": self._client,
                "scheme": self._scheme,
                "method": method,
                "root_path": self._root,
                "path": path,
                "raw_path": raw_path,
                "query_string": query,
                "headers": headers,
                "state": self._state.copy(),
            },
            is_head=method == "HEAD",
            knows_chunks=version == "1.1",
            expects=self._expects and version == "1.1",
        )
        if version != "1.1" or not parser.should_keep_alive():
            self._final = True
        self._incoming = turn
        self._take_on(turn)

    def on_body(self, piece: bytes) -> None:
        turn = self._incoming
        self._fresh = True
        if turn is None or turn.ended or turn.gone:
            return
        turn.add(piece)
        if len(turn.body) > HIGH_WATER:
            self._pause()

    def on_message_complete(self) -> None:
        turn = self._incoming
        if turn is not None:
            self._incoming = None
            turn.more = False
            turn.wake()

    # --- what is read ---------------------------------------------------------------------------------------------

    def _accepts(self, version: str) -> bool:
        if version not in {"1.1", "1.0"}:
            self._refuse(505, "HTTP/1.1 is spoken here")
        elif self._odd_coding:
            # RFC 9112, 6.1: a coding that is not understood.
            self._refuse(501, "No Transfer-Encoding but chunked is understood")
        elif self._hosts > 1 or (version == "1.1" and not self._hosts):
            # RFC 9112, 3.2.
            self._refuse(400, "A request has one Host header")
        else:
            return True
        return False

    def _read_target(self, headers: list[tuple[bytes, bytes]]) -> tuple[str, bytes, bytes]:
        url: Any = httptools.parse_url(self._url)
        raw: bytes = url.path or b"/"
        path = raw.decode("ascii")
        target = (
            self._root + (unquote(path) if "%" in path else path),
            self._root.encode("ascii") + raw,
            url.query or b"",
        )
        if url.host is None:
            self._url_seen, self._target = self._url, target
        else:
            # RFC 9112, 3.2.2: the host in the target counts, whatever the header says.
            host = self._url.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0].rpartition(b"@")[2]
            headers[:] = [(name, host if name == b"host" else value) for name, value in headers]
        return target

    def _decline_upgrade(self, rest: bytes) -> None:
        """Read a request that would like another protocol once more, as one that does not (RFC 9110, 7.8).

        The parser takes what follows its head for the other protocol, and so would miss the body.
        """
        method = self._parser.get_method()
        if self._final:
            self._feed = _ignore
            return
        if method == b"CONNECT":
            self._refuse(501, "CONNECT is not supported")
            return
        version = self._parser.get_http_version().encode()
        fields = [name + b": " + value + b"\r\n" for name, value in self._headers if name != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self._feed = self._parser.feed_data
        self._parse(b"%b %b HTTP/%b\r\n%b\r\n%b" % (method, self._url, version, b"".join(fields), rest))

    def _refuse_unreadable(self, fault: httptools.HttpParserError) -> None:
        if isinstance(fault, httptools.HttpParserCallbackError):
            log.error("a request cannot be taken", exc_info=fault)
            self._refuse(500, "Internal Server Error")
        elif not self._final or self._incoming is not None:
            self._refuse(400, f"This is not valid HTTP: {fault}")
        else:
            self._feed = _ignore  # what follows the last request is nobody's

    def _count(self, size: int) -> None:
        """Bound what is read without a head, a piece of a body, or the end of one coming of it."""
        if self._fresh:
            self._fresh = False
            self._unfruitful = 0
            self._since = self._loop.time()
            return
        self._unfruitful += size
        if self._unfruitful > MAX_HEAD:
            if self._incoming is None:
                self._refuse(431, f"The head of the request is larger than {MAX_HEAD} bytes")
            else:
                self._refuse(400, f"More than {MAX_HEAD} bytes are not part of the body")

    def _pause(self) -> None:
        if not self._transport.is_closing():
            self.reading_paused = True

    def _hold(self, data: bytes) -> None:
        if self._feed is _ignore:
            return
        self._held += data
        if len(self._held) > HIGH_WATER and not self._transport.is_closing():
            self._socket_paused = True
            self._transport.pause_reading()

    def read_on(self) -> None:
        """Read again, unless there is still too much that waits."""
        turn = self._incoming
        if self._queue or (turn is not None and not turn.ended and len(turn.body) > HIGH_WATER):
            return
        self.reading_paused = False
        self._since = self._loop.time()
        if self._socket_paused and not self._transport.is_closing():
            self._socket_paused = False
            self._transport.resume_reading()
        if self._held:
            held, self._held = bytes(self._held), bytearray()
            self._parse(held)

    # --- turns ----------------------------------------------------------------------------------------------------

    def _take_on(self, turn: Turn) -> None:
        application = self._application
        if self._limit is not None and (len(self._connections) >= self._limit or len(self._tasks) >= self._limit):
            application = _unavailable
        if self._current is None:
            self._start(turn, application)
        elif len(self._queue) < MAX_PIPELINED:
            self._queue.append((turn, application))
            self._pause()
        else:
            self._final = True
            self._incoming = None
            self._feed = _ignore

    def _start(self, turn: Turn, application: Application) -> None:
        self._current = turn
        turn.task = task = self._loop.create_task(turn.run(application, self._tasks))
        self._tasks.add(task)

    def finish(self) -> None:
        """The current response is complete."""
        self._served.total_requests += 1
        self._since = self._loop.time()
        self._answered = True
        self._current = None
        if self._queue:
            self._start(*self._queue.popleft())
        elif self._final:
            if self._refusal:
                self.write(self._refusal)
            self._close(gently=bool(self._refusal))
        if self.reading_paused:
            self.read_on()

    def opening(self, turn: Turn, head: Head) -> tuple[bytes, bytes, bytes, bytes]:
        """A response's head up to its framing."""
        if head.closes or (turn.expects and turn.more):
            # A client that was not told to go on may send its body, or leave it: what follows cannot be told apart.
            self._end_after_this()
        if self._stated is not self._served.default_headers:
            self._state_defaults()
        return head.start, self._defaults, head.fields, _CLOSE if self._final and not self._queue else b""

    def _state_defaults(self) -> None:
        """uvicorn puts a new list there every second, with the date."""
        self._stated = self._served.default_headers
        self._defaults = b"".join(b"%b: %b\r\n" % field for field in self._served.default_headers)

    def _end_after_this(self) -> None:
        self._final = True
        self._refusal = b""
        for turn, _ in self._queue:
            turn.drop()
        self._queue.clear()

    def _refuse(self, status: int, reason: str) -> None:
        """Say why, after the responses that are still due, and read no more."""
        turn, self._incoming = self._incoming, None
        is_nobodys = self._final and turn is None
        self._final = True
        self._feed = _ignore
        self._head_incomplete = False
        if is_nobodys:
            return
        log.info("a request was refused with %d: %s", status, reason)
        if turn is not None:
            turn.drop()
            if turn is self._current:
                self.break_off(turn, status, reason)
                return
            if self._queue and self._queue[-1][0] is turn:
                self._queue.pop()
        if turn is not None and turn.ended:
            self._close(gently=True)
        elif self._current is None:
            self.write(self._plain(status, reason))
            self._close(gently=True)
        else:
            self._refusal = self._plain(status, reason)

    def break_off(self, turn: Turn, status: int, reason: str) -> None:
        """The current turn comes to no good end: say so if nothing was said yet."""
        self._served.total_requests += 1
        self._end_after_this()
        self._current = None
        if not turn.begun:
            self.write(self._plain(status, reason))
            self._close(gently=True)
        else:
            self._transport.close()

    def _plain(self, status: int, reason: str) -> bytes:
        self._state_defaults()
        body = reason.encode()
        fields = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n" % len(body)
        return b"".join((status_line(status), self._defaults, fields, _CLOSE, b"\r\n", body))

    # --- the end --------------------------------------------------------------------------------------------------

    def _close(self, *, gently: bool = False) -> None:
        """Close. To close on a client that is still sending would take our words back (RFC 9112, 9.6)."""
        self._feed = _ignore
        gently = gently or self._incoming is not None
        self._incoming = None
        if self._transport.is_closing():
            return
        if not gently or self._stops or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._transport.write_eof()
        self._lingers = True
        if self.reading_paused:
            self.read_on()
        self._timer.cancel()
        self._timer = self._loop.call_later(LINGER, self._look)

    @property
    def _period(self) -> float:
        return max(0.05, min(self._idle_timeout, HEAD_TIMEOUT))

    def _look(self) -> None:
        """Has the client taken too long?"""
        if self._transport.is_closing():
            self._look_at_unsent()
            return
        if self._socket_paused and self._has_hung_up():
            self._transport.abort()
            return
        patience = self._patience()
        rest = self._period if patience is None else self._since + patience - self._loop.time()
        self._timer = self._loop.call_later(max(0.01, min(rest, self._period)), self._look)
        if rest <= 0:
            self._lose_patience()

    def _patience(self) -> float | None:
        if self._lingers:
            return LINGER
        if self._incoming is not None:
            return None if self.reading_paused else HEAD_TIMEOUT
        if self._current is not None:
            return None
        if self._head_incomplete or not self._answered:
            return HEAD_TIMEOUT
        return self._idle_timeout

    def _lose_patience(self) -> None:
        turn = self._incoming
        if not self._lingers and (self._head_incomplete or (turn is not None and not turn.ended)):
            self._refuse(408, "The request did not come to its end in time")
        else:
            self._transport.close()

    def _has_hung_up(self) -> bool:
        """Whether the client is gone, behind what it has sent and nobody has read; few systems can tell."""
        flag = getattr(select, "POLLRDHUP", None)
        socket = self._transport.get_extra_info("socket")
        if flag is None or socket is None:
            return False
        poll = select.poll()
        poll.register(socket.fileno(), flag)
        return bool(poll.poll(0))

    def _look_at_unsent(self) -> None:
        """A client that does not read does not hold the connection for ever."""
        unsent = self._transport.get_write_buffer_size()
        if self._unsent and unsent >= self._unsent:
            self._transport.abort()
            return
        self._unsent = unsent
        self._timer = self._loop.call_later(HEAD_TIMEOUT, self._look)


async def _unavailable(_scope: Scope, _receive: Receive, send: Send) -> None:
    fields = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 503, "headers": fields})
    await send({"type": "http.response.body", "body": b"Service Unavailable"})


def _address(told: object) -> tuple[str, int | None] | None:
    match told:
        case (str(host), int(port), *_):
            return host, port
        case str() if told:
            return told, None
        case _:
            return None


def _ignore(_data: bytes) -> None: ...
