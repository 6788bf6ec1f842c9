"""The terminal's report: a line for what passed, the whole story of what did not."""

import io
import re

import msgspec
import pytest
from rich.console import Console

from antiphon.testing.report import render as render_as
from antiphon.testing.report import terminal
from antiphon.testing.report.terminal import ReportPrinter, render
from antiphon.testing.suite.model import Check, Summary
from testing.report.sample import ATTACKED, BROKEN, EVERYTHING, FAILED, LONG, PASSED, REFUSED, RUN, SKIPPED, TOKEN


def of(*outcomes):
    return Summary(outcomes=outcomes, seconds=1.5, started=0.0)


def test_a_passing_test_is_one_line():
    assert render(of(PASSED), width=80).splitlines() == [
        "suites/deploy.mcp.yaml",
        "  ✓ deploys after the operator confirms              2026-07-28  2 rounds  12 ms",
        "",
        "1 passed in 1.5 s",
    ]


def test_a_run_of_which_nothing_was_shown_is_its_sum_alone():
    sheet = io.StringIO()
    ReportPrinter(Console(file=sheet, width=80)).finish(of(PASSED))
    assert sheet.getvalue() == "1 passed in 1.5 s\n"


def test_the_lines_of_a_problem_stay_lines():
    check = Check(name="replay safety", passed=False, problem="It is not safe:\n  The clock.\n    at till.py:18")
    told = render(of(msgspec.structs.replace(FAILED, checks=(check,), log="")), width=80)
    assert told.splitlines()[-5:-2] == [
        "  ✗ replay safety  It is not safe:",
        "  │   The clock.",
        "  │     at till.py:18",
    ]


def test_verbose_shows_the_conversation_of_a_passing_test_too():
    assert "server ◀─ asks confirm: Deploy shop 2.4.0 to prod?" in render(of(PASSED), verbose=True)


def test_a_failing_test_is_told_as_a_conversation_with_its_differences_and_the_log():
    told = render(of(FAILED), width=100)
    story = told[told.index("── failed") :]
    assert [text.rstrip() for text in story.splitlines()] == [
        "── failed asks where, asks a model for a name, and says both ───────────────────────────────────────",
        "suites/deploy.mcp.yaml:16:5 · 2026-07-28 · 3 rounds · 41 ms",
        "",
        '  1   client ─▶ tools/call provision {"service": "shop", "version": "2.4.0"}',
        "      server ◀─ asks where: Where shall it run?",
        "             │  region  eu-west | us-east, required",
        "             │  replicas  integer = 2  How many copies.",
        "             │  contact  string (email)",
        '  2     user ─▶ where: accept {"region": "eu-west", "replicas": 3, "contact": "ops@example.com"}',
        "      server ◀─ asks the model name: user: Name the release.",
        "  3     user ─▶ name: the model says: Quiet Harbor",
        "      server ◀─ answers",
        "             │  Release: Quiet Harbor",
        "             │  Region:  eu-west",
        "             │  Copies:  3",
        "             │  Status:  running",
        '             │  {"region": "eu-west", "replicas": 3, "nodes": [{"id": 1}, {"id": 2}, {"id": 3}]}',
        "",
        '  ✗ text  is "Release: Quiet Harbor\\n...", and not "Release: Quiet Harbour\\n..."',
        "  │ suites/deploy.mcp.yaml:24:13",
        "  │ - expected  + actual",
        "  │ - Release: Quiet Harbour",
        "  │ + Release: Quiet Harbor",
        "  │   Region:  eu-west",
        "  │ - Copies:  2",
        "  │ + Copies:  3",
        "  │   Status:  running",
        "  ✗ structured  is not what was expected, in 3 places  suites/deploy.mcp.yaml:25:19",
        "  │ $.replicas  expected 2 but was 3",
        '  │ $.nodes[2]  not expected {"id": 3}',
        '  │ $.url  missing, expected "https://a.example"',
        "",
        "  the server's stderr",
        "  │ INFO  provision shop 2.4.0",
        "  │ INFO  3 nodes in eu-west",
        "  │ WARNING  'replicas' was 3, the quota is 2",
        "",
        "1 failed in 1.5 s",
    ]


def test_a_broken_test_says_why_and_shows_the_end_of_the_log():
    told = render(of(BROKEN))
    assert "! The server did not answer within 10 s.\n  │ Its process is still there" in told
    assert "the last 20 of 40 lines" in told
    assert "the queue has 20 jobs" in told
    assert "the queue has 21 jobs" not in told


def test_a_skipped_test_says_why_on_its_line():
    assert "  - rolls back (needs roots, which this run does not offer)" in render(of(SKIPPED))


def test_the_sum_names_what_there_is():
    assert render(EVERYTHING).endswith("\n3 failed, 1 broken, 1 skipped, 2 passed in 12.1 s\n")
    assert render(of()).endswith("no tests in 1.5 s\n")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal(width):
    told = render(of(PASSED, FAILED, BROKEN, REFUSED, LONG, ATTACKED), width=width, verbose=True)
    assert [text for text in told.splitlines() if len(text) > width] == []


def test_without_colour_there_is_no_control_character():
    assert not re.search(r"[^\n\x20-\uffff]", render(EVERYTHING, verbose=True))


def test_with_colour_only_colours_are_sent():
    told = render(EVERYTHING, verbose=True, color=True)
    assert "\x1b[31m" in told
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", re.sub(r"\x1b\[[\d;]*m", "", told))


def test_no_line_of_a_server_commands_a_ci_runner():
    for width in (40, 73, 100):
        told = render(EVERYTHING, verbose=True, width=width)
        assert not [text for text in told.splitlines() if text.lstrip().startswith("::")]
        assert "##[" not in told


def test_no_token_is_shown():
    assert TOKEN[:24] not in render(EVERYTHING, verbose=True)


def test_an_expectation_that_is_a_pattern_is_not_compared_with_a_text():
    check = Check(name="text", passed=False, problem="does not contain", expected={"contains": "a"}, actual="b")
    told = render(of(msgspec.structs.replace(FAILED, checks=(check,))))
    assert '│ expected {"contains": "a"}\n  │ actual   b\n' in told


def test_a_schema_is_a_rule_and_not_compared():
    check = Check(name="schema", passed=False, problem="does not fit", expected={"type": "object"}, actual={"a": 1})
    told = render(of(msgspec.structs.replace(FAILED, checks=(check,))))
    assert "✗ schema  does not fit\n\n" in told


def test_a_map_under_equals_is_compared():
    check = Check(name="structured", passed=False, problem="differs", expected={"equals": {"a": 1}}, actual={"a": 2})
    assert "│ $.a  expected 1 but was 2" in render(of(msgspec.structs.replace(FAILED, checks=(check,))))


def test_lines_come_as_tests_end():
    file = io.StringIO()
    printer = ReportPrinter(Console(file=file, width=80))
    printer.ended(PASSED)
    assert "✓ deploys after" in file.getvalue()
    printer.ended(REFUSED)
    printer.ended(SKIPPED)
    assert file.getvalue().count("suites/deploy.mcp.yaml\n") == 2
    printer.finish(of(PASSED, REFUSED, SKIPPED))
    assert file.getvalue().endswith("\n1 skipped, 2 passed in 1.5 s\n")


def test_a_terminal_without_unicode_gets_ascii():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    printer = ReportPrinter(Console(file=file, width=80))
    printer.ended(PASSED)
    printer.ended(FAILED)
    printer.finish(of(PASSED, FAILED))
    file.flush()
    told = file.buffer.getvalue().decode("ascii")
    assert "  + deploys after" in told
    assert "server <- asks where" in told


def test_stdout_gets_no_colours_if_it_is_no_terminal(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    printer = ReportPrinter(terminal.console())
    printer.ended(FAILED)
    printer.finish(of(FAILED))
    assert capsys.readouterr().out == render(of(FAILED))


def test_no_color_is_obeyed(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    on_stdout = terminal.console()
    on_stdout.file = file = io.StringIO()
    ReportPrinter(on_stdout).ended(FAILED)
    assert not re.search(r"\x1b\[(\d+;)*3\d", file.getvalue())


def test_a_report_is_chosen_by_its_name():
    assert render_as("terminal", RUN) == render(RUN)
    with pytest.raises(ValueError, match="no report 'pdf'; there are terminal, json, junit, github, html"):
        render_as("pdf", RUN)
