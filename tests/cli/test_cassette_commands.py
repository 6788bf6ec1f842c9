"""``antiphon record``, ``replay`` and ``verify``: pipes between programs, exit codes, and what a person is told."""

import json
import signal
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from antiphon.cli import commands
from antiphon.testing.cassette import Cassette

pytestmark = pytest.mark.heavy
SERVER = """
from antiphon import Context, Server
app = Server("releases", version="1.0.0")

@app.tool
async def deploy(env: str, ctx: Context) -> str:
    return f"Deployed to {env}" if await ctx.confirm(f"Deploy to {env}?") else "Not deployed"
"""
YES = {"confirm": {"action": "accept", "content": {"confirm": True}}}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command in this process; for those that end before anything is served."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "releases.py").write_text(SERVER)
    return lambda *args: CliRunner().invoke(commands, args, prog_name="antiphon", catch_exceptions=False)


@pytest.fixture
def releases(tmp_path):
    (tmp_path / "releases.py").write_text(SERVER)
    return tmp_path / "releases.py"


def deploy(process, env="prod", answers=None):
    """A call, with its question answered; the text of the result, or of the error."""
    process.send("tools/call", {"name": "deploy", "arguments": {"env": env}}, id=1)
    asked = process.receive()
    if "error" in asked:
        return asked["error"]["message"]
    more = {"inputResponses": answers or YES, "requestState": asked["result"]["requestState"]}
    process.send("tools/call", {"name": "deploy", "arguments": {"env": env}, **more}, id=2)
    reply = process.receive()
    return reply["error"]["message"] if "error" in reply else reply["result"]["content"][0]["text"]


def test_a_session_is_recorded_on_pipes_played_and_verified(start, antiphon, releases, tmp_path):
    tape = tmp_path / "session.json"
    recording = start("record", "--target", "releases.py", "--output", "session.json")
    assert deploy(recording) == "Deployed to prod"
    assert recording.end_of_input() == 0
    assert [len(entry.turns) for entry in Cassette.load(tape).entries] == [4]

    playing = start("replay", "session.json", "--complete")
    assert deploy(playing) == "Deployed to prod"
    assert playing.end_of_input() == 0

    verified = antiphon("verify", "session.json", "--target", "releases.py")
    assert (verified.returncode, verified.stdout) == (0, "= 1. tools/call deploy\n1 as recorded\n"), verified.stderr

    releases.write_text(SERVER.replace("Deployed to", "Shipped to"))
    verified = antiphon("verify", "session.json", "--target", "releases.py")
    assert verified.returncode == 1
    assert "≠ 1. tools/call deploy" in verified.stdout
    assert '+          "text": "Shipped to prod",' in verified.stdout
    assert verified.stdout.endswith("\n0 as recorded, 1 not\n")


@pytest.fixture
def tape(tmp_path):
    """A recorded conversation without a question."""
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    call = {"id": "${id:1}", "method": "tools/call", "params": {"name": "deploy", "arguments": {"env": "prod"}}}
    result = {"content": [{"type": "text", "text": "Deployed"}]}
    turns = [{"as": 1, "client": call}, {"server": {"id": "${id:1}", "result": result}}]
    file = tmp_path / "tape.json"
    file.write_text(json.dumps({"antiphon-cassette": 1, "clients": [{"meta": meta}], "entries": [{"turns": turns}]}))
    return file


def test_drift_is_an_error_for_the_client_and_a_diff_for_the_person(start, tape):
    playing = start("replay", "tape.json")
    assert deploy(playing, "test") == "Not as recorded: tools/call deploy: it is not what was recorded"
    assert playing.end_of_input() == 1
    told = playing.text()
    assert '-      "env": "prod"' in told
    assert '+      "env": "test"' in told
    assert "Not asked for: tools/call deploy" in told


def test_a_replay_over_http_ends_with_the_code_of_its_drift(start, tape, post):
    playing = start("replay", "tape.json", "--http", "--port", "0")
    line = playing.err.get(timeout=20)
    assert line.startswith("Playing tape.json on http://127.0.0.1:")
    status, reply = post(line.split()[-1], "tools/call", {"name": "deploy", "arguments": {"env": "prod"}})
    assert (status, reply["result"]["content"][0]["text"]) == (200, "Deployed")
    assert playing.signal(signal.SIGTERM) == 0


def test_a_recording_over_http_is_written_when_it_is_stopped(start, releases, post, tmp_path):
    serving = start("serve", "releases.py", "--http", "--port", "0")
    recording = start("record", "--target", serving.url(), "--output", "out.json", "--port", "0")
    line = recording.err.get(timeout=20)
    assert line.startswith("Recording http://127.0.0.1:")
    assert post(line.split()[-1], "tools/list")[0] == 200
    assert recording.signal(signal.SIGTERM) == 0
    assert "Recorded 1 entry in out.json" in recording.text()
    assert [entry.title for entry in Cassette.load(tmp_path / "out.json").entries] == ["tools/list"]


def test_a_server_that_does_not_start_is_code_3(antiphon, tape):
    target = f'{sys.executable} -c "import nowhere"'
    for args in (["record", "--output", "x.json"], ["verify", "tape.json"]):
        ended = antiphon(*args, "--target", target)
        assert ended.returncode == 3, ended
        assert "Error: The server's process" in ended.stderr


def test_a_recording_that_failed_leaves_the_older_one_alone(antiphon, tape):
    before = tape.read_bytes()
    ended = antiphon("record", "--output", tape.name, "--target", f'{sys.executable} -c "import nowhere"')
    assert ended.returncode == 3, ended
    assert tape.read_bytes() == before


def test_a_broken_cassette_is_code_2(run):
    Path("bad.json").write_text('{"antiphon-cassette": 1,\n "entries": [}')
    Path("new.json").write_text('{"antiphon-cassette": 9, "entries": []}')
    for args in (["replay"], ["verify", "--target", "releases.py"]):
        for file, says in (
            ("bad.json", "bad.json:2:14: not JSON"),
            ("new.json", "new.json: a cassette of version 9"),
            ("none.json", "none.json: cannot be read"),
        ):
            ended = run(args[0], file, *args[1:])
            assert ended.exit_code == 2
            assert f"Error: {says}" in ended.stderr


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["record", "--output", "x.json"], "Missing option '--target'"),
        (["record", "--target", "releases.py"], "Missing option '--output'"),
        (["record", "--target", "releases.py", "--output", "x.json", "--blind", "$.a["], "makes no sense"),
        (["record", "--target", "gone.py", "--output", "x.json"], "There is no file gone.py"),
        (["verify", "x.json", "--target", "releases.py", "--header", "a: b"], "--header can only be used with a URL"),
        (["verify", "t.json", "--target", "releases.py", "--secret", "NO_SUCH_VARIABLE"], "no environment variable"),
    ],
)
def test_wrong_usage_is_said_and_ends_with_code_2(run, args, says):
    Path("t.json").write_text('{"antiphon-cassette": 1, "entries": []}')
    ended = run(*args)
    assert ended.exit_code == 2
    assert says in ended.stderr
