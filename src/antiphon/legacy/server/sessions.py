"""Sessions: opened, found again by any instance, prolonged while they are used, ended after a while without use."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from itertools import islice
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from antiphon.errors import InvalidParams, InvalidRequest
from antiphon.stores.store import Store, StoreError
from antiphon.types import JsonObject, LogLevel
from antiphon.wire.jsonrpc import Message
from antiphon.wire.revisions import EARLIER, PROTOCOL_VERSION, negotiated

T = TypeVar("T")
MAX_URIS = 1000
"""Resources that one session may subscribe to."""
MAX_BYTES = 16 * 1024
"""Letters that their URIs may have in all. Every session is kept, and read with each of its requests."""
MAX_HELLO = 4 * 1024
"""Bytes that capabilities and clientInfo may have, as they are kept."""


class Session(msgspec.Struct, kw_only=True, array_like=True, gc=False):
    """What initialize agreed on with one client, as plain data that any instance can take up."""

    id: str = ""
    revision: str
    capabilities: JsonObject
    client: JsonObject
    principal: str | None = None
    level: LogLevel = "info"
    """2025-11-25, server/utilities/logging: the server decides until the client has said."""
    uris: list[str] = []
    writer: str = ""
    """The instance that wrote it last, where several share a store."""

    def pack(self, writer: str) -> bytes:
        """All but the id, under which it is kept: so that thousands of sessions of one client are the same bytes."""
        return _known(_pack(msgspec.structs.replace(self, id="", writer=writer)))


_pack = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Session).decode


@lru_cache(maxsize=128)
def _known(packed: bytes) -> bytes:
    """The same object for equal bytes."""
    return packed


@lru_cache(maxsize=128)
def _unpack(packed: bytes, id_: str) -> Session:
    """The same object for the same session, while it is among those used most recently: do not change it."""
    return msgspec.structs.replace(_decode(packed), id=id_)


class _ClientInfo(msgspec.Struct):
    name: str
    version: str


class _InitializeParams(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, object]
    client_info: _ClientInfo


def opened(message: JsonObject, id_: str, principal: str | None = None) -> Session:
    """The session that an initialize request opens; InvalidParams if it is malformed."""
    params = message.get("params")
    try:
        asked = msgspec.convert(params, _InitializeParams)
    except msgspec.ValidationError as fault:
        raise InvalidParams(f"initialize is malformed: {fault}") from None
    assert isinstance(params, dict)
    revision, capabilities = negotiated(asked.protocol_version), asked.capabilities
    if not EARLIER[revision].modes and type(capabilities.get("elicitation")) is dict:
        capabilities["elicitation"] = {}  # forms: there are no pages yet, whatever it says
    session = Session(
        id=id_,
        revision=revision,
        capabilities=capabilities,
        # Icons may be whole pictures, and no handler needs them.
        client={name: value for name, value in params["clientInfo"].items() if name != "icons"},
        principal=principal,
    )
    if len(_pack(session.capabilities)) + len(_pack(session.client)) > MAX_HELLO:
        raise InvalidParams(
            f"initialize is too large: capabilities and clientInfo may have {MAX_HELLO} bytes, apart from icons"
        )
    return session


def states_revision(message: Message) -> bool:
    """2026-07-28, basic/versioning: whether a message states its revision in ``_meta``, as only modern ones do."""
    params = message.get("params")
    meta = params.get("_meta") if type(params) is dict else None
    return type(meta) is dict and PROTOCOL_VERSION in meta


_OFTEN: Final = 10
"""A session in use is written again this many times within its time to live."""
_LOOKED_AT: Final = 100
"""Sessions of a shared store that are looked at before another is refused."""


class Sessions:
    """The sessions of a server. Each is a value in the store; this instance remembers only when it wrote which.

    There are at most so many that this instance wrote last. For one more, the one that was unused for longest ends.
    ``busy`` gives those that a call or a stream uses here, ``watching`` those that watch a mounted server from here,
    and ``ended`` is told of one that has expired, made room, or ended elsewhere.
    """

    def __init__(
        self,
        store: Store,
        *,
        shared: bool,
        ttl: float,
        most: int,
        busy: Callable[[], Iterable[str]],
        watching: Callable[[], Iterable[str]],
        ended: Callable[[str], object],
    ) -> None:
        self._store = store
        self._shared = shared
        self._ttl = ttl
        self._most = most
        self._period = min(ttl / 2, 60.0)
        self._moments = self._period / 50
        self._writer = secrets.token_hex(6) if shared else ""
        self._used: dict[str, float] = {}
        """When each session was last written from here. The one that was unused here for longest comes first."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._moment = 0.0
        self._busy = busy
        self._watching = watching
        self._ended = ended
        self._sweeping: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._used)

    async def open(self, message: Message, principal: str | None) -> Session:
        session = opened(message, secrets.token_urlsafe(18), principal)
        if len(self._used) >= self._most:
            await self._make_room()
        key = _key(session.id)
        await self._store.put(key, session.pack(self._writer), ttl=self._ttl)
        self._note(key)
        return session

    async def _make_room(self) -> None:
        """End the session that was unused for longest; InvalidRequest if all are in use."""
        busy = {_key(name) for name in self._busy()}
        idle = (key for key in list(self._used) if key not in busy)
        for key in islice(idle, _LOOKED_AT):
            if await self._has_left(key):
                self._used.pop(key, None)
                return
        raise InvalidRequest("There are too many sessions, and all are in use; try again later", status=503)

    async def _has_left(self, key: str) -> bool:
        """End an idle session, unless another instance wrote it last, where it counts; False if it may be in use."""
        if self._shared:
            packed = await self._store.get(key)
            if packed is None or _decode(packed).writer != self._writer:
                return True
            # Another instance uses it without writing it only for a short while after it did write it.
            if time.monotonic() - self._used.get(key, 0.0) < 2 * max(self._ttl / _OFTEN, self._period):
                return False
        await self._store.take(key)
        self._ended(_name(key))
        return True

    async def find(self, id_: bytes | None, principal: str | None) -> Session:
        """The session of a request; InvalidRequest says whether it names none, or one that has ended."""
        if id_ is None:
            raise InvalidRequest("The Mcp-Session-Id header is missing: initialize first", status=400)
        name = id_.decode("latin-1")
        session = await self._as_it_is(name, principal)
        key = _key(name)
        written = self._used.get(key)
        if written is None or time.monotonic() - written > self._ttl / _OFTEN:
            await self.touch(name)
        else:
            del self._used[key]
            self._used[key] = written  # now the last to leave
        return session

    async def _as_it_is(self, name: str, principal: str | None) -> Session:
        packed = await self._store.get(_key(name)) if len(name) < 100 else None
        if packed is None:
            self._used.pop(_key(name), None)
            raise _gone()
        session = _unpack(packed, name)
        if session.principal != principal:
            raise _gone()  # another principal's; the reply must not tell that it exists
        return session

    async def change(self, session: Session, work: Callable[[Session], Awaitable[T]]) -> T:
        """Do something with a session as it is now, and keep it; again if another instance wrote it meanwhile."""
        key = _key(session.id)
        async with self._locks.setdefault(session.id, asyncio.Lock()):
            while True:
                packed = await self._store.get(key)
                if packed is None:
                    raise _gone()
                now = msgspec.structs.replace(_unpack(packed, session.id))
                done = await work(now)
                if await self._store.add(key, now.pack(self._writer), ttl=self._ttl, replacing=packed):
                    self._note(key)
                    return done

    async def touch(self, name: str) -> bool:
        """Prolong a session that is in use although it sends nothing; False if it has ended."""
        key = _key(name)
        packed = await self._store.get(key)
        if packed is None:
            return False
        # What is changed or ended meanwhile stays so.
        mine = _decode(packed).pack(self._writer)
        if await self._store.add(key, mine, ttl=self._ttl, replacing=packed):
            self._note(key)
        return True

    async def end(self, session: Session) -> None:
        self._used.pop(_key(session.id), None)
        await self._store.take(_key(session.id))

    def _note(self, key: str) -> None:
        """Remember that a session was written just now."""
        self._used.pop(key, None)
        # The store's own key, and one moment for many: ten thousand sessions need not have more of either.
        now = time.monotonic()
        if now - self._moment > self._moments:
            self._moment = now
        self._used[key] = self._moment
        if self._sweeping is None:
            self._sweep_later()

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(self._period, self._start_sweep, loop)

    def _start_sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweeping = None
        self._task = loop.create_task(self._sweep())

    async def _sweep(self) -> None:
        """Forget the sessions that have not been used here for too long; prolong those in use."""
        with contextlib.suppress(StoreError):
            for name in self._busy():
                if not await self.touch(name):
                    self._ended(name)
        # A period late: a moment may be before the write that it stands for, and the store drops what has ended later.
        over = time.monotonic() - self._ttl - self._period
        for key, used in list(self._used.items()):
            if used >= over:
                continue
            self._used.pop(key, None)
            with contextlib.suppress(StoreError):
                await self._store.get(key)  # a store in memory sweeps when it is used
        with contextlib.suppress(StoreError):
            for name in self._watching():
                # What is used here is there; of what is not, another instance may prolong it, or may have ended it.
                if _key(name) not in self._used and await self._store.get(_key(name)) is None:
                    self._ended(name)
        if not self._used:
            self._used.clear()  # gives back the table, which has the size that it had at its fullest
        if self._sweeping is None and (self._used or self._watching()):
            self._sweep_later()


_PREFIX: Final = "antiphon:session:"


def _key(name: str) -> str:
    return _PREFIX + name


def _name(key: str) -> str:
    return key.removeprefix(_PREFIX)


def _gone() -> InvalidRequest:
    return InvalidRequest("Session not found: it has ended, or was never there. Initialize a new one.", status=404)
