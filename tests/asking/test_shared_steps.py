"""Steps with a store: once for every request, at however many instances it arrives, whatever becomes of the store."""

import asyncio
import itertools
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from antiphon import Context, MemoryStore, RedisStore, Seal, Server, Store, StoreError, ToolError
from antiphon.stores import shared_steps
from redis_server import launch, stop

from .driver import Round, accept, converse, leg, tool
from .handlers import ANSWERS, KEY, asks, gathered, turns


def stepping(store: MemoryStore, effects: list[str], **options: object) -> Server:
    app = Server("stepping", seal=Seal(KEY), store=store, **options)  # type: ignore[arg-type]

    async def pay(name: str) -> int:
        await asyncio.sleep(0.01)
        effects.append(name)
        return len(effects)

    @app.tool
    async def buy(ctx: Context) -> str:
        name = (await ctx.elicit("Name?", str, key="name", ttl=5000)).unwrap()
        receipt = await ctx.step("pay", pay, name)
        await asks(ctx, "a")
        return f"receipt {receipt}"

    return app


async def test_with_a_store_a_leg_that_is_sent_twice_runs_its_steps_once() -> None:
    store, effects = MemoryStore(), list[str]()
    one, other = stepping(store, effects), stepping(store, effects)
    first = await leg(one, *tool("buy"))
    again = [leg(app, *tool("buy"), state=first.token, responses={"name": accept(value="Ada")}) for app in (one, other)]
    replies = [
        *await asyncio.gather(*again),
        await leg(other, *tool("buy"), state=first.token, responses={"name": accept(value="Ada")}),
    ]
    assert effects == ["Ada"]
    for reply in replies:
        last = await leg(one, *tool("buy"), state=reply.token, responses={"a": ANSWERS["a"]})
        assert last.result["content"][0]["text"] == "receipt 1"


async def test_with_a_store_steps_are_remembered_as_long_as_a_token_of_theirs_may_live() -> None:
    clock = [1000.0]
    effects: list[str] = []
    app = stepping(MemoryStore(clock=lambda: clock[0]), effects, clock=lambda: clock[0])
    first = await leg(app, *tool("buy"))
    answer = {"name": accept(value="Ada")}
    assert (await leg(app, *tool("buy"), state=first.token, responses=answer)).asks
    clock[0] += 4000
    assert (await leg(app, *tool("buy"), state=first.token, responses=answer)).asks
    assert effects == ["Ada"]


async def test_with_a_store_a_step_outlives_the_request_that_began_it() -> None:
    """A client that hung up and sent the leg again must not pay twice."""
    app = Server("patient", seal=Seal(KEY), store=MemoryStore())
    entered, may_end = threading.Event(), threading.Event()
    effects: list[int] = []

    def pay() -> int:
        entered.set()
        may_end.wait(5)
        effects.append(1)
        return len(effects)

    @app.tool
    async def buy(ctx: Context) -> str:
        await asks(ctx, "a")
        return f"receipt {await ctx.step('pay', pay)}"

    first = await leg(app, *tool("buy"))
    hung_up = asyncio.create_task(leg(app, *tool("buy"), state=first.token, responses={"a": ANSWERS["a"]}))
    await asyncio.to_thread(entered.wait, 5)
    hung_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hung_up
    again = asyncio.create_task(leg(app, *tool("buy"), state=first.token, responses={"a": ANSWERS["a"]}))
    await turns(20)
    may_end.set()
    async with asyncio.timeout(5):
        last = await again
    assert last.result["content"][0]["text"] == "receipt 1"
    assert effects == [1]


async def test_with_a_store_different_flows_do_not_share_steps() -> None:
    store, effects = MemoryStore(), list[str]()
    app = stepping(store, effects)
    answers = {"name": accept(value="Ada"), "a": ANSWERS["a"]}
    told = [await converse(app, *tool("buy"), answers=answers) for _ in range(3)]
    assert [each.text for each in told] == ["receipt 1", "receipt 2", "receipt 3"]


async def test_with_a_store_a_failing_step_lets_the_next_attempt_run() -> None:
    store = MemoryStore()
    app = Server("flaky", seal=Seal(KEY), store=store)
    attempts: list[int] = []

    async def flaky() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ToolError("try later")
        return "connected"

    @app.tool
    async def work(ctx: Context) -> str:
        await asks(ctx, "a")
        return await ctx.step("connect", flaky)

    first = await leg(app, *tool("work"))
    failed = await leg(app, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]})
    assert failed.result["isError"]
    async with asyncio.timeout(5):
        done = await leg(app, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]})
    assert done.result["content"][0]["text"] == "connected"


# --- forks -----------------------------------------------------------------------------------------------------------


def charging(store: Store, charged: list[int]) -> Server:
    app = Server("charging", seal=Seal(KEY), store=store)

    async def charge(amount: int) -> int:
        charged.append(amount)
        return amount

    @app.tool
    async def buy(ctx: Context) -> str:
        amount = (await ctx.elicit("How many?", int, key="n")).unwrap()
        paid = await ctx.step("charge", lambda: charge(amount))
        if not await ctx.confirm(f"Deliver {amount}?", key="sure"):
            return "kept"
        return await ctx.step("deliver", lambda: f"{amount} for {paid}")

    return app


async def test_a_conversation_that_is_forked_charges_for_what_it_grants() -> None:
    charged: list[int] = []
    app = charging(MemoryStore(), charged)
    first = await leg(app, *tool("buy"))
    texts = []
    for amount in (1, 1_000_000, 1):
        second = await leg(app, *tool("buy"), state=first.token, responses={"n": accept(value=amount)})
        last = await leg(app, *tool("buy"), state=second.token, responses={"sure": accept(confirm=True)})
        texts.append(last.result["content"][0]["text"])
    assert texts == ["1 for 1", "1000000 for 1000000", "1 for 1"]
    assert charged == [1, 1_000_000]


async def test_a_fork_of_an_earlier_round_is_one_in_every_later_round() -> None:
    """The answer that differs came two rounds before the step, and is in the journal by then."""
    store, ran = MemoryStore(), list[str]()
    app = Server("forking", seal=Seal(KEY), store=store)

    @app.tool
    async def work(ctx: Context) -> str:
        name = await asks(ctx, "a")
        await asks(ctx, "b")
        await ctx.step("note", lambda: ran.append(name))
        return name

    first = await leg(app, *tool("work"))
    for name in ("Ada", "Eve", "Ada"):
        second = await leg(app, *tool("work"), state=first.token, responses={"a": accept(value=name)})
        await leg(app, *tool("work"), state=second.token, responses={"b": ANSWERS["b"]})
    assert ran == ["Ada", "Eve"]


async def test_a_step_with_other_arguments_is_another_step() -> None:
    store, ran = MemoryStore(), list[int]()
    app = Server("drifting", seal=Seal(KEY), store=store)
    prices = itertools.count(1)

    @app.tool
    async def work(ctx: Context) -> str:
        await asks(ctx, "a")
        price = next(prices)
        await ctx.step("pay", ran.append, price)
        return f"paid {price}"

    first = await leg(app, *tool("work"))
    again = [await leg(app, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]}) for _ in range(2)]
    assert [done.result["content"][0]["text"] for done in again] == ["paid 1", "paid 2"]
    assert ran == [1, 2]


async def test_the_time_and_random_numbers_are_the_same_for_a_leg_that_is_sent_twice() -> None:
    """So a step that is given them runs once, and the next round's as well."""
    store, ran = MemoryStore(), list[str]()
    ticks = itertools.count(1000)

    def instance() -> Server:
        app = Server("timed", seal=Seal(KEY), store=store, clock=lambda: float(next(ticks)))

        @app.tool
        async def book(ctx: Context) -> str:
            await asks(ctx, "a")
            moment, dice = await ctx.now(), await ctx.random()
            await ctx.step("book", lambda at, chance: ran.append("book"), moment, dice)
            await asks(ctx, "b")
            await ctx.step("pay", lambda: ran.append("pay"))
            return f"{moment} {dice}"

        return app

    instances = [instance(), instance()]
    first = await leg(instances[0], *tool("book"))
    again = [leg(app, *tool("book"), state=first.token, responses={"a": ANSWERS["a"]}) for app in instances]
    seconds = await asyncio.gather(*again)
    lasts = [
        await leg(app, *tool("book"), state=second.token, responses={"b": ANSWERS["b"]})
        for app, second in zip(instances, seconds, strict=True)
    ]
    assert ran == ["book", "pay"]
    assert len({last.result["content"][0]["text"] for last in lasts}) == 1


async def test_parallel_steps_run_once_in_whichever_order_a_copy_of_the_leg_does_them() -> None:
    store, ran = MemoryStore(), Counter[str]()

    def instance(order: str) -> Server:
        app = Server("parallel", seal=Seal(KEY), store=store)

        async def note(name: str) -> str:
            ran[name] += 1
            return name

        async def answered(ctx: Context, name: str) -> str:
            await turns(order.index(name))
            return await ctx.step(name, note, await asks(ctx, name))

        @app.tool
        async def work(ctx: Context) -> str:
            names = await gathered(*(answered(ctx, name) for name in sorted(order)))
            await asks(ctx, "d")
            await ctx.step("last", note, "last")
            return "".join(names)

        return app

    one, other = instance("abc"), instance("cba")
    first = await leg(one, *tool("work"))
    answers = {name: ANSWERS[name] for name in first.questions}
    assert set(answers) == {"a", "b", "c"}
    for app in (one, other):
        second = await leg(app, *tool("work"), state=first.token, responses=answers)
        answers = dict(reversed(answers.items()))
        last = await leg(app, *tool("work"), state=second.token, responses={"d": ANSWERS["d"]})
        assert last.result["content"][0]["text"] == "ABC"
    assert ran == Counter({"A": 1, "B": 1, "C": 1, "last": 1})


# --- an instance that stands still -----------------------------------------------------------------------------------


class Standing:
    """Two instances whose step says when it begins, and ends when it may."""

    def __init__(self, store: Store) -> None:
        self.begun: list[asyncio.Event] = []
        self.may_end: list[asyncio.Event] = []
        self.fails: set[int] = set()
        self.entered = asyncio.Condition()
        self.one, self.other = self._instance(store), self._instance(store)

    def _instance(self, store: Store) -> Server:
        app = Server("standing", seal=Seal(KEY), store=store)

        @app.tool
        async def work(ctx: Context) -> str:
            await asks(ctx, "a")
            return await ctx.step("run", self._run)

        return app

    async def _run(self) -> str:
        number, gate = len(self.may_end), asyncio.Event()
        self.may_end.append(gate)
        async with self.entered:
            self.entered.notify_all()
        await gate.wait()
        if number in self.fails:
            raise ToolError(f"run {number} failed")
        return f"run {number}"

    async def running(self, number: int) -> None:
        async with asyncio.timeout(5), self.entered:
            await self.entered.wait_for(lambda: len(self.may_end) >= number)


def text_of(done: Round) -> str:
    return str(done.result["content"][0]["text"])


async def test_an_instance_that_lost_its_claim_gives_back_the_result_that_was_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = [0.0]
    both = Standing(MemoryStore(clock=lambda: clock[0]))
    first = await leg(both.one, *tool("work"))
    asleep = asyncio.create_task(leg(both.one, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]}))
    await both.running(1)
    clock[0] += shared_steps.LEASE + 1
    awake = asyncio.create_task(leg(both.other, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]}))
    await both.running(2)
    both.may_end[1].set()
    assert text_of(await awake) == "run 1"
    both.may_end[0].set()
    assert text_of(await asleep) == "run 1"
    assert text_of(await leg(both.one, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]})) == "run 1"
    assert caplog.text.count("ran at another instance as well") == 1


async def test_an_instance_that_lost_its_claim_does_not_release_that_of_another() -> None:
    clock = [0.0]
    both = Standing(MemoryStore(clock=lambda: clock[0]))
    both.fails.add(0)
    first = await leg(both.one, *tool("work"))
    asleep = asyncio.create_task(leg(both.one, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]}))
    await both.running(1)
    clock[0] += shared_steps.LEASE + 1
    awake = asyncio.create_task(leg(both.other, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]}))
    await both.running(2)
    both.may_end[0].set()
    assert text_of(await asleep) == "run 0 failed"
    third = asyncio.create_task(leg(both.one, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]}))
    await turns(50)
    both.may_end[1].set()
    assert text_of(await awake) == text_of(await third) == "run 1"
    assert len(both.may_end) == 2


async def test_a_step_is_claimed_for_as_long_as_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_steps, "LEASE", 0.06)
    renewed = asyncio.Semaphore(0)

    class Watched(MemoryStore):
        async def add(self, key: str, value: bytes = b"", **how: Any) -> bool:
            added = await super().add(key, value, **how)
            if "step" in key and added:
                renewed.release()
            return added

    both = Standing(Watched())
    first = await leg(both.one, *tool("work"))
    slow = asyncio.create_task(leg(both.one, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]}))
    await both.running(1)
    waits = asyncio.create_task(leg(both.other, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]}))
    async with asyncio.timeout(10):
        for _ in range(8):  # over twice the time that the claim would have lived
            await renewed.acquire()
    both.may_end[0].set()
    assert text_of(await slow) == text_of(await waits) == "run 0"
    assert len(both.may_end) == 1


# --- a store that fails ----------------------------------------------------------------------------------------------


class Redis:
    """A server that can be killed and started again, with all that was written."""

    def __init__(self, folder: Path, path: Path) -> None:
        self.url = f"unix://{path}"
        self._where = (path, folder, "--appendonly", "yes")
        self._server = launch(*self._where)

    def kill(self) -> None:
        stop(self._server)

    def start(self) -> None:
        self._server = launch(*self._where)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    with TemporaryDirectory(prefix="redis-") as short:
        redis = Redis(tmp_path, Path(short) / "redis.sock")
        yield redis
        redis.kill()


class Heard(logging.Handler):
    """What was logged, and a way to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._news = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self._news.set()

    async def until(self, text: str) -> None:
        async with asyncio.timeout(10):
            while not any(text in told for told in self.texts):
                self._news.clear()
                await self._news.wait()


@pytest.fixture
def heard() -> Iterator[Heard]:
    heard = Heard()
    logging.getLogger("antiphon").addHandler(heard)
    yield heard
    logging.getLogger("antiphon").removeHandler(heard)


async def test_a_step_that_ends_while_the_store_is_gone_keeps_its_result(redis: Redis, heard: Heard) -> None:
    store = RedisStore(redis.url)
    both = Standing(store)
    first = await leg(both.one, *tool("work"))
    sent = asyncio.create_task(leg(both.one, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]}))
    await both.running(1)
    redis.kill()
    both.may_end[0].set()
    assert text_of(await sent) == "run 0"
    assert [text for text in heard.texts if "'run'" in text and "was not stored" in text] == heard.texts
    # The same instance knows the result, and the other one when the store has it.
    assert text_of(await leg(both.one, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]})) == "run 0"
    redis.start()
    assert text_of(await leg(both.other, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]})) == "run 0"
    assert len(both.may_end) == 1
    await store.close()


async def test_a_step_that_runs_is_not_cancelled_if_its_claim_cannot_be_renewed(
    redis: Redis, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_steps, "LEASE", 0.3)
    store = RedisStore(redis.url)
    both = Standing(store)
    first = await leg(both.one, *tool("work"))
    sent = asyncio.create_task(leg(both.one, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]}))
    await both.running(1)
    redis.kill()
    await heard.until("was not renewed")
    redis.start()
    both.may_end[0].set()
    assert text_of(await sent) == "run 0"
    assert len([text for text in heard.texts if "was not renewed" in text]) == 1
    await store.close()


async def test_a_step_does_not_run_if_the_store_is_gone_before(redis: Redis, heard: Heard) -> None:
    store = RedisStore(redis.url)
    app = Server("careful", seal=Seal(KEY), store=store)
    ran: list[int] = []
    told: list[str] = []

    @app.tool
    async def work(ctx: Context) -> str:
        await asks(ctx, "a")
        try:
            await ctx.step("pay", ran.append, 1)
        except StoreError as fault:
            told.append(str(fault))
            raise
        return "paid"

    first = await leg(app, *tool("work"))
    redis.kill()
    failed = await leg(app, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]})
    assert failed.reply["error"]["code"] == -32603
    assert told[0].startswith("The step 'pay' was not run, since the store failed: redis at ")
    assert ran == []
    redis.start()
    done = await leg(app, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]})
    assert (text_of(done), ran) == ("paid", [1])
    await store.close()


@pytest.mark.parametrize(("flows", "restarts"), [(40, 4), pytest.param(300, 35, marks=pytest.mark.heavy)])
async def test_no_step_runs_twice_while_redis_is_killed_and_started_again(
    redis: Redis, flows: int, restarts: int
) -> None:
    """Every flow has two steps in one leg, and is sent again, to the other instance, until it succeeds."""
    ran: Counter[str] = Counter()
    store = RedisStore(redis.url)

    def instance() -> Server:
        app = Server("restarting", seal=Seal(KEY), store=store)

        async def effect(name: str) -> str:
            ran[name] += 1
            await turns(3)
            return name

        @app.tool
        async def work(name: str, ctx: Context) -> str:
            await asks(ctx, "a")
            one = await ctx.step("one", effect, f"{name}-1")
            return f"{one} {await ctx.step('two', effect, f'{name}-2')}"

        return app

    instances = [instance(), instance()]
    left = itertools.count()
    sent = failed = 0
    due, enough = asyncio.Event(), asyncio.Event()

    async def flow(number: int) -> None:
        nonlocal sent, failed
        call = tool("work", name=f"flow-{number}")
        first = await leg(instances[0], *call)
        for attempt in itertools.count(number):
            sent += 1
            if sent % (flows // restarts) == 0:
                due.set()
            done = await leg(instances[attempt % 2], *call, state=first.token, responses={"a": ANSWERS["a"]})
            if "result" in done.reply:
                assert text_of(done) == f"flow-{number}-1 flow-{number}-2"
                return
            failed += 1
            await asyncio.sleep(0.01)

    async def worker() -> None:
        while (number := next(left)) < flows or not enough.is_set():
            await flow(number)

    async def trouble() -> None:
        for _ in range(restarts):
            due.clear()
            await due.wait()
            await asyncio.to_thread(redis.kill)
            await asyncio.to_thread(redis.start)
        enough.set()

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(worker())
        group.create_task(trouble())
    assert failed > 0
    assert len(ran) >= 2 * flows
    assert [name for name, times in ran.items() if times > 1] == []
    await store.close()
