"""The command line in processes of its own, and what a client says to them."""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty, Queue
from urllib.parse import urlsplit

import pytest

SCRIPT = str(Path(sys.executable).with_name("antiphon"))
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
PATIENCE = 20.0


@pytest.fixture(scope="session", autouse=True)
def bytecode(tmp_path_factory):
    """Lets processes share compiled modules, even if the environment forbids to write them: starting takes half."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.getbasetemp() / "bytecode"))
        yield


@pytest.fixture
def antiphon(tmp_path, monkeypatch):
    """Runs a command to its end, in a folder of its own."""
    monkeypatch.delenv("ANTIPHON_KEYS", raising=False)

    def run(*args, env=None):
        return subprocess.run(
            [SCRIPT, *args],
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    return run


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a command that goes on; what is still running at the end of the test is killed."""
    monkeypatch.delenv("ANTIPHON_KEYS", raising=False)
    running = []

    def begin(*args, command=(SCRIPT,)):
        running.append(Running([*command, *args], tmp_path))
        return running[-1]

    yield begin
    for process in running:
        process.close()


class Running:
    """A command that runs: its lines as they come, and requests to it."""

    def __init__(self, command, cwd):
        self.process = subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.out, self.err = Queue(), Queue()
        self.written = []
        self._readers = [
            threading.Thread(target=self._read, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream, lines):
        for line in stream:
            self.written.append(line.decode())
            lines.put(line.decode())

    # --- standard streams

    def send(self, method, params=None, **fields):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": META}, **fields}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self):
        return json.loads(self.out.get(timeout=PATIENCE))

    # --- HTTP

    def url(self):
        """Where it serves, as soon as it says so."""
        deadline = time.monotonic() + PATIENCE
        try:
            while not (line := self.err.get(timeout=max(0, deadline - time.monotonic()))).startswith("Serving "):
                pass
        except Empty:
            pytest.fail(f"it does not serve: {self.written}")
        self.announced = line
        return line.split()[-1]

    # --- the end

    def signal(self, number):
        """Its exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def end_of_input(self):
        self.process.stdin.close()
        return self.process.wait(PATIENCE)

    def text(self):
        """All it has written, once it has ended."""
        for reader in self._readers:
            reader.join(PATIENCE)
        return "".join(self.written)

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for reader in self._readers:
            reader.join(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()


@pytest.fixture
def post():
    """Sends a request over a connection of its own; gives the status and the decoded body."""

    def send(url, method, params=None, host=None):
        connection, response = open_stream(url, method, params, host)
        try:
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    return send


@pytest.fixture
def stream():
    """Opens a request's connection and gives the response, unread; closed at the end of the test."""
    connections = []

    def begin(url, method, params=None):
        connection, response = open_stream(url, method, params)
        connections.append(connection)
        return response

    yield begin
    for connection in connections:
        connection.close()


def open_stream(url, method, params=None, host=None):
    parts = urlsplit(url)
    headers = {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": method,
    }
    if host is not None:
        headers["Host"] = host
    if params and "name" in params:
        headers["Mcp-Name"] = params["name"]
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": META}}
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE)
    try:
        connection.request("POST", parts.path, json.dumps(body), headers)
        return connection, connection.getresponse()
    except BaseException:
        connection.close()
        raise
