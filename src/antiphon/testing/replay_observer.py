"""The observer: sees a handler read the clock, draw random numbers, ask, and act on the world.

It looks at calls as a profiler does, and at what the interpreter reports to audit hooks: files that are written,
connections, processes. Nothing is patched. What a step does is not seen, since a step is where such things belong.
"""

import asyncio
import datetime as dt
import functools
import importlib
import inspect
import logging
import os
import random
import secrets
import sys
import sysconfig
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Literal, Self, TypeAlias

import msgspec

import antiphon
from antiphon.server.context import Context, SyncContext

Kind: TypeAlias = Literal["clock", "random", "effect", "ask", "step"]
Effect: TypeAlias = Callable[..., Any] | str

_OURS: Final = str(Path(antiphon.__file__).resolve().parent) + os.sep
_NOT_YOURS: Final = (
    _OURS,
    *{
        str(Path(sysconfig.get_path(name)).resolve()) + os.sep
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    },
)
_SITE_PACKAGES: Final = f"{os.sep}site-packages{os.sep}"
"""An environment may hold the packages of another one as well."""
_seen: ContextVar["tuple[Observer, list[Sighting]] | None"] = ContextVar("seen", default=None)


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a handler did outside of a step, and where."""

    kind: Kind
    what: str
    """``time.time()``; of a question, its message; of a step, its name."""
    file: str
    line: int
    called_at: tuple[tuple[str, int], ...] = ()
    """Of an effect: the lines that led to it, up to the handler's."""

    @property
    def name(self) -> str:
        """What it is without its arguments, which may differ from round to round."""
        return self.what.partition("(")[0]

    @property
    def place(self) -> str:
        return place_of(self.file, self.line)


def place_of(file: str, line: int) -> str:
    """``file:line``, from the folder that we are in."""
    here, path = Path.cwd(), Path(file)
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{line}"


# --- what is looked for -------------------------------------------------------------------------------------------

_CALLS: Final[dict[object, tuple[Kind, str]]] = {
    time.time: ("clock", "time.time()"),
    time.time_ns: ("clock", "time.time_ns()"),
    dt.datetime.now: ("clock", "datetime.now()"),
    dt.datetime.utcnow: ("clock", "datetime.utcnow()"),  # pyright: ignore[reportDeprecated]  # handlers still call it
    dt.datetime.today: ("clock", "datetime.today()"),
    dt.date.today: ("clock", "date.today()"),
    os.urandom: ("random", "os.urandom()"),
    random.random: ("random", "random.random()"),
    random.getrandbits: ("random", "random.getrandbits()"),
    **{
        function.__code__: ("random", f"{module.__name__}.{name}()")
        for module, names in (
            (uuid, ("uuid1", "uuid4", "uuid6", "uuid7")),
            (secrets, ("token_bytes", "token_hex", "token_urlsafe", "randbelow")),
        )
        for name in names
        if (function := getattr(module, name, None)) is not None
    },
}
"""Functions in C, and the code of those in Python."""
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
_AUDITED: Final[dict[str, slice]] = {
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.system"), slice(1)),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), slice(2)),
    **dict.fromkeys(("socket.connect", "socket.sendto", "socket.sendmsg", "subprocess.Popen"), slice(1, 2)),
    **dict.fromkeys(("os.exec", "os.posix_spawn"), slice(1, 2)),
    "os.fork": slice(0),
    "open": slice(2),
}
"""The audit events that are effects, and which of their arguments are shown."""
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_EXECUTES: Final = frozenset({"execute", "executemany", "executescript"})
_HARMLESS: Final = ("<frozen importlib", str(Path(logging.__file__).parent) + os.sep)
"""Code whose effects are no one's concern: an import happens once, and a log may tell of each round."""
_LOOPS: Final = (asyncio.events.__file__, asyncio.runners.__file__)
"""What runs a task: the frames below it are not the task's."""


class Lookout:
    """The one profile function and the one audit hook of this process. The hook stays: it cannot be removed."""

    def __init__(self) -> None:
        self._observers = 0
        self._is_hooked = False

    def raise_(self) -> None:
        self._observers += 1
        if not self._is_hooked:
            self._is_hooked = True
            sys.addaudithook(self.audited)
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
        current = _seen.get()
        if current is not None:
            observer, seen = current
            sighting = observer.look(frame, event, arg)
            if sighting is not None:
                seen.append(sighting)

    @staticmethod
    def audited(event: str, args: tuple[Any, ...]) -> None:
        shown = _AUDITED.get(event)
        current = None if shown is None else _seen.get()
        if shown is None or current is None:
            return
        if event == "open" and (not args[2] & _WRITING or args[0] == os.devnull):
            return
        observer, seen = current
        what = f"{event}({', '.join(_written(arg) for arg in args[shown] if arg is not None)})"
        hook = inspect.currentframe()
        sighting = observer.effect(what, None if hook is None else hook.f_back)
        if sighting is not None:
            seen.append(sighting)


_lookout: Final = Lookout()


def _written(arg: object) -> str:
    return repr(os.fspath(arg) if isinstance(arg, os.PathLike) else arg)


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
        self._effects: dict[object, str] = {}
        """What is watched: functions in C, and the code of those in Python."""
        self._entered: dict[int, FrameType] = {}
        self._changes: dict[int, int] = {}
        """The rows that a connection to a database had changed before the call that a frame is making."""
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
        self._effects[getattr(inner, "__code__", function)] = f"{label}()"

    # --- looking --------------------------------------------------------------------------------------------------

    def look(self, frame: FrameType, event: str, arg: Any) -> Sighting | None:
        """What a call is, if it is one to be seen."""
        if event.startswith("c_") and getattr(arg, "__name__", "") in _EXECUTES:
            return self._executed(frame, event, arg)
        if event not in {"call", "c_call"}:
            return None
        is_python = event == "call"
        found = self._kind_of(frame.f_code, frame) if is_python else self._kind_of(arg, None)
        caller = frame.f_back if is_python else frame
        if found is None:
            return None
        kind, what = found
        if caller is not None and self._is_yours(caller.f_code.co_filename):
            return Sighting(kind=kind, what=what, file=caller.f_code.co_filename, line=caller.f_lineno)
        if kind == "effect" and is_python:
            # Called by a library, or as a task of its own: then where it is written is all there is to say.
            return Sighting(kind=kind, what=what, file=frame.f_code.co_filename, line=frame.f_code.co_firstlineno)
        return None

    def effect(self, what: str, frame: FrameType | None) -> Sighting | None:
        """An effect of this frame, with the lines of yours that led to it; None if it is not the handler's doing."""
        places: list[tuple[str, int]] = []
        while frame is not None and (file := frame.f_code.co_filename) not in _LOOPS:
            if file.startswith(_HARMLESS):
                return None
            if self._is_yours(file):
                places.append((file, frame.f_lineno))
            elif _resolved(file).startswith(_OURS):
                # Below are the frames that run the handler. If it has none above, the library acts on its own behalf.
                break
            frame = frame.f_back
        else:
            places = places or [("", 0)]  # a task or a thread that a library has started
        if not places:
            return None
        (file, line), *rest = places
        return Sighting(kind="effect", what=what, file=file, line=line, called_at=tuple(rest))

    def _executed(self, frame: FrameType, event: str, method: Any) -> Sighting | None:
        """See whether a statement in a database of sqlite3 has changed anything: to read is no effect."""
        sqlite3 = sys.modules.get("sqlite3")
        holder: Any = getattr(method, "__self__", None)
        if sqlite3 is None or not isinstance(holder, sqlite3.Connection | sqlite3.Cursor):
            return None
        try:
            changes: int = getattr(holder, "connection", holder).total_changes
        except sqlite3.ProgrammingError:  # it is closed
            return None
        if event == "c_call":
            self._changes[id(frame)] = changes
        elif changes > self._changes.pop(id(frame), changes):
            return self.effect(f"sqlite3.{type(holder).__name__}.{method.__name__}()", frame)
        return None

    def _kind_of(self, called: object, frame: FrameType | None) -> tuple[Kind, str] | None:
        """Return what a call is, of a function in C, or of this code in a frame; None if it is none to be seen."""
        try:
            watched, known = self._effects.get(called), _CALLS.get(called)
        except TypeError:  # a callable that cannot be hashed
            return None
        if watched is not None:
            return ("effect", watched) if frame is None or self._is_new(frame) else None
        if frame is not None and called in _DRAWS:
            source = frame.f_locals.get("self")
            shared = source is _SHARED or isinstance(source, random.SystemRandom)
            return ("random", _DRAWS[frame.f_code]) if shared else None
        if frame is not None and called in _ASKS and self._is_new(frame):
            return "ask", str(frame.f_locals.get("message", ""))
        return known

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
        path = _resolved(file)
        is_installed = path.startswith(_NOT_YOURS) or _SITE_PACKAGES in path
        return path.startswith(self._yours) or not is_installed


@functools.lru_cache(maxsize=1000)
def _resolved(file: str) -> str:
    return str(Path(file).resolve())


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
