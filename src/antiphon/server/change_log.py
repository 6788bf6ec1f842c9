"""The log of changes in the store: instances tell each other what changed, and streams catch up on what they missed."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncGenerator, Callable
from typing import Final, NamedTuple, TypeAlias

import msgspec

from antiphon.stores.store import Store, StoreError, following
from antiphon.wire.jsonrpc import encode, notification

STREAM: Final = "antiphon:changes"
SILENCE: Final = 15.0
"""Seconds without news after which the store is read again, since a message may get lost."""
PAUSE: Final = 1.0
"""Seconds after which the store is tried again."""
_decode = msgspec.json.Decoder(tuple[str, str, str]).decode

log = logging.getLogger("antiphon")


class LoggedChange(NamedTuple):
    id: str
    origin: str
    """The instance where it happened."""
    method: str
    uri: str
    """The resource that changed, if it was one."""

    def encoded(self) -> bytes:
        return encode(notification(self.method, {"uri": self.uri} if self.uri else {}))


OnChange: TypeAlias = Callable[[LoggedChange], None]


class ChangeLog:
    """The changes of a server, from all its instances. One task reads them for all streams of this instance."""

    def __init__(self, store: Store, *, shared: bool) -> None:
        self.shared = shared
        self.limit = 1024
        self.ttl = 1800.0
        self.origin = os.urandom(6).hex()
        self._store = store
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._followers: set[OnChange] = set()
        self._reading: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()
        self._fault: StoreError | None = None
        self._last: str | None = None
        self._wanted = shared

    # --- telling --------------------------------------------------------------------------------------------------

    def want(self) -> None:
        """Keep changes from now on: a stream may ask for them later."""
        self._wanted = True
        self._loop = asyncio.get_running_loop()

    @property
    def is_wanted(self) -> bool:
        return self._wanted and self._loop is not None

    def tell(self, method: str, uri: str = "") -> None:
        """Log a change of this instance; callable from any thread."""
        if not self._wanted:
            return
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._keep, encode((self.origin, method, uri)))

    def _keep(self, change: bytes) -> None:
        task = asyncio.ensure_future(self._append(change))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _append(self, change: bytes) -> None:
        try:
            await self._store.append(STREAM, change, limit=self.limit, ttl=self.ttl)
            await self._store.publish(STREAM, b"")
        except StoreError as fault:
            log.warning("other instances cannot be told of a change: %s", fault)

    # --- hearing --------------------------------------------------------------------------------------------------

    def follow(self, told: OnChange) -> None:
        """Call a function with each change from now on, wherever it happens."""
        self._followers.add(told)
        loop = asyncio.get_running_loop()
        if self._reading is None or self._reading.done() or self._reading.get_loop() is not loop:
            self._loop = loop
            self._tried = asyncio.Event()
            self._reading = loop.create_task(self._read())

    def unfollow(self, told: OnChange) -> None:
        self._followers.discard(told)
        if not self._followers and self._reading is not None:
            with contextlib.suppress(RuntimeError):  # its loop has gone, and so has the task
                self._reading.cancel()
            self._reading = None

    async def followed(self) -> None:
        """Wait until every further change reaches the followers; StoreError if the store cannot be read."""
        await self._tried.wait()
        if self._fault is not None:
            raise self._fault

    @contextlib.asynccontextmanager
    async def following(self, after: str | None) -> AsyncGenerator["ChangeReader"]:
        """Read the changes after the one with this id, or from now on; ValueError if no change can have that id."""
        reader = ChangeReader(self.limit)
        self.follow(reader.put)
        try:
            await self.followed()
            reader.last = self._last
            if after is not None:
                missed = [_change(*event) for event in await self._store.read(STREAM, after=after)]
                # What is newer than that will be handed out.
                reader.begin([change for change in missed if self._last is not None and change.id <= self._last])
            yield reader
        finally:
            self.unfollow(reader.put)

    async def _read(self) -> None:
        begun = False
        while True:
            try:
                async with following(self._store, STREAM) as wait:
                    if not begun:
                        events = await self._store.read(STREAM)
                        self._last = events[-1][0] if events else None
                        begun = True
                    self._fault = None
                    self._tried.set()
                    while True:
                        await self._hand_out()
                        await wait(SILENCE)
            except StoreError as fault:
                self._fault = fault
                self._tried.set()
                log.warning("changes at other instances cannot be heard of for the moment: %s", fault)
            await asyncio.sleep(PAUSE)

    async def _hand_out(self) -> None:
        for id_, data in await self._store.read(STREAM, after=self._last):
            self._last = id_
            change = _change(id_, data)
            for told in list(self._followers):
                told(change)


class ChangeReader:
    """The changes that wait for one stream. Of equal ones, only the newest waits."""

    __slots__ = ("_limit", "_news", "_waiting", "last", "overflow")

    def __init__(self, limit: int) -> None:
        self.last: str | None = None
        """The newest change when the stream began."""
        self.overflow: Callable[[], None] | None = None
        """Called when more waits than is kept: the stream should end, for its client can come back."""
        self._limit = limit
        self._waiting: dict[tuple[str, str], LoggedChange] = {}
        self._news = asyncio.Event()

    def begin(self, missed: list[LoggedChange]) -> None:
        """Put the changes that were missed before those that came meanwhile."""
        heard, self._waiting = self._waiting, {}
        for change in (*missed, *heard.values()):
            self.put(change)

    def put(self, change: LoggedChange) -> None:
        self._waiting.pop((change.method, change.uri), None)
        self._waiting[change.method, change.uri] = change
        self._news.set()
        if len(self._waiting) > self._limit and self.overflow is not None:
            self.overflow()

    def wake(self) -> None:
        self._news.set()

    def take(self) -> list[LoggedChange]:
        taken, self._waiting = list(self._waiting.values()), {}
        self._news.clear()
        return taken

    async def wait(self) -> None:
        """Wait for news."""
        await self._news.wait()


def _change(id_: str, data: bytes) -> LoggedChange:
    return LoggedChange(id_, *_decode(data))
