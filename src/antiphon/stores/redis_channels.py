"""The subscriptions of a store in Redis, which share one connection."""

import asyncio
import logging
from asyncio import Event, Future, Task, get_running_loop
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from antiphon.stores.redis_server import RedisServer, packed
from antiphon.stores.store import StoreError, Subscribers, Subscription

if TYPE_CHECKING:
    from redis.asyncio import ConnectionPool
    from redis.asyncio.connection import AbstractConnection

log = logging.getLogger("antiphon")

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
"""Seconds between two attempts to reconnect for messages: doubling from the first to the longest."""


class _Entrant(NamedTuple):
    """A subscriber that waits for Redis to confirm its SUBSCRIBE."""

    subscription: Subscription
    confirmed: "Future[None]"


class Channels:
    """All subscriptions of one event loop, on one connection that is kept open while there are any.

    redis-py's PubSub does not serve here (8.1): it decodes messages if the user's client decodes replies, a subscriber
    cancelled while sending closes the connection of all, and a reading and a writing task cannot both reconnect.
    """

    def __init__(self, pool: "ConnectionPool", server: "RedisServer") -> None:
        self._pool = pool
        self._server = server
        self._task: Task[None] | None = None
        self._pause = 0.0
        self._lost = False
        self._subscriptions: Subscribers[bytes] = Subscribers()
        # To be sent: a SUBSCRIBE for each of these (None: for those subscribed before a reconnect), and an UNSUBSCRIBE
        # for each channel whose last subscriber has left.
        self._news = Event()
        self._entering: list[tuple[bytes, _Entrant | None]] = []
        self._left: set[bytes] = set()
        # Sent on this connection, in the order in which Redis confirms.
        self._asked: deque[tuple[bytes, _Entrant | None]] = deque()

    @asynccontextmanager
    async def subscription(self, channel: bytes) -> AsyncGenerator[AsyncIterator[bytes], None]:
        subscription = Subscription()
        try:
            await self._enter(channel, subscription)
            yield subscription
        finally:
            subscription.end()
            self._subscriptions.remove(channel, subscription)
            self._unsubscribe_unused(channel)

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._subscriptions.end()
        self._refuse(f"{self._server}: the store was closed while subscribing")

    async def _enter(self, channel: bytes, subscription: Subscription) -> None:
        confirmed: Future[None] = get_running_loop().create_future()
        self._entering.append((channel, _Entrant(subscription, confirmed)))
        self._news.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._stay_connected())
        try:
            async with asyncio.timeout(self._server.timeout):
                await confirmed
        except TimeoutError as fault:
            raise self._server.explained(fault) from None

    def _unsubscribe_unused(self, channel: bytes) -> None:
        if channel not in self._subscriptions:
            self._left.add(channel)
            self._news.set()

    def _confirm(self) -> None:
        """Let in the subscriber whose SUBSCRIBE Redis has confirmed."""
        channel, entrant = self._asked.popleft()
        if entrant is not None and not entrant.confirmed.done():
            self._subscriptions.add(channel, entrant.subscription)
            entrant.confirmed.set_result(None)
        self._unsubscribe_unused(channel)
        self._pause = 0.0
        if self._lost and not self._asked and not self._entering:
            self._lost = False
            log.info("%s: the connection for messages is back", self._server)

    def _refuse(self, reason: str) -> None:
        """Fail all subscribers that are not confirmed."""
        for _, entrant in (*self._asked, *self._entering):
            if entrant is not None and not entrant.confirmed.done():
                entrant.confirmed.set_exception(StoreError(reason))
        self._asked.clear()
        self._entering.clear()

    def _start_over(self) -> None:
        """Forget what was sent: a new connection needs a SUBSCRIBE for every channel."""
        waiting = [(channel, entrant) for channel, entrant in (*self._asked, *self._entering) if entrant is not None]
        self._asked.clear()
        self._left.clear()
        self._entering = [*((channel, None) for channel in self._subscriptions), *waiting]
        self._news.set()

    async def _stay_connected(self) -> None:
        while self._subscriptions or self._entering:
            await self._converse()
            self._start_over()
            if self._entering:
                await asyncio.sleep(self._pause)
                self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
        self._pause = 0.0

    async def _converse(self) -> None:
        """Connect, then send and receive until that fails."""
        from redis.exceptions import ResponseError  # loaded with the pool

        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]  # redis gives it no types
        connected = False
        try:
            async with asyncio.timeout(self._server.timeout):
                await connection.connect()  # type: ignore[no-untyped-call]  # redis gives it no types
            connected = True
            connection.socket_timeout = None
            async with asyncio.TaskGroup() as talk:
                talk.create_task(self._receive(connection))
                talk.create_task(self._send(connection))
        except Exception as fault:  # noqa: BLE001 -- whatever it is, the subscribers that wait must get it
            first = fault.exceptions[0] if isinstance(fault, ExceptionGroup) else fault
            reason = str(self._server.explained(first))
            # Subscribers that wait while a connection breaks are served by the next one.
            if not connected or isinstance(first, ResponseError):
                self._refuse(reason)
            if self._subscriptions and not self._lost:
                self._lost = True
                log.warning("%s; messages are lost until the connection is back", reason)
        finally:
            with suppress(Exception):
                await connection.disconnect(nowait=True)

    async def _receive(self, connection: "AbstractConnection") -> None:
        while True:
            heard = await connection.read_response(disable_decoding=True, disconnect_on_error=False, push_request=True)
            assert isinstance(heard, list)
            kind, channel, content = heard
            if kind == b"message":
                for subscription in self._subscriptions.get(channel, ()):
                    subscription.deliver(content)
            elif kind == b"subscribe":
                self._confirm()

    async def _send(self, connection: "AbstractConnection") -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            waiting = {channel for channel, _ in (*self._asked, *self._entering)}
            unused = [channel for channel in self._left - waiting if channel not in self._subscriptions]
            commands = [packed((b"UNSUBSCRIBE", channel)) for channel in unused]
            commands += [packed((b"SUBSCRIBE", channel)) for channel, _ in self._entering]
            self._left.clear()
            self._asked += self._entering
            self._entering = []
            if commands:
                await connection.send_packed_command(commands, check_health=False)
