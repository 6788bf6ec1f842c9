"""A client starts fast: what it loads, and what it does not."""

import subprocess
import sys

import pytest

TARGETS = {
    "HTTP": "'http://127.0.0.1:9/mcp'",
    "stdio": "['true']",
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_a_client_loads_no_server_and_nothing_heavy(target):
    code = f"""
import sys
from antiphon import Client
Client({target}, elicit=print)
heavy = ("antiphon.server", "antiphon.shapes", "antiphon.rounds.token", "antiphon.stores", "antiphon.app",
         "antiphon.cli", "jsonschema_rs", "cryptography", "uvicorn", "uvloop", "click", "pydantic", "sqlite3", "email")
print(*[name for name in sys.modules if name in heavy])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.split() == []
