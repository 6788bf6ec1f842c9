"""A server under measurement: its process, its memory and its CPU time."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import calls
from load import Load, LoadError, exchange

SERVERS = Path(__file__).parent / "servers"
START_TIMEOUT = 30.0


class Unavailable(Exception):
    """The server cannot be measured; the text says why."""


class Contender:
    """A server in a process of its own."""

    def __init__(
        self, name: str, *, headers: Sequence[tuple[str, str]] = (), env: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self._headers = headers
        self.port = _free_port()
        # Not a pipe: an unread pipe could fill up and stop the server.
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            [sys.executable, str(SERVERS / f"{name}.py"), "--port", str(self.port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            env={**os.environ, **(env or {})},
        )
        self.loads = self._ready()
        self.idle_rss_mb = self.rss_mb()

    def _ready(self) -> dict[str, Load]:
        deadline = time.monotonic() + START_TIMEOUT
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(self._last_error())
            time.sleep(0.02)
        try:
            return self._scenarios()
        except LoadError as error:
            self.stop()
            raise Unavailable(str(error)) from None

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def _last_error(self) -> str:
        self._stderr.seek(0)
        said = self._stderr.read().strip().splitlines()
        self.stop()
        return said[-1] if said else "it did not start, and printed nothing"

    def _scenarios(self) -> dict[str, Load]:
        """What this server can do: echo always, the two legs of a deploy if it asks."""
        loads = {"echo": self._load("echo", calls.http(calls.echo(), self.port, self._headers))}
        exchange(loads["echo"])
        leg_1 = self._load("leg 1", calls.http(calls.leg_1(), self.port, self._headers))
        try:
            asked = calls.result(exchange(leg_1))
        except LoadError:
            return loads
        leg_2 = self._load("leg 2", calls.http(calls.leg_2(asked), self.port, self._headers))
        exchange(leg_2)
        return loads | {"leg 1": leg_1, "leg 2": leg_2}

    def _load(self, scenario: str, request: bytes) -> Load:
        return Load(port=self.port, request=request, marker=calls.MARKERS[scenario])

    def rss_mb(self) -> float | None:
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        except OSError:
            return None
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def cpu_seconds(self) -> float | None:
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
