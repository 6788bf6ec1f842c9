"""JUnit's XML: what CI servers read."""

import re
import xml.etree.ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.testing.report.files import render_junit as render
from antiphon.testing.suite.model import Check, Outcome, Summary
from antiphon.testing.transcript import Turn
from testing.report.sample import EVERYTHING, PASSED, RUN, TOKEN, at

# The schema junit-10.xsd of Jenkins' xUnit plugin: what may stand where.
ATTRIBUTES = {
    "testsuites": {"name", "time", "tests", "failures", "errors"},
    "testsuite": {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname", "file"},
    "testcase": {"name", "time", "classname", "group"},
    "failure": {"type", "message"},
    "error": {"type", "message"},
    "skipped": {"type", "message"},
    "system-out": set(),
    "system-err": set(),
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase", "properties", "system-out", "system-err"},
    "testcase": {"failure", "error", "skipped", "system-out", "system-err"},
}
TIME = re.compile(r"\d+\.\d{3}")


def parsed(summary):
    root = ET.fromstring(render(summary).encode())
    for element in root.iter():
        assert set(element.attrib) <= ATTRIBUTES[element.tag]
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
        assert "time" not in element.attrib or TIME.fullmatch(element.attrib["time"])
        assert element.tag != "testsuite" or {"name", "tests", "failures", "errors"} <= set(element.attrib)
    return root


def test_the_counts_are_those_of_the_run():
    root = parsed(EVERYTHING)
    assert root.attrib == {"name": "antiphon test", "tests": "7", "failures": "3", "errors": "1", "time": "12.100"}
    deploy = root[0] if root[0].attrib["name"] == "suites/deploy.mcp.yaml" else root[1]
    assert deploy.attrib == {
        "name": "suites/deploy.mcp.yaml",
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
        "time": "10.853",
        "timestamp": "2026-11-16T10:00:00",
        "file": "suites/deploy.mcp.yaml",
    }


def test_each_status_has_its_element():
    cases = {case.attrib["name"]: case for case in parsed(RUN).iter("testcase")}
    assert [child.tag for child in cases["deploys after the operator confirms"]] == ["system-out"]
    assert [child.tag for child in cases["waits for the queue"]] == ["error", "system-out", "system-err"]
    skipped = cases["rolls back"].find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"] == "needs roots, which this run does not offer"
    failure = cases["asks where, asks a model for a name, and says both"].find("failure")
    assert failure is not None
    assert failure.attrib["message"].startswith('text: is "Release: Quiet Harbor')
    assert failure.text.startswith("suites/deploy.mcp.yaml:16:5 · 2026-07-28")
    assert "│ + Release: Quiet Harbor\n" in failure.text


def test_the_conversation_is_what_was_printed():
    (case,) = [case for case in parsed(RUN).iter("testcase") if case.attrib["name"].startswith("deploys")]
    assert "server ◀─ asks confirm: Deploy shop 2.4.0 to prod?" in case.findtext("system-out")


def test_a_test_that_ran_in_both_eras_has_two_names():
    older = msgspec.structs.replace(PASSED, era="2025-11-25")
    root = parsed(Summary(outcomes=(PASSED, older), seconds=1.0, started=0.0))
    assert [case.attrib["name"] for case in root.iter("testcase")] == [
        "deploys after the operator confirms [2026-07-28]",
        "deploys after the operator confirms [2025-11-25]",
    ]


def test_suites_that_ran_at_once_are_told_apart():
    other = msgspec.structs.replace(PASSED, suite="b")
    root = parsed(Summary(outcomes=(PASSED, other, PASSED), seconds=1.0, started=0.0))
    assert [(suite.attrib["name"], suite.attrib["tests"]) for suite in root] == [
        ("b", "1"),
        ("suites/deploy.mcp.yaml", "2"),
    ]


def test_no_token_is_in_it():
    assert TOKEN[:24] not in render(EVERYTHING)


@given(st.text(st.characters()))
def test_whatever_a_server_says_the_document_is_well_formed(text):
    outcome = Outcome(
        name=text,
        suite=text,
        place=at(1),
        status="failed",
        checks=(Check(name=text, passed=False, problem=text, expected="", actual=text),),
        turns=(Turn(method=text, params={text: text}, result={"content": [{"type": "text", "text": text}]}),),
        log=text,
    )
    parsed(Summary(outcomes=(outcome,), seconds=0.0, started=0.0))


@pytest.mark.parametrize("status", ["failed", "broken", "skipped"])
def test_a_test_without_a_reason_still_has_a_message(status):
    outcome = Outcome(name="x", suite="y", place=at(1), status=status)
    (case,) = parsed(Summary(outcomes=(outcome,), seconds=0.0, started=0.0)).iter("testcase")
    assert case[0].attrib["message"] == status
