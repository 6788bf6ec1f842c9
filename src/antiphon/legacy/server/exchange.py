"""One HTTP exchange with an older client. It may break without ending the request that it carries."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final

from antiphon.transports.asgi_exchange import Exchange, Fields

SESSION: Final = b"mcp-session-id"
ENDING: Final = 1.0
"""Seconds for the end of a stream to be sent; a client that does not read does not get it."""


def named(session: str) -> Fields:
    """The header that names a session, if there is one."""
    return [(SESSION, session.encode())] if session else []


class LegacyExchange(Exchange):
    """JSON, or a stream of events with ids."""

    on_gone: Callable[[], None] | None = None
    """Called when the client has gone; without it, the request is cancelled."""
    _writing: asyncio.Timeout | None = None
    _ending: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return not self.ended and not self.gone

    async def reply(self, status: int, body: bytes | None, fields: Fields = ()) -> None:
        """Send the whole response; where a stream has begun, its end."""
        if self.streaming:
            await self.end()
        if not self.is_open:
            return
        self.ended = True
        await self._send_whole(status, body or b"", fields)

    async def reply_json(self, replies: Sequence[bytes], *, batch: bool) -> None:
        await self.reply(200, b"[" + b",".join(replies) + b"]" if batch else replies[0])

    async def event(self, id_: str | None, data: bytes, *, retry: float | None = None) -> None:
        lines = [] if id_ is None else [b"id: " + id_.encode()]
        if retry is not None:
            lines.append(b"retry: %d" % (retry * 1000))
        if data:
            lines.insert(0, b"event: message")
        await self.put(b"\n".join([*lines, b"data: " + data, b"", b""]))

    async def put(self, chunk: bytes) -> None:
        """Send a part of the stream. This waits for a client that does not read, unless `cut_off` ends it."""
        if not self.is_open:
            return
        self._silence = 0.0
        writing: asyncio.Timeout | None = None
        try:
            async with asyncio.timeout(None) as writing:
                self._writing = writing
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError:
            if writing is None or not writing.expired():
                raise
        finally:
            self._writing = None

    _write = put

    def grow_silent(self, seconds: float) -> None:
        if self._writing is None:
            super().grow_silent(seconds)

    def cut_off(self) -> None:
        """End the stream, if there is one, without waiting for the client to read what is on its way."""
        if not (self.is_open and self.streaming):
            return
        self.ended = True
        loop = asyncio.get_running_loop()
        if self._writing is not None:
            self._writing.reschedule(loop.time())
        self._ending = loop.create_task(self._finish())

    async def end(self) -> None:
        """End the stream when nothing is on its way."""
        self.cut_off()
        if self._ending is not None:
            await self._ending

    async def _finish(self) -> None:
        with contextlib.suppress(OSError):
            async with asyncio.timeout(ENDING):
                await self._send({"type": "http.response.body", "body": b""})

    def disconnected(self) -> None:
        if self.ended:
            return  # the response was whole: this is how the connection goes on
        if self.on_gone is None:
            self.give_up()
        else:
            self.gone = True
            self.on_gone()
