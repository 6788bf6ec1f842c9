"""What the sessions of older clients subscribed to at mounted servers, until the sessions end."""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from antiphon.server.mounts import Mounts
from antiphon.wire.call import Call

MAX_WATCHES: Final = 10_000
"""Subscriptions of older clients that are passed on to mounted servers."""

log = logging.getLogger("antiphon")


class Watches:
    """The resources that sessions here watch at mounted servers."""

    __slots__ = ("_count", "_mounts", "_stops")

    def __init__(self, mounts: Mounts) -> None:
        self._mounts = mounts
        self._stops: dict[str, dict[str, Callable[[], None]]] = {}
        """What stops each of them, by session and URI."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def sessions(self) -> Iterable[str]:
        """The sessions that watch something."""
        return list(self._stops)

    def start(self, call: Call, uri: str) -> None:
        """Listen for changes of a resource for the session of this call."""
        self.stop(call.session, uri)  # a second subscription replaces the first
        if self._count >= MAX_WATCHES:
            log.warning("changes of %r are not listened for: there are %s subscriptions already", uri, MAX_WATCHES)
            return
        self._stops.setdefault(call.session, {})[uri] = self._mounts.watch(call, uri)
        self._count += 1

    def stop(self, session: str, uri: str) -> None:
        """Listen for a resource no longer."""
        stops = self._stops.get(session, {})
        stop = stops.pop(uri, None)
        if stop is None:
            return
        if not stops:
            del self._stops[session]
        self._count -= 1
        stop()

    def end(self, session: str) -> None:
        """Stop all that a session listens for: it has ended."""
        for uri in list(self._stops.get(session, ())):
            self.stop(session, uri)
