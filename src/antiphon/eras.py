"""The only place that knows which protocol era serves whom."""

import asyncio
import sys
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.transports.link import Link

if TYPE_CHECKING:
    from antiphon.server.service import Service
    from antiphon.transports.asgi import Endpoint


def asgi(service: "Service", **options: Any) -> "Endpoint":
    from antiphon.transports.asgi import Endpoint  # a client needs none of it

    return Endpoint(service, **options)


def stdio(service: "Service") -> None:
    """Serve standard streams until they end."""
    from antiphon.transports import stdio  # threads and signals that HTTP does not need

    asyncio.run(stdio.serve(service))


def connect(
    target: object,
    *,
    headers: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | PathLike[str] | None = None,
    era: str = "auto",
) -> Link:
    """The link to a target; nothing is opened yet."""
    if era not in {"auto", "2026-07-28"}:
        raise ValueError(f"era must be 'auto' or '2026-07-28', got {era!r}")
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        from antiphon.transports.http import HttpLink

        return HttpLink(target, headers=headers)
    command = _command(target)
    if command is not None:
        from antiphon.transports.child import ChildLink

        return ChildLink(command, env=env, cwd=cwd)
    if isinstance(target, Link):
        return target
    if hasattr(target, "answer"):
        from antiphon.server.service import Service
        from antiphon.transports.memory import Memory

        if isinstance(target, Service):
            return Memory(target)
    raise TypeError(f"Client() takes a URL, a command, a server's file, a Server or a Link, got {target!r}")


def _command(target: object) -> list[str] | None:
    if isinstance(target, list | tuple) and target:
        return [str(word) for word in target]
    if isinstance(target, str | PathLike):
        path = Path(target)
        if path.suffix == ".py":
            if not path.is_file():
                raise ValueError(f"There is no file {str(path)!r}")
            return [sys.executable, str(path)]
        raise ValueError(f"{str(target)!r} is neither a URL nor a Python file: give a command as a list")
    return None
