"""Another instance: the same server once more, with nothing in its memory, as a second process would have it."""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import ModuleType
from typing import TypeAlias

from antiphon.errors import AntiphonError
from antiphon.rounds.seal import generate_key
from antiphon.server.service import Service

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
    handlers = [
        *(entry._handler for entry in server._tools.values()),
        *(entry._handler for entry in server._prompts.values()),
        *(entry._handler for entry in server._resources.values()),
    ]
    writers = {getattr(handler.function, "__module__", "") for handler in handlers}
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
