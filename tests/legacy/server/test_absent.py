"""The older era can be deleted: the modern server does not need it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon import Client, Server, eras

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
# What a modern server and client are.
SUITE = [f"tests/{part}" for part in ("server", "transports", "asking", "rounds", "wire", "http", "client")]
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


# --- with the package, but without a module that it needs ---------------------------------------------------------


@pytest.mark.parametrize("mode", ["sessions", "stateless"])
def test_an_endpoint_whose_older_era_cannot_be_imported_is_not_made(monkeypatch, mode):
    monkeypatch.setitem(sys.modules, "antiphon.legacy.server.http", None)
    with pytest.raises(ModuleNotFoundError, match=r"antiphon\.legacy\.server\.http"):
        Server("tests").asgi(legacy=mode)
    Server("tests").asgi(legacy="reject")


def test_a_pipe_whose_older_era_cannot_be_imported_is_not_served(monkeypatch):
    monkeypatch.setitem(sys.modules, "antiphon.legacy.server.stdio", None)
    with pytest.raises(ModuleNotFoundError, match=r"antiphon\.legacy\.server\.stdio"):
        Server("tests").run()


async def test_a_client_whose_older_era_cannot_be_imported_says_which_module_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "antiphon.legacy.client.http", None)
    with pytest.raises(ModuleNotFoundError, match=r"antiphon\.legacy\.client\.http"):
        Client("http://127.0.0.1:9/mcp", era="legacy")
    link = eras.connect("http://127.0.0.1:9/mcp", versions=["2025-11-25"])
    with pytest.raises(ModuleNotFoundError, match=r"antiphon\.legacy\.client\.http"):
        await link.request({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers={})
