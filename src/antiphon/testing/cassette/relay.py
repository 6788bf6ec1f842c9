"""The relay: stands between a client and a server on standard streams, and records. Bytes pass as they are."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, Final

from antiphon.errors import Disconnected
from antiphon.testing.cassette.scribe import Line, Scribe, read_line
from antiphon.testing.cassette.tape import CassetteBroken

GRACE: Final = 2.0
"""Seconds that the server has to end after its input has, and again after SIGTERM."""
PAUSE: Final = 1.0
"""Seconds between two savings while the conversation goes on."""


class Lines:
    """Bytes in, whole lines out."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        *lines, rest = chunk.split(b"\n")
        if not lines:
            self._rest += rest
            return []
        lines[0] = bytes(self._rest) + lines[0]
        self._rest = bytearray(rest)
        return lines


class Relay:
    """Starts the server, and passes on what either side says until one of them ends."""

    def __init__(
        self, command: Sequence[str], scribe: Scribe, save: Callable[[], None], cwd: str | None = None
    ) -> None:
        self._scribe = scribe
        self._save = save
        self._line = Line()
        self._lock = threading.Lock()
        self._saved = time.monotonic()
        self._ended = threading.Event()
        self._hung_up = False
        self._spoke = False
        self._was_stopped = False
        try:
            self._server: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 -- the command that the user gave
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=cwd,
                # A process group of its own, so that what the server starts ends with it.
                start_new_session=os.name == "posix",
            )
        except OSError as fault:
            raise Disconnected(f"Cannot start {command[0]!r}: {fault.strerror}") from None

    def run(self) -> int:
        """Until either side ends; the server's exit code. Disconnected if it ended without a word."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._hang_up())
        for work in (self._from_client, self._from_server):
            threading.Thread(target=work, daemon=True).start()
        self._ended.wait()
        self._save_at_last()  # before the server is waited for: clients are impatient, and kill
        code = self._stopped()
        self._save_at_last()
        if not self._spoke and (code > 0 or not self._hung_up):
            raise Disconnected(f"The server's process ended (exit code {code}) before it said anything")
        if code >= 0:
            return code
        return 0 if self._was_stopped else 128 - code  # as a shell tells that a signal ended it

    def _from_client(self) -> None:
        assert self._server.stdin is not None
        self._pass(0, self._server.stdin, self._scribe.sent)
        with contextlib.suppress(OSError):
            self._server.stdin.close()
        self._hung_up = True
        try:
            self._server.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._hang_up()

    def _from_server(self) -> None:
        assert self._server.stdout is not None
        self._pass(self._server.stdout.fileno(), sys.stdout.buffer, self._heard)
        self._ended.set()

    def _heard(self, line: Line, message: object) -> None:
        self._spoke = True
        self._scribe.came(line, message)

    def _pass(self, source: int, sink: IO[bytes], hear: Callable[[Line, object], Any]) -> None:
        lines = Lines()
        try:
            while chunk := os.read(source, 65536):
                # Written down before it is passed on: an answer is never heard before its question.
                for line in lines.feed(chunk):
                    message = read_line(line)
                    if message is not None:
                        with self._lock:
                            hear(self._line, message)
                            self._save_now_and_then()
                sink.write(chunk)
                sink.flush()
        except (OSError, ValueError):
            return  # either end has gone

    def _save_now_and_then(self) -> None:
        if self._scribe.is_idle and time.monotonic() - self._saved > PAUSE:
            self._saved = time.monotonic()
            with contextlib.suppress(CassetteBroken):  # the end will tell
                self._save()

    def _save_at_last(self) -> None:
        """What a silent server did not say is no recording, and there may be an older one in its place."""
        with self._lock:
            if self._spoke:
                self._save()

    def _hang_up(self) -> None:
        self._hung_up = True
        self._ended.set()

    def _stopped(self) -> int:
        for number in (None, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            if number is not None:
                self._signal(number)
            try:
                # A server that closed its output, or heard its input end, goes by itself.
                return self._server.wait(GRACE if number is not None else 0.5)
            except subprocess.TimeoutExpired:
                continue
        return -1

    def _signal(self, number: int) -> None:
        self._was_stopped = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(self._server.pid, number)
            else:
                self._server.send_signal(number)
