"""In memory: the same service, without a wire. For tests, and for a client in the same process."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from antiphon.server.dispatch import Service
from antiphon.transports.link import OnNotification, SessionLink
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import encode

_decode = msgspec.json.Decoder().decode


class Memory(SessionLink):
    """A service as a function from message to message; and a Link for a client."""

    __slots__ = ("_lifespan", "_principal", "_service")

    def __init__(self, service: Service, *, principal: str | None = None) -> None:
        self._service = service
        self._principal = principal
        self._lifespan = AsyncExitStack()

    async def send(
        self, message: JsonObject, on_notification: Callable[[JsonObject], Awaitable[None] | None] | None = None
    ) -> JsonObject | None:
        """The reply to a message; None to a notification. Notifications that belong to it go to the callback first."""
        voice = _Callback(on_notification)
        # Through bytes, both ways: neither side can change what the other one holds.
        _, reply = await self._service.answer(_decode(encode(message)), voice, None, self._principal)
        if voice.fault is not None:
            raise voice.fault
        return None if reply is None else _decode(reply)

    async def open(self) -> None:
        await self._lifespan.enter_async_context(self._service.running())

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        del headers
        reply = await self.send(message, on_notification)
        assert reply is not None
        return reply

    async def close(self) -> None:
        await self._lifespan.aclose()


class _Callback:
    """The way back to the caller; what its callback raises is the caller's to hear, not the handler's."""

    __slots__ = ("_tell", "fault")

    def __init__(self, tell: Callable[[JsonObject], Awaitable[None] | None] | None) -> None:
        self._tell = tell
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
