"""A link that several clients share: each numbers its requests from 1, and the server must see different numbers."""

import itertools
from collections.abc import Mapping
from typing import Any

from antiphon.transports.link import Link, OnNotification
from antiphon.types import JsonObject
from antiphon.wire.rev2026 import PROGRESS_TOKEN


class Shared:
    """A Link around one that is open already; a client that opens or closes it does nothing to the others."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._ids = itertools.count(1)

    def __getattr__(self, name: str) -> Any:
        # What else a link knows, such as its era, is not hidden.
        return getattr(self._link, name)

    async def open(self) -> None:
        """It is open."""

    async def close(self) -> None:
        """Whoever opened it closes it."""

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        id_ = next(self._ids)
        sent = {**message, "id": id_}
        meta = (message.get("params") or {}).get("_meta") or {}
        if PROGRESS_TOKEN in meta:
            sent["params"] = {**message["params"], "_meta": {**meta, PROGRESS_TOKEN: id_}}
        reply = await self._link.request(sent, headers=headers, on_notification=on_notification)
        return {**reply, "id": message["id"]} if reply.get("id") == id_ else reply
