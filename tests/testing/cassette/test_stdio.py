"""Standard streams: how a server ends is how its recording ends, and an old server may be probed or not."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from antiphon.testing.cassette import Cassette

ANTIPHON = str(Path(sys.executable).with_name("antiphon"))
PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}) + "\n"
SERVER = """
import json, os, sys
for line in sys.stdin:
    print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": {}}), flush=True)
    END
"""


@pytest.mark.parametrize(
    ("end", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137), ("pass", 0), ("sys.stdout.close()", 1)]
)
def test_the_exit_code_of_a_server_is_passed_on(tmp_path: Path, end: str, code: int) -> None:
    (tmp_path / "server.py").write_text(SERVER.replace("END", end))
    command = [ANTIPHON, "record", "--target", f"{sys.executable} server.py", "--output", "out.json"]
    done = subprocess.run(
        command, input=PING * 2, capture_output=True, text=True, cwd=tmp_path, timeout=20, check=False
    )
    assert done.returncode == code, done.stderr
    assert Cassette.load(tmp_path / "out.json").entries[0].title == "ping"


@pytest.mark.parametrize(("handles", "code"), [("signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))", 5), ("", 0)])
def test_a_server_that_has_to_be_told_to_end_keeps_its_own_exit_code(tmp_path: Path, handles: str, code: int) -> None:
    server = f"import signal\n{SERVER.replace('END', 'pass')}\nsignal.pause()"
    (tmp_path / "server.py").write_text(server.replace("\nfor line", f"\n{handles}\nfor line"))
    command = [ANTIPHON, "record", "--target", f"{sys.executable} server.py", "--output", "out.json"]
    done = subprocess.run(command, input=PING, capture_output=True, text=True, cwd=tmp_path, timeout=20, check=False)
    assert done.returncode == code, done.stderr
    assert Cassette.load(tmp_path / "out.json").entries[0].title == "ping"


OLD = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    made = {"error": {"code": -32601, "message": "Method not found"}}
    if message["method"] == "initialize":
        made = {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x"}}}
    elif message["method"] == "tools/call":
        made = {"result": {"content": [{"type": "text", "text": json.dumps(message["params"]["arguments"])}]}}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **made}), flush=True)
"""
PROBE = {"id": 0, "method": "server/discover"}
OPENING = [{"id": 1, "method": "initialize", "params": {}}, {"method": "notifications/initialized"}]
CALL = {"id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"b": 1, "a": 2}}}


@pytest.mark.heavy
@pytest.mark.parametrize("recorded", [[PROBE, *OPENING, CALL], [*OPENING, CALL]], ids=["probed", "not probed"])
def test_a_recording_of_an_old_server_is_replayed_with_a_probe_and_without(tmp_path: Path, recorded: list[Any]) -> None:
    (tmp_path / "server.py").write_text(OLD)

    def antiphon(*args: str, lines: list[Any]) -> subprocess.CompletedProcess[str]:
        text = "".join(json.dumps({"jsonrpc": "2.0", **line}) + "\n" for line in lines)
        return subprocess.run(
            [ANTIPHON, *args], input=text, capture_output=True, text=True, cwd=tmp_path, timeout=20, check=True
        )

    target = f"{sys.executable} server.py"
    heard = antiphon("record", "--target", target, "--output", "old.json", lines=recorded).stdout.splitlines()
    for lines in ([PROBE, *OPENING, CALL], [*OPENING, CALL]):
        replayed = antiphon("replay", "old.json", "--complete", lines=lines)
        assert replayed.stderr == ""
        assert [json.loads(line) for line in replayed.stdout.splitlines()[-2:]] == list(map(json.loads, heard[-2:]))
    verified = antiphon("verify", "old.json", "--target", target, lines=[])
    assert verified.stdout.endswith(f"{len(recorded) - 1} as recorded\n"), verified.stdout
