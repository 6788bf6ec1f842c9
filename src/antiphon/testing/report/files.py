"""Reports for programs: JSON, JUnit's XML, and the annotations of GitHub."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import msgspec

from antiphon.escaping import indented, line, visible
from antiphon.testing.report.text import StyledLine, brief, facts, log_rows, problem_rows, turn_rows
from antiphon.testing.suite.model import Check, Outcome, Place, Summary
from antiphon.testing.transcript import Turn
from antiphon.types import JsonObject

VERSION: Final = 1
"""Of the JSON report. Grows when a member is renamed, removed or changes its meaning, not when one is added."""
_LONGEST_ANNOTATION: Final = 4_000
"""Letters; GitHub cuts longer annotations off."""


# --- JSON: docs/testing/reports.md describes every member -----------------------------------------------------------


def render_json(summary: Summary) -> str:
    """Return the whole run as JSON text."""
    report = {
        "format": "antiphon-test-report",
        "version": VERSION,
        "started": datetime.fromtimestamp(summary.started, UTC).isoformat(timespec="milliseconds"),
        "seconds": round(summary.seconds, 6),
        "passed": summary.passed,
        "counts": {status: summary.count(status) for status in ("passed", "failed", "broken", "skipped")},
        "unstarted": list(summary.unstarted),
        "tests": [_test(outcome) for outcome in summary.outcomes],
    }
    return indented(report) + "\n"


def _test(outcome: Outcome) -> JsonObject:
    told = msgspec.structs.asdict(outcome)
    del told["turns"]
    return told | {
        **_place(told.pop("place")),
        "seconds": round(outcome.seconds, 6),
        "checks": [_check(check) for check in outcome.checks],
        "rounds": [_round(turn) for turn in outcome.turns],
    }


def _check(check: Check) -> JsonObject:
    told: JsonObject = {"name": check.name, "passed": check.passed}
    if not check.passed:
        told |= {"problem": check.problem, "expected": check.expected, "actual": check.actual}
    return told | (_place(check.place) if check.place else {})


def _round(turn: Turn) -> JsonObject:
    told: JsonObject = {"method": turn.method, "params": turn.params, "seconds": round(turn.seconds, 6)}
    told |= {name: value for name, value in (("answers", turn.answers), ("questions", turn.questions)) if value}
    told |= {name: value for name, value in (("result", turn.result), ("error", turn.error)) if value is not None}
    return told


def _place(place: Place) -> JsonObject:
    return {"file": str(place.file), "line": place.line, "column": place.column}


# --- GitHub: its runner puts annotations next to the lines of a pull request ----------------------------------------


def render_github(summary: Summary, *, root: Path | None = None) -> str:
    """Return a line for every test that did not pass.

    Paths are relative to ``root``. Default: the repository that the runner names, or the working directory.
    """
    root = root or Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    failed = (outcome for outcome in summary.outcomes if outcome.status in {"failed", "broken"})
    return "".join(f"{_annotation(outcome, root)}\n" for outcome in failed)


def _annotation(outcome: Outcome, root: Path) -> str:
    # At the first check that failed, or else at the test.
    place = next((check.place for check in outcome.failures if check.place is not None), outcome.place)
    properties = {
        "file": _path(place.file, root),
        "line": str(place.line),
        "col": str(place.column),
        "title": f"{line(outcome.name)} {outcome.status}",
    }
    written = ",".join(f"{name}={_escaped_property(value)}" for name, value in properties.items())
    message = "\n".join(map(str, problem_rows(outcome))) or brief(outcome)
    if len(message) > _LONGEST_ANNOTATION:
        message = message[:_LONGEST_ANNOTATION] + "…"
    return f"::error {written}::{_escaped(message)}"


def _path(file: Path, root: Path) -> str:
    whole = Path(os.path.abspath(file))  # noqa: PTH100 -- a link in the repository stays as the repository has it
    if whole.is_relative_to(root):
        file = whole.relative_to(root)
    return visible(str(file).replace(os.sep, "/"))


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


# --- JUnit's XML, as Jenkins, GitLab and others read it (the schema junit-10.xsd) -----------------------------------


def render_junit(summary: Summary) -> str:
    """Return the whole run as an XML document."""
    about = {"name": "antiphon test", **_counts(summary.outcomes), "time": _time(summary.seconds)}
    root = ET.Element("testsuites", about)
    named = zip(summary.outcomes, _names(summary.outcomes), strict=True)
    # Tests of several suites that ran in parallel are not in the order of the suites.
    for suite, pairs in groupby(sorted(named, key=lambda pair: pair[0].suite), key=lambda pair: pair[0].suite):
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
    if outcome.status in {"failed", "broken"}:
        tag = "failure" if outcome.status == "failed" else "error"
        element = ET.SubElement(case, tag, message=brief(outcome), type=outcome.status)
        element.text = f"{line(str(outcome.place))} · {facts(outcome)}\n\n{_text(problem_rows(outcome))}"
    elif outcome.status == "skipped":
        ET.SubElement(case, "skipped", message=brief(outcome))
    if outcome.turns:
        ET.SubElement(case, "system-out").text = _text(turn_rows(outcome.turns))
    if outcome.log.strip():
        ET.SubElement(case, "system-err").text = _text(log_rows(outcome.log))


def _names(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the names, with the era where a test ran in both: a CI server tells tests apart by their names."""
    times = Counter((outcome.suite, outcome.name) for outcome in outcomes)
    eras = (outcome.era if times[outcome.suite, outcome.name] > 1 else "" for outcome in outcomes)
    return [line(f"{one.name} [{era}]" if era else one.name) for one, era in zip(outcomes, eras, strict=True)]


def _counts(outcomes: Sequence[Outcome]) -> dict[str, str]:
    states = Counter(outcome.status for outcome in outcomes)
    return {"tests": str(len(outcomes)), "failures": str(states["failed"]), "errors": str(states["broken"])}


def _text(rows: Iterable[StyledLine]) -> str:
    return visible("\n".join(map(str, rows)))


def _time(seconds: float) -> str:
    return f"{max(seconds, 0):.3f}"
