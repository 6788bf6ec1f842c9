"""HTTP/1.1 for an ASGI application: the protocol class that uvicorn creates for each connection.

A request costs one scope, one exchange (which is both ``receive`` and ``send``), one task and one write. It sets no
timer and no event: each connection has one timer, and a future is made only where an application has to wait.

The states of reading and writing, and the events between them, are tables: states.py.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

import httptools

from antiphon.http import states
from antiphon.http.exchange import Application, HttpExchange, unavailable
from antiphon.http.heads import CLOSE, Head, Target, plain, read_target, refusal_of
from antiphon.http.sockets import address_of, has_hung_up

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

MAX_HEAD = 128 * 1024
"""Bytes that may arrive without completing a head or adding to a body; one read more may come with them.
More than an application's own limit, so that it can refuse in its own words."""
HIGH_WATER = 64 * 1024
"""Bytes of a body that may wait unread before parsing pauses, and bytes held unparsed before the socket is paused."""
MAX_PIPELINED = 64
"""Requests that may wait for the one before them. The client has to repeat those beyond (RFC 9112, 9.3.2)."""
HEAD_TIMEOUT = 30.0
"""Seconds for a whole head, for a body that comes no faster than MIN_RATE, and for a client that reads nothing."""
MIN_RATE = 4096
"""Bytes a second of a body that are always fast enough."""
LINGER = 2.0
"""Seconds in which a client that is still sending may read why it was refused."""

log = logging.getLogger("antiphon")

_NOTABLE: Final = frozenset((b"host", b"expect", b"transfer-encoding"))


class ServerConnection(asyncio.Protocol):
    """One connection, with the constructor that uvicorn calls. Requests become exchanges, answered in order."""

    # An idle connection is small: without slots, so many attributes would take 1.2 KB more.
    __slots__ = (
        *("_application", "_connections", "_idle_timeout", "_limit", "_loop", "_period", "_root", "_served", "_state"),
        *("_client", "_scheme", "_server", "_since", "_tasks", "_timer", "_transport", "write"),
        *("_defaults", "_expects", "_feed", "_first_line", "_headers", "_held", "_hosts", "_incoming", "_is_new"),
        *("_odd_coding", "_parser", "_reading", "_stated", "_target", "_unfruitful", "_url", "_url_seen"),
        *("_current", "_queue", "_refusal", "_unsent", "_unsent_since", "_writable", "_writing"),
        *("reading_paused", "writing_paused"),
    )

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
        self._period = max(0.05, min(self._idle_timeout, HEAD_TIMEOUT))
        self._served = server_state
        self._connections = cast("set[ServerConnection]", server_state.connections)
        self._tasks = server_state.tasks
        self._state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._parser: Any = httptools.HttpRequestParser(self)
        self._feed: Callable[[bytes], object] = self._feed_first
        self._first_line = b""
        self._stated: object = None
        self._defaults = b""
        # The request that is read.
        self._reading = states.NEW
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._hosts = 0
        self._expects = self._odd_coding = False
        self._incoming: HttpExchange | None = None
        """The exchange whose body is arriving: set in the states BODY and LAST_BODY."""
        self._is_new = True
        """Whether the request began in this read."""
        self._unfruitful: int | None = None
        """Bytes since the last read that began a head or added to a body; None in a read that adds to one."""
        self._url_seen = b""
        self._target: Target = ("", b"", b"")
        self.reading_paused = False
        self._held = bytearray()
        """What has arrived since. The socket is still read for a while, to notice a client that goes."""
        # The requests that are answered.
        self._writing = states.FREE
        self._current: HttpExchange | None = None
        """The exchange that is being answered: set in the state ANSWERING."""
        self._queue: list[tuple[HttpExchange, Application]] = []
        self._refusal = b""
        """A response to send after those that are due."""
        self.writing_paused = False
        self._writable: asyncio.Event | None = None
        self._unsent = -1
        self._unsent_since = 0.0

    # --- asyncio.Protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.write: Callable[[bytes], None] = self._transport.write
        self._connections.add(self)
        self._server = address_of(transport, "sockname")
        self._client = address_of(transport, "peername")
        self._scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        self._since = self._loop.time()
        self._timer = self._loop.call_later(self._period, self._look)

    def data_received(self, data: bytes) -> None:
        if self.reading_paused:
            self._hold(data)
            return
        try:
            self._feed(data)
        except httptools.HttpParserUpgrade as pause:
            self._decline_upgrade(data[pause.args[0] :])
            return
        except httptools.HttpParserCallbackError:
            log.exception("a request cannot be taken")
            self._refuse(500, "Internal Server Error")
        except httptools.HttpParserError as fault:
            self._refuse(400, f"This is not valid HTTP: {fault}")
        if self._reading in states.ARRIVING:
            self._count(len(data))

    def eof_received(self) -> None:
        """Close: a client that closes its side cannot be told from one that has gone."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        self._connections.discard(self)
        self._timer.cancel()
        self._end_reading(states.STOP)
        self._parser = None
        self._queue.clear()
        self._writing = states.CLOSE[self._writing]
        if self._current is not None:
            self._current.drop()
            self._current = None
        self.resume_writing()

    def pause_writing(self) -> None:
        self.writing_paused = True
        self._unsent = -1

    def resume_writing(self) -> None:
        self.writing_paused = False
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def drained(self) -> None:
        """Wait until more can be written."""
        while self.writing_paused:
            if self._writable is None:
                self._writable = asyncio.Event()
            await self._writable.wait()

    def shutdown(self) -> None:
        """Close if the connection is idle, else after the responses that are due; uvicorn calls this when it stops.

        A request that is not whole yet is dropped: its client can tell that it was not acted on.
        """
        exchange = self._end_reading(states.STOP)
        if exchange is not None and exchange is self._current:
            exchange.drop()
            self._current = None
        if self._current is None:
            self._close_now()

    # --- httptools ------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._hosts = 0
        self._expects = self._odd_coding = False
        self._is_new = True
        self._reading = states.BEGIN[self._reading]

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
        if self._reading is not states.HEAD:
            return
        parser = self._parser
        version: str = parser.get_http_version()
        if version != "1.1" or self._hosts != 1 or self._odd_coding or parser.should_upgrade():
            if parser.should_upgrade():
                self._headers = headers
                return
            if (refusal := refusal_of(version, self._hosts, odd_coding=self._odd_coding)) is not None:
                self._refuse(*refusal)
                return
        method: str = parser.get_method().decode()
        try:
            path, raw_path, query = self._target if self._url == self._url_seen else self._read_target(headers)
        except (httptools.HttpParserError, UnicodeDecodeError):
            self._refuse(400, "The target of the request is not a valid URL")
            return
        exchange = HttpExchange(
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
        event = states.TAKE if version == "1.1" and parser.should_keep_alive() else states.TAKE_LAST
        self._reading = event[self._reading]
        self._incoming = exchange
        self._take_on(exchange)

    def on_body(self, piece: bytes) -> None:
        self._unfruitful = None
        exchange = self._incoming
        if exchange is None or exchange.ended:
            return
        exchange.add(piece)
        if len(exchange.body) > HIGH_WATER:
            self._pause()

    def on_message_complete(self) -> None:
        self._reading = states.COMPLETE[self._reading]
        if self._reading is not states.IDLE:
            self._feed = _ignore
        exchange = self._incoming
        if exchange is not None:
            self._incoming = None
            exchange.more = False
            exchange.wake()

    # --- what is read ---------------------------------------------------------------------------------------------

    def _feed_first(self, data: bytes) -> None:
        """Feed the parser the first line of the connection, and refuse the protocols that it takes for HTTP."""
        self._first_line += data
        line, end, _ = self._first_line.lstrip(b"\r\n").partition(b"\n")
        if line.rpartition(b" ")[2].startswith((b"RTSP", b"ICE")):
            self._refuse(505, "HTTP/1.1 is spoken here")
            return
        if end or len(line) > HIGH_WATER:
            self._feed, self._first_line = self._parser.feed_data, b""
        self._parser.feed_data(data)

    def _read_target(self, headers: list[tuple[bytes, bytes]]) -> Target:
        target, host = read_target(self._url, self._root)
        if host is None:
            self._url_seen, self._target = self._url, target
        else:
            # RFC 9112, 3.2.2: the host in the target replaces the header's.
            headers[:] = [(name, host if name == b"host" else value) for name, value in headers]
        return target

    def _decline_upgrade(self, rest: bytes) -> None:
        """Parse a request for another protocol again, without its ``Upgrade`` header (RFC 9110, 7.8).

        The parser takes what follows the head for the other protocol, and so would miss the body.
        """
        if self._reading in states.ENDED:
            return
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._refuse(501, "CONNECT is not supported")
            return
        version = self._parser.get_http_version().encode()
        fields = [name + b": " + value + b"\r\n" for name, value in self._headers if name != b"upgrade"]
        self._parser = httptools.HttpRequestParser(self)
        self._feed = self._parser.feed_data
        self.reading_paused = False  # one read is parsed to its end
        self.data_received(b"%b %b HTTP/%b\r\n%b\r\n%b" % (method, self._url, version, b"".join(fields), rest))

    def _count(self, size: int) -> None:
        """Bound what arrives without completing a head or adding to a body, and how slowly a body arrives."""
        if self._is_new:
            self._is_new = False
            self._unfruitful = 0
            self._since = self._loop.time()
            return
        if self._unfruitful is None:
            self._unfruitful = 0
            self._since = min(self._loop.time(), self._since + size / MIN_RATE)
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
        if self._reading in states.ENDED:
            return
        self._held += data
        if len(self._held) > HIGH_WATER and not self._transport.is_closing():
            self._transport.pause_reading()

    def read_on(self) -> None:
        """Parse again, unless too much still waits."""
        exchange = self._incoming
        if self._queue or (exchange is not None and not exchange.ended and len(exchange.body) > HIGH_WATER):
            return
        self.reading_paused = False
        self._since = self._loop.time()
        if self._held:
            held, self._held = bytes(self._held), bytearray()
            if len(held) > HIGH_WATER and not self._transport.is_closing():
                self._transport.resume_reading()
            self.data_received(held)

    def _end_reading(self, event: states.ReadEvent) -> HttpExchange | None:
        """Ignore what arrives from here on; returns the exchange whose body was arriving."""
        self._reading = event[self._reading]
        self._feed = _ignore
        exchange, self._incoming = self._incoming, None
        if self._queue and self._queue[-1][0] is exchange:
            self._queue.pop()
        return exchange

    # --- exchanges ------------------------------------------------------------------------------------------------

    def _take_on(self, exchange: HttpExchange) -> None:
        application = self._application
        if self._limit is not None and (len(self._connections) >= self._limit or len(self._tasks) >= self._limit):
            application = unavailable
        if self._current is None:
            self._start(exchange, application)
        elif len(self._queue) < MAX_PIPELINED:
            self._queue.append((exchange, application))
            self._pause()
        else:
            self._end_reading(states.REFUSE)

    def _start(self, exchange: HttpExchange, application: Application) -> None:
        self._writing = states.START[self._writing]
        self._current = exchange
        exchange.task = task = self._loop.create_task(exchange.run(application, self._tasks))
        self._tasks.add(task)

    def finish(self) -> None:
        """Go on to the next exchange: the current response is complete."""
        self._served.total_requests += 1
        self._since = self._loop.time()
        self._writing = states.FINISH[self._writing]
        self._current = None
        if self._queue:
            self._start(*self._queue.pop(0))
        elif self._reading in states.ENDING:
            self._close()
        if self.reading_paused:
            self.read_on()

    def opening(self, exchange: HttpExchange, head: Head) -> tuple[bytes, bytes, bytes, bytes]:
        """The head of a response up to its framing."""
        if head.closes or (exchange.expects and exchange.more):
            # A client that was not told to go on may send its body, or leave it: what follows cannot be told apart.
            self._end_after_this()
        if self._stated is not self._served.default_headers:
            self._state_defaults()
        last = CLOSE if self._reading in states.ENDING and not self._queue else b""
        return head.start, self._defaults, head.fields, last

    def _state_defaults(self) -> None:
        """uvicorn puts a new list there every second, with the date."""
        self._stated = self._served.default_headers
        self._defaults = b"".join(b"%b: %b\r\n" % field for field in self._served.default_headers)

    def _plain_response(self, status: int, reason: str, *, is_head: bool) -> bytes:
        self._state_defaults()
        return plain(status, reason, self._defaults, is_head=is_head)

    def _end_after_this(self) -> None:
        """Make the current response the last: drop what is queued, and read no more than the rest of its request."""
        self._refusal = b""
        if self._incoming is not None and self._incoming is self._current:
            self._reading = states.END[self._reading]
        else:
            self._end_reading(states.REFUSE if self._incoming is not None else states.END)
        self._queue.clear()

    def _refuse(self, status: int, reason: str) -> None:
        """Respond with an error after the responses that are due, and read no more."""
        if self._reading in states.ENDED:
            return
        exchange = self._end_reading(states.REFUSE)
        log.info("a request was refused with %d: %s", status, reason)
        if exchange is not None and exchange is self._current:
            self.break_off(exchange, status, reason)
            return
        if exchange is None or not exchange.ended:
            self._refusal = self._plain_response(status, reason, is_head=self._parser.get_method() == b"HEAD")
        if self._current is None:
            self._close()

    def break_off(self, exchange: HttpExchange, status: int, reason: str) -> None:
        """End the current exchange and the connection, with an error if the response has not begun."""
        exchange.drop()
        self._served.total_requests += 1
        self._end_reading(states.REFUSE)
        self._queue.clear()
        self._writing = states.FINISH[self._writing]
        self._current = None
        if exchange.begun:
            self._close_now()
        else:
            self._refusal = self._plain_response(status, reason, is_head=exchange.is_head)
            self._close()

    # --- the end --------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """Send the refusal, if there is one, and close; for LINGER seconds only our side, if the client may be sending.

        Else the system could reset the connection, and the client lose responses that it has not read
        (RFC 9112, 9.6).
        """
        if self._refusal:
            self.write(self._refusal)
        if self._reading is states.LAST_BODY:
            self._end_reading(states.REFUSE)
        if self._transport.is_closing():
            return
        if self._reading is not states.CUT or not self._transport.can_write_eof():
            self._close_now()
            return
        try:
            self._transport.write_eof()
        except OSError:  # the client is gone, and this is the first that tells of it
            self._close_now()
            return
        self._writing = states.LINGER[self._writing]
        if self.reading_paused:
            self.read_on()
        self._timer.cancel()
        self._timer = self._loop.call_later(LINGER, self._look)

    def _close_now(self) -> None:
        self._writing = states.CLOSE[self._writing]
        self._transport.close()

    def _look(self) -> None:
        """Close the connection if the client has taken too long; run by the timer."""
        if self._reads_nothing() or (len(self._held) > HIGH_WATER and has_hung_up(self._transport)):
            self._transport.abort()
            return
        patience = self._patience()
        rest = self._period if patience is None else self._since + patience - self._loop.time()
        self._timer = self._loop.call_later(max(0.01, min(rest, self._period)), self._look)
        if rest <= 0:
            self._lose_patience()

    def _reads_nothing(self) -> bool:
        """Whether the client has read nothing for HEAD_TIMEOUT seconds of what others, or the end, wait for."""
        if not (self.writing_paused or self._transport.is_closing()):
            return False
        unsent, now = self._transport.get_write_buffer_size(), self._loop.time()
        if unsent != self._unsent:
            self._unsent, self._unsent_since = unsent, now
        return now - self._unsent_since >= HEAD_TIMEOUT

    def _patience(self) -> float | None:
        """Seconds that may pass from ``_since`` on; None for any number."""
        if self._transport.is_closing():
            return None
        if self._writing is states.LINGERING:
            return LINGER
        if self._incoming is not None:
            return None if self.reading_paused else HEAD_TIMEOUT
        if self._writing is states.ANSWERING:
            return None
        return self._idle_timeout if self._reading is states.IDLE else HEAD_TIMEOUT

    def _lose_patience(self) -> None:
        exchange = self._incoming
        if self._reading is states.HEAD or (exchange is not None and not exchange.ended):
            self._refuse(408, "The request did not come to its end in time")
        else:
            self._close_now()


def _ignore(_data: bytes) -> None: ...
