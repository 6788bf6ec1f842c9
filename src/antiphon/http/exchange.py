"""An exchange: one request and its response, with the ``receive`` and ``send`` of an ASGI application."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Protocol, TypeAlias

from antiphon.http.heads import Head, head_of

Scope: TypeAlias = MutableMapping[str, Any]
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Send: TypeAlias = Callable[[Event], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("antiphon")

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"


class ExchangeConnection(Protocol):
    """What an exchange needs of its connection; ServerConnection says what each does."""

    write: Callable[[bytes], None]
    reading_paused: bool
    writing_paused: bool

    def read_on(self) -> None: ...
    async def drained(self) -> None: ...
    def opening(self, exchange: "HttpExchange", head: Head) -> tuple[bytes, bytes, bytes, bytes]: ...
    def finish(self) -> None: ...
    def break_off(self, exchange: "HttpExchange", status: int, reason: str) -> None: ...


class HttpExchange:
    """One request and its response."""

    # Defaults on the class, since few exchanges set all of them.
    body: bytes | bytearray = b""
    """What has arrived of the request's body and was not received yet."""
    more = True
    """Whether the request's body is not whole yet."""
    gone = False
    """Whether the response is no longer wanted: the client has gone, or the connection ends without it."""
    begun = False
    """Whether a part of the response has been sent."""
    ended = False
    """Whether the response is complete."""
    task: "asyncio.Task[None]"
    _given = False
    _head: Head | None = None
    _chunked = False
    _left: int | None = None
    _news: asyncio.Event | None = None

    def __init__(
        self, connection: ExchangeConnection, scope: Scope, *, is_head: bool, knows_chunks: bool, expects: bool
    ) -> None:
        self._connection = connection
        self._scope = scope
        self.is_head = is_head
        self._knows_chunks = knows_chunks
        self.expects = expects
        """Whether the client waits to be told that it may send the body."""

    async def run(self, application: Application, tasks: "set[asyncio.Task[None]]") -> None:
        try:
            if not self.gone:
                await application(self._scope, self.receive, self.send)
                if not self.ended and not self.gone:
                    self._fail("the application returned without a complete response", None)
        except GeneratorExit:
            raise
        except asyncio.CancelledError:
            if not self.ended and not self.gone:
                self._fail("a request was cancelled before its response was complete", None)
        except BaseException as fault:  # noqa: BLE001 -- not even SystemExit may take the other connections along
            self._fail("the application failed", fault)
        finally:
            tasks.discard(self.task)

    # --- the request ----------------------------------------------------------------------------------------------

    async def receive(self) -> Event:
        while not (self.gone or self.ended):
            if self.body or not (self.more or self._given):
                return self._take()
            if self.expects and self.more and not self.begun:
                self.expects = False
                self._connection.write(_CONTINUE)
            if self._news is None:
                self._news = asyncio.Event()
            await self._news.wait()
        return {"type": "http.disconnect"}

    def _take(self) -> Event:
        body, self.body = self.body, b""
        more = self.more
        self._given = not more
        if self._connection.reading_paused:
            self._connection.read_on()  # which may bring the rest
        return {"type": "http.request", "body": bytes(body), "more_body": more}

    def add(self, piece: bytes) -> None:
        if not self.body:
            self.body = piece
        elif type(self.body) is bytearray:
            self.body += piece
        else:
            self.body = bytearray(self.body) + piece
        self.wake()

    def wake(self) -> None:
        if self._news is not None:
            self._news.set()
            self._news = None

    def drop(self) -> None:
        """Give up the response: the application receives ``http.disconnect``, and what it sends is ignored."""
        self.gone = True
        self.wake()

    # --- the response ---------------------------------------------------------------------------------------------

    async def send(self, event: Event) -> None:
        connection = self._connection
        if connection.writing_paused:
            await connection.drained()
        if self.gone:
            return
        kind = event["type"]
        if kind == "http.response.start":
            if self._head is not None:
                raise RuntimeError("http.response.start was sent twice")
            self._head = head_of(event)
            return
        if kind != "http.response.body" or self._head is None or self.ended:
            raise RuntimeError(f"{kind} cannot be sent {'after the response' if self.ended else 'here'}")
        body = event.get("body", b"")
        more = event.get("more_body", False)
        if self.begun:
            data = self._framed(body, more)
        elif self._head.length == len(body) and not (more or self.is_head or self._head.bodiless):
            data = b"".join((*connection.opening(self, self._head), b"\r\n", body))
        else:
            data = self._first(self._head, body, more)
        if data:
            connection.write(data)
        self.begun = True
        if not more:
            self.ended = True
            if self._news is not None:
                self.wake()
            connection.finish()

    def _first(self, head: Head, body: bytes, more: bool) -> bytes:
        """The head and the first piece. Decides on the framing, by which the client knows where the body ends."""
        framing = b""
        if self.is_head or head.bodiless:
            body = b""
        elif head.length is not None:
            self._left = head.length
        elif not more:
            framing = b"content-length: %d\r\n" % len(body)
        elif self._knows_chunks:
            self._chunked = True
            framing = _CHUNKED
        opening = self._connection.opening(self, head)
        return b"".join((*opening, framing, b"\r\n", self._framed(body, more)))

    def _framed(self, body: bytes, more: bool) -> bytes:
        if self._chunked:
            piece = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return piece if more else piece + b"0\r\n\r\n"
        if self._left is not None:
            left = self._left - len(body)
            if left < 0 or (left and not more):
                raise RuntimeError(f"The body is {'longer' if left < 0 else 'shorter'} than its content-length")
            self._left = left
            return body
        assert self._head is not None
        return b"" if self.is_head or self._head.bodiless else body

    def _fail(self, text: str, fault: BaseException | None) -> None:
        log.error("%s: %s %r", text, self._scope.get("method"), self._scope.get("path"), exc_info=fault)
        if not self.ended and not self.gone:
            self._connection.break_off(self, 500, "Internal Server Error")


async def unavailable(_scope: Scope, _receive: Receive, send: Send) -> None:
    fields = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 503, "headers": fields})
    await send({"type": "http.response.body", "body": b"Service Unavailable"})
