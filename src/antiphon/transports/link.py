"""The Link: a client's way to one server. One method does the work, so that a test's own is a few lines."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias, runtime_checkable

from antiphon.types import JsonObject

OnNotification: TypeAlias = Callable[[JsonObject], Awaitable[None] | None]


@runtime_checkable
class Link(Protocol):
    """Carries requests to a server and replies back.

    ``request`` returns the JSON-RPC reply, whatever it says; notifications that belong to the request go to the
    callback before that. Cancelling it cancels the request at the server. What cannot be carried raises Disconnected,
    Refused or PeerBroken. ``headers`` mirror the body where the link speaks HTTP; other links ignore them.
    """

    async def open(self) -> None: ...

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject: ...

    async def close(self) -> None: ...
