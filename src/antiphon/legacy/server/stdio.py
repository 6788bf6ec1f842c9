"""An older client on a pipe: one session for as long as the pipe lasts, and messages both ways at any time."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

import msgspec

from antiphon.errors import InvalidRequest, ProtocolError, Unauthorized
from antiphon.legacy.server.dispatch import Dispatcher
from antiphon.legacy.server.push import PushChannel, Pushes
from antiphon.legacy.server.sessions import Session, opened, states_revision
from antiphon.oauth.identity import Identity
from antiphon.server.dispatch import Service
from antiphon.server.era_dialect import Dialect
from antiphon.server.run import Channel
from antiphon.types import JsonObject
from antiphon.wire import jsonrpc
from antiphon.wire.headers import RawHeaders
from antiphon.wire.jsonrpc import Message, RequestId, encode, notification
from antiphon.wire.revisions import EARLIER, LATEST, REQUEST

_PIPE: Final = "pipe"
_NOT_OPENED: Final = Session(id=_PIPE, revision=LATEST, capabilities={}, client={})
_decode = msgspec.json.Decoder().decode


class LegacyPipe(Dialect):
    """Serves an older client on a pipe, beside the modern server."""

    def __init__(self, service: Service, put: Callable[[bytes], None]) -> None:
        self._service = service
        self._dispatcher = Dispatcher(service)
        self._put = put
        self._session: Session | None = None
        self._pushes = Pushes("ask", service.ask_timeout)

    def claims(self, message: Message, headers: RawHeaders | None = None) -> bool:  # noqa: ARG002 -- the seam's signature
        if states_revision(message):
            return False
        return self._session is not None or message.get("method") in {"initialize", "ping"}

    def batch(self, body: bytes, headers: RawHeaders | None = None) -> list[Message] | None:  # noqa: ARG002 -- the seam's signature
        """2025-03-26, basic, Batching: several messages in one line, each answered as if it had come alone."""
        if self._session is None or not EARLIER[self._session.revision].batches or body[:64].lstrip()[:1] != b"[":
            return None
        return jsonrpc.decode_batch(body)

    def takes(self, message: Message) -> bool:
        if jsonrpc.is_response(message):
            self._pushes.answered(_PIPE, message)
            return True
        return "id" not in message and type(message.get("method")) is str

    async def answer(self, message: Message, channel: Channel) -> bytes:
        try:
            jsonrpc.check(message)
            if message["method"] == "initialize":
                return await self._open(message, channel.identity)
        except ProtocolError as fault:
            return encode(jsonrpc.error(jsonrpc.id_of(message), fault))
        session = self._session
        if session is None:
            if message["method"] != "ping":
                return encode(jsonrpc.error(message["id"], InvalidRequest("Initialize first")))
            session = _NOT_OPENED
        asking = _PipeChannel(session, self._pushes, channel, self._put, message["id"])
        try:
            return await self._dispatcher.answer(message, session, asking)
        finally:
            await asking.take_back()

    def tell(self, method: str, uri: str = "") -> None:
        """Tell the client of a change; called from any thread."""
        session = self._session
        if session is not None and (not uri or uri in session.uris):
            self._put(encode(notification(method, {"uri": uri} if uri else {})))

    def close(self) -> None:
        self._pushes.give_up()
        self._dispatcher.watches.end(_PIPE)
        self._service.subscriptions.leave(self)

    async def _open(self, message: Message, identity: Identity | None) -> bytes:
        if self._session is not None:
            raise InvalidRequest("There is a session on this pipe already")
        self._session = opened(message, _PIPE, None if identity is None else identity.principal)
        self._service.subscriptions.join(self)
        return await self._dispatcher.welcome(message, self._session)


class _PipeChannel(PushChannel):
    """The channel of one request on a pipe."""

    __slots__ = ("_channel", "_id", "_put", "identity")

    def __init__(
        self, session: Session, pushes: Pushes, channel: Channel, put: Callable[[bytes], None], id_: RequestId
    ) -> None:
        super().__init__(session, pushes)
        self.identity = channel.identity
        self._channel = channel
        self._put = put
        self._id = id_

    def hint(self) -> JsonObject:
        return {REQUEST: self._id}

    async def emit(self, message: JsonObject) -> None:
        await self._channel.emit(message)

    async def retract(self, message: JsonObject) -> None:
        self._put(encode(message))


class MemoryPipe(Channel):
    """A pipe to a service in the same process: ``send`` a message, and ``receive`` is called with what comes back."""

    def __init__(
        self, service: Service, receive: Callable[[JsonObject], None], *, identity: Identity | None = None
    ) -> None:
        self._service = service
        self._told = identity
        self._receive = receive
        self._lifespan = AsyncExitStack()
        self._under_way: dict[RequestId | None, asyncio.Task[None]] = {}

    async def open(self) -> None:
        await self._lifespan.enter_async_context(self._service.running())
        self._loop = asyncio.get_running_loop()
        self._pipe = LegacyPipe(self._service, self._put_threadsafe)

    def send(self, message: JsonObject) -> None:
        # Through bytes, both ways: neither side can change what the other one holds.
        message = _decode(encode(message))
        if message.get("method") == "notifications/cancelled":
            id_ = jsonrpc.cancelled_id(message)
            if id_ is not None and id_ in self._under_way:
                self._under_way[id_].cancel()
        elif not self._pipe.takes(message):
            id_ = jsonrpc.id_of(message)
            self._under_way[id_] = task = asyncio.ensure_future(self._serve(message))
            task.add_done_callback(lambda _: self._under_way.pop(id_, None))

    async def close(self) -> None:
        self._pipe.close()
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._lifespan.aclose()

    async def emit(self, message: JsonObject) -> None:
        self._put(encode(message))

    async def _serve(self, message: JsonObject) -> None:
        try:
            self.identity = self._service.admitted(message, self._told)
        except Unauthorized as fault:
            self._put(encode(jsonrpc.error(jsonrpc.id_of(message), fault)))
            return
        self._put(await self._pipe.answer(message, self))

    def _put(self, data: bytes) -> None:
        self._receive(_decode(data))

    def _put_threadsafe(self, data: bytes) -> None:
        self._loop.call_soon_threadsafe(self._put, data)
