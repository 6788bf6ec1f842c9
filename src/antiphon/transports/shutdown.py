"""The end of a process that serves.

In this order: subscription streams are closed, since open ones would hold the shutdown up; no more requests are
accepted, and those under way finish (uvicorn's ``timeout_graceful_shutdown`` in serve.py, ``_finish`` in
stdio_server.py); the server's lifespan ends (``Service.running``); what is left is cancelled, and if that does not
help, the process ends.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from types import FrameType
from typing import Any

from antiphon.server.dispatch import Service

GRACE = 2.0
"""Seconds that requests have to end after they were cancelled; the process ends then, whatever they do."""

log = logging.getLogger("antiphon")


def close_subscriptions_on(number: int, service: Service) -> None:
    """Close subscription streams on a signal, before the handler that is set for it runs."""
    proceed = signal.getsignal(number)

    def close(sig: int, frame: FrameType | None) -> None:
        service.subscriptions.close()
        if callable(proceed):
            proceed(sig, frame)

    signal.signal(number, close)


async def cancel_other_tasks() -> None:
    """Cancel the other tasks of this event loop; end the process if they do not stop.

    For a process that does nothing but serve: ``app.run`` on standard streams and over HTTP, and ``antiphon serve``.
    Its exit code says how it ended:

    * 0: told to stop, by a signal or by the end of its input, and every task finished or let itself be cancelled.
    * 1: a task did not let itself be cancelled within ``GRACE`` seconds. The log names it.

    With ``--workers`` and ``--reload``, uvicorn ends the worker that does not stop, and the process that started it
    ends with 0.
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
    os._exit(1)


def _place(task: "asyncio.Task[Any]") -> str:
    """Where a task is: the coroutines that wait for each other in it."""
    names: list[str] = []
    place: object = task.get_coro()
    while asyncio.iscoroutine(place):
        names.append(str(getattr(place, "__qualname__", place)))
        place = getattr(place, "cr_await", None)
    return f"{task.get_name()} ({' > '.join(names)})"
