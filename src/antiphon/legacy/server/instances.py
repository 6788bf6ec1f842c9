"""Route answers, cancellations and streams to the instance that they belong to, through a shared store.

A client's answer may arrive at another instance than the one that waits for it, and a client may come back for a stream
at a third. What is kept for that is in the store: sessions, events, and which instances are alive. What is meant for
one instance waits in its inbox, a stream in the store: an answer is sent once, and must not get lost when a channel is
silent for a moment. What all must hear at once goes over a channel.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final

import msgspec

from antiphon.legacy.server.push import Pushes
from antiphon.legacy.server.reply_stream import ReplyStream, open_key
from antiphon.stores.store import Store, StoreError, Wait, following
from antiphon.wire.jsonrpc import Message, RequestId, encode

log = logging.getLogger("antiphon")

BEAT: Final = 1.0
"""Seconds between the signs of life of an instance that has streams."""
DEAD: Final = 3.0
"""Seconds without one after which it counts as dead."""
LINGER: Final = 5.0
"""Seconds that the channels stay open after the last request."""
UNREAD: Final = 60.0
"""Seconds that an inbox is kept after the last message."""
ALL: Final = "antiphon:everybody"
_decode = msgspec.json.Decoder().decode


class InstanceRouter:
    """The requests, streams and questions of this instance, and the way to those of others.

    ``ended`` is told of a session that has ended.
    """

    def __init__(
        self,
        store: Store,
        *,
        shared: bool,
        ttl: float,
        buffer: int,
        ask_timeout: float | None,
        ended: Callable[[str], object],
    ) -> None:
        self.store = store
        self.ttl = ttl
        self.buffer = buffer
        self.instance = secrets.token_hex(6)
        self.pushes = Pushes(self.instance, ask_timeout)
        self._shared = shared
        self._ended = ended
        self._count = 0
        self._received: str | None = None
        self._replies: dict[str, ReplyStream] = {}
        self._running: dict[tuple[str, RequestId], asyncio.Task[Any]] = {}
        self._cancelled: set[tuple[str, RequestId]] = set()
        self._readers: dict[str, dict[str, Callable[[], None]]] = {}
        """What stops the reading of each stream, by session."""
        self._active = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ready: asyncio.Future[None] | None = None
        self._linger: asyncio.TimerHandle | None = None

    # --- requests under way ---------------------------------------------------------------------------------------

    def begin(self, session: str, id_: RequestId, task: "asyncio.Task[Any]") -> None:
        """A request is under way: from now on, any instance can cancel it."""
        self._running[session, id_] = task
        if self._shared:
            self._hold()

    def done(self, session: str, id_: RequestId) -> None:
        self._running.pop((session, id_), None)
        self._cancelled.discard((session, id_))
        if self._shared:
            self._release()

    def is_running(self, session: str, id_: RequestId) -> bool:
        return (session, id_) in self._running

    def busy(self) -> set[str]:
        """The sessions that a request or a stream uses."""
        return {*self._readers, *(session for session, _ in self._running)}

    def was_cancelled(self, session: str, id_: RequestId) -> bool:
        """Whether a request ends because its client cancelled it; its task may then go on."""
        if (session, id_) not in self._cancelled:
            return False
        self._running[session, id_].uncancel()
        return True

    async def cancel(self, session: str, id_: RequestId | None) -> None:
        if id_ is not None and not self._cancel(session, id_):
            await self._tell_all({"cancel": [session, id_]})

    async def deliver(self, session: str, answer: Message) -> None:
        """Hand a client's answer to the call that waits for it."""
        id_ = answer.get("id")
        if self.pushes.answered(session, answer) or type(id_) is not str:
            return
        instance, dash, _ = id_.rpartition("-")
        if dash and instance != self.instance:
            await self._send(instance, {"answer": [session, answer]})

    async def end(self, session: str) -> None:
        """End what goes on in a session, at every instance."""
        self.end_here(session)
        await self._tell_all({"end": session})

    # --- streams --------------------------------------------------------------------------------------------------

    def new_stream(self) -> str:
        self._count += 1
        return f"{self.instance}-{self._count}"

    async def opened(self, reply: ReplyStream) -> None:
        """A stream begins here: from now on, other instances must find this one and see that it lives."""
        self._replies[reply.name] = reply
        self._hold()
        if self._shared:
            await self._connect()

    def closed(self, reply: ReplyStream) -> None:
        if self._replies.pop(reply.name, None) is not None:
            self._release()

    async def poke(self, channel: str) -> None:
        """Tell the followers of a stream that there is something new."""
        with contextlib.suppress(StoreError):
            await self.store.publish(channel, b"")

    async def resumed(self, name: str) -> None:
        """A client came back here for a stream."""
        reply = self._replies.get(name)
        if reply is not None:
            await reply.give_way(self.instance)
        else:
            await self._send(owner_of(name), {"resumed": [name, self.instance]})

    async def left(self, name: str) -> None:
        """The client went away again before the stream's end."""
        reply = self._replies.get(name)
        if reply is not None:
            reply.left()
        else:
            await self._send(owner_of(name), {"left": name})

    @contextlib.asynccontextmanager
    async def reading(self, session: str, stream: str, stop: Callable[[], None]) -> AsyncGenerator[None]:
        """Let a client read a stream here, until the session ends or it reads the same one elsewhere.

        2025-11-25, basic/transports, Multiple Connections: a message goes to one of the connected streams only.
        """
        readers = self._readers.setdefault(session, {})
        before = readers.get(stream)
        readers[stream] = stop
        if before is not None:
            before()
        self._hold()
        try:
            if self._shared:
                await self._connect()
                await self._tell_all({"reads": [self.instance, session, stream]})
            yield
        finally:
            if readers.get(stream) is stop:
                del readers[stream]
            if not readers and self._readers.get(session) is readers:
                del self._readers[session]
            self._release()

    async def owner_is_alive(self, name: str) -> bool:
        """Whether the instance that a stream comes from is alive."""
        owner = owner_of(name)
        return owner == self.instance or await self._is_alive(owner)

    def close(self) -> None:
        """The server goes down: wait for no answer any more."""
        self.pushes.give_up(why="The server stops, and cannot wait for the answer. Call again.")
        for session in list(self._readers):
            self.end_here(session, cancel=False)
        self._stop()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _cancel(self, session: str, id_: RequestId) -> bool:
        task = self._running.get((session, id_))
        if task is None:
            return False
        self._cancelled.add((session, id_))
        task.cancel()
        return True

    def end_here(self, session: str, *, cancel: bool = True) -> None:
        """End what goes on in a session at this instance."""
        for stop in list(self._readers.pop(session, {}).values()):
            stop()
        self.pushes.give_up(session)
        self._ended(session)
        if cancel:
            for owner, id_ in [key for key in self._running if key[0] == session]:
                self._cancel(owner, id_)

    async def _tell_all(self, what: object) -> None:
        if self._shared:
            await self.store.publish(ALL, encode(what))

    async def _send(self, instance: str, what: object) -> None:
        """Put a message into the inbox of another instance, if that is alive."""
        if await self._is_alive(instance):
            inbox = _inbox(instance)
            await self.store.append(inbox, encode(what), ttl=min(self.ttl, UNREAD))
            await self.poke(inbox)

    async def _is_alive(self, instance: str) -> bool:
        return self._shared and await self.store.get(_alive(instance)) is not None

    def _hold(self) -> None:
        """Keep the channels open while something goes on."""
        self._active += 1
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if not self._tasks or self._loop is not asyncio.get_running_loop():
            self._start()

    def _release(self) -> None:
        self._active -= 1
        if self._active == 0 and self._loop is not None:
            self._linger = self._loop.call_later(LINGER, self._stop)

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = [self._loop.create_task(self._refresh())]
        if self._shared:
            self._ready = self._loop.create_future()
            self._tasks.append(self._loop.create_task(self._listen(self._ready)))
            self._tasks.append(self._loop.create_task(self._beat()))

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        if self._ready is not None:
            self._ready.cancel()
        self._ready = None
        self._linger = None

    async def _connect(self) -> None:
        """Wait until messages of other instances arrive here, and until they can see that this one is alive."""
        await self.store.put(_alive(self.instance), b"", ttl=DEAD)
        if self._ready is not None:
            await asyncio.shield(self._ready)

    async def _listen(self, ready: "asyncio.Future[None]") -> None:
        """Receive what other instances send to this one."""
        wait = 0.1
        while True:
            try:
                async with (
                    following(self.store, _inbox(self.instance)) as wait_for_mail,
                    self.store.subscribe(ALL) as messages,
                ):
                    if not ready.done():
                        ready.set_result(None)
                    wait = 0.1
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._receive(wait_for_mail))
                        group.create_task(self._hear(messages))
            except* StoreError as faults:
                log.warning("instances cannot hear each other: %s", faults.exceptions[0])
            await asyncio.sleep(wait)
            wait = min(wait * 2, 5.0)

    async def _receive(self, wait_for_mail: Wait) -> None:
        """Read the inbox: whenever there is news of it, and now and then without, for news may get lost."""
        while True:
            for id_, data in await self.store.read(_inbox(self.instance), after=self._received):
                self._received = id_
                await self._heard(data)
            await wait_for_mail(BEAT)

    async def _hear(self, messages: AsyncIterator[bytes]) -> None:
        async for data in messages:
            await self._heard(data)

    async def _heard(self, data: bytes) -> None:
        try:
            await self._act_on(_decode(data))
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
            log.warning("another instance sent what this one does not understand")

    async def _act_on(self, what: Any) -> None:
        match what:
            case {"answer": [session, answer]}:
                self.pushes.answered(session, answer)
            case {"cancel": [session, id_]}:
                self._cancel(session, id_)
            case {"end": session}:
                self.end_here(session)
            case {"reads": [instance, session, stream]} if instance != self.instance:
                stop = self._readers.get(session, {}).get(stream)
                if stop is not None:
                    stop()
            case {"resumed": [name, reader]} if name in self._replies:
                await self._replies[name].give_way(reader)
            case {"left": name} if name in self._replies:
                self._replies[name].left()
            case _:
                pass

    async def _beat(self) -> None:
        """Show that this instance is alive."""
        while True:
            with contextlib.suppress(StoreError):
                await self.store.put(_alive(self.instance), b"", ttl=DEAD)
            await asyncio.sleep(BEAT)

    async def _refresh(self) -> None:
        """Keep streams alive, however long a user takes to answer."""
        while True:
            await asyncio.sleep(min(60.0, self.ttl / 3))
            with contextlib.suppress(StoreError):
                for reply in list(self._replies.values()):
                    await self._keep(reply)

    async def _keep(self, reply: ReplyStream) -> None:
        key = open_key(reply.session.id, reply.name)
        await self.store.put(key, encode(reply.id), ttl=self.ttl)
        if reply.name not in self._replies:
            await self.store.take(key)  # it has ended meanwhile
        elif reply.reader is not None and reply.reader != self.instance and not await self._is_alive(reply.reader):
            reply.left()


def owner_of(name: str) -> str:
    """The instance that a stream comes from."""
    return name.rpartition("-")[0]


def _inbox(instance: str) -> str:
    return f"antiphon:inbox:{instance}"


def _alive(instance: str) -> str:
    return f"antiphon:alive:{instance}"
