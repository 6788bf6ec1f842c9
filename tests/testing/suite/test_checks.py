"""Matchers, paths and variables: what a suite says of a value."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.testing.json_paths import ABSENT, read_path
from antiphon.testing.snapshots import IGNORED, without
from antiphon.testing.suite.checks import problem_with, same
from antiphon.testing.suite.variables import filled, missing_environment, names_in

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("a", "a"),
        (1, 1.0),
        ({"a": [1, None]}, {"a": [1, None]}),
        ({"equals": {"contains": 1}}, {"contains": 1}),
        ({"contains": "b"}, "abc"),
        ({"contains": ["a", "c"]}, "abc"),
        ({"contains": 2}, [1, 2]),
        ({"contains": [1, 2]}, [3, 2, 1]),
        ({"contains": {"id": 1}}, [{"id": 1, "name": "x"}]),
        ({"contains": {"who": {"name": "Ann"}}}, {"who": {"name": "Ann", "age": 40}, "id": 1}),
        ({"contains": {"id": {"min": 1}}}, {"id": 5, "more": True}),
        ({"matches": "^a.c$"}, "abc"),
        ({"matches": "b"}, "abc"),
        ({"not": "b"}, "a"),
        ({"not": {"contains": "x"}}, "abc"),
        ({"exists": True}, None),
        ({"exists": False}, ABSENT),
        ({"type": "number"}, 1),
        ({"type": "number"}, 1.5),
        ({"type": "integer"}, 1),
        ({"type": "null"}, None),
        ({"length": 3}, "abc"),
        ({"length": {"min": 1, "max": 2}}, [1]),
        ({"min": 1, "max": 3}, 2),
    ],
)
def test_a_value_is_as_expected(expected: Any, actual: Any):
    assert problem_with(expected, actual) == ""


@pytest.mark.parametrize(
    ("expected", "actual", "told"),
    [
        ("a", "b", 'is "b", and not "a"'),
        ("a", ABSENT, 'is nothing, and not "a"'),
        (1, True, "is true, and not 1"),
        (None, False, "is false, and not null"),
        ([1], [1, 2], "is [1,2], and not [1]"),
        ({"a": 1}, {"a": 1, "b": 2}, 'is {"a":1,"b":2}, and not {"a":1}'),
        ({"contains": "x"}, "abc", 'does not contain "x": it is "abc"'),
        ({"contains": ["a", "x"]}, "abc", 'does not contain "x": it is "abc"'),
        ({"contains": 1}, "1", 'does not contain 1: it is "1"'),
        ({"contains": "a"}, 5, 'does not contain "a": it is 5'),
        ({"contains": {"id": 2}}, {"id": 1}, 'does not contain {"id":2}: it is {"id":1}'),
        ({"matches": "^b"}, "abc", 'does not match ^b: it is "abc"'),
        ({"matches": "1"}, 1, 'is 1, which is no text that could match "1"'),
        ({"not": "a"}, "a", 'is "a", and should not be'),
        ({"not": {"contains": "a"}}, "a", 'is "a", which should not be so: contains "a"'),
        ({"exists": True}, ABSENT, "is not there"),
        ({"exists": False}, 1, "is there, and should not be: it is 1"),
        ({"type": "integer"}, True, "is true, and not of type integer"),
        ({"type": "number"}, "1", 'is "1", and not of type number'),
        ({"length": 2}, "abc", 'has a length that is 3, and not 2: it is "abc"'),
        ({"length": 2}, 5, "is 5, which has no length"),
        ({"min": 3}, 2, "is 2, less than 3"),
        ({"max": 3}, 4, "is 4, more than 3"),
        ({"min": 3}, "4", 'is "4", and no number'),
        ({"max": 3}, True, "is true, and no number"),
        ({"contains": "a", "min": 1}, "a", 'is "a", and no number'),
        ("a" * 300, "b", 'is "b", and not "' + "a" * 196 + "..."),
    ],
)
def test_what_is_not_as_expected_is_told(expected: Any, actual: Any, told: str):
    assert problem_with(expected, actual) == told


@settings(max_examples=60)
@given(JSON)
def test_every_value_equals_itself_and_contains_itself(value: Any):
    assert same(value, value)
    assert problem_with({"equals": value}, value) == ""
    assert problem_with({"not": {"equals": value}}, value) != ""


# --- paths --------------------------------------------------------------------------------------------------------

DATA = {"a": {"b": [{"id": 1}, {"id": 2, "c": None}]}, "odd name": 3, "it's": 4, "list": [[1, 2], [3]]}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$", DATA),
        ("$.a.b[0].id", 1),
        ("$.a.b[-1].id", 2),
        ("$.a.b[1].c", None),
        ("$['odd name']", 3),
        ('$["odd name"]', 3),
        (r"$['it\'s']", 4),
        ("$.a.b[*].id", [1, 2]),
        ("$.list[*][0]", [1, 3]),
        ("$..id", [1, 2]),
        ("$.a.*", [DATA["a"]["b"]]),
        ("$.a.b[2]", ABSENT),
        ("$.a.x", ABSENT),
        ("$.a[0]", ABSENT),
        ("$.a.b.id", ABSENT),
        ("$.x[*]", []),
        ("$.a.b[-3]", ABSENT),
    ],
)
def test_a_path_finds_what_it_names(path: str, found: Any):
    assert read_path(path).find(DATA) == found


@pytest.mark.parametrize("text", ["a", ".a", "$a", "$.", "$[", "$[a]", "$.a[1", "$['a", "$.a b", "$.a..", "$[1:2]", ""])
def test_what_is_no_path_is_refused(text: str):
    with pytest.raises(ValueError, match="path"):
        read_path(text)


@settings(max_examples=60)
@given(st.text("$.[]*'\"a0-\\", max_size=12), JSON)
def test_a_path_is_refused_or_finds_something_or_nothing(text: str, value: Any):
    try:
        path = read_path(f"${text}")
    except ValueError:
        return
    assert path.is_plural == isinstance(path.find(value), list) or not path.is_plural


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("$.id", {"id": IGNORED, "in": [{"id": 2}, {"id": 3}]}),
        ("$.in[0].id", {"id": 1, "in": [{"id": IGNORED}, {"id": 3}]}),
        ("$.in[*].id", {"id": 1, "in": [{"id": IGNORED}, {"id": IGNORED}]}),
        ("$.in[*]", {"id": 1, "in": [IGNORED, IGNORED]}),
        ("$..id", {"id": IGNORED, "in": [{"id": IGNORED}, {"id": IGNORED}]}),
        ("$.none.at.all", {"id": 1, "in": [{"id": 2}, {"id": 3}]}),
        ("$.*", {"id": IGNORED, "in": IGNORED}),
    ],
)
def test_what_a_snapshot_ignores_is_left_out(path: str, left: Any):
    value = {"id": 1, "in": [{"id": 2}, {"id": 3}]}
    assert without(value, [read_path(path)]) == left
    assert value == {"id": 1, "in": [{"id": 2}, {"id": 3}]}


# --- variables ----------------------------------------------------------------------------------------------------

KNOWN = {"id": 7, "name": "Ann", "who": {"x": [1]}}


@pytest.mark.parametrize(
    ("value", "made"),
    [
        ("${id}", 7),
        ("${who}", {"x": [1]}),
        ("note ${id} of ${name}", "note 7 of Ann"),
        ("${ name }", "Ann"),
        ("is ${who}", 'is {"x":[1]}'),
        ("$${id}", "${id}"),
        ("a $ and {b}", "a $ and {b}"),
        ({"${name}": ["${id}", {"x": "${id}!"}]}, {"Ann": [7, {"x": "7!"}]}),
        ("${env:HOME}", "/home/ann"),
        ("${env:NONE:-else}", "else"),
        ("${env:NONE:-}", ""),
        (None, None),
    ],
)
def test_references_are_replaced(value: Any, made: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/ann")
    assert filled(value, KNOWN) == made


def test_what_is_not_known_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("C", "")
    with pytest.raises(KeyError, match="nobody"):
        filled("${nobody}", KNOWN)
    with pytest.raises(KeyError, match="env:NONE"):
        filled("${env:NONE}", KNOWN)
    assert list(names_in("${a} $${b} ${env:C} ${d}")) == ["a", "d"]
    assert missing_environment("${env:A} ${env:B:-x} ${env:C}") == ["A"]


@settings(max_examples=60)
@given(st.text(max_size=30))
def test_a_text_without_references_stays_as_it_is(text: str):
    if "${" not in text:
        assert filled(text, {}) == text
