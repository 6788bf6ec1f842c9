"""How a test reaches its server: a ServerUnderTest makes the link, to one instance or to several that take turns.

A target is a Server, a function that makes one, a URL, a command, a server's file, or a Link. A server of another
library that was given to `antiphon.adapt.awaited` is as good as a Server.
"""

import asyncio
import importlib
import importlib.util
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from antiphon import eras
from antiphon.adapt import service_of
from antiphon.client.client import Auth, Client, url_of
from antiphon.errors import AntiphonError
from antiphon.http.exchange import Application
from antiphon.oauth.identity import Identity
from antiphon.rounds.token import generate_key
from antiphon.server.dispatch import Service
from antiphon.server.run import StepObserver
from antiphon.testing.answers import Script
from antiphon.transports.link import Caller, Link, OnNotification, SessionLink, session_of
from antiphon.types import JsonObject
from antiphon.wire.revisions import PROTOCOL_VERSION, REVISION

KEYS = "ANTIPHON_KEYS"


class NoFreshInstance(AntiphonError):
    """There is no way to make another instance of that server."""


class ServerUnderTest(msgspec.Struct, frozen=True, kw_only=True):
    """How a client for tests reaches its server. Plain data, until a link is made of it."""

    target: object
    """A Server, a function that makes one, a URL, a command, a server's file, or a Link."""
    era: str = "auto"
    rotate: int = 0
    """How many instances take turns, each started afresh for its turn; 0: one, for all requests."""
    headers: Mapping[str, str] | None = None
    auth: Auth | None = None
    """How the client signs in to a URL."""
    identity: Identity | None = None
    """Who calls a Server in this process."""
    env: Mapping[str, str] | None = None
    """Variables to add to this process's own, all of which a command inherits."""
    cwd: str | PathLike[str] | None = None
    cassette: Path | None = None
    """A recording that answers instead of the server; if there is no such file, it is made."""

    def link(self) -> Link:
        """Return a link, not yet open."""
        if self.cassette is not None and self.cassette.exists():
            from antiphon.testing.cassette.links import Player  # few tests replay

            return Player(self.cassette)
        connect = self._rotating() if self.rotate else self.link_to_one
        return link_to(connect, rotate=self.rotate, record=self.cassette, headers=self.headers)

    def link_to_one(
        self, *, patience: float = eras.PROBING, on_stray_line: Callable[[str], None] | None = None
    ) -> Link:
        """Return a link to one instance, which nothing records. A command inherits the variables of this process."""
        target = instance_of(self).target
        return eras.connect(
            target,
            headers=self.headers,
            auth=None if self.auth is None else self.auth.for_server(url_of(target), era=self.era, patience=None),
            identity=self.identity,
            env={**os.environ, **(self.env or {})},
            cwd=self.cwd,
            era=self.era,
            patience=patience,
            on_stray_line=on_stray_line,
        )

    def _rotating(self) -> Callable[[], Link]:
        """Return what makes links to fresh instances, all of which have one key."""
        try:
            key, fresh = shared_key(), fresh_of(self)
        except NoFreshInstance as fault:
            raise NoFreshInstance(f"rotate starts its server afresh for each request. {fault}") from None

        def another() -> Link:
            with environment(key):
                return fresh().link_to_one()

        return another


def link_to(
    connect: Callable[[], Link],
    *,
    rotate: int = 0,
    record: Path | None = None,
    headers: Mapping[str, str] | None = None,
) -> Link:
    """Return the link to a server; nothing is started yet.

    ``connect`` makes a link to an instance, and ``rotate`` instances take turns. ``record`` is the file of a recording
    to make; ``headers`` are those that the server is sent, which it must not hold.
    """
    link = Rotation(connect, rotate) if rotate else connect()
    if record is None:
        return link
    from antiphon.testing.cassette.links import Recorder  # few tests record

    return Recorder(link, record, headers=headers)


# --- instances ----------------------------------------------------------------------------------------------------


def shared_key() -> dict[str, str]:
    """Return the variable with a key for instances that must open each other's tokens; empty if one is set."""
    return {} if os.environ.get(KEYS, "").strip() else {KEYS: new_key()}


def new_key() -> str:
    return generate_key(os.urandom(32))


@contextmanager
def environment(variables: Mapping[str, str]) -> Generator[None]:
    """Set variables of this process, and put back what was there before."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def is_here(known: ServerUnderTest) -> bool:
    """Return whether the target is a Server of this process, or a function that makes one."""
    target = _served(known.target)
    return isinstance(target, Service) or (callable(target) and not isinstance(target, Link))


def instance_of(known: ServerUnderTest) -> ServerUnderTest:
    """Return the same for one instance. Only a function makes it now: any other target is what it is."""
    return msgspec.structs.replace(known, target=_made(known.target)) if is_here(known) else known


def fresh_of(known: ServerUnderTest) -> Callable[[], ServerUnderTest]:
    """Return what makes other instances of the same server; raise NoFreshInstance if there is no way.

    A function is called again, the module of a Server imported again, and a command started again.
    """
    target = _served(known.target)
    if isinstance(target, Service):
        module, name = _origin(target)
        return lambda: msgspec.structs.replace(known, target=_imported_anew(module, name))
    if isinstance(target, Link) or str(target).startswith(("http://", "https://")):
        raise NoFreshInstance(
            f"There is no way to make another instance of {target!r}, which was not started here."
            " Give an app, a function that makes one, or a command instead."
        )
    return lambda: instance_of(known)


def _made(target: object) -> Service:
    """Return a Server, or the one that a function makes."""
    served = _served(target)
    if not isinstance(served, Service) and callable(target):
        served = _served(target())
    if not isinstance(served, Service):
        raise NoFreshInstance(f"{target!r} should make a Server, and made {served!r}")
    return served


def _served(target: object) -> object:
    """Return the target, or the service inside it if it is another library's server, given to `adapt.awaited`."""
    return service_of(target) or target


def _origin(server: Service) -> tuple[ModuleType, str]:
    """Return the module in which a server was made, and its name there.

    Other modules may have imported it; its handlers are in the one that made it, or in the same package.
    """
    original = getattr(server, "original", server)  # of a service inside another library's server
    origins = [
        (module, name)
        for module in list(sys.modules.values())
        if isinstance(module, ModuleType) and module.__name__ != "__main__" and getattr(module, "__file__", None)
        for name, value in list(vars(module).items())
        if value is server or value is original
    ]
    writers = {getattr(function, "__module__", "") for function in server.functions()}
    families = {_family(writer) for writer in writers}
    likely = [origin for origin in origins if origin[0].__name__ in writers]
    likely += [origin for origin in origins if _family(origin[0].__name__) in families]
    if likely or len(origins) == 1:
        return (likely or origins)[0]
    raise NoFreshInstance(
        f"There is no way to make another instance of the server {server.info.name!r}: no module has it under a name,"
        " to be imported again. Give a function that makes one instead."
    )


def _imported_anew(home: ModuleType, name: str) -> Service:
    """Import a module again beside the one that is loaded, and return its server."""
    kin = _kin(home.__name__)
    before = dict(sys.modules)
    for module in kin:
        del sys.modules[module]
    try:
        if kin == [home.__name__]:
            _run(home)
        for module in kin:
            # All that was loaded: handlers may register themselves in any of them.
            importlib.import_module(module)
        found = _served(getattr(sys.modules[home.__name__], name, None))
    finally:
        for module in [module for module in sys.modules if module not in before and _family(module) == _family(kin[0])]:
            del sys.modules[module]
        sys.modules.update({module: before[module] for module in kin})
    if not isinstance(found, Service):
        raise NoFreshInstance(f"{home.__name__} has no Server called {name!r} when it is imported again")
    return found


def _run(module: ModuleType) -> None:
    """Run one module again, wherever its source is."""
    spec = module.__spec__
    if spec is None or spec.loader is None:
        raise NoFreshInstance(f"The module {module.__name__!r} cannot be imported again")
    again = sys.modules[module.__name__] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)


def _kin(name: str) -> list[str]:
    """The modules to import again: the whole package, but of tests only the one file."""
    last = name.rpartition(".")[2]
    if last == "conftest" or last.startswith("test_") or last.endswith("_test"):
        return [name]
    return [module for module in sys.modules if _family(module) == _family(name)]


def _family(name: str) -> str:
    """Return the name of a module's outermost package."""
    return name.partition(".")[0]


# --- replaying: the instance that runs a call, and fresh ones to run it again ---------------------------------------


class Instances(msgspec.Struct, frozen=True, kw_only=True):
    """A server to make calls of, and how to have another one like it."""

    client: Client
    service: Service | None = None
    """The server itself, if it is in this process."""
    fresh: Callable[[], Client] | None = None
    """Returns a client of a fresh instance, not yet open."""
    note: str = ""
    """Why there are no fresh instances."""


@asynccontextmanager
async def instances(known: ServerUnderTest, script: Script, observer: StepObserver) -> AsyncGenerator[Instances]:
    """Make instances of a server, with the first one open. The observer is told of the steps of those that are here."""
    # All have one key: whether they do without this is for rotation to find out, not for a look at the handler.
    known = msgspec.structs.replace(known, era=REVISION, env={**shared_key(), **(known.env or {})})
    fresh, note = None, ""
    try:
        fresh = fresh_of(known)
    except NoFreshInstance as fault:
        note = f"Not run on a fresh instance. {fault}"
    first = instance_of(known)
    service = first.target if isinstance(first.target, Service) else None
    with ExitStack() as rehearsals:

        def client_of(one: ServerUnderTest) -> Client:
            if service is not None and isinstance(one.target, Service):
                if one.target is not service:
                    one.target.share_seal(service)
                rehearsals.enter_context(one.target.rehearsal(observer))
            return Client(one.link_to_one(), **script.handlers())

        async with client_of(first) as client:
            again = None if fresh is None else lambda: client_of(fresh())
            yield Instances(client=client, service=service, fresh=again, note=note)


# --- an application over real HTTP ----------------------------------------------------------------------------------


@asynccontextmanager
async def serving(make: Callable[[str], Application]) -> AsyncGenerator[str]:
    """Serve what ``make`` returns on a free port of this machine; give the address, which ``make`` got as well.

    >>> import asyncio
    >>> from antiphon import Client, Server
    >>> async def tools():
    ...     async with serving(lambda url: Server("empty").asgi()) as url, Client(f"{url}/mcp") as client:
    ...         return (await client.discover()).server.name
    >>> asyncio.run(tools())
    'empty'
    """
    import uvicorn  # 100 ms that most tests need not pay

    from antiphon.transports.serve import SETTINGS

    started = asyncio.Event()

    class Quiet(uvicorn.Server):
        """Leaves the signals to the program that runs the test."""

        @contextmanager
        def capture_signals(self) -> Generator[None]:
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started.set()

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        options: dict[str, Any] = {**SETTINGS, "timeout_graceful_shutdown": 1}
        server = Quiet(uvicorn.Config(make(url), log_level="error", **options))
        task = asyncio.create_task(server.serve([listener]))
        task.add_done_callback(lambda _: started.set())
        await started.wait()
        try:
            yield url
        finally:
            server.should_exit = True
            await task


# --- rotation -----------------------------------------------------------------------------------------------------


class Rotation(SessionLink):
    """A Link to ``count`` instances in turn. Each serves one request and is then replaced by a fresh one.

    What a server keeps in its memory between two rounds is lost, as it is behind a load balancer. ``make`` makes the
    link to another instance, which is not open yet. An instance is closed after its leg, and its session with it, so
    ``abandon`` and ``moot`` have nothing to do.
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
        await asyncio.gather(*map(self._close_soon, places))
        while self._closing:  # a place that was cancelled closes what it had
            await asyncio.gather(*self._closing)

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        place = self._leg % self._count
        self._leg += 1
        ready, done = self._places[place], asyncio.Event()
        # The next instance starts while others serve: only the leg whose turn it is waits for it.
        self._places[place] = asyncio.create_task(self._renewed(ready, done))
        try:
            link = await self._started(ready, message["id"])
            return await link.request(message, headers=headers, on_notification=on_notification)
        finally:
            done.set()

    async def _started(self, instance: asyncio.Task[SessionLink], id_: object) -> SessionLink:
        """Wait until an instance has started, which is not the time that the server takes for the request."""
        if self._caller is None:
            return await asyncio.shield(instance)
        self._caller.clock(id_, False)
        try:
            return await asyncio.shield(instance)
        finally:
            self._caller.clock(id_, True)

    async def _renewed(self, before: asyncio.Task[SessionLink], done: asyncio.Event) -> SessionLink:
        try:
            await done.wait()
        finally:
            closing = self._close_soon(before)
        # The old instance is closed to its end even if no new one is wanted any more.
        await asyncio.shield(closing)
        return await self._fresh()

    def _close_soon(self, place: asyncio.Task[SessionLink]) -> asyncio.Task[None]:
        closing = asyncio.create_task(_close(place))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing

    async def _fresh(self) -> SessionLink:
        """Return an instance that was greeted: some servers tell from the first message who calls."""
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
