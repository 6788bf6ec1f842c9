"""A server that answers discovery with older revisions only is spoken to as an old one, whatever is asked first."""

import subprocess
import sys
from pathlib import Path

import pytest

from antiphon import Accepted, Client, Discovery, Refused, eras

from .programs import served

OLDER = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
SCRIPT = str(Path(sys.executable).with_name("antiphon"))


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    command = [sys.executable, str(Path(__file__).with_name("sessions_only_server.py"))]
    with served(command, tmp_path_factory.mktemp("sessions-only")) as url:
        yield url


@pytest.fixture(autouse=True)
def nothing_is_known():
    eras._found.clear()


async def discover(client):
    assert (await client.discover()).supported_versions == ["2025-11-25"]


async def tools(client):
    assert [tool.name for tool in await client.list_tools()] == ["paint"]


async def call(client):
    result = await client.call_tool("paint")
    assert (result.text, result.rounds) == ("red", 2)


@pytest.mark.parametrize("first", [discover, tools, call], ids=["discovery", "a list", "a call"])
@pytest.mark.parametrize(
    "prior", [None, Discovery(supported_versions=OLDER), Discovery(supported_versions=["2026-07-28"])]
)
async def test_whatever_comes_first_the_server_is_an_old_one(url, first, prior):
    async with Client(url, elicit=lambda _: Accepted("red"), prior=prior) as client:
        for act in (first, discover, tools, call):
            await act(client)
            assert (client.era, client.protocol_version) == ("legacy", "2025-11-25")


async def test_a_pinned_modern_client_says_so(url):
    async with Client(url, era="2026-07-28") as client:
        with pytest.raises(Refused, match="speaks only older revisions than 2026-07-28 .*2025-11-25.*era='auto'"):
            await client.discover()


def run(*words, folder):
    return subprocess.run(
        [SCRIPT, *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False
    )


def test_the_command_line_calls_it(url, tmp_path):
    (tmp_path / "answers.yaml").write_text("colour: red")
    done = run("call", url, "paint", "--answers", "answers.yaml", folder=tmp_path)
    assert (done.returncode, "red" in done.stdout) == (0, True), done.stderr


def test_the_command_line_lists_it(url, tmp_path):
    done = run("call", url, folder=tmp_path)
    assert "paint" in done.stdout, done.stderr


def test_a_suite_tests_it(url, tmp_path):
    (tmp_path / "suite.yaml").write_text(f"""
server:
  url: {url}
tests:
  - name: paints
    tool: paint
    inputResponses: {{colour: red}}
    expect: {{text: red, rounds: 2}}
""")
    done = run("test", "suite.yaml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
