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
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from antiphon.server.dispatch import Service

GRACE = 2.0
"""Seconds that requests have to end after they were cancelled; the process ends then, whatever they do."""

log = logging.getLogger("antiphon")


class _CloseStreams:
    """Closes the streams of a service on a signal, before the server's own handler runs."""

    def __init__(self, service: Service, proceed: Callable[[int, FrameType | None], object]) -> None:
        self.service = service
        self._proceed = proceed

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.service.subscriptions.close()
        self._proceed(number, frame)


def close_streams_on_signals(service: Service) -> None:
    """Close streams when the ASGI server is told to stop, whichever it is.

    An ASGI server waits for the requests under way before it ends the lifespan, and a stream ends only when it is told
    to. This does nothing where no server handles SIGTERM in this thread.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    handler = signal.getsignal(signal.SIGTERM)
    if not callable(handler) or (isinstance(handler, _CloseStreams) and handler.service is service):
        return
    closing = _CloseStreams(service, handler)
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) == handler:
            signal.signal(number, closing)


async def cancel_other_tasks() -> None:
    """Cancel the other tasks of this event loop; end the process if they do not stop.

    For a process that does nothing but serve: ``app.run`` on standard streams and over HTTP, and ``antiphon serve``.
    Its exit code says how it ended:

    * 0: told to stop, by a signal or by the end of its input, and every task finished or let itself be cancelled.
    * 1: a task did not let itself be cancelled within ``GRACE`` seconds. The log names it.
    """
    current = asyncio.current_task()
    await cancel_tasks([task for task in asyncio.all_tasks() if task is not current])


async def cancel_tasks(tasks: "Sequence[asyncio.Task[Any]]") -> None:
    """Cancel tasks; end the process with code 1 if they do not stop."""
    if not tasks:
        return
    for task in tasks:
        if not task.cancelling():
            task.cancel()
    _, stubborn = await asyncio.wait(tasks, timeout=GRACE)
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
