"""An app: a Server of Antiphon in a file or a module, imported anew for every server that a suite starts."""

import importlib
import itertools
import os
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from traceback import TracebackException
from types import ModuleType
from typing import Final

from antiphon.errors import AntiphonError
from antiphon.server.service import Service

_copies: Final = itertools.count(1)
_OURS: Final = str(Path(__file__).parent.parent.parent)


class AppMissing(AntiphonError):
    """There is no such app, or it fails while it is imported; ``log`` is its traceback."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def find_app(text: str, folder: Path) -> Service:
    """The Server that ``file.py``, ``file.py:name`` or ``package.module:name`` leads to, with nothing done to it yet.

    Its own module is run again each time; modules that it imports are not.
    """
    place, name = _split(text)
    module = _imported(place, folder)
    return _named(module, place, name) if name else _only(module, place)


def _split(text: str) -> tuple[str, str]:
    place, colon, name = text.rpartition(":")
    if colon and all(part.isidentifier() for part in name.split(".")):
        return place, name
    return text, ""


def _imported(place: str, folder: Path) -> ModuleType:
    file = Path(os.path.normpath(folder / place))
    if place.endswith(".py") and not file.is_file():
        raise AppMissing(f"There is no file {file}")
    for entry in (str(folder), str(_root(file))) if file.is_file() else (str(folder),):
        if entry not in sys.path:
            sys.path.insert(0, entry)
    try:
        return _run_file(file.resolve()) if file.is_file() else _run_module(place)
    except ModuleNotFoundError as fault:
        if fault.name and f"{place}.".startswith(f"{fault.name}."):
            raise AppMissing(f"There is no module {fault.name!r} in {folder}, nor is one installed") from None
        raise AppMissing(f"{place} failed while it was imported: {fault}", _traceback(fault)) from None
    except SystemExit as fault:
        raise AppMissing(
            f"{place} ended the process while it was imported (exit code {fault.code}):"
            ' put what runs under if __name__ == "__main__":'
        ) from None
    except Exception as fault:  # noqa: BLE001 -- whatever it is, its author wants to see it
        raise AppMissing(f"{place} failed while it was imported: {fault!r}", _traceback(fault)) from None


def _run_module(name: str) -> ModuleType:
    before = sys.modules.pop(name, None)
    try:
        return importlib.import_module(name)
    except BaseException:
        if before is not None:
            sys.modules[name] = before
        raise


def _run_file(file: Path) -> ModuleType:
    *packages, name = file.relative_to(_root(file)).with_suffix("").parts
    if packages:
        return _run_module(".".join([*packages, *([] if name == "__init__" else [name])]))
    # A name of its own: neither a file called logging.py nor another copy of this one is taken for it.
    name = f"{name}_under_test_{next(_copies)}"
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
    folder = file.resolve().parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _traceback(fault: BaseException) -> str:
    report = TracebackException.from_exception(fault)
    own = [
        frame
        for frame in report.stack
        if not frame.filename.startswith((_OURS, "<frozen importlib", importlib.__file__))
    ]
    report.stack[:] = own
    return "".join(report.format())


# --- looking ------------------------------------------------------------------------------------------------------


def _named(module: ModuleType, place: str, name: str) -> Service:
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, Service):
        others = ", ".join(_services(module)) or "none"
        kind = "is not there" if found is None else f"is of type {type(found).__name__}"
        raise AppMissing(f"{place} has no Server called {name!r}, which {kind}; its Servers: {others}")
    return found


def _only(module: ModuleType, place: str) -> Service:
    found = _services(module)
    if not found:
        raise AppMissing(f"{place} has no antiphon.Server among its top-level names")
    if len({id(service) for service in found.values()}) > 1:
        raise AppMissing(f"{place} has several Servers ({', '.join(found)}): name one, as in {place}:{min(found)}")
    return next(iter(found.values()))


def _services(module: ModuleType) -> dict[str, Service]:
    # By type(): isinstance() wakes lazy proxies, and some of them raise.
    return {name: value for name, value in sorted(vars(module).items()) if issubclass(type(value), Service)}
