"""Changes at the server: what can be listened for, what the stream says, and the stream itself."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable
from typing import Literal, TypeAlias

import msgspec

from antiphon.client.deadlines import Budget
from antiphon.client.requests import Requests
from antiphon.errors import CallFailed, Disconnected, Refused
from antiphon.types import JsonObject

FIRST_WAIT, LAST_WAIT = 0.5, 30.0
"""Seconds between attempts to reconnect a subscription: doubling from the first to the last."""
_PASSING = {429, 502, 503, 504}
"""HTTP statuses of a server that may be back in a moment."""
_LISTS: tuple[Literal["tools", "prompts", "resources"], ...] = ("tools", "prompts", "resources")

_News: TypeAlias = "asyncio.Queue[JsonObject | CallFailed]"

log = logging.getLogger("antiphon.client")


class Change(msgspec.Struct, frozen=True):
    """Something changed at the server: a list, or the resource under ``uri``."""

    kind: Literal["tools", "prompts", "resources", "resource"]
    uri: str | None = None


class Listening:
    """The subscriptions of a client."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._streams: set[asyncio.Task[None]] = set()

    async def changes(self, *, tools: bool, prompts: bool, resources: bool | list[str]) -> AsyncGenerator[Change]:
        """Yield changes as they happen. After a broken stream, yield all that may have changed meanwhile."""
        filter_ = _wanted(tools=tools, prompts=prompts, resources=resources)
        wait, heard_before = FIRST_WAIT, False
        while self._requests.is_open:
            news: _News = asyncio.Queue()
            budget = self._requests.budget(self._requests.timeout)
            stream = asyncio.create_task(self._listen(filter_, news, budget))
            self._streams.add(stream)
            stream.add_done_callback(self._streams.discard)
            try:
                # The acknowledgement must come in time; after that, the server may be quiet.
                with budget:
                    early, agreed = await _agreement(news)
                missing = _left_out(filter_, agreed)
                if missing:
                    log.warning("the server will not tell of %s", ", ".join(missing))
                for unseen in _everything_in(filter_) if heard_before else ():
                    yield unseen
                wait, heard_before = FIRST_WAIT, True
                while True:
                    change = _change_in(early.pop(0) if early else await _next(news))
                    if change is not None:
                        yield change
            except (Disconnected, Refused) as fault:
                if self._is_closed():
                    return
                if not heard_before or (isinstance(fault, Refused) and fault.status not in _PASSING):
                    raise
                log.info("the subscription broke: %s; trying again in %s s", fault, wait)
            finally:
                stream.cancel()
                await asyncio.gather(stream, return_exceptions=True)
            await asyncio.sleep(wait)
            wait = min(wait * 2, LAST_WAIT)

    async def close(self) -> None:
        streams = list(self._streams)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    def _is_closed(self) -> bool:
        return not self._requests.is_open

    async def _listen(self, filter_: JsonObject, news: _News, budget: Budget) -> None:
        """One stream of changes, from its request to its end, which is always a fault."""
        end: CallFailed = Disconnected("The client was closed")
        hear = self._requests.teller(None)

        def tell(message: JsonObject) -> Awaitable[None] | None:
            if message["method"] == "notifications/message":
                return hear(message)
            # At once, not when the news is read: replies that are under way are stale from here on.
            self._requests.cache.clear()
            news.put_nowait(message)
            return None

        try:
            await self._requests.send("subscriptions/listen", {"notifications": filter_}, tell=tell, budget=budget)
            end = Disconnected("The server ended the subscription")
        except CallFailed as fault:
            end = fault
        finally:
            news.put_nowait(end)


async def _agreement(news: _News) -> tuple[list[JsonObject], JsonObject]:
    """The notifications before the acknowledgement of a subscription, and the acknowledgement."""
    early: list[JsonObject] = []
    while (message := await _next(news))["method"] != "notifications/subscriptions/acknowledged":
        early.append(message)
    return early, message


async def _next(news: _News) -> JsonObject:
    """The next notification of a subscription; raises the fault that ended it."""
    message = await news.get()
    if isinstance(message, CallFailed):
        raise message
    if message["method"] == "notifications/cancelled":
        raise Disconnected("The server ended the subscription")
    return message


def _wanted(*, tools: bool, prompts: bool, resources: bool | list[str]) -> JsonObject:
    """basic/patterns/subscriptions, Notification Filter."""
    made: JsonObject = {}
    if tools:
        made["toolsListChanged"] = True
    if prompts:
        made["promptsListChanged"] = True
    if resources is True:
        made["resourcesListChanged"] = True
    elif resources:
        made["resourceSubscriptions"] = list(resources)
    if not made:
        raise ValueError("subscribe() needs something to listen for: tools=True, prompts=True, resources=True or URIs")
    return made


def _everything_in(filter_: JsonObject) -> list[Change]:
    """All that may have changed while the stream was broken."""
    lists = [Change(kind) for kind in _LISTS if filter_.get(f"{kind}ListChanged")]
    return lists + [Change("resource", uri) for uri in filter_.get("resourceSubscriptions", [])]


def _left_out(filter_: JsonObject, acknowledgment: JsonObject) -> list[str]:
    """What was asked for and is not in what the server agreed to."""
    params = acknowledgment.get("params")
    agreed = params.get("notifications") if type(params) is dict else None
    got: JsonObject = agreed if type(agreed) is dict else {}
    return [key for key in filter_ if not got.get(key)]


def _change_in(message: JsonObject) -> Change | None:
    method, params = message["method"], message.get("params")
    for kind in _LISTS:
        if method == f"notifications/{kind}/list_changed":
            return Change(kind)
    if method == "notifications/resources/updated" and type(params) is dict and type(params.get("uri")) is str:
        return Change("resource", params["uri"])
    return None
