"""A store in a file that several processes on one machine share."""

import math
import os
import threading
import time
from asyncio import get_running_loop, shield, sleep
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeVar

from antiphon.stores.store import StoreError, deadline, event_id, event_number, whole_limit

if TYPE_CHECKING:
    from sqlite3 import Connection, Error

T = TypeVar("T")

POLL_SECONDS = 0.02
"""Seconds between two looks of a subscriber for messages."""
MESSAGE_SECONDS = 60.0
"""Seconds that a message stays for subscribers that have not looked yet."""
SWEEP_SECONDS = 30.0
"""Seconds between two sweeps, in which a write deletes what has expired."""
SWEPT_AT_ONCE = 1000
STREAMS_SWEPT_AT_ONCE = 16
"""The most that one write deletes, so that no writer waits long."""

APPLICATION_ID = 0x416E7470  # "Antp", to recognise our files
SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE entry (key TEXT PRIMARY KEY, value BLOB NOT NULL, ends REAL) WITHOUT ROWID;
CREATE INDEX entry_ends ON entry (ends) WHERE ends IS NOT NULL;
CREATE TABLE stream (name TEXT PRIMARY KEY, ends REAL) WITHOUT ROWID;
CREATE INDEX stream_ends ON stream (ends) WHERE ends IS NOT NULL;
CREATE TABLE event (id INTEGER PRIMARY KEY AUTOINCREMENT, stream TEXT NOT NULL, value BLOB NOT NULL);
CREATE INDEX event_stream ON event (stream, id);
CREATE TABLE message (
    id INTEGER PRIMARY KEY AUTOINCREMENT, channel TEXT NOT NULL, value BLOB NOT NULL, ends REAL NOT NULL
);
CREATE INDEX message_channel ON message (channel, id);
CREATE INDEX message_ends ON message (ends);
"""

# Closing any handle of a file drops all locks that this process holds on it (POSIX), those of another store's
# connection too. So a file is created under this lock, and only SQLite opens it afterwards.
_creating = threading.Lock()


class SQLiteStore:
    """The store for several processes on one machine: claims hold between them, and outlive them.

    One thread does all work on the file, so the event loop never waits for the disk. Subscriptions poll: each looks for
    messages every 20 ms, and one that is not read for a minute raises StoreError, since it has missed some. A writer
    waits up to ``timeout`` seconds for the others. Put the file on a local disk, not on a network share; use the store
    after a fork, not across one.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time, timeout: float = 5.0
    ) -> None:
        self._path = os.fspath(path)
        if self._path in ("", ":memory:"):
            raise ValueError(f"{self._path!r} is not a file that processes can share; for memory use MemoryStore")
        self._clock = clock
        self._timeout = timeout
        self._database: _Database | None = None

    async def get(self, key: str) -> bytes | None:
        return await self._opened().read(lambda rows, now: _value(rows, key, now))

    async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
        def put(rows: "Connection", now: float) -> None:
            rows.execute(
                "INSERT INTO entry VALUES (?, ?, ?)"
                " ON CONFLICT (key) DO UPDATE SET value = excluded.value, ends = excluded.ends",
                (key, value, deadline(now, ttl)),
            )

        await self._opened().write(put)

    async def add(
        self, key: str, value: bytes = b"", *, ttl: float | None = None, replacing: bytes | None = None
    ) -> bool:
        def add(rows: "Connection", now: float) -> bool:
            added = rows.execute(
                "INSERT INTO entry VALUES (?, ?, ?) ON CONFLICT (key)"
                " DO UPDATE SET value = excluded.value, ends = excluded.ends WHERE entry.ends <= ?",
                (key, value, deadline(now, ttl), now),
            )
            return added.rowcount == 1

        def replace(rows: "Connection", now: float) -> bool:
            replaced = rows.execute(
                "UPDATE entry SET value = ?, ends = ? WHERE key = ? AND value = ? AND (ends IS NULL OR ends > ?)",
                (value, deadline(now, ttl), key, replacing, now),
            )
            return replaced.rowcount == 1

        return await self._opened().write(add if replacing is None else replace)

    async def take(self, key: str) -> bytes | None:
        def take(rows: "Connection", now: float) -> bytes | None:
            value = _value(rows, key, now)
            rows.execute("DELETE FROM entry WHERE key = ?", (key,))
            return value

        return await self._opened().write(take)

    async def publish(self, channel: str, message: bytes) -> None:
        def publish(rows: "Connection", now: float) -> None:
            rows.execute(
                "INSERT INTO message (channel, value, ends) VALUES (?, ?, ?)",
                (channel, message, now + MESSAGE_SECONDS),
            )

        await self._opened().write(publish)

    @asynccontextmanager
    async def subscribe(self, channel: str) -> AsyncGenerator[AsyncIterator[bytes], None]:
        subscription = _PolledSubscription(self._opened(), channel)
        await subscription.begin()
        try:
            yield subscription
        finally:
            subscription.end()

    async def append(self, stream: str, value: bytes, *, limit: int = 1024, ttl: float | None = None) -> str:
        def append(rows: "Connection", now: float) -> int:
            _drop_stream(rows, stream, now)
            rows.execute(
                "INSERT INTO stream VALUES (?, ?)"
                " ON CONFLICT (name) DO UPDATE SET ends = coalesce(excluded.ends, ends)",
                (stream, deadline(now, ttl)),
            )
            added = rows.execute("INSERT INTO event (stream, value) VALUES (?, ?)", (stream, value)).lastrowid
            rows.execute(
                "DELETE FROM event WHERE stream = :stream AND id <="
                " (SELECT id FROM event WHERE stream = :stream ORDER BY id DESC LIMIT 1 OFFSET :limit)",
                {"stream": stream, "limit": whole_limit(limit)},
            )
            return added or 0

        return event_id(await self._opened().write(append))

    async def read(self, stream: str, *, after: str | None = None) -> list[tuple[str, bytes]]:
        last = 0 if after is None else event_number(after)

        def read(rows: "Connection", now: float) -> list[tuple[str, bytes]]:
            found = rows.execute(
                "SELECT id, value FROM event WHERE stream = :stream AND id > :last"
                " AND NOT EXISTS (SELECT 1 FROM stream WHERE name = :stream AND ends <= :now) ORDER BY id",
                {"stream": stream, "last": last, "now": now},
            )
            return [(event_id(number), value) for number, value in found]

        return await self._opened().read(read)

    async def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            await database.close()

    def _opened(self) -> "_Database":
        if self._database is None:
            self._database = _Database(self._path, self._clock, self._timeout)
        return self._database


class _Database:
    """The file, and the thread that runs all jobs on it in order."""

    def __init__(self, path: str, clock: Callable[[], float], timeout: float) -> None:
        from concurrent.futures import ThreadPoolExecutor  # only where a file is opened

        self.path = path
        self.clock = clock
        self.closed = False
        self._timeout = timeout
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="antiphon-sqlite")
        self._connection: Connection | None = None
        self._sweep_at = -math.inf

    async def read(self, job: "Callable[[Connection, float], T]") -> T:
        return await self._in_thread(lambda rows: job(rows, self.clock()))

    async def write(self, job: "Callable[[Connection, float], T]") -> T:
        return await self._in_thread(lambda rows: self._transaction(rows, job))

    async def close(self) -> None:
        self.closed = True
        closing = get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)
        await shield(closing)
        self._thread.shutdown(wait=True)

    async def _in_thread(self, job: "Callable[[Connection], T]") -> T:
        return await get_running_loop().run_in_executor(self._thread, self._perform, job)

    def _perform(self, job: "Callable[[Connection], T]") -> T:
        with _explained(self.path):
            if self._connection is None:
                self._connection = _connected(self.path, self._timeout)
            return job(self._connection)

    def _transaction(self, rows: "Connection", job: "Callable[[Connection, float], T]") -> T:
        with rows:
            rows.execute("BEGIN IMMEDIATE")
            # Read the clock under the lock: waiting for the lock may have taken seconds.
            now = self.clock()
            result = job(rows, now)
            if now >= self._sweep_at and not _sweep(rows, now):
                self._sweep_at = now + SWEEP_SECONDS
            return result

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _PolledSubscription:
    """The messages of a channel since `begin`."""

    def __init__(self, database: _Database, channel: str) -> None:
        self._database = database
        self._channel = channel
        self._messages: deque[bytes] = deque()
        self._last = 0
        self._looked = 0.0
        self._ended = False

    async def begin(self) -> None:
        self._last, self._looked = await self._database.read(
            lambda rows, now: (rows.execute("SELECT coalesce(max(id), 0) FROM message").fetchone()[0], now)
        )

    def end(self) -> None:
        self._ended = True
        self._messages.clear()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._messages:
            if self._ended or self._database.closed:
                raise StopAsyncIteration
            if not await self._look():
                await sleep(POLL_SECONDS)
        return self._messages.popleft()

    async def _look(self) -> bool:
        found, now = await self._database.read(lambda rows, now: (_messages(rows, self._channel, self._last), now))
        silence, self._looked = now - self._looked, now
        if silence >= MESSAGE_SECONDS:
            raise StoreError(
                f"{self._database.path}: a subscriber of {self._channel!r} did not look for {silence:.0f} s; messages"
                f" stay for {MESSAGE_SECONDS:.0f} s, so some may be lost: read more often, or subscribe again"
            )
        for number, message in found:
            self._last = number
            self._messages.append(message)
        return bool(found)


# --- rows ---


def _value(rows: "Connection", key: str, now: float) -> bytes | None:
    found = rows.execute("SELECT value FROM entry WHERE key = ? AND (ends IS NULL OR ends > ?)", (key, now)).fetchone()
    return found[0] if found else None


def _messages(rows: "Connection", channel: str, last: int) -> list[tuple[int, bytes]]:
    return rows.execute(
        "SELECT id, value FROM message WHERE channel = ? AND id > ? ORDER BY id LIMIT 1000", (channel, last)
    ).fetchall()


def _drop_stream(rows: "Connection", stream: str, now: float) -> None:
    """Delete the stream if it has expired."""
    if rows.execute("DELETE FROM stream WHERE name = ? AND ends <= ?", (stream, now)).rowcount:
        rows.execute("DELETE FROM event WHERE stream = ?", (stream,))


def _sweep(rows: "Connection", now: float) -> bool:
    """Delete what has expired, up to a limit; return whether there may be more."""
    swept = rows.execute(
        "DELETE FROM entry WHERE key IN (SELECT key FROM entry WHERE ends <= ? LIMIT ?)", (now, SWEPT_AT_ONCE)
    ).rowcount
    swept += rows.execute(
        "DELETE FROM message WHERE id IN (SELECT id FROM message WHERE ends <= ? LIMIT ?)", (now, SWEPT_AT_ONCE)
    ).rowcount
    streams = rows.execute("SELECT name FROM stream WHERE ends <= ? LIMIT ?", (now, STREAMS_SWEPT_AT_ONCE)).fetchall()
    for (stream,) in streams:
        _drop_stream(rows, stream, now)
    return swept >= SWEPT_AT_ONCE or len(streams) == STREAMS_SWEPT_AT_ONCE


# --- the file ---


def _connected(path: str, timeout: float) -> "Connection":
    import sqlite3  # 10 ms

    _create(path)
    rows = sqlite3.connect(path, timeout=timeout, isolation_level=None)
    try:
        with rows:
            # One transaction: another process may be creating the schema.
            rows.execute("BEGIN")
            _recognise(rows, path)
        _share(rows, timeout)
        with rows:
            rows.execute("BEGIN IMMEDIATE")
            if not _recognise(rows, path):
                _make_schema(rows)
    except BaseException:
        rows.close()
        raise
    return rows


def _create(path: str) -> None:
    """Create the file, readable by its owner only; SQLite gives its other files the same mode."""
    with _creating:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            return


def _recognise(rows: "Connection", path: str) -> bool:
    """Return whether the file is a store; False if it is empty. Raise StoreError if it is something else."""
    (owner,) = rows.execute("PRAGMA application_id").fetchone()
    (version,) = rows.execute("PRAGMA user_version").fetchone()
    (tables,) = rows.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if (owner, version, tables) == (0, 0, 0):
        return False
    if owner != APPLICATION_ID:
        raise StoreError(f"{path}: is the database of another program; give the store a path of its own")
    if version != SCHEMA_VERSION:
        raise StoreError(
            f"{path}: has layout {version}, and this version of antiphon knows {SCHEMA_VERSION};"
            " upgrade all processes that share it, or use another path"
        )
    return True


def _share(rows: "Connection", timeout: float) -> None:
    """Let readers and a writer work at the same time."""
    from sqlite3 import OperationalError

    patience = time.monotonic() + timeout
    while True:
        try:
            rows.execute("PRAGMA journal_mode = WAL")
            break
        except OperationalError as error:
            # SQLite does not wait for the lock that changing the mode needs.
            if not _is_locked(error) or time.monotonic() >= patience:
                raise
            time.sleep(0.005)
    rows.execute("PRAGMA synchronous = NORMAL")


def _make_schema(rows: "Connection") -> None:
    for statement in SCHEMA.split(";"):
        rows.execute(statement)
    rows.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    rows.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


@contextmanager
def _explained(path: str) -> Generator[None, None, None]:
    from sqlite3 import Error  # 10 ms

    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: cannot be made: {error.strerror}") from error
    except Error as error:
        raise StoreError(f"{path}: {_explanation(error)}") from error


def _explanation(error: "Error") -> str:
    name = getattr(error, "sqlite_errorname", "")
    if _is_locked(error):
        return "another process kept it locked for too long; wait for it to finish, or give the store a longer timeout"
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return f"is damaged or not a database ({error}); move it away, and the next use makes a new one"
    if name.startswith("SQLITE_CANTOPEN"):
        return "cannot be opened; check that it is a file and that this process may read and write it"
    return str(error)


def _is_locked(error: "Error") -> bool:
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
