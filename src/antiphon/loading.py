"""A Home: the file or the module that a Server is in, from the words that name it to the object."""

import importlib
import itertools
import os
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from traceback import StackSummary, TracebackException
from types import ModuleType
from typing import Final, TypeVar

import msgspec

from antiphon.errors import AntiphonError

T = TypeVar("T")

NOT_THE_AUTHORS: Final = (str(Path(__file__).parent) + os.sep, importlib.__file__, "<frozen importlib")
"""Where the frames are that a traceback leaves out: in this package and in the import system."""
_copies: Final = itertools.count(1)


class ServerMissing(AntiphonError):
    """The words do not lead to a Server."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log
        """The author's part of the traceback, if there is one."""


class ImportFailed(ServerMissing):
    """The module that the words lead to failed while it was imported."""


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """Where a Server is: in a file or a module, under a name or as the only one."""

    place: str
    """The file or the module, as it was written."""
    base: str
    """The folder from which it was named."""
    file: str = ""
    module: str = ""
    name: str = ""

    @property
    def folder(self) -> Path:
        """What must be importable for its own imports to work."""
        return _root(Path(self.file)) if self.file else Path(self.base)


def read(text: str, base: Path) -> Home:
    """Read ``notes.py``, ``notes.py:app``, ``package.module`` or ``package.module:app``."""
    place, colon, name = text.rpartition(":")
    if not colon or not _is_dotted(name):
        # A colon may belong to a path, as in C:\notes.py.
        place, name = text, ""
    file = base / place
    if file.is_file():
        return Home(place=place, base=str(base), file=str(file.resolve()), name=name)
    if place.endswith(".py"):
        raise ServerMissing(f"There is no file {_shown(file)}")
    if not _is_dotted(place):
        if place and file.is_dir():
            raise ServerMissing(f"{place} is a folder: name the file in it that holds the Server")
        raise ServerMissing(
            f"{text!r} is neither a file (notes.py) nor a module (package.module);"
            " the name of the Server follows after a colon (notes.py:app)"
        )
    return Home(place=place, base=str(base), module=place, name=name)


def find(home: Home, kind: type[T], *, anew: bool = False) -> T:
    """Import it and return its Server, which is of that kind.

    ``anew`` runs its own module again, and leaves those that it imports as they are.
    """
    for folder in (home.base, str(home.folder)):
        if folder in sys.path:
            sys.path.remove(folder)
        sys.path.insert(0, folder)
    module = _imported(home, anew=anew)
    return _named(module, home, kind) if home.name else _only(module, home, kind)


def find_anew(text: str, base: Path, kind: type[T]) -> T:
    """The Server that the words lead to, with nothing done to it yet: its module is run again each time."""
    return find(read(text, base), kind, anew=True)


def own_traceback(fault: BaseException) -> str:
    """The traceback of the module's author."""
    report = TracebackException.from_exception(fault)
    _keep_own_frames(report)
    return "".join(report.format() if report.stack else report.format_exception_only())


def _keep_own_frames(report: TracebackException) -> None:
    own = [frame for frame in report.stack if not frame.filename.startswith(NOT_THE_AUTHORS)]
    report.stack = StackSummary.from_list(own)
    for part in report.exceptions or ():
        _keep_own_frames(part)
    for link in ("__cause__", "__context__"):
        earlier: TracebackException | None = getattr(report, link)
        if earlier is not None:
            _keep_own_frames(earlier)
            if not earlier.stack:
                setattr(report, link, None)


# --- importing ----------------------------------------------------------------------------------------------------


def _imported(home: Home, *, anew: bool) -> ModuleType:
    try:
        return _import(home, anew=anew)
    except ModuleNotFoundError as fault:
        if fault.name and f"{home.module}.".startswith(f"{fault.name}."):
            raise ServerMissing(_no_module(home, fault.name)) from None
        raise _failed(home, fault) from None
    except SystemExit as fault:
        raise ImportFailed(
            f"{home.place} ended the process while it was imported (exit code {fault.code}):"
            ' put what runs under if __name__ == "__main__":'
        ) from None
    except Exception as fault:  # noqa: BLE001 -- whatever it is, its author wants to see it
        raise _failed(home, fault) from None


def _failed(home: Home, fault: Exception) -> ImportFailed:
    told = f"{home.place} failed while it was imported: {fault!r}"
    return ImportFailed(told, own_traceback(fault))


def _no_module(home: Home, missing: str) -> str:
    there = f"There is no module {missing!r} in {home.base}, nor is one installed"
    parent, _, name = home.module.rpartition(".")
    if parent and missing == home.module:
        return f"{there}; a Server {name!r} in the module {parent!r} is written {parent}:{name}"
    return there


def _import(home: Home, *, anew: bool) -> ModuleType:
    name = home.module
    if home.file:
        *packages, stem = Path(home.file).relative_to(home.folder).with_suffix("").parts
        if not packages:
            return _run(Path(home.file), anew=anew)
        name = ".".join(packages if stem == "__init__" else [*packages, stem])
    before = sys.modules.pop(name, None) if anew else None
    try:
        return importlib.import_module(name)
    except BaseException:
        if before is not None:
            sys.modules[name] = before
        raise


def _run(file: Path, *, anew: bool) -> ModuleType:
    name = file.stem
    loaded = sys.modules.get(name)
    if loaded is not None and not anew and getattr(loaded, "__file__", None) == str(file):
        return loaded
    if loaded is not None or anew:
        # A name of its own: neither a file called logging.py nor another copy of this one is taken for it.
        name = f"{name}_copy_{next(_copies)}"
    loader = SourceFileLoader(name, str(file))
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _root(file: Path) -> Path:
    """The folder from which a file is imported: its own, or the one that holds its package."""
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


# --- looking ------------------------------------------------------------------------------------------------------


def _named(module: ModuleType, home: Home, kind: type[T]) -> T:
    found: object = module
    for part in home.name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ServerMissing(f"{home.place} has no {home.name!r}{_candidates(module, kind)}") from None
    if not isinstance(found, kind):
        other = type(found).__name__
        raise ServerMissing(
            f"{home.name!r} in {home.place} is no antiphon.Server: its type is {other}{_candidates(module, kind)}"
        )
    return found


def _only(module: ModuleType, home: Home, kind: type[T]) -> T:
    servers = _servers(module, kind)
    if not servers:
        raise ServerMissing(f"{home.place} has no Server: looked for an antiphon.Server among its top-level names")
    if len({id(server) for server in servers.values()}) > 1:
        names, first = ", ".join(servers), min(servers)
        raise ServerMissing(f"{home.place} has several Servers ({names}): choose one, as in {home.place}:{first}")
    return next(iter(servers.values()))


def _servers(module: ModuleType, kind: type[T]) -> dict[str, T]:
    # By type(): isinstance() wakes lazy proxies, and some of them raise.
    return {name: value for name, value in sorted(vars(module).items()) if issubclass(type(value), kind)}


def _candidates(module: ModuleType, kind: type[T]) -> str:
    names = ", ".join(_servers(module, kind))
    return f"; its Servers: {names}" if names else ""


# --- words --------------------------------------------------------------------------------------------------------


def _is_dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _shown(file: Path) -> str:
    plain = Path(os.path.normpath(file))
    return str(plain.relative_to(Path.cwd())) if plain.is_relative_to(Path.cwd()) else str(plain)
