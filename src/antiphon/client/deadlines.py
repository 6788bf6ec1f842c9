"""Time limits: the server's for a call, and a person's for an answer."""

import asyncio
from math import inf
from time import monotonic
from typing import Any, Literal, Self

from antiphon.errors import CallTimeout


class Deadlines:
    """The deadlines of a client on one timer: a timer for each would cost as much as a call."""

    __slots__ = ("_timer", "due", "next")

    def __init__(self) -> None:
        self.due: dict[Budget, float] = {}
        self.next = inf
        """When the timer rings."""
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Cancel the timer, unless a deadline is still due."""
        if not self.due:
            self._disarm()

    def _disarm(self) -> None:
        self.next = inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def arm(self, when: float) -> None:
        self._disarm()
        self.next = when
        self._timer = asyncio.get_running_loop().call_later(when - monotonic(), self._ring)

    def _ring(self) -> None:
        self._disarm()
        now = monotonic()
        for budget in [budget for budget, when in self.due.items() if when <= now]:
            del self.due[budget]
            budget.expire()
        if self.due:
            self.arm(min(self.due.values()))


class Budget:
    """Seconds that ``with`` blocks may take together, pauses not counted; CallTimeout when they are spent."""

    __slots__ = ("_cancelled", "_deadlines", "_expired", "_for", "_left", "_seconds", "_task")

    def __init__(self, deadlines: Deadlines, waiting_for: Literal["server", "person"], seconds: float | None) -> None:
        self._deadlines = deadlines
        self._for: Literal["server", "person"] = waiting_for
        self._seconds = self._left = seconds
        self._expired = False
        self._task: asyncio.Task[Any] | None = None
        """The task that the time is for, inside a block."""

    def __enter__(self) -> Self:
        if self._left is not None:
            self._task = asyncio.current_task()
            assert self._task is not None
            self._cancelled = self._task.cancelling()
            self.go_on()
        return self

    def pause(self) -> None:
        when = self._deadlines.due.pop(self, None)
        if when is not None:
            self._left = when - monotonic()

    def go_on(self) -> None:
        if self._left is not None and self._task is not None and self not in self._deadlines.due:
            when = self._deadlines.due[self] = monotonic() + self._left
            if when < self._deadlines.next:
                self._deadlines.arm(when)

    def __exit__(self, _: object, fault: BaseException | None, __: object) -> None:
        when = self._deadlines.due.pop(self, None)
        if when is not None:
            self._left = when - monotonic()
        task, self._task = self._task, None
        if self._expired and task is not None:
            # As asyncio.timeout does it: our own cancellation is a timeout, unless the task is cancelled otherwise too.
            others = task.uncancel() > self._cancelled
            if isinstance(fault, asyncio.CancelledError) and not others:
                raise CallTimeout(self._for, self._seconds or 0) from None

    def expire(self) -> None:
        self._expired = True
        self._left = None
        if self._task is not None:
            self._task.cancel()
