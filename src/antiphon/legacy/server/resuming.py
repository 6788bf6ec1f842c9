"""GET streams of older clients: a reply that is taken up again where the client left it, and changes as they happen."""

import asyncio
import logging
from typing import Any, Final

import msgspec

from antiphon.errors import InternalError, InvalidRequest
from antiphon.legacy.server.exchange import LegacyExchange, named
from antiphon.legacy.server.instances import InstanceRouter
from antiphon.legacy.server.reply_stream import KEPT, open_key, stream_key
from antiphon.legacy.server.sessions import Session, Sessions
from antiphon.server.dispatch import Service
from antiphon.stores.store import following
from antiphon.wire import jsonrpc
from antiphon.wire.headers import RawHeaders
from antiphon.wire.jsonrpc import encode
from antiphon.wire.revisions import EARLIER

log = logging.getLogger("antiphon")

LOOK: Final = 1.0
"""Seconds between looks whether the instance is alive whose stream is read here."""
_CHANGES: Final = "changes"


class GetStreams:
    """Serves GET: by ``Last-Event-ID``, a stream that was left; without it, the changes of the server."""

    def __init__(self, service: Service, sessions: Sessions, router: InstanceRouter) -> None:
        self._store = service.store
        self._subscriptions = service.subscriptions
        self._changes = service.changes
        self._sessions = sessions
        self._router = router

    async def send(self, session: Session, exchange: LegacyExchange, headers: RawHeaders) -> None:
        """Send the stream that ``Last-Event-ID`` names, or the changes from now on."""
        last = headers.get(b"last-event-id", b"").decode("latin-1").strip()
        name, dot, place = last.rpartition(".")
        if not dot or name == _CHANGES:
            await self._tell_changes(session, exchange, place or None)
        else:
            await self._resume(session, exchange, name, place)

    async def _resume(self, session: Session, exchange: LegacyExchange, name: str, last: str) -> None:
        """Go on with a stream where a client left it, wherever it comes from."""
        store, key = self._store, stream_key(session.id, name)
        gone = asyncio.Event()

        def stop() -> None:
            gone.set()
            exchange.cut_off()

        exchange.on_gone = stop
        async with following(store, key) as wait, self._router.reading(session.id, name, stop):
            # In this order: what is not under way any more has all its events.
            asked = await store.get(open_key(session.id, name))
            try:
                events = await store.read(key, after=last)
            except ValueError:
                raise InvalidRequest("The Last-Event-ID header names no event of this server") from None
            if not events and asked is None:
                raise InvalidRequest("That stream is over, and what was on it is no longer kept")
            await exchange.begin(named(session.id))
            await exchange.put(b":\n\n")
            if asked is not None:
                await self._router.resumed(name)
            under_way = asked is not None
            while not gone.is_set():
                for id_, data in events:
                    last = id_
                    await exchange.event(f"{name}.{id_}", data)
                if asked is None or not under_way or await self._is_over(session, name, asked, events):
                    break
                if not await _either(gone, wait, LOOK) and not await self._router.owner_is_alive(name):
                    await self._end_orphan(session, name, last, asked)
                # What a dead instance had under way has expired rather than ended.
                is_open = await store.get(open_key(session.id, name)) is not None
                under_way = is_open or not await self._router.owner_is_alive(name)
                events = await store.read(key, after=last)
            else:
                if exchange.gone:
                    await self._router.left(name)
        await exchange.end()

    async def _is_over(self, session: Session, name: str, id_: bytes, events: list[tuple[str, bytes]]) -> bool:
        """Whether a stream has ended: with the reply, or with the last of those to a batch, which has no id."""
        if not any(_is_reply(data) for _, data in events):
            return False
        return id_ != b"null" or await self._store.get(open_key(session.id, name)) is None

    async def _end_orphan(self, session: Session, name: str, last: str, asked: bytes) -> None:
        """End the stream of a call whose instance is dead, unless it had ended after all.

        The mark that the call is under way is not kept alive any more, so it may have expired meanwhile.
        """
        store, key = self._store, stream_key(session.id, name)
        await store.take(open_key(session.id, name))
        if any(_is_reply(data) for _, data in await store.read(key, after=last)):
            return
        log.warning("a stream was taken up whose instance is gone")
        fault = InternalError("The server instance that worked on this call is gone. Call again.")
        reply = encode(jsonrpc.error(msgspec.json.decode(asked), fault))
        await store.append(key, reply, limit=self._router.buffer, ttl=min(self._router.ttl, KEPT))

    async def _tell_changes(self, session: Session, exchange: LegacyExchange, after: str | None) -> None:
        """Send the changes that no request asked for."""
        gone = False

        def leave() -> None:
            nonlocal gone
            gone = True
            changes.wake()
            exchange.cut_off()

        try:
            async with self._changes.following(after) as changes, self._router.reading(session.id, _CHANGES, leave):
                changes.overflow = leave
                exchange.on_gone = leave
                await exchange.begin(named(session.id))
                if EARLIER[session.revision].polls and changes.last is not None:
                    await exchange.event(f"{_CHANGES}.{after or changes.last}", b"")
                else:
                    await exchange.put(b":\n\n")
                while not gone and not self._subscriptions.closing:
                    for change in changes.take():
                        if not change.uri or await self._is_subscribed(session, change.uri):
                            await exchange.event(f"{_CHANGES}.{change.id}", change.encoded())
                    await changes.wait()
        except ValueError:
            raise InvalidRequest("The Last-Event-ID header names no event of this server") from None
        await exchange.end()

    async def _is_subscribed(self, session: Session, uri: str) -> bool:
        """Whether a session subscribes to a resource now: another instance may have changed it."""
        now = await self._sessions.find(session.id.encode(), session.principal)
        return uri in now.uris


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


def _is_reply(data: bytes) -> bool:
    return bool(data) and "method" not in msgspec.json.decode(data)
