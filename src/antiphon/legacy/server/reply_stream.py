"""A Reply: what answers one POST of an older client, as a stream that can be left and taken up again, anywhere."""

import asyncio
from typing import Protocol

from antiphon.errors import CannotAsk, InternalError
from antiphon.legacy.server.exchange import Line
from antiphon.legacy.server.push import Asker, Waiting
from antiphon.legacy.server.sessions import Session
from antiphon.stores.store import Store
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import RequestId, encode, error
from antiphon.wire.revisions import EARLIER

KEPT = 30.0
"""Seconds that a stream which was sent to its end is kept, in case the end did not arrive."""
KEPT_UNSENT = 300.0
"""And one whose client was away when it ended. Neither outlives the session, without which nobody can read it."""
GRACE = 4.0
"""Seconds that a client which is being asked may be away before its call is given up."""
RETRY = 1.0
"""Seconds after which a client should come back that has lost a stream."""


class Streams(Protocol):
    """What a reply needs of the switchboard."""

    store: Store
    waiting: Waiting
    ttl: float
    buffer: int

    def new_stream(self) -> str: ...

    async def opened(self, reply: "Reply") -> None: ...

    def closed(self, reply: "Reply") -> None: ...

    async def poke(self, channel: str) -> None: ...


class Reply(Asker):
    """The channel of one request: nothing but JSON, unless the handler says something first."""

    __slots__ = (
        "_absent",
        "_line",
        "_lock",
        "_streams",
        "_task",
        "_timer",
        "id",
        "name",
        "reader",
    )

    def __init__(self, session: Session, streams: Streams, line: Line, id_: RequestId | None) -> None:
        super().__init__(session, streams.waiting)
        self.id = id_
        self.name = ""
        """The stream's name, once there is one."""
        self.reader: str | None = None
        """The instance where the client reads the stream, once it came back."""
        self._absent = False
        self._streams = streams
        self._line = line
        self._lock: asyncio.Lock | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task = line.task
        line.on_gone = self._gone

    @property
    def session(self) -> Session:
        return self._session

    @property
    def key(self) -> str:
        return stream_key(self._session.id, self.name)

    async def emit(self, message: JsonObject) -> None:
        if self._line.accepts.stream and (self.name or not self._absent):
            await self._append(encode(message))

    async def push(self, name: str, wire: JsonObject) -> object:
        if not self._line.accepts.stream:
            raise CannotAsk("The client accepts no stream on which it could be asked", required={})
        if self._absent:
            raise CannotAsk("The client went away", required={})
        return await super().push(name, wire)

    async def hang_up(self, retry: float) -> None:
        """Let go of the connection; the client comes back by itself."""
        if not EARLIER[self._session.revision].polls or not self._line.accepts.stream:
            return
        await self._begin()
        if self._line.is_open:
            async with self._locked():
                place = await self._streams.store.append(
                    self.key, b"", limit=self._streams.buffer, ttl=self._streams.ttl
                )
                await self._line.event(f"{self.name}.{place}", b"", retry=retry)
                await self._line.end()
            self._wait(retry + GRACE)

    async def finish(self, *replies: bytes, batch: bool = False) -> None:
        """The end: the reply, or those replies to a batch that there are."""
        if self._asking:
            await self.take_back()
        if not self.name and not replies:
            await self._line.answer(202, b"")
            return
        if not self.name and self._line.accepts.json:
            await self._line.answer(200, b"[" + b",".join(replies) + b"]" if batch else replies[0])
            return
        for reply in replies:
            await self._append(reply, last=reply is replies[-1])
        await self.close()

    async def close(self) -> None:
        """End the stream, if there is one."""
        await self.take_back()
        self.let_go()
        if self.name:
            await self._streams.store.take(open_key(self._session.id, self.name))
            if not self._line.is_open:
                await self._streams.poke(self.key)
        await self._line.end()

    async def abandon(self) -> None:
        """The call was given up: whoever still comes back for its stream finds that out."""
        if self.name and self._line.gone:
            fault = InternalError("The client was away for too long while it was asked, so the call was given up.")
            await self.finish(encode(error(self.id, fault)))

    def let_go(self) -> None:
        """Nothing more will be said."""
        if self._asking:
            self._waiting.give_up_on(self)
        self._line.on_gone = _nothing  # and no circle is left, which only the garbage collector could break
        if self._timer is not None:
            self._timer.cancel()
        if self.name:
            self._streams.closed(self)

    async def give_way(self, reader: str) -> None:
        """The client has come back elsewhere, and reads the stream there."""
        self.reader = reader
        self._absent = False
        if self._timer is not None:
            self._timer.cancel()
        self._line.hang_up()  # on the old connection, nobody may be reading
        await self._streams.poke(self.key)

    def left(self) -> None:
        """The client has gone away from where it came back."""
        self.reader = None
        self._wait(GRACE)

    def _has_begun(self) -> bool:
        return bool(self.name)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _locked(self) -> asyncio.Lock:
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    async def _begin(self) -> None:
        if self._has_begun():
            return
        async with self._locked():
            if self._has_begun():
                return
            streams = self._streams
            name = streams.new_stream()
            await streams.store.put(open_key(self._session.id, name), encode(self.id), ttl=streams.ttl)
            await self._line.begin(self._session.id or None)
            self.name = name
            await streams.opened(self)
            if EARLIER[self._session.revision].polls:
                # 2025-11-25, basic/transports: an id at once, so that the client can come back whatever happens.
                place = await streams.store.append(self.key, b"", limit=streams.buffer, ttl=streams.ttl)
                await self._line.event(f"{name}.{place}", b"", retry=RETRY)

    async def _append(self, data: bytes, *, last: bool = False) -> None:
        await self._begin()
        streams = self._streams
        async with self._locked():
            ttl = streams.ttl if not last else min(streams.ttl, KEPT if self._line.is_open else KEPT_UNSENT)
            place = await streams.store.append(self.key, data, limit=streams.buffer, ttl=ttl)
            if self._line.is_open:
                await self._line.event(f"{self.name}.{place}", data)
            elif not last:
                await streams.poke(self.key)

    def _gone(self) -> None:
        # 2025-11-25, basic/transports: a disconnection is no cancellation. But without a stream there is none to come
        # back to, so nobody can be asked.
        if self.name:
            self._wait(GRACE)
        else:
            self._absent = True

    def _wait(self, seconds: float) -> None:
        """The client may come back; if it does not, it is not asked any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        self._absent = True
        if self._asking and self._task is not None:
            self._line.gone = True
            self._task.cancel()


def _nothing() -> None:
    pass


def stream_key(session: str, name: str) -> str:
    return f"antiphon:stream:{session}:{name}"


def open_key(session: str, name: str) -> str:
    return f"antiphon:open:{session}:{name}"
