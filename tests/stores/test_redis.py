"""The store in Redis: the promises of every store, between instances, and through failures."""

import asyncio
import gc
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from secrets import token_hex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from antiphon.stores.redis import RedisStore
from antiphon.stores.store import Store, StoreError
from antiphon.testing.contracts import check_store
from examples import examples
from redis_server import launch, start_redis, stop

PASSWORD = "hush/%-sesame"
QUOTED = "hush%2F%25-sesame"
Make = Callable[..., RedisStore]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_redis(tmp_path_factory.mktemp("redis")) as made:
        yield made


@pytest.fixture
async def admin(url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(url) as client:
        yield client


@pytest.fixture
async def make(url: str) -> AsyncIterator[Make]:
    """Makes stores that share a prefix, and so a store; each of them is an instance."""
    prefix, made = f"test-{token_hex(4)}", []

    def make(server: str | Redis = url, **options) -> RedisStore:
        made.append(RedisStore(server, **{"prefix": prefix, **options}))
        return made[-1]

    yield make
    for store in made:
        await store.close()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


@pytest.fixture
def store(make: Make) -> RedisStore:
    return make()


async def subscribers(admin: Redis) -> list[dict[str, str]]:
    return [client for client in await admin.client_list() if client["sub"] != "0"]


async def eventually(is_so: Callable[[], object]) -> None:
    """For what another process does in its own time."""
    async with asyncio.timeout(10):
        while not await is_so():  # noqa: ASYNC110 -- there is no event
            await asyncio.sleep(0.002)


# --- the contract ---


@pytest.mark.parametrize("options", ["", "?protocol=3", "?db=3"])
async def test_a_redis_store_keeps_the_contract(url: str, options: str):
    await check_store(lambda: RedisStore(url + options))


async def test_it_keeps_the_contract_over_a_single_connection(url: str):
    await check_store(lambda: RedisStore(url, connections=1))


@pytest.mark.parametrize("options", [{}, {"decode_responses": True, "protocol": 2}])
async def test_it_keeps_the_contract_with_a_client_of_your_own(url: str, options: dict[str, object]):
    async with Redis.from_url(url, **options) as client:
        await check_store(lambda: RedisStore(client))
        assert await client.ping()


def test_a_redis_store_has_the_interface(url: str):
    store: Store = RedisStore(url)
    assert isinstance(store, Store)


# --- instances ---


async def test_two_instances_share_everything(make: Make):
    one, other = make(), make()
    assert await one.add("claim", b"one")
    assert not await other.add("claim", b"other")
    async with one.subscribe("channel") as messages:
        await other.publish("channel", b"hello")
        assert await anext(messages) == b"hello"
    ids = [await store.append("stream", b"x") for store in (one, other, one)]
    assert [made for made, _ in await other.read("stream")] == ids == sorted(ids)
    await one.close()
    assert await other.take("claim") == b"one"


async def test_a_hundred_claims_from_two_instances_have_one_winner(make: Make):
    one, other = make(), make()
    await one.put("prize", b"x")
    for attempt in ("first", "second"):
        claims = await asyncio.gather(*(store.add(attempt) for store in (one, other) for _ in range(50)))
        assert claims.count(True) == 1
    taken = await asyncio.gather(*(store.take("prize") for store in (one, other) for _ in range(50)))
    assert taken.count(b"x") == 1


async def test_prefixes_and_databases_are_apart(make: Make, url: str):
    store = make()
    for stranger in (make(prefix=f"other-{token_hex(4)}"), make(f"{url}?db=1")):
        await store.put("key", b"x")
        await store.append("stream", b"x")
        async with store.subscribe("channel") as messages, stranger.subscribe("channel") as others:
            await stranger.publish("channel", b"theirs")
            await store.publish("channel", b"ours")
            assert (await anext(messages), await anext(others)) == (b"ours", b"theirs")
        assert (await stranger.get("key"), await stranger.read("stream")) == (None, [])


async def test_everything_in_redis_has_the_prefix_and_an_end(make: Make, admin: Redis):
    store = make(prefix="a prefix")
    await store.put("put", b"x", ttl=100)
    await store.add("add", b"x", ttl=100)
    await store.append("append", b"x", ttl=100)
    await store.append("append", b"x")
    keys = sorted([key async for key in admin.scan_iter("a prefix:*")])
    assert keys == [b"a prefix:key:add", b"a prefix:key:put", b"a prefix:stream:append"]
    for key in keys:
        assert 90_000 < await admin.pttl(key) <= 100_000
    for take in ("put", "add"):
        await store.take(take)
    await store.append("append", b"x", ttl=0.0001)
    await store.put("put", b"x", ttl=0.0001)
    await store.add("add", b"x", ttl=0.0001)
    await eventually(lambda: is_empty(admin, "a prefix*"))


async def is_empty(admin: Redis, pattern: str) -> bool:
    return await admin.keys(pattern) == []


async def test_the_longest_ttl_and_limit_are_as_good_as_forever(store: RedisStore):
    await store.put("key", b"x", ttl=sys.float_info.max)
    await store.append("stream", b"x", ttl=sys.float_info.max, limit=10**30)
    assert await store.get("key") == b"x"
    assert len(await store.read("stream")) == 1


async def test_what_comes_after_any_well_formed_id_can_be_read(store: RedisStore):
    made = await store.append("stream", b"x")
    greatest = str(2**64 - 1)
    assert await store.read("stream", after=f"{greatest}-{greatest}") == []
    assert await store.read("stream", after=f"{'0' * 20}-{greatest}") == [(made, b"x")]
    time, count = made.split("-")
    wrong = [f"{int(time)}-{int(count)}", f"{made}0", f"{made[:-1]}٣", f"{'9' * 20}-{'0' * 20}", made.replace("-", "0")]
    for after in wrong:
        with pytest.raises(ValueError, match="is not the id of an event"):
            await store.read("stream", after=after)


names = st.text(st.characters(codec=None), max_size=40)


@examples(30)
@given(entries=st.dictionaries(names, st.binary(max_size=200), min_size=1, max_size=8))
def test_any_name_carries_any_bytes(url: str, entries: dict[str, bytes]):
    async def carry() -> None:
        store = RedisStore(url, prefix=f"test-{token_hex(4)}")
        await asyncio.gather(*(store.put(name, value, ttl=60) for name, value in entries.items()))
        await asyncio.gather(*(store.append(name, value, ttl=60) for name, value in entries.items()))
        async with AsyncExitStack() as stack:
            heard = {name: await stack.enter_async_context(store.subscribe(name)) for name in entries}
            await asyncio.gather(*(store.publish(name, value) for name, value in entries.items()))
            for name, value in entries.items():
                assert await anext(heard[name]) == value
                assert await store.take(name) == value
                assert [kept for _, kept in await store.read(name)] == [value]
        await store.close()

    asyncio.run(carry())


# --- messages ---


async def test_a_thousand_channels_share_one_connection(store: RedisStore, admin: Redis):
    others = {client["id"] for client in await subscribers(admin)}
    async with AsyncExitStack() as stack:
        entered = (stack.enter_async_context(store.subscribe(f"channel {number}")) for number in range(1000))
        subscriptions = await asyncio.gather(*entered)
        held = [client for client in await subscribers(admin) if client["id"] not in others]
        assert [client["sub"] for client in held] == ["1000"]
        await asyncio.gather(*(store.publish(f"channel {number}", b"%d" % number) for number in range(1000)))
        assert [await anext(messages) for messages in subscriptions] == [b"%d" % number for number in range(1000)]
    await eventually(lambda: no_subscribers(admin))


async def no_subscribers(admin: Redis) -> bool:
    return await subscribers(admin) == []


async def test_a_subscriber_hears_nothing_from_before_it_came_beside_another(make: Make):
    store, other = make(), make()
    async with store.subscribe("channel") as early:
        for number in range(50):
            await other.publish("channel", b"before %d" % number)
            async with store.subscribe("channel") as late:
                await other.publish("channel", b"after %d" % number)
                assert await anext(late) == b"after %d" % number
                assert [await anext(early), await anext(early)] == [b"before %d" % number, b"after %d" % number]


async def test_one_who_leaves_and_one_who_comes_do_not_disturb_each_other(make: Make):
    store, other = make(), make()

    async def visit(number: int) -> None:
        for _ in range(10):
            async with store.subscribe("channel") as messages:
                await other.publish("channel", b"%d" % number)
                while await anext(messages) != b"%d" % number:
                    pass

    async with asyncio.timeout(10):
        await asyncio.gather(*(visit(number) for number in range(10)))


async def test_a_subscriber_cancelled_while_entering_is_not_subscribed(store: RedisStore, admin: Redis):
    async def enter() -> None:
        async with store.subscribe("channel"):
            raise AssertionError("not reached")

    async with store.subscribe("another"):
        entering = asyncio.create_task(enter())
        await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        await store.publish("another", b"x")
        await eventually(lambda: only_one_channel(admin))


async def only_one_channel(admin: Redis) -> bool:
    return [client["sub"] for client in await subscribers(admin)] == ["1"]


async def test_closing_refuses_a_subscriber_that_is_entering(store: RedisStore):
    async def enter() -> None:
        async with store.subscribe("channel"):
            raise AssertionError("not reached")

    entering = asyncio.create_task(enter())
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreError, match="closed while subscribing"):
        await entering


# --- commands ---


async def test_a_cancelled_command_disturbs_no_other(store: RedisStore):
    tasks = [asyncio.create_task(store.add(f"key {number}")) for number in range(100)]
    for _ in range(2):
        await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert done[1::2] == [True] * 50
    assert all(isinstance(fault, asyncio.CancelledError) for fault in done[::2])


async def test_a_command_that_redis_refuses_disturbs_no_other(store: RedisStore, admin: Redis):
    await store.append("stream", b"x")
    [key] = await admin.keys(f"{store._prefix}:*")
    await admin.delete(key)
    await admin.set(key, b"no stream")
    good = [store.put("key", b"x"), store.append("elsewhere", b"x"), store.get("key")]
    done = await asyncio.gather(good[0], store.append("stream", b"x"), *good[1:], return_exceptions=True)
    assert isinstance(done[1], StoreError)
    assert "WRONGTYPE" in str(done[1])
    assert done[0] is None
    assert done[3] == b"x"


async def test_more_commands_than_fit_into_one_batch_all_arrive(make: Make):
    store = make(connections=1)
    claims = await asyncio.gather(*(store.add(f"key {number % 1000}") for number in range(2000)))
    assert claims.count(True) == 1000


async def test_a_value_that_is_no_bytes_is_refused_before_it_is_sent(store: RedisStore):
    good = asyncio.create_task(store.put("key", b"x"))
    with pytest.raises(TypeError):
        await store.put("key", None)  # type: ignore[arg-type]
    await good
    assert await store.get("key") == b"x"


async def test_a_store_holds_few_connections_and_lets_go_of_all(make: Make, admin: Redis):
    before = len(await admin.client_list())
    store = make(connections=3)
    async with store.subscribe("channel") as messages:
        await asyncio.gather(*(store.put(f"key {number}", b"x" * 10_000) for number in range(500)))
        assert len(await admin.client_list()) <= before + 4
        await store.close()
        with pytest.raises(StopAsyncIteration):
            await anext(messages)
    gc.collect()
    await eventually(lambda: as_many_clients(admin, before))
    assert await store.get("key 1") == b"x" * 10_000


async def as_many_clients(admin: Redis, count: int) -> bool:
    return len(await admin.client_list()) == count


# --- event loops ---


def test_one_store_serves_one_event_loop_after_another(url: str):
    store = RedisStore(url, prefix=f"test-{token_hex(4)}")

    async def use() -> bool:
        async with store.subscribe("channel") as messages:
            await store.publish("channel", b"x")
            assert await anext(messages) == b"x"
        claimed = await store.add("claim", ttl=60)
        await store.close()
        return claimed

    assert [asyncio.run(use()) for _ in range(3)] == [True, False, False]


def test_one_store_serves_two_event_loops_at_once_and_is_closed_in_either(url: str):
    store = RedisStore(url, prefix=f"test-{token_hex(4)}")
    listening, heard = threading.Event(), threading.Event()

    async def listen() -> None:
        async with store.subscribe("channel") as messages:
            listening.set()
            async for message in messages:
                assert message == b"x"
                heard.set()

    async def speak() -> None:
        await store.publish("channel", b"x")
        assert await asyncio.to_thread(heard.wait, 10)
        await store.close()

    thread = threading.Thread(target=lambda: asyncio.run(listen()))
    thread.start()
    assert listening.wait(10)
    asyncio.run(speak())
    thread.join(10)
    assert not thread.is_alive()
    assert store._open == {}


def test_ending_an_event_loop_with_commands_under_way_ends_them(url: str):
    store = RedisStore(url, prefix=f"test-{token_hex(4)}")
    faults: list[BaseException] = []

    async def ask() -> None:
        try:
            await store.get("key")
        except BaseException as fault:
            faults.append(fault)
        finally:
            await store.close()

    async def main() -> None:
        tasks.extend(asyncio.create_task(ask()) for _ in range(3))
        await asyncio.sleep(0)

    tasks: list[asyncio.Task[None]] = []
    asyncio.run(main())
    assert [type(fault) for fault in faults] == [asyncio.CancelledError] * 3


async def test_a_cancelled_sender_fails_the_commands_it_would_have_sent(store: RedisStore):
    for steps in (1, 2):
        asking = asyncio.create_task(store.get("key"))
        for _ in range(steps):
            await asyncio.sleep(0)
        [sender] = store._opened().commands._senders
        sender.cancel()
        with pytest.raises(StoreError, match="cancelled"):
            await asking
        assert await store.get("key") is None


# --- what can go wrong ---


@asynccontextmanager
async def a_server_of_its_own(folder: Path, *options: str):
    path = folder / "r.sock"
    running = [launch(path, folder, *options)]

    def restart() -> None:
        stop(running.pop())
        running.append(launch(path, folder, *options))

    try:
        yield f"unix://{path}", running, restart
    finally:
        stop(running.pop())


async def test_a_store_outlives_a_restart_of_redis(tmp_path: Path, make: Make, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "antiphon")
    async with a_server_of_its_own(tmp_path) as (url, running, restart):
        store, other = make(url), make(url)
        async with store.subscribe("channel") as messages, store.subscribe("another"):
            await other.publish("channel", b"before")
            assert await anext(messages) == b"before"
            stop(running[0])
            with pytest.raises(StoreError, match="check that it runs"):
                await other.publish("channel", b"lost")
            with pytest.raises(StoreError, match="check that it runs"):
                async with store.subscribe("third"):
                    raise AssertionError("not reached")
            restart()
            await eventually(lambda: both_subscribed(url))
            await other.publish("channel", b"after")
            async with asyncio.timeout(5):
                assert await anext(messages) == b"after"
        assert [record.levelname for record in caplog.records if record.name == "antiphon"] == ["WARNING", "INFO"]
        assert "messages are lost until the connection is back" in caplog.text
        assert "the connection for messages is back" in caplog.text


async def both_subscribed(url: str) -> bool:
    async with Redis.from_url(url) as admin:
        return [client["sub"] for client in await subscribers(admin)] == ["2"]


async def test_a_connection_that_redis_cuts_is_renewed_at_once(store: RedisStore, admin: Redis, make: Make):
    async with store.subscribe("channel") as messages:
        await store.put("key", b"x")
        await admin.client_kill_filter(_type="pubsub")
        await admin.client_kill_filter(_type="normal", skipme=True)
        assert await store.get("key") == b"x"
        async with store.subscribe("another"):
            await make().publish("channel", b"still here")
            async with asyncio.timeout(5):
                assert await anext(messages) == b"still here"


async def test_a_redis_that_does_not_answer_is_not_waited_for(tmp_path: Path, make: Make):
    async with a_server_of_its_own(tmp_path) as (url, running, _):
        store = make(url, timeout=0.2)
        await store.put("key", b"x")
        running[0].send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(StoreError, match="no answer within 0.2 s; .* may have been done or not"):
                await store.add("claim")
            with pytest.raises(StoreError, match="no answer within 0.2 s"):
                async with store.subscribe("channel"):
                    raise AssertionError("not reached")
        finally:
            running[0].send_signal(signal.SIGCONT)
        await eventually(lambda: answers(store))
        assert await store.get("key") == b"x"


async def answers(store: RedisStore) -> bool:
    try:
        await store.get("key")
    except StoreError:
        return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_a_password_opens_the_store_and_never_shows(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    port = free_port()
    with start_redis(tmp_path, "--port", str(port), "--bind", "127.0.0.1", "--requirepass", PASSWORD) as url:
        for good in (f"{url}?password={QUOTED}", f"redis://:{QUOTED}@127.0.0.1:{port}"):
            store = RedisStore(good)
            await store.put("key", b"x")
            assert "sesame" not in repr(store)
            await store.close()
        wrong = "wrong-sesame"
        for bad in (url, f"{url}?password={wrong}", f"redis://:{wrong}@127.0.0.1:{port}", f"redis://127.0.0.1:{port}"):
            store = RedisStore(bad)
            for attempt in (store.get("key"), store.subscribe("channel").__aenter__()):
                with pytest.raises(StoreError, match="give the right user name and password") as refused:
                    await attempt
                assert "sesame" not in f"{refused.value!r} {store!r} {refused.value.__cause__!r}"
            await store.close()
    assert "sesame" not in caplog.text


async def test_a_password_that_redis_repeats_is_struck_out(store: RedisStore, url: str):
    guarded = RedisStore(f"{url}?password={QUOTED}")._server
    said = guarded.explained(ConnectionError(f"unknown command `HELLO`, with args beginning with `{PASSWORD}`"))
    assert "sesame" not in str(said)
    assert "***" in str(said)
    assert "sesame" not in f"{guarded!r} {guarded}"


async def test_a_redis_that_is_not_there_is_named(tmp_path: Path):
    port = free_port()
    for nowhere, name in ((f"unix://{tmp_path}/none.sock", "none.sock"), (f"redis://127.0.0.1:{port}", str(port))):
        store = RedisStore(nowhere)
        started = time.monotonic()
        with pytest.raises(StoreError, match=f"{name}.*check that it runs"):
            await store.get("key")
        with pytest.raises(StoreError, match=f"{name}.*check that it runs"):
            async with store.subscribe("channel"):
                raise AssertionError("not reached")
        assert time.monotonic() - started < 2
        await store.close()


async def test_a_full_redis_says_so(tmp_path: Path, make: Make):
    async with a_server_of_its_own(tmp_path, "--maxmemory", "1") as (url, _, _):
        store = make(url)
        for attempt in (store.put("key", b"x"), store.append("stream", b"x"), store.append("stream", b"x", ttl=9)):
            with pytest.raises(StoreError, match="maxmemory"):
                await attempt


async def test_a_user_without_rights_is_told_so(url: str, admin: Redis, make: Make):
    await admin.acl_setuser("guest", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-set", "-subscribe"])
    store = make(f"{url}?username=guest&password=any")
    assert await store.get("key") is None
    with pytest.raises(StoreError, match="allow its user to read, write"):
        await store.put("key", b"x")
    with pytest.raises(StoreError, match="allow its user to read, write"):
        async with store.subscribe("channel"):
            raise AssertionError("not reached")


@pytest.mark.parametrize(
    "wrong",
    [
        "http://:sesame@localhost",
        "sesame",
        "redis://user:ses/ame@localhost",
        "redis://:sesame@localhost:port",
        "redis://:sesame@localhost?colour=red",
        "redis://:sesame@localhost?db=sesame",
        "redis://:sesame@localhost?protocol=9",
    ],
)
def test_a_wrong_url_is_refused_without_showing_it(wrong: str):
    with pytest.raises(ValueError, match="the URL of Redis") as refused:
        RedisStore(wrong)
    assert "ses" not in str(refused.value).replace("password", "")
    assert refused.value.__context__ is None


def test_wrong_options_are_refused(url: str):
    with pytest.raises(ValueError, match="prefix is empty"):
        RedisStore(url, prefix="")
    with pytest.raises(ValueError, match="connections is 0"):
        RedisStore(url, connections=0)
    with pytest.raises(TypeError, match="takes a URL or a redis.asyncio.Redis, not int"):
        RedisStore(6379)  # type: ignore[arg-type]


def test_without_the_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "redis.asyncio", None)
    with pytest.raises(ImportError, match=r"pip install 'antiphon\[redis\]'"):
        RedisStore()
