"""The interface of a store, and what all stores share."""

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from antiphon.errors import AntiphonError

Name = TypeVar("Name", str, bytes)


class StoreError(AntiphonError):
    """The store cannot do what was asked of it: it is full, locked, damaged or unreachable."""


@runtime_checkable
class Store(Protocol):
    """Keys with values, channels with messages, streams with events: three separate namespaces.

    Each method is one atomic step for every task, event loop and process that shares the store, and maps onto one
    command of Redis. A ``ttl`` is in seconds; an entry past its ``ttl`` is gone for every method.
    ``antiphon.testing.contracts.check_store`` tests a store against these promises.
    """

    async def get(self, key: str) -> bytes | None:
        """Return the value, or None."""
        ...

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        """Set the value, replacing any other; without a ``ttl`` it does not expire."""
        ...

    async def add(
        self, key: str, value: bytes = b"", *, ttl: float | None = None, replacing: bytes | None = None
    ) -> bool:
        """Set the value if the key is free; with ``replacing``, if it holds that. Of all callers, one gets True."""
        ...

    async def take(self, key: str) -> bytes | None:
        """Delete the value and return it. Of all callers, exactly one gets it."""
        ...

    async def publish(self, channel: str, message: bytes) -> None:
        """Deliver the message to all current subscribers."""
        ...

    def subscribe(self, channel: str) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Iterate over the messages published after entering, in order, until leaving or `close`."""
        ...

    async def append(self, stream: str, value: bytes, *, limit: int = 1024, ttl: float | None = None) -> str:
        """Add an event, keep the newest ``limit``, and return an id that sorts, as text, after all earlier ones.

        A ``ttl`` sets the time that the whole stream has left; without one that time does not change.
        """
        ...

    async def read(self, stream: str, *, after: str | None = None) -> list[tuple[str, bytes]]:
        """Return the events with their ids, oldest first; with ``after``, those after that id, even if it is gone.

        Raise ValueError for an ``after`` that `append` cannot have returned.
        """
        ...

    async def close(self) -> None:
        """Release threads, files and connections. Stored data stays; a later call opens them again."""
        ...


def deadline(now: float, ttl: float | None) -> float | None:
    """Return when an entry expires, None for never; raise ValueError for a ttl that is not positive."""
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


class Subscription:
    """The messages delivered to one subscriber and not read yet."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._ended = False

    def deliver(self, message: bytes) -> None:
        self._messages.append(message)
        self._news.set()

    def end(self) -> None:
        self._ended = True
        self._messages.clear()
        self._news.set()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._messages:
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._messages.popleft()


class Subscribers(dict[Name, list[Subscription]]):
    """The subscriptions of each channel; a channel without any is not in it."""

    def add(self, channel: Name, one: Subscription) -> None:
        self.setdefault(channel, []).append(one)

    def remove(self, channel: Name, one: Subscription) -> None:
        others = [other for other in self.pop(channel, ()) if other is not one]
        if others:
            self[channel] = others

    def end(self) -> None:
        for subscriptions in self.values():
            for subscription in subscriptions:
                subscription.end()
        self.clear()


Wait: TypeAlias = Callable[[float], Awaitable[bool]]
"""Wait at most so many seconds for a message; return False if none came."""


@asynccontextmanager
async def following(store: Store, channel: str) -> AsyncGenerator[Wait]:
    """Yield a function that waits for the next message on a channel; what the messages say is dropped."""
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
