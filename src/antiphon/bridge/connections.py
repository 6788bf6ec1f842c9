"""Connections to a server: one for all clients of a modern server, one for each client of an old one."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final

import msgspec

from antiphon import eras
from antiphon.client.listening import Change, Listening
from antiphon.client.requests import Requests, typed
from antiphon.client.results import Discovery
from antiphon.errors import CallFailed, CannotAnswer, Disconnected
from antiphon.server.mounts import Unreachable
from antiphon.transports.link import Caller, Link, session_of
from antiphon.types import JsonObject
from antiphon.wire.call import Call
from antiphon.wire.revisions import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION, REVISION, SERVER_INFO

log = logging.getLogger("antiphon.bridge")

OPENING: Final = 30.0
"""Seconds that a server has to start and to say what it is."""
FIRST_WAIT, LAST_WAIT = 1.0, 30.0
"""Seconds after which a server that is not there is tried again: doubling from the first to the last."""
MOST: Final = 100
"""Sessions with an old server at a time."""
IDLE: Final = 1800.0
"""Seconds after which a session without use ends."""
_ASKABLE: Final = ("elicitation", "sampling", "roots", "extensions")
_TASKS: Final = "io.modelcontextprotocol/tasks"
_STRANGER: Final = {"name": "antiphon-bridge", "version": "0"}


def askable(call: Call) -> JsonObject:
    """What the client of a call can be asked, and understands."""
    able: JsonObject = {name: call.capabilities[name] for name in _ASKABLE if name in call.capabilities}
    if type(able.get("roots")) is dict:
        able["roots"] = {}  # that they changed is not passed on
    if type(able.get("extensions")) is dict:
        able["extensions"] = {name: about for name, about in able["extensions"].items() if name != _TASKS}
    return able


def meta_of(call: Call) -> JsonObject:
    """What a request says of its client, to a modern server."""
    info = call.meta.get(CLIENT_INFO)
    known = type(info) is dict and type(info.get("name")) is str and type(info.get("version")) is str
    return {
        **call.meta,
        PROTOCOL_VERSION: REVISION,
        CLIENT_INFO: info if known else _STRANGER,
        CLIENT_CAPABILITIES: askable(call),
    }


class OpenLink:
    """An open link, and what the server says of itself."""

    def __init__(self, link: Link, call: Call) -> None:
        self.link = session_of(link)
        self.used = monotonic()
        self.calls = 0
        """Requests under way and calls that wait."""
        self.discovery: Discovery
        self.info: JsonObject | None = None
        self._retired = False
        self._closing: asyncio.Task[None] | None = None
        self.is_closed = False
        meta = {name: value for name, value in meta_of(call).items() if name in _OF_CLIENT}
        self.requests = Requests(self.link, meta, on_log=None, timeout=OPENING)
        self._listening = Listening(self.requests)
        # Only where all its calls come from one client may a question be put to another of them than asked it.
        shared = call.headers is not None and not call.session and call.principal is None
        self.link.introduce(Caller(meta, _no_answer, _drop, apart=shared))

    async def open(self) -> None:
        async with asyncio.timeout(OPENING):
            await self.link.open()
            self.requests.is_open = True
            found = await self.requests.send("server/discover", {})
        self.discovery = typed(found, Discovery, "server/discover")
        meta = found.get("_meta")
        self.info = meta.get(SERVER_INFO) if type(meta) is dict else None

    def changes(self, **wanted: Any) -> AsyncGenerator[Change]:
        return self._listening.changes(**wanted)

    @contextmanager
    def in_use(self) -> Generator[None]:
        self.hold()
        try:
            yield
        finally:
            self.release()

    def hold(self) -> None:
        self.calls += 1
        self.used = monotonic()

    def release(self) -> None:
        self.calls -= 1
        self.used = monotonic()
        if self._retired and not self.calls:
            self._closing = asyncio.ensure_future(self.close())

    def retire(self) -> None:
        """Close it when nothing is under way."""
        self._retired = True
        if not self.calls:
            self._closing = asyncio.ensure_future(self.close())

    async def close(self) -> None:
        self.requests.is_open = False
        self.is_closed = True
        with contextlib.suppress(CallFailed):
            await self._listening.close()
            await self.link.close()
        self.requests.deadlines.close()


_OF_CLIENT: Final = {PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL}


async def _no_answer(key: str, request: JsonObject) -> JsonObject:
    raise CannotAnswer(f"{request['method']} may be of several clients' calls, or of none", key=key)


def _drop(_: JsonObject) -> None:
    """What belongs to no request has no client to go to."""


class Connections:
    """The open connections to one server. They are opened when they are needed, and again when it was away."""

    def __init__(
        self,
        label: str,
        connect: Callable[[], Link],
        opened: Callable[[OpenLink, bool], None],
        *,
        single: bool = False,
    ) -> None:
        self._label = label
        self._connect = connect
        self._opened = opened
        self._single = single
        self._shared: OpenLink | None = None
        self._sessions: dict[bytes, OpenLink] = {}
        self._retired: set[OpenLink] = set()
        self._opening: dict[bytes, asyncio.Task[OpenLink]] = {}
        self._fault: str | None = None
        self._wait = FIRST_WAIT
        self._again = 0.0
        self._reviving: asyncio.Task[None] | None = None

    @property
    def any(self) -> OpenLink | None:
        """One that is open."""
        return self._shared or next(iter(self._sessions.values()), None)

    async def of(self, call: Call) -> OpenLink:
        """The connection for the client of a call; Unreachable if the server is not there."""
        if self._shared is not None:
            return self._shared
        key = b"" if self._single else _key(call)
        found = self._sessions.get(key)
        if found is not None:
            return found
        opening = self._opening.get(key)
        if opening is None:
            if self._fault is not None and monotonic() < self._again:
                raise Unreachable(self._fault)
            opening = self._opening[key] = asyncio.ensure_future(self._open(key, call))
            opening.add_done_callback(lambda _: self._opening.pop(key, None))
            opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(opening)

    async def _open(self, key: bytes, call: Call) -> OpenLink:
        self._make_room()
        connection = OpenLink(self._connect(), call)
        try:
            await connection.open()
        except (CallFailed, TimeoutError) as fault:
            await connection.close()
            why = str(fault) or f"it did not start within {OPENING:g} seconds"
            self._again = monotonic() + FIRST_WAIT
            raise self._down(f"The server {self._label!r} cannot be reached: {why}", call) from None
        except BaseException:
            await connection.close()
            raise
        if connection.link.stateful or self._single:
            self._sessions[key] = connection
        elif self._shared is None:
            self._shared = connection
        else:  # another client was faster
            await connection.close()
            return self._shared
        was_away = self._fault is not None
        if was_away:
            log.warning("the server %r is back", self._label)
        self._fault, self._wait, self._again = None, FIRST_WAIT, 0.0
        self._opened(connection, was_away)
        return connection

    def lost(self, connection: OpenLink, why: CallFailed, call: Call) -> Unreachable:
        """Note that a connection broke; the next request makes a new one."""
        if connection is self._shared:
            self._shared = None
        self._sessions = {key: one for key, one in self._sessions.items() if one is not connection}
        self._retire(connection)
        return self._down(f"The server {self._label!r} went away before it had answered: {why}", call)

    def _retire(self, connection: OpenLink) -> None:
        self._retired = {one for one in self._retired if not one.is_closed} | {connection}
        connection.retire()

    def _down(self, text: str, call: Call) -> Unreachable:
        if self._fault is None:
            log.warning("%s", text)
        self._fault = text
        if self._reviving is None or self._reviving.done():
            self._reviving = asyncio.ensure_future(self._revive(call))
        return Unreachable(text)

    async def _revive(self, call: Call) -> None:
        """Try again until the server is back: its clients want to know."""
        while self._fault is not None:
            await asyncio.sleep(self._wait)
            self._wait = min(self._wait * 2, LAST_WAIT)
            with contextlib.suppress(Unreachable):
                self._again = 0.0
                await self.of(call)

    def _make_room(self) -> None:
        """End sessions that were not used for long, and the oldest one if there are too many."""
        now = monotonic()
        idle = sorted((one.used, key) for key, one in self._sessions.items() if not one.calls)
        for used, key in idle:
            if now - used > IDLE or len(self._sessions) >= MOST:
                self._retire(self._sessions.pop(key))
        if len(self._sessions) >= MOST:
            raise Unreachable(f"The server {self._label!r} has {MOST} sessions, and all are in use: try again later")

    async def close(self) -> None:
        tasks: list[asyncio.Task[Any]] = [*self._opening.values(), *([self._reviving] if self._reviving else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        ended = [*self._retired, *self._sessions.values(), *([self._shared] if self._shared else [])]
        self._retired, self._sessions, self._shared, self._fault = set(), {}, None, None
        await asyncio.gather(*(connection.close() for connection in ended), return_exceptions=True)


def _key(call: Call) -> bytes:
    """Who calls, as far as an old server can tell clients apart."""
    who = [call.principal, call.session, call.meta.get(CLIENT_INFO), askable(call)]
    return msgspec.json.encode(who, order="sorted")


def connector(target: object, *, auth: Any = None, era: str = "auto", **options: Any) -> Callable[[], Link]:
    """What makes links to a target; raises at once if it is none."""

    def connect() -> Link:
        authorizer = None if auth is None else auth.for_server(target, era=era, patience=None)
        return eras.connect(target, auth=authorizer, era=era, **options)

    connect()
    return connect


async def quietly(label: str, changes: AsyncGenerator[Change], hear: Callable[[Change], None]) -> None:
    """Hear changes until the server says no more."""
    try:
        async with contextlib.aclosing(changes):
            async for change in changes:
                hear(change)
    except (CallFailed, Disconnected) as fault:
        log.info("the server %r tells of no changes: %s", label, fault)
