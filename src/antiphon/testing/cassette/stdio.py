"""Record, replay and verify on standard streams."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, Final

from antiphon.errors import Disconnected
from antiphon.testing.cassette.format import CassetteTurn
from antiphon.testing.cassette.placeholders import read_json
from antiphon.testing.cassette.recording import Recording
from antiphon.testing.cassette.replaying import Replay, ReplayClient
from antiphon.testing.cassette.verifying import LiveServer
from antiphon.transports.stdio_client import ChildLink, Process
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import encode

GRACE: Final = 2.0
"""Seconds that the server has to end after its input has, and again after SIGTERM."""


def replay_on_stdio(replay: Replay) -> None:
    """Answer the client on standard streams until its input ends, or its output is closed."""
    client = ReplayClient()
    for line in iter(sys.stdin.buffer.readline, b""):
        message = read_json(line)
        if message is None:
            continue
        try:
            for each in replay.answer(client, message):
                sys.stdout.buffer.write(encode(each.message) + b"\n")
            sys.stdout.buffer.flush()
        except OSError:
            return


class LiveProcess(LiveServer):
    """A server that is started, and spoken to on its standard streams.

    ``env`` is added to the environment of this process, which it gets.
    """

    def __init__(self, command: Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._child = ChildLink(command, env={**os.environ, **(env or {})}, cwd=cwd, on_stray_line=lambda _: None)
        self._process: Process | None = None

    async def open(self) -> None:
        def receive(message: JsonObject) -> None:
            self.inbox.put_nowait(CassetteTurn(server=message))

        self._process = await self._child.start(receive, self.inbox.put_nowait)

    async def send(self, message: JsonObject, headers: Mapping[str, str]) -> None:
        del headers
        assert self._process is not None
        self._process.send(message)

    async def close(self) -> None:
        if self._process is not None:
            await self._process.close()


class StdioProxy:
    """Starts the server, and passes on and records what either side writes until one of them ends.

    ``env`` is added to the environment of this process, which the server gets.
    """

    def __init__(
        self,
        command: Sequence[str],
        recording: Recording,
        path: str | os.PathLike[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._recording = recording
        self._path = path
        self._connection = recording.connect()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._hung_up = False
        self._has_spoken = False
        try:
            self._server: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 -- the command that the user gave
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                # A process group of its own, so that what the server starts ends with it.
                start_new_session=os.name == "posix",
            )
        except OSError as fault:
            raise Disconnected(f"Cannot start {command[0]!r}: {fault.strerror}") from None

    def run(self) -> int:
        """Return the server's exit code when either side has ended; raise Disconnected if it never sent a message."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._hang_up())
        for work in (self._pass_to_server, self._pass_to_client):
            threading.Thread(target=work, daemon=True).start()
        self._ended.wait()
        self._save()  # before the server ends: clients do not wait long before they kill
        code = self._stop()
        self._save()
        if not self._has_spoken and (code != 0 or not self._hung_up):
            raise Disconnected(f"The server's process ended (exit code {code}) before it said anything")
        return code if code >= 0 else 128 - code  # as a shell tells that a signal ended it

    def _pass_to_server(self) -> None:
        assert self._server.stdin is not None
        self._pass(0, self._server.stdin, self._connection.sent)
        with contextlib.suppress(OSError):
            self._server.stdin.close()
        self._hung_up = True
        try:
            self._server.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._hang_up()

    def _pass_to_client(self) -> None:
        assert self._server.stdout is not None
        try:
            self._pass(self._server.stdout.fileno(), sys.stdout.buffer, self._received)
        finally:
            self._ended.set()

    def _received(self, message: object) -> None:
        self._has_spoken = True
        self._connection.received(message)

    def _pass(self, source: int, sink: IO[bytes], record: Callable[[object], Any]) -> None:
        """Pass bytes on as they are; a line is recorded before that: no answer comes before its question."""
        line = bytearray()
        try:
            while chunk := os.read(source, 65536):
                line += chunk
                if b"\n" in chunk:
                    *lines, line = line.split(b"\n")
                    for each in lines:
                        self._record(bytes(each), record)
                sink.write(chunk)
                sink.flush()
        except (OSError, ValueError):
            return  # either end has gone

    def _record(self, line: bytes, record: Callable[[object], Any]) -> None:
        message = read_json(line)
        if message is not None:
            with self._lock:
                record(message)
                self._recording.save_when_idle(self._path)

    def _save(self) -> None:
        """Save, unless the server has said nothing: there may be an older recording in its place."""
        with self._lock:
            if self._has_spoken:
                self._recording.save(self._path)

    def _hang_up(self) -> None:
        self._hung_up = True
        self._ended.set()

    def _stop(self) -> int:
        """Return the exit code of the server; 0 if a signal of ours ended it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._server.wait(0.5)  # its output or its input has ended
        for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            self._signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._server.wait(GRACE)
                return max(code, 0) if os.name == "posix" else 0  # elsewhere no server sees the signal
        return 0

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(self._server.pid, number)
            else:
                self._server.send_signal(number)
