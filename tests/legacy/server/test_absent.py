"""The older era can be deleted: the modern server does not need it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
# What a modern server and client are.
SUITE = [f"tests/{part}" for part in ("server", "transports", "asking", "rounds", "wire", "protocol", "client")]
PATIENCE = 300.0

PROGRAM = """
import absent, json
from antiphon import Server
app = Server("tests")
endpoint = app.asgi()
try:
    import antiphon.legacy
except ModuleNotFoundError:
    app.run()
"""


def without(*command, **options):
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        **options,
    )


@pytest.mark.heavy
def test_the_modern_suite_passes_without_the_older_era():
    done = without(
        "-m", "pytest", "-q", "--no-header", "-p", "absent", "-p", "no:cacheprovider", "-m", "not heavy", *SUITE
    )
    assert done.returncode == 0, done.stdout[-3000:]
    passed = int(done.stdout.split(" passed")[0].rsplit(maxsplit=1)[-1])
    assert passed > 2000


def test_a_server_without_the_older_era_tells_old_clients_what_it_speaks():
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    done = without("-c", PROGRAM, input=json.dumps(message) + "\n")
    assert done.returncode == 0, done.stderr
    assert "2026-07-28" in json.dumps(json.loads(done.stdout)["error"])
