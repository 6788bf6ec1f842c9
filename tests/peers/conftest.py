"""Our server in a process of its own, and the official clients as programs that talk to it."""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SERVER = [sys.executable, str(HERE / "server.py")]
START_TIMEOUT = 30.0
CONVERSATION_TIMEOUT = 60.0
INSTALL_TIMEOUT = 360.0


@pytest.fixture(scope="session")
def http_url(tmp_path_factory):
    """Where the server answers over HTTP."""
    port = free_port()
    log = tmp_path_factory.mktemp("peers") / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*SERVER, "--http", str(port)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            if not answers(process, port):
                pytest.fail(f"the server did not start:\n{log.read_text()[-2000:]}")
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            end(process)


@pytest.fixture(scope="session", params=["http", "stdio"])
def target(request):
    """How a client program is told where the server is: one of the two transports."""
    return ["http", request.getfixturevalue("http_url")] if request.param == "http" else ["stdio", *SERVER]


@pytest.fixture(scope="session")
def official_typescript():
    """The command of the TypeScript client; its packages are installed the first time."""
    script = HERE.parent.parent / "scripts" / "node.py"
    found = json.loads(run([sys.executable, str(script)], timeout=INSTALL_TIMEOUT))
    return [found["node"], str(HERE / "client.mjs"), found["modules"]]


@pytest.fixture(scope="session")
def official_python():
    """The command of the Python client."""
    return [sys.executable, str(HERE / "client.py")]


@pytest.fixture(scope="session")
def converse():
    """Runs a client program against a target and gives what it saw."""
    return lambda client, target: json.loads(run([*client, *target], timeout=CONVERSATION_TIMEOUT))


def run(command, *, timeout):
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        stdout, stderr = process.communicate()
        pytest.fail(f"{command[:3]} did not end within {timeout:.0f} s:\n{stderr[-2000:]}")
    if process.returncode:
        pytest.fail(f"{command[:3]} ended with {process.returncode}:\n{stderr[-3000:]}")
    return stdout


def answers(process, port):
    deadline = time.monotonic() + START_TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return True
    return False


def end(process):
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
