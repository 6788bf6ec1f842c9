"""The report for CI servers: JUnit's XML, as Jenkins, GitLab and others read it (the schema ``junit-10.xsd``)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from xml.etree import ElementTree as ET  # writing only: nothing is parsed here

from antiphon.testing.report.plain import line, visible
from antiphon.testing.report.telling import Row, brief, facts, tell_log, tell_problems, tell_turns
from antiphon.testing.suite.outcome import Outcome, Summary


def render(summary: Summary) -> str:
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
