import asyncio
import contextlib
import gc
import os
import sqlite3
import stat
import sys
import threading
import time
import unicodedata
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import AntiphonError
from antiphon.stores import MemoryStore, SQLiteStore, Store, StoreError
from antiphon.stores import sqlite as sqlite_module
from antiphon.testing import contracts
from antiphon.testing.contracts import check_store
from examples import examples


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    made = MemoryStore(clock=clock) if request.param == "memory" else SQLiteStore(tmp_path / "s.db", clock=clock)
    yield made
    await made.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


# --- the contract ---


async def test_a_memory_store_keeps_the_contract():
    await check_store(MemoryStore)


async def test_an_sqlite_store_keeps_the_contract(tmp_path: Path):
    await check_store(lambda: SQLiteStore(tmp_path / "s.db"))


async def test_a_store_may_be_made_asynchronously():
    made: list[Store] = []

    async def make() -> Store:
        made.append(MemoryStore())
        return made[-1]

    await check_store(make)
    assert made


def test_both_stores_have_the_interface(tmp_path: Path):
    memory: Store = MemoryStore()
    sqlite: Store = SQLiteStore(tmp_path / "s.db")
    assert isinstance(memory, Store)
    assert isinstance(sqlite, Store)


class RacyAdd(MemoryStore):
    async def add(self, key, value=b"", *, ttl=None, replacing=None):
        free = await self.get(key) == replacing
        await asyncio.sleep(0)
        if free:
            await self.put(key, value, ttl=ttl)
        return free


class RacyTake(MemoryStore):
    async def take(self, key):
        value = await self.get(key)
        await asyncio.sleep(0)
        await super().take(key)
        return value


class ReplacesAnything(MemoryStore):
    async def add(self, key, value=b"", *, ttl=None, replacing=None):
        held = None if replacing is None else await self.get(key)
        return await super().add(key, value, ttl=ttl, replacing=held)


class ReplacesNothing(MemoryStore):
    async def add(self, key, value=b"", *, ttl=None, replacing=None):
        return replacing is None and await super().add(key, value, ttl=ttl)


class ReplacesWhatIsFree(MemoryStore):
    async def add(self, key, value=b"", *, ttl=None, replacing=None):
        held = None if await self.get(key) is None else replacing
        return await super().add(key, value, ttl=ttl, replacing=held)


class OverwritingAdd(MemoryStore):
    async def add(self, key, value=b"", *, ttl=None, replacing=None):
        added = await super().add(key, value, ttl=ttl, replacing=replacing)
        await self.put(key, value, ttl=ttl)
        return added


class Everlasting(MemoryStore):
    async def put(self, key, value, *, ttl=None):
        await super().put(key, value)


class EverlastingStreams(MemoryStore):
    async def append(self, stream, value, *, limit=1024, ttl=None):
        return await super().append(stream, value, limit=limit)


class ForgetsTheTtl(MemoryStore):
    async def append(self, stream, value, *, limit=1024, ttl=None):
        return await super().append(stream, value, limit=limit, ttl=ttl or 600)


class WholeSeconds(MemoryStore):
    async def put(self, key, value, *, ttl=None):
        if ttl is None or int(ttl):
            await super().put(key, value, ttl=ttl)


class TtlOnceOnly(MemoryStore):
    def __init__(self):
        super().__init__()
        self.ttls = {}

    async def put(self, key, value, *, ttl=None):
        await super().put(key, value, ttl=self.ttls.setdefault(key, ttl))


class NoEmptyValues(MemoryStore):
    async def get(self, key):
        return await super().get(key) or None


class TextOnly(MemoryStore):
    async def put(self, key, value, *, ttl=None):
        await super().put(key, value.decode(errors="replace").encode(), ttl=ttl)


class Folding(MemoryStore):
    fold: Callable[[str], str] = str

    async def get(self, key):
        return await super().get(type(self).fold(key))

    async def put(self, key, value, *, ttl=None):
        await super().put(type(self).fold(key), value, ttl=ttl)


class OneCase(Folding):
    fold = str.lower


class Normalising(Folding):
    fold = lambda key: unicodedata.normalize("NFC", key)


class ShortKeys(Folding):
    fold = lambda key: key[:250]


class UnpaddedIds(MemoryStore):
    async def append(self, stream, value, *, limit=1024, ttl=None):
        return str(int(await super().append(stream, value, limit=limit, ttl=ttl)))

    async def read(self, stream, *, after=None):
        events = await super().read(stream, after=after and after.zfill(19))
        return [(str(int(made)), value) for made, value in events]


class AfterIncluded(MemoryStore):
    async def read(self, stream, *, after=None):
        return [event for event in await super().read(stream) if after is None or event[0] >= after]


class OneTooMany(MemoryStore):
    async def append(self, stream, value, *, limit=1024, ttl=None):
        return await super().append(stream, value, limit=limit + 1, ttl=ttl)


class NewestFirst(MemoryStore):
    async def read(self, stream, *, after=None):
        return (await super().read(stream, after=after))[::-1]


class Trusting(MemoryStore):
    async def read(self, stream, *, after=None):
        with contextlib.suppress(ValueError):
            return await super().read(stream, after=after)
        return []


class OneRoom(MemoryStore):
    async def append(self, stream, value, *, limit=1024, ttl=None):
        await self.put(stream, value)
        return await super().append(stream, value, limit=limit, ttl=ttl)


class OneChannel(MemoryStore):
    async def publish(self, channel, message):
        await super().publish("all", message)

    def subscribe(self, channel):
        return super().subscribe("all")


class FirstComeOnly(MemoryStore):
    async def publish(self, channel, message):
        for subscription in self._subscriptions.get(channel, ())[:1]:
            subscription.deliver(message)


class LastInFirstOut(MemoryStore):
    async def publish(self, channel, message):
        for subscription in self._subscriptions.get(channel, ()):
            subscription.deliver(message)
            subscription._messages.rotate()


class Mute(MemoryStore):
    async def publish(self, channel, message):
        pass


class Replaying(MemoryStore):
    def __init__(self):
        super().__init__()
        self.sent = {}

    async def publish(self, channel, message):
        self.sent.setdefault(channel, []).append(message)
        await super().publish(channel, message)

    @contextlib.asynccontextmanager
    async def subscribe(self, channel):
        async with super().subscribe(channel) as messages:
            for message in self.sent.get(channel, ()):
                messages.deliver(message)
            yield messages


class Clinging(MemoryStore):
    @contextlib.asynccontextmanager
    async def subscribe(self, channel):
        yield await super().subscribe(channel).__aenter__()


class DeafToClosing(MemoryStore):
    async def close(self):
        pass


class Raising(MemoryStore):
    async def take(self, key):
        raise KeyError(key)


class Hanging(MemoryStore):
    async def take(self, key):
        await asyncio.Event().wait()


class ClosesOnce(MemoryStore):
    closed = False

    async def close(self):
        if self.closed:
            raise RuntimeError("closed twice")
        self.closed = True
        await super().close()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (RacyAdd, "add() is True for exactly one of 50 tasks; here it was for 50."),
        (RacyAdd, "add() that replaces a value is True for exactly one of 50 tasks; here it was for 50."),
        (ReplacesAnything, "add() replaces no value but the one it is given."),
        (ReplacesNothing, "add() replaces the value that it is given."),
        (ReplacesWhatIsFree, "add() that is to replace a value leaves a free key free."),
        (RacyTake, "take() gives the value to exactly one of 50 tasks; here 50 got it."),
        (OverwritingAdd, "add() leaves a key that is taken as it is."),
        (Everlasting, "What put() stored with a ttl is gone when that time is over."),
        (EverlastingStreams, "What append() stored with a ttl is gone when that time is over."),
        (
            WholeSeconds,
            "Nothing expires before its ttl; of put, add and append only ['add', 'append'] was still there.",
        ),
        (TtlOnceOnly, "put() without a ttl keeps the value for good, whatever ttl it had before."),
        (TtlOnceOnly, "put() with a ttl counts from the start, whatever ttl the value had before."),
        (NoEmptyValues, "put(), get() and take() carry an empty value unchanged."),
        (TextOnly, "put(), get() and take() carry every byte unchanged."),
        (OneCase, "Keys that differ in any character are different keys; 'a' (1 long) is not."),
        (Normalising, "Keys that differ in any character are different keys; 'é' (1 long) is not."),
        (ShortKeys, "Keys that differ in any character are different keys; 'kkkkkkkkkkkk' (2001 long) is not."),
        (UnpaddedIds, "append() returns ids of which each, as text, sorts after the one before."),
        (AfterIncluded, "read() with `after` returns exactly the events after that one."),
        (OneTooMany, "append() keeps exactly the newest `limit` events."),
        (NewestFirst, "read() returns the events of the stream with the ids that append() returned, oldest first."),
        (Trusting, "read() raises a ValueError for an `after` such as 'no id', for clients send it."),
        (OneRoom, "A key is apart from a stream and a channel of the same name."),
        (OneChannel, "Each subscriber gets each message of its channel once, and no other."),
        (FirstComeOnly, "Each subscriber gets each message of its channel once, and no other."),
        (LastInFirstOut, "Messages arrive in the order in which they were published."),
        (Mute, "A message reaches a subscriber who was waiting for it."),
        (Replaying, "A subscriber gets no message from before it subscribed."),
        (Clinging, "Leaving a subscription ends it: no message, and no waiting."),
        (DeafToClosing, "close() ends the subscriptions that are open."),
        (Raising, "The check of claims ended with KeyError("),
        (Hanging, "The check of claims did not finish within"),
        (ClosesOnce, "The check of values ended with RuntimeError('closed twice')."),
    ],
    ids=lambda part: part.__name__ if isinstance(part, type) else "",
)
async def test_the_contract_finds_a_broken_store(
    wrong: Callable[[], Store], sentence: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(contracts, "PATIENCE", 0.1)
    with pytest.raises(AssertionError) as broken:
        await check_store(wrong)
    assert any(line.startswith(sentence) for line in str(broken.value).splitlines()), broken.value


# --- what both stores do ---


async def test_a_value_expires_exactly_when_its_time_is_over(store: Store, clock: Clock):
    await store.put("key", b"x", ttl=10)
    await store.add("claim", ttl=10)
    await store.append("stream", b"x", ttl=10)
    await store.append("stream", b"y")
    clock.now = 1009.999
    assert await store.get("key") == b"x"
    assert not await store.add("claim")
    assert len(await store.read("stream")) == 2
    clock.now = 1010
    assert await store.get("key") is None
    assert await store.take("key") is None
    assert await store.add("claim")
    assert await store.read("stream") == []


@pytest.mark.parametrize("ttl", [0, -1, float("nan"), float("inf")])
async def test_a_ttl_that_is_no_time_is_refused(store: Store, ttl: float):
    with pytest.raises(ValueError, match=r"ttl is .* must be a positive number of seconds"):
        await store.put("key", b"", ttl=ttl)


async def test_a_made_up_event_id_is_refused(store: Store):
    for after in ["", "1", "-000000000000000001", "9" * 19, "x" * 10_000, "\u0660" * 19]:
        with pytest.raises(ValueError, match=r"is not the id of an event of this store$"):
            await store.read("stream", after=after)


def test_a_store_serves_one_event_loop_after_another(tmp_path: Path):
    async def use(store: Store, number: int) -> None:
        async with store.subscribe("channel") as messages:
            await store.publish("channel", b"%d" % number)
            assert await anext(messages) == b"%d" % number
        assert await store.add(f"key-{number}")
        assert not await store.add("key-0")

    for store in (MemoryStore(), SQLiteStore(tmp_path / "s.db")):
        asyncio.run(store.put("key-0", b"x"))
        for number in (1, 2, 3):
            asyncio.run(use(store, number))
        asyncio.run(store.close())


async def test_a_closed_store_keeps_what_it_holds(store: Store):
    await store.put("key", b"x")
    await store.close()
    await store.close()
    assert await store.get("key") == b"x"


STEPS = st.one_of(
    st.tuples(st.just("get"), st.sampled_from("ab")),
    st.tuples(st.just("take"), st.sampled_from("ab")),
    st.tuples(st.just("put"), st.sampled_from("ab"), st.binary(max_size=3), st.sampled_from([None, 1.0, 5.0])),
    st.tuples(st.just("add"), st.sampled_from("ab"), st.binary(max_size=3), st.sampled_from([None, 1.0, 5.0])),
    st.tuples(st.just("append"), st.sampled_from("ab"), st.integers(1, 3), st.sampled_from([None, 1.0, 5.0])),
    st.tuples(st.just("read"), st.sampled_from("ab"), st.integers(0, 4)),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 40.0])),
)


async def outcome(store: Store, step: tuple, ids: list[str]) -> object:
    match step:
        case "get", key:
            return await store.get(key)
        case "take", key:
            return await store.take(key)
        case "put", key, value, ttl:
            return await store.put(key, value, ttl=ttl)
        case "add", key, value, ttl:
            return await store.add(key, value, ttl=ttl)
        case "append", stream, limit, ttl:
            ids.append(await store.append(stream, b"%d" % len(ids), limit=limit, ttl=ttl))
            return len(ids)
        case "read", stream, back:
            return [value for _, value in await store.read(stream, after=ids[-back] if 0 < back <= len(ids) else None)]
    raise AssertionError(step)


@examples(60)
@given(st.lists(STEPS, max_size=30))
def test_both_stores_tell_the_same_story(steps: list[tuple]):
    async def tell(directory: str) -> None:
        clock = Clock()
        memory, sqlite = MemoryStore(clock=clock), SQLiteStore(Path(directory) / "s.db", clock=clock)
        memory_ids: list[str] = []
        sqlite_ids: list[str] = []
        for step in steps:
            if step[0] == "wait":
                clock.now += step[1]
                continue
            assert await outcome(memory, step, memory_ids) == await outcome(sqlite, step, sqlite_ids), step
        await sqlite.close()

    with TemporaryDirectory() as directory:
        asyncio.run(tell(directory))


# --- memory ---


async def test_expired_entries_are_dropped_by_later_writes(clock: Clock):
    store = MemoryStore(clock=clock)
    for number in range(1000):
        await store.put(f"old-{number}", b"x", ttl=10)
        await store.append(f"old-{number}", b"x", ttl=10)
    assert len(store) == 2000
    clock.now += 10
    for number in range(500):
        await store.put(f"new-{number}", b"x", ttl=10)
        await store.append(f"new-{number}", b"x", ttl=10)
    assert len(store) == 1000


async def test_one_write_does_not_pay_for_all_that_expired(clock: Clock):
    store = MemoryStore(clock=clock)
    for number in range(1000):
        await store.put(f"old-{number}", b"x", ttl=10)
    clock.now += 10
    await store.put("new", b"x")
    assert len(store) > 960


async def test_a_full_store_refuses_more_rather_than_forget_a_claim(clock: Clock):
    store = MemoryStore(clock=clock, max_entries=3)
    assert [await store.add(key, ttl=10) for key in "abc"] == [True] * 3
    with pytest.raises(StoreError, match="the store is full: it holds 3 entries"):
        await store.add("d", ttl=10)
    await store.put("a", b"may change")
    assert await store.get("a") == b"may change"
    clock.now += 10
    assert await store.add("d", ttl=10)
    assert await store.get("a") == b"may change"


async def test_renewing_one_key_forever_takes_no_memory(clock: Clock):
    store = MemoryStore(clock=clock)
    for _ in range(10_000):
        await store.put("session", b"x", ttl=3600)
        clock.now += 0.001
    assert len(store._values._ends) < 100
    clock.now += 3600
    await store.put("other", b"x")
    assert len(store) == 1


async def test_nothing_remains_of_a_subscriber_who_left():
    store = MemoryStore()
    async with store.subscribe("a"), store.subscribe("a"):
        pass
    assert store._subscriptions == {}


# --- sqlite ---


def files_open(directory: Path) -> list[Path]:
    handles = [handle for handle in Path("/proc/self/fd").iterdir() if handle.is_symlink()]
    return [target for handle in handles if (target := handle.readlink()).parent == directory]


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def modes_in(directory: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}


def store_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("antiphon-sqlite")]


async def ended(threads: Callable[[], list[str]]) -> bool:
    """Wait at most five seconds for threads to end; there is no event for that."""
    patience = time.monotonic() + 5
    while threads() and time.monotonic() < patience:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    return not threads()


async def test_a_store_that_was_never_used_touches_nothing(tmp_path: Path):
    store = SQLiteStore(tmp_path / "s.db")
    await store.close()
    assert names_in(tmp_path) == []
    assert store_threads() == []


async def test_one_thread_does_all_the_work_and_ends_with_it(tmp_path: Path):
    store = SQLiteStore(tmp_path / "s.db")
    await asyncio.gather(*(store.add("key") for _ in range(20)))
    assert len(store_threads()) == 1
    await store.close()
    assert store_threads() == []
    assert names_in(tmp_path) == ["s.db"]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to see open files")
async def test_no_file_stays_open(tmp_path: Path):
    store = SQLiteStore(tmp_path / "s.db")
    await store.put("key", b"x")
    assert files_open(tmp_path) != []
    await store.close()
    assert files_open(tmp_path) == []
    broken = SQLiteStore(broken_file(tmp_path))
    with pytest.raises(StoreError):
        await broken.get("key")
    await broken.close()
    gc.collect()
    assert files_open(tmp_path) == []


async def test_a_cancelled_close_still_closes(tmp_path: Path):
    path = tmp_path / "s.db"
    store = SQLiteStore(path)
    await store.put("key", b"x")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        claim = asyncio.create_task(store.add("claim"))
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    assert await claim
    assert await ended(store_threads)
    assert names_in(tmp_path) == ["s.db"]


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX file modes")
async def test_the_files_are_for_their_owner_only(tmp_path: Path):
    store = SQLiteStore(tmp_path / "s.db")
    await store.put("key", b"x")
    assert modes_in(tmp_path) == {"s.db": 0o600, "s.db-wal": 0o600, "s.db-shm": 0o600}
    await store.close()


def broken_file(directory: Path) -> Path:
    path = directory / "broken.db"
    path.write_bytes(b"this is a text, and no database at all. " * 100)
    return path


async def test_a_file_that_is_no_database_is_named(tmp_path: Path):
    path = broken_file(tmp_path)
    store = SQLiteStore(path)
    for attempt in (store.get("key"), store.add("key"), store.publish("channel", b""), store.read("stream")):
        with pytest.raises(StoreError, match=r"broken\.db: is damaged or not a database .* move it away") as error:
            await attempt
        assert str(error.value).startswith(str(path))
    assert issubclass(StoreError, AntiphonError)
    await store.close()


async def test_a_damaged_database_is_named(tmp_path: Path):
    path = tmp_path / "s.db"
    store = SQLiteStore(path)
    for number in range(200):
        await store.put(f"key-{number}", b"x" * 100)
    await store.close()
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"s\.db: is damaged or not a database"):
        await store.get("key-7")
    await store.close()


async def test_the_database_of_another_program_is_left_alone(tmp_path: Path):
    path = tmp_path / "theirs.db"
    with contextlib.closing(sqlite3.connect(path)) as theirs:
        theirs.execute("CREATE TABLE message (id INTEGER)")
    before = path.read_bytes()
    store = SQLiteStore(path)
    with pytest.raises(StoreError, match=r"theirs\.db: is the database of another program"):
        await store.put("key", b"x")
    await store.close()
    assert path.read_bytes() == before


async def test_a_layout_of_another_version_is_refused(tmp_path: Path):
    path = tmp_path / "s.db"
    store = SQLiteStore(path)
    await store.put("key", b"x")
    await store.close()
    with contextlib.closing(sqlite3.connect(path)) as newer:
        newer.execute("PRAGMA user_version = 7")
    with pytest.raises(StoreError, match=r"s\.db: has layout 7, and this version of antiphon knows 1"):
        await store.get("key")
    await store.close()


@pytest.mark.parametrize("path", ["missing/s.db", "."])
async def test_a_path_that_cannot_be_opened_is_named(tmp_path: Path, path: str):
    store = SQLiteStore(tmp_path / path)
    with pytest.raises(StoreError, match=f"^{tmp_path / path}: cannot be"):
        await store.get("key")
    await store.close()


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_a_path_that_is_no_file_is_refused(path: str):
    with pytest.raises(ValueError, match="for memory use MemoryStore"):
        SQLiteStore(path)


async def test_a_locked_database_is_named(tmp_path: Path):
    path = tmp_path / "s.db"
    store = SQLiteStore(path, timeout=0.05)
    await store.put("key", b"x")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await store.get("key") == b"x"
        with pytest.raises(StoreError, match=r"s\.db: another process kept it locked"):
            await store.add("claim")
    assert await store.add("claim")
    await store.close()


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
async def test_the_first_use_waits_for_a_lock_too(tmp_path: Path, lock: str):
    path = tmp_path / "s.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute(f"BEGIN {lock}")
        impatient = SQLiteStore(path, timeout=0.05)
        begun = time.monotonic()
        with pytest.raises(StoreError, match=r"s\.db: another process kept it locked"):
            await impatient.add("claim")
        assert time.monotonic() - begun >= 0.05
        await impatient.close()
        patient = SQLiteStore(path)
        claim = asyncio.create_task(patient.add("claim"))
        await asyncio.sleep(0)
        assert not claim.done()
    assert await claim
    await patient.close()


async def test_the_event_loop_runs_while_the_store_waits_for_a_lock(tmp_path: Path):
    path = tmp_path / "s.db"
    store = SQLiteStore(path)
    await store.put("key", b"x")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        claim = asyncio.create_task(store.add("claim"))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not claim.done()
        other.execute("COMMIT")
        assert await claim
    await store.close()


def rows(path: Path, table: str) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


async def test_what_has_expired_is_swept_from_the_file(tmp_path: Path, clock: Clock):
    path = tmp_path / "s.db"
    store = SQLiteStore(path, clock=clock)
    for number in range(40):
        await store.put(f"key-{number}", b"x", ttl=10)
        await store.append(f"stream-{number}", b"x", ttl=10)
        await store.publish("channel", b"x")
    await store.put("kept", b"x")
    await store.append("kept", b"x")
    clock.now += max(sqlite_module.MESSAGE_SECONDS, sqlite_module.SWEEP_SECONDS) + 1
    for _ in range(4):
        await store.put("kept", b"x")
    assert [rows(path, table) for table in ("entry", "stream", "event", "message")] == [1, 1, 1, 0]
    await store.close()


async def test_ids_rise_across_sweeps_and_restarts(tmp_path: Path, clock: Clock):
    store = SQLiteStore(tmp_path / "s.db", clock=clock)
    ids = []
    for _ in range(3):
        ids.append(await store.append("stream", b"x", ttl=1))
        clock.now += 100
        await store.put("key", b"x")
        assert rows(tmp_path / "s.db", "event") == 0
        await store.close()
    assert ids == sorted(set(ids))


async def test_a_subscriber_who_did_not_look_for_too_long_is_told(tmp_path: Path, clock: Clock):
    store = SQLiteStore(tmp_path / "s.db", clock=clock)
    async with store.subscribe("channel") as messages:
        await store.publish("channel", b"1")
        clock.now += 59
        assert await anext(messages) == b"1"
        clock.now += 61
        with pytest.raises(StoreError, match=r"s\.db: a subscriber of 'channel' did not look for 61 s"):
            await anext(messages)
    await store.close()


async def test_two_stores_on_one_file_share_everything(tmp_path: Path):
    one, other = SQLiteStore(tmp_path / "s.db"), SQLiteStore(tmp_path / "s.db")
    assert await one.add("claim", b"one")
    assert not await other.add("claim", b"other")
    async with one.subscribe("channel") as messages:
        await other.publish("channel", b"hello")
        assert await anext(messages) == b"hello"
    ids = [await store.append("stream", b"x") for store in (one, other, one)]
    assert [made for made, _ in await other.read("stream")] == ids == sorted(ids)
    await one.close()
    assert await other.take("claim") == b"one"
    await other.close()


@pytest.mark.parametrize("attempt", range(20))
async def test_many_stores_in_one_process_make_one_file_together(tmp_path: Path, attempt: int):
    stores = [SQLiteStore(tmp_path / "s.db") for _ in range(8)]
    claims = await asyncio.gather(*(store.add("claim") for store in stores))
    assert claims.count(True) == 1
    await asyncio.gather(*(store.close() for store in stores))
    assert store_threads() == []


# --- processes ---

CHILD = """
import asyncio, sys
from antiphon.stores import SQLiteStore

async def main(path):
    store = SQLiteStore(path)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(10):
        claims = await asyncio.gather(*(store.add(f"claim-{number}") for _ in range(50)))
        taken = await asyncio.gather(*(store.take(f"prize-{number}") for _ in range(5)))
        await store.append("stream", b"%d" % number)
        print(claims.count(True), 5 - taken.count(None), flush=True)
    await store.publish("channel", b"done")
    await store.close()

asyncio.run(main(sys.argv[1]))
"""


async def start_child(path: Path) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, str(path), stdin=pipe, stdout=pipe)
    assert child.stdout is not None
    assert (await child.stdout.readline()).strip() == b"ready"
    return child


@pytest.mark.parametrize("prepared", [True, False])
async def test_a_hundred_claims_in_two_processes_have_one_winner(tmp_path: Path, prepared: bool):
    path = tmp_path / "s.db"
    store = SQLiteStore(path)
    if prepared:
        for number in range(10):
            await store.put(f"prize-{number}", b"x")
    async with asyncio.timeout(60):
        children = [await start_child(path) for _ in range(2)]
        outputs = await asyncio.gather(*(child.communicate(b"go\n") for child in children))
    tallies = [[tuple(map(int, line.split())) for line in out.splitlines()] for out, _ in outputs]
    assert len(tallies[0]) == len(tallies[1]) == 10
    for (claimed, taken), (claimed_too, taken_too) in zip(*tallies, strict=True):
        assert claimed + claimed_too == 1
        assert taken + taken_too == prepared
    ids = [made for made, _ in await store.read("stream")]
    assert len(ids) == len(set(ids)) == 20
    await store.close()


async def test_a_message_crosses_from_one_process_to_another(tmp_path: Path):
    store = SQLiteStore(tmp_path / "s.db")
    async with asyncio.timeout(60), store.subscribe("channel") as messages:
        child = await start_child(tmp_path / "s.db")
        _, received = await asyncio.gather(child.communicate(b"go\n"), anext(messages))
    assert received == b"done"
    await store.close()
