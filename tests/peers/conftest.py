"""Our server in a process of its own, and the official clients as programs that talk to it."""

import json
import sys
from pathlib import Path

import pytest

from .programs import node_program, run, served

HERE = Path(__file__).parent
SERVER = [sys.executable, str(HERE / "server.py")]
CONVERSATION_TIMEOUT = 60.0


@pytest.fixture(scope="session")
def http_url(tmp_path_factory):
    """Where the server answers over HTTP."""
    with served(SERVER, tmp_path_factory.mktemp("peers")) as url:
        yield url


@pytest.fixture(scope="session", params=["http", "stdio"])
def target(request):
    """How a client program is told where the server is: one of the two transports."""
    return ["http", request.getfixturevalue("http_url")] if request.param == "http" else ["stdio", *SERVER]


@pytest.fixture(scope="session")
def official_typescript():
    """The command of the TypeScript client; its packages are installed the first time."""
    return node_program(HERE / "client.mjs")


@pytest.fixture(scope="session")
def official_python():
    """The command of the Python client."""
    return [sys.executable, str(HERE / "client.py")]


@pytest.fixture(scope="session")
def converse():
    """Runs a client program against a target and gives what it saw."""
    return lambda client, target: json.loads(run([*client, *target], timeout=CONVERSATION_TIMEOUT))
