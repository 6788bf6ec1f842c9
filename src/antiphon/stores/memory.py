"""A store in the memory of one process."""

import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from antiphon.stores.store import StoreError, Subscribers, Subscription, deadline, event_id, event_number, whole_limit

T = TypeVar("T")

# A step adds at most one deadline and drops up to this many that have passed: the store shrinks faster than it grows,
# and no single step drops everything.
_SWEPT_PER_STEP = 32
_TICKS = 64
"""Buckets per second."""


class MemoryStore:
    """The reference store: in one process, lost when it ends.

    No step yields to the event loop, which makes it atomic. Later steps drop expired entries. A store that holds
    ``max_entries`` keys or streams that have not expired refuses more: dropping a claimed key would let it be claimed
    twice.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, max_entries: int = 1_000_000) -> None:
        self._clock = clock
        self._values: _Expiring[bytes] = _Expiring(max_entries)
        self._streams: _Expiring[deque[tuple[int, bytes]]] = _Expiring(max_entries)
        self._subscriptions: Subscribers[str] = Subscribers()
        self._numbers = count(1)

    def __len__(self) -> int:
        """Count the keys and streams held, including those that have expired but were not swept yet."""
        return len(self._values) + len(self._streams)

    async def get(self, key: str) -> bytes | None:
        return self._values.get(key, self._now())

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        now = self._now()
        self._values.put(key, value, deadline(now, ttl), now)

    async def add(
        self, key: str, value: bytes = b"", *, ttl: float | None = None, replacing: bytes | None = None
    ) -> bool:
        now = self._now()
        if self._values.get(key, now) != replacing:
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
        subscription = Subscription()
        self._subscriptions.add(channel, subscription)
        try:
            yield subscription
        finally:
            subscription.end()
            self._subscriptions.remove(channel, subscription)

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
        self._subscriptions.end()

    def _now(self) -> float:
        now = self._clock()
        self._values.sweep(now)
        self._streams.sweep(now)
        return now


class _Expiring(Generic[T]):
    """Named items that may expire.

    Deadlines are kept in buckets of a 64th of a second: a name in a list takes a tenth of the memory of an entry of its
    own in a heap.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: dict[str, T] = {}
        self._ends: dict[str, float] = {}
        self._due: dict[int, list[str]] = {}
        self._ticks: list[int] = []
        """The buckets' times, as a heap."""
        self._listed = 0

    def __len__(self) -> int:
        return len(self._items)

    def get(self, name: str, now: float) -> T | None:
        return None if _has_passed(self._ends.get(name), now) else self._items.get(name)

    def put(self, name: str, item: T, end: float | None, now: float) -> None:
        if self._listed > 64 + 2 * len(self):
            self._relist()
        if name not in self._items and len(self) >= self._most:
            self._make_room(now)
        self._items[name] = item
        if end is None:
            self._ends.pop(name, None)
        else:
            self._ends[name] = end
            self._list(name, int(end * _TICKS))

    def drop(self, name: str) -> None:
        self._items.pop(name, None)
        self._ends.pop(name, None)

    def sweep(self, now: float, most: int = _SWEPT_PER_STEP) -> None:
        while most and self._ticks and self._ticks[0] <= now * _TICKS:
            names = self._due[self._ticks[0]]
            while most and names:
                name = names.pop()
                self._listed -= 1
                most -= 1
                end = self._ends.get(name)
                if _has_passed(end, now):
                    self.drop(name)
                elif end is not None and int(end * _TICKS) == self._ticks[0]:
                    self._list(name, self._ticks[0] + 1)  # almost, but not yet
            if not names:
                del self._due[heappop(self._ticks)]
        if not self._items:
            # Free the tables, which keep the size that they had at their fullest.
            self._items.clear()
            self._ends.clear()

    def _list(self, name: str, tick: int) -> None:
        names = self._due.get(tick)
        if names is None:
            names = self._due[tick] = []
            heappush(self._ticks, tick)
        names.append(name)
        self._listed += 1

    def _relist(self) -> None:
        """Rebuild the buckets, when most of their names belong to items that were replaced or dropped."""
        self._due.clear()
        self._ticks.clear()
        self._listed = 0
        for name, end in self._ends.items():
            self._list(name, int(end * _TICKS))

    def _make_room(self, now: float) -> None:
        self.sweep(now, self._listed)
        if len(self) >= self._most:
            raise StoreError(
                f"the store is full: it holds {len(self)} entries that have not expired;"
                " give entries a shorter ttl, or the store a larger max_entries"
            )


def _has_passed(end: float | None, now: float) -> bool:
    return end is not None and end <= now
