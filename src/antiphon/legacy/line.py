"""A Line: one HTTP exchange with an older client. It may break without ending what is said on it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from antiphon.errors import ProtocolError
from antiphon.transports.asgi import Exchange, _head
from antiphon.wire.jsonrpc import encode, error

SESSION: Final = b"mcp-session-id"
_STREAM: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


class Line(Exchange):
    """JSON, or a stream of events with ids."""

    ended = False
    on_gone: Callable[[], None] | None = None
    """Called when the client has gone; without it, the request is cancelled."""

    @property
    def task(self) -> "asyncio.Task[Any] | None":
        """What serves the request."""
        return self._task

    @property
    def is_open(self) -> bool:
        return not self.ended and not self.gone

    async def answer(self, status: int, body: bytes, headers: Headers = ()) -> None:
        """The whole response; where a stream has begun, its end."""
        if self.streaming:
            await self.end()
        if not self.is_open:
            return
        self.ended = True
        head = _head(status, len(body))
        start = {"type": "http.response.start", "status": status, "headers": [*head, *headers] if headers else head}
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})

    async def refuse(self, fault: ProtocolError, id_: int | str | None = None) -> None:
        await self.answer(fault.status, encode(error(id_, fault)))

    async def begin(self, session: str | None) -> None:
        """Open a stream, and watch for the client's going away."""
        self.streaming = True
        head = _STREAM if session is None else [*_STREAM, (SESSION, session.encode())]
        await self._send({"type": "http.response.start", "status": 200, "headers": head})
        self.watch()

    async def event(self, id_: str | None, data: bytes, *, retry: float | None = None) -> None:
        lines = [] if id_ is None else [b"id: " + id_.encode()]
        if retry is not None:
            lines.append(b"retry: %d" % (retry * 1000))
        if data:
            lines.insert(0, b"event: message")
        await self.put(b"\n".join([*lines, b"data: " + data, b"", b""]))

    async def put(self, chunk: bytes) -> None:
        if self.is_open:
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self) -> None:
        """End the stream, if there is one; the client may come back for what follows."""
        if self.is_open and self.streaming:
            self.ended = True
            await self._send({"type": "http.response.body", "body": b""})

    async def _await_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self.ended:
            return  # the response was whole: this is how the connection goes on
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()
        elif self._task is not None:
            self._task.cancel()


def taken_over(exchange: Exchange) -> Line:
    line = Line(exchange._receive, exchange._send, exchange._task)
    line.accepts = exchange.accepts
    return line
