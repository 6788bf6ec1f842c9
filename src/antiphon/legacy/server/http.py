"""Streamable HTTP until 2025-11-25: sessions, streams that can be taken up again, questions in between."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, Final, Literal

from antiphon.errors import InvalidRequest, ProtocolError
from antiphon.http.exchange import Receive, Send
from antiphon.legacy.server.dispatch import CHANGING, Dispatcher
from antiphon.legacy.server.exchange import SESSION, LegacyExchange, named
from antiphon.legacy.server.instances import InstanceRouter
from antiphon.legacy.server.reply_stream import ReplyStream, StatelessReply
from antiphon.legacy.server.resuming import GetStreams
from antiphon.legacy.server.sessions import Session, Sessions, opened, states_revision
from antiphon.server.dispatch import Service
from antiphon.server.era_dialect import Dialect
from antiphon.server.run import Channel
from antiphon.stores.store import StoreError
from antiphon.transports.admission import Accepts, read_accept
from antiphon.transports.asgi_exchange import Fields
from antiphon.wire import headers as http
from antiphon.wire import jsonrpc
from antiphon.wire.headers import RawHeaders
from antiphon.wire.jsonrpc import Message, RequestId
from antiphon.wire.revisions import EARLIER, REVISIONS, UNSTATED

log = logging.getLogger("antiphon")

MAX_BATCH: Final = 100
"""Messages that may come at once."""
_REVISIONS: Final = frozenset(revision.encode() for revision in REVISIONS)
_BATCHING: Final = {None, *(revision.encode() for revision in REVISIONS if EARLIER[revision].batches)}


class LegacyHttp(Dialect):
    """Serves older clients beside the modern ones, on the same endpoint."""

    verbs = frozenset({"POST", "GET", "DELETE"})

    def __init__(
        self,
        service: Service,
        *,
        mode: Literal["sessions", "stateless"] = "sessions",
        session_ttl: float = 1800,
        max_sessions: int = 10_000,
        event_buffer: int = 1024,
    ) -> None:
        if session_ttl <= 0:
            raise ValueError("session_ttl must be positive")
        if max_sessions < 1 or event_buffer < 1:
            raise ValueError("max_sessions and event_buffer must be at least 1")
        self._service = service
        self._keeps = mode == "sessions"
        self._dispatcher = Dispatcher(service)
        self.router = InstanceRouter(
            service.store,
            shared=service.has_shared_store,
            ttl=session_ttl,
            buffer=event_buffer,
            ask_timeout=service.ask_timeout,
            ended=self._dispatcher.watches.end,
        )
        self.sessions = Sessions(
            service.store,
            shared=service.has_shared_store,
            ttl=session_ttl,
            most=max_sessions,
            busy=self.router.busy,
            watching=self._dispatcher.watches.sessions,
            ended=self.router.end_here,
        )
        self._changes = service.changes
        self._streams = GetStreams(service, self.sessions, self.router)
        if self._keeps:
            self._changes.limit, self._changes.ttl = event_buffer, session_ttl
            service.subscriptions.at_end(self.router.close)

    # --- which era ------------------------------------------------------------------------------------------------

    def claims(self, message: Message, headers: RawHeaders | None = None) -> bool:
        if headers is None or states_revision(message):
            return False
        version = headers.get(http.VERSION)
        return (
            message.get("method") == "initialize"
            or SESSION in headers
            or version in _REVISIONS
            or (version is None and not self._keeps)
        )

    def batch(self, body: bytes, headers: RawHeaders | None = None) -> list[Message] | None:
        if body[:64].lstrip()[:1] != b"[" or headers is None or headers.get(http.VERSION) not in _BATCHING:
            return None
        return jsonrpc.decode_batch(body) if SESSION in headers or not self._keeps else None

    def exchange(
        self, receive: Receive, send: Send, task: "asyncio.Task[Any] | None", accepts: Accepts
    ) -> LegacyExchange:
        return LegacyExchange(receive, send, task, accepts)

    # --- requests -------------------------------------------------------------------------------------------------

    async def serve(
        self, exchange: LegacyExchange, verb: str, headers: RawHeaders, message: Any, principal: str | None
    ) -> None:
        if self._keeps and not self._changes.is_wanted:
            self._changes.want()
        try:
            if verb != "POST":
                self._check_session(verb, headers)
            version = headers.get(http.VERSION)
            if version is not None and version.strip() not in _REVISIONS and not _opens(message):
                known = ", ".join(REVISIONS)
                raise InvalidRequest(f"Unsupported MCP-Protocol-Version; sessions speak {known}", status=400)
            if verb == "GET" and not read_accept(headers.get(b"accept")).stream:
                raise InvalidRequest("Accept must allow text/event-stream", status=406)
            if not self._keeps:
                await self._post(_without_session(message, version, principal), exchange, headers, message)
            elif verb == "POST" and _opens(message):
                await self._open(exchange, message, principal)
            else:
                session = await self.sessions.find(headers.get(SESSION), principal)
                if verb == "GET":
                    await self._streams.send(session, exchange, headers)
                elif verb == "DELETE":
                    await self._end(session, exchange)
                else:
                    await self._post(session, exchange, headers, message)
        except ProtocolError as fault:
            await exchange.refuse(fault, jsonrpc.id_of(message))
        except StoreError as fault:
            log.error("the store of sessions cannot be used: %s", fault)  # noqa: TRY400 -- the store says why, and our own frames would not
            unreachable = InvalidRequest("The server cannot reach its store of sessions; try again later", status=503)
            await exchange.refuse(unreachable, jsonrpc.id_of(message))

    def _check_session(self, verb: str, headers: RawHeaders) -> None:
        """Without a session there is only POST."""
        if not self._keeps:
            raise InvalidRequest(f"{verb} is not supported: use streamable HTTP, and send messages by POST", status=405)
        if SESSION not in headers:
            raise InvalidRequest(
                f"{verb} needs a session, named by the Mcp-Session-Id header. The HTTP+SSE transport of 2024-11-05 is"
                " not served here: use streamable HTTP, which begins with an initialize request sent by POST to this"
                " URL",
                status=405,
            )

    async def _open(self, exchange: LegacyExchange, message: Message, principal: str | None) -> None:
        jsonrpc.check(message)
        session = await self.sessions.open(message, principal)
        self._changes.want()
        await self._send(exchange, await self._dispatcher.welcome(message, session), named(session.id))

    async def _end(self, session: Session, exchange: LegacyExchange) -> None:
        await self.sessions.end(session)
        await self.router.end(session.id)
        await exchange.reply(204, b"")

    async def _post(self, session: Session, exchange: LegacyExchange, headers: RawHeaders, message: Any) -> None:
        if type(message) is list:
            await self._batch(session, exchange, headers, message)
        elif await self._took(session, message):
            await exchange.reply(202, b"")
        elif not self._keeps and _opens(message):
            await self._send(exchange, await self._dispatcher.welcome(message, session))
        else:
            await self._call(session, exchange, headers, message)

    async def _took(self, session: Session, message: Message) -> bool:
        """Take an answer or a notification; False if the message is a request."""
        if jsonrpc.is_response(message):
            await self.router.deliver(session.id, message)
            return True
        jsonrpc.check(message)
        if "id" in message:
            return False
        if message["method"] == "notifications/cancelled":
            await self.router.cancel(session.id, jsonrpc.cancelled_id(message))
        return True

    async def _send(self, exchange: LegacyExchange, body: bytes, fields: Fields = ()) -> None:
        """Send a reply that no handler has a part in."""
        if exchange.accepts.json:
            await exchange.reply(200, body, fields)
            return
        await exchange.begin(fields)
        await exchange.event(None, body)
        await exchange.end()

    def _reply(self, session: Session, exchange: LegacyExchange, id_: RequestId | None) -> ReplyStream | StatelessReply:
        return ReplyStream(session, self.router, exchange, id_) if self._keeps else StatelessReply(exchange)

    async def _call(self, session: Session, exchange: LegacyExchange, headers: RawHeaders, message: Message) -> None:
        self._check_free(session, [message["id"]])
        reply = self._reply(session, exchange, message["id"])
        await self._finish(reply, self._one(session, headers, reply, message))

    async def _batch(
        self, session: Session, exchange: LegacyExchange, headers: RawHeaders, messages: list[Message]
    ) -> None:
        """2025-03-26, basic: several messages at once, each answered as if it had come alone."""
        if not EARLIER[session.revision].batches:
            raise InvalidRequest("JSON-RPC batches are not supported: send each message by itself")
        if len(messages) > MAX_BATCH:
            raise InvalidRequest(f"A batch may have at most {MAX_BATCH} messages", status=413)
        calls: list[Message] = []
        for message in messages:
            if await self._took(session, message):
                continue
            if _opens(message):
                raise InvalidRequest("initialize must not be part of a batch")
            calls.append(message)
        if not calls:
            await exchange.reply(202, b"")
            return
        self._check_free(session, [message["id"] for message in calls])
        reply = self._reply(session, exchange, None)
        await self._finish(reply, asyncio.gather(*(self._one(session, headers, reply, message) for message in calls)))

    async def _finish(
        self, reply: ReplyStream | StatelessReply, answered: Awaitable[bytes | list[bytes | None] | None]
    ) -> None:
        """Send what is answered: a reply, or those to a batch; None where a request was cancelled."""
        try:
            found = await answered
            replies = found if isinstance(found, list) else [found]
            await reply.finish(*filter(None, replies), batch=replies is found)
        except asyncio.CancelledError:
            await reply.abandon()
            raise
        finally:
            reply.let_go()

    async def _one(self, session: Session, headers: RawHeaders, reply: Channel, message: Message) -> bytes | None:
        """The reply to one request; None if it was cancelled: 2025-11-25, basic/utilities/cancellation."""
        id_, task = message["id"], asyncio.current_task()
        if not self._keeps or task is None:
            return await self._dispatcher.answer(message, session, reply, headers)
        self.router.begin(session.id, id_, task)
        try:
            if message["method"] not in CHANGING:
                return await self._dispatcher.answer(message, session, reply, headers)
            return await self.sessions.change(session, lambda now: self._dispatcher.answer(message, now, reply))
        except asyncio.CancelledError:
            if not self.router.was_cancelled(session.id, id_):
                raise
            return None
        finally:
            self.router.done(session.id, id_)

    def _check_free(self, session: Session, ids: list[RequestId]) -> None:
        """Requests without a session have their ids to themselves."""
        for at, id_ in enumerate(ids if self._keeps else ()):
            if self.router.is_running(session.id, id_) or id_ in ids[:at]:
                raise InvalidRequest(f"There is a request under way with the id {id_!r}")


def _opens(message: object) -> bool:
    return type(message) is dict and message.get("method") == "initialize"


def _without_session(message: Any, version: bytes | None, principal: str | None) -> Session:
    """What a request says of its client, where nothing is kept."""
    if _opens(message):
        jsonrpc.check(message)
        return opened(message, "", principal)
    revision = UNSTATED if version is None else version.decode("latin-1")
    return Session(id="", revision=revision, capabilities={}, client={}, principal=principal)
