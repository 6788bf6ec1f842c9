"""HTTP/1.1 for a client: a pool of connections that are kept, on asyncio and httptools.

docs/design.md compares its cost with aiohttp, httpx and pyreqwest. It leaves out redirects, cookies and compression,
which a message protocol does not need.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import SplitResult, quote, unquote, urlsplit

import httptools

MAX_CONNECTIONS = 100
"""Sockets that one client has at most; further requests wait for one."""
MAX_HEAD = 256 * 1024
HIGH_WATER = 256 * 1024
"""Bytes of a response that may wait unread before the socket is paused."""
KEPT = 4.0
"""Seconds that an unused connection is kept. Servers close theirs after five (uvicorn, Node): a request that crosses
with that is lost, and may have been served or not."""
LINGER = 1.0
"""Seconds in which an answered stream has to end for its connection to be kept."""
_SETTLED = 0.05
"""Seconds after which a kept connection is checked again before it is used."""


class ConnectionLost(Exception):
    """The connection ended before the response did, or could not be made."""


class ResponseBroken(Exception):
    """The response is not valid HTTP, or too large."""


class ClientConnection(asyncio.Protocol):
    """One socket, one request at a time: ``send``, then read ``status``, ``headers`` and the body."""

    lost: type[Exception] = ConnectionLost
    broken: type[Exception] = ResponseBroken
    """What is raised. A subclass may name its user's own errors, so that none has to be translated."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.complete = True
        """Whether the whole response has arrived."""
        self.closed = False
        self.kept_since = 0.0
        self.transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpResponseParser(self)
        self._headed = True
        self._head_size = 0
        self._stays = False
        self._chunks: deque[bytes] = deque()
        self._unread = 0
        self._paused = False
        self._fault: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._then: Callable[[ClientConnection], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def send(self, request: bytes) -> None:
        """Send a request and wait for the head of its response."""
        assert self.transport is not None
        self.headers = {}
        self.complete = self._headed = self._stays = False
        self._head_size = 0
        self.transport.write(request)
        while not self._headed:
            await self._news()

    async def next_chunk(self) -> bytes:
        """The next piece of the body; empty at its end."""
        while not self._chunks:
            if self.complete:
                return b""
            await self._news()
        chunk = self._chunks.popleft()
        self._unread -= len(chunk)
        if self._paused and self._unread < HIGH_WATER:
            self._resume()
        return chunk

    async def read(self, limit: int) -> bytes:
        """The whole body; raises ``broken`` when it is larger than the limit."""
        chunks: list[bytes] = []
        size = 0
        while chunk := await self.next_chunk():
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                raise self.broken(f"The server sent more than {limit} bytes")
        return b"".join(chunks)

    @property
    def address(self) -> str | None:
        """The IP address of the other side, as far as the transport knows it."""
        peer = None if self.transport is None else self.transport.get_extra_info("peername")
        return peer[0] if isinstance(peer, tuple) else None

    @property
    def reusable(self) -> bool:
        return self._stays and self.complete and not self.closed and not self._chunks

    def linger(self, then: Callable[["ClientConnection"], None]) -> None:
        """Ignore the rest of a response; call ``then`` when it has come, or cannot come."""
        self._then = then
        self._timer = self._loop.call_later(LINGER, self.close)
        self._chunks.clear()
        self._unread = 0
        if self._paused:
            self._resume()

    def close(self, fault: Exception | None = None) -> None:
        """Close at once; a caller that waits for the response gets the fault."""
        if self._fault is None:
            self._fault = fault or self.lost("The connection is closed")
        self.closed = True
        if self.transport is not None:
            self.transport.abort()
        self._wake()

    async def _news(self) -> None:
        if self._fault is not None:
            raise self._fault
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _resume(self) -> None:
        self._paused = False
        if self.transport is not None and not self.closed:
            self.transport.resume_reading()

    def _end(self) -> None:
        """Wake the waiting caller: the response is whole, or will never be."""
        self._wake()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._then is not None:
            then, self._then = self._then, None
            then(self)

    # --- asyncio.Protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are none by inheritance

    def data_received(self, data: bytes) -> None:
        if self.complete:
            self.close()  # bytes that answer no request: this connection cannot be trusted
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, ValueError) as fault:
            self.close(self.broken(f"The server's HTTP response is broken: {fault}"))
            return
        if not self._headed:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD:
                self.close(self.broken(f"The head of the server's HTTP response is larger than {MAX_HEAD} bytes"))

    def eof_received(self) -> bool:
        self.closed = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        # RFC 9112, 6.3: a body of unstated length ends with the connection.
        if self._headed and exc is None and self._fault is None and not self._has_length():
            self.complete = True
        if self._fault is None:
            self._fault = self.lost(
                "The server closed the connection in the middle of its answer"
                if self._headed
                else "The server closed the connection before it had answered"
            )
        self._end()

    def _has_length(self) -> bool:
        return "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "").lower()

    # --- httptools ------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.complete:
            self._stays = False  # a second response to one request: it is not read, and no other follows it

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._headed:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            # RFC 9110, 5.3: lines of one name are one list.
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        if self._headed:
            return
        self.status = self._parser.get_status_code()
        if self.status < 200:
            self.headers = {}
        else:
            self._headed = True
            self._wake()

    def on_body(self, body: bytes) -> None:
        if self.complete or self._then is not None:
            return
        self._chunks.append(body)
        self._unread += len(body)
        if self._unread > HIGH_WATER and not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if self._headed and not self.complete:
            self.complete = True
            self._stays = bool(self._parser.should_keep_alive())
            self._end()


class Pool:
    """Connections to one origin, kept for the next request."""

    def __init__(
        self,
        url: str,
        *,
        proxy: str | None = None,
        tls: ssl.SSLContext | None = None,
        limit: int = MAX_CONNECTIONS,
        kind: type[ClientConnection] = ClientConnection,
        check_address: Callable[[str], None] | None = None,
    ) -> None:
        parts = _split(url)
        self._secure = parts.scheme == "https"
        self._origin = (parts.hostname or "", parts.port or (443 if self._secure else 80))
        self._proxy = None if proxy is None else _split(proxy)
        if self._proxy is not None and self._proxy.scheme != "http":
            raise ValueError(f"A proxy's URL starts with http://, got {proxy!r}")
        self._tls = tls
        self._kind = kind
        self._check_address = check_address
        self._kept: list[ClientConnection] = []
        self._busy: set[ClientConnection] = set()
        self._slots = asyncio.Semaphore(limit)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        host = parts.netloc.rpartition("@")[2]
        target = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), safe="/?%:@!$&'()*+,;=~[]")
        if self._proxy is not None and not self._secure:
            target = f"http://{host}{target}"
        lines = [f" {target} HTTP/1.1", f"Host: {host}", *_basic("Authorization", parts)]
        if self._proxy is not None and not self._secure:
            lines += _basic("Proxy-Authorization", self._proxy)
        self._start = "".join(f"{line}\r\n" for line in lines)

    def open(self) -> None:
        self._closed = False

    @property
    def is_proxied(self) -> bool:
        """Whether another address than the origin's is connected to."""
        return self._proxy is not None

    async def send(self, verb: str, headers: str, body: bytes) -> ClientConnection:
        """Send a request and wait for the head of its response; the caller gives the connection back."""
        head = f"{verb}{self._start}{headers}Content-Length: {len(body)}\r\n\r\n".encode("latin-1")
        await self._slots.acquire()
        try:
            connection = await self._connection()
        except BaseException:
            self._slots.release()
            raise
        self._busy.add(connection)
        try:
            await connection.send(head + body)
        except BaseException:
            connection.close()
            self._settle(connection)
            raise
        return connection

    def release(self, connection: ClientConnection, *, answered: bool) -> None:
        """Keep a connection whose response is whole, or will be as soon as the stream of an answer ends."""
        if answered and not connection.complete and not connection.closed:
            connection.linger(self._settle)
        else:
            self._settle(connection)

    async def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in (*self._kept, *self._busy):
            connection.close(self._kind.lost("The client was closed before the server had answered"))
        self._kept.clear()
        # Transports close on the loop's next turn.
        await asyncio.sleep(0)

    def _settle(self, connection: ClientConnection) -> None:
        self._busy.discard(connection)
        self._slots.release()
        if not connection.reusable or self._closed:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        connection.kept_since = loop.time()
        self._kept.append(connection)
        if self._timer is None:
            self._timer = loop.call_later(KEPT, self._sweep)

    def _sweep(self) -> None:
        """Close what was not used for KEPT seconds; the list is in the order of its keeping."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._kept and now - self._kept[0].kept_since >= KEPT:
            self._kept.pop(0).close()
        self._timer = loop.call_at(self._kept[0].kept_since + KEPT, self._sweep) if self._kept else None

    async def _connection(self) -> ClientConnection:
        connection = None if self._closed else await self._reused() or await self._connect()
        if connection is not None and self._closed:  # meanwhile
            connection.close()
            connection = None
        if connection is None:
            raise self._kind.lost("The client is closed")
        return connection

    async def _reused(self) -> ClientConnection | None:
        now = asyncio.get_running_loop().time()
        if self._kept and now - self._kept[-1].kept_since > _SETTLED:
            # A loop that was blocked (by a handler that waits for a person) may have yet to see that the server closed.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        while self._kept:
            connection = self._kept.pop()
            if connection.reusable and now - connection.kept_since < KEPT:
                return connection
            connection.close()
        return None

    async def _connect(self) -> ClientConnection:
        proxy = self._proxy
        at = self._origin if proxy is None else (proxy.hostname or "", proxy.port or 80)
        try:
            if proxy is None and self._check_address is None:
                return await self._dial(at, self._context() if self._secure else None)
            connection = await self._dial(at, None)
            if proxy is None:
                self._check(connection)  # before the first byte of TLS
            elif self._secure:
                await self._tunnel(connection, proxy)
            return await self._secured(connection) if self._secure else connection
        except (OSError, UnicodeError) as fault:
            raise self._kind.lost(f"Cannot connect to {at[0]}:{at[1]}: {fault}") from None

    async def _dial(self, at: tuple[str, int], tls: ssl.SSLContext | None) -> ClientConnection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(self._kind, *at, ssl=tls, server_hostname=at[0] if tls else None)
        return connection

    def _check(self, connection: ClientConnection) -> None:
        """Refuse the address that was connected to. Behind a proxy, its address is the only one that is known."""
        assert self._check_address is not None
        try:
            if connection.address is None:
                raise self._kind.lost("The connection broke at once")
            self._check_address(connection.address)
        except BaseException:
            connection.close()
            raise

    async def _tunnel(self, gate: ClientConnection, proxy: SplitResult) -> None:
        """Through an HTTP proxy to an https origin (RFC 9110, 9.3.6)."""
        host, port = self._origin
        there = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {there} HTTP/1.1", f"Host: {there}", *_basic("Proxy-Authorization", proxy), "", ""]
        try:
            await gate.send("\r\n".join(lines).encode("latin-1"))
            if gate.status != 200 or gate.transport is None:
                raise self._kind.lost(f"The proxy refuses to connect to {there}: HTTP status {gate.status}")
        except BaseException:
            gate.close()
            raise

    async def _secured(self, gate: ClientConnection) -> ClientConnection:
        """Return the connection with TLS on it."""
        connection = self._kind()
        try:
            if gate.transport is None:
                raise self._kind.lost("The connection broke at once")
            loop = asyncio.get_running_loop()
            host = self._origin[0]
            transport = await loop.start_tls(gate.transport, connection, self._context(), server_hostname=host)
            assert transport is not None
        except BaseException:
            gate.close()
            raise
        connection.connection_made(transport)
        return connection

    def _context(self) -> ssl.SSLContext:
        # 30 ms, and only https needs it.
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


def proxy_for(url: str, environment: Mapping[str, str]) -> str | None:
    """The proxy that the environment names for a URL, as curl reads it; none for this machine, as in Go and browsers.

    A proxy elsewhere could not reach it, and its own machine would be another server.
    """
    named = {key.lower(): value for key, value in environment.items() if key.lower().endswith("_proxy") and value}
    parts = urlsplit(url)
    proxy = named.get(f"{parts.scheme}_proxy") or named.get("all_proxy")
    if proxy is None or _is_here(parts.hostname or ""):
        return None
    from urllib import request  # only where a proxy is set

    bypass: Any = getattr(request, "proxy_bypass_environment")  # noqa: B009 -- unknown to the type checkers' stubs
    if bypass(parts.netloc.rpartition("@")[2], {"no": named.get("no_proxy", "")}):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_here(host: str) -> bool:
    from ipaddress import ip_address  # only where a proxy is set

    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _split(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or not parts.netloc.isascii():
        raise ValueError(f"A server's URL starts with http:// or https:// and a host, got {url!r}")
    _ = parts.port  # a ValueError of its own if it is none
    return parts


def _basic(header: str, parts: SplitResult) -> list[str]:
    """The credentials that a URL carries (RFC 7617)."""
    if parts.username is None:
        return []
    from base64 import b64encode  # few URLs carry any

    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return [f"{header}: Basic {b64encode(pair.encode()).decode()}"]
