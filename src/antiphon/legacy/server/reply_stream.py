"""What answers one POST of an older client: in a session, a stream that can be left and taken up again, anywhere."""

import asyncio
from typing import Protocol

from antiphon.errors import CannotAsk, InternalError
from antiphon.legacy.server.exchange import LegacyExchange, named
from antiphon.legacy.server.push import PushChannel, Pushes
from antiphon.legacy.server.sessions import Session
from antiphon.server.run import Channel
from antiphon.stores.store import Store
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import RequestId, encode, error
from antiphon.wire.revisions import EARLIER

KEPT = 30.0
"""Seconds that a stream which was sent to its end is kept, in case the end did not arrive."""
KEPT_UNSENT = 300.0
"""The same for a stream whose client was away when it ended. Neither outlives the session that may read it."""
GRACE = 4.0
"""Seconds that a client which is being asked may be away before its call is given up."""
RETRY = 1.0
"""Seconds after which a client should come back that has lost a stream."""


class Streams(Protocol):
    """What a reply needs to be found by other instances."""

    store: Store
    pushes: Pushes
    ttl: float
    buffer: int

    def new_stream(self) -> str: ...

    async def opened(self, reply: "ReplyStream") -> None: ...

    def closed(self, reply: "ReplyStream") -> None: ...

    async def poke(self, channel: str) -> None: ...


class ReplyStream(PushChannel):
    """The channel of one request in a session: plain JSON, unless the handler sends or asks something first."""

    __slots__ = ("_absent", "_exchange", "_lock", "_streams", "_timer", "id", "identity", "name", "reader")

    def __init__(self, session: Session, streams: Streams, exchange: LegacyExchange, id_: RequestId | None) -> None:
        super().__init__(session, streams.pushes)
        self.id = id_
        self.identity = exchange.identity
        self.name = ""
        """The stream's name, once there is one."""
        self.reader: str | None = None
        """The instance where the client reads the stream, once it came back."""
        self._absent = False
        self._streams = streams
        self._exchange = exchange
        self._lock: asyncio.Lock | None = None
        self._timer: asyncio.TimerHandle | None = None
        exchange.on_gone = self._gone

    @property
    def session(self) -> Session:
        return self._session

    @property
    def key(self) -> str:
        return stream_key(self._session.id, self.name)

    async def emit(self, message: JsonObject) -> None:
        if self._exchange.accepts.stream and (self.name or not self._absent):
            await self._append(encode(message))

    async def push(self, name: str, wire: JsonObject) -> object:
        if not self._exchange.accepts.stream:
            raise CannotAsk("The client accepts no stream on which it could be asked", required={})
        if self._absent:
            raise CannotAsk("The client went away", required={})
        return await super().push(name, wire)

    async def hang_up(self, retry: float) -> None:
        """Let go of the connection; the client comes back by itself."""
        if not EARLIER[self._session.revision].polls or not self._exchange.accepts.stream:
            return
        await self._begin()
        if self._exchange.is_open:
            async with self._locked():
                await self._mark(retry)
                await self._exchange.end()
            self._wait(retry + GRACE)

    async def finish(self, *replies: bytes, batch: bool = False) -> None:
        """End with the reply, or with the replies to a batch."""
        await self.take_back()
        if not self.name and not replies:
            await self._exchange.reply(202, b"")
            return
        if not self.name and self._exchange.accepts.json:
            await self._exchange.reply_json(replies, batch=batch)
            return
        for reply in replies:
            await self._append(reply, last=reply is replies[-1])
        self.let_go()
        if self.name:
            await self._streams.store.take(open_key(self._session.id, self.name))
            if not self._exchange.is_open:
                await self._streams.poke(self.key)
        await self._exchange.end()

    async def abandon(self) -> None:
        """The call was given up: leave an error for a client that still comes back for its stream."""
        if self.name and self._exchange.gone:
            fault = InternalError("The client was away for too long while it was asked, so the call was given up.")
            await self.finish(encode(error(self.id, fault)))

    def let_go(self) -> None:
        """Release what is held for the stream: nothing more will be sent."""
        if self._asking:
            self._pushes.give_up_on(self)
        self._exchange.on_gone = _nothing  # and no circle is left, which only the garbage collector could break
        if self._timer is not None:
            self._timer.cancel()
        if self.name:
            self._streams.closed(self)

    async def give_way(self, reader: str) -> None:
        """The client has come back at an instance, and reads the stream there."""
        self.reader = reader
        self._absent = False
        if self._timer is not None:
            self._timer.cancel()
        self._exchange.cut_off()  # the old connection may have no reader
        await self._streams.poke(self.key)

    def left(self) -> None:
        """The client has gone away from where it came back."""
        self.reader = None
        self._wait(GRACE)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _has_begun(self) -> bool:
        return bool(self.name)

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
            await self._exchange.begin(named(self._session.id))
            self.name = name
            await streams.opened(self)
            if EARLIER[self._session.revision].polls:
                # 2025-11-25, basic/transports: an id at once, so that the client can come back whatever happens.
                await self._mark(RETRY)

    async def _mark(self, retry: float) -> None:
        """Send an event without data: an id to come back to."""
        streams = self._streams
        place = await streams.store.append(self.key, b"", limit=streams.buffer, ttl=streams.ttl)
        await self._exchange.event(f"{self.name}.{place}", b"", retry=retry)

    async def _append(self, data: bytes, *, last: bool = False) -> None:
        await self._begin()
        streams = self._streams
        async with self._locked():
            ttl = streams.ttl if not last else min(streams.ttl, KEPT if self._exchange.is_open else KEPT_UNSENT)
            place = await streams.store.append(self.key, data, limit=streams.buffer, ttl=ttl)
            if self._exchange.is_open:
                await self._exchange.event(f"{self.name}.{place}", data)
            elif not last:
                await streams.poke(self.key)

    def _gone(self) -> None:
        # 2025-11-25, basic/transports: a disconnection is no cancellation. But without a stream there is none to come
        # back to, so the client cannot be asked.
        if self.name:
            self._wait(GRACE)
        else:
            self._absent = True

    def _wait(self, seconds: float) -> None:
        """Give the client time to come back; after that, it is not asked any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        self._absent = True
        if self._asking:
            self._exchange.give_up()


class StatelessReply(Channel):
    """The reply to a client of which nothing is kept: it can be sent notifications, but not asked."""

    def __init__(self, exchange: LegacyExchange) -> None:
        self._exchange = exchange
        self.identity = exchange.identity
        exchange.on_gone = _nothing  # 2025-11-25, basic/transports: a disconnection is no cancellation

    async def emit(self, message: JsonObject) -> None:
        if self._exchange.accepts.stream:
            await self._event(encode(message))

    async def finish(self, *replies: bytes, batch: bool = False) -> None:
        if not self._exchange.streaming and self._exchange.accepts.json:
            await self._exchange.reply_json(replies, batch=batch)
            return
        for reply in replies:
            await self._event(reply)
        await self._exchange.end()

    async def abandon(self) -> None:
        """Nothing: no client comes back to it."""

    def let_go(self) -> None:
        """Nothing: nothing is held."""

    async def _event(self, data: bytes) -> None:
        if not self._exchange.streaming:
            await self._exchange.begin()
        await self._exchange.event(None, data)


def _nothing() -> None:
    """Do nothing when the client goes away."""


def stream_key(session: str, name: str) -> str:
    return f"antiphon:stream:{session}:{name}"


def open_key(session: str, name: str) -> str:
    return f"antiphon:open:{session}:{name}"
