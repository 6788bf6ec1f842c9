"""Running a handler once, and telling how it ended: with a value, or with questions."""

import asyncio
import contextlib
import contextvars
import inspect
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from antiphon.errors import CannotAsk, ProtocolError, ToolError, UserRefused
from antiphon.rounds.ask import Question
from antiphon.rounds.declare import AskedParameter, asked_parameters, is_asked
from antiphon.rounds.journal import InputRequired, RoundEnds
from antiphon.server.asking import not_awaited
from antiphon.server.context import Context, in_threads
from antiphon.shapes import hints_of
from antiphon.types import Accepted

ROUND = object()
"""Instead of a value: the handler ended with questions, which stand in the conversation."""


class Handler:
    """A user's function: where its context goes, which parameters are questions, and whether it needs a thread."""

    __slots__ = ("asked", "context", "function", "hidden", "is_async", "is_plain")

    def __init__(self, function: Callable[..., Any]) -> None:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{label(function)} is a generator; return the whole result, for example as a list")
        hints = hints_of(function)
        parameters = inspect.signature(function).parameters
        contexts = [name for name in parameters if hints.get(name) is Context]
        if len(contexts) > 1:
            raise TypeError(f"{label(function)} takes the Context twice: {', '.join(contexts)}")
        self.function = function
        self.context = contexts[0] if contexts else None
        asked = [name for name in parameters if is_asked(hints.get(name))]
        self.hidden = frozenset([*contexts, *asked])
        plain = [name for name in parameters if name not in self.hidden]
        self.asked: tuple[AskedParameter, ...] = asked_parameters(function, plain) if asked else ()
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 -- an object whose call is a coroutine function
        )
        self.is_plain = self.is_async and not self.hidden

    async def run(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        """The handler's value, or ROUND."""
        if self.context is not None:
            ctx._task = asyncio.current_task()
            ctx._is_plain = not self.is_async
            arguments[self.context] = ctx
        try:
            if self.asked:
                await self._fill_in(ctx, arguments)
            if self.is_async:
                value = await self.function(**arguments)
            else:
                value = await ctx.server.in_thread(self.function, **arguments)
                if inspect.isawaitable(value):
                    # A decorator may hide that a function is a coroutine function.
                    ctx._is_plain = False
                    value = await value
        except BaseException as fault:
            signal = None if ctx._settling is None else ctx._settling.heard(fault)
            if not _ends_round(signal or fault, ctx):
                if signal is None:
                    raise
                raise signal from None
            value = None
        else:
            if ctx._settling is not None:
                ctx._settling.returned()
            if ctx._loose:
                raise not_awaited(ctx._loose.pop())
        talk = ctx._talk
        if type(value) is InputRequired:
            return self.asked_by_returning(ctx, value)
        if talk is not None and talk.pending:
            await ctx._end_round()
            return ROUND
        return value

    def asked_by_returning(self, ctx: Context, wanted: InputRequired) -> object:
        ctx._check_may_ask()
        ctx._conversation().returned(wanted)
        return ROUND

    async def _fill_in(self, ctx: Context, arguments: dict[str, Any]) -> None:
        """Answer the declared questions; all that can be asked now are asked in one round."""
        open_: set[str] = set()
        cannot: CannotAsk | None = None
        for parameter in self.asked:
            if open_.intersection(parameter.needs):
                open_.add(parameter.name)
                continue
            try:
                arguments[parameter.name] = await self._value(ctx, parameter, arguments)
            except RoundEnds:
                open_.add(parameter.name)
            except CannotAsk as fault:
                cannot = fault
                open_.add(parameter.name)
            except UserRefused:
                ctx._conversation().pending.clear()
                raise
        if cannot is not None:
            raise cannot
        if open_:
            raise RoundEnds

    async def _value(self, ctx: Context, parameter: AskedParameter, arguments: dict[str, Any]) -> Any:
        if isinstance(parameter.source, str):
            question = parameter.question(arguments)
        else:
            made = parameter.source(**{name: arguments[name] for name in parameter.needs})
            if inspect.isawaitable(made):
                made = await made
            if not isinstance(made, Question):
                return Accepted(made) if parameter.handles_refusal else made
            question = made
            question.key = question.key or parameter.name
            question.ttl = parameter.ttl if question.ttl is None else question.ttl
        answer = ctx._answer(question)
        if question.kind in {"sample", "roots"}:
            return answer
        return answer if parameter.handles_refusal else answer.unwrap()


class Threads:
    """Where plain functions run, so that they never block the event loop.

    The threads are daemons: one that never returns must not keep the process from ending, as it would in an executor.
    """

    __slots__ = ("_crew", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        self._crew = _Crew()

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
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
            except BaseException as raised:  # noqa: BLE001 -- it belongs to whoever awaits the call
                value, fault = None, raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, done, value, fault)

        self._crew.take(job, most)
        return await done

    def close(self) -> None:
        """Let the threads end when they are done; later jobs get new ones."""
        crew, self._crew = self._crew, _Crew()
        crew.dismiss()


class _Crew:
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
                # Whoever found everybody busy left a job in the queue, and this thread takes it next.
                if self._jobs.empty():
                    self._idle += 1


def _settle(done: "asyncio.Future[Any]", value: Any, fault: BaseException | None) -> None:
    if done.done():
        return
    if isinstance(fault, StopIteration):
        # A Future cannot carry StopIteration: whoever awaits it would wait for ever.
        fault = RuntimeError("the handler raised StopIteration")
    if fault is None:
        done.set_result(value)
    else:
        done.set_exception(fault)


def label(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__qualname__', function)}()"


def _ends_round(fault: BaseException, ctx: Context) -> bool:
    """Whether what left the handler is the end of a round; raises what must go on instead.

    A handler may swallow the signal and fail with an error of its own: its questions are still asked. A task group that
    failed for another reason as well reports that reason.
    """
    if isinstance(fault, RoundEnds):
        return True
    if isinstance(fault, BaseExceptionGroup):
        _, rest = fault.split(RoundEnds)
        if rest is None:
            return True
        cannot = rest.subgroup(CannotAsk)
        if cannot is not None:
            raise _first(cannot) from None
        raise told_by(rest) from None
    if isinstance(fault, Exception):
        talk = ctx._talk
        return talk is not None and bool(talk.pending)
    return False


def told_by(faults: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a task group failed with, where all of that is meant to be told; else the group itself."""
    _, rest = faults.split((ToolError, ProtocolError))
    return faults if rest is not None else _first(faults)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
