"""The only place that knows which protocol era serves whom."""

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from antiphon.transports.link import Link

if TYPE_CHECKING:
    from antiphon.server.service import Service
    from antiphon.transports.asgi import Endpoint

Legacy: TypeAlias = Literal["sessions", "stateless", "reject"]
"""How clients of earlier revisions are served over HTTP."""


def asgi(
    service: "Service",
    *,
    legacy: Legacy = "sessions",
    session_ttl: float = 1800,
    max_sessions: int = 100_000,
    event_buffer: int = 1024,
    **options: Any,
) -> "Endpoint":
    from antiphon.transports.asgi import Endpoint  # a client needs none of it

    if legacy not in {"sessions", "stateless", "reject"}:
        raise ValueError(f"legacy must be 'sessions', 'stateless' or 'reject', got {legacy!r}")
    older: Any = None
    if legacy != "reject":
        # Without the package, there is no older era.
        with contextlib.suppress(ModuleNotFoundError):
            from antiphon.legacy.http import HttpDesk

            older = HttpDesk(
                service, mode=legacy, session_ttl=session_ttl, max_sessions=max_sessions, event_buffer=event_buffer
            )
    return Endpoint(service, older=older, **options)


def stdio(service: "Service") -> None:
    """Serve standard streams until they end."""
    from antiphon.transports import stdio  # threads and signals that HTTP does not need

    older: Any = None
    with contextlib.suppress(ModuleNotFoundError):
        from antiphon.legacy.pipe import PipeDesk

        older = PipeDesk
    asyncio.run(stdio.serve(service, older=older))


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
