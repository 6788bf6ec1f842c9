"""The report for programs."""

import json

from hypothesis import given
from hypothesis import strategies as st

from antiphon.testing.report.files import VERSION
from antiphon.testing.report.files import render_json as render
from antiphon.testing.suite.model import Check, Outcome, Summary
from testing.report.sample import EVERYTHING, HOSTILE, TOKEN, at


def test_the_report_says_what_it_is_and_how_the_run_went():
    told = json.loads(render(EVERYTHING))
    assert (told.pop("format"), told.pop("version")) == ("antiphon-test-report", VERSION)
    assert len(told.pop("tests")) == 7
    assert told == {
        "started": "2026-11-16T10:00:00.000+00:00",
        "seconds": 12.1,
        "passed": False,
        "counts": {"passed": 2, "failed": 3, "broken": 1, "skipped": 1},
        "unstarted": [],
    }


def test_a_test_has_its_checks_and_its_rounds():
    passed, failed, broken, skipped, *_ = json.loads(render(EVERYTHING))["tests"]
    assert {name: passed[name] for name in ("name", "suite", "file", "line", "column", "status", "era", "tags")} == {
        "name": "deploys after the operator confirms",
        "suite": "suites/deploy.mcp.yaml",
        "file": "suites/deploy.mcp.yaml",
        "line": 6,
        "column": 5,
        "status": "passed",
        "era": "2026-07-28",
        "tags": ["smoke"],
    }
    assert passed["checks"][0] == {"name": "text", "passed": True}
    assert passed["rounds"][1] == {
        "method": "tools/call",
        "params": {"name": "deploy", "arguments": {"env": "prod"}, "requestState": "<480 characters>"},
        "seconds": 0.0029,
        "answers": {"confirm": {"action": "accept", "content": {"confirm": True}}},
        "result": {"content": [{"type": "text", "text": "Deployed to prod"}]},
    }
    assert failed["checks"][1]["expected"]["replicas"] == 2
    assert (failed["checks"][1]["line"], failed["checks"][1]["column"]) == (25, 19)
    assert failed["log"].startswith("INFO  provision")
    assert broken["problem"].startswith("The server did not answer")
    assert skipped["rounds"] == []


def test_no_token_is_in_it():
    assert TOKEN[:24] not in render(EVERYTHING)


@given(st.text(st.characters()) | st.floats() | st.integers() | st.binary())
def test_any_value_can_be_written(value):
    check = Check(name="text", passed=False, problem=HOSTILE, expected=value, actual={"is": [value]})
    outcome = Outcome(name="x", suite="y", place=at(1), status="failed", checks=(check,), log=HOSTILE)
    text = render(Summary(outcomes=(outcome,), seconds=0.0, started=0.0))
    text.encode()
    (test,) = json.loads(text, parse_constant=refuse)["tests"]
    assert test["checks"][0]["actual"] == {"is": [test["checks"][0]["expected"]]}


def refuse(name):
    raise AssertionError(f"{name} is not JSON")
