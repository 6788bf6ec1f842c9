"""The report for programs: JSON, with its version in it. ``docs/testing/reports.md`` describes every member."""

import json
from datetime import UTC, datetime
from typing import Final

from antiphon.testing.report.plain import plain
from antiphon.testing.suite.outcome import Check, Outcome, Place, Summary, Turn
from antiphon.types import JsonObject

VERSION: Final = 1
"""Grows when a member is renamed, removed or changes its meaning; new members come without."""


def render(summary: Summary) -> str:
    """The whole run as JSON text."""
    return json.dumps(plain(document(summary)), ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def document(summary: Summary) -> JsonObject:
    """The whole run, as JSON has it."""
    return {
        "format": "antiphon-test-report",
        "version": VERSION,
        "started": datetime.fromtimestamp(summary.started, UTC).isoformat(timespec="milliseconds"),
        "seconds": _rounded(summary.seconds),
        "passed": summary.passed,
        "counts": {status: summary.count(status) for status in ("passed", "failed", "broken", "skipped")},
        "unstarted": list(summary.unstarted),
        "tests": [_test(outcome) for outcome in summary.outcomes],
    }


def _test(outcome: Outcome) -> JsonObject:
    return {
        "name": outcome.name,
        "suite": outcome.suite,
        **_placed(outcome.place),
        "status": outcome.status,
        "era": outcome.era,
        "tags": list(outcome.tags),
        "seconds": _rounded(outcome.seconds),
        "problem": outcome.problem,
        "checks": [_check(check) for check in outcome.checks],
        "rounds": [_round(turn) for turn in outcome.turns],
        "log": outcome.log,
    }


def _check(check: Check) -> JsonObject:
    told: JsonObject = {"name": check.name, "passed": check.passed}
    if not check.passed:
        told |= {"problem": check.problem, "expected": check.expected, "actual": check.actual}
    return told | (_placed(check.place) if check.place else {})


def _round(turn: Turn) -> JsonObject:
    told: JsonObject = {"method": turn.method, "params": turn.params, "seconds": _rounded(turn.seconds)}
    if turn.answers:
        told["answers"] = turn.answers
    if turn.questions:
        told["questions"] = turn.questions
    if turn.result is not None:
        told["result"] = turn.result
    if turn.error is not None:
        told["error"] = turn.error
    return told


def _placed(place: Place) -> JsonObject:
    return {"file": str(place.file), "line": place.line, "column": place.column}


def _rounded(seconds: float) -> float:
    return round(seconds, 6)
