"""HTTP/1.1 for the client: connections that are kept, on asyncio and httptools (the parser that uvicorn uses).

Measured against aiohttp, httpx and pyreqwest: docs/design.md has the figures. What it leaves out is what a message
protocol does not need: redirects, cookies, compression.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httptools

from antiphon.errors import Disconnected, PeerBroken

HIGH_WATER = 256 * 1024
"""Bytes of a response that may wait unread before the socket is paused."""


class Response:
    """A response whose head has arrived; its body is read in chunks, or at once."""

    __slots__ = ("_connection", "headers", "status")

    def __init__(self, status: int, headers: dict[str, str], connection: "Connection") -> None:
        self.status = status
        self.headers = headers
        self._connection = connection

    async def read(self, limit: int) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in self.chunks():
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                raise PeerBroken(f"The server sent more than {limit} bytes")
        return b"".join(chunks)

    async def chunks(self) -> AsyncIterator[bytes]:
        while (chunk := await self._connection.next_chunk()) is not None:
            yield chunk


class Connection(asyncio.Protocol):
    """One socket: a request at a time."""

    def __init__(self) -> None:
        self.closed = False
        self.fresh = True
        self._transport: asyncio.Transport | None = None
        self._parser: Any = None
        self._head: asyncio.Future[None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._paused = False
        self._complete = True
        self._headers: dict[str, str] = {}
        self._reusable = False

    async def send(self, head: bytes, body: bytes) -> Response:
        """Send a request and wait for the response's head."""
        assert self._transport is not None
        if self.closed:
            raise Disconnected("The server closed the connection")
        self._parser = httptools.HttpResponseParser(self)
        self._headers = {}
        self._chunks.clear()
        self._complete = False
        self._reusable = False
        self._head = asyncio.get_running_loop().create_future()
        self._transport.write(head + body)
        await self._head
        return Response(self._parser.get_status_code(), self._headers, self)

    async def next_chunk(self) -> bytes | None:
        """The next piece of the body; None at its end. Disconnected if it never ends."""
        while not self._chunks:
            if self._complete:
                return None
            if self.closed:
                raise Disconnected("The server closed the connection in the middle of its answer")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        chunk = self._chunks.popleft()
        self._buffered -= len(chunk)
        if self._paused and self._buffered < HIGH_WATER and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return chunk

    @property
    def reusable(self) -> bool:
        return self._complete and self._reusable and not self.closed and not self._chunks

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._complete:
            self.close()  # bytes that nobody asked for: this connection cannot be trusted
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, ValueError) as fault:
            self._fail(PeerBroken(f"The server's HTTP response is broken: {fault}"))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._complete:
            return
        # A body without a length ends with the connection (RFC 9112, 6.3).
        unbounded = "content-length" not in self._headers and "chunked" not in self._headers.get(
            "transfer-encoding", ""
        )
        if self._head is not None and self._head.done() and unbounded and exc is None:
            self._complete = True
        self._fail(Disconnected("The server closed the connection before it had answered"))

    # --- httptools ------------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() >= 200 and self._head is not None and not self._head.done():
            self._head.set_result(None)

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)
        self._buffered += len(body)
        if self._buffered > HIGH_WATER and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:
            return
        self._complete = True
        self._reusable = bool(self._parser.should_keep_alive())
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, fault: Exception) -> None:
        if self._head is not None and not self._head.done():
            self._head.set_exception(fault)
        elif self._waiter is not None and not self._waiter.done():
            if self._complete:
                self._waiter.set_result(None)
            else:
                self._waiter.set_exception(fault)
        if not self.closed:
            self.close()


class Pool:
    """Connections to one origin, kept for the next request."""

    def __init__(self, url: str, *, proxy: str | None = None, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"A server's URL starts with http:// or https://, got {url!r}")
        self._parts = parts
        self._proxy = urlsplit(proxy) if proxy else None
        self._tls = tls
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if self._proxy is not None and parts.scheme == "http":
            target = f"http://{parts.netloc}{target}"
        self._start = f"POST {target} HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\n"

    async def post(self, headers: Mapping[str, str], body: bytes) -> tuple[Response, Connection]:
        """Send a request; the caller gives the connection back with ``release``."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        head = f"{self._start}{lines}Content-Length: {len(body)}\r\n\r\n".encode("latin-1")
        while True:
            connection = await self._connection()
            reused = not connection.fresh
            try:
                return await self._send(connection, head, body), connection
            except Disconnected:
                # A kept connection that the server closed meanwhile never carried the request: take another.
                if not reused:
                    raise

    def release(self, connection: Connection) -> None:
        """Keep a connection whose answer was read to its end; close every other."""
        self._busy.discard(connection)
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.close()

    async def close(self) -> None:
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()
        self._busy.clear()
        # Transports close on the loop's next turn.
        await asyncio.sleep(0)

    async def _send(self, connection: Connection, head: bytes, body: bytes) -> Response:
        try:
            response = await connection.send(head, body)
        except BaseException:
            self._busy.discard(connection)
            connection.close()
            raise
        connection.fresh = False
        return response

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                self._busy.add(connection)
                return connection
        connection = await self._connect()
        self._busy.add(connection)
        return connection

    async def _connect(self) -> Connection:
        parts = self._parts
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        at = (host, port) if self._proxy is None else (self._proxy.hostname or "", self._proxy.port or 8080)
        loop = asyncio.get_running_loop()
        try:
            if self._proxy is not None and parts.scheme == "https":
                return await self._tunnel(at, host, port)
            secure = self._context() if parts.scheme == "https" and self._proxy is None else None
            _, connection = await loop.create_connection(
                Connection, *at, ssl=secure, server_hostname=host if secure else None
            )
        except (OSError, ssl.SSLError) as fault:
            raise Disconnected(f"Cannot connect to {at[0]}:{at[1]}: {fault}") from None
        return connection

    async def _tunnel(self, at: tuple[str, int], host: str, port: int) -> Connection:
        """Through an HTTP proxy to an https origin (RFC 9110, 9.3.6)."""
        loop = asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection(*at)
        writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if head.split(b" ", 2)[1:2] != [b"200"]:
            writer.close()
            raise Disconnected(f"The proxy {at[0]}:{at[1]} refused to connect to {host}:{port}")
        connection = Connection()
        transport = await loop.start_tls(writer.transport, connection, self._context(), server_hostname=host)
        assert transport is not None
        connection.connection_made(transport)
        return connection

    def _context(self) -> ssl.SSLContext:
        # 30 ms, and only https needs it.
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


def proxy_for(parts: SplitResult, environment: Mapping[str, str]) -> str | None:
    """The proxy that the environment names for a URL, as curl reads it."""
    from urllib import request  # only where a proxy is set

    named = {key.lower(): value for key, value in environment.items() if key.lower().endswith("_proxy") and value}
    proxy = named.get(f"{parts.scheme}_proxy") or named.get("all_proxy")
    bypass: Any = getattr(request, "proxy_bypass_environment")  # noqa: B009 -- unknown to the type checkers' stubs
    if proxy is None or bypass(parts.hostname or "", {"no": named.get("no_proxy", "")}):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
