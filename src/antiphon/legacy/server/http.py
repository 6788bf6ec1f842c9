"""Streamable HTTP as it was until 2025-11-25: sessions, streams that can be taken up again, questions in between."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, Final, Literal

import msgspec

from antiphon.errors import InternalError, InvalidRequest, ProtocolError
from antiphon.legacy.server.dispatch import CHANGING, Desk, Way
from antiphon.legacy.server.exchange import SESSION, Line, taken_over
from antiphon.legacy.server.instances import Switchboard
from antiphon.legacy.server.reply_stream import KEPT, Reply, open_key, stream_key
from antiphon.legacy.server.sessions import Session, Sessions, opened
from antiphon.server.dispatch import Service
from antiphon.stores.store import StoreError, following
from antiphon.transports.asgi import Exchange, Request
from antiphon.types import JsonObject
from antiphon.wire import headers as http
from antiphon.wire import jsonrpc
from antiphon.wire.headers import RawHeaders
from antiphon.wire.jsonrpc import Message, encode
from antiphon.wire.revisions import EARLIER, PROTOCOL_VERSION, REVISIONS, UNSTATED

log = logging.getLogger("antiphon")

LOOK: Final = 1.0
"""Seconds between looks whether the instance is alive whose stream is read here."""
MAX_BATCH: Final = 100
"""Messages that may come at once."""
_REVISIONS: Final = frozenset(revision.encode() for revision in REVISIONS)
_CHANGES: Final = "changes"


class HttpDesk:
    """Serves older clients beside the modern ones, on the same endpoint."""

    def __init__(
        self,
        service: Service,
        *,
        mode: Literal["sessions", "stateless"] = "sessions",
        session_ttl: float = 1800,
        max_sessions: int = 100_000,
        event_buffer: int = 1024,
    ) -> None:
        if session_ttl <= 0:
            raise ValueError("session_ttl must be positive")
        if max_sessions < 1 or event_buffer < 1:
            raise ValueError("max_sessions and event_buffer must be at least 1")
        self._service = service
        self._keeps = mode == "sessions"
        self._desk = Desk(service)
        self.sessions = Sessions(service.store, shared=service.has_shared_store, ttl=session_ttl, most=max_sessions)
        self.board = Switchboard(
            service.store,
            shared=service.has_shared_store,
            ttl=session_ttl,
            buffer=event_buffer,
            ask_timeout=service.ask_timeout,
            touch=self.sessions.touch,
        )
        self.sessions.busy = self.board.busy
        self._changes = service.changes
        if self._keeps:
            self._changes.limit, self._changes.ttl = event_buffer, session_ttl
            service.subscriptions.at_end(self.board.close)

    # --- which era ------------------------------------------------------------------------------------------------

    def claims(self, headers: RawHeaders, message: JsonObject) -> bool:
        """2026-07-28, basic/versioning: per-request ``_meta`` is modern; initialize and what follows it is not."""
        params = message.get("params")
        meta = params.get("_meta") if type(params) is dict else None
        if type(meta) is dict and PROTOCOL_VERSION in meta:
            return False
        version = headers.get(http.VERSION)
        return (
            message.get("method") == "initialize"
            or SESSION in headers
            or version in _REVISIONS
            or (version is None and not self._keeps)
        )

    def claims_bytes(self, headers: RawHeaders, body: bytes) -> bool:
        version = headers.get(http.VERSION)
        known = SESSION in headers or not self._keeps
        return body[:64].lstrip()[:1] == b"[" and (version is None or version == b"2025-03-26") and known

    def take_over(self, exchange: Exchange) -> Exchange:
        return taken_over(exchange)

    # --- requests -------------------------------------------------------------------------------------------------

    async def serve(self, request: Request, line: Line) -> None:
        if self._keeps and not self._changes.is_wanted:
            self._changes.want()
        try:
            if request.message is None:
                self._check_session(request)
            version = request.headers.get(http.VERSION)
            if version is not None and version.strip() not in _REVISIONS and not _opens(request.message):
                known = ", ".join(REVISIONS)
                raise InvalidRequest(f"Unsupported MCP-Protocol-Version; sessions speak {known}", status=400)
            if request.method == "GET":
                await self._stream(request, line)
            elif request.method == "DELETE":
                await self._end(request, line)
            elif not self._keeps:
                await self._post(_stranger(request), request, line)
            elif _opens(request.message):
                await self._open(request, line)
            else:
                session = await self.sessions.find(request.headers.get(SESSION), request.principal)
                await self._post(session, request, line)
        except ProtocolError as fault:
            await line.refuse(fault, jsonrpc.id_of(request.message))
        except StoreError as fault:
            log.error("the store of sessions cannot be used: %s", fault)  # noqa: TRY400 -- the store says why, and our own frames would not
            await line.refuse(_unreachable(), jsonrpc.id_of(request.message))

    def _check_session(self, request: Request) -> None:
        """Without a session there is only POST."""
        if not self._keeps:
            raise InvalidRequest(
                f"{request.method} is not supported: use streamable HTTP, and send messages by POST", status=405
            )
        if SESSION not in request.headers:
            raise InvalidRequest(
                f"{request.method} needs a session, named by the Mcp-Session-Id header. The HTTP+SSE transport of"
                " 2024-11-05 is not served here: use streamable HTTP, which begins with an initialize request sent by"
                " POST to this URL",
                status=405,
            )

    async def _open(self, request: Request, line: Line) -> None:
        jsonrpc.check(request.message)
        session = await self.sessions.open(request.message, request.principal)
        self._changes.want()
        body = self._desk.welcome(request.message, session)
        await self._plain(line, body, [(SESSION, session.id.encode())])

    async def _end(self, request: Request, line: Line) -> None:
        session = await self.sessions.find(request.headers.get(SESSION), request.principal)
        await self.sessions.end(session)
        await self.board.end(session.id)
        await line.answer(204, b"")

    async def _post(self, session: Session, request: Request, line: Line) -> None:
        message = request.message
        if type(message) is list:
            await self._batch(session, request, line)
        elif "method" not in message and ("result" in message or "error" in message):
            await self.board.deliver(session.id, message)
            await line.answer(202, b"")
        else:
            jsonrpc.check(message)
            if "id" not in message:
                await self._notified(session, message)
                await line.answer(202, b"")
            elif not self._keeps and _opens(message):
                await self._plain(line, self._desk.welcome(message, session), [])
            else:
                await self._call(session, request, line, message)

    async def _plain(self, line: Line, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """A reply that no handler has a part in."""
        if line.accepts.json:
            await line.answer(200, body, headers)
            return
        await line.begin(next((value.decode() for name, value in headers if name == SESSION), None))
        await line.event(None, body)
        await line.end()

    async def _call(self, session: Session, request: Request, line: Line, message: Message) -> None:
        id_ = message["id"]
        if self._keeps:
            self._check_free(session, [id_])
        reply = self._reply(session, line, id_)
        self.board.begin(session.id, id_, line.task if self._keeps else None)
        try:
            await reply.finish(await self._answer(session, request, reply, message))
        except asyncio.CancelledError:
            if not self.board.was_cancelled(session.id, id_):
                await reply.abandon()
                raise
            # 2025-11-25, basic/utilities/cancellation: a cancelled request is not answered.
            await reply.close()
            await line.answer(202, b"")
        finally:
            self.board.done(session.id, id_)
            reply.let_go()

    def _reply(self, session: Session, line: Line, id_: int | str | None) -> "Reply | _Passing":
        return Reply(session, self.board, line, id_) if self._keeps else _Passing(line)

    async def _batch(self, session: Session, request: Request, line: Line) -> None:
        """2025-03-26, basic: several messages at once, each answered as if it had come alone."""
        if not EARLIER[session.revision].batches:
            raise InvalidRequest("JSON-RPC batches are not supported: send each message by itself")
        if len(request.message) > MAX_BATCH:
            raise InvalidRequest(f"A batch may have at most {MAX_BATCH} messages", status=413)
        reply = self._reply(session, line, None)
        calls: list[Message] = []
        for message in request.message:
            if "method" not in message and ("result" in message or "error" in message):
                await self.board.deliver(session.id, message)
                continue
            jsonrpc.check(message)
            if "id" not in message:
                await self._notified(session, message)
            elif message["method"] == "initialize":
                raise InvalidRequest("initialize must not be part of a batch")
            else:
                calls.append(message)
        if not calls:
            await line.answer(202, b"")
            return
        if self._keeps:
            self._check_free(session, [message["id"] for message in calls])
        try:
            answered = await asyncio.gather(*(self._one(session, request, reply, message) for message in calls))
            await reply.finish(*filter(None, answered), batch=True)
        except asyncio.CancelledError:
            await reply.abandon()
            raise
        finally:
            reply.let_go()

    async def _one(self, session: Session, request: Request, reply: Way, message: Message) -> bytes | None:
        """The reply to one request of a batch; None if it was cancelled."""
        id_ = message["id"]
        self.board.begin(session.id, id_, asyncio.current_task() if self._keeps else None)
        try:
            return await self._answer(session, request, reply, message)
        except asyncio.CancelledError:
            if not self.board.was_cancelled(session.id, id_):
                raise
            return None
        finally:
            self.board.done(session.id, id_)

    def _answer(self, session: Session, request: Request, way: Way, message: Message) -> Awaitable[bytes]:
        if self._keeps and message["method"] in CHANGING:
            return self._change(session, way, message)
        return self._desk.answer(message, session, way, request.headers)

    async def _change(self, session: Session, way: Way, message: Message) -> bytes:
        async with self.sessions.changing(session) as now:
            return await self._desk.answer(message, now, way)

    def _check_free(self, session: Session, ids: list[int | str]) -> None:
        for at, id_ in enumerate(ids):
            if self.board.is_running(session.id, id_) or id_ in ids[:at]:
                raise InvalidRequest(f"There is a request under way with the id {id_!r}")

    async def _notified(self, session: Session, message: Message) -> None:
        if message["method"] == "notifications/cancelled":
            await self.board.cancel(session.id, (message.get("params") or {}).get("requestId"))

    # --- streams --------------------------------------------------------------------------------------------------

    async def _stream(self, request: Request, line: Line) -> None:
        accept = request.headers.get(b"accept", b"*/*")
        if not any(kind in accept for kind in (b"text/event-stream", b"*/*", b"text/*")):
            raise InvalidRequest("Accept must allow text/event-stream", status=406)
        session = await self.sessions.find(request.headers.get(SESSION), request.principal)
        last = request.headers.get(b"last-event-id", b"").decode("latin-1").strip()
        name, dot, place = last.rpartition(".")
        if not dot or name == _CHANGES:
            await self._tell_changes(session, line, place or None)
        else:
            await self._resume(session, line, name, place)

    async def _resume(self, session: Session, line: Line, name: str, last: str) -> None:
        """Go on with a stream where a client left it, wherever it comes from."""
        store, key = self._service.store, stream_key(session.id, name)
        gone = asyncio.Event()

        def stop() -> None:
            gone.set()
            line.hang_up()

        line.on_gone = stop
        async with following(store, key) as wait, self.board.reading(session.id, name, stop):
            # In this order: what is not under way any more has all its events.
            asked = await store.get(open_key(session.id, name))
            try:
                events = await store.read(key, after=last)
            except ValueError:
                raise InvalidRequest("The Last-Event-ID header names no event of this server") from None
            if not events and asked is None:
                raise InvalidRequest("That stream is over, and what was on it is no longer kept")
            await line.begin(session.id)
            await line.put(b":\n\n")
            if asked is not None:
                await self.board.resumed(name)
            under_way = asked is not None
            while not gone.is_set():
                for id_, data in events:
                    last = id_
                    await line.event(f"{name}.{id_}", data)
                if asked is None or not under_way or await self._is_over(session, name, asked, events):
                    break
                if not await _either(gone, wait, LOOK) and not await self.board.is_alive(name):
                    await self._mourn(session, name, last, asked)
                # What a dead instance had under way has expired rather than ended.
                is_open = await store.get(open_key(session.id, name)) is not None
                under_way = is_open or not await self.board.is_alive(name)
                events = await store.read(key, after=last)
            else:
                if line.gone:
                    await self.board.left(name)
        await line.end()

    async def _is_over(self, session: Session, name: str, id_: bytes, events: list[tuple[str, bytes]]) -> bool:
        """Whether a stream has ended: with the reply, or with the last of those to a batch, which has no id."""
        if not any(_is_reply(data) for _, data in events):
            return False
        return id_ != b"null" or await self._service.store.get(open_key(session.id, name)) is None

    async def _mourn(self, session: Session, name: str, last: str, asked: bytes) -> None:
        """The instance is dead that worked on a call: end its stream, unless that had ended after all.

        Nobody keeps alive any more what says that the call is under way, so it may have expired meanwhile.
        """
        store, key = self._service.store, stream_key(session.id, name)
        await store.take(open_key(session.id, name))
        if any(_is_reply(data) for _, data in await store.read(key, after=last)):
            return
        log.warning("a stream was taken up whose instance is gone")
        fault = InternalError("The server instance that worked on this call is gone. Call again.")
        reply = encode(jsonrpc.error(msgspec.json.decode(asked), fault))
        await store.append(key, reply, limit=self.board.buffer, ttl=min(self.board.ttl, KEPT))

    async def _tell_changes(self, session: Session, line: Line, after: str | None) -> None:
        """The stream of what no request asked for."""
        gone = False

        def leave() -> None:
            nonlocal gone
            gone = True
            changes.wake()
            line.hang_up()

        try:
            async with self._changes.following(after) as changes, self.board.reading(session.id, _CHANGES, leave):
                changes.overflow = leave
                line.on_gone = leave
                await line.begin(session.id)
                if EARLIER[session.revision].polls and changes.last is not None:
                    await line.event(f"{_CHANGES}.{after or changes.last}", b"")
                else:
                    await line.put(b":\n\n")
                while not gone and not self._service.subscriptions.closing:
                    for change in changes.take():
                        if not change.uri or await self._is_subscribed(session, change.uri):
                            await line.event(f"{_CHANGES}.{change.id}", change.encoded())
                    await changes.wait()
        except ValueError:
            raise InvalidRequest("The Last-Event-ID header names no event of this server") from None
        await line.end()

    async def _is_subscribed(self, session: Session, uri: str) -> bool:
        """As it is now: another instance may have changed it."""
        now = await self.sessions.find(session.id.encode(), session.principal)
        return uri in now.uris


class _Passing:
    """The reply to a client of whom nothing is kept: it can be told things, but not asked."""

    push = None
    name = ""

    def __init__(self, line: Line) -> None:
        self._line = line
        line.on_gone = _nothing  # 2025-11-25, basic/transports: a disconnection is no cancellation

    async def emit(self, message: JsonObject) -> None:
        if self._line.accepts.stream:
            await self._event(encode(message))

    async def finish(self, *replies: bytes, batch: bool = False) -> None:
        if not self._line.streaming and self._line.accepts.json:
            await self._line.answer(200, b"[" + b",".join(replies) + b"]" if batch else replies[0])
        else:
            for reply in replies:
                await self._event(reply)
            await self._line.end()

    async def close(self) -> None:
        await self._line.end()

    async def abandon(self) -> None:
        """Nobody comes back here."""

    def let_go(self) -> None:
        """Nothing was held."""

    async def _event(self, data: bytes) -> None:
        if not self._line.streaming:
            await self._line.begin(None)
        await self._line.event(None, data)


async def _either(gone: asyncio.Event, wait: Any, seconds: float) -> bool:
    """Wait for news, or for the client to go away; False if neither came in time."""
    if gone.is_set():
        return True
    news = asyncio.ensure_future(wait(seconds))
    leaving = asyncio.ensure_future(gone.wait())
    try:
        await asyncio.wait({news, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return gone.is_set() or bool(news.done() and news.result())
    finally:
        for task in (news, leaving):
            task.cancel()
        await asyncio.gather(news, leaving, return_exceptions=True)


def _nothing() -> None:
    """Being told is all."""


def _opens(message: object) -> bool:
    return type(message) is dict and message.get("method") == "initialize"


def _stranger(request: Request) -> Session:
    """Whoever sends a request, of whom nothing is known."""
    message = request.message
    if _opens(message):
        jsonrpc.check(message)
        return opened(message, "", request.principal)
    version = request.headers.get(http.VERSION, UNSTATED.encode()).decode("latin-1")
    return Session(id="", revision=version, capabilities={}, client={}, principal=request.principal)


def _is_reply(data: bytes) -> bool:
    if not data:
        return False
    message = msgspec.json.decode(data)
    return "method" not in message


def _unreachable() -> ProtocolError:
    return InvalidRequest("The server cannot reach its store of sessions; try again later", status=503)
