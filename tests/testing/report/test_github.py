"""Annotations: one line for each test that did not pass, and nothing else that GitHub's runner would obey."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.testing.report.files import render_github as render
from antiphon.testing.suite.model import Check, Outcome, Place, Summary
from testing.report.sample import BROKEN, EVERYTHING, FAILED, PASSED, SKIPPED, TOKEN


@pytest.fixture(autouse=True)
def _no_runner(monkeypatch):
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)


COMMAND = re.compile(r"::error file=([^,:]*),line=(\d+),col=(\d+),title=([^,:]*)::(.*)")


def of(*outcomes):
    return Summary(outcomes=outcomes, seconds=1.5, started=0.0)


def read(text):
    """As GitHub's runner reads a command."""
    found = COMMAND.fullmatch(text)
    assert found is not None, text
    return [unescaped(part) for part in found.groups()]


def unescaped(text):
    for code, letter in [("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")]:
        text = text.replace(code, letter)
    return text


def test_what_passed_or_was_skipped_is_not_annotated():
    assert render(of(PASSED, SKIPPED)) == ""


def test_an_annotation_stands_at_the_check_that_failed():
    file, line, column, title, message = read(render(of(FAILED)).rstrip("\n"))
    assert (file, line, column) == ("suites/deploy.mcp.yaml", "24", "13")
    assert title == "asks where, asks a model for a name, and says both failed"
    assert "│ + Release: Quiet Harbor\n" in message


def test_a_broken_test_is_annotated_where_it_begins():
    file, line, column, title, message = read(render(of(BROKEN)).rstrip("\n"))
    assert (file, line, column, title) == ("suites/deploy.mcp.yaml", "31", "5", "waits for the queue broken")
    assert message.startswith("! The server did not answer within 10 s.\n")


def test_paths_are_those_of_the_repository():
    place = Place(file=Path("/home/ci/repository/suites/a,b.mcp.yaml"), line=1, column=2)
    outcome = msgspec.structs.replace(BROKEN, place=place)
    assert render(of(outcome), root=Path("/home/ci/repository")).startswith(
        "::error file=suites/a%2Cb.mcp.yaml,line=1,"
    )
    assert render(of(outcome), root=Path("/elsewhere")).startswith("::error file=/home/ci/repository/")


def test_the_runner_says_where_the_repository_is(tmp_path, monkeypatch):
    (tmp_path / "services" / "shop").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "services" / "shop")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert render(of(BROKEN)).startswith("::error file=services/shop/suites/deploy.mcp.yaml,")
    monkeypatch.delenv("GITHUB_WORKSPACE")
    assert render(of(BROKEN)).startswith("::error file=suites/deploy.mcp.yaml,")


def test_every_line_is_one_annotation():
    lines = render(EVERYTHING).splitlines()
    assert len(lines) == 4
    assert all(read(text) for text in lines)
    assert TOKEN[:24] not in render(EVERYTHING)


def test_a_long_message_is_cut():
    check = Check(name="text", passed=False, problem="x" * 100_000)
    (text,) = render(of(msgspec.structs.replace(FAILED, checks=(check,)))).splitlines()
    assert len(text) < 5_000


@given(st.text(st.characters()))
def test_whatever_a_server_says_there_is_one_command(text):
    check = Check(name=text, passed=False, problem=text, expected="", actual=text)
    outcome = Outcome(name=text, suite=text, place=FAILED.place, status="failed", checks=(check,))
    told = render(of(outcome))
    told.encode()
    assert len(told.splitlines()) == 1
    assert read(told.rstrip("\n"))[0] == "suites/deploy.mcp.yaml"
