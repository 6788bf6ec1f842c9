"""Time: what a server may take for a call, and what a person may."""

import asyncio
from collections.abc import Awaitable
from math import inf
from time import monotonic
from typing import Literal, TypeVar

from antiphon.errors import CallTimeout

T = TypeVar("T")


class Deadlines:
    """The deadlines of all that a client waits for, on one timer: a timer for each would cost as much as a call."""

    __slots__ = ("_due", "_next", "_timer")

    def __init__(self) -> None:
        self._due: dict[Budget, float] = {}
        self._next = inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, budget: "Budget", when: float) -> None:
        self._due[budget] = when
        if when < self._next:
            self._arm(when)

    def drop(self, budget: "Budget") -> None:
        self._due.pop(budget, None)

    def close(self) -> None:
        self._next = inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, when: float) -> None:
        self.close()
        self._next = when
        self._timer = asyncio.get_running_loop().call_later(when - monotonic(), self._ring)

    def _ring(self) -> None:
        self.close()
        now = monotonic()
        for budget in [budget for budget, when in self._due.items() if when <= now]:
            del self._due[budget]
            budget.expire()
        if self._due:
            self._arm(min(self._due.values()))


class Budget:
    """Seconds to spend waiting for somebody, in as many parts as it takes; CallTimeout when they are spent."""

    __slots__ = ("_deadlines", "_expired", "_for", "_left", "_seconds", "_task")

    def __init__(self, deadlines: Deadlines, waiting_for: Literal["server", "person"], seconds: float | None) -> None:
        self._deadlines = deadlines
        self._for: Literal["server", "person"] = waiting_for
        self._seconds = self._left = seconds
        self._task: asyncio.Task[object] | None = None
        self._expired = False

    async def spend(self, work: Awaitable[T]) -> T:
        if self._left is None:
            return await work
        task = self._task = asyncio.current_task()
        assert task is not None
        cancelled_before = task.cancelling()
        started = monotonic()
        self._deadlines.set(self, started + self._left)
        try:
            return await work
        except asyncio.CancelledError:
            # As asyncio.timeout does it: our own cancellation is a timeout, unless somebody else cancels as well.
            if self._expired and task.cancelling() <= cancelled_before + 1:
                raise CallTimeout(self._for, self._seconds or 0) from None
            raise
        finally:
            if self._expired:
                task.uncancel()
            self._deadlines.drop(self)
            self._left -= monotonic() - started

    def expire(self) -> None:
        self._expired = True
        if self._task is not None:
            self._task.cancel()
