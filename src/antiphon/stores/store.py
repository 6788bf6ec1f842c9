"""The interface of a store, and what every store has to agree on."""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeAlias, runtime_checkable

from antiphon.errors import AntiphonError

__all__ = ["Store", "StoreError", "deadline", "event_id", "event_number", "whole_limit"]


class StoreError(AntiphonError):
    """The store cannot do what was asked of it: it is full, locked, damaged or unreachable."""


@runtime_checkable
class Store(Protocol):
    """Keys with values, channels with messages, streams with events: three namespaces that never meet.

    Each method is one atomic step, for every task, event loop and process that shares the store, and maps onto one
    command of Redis. A ``ttl`` is in seconds; what has lived that long is gone for every method.
    ``antiphon.testing.contracts.check_store`` tells whether a store keeps these promises.
    """

    async def get(self, key: str) -> bytes | None:
        """The value, or None."""
        ...

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Set the value, whatever was there; without a ``ttl`` it stays for good."""
        ...

    async def add(self, key: str, value: bytes = b"", *, ttl: float | None = None) -> bool:
        """Set the value if the key is free. Of all callers, exactly one gets True."""
        ...

    async def take(self, key: str) -> bytes | None:
        """Get the value and delete it. Of all callers, exactly one gets it."""
        ...

    async def publish(self, channel: str, message: bytes) -> None:
        """Hand the message to everyone who is subscribed."""
        ...

    def subscribe(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Once entered, every message published from then on arrives, in order; leaving ends it, as does `close`."""
        ...

    async def append(self, stream: str, value: bytes, *, limit: int = 1024, ttl: float | None = None) -> str:
        """Add an event, keep the newest ``limit``, and return an id that, as text, sorts after all earlier ones.

        A ``ttl`` is the time that the whole stream has left from here on; without one that time does not change.
        """
        ...

    async def read(self, stream: str, *, after: str | None = None) -> list[tuple[str, bytes]]:
        """The events with their ids, oldest first; those after the given id, which may itself be gone by now.

        A ValueError for an ``after`` that no `append` can have returned.
        """
        ...

    async def close(self) -> None:
        """Let go of everything that is open. What was stored stays; a later call opens it again."""
        ...


def deadline(now: float, ttl: float | None) -> float | None:
    if ttl is None:
        return None
    if not 0 < ttl < math.inf:
        raise ValueError(f"ttl is {ttl!r}; it must be a positive number of seconds, or None for no end")
    return now + ttl


def whole_limit(limit: int) -> int:
    if limit < 1:
        raise ValueError(f"limit is {limit!r}; a stream keeps at least 1 event")
    return limit


def event_id(number: int) -> str:
    """Nineteen digits hold every 64-bit rowid, so the order of the texts is the order of the numbers."""
    return f"{number:019d}"


def event_number(text: str) -> int:
    if not (len(text) == 19 and text.isascii() and text.isdigit() and int(text) < 2**63):
        raise ValueError(f"{text[:40]!r} is not the id of an event of this store")
    return int(text)


# Following a channel of a store for its news, whatever they say.


Wait: TypeAlias = Callable[[float], Awaitable[bool]]
"""Waits for news, at most so many seconds; False if none came."""


@asynccontextmanager
async def following(store: Store, channel: str) -> AsyncGenerator[Wait]:
    """Hear of news on a channel."""
    news = asyncio.Event()

    async def listen(messages: AsyncIterator[bytes]) -> None:
        async for _ in messages:
            news.set()

    async def wait(seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await news.wait()
        except TimeoutError:
            return False
        news.clear()
        return True

    async with store.subscribe(channel) as messages:
        listening = asyncio.create_task(listen(messages))
        try:
            yield wait
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
