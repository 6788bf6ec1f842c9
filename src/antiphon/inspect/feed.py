"""The events that a page hears. One that was away for a moment loads the state, and hears what comes from then on."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from antiphon.escaping import compact

_KEPT: Final = 500
_QUIET: Final = 15.0
"""Seconds after which a comment is sent, so that nothing on the way closes the stream."""


class Feed:
    """Events for any number of readers. One that is too slow is told to reload; none makes this grow."""

    def __init__(self) -> None:
        self._readers: set[asyncio.Queue[bytes]] = set()
        self._is_open = True

    def tell(self, kind: str, data: object) -> None:
        self._put(f"event: {kind}\ndata: {compact(data)}\n\n".encode())

    def close(self) -> None:
        """End all streams."""
        self._is_open = False
        self._put(b"")

    async def stream(self) -> AsyncGenerator[bytes]:
        """Yield the events from here on."""
        queue = asyncio.Queue[bytes](_KEPT)
        self._readers.add(queue)
        event = b": hello\n\n"
        try:
            while event and self._is_open:
                yield event
                try:
                    async with asyncio.timeout(_QUIET):
                        event = await queue.get()
                except TimeoutError:
                    event = b": still here\n\n"
        finally:
            self._readers.discard(queue)

    def _put(self, event: bytes) -> None:
        for queue in self._readers:
            if queue.full():
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(b"event: reload\ndata: {}\n\n")
            queue.put_nowait(event)
