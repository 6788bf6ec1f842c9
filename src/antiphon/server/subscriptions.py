"""Subscriptions: the open streams of a server, and the notifications that wait to be sent on them."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final, Literal, Protocol, TypeAlias, get_args

import msgspec

from antiphon.errors import InvalidParams
from antiphon.server.change_log import ChangeLog, LoggedChange
from antiphon.server.run import Run
from antiphon.stores.store import StoreError
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import RequestId, notification
from antiphon.wire.revisions import SUBSCRIPTION_ID

Kind: TypeAlias = Literal["tools", "prompts", "resources"]
MAX_URIS = 1000
_LISTS: Final = {f"notifications/{kind}/list_changed": f"{kind}_list_changed" for kind in get_args(Kind)}


class Filter(msgspec.Struct, rename="camel", omit_defaults=True):
    """What a listener wants to hear of (basic/patterns/subscriptions, Notification Filter)."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []

    def admits(self, method: str, uri: str) -> bool:
        return uri in self.resource_subscriptions if uri else bool(getattr(self, _LISTS[method]))


class Listener:
    """One open stream. Equal notifications that wait to be sent are one."""

    __slots__ = ("_loop", "_news", "closed", "filter", "id", "waiting")

    def __init__(self, id_: RequestId, wanted: Filter) -> None:
        self.id = id_
        self.filter = wanted
        self.waiting: dict[tuple[str, str], JsonObject] = {}
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._news = self._loop.create_future()

    def tell(self, method: str, uri: str = "") -> None:
        if not self.filter.admits(method, uri):
            return
        params: JsonObject = {"_meta": {SUBSCRIPTION_ID: self.id}}
        if uri:
            params["uri"] = uri
        self._on_loop(self._add, method, uri, notification(method, params))

    def close(self) -> None:
        self.closed = True
        self._on_loop(self._wake)

    def _add(self, method: str, uri: str, message: JsonObject) -> None:
        self.waiting[method, uri] = message
        self._wake()

    def _wake(self) -> None:
        if not self._news.done():
            self._news.set_result(None)

    def _on_loop(self, function: Callable[..., None], *args: object) -> None:
        # A change may be reported from a handler's thread, or after the stream's loop has gone.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    async def serve(self, run: Run) -> None:
        """Send what happens until the stream is closed."""
        channel = run.channel
        agreed = msgspec.to_builtins(self.filter)
        await channel.emit(
            notification(
                "notifications/subscriptions/acknowledged",
                {"_meta": {SUBSCRIPTION_ID: self.id}, "notifications": agreed},
            )
        )
        while not self.closed:
            await self._news
            self._news = self._loop.create_future()
            waiting, self.waiting = self.waiting, {}
            for message in waiting.values():
                await channel.emit(message)


class ChangeObserver(Protocol):
    """Is told of every change, from any thread, and of the end."""

    def tell(self, method: str, uri: str = "") -> None: ...

    def close(self) -> None: ...


class Subscriptions:
    """The streams that this instance tells of changes."""

    __slots__ = ("_endings", "_listeners", "changes", "closing")

    def __init__(self) -> None:
        self.changes: ChangeLog | None = None
        """Where changes are kept for other instances, and for streams that open later."""
        self.closing = False
        self._listeners: set[ChangeObserver] = set()
        self._endings: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._listeners)

    def __iter__(self) -> Iterator[Listener]:
        return (listener for listener in list(self._listeners) if isinstance(listener, Listener))

    def join(self, listener: ChangeObserver) -> None:
        """Tell this listener of changes from now on, of this instance and of others."""
        self._listeners.add(listener)
        if self.changes is not None and self.changes.shared:
            self.changes.follow(self._hear)

    def leave(self, listener: ChangeObserver) -> None:
        self._listeners.discard(listener)
        if not self._listeners and self.changes is not None:
            self.changes.unfollow(self._hear)

    async def listen(self, run: Run, features: set[str]) -> JsonObject:
        listener = Listener(run.call.id, _agreed(run.call.params.get("notifications"), features))
        listener.closed = self.closing
        self.join(listener)
        try:
            if self.changes is not None and self.changes.shared:
                with contextlib.suppress(StoreError):  # what happens here is told all the same
                    await self.changes.followed()
            await listener.serve(run)
        finally:
            self.leave(listener)
        return {"_meta": {SUBSCRIPTION_ID: run.call.id}}

    def changed(self, kind: Kind) -> None:
        self._happened(f"notifications/{kind}/list_changed")

    def updated(self, uri: str) -> None:
        self._happened("notifications/resources/updated", uri)

    def at_end(self, function: Callable[[], None]) -> None:
        """Call a function when the server goes down."""
        self._endings.append(function)

    def close(self) -> None:
        self.closing = True
        for listener in list(self._listeners):
            listener.close()
        for function in self._endings:
            function()

    def _happened(self, method: str, uri: str = "") -> None:
        self._tell(method, uri)
        if self.changes is not None:
            self.changes.tell(method, uri)

    def _hear(self, change: LoggedChange) -> None:
        if self.changes is not None and change.origin != self.changes.origin:
            self._tell(change.method, change.uri)

    def _tell(self, method: str, uri: str) -> None:
        for listener in list(self._listeners):
            listener.tell(method, uri)


def _agreed(wanted: object, features: set[str]) -> Filter:
    """The part of a filter that this server can honour."""
    try:
        asked = msgspec.convert(wanted, Filter)
    except msgspec.ValidationError as fault:
        raise InvalidParams(f'subscriptions/listen needs "notifications", a filter: {fault}') from None
    if len(asked.resource_subscriptions) > MAX_URIS:
        raise InvalidParams(f"subscriptions/listen takes at most {MAX_URIS} resource URIs")
    return Filter(
        tools_list_changed=asked.tools_list_changed and "tools" in features,
        prompts_list_changed=asked.prompts_list_changed and "prompts" in features,
        resources_list_changed=asked.resources_list_changed and "resources" in features,
        resource_subscriptions=asked.resource_subscriptions if "resources" in features else [],
    )
