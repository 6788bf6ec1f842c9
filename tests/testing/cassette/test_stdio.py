"""The relay: how a server ends is how its recording ends."""

import json
import subprocess
import sys
from pathlib import Path

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
