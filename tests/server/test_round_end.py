"""When a run ends for a question without an answer, on both event loops, by what they promise alone."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

import antiphon
from antiphon.errors import CannotAsk
from antiphon.rounds.journal import RoundEnds
from antiphon.server.round_end import LONGER, QUIET, Settling, plain


class Talk:
    """As much of a conversation as settling looks at."""

    asked = 0

    def ask(self) -> None:
        self.asked += 1


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def runner(main: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(asyncio.wait_for(main, 10))

    return runner


async def turns_until(done: "asyncio.Task[Any]") -> int:
    turns = 0
    while not done.done():
        await asyncio.sleep(0)
        turns += 1
    return turns


def test_no_private_of_asyncio_is_looked_at() -> None:
    server = Path(antiphon.__file__).parent / "server"
    privates = ("_ready", "_fut_waiter", "_must_cancel", "_callbacks", "_scheduled")
    found = [name for file in server.glob("*.py") for name in privates if f'"{name}"' in file.read_text()]
    assert found == []


def test_a_question_of_the_handlers_own_task_ends_the_run_after_one_turn(run) -> None:
    async def main() -> int:
        talk = Talk()

        async def handler() -> None:
            talk.ask()
            await Settling(talk, asyncio.current_task()).end(RoundEnds())

        task = asyncio.create_task(handler())
        turns = await turns_until(task)
        assert isinstance(task.exception(), RoundEnds)
        return turns

    assert run(main()) <= 3


def test_a_task_just_created_asks_in_the_same_round_as_the_handler(run) -> None:
    async def main() -> int:
        talk = Talk()

        async def handler() -> None:
            talk.ask()
            asyncio.get_running_loop().call_soon(talk.ask)
            await Settling(talk, asyncio.current_task()).end(RoundEnds())

        task = asyncio.create_task(handler())
        turns = await turns_until(task)
        assert isinstance(task.exception(), RoundEnds)
        return turns

    assert run(main()) >= QUIET


@pytest.mark.parametrize(("signal", "quiet"), [(RoundEnds(), QUIET + LONGER), (CannotAsk("no", required={}), QUIET)])
def test_a_question_beside_the_handler_waits_for_others_and_interrupts_the_handler(run, signal, quiet) -> None:
    async def main() -> int:
        talk = Talk()

        async def handler() -> None:
            await asyncio.Event().wait()

        own = asyncio.create_task(handler())
        await asyncio.sleep(0)
        settling = Settling(talk, own)
        beside = asyncio.create_task(settling.end(signal))
        for _ in range(5):
            await asyncio.sleep(0)
        talk.ask()
        turns = await turns_until(own)
        await asyncio.wait({beside})
        assert plain(beside.exception()) is signal
        assert own.cancelled()
        assert settling.heard(asyncio.CancelledError()) is signal
        return turns

    assert quiet <= run(main()) <= quiet + 4


def test_a_question_waits_for_steps_under_way(run) -> None:
    async def main() -> None:
        talk = Talk()
        step = asyncio.create_task(asyncio.sleep(0.05, b"done"))

        async def handler() -> None:
            settling = Settling(talk, asyncio.current_task())
            settling.running.add(step)
            step.add_done_callback(settling.running.discard)
            await settling.end(RoundEnds())

        with pytest.raises(RoundEnds):
            await asyncio.create_task(handler())
        assert step.done()

    run(main())
