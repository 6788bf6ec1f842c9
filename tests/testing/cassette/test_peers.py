"""One recording for three clients: ours, the official Python one and the official TypeScript one."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from antiphon import Accepted, Cancelled, Client, Declined, Root, Sample, Text
from antiphon.testing.cassette.format import Cassette
from antiphon.testing.cassette.http import RecordingProxy, ReplayApp
from antiphon.testing.cassette.recording import Recording
from antiphon.testing.cassette.replaying import Replay

pytestmark = [pytest.mark.peers, pytest.mark.heavy]

ROOT = Path(__file__).parents[3]
PEERS = ROOT / "tests" / "peers"
SITE = "four_kinds"
PATIENCE = 60.0
Live = Callable[[Any], int]


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"cassette_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


CONVERSATIONS = [each for each in loaded(PEERS / "conversations.py").conversations() if each.site == SITE]


def ran(*command: str) -> Any:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def official_python(url: str, script: Path) -> Any:
    return ran(sys.executable, str(PEERS / "asking_client.py"), str(script), "http", url)


def official_typescript(url: str, script: Path) -> Any:
    node = ran(sys.executable, str(ROOT / "scripts" / "node.py"))
    return ran(node["node"], str(PEERS / "asking_client.mjs"), node["modules"], str(script), "http", url)


async def ours(url: str) -> dict[str, Any]:
    """The same conversations with our client."""
    told: dict[str, Any] = {}
    for each in CONVERSATIONS:
        asked: list[list[str]] = []

        def answer(kind: str, text: str, given: Any = each.answers, asked: Any = asked) -> Any:
            asked.append([kind, text])
            return given[text]

        def elicit(question: Any, answer: Any = answer) -> Any:
            made = answer(question.mode, question.message)
            return {"accept": Accepted(made.get("content")), "decline": Declined(), "cancel": Cancelled()}[
                made["action"]
            ]

        def sample(wanted: Any, answer: Any = answer) -> Sample:
            made = answer("sample", wanted.messages[0].content.text)
            return Sample(role="assistant", content=Text(made["content"]["text"]), model=made["model"])

        def roots(answer: Any = answer) -> list[Root]:
            return [Root(**root) for root in answer("roots", "roots")["roots"]]

        async with Client(f"{url}/{SITE}/mcp", elicit=elicit, elicit_url=elicit, sample=sample, roots=roots) as client:
            await client.list_tools()  # as the official Python client does
            made = await client.call_tool(each.tool, each.arguments)
            told[each.name] = {
                "revision": client.protocol_version,
                "text": made.text,
                "is_error": made.is_error,
                "asked": sorted(asked),
            }
    return told


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([each.script for each in CONVERSATIONS]))
    return file


async def recorded(live: Live) -> Cassette:
    """A recording of the example, served by a fresh instance with a key of its own."""
    recording = Recording()
    app = loaded(ROOT / "examples" / "asking" / f"{SITE}.py").app
    target = f"http://127.0.0.1:{live(app.asgi(path=f'/{SITE}/mcp'))}/{SITE}/mcp"
    assert await ours(f"http://127.0.0.1:{live(RecordingProxy(target, recording))}") == OUTCOMES
    return recording.cassette()


OUTCOMES = {each.name: each.outcome for each in CONVERSATIONS}


@contextmanager
def played(live: Live, cassette: Cassette) -> Iterator[str]:
    replay = Replay(cassette)
    yield f"http://127.0.0.1:{live(ReplayApp(replay, path=f'/{SITE}/mcp'))}"
    assert [str(drift) for drift in replay.drifts] == []
    assert [entry.title for entry in replay.unplayed if entry.title.startswith("tools/call")] == []


async def test_a_recording_from_a_random_key_is_played_to_all_three_clients(
    live: Live, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTIPHON_KEYS", raising=False)
    cassette = await recorded(live)
    assert (await recorded(live)).to_json() == cassette.to_json()
    with played(live, cassette) as url:
        assert official_python(url, script) == OUTCOMES
    with played(live, cassette) as url:
        assert official_typescript(url, script) == OUTCOMES
    with played(live, cassette) as url:
        assert await ours(url) == OUTCOMES


# --- the older revisions ------------------------------------------------------------------------------------------

OLD_CLIENT = """
import asyncio, json, sys
from mcp import Client, StdioServerParameters
from mcp.types import CreateMessageResult, ElicitResult, ListRootsResult

async def elicit(_, params):
    return ElicitResult(action="accept", content={"confirm": True})
async def sample(_, params):
    said = {"role": "assistant", "content": {"type": "text", "text": "Bob"}, "model": "m"}
    return CreateMessageResult.model_validate(said)
async def roots(_):
    return ListRootsResult.model_validate({"roots": [{"uri": "file:///a"}]})

async def main(command):
    target = StdioServerParameters(command=command[0], args=command[1:])
    answers = {"elicitation_callback": elicit, "sampling_callback": sample, "list_roots_callback": roots}
    async with Client(target, mode="legacy", **answers) as client:
        asked = await client.call_tool("declared", {"env": "prod"})
        steps = []
        async def step(progress, total, message):
            steps.append(progress)
        counted = await client.call_tool("count", {"to": 2}, progress_callback=step)
        texts = [result.content[0].text for result in (asked, counted)]
        return [client.protocol_version, *texts, steps]

print(json.dumps([asyncio.run(main(command)) for command in json.loads(sys.argv[1])]))
"""


def test_the_official_pair_in_the_old_era_is_recorded_and_played_on_pipes(tmp_path: Path) -> None:
    antiphon, tape = str(Path(sys.executable).with_name("antiphon")), tmp_path / "old.json"
    server = f"{sys.executable} {PEERS / 'asking_server.py'}"
    recording = [antiphon, "record", "--target", server, "--output", str(tape)]
    playing = [antiphon, "replay", str(tape), "--complete"]
    heard, again = ran(sys.executable, "-c", OLD_CLIENT, json.dumps([recording, playing]))
    assert heard == again == ["2025-11-25", "prod True Bob file:///a", "counted to 2", [1.0, 2.0]]
    assert Cassette.load(tape).is_old
