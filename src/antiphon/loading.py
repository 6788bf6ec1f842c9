"""Load a Server that is named on the command line, in a suite or in a setting: ``notes.py``, ``package.module:app``."""

import importlib
import itertools
import os
import sys
from contextvars import ContextVar
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final, TypeVar

import msgspec

from antiphon.errors import AntiphonError
from antiphon.tracebacks import own_traceback

T = TypeVar("T")

GUARD: Final = 'put what runs under if __name__ == "__main__":'
_copies: Final = itertools.count(1)
_imported: ContextVar[str] = ContextVar("imported", default="")
"""The place that is imported at the moment."""


class ServerMissing(AntiphonError):
    """The name does not lead to a Server."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log
        """The traceback in the author's files, if there is one."""


class ImportFailed(ServerMissing):
    """The module failed while it was imported."""


class ServerName(msgspec.Struct, frozen=True, kw_only=True):
    """The name of a Server, parsed: a file or a module, and the variable in it.

    Without a variable, it is the module's only Server, or the one called ``app``.
    """

    place: str
    """The file or the module, as it was written."""
    base: str
    """The folder that relative names start from."""
    file: str = ""
    module: str = ""
    variable: str = ""

    @property
    def folder(self) -> Path:
        """The folder that the module is imported from: above its outermost package."""
        if not self.file:
            return Path(self.base)
        folder = Path(self.file).parent
        while (folder / "__init__.py").is_file():
            folder = folder.parent
        return folder


def parse(text: str, base: Path) -> ServerName:
    """Parse ``notes.py``, ``notes.py:app``, ``package.module`` or ``package.module:app``, relative to ``base``.

    What follows the colon is a Server, or a function that makes one. Raise ServerMissing if it is none of these, or
    the file does not exist.
    """
    place, colon, variable = text.rpartition(":")
    if not colon or not _is_dotted(variable):
        # The colon may be part of a path, as in C:\notes.py.
        place, variable = text, ""
    file = base / place
    if file.is_file():
        return ServerName(place=place, base=str(base), file=str(file.resolve()), variable=variable)
    if place.endswith(".py"):
        raise ServerMissing(f"There is no file {_shown(file)}")
    if _is_dotted(place):
        return ServerName(place=place, base=str(base), module=place, variable=variable)
    if place and file.is_dir():
        raise ServerMissing(f"{place} is a folder: name the file in it that holds the Server")
    raise ServerMissing(
        f"{text!r} is neither a file (notes.py) nor a module (package.module);"
        " the name of the Server follows after a colon (notes.py:app)"
    )


def load(name: ServerName, kind: type[T], *, fresh: bool = False) -> T:
    """Import the module and return its Server, which must be of this kind. Raise ServerMissing or ImportFailed.

    ``fresh`` runs the module itself again; the modules that it imports stay loaded.
    """
    for folder in (name.base, str(name.folder)):
        if folder in sys.path:
            sys.path.remove(folder)
        sys.path.insert(0, folder)
    module = _import(name, fresh=fresh)
    return _named(module, name, kind) if name.variable else _only(module, name, kind)


def load_fresh(text: str, base: Path, kind: type[T]) -> T:
    """Return a new copy of the Server each time: its module is run again."""
    return load(parse(text, base), kind, fresh=True)


def refuse_to_serve() -> None:
    """Raise RuntimeError while a module is imported to find its Server: serving there would never end the import."""
    if place := _imported.get():
        raise RuntimeError(f"{place} serves while it is imported: {GUARD}")


# --- importing ----------------------------------------------------------------------------------------------------


def _import(name: ServerName, *, fresh: bool) -> ModuleType:
    before = _imported.set(name.place)
    try:
        if not name.file:
            return _import_module(name.module, fresh=fresh)
        *packages, stem = Path(name.file).relative_to(name.folder).with_suffix("").parts
        if packages:
            return _import_module(".".join(packages if stem == "__init__" else [*packages, stem]), fresh=fresh)
        return _run_file(Path(name.file), fresh=fresh)
    except SystemExit as fault:
        raise ImportFailed(
            f"{name.place} ended the process while it was imported (exit code {fault.code}): {GUARD}"
        ) from None
    except Exception as fault:  # noqa: BLE001 -- any failure is the author's to see
        if isinstance(fault, ModuleNotFoundError) and fault.name and f"{name.module}.".startswith(f"{fault.name}."):
            raise ServerMissing(_no_module(name, fault.name)) from None
        if isinstance(fault, RuntimeError) and "running event loop" in str(fault):
            fault.add_note(f"In {name.place}, {GUARD}")
        raise ImportFailed(f"{name.place} failed while it was imported: {fault!r}", own_traceback(fault)) from None
    finally:
        _imported.reset(before)


def _no_module(name: ServerName, missing: str) -> str:
    problem = f"There is no module {missing!r} in {name.base}, nor is one installed"
    parent, _, variable = name.module.rpartition(".")
    if parent and missing == name.module:
        return f"{problem}; a Server {variable!r} in the module {parent!r} is written {parent}:{variable}"
    return problem


def _import_module(name: str, *, fresh: bool) -> ModuleType:
    before = sys.modules.pop(name, None) if fresh else None
    try:
        return importlib.import_module(name)
    except BaseException:
        if before is not None:
            sys.modules[name] = before
        raise


def _run_file(file: Path, *, fresh: bool) -> ModuleType:
    name = file.stem
    loaded = sys.modules.get(name)
    if loaded is not None and not fresh and getattr(loaded, "__file__", None) == str(file):
        return loaded
    if loaded is not None or fresh:
        # A file called logging.py must not replace the module logging, nor one copy of this file another.
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


# --- finding the Server in the module -----------------------------------------------------------------------------


def _named(module: ModuleType, name: ServerName, kind: type[T]) -> T:
    names = ", ".join(_servers(module, kind))
    candidates = f"; its Servers: {names}" if names else ""
    found: object = module
    for part in name.variable.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ServerMissing(f"{name.place} has no {name.variable!r}{candidates}") from None
    if isinstance(found, FunctionType):
        try:
            found = found()
        except Exception as fault:  # noqa: BLE001 -- any failure is the author's to see
            raise ImportFailed(f"{name.variable}() in {name.place} failed: {fault!r}", own_traceback(fault)) from None
    if not isinstance(found, kind):
        raise ServerMissing(
            f"{name.variable!r} in {name.place} is not an antiphon.Server: its type is {type(found).__name__}"
            + candidates
        )
    return found


def _only(module: ModuleType, name: ServerName, kind: type[T]) -> T:
    servers = _servers(module, kind)
    if not servers:
        raise ServerMissing(f"{name.place} has no Server: looked for an antiphon.Server among its top-level names")
    if len({id(server) for server in servers.values()}) > 1:
        if "app" in servers:
            return servers["app"]
        names, first = ", ".join(servers), min(servers)
        raise ServerMissing(f"{name.place} has several Servers ({names}): choose one, as in {name.place}:{first}")
    return next(iter(servers.values()))


def _servers(module: ModuleType, kind: type[T]) -> dict[str, T]:
    # By type(): isinstance() evaluates lazy proxies, and some of them raise.
    return {name: value for name, value in sorted(vars(module).items()) if issubclass(type(value), kind)}


def _is_dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _shown(file: Path) -> str:
    plain = Path(os.path.normpath(file))
    return str(plain.relative_to(Path.cwd())) if plain.is_relative_to(Path.cwd()) else str(plain)
