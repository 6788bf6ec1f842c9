"""The link to an old server: modern requests come in at the top, older ones go out at the bottom.

A question that the server pushes in the middle of a call comes up as an ``input_required`` result, and goes down again
with its answer: whoever drives the rounds need not know which era does so.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from antiphon.errors import CannotAnswer, Disconnected
from antiphon.legacy.client.call import Call, Dial, Ear, SessionLost, Wire
from antiphon.legacy.client.session import Listener, Session
from antiphon.legacy.client.translation import modern_reply, urls_in
from antiphon.transports.link import Caller, OnNotification, SessionLink, tell
from antiphon.transports.stdio_client import again
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import result
from antiphon.wire.revisions import LATEST, LOG_LEVEL, REVISIONS

if TYPE_CHECKING:
    from antiphon.server.dispatch import Service

VISIT = 5.0
"""Seconds after a URL was accepted in which the server may say that it was visited. Then the call is made again."""

log = logging.getLogger("antiphon.client")


class LegacyLink(SessionLink):
    """A Link to a server of the older revisions. ``revision`` pins one of them."""

    def __init__(self, dial: Dial, *, revision: str | None = None) -> None:
        self._dial = dial
        self._offered = revision or LATEST
        self._accepted = REVISIONS if revision is None else (revision,)
        self._caller = Caller({}, _no_answer, lambda _: None)
        self._session: Session | None = None
        self._retired: list[Session] = []
        self._opening = asyncio.Lock()
        self._ids = itertools.count(1)
        self._waiting: dict[str, tuple[Session, Call]] = {}

    @property
    def revision(self) -> str:
        """What is spoken with the server; what would be, before it was asked."""
        return self._offered if self._session is None else self._session.welcome.revision

    def introduce(self, caller: Caller) -> None:
        self._caller = caller

    async def open(self) -> None:
        self._session = await self._opened()

    async def close(self) -> None:
        session, self._session = self._session, None
        self._waiting.clear()
        retired, self._retired = self._retired, []
        for ended in (*retired, session):
            if ended is not None:
                await ended.close()

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        del headers  # they mirror the body of a modern request
        method, params = message["method"], message.get("params", {})
        if method == "server/discover":
            session = await self._living()
            return result(message["id"], session.welcome.discovery)
        if method == "subscriptions/listen":
            return await self._listen(message, on_notification)
        if "requestState" in params or "inputResponses" in params:
            return await self._go_on(message, on_notification)
        return await self._call(message, on_notification)

    def abandon(self, state: str | None, why: BaseException) -> None:
        """The caller will not come back for a call that it was asked about."""
        session, call = self._waiting.pop(state or "", (None, None))
        if session is not None and call is not None:
            session.leave(call, why)

    def moot(self, state: str) -> Awaitable[None] | None:
        """What ends when the questions of a round need no answers any more; None if they always do."""
        _, call = self._waiting.get(state, (None, None))
        return None if call is None or call.urls is not None else call.moot()

    # --- sessions -------------------------------------------------------------------------------------------------

    async def _opened(self) -> Session:
        session = Session(self._dial, self._caller, self._ids)
        try:
            await session.open(self._offered, self._accepted)
        except BaseException:
            await session.close()
            raise
        return session

    async def _living(self) -> Session:
        """The session, or a new one where the server ended it."""
        session = self._session
        if session is not None and isinstance(session.fault, Disconnected):
            async with self._opening:
                if self._session is session:
                    await self._start_again(session)
            session = self._session
        if session is None:
            raise Disconnected("The client is closed")
        if session.fault is not None:
            raise again(session.fault)
        if session.has_something_to_say:
            # What is to be said of an earlier call goes first: some servers do one thing at a time.
            await asyncio.sleep(0)
        return session

    async def _start_again(self, lost: Session) -> None:
        session = await self._opened()
        if self._session is not lost:  # the link was closed meanwhile
            await session.close()
            return
        self._session = session
        # Other calls may still get their replies: only what is done with is closed.
        self._retired.append(lost)
        for idle in [one for one in self._retired if one.is_idle]:
            self._retired.remove(idle)
            await idle.close()

    # --- calls ----------------------------------------------------------------------------------------------------

    async def _call(self, message: JsonObject, on_notification: OnNotification | None) -> JsonObject:
        """A request, sent once more if the session was gone: what was refused for that never ran."""
        params: JsonObject = message.get("params", {})
        level = params.get("_meta", {}).get(LOG_LEVEL)
        for is_last in (False, True):
            session = await self._living()
            try:
                await session.log_from(level)
                call = session.start(message["method"], params)
                return await self._turn(session, call, message["id"], on_notification)
            except SessionLost as fault:
                session.retire(fault)
                if is_last:
                    raise fault.refusal or fault from None
        raise AssertionError

    async def _turn(
        self, session: Session, call: Call, id_: object, on_notification: OnNotification | None
    ) -> JsonObject:
        """What a call comes to: the server's reply, or its questions."""
        try:
            reply = await call.reply(on_notification, lambda runs: self._caller.clock(id_, runs))
        except BaseException as fault:
            session.leave(call, fault)
            raise
        if reply is not None:
            session.done(call)
            visits = urls_in(reply) if call.asks else []
            if visits:
                call.must_visit(visits, reply["error"])
                reply = None
        if reply is None:
            self._waiting[call.handle] = session, call
            reply = {"jsonrpc": "2.0", "result": call.round()}
        return modern_reply(reply, id_, session.welcome)

    async def _go_on(self, message: JsonObject, on_notification: OnNotification | None) -> JsonObject:
        """Take the answers of a round down to the server."""
        params: JsonObject = message["params"]
        session, call = self._waiting.pop(params.get("requestState") or "", (None, None))
        if session is None or call is None:
            raise CannotAnswer(
                f"The server speaks revision {self.revision}, in which a call stays open while it asks: this one is not"
                " (any more). Give the client handlers (elicit=, sample=, ...) that answer while it is.",
                key=next(iter(params.get("inputResponses") or {}), ""),
            )
        given: JsonObject = params.get("inputResponses") or {}
        if call.urls is None:
            await self._answer(session, call, given)
        elif all(_action(given.get(key)) == "accept" for key in call.asked):
            session, call = await self._visited(session, call)
        else:
            return {"jsonrpc": "2.0", "id": message["id"], "error": call.urls}
        return await self._turn(session, call, message["id"], on_notification)

    async def _answer(self, session: Session, call: Call, given: JsonObject) -> None:
        """Answer what a call asked; what was left open is asked again."""
        try:
            while call.asked:
                key, request = next(iter(call.asked.items()))
                del call.asked[key]
                if key not in given:
                    call.waiting[key] = request
                elif call.is_over:
                    # It was another's question, or came to be nobody's: the server knows what to do with the answer.
                    session.answer_soon(request, given[key])
                else:
                    await session.answer(request, given[key])
        except BaseException as fault:
            session.leave(call, fault)
            raise

    async def _visited(self, session: Session, call: Call) -> tuple[Session, Call]:
        """The call once more, when its URLs were visited, as far as the server says."""
        if await session.wire.hears():
            await session.completed({request["id"] for request in call.asked.values()}, VISIT)
        session = await self._living()
        return session, session.start(call.message["method"], call.message["params"], call.handle)

    # --- changes --------------------------------------------------------------------------------------------------

    async def _listen(self, message: JsonObject, on_notification: OnNotification | None) -> JsonObject:
        """``subscriptions/listen``, out of the notifications that an old server sends anyway. It ends in a fault."""
        wanted = message.get("params", {}).get("notifications")
        for is_last in (False, True):
            session = await self._living()
            listener = Listener(message["id"], wanted, session.welcome, hears=await session.wire.hears())
            try:
                await session.add(listener)
                break
            except BaseException as fault:
                session.remove(listener)
                if not isinstance(fault, SessionLost):
                    raise
                session.retire(fault)
                if is_last:
                    raise fault.refusal or fault from None
        try:
            await tell(on_notification, listener.acknowledgment)
            while True:
                await tell(on_notification, await listener.next())
        finally:
            session.remove(listener)


def _action(response: object) -> object:
    return response.get("action") if type(response) is dict else None


async def _no_answer(key: str, request: JsonObject) -> JsonObject:
    raise CannotAnswer(f"Nobody is here to answer {request['method']}", key=key)


# Links to old servers: behind a URL, as a process, or in this one.


def to_url(url: str, *, headers: Mapping[str, str] | None = None, revision: str | None = None) -> LegacyLink:
    """Over streamable HTTP."""
    from antiphon.legacy.client.http import HttpWire
    from antiphon.transports.http import HttpLink

    def dial(ear: Ear) -> Wire:
        return HttpWire(HttpLink(url, headers=headers), HttpLink(url, headers=headers), ear)

    return LegacyLink(dial, revision=revision)


def to_command(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | PathLike[str] | None = None,
    revision: str | None = None,
    on_stray_line: Callable[[str], None] | None = None,
) -> LegacyLink:
    """Over the standard streams of a process."""
    from antiphon.legacy.client.stdio import ChildPipe, PipeWire
    from antiphon.transports.stdio_client import ChildLink

    child = ChildLink(command, env=env, cwd=cwd, on_stray_line=on_stray_line)
    return LegacyLink(
        lambda ear: PipeWire(lambda receive, lost: ChildPipe(child, receive, lost), ear), revision=revision
    )


def to_service(service: "Service", *, revision: str | None = None) -> LegacyLink:
    """In memory."""
    from antiphon.legacy.client.stdio import PipeWire
    from antiphon.legacy.server.stdio import MemoryPipe

    return LegacyLink(lambda ear: PipeWire(lambda receive, _: MemoryPipe(service, receive), ear), revision=revision)
