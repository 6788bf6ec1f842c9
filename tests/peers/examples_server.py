"""All examples of examples/asking in one process, each under its own path: `python examples_server.py FD`.

It serves on a socket that it inherits, so whoever started it need not wait until it is ready. The variable
ANTIPHON_KEYS gives all of them the same key. `python examples_server.py stdio NAME` is one of them on its standard
streams.
"""

import importlib.util
import itertools
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from antiphon.transports.serve import SETTINGS

EXAMPLES = Path(__file__).parents[2] / "examples" / "asking"
_loads = itertools.count()


class Sites:
    """An ASGI application made of others: a request goes to the one that is named in its path."""

    def __init__(self, applications: dict[str, Any]) -> None:
        self._applications = applications

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        name = scope["path"].split("/")[1]
        await self._applications[name](scope, receive, send)


class Handover:
    """Two instances: a call begins on the one, and every later leg of it meets the other."""

    def __init__(self, first: Any, then: Any) -> None:
        self._first = first
        self._then = then

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = await _body(receive)
        application = self._then if b'"requestState"' in body else self._first
        events: Iterator[Any] = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again() -> Any:
            return next(events, None) or await receive()

        await application(scope, again, send)


async def _body(receive: Any) -> bytes:
    body = bytearray()
    while True:
        event = await receive()
        body += event.get("body", b"")
        if not event.get("more_body", False):
            return bytes(body)


async def _live(receive: Any, send: Any) -> None:
    for moment in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{moment}.complete"})


def load(name: str) -> ModuleType:
    """An example as a module of its own, however often it was loaded before."""
    spec = importlib.util.spec_from_file_location(f"example_{name}_{next(_loads)}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sites() -> Sites:
    names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    servers = {name: load(name).app for name in names}
    servers["region_low_level"] = load("region").low_level
    mounted: dict[str, Any] = {name: server.asgi(path=f"/{name}/mcp") for name, server in servers.items()}
    release = load("rolling_upgrade").release
    old, new = (release(second).asgi(path="/upgraded/mcp") for second in ("Google", "Microsoft"))
    busy, idle = (load("load_shedding").app.asgi(path="/load_shedding/mcp") for _ in range(2))
    return Sites({**mounted, "upgraded": Handover(old, new), "load_shedding": Handover(busy, idle)})


def alone(site: str) -> Any:
    """One of them, as the process is that a call begins on."""
    if site == "upgraded":
        return load("rolling_upgrade").release("Google")
    return load("region").low_level if site == "region_low_level" else load(site).app


def main(descriptor: int) -> None:
    import uvicorn

    uvicorn.Server(uvicorn.Config(sites(), **SETTINGS)).run([socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        alone(sys.argv[2]).run()
    else:
        main(int(sys.argv[1]))
