"""The command line as a whole: help, versions, usage errors, and what is loaded for them."""

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

import antiphon as package
from antiphon.cli import COMMANDS, commands
from antiphon.rounds.token import Seal, parse_keys


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command in this process; for those that end before anything is imported or served."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.py").write_text("raise AssertionError('imported')\n")
    return lambda *args: CliRunner().invoke(commands, args, prog_name="antiphon", catch_exceptions=False)


def test_the_version_is_the_packages(antiphon):
    ended = antiphon("--version")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"antiphon {package.__version__}\n", "")


def test_the_help_names_every_command_and_fits_a_screen(run):
    shown = run("--help")
    assert shown.exit_code == 0
    assert all(f"  {name} " in shown.output for name in COMMANDS)
    assert "antiphon serve notes.py --http " in shown.output
    assert len(shown.output.splitlines()) <= 40
    assert max(map(len, shown.output.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(run, name):
    shown = run(name, "--help")
    assert shown.exit_code == 0
    assert f"Usage: antiphon {name} " in shown.output


@pytest.mark.parametrize("name", ["sing", ""])
def test_an_unknown_command_is_a_usage_error(run, name):
    ended = run(name)
    assert ended.exit_code == 2
    assert f"No such command {name!r}" in ended.output
    assert "did you mean" not in ended.output


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("tset", "'test'"),
        ("tests", "'test' or 'init-tests'"),
        ("Serve", "'serve'"),
        ("inst", "'install'"),
        ("re", "'record' or 'replay' or 'resume'"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(run, typed, meant):
    ended = run(typed, "--http")
    assert ended.exit_code == 2
    assert f"No such command {typed!r}: did you mean {meant}?" in ended.stderr


@pytest.mark.parametrize(
    ("args", "meant"),
    [(["--verson"], "--version"), (["serve", "--prot"], "--port"), (["test", "--fail-fats"], "--fail-fast")],
)
def test_a_mistyped_option_is_answered_with_the_one_that_was_meant(run, args, meant):
    ended = run(*args)
    assert ended.exit_code == 2
    assert re.search(rf"No such option.*Did you mean.*{meant}\b", ended.stderr)


def test_a_command_is_imported_when_it_is_used():
    script = (
        "import sys; from antiphon.cli import commands;"
        "commands.main(['{}'{}], standalone_mode=False);"
        "print([m for m in ('antiphon.cli.serve', 'antiphon.rounds.token', 'uvicorn') if m in sys.modules])"
    )
    for command, more, loaded in (("keygen", "", "['antiphon.rounds.token']"), ("--help", "", "[]")):
        ended = subprocess.run(
            [sys.executable, "-c", script.format(command, more)], capture_output=True, text=True, check=True
        )
        assert ended.stdout.splitlines()[-1] == loaded


# --- keygen


def test_keygen_prints_a_key_a_line_that_seals(antiphon):
    ended = antiphon("keygen", "--count", "3")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(set(ended.stdout.splitlines())) == 3
    keys = parse_keys(ended.stdout)
    token = Seal(keys).seal(b"state", bound_to=b"", now=0, entropy=bytes(12))
    assert Seal(keys[:1]).open(token, bound_to=b"", now=0).payload == b"state"


def test_keygen_prints_one_key_by_default_and_never_none(run):
    assert len(run("keygen").output.splitlines()) == 1
    assert run("keygen", "--count", "0").exit_code == 2


# --- what serve refuses before it imports anything


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "Missing argument 'TARGET'"),
        (["gone.py"], "There is no file gone.py"),
        (["notes.py", "--port", "80"], "--port can only be used with --http"),
        (["notes.py", "--port", "8000"], "--port can only be used with --http"),
        (["notes.py", "--workers", "2", "--reload"], "--workers, --reload can only be used with --http"),
        (["notes.py", "--host", "x", "--path", "/y"], "--host, --path can only be used with --http"),
        (["notes.py", "--allow-host", "x"], "--allow-host can only be used with --http"),
        (["notes.py", "--allow-origin", "x"], "--allow-origin can only be used with --http"),
        (["notes.py", "--http", "--workers", "2", "--reload"], "--reload runs one worker"),
        (["notes.py", "--http", "--workers", "0"], "Invalid value for '--workers'"),
        (["notes.py", "--http", "--port", "65536"], "Invalid value for '--port'"),
        (["notes.py", "--http", "--path", "mcp"], "Invalid value for '--path': 'mcp' does not begin with /"),
    ],
)
def test_wrong_usage_is_said_and_ends_with_code_2(run, args, said):
    ended = run("serve", *args)
    assert ended.exit_code == 2
    assert said in ended.stderr
    assert ended.stdout == ""
