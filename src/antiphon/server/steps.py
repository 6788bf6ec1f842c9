"""Steps: what runs once in a conversation and is recorded, and what a store shares of them across instances."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from antiphon.rounds.journal import RoundEnds
from antiphon.rounds.step_identity import step_identity
from antiphon.server.run import Run, current_step
from antiphon.shapes import Mismatch, hints_of, shape_of
from antiphon.stores.shared_steps import SharedSteps

_UNOBSERVED = nullcontext()


async def step(run: Run, key: str, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run a function once in a conversation; on later rounds, give back what it returned."""
    if run.over:
        raise RoundEnds
    _claim(run, key)
    recorded = run.conversation().journal.steps.get(key)
    if recorded is None:
        recorded = await _guarded(run, _record(run, key, fn, args, kwargs))
    return _recall(key, fn, recorded)


async def remembered(run: Run, base: str, make: Callable[[], float]) -> Any:
    """A value that is made once; several in one run are told apart by their order."""
    base = key = f":{base}"  # a colon first: no key that a user would choose
    count = 1
    while run.steps is not None and key in run.steps:
        count += 1
        key = f"{base}-{count}"
    _claim(run, key)
    steps = run.conversation().journal.steps
    if key not in steps:
        with _observed(run, base):
            made, shared = msgspec.json.encode(make()), _shared(run)
            if shared is not None:
                made = await _guarded(run, shared.first(_identity(run, key), made, _time_left(run)))
            steps[key] = made
    return msgspec.json.decode(steps[key])


def _claim(run: Run, key: str) -> None:
    if run.steps is None:
        run.steps = set()
    if key in run.steps:
        raise ValueError(f"The step {key!r} was called already in this run: give each step a key of its own")
    run.steps.add(key)


def _observed(run: Run, key: str) -> AbstractContextManager[None]:
    observer = run.server.observer
    return _UNOBSERVED if observer is None else observer.step(key)


async def _guarded(run: Run, recording: Coroutine[Any, Any, bytes]) -> bytes:
    """Await a step so that neither a sibling's question nor a task group's end can stop it half-way."""
    if asyncio.current_task() is run.task:
        return await recording

    async def inside() -> bytes:
        current_step.set(asyncio.current_task())
        return await recording

    task: asyncio.Task[bytes] = asyncio.ensure_future(inside())
    running = run.settled().running
    running.add(task)
    task.add_done_callback(running.discard)
    return await asyncio.shield(task)


async def _record(run: Run, key: str, fn: Callable[..., Any], args: Any, kwargs: Any) -> bytes:
    async def once() -> bytes:
        if inspect.iscoroutinefunction(fn):
            value = await fn(*args, **kwargs)
        else:
            value = await run.server.in_step_thread(fn, *args, **kwargs)
            if inspect.isawaitable(value):
                value = await value
        return _store(key, value)

    shared = _shared(run)
    with _observed(run, key):
        if shared is None:
            recorded = await once()
        else:
            recorded = await shared.once(_identity(run, key, args, kwargs), once, _time_left(run), label=key)
    run.conversation().journal.steps[key] = recorded
    return recorded


def _shared(run: Run) -> SharedSteps | None:
    """What shares steps with other instances; None on a first round, which has no token to know a copy of it by."""
    return None if run.brought is None else run.server.shared_steps


def _identity(run: Run, key: str, args: Any = (), kwargs: Any = None) -> str:
    assert run.brought is not None
    return step_identity(run.brought, run.conversation().arrived, key, args, kwargs or {})


def _time_left(run: Run) -> float:
    """Seconds for which a copy of this request may arrive."""
    return run.expires - run.server.clock()


def _store(key: str, value: object) -> bytes:
    try:
        stored = msgspec.json.encode(value)
        if b"null" in stored:
            import json  # only to tell a None from what JSON has no word for

            json.dumps(msgspec.to_builtins(value, str_keys=True), allow_nan=False)
        return stored
    except (TypeError, ValueError, OverflowError, RecursionError) as fault:
        raise TypeError(f"The result of step {key!r} cannot be stored: {fault}. Return plain data.") from None


def _recall(key: str, fn: Callable[..., Any], recorded: bytes) -> Any:
    value = msgspec.json.decode(recorded)
    returns = _returns(fn)
    if returns is None:
        return value
    try:
        return shape_of(returns).read(value)
    except Mismatch as fault:
        raise TypeError(f"The result of step {key!r} does not fit {fn!r}'s return annotation: {fault}") from None


def _returns(fn: Callable[..., Any]) -> object | None:
    # Not cached: a function that a handler defines holds what its call holds, and a cache would keep it all.
    try:
        annotation = hints_of(fn).get("return")
    except TypeError:
        return None
    return None if annotation is Any or annotation is type(None) else annotation
