"""Links to old servers: behind a URL, as a process, or in this one."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from antiphon.legacy.links.link import LegacyLink
from antiphon.legacy.links.wire import Ear, Wire

if TYPE_CHECKING:
    from antiphon.server.service import Service


def to_url(url: str, *, headers: Mapping[str, str] | None = None, revision: str | None = None) -> LegacyLink:
    """Over streamable HTTP."""
    from antiphon.legacy.links.http import HttpWire
    from antiphon.transports.http import HttpLink

    def dial(ear: Ear) -> Wire:
        return HttpWire(HttpLink(url, headers=headers), HttpLink(url, headers=headers), ear)

    return LegacyLink(dial, revision=revision)


def to_command(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | PathLike[str] | None = None,
    revision: str | None = None,
    on_stray_line: Callable[[str], None] | None = None,
) -> LegacyLink:
    """Over the standard streams of a process."""
    from antiphon.legacy.links.pipe import ChildPipe, PipeWire
    from antiphon.transports.child import ChildLink

    child = ChildLink(command, env=env, cwd=cwd, on_stray_line=on_stray_line)
    return LegacyLink(
        lambda ear: PipeWire(lambda receive, lost: ChildPipe(child, receive, lost), ear), revision=revision
    )


def to_service(service: "Service", *, revision: str | None = None) -> LegacyLink:
    """In memory."""
    from antiphon.legacy.links.pipe import PipeWire
    from antiphon.legacy.memory import MemoryPipe

    return LegacyLink(lambda ear: PipeWire(lambda receive, _: MemoryPipe(service, receive), ear), revision=revision)
