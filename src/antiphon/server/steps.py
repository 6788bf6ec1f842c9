"""Steps: what runs once in a conversation and is recorded, and what a store shares of them across instances."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from antiphon.rounds.journal import RoundEnds
from antiphon.server.run import Run, current_step
from antiphon.shapes import Mismatch, hints_of, shape_of
from antiphon.stores.store import Store

LEASE = 30.0
"""Seconds that a claim lives without renewal: so long a crashed instance keeps others waiting."""
_FIRST_LOOK, _LAST_LOOK = 0.01, 0.25
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


def remembered(run: Run, base: str, make: Callable[[], float]) -> Any:
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
            steps[key] = msgspec.json.encode(make())
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

    journal = run.conversation().journal
    shared = run.server.shared_steps if journal.round > 1 else None
    with _observed(run, key):
        if shared is None:
            recorded = await once()
        else:
            # A copy of this leg may arrive as long as its token lives.
            recorded = await shared.once(f"{journal.flow.hex()}:{key}", once, run.expires - run.server.clock())
    journal.steps[key] = recorded
    return recorded


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


class SharedSteps:
    """Runs a step once per key, across instances: a request that arrives twice, anywhere, runs each step once."""

    __slots__ = ("_store", "_tasks", "_ttl")

    def __init__(self, store: Store, ttl: float) -> None:
        self._store = store
        self._ttl = ttl
        self._tasks: set[asyncio.Task[bytes]] = set()

    async def once(self, key: str, run: Callable[[], Awaitable[bytes]], ttl: float = 0) -> bytes:
        claim, done = f"antiphon:step:{key}", f"antiphon:done:{key}"
        pause = _FIRST_LOOK
        while True:
            recorded = await self._store.get(done)
            if recorded is not None:
                return recorded
            if await self._store.add(claim, ttl=LEASE):
                # Another instance may have finished between the look and the claim.
                return await self._store.get(done) or await self._outliving(self._run(claim, done, run, ttl))
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_LOOK)

    async def _outliving(self, run: Coroutine[object, object, bytes]) -> bytes:
        """Run to the end even if the request that began it is cancelled: the effect must not be left unrecorded."""
        task = asyncio.ensure_future(run)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _run(self, claim: str, done: str, run: Callable[[], Awaitable[bytes]], ttl: float) -> bytes:
        task = asyncio.ensure_future(run())
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=LEASE / 3)
                if not task.done():
                    await self._store.put(claim, b"", ttl=LEASE)
            recorded = task.result()
            await self._store.put(done, recorded, ttl=max(self._ttl, ttl))
        finally:
            task.cancel()
            await self._store.take(claim)
        return recorded
