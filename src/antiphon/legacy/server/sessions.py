"""Sessions: opened, found again by any instance, prolonged while they are used, ended after a while without use."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from functools import lru_cache
from itertools import islice
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from antiphon.errors import InvalidParams, InvalidRequest
from antiphon.server.dispatch import Service
from antiphon.stores.store import Store, StoreError, following
from antiphon.types import JsonObject, LogLevel
from antiphon.wire.jsonrpc import Message
from antiphon.wire.revisions import EARLIER, PROTOCOL_VERSION, negotiated

MAX_URIS = 1000
"""Resources that one session may subscribe to."""
MAX_BYTES = 64 * 1024
"""And what it may weigh: every session is kept, and read with each of its requests."""


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

    def pack(self) -> bytes:
        """All but the id, under which it is kept: so that thousands of sessions of one client are the same bytes."""
        return _known(_pack(msgspec.structs.replace(self, id="")))

    @staticmethod
    def unpack(packed: bytes, id_: str) -> "Session":
        """The same object for the same session, while it is among those used most recently: do not change it."""
        return _unpack(packed, id_)

    def copy(self) -> "Session":
        return msgspec.structs.replace(self)


_pack = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Session).decode


@lru_cache(maxsize=128)
def _known(packed: bytes) -> bytes:
    """The same object for equal bytes."""
    return packed


@lru_cache(maxsize=128)
def _unpack(packed: bytes, id_: str) -> Session:
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
        client=params["clientInfo"],
        principal=principal,
    )
    if len(_pack(session.capabilities)) + len(_pack(session.client)) > MAX_BYTES:
        raise InvalidParams(f"initialize is too large: capabilities and clientInfo may have {MAX_BYTES} bytes")
    return session


def states_revision(message: Message) -> bool:
    """2026-07-28, basic/versioning: whether a message states its revision in ``_meta``, as only modern ones do."""
    params = message.get("params")
    meta = params.get("_meta") if type(params) is dict else None
    return type(meta) is dict and PROTOCOL_VERSION in meta


def welcome(service: Service, session: Session) -> JsonObject:
    """The result of initialize."""
    able = service.capabilities()
    result: JsonObject = {
        "protocolVersion": session.revision,
        # A client without a session cannot be told later what changed.
        "capabilities": able if session.id else {name: {} for name in able},
        "serverInfo": service.info,
    }
    if service.instructions is not None:
        result["instructions"] = service.instructions
    return result


_OFTEN: Final = 10
"""A session in use is written again this many times within its time to live."""
_CLAIMED: Final = 5.0
"""Seconds for which an instance may have a session to itself."""
_LOOKED_AT: Final = 100
"""Sessions that are looked at before another is refused."""


class Sessions:
    """The sessions of a server. Each is a value in the store; this instance remembers only when it used which."""

    def __init__(self, store: Store, *, shared: bool, ttl: float, most: int) -> None:
        self._store = store
        self._shared = shared
        self._ttl = ttl
        self._most = most
        self._used: dict[str, float] = {}
        """When each session was last written from here, the longest ago first."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._moment = 0.0
        self.busy: Callable[[], Iterable[str]] = tuple
        """Gives the sessions in which a call is under way here."""
        self._sweeping: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._used)

    async def open(self, message: Message, principal: str | None) -> Session:
        if len(self._used) >= self._most:
            await self._sweep()
            await self._look_for_ended()
            if len(self._used) >= self._most:
                raise InvalidRequest("There are too many sessions; try again later", status=503)
        session = opened(message, secrets.token_urlsafe(18), principal)
        await self.keep(session)
        return session

    async def find(self, id_: bytes | None, principal: str | None) -> Session:
        """The session of a request; InvalidRequest says whether it names none, or one that has ended."""
        if id_ is None:
            raise InvalidRequest("The Mcp-Session-Id header is missing: initialize first", status=400)
        name = id_.decode("latin-1")
        session = await self._as_it_is(name, principal)
        if time.monotonic() - self._used.get(_key(name), 0.0) > self._ttl / _OFTEN:
            await self.touch(name)
        return session

    async def _as_it_is(self, name: str, principal: str | None) -> Session:
        packed = await self._store.get(_key(name)) if len(name) < 100 else None
        if packed is None:
            self._used.pop(_key(name), None)
            raise _gone()
        session = Session.unpack(packed, name)
        if session.principal != principal:
            raise _gone()  # another principal's; the reply must not tell that it exists
        return session

    @contextlib.asynccontextmanager
    async def changing(self, session: Session) -> AsyncGenerator[Session]:
        """Give a session as it is now, to be changed; then keep it."""
        async with self._alone(session.id):
            now = (await self._as_it_is(session.id, session.principal)).copy()
            yield now
            await self.keep(now)

    @contextlib.asynccontextmanager
    async def _alone(self, name: str) -> AsyncGenerator[None]:
        """Let no other task write a session, here or at other instances."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        async with lock, self._claimed(name) if self._shared else contextlib.nullcontext():
            yield

    @contextlib.asynccontextmanager
    async def _claimed(self, name: str) -> AsyncGenerator[None]:
        """Claim a session in the store. If this instance dies meanwhile, the others wait for a few seconds."""
        claim = f"antiphon:changing:{name}"
        if not await self._store.add(claim, ttl=_CLAIMED):
            async with following(self._store, claim) as wait:
                while not await self._store.add(claim, ttl=_CLAIMED):
                    await wait(_CLAIMED)
        try:
            yield
        finally:
            await self._store.take(claim)
            await self._store.publish(claim, b"")

    async def keep(self, session: Session) -> None:
        await self._write(_key(session.id), session.pack())

    async def touch(self, name: str) -> bool:
        """Prolong a session that is in use although it sends nothing; False if it has ended."""
        key = _key(name)
        packed = await self._store.get(key)
        # What is changed or ended meanwhile stays so. A claim would make this wait for an instance that died with it.
        if packed is not None and await self._store.add(key, packed, ttl=self._ttl, replacing=packed):
            self._note(key)
        return packed is not None

    async def end(self, session: Session) -> None:
        async with self._alone(session.id):
            self._used.pop(_key(session.id), None)
            await self._store.take(_key(session.id))

    async def _write(self, key: str, packed: bytes) -> None:
        await self._store.put(key, packed, ttl=self._ttl)
        self._note(key)

    def _note(self, key: str) -> None:
        """Remember that a session was written just now."""
        self._used.pop(key, None)
        # The store's own key, and one moment for many: ten thousand sessions need not have more of either.
        now = time.monotonic()
        if now - self._moment > self._ttl / 100:
            self._moment = now
        self._used[key] = self._moment
        if self._sweeping is None:
            self._sweep_later()

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(min(self._ttl / 2, 60.0), self._start_sweep, loop)

    def _start_sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweeping = None
        self._task = loop.create_task(self._sweep())

    async def _look_for_ended(self) -> None:
        """Forget sessions that ended at other instances, as far as they are among those used longest ago."""
        for key in list(islice(self._used, _LOOKED_AT)) if self._shared else ():
            if await self._store.get(key) is None:
                self._used.pop(key, None)

    async def _sweep(self) -> None:
        """Forget the sessions that have not been used here for too long; keep those in which a call is under way."""
        with contextlib.suppress(StoreError):
            for name in self.busy():
                await self.touch(name)
        now = time.monotonic()
        for key, used in list(self._used.items()):
            if now - used <= self._ttl:
                break
            self._used.pop(key, None)
            with contextlib.suppress(StoreError):
                await self._store.get(key)  # a store in memory sweeps when it is used
        if not self._used:
            self._used.clear()  # gives back the table, which has the size that it had at its fullest
        elif self._sweeping is None:
            self._sweep_later()


def _key(name: str) -> str:
    return f"antiphon:session:{name}"


def _gone() -> InvalidRequest:
    return InvalidRequest("Session not found: it has ended, or was never there. Initialize a new one.", status=404)
