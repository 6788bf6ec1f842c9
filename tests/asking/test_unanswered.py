"""A question that gets no answer in this run is neither a yes nor a no, and its signal is a plain exception."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import pytest
import uvloop

from antiphon import CannotAsk, Context, Server
from antiphon.rounds.journal import RoundEnds

from .driver import accept, converse, leg, tool

SIGNALS = [RoundEnds(), CannotAsk("no", required={})]


@pytest.mark.parametrize("signal", SIGNALS, ids=["round ends", "cannot ask"])
def test_a_signal_is_as_true_as_any_exception(signal: BaseException) -> None:
    third_party: dict[str, Any] = {"__name__": "third_party"}
    exec("def is_failed(exc):\n    return True if exc else False", third_party)
    assert third_party["is_failed"](signal) is True
    failed: Future[bool] = Future()
    failed.set_exception(signal)
    with pytest.raises(type(signal)):
        failed.result()


# --- ways in which a handler might take a signal for an answer ------------------------------------------------------


async def gathered(ctx: Context) -> object:
    (sure,) = await asyncio.gather(ctx.confirm("Wipe?"), return_exceptions=True)
    return sure


async def gathered_among_others(ctx: Context) -> object:
    async def sure() -> bool:
        return await ctx.confirm("Wipe?")

    *_, found = await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0.01), sure(), return_exceptions=True)
    return found


async def gathered_deeper(ctx: Context) -> object:
    (found,) = await asyncio.gather(gathered(ctx), return_exceptions=True)
    return found


async def gathered_in_a_group(ctx: Context) -> object:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(gathered(ctx))
    return task.result()


async def gathered_in_a_task(ctx: Context) -> object:
    return await asyncio.create_task(gathered(ctx))


async def gathered_in_time(ctx: Context) -> object:
    return await asyncio.wait_for(gathered(ctx), 5)


async def gathered_under_a_timeout(ctx: Context) -> object:
    async with asyncio.timeout(5):
        return await gathered(ctx)


async def gathered_behind_a_shield(ctx: Context) -> object:
    (sure,) = await asyncio.shield(asyncio.gather(ctx.confirm("Wipe?"), return_exceptions=True))
    return sure


async def gathered_later(ctx: Context) -> object:
    task = asyncio.create_task(ctx.confirm("Wipe?"))
    await asyncio.sleep(0.01)
    (sure,) = await asyncio.gather(task, return_exceptions=True)
    return sure


async def gathered_from_a_thread(ctx: Context) -> object:
    (sure,) = await asyncio.gather(asyncio.to_thread(ctx.sync.confirm, "Wipe?"), return_exceptions=True)
    return sure


async def gathered_after_all(ctx: Context) -> object:
    task = asyncio.create_task(ctx.confirm("Wipe?"))
    try:
        await asyncio.wait({task})
    finally:
        (sure,) = await asyncio.gather(task, return_exceptions=True)
    return sure


WAYS: list[Callable[[Context], Coroutine[Any, Any, object]]] = [
    gathered,
    gathered_among_others,
    gathered_deeper,
    gathered_in_a_group,
    gathered_in_a_task,
    gathered_in_time,
    gathered_under_a_timeout,
    gathered_behind_a_shield,
    gathered_later,
    gathered_from_a_thread,
    gathered_after_all,
]


async def taken_for_an_answer(way: Callable[[Context], Awaitable[object]], *, can_be_asked: bool) -> list[object]:
    app = Server("wiping")
    seen: list[object] = []

    @app.tool
    async def wipe(ctx: Context) -> str:
        sure = await way(ctx)
        seen.append(bool(sure))
        return "over"

    capabilities: dict[str, Any] = {"elicitation": {}} if can_be_asked else {}
    told = await asyncio.wait_for(leg(app, *tool("wipe"), capabilities=capabilities), 10)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    if can_be_asked:
        assert list(told.questions) == ["confirm"]
    else:
        assert told.reply["error"]["code"] == -32021
    return seen


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("can_be_asked", [True, False], ids=["asked", "not asked"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_question_without_an_answer_is_neither_yes_nor_no(
    way: Callable[[Context], Awaitable[object]], can_be_asked: bool, loop: str
) -> None:
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(taken_for_an_answer(way, can_be_asked=can_be_asked)) == []


@pytest.mark.parametrize("can_be_asked", [True, False])
async def test_neither_is_one_that_a_middleware_asks(app: Server, can_be_asked: bool) -> None:
    seen: list[object] = []

    @app.middleware
    async def careful(ctx: Context, proceed: Callable[[Context], Awaitable[Any]]) -> Any:
        if ctx.method == "tools/call":
            seen.append(bool(await gathered(ctx)))
        return await proceed(ctx)

    @app.tool
    async def wipe() -> str:
        return "wiped"

    if can_be_asked:
        told = await converse(app, *tool("wipe"), answers={"confirm": accept(confirm=True)})
        assert (told.asked, told.text, seen) == ([["confirm"]], "wiped", [True])
    else:
        assert (await converse(app, *tool("wipe"), capabilities={})).error["code"] == -32021
        assert seen == []


# --- what stays as it is --------------------------------------------------------------------------------------------


async def at_once(ctx: Context) -> None:
    await ctx.confirm("Wipe?")


async def in_parallel(ctx: Context) -> None:
    await asyncio.gather(ctx.confirm("Wipe?"), ctx.confirm("Really?"))


async def in_a_task(ctx: Context) -> None:
    await asyncio.create_task(at_once(ctx))


async def beside_its_own(ctx: Context) -> None:
    task = asyncio.create_task(at_once(ctx))
    try:
        await ctx.confirm("Really?")
    finally:
        with contextlib.suppress(CannotAsk):
            await task


@pytest.mark.parametrize("way", [at_once, in_parallel, in_a_task, beside_its_own])
async def test_that_it_cannot_be_asked_can_be_caught_by_name_and_the_handler_goes_on(
    app: Server, way: Callable[[Context], Awaitable[None]]
) -> None:
    @app.tool
    async def wipe(ctx: Context) -> str:
        try:
            await way(ctx)
        except CannotAsk as fault:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            return f"Pass it as an argument: {sorted(fault.required)}"
        return "wiped"

    assert (await converse(app, *tool("wipe"), capabilities={})).text == "Pass it as an argument: ['elicitation']"


async def test_that_it_cannot_be_asked_can_be_caught_from_a_group(app: Server) -> None:
    @app.tool
    async def wipe(ctx: Context) -> str:
        told = "wiped"
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(at_once(ctx))
        except* CannotAsk:
            await asyncio.sleep(0.01)
            told = "Pass it as an argument"
        return told

    assert (await converse(app, *tool("wipe"), capabilities={})).text == "Pass it as an argument"


async def test_a_cancelled_call_whose_parallel_questions_settle_stays_cancelled(app: Server) -> None:
    entered = asyncio.Event()

    @app.tool
    async def slow(ctx: Context) -> str:
        with contextlib.suppress(BaseException):
            await asyncio.gather(ctx.confirm("a?"), ctx.confirm("b?"), return_exceptions=True)
        entered.set()
        await asyncio.Event().wait()
        return "never"

    task = asyncio.create_task(leg(app, *tool("slow")))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_a_handler_holds_while_tasks_ask_is_let_go(app: Server) -> None:
    lock = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def held() -> AsyncIterator[None]:
        async with lock:
            yield
            await asyncio.sleep(0)

    async def one(ctx: Context, key: str) -> bool:
        async with held():
            return await ctx.confirm("Sure?", key=key)

    @app.tool
    async def several(ctx: Context) -> str:
        done, _ = await asyncio.wait([asyncio.create_task(one(ctx, "a"))])
        return str([task.result() for task in done])

    told = await converse(app, *tool("several"), answers={"a": accept(confirm=True)})
    assert (told.asked, told.text) == ([["a"]], "[True]")
