"""A Listener: one ``subscriptions/listen`` at a server that knows no such thing."""

import asyncio

from antiphon.errors import CallFailed
from antiphon.legacy.links.translation import Welcome
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import notification
from antiphon.wire.rev2026 import SUBSCRIPTION_ID

_LISTS = ("tools", "prompts", "resources")


class Listener:
    """What is listened for, and what came of it."""

    def __init__(self, id_: object, wanted: object, welcome: Welcome, *, hears: bool) -> None:
        self.id = id_
        asked: JsonObject = wanted if type(wanted) is dict else {}
        uris = asked.get("resourceSubscriptions")
        self.uris: list[str] = []
        self._lists = [
            kind for kind in _LISTS if asked.get(f"{kind}ListChanged") and hears and welcome.has(kind, "listChanged")
        ]
        if type(uris) is list and hears and welcome.has("resources", "subscribe"):
            self.uris = [uri for uri in dict.fromkeys(uris) if type(uri) is str]
        self._news: asyncio.Queue[JsonObject | CallFailed] = asyncio.Queue()

    @property
    def acknowledgment(self) -> JsonObject:
        """2026-07-28, basic/patterns/subscriptions: first of all, what the server agrees to."""
        agreed: JsonObject = {f"{kind}ListChanged": True for kind in self._lists}
        if self.uris:
            agreed["resourceSubscriptions"] = self.uris
        params = {"_meta": {SUBSCRIPTION_ID: self.id}, "notifications": agreed}
        return notification("notifications/subscriptions/acknowledged", params)

    def hear(self, message: JsonObject, params: JsonObject) -> bool:
        """Take a notification; False if it is none that is listened for."""
        method, uri = message["method"], params.get("uri")
        if method != "notifications/resources/updated":
            wanted = any(method == f"notifications/{kind}/list_changed" for kind in self._lists)
        else:
            wanted = type(uri) is str and any(_covers(one, uri) for one in self.uris)
        if wanted:
            meta = params.get("_meta")
            tagged = {**(meta if type(meta) is dict else {}), SUBSCRIPTION_ID: self.id}
            self._news.put_nowait(notification(method, {**params, "_meta": tagged}))
        return wanted

    def fail(self, fault: CallFailed) -> None:
        self._news.put_nowait(fault)

    async def next(self) -> JsonObject:
        news = await self._news.get()
        if isinstance(news, CallFailed):
            raise news
        return news


def _covers(subscribed: str, uri: str) -> bool:
    """2025-11-25, schema, ResourceUpdatedNotification: the URI may be a part of the one that was subscribed to."""
    return uri == subscribed or uri.startswith(subscribed.rstrip("/") + "/")
