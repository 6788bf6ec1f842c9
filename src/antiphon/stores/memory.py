"""A store in the memory of one process."""

import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from antiphon.stores.store import StoreError, deadline, event_id, event_number, whole_limit

__all__ = ["MemoryStore"]

T = TypeVar("T")

# A step adds at most one deadline and drops up to this many that have passed: so the shelves shrink faster than they
# grow, and no single step pays for all.
_SWEPT_PER_STEP = 32


class MemoryStore:
    """The reference store: for one process, gone with it.

    No step yields to the event loop, which makes it atomic. Expired entries are dropped by later steps; a store that
    holds ``max_entries`` keys or streams that have not expired refuses more, for dropping a claimed key would let it be
    claimed twice.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, max_entries: int = 1_000_000) -> None:
        self._clock = clock
        self._values: _Shelf[bytes] = _Shelf(max_entries)
        self._streams: _Shelf[deque[tuple[int, bytes]]] = _Shelf(max_entries)
        self._subscriptions: dict[str, list[_Subscription]] = {}
        self._numbers = count(1)

    def __len__(self) -> int:
        """How many keys and streams are held, those included that have expired but were not swept yet."""
        return len(self._values) + len(self._streams)

    async def get(self, key: str) -> bytes | None:
        return self._values.get(key, self._now())

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        now = self._now()
        self._values.put(key, value, deadline(now, ttl), now)

    async def add(self, key: str, value: bytes = b"", *, ttl: float | None = None) -> bool:
        now = self._now()
        if self._values.get(key, now) is not None:
            return False
        self._values.put(key, value, deadline(now, ttl), now)
        return True

    async def take(self, key: str) -> bytes | None:
        value = self._values.get(key, self._now())
        self._values.drop(key)
        return value

    async def publish(self, channel: str, message: bytes) -> None:
        for subscription in self._subscriptions.get(channel, ()):
            subscription.deliver(message)

    @asynccontextmanager
    async def subscribe(self, channel: str) -> AsyncGenerator[AsyncIterator[bytes], None]:
        subscription = _Subscription()
        self._subscriptions.setdefault(channel, []).append(subscription)
        try:
            yield subscription
        finally:
            subscription.end()
            self._forget(channel, subscription)

    async def append(self, stream: str, value: bytes, *, limit: int = 1024, ttl: float | None = None) -> str:
        now = self._now()
        end = deadline(now, ttl)
        kept = whole_limit(limit)
        events = self._streams.get(stream, now)
        if events is None:
            events = deque[tuple[int, bytes]]()
            self._streams.put(stream, events, end, now)
        elif end is not None:
            self._streams.put(stream, events, end, now)
        number = next(self._numbers)
        events.append((number, value))
        while len(events) > kept:
            events.popleft()
        return event_id(number)

    async def read(self, stream: str, *, after: str | None = None) -> list[tuple[str, bytes]]:
        last = 0 if after is None else event_number(after)
        events = self._streams.get(stream, self._now()) or ()
        return [(event_id(number), value) for number, value in events if number > last]

    async def close(self) -> None:
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.end()
        self._subscriptions.clear()

    def _now(self) -> float:
        now = self._clock()
        self._values.sweep(now)
        self._streams.sweep(now)
        return now

    def _forget(self, channel: str, subscription: "_Subscription") -> None:
        others = [other for other in self._subscriptions.pop(channel, ()) if other is not subscription]
        if others:
            self._subscriptions[channel] = others


class _Kept(NamedTuple, Generic[T]):
    item: T
    end: float | None


class _Shelf(Generic[T]):
    """Named things that may expire."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[str, _Kept[T]] = {}
        self._ends: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: str, now: float) -> T | None:
        kept = self._kept.get(name)
        if kept is None or _has_passed(kept.end, now):
            return None
        return kept.item

    def put(self, name: str, item: T, end: float | None, now: float) -> None:
        if len(self._ends) > 64 + 2 * len(self):
            # Most of these ends belong to things that were replaced or dropped.
            self._ends = [(kept.end, name) for name, kept in self._kept.items() if kept.end is not None]
            heapify(self._ends)
        if name not in self._kept and len(self) >= self._most:
            self._make_room(now)
        self._kept[name] = _Kept(item, end)
        if end is not None:
            heappush(self._ends, (end, name))

    def drop(self, name: str) -> None:
        self._kept.pop(name, None)

    def sweep(self, now: float, most: int = _SWEPT_PER_STEP) -> None:
        while most and self._ends and self._ends[0][0] <= now:
            _, name = heappop(self._ends)
            kept = self._kept.get(name)
            if kept is not None and _has_passed(kept.end, now):
                del self._kept[name]
            most -= 1
        if not self._kept:
            self._kept.clear()  # gives back the table, which has the size that it had at its fullest

    def _make_room(self, now: float) -> None:
        self.sweep(now, len(self._ends))
        if len(self) >= self._most:
            raise StoreError(
                f"the store is full: it holds {len(self)} entries that have not expired;"
                " give entries a shorter ttl, or the store a larger max_entries"
            )


def _has_passed(end: float | None, now: float) -> bool:
    return end is not None and end <= now


class _Subscription:
    """The messages for one subscriber, until it has read them."""

    def __init__(self) -> None:
        from asyncio import Event  # 50 ms, and whoever subscribes has paid them already

        self._messages: deque[bytes] = deque()
        self._news = Event()
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
