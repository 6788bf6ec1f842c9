"""A Connection: how a test reaches its server. Plain data, until a link is made of it."""

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path

import msgspec

from antiphon import eras
from antiphon.errors import AntiphonError
from antiphon.server.service import Service
from antiphon.testing.cassette.player import Player
from antiphon.testing.cassette.recorder import Recorder
from antiphon.testing.fresh import KEYS, keyed, maker, new_key
from antiphon.testing.suite.rotation import Rotation
from antiphon.transports.link import Link


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """How a tester's client reaches its server."""

    target: object
    """A Server, a function that makes one, a URL, a command, a server's file, or a Link."""
    era: str = "auto"
    rotate: int = 0
    """How many instances take turns, each started afresh for its turn; 0: one, for all requests."""
    headers: Mapping[str, str] | None = None
    env: Mapping[str, str] | None = None
    cwd: str | PathLike[str] | None = None
    cassette: Path | None = None
    """A recording that answers instead of the server; if there is no such file, it is made."""

    def link(self) -> Link:
        """A link, not yet open."""
        if self.cassette is None:
            return self._live()
        if self.cassette.exists():
            return Player(self.cassette)
        return Recorder(self._live(), self.cassette, headers=self.headers)

    def _live(self) -> Link:
        if self.rotate:
            return Rotation(self._instances(), self.rotate)
        target = self.target
        if callable(target) and not isinstance(target, Service | Link):
            target = maker(target)()
        return self._connect(target, self.env)

    def _connect(self, target: object, env: Mapping[str, str] | None) -> Link:
        return eras.connect(target, headers=self.headers, env=env, cwd=self.cwd, era=self.era)

    def _instances(self) -> Callable[[], Link]:
        """What makes links to fresh instances; all of them have one key."""
        key = new_key()
        target = self.target
        if isinstance(target, Link) or (isinstance(target, str) and target.startswith(("http://", "https://"))):
            raise AntiphonError(
                f"rotate starts its server afresh for each request, and {target!r} is not started by the test:"
                " give an app, a function that makes one, or a command"
            )
        if not isinstance(target, Service) and not callable(target):
            return lambda: self._connect(target, {KEYS: key, **(self.env or {})})
        make = maker(target)

        def another() -> Link:
            with keyed(key):
                return self._connect(make(), None)

        return another
