"""A client of a server in a configuration file."""

import json
import sys

import pytest

from antiphon import Client, ConfigUnusable, Context, Server
from antiphon.testing import McpClient

SERVER = """
import os
from antiphon import Server

app = Server("notes")

@app.tool
def show(name: str) -> str:
    return f"{name}={os.environ.get(name)} in {os.path.basename(os.getcwd())}"

app.run()
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "s3cret")
    (tmp_path / "notes.py").write_text(SERVER)
    said = {
        "inputs": [{"id": "key", "type": "promptString", "password": True}],
        "servers": {
            "notes": {
                "command": sys.executable,
                "args": ["notes.py"],
                "env": {"A": "${env:SECRET}", "B": "${input:key}"},
            },
            "other": {"command": "x"},
        },
    }
    (tmp_path / "mcp.json").write_text(json.dumps(said))
    return tmp_path / "mcp.json"


async def test_a_client_is_made_from_an_entry(file):
    async with Client.from_config(file, "notes", inputs={"key": "k"}, env={"C": "c"}, timeout=20) as client:
        shown = [(await client.call_tool("show", {"name": name})).text for name in ("A", "B", "C", "SECRET")]
    here = file.parent.name
    assert shown == [f"A=s3cret in {here}", f"B=k in {here}", f"C=c in {here}", f"SECRET=None in {here}"]


async def test_a_client_of_a_url_sends_the_headers_of_the_entry(tmp_path, live):
    app = Server("remote")

    @app.tool
    async def keys(ctx: Context) -> str:
        return f"{ctx.headers.get('x-a')} {ctx.headers.get('x-b')}"

    said = {
        "mcpServers": {"r": {"url": f"http://127.0.0.1:{live(app.asgi())}/mcp", "headers": {"X-A": "1", "X-B": "2"}}}
    }
    (tmp_path / "mcp.json").write_text(json.dumps(said))
    async with Client.from_config(f"{tmp_path}/mcp.json:r", headers={"X-B": "3"}) as client:
        assert (await client.call_tool("keys")).text == "1 3"


def test_what_cannot_be_used_is_an_error_that_says_what_to_do(file):
    with pytest.raises(ConfigUnusable, match="there are notes, other"):
        Client.from_config(file)
    with pytest.raises(ConfigUnusable, match="set the environment variable ANTIPHON_INPUT_KEY"):
        Client.from_config(file, "notes")
    with pytest.raises(ConfigUnusable, match="There is no file"):
        Client.from_config(file.with_name("none.json"), "notes")
    with pytest.raises(TypeError, match="no_such_option"):
        Client.from_config(file, "other", no_such_option=1)


async def test_a_client_for_tests_is_made_in_the_same_way(file):
    client = McpClient.from_config(file, "notes", inputs={"key": "k"})
    try:
        result = await client.call_tool("show", {"name": "B"})
    finally:
        await client.close()
    assert (result.text, result.asked) == (f"B=k in {file.parent.name}", [])
