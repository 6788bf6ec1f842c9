"""Running a handler once, and telling how it ended: with a value, or with questions."""

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from antiphon.errors import CannotAsk
from antiphon.rounds.ask import Question
from antiphon.rounds.declare import AskedParameter, asked_parameters, is_asked
from antiphon.rounds.replay import InputRequired, RoundEnds
from antiphon.server.context import Context
from antiphon.shapes import hints_of
from antiphon.types import Accepted

ROUND = object()
"""Instead of a value: the handler ended with questions, which stand in the conversation."""


class Handler:
    """A user's function: where its context goes, which parameters are questions, and whether it needs a thread."""

    __slots__ = ("asked", "context", "function", "hidden", "is_async")

    def __init__(self, function: Callable[..., Any]) -> None:
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

    async def run(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        """The handler's value, or ROUND."""
        if self.context is not None:
            ctx._task = asyncio.current_task()
            arguments[self.context] = ctx
        try:
            if self.asked:
                await self._fill_in(ctx, arguments)
            if self.is_async:
                value = await self.function(**arguments)
            else:
                value = await ctx.server.in_thread(self.function, **arguments)
        except BaseException as fault:
            if not _ends_round(fault, ctx):
                raise
            value = None
        talk = ctx._talk
        if type(value) is InputRequired:
            ctx._conversation().returned(value)
            return ROUND
        if talk is not None and talk.pending:
            await ctx._end_round()
            return ROUND
        return value

    async def _fill_in(self, ctx: Context, arguments: dict[str, Any]) -> None:
        """Answer the declared questions; all that can be asked now are asked in one round."""
        open_: set[str] = set()
        for parameter in self.asked:
            if open_.intersection(parameter.needs):
                open_.add(parameter.name)
                continue
            try:
                arguments[parameter.name] = await self._value(ctx, parameter, arguments)
            except RoundEnds:
                open_.add(parameter.name)
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
        answer = ctx._answer(question)
        if question.kind in {"sample", "roots"}:
            return answer
        return answer if parameter.handles_refusal else answer.unwrap()


class Threads:
    """Where plain functions run, so that they never block the event loop."""

    __slots__ = ("_pool", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._size, thread_name_prefix="antiphon")
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, lambda: context.run(_without_stop_iteration, function, args, kwargs)
        )

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def label(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__qualname__', function)}()"


def _without_stop_iteration(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except StopIteration as fault:
        # A Future cannot carry StopIteration: whoever awaits it would wait for ever.
        raise RuntimeError("the handler raised StopIteration") from fault


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
        return False
    if isinstance(fault, Exception):
        talk = ctx._talk
        return talk is not None and bool(talk.pending)
    return False


def _first(group: BaseExceptionGroup[CannotAsk]) -> CannotAsk:
    for item in group.exceptions:
        return _first(item) if isinstance(item, BaseExceptionGroup) else item
    raise AssertionError("an exception group is never empty")
