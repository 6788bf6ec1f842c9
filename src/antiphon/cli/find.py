"""Finding a Server: from the TARGET on the command line to the object in a file or a module."""

import importlib
import os
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from traceback import StackSummary, TracebackException
from types import ModuleType
from typing import IO, Any, Final

import click
import msgspec

from antiphon.app import Server

NOT_THE_AUTHORS: Final = (str(Path(__file__).parent.parent) + os.sep, importlib.__file__, "<frozen importlib")
"""Where the frames are that a traceback leaves out: in this package and in the import system."""


class NotFound(click.UsageError):
    """The TARGET does not lead to a Server."""


class TargetFailed(click.ClickException):
    """The TARGET raised while it was imported."""

    def __init__(self, fault: BaseException) -> None:
        super().__init__(own_traceback(fault))

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file=file, err=True, nl=False)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a Server is: in a file or a module, under a name or as the only one."""

    file: str = ""
    module: str = ""
    name: str = ""

    @property
    def place(self) -> str:
        return _shown(Path(self.file)) if self.file else self.module

    @property
    def folder(self) -> Path:
        """What must be importable for the target's own imports to work."""
        return _root(Path(self.file)) if self.file else Path.cwd()


def read(text: str) -> Target:
    """Read ``notes.py``, ``notes.py:app``, ``package.module`` or ``package.module:app``."""
    place, colon, name = text.rpartition(":")
    if not colon or not _is_dotted(name):
        # A colon may belong to a path, as in C:\notes.py.
        place, name = text, ""
    file = Path(place)
    if file.is_file():
        return Target(file=str(file.resolve()), name=name)
    if place.endswith(".py"):
        raise NotFound(f"There is no file {place}")
    if not _is_dotted(place):
        if place and file.is_dir():
            raise NotFound(f"{place} is a folder: name the file in it that holds the Server")
        raise NotFound(
            f"{text!r} is neither a file (notes.py) nor a module (package.module);"
            " the name of the Server follows after a colon (notes.py:app)"
        )
    return Target(module=place, name=name)


def find(target: Target) -> Server:
    """Import the target and return its Server."""
    for folder in (str(Path.cwd()), str(target.folder)):
        if folder in sys.path:
            sys.path.remove(folder)
        sys.path.insert(0, folder)
    module = _imported(target)
    return _named(module, target) if target.name else _only(module, target)


def own_traceback(fault: BaseException) -> str:
    """The traceback of the target's author."""
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


def _imported(target: Target) -> ModuleType:
    try:
        return _import_file(Path(target.file)) if target.file else importlib.import_module(target.module)
    except ModuleNotFoundError as fault:
        if fault.name and f"{target.module}.".startswith(f"{fault.name}."):
            raise NotFound(_no_module(target.module, fault.name)) from None
        raise TargetFailed(fault) from None
    except SystemExit as fault:
        raise click.ClickException(
            f"{target.place} ended the process while it was imported (exit code {fault.code}):"
            ' put what runs under if __name__ == "__main__":'
        ) from None
    except Exception as fault:  # noqa: BLE001 -- whatever it is, its author wants to see it
        raise TargetFailed(fault) from None


def _import_file(file: Path) -> ModuleType:
    *packages, name = file.relative_to(_root(file)).with_suffix("").parts
    if packages:
        return importlib.import_module(".".join(packages if name == "__init__" else [*packages, name]))
    loaded = sys.modules.get(name)
    if loaded is not None:
        if getattr(loaded, "__file__", None) == str(file):
            return loaded
        name = f"served_{name}"  # a file called logging.py must not take the place of that module
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
    """The folder from which the file is imported: its own, or the one that holds its package."""
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _no_module(module: str, missing: str) -> str:
    there = f"There is no module {missing!r} in {Path.cwd()}, nor is one installed"
    parent, _, name = module.rpartition(".")
    if parent and missing == module:
        return f"{there}; a Server {name!r} in the module {parent!r} is written {parent}:{name}"
    return there


# --- looking ------------------------------------------------------------------------------------------------------


def _named(module: ModuleType, target: Target) -> Server:
    found: object = module
    for part in target.name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise NotFound(f"{target.place} has no {target.name!r}{_candidates(module)}") from None
    if not isinstance(found, Server):
        kind = type(found).__name__
        raise NotFound(
            f"{target.name!r} in {target.place} is no antiphon.Server: its type is {kind}{_candidates(module)}"
        )
    return found


def _only(module: ModuleType, target: Target) -> Server:
    servers = _servers(module)
    if not servers:
        raise NotFound(f"{target.place} has no Server: looked for an antiphon.Server among its top-level names")
    if len({id(server) for server in servers.values()}) > 1:
        names = ", ".join(servers)
        raise NotFound(f"{target.place} has several Servers ({names}): choose one, as in {target.place}:{min(servers)}")
    return next(iter(servers.values()))


def _servers(module: ModuleType) -> dict[str, Server]:
    # By type(): isinstance() wakes lazy proxies, and some of them raise.
    return {name: value for name, value in sorted(vars(module).items()) if issubclass(type(value), Server)}


def _candidates(module: ModuleType) -> str:
    names = ", ".join(_servers(module))
    return f"; its Servers: {names}" if names else ""


# --- words --------------------------------------------------------------------------------------------------------


def _is_dotted(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _shown(file: Path) -> str:
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)
