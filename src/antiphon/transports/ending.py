"""The end of a process that does nothing but serve."""

import asyncio
import contextlib
import logging
import os
import sys
from typing import Any

GRACE = 2.0
"""Seconds that requests have to end after they were cancelled; the process ends then, whatever they do."""

log = logging.getLogger("antiphon")


async def end_with_the_rest() -> None:
    """Cancel whatever still runs in this event loop, and end the process if that is of no use.

    Only where this is all that the process does: nobody would ever end it otherwise.
    """
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    if not rest:
        return
    for task in rest:
        if not task.cancelling():
            task.cancel()
    _, stubborn = await asyncio.wait(rest, timeout=GRACE)
    if not stubborn:
        return
    for task in stubborn:
        log.error("the process ends without waiting for %s, which does not let itself be cancelled", _place(task))
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(0)


def _place(task: "asyncio.Task[Any]") -> str:
    """Where a task is: the coroutines that wait for each other in it."""
    names: list[str] = []
    place: object = task.get_coro()
    while asyncio.iscoroutine(place):
        names.append(str(getattr(place, "__qualname__", place)))
        place = getattr(place, "cr_await", None)
    return f"{task.get_name()} ({' > '.join(names)})"
