"""What starts a server for a developer hands over the whole environment, as a shell would."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from antiphon import Client
from antiphon.testing import ServerUnderTest
from antiphon.testing.cassette import Recorder

SCRIPT = str(Path(sys.executable).with_name("antiphon"))
SERVER = """
import os
from antiphon import Server
app = Server("paint")

@app.tool
def colour() -> str:
    return os.environ.get("COLOUR", "none")

if __name__ == "__main__":
    app.run()
"""
SUITE = """
server: {command: [python, paint.py]}
tests:
  - {name: paints, tool: colour, expect: {text: green}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLOUR", "green")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paint.py").write_text(SERVER)
    (tmp_path / "paint.mcp.yaml").write_text(SUITE)
    return tmp_path


def antiphon(*words: str) -> str:
    done = subprocess.run(
        [SCRIPT, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_call_hands_it_over() -> None:
    assert "green" in antiphon("call", "paint.py", "colour")


def test_a_suite_hands_it_over() -> None:
    antiphon("test", "paint.mcp.yaml")


@pytest.mark.heavy
def test_recording_and_verifying_hand_it_over() -> None:
    assert "green" in antiphon("call", f"{SCRIPT} record --target paint.py --output session.json", "colour")
    antiphon("verify", "session.json", "--target", "paint.py")


@pytest.mark.parametrize("env", [None, {"SHADE": "light"}])
async def test_the_test_kit_hands_it_over(env: dict[str, str] | None) -> None:
    async with Client(ServerUnderTest(target="paint.py", env=env).link()) as client:
        assert (await client.call_tool("colour")).text == "green"


async def test_instances_that_take_turns_get_it() -> None:
    async with Client(ServerUnderTest(target=[sys.executable, "paint.py"], rotate=2).link()) as client:
        assert (await client.call_tool("colour")).text == "green"


async def test_a_recorder_hands_it_over() -> None:
    async with Client(Recorder("paint.py", "session.json")) as client:
        assert (await client.call_tool("colour")).text == "green"


async def test_what_is_given_wins() -> None:
    link: Any = ServerUnderTest(target="paint.py", env={"COLOUR": "blue"}).link()
    async with Client(link) as client:
        assert (await client.call_tool("colour")).text == "blue"
