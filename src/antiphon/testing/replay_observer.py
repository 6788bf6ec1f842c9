"""The observer: sees a handler read the clock, draw random numbers, ask, or do what it was told to watch for.

It looks at calls as a profiler does, so nothing is patched: a function is seen under whichever name it was imported.
What a step does is not seen, since a step is where such things belong.
"""

import datetime as dt
import importlib
import os
import random
import secrets
import sys
import sysconfig
import threading
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Literal, Self, TypeAlias

import msgspec

import antiphon
from antiphon import eras
from antiphon.client.client import Client
from antiphon.server.context import Context, SyncContext
from antiphon.server.dispatch import Service
from antiphon.testing.answers import Script
from antiphon.testing.servers import KEYS, Connection, Make, NoFreshInstance, maker, new_key
from antiphon.transports.link import Link
from antiphon.wire.revisions import REVISION

Kind: TypeAlias = Literal["clock", "random", "effect", "ask", "step"]
Effect: TypeAlias = Callable[..., Any] | str

_NOT_YOURS: Final = tuple(
    str(Path(place).resolve()) + os.sep
    for place in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(antiphon.__file__).parent),
    }
)
_seen: ContextVar["tuple[Observer, list[Sighting]] | None"] = ContextVar("seen", default=None)


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a handler did outside of a step, and where."""

    kind: Kind
    what: str
    """``time.time()``; of a question, its message; of a step, its name."""
    file: str
    line: int

    @property
    def place(self) -> str:
        return place_of(self.file, self.line)


def place_of(file: str, line: int) -> str:
    """``file:line``, from the folder that we are in."""
    here, path = Path.cwd(), Path(file)
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{line}"


# --- what is looked for -------------------------------------------------------------------------------------------

_BUILTIN: Final[dict[object, tuple[Kind, str]]] = {
    time.time: ("clock", "time.time()"),
    time.time_ns: ("clock", "time.time_ns()"),
    dt.datetime.now: ("clock", "datetime.now()"),
    dt.datetime.utcnow: ("clock", "datetime.utcnow()"),  # pyright: ignore[reportDeprecated]  # handlers still call it
    dt.datetime.today: ("clock", "datetime.today()"),
    dt.date.today: ("clock", "date.today()"),
    os.urandom: ("random", "os.urandom()"),
    random.random: ("random", "random.random()"),
    random.getrandbits: ("random", "random.getrandbits()"),
}
_WRITTEN: Final[dict[CodeType, tuple[Kind, str]]] = {
    function.__code__: ("random", f"{module.__name__}.{name}()")
    for module, names in (
        (uuid, ("uuid1", "uuid4", "uuid6", "uuid7")),
        (secrets, ("token_bytes", "token_hex", "token_urlsafe", "randbelow")),
    )
    for name in names
    if (function := getattr(module, name, None)) is not None
}
_DRAWS: Final[dict[CodeType, str]] = {
    method.__code__: f"random.{name}()"
    for name, method in vars(random.Random).items()
    if not name.startswith("_") and name not in {"seed", "getstate", "setstate"} and hasattr(method, "__code__")
} | {random.SystemRandom.random.__code__: "random.random()"}
_SHARED: Final = getattr(random.random, "__self__", None)
"""The generator behind the functions of `random`."""
_ASKS: Final[frozenset[CodeType]] = frozenset(
    getattr(type_, name).__code__ for type_ in (Context, SyncContext) for name in ("elicit", "elicit_url", "confirm")
)


class Lookout:
    """The one profile function of this process, for as long as anybody observes."""

    def __init__(self) -> None:
        self._observers = 0

    def raise_(self) -> None:
        self._observers += 1
        if self._observers == 1:
            self._before = sys.getprofile(), threading.getprofile()
            sys.setprofile(self.event)
            threading.setprofile(self.event)

    def lower(self) -> None:
        self._observers -= 1
        if self._observers == 0:
            mine, others = self._before
            sys.setprofile(mine)
            threading.setprofile(others)

    @staticmethod
    def event(frame: FrameType, event: str, arg: Any) -> None:
        if event not in {"call", "c_call"}:
            return
        current = _seen.get()
        if current is not None:
            observer, seen = current
            sighting = observer.look(frame, event, arg)
            if sighting is not None:
                seen.append(sighting)


_lookout: Final = Lookout()


class Steps:
    """Notes the steps that run, and sees nothing of what they do: a step is where such things belong."""

    @contextmanager
    def step(self, key: str) -> Generator[None]:
        current = _seen.get()
        if current is not None:
            what = f"ctx.{key[1:]}()" if key.startswith(":") else repr(key)
            current[1].append(Sighting(kind="step", what=what, file="", line=0))
        _seen.set(None)
        try:
            yield
        finally:
            _seen.set(current)


STEPS: Final = Steps()
"""For `Service.rehearsal`: one does for all, since each task has its own sightings."""


class Observer:
    """Looks on while it is entered; ``seeing()`` gives what is seen inside it, by this task and what it starts."""

    def __init__(self, effects: Iterable[Effect] = (), yours: Iterable[Path] = ()) -> None:
        self._yours = tuple(str(place.resolve()) + os.sep for place in yours)
        self._codes: dict[CodeType, str] = {}
        self._builtins: dict[object, str] = {}
        self._entered: dict[int, FrameType] = {}
        for effect in effects:
            self._watch(effect)

    def __enter__(self) -> Self:
        _lookout.raise_()
        return self

    def __exit__(self, *exc: object) -> None:
        _lookout.lower()
        self._entered.clear()

    @contextmanager
    def seeing(self) -> Generator[list[Sighting]]:
        found: list[Sighting] = []
        before = _seen.set((self, found))
        try:
            yield found
        finally:
            _seen.reset(before)

    def _watch(self, effect: Effect) -> None:
        function = named(effect) if isinstance(effect, str) else effect
        label = effect if isinstance(effect, str) else getattr(effect, "__qualname__", repr(effect))
        inner: Any = getattr(function, "__func__", function)
        while hasattr(inner, "__wrapped__"):
            inner = inner.__wrapped__
        code = getattr(inner, "__code__", None)
        if code is None:
            self._builtins[function] = f"{label}()"
        else:
            self._codes[code] = f"{label}()"

    # --- looking --------------------------------------------------------------------------------------------------

    def look(self, frame: FrameType, event: str, arg: Any) -> Sighting | None:
        """What a call is, if it is one to be seen."""
        if event == "c_call":
            found = self._in_c(arg)
            caller: FrameType | None = frame
        else:
            found = self._in_python(frame)
            caller = frame.f_back
        if found is None:
            return None
        kind, what = found
        if caller is not None and self._is_yours(caller.f_code.co_filename):
            return Sighting(kind=kind, what=what, file=caller.f_code.co_filename, line=caller.f_lineno)
        if kind == "effect" and event == "call":
            # Called by a library, or as a task of its own: then where it is written is all there is to say.
            return Sighting(kind=kind, what=what, file=frame.f_code.co_filename, line=frame.f_code.co_firstlineno)
        return None

    def _in_c(self, function: object) -> tuple[Kind, str] | None:
        try:
            known = _BUILTIN.get(function)
            watched = self._builtins.get(function)
        except TypeError:  # a callable that cannot be hashed
            return None
        return ("effect", watched) if watched is not None else known

    def _in_python(self, frame: FrameType) -> tuple[Kind, str] | None:
        code = frame.f_code
        if code in self._codes:
            return ("effect", self._codes[code]) if self._is_new(frame) else None
        if code in _WRITTEN:
            return _WRITTEN[code]
        if code in _DRAWS:
            source = frame.f_locals.get("self")
            shared = source is _SHARED or isinstance(source, random.SystemRandom)
            return ("random", _DRAWS[code]) if shared else None
        if code in _ASKS and self._is_new(frame):
            return "ask", str(frame.f_locals.get("message", ""))
        return None

    def _is_new(self, frame: FrameType) -> bool:
        """Whether a frame is entered for the first time: a coroutine is entered again after each await."""
        if id(frame) in self._entered:
            return False
        # It is kept, so that its id is not given to another.
        self._entered[id(frame)] = frame
        return True

    def _is_yours(self, file: str) -> bool:
        if file.startswith("<"):
            return False
        path = str(Path(file).resolve())
        return path.startswith(self._yours) or not path.startswith(_NOT_YOURS)


def named(path: str) -> Any:
    """The function that ``package.module.function`` or ``package.module:Class.method`` names."""
    place, colon, name = path.partition(":")
    parts = place.split(".")
    for size in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for part in [*parts[size:], *(name.split(".") if colon else [])]:
            if not hasattr(found, part):
                raise ValueError(f"There is no {part!r} in {found!r}, so {path!r} cannot be watched")
            found = getattr(found, part)
        if not callable(found):
            raise TypeError(f"{path!r} cannot be watched: it is not a function")
        return found
    raise ValueError(f"There is no module for {path!r}, so it cannot be watched")


# --- instances: the one that runs a call, and fresh ones to run it again ---


class Instances(msgspec.Struct, frozen=True, kw_only=True):
    """A server to make calls of, and how to have another one like it."""

    client: Client
    service: Service | None = None
    """The server itself, if it is in this process."""
    fresh: Callable[[], Client] | None = None
    """A client of a fresh instance, not yet open."""
    note: str = ""
    """Why there are no fresh instances."""


def is_here(target: object) -> bool:
    """Whether a target is a Server of this process, or makes one."""
    if isinstance(target, Connection):
        target = target.target
    return isinstance(target, Service) or (callable(target) and not isinstance(target, Link))


@asynccontextmanager
async def instances(target: object, script: Script) -> AsyncGenerator[Instances]:
    """A Server, a function that makes one, a command, a URL or a Link: its instances, with the first one open."""
    connection = target if isinstance(target, Connection) else Connection(target=target)
    target = connection.target
    if isinstance(target, Service):
        try:
            make, note = maker(target), ""
        except NoFreshInstance as fault:
            make, note = None, f"Not run on a fresh instance. {fault}"
        async with _here(target, make, script, note) as made:
            yield made
    elif callable(target) and is_here(target):
        make = maker(target)
        async with _here(make(), make, script, "") as made:
            yield made
    else:
        async with _elsewhere(connection, script) as made:
            yield made


@asynccontextmanager
async def _here(first: Service, make: Make | None, script: Script, note: str) -> AsyncGenerator[Instances]:
    with ExitStack() as rehearsals:

        def fresh() -> Client:
            assert make is not None
            other = make()
            # Whether instances have the same key is for rotation to find out, not for a look at the handler.
            other.share_seal(first)
            rehearsals.enter_context(other.rehearsal(STEPS))
            return _client(eras.connect(other, era=REVISION), script)

        rehearsals.enter_context(first.rehearsal(STEPS))
        async with _client(eras.connect(first, era=REVISION), script) as client:
            yield Instances(client=client, service=first, fresh=None if make is None else fresh, note=note)


@asynccontextmanager
async def _elsewhere(connection: Connection, script: Script) -> AsyncGenerator[Instances]:
    """A server behind a connection. One that is started here is given a key, so that it can be started again."""
    target = connection.target
    is_started_here = not isinstance(target, Link) and not str(target).startswith(("http://", "https://"))
    env = {**os.environ, KEYS: new_key(), **(connection.env or {})} if is_started_here else None

    def another() -> Client:
        link = eras.connect(target, headers=connection.headers, env=env, cwd=connection.cwd, era=REVISION)
        return _client(link, script)

    async with another() as client:
        if is_started_here:
            yield Instances(client=client, fresh=another)
        else:
            yield Instances(client=client, note="Not run on a fresh instance: this server was not started here.")


def _client(link: Link, script: Script) -> Client:
    return Client(link, **script.handlers())
