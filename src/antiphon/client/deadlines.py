"""Time: what a server may take for a call, and what a person may."""

import asyncio
from math import inf
from time import monotonic
from typing import Literal, Self

from antiphon.errors import CallTimeout


class Deadlines:
    """The deadlines of all that a client waits for, on one timer: a timer for each would cost as much as a call."""

    __slots__ = ("_next", "_timer", "due")

    def __init__(self) -> None:
        self.due: dict[Budget, float] = {}
        self._next = inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, budget: "Budget", when: float) -> None:
        self.due[budget] = when
        if when < self._next:
            self._arm(when)

    def close(self) -> None:
        """Nothing more will be set; what is still due keeps its timer."""
        if not self.due:
            self._disarm()

    def _disarm(self) -> None:
        self._next = inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, when: float) -> None:
        self._disarm()
        self._next = when
        self._timer = asyncio.get_running_loop().call_later(when - monotonic(), self._ring)

    def _ring(self) -> None:
        self._disarm()
        now = monotonic()
        for budget in [budget for budget, when in self.due.items() if when <= now]:
            del self.due[budget]
            budget.expire()
        if self.due:
            self._arm(min(self.due.values()))


class Budget:
    """Seconds to wait for somebody within a ``with`` block, pauses not counted; CallTimeout when they are spent."""

    __slots__ = ("_cancelled", "_deadlines", "_expired", "_for", "_left", "_seconds", "_task")

    def __init__(self, deadlines: Deadlines, waiting_for: Literal["server", "person"], seconds: float | None) -> None:
        self._deadlines = deadlines
        self._for: Literal["server", "person"] = waiting_for
        self._seconds = self._left = seconds
        self._expired = False

    def __enter__(self) -> Self:
        if self._left is not None:
            self._task = asyncio.current_task()
            assert self._task is not None
            self._cancelled = self._task.cancelling()
            self._deadlines.set(self, monotonic() + self._left)
        return self

    def pause(self) -> None:
        when = self._deadlines.due.pop(self, None)
        if when is not None:
            self._left = when - monotonic()

    def go_on(self) -> None:
        if self._left is not None:
            self._deadlines.set(self, monotonic() + self._left)

    def __exit__(self, _: object, fault: BaseException | None, __: object) -> None:
        self.pause()
        if self._expired and self._task is not None:
            # As asyncio.timeout does it: our own cancellation is a timeout, unless somebody else cancels as well.
            others = self._task.uncancel() > self._cancelled
            if isinstance(fault, asyncio.CancelledError) and not others:
                raise CallTimeout(self._for, self._seconds or 0) from None

    def expire(self) -> None:
        self._expired = True
        if self._task is not None:
            self._task.cancel()
