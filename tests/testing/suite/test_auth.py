"""A suite says who calls, and never asks a person."""

import subprocess
import sys
from pathlib import Path

import pytest

from antiphon import Client, Context, Server
from antiphon.auth import File, OAuth, Protected
from antiphon.testing import Issuer, serving
from antiphon.testing.suite import SuiteBroken, loads, run

TESTS = """
tests:
  - {name: who, tool: who, expect: {text: "%s"}}
"""


@pytest.fixture
async def issuer():
    made = Issuer(clients={"svc": "hush-hush"})
    async with made.serving():
        yield made


@pytest.fixture
async def url(issuer):
    def notes(url):
        app = Server("notes", auth=Protected(f"{url}/mcp", issuer=issuer.url, scopes=["read"]))

        @app.tool
        async def who(ctx: Context) -> str:
            return f"{ctx.auth.subject} {' '.join(sorted(ctx.auth.scopes))}"

        return app.asgi()

    async with serving(notes) as base:
        yield f"{base}/mcp"


async def summary(text, expected="ada read"):
    return await run(loads(text + TESTS % expected, "/tmp/s.mcp.yaml"))


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_token_comes_from_the_environment(issuer, url, era, monkeypatch):
    monkeypatch.setenv("NOTES_TOKEN", issuer.token("bob", audience=url, scopes=["read"]))
    made = await summary(f"server: {{url: '{url}', era: {era}, auth: {{bearer: '${{env:NOTES_TOKEN}}'}}}}", "bob read")
    assert made.passed, made.outcomes


async def test_a_client_signs_in_as_itself(issuer, url, monkeypatch):
    monkeypatch.setenv("NOTES_SECRET", "hush-hush")
    auth = f"{{client: svc, secret: '${{env:NOTES_SECRET}}', issuer: '{issuer.url}', scopes: [read, more]}}"
    made = await summary(f"server: {{url: '{url}', auth: {auth}}}", "svc more read")
    assert made.passed, made.outcomes
    assert "hush-hush" not in repr(made)


async def test_a_kept_login_is_used(issuer, url, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with Client(url, auth=OAuth(visit=issuer.visit, keep=File())) as client:
        await client.sign_in()
    made = await summary(f"server: {{url: '{url}', auth: login}}")
    assert made.passed, made.outcomes


async def test_without_a_kept_login_the_command_to_run_is_told(url, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = await summary(f"server: {{url: '{url}', auth: login}}")
    assert made.outcomes[0].problem.endswith(f"Run: antiphon login {url}")


async def test_without_auth_the_key_to_set_is_told(url):
    made = await summary(f"server: {{url: '{url}'}}")
    assert "Set 'auth' to sign in" in made.outcomes[0].problem


async def test_a_secret_that_is_wrong_is_told_and_not_shown(issuer, url):
    auth = f"{{client: svc, secret: not-the-secret, issuer: '{issuer.url}'}}"
    made = await summary(f"server: {{url: '{url}', auth: {auth}}}")
    assert "invalid_client" in made.outcomes[0].problem
    assert "not-the-secret" not in repr(made)


@pytest.mark.parametrize(
    ("server", "at", "told"),
    [
        ("{app: a.py, auth: login}", "login", "'login' is for a url"),
        ("{command: x, auth: {bearer: x}}", "{bearer", "'bearer' is for a url"),
        ("{url: 'https://x.example', auth: {identity: ada}}", "{identity", "'identity' is for an app"),
        ("{url: 'https://x.example', auth: log}", "log", "Expected login, got 'log'"),
        ("{url: 'https://x.example', auth: {client: a}}", "a}}", "only beside 'secret'"),
        ("{url: 'https://x.example', auth: {client: a, secret: b}}", "b}}", "only beside 'issuer'"),
        ("{url: 'https://x.example', auth: {bearer: a, identity: b}}", "{bearer", "got bearer and identity"),
        ("{url: 'http://x.example', auth: {bearer: a}}", "{bearer", "needs https"),
        ("{url: 'https://x.example', auth: {bearer: '${env:NO}'}}", "'${", "The environment has no NO"),
        ("{url: 'https://x.example', auth: {token: a}}", "token", "Unknown key 'token' in auth"),
    ],
)
def test_auth_that_does_not_fit_is_told_with_its_place(server, at, told):
    with pytest.raises(SuiteBroken) as broken:
        loads(f"server: {server}{TESTS}", "/tmp/s.mcp.yaml")
    assert told in str(broken.value)
    assert f"s.mcp.yaml:1:{len('server: ') + server.index(at) + 1}:" in str(broken.value)


APP = """
from antiphon import Context, Server
from antiphon.auth import Protected

app = Server("notes", auth=Protected("https://notes.test/mcp", issuer="https://auth.test", scopes=["read"]))

@app.tool(scopes=["write"])
async def who(ctx: Context) -> str:
    return f"{ctx.auth.subject} {await ctx.confirm('Really?')}"
"""
SUITE = """
server: {app: notes.py, era: both, auth: {identity: ada, scopes: [read%s]}}
tests:
  - {name: who, tool: who, inputResponses: {confirm: true}, expect: {text: ada True}}
"""


def test_the_command_line_calls_an_app_as_somebody(tmp_path: Path):
    (tmp_path / "notes.py").write_text(APP)
    (tmp_path / "may.mcp.yaml").write_text(SUITE % ", write")
    (tmp_path / "may-not.mcp.yaml").write_text(SUITE % "")
    for name, code in ("may", 0), ("may-not", 1):
        command = [sys.executable, "-m", "antiphon", "test", f"{name}.mcp.yaml"]
        done = subprocess.run(
            command, cwd=tmp_path, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == code, done
        assert ("This needs write" in done.stdout) == (code == 1)
