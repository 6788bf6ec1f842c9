"""Signing in from the terminal, and commands that find the login."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from antiphon import Context, Server
from antiphon.auth import Protected
from antiphon.testing import Issuer

from .pseudo_terminal import ENTER, PseudoTerminal

ANTIPHON = [sys.executable, "-m", "antiphon"]


@pytest.fixture
def issuer(live):
    issuer = Issuer()
    issuer.url = f"http://127.0.0.1:{live(issuer)}"
    return issuer


@pytest.fixture
def notes(live, issuer):
    holder = {}

    async def door(scope, receive, send):
        await holder["app"](scope, receive, send)

    url = f"http://127.0.0.1:{live(door)}/mcp"
    app = Server("notes", auth=Protected(url, issuer=issuer.url, scopes=["read"]))

    @app.tool
    async def who(ctx: Context) -> str:
        return ctx.auth.subject

    @app.tool
    async def add(ctx: Context) -> str:
        return f"{ctx.auth.subject} {await ctx.confirm('Really?')}"

    holder["app"] = app.asgi()
    return url


@pytest.fixture
def env(tmp_path):
    # A browser that does nothing: the test pastes where it would end.
    return {"XDG_STATE_HOME": str(tmp_path), "BROWSER": "true"}


def run(*words, env):
    return subprocess.run(
        [*ANTIPHON, *words],
        check=False,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
    )


def paste(terminal, issuer):
    """Sign in at the page that the terminal names, and paste where the browser ends."""
    terminal.sees("Sign in at http", "or paste the URL")
    shown = "".join(terminal.screen.display).replace(" ", "")
    page = shown[shown.rindex("Signinat") + len("Signinat") : shown.rindex("orpastetheURL")]
    assert urlsplit(page).path == "/authorize"
    terminal.types(asyncio.run(issuer.visit(page, "")), ENTER)


def test_without_a_terminal_a_command_says_how_to_sign_in(notes, env):
    done = run("call", notes, "who", env=env)
    assert done.returncode == 6
    assert f"antiphon login {notes}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_login_is_kept_found_by_other_commands_and_forgotten(notes, issuer, env, tmp_path):
    with closing(PseudoTerminal([*ANTIPHON, "login", notes], cwd=tmp_path, env=env, columns=160)) as terminal:
        paste(terminal, issuer)
        terminal.sees("Signed in to")
        assert terminal.ends() == 0
    done = run("call", notes, "who", env=env)
    assert (done.returncode, done.stdout.strip()) == (0, "ada")
    kept = json.loads(next((tmp_path / "antiphon" / "logins").glob("*.json")).read_text())
    assert kept["token"]["access"] not in done.stderr
    assert run("logout", notes, env=env).returncode == 0
    assert run("call", notes, "who", env=env).returncode == 6


def test_a_call_asks_before_it_signs_in(notes, issuer, env, tmp_path):
    with closing(PseudoTerminal([*ANTIPHON, "call", notes, "who"], cwd=tmp_path, env=env, columns=160)) as terminal:
        terminal.sees("[Y/n]").types("n", ENTER)
        terminal.sees("You did not sign in")
        assert terminal.ends() == 3
    with closing(PseudoTerminal([*ANTIPHON, "call", notes, "who"], cwd=tmp_path, env=env, columns=160)) as terminal:
        terminal.sees("Sign in at 127.0.0.1", "(read)", "[Y/n]").types(ENTER)
        paste(terminal, issuer)
        terminal.sees("ada")
        assert terminal.ends() == 0


def test_a_browser_comes_back_by_itself(notes, env, tmp_path):
    browser = tmp_path / "browser.py"
    browser.write_text("import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=10).read()")
    env = {**env, "BROWSER": f"{sys.executable} {browser} %s"}
    with closing(PseudoTerminal([*ANTIPHON, "login", notes], cwd=tmp_path, env=env, columns=160)) as terminal:
        terminal.sees("Signed in to")
        assert terminal.ends() == 0


def test_a_waiting_call_is_resumed_with_the_kept_login(notes, issuer, env, tmp_path):
    with closing(PseudoTerminal([*ANTIPHON, "login", notes], cwd=tmp_path, env=env, columns=160)) as terminal:
        paste(terminal, issuer)
        assert terminal.ends() == 0
    waiting, answers = tmp_path / "waiting.json", tmp_path / "answers.yaml"
    answers.write_text("confirm: true\n")
    assert run("call", notes, "add", "--pending", str(waiting), env=env).returncode == 5
    kept = json.loads(next((tmp_path / "antiphon" / "logins").glob("*.json")).read_text())
    assert kept["token"]["access"] not in waiting.read_text()
    done = run("resume", str(waiting), "--answers", str(answers), env=env)
    assert (done.returncode, done.stdout.strip()) == (0, "ada True"), done.stderr


def test_a_login_needs_a_terminal_and_https(env):
    assert "needs a terminal" in run("login", "https://mcp.example.com/mcp", env=env).stderr
    done = run("logout", "http://mcp.example.com/mcp", env=env)
    assert done.returncode == 2
    assert "https" in done.stderr


@pytest.mark.parametrize("url", ["nonsense", "http://mcp.example.com/mcp", "https://u@mcp.example.com"])
def test_the_public_url_of_a_server_is_an_https_url(env, tmp_path, url):
    (tmp_path / "notes.py").write_text("from antiphon import Server\napp = Server('notes')\n")
    done = run("serve", str(tmp_path / "notes.py"), "--http", "--port", "0", "--url", url, env=env)
    assert done.returncode == 2
    assert "--url" in done.stderr
