"""``antiphon serve`` of a server that is protected, by itself or by a gateway in front of it."""

import contextlib
import os
import socket
import subprocess
import sys

import pytest

from antiphon import Client, Refused
from antiphon.auth import OAuth
from antiphon.testing import Issuer

pytestmark = pytest.mark.heavy

NOTES = """
import os
from antiphon import Context, Server
from antiphon.auth import Protected

app = Server("notes", auth=Protected(scopes=["read"]))
plain = Server("plain")


@app.tool
@plain.tool
async def who(ctx: Context) -> str:
    return f"{ctx.principal} {os.getpid()}"
"""


@pytest.fixture
def notes(tmp_path):
    (tmp_path / "notes.py").write_text(NOTES)
    return str(tmp_path / "notes.py")


@contextlib.contextmanager
def serving(*words, **env):
    """Start ``antiphon serve``; the first line that it says."""
    process = subprocess.Popen(
        [sys.executable, "-m", "antiphon", "serve", "--http", "--port", "0", *words],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process.stderr.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=20)


async def test_a_protected_server_says_what_it_protects_and_is_served(notes):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url, issuer = f"http://127.0.0.1:{port}/mcp", Issuer()
    async with issuer.serving():
        words = (f"{notes}:app", "--url", url, "--workers", "2", "--port", str(port))
        with serving(*words, ANTIPHON_ISSUER=issuer.url) as line:
            assert line == f"Serving notes on {url}, protected as {url} by {issuer.url}"
            async with Client(url, auth=OAuth(visit=issuer.visit)) as client:
                assert (await client.call_tool("who")).text.startswith(f"{issuer.url} ada ")
            with pytest.raises(Refused, match="token"):
                async with Client(url) as client:
                    await client.call_tool("who")


async def test_a_gateway_says_who_calls_in_a_header(notes):
    env = {"ANTIPHON_RESOURCE": "https://x.example/mcp", "ANTIPHON_ISSUER": "https://auth.example"}
    with serving(f"{notes}:plain", "--principal", "X-User", "--workers", "2", **env) as line:
        url = line.split()[-1]
        async with Client(url, headers={"X-User": "ada"}) as client:
            assert (await client.call_tool("who")).text.startswith("ada ")
        with pytest.raises(Refused, match="X-User") as refused:
            async with Client(url) as client:
                await client.call_tool("who")
        assert refused.value.status == 401


def test_a_protected_server_needs_no_gateway(notes):
    env = {"ANTIPHON_RESOURCE": "https://x.example/mcp", "ANTIPHON_ISSUER": "https://auth.example"}
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", "serve", f"{notes}:app", "--http", "--principal", "X-User"],
        check=False,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    assert "use one of them" in done.stderr


def test_a_protected_server_on_standard_streams_says_once_that_it_is_not(notes):
    env = {"ANTIPHON_RESOURCE": "https://x.example/mcp", "ANTIPHON_ISSUER": "https://auth.example"}
    done = subprocess.run(
        [sys.executable, "-m", "antiphon", "serve", f"{notes}:app"],
        check=False,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stderr.count("is protected over HTTP only") == 1
