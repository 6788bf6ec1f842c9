"""Rotation: several instances of a server, each leg of a call served by another one, which then starts anew.

What a server keeps in its memory between two legs is lost on the way, as it is behind a load balancer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter

from antiphon.errors import CallTimeout
from antiphon.testing.transcript import waited
from antiphon.transports.link import Caller, Link, OnNotification
from antiphon.types import JsonObject
from antiphon.wire.rev2026 import PROTOCOL_VERSION, REVISION

_limit: ContextVar[float | None] = ContextVar("limit", default=None)


@contextmanager
def limited(seconds: float) -> Generator[None]:
    """Each leg of the calls made inside this block may take so long. The start of an instance does not count."""
    before = _limit.set(seconds)
    try:
        yield
    finally:
        _limit.reset(before)


class Rotation:
    """A Link to ``count`` instances in turn. ``make`` makes the link to another one, which is not open yet."""

    def __init__(self, make: Callable[[], Link], count: int) -> None:
        if count < 1:
            raise ValueError("A rotation has at least one instance")
        self._make = make
        self._count = count
        self._places: list[asyncio.Task[Link]] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._leg = 0
        self._caller: Caller | None = None
        self._revision = REVISION

    @property
    def revision(self) -> str:
        """What the instances speak."""
        return self._revision

    def introduce(self, caller: Caller) -> None:
        self._caller = caller

    async def open(self) -> None:
        self._places = [asyncio.create_task(self._fresh()) for _ in range(self._count)]
        try:
            for link in await asyncio.gather(*self._places):
                self._revision = getattr(link, "revision", REVISION)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        places, self._places = self._places, []
        for place in places:
            place.cancel()
        await asyncio.gather(*map(self._close_soon, places), *self._closing)

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        place, begun = self._leg % self._count, perf_counter()
        self._leg += 1
        ready, done = self._places[place], asyncio.Event()
        # Started anew while the others serve: nobody waits for it but the leg whose turn it is next.
        self._places[place] = asyncio.create_task(self._renewed(ready, done))
        try:
            link = await asyncio.shield(ready)
            waited(perf_counter() - begun)
            return await _within(_limit.get(), link.request(message, headers=headers, on_notification=on_notification))
        finally:
            done.set()

    async def _renewed(self, before: asyncio.Task[Link], done: asyncio.Event) -> Link:
        try:
            await done.wait()
        finally:
            closing = self._close_soon(before)
        # Whoever has no use for a new instance still closes the old one to its end.
        await asyncio.shield(closing)
        return await self._fresh()

    def _close_soon(self, place: asyncio.Task[Link]) -> asyncio.Task[None]:
        closing = asyncio.create_task(_close(place))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing

    async def _fresh(self) -> Link:
        """An instance that was greeted, and nothing else: some servers tell from the first message who calls."""
        link = self._make()
        introduce = getattr(link, "introduce", None)
        if introduce is not None and self._caller is not None:
            introduce(self._caller)
        meta = {PROTOCOL_VERSION: REVISION} if self._caller is None else self._caller.meta
        greeting: JsonObject = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": meta}}
        headers = {"MCP-Protocol-Version": REVISION, "Mcp-Method": "server/discover"}
        try:
            await link.open()
            await link.request(greeting, headers=headers)
        except BaseException:
            await link.close()
            raise
        return link


async def _close(place: asyncio.Task[Link]) -> None:
    """Close the instance of a place, if it has one."""
    (link,) = await asyncio.gather(place, return_exceptions=True)
    if not isinstance(link, BaseException):
        await link.close()


async def _within(seconds: float | None, reply: Awaitable[JsonObject]) -> JsonObject:
    if seconds is None:
        return await reply
    try:
        async with asyncio.timeout(seconds):
            return await reply
    except TimeoutError:
        raise CallTimeout("server", seconds) from None
