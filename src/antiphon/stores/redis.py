"""A store in a Redis server, which any number of machines share."""

import asyncio
import math
from asyncio import AbstractEventLoop, Future, Task, get_running_loop
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, cast

from antiphon.stores.redis_channels import Channels
from antiphon.stores.redis_server import RedisServer, packed
from antiphon.stores.store import StoreError, deadline, whole_limit

if TYPE_CHECKING:
    from redis.asyncio import ConnectionPool, Redis
    from redis.asyncio.connection import AbstractConnection

COMMANDS_AT_ONCE = 256
"""The most commands that are sent in one batch."""
LONGEST_TTL = 2.0**53 / 1000
"""Redis counts milliseconds since 1970 in 64 bits; this is 285,000 years."""
GREATEST = 2**64 - 1
"""The largest number in an id of Redis: twenty digits."""

# Scripts, since Redis has no single command for these: GETDEL came with 6.2, and XADD sets no expiry.
REPLACE = (
    b"if redis.call('GET', KEYS[1]) ~= ARGV[1] then return false end return redis.call('SET', KEYS[1], unpack(ARGV, 2))"
)
TAKE = b"local value = redis.call('GET', KEYS[1]) redis.call('DEL', KEYS[1]) return value"
APPEND = (
    b"local id = redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[1], '*', 'value', ARGV[2])"
    b" redis.call('PEXPIRE', KEYS[1], ARGV[3]) return id"
)


class RedisStore:
    """The store for several machines: claims hold between all that use one Redis server and one ``prefix``.

    It takes a URL (``redis://``, ``rediss://``, ``unix://``), or a ``redis.asyncio.Redis`` of your own, which it does
    not close. It needs Redis 5 or later. Commands given at the same time are sent as a batch, over at most
    ``connections`` connections; none is sent twice. All subscriptions of an event loop share one more connection,
    which is renewed when it breaks: messages published in between are lost.
    """

    def __init__(
        self,
        url: "str | Redis" = "redis://127.0.0.1:6379/0",
        *,
        prefix: str = "antiphon",
        timeout: float = 5.0,
        connections: int = 4,
    ) -> None:
        if not prefix:
            raise ValueError("prefix is empty; give the store one, which all its keys in Redis begin with")
        if connections < 1:
            raise ValueError(f"connections is {connections!r}; a store needs at least 1")
        self._url = url
        self._connections = connections
        pool = self._pool()
        self._server = RedisServer.of(pool, timeout)
        self._prefix = prefix
        self._keys = _encoded(f"{prefix}:key:")
        self._streams = _encoded(f"{prefix}:stream:")
        # Channels are common to all databases of a server, so their names include the database.
        self._channels = _encoded(f"{prefix}:channel:{pool.connection_kwargs.get('db') or 0}:")
        self._open: dict[AbstractEventLoop, _Open] = {}

    def __repr__(self) -> str:
        return f"RedisStore({self._server.address}, prefix={self._prefix!r})"

    async def get(self, key: str) -> bytes | None:
        return _maybe(await self._ask(b"GET", self._keys + _encoded(key)))

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        await self._ask(b"SET", self._keys + _encoded(key), value, *_expiry(ttl))

    async def add(
        self, key: str, value: bytes = b"", *, ttl: float | None = None, replacing: bytes | None = None
    ) -> bool:
        name = self._keys + _encoded(key)
        if replacing is None:
            return await self._ask(b"SET", name, value, b"NX", *_expiry(ttl)) is not None
        return await self._ask(b"EVAL", REPLACE, b"1", name, replacing, value, *_expiry(ttl)) is not None

    async def take(self, key: str) -> bytes | None:
        return _maybe(await self._ask(b"EVAL", TAKE, b"1", self._keys + _encoded(key)))

    async def publish(self, channel: str, message: bytes) -> None:
        await self._ask(b"PUBLISH", self._channels + _encoded(channel), message)

    @asynccontextmanager
    async def subscribe(self, channel: str) -> AsyncGenerator[AsyncIterator[bytes], None]:
        async with self._opened().channels.subscription(self._channels + _encoded(channel)) as messages:
            yield messages

    async def append(self, stream: str, value: bytes, *, limit: int = 1024, ttl: float | None = None) -> str:
        name = self._streams + _encoded(stream)
        kept = b"%d" % min(whole_limit(limit), 2**63 - 1)
        if ttl is None:
            made = await self._ask(b"XADD", name, b"MAXLEN", kept, b"*", b"value", value)
        else:
            made = await self._ask(b"EVAL", APPEND, b"1", name, kept, value, _milliseconds(ttl))
        assert isinstance(made, bytes)
        return _event_id(made)

    async def read(self, stream: str, *, after: str | None = None) -> list[tuple[str, bytes]]:
        start = b"-" if after is None else _following(after)
        events = await self._ask(b"XRANGE", self._streams + _encoded(stream), start, b"+")
        assert isinstance(events, list)
        return [(_event_id(made), value) for made, (_, value) in events]

    async def close(self) -> None:
        opened, self._open = self._open, {}
        here = get_running_loop()
        for loop, what in opened.items():
            if loop is here:
                await what.close()
            elif loop.is_running():
                # Connections are closed in the event loop they belong to; one that hangs must not hang this one.
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._server.timeout):
                        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(what.close(), loop))

    async def _ask(self, *command: bytes) -> object:
        return await self._opened().commands.ask(packed(command))

    def _opened(self) -> "_Open":
        loop = get_running_loop()
        opened = self._open.get(loop)
        if opened is None:
            for other in [other for other in self._open if other.is_closed()]:
                self._open.pop(other, None)
            pool = self._pool()
            opened = self._open[loop] = _Open(
                _Commands(pool, self._server, self._connections),
                Channels(pool, self._server),
                pool if isinstance(self._url, str) else None,
            )
        return opened

    def _pool(self) -> "ConnectionPool":
        try:
            from redis.asyncio import ConnectionPool, Redis  # 300 ms
            from redis.exceptions import RedisError
        except ImportError:
            raise ImportError("RedisStore needs the redis package: pip install 'antiphon[redis]'") from None
        if isinstance(self._url, Redis):
            return self._url.connection_pool
        if not isinstance(self._url, str):
            raise TypeError(f"RedisStore takes a URL or a redis.asyncio.Redis, not {type(self._url).__name__}")
        wrong = ""
        try:
            # An older Redis knows protocol 2 only. One time limit covers everything a command needs, so the
            # connection has none of its own.
            alive = {} if self._url.startswith("unix:") else {"socket_keepalive": True}
            pool = ConnectionPool.from_url(self._url, protocol=2, socket_timeout=None, **alive)
            pool.make_connection()  # type: ignore[no-untyped-call]  # redis gives it no types
        except TypeError:
            wrong = "has an option after the '?' that the redis package does not know"
        except (ValueError, RedisError):
            wrong = "cannot be understood"
        else:
            return pool
        # Show neither the URL nor the reason: both may contain the password.
        raise ValueError(
            f"the URL of Redis {wrong}; write redis://user:password@host:6379/0, rediss://... or"
            " unix:///path/to/socket, with %-escapes in the password"
        )


class _Open(NamedTuple):
    """What a store has open in one event loop."""

    commands: "_Commands"
    channels: "Channels"
    pool: "ConnectionPool | None"

    async def close(self) -> None:
        await self.channels.close()
        await self.commands.close()
        if self.pool is not None:
            with suppress(Exception):
                await self.pool.disconnect()


# --- commands ---


class _Commands:
    """Sends commands in batches: those given in one step of the event loop, or while all connections are busy.

    One command for each trip would cost 4 to 8 times the CPU time from eight concurrent callers on.
    """

    def __init__(self, pool: "ConnectionPool", server: "RedisServer", most: int) -> None:
        self._pool = pool
        self._server = server
        self._most = most
        self._waiting: deque[_Command] = deque()
        self._senders: set[Task[None]] = set()
        self._starting = False

    async def ask(self, packed: bytes) -> object:
        command = _Command(packed, get_running_loop().create_future())
        self._waiting.append(command)
        if not self._starting and len(self._senders) < self._most:
            self._starting = True
            sender = asyncio.create_task(self._send_all())
            self._senders.add(sender)
            sender.add_done_callback(self._end)
        return await command.reply

    async def close(self) -> None:
        if self._senders:
            await asyncio.wait(self._senders)

    async def _send_all(self) -> None:
        self._starting = False
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), COMMANDS_AT_ONCE))]
                # Skip commands whose caller was cancelled.
                if wanted := [command for command in batch if not command.reply.done()]:
                    await self._exchange(wanted)
        finally:
            # Here, not when the task is done: a command given in between would wait for a sender that has finished.
            self._senders.discard(cast("Task[None]", asyncio.current_task()))

    def _end(self, sender: "Task[None]") -> None:
        self._senders.discard(sender)
        if sender.cancelled():
            # The event loop is ending; the sender may not have started.
            self._starting = False
            while self._waiting:
                self._waiting.popleft().fail(StoreError(f"{self._server}: cancelled before the command was sent"))

    async def _exchange(self, batch: "list[_Command]") -> None:
        sent = False
        try:
            async with asyncio.timeout(self._server.timeout):
                connection: AbstractConnection = await self._pool.get_connection()  # type: ignore[no-untyped-call]  # redis gives it no types
                try:
                    sent = True
                    await connection.send_packed_command([command.packed for command in batch])
                    for command in batch:
                        await self._receive(connection, command)
                finally:
                    await self._pool.release(connection)
        except Exception as fault:  # noqa: BLE001 -- whatever it is, the callers that wait must get it
            for command in batch:
                command.fail(self._server.explained(fault, sent=sent))
        except BaseException:
            for command in batch:
                command.fail(StoreError(f"{self._server}: cancelled; the command may have been done or not"))
            raise

    async def _receive(self, connection: "AbstractConnection", command: "_Command") -> None:
        from redis.exceptions import ResponseError  # loaded with the pool

        try:
            reply = await connection.read_response(disable_decoding=True)
        except ResponseError as fault:
            command.fail(self._server.explained(fault))
        else:
            command.answer(reply)


class _Command(NamedTuple):
    packed: bytes
    reply: "Future[object]"

    def answer(self, reply: object) -> None:
        if not self.reply.done():
            self.reply.set_result(reply)

    def fail(self, fault: Exception) -> None:
        if not self.reply.done():
            self.reply.set_exception(fault)


# --- bytes ---


def _encoded(name: str) -> bytes:
    # A name may hold half of a surrogate pair.
    return name.encode("utf-8", "surrogatepass")


def _maybe(reply: object) -> bytes | None:
    assert reply is None or isinstance(reply, bytes)
    return reply


def _expiry(ttl: float | None) -> tuple[bytes, ...]:
    return () if ttl is None else (b"PX", _milliseconds(ttl))


def _milliseconds(ttl: float) -> bytes:
    """Round up: nothing may expire too early."""
    deadline(0, ttl)
    return b"%d" % math.ceil(min(ttl, LONGEST_TTL) * 1000)


def _event_id(made: bytes) -> str:
    """Pad both numbers to twenty digits, so that the ids sort as texts in the order of the events."""
    time, count = made.split(b"-")
    return f"{int(time):020d}-{int(count):020d}"


def _following(after: str) -> bytes:
    """Return the smallest id after the given one: ranges that exclude their start came with Redis 6.2."""
    time, dash, count = after[:20], after[20:21], after[21:]
    numbers = time + count
    formed = len(numbers) == 40 and dash == "-" and numbers.isascii() and numbers.isdigit()
    if not formed or max(int(time), int(count)) > GREATEST:
        raise ValueError(f"{after[:60]!r} is not the id of an event of this store")
    following = min((int(time) << 64) + int(count) + 1, (1 << 128) - 1)
    return b"%d-%d" % divmod(following, 1 << 64)
