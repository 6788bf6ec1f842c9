"""Steps that a store shares, so that a request which arrives twice, anywhere, still runs each of them once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from antiphon.stores.store import Store

LEASE = 30.0
"""Seconds that a claim lives without renewal: so long a crashed instance keeps others waiting."""
_FIRST_LOOK, _LAST_LOOK = 0.01, 0.25


class SharedSteps:
    """Runs a step once per key, across instances."""

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
                # Somebody may have finished between the look and the claim.
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
