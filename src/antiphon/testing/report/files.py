"""The report for programs: JSON, with its version in it. ``docs/testing/reports.md`` describes every member."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from antiphon.testing.outcome import Check, Outcome, Place, Summary, Turn
from antiphon.testing.report.escaping import line, plain, visible
from antiphon.testing.report.text import Row, brief, facts, tell_log, tell_problems, tell_turns
from antiphon.types import JsonObject

VERSION: Final = 1
"""Grows when a member is renamed, removed or changes its meaning; new members come without."""


def render_json(summary: Summary) -> str:
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


# The report for GitHub: annotations, which its runner puts beside the lines of a pull request.


_LONGEST: Final = 4_000
"""Letters of one annotation; GitHub cuts longer ones off without a word."""


def render_github(summary: Summary, *, root: Path | None = None) -> str:
    """A line for every test that did not pass. Paths are told from ``root``, the repository, which the runner names."""
    root = root or Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    return "".join(
        _annotation(outcome, root) + "\n" for outcome in summary.outcomes if outcome.status in {"failed", "broken"}
    )


def _annotation(outcome: Outcome, root: Path) -> str:
    place = _place(outcome)
    properties = {
        "file": _path(place.file, root),
        "line": str(place.line),
        "col": str(place.column),
        "title": f"{line(outcome.name)} {outcome.status}",
    }
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::error {written}::{_data(_message(outcome))}"


def _place(outcome: Outcome) -> Place:
    """Where the first check stands that failed, or else the test."""
    return next((check.place for check in outcome.failures if check.place is not None), outcome.place)


def _path(file: Path, root: Path) -> str:
    whole = Path(os.path.abspath(file))  # noqa: PTH100 -- a link in the repository stays as the repository has it
    if whole.is_relative_to(root):
        file = whole.relative_to(root)
    return visible(str(file).replace(os.sep, "/"))


def _message(outcome: Outcome) -> str:
    told = "\n".join(map(str, tell_problems(outcome))) or brief(outcome)
    return told if len(told) <= _LONGEST else told[:_LONGEST] + "…"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# The report for CI servers: JUnit's XML, as Jenkins, GitLab and others read it (the schema ``junit-10.xsd``).


def render_junit(summary: Summary) -> str:
    """The whole run as an XML document."""
    about = {"name": "antiphon test", **_counts(summary.outcomes), "time": _time(summary.seconds)}
    root = ET.Element("testsuites", about)
    named = _names(summary.outcomes)
    # A suite whose tests ran in parallel with another's is still one suite.
    ordered = sorted(zip(summary.outcomes, named, strict=True), key=lambda pair: pair[0].suite)
    for suite, pairs in groupby(ordered, key=lambda pair: pair[0].suite):
        _suite(root, suite, list(pairs), summary.started)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(root: ET.Element, name: str, pairs: Sequence[tuple[Outcome, str]], started: float) -> None:
    outcomes = [outcome for outcome, _ in pairs]
    about = {
        "name": line(name),
        **_counts(outcomes),
        "skipped": str(sum(outcome.status == "skipped" for outcome in outcomes)),
        "time": _time(sum(outcome.seconds for outcome in outcomes)),
        "timestamp": datetime.fromtimestamp(started, UTC).strftime("%Y-%m-%dT%H:%M:%S"),
        "file": line(str(outcomes[0].place.file)),
    }
    element = ET.SubElement(root, "testsuite", about)
    for outcome, unique in pairs:
        _case(element, outcome, unique)


def _case(suite: ET.Element, outcome: Outcome, name: str) -> None:
    case = ET.SubElement(suite, "testcase", name=name, classname=line(outcome.suite), time=_time(outcome.seconds))
    match outcome.status:
        case "failed":
            _add(case, "failure", _lines(tell_problems(outcome)), outcome, type="failed")
        case "broken":
            _add(case, "error", _lines(tell_problems(outcome)), outcome, type="broken")
        case "skipped":
            ET.SubElement(case, "skipped", message=brief(outcome))
        case "passed":
            pass
    if outcome.turns:
        ET.SubElement(case, "system-out").text = _lines(tell_turns(outcome.turns))
    if outcome.log.strip():
        ET.SubElement(case, "system-err").text = _lines(tell_log(outcome.log))


def _add(case: ET.Element, tag: str, text: str, outcome: Outcome, *, type: str) -> None:  # noqa: A002 -- JUnit's word
    element = ET.SubElement(case, tag, message=brief(outcome), type=type)
    element.text = f"{facts(outcome)}\n\n{text}"


def _names(outcomes: Sequence[Outcome]) -> list[str]:
    """Each with its era where a test ran in both, so that a CI server does not take one for the other."""
    times = Counter((outcome.suite, outcome.name) for outcome in outcomes)
    return [
        line(
            f"{outcome.name} [{outcome.era}]"
            if times[outcome.suite, outcome.name] > 1 and outcome.era
            else outcome.name
        )
        for outcome in outcomes
    ]


def _counts(outcomes: Sequence[Outcome]) -> dict[str, str]:
    states = Counter(outcome.status for outcome in outcomes)
    return {"tests": str(len(outcomes)), "failures": str(states["failed"]), "errors": str(states["broken"])}


def _lines(rows: Iterable[Row]) -> str:
    return visible("\n".join(map(str, rows)))


def _time(seconds: float) -> str:
    return f"{max(seconds, 0):.3f}"
