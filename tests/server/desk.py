"""A place where people are asked, as far as the server sees it, and a server whose tools ask there."""

import asyncio
from typing import Any

from antiphon import Context, Server
from antiphon.inbox.rows import Row, Rows
from antiphon.oauth.identity import Identity
from antiphon.stores import MemoryStore, Store
from antiphon.transports.memory import MemoryLink
from messages import request

PAGE = "https://ops.example.com/inbox"
YES = {"action": "accept", "content": {"confirm": True}}
NO = {"action": "accept", "content": {"confirm": False}}
ERASE = {"name": "erase", "arguments": {"what": "staging"}}
Json = dict[str, Any]


class Desk:
    """Rows in a store; what is told to people is noted."""

    who: str | None = None
    lasts = 86400.0
    always = False

    def __init__(self, store: Store | None = None, *, patience: float = 0, is_local: bool = False, **how: Any) -> None:
        self.rows = Rows(MemoryStore() if store is None else store, **how)
        self.patience = patience
        self.is_local = is_local
        self.told: list[Row] = []
        self.asked = asyncio.Event()

    def address(self, ticket: str) -> str | None:
        return None if self.is_local else f"{PAGE}/{ticket}"

    async def tell(self, row: Row) -> None:
        if row not in self.told:
            self.told.append(row)
            self.asked.set()

    async def close(self) -> None: ...

    async def ended(self) -> None:
        """Wait until what was told of first is over."""
        async with self.rows.changes(self.told[0].id) as changed:
            while (await self.rows.get(self.told[0].id)).status != "done":
                await changed(10)

    async def answer(self, response: Json = YES, by: str = "ada") -> Row:
        """Answer what was told of last, all of it in the same way."""
        row = self.told[-1]
        return await self.rows.answer(row.id, row.round, dict.fromkeys(row.questions, response), by)


class Ops:
    """A server with a destructive tool that asks twice, and what it did."""

    def __init__(self, desk: Any, **how: Any) -> None:
        self.desk = desk
        self.erased: list[str] = []
        self.counted: list[str] = []
        self.app = app = Server("ops", elsewhere=desk, **how)

        @app.tool
        async def erase(what: str, ctx: Context) -> str:
            """Erase an environment."""
            count = await ctx.step("count", self.count, what)
            if not await ctx.confirm(f"Erase {count} records of {what}?"):
                return "Kept"
            if not await ctx.confirm("Really?"):
                return "Kept after all"
            self.erased.append(what)
            return f"Erased {what}"

    def count(self, what: str) -> int:
        self.counted.append(what)
        return 3

    async def send(
        self,
        method: str = "tools/call",
        params: Json = ERASE,
        *,
        principal: str | None = None,
        heard: list[Json] | None = None,
        **about: Any,
    ) -> Json:
        """One request of revision 2026-07-28 by a client that declares nothing, unless told otherwise."""
        reply = await MemoryLink(self.app, identity=None if principal is None else Identity(subject=principal)).send(
            request(method, params, **about), None if heard is None else heard.append
        )
        assert reply is not None
        return reply

    async def text(self, params: Json = ERASE, **about: Any) -> str:
        result = (await self.send(params=params, **about))["result"]
        assert result["resultType"] == "complete", result
        return "".join(block["text"] for block in result["content"])
