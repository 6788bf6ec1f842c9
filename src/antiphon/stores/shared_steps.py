"""Steps that a store shares: a request that arrives twice, at whichever instances, runs each of its steps once.

An instance claims a step before it runs it, renews the claim while it runs, and records the result. The rules:

* before the step runs, a fault of the store is an error, and the step does not run;
* from then on it is none: the step runs to its end, its result is returned, and recording it is tried again;
* the first result that is recorded counts, for an instance that stood still and lost its claim as well;
* a claim is renewed and released by its owner only.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from antiphon.rounds.token import CLOCK_SKEW
from antiphon.stores.store import Store, StoreError

log = logging.getLogger("antiphon")

LEASE = 30.0
"""Seconds that a claim lives without renewal: so long an instance that crashed keeps others waiting."""
_AT_ONCE = 0.001
"""The ttl that releases a claim."""
_FIRST_PAUSE, _LAST_PAUSE = 0.01, 0.25


class SharedSteps:
    """Runs a step once per identity, across instances."""

    __slots__ = ("_store", "_tasks", "_ttl", "_unrecorded")

    def __init__(self, store: Store, ttl: float) -> None:
        self._store = store
        self._ttl = ttl
        self._tasks: set[asyncio.Task[Any]] = set()
        self._unrecorded: dict[str, bytes] = {}
        """Results that the store did not take yet."""

    async def first(self, identity: str, value: bytes, ttl: float) -> bytes:
        """Record a value, unless there is one; return the one that counts."""
        done = _done(identity)
        if await self._store.add(done, value, ttl=max(self._ttl, ttl) + CLOCK_SKEW):
            return value
        return await self._store.get(done) or value

    async def once(self, identity: str, run: Callable[[], Awaitable[bytes]], ttl: float, *, label: str) -> bytes:
        """Return the step's recorded result, or run it and record it; StoreError if it cannot be claimed."""
        if identity in self._unrecorded:
            return self._unrecorded[identity]
        claim = Claim(self._store, identity, label)
        try:
            recorded = await self._claimed(claim)
        except BaseException as fault:
            # What failed or was cancelled may have been done.
            self._start(_try_on(claim.release, LEASE))
            if not isinstance(fault, StoreError):
                raise
            raise StoreError(f"The step {label!r} was not run, since the store failed: {fault}") from fault
        if recorded is not None:
            return recorded
        # To the end, even if the request is cancelled: the effect must not be left unrecorded.
        result: bytes = await asyncio.shield(self._start(self._run(claim, run, ttl)))
        return result

    async def _claimed(self, claim: "Claim") -> bytes | None:
        """Wait for the claim or for the result; None if the claim was got, and there is no result."""
        pause = _FIRST_PAUSE
        while True:
            # In this order: what was recorded before the claim was got is seen.
            got = await claim.take()
            recorded = await self._store.get(_done(claim.identity))
            if got or recorded is not None:
                return recorded
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LAST_PAUSE)

    async def _run(self, claim: "Claim", run: Callable[[], Awaitable[bytes]], ttl: float) -> bytes:
        renewing = asyncio.create_task(claim.stay())
        try:
            result = await run()
        except BaseException:
            self._start(_try_on(claim.release, LEASE))
            raise
        finally:
            renewing.cancel()
        try:
            counts = await self.first(claim.identity, result, ttl)
        except Exception as fault:  # noqa: BLE001 -- whatever a store raises, the result is returned
            log.warning(
                "the result of the step %r was not stored, which is tried again; until then, a copy of its request may"
                " run it again at another instance: %s",
                claim.label,
                fault,
            )
            self._unrecorded[claim.identity] = result
            self._start(self._record_late(claim.identity, result, ttl))
            return result
        if counts != result:
            log.warning("the step %r ran at another instance as well, whose result counts", claim.label)
        return counts

    async def _record_late(self, identity: str, result: bytes, ttl: float) -> None:
        try:
            await _try_on(lambda: self.first(identity, result, ttl), max(self._ttl, ttl))
        finally:
            del self._unrecorded[identity]

    def _start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task, and hold it until it is done."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class Claim:
    """The right of one run to be the only one, in the store."""

    __slots__ = ("_key", "_owner", "_store", "identity", "label")

    def __init__(self, store: Store, identity: str, label: str) -> None:
        self._store = store
        self._key = f"antiphon:step:{identity}"
        self._owner = os.urandom(12)
        self.identity = identity
        self.label = label

    async def take(self) -> bool:
        """Get the claim; False if another run has it."""
        return await self._store.add(self._key, self._owner, ttl=LEASE)

    async def renew(self) -> bool:
        """Prolong the claim, or get it again if the store lost it; False if another run has it."""
        return await self._store.add(self._key, self._owner, ttl=LEASE, replacing=self._owner) or await self.take()

    async def release(self) -> None:
        await self._store.add(self._key, ttl=_AT_ONCE, replacing=self._owner)

    async def stay(self) -> None:
        """Renew the claim for as long as it is this run's. A store that fails is asked again."""
        failed = False
        while True:
            await asyncio.sleep(LEASE / 3)
            try:
                if not await self.renew():
                    log.warning("the claim of %r was lost, so another instance may run it too", self.label)
                    return
            except Exception as fault:  # noqa: BLE001 -- whatever a store raises, the step goes on
                if not failed:
                    log.warning("the claim of %r was not renewed, which is tried again: %s", self.label, fault)
                failed = True


async def _try_on(act: Callable[[], Awaitable[object]], seconds: float) -> None:
    """Do something until it succeeds, or until the time is over."""
    pause = _FIRST_PAUSE
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                with suppress(Exception):
                    await act()
                    return
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LAST_PAUSE)


def _done(identity: str) -> str:
    return f"antiphon:done:{identity}"
