"""Rotation: several instances of a server, each leg of a call served by another one, which then starts anew.

What a server keeps in its memory between two legs is lost on the way, as it is behind a load balancer.
"""

import asyncio
from collections.abc import Callable, Mapping

from antiphon.transports.link import Caller, Link, OnNotification
from antiphon.types import JsonObject
from antiphon.wire.rev2026 import PROTOCOL_VERSION, REVISION


class Rotation:
    """A Link to ``count`` instances in turn. ``make`` makes the link to another one, which is not open yet."""

    def __init__(self, make: Callable[[], Link], count: int) -> None:
        if count < 1:
            raise ValueError("A rotation has at least one instance")
        self._make = make
        self._count = count
        self._links: list[Link] = []
        self._leg = 0
        self._turn = asyncio.Lock()
        self._caller: Caller | None = None

    @property
    def revision(self) -> str:
        """What the instances speak."""
        revision: str = getattr(self._links[0], "revision", REVISION) if self._links else REVISION
        return revision

    def introduce(self, caller: Caller) -> None:
        self._caller = caller

    async def open(self) -> None:
        for _ in range(self._count):
            self._links.append(await self._fresh())

    async def close(self) -> None:
        links, self._links = self._links, []
        for link in links:
            await link.close()

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        async with self._turn:
            place = self._leg % self._count
            self._leg += 1
            try:
                return await self._links[place].request(message, headers=headers, on_notification=on_notification)
            finally:
                await self._links[place].close()
                self._links[place] = await self._fresh()

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
