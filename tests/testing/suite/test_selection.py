"""Choosing tests."""

import pytest

from antiphon.testing.suite import Selection, loads
from antiphon.testing.suite.model import parse_expression

SUITE = loads("""
server: {app: x.py}
tests:
  - {name: deploys to prod, tool: x, tags: [slow, asking]}
  - {name: deploys nowhere, tool: x, tags: asking}
  - {name: adds a note, tool: x, capture: {id: $.id}}
  - {name: reads that note, resource: 'note://${id}', capture: {text: {text: '.*'}}}
  - {name: repeats it, tool: x, arguments: {text: '${text}'}}
""")


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("", [0, 1, 2, 3, 4]),
        ("deploys", [0, 1]),
        ("DEPLOYS and prod", [0]),
        ("deploys and not prod", [1]),
        ("prod or adds", [0, 2]),
        ("not (deploys or note)", [2, 3, 4]),
        ("asking", [0, 1]),
        ("slow or not asking and adds", [0, 2]),
        ("adds a note", [2]),
        ("'adds a' or \"to prod\"", [0, 2]),
        ("nothing of the kind", []),
    ],
)
def test_tests_are_chosen_by_words(expression: str, chosen: list[int]):
    assert Selection(expression=expression).chosen(SUITE) == chosen


def test_a_test_brings_those_that_it_needs():
    assert Selection(expression="repeats").chosen(SUITE) == [2, 3, 4]
    assert Selection(expression="reads that note").chosen(SUITE) == [2, 3]


def test_tests_are_chosen_by_tag():
    assert Selection(tags=("slow",)).chosen(SUITE) == [0]
    assert Selection(tags=("slow", "asking"), expression="nowhere").chosen(SUITE) == [1]
    assert Selection(tags=("other",)).chosen(SUITE) == []


@pytest.mark.parametrize("text", ["and", "a and", "(a", "a)", "not", "a or or b", "()", "a not b"])
def test_what_makes_no_sense_is_refused(text: str):
    with pytest.raises(ValueError, match="'"):
        parse_expression(text)
