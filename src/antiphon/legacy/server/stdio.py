"""An older client on a pipe: one session for as long as the pipe lasts, and messages both ways at any time."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec

from antiphon.errors import InvalidRequest, ProtocolError
from antiphon.legacy.server.dispatch import Desk
from antiphon.legacy.server.push import Asker, Waiting
from antiphon.legacy.server.sessions import Session, opened
from antiphon.server.context import Channel
from antiphon.server.dispatch import Service
from antiphon.types import JsonObject
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import Message, RequestId, encode, notification
from antiphon.wire.revisions import EARLIER, LATEST, PROTOCOL_VERSION, REQUEST

_PIPE: Final = "pipe"
_NOBODY: Final = Session(id=_PIPE, revision=LATEST, capabilities={}, client={})


class PipeDesk:
    """Serves an older client on a pipe; what it does not claim is for the modern server beside it."""

    def __init__(self, service: Service, put: Callable[[bytes], None]) -> None:
        self._service = service
        self._desk = Desk(service)
        self._put = put
        self._session: Session | None = None
        self._waiting = Waiting("ask", service.ask_timeout)

    def claims(self, message: Message) -> bool:
        """2026-07-28, basic/versioning: per-request ``_meta`` is modern, whatever was opened before it."""
        params = message.get("params")
        meta = params.get("_meta") if type(params) is dict else None
        if type(meta) is dict and PROTOCOL_VERSION in meta:
            return False
        return self._session is not None or message.get("method") in {"initialize", "ping"}

    def batch(self, line: bytes) -> list[Message] | None:
        """2025-03-26, basic, Batching: several messages in one line, each answered as if it had come alone."""
        if self._session is None or not EARLIER[self._session.revision].batches or line[:64].lstrip()[:1] != b"[":
            return None
        return jsonrpc.decode_batch(line)

    def takes(self, message: Message) -> bool:
        """Take what needs no reply: an answer to what was asked, or a notification."""
        if "method" not in message and ("result" in message or "error" in message):
            self._waiting.answered(_PIPE, message)
            return True
        return "id" not in message and type(message.get("method")) is str

    async def answer(self, message: Message, voice: Channel) -> bytes:
        """The reply to a request; ``voice`` is its way out."""
        try:
            jsonrpc.check(message)
            if message["method"] == "initialize":
                return self._opened(message)
        except ProtocolError as fault:
            return encode(jsonrpc.error(jsonrpc.id_of(message), fault))
        session = self._session
        if session is None:
            if message["method"] != "ping":
                return encode(jsonrpc.error(message["id"], InvalidRequest("Initialize first")))
            session = _NOBODY
        way = _Way(session, self._waiting, voice, self._put, message["id"])
        try:
            return await self._desk.answer(message, session, way)
        finally:
            await way.take_back()

    def tell(self, method: str, uri: str = "") -> None:
        """Something changed: the service says so, from any thread."""
        session = self._session
        if session is not None and (not uri or uri in session.uris):
            self._put(encode(notification(method, {"uri": uri} if uri else {})))

    def close(self) -> None:
        """The client is gone."""
        self._waiting.give_up()
        self._service.subscriptions.leave(self)

    def _opened(self, message: Message) -> bytes:
        if self._session is not None:
            raise InvalidRequest("There is a session on this pipe already")
        self._session = opened(message, _PIPE)
        self._service.subscriptions.join(self)
        return self._desk.welcome(message, self._session)


class _Way(Asker):
    """One request's channel on a pipe."""

    __slots__ = ("_id", "_put", "_voice")

    def __init__(
        self, session: Session, waiting: Waiting, voice: Channel, put: Callable[[bytes], None], id_: RequestId
    ) -> None:
        super().__init__(session, waiting)
        self._voice = voice
        self._put = put
        self._id = id_

    def hint(self) -> JsonObject:
        return {REQUEST: self._id}

    async def emit(self, message: JsonObject) -> None:
        await self._voice.emit(message)

    async def retract(self, message: JsonObject) -> None:
        self._put(encode(message))


# In memory: a pipe to an older client in the same process.


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
