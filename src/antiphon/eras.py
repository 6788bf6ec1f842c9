"""Choose the protocol era: how a server is served to both, and by which one a client reaches a server."""

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from antiphon.transports.link import Authorizer, Link
from antiphon.wire.revisions import REVISION

if TYPE_CHECKING:
    from types import ModuleType

    from antiphon.http.exchange import Application
    from antiphon.legacy.client.link import LegacyLink
    from antiphon.oauth.identity import Identity
    from antiphon.server.dispatch import Principal, Service
    from antiphon.transports.asgi import Endpoint
    from antiphon.transports.http_client import Response
    from antiphon.transports.stdio_client import Process

Legacy: TypeAlias = Literal["sessions", "stateless", "reject"]
"""How clients of earlier revisions are served over HTTP."""

OLDER = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PROBING = 10.0
"""Seconds that a server in a process of its own has to say which era it is of. Silence means an old one: this is also
the time that a modern one has to start."""
log = logging.getLogger("antiphon")
_found: dict[object, Literal["modern", "legacy"]] = {}
"""The eras of the servers that were found, for as long as this process lives."""


def asgi(
    service: "Service",
    *,
    legacy: Legacy = "sessions",
    session_ttl: float = 1800,
    max_sessions: int = 10_000,
    event_buffer: int = 1024,
    principal: "Principal | None" = None,
    fallback: "Application | None" = None,
    health: bool = False,
    **options: Any,
) -> "Endpoint":
    """The ASGI application of a service; further options are those of Endpoint."""
    from antiphon.transports.asgi import Endpoint  # a client needs none of it

    endpoint = Endpoint
    if service.elsewhere is not None and service.elsewhere.is_local:
        from antiphon.transports.local_endpoint import LocalEndpoint

        endpoint = LocalEndpoint
    if legacy not in {"sessions", "stateless", "reject"}:
        raise ValueError(f"legacy must be 'sessions', 'stateless' or 'reject', got {legacy!r}")
    fallback = fallback or service.fallback
    if health:
        from antiphon.transports.health import HealthPages

        fallback = HealthPages(service, fallback)
    options |= {"principal": principal or service.principal, "fallback": fallback}
    if legacy == "reject" or not _has_legacy():
        return endpoint(service, **options)
    from antiphon.legacy.server.http import LegacyHttp

    dialect = LegacyHttp(
        service, mode=legacy, session_ttl=session_ttl, max_sessions=max_sessions, event_buffer=event_buffer
    )
    return endpoint(service, dialect=dialect, **options)


def stdio(service: "Service") -> None:
    """Serve standard streams until they end."""
    if service.auth is not None:
        log.warning("%s is protected over HTTP only: on standard streams, its caller started it", service.info.name)
    from antiphon.transports import stdio_server  # threads and signals that HTTP does not need
    from antiphon.transports.shutdown import cancel_other_tasks

    dialect: stdio_server.MakeDialect | None = None
    if _has_legacy():
        from antiphon.legacy.server.stdio import LegacyPipe

        dialect = LegacyPipe

    async def serve() -> None:
        await stdio_server.serve(service, dialect=dialect)
        await cancel_other_tasks()

    asyncio.run(serve())


def connect(
    target: object,
    *,
    headers: Mapping[str, str] | None = None,
    auth: Authorizer | None = None,
    identity: "Identity | None" = None,
    env: Mapping[str, str] | None = None,
    cwd: str | PathLike[str] | None = None,
    era: str = "auto",
    versions: Sequence[str] = (),
    patience: float = PROBING,
    on_stray_line: Callable[[str], None] | None = None,
    watched: "WatchedKinds | None" = None,
) -> Link:
    """The link to a target; nothing is opened yet.

    ``versions`` are those that the server is known to speak. A server in a process of its own is asked for them first,
    where nothing is known, and has ``patience`` seconds to say. ``on_stray_line`` is called with every line of its
    output that is no message; default: log a warning. ``watched`` sees all that travels.
    """
    if era not in {"auto", REVISION, "legacy", *OLDER}:
        raise ValueError(f"era must be 'auto', 'legacy' or a revision such as {REVISION!r}, got {era!r}")
    if identity is not None and not hasattr(target, "answer"):
        raise TypeError("identity= says who calls a Server in this process: over HTTP, a token does (auth=)")
    choice = _Choice(era, versions, patience)
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        url = target
        from antiphon.transports.http_client import HttpLink, Response

        response = Response if watched is None else watched.response
        return choice.link(
            lambda: HttpLink(url, headers=headers, auth=auth, kind=response),
            lambda revision: _older().to_url(url, headers=headers, auth=auth, revision=revision, kind=response),
            key=url,
        )
    command = _command(target)
    if command is not None:
        from antiphon.transports.stdio_client import ChildLink

        process = None if watched is None else watched.process
        child = ChildLink(command, env=env, cwd=cwd, on_stray_line=on_stray_line, kind=process)
        return choice.link(
            lambda: child,
            lambda revision: _older().to_child(child, revision=revision),
            key=(*command, str(cwd), *sorted((env or {}).items())),
            probes=True,
        )
    if isinstance(target, Link):
        if choice.is_old:
            raise ValueError("A Link speaks the era that it was made for: era='legacy' is for other targets")
        return target
    if hasattr(target, "answer"):
        from antiphon.server.dispatch import Service
        from antiphon.transports.memory import MemoryLink

        if isinstance(target, Service):
            if choice.is_old:
                older: Link = _older().to_service(target, identity=identity, revision=choice.revision)
                return older
            return MemoryLink(target, identity=identity)
    raise TypeError(f"Client() takes a URL, a command, a server's file, a Server or a Link, got {target!r}")


class WatchedKinds(NamedTuple):
    """Classes for the connections and processes of a link that see what travels."""

    response: "type[Response]"
    process: "type[Process]"


class _Choice(NamedTuple):
    """Which era a client wants, and what it knows of the server's."""

    era: str
    versions: Sequence[str]
    patience: float

    @property
    def is_old(self) -> bool:
        return self.era not in {"auto", REVISION}

    @property
    def revision(self) -> str | None:
        """The older revision that is wanted, if it must be a certain one."""
        return self.era if self.era in OLDER else None

    def link(
        self, new: Callable[[], Link], old: Callable[[str | None], "LegacyLink"], *, key: object, probes: bool = False
    ) -> Link:
        if self.is_old:
            return old(self.revision)
        from antiphon.transports.negotiating import NegotiatingLink, era_of

        told = era_of(list(self.versions))
        return NegotiatingLink(
            new(),
            None if self.era == REVISION else lambda: old(None),
            memory=_found if told is None else {key: told},
            key=key,
            probes=probes,
            patience=self.patience,
        )


def _older() -> "ModuleType":
    if not _has_legacy():
        from antiphon.transports.negotiating import LegacyMissing

        raise LegacyMissing("the part of antiphon that speaks those, antiphon.legacy, is not installed")
    from antiphon.legacy.client import link as targets

    return targets


def _has_legacy() -> bool:
    """Whether the package of the older era is installed. Without it, there is no older era.

    Not asked by importing it: a module that the package needs and that is missing must raise, not hide the era.
    """
    return find_spec("antiphon.legacy") is not None


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
