"""One HTTP request and its response, as ASGI passes them."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from antiphon.errors import ProtocolError
from antiphon.http.exchange import Receive, Send
from antiphon.server.run import Channel
from antiphon.transports.admission import ANY, Accepts
from antiphon.types import JsonObject
from antiphon.wire import jsonrpc, sse
from antiphon.wire.jsonrpc import RequestId, encode

Fields: TypeAlias = Sequence[tuple[bytes, bytes]]

KEEP_ALIVE = 15.0
"""Seconds of silence after which a stream shows that it is alive."""
_STREAM_HEAD = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    # Receiving Messages: keeps nginx and its kind from holding events back.
    (b"x-accel-buffering", b"no"),
]


class Exchange(Channel):
    """One HTTP request and its response: JSON, or a stream from the first notification on."""

    # Set on the class, since few exchanges ever set them otherwise.
    watcher: asyncio.Task[None] | None = None
    streaming = False
    ended = False
    gone = False
    age = 0
    fields: Fields = ()
    """Headers that go with the reply."""
    lasts = False
    """Whether it is a stream without an end, which ends with the token of its client."""
    _silence = 0.0
    _sign: asyncio.Task[None] | None = None
    _lock: asyncio.Lock | None = None

    def __init__(self, receive: Receive, send: Send, task: "asyncio.Task[Any] | None", accepts: Accepts = ANY) -> None:
        self._receive = receive
        self._send = send
        self.task = task
        """The task that serves the request."""
        self.accepts = accepts

    async def emit(self, message: JsonObject) -> None:
        if self.accepts.stream and not self.gone:
            await self._write(sse.event(encode(message)))

    def add_headers(self, headers: Mapping[str, str]) -> None:
        self.fields = _fields(headers)

    async def reply(self, status: int, body: bytes | None, fields: Fields = ()) -> None:
        if self.gone:
            return
        if self.streaming or (body is not None and status == 200 and not self.accepts.json):
            await self._write(sse.event(body or b""))
            self.ended = True
            await self._send({"type": "http.response.body", "body": b""})
            return
        await self._send_whole(status, body or b"", fields or self.fields)

    async def refuse(self, fault: ProtocolError, id_: RequestId | None = None) -> None:
        await self.reply(fault.status, encode(jsonrpc.error(id_, fault)), _fields(fault.headers))

    async def _send_whole(self, status: int, body: bytes, fields: Fields) -> None:
        start = head(status, len(body))
        start = [*start, *fields] if fields else start
        await self._send({"type": "http.response.start", "status": status, "headers": start})
        await self._send({"type": "http.response.body", "body": body})

    def watch(self) -> None:
        if self.watcher is None:
            self.watcher = asyncio.create_task(self._await_disconnect())

    def grow_silent(self, seconds: float) -> None:
        """So much more time has passed on the stream: give a sign of life if nothing was said for too long."""
        self._silence += seconds
        if self._silence >= KEEP_ALIVE and (self._sign is None or self._sign.done()):
            self._silence = 0.0
            self._sign = asyncio.create_task(self._give_sign())

    def disconnected(self) -> None:
        # 2026-07-28, basic/patterns/cancellation: a client's disconnect cancels its request.
        self.give_up()

    def give_up(self) -> None:
        """Cancel the request: its client has gone."""
        self.gone = True
        if self.task is not None:
            self.task.cancel()

    def let_go(self) -> None:
        """The request has been served: stop the watching."""
        for task in (self.watcher, self._sign):
            if task is not None:
                task.cancel()

    async def _give_sign(self) -> None:
        with contextlib.suppress(OSError):
            if not self.ended and not self.gone:
                await self._write(sse.KEEP_ALIVE)

    async def begin(self, fields: Fields = ()) -> None:
        """Open a stream, and watch for the client's going away."""
        self.streaming = True
        await self._send({"type": "http.response.start", "status": 200, "headers": [*_STREAM_HEAD, *fields]})
        self.watch()

    async def _write(self, chunk: bytes) -> None:
        self._silence = 0.0
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if not self.streaming:
                await self.begin()
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _await_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.disconnected()


def _fields(headers: Mapping[str, str]) -> Fields:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]


@lru_cache(maxsize=4096)
def head(status: int, length: int) -> list[tuple[bytes, bytes]]:
    if not length:
        return [(b"content-length", b"0")]
    head = [(b"content-type", b"application/json"), (b"content-length", b"%d" % length)]
    if status == 405:
        head.append((b"allow", b"POST"))
    return head
