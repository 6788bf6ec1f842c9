"""Servers of the official SDK and of FastMCP that were given to `awaited`, with the official clients of both eras."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from .conversations import CONSENT, DECLINE, ROOTS, SUMMARY, Conversation, accept
from .programs import answers, end, free_port

pytestmark = [pytest.mark.peers, pytest.mark.heavy]

HERE = Path(__file__).parent
SHOPS = HERE.parent / "adapt" / "shops.py"
LIBRARIES = ["mcp", "fastmcp"]
YES = accept(sure=True)


def conversations(library: str) -> list[Conversation]:
    def told(name: str, tool: str, text: str, arguments: Any, answers: Any) -> Conversation:
        asked = sorted((_kind(text, answer), text) for text, answer in answers.items())
        return Conversation(
            name=name, site=library, tool=tool, text=text, arguments=arguments, answers=answers, asked=tuple(asked)
        )

    found = [
        told("a yes", "delete", "Deleted milk", {"name": "milk"}, {"Delete milk?": YES}),
        told("a no", "delete", "Kept milk", {"name": "milk"}, {"Delete milk?": DECLINE}),
        told("an unticked box", "delete", "Kept milk", {"name": "milk"}, {"Delete milk?": accept(sure=False)}),
        told("all swallowed", "purge", "Kept milk", {"name": "milk"}, {"Purge milk?": DECLINE}),
        told("in a thread", "discard", "Kept milk", {"name": "milk"}, {"Discard milk?": DECLINE}),
        told(
            "three rounds and a step",
            "provision",
            "T-db in eu x3: accept, decline",
            {"name": "db"},
            {
                "Where should db live?": accept(region="eu", replicas=3),
                "Go ahead with T-db?": YES,
                "Really?": DECLINE,
            },
        ),
        told("a page", "pay", "Payment of 3: accept", {"amount": 3}, {"Pay 3": CONSENT}),
        told("side by side", "compare", "accept accept", {}, {"Left?": YES, "Right?": accept(region="eu")}),
        told(
            "a model and folders",
            "describe",
            "Two files changed. file:///a, file:///b",
            {},
            {"Describe the shop": SUMMARY, "roots": ROOTS},
        ),
    ]
    if library == "mcp":
        given = {"Where is milk?": accept(region="eu"), "Sure of milk?": YES, "Move milk to eu?": YES, "Now?": YES}
        found.append(told("declared", "move", "Moved milk to eu: True, True, True", {"name": "milk"}, given))
    return found


def _kind(text: str, answer: Any) -> str:
    if text == "roots":
        return "roots"
    return "sample" if "role" in answer else "url" if answer == CONSENT else "form"


@pytest.fixture(scope="module", params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, library: str) -> Path:
    return tmp_path_factory.mktemp(library) / "server.log"


@pytest.fixture(scope="module")
def url(library: str, log: Path) -> Iterator[str]:
    port = free_port()
    # Without a key of its own, which it must tell.
    env = {name: value for name, value in os.environ.items() if name != "ANTIPHON_KEYS"}
    with log.open("w") as output:
        command = [sys.executable, str(SHOPS), library, "--http", str(port)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env)
        try:
            assert answers(process, port), log.read_text()[-2000:]
            yield f"http://127.0.0.1:{port}"
        finally:
            end(process)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory, library: str) -> str:
    path = tmp_path_factory.mktemp("adapted") / f"{library}.json"
    path.write_text(json.dumps([conversation.script for conversation in conversations(library)]))
    return str(path)


@pytest.mark.parametrize("transport", ["http", "stdio"])
@pytest.mark.parametrize("client", ["asking_client.py", "asking_client.mjs", "older_client.py", "older_client.mjs"])
def test_an_official_client_completes_every_conversation(
    request: pytest.FixtureRequest, converse: Any, library: str, script: str, client: str, transport: str
) -> None:
    if transport == "http":
        target = ["http", request.getfixturevalue("url")]
    else:
        target = ["stdio", sys.executable, str(SHOPS), "stdio"]
    if client.endswith(".py"):
        command = [sys.executable, str(HERE / client)]
    else:
        node, _, modules = request.getfixturevalue("official_typescript")
        command = [node, str(HERE / client), modules]
    told = converse([*command, script], target)
    is_old = client.startswith("older")
    assert told == {each.name: each.older_outcome if is_old else each.outcome for each in conversations(library)}


def test_a_server_says_that_its_key_is_of_its_process_alone(url: str, converse: Any, script: str, log: Path) -> None:
    converse([sys.executable, str(HERE / "asking_client.py"), script], ["http", url])
    assert log.read_text().count("ANTIPHON_KEYS") == 1


def test_the_installed_libraries_are_among_those_that_were_tried() -> None:
    """The newest are installed. When this fails, write what passed the tests above into `antiphon.adapt.versions`."""
    from antiphon.adapt import versions

    told = str(versions.moved("nothing"))
    assert version("mcp") in told
    assert version("fastmcp-slim") in told
