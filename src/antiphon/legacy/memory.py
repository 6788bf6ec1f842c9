"""In memory: a pipe to an older client in the same process."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import msgspec

from antiphon.legacy.pipe import PipeDesk
from antiphon.server.service import Service
from antiphon.types import JsonObject
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import RequestId, encode

_decode = msgspec.json.Decoder().decode


class MemoryPipe:
    """A service at the far end of a pipe: ``send`` a message, and ``receive`` is called with what comes back."""

    def __init__(self, service: Service, receive: Callable[[JsonObject], None]) -> None:
        self._service = service
        self._receive = receive
        self._lifespan = AsyncExitStack()
        self._under_way: dict[RequestId | None, asyncio.Task[None]] = {}

    async def open(self) -> None:
        await self._lifespan.enter_async_context(self._service.running())
        self._loop = asyncio.get_running_loop()
        self._desk = PipeDesk(self._service, self._from_anywhere)

    def send(self, message: JsonObject) -> None:
        # Through bytes, both ways: neither side can change what the other one holds.
        message = _decode(encode(message))
        if message.get("method") == "notifications/cancelled":
            self._cancel(message)
        elif not self._desk.takes(message):
            id_ = jsonrpc.id_of(message)
            self._under_way[id_] = task = asyncio.ensure_future(self._serve(message))
            task.add_done_callback(lambda _: self._under_way.pop(id_, None))

    async def close(self) -> None:
        self._desk.close()
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._lifespan.aclose()

    async def _serve(self, message: JsonObject) -> None:
        self._put(await self._desk.answer(message, _Voice(self._put)))

    def _cancel(self, message: JsonObject) -> None:
        params: Any = message.get("params")
        id_ = params.get("requestId") if isinstance(params, dict) else None
        task = self._under_way.get(id_) if type(id_) is int or type(id_) is str else None
        if task is not None:
            task.cancel()

    def _put(self, data: bytes) -> None:
        self._receive(_decode(data))

    def _from_anywhere(self, data: bytes) -> None:
        self._loop.call_soon_threadsafe(self._put, data)


class _Voice:
    __slots__ = ("_put",)

    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put

    async def emit(self, message: JsonObject) -> None:
        self._put(encode(message))
