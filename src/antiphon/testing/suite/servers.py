"""An instance: the server of a suite, started, reachable, and heard."""

import asyncio
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon import eras
from antiphon.client.client import Client
from antiphon.errors import AntiphonError, CallFailed, Disconnected, Refused
from antiphon.loading import ServerMissing, load_fresh
from antiphon.server.dispatch import Service
from antiphon.testing.answers import Script
from antiphon.testing.servers import KEYS, Rotation, Shared, new_key
from antiphon.testing.suite.attempt import Clients
from antiphon.testing.suite.model import Target
from antiphon.transports.link import Link

if TYPE_CHECKING:
    from antiphon.testing.cassette.player import Player

TAIL: Final = 8000
"""Characters of a server's stderr that are kept."""
SHOWN: Final = 80
"""Characters of a line on standard output that are kept."""
ERAS: Final = {"auto": "auto", "modern": "2026-07-28", "legacy": "legacy"}


class Unstarted(AntiphonError):
    """The server did not start, or cannot be reached; ``log`` is what it wrote to stderr."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


class Instance:
    """One server, or with ``rotate`` several that take turns."""

    def __init__(
        self,
        target: Target,
        *,
        era: str = "auto",
        rotate: int = 0,
        record: Path | None = None,
        replay: Path | None = None,
    ) -> None:
        if rotate and target.url:
            raise Unstarted(
                "A server behind a URL cannot be restarted between rounds: --rotate needs a command or an app"
            )
        self.target = target
        self.era = era
        self.revision = ""
        """The revision that is spoken, once the server has answered."""
        self.stray: list[str] = []
        """Lines that it printed to standard output, and that are no messages."""
        self._rotate = rotate
        self._record = record
        self._replay = replay
        self._player: Player | None = None
        self._log = Log()
        self._environment = Environment(target.env if target.app else {})
        self._client: Client | None = None
        self._clients: Clients | None = None

    @property
    def clients(self) -> Clients:
        """For the tests."""
        assert self._clients is not None
        return self._clients

    @property
    def link(self) -> Link:
        """For any number of clients, which neither open nor close it."""
        return self.clients.link

    async def start(self) -> None:
        """Start it, and have it answer once; Unstarted if it does not."""
        if self._rotate:
            self._environment.set_default(KEYS)
        self._log.attach()
        try:
            link = self._link()
            # Opened by a client: servers of the older era learn but once, at the beginning, what they may ask.
            self._client = Client(link, **Script().handlers(), timeout=None, name="antiphon-test")
            await self._greet(self._client)
            self._clients = Clients(Shared(link), rotates=bool(self._rotate))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        client, self._client = self._client, None
        try:
            if self._clients is not None:
                await self._clients.close()
            if client is not None:
                await client.__aexit__(None, None, None)
        finally:
            self._environment.restore()
            self._log.remove()

    def mark(self) -> int:
        """Where its log ends now; what is logged from here on, by this task, is its own."""
        self._log.attend()
        return self._log.size

    def log(self, since: int = 0) -> str:
        """What the server wrote to stderr, its end if it is long."""
        return self._log.text(since)

    def drifts(self) -> list[str]:
        """What was sent and is not in the recording, since the last time that this was called."""
        if self._player is None:
            return []
        told = [str(drift) for drift in self._player.drifts]
        self._player.drifts.clear()
        return told

    def command(self) -> list[str]:
        """What starts the server; whatever it writes to stderr is in the log."""
        return self._log.kept(_found(self.target.command, self.environment()))

    def environment(self) -> dict[str, str]:
        """The variables that it is started with, beside those that are there."""
        return {**self._environment.defaults, **self.target.env}

    # --- starting -------------------------------------------------------------------------------------------------

    def _link(self) -> Link:
        """The way to the server, or to what was recorded of it; nothing is started yet."""
        if self._replay is not None:
            return self._played(self._replay)
        link = Rotation(self._connected, self._rotate) if self._rotate else self._connected()
        if self._record is None:
            return link
        from antiphon.testing.cassette.recording import Recorder  # for those who record

        self._record.parent.mkdir(parents=True, exist_ok=True)
        return Recorder(link, self._record, headers=self.target.headers)  # which the link has; they may be repeated

    def _played(self, file: Path) -> Link:
        from antiphon.testing.cassette.format import CassetteBroken
        from antiphon.testing.cassette.player import Player  # for those who replay

        if not file.is_file():
            raise Unstarted(f"There is no recording {file}: --record makes it")
        try:
            self._player = Player(file)
        except CassetteBroken as broken:
            raise Unstarted(str(broken)) from None
        return self._player

    def _connected(self) -> Link:
        try:
            return self._link_to_target()
        except ServerMissing as missing:
            raise Unstarted(str(missing), missing.log) from None
        except (ValueError, TypeError) as fault:
            raise Unstarted(f"The server did not start: {fault}") from None

    def _link_to_target(self) -> Link:
        target, era = self.target, ERAS[self.era]
        if target.url:
            return eras.connect(target.url, headers=target.headers, era=era, patience=target.startup)
        if target.app:
            return eras.connect(load_fresh(target.app, target.cwd, Service), era=era)
        return eras.connect(
            self.command(),
            env=self.environment(),
            cwd=target.cwd,
            era=era,
            patience=target.startup,
            on_stray_line=lambda line: self.stray.append(line.strip()[:SHOWN]),
        )

    async def _greet(self, client: Client) -> None:
        """A server that answers anything at all has started; one that refuses a greeting as well."""
        is_open = False
        try:
            # Where the era must be found out, each of them has its time.
            async with asyncio.timeout(self.target.startup * (2 if self.era == "auto" else 1)):
                await client.__aenter__()
                is_open = True
                await client.discover()
        except TimeoutError:
            raise Unstarted(self._silent(), self.log()) from None
        except Refused as refused:
            if refused.code is None:
                raise Unstarted(self._refused(refused), self.log()) from None
            if not is_open:
                why = f"The server opens no session, which it takes to speak 2025-11-25 and before: {refused}"
                raise Unstarted(why, self.log()) from None
        except CallFailed as fault:
            raise Unstarted(self._told(fault), self.log()) from None
        self.revision = client.protocol_version
        if self._rotate and client.era == "legacy":
            raise Unstarted(
                f"The server speaks {self.revision}, in which a call stays with one instance:"
                " --rotate needs one that speaks 2026-07-28"
            )

    def _silent(self) -> str:
        seconds = f"{self.target.startup:g} s"
        told = f"The server did not answer within {seconds} of its start ('startup' says how long it may take)."
        return f"{told}{self._printed()}"

    def _refused(self, refused: Refused) -> str:
        if refused.status in {401, 403}:
            return f"{self.target.text} lets nobody in: {refused} ('headers' of the server may hold what it wants)"
        return f"{self.target.text} does not serve MCP: {refused}"

    def _told(self, fault: CallFailed) -> str:
        if not isinstance(fault, Disconnected):
            return f"The server cannot be understood: {fault}.{self._printed()}"
        if self.target.url:
            return f"The server cannot be reached: {fault}. Is it running? A server behind a URL is not started here."
        return f"The server did not start: {fault}.{self._printed()}"

    def _printed(self) -> str:
        return f" {printed('It', self.stray)}" if self.stray else ""


def printed(subject: str, lines: list[str]) -> str:
    """What is said about lines on standard output that are no messages."""
    shown = ", ".join(map(repr, lines[:3]))
    more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
    return (
        f"{subject} printed {shown}{more} to standard output, which is for MCP messages alone: print to stderr instead."
    )


def _found(command: tuple[str, ...], environment: Mapping[str, str]) -> list[str]:
    """The command, if there is one to run.

    ``python`` is that of the virtual environment that is active; where none is, the one that runs this. What is on no
    path may still stand beside it, as ``antiphon`` itself does.
    """
    program, *words = command
    known = {**os.environ, **environment}
    if program in {"python", "python3"} and not known.get("VIRTUAL_ENV"):
        program = sys.executable
    if shutil.which(program, path=known.get("PATH")) is None:
        beside = shutil.which(program, path=str(Path(sys.executable).parent))
        if beside is not None:
            return [beside, *words]
        raise Unstarted(f"The server did not start: there is no command {program!r}")
    return [program, *words]


class Log(logging.Handler):
    """What a server logs: a child's stderr in a file, or what is logged in this process where the task attends to it.

    A link's callbacks run in the context in which it was opened, a server in this process in that of its caller.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: list[str] = []
        self._file: Path | None = None

    def attach(self) -> None:
        """Keep what is logged from here on, until it is removed."""
        _LOGGER.addHandler(self)
        self.attend()

    def attend(self) -> None:
        """Keep what this task logs from here on, and no other log."""
        _attended.set(self)

    def emit(self, record: logging.LogRecord) -> None:
        if _attended.get() is self:
            self._lines.append(self.format(record))

    def kept(self, command: list[str]) -> list[str]:
        """The command, with its stderr in the file. Where there is no shell to do it, stderr goes to the terminal."""
        if os.name != "posix":
            return command
        if self._file is None:
            number, name = tempfile.mkstemp(prefix="antiphon-", suffix=".log")
            os.close(number)
            self._file = Path(name)
        return ["/bin/sh", "-c", 'exec "$@" 2>>"$0"', str(self._file), *command]

    @property
    def size(self) -> int:
        return len(self._lines) if self._file is None else self._file.stat().st_size

    def text(self, since: int = 0) -> str:
        if self._file is None:
            return "\n".join(self._lines[since:])[-TAIL:].strip()
        with self._file.open("rb") as file:
            file.seek(max(since, self.size - TAIL))
            return file.read().decode(errors="replace").strip()

    def remove(self) -> None:
        _LOGGER.removeHandler(self)
        file, self._file = self._file, None
        if file is not None:
            file.unlink(missing_ok=True)


_LOGGER: Final = logging.getLogger("antiphon")
_attended: ContextVar[Log | None] = ContextVar("log", default=None)


class Environment:
    """Variables that an app in this process sees while it is under test."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._before: dict[str, str | None] = {}
        self.defaults: dict[str, str] = {}
        for name, value in variables.items():
            self._set(name, value)

    def set_default(self, name: str) -> None:
        """A key for all instances of a rotation: without one, each would have its own."""
        if not os.environ.get(name, "").strip():
            self.defaults[name] = new_key()
            self._set(name, self.defaults[name])

    def restore(self) -> None:
        before, self._before = self._before, {}
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def _set(self, name: str, value: str) -> None:
        self._before.setdefault(name, os.environ.get(name))
        os.environ[name] = value
