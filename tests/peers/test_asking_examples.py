"""The official clients through every example of examples/asking, with their own loops answering.

Those of 2026 over HTTP, where every leg of a call is a request; those of 2025 over HTTP and standard streams, where the
questions come in the middle of one.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.rounds.token import generate_key

from .conversations import conversations

pytestmark = [pytest.mark.peers, pytest.mark.heavy]

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "asking"
CONVERSATIONS = conversations()
PATIENCE = 10.0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where all the examples are served, by one process."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    command = [sys.executable, str(HERE / "examples_server.py"), str(listening.fileno())]
    environment = {**os.environ, "ANTIPHON_KEYS": generate_key(b"p" * 32)}
    with listening:
        process = subprocess.Popen(command, env=environment, pass_fds=[listening.fileno()])
    yield address
    process.kill()
    process.wait(PATIENCE)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("asking") / "conversations.json"
    path.write_text(json.dumps([conversation.script for conversation in CONVERSATIONS]))
    return str(path)


@pytest.fixture(scope="module", params=["python", "typescript"])
def told(request: pytest.FixtureRequest, converse: Any, url: str, script: str) -> Any:
    """How all the conversations went with one of the clients."""
    if request.param == "python":
        client = [sys.executable, str(HERE / "asking_client.py")]
    else:
        node, _, modules = request.getfixturevalue("official_typescript")
        client = [node, str(HERE / "asking_client.mjs"), modules]
    return converse([*client, script], ["http", url])


@pytest.fixture(
    scope="module",
    params=["python-http", "python-stdio", "typescript-http", "typescript-stdio", "ours-http", "ours-stdio"],
)
def told_of_old(request: pytest.FixtureRequest, converse: Any, script: str) -> Any:
    """The same with a client of 2025, on one of the transports."""
    language, _, transport = request.param.partition("-")
    if transport == "http":
        target = ["http", request.getfixturevalue("url")]
    else:
        target = ["stdio", sys.executable, str(HERE / "examples_server.py"), "stdio"]
    if language == "python":
        client = [sys.executable, str(HERE / "older_client.py")]
    elif language == "ours":
        client = [sys.executable, str(HERE / "our_client.py"), "legacy"]
    else:
        node, _, modules = request.getfixturevalue("official_typescript")
        client = [node, str(HERE / "older_client.mjs"), modules]
    return converse([*client, script], target)


def test_the_official_client_completes_every_example(told: Any) -> None:
    assert told == {conversation.name: conversation.outcome for conversation in CONVERSATIONS}


def test_a_client_of_2025_completes_every_example(told_of_old: Any) -> None:
    assert told_of_old == {conversation.name: conversation.older_outcome for conversation in CONVERSATIONS}


def test_every_example_is_told_in_each_of_its_styles() -> None:
    sites = {conversation.site for conversation in CONVERSATIONS}
    tools = {(conversation.site, conversation.tool) for conversation in CONVERSATIONS}
    assert sites == {path.stem for path in EXAMPLES.glob("*.py")} | {"region_low_level", "upgraded"}
    assert len(tools) == 3 * (len(sites) - 2) + 2
