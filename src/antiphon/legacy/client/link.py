"""The link to an old server: takes modern requests, and sends older ones.

A question that the server pushes in the middle of a call is returned as an ``input_required`` result, and the answer is
sent when the call is resumed: the client's loop is the same for both eras.
"""

import asyncio
import functools
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from antiphon.errors import CannotAnswer, Disconnected
from antiphon.legacy.client.call import LegacyCall
from antiphon.legacy.client.session import ChangeListener, ClientSession
from antiphon.legacy.client.translation import modern_reply, urls_in
from antiphon.legacy.client.transport import (
    ChildPipe,
    Connect,
    MessagePipe,
    PipeTransport,
    Receiver,
    SessionLost,
    Transport,
)
from antiphon.transports.link import Authorizer, Caller, OnNotification, SessionLink, tell
from antiphon.transports.stdio_client import ChildLink, Lost, Receive, again
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import result
from antiphon.wire.revisions import LATEST, LOG_LEVEL, REVISIONS

if TYPE_CHECKING:
    from antiphon.oauth.identity import Identity
    from antiphon.server.dispatch import Service
    from antiphon.transports.http_client import Response

T = TypeVar("T")
VISIT = 5.0
"""Seconds after a URL was accepted in which the server may say that it was visited. Then the call is made again."""

log = logging.getLogger("antiphon.client")


class LegacyLink(SessionLink):
    """A Link to a server of the older revisions. ``revision`` pins one of them."""

    def __init__(self, connect: Connect, *, revision: str | None = None) -> None:
        self._connect = connect
        self._offered = revision or LATEST
        self._accepted = REVISIONS if revision is None else (revision,)
        self._caller = Caller({}, _no_answer, lambda _: None)
        self._session: ClientSession | None = None
        self._retired: list[ClientSession] = []
        self._opening = asyncio.Lock()
        self._ids = itertools.count(1)
        self._waiting: dict[str, tuple[ClientSession, LegacyCall]] = {}

    @property
    def revision(self) -> str:
        """The revision that was agreed on; before that, the one that is offered."""
        return self._offered if self._session is None else self._session.server.revision

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

    def request(  # pyright: ignore[reportIncompatibleMethodOverride] -- awaited, it is the same
        self,
        message: JsonObject,
        *,
        headers: Mapping[str, str],  # noqa: ARG002 -- they mirror the body of a modern request
        on_notification: OnNotification | None = None,
    ) -> Coroutine[Any, Any, JsonObject]:
        method, params = message["method"], message.get("params", {})
        if method == "server/discover":
            return self._discover(message)
        if method == "subscriptions/listen":
            return self._listen(message, on_notification)
        if "requestState" in params or "inputResponses" in params:
            return self._go_on(message, on_notification)
        return self._in_session(functools.partial(self._call, message, on_notification))

    def abandon(self, state: str | None, why: BaseException) -> None:
        """Leave a call whose questions will not be answered."""
        session, call = self._waiting.pop(state or "", (None, None))
        if session is not None and call is not None:
            session.leave(call, why)

    def moot(self, state: str) -> Awaitable[None] | None:
        _, call = self._waiting.get(state, (None, None))
        return None if call is None or call.urls is not None else call.moot()

    # --- sessions -------------------------------------------------------------------------------------------------

    async def _opened(self) -> ClientSession:
        session = ClientSession(self._connect, self._caller, self._ids)
        try:
            await session.open(self._offered, self._accepted)
        except BaseException:
            await session.close()
            raise
        return session

    async def _living(self) -> ClientSession:
        """Return the session, or a new one where the server ended it."""
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
            # Send what belongs to an earlier call first: some servers do one thing at a time.
            await asyncio.sleep(0)
        return session

    async def _in_session(self, work: Callable[[ClientSession], Coroutine[Any, Any, T]]) -> T:
        """Do something in the session; again in a new one if the server does not know it, for then nothing ran."""
        for is_last in (False, True):
            session = await self._living()
            try:
                return await work(session)
            except SessionLost as fault:
                session.retire(fault)
                if is_last:
                    raise fault.refusal or fault from None
        raise AssertionError

    async def _start_again(self, lost: ClientSession) -> None:
        session = await self._opened()
        if self._session is not lost:  # the link was closed meanwhile
            await session.close()
            return
        self._session = session
        # Other calls may still get their replies: close only sessions without calls.
        self._retired.append(lost)
        for idle in [one for one in self._retired if one.is_idle]:
            self._retired.remove(idle)
            await idle.close()

    # --- calls ----------------------------------------------------------------------------------------------------

    async def _discover(self, message: JsonObject) -> JsonObject:
        session = await self._living()
        return result(message["id"], session.server.discovery)

    async def _call(
        self, message: JsonObject, on_notification: OnNotification | None, session: ClientSession
    ) -> JsonObject:
        """Send a request, and wait for its reply or its questions."""
        params: JsonObject = message.get("params", {})
        level = params.get("_meta", {}).get(LOG_LEVEL)
        if level is not None:
            await session.log_from(level)
        call = session.start(message["method"], params)
        return await self._turn(session, call, message["id"], on_notification)

    async def _turn(
        self, session: ClientSession, call: LegacyCall, id_: object, on_notification: OnNotification | None
    ) -> JsonObject:
        """Wait for a call's reply, or its questions; return either as a modern reply."""
        try:
            reply = await call.reply(on_notification)
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
        return modern_reply(reply, id_, session.server)

    async def _go_on(self, message: JsonObject, on_notification: OnNotification | None) -> JsonObject:
        """Send the answers of a round, and wait for what comes next."""
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
        if session.unclaimed.may_be_of(call.id):
            self._caller.clock(message["id"], False)  # until they are answered
        return await self._turn(session, call, message["id"], on_notification)

    async def _answer(self, session: ClientSession, call: LegacyCall, given: JsonObject) -> None:
        """Answer what a call asked; a question without an answer is asked again."""
        try:
            while call.asked:
                key, request = next(iter(call.asked.items()))
                del call.asked[key]
                if key not in given:
                    call.waiting[key] = request
                elif call.is_over:
                    # The question may belong to another call: the server knows what to do with the answer.
                    session.soon(session.answer(request, given[key]))
                else:
                    await session.answer(request, given[key])
        except BaseException as fault:
            session.leave(call, fault)
            raise

    async def _visited(self, session: ClientSession, call: LegacyCall) -> tuple[ClientSession, LegacyCall]:
        """Make a call again when the server says that its URLs were visited, or after a while."""
        if await session.transport.hears():
            await session.completed({request["id"] for request in call.asked.values()}, VISIT)
        session = await self._living()
        return session, session.start(call.message["method"], call.message["params"], call.handle)

    # --- changes --------------------------------------------------------------------------------------------------

    async def _listen(self, message: JsonObject, on_notification: OnNotification | None) -> JsonObject:
        """Do ``subscriptions/listen`` with the notifications that an old server sends anyway. It ends in a fault."""
        wanted = message.get("params", {}).get("notifications")

        async def subscribe(session: ClientSession) -> tuple[ClientSession, ChangeListener]:
            listener = ChangeListener(message["id"], wanted, session.server, hears=await session.transport.hears())
            await session.add(listener)
            return session, listener

        session, listener = await self._in_session(subscribe)
        try:
            await tell(on_notification, listener.acknowledgment)
            while True:
                await tell(on_notification, await listener.next())
        finally:
            session.remove(listener)


def _action(response: object) -> object:
    return response.get("action") if type(response) is dict else None


async def _no_answer(key: str, request: JsonObject) -> JsonObject:
    raise CannotAnswer(f"The link has no client that could answer {request['method']}", key=key)


# --- links to old servers: behind a URL, as a process, in memory ---


def to_url(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    auth: Authorizer | None = None,
    revision: str | None = None,
    kind: "type[Response] | None" = None,
) -> LegacyLink:
    """Over streamable HTTP."""
    from antiphon.legacy.client.http import HttpTransport
    from antiphon.transports.http_client import HttpLink, Response

    def connect(receiver: Receiver) -> Transport:
        calls, aside = (HttpLink(url, headers=headers, auth=auth, kind=kind or Response) for _ in range(2))
        return HttpTransport(calls, aside, receiver)

    return LegacyLink(connect, revision=revision)


def to_child(child: ChildLink, *, revision: str | None = None) -> LegacyLink:
    """Over the standard streams of a process: of the one that runs already, if the link to it is open."""
    return over_pipe(functools.partial(ChildPipe, child), revision=revision)


def to_service(service: "Service", *, identity: "Identity | None" = None, revision: str | None = None) -> LegacyLink:
    """In memory."""
    from antiphon.legacy.server.stdio import MemoryPipe

    return over_pipe(lambda receive, _: MemoryPipe(service, receive, identity=identity), revision=revision)


def over_pipe(make: Callable[[Receive, Lost], MessagePipe], *, revision: str | None = None) -> LegacyLink:
    """Over the pipe that ``make`` makes of a callback for messages and one for the end."""
    return LegacyLink(functools.partial(PipeTransport, make), revision=revision)
