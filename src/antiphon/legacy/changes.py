"""Changes: what every older client may want to hear of, kept in order so that a stream can be taken up again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from antiphon.legacy.switchboard import Switchboard
from antiphon.stores.store import StoreError
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import encode, notification

STREAM: Final = "antiphon:changes"
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Changes:
    """The changes of a server, from all its instances, for all its sessions."""

    def __init__(self, board: Switchboard, *, shared: bool) -> None:
        self._board = board
        self._shared = shared
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.wanted = False
        """Whether there is, or was, anybody here to tell."""

    def tell(self, method: str, uri: str = "") -> None:
        """Something changed: the service says so, from any thread."""
        if not self.wanted and not self._shared:
            return
        with contextlib.suppress(RuntimeError):
            self._loop = asyncio.get_running_loop()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._keep, notification(method, {"uri": uri} if uri else {}))

    def close(self) -> None:
        """The server goes down."""
        self._board.close()

    def want(self) -> None:
        self.wanted = True
        self._loop = asyncio.get_running_loop()

    @contextlib.asynccontextmanager
    async def following(self, after: str | None) -> AsyncIterator["Follower"]:
        """The changes after one of them, or from now on."""
        async with self._board.following(STREAM) as wait:
            if after is None:
                events = await self._board.store.read(STREAM)
                after = events[-1][0] if events else None
            yield Follower(self._board, wait, after)

    def _keep(self, message: JsonObject) -> None:
        task = asyncio.ensure_future(self._append(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _append(self, message: JsonObject) -> None:
        with contextlib.suppress(StoreError):
            await self._board.store.append(STREAM, encode(message), limit=self._board.buffer, ttl=self._board.ttl)
            await self._board.poke(STREAM)


class Follower:
    """One reader of the changes."""

    __slots__ = ("_board", "_wait", "last")

    def __init__(self, board: Switchboard, wait: Any, last: str | None) -> None:
        self._board = board
        self._wait = wait
        self.last = last

    async def news(self) -> list[tuple[str, JsonObject, bytes]]:
        """What happened since the last look: ids, messages, and their bytes."""
        events = await self._board.store.read(STREAM, after=self.last)
        if events:
            self.last = events[-1][0]
        return [(id_, _decode(data), data) for id_, data in events]

    async def wait(self, seconds: float) -> bool:
        return bool(await self._wait(seconds))
