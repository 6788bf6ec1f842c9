"""How a question without an answer ends a run: when, and by what the handler hears of it.

When. One round carries all questions that belong together, so the run does not end with the first one.

* A question of the handler's own task gives the tasks beside it one turn of the event loop. If none of them asks in
  that turn, and no step is running, the run ends.
* A question of any other task waits until no further question has come for `QUIET` turns, and no step is running. What
  can be asked waits a few turns longer than what cannot, so that the caller hears of a missing capability first.

By what. The signal is RoundEnds, or CannotAsk, both plain exceptions. It must never stand where an answer is expected.

* In the handler's own task it is raised. So it is in the threads of a handler that is a plain function.
* Raised in another task alone it could become a value: ``gather(return_exceptions=True)`` returns it in place of an
  answer, and an exception is true. So the handler's own task is cancelled first, and with it what it awaits, the
  ``gather`` included. When that arrives at the task that asked, the signal is raised there.
* If it does not arrive, the handler does not await that task: it is shielded, left behind, or stands in
  ``asyncio.wait``, and something else may gather it. Then an `Unheard` signal is raised, which has no truth: to look at
  it raises it. Threads that an asynchronous handler started raise that too.
* The cancellation is taken back when it has arrived, or when the handler has ended. What is left of it is the signal.
"""

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

from antiphon.errors import CannotAsk
from antiphon.rounds.journal import Conversation, RoundEnds

QUIET = 8
"""Turns of the event loop without a new question after which what cannot be asked ends the run."""
LONGER = 4
"""Turns by which a question that can be asked waits longer."""
_ARRIVES = 8
"""Turns in which a cancellation passes from the handler to the tasks that it awaits; each task group takes one."""


class Unheard(BaseException):
    """A signal in a task that the handler does not await. It is neither true nor false."""

    signal: BaseException

    def __bool__(self) -> bool:
        raise self.signal


class _UnheardEnd(Unheard, RoundEnds):
    pass


class _UnheardRefusal(Unheard, CannotAsk):
    pass


def unheard(signal: BaseException) -> Unheard:
    """The signal, for a place where it might be taken for an answer."""
    made = _UnheardRefusal(signal.message, required=signal.required) if isinstance(signal, CannotAsk) else _UnheardEnd()
    made.signal = signal
    return made


def plain(signal: BaseException) -> BaseException:
    """The signal, for a place where it is raised and nothing else."""
    return signal.signal if isinstance(signal, Unheard) else signal


class Settling:
    """The end of one run."""

    __slots__ = ("_is_cancelled", "_is_over", "_signal", "_talk", "_task", "running")

    def __init__(
        self, talk: Conversation, task: "asyncio.Task[Any] | None", is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """``task`` is the handler's own, or None if the signal is raised wherever it asks."""
        self.running: set[asyncio.Task[Any]] = set()
        """The steps that run in tasks of their own, and the questions to the client that others must wait for."""
        self._talk = talk
        self._task = task
        self._is_over = is_over
        self._signal: BaseException | None = None
        self._is_cancelled = False

    async def end(self, signal: BaseException, *, at_once: bool = False) -> NoReturn:
        """Raise the signal when the round is complete, or at once; beside the handler's own task, interrupt that."""
        turns = 0 if at_once else QUIET if isinstance(signal, CannotAsk) else QUIET + LONGER
        current = asyncio.current_task()
        try:
            if current is self._task:
                asked = self._talk.asked
                await asyncio.sleep(0)
                if self._talk.asked != asked or self.running:
                    await self._complete(turns)
            else:
                await self._complete(turns)
                if current is not None:
                    current.add_done_callback(_retrieve)
                if self.interrupt(signal):
                    await _turns(_ARRIVES)
                signal = unheard(signal)
        except asyncio.CancelledError:
            is_ours = self._is_cancelled if current is self._task else self._signal is not None
            if not is_ours or self._signal is None or current is None:
                raise
            if current is not self._task:
                current.uncancel()
            self._uncancel()
            raise self._signal from None
        raise signal

    def interrupt(self, signal: BaseException) -> bool:
        """Cancel the handler's own task, since this signal ends its run; False if there is none to cancel."""
        if self._task is None or self._is_over():
            return False
        self._signal = self._signal or signal
        if not self._is_cancelled:
            self._is_cancelled = True
            self._task.cancel()
        return True

    def heard(self, fault: BaseException) -> BaseException | None:
        """The signal, if it caused the cancellation that the handler ended with."""
        self._uncancel()
        _make_plain(fault)
        signal, self._signal = self._signal, None
        if self._task is None or self._task.cancelling() or not isinstance(fault, asyncio.CancelledError):
            return None
        return signal

    def returned(self) -> None:
        """The handler ended with a value: it has caught what interrupted it."""
        self._uncancel()
        self._signal = None

    async def close(self) -> None:
        """Interrupt nothing any more, and wait for steps under way: their results belong into the journal."""
        self._is_over = lambda: True
        while self.running:
            done, _ = await asyncio.wait(self.running)
            for task in done:
                _retrieve(task)

    # --- inside ---------------------------------------------------------------------------------------------------

    async def _complete(self, turns: int) -> None:
        asked, quiet = self._talk.asked, 0
        while quiet < turns and not self._is_over():
            if self.running:
                await asyncio.wait(self.running)
            await asyncio.sleep(0)
            asked, quiet = self._talk.asked, 0 if self._talk.asked != asked else quiet + 1

    def _uncancel(self) -> None:
        if self._is_cancelled and self._task is not None:
            self._is_cancelled = False
            self._task.uncancel()


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _make_plain(fault: BaseException) -> None:
    """Make signals behind an error plain, since traceback looks whether they are true."""
    seen: BaseException | None = fault
    while seen is not None:
        if seen.__cause__ is not None:
            seen.__cause__ = plain(seen.__cause__)
        if seen.__context__ is not None:
            seen.__context__ = plain(seen.__context__)
        seen = seen.__cause__ if seen.__cause__ is not None else seen.__context__


def _retrieve(task: "asyncio.Task[Any]") -> None:
    """Keep asyncio from logging an exception that nothing awaits: the handler was interrupted instead."""
    if not task.cancelled():
        task.exception()
