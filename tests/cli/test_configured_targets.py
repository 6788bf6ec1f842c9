"""An entry of a configuration file as the target of every command."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from antiphon import Context, Server
from antiphon.cli import commands
from antiphon.cli.target import read_targets

from .conftest import META
from .pseudo_terminal import ENTER, PseudoTerminal

ANTIPHON = [sys.executable, "-m", "antiphon"]
SERVER = """
import os
from antiphon import Context, Server

app = Server("notes")

@app.tool
def show(name: str) -> str:
    return f"{name}={os.environ.get(name)} in {os.path.basename(os.getcwd())}"

@app.tool
async def add(title: str, ctx: Context) -> str:
    return f"Added {title}" if await ctx.confirm(f"Add {title}?") else "Left out"
"""
NOTES = {"command": sys.executable, "args": ["-m", "antiphon", "serve", "notes.py"], "env": {"TOKEN": "${env:SECRET}"}}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SECRET", "s3cret")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/notes.py").write_text(SERVER)
    configure({"notes": NOTES, "other": {"command": "no-such-command"}})
    return tmp_path / "shop"


def configure(servers, file="shop/mcp.json"):
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(json.dumps({"mcpServers": servers}))


def run(*words):
    return CliRunner().invoke(commands, words, prog_name="antiphon", catch_exceptions=False)


def test_a_call_starts_the_entry_in_its_folder_with_its_environment():
    done = run("call", "shop/mcp.json:notes", "show", "name=TOKEN")
    assert (done.exit_code, done.stdout) == (0, "TOKEN=s3cret in shop\n")


def test_a_host_is_named_in_the_place_of_a_file(folder, monkeypatch):
    configure({"notes": NOTES}, "shop/.cursor/mcp.json")
    monkeypatch.chdir(folder)
    assert run("call", "cursor", "show", "name=TOKEN").stdout == "TOKEN=s3cret in shop\n"


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("shop/mcp.json", "shop/mcp.json has several servers; there are notes, other: choose one"),
        ("shop/mcp.json:nots", "shop/mcp.json has no server 'nots': there are notes, other"),
        ("shop/mcp.json:other", "shop/mcp.json:other: there is no command 'no-such-command'"),
        ("gone.json:x", "There is no file "),
        ("curser:notes", "nor a host of that name (there are claude-code, claude-desktop, cursor, gemini, vscode)"),
        ("localhost:8000", "did you mean http://localhost:8000?"),
        ("gemini:notes", "Gemini CLI is not configured here: there is no "),
    ],
)
def test_a_target_that_leads_nowhere_is_explained(target, told):
    done = run("call", target)
    assert (done.exit_code, told in " ".join(done.output.split())) == (2, True), done.output


def test_a_waiting_call_finds_its_entry_again_with_its_secrets(tmp_path, monkeypatch):
    key = "ANTIPHON_KEYS"
    monkeypatch.setenv(key, CliRunner().invoke(commands, ["keygen"]).output.strip())
    assert run("call", "shop/mcp.json:notes", "add", "title=Milk", "--pending", "wait.json").exit_code == 5
    kept = Path("wait.json").read_text()
    assert json.loads(kept)["target"] == f"{tmp_path}/shop/mcp.json:notes"
    assert "s3cret" not in kept
    Path("yes.yaml").write_text("confirm: true\n")
    monkeypatch.chdir("/")
    done = run("resume", str(tmp_path / "wait.json"), "--answers", str(tmp_path / "yes.yaml"))
    assert (done.exit_code, done.stdout) == (0, "Added Milk\n"), done.output


def test_a_url_is_called_with_the_headers_of_its_entry_and_an_option_goes_before_them(live):
    app = Server("remote")

    @app.tool
    async def key(ctx: Context) -> str:
        return str(ctx.headers.get("x-key"))

    url = f"http://127.0.0.1:{live(app.asgi())}/mcp"
    configure({"remote": {"type": "http", "url": url, "headers": {"X-Key": "${SECRET}"}}}, "mcp.json")
    assert run("call", "mcp.json", "key").stdout == "s3cret\n"
    assert run("call", "mcp.json", "key", "--header", "x-key: mine").stdout == "mine\n"
    record = ["record", "--target", "mcp.json:remote", "--output", "tape.json", "--port", "0"]
    with subprocess.Popen([*ANTIPHON, *record], stderr=subprocess.PIPE, text=True) as proxy:
        at = proxy.stderr.readline().split()[-1]
        assert run("call", at, "key").stdout == "s3cret\n"
        proxy.terminate()
    tape = Path("tape.json").read_text()
    assert "tools/call" in tape
    assert "x-key" not in tape.lower()
    done = run("verify", "tape.json", "--target", "mcp.json:remote")
    assert done.exit_code == 0, done.output


def test_a_command_is_recorded_and_verified_with_its_environment(folder):
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "show", "arguments": {"name": "TOKEN"}, "_meta": META},
    }
    record = ["record", "--target", "shop/mcp.json:notes", "--output", "tape.json"]
    said = f"{json.dumps(message)}\n"
    done = subprocess.run([*ANTIPHON, *record], input=said, capture_output=True, text=True, check=False, timeout=30)
    assert "TOKEN=s3cret in shop" in done.stdout, done.stderr
    verified = run("verify", "tape.json", "--target", "shop/mcp.json:notes")
    assert verified.exit_code == 0, verified.output


def test_a_suite_names_an_entry_as_its_server():
    tests = [
        {"name": "knows", "tool": "show", "arguments": {"name": "TOKEN"}, "expect": {"text": "TOKEN=s3cret in shop"}}
    ]
    Path("a.mcp.yaml").write_text(json.dumps({"server": {"config": "shop/mcp.json:notes"}, "tests": tests}))
    done = run("test", "a.mcp.yaml")
    assert (done.exit_code, "1 passed" in done.output) == (0, True), done.output
    Path("a.mcp.yaml").write_text(json.dumps({"server": {"config": "shop/mcp.json:nots"}, "tests": tests}))
    done = run("test", "a.mcp.yaml")
    assert done.exit_code == 2
    assert "a.mcp.yaml:1:23: shop/mcp.json has no server 'nots': there are notes, other" in done.output


def test_a_first_suite_is_written_for_an_entry():
    done = run("init-tests", "shop/mcp.json:notes", "-o", "tests/first.mcp.yaml")
    assert done.exit_code == 0, done.output
    assert "server: {config: '../shop/mcp.json:notes'}" in Path("tests/first.mcp.yaml").read_text()


def test_a_login_is_for_an_entry_with_a_url():
    done = run("logout", "shop/mcp.json:notes")
    assert (done.exit_code, "mcp.json:notes has no URL to sign in to: it is a command" in done.output) == (2, True)
    configure({"remote": {"url": "http://example.com/mcp"}}, "mcp.json")
    done = run("logout", "mcp.json")
    assert (done.exit_code, "http://example.com/mcp" in done.output) == (2, True), done.output


def test_all_servers_of_a_file_are_read_unless_they_are_disabled():
    off = {"command": "x", "disabled": True}
    configure({"notes": NOTES, "off": off, "remote": {"url": "http://127.0.0.1:1/mcp"}})
    found = read_targets("shop/mcp.json")
    assert list(found) == ["notes", "remote"]
    assert found["notes"].env == {"TOKEN": "s3cret"}
    assert found["remote"].target == "http://127.0.0.1:1/mcp"
    assert list(read_targets("shop/mcp.json:notes")) == [""]
    assert read_targets("http://127.0.0.1:1/mcp")[""].text == "http://127.0.0.1:1/mcp"


def test_an_input_is_asked_for_in_the_terminal_and_a_password_is_not_shown(tmp_path):
    inputs = [
        {"id": "token", "type": "promptString", "description": "Token of the shop", "password": True},
        {"id": "place", "type": "pickString", "options": ["home", "work"], "default": "work"},
    ]
    said = {**NOTES, "env": {"TOKEN": "${input:token}@${input:place}"}}
    Path("shop/.vscode").mkdir()
    Path("shop/.vscode/mcp.json").write_text(json.dumps({"inputs": inputs, "servers": {"notes": said}}))
    command = [*ANTIPHON, "call", "vscode:notes", "show", "name=TOKEN"]
    with closing(PseudoTerminal(command, cwd=tmp_path / "shop")) as terminal:
        terminal.sees("Token of the shop:").types("geheim", ENTER)
        terminal.sees("place (home, work) [work]:")
        assert "geheim" not in terminal.text
        terminal.types("home", ENTER)
        assert terminal.ends() == 0
        assert "TOKEN=geheim@home in shop" in terminal.text
