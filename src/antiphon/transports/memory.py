"""In memory: the same service, without bytes. For tests, and for a client in the same process."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from antiphon.server.service import Service
from antiphon.types import JsonObject


class Memory:
    """A service as a function from message to message."""

    __slots__ = ("_principal", "_service")

    def __init__(self, service: Service, *, principal: str | None = None) -> None:
        self._service = service
        self._principal = principal

    async def send(
        self, message: JsonObject, on_notification: Callable[[JsonObject], Awaitable[None] | None] | None = None
    ) -> JsonObject | None:
        """The reply to a message; None to a notification. Notifications that belong to it go to the callback first."""
        _, reply = await self._service.answer(message, _Callback(on_notification), None, self._principal)
        plain: JsonObject | None = msgspec.to_builtins(reply, str_keys=True)
        return plain


class _Callback:
    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[JsonObject], Awaitable[None] | None] | None) -> None:
        self._tell = tell

    async def emit(self, message: JsonObject) -> None:
        if self._tell is not None:
            told: Any = self._tell(msgspec.to_builtins(message, str_keys=True))
            if told is not None:
                await told

    async def keep_alive(self) -> None:
        """Memory does not time out."""
