"""The threads in which plain functions run, so that they never block the event loop."""

import asyncio
import contextlib
import contextvars
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

in_threads: contextvars.ContextVar[object] = contextvars.ContextVar("in_threads", default=None)
"""The Threads that the current code runs in: what it raises reaches the task that awaits it."""


class Threads:
    """Runs functions in at most so many threads.

    The threads are daemons: one that never returns must not keep the process from ending, as it would in an executor.
    """

    __slots__ = ("_most", "_pool")

    def __init__(self, most: int) -> None:
        self._most = most
        self._pool = _Pool()

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call the function in a thread, with the current context variables; return or raise what it does."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        # A job may wait for another that it gives to the same threads: that one must not wait for a thread.
        most = sys.maxsize if in_threads.get() is self else self._most
        context.run(in_threads.set, self)

        def job() -> None:
            if done.cancelled():
                return  # before its turn came
            try:
                value, fault = context.run(function, *args, **kwargs), None
            except BaseException as raised:  # noqa: BLE001 -- raised again where the call is awaited
                value, fault = None, raised
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing awaits the call
                loop.call_soon_threadsafe(_settle, done, value, fault)

        self._pool.take(job, most)
        return await done

    def close(self) -> None:
        """Let the threads end when they are done; later jobs get new ones."""
        pool, self._pool = self._pool, _Pool()
        pool.dismiss()


class _Pool:
    """Threads that share one queue, started as they are needed."""

    __slots__ = ("_idle", "_jobs", "_lock", "_size")

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._size = 0
        self._idle = 0

    def take(self, job: Callable[[], None], most: int) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self._size < most:
                self._size += 1
                threading.Thread(target=self._work, name="antiphon", daemon=True).start()
        self._jobs.put(job)

    def dismiss(self) -> None:
        for _ in range(self._size):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            with self._lock:
                # A job that found all threads busy is still in the queue, and this thread takes it next.
                if self._jobs.empty():
                    self._idle += 1


def _settle(done: "asyncio.Future[Any]", value: Any, fault: BaseException | None) -> None:
    if done.done():
        return
    if isinstance(fault, StopIteration):
        # A Future cannot carry StopIteration: awaiting it would never end.
        fault = RuntimeError("the function raised StopIteration")
    if fault is None:
        done.set_result(value)
    else:
        done.set_exception(fault)
