"""Programs in processes of their own: run to their end, or kept running as servers."""

import json
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

NODE = Path(__file__).parents[2] / "scripts" / "node.py"
START_TIMEOUT = 30.0
INSTALL_TIMEOUT = 360.0


def node_program(script):
    """The command that runs a script in Node; the packages are installed the first time."""
    found = json.loads(run([sys.executable, str(NODE)], timeout=INSTALL_TIMEOUT))
    return [found["node"], str(script), found["modules"]]


@contextmanager
def served(command, folder):
    """Where the server that a command starts answers over HTTP, as long as this lasts; its log goes to the folder."""
    port = free_port()
    log = folder / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--http", str(port)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        try:
            if not answers(process, port):
                pytest.fail(f"{command[:2]} did not start:\n{log.read_text()[-2000:]}")
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            end(process)


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
