"""The server of a suite: started, reachable, and its log kept."""

import asyncio
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from antiphon.errors import AntiphonError, CallFailed, Disconnected, Refused, SignInFailed
from antiphon.loading import ServerMissing, load_fresh
from antiphon.server.dispatch import Service
from antiphon.testing.servers import ServerUnderTest, environment, link_to, shared_key
from antiphon.testing.suite.attempt import SuiteClient
from antiphon.testing.suite.model import Target
from antiphon.transports.link import Link

if TYPE_CHECKING:
    from antiphon.testing.cassette.links import Player

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


class SuiteServer:
    """One server, or with ``rotate`` several that take turns: ``async with SuiteServer(target) as server``.

    To enter it starts the server and has it answer once; Unstarted if it does not.
    """

    client: SuiteClient
    """The client that opened the connection; each test has a copy of it."""

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
        self.environment = {**(shared_key() if rotate else {}), **target.env}
        """The variables that it is started with, beside those that are there."""
        self._rotate = rotate
        self._record = record
        self._replay = replay
        self._player: Player | None = None
        self.log = Log()
        """What it writes to stderr."""
        self._exits = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as exits:
            exits.callback(self.log.remove)
            self.log.attach()
            if self.target.app:
                exits.enter_context(environment(self.environment))
            # An older server is told once, when the connection is opened, what it may ask: all there is.
            self.client = SuiteClient(self._link())
            exits.push_async_exit(self.client)
            await self._greet(self.client)
            self._exits = exits.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._exits.aclose()

    def drifts(self) -> list[str]:
        """Return what was sent and is not in the recording, since the last call of this."""
        if self._player is None:
            return []
        told = [str(drift) for drift in self._player.drifts]
        self._player.drifts.clear()
        return told

    def reached_by(self) -> ServerUnderTest:
        """Return how the server is reached: by its URL, a function that loads the app, or a command."""
        target = self.target
        to: object = target.url
        if target.app:
            to = partial(load_fresh, target.app, target.cwd, Service)
        elif not target.url:
            to = self.log.kept(_found(target.command, self.environment))
        return ServerUnderTest(
            target=to,
            era=ERAS[self.era],
            headers=target.headers,
            auth=target.auth,
            identity=target.identity,
            env=self.environment,
            cwd=target.cwd,
        )

    # --- starting -------------------------------------------------------------------------------------------------

    def _link(self) -> Link:
        if self._replay is not None:
            return self._recorded(self._replay)
        if self._record is not None:
            self._record.parent.mkdir(parents=True, exist_ok=True)
        return link_to(self._connect, rotate=self._rotate, record=self._record, headers=self.target.headers)

    def _recorded(self, file: Path) -> Link:
        from antiphon.testing.cassette.format import CassetteBroken
        from antiphon.testing.cassette.links import Player  # few runs replay

        if not file.is_file():
            raise Unstarted(f"There is no recording {file}: --record makes it")
        try:
            self._player = Player(file)
        except CassetteBroken as broken:
            raise Unstarted(str(broken)) from None
        return self._player

    def _connect(self) -> Link:
        try:
            return self.reached_by().link_to_one(
                patience=self.target.startup, on_stray_line=lambda line: self.stray.append(line.strip()[:SHOWN])
            )
        except ServerMissing as missing:
            raise Unstarted(str(missing), missing.log) from None
        except (ValueError, TypeError) as fault:
            raise Unstarted(f"The server did not start: {fault}") from None

    async def _greet(self, client: SuiteClient) -> None:
        """Open the connection. A server that answers anything at all has started, even if it refuses."""
        is_open = False
        try:
            # Where the era is not known, each of the two may take that long.
            async with asyncio.timeout(self.target.startup * (2 if self.era == "auto" else 1)):
                await client.__aenter__()
                is_open = True
                await client.discover()
        except (CallFailed, TimeoutError) as fault:
            refuses = isinstance(fault, Refused) and fault.code is not None and fault.status != 401
            if not is_open or not refuses:
                raise Unstarted(self._why(fault), self.log.text()) from None
        self.revision = client.protocol_version
        if self._rotate and client.era == "legacy":
            raise Unstarted(
                f"The server speaks {self.revision}, in which a call stays with one instance:"
                " --rotate needs one that speaks 2026-07-28"
            )

    def _why(self, fault: CallFailed | TimeoutError) -> str:
        """Return why no connection was opened."""
        target, startup = self.target, self.target.startup
        aside = f" {printed('It', self.stray)}" if self.stray else ""
        match fault:
            case TimeoutError():
                told = f"The server did not answer within {startup:g} s of its start"
                return f"{told} ('startup' says how long it may take).{aside}"
            case Refused(status=401) | Refused(code=None, status=403):
                wanted = "Set 'auth' to sign in, or 'headers'." if target.auth is None else "See 'auth'."
                return f"{target.text} refuses this client: {fault.message}. {wanted}"
            case Refused(code=None):
                return f"{target.text} does not serve MCP: {fault}"
            case Refused():
                return f"The server opens no session, which it takes to speak 2025-11-25 and before: {fault}"
            case SignInFailed():
                from antiphon.client.auth import OAuth  # few suites sign in

                how = f". Run: antiphon login {target.url}" if isinstance(target.auth, OAuth) else ""
                return f"The client could not sign in to {target.text}: {fault}{how}"
            case Disconnected() if target.url:
                return (
                    f"The server cannot be reached: {fault}. Is it running? A server behind a URL is not started here."
                )
            case Disconnected():
                return f"The server did not start: {fault}.{aside}"
            case _:
                return f"The server cannot be understood: {fault}.{aside}"


def printed(subject: str, lines: list[str]) -> str:
    """Tell of lines on standard output that are no messages."""
    shown = ", ".join(map(repr, lines[:3]))
    more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
    return (
        f"{subject} printed {shown}{more} to standard output, which is for MCP messages alone: print to stderr instead."
    )


def _found(command: tuple[str, ...], variables: Mapping[str, str]) -> list[str]:
    """Return the command, if there is such a program; Unstarted if not.

    ``python`` is that of the active virtual environment, or else the one that runs this. A program on no path may be in
    the same folder as that one, as ``antiphon`` is.
    """
    program, *words = command
    known = {**os.environ, **variables}
    if program in {"python", "python3"} and not known.get("VIRTUAL_ENV"):
        program = sys.executable
    if shutil.which(program, path=known.get("PATH")) is None:
        beside = shutil.which(program, path=str(Path(sys.executable).parent))
        if beside is not None:
            return [beside, *words]
        raise Unstarted(f"The server did not start: there is no command {program!r}")
    return [program, *words]


class Log(logging.Handler):
    """What a server logs: the stderr of a child in a file, or what tasks of this process log that attend to it.

    The callbacks of a link run in the context in which it was opened, a server in this process in that of its caller.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: list[str] = []
        self._file: Path | None = None

    def attach(self) -> None:
        """Keep what is logged from here on, until it is removed."""
        _LOGGER.addHandler(self)
        _attended.set(self)

    def mark(self) -> int:
        """Return where it ends now. What this task logs from here on goes to it, and to no other log."""
        _attended.set(self)
        return len(self._lines) if self._file is None else self._file.stat().st_size

    def emit(self, record: logging.LogRecord) -> None:
        if _attended.get() is self:
            self._lines.append(self.format(record))

    def kept(self, command: list[str]) -> list[str]:
        """Return the command with its stderr sent to the file. Without a POSIX shell, stderr goes to the terminal."""
        if os.name != "posix":
            return command
        if self._file is None:
            number, name = tempfile.mkstemp(prefix="antiphon-", suffix=".log")
            os.close(number)
            self._file = Path(name)
        return ["/bin/sh", "-c", 'exec "$@" 2>>"$0"', str(self._file), *command]

    def text(self, since: int = 0) -> str:
        """Return what was kept since a mark; its end if it is long."""
        if self._file is None:
            return "\n".join(self._lines[since:])[-TAIL:].strip()
        with self._file.open("rb") as file:
            file.seek(max(since, self._file.stat().st_size - TAIL))
            return file.read().decode(errors="replace").strip()

    def remove(self) -> None:
        _LOGGER.removeHandler(self)
        file, self._file = self._file, None
        if file is not None:
            file.unlink(missing_ok=True)


_LOGGER: Final = logging.getLogger("antiphon")
_attended: ContextVar[Log | None] = ContextVar("log", default=None)
"""The log of the server that this task talks to. Its handlers are the user's code, and log where they like."""
