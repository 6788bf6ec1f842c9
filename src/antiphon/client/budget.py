"""Time: what a server may take for a call, and what a person may."""

import asyncio
from collections.abc import Awaitable
from time import monotonic
from typing import Literal, TypeVar

from antiphon.errors import CallTimeout

T = TypeVar("T")


class Budget:
    """Seconds to spend waiting for somebody, in as many parts as it takes; CallTimeout when they are spent."""

    __slots__ = ("_for", "_left", "_seconds")

    def __init__(self, waiting_for: Literal["server", "person"], seconds: float | None) -> None:
        self._for: Literal["server", "person"] = waiting_for
        self._seconds = self._left = seconds

    async def spend(self, work: Awaitable[T]) -> T:
        if self._left is None or self._seconds is None:
            return await work
        started = monotonic()
        limit = asyncio.timeout(self._left)
        try:
            async with limit:
                return await work
        except TimeoutError:
            if limit.expired():
                raise CallTimeout(self._for, self._seconds) from None
            raise
        finally:
            self._left -= monotonic() - started
