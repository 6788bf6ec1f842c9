"""In memory: the same service, without a wire. For tests, and for a client in the same process."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from antiphon.errors import Disconnected, Unauthorized
from antiphon.oauth.identity import Identity
from antiphon.server.dispatch import Service
from antiphon.server.run import Channel
from antiphon.transports.link import OnNotification, SessionLink
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import encode, error, id_of

_decode = msgspec.json.Decoder().decode


class MemoryLink(SessionLink):
    """A service as a function from message to message; and a Link for a client."""

    __slots__ = ("_identity", "_is_closed", "_lifespan", "_service", "_under_way")

    def __init__(self, service: Service, *, identity: Identity | None = None) -> None:
        self._service = service
        self._identity = identity
        self._lifespan = AsyncExitStack()
        self._under_way: dict[object, asyncio.Task[Any]] = {}
        self._is_closed = False

    async def send(
        self, message: JsonObject, on_notification: Callable[[JsonObject], Awaitable[None] | None] | None = None
    ) -> JsonObject | None:
        """The reply to a message; None to a notification. Notifications that belong to it go to the callback first."""
        voice = _Callback(on_notification)
        # Through bytes, both ways: neither side can change what the other one holds.
        message = _decode(encode(message))
        try:
            voice.identity = self._service.admitted(message, self._identity)
        except Unauthorized as fault:
            refused: JsonObject = _decode(encode(error(id_of(message), fault)))
            return refused
        principal = None if voice.identity is None else voice.identity.principal
        _, reply = await self._service.answer(message, voice, None, principal)
        if voice.fault is not None:
            raise voice.fault
        return None if reply is None else _decode(reply)

    async def open(self) -> None:
        await self._lifespan.enter_async_context(self._service.running())
        self._is_closed = False

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        del headers
        if self._is_closed:
            raise Disconnected("The client is closed")
        task, this = asyncio.current_task(), object()
        assert task is not None
        cancelling = task.cancelling()
        self._under_way[this] = task
        try:
            reply = await self.send(message, on_notification)
        except asyncio.CancelledError:
            # As in asyncio.timeout: a task that was cancelled by others as well stays cancelled.
            if this not in self._under_way and task.uncancel() <= cancelling:
                raise Disconnected("The client was closed before the server had answered") from None
            raise
        finally:
            self._under_way.pop(this, None)
        assert reply is not None
        return reply

    async def close(self) -> None:
        """Cancel the requests under way, which raise Disconnected."""
        self._is_closed = True
        while self._under_way:
            _, task = self._under_way.popitem()
            task.cancel()
        await self._lifespan.aclose()


class _Callback(Channel):
    """The way back to the caller; what its callback raises is the caller's to hear, not the handler's."""

    __slots__ = ("_tell", "fault", "identity")

    def __init__(self, tell: Callable[[JsonObject], Awaitable[None] | None] | None) -> None:
        self._tell = tell
        self.identity: Identity | None = None
        self.fault: Exception | None = None

    async def emit(self, message: JsonObject) -> None:
        if self._tell is None or self.fault is not None:
            return
        try:
            told: Any = self._tell(_decode(encode(message)))
            if told is not None:
                await told
        except Exception as fault:  # noqa: BLE001 -- raised where the call was made
            self.fault = fault
