"""Changes: what every older client may want to hear of, kept in order so that a stream can be taken up again."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.legacy.switchboard import Switchboard
from antiphon.stores.store import StoreError
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import encode, notification

STREAM: Final = "antiphon:changes"
SILENCE: Final = 15.0
"""Seconds without news after which somebody looks all the same, for news may get lost."""
PAUSE: Final = 1.0
"""Seconds after which the store is tried again."""
_decode = msgspec.json.Decoder(dict[str, Any]).decode

log = logging.getLogger("antiphon")


class Change(NamedTuple):
    id: str
    uri: str | None
    """The resource that changed, if it was one."""
    data: bytes


class Changes:
    """The changes of a server, from all its instances, for all its sessions. One task reads them for all streams."""

    def __init__(self, board: Switchboard, *, shared: bool) -> None:
        self._board = board
        self._shared = shared
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._readers: set[Reader] = set()
        self._reading: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._last: str | None = None
        self._wanted = False

    # --- telling --------------------------------------------------------------------------------------------------

    def want(self) -> None:
        """There is somebody who may want to hear of changes, here or, where the store is shared, elsewhere."""
        self._wanted = True
        self._loop = asyncio.get_running_loop()

    @property
    def is_wanted(self) -> bool:
        return self._wanted

    def tell(self, method: str, uri: str = "") -> None:
        """Something changed: the service says so, from any thread."""
        if not self._wanted and not self._shared:
            return
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._keep, notification(method, {"uri": uri} if uri else {}))

    def close(self) -> None:
        """The server goes down."""
        self._board.close()
        for reader in self._readers:
            reader.wake()

    def _keep(self, message: JsonObject) -> None:
        task = asyncio.ensure_future(self._append(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _append(self, message: JsonObject) -> None:
        try:
            await self._board.store.append(STREAM, encode(message), limit=self._board.buffer, ttl=self._board.ttl)
            await self._board.poke(STREAM)
        except StoreError as fault:
            log.warning("a change could not be told to older clients: %s", fault)

    # --- reading --------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def following(self, after: str | None) -> AsyncGenerator["Reader"]:
        """The changes after one of them, or from now on; ValueError if there never was such a one."""
        await self._read()
        reader = Reader(self._last)
        self._readers.add(reader)
        try:
            if after is not None and self._last is not None:
                missed = await self._board.store.read(STREAM, after=after)
                reader.waiting[:0] = [_change(id_, data) for id_, data in missed if id_ <= self._last]
                reader.wake()
            yield reader
        finally:
            self._readers.discard(reader)
            if not self._readers and self._reading is not None:
                self._reading.cancel()
                self._reading = None

    async def _read(self) -> None:
        """See to it that changes are read, from now on at the latest."""
        if self._reading is None or self._reading.done():
            self._ready = asyncio.get_running_loop().create_future()
            self._reading = asyncio.create_task(self._distribute(self._ready))
        assert self._ready is not None
        await asyncio.shield(self._ready)

    async def _distribute(self, ready: "asyncio.Future[None]") -> None:
        while True:
            try:
                async with self._board.following(STREAM) as wait:
                    if not ready.done():
                        events = await self._board.store.read(STREAM)
                        self._last = events[-1][0] if events else None
                        ready.set_result(None)
                    while True:
                        await self._hand_out()
                        await wait(SILENCE)
            except StoreError as fault:
                if not ready.done():
                    ready.set_exception(fault)
                    return
                log.warning("changes cannot be told to older clients for the moment: %s", fault)
            await asyncio.sleep(PAUSE)

    async def _hand_out(self) -> None:
        for id_, data in await self._board.store.read(STREAM, after=self._last):
            self._last = id_
            for reader in self._readers:
                reader.put(_change(id_, data))


class Reader:
    """One stream's share of the changes."""

    __slots__ = ("_news", "last", "waiting")

    def __init__(self, last: str | None) -> None:
        self.last = last
        """The newest change when the stream began."""
        self.waiting: list[Change] = []
        self._news = asyncio.Event()

    def put(self, change: Change) -> None:
        self.waiting.append(change)
        self._news.set()

    def wake(self) -> None:
        self._news.set()

    def take(self) -> list[Change]:
        taken, self.waiting = self.waiting, []
        self._news.clear()
        return taken

    async def wait(self, seconds: float) -> bool:
        """Wait for news; False if none came in time."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True


def _change(id_: str, data: bytes) -> Change:
    return Change(id_, _decode(data)["params"].get("uri"), data)
