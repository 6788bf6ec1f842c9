"""Middleware: functions around every request, which see whole results."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias

from antiphon.rounds.journal import RoundEnds, raw_input_required
from antiphon.server.context import Context, context_of, run_of
from antiphon.server.handler import label
from antiphon.server.methods import Route
from antiphon.server.run import Run
from antiphon.types import JsonObject

Proceed: TypeAlias = Callable[[Context], Awaitable[Any]]


class Middleware(Protocol):
    """A function around every request: ``async def timed(ctx, proceed): ...; return await proceed(ctx)``."""

    def __call__(self, ctx: Context, proceed: Proceed, /) -> Awaitable[JsonObject]: ...


def check_middleware(function: Middleware) -> None:
    """TypeError if a function does not take what a middleware is given."""
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise TypeError(f"{label(function)} must take a Context and proceed: async def timed(ctx, proceed)") from None


def wrapped(inner: Route, middleware: Sequence[Middleware], complete: Callable[[Run, JsonObject], JsonObject]) -> Route:
    """A route with all middleware around it, the first outermost; ``complete`` makes what it gives a whole result."""
    if not middleware:
        return inner

    async def innermost(ctx: Context) -> Any:
        run = run_of(ctx)
        run.check_awaited(may_wait=True)
        try:
            return complete(run, await inner(run))
        except RoundEnds:
            return run.server.asking(run)

    outer: Proceed = innermost
    for function in reversed(middleware):
        outer = _around(function, outer)

    async def outermost(run: Run) -> Any:
        run.task = asyncio.current_task()
        try:
            result = await outer(context_of(run))
        except asyncio.CancelledError as fault:
            signal = None if run.settling is None else run.settling.heard(fault)
            if signal is None:
                raise
            raise signal from None
        run.check_awaited()
        if result.get("resultType") == "input_required" and not _is_same_round(result, run.asking):
            run.ask_by_returning(raw_input_required(result))
        return result

    return outermost


def _around(middleware: Middleware, proceed: Proceed) -> Proceed:
    def route(ctx: Context) -> Awaitable[Any]:
        return middleware(ctx, proceed)

    return route


def _is_same_round(result: JsonObject, asking: JsonObject | None) -> bool:
    """Whether a result that came through middleware is the one that the server made."""
    return asking is not None and result.get("requestState") == asking.get("requestState")
