"""The events that a page hears: the newest ones are kept, for a page that was away for a moment."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final

from antiphon.escaping import compact

_KEPT: Final = 500
_QUIET: Final = 15.0
"""Seconds after which a comment is sent, so that nothing on the way closes the stream."""


class Feed:
    """Numbered events. A reader that is too slow is told to reload; none makes this grow."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, bytes]] = deque(maxlen=_KEPT)
        self._last = 0
        self._news = asyncio.Event()
        self._is_open = True

    def tell(self, kind: str, data: object) -> None:
        self._last += 1
        event = f"id: {self._last}\nevent: {kind}\ndata: {compact(data)}\n\n".encode()
        self._events.append((self._last, event))
        self._wake()

    def close(self) -> None:
        """End all streams."""
        self._is_open = False
        self._wake()

    async def stream(self, last: int | None) -> AsyncGenerator[bytes]:
        """Yield the events after ``last``; without it, those from here on."""
        seen = self._last if last is None else last
        yield b": hello\n\n"
        while self._is_open:
            oldest = self._events[0][0] if self._events else self._last + 1
            if seen > self._last or seen < oldest - 1:
                seen = self._last
                yield f"id: {seen}\nevent: reload\ndata: {{}}\n\n".encode()
            for number, event in [each for each in self._events if each[0] > seen]:
                seen = number
                yield event
            if seen == self._last:
                try:
                    async with asyncio.timeout(_QUIET):
                        await self._news.wait()
                except TimeoutError:
                    yield b": still here\n\n"

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
