"""Steps: run once in a conversation, however many rounds follow and however often a leg is sent."""

import asyncio
import functools
import gc
import math
import threading
import weakref
from datetime import UTC, datetime

import msgspec
import pytest

from antiphon import Context, Server, ToolError

from .driver import converse, leg, tool
from .handlers import ANSWERS, Colour, Where, asks, gathered, together, turns


async def test_a_step_runs_once_however_many_rounds_follow(app: Server) -> None:
    effects: list[str] = []

    def reserve(name: str, *, region: str) -> str:
        effects.append(name)
        return f"{name}@{region}#{len(effects)}"

    async def pay(ticket: str) -> str:
        await turns(2)
        effects.append(ticket)
        return f"paid {ticket}"

    @app.tool
    async def provision(name: str, ctx: Context) -> str:
        region = await asks(ctx, "a")
        ticket = await ctx.step("reserve", reserve, name, region=region)
        await asks(ctx, "b")
        receipt = await ctx.step("pay", pay, ticket)
        await asks(ctx, "c")
        return receipt

    told = await converse(app, *tool("provision", name="orders"), answers=ANSWERS)
    assert told.text == "paid orders@A#1"
    assert effects == ["orders", "orders@A#1"]


async def test_a_plain_step_does_not_block_the_event_loop(app: Server) -> None:
    threads: list[int] = []

    @app.tool
    async def work(ctx: Context) -> str:
        await ctx.step("work", lambda: threads.append(threading.get_ident()))
        return "worked"

    assert (await converse(app, *tool("work"))).text == "worked"
    assert threads != [threading.get_ident()]


class Reservation(msgspec.Struct):
    ticket: str
    at: datetime


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Where, Where("eu", 3)),
        (Reservation, Reservation("t1", datetime(2026, 7, 28, tzinfo=UTC))),
        (datetime, datetime(2026, 7, 28, tzinfo=UTC)),
        (tuple[int, str], (1, "a")),
        (list[Where], [Where("eu"), Where("us")]),
        (dict[str, int], {"a": 1}),
        (Colour, Colour.RED),
        (bytes, b"\x00\xff"),
        (set[int], {1, 2}),
        (int | None, None),
        (None, None),
        (str, ""),
        (bool, False),
        (int, 2**63),
    ],
    ids=str,
)
async def test_a_steps_result_is_typed_by_its_return_annotation_on_every_round(
    app: Server, annotation: object, value: object
) -> None:
    seen: list[object] = []

    async def make():
        return value

    make.__annotations__["return"] = annotation

    @app.tool
    async def work(ctx: Context) -> None:
        seen.append(await ctx.step("make", make))
        await asks(ctx, "a")

    await converse(app, *tool("work"), answers=ANSWERS)
    assert seen == [value, value]
    assert [type(item) for item in seen] == [type(value)] * 2


async def test_a_step_without_an_annotation_gives_plain_data_from_the_first_round_on(app: Server) -> None:
    seen: list[object] = []

    @app.tool
    async def work(ctx: Context) -> None:
        seen.append(await ctx.step("make", lambda: (1, Where("eu"))))
        await asks(ctx, "a")

    await converse(app, *tool("work"), answers=ANSWERS)
    assert seen == [[1, {"region": "eu", "replicas": 2}]] * 2


class Shop:
    def __init__(self) -> None:
        self.calls = 0

    def buy(self, price: int) -> int:
        self.calls += 1
        return price * 2

    async def __call__(self, price: int) -> int:
        self.calls += 1
        return price * 2


async def test_every_kind_of_function_can_be_a_step(app: Server) -> None:
    shop = Shop()

    async def buy(price: int) -> int:
        return shop.buy(price)

    @app.tool
    async def work(ctx: Context) -> str:
        results = [
            await ctx.step("method", shop.buy, 1),
            await ctx.step("object", shop, 2),
            await ctx.step("partial", functools.partial(shop.buy, 3)),
            await ctx.step("async partial", functools.partial(buy, 4)),
            await ctx.step("lambda", lambda: shop.buy(5)),
            await ctx.step("coroutine maker", lambda: buy(6)),
            await ctx.step("builtin", max, 7, 14),
            await ctx.step("class", int, "16"),
        ]
        await asks(ctx, "a")
        return str(results)

    told = await converse(app, *tool("work"), answers=ANSWERS)
    assert told.text == str([2, 4, 6, 8, 10, 12, 14, 16])
    assert shop.calls == 6


async def test_a_failing_step_is_not_recorded_and_its_error_reaches_the_handler(app: Server) -> None:
    attempts: list[int] = []

    def flaky() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("try later")
        return "connected"

    @app.tool
    async def work(ctx: Context) -> str:
        try:
            state = await ctx.step("connect", flaky)
        except ConnectionError:
            state = "offline"
        await asks(ctx, "a")
        return state

    told = await converse(app, *tool("work"), answers=ANSWERS)
    assert told.text == "connected"
    assert len(attempts) == 2


class Unstorable:
    pass


def returns_an_object() -> object:
    return Unstorable()


def returns_a_function() -> object:
    return {"inside": print}


def returns_what_it_did_not_promise() -> int:
    return "text"  # type: ignore[return-value]


def returns_what_json_cannot_say() -> object:
    return {"ratio": math.nan}


@pytest.mark.parametrize(
    "make", [returns_an_object, returns_a_function, returns_what_it_did_not_promise, returns_what_json_cannot_say]
)
async def test_a_result_that_cannot_be_stored_fails_when_first_run_and_names_the_step(
    app: Server, logged: pytest.LogCaptureFixture, make
) -> None:
    @app.tool
    async def work(ctx: Context) -> str:
        await ctx.step("take a lock", make)
        return await asks(ctx, "a")

    told = await converse(app, *tool("work"), answers=ANSWERS)
    assert told.asked == []
    assert told.error == {"code": -32603, "message": "Internal error"}
    assert "'take a lock'" in logged.text


async def test_two_steps_with_one_key_are_an_error_that_names_it(app: Server, logged: pytest.LogCaptureFixture) -> None:
    effects: list[int] = []

    @app.tool
    async def work(ctx: Context) -> str:
        for number in range(2):
            await ctx.step("append", effects.append, number)
        return "unreachable"

    told = await converse(app, *tool("work"))
    assert told.error["code"] == -32603
    assert "'append'" in logged.text
    assert effects == [0]


async def test_a_step_may_be_called_now_or_random(app: Server) -> None:
    @app.tool
    async def work(ctx: Context) -> str:
        moment, dice = await ctx.now(), await ctx.random()
        mine = await ctx.step("now", lambda: "mine")
        other = await ctx.step("random", lambda: "other")
        again = await ctx.now()
        await asks(ctx, "a")
        return f"{mine} {other} {type(moment).__name__} {type(again).__name__} {type(dice).__name__}"

    told = await converse(app, *tool("work"), answers=ANSWERS)
    assert told.text == "mine other datetime datetime float"


@together
async def test_a_siblings_question_does_not_stop_a_step_half_way(app: Server, together) -> None:
    log: list[str] = []

    async def transfer() -> str:
        log.append("debit")
        await asyncio.sleep(0.01)
        log.append("credit")
        return "transferred"

    async def move(ctx: Context) -> str:
        return await ctx.step("transfer", transfer)

    @app.tool
    async def work(ctx: Context) -> str:
        return " ".join(await together(asks(ctx, "a"), move(ctx)))

    told = await converse(app, *tool("work"), answers=ANSWERS)
    assert told.text == "A transferred"
    assert log == ["debit", "credit"]


@together
async def test_a_siblings_step_that_fails_while_a_question_waits_is_reported_not_lost(app: Server, together) -> None:
    async def fail() -> None:
        await asyncio.sleep(0.005)
        raise ToolError("No credit")

    async def pay(ctx: Context) -> str:
        await ctx.step("pay", fail)
        return "paid"

    @app.tool
    async def work(ctx: Context) -> str:
        try:
            return " ".join(await together(asks(ctx, "a"), pay(ctx)))
        except* ToolError:
            raise ToolError("No credit") from None

    told = await converse(app, *tool("work"), answers=ANSWERS)
    assert told.failed
    assert "No credit" in told.text


async def test_a_task_left_behind_by_a_round_runs_no_more_steps(app: Server) -> None:
    replied = asyncio.Event()
    left_behind: list[asyncio.Task[object]] = []
    effects: list[int] = []

    async def effect() -> str:
        effects.append(1)
        return "done"

    @app.tool
    async def work(ctx: Context) -> str:
        async def later() -> str:
            task = asyncio.current_task()
            assert task is not None
            left_behind.append(task)
            await replied.wait()
            return await ctx.step("effect", effect)

        return " ".join(await gathered(asks(ctx, "a"), later()))

    first = await leg(app, *tool("work"))
    assert list(first.questions) == ["a"]
    replied.set()
    await asyncio.wait(left_behind, timeout=5)
    assert effects == []
    last = await leg(app, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]})
    assert last.result["content"][0]["text"] == "A done"
    assert effects == [1]


@together
async def test_a_question_inside_a_step_is_asked_and_never_hangs(app: Server, together) -> None:
    effects: list[str] = []

    @app.tool
    async def work(ctx: Context) -> str:
        async def asking() -> str:
            answer = await asks(ctx, "a")
            effects.append(answer)
            return answer

        async def step() -> str:
            return await ctx.step("asking", asking)

        return "".join(await together(step(), asks(ctx, "b")))

    async with asyncio.timeout(5):
        told = await converse(app, *tool("work"), answers=ANSWERS)
    assert told.text == "AB"
    assert effects == ["A"]


async def test_a_question_inside_a_step_of_the_handler_itself_is_asked(app: Server) -> None:
    @app.tool
    async def work(ctx: Context) -> str:
        async def asking() -> str:
            return await asks(ctx, "a")

        return await ctx.step("asking", asking) + await asks(ctx, "b")

    async with asyncio.timeout(5):
        told = await converse(app, *tool("work"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a"], ["b"]], "AB")


async def test_what_a_steps_function_holds_is_released_with_its_call(app: Server) -> None:
    class Big:
        pass

    held: list[weakref.ref[Big]] = []

    @app.tool
    async def work(ctx: Context) -> int:
        big = Big()
        held.append(weakref.ref(big))

        async def size() -> int:
            return 1 if big else 0

        return await ctx.step("size", size)

    await converse(app, *tool("work"))
    gc.collect()
    assert held[0]() is None
