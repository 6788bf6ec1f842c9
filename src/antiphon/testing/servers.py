"""A Connection: how a test reaches its server. Plain data, until a link is made of it."""

import asyncio
import importlib
import importlib.util
import itertools
import os
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from os import PathLike
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import TypeAlias

import msgspec

from antiphon import eras
from antiphon.errors import AntiphonError, CallTimeout
from antiphon.rounds.token import generate_key
from antiphon.server.dispatch import Service
from antiphon.testing.cassette.player import Player
from antiphon.testing.cassette.recording import Recorder
from antiphon.testing.transcript import waited
from antiphon.transports.link import Around, Caller, Link, OnNotification, SessionLink, session_of
from antiphon.types import JsonObject
from antiphon.wire.revisions import PROGRESS_TOKEN, PROTOCOL_VERSION, REVISION

# Another instance: the same server once more, with nothing in its memory, as a second process would have it.


Make: TypeAlias = Callable[[], Service]

KEYS = "ANTIPHON_KEYS"


class NoFreshInstance(AntiphonError):
    """There is no way to make another instance of that server."""


def new_key() -> str:
    """A key for instances that must open each other's tokens."""
    return generate_key(os.urandom(32))


@contextmanager
def keyed(key: str) -> Generator[None]:
    """Servers that are made inside share a key, unless they bring their own."""
    before = os.environ.get(KEYS)
    if not (before or "").strip():
        os.environ[KEYS] = key
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(KEYS, None)
        else:
            os.environ[KEYS] = before


def maker(target: Service | Callable[..., object]) -> Make:
    """A function that makes instances: the one given, or one that imports the server's module anew."""
    if not isinstance(target, Service):
        return lambda: _made(target)
    module, name = _home(target)
    return lambda: _imported_anew(module, name)


def _made(factory: Callable[..., object]) -> Service:
    made = factory()
    if not isinstance(made, Service):
        raise NoFreshInstance(f"{factory!r} should make a Server, and made {made!r}")
    return made


def _home(server: Service) -> tuple[ModuleType, str]:
    """The module in which a server was made, and its name there.

    Others may have imported it; its handlers stand where it was made, or in a module of the same package.
    """
    homes = [
        (module, name)
        for module in list(sys.modules.values())
        if isinstance(module, ModuleType) and module.__name__ != "__main__" and getattr(module, "__file__", None)
        for name, value in list(vars(module).items())
        if value is server
    ]
    writers = {getattr(handler.function, "__module__", "") for handler in server.handlers()}
    families = {_family(writer) for writer in writers}
    ours = [home for home in homes if home[0].__name__ in writers]
    ours += [home for home in homes if _family(home[0].__name__) in families]
    if ours:
        return ours[0]
    if len(homes) == 1:
        return homes[0]
    raise NoFreshInstance(
        f"There is no way to make another instance of the server {server.info.name!r}: no module has it under a name,"
        " to be imported anew. Give a function that makes one instead."
    )


def _imported_anew(home: ModuleType, name: str) -> Service:
    kin = _kin(home.__name__)
    before = dict(sys.modules)
    for module in kin:
        del sys.modules[module]
    try:
        if kin == [home.__name__]:
            _run(home)
        for module in kin:
            # All that was loaded, since handlers may register themselves in any of them.
            importlib.import_module(module)
        found: object = getattr(sys.modules[home.__name__], name, None)
    finally:
        for module in [module for module in sys.modules if module not in before and _family(module) == _family(kin[0])]:
            del sys.modules[module]
        sys.modules.update({module: before[module] for module in kin})
    if not isinstance(found, Service):
        raise NoFreshInstance(f"{home.__name__} has no Server called {name!r} when it is imported anew")
    return found


def _run(module: ModuleType) -> None:
    """Run one module again, wherever its source is."""
    spec = module.__spec__
    if spec is None or spec.loader is None:
        raise NoFreshInstance(f"The module {module.__name__!r} cannot be imported again")
    again = sys.modules[module.__name__] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)


def _kin(name: str) -> list[str]:
    """The modules to import anew: the whole package, but of tests only the one file."""
    last = name.rpartition(".")[2]
    if last == "conftest" or last.startswith("test_") or last.endswith("_test"):
        return [name]
    return [module for module in sys.modules if _family(module) == _family(name)]


def _family(name: str) -> str:
    return name.partition(".")[0]


# Rotation: several instances of a server, each leg of a call served by another one, which then starts anew.
#
# What a server keeps in its memory between two legs is lost on the way, as it is behind a load balancer.


_limit: ContextVar[float | None] = ContextVar("limit", default=None)


@contextmanager
def limited(seconds: float) -> Generator[None]:
    """Each leg of the calls made inside this block may take so long. The start of an instance does not count."""
    before = _limit.set(seconds)
    try:
        yield
    finally:
        _limit.reset(before)


class Rotation(SessionLink):
    """A Link to ``count`` instances in turn. ``make`` makes the link to another one, which is not open yet.

    An instance is closed after its leg, and its session with it: ``abandon`` and ``moot`` have nothing to do.
    """

    def __init__(self, make: Callable[[], Link], count: int) -> None:
        if count < 1:
            raise ValueError("A rotation has at least one instance")
        self._make = make
        self._count = count
        self._places: list[asyncio.Task[SessionLink]] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._leg = 0
        self._caller: Caller | None = None
        self._revision = super().revision

    @property
    def revision(self) -> str:
        """What the instances speak."""
        return self._revision

    def introduce(self, caller: Caller) -> None:
        self._caller = caller

    async def open(self) -> None:
        self._places = [asyncio.create_task(self._fresh()) for _ in range(self._count)]
        try:
            for link in await asyncio.gather(*self._places):
                self._revision = link.revision
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        places, self._places = self._places, []
        for place in places:
            place.cancel()
        await asyncio.gather(*map(self._close_soon, places), *self._closing)

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        place, begun = self._leg % self._count, perf_counter()
        self._leg += 1
        ready, done = self._places[place], asyncio.Event()
        # Started anew while the others serve: nobody waits for it but the leg whose turn it is next.
        self._places[place] = asyncio.create_task(self._renewed(ready, done))
        try:
            link = await asyncio.shield(ready)
            waited(perf_counter() - begun)
            return await _within(_limit.get(), link.request(message, headers=headers, on_notification=on_notification))
        finally:
            done.set()

    async def _renewed(self, before: asyncio.Task[SessionLink], done: asyncio.Event) -> SessionLink:
        try:
            await done.wait()
        finally:
            closing = self._close_soon(before)
        # Whoever has no use for a new instance still closes the old one to its end.
        await asyncio.shield(closing)
        return await self._fresh()

    def _close_soon(self, place: asyncio.Task[SessionLink]) -> asyncio.Task[None]:
        closing = asyncio.create_task(_close(place))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing

    async def _fresh(self) -> SessionLink:
        """An instance that was greeted, and nothing else: some servers tell from the first message who calls."""
        link = session_of(self._make())
        if self._caller is not None:
            link.introduce(self._caller)
        meta = {PROTOCOL_VERSION: REVISION} if self._caller is None else self._caller.meta
        greeting: JsonObject = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": meta}}
        headers = {"MCP-Protocol-Version": REVISION, "Mcp-Method": "server/discover"}
        try:
            await link.open()
            await link.request(greeting, headers=headers)
        except BaseException:
            await link.close()
            raise
        return link


async def _close(place: asyncio.Task[SessionLink]) -> None:
    """Close the instance of a place, if it has one."""
    (link,) = await asyncio.gather(place, return_exceptions=True)
    if not isinstance(link, BaseException):
        await link.close()


async def _within(seconds: float | None, reply: Awaitable[JsonObject]) -> JsonObject:
    if seconds is None:
        return await reply
    try:
        async with asyncio.timeout(seconds):
            return await reply
    except TimeoutError:
        raise CallTimeout("server", seconds) from None


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """How a tester's client reaches its server."""

    target: object
    """A Server, a function that makes one, a URL, a command, a server's file, or a Link."""
    era: str = "auto"
    rotate: int = 0
    """How many instances take turns, each started afresh for its turn; 0: one, for all requests."""
    headers: Mapping[str, str] | None = None
    env: Mapping[str, str] | None = None
    cwd: str | PathLike[str] | None = None
    cassette: Path | None = None
    """A recording that answers instead of the server; if there is no such file, it is made."""

    def link(self) -> Link:
        """A link, not yet open."""
        if self.cassette is None:
            return self._live()
        if self.cassette.exists():
            return Player(self.cassette)
        return Recorder(self._live(), self.cassette, headers=self.headers)

    def _live(self) -> Link:
        if self.rotate:
            return Rotation(self._instances(), self.rotate)
        target = self.target
        if callable(target) and not isinstance(target, Service | Link):
            target = maker(target)()
        return self._connect(target, self.env)

    def _connect(self, target: object, env: Mapping[str, str] | None) -> Link:
        return eras.connect(target, headers=self.headers, env=env, cwd=self.cwd, era=self.era)

    def _instances(self) -> Callable[[], Link]:
        """What makes links to fresh instances; all of them have one key."""
        key = new_key()
        target = self.target
        if isinstance(target, Link) or (isinstance(target, str) and target.startswith(("http://", "https://"))):
            raise AntiphonError(
                f"rotate starts its server afresh for each request, and {target!r} is not started by the test:"
                " give an app, a function that makes one, or a command"
            )
        if not isinstance(target, Service) and not callable(target):
            return lambda: self._connect(target, {KEYS: key, **(self.env or {})})
        make = maker(target)

        def another() -> Link:
            with keyed(key):
                return self._connect(make(), None)

        return another


# A link that several clients share: each numbers its requests from 1, and the server must see different numbers.


class Shared(Around):
    """A Link around one that is open already; a client that opens or closes it does nothing to the others."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._ids = itertools.count(1)

    async def open(self) -> None:
        """It is open."""

    async def close(self) -> None:
        """Whoever opened it closes it."""

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        id_ = next(self._ids)
        sent = {**message, "id": id_}
        meta = (message.get("params") or {}).get("_meta") or {}
        if PROGRESS_TOKEN in meta:
            sent["params"] = {**message["params"], "_meta": {**meta, PROGRESS_TOKEN: id_}}
        reply = await self._link.request(sent, headers=headers, on_notification=on_notification)
        return {**reply, "id": message["id"]} if reply.get("id") == id_ else reply
