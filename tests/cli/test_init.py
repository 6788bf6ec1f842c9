"""The first ten minutes: what init writes runs, by the very commands that it prints."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from antiphon.cli import commands
from antiphon.cli.init import FILES

from .pseudo_terminal import ENTER, PseudoTerminal

BIN = Path(sys.executable).parent


def init(*words):
    return CliRunner().invoke(commands, ["init", *words], prog_name="antiphon", catch_exceptions=False)


@pytest.mark.heavy
def test_the_commands_that_it_prints_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = init("shop")
    assert done.exit_code == 0
    head, *lines = done.output.split("\n\n")
    assert head == "Wrote notes.py, notes.mcp.yaml, test_notes.py. Try:"
    go, call, *others = [line.strip() for line in lines[0].splitlines()]
    assert [go, call, *others] == ["cd shop", "antiphon call notes.py add title=Milk", "antiphon test", "pytest"]
    words = call.split()
    with closing(PseudoTerminal([BIN / words[0], *words[1:]], cwd=tmp_path / "shop")) as terminal:
        terminal.asks("notes asks", "Which list is Milk for?").types(ENTER)
        terminal.asks("Send this?").types(ENTER)
        assert terminal.ends() == 0
        assert "Added Milk to home" in terminal.text
    for command in others:
        program, *rest = command.split()
        ran = subprocess.run(
            [BIN / program, *rest], cwd=tmp_path / "shop", capture_output=True, text=True, check=False, timeout=60
        )
        assert (ran.returncode, "passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr


def test_in_this_folder_there_is_nowhere_to_go(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = init()
    assert "cd " not in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(FILES)


@pytest.mark.parametrize("name", FILES)
def test_no_file_is_overwritten_and_none_is_written_beside_one_that_is_there(name, tmp_path):
    (tmp_path / name).write_text("mine")
    done = init(str(tmp_path))
    assert (done.exit_code, f"{name} in {tmp_path} would be overwritten" in done.output) == (2, True)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


def test_a_file_in_the_place_of_a_folder_leads_to_the_other_command(tmp_path):
    (tmp_path / "mine.py").write_text("")
    done = init(str(tmp_path / "mine.py"))
    assert (done.exit_code, "antiphon init-tests" in done.output) == (2, True)


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    done = init(str(tmp_path / "file/inside"))
    assert (done.exit_code, "Cannot write to" in done.output) == (1, True), done.output
