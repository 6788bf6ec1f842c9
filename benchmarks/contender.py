"""The servers under measurement: their programs, and a process with its memory and its processor time."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from calls import BOTH, LITE_REVISION, OLD_REVISION, REVISION
from load import LoadError

HERE = Path(__file__).parent
SERVERS = HERE / "servers"
NODE = HERE.parent / "scripts" / "node.py"
SERVER_CORE, LOAD_CORE = 0, 1
START_TIMEOUT = 30.0
INSTALL_TIMEOUT = 360.0


class Unavailable(LoadError):
    """The server cannot be measured; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A server that can be started."""

    title: str
    file: str
    mode: str | None = None
    era: str = REVISION
    asks: bool = True
    accept: str = BOTH


PROGRAMS = {
    "ours": Program(title="Antiphon, `antiphon serve`", file="ours.py"),
    "ours-uvicorn": Program(title="Antiphon, under uvicorn", file="ours.py", mode="uvicorn"),
    "official": Program(title="official `mcp`, JSON", file="official.py", mode="json"),
    "official-sse": Program(title="official `mcp`, SSE", file="official.py", mode="sse"),
    "fastmcp": Program(title="FastMCP, JSON", file="fast.py", mode="json"),
    "typescript": Program(title="TypeScript SDK, Node", file="typescript.mjs"),
    "mcp-lite": Program(
        title="mcp-lite, Node, JSON", file="lite.mjs", era=LITE_REVISION, asks=False, accept="application/json"
    ),
    "mcp-lite-sse": Program(title="mcp-lite, Node, SSE", file="lite.mjs", era=LITE_REVISION, asks=False),
    "bare": Program(title="bare ASGI, under uvicorn", file="bare.py", mode="uvicorn", asks=False),
    "bare-front": Program(title="bare ASGI, under our HTTP", file="bare.py", asks=False),
    "fastmcp-sse": Program(title="FastMCP, SSE", file="fast.py", mode="sse"),
    "official-sessions": Program(title="official `mcp`, JSON", file="official.py", mode="sessions", era=OLD_REVISION),
    "fastmcp-sessions": Program(title="FastMCP, JSON", file="fast.py", mode="sessions", era=OLD_REVISION),
    "official-waiting": Program(title="official `mcp`", file="official.py", mode="sessions-sse", era=OLD_REVISION),
    "fastmcp-waiting": Program(title="FastMCP", file="fast.py", mode="sessions-sse", era=OLD_REVISION),
    "typescript-sessions": Program(title="TypeScript SDK 1.32, JSON", file="typescript_sessions.mjs", era=OLD_REVISION),
    "mcp-lite-sessions": Program(title="mcp-lite, SSE", file="lite.mjs", mode="sessions", era=LITE_REVISION),
    "protected": Program(title="Antiphon, protected", file="protected.py"),
    "bridged": Program(title="Antiphon, a bridge", file="bridged.py"),
}

_node: list[str] = []


def command(program: Program) -> list[str]:
    """The command that runs a program, without where it listens."""
    path = str(SERVERS / program.file)
    if program.file.endswith(".py"):
        return [sys.executable, path]
    if not _node:
        try:
            done = subprocess.run(
                [sys.executable, str(NODE)], capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unavailable("Node's packages were not installed in time") from None
        if done.returncode:
            raise Unavailable(done.stderr.strip() or "Node is not there")
        found = json.loads(done.stdout)
        _node[:] = [found["node"], found["modules"]]
    return [_node[0], path, _node[1]]


@contextmanager
def on_core(core: int) -> Generator[None]:
    """Keep this process, and those it starts meanwhile, on one core, where the system can."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {core})
    except OSError:  # there is no such core
        yield
        return
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


_running: "list[Contender]" = []


def stop_all() -> None:
    """End the servers that are still running."""
    while _running:
        _running[-1].stop()


class Contender:
    """A server in a process of its own, on a core of its own."""

    def __init__(self, name: str, *, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.program = PROGRAMS[name]
        self.port = free_port()
        mode = ["--mode", self.program.mode] if self.program.mode else []
        start = [*command(self.program), "--port", str(self.port), *mode]
        # Not a pipe: an unread pipe could fill up and stop the server.
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process
        with on_core(SERVER_CORE):
            self._process = subprocess.Popen(
                start,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env={**os.environ, **(env or {})},
            )
        _running.append(self)
        deadline = time.monotonic() + START_TIMEOUT
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(self._last_error())
            time.sleep(0.02)

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

    def rss_mb(self) -> float | None:
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        except OSError:
            return None
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def cpu_seconds(self) -> float | None:
        """Processor time of all its threads: to the nanosecond where the kernel says so, else to the hundredth."""
        process = Path(f"/proc/{self._process.pid}")
        try:
            if spent := sum(int(each.read_text().split()[0]) for each in process.glob("task/*/schedstat")):
                return spent / 1e9
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        if self in _running:
            _running.remove(self)
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
