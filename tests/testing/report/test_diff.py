"""Differences: small where little differs, and found in no time where much does."""

import time

from hypothesis import assume, given
from hypothesis import strategies as st

from antiphon.testing.report.diff import TextDiff, ValueDiff, compare_texts, compare_values, difference
from antiphon.testing.suite.checks import same

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"]) | st.just(1.0),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab c"), inner, max_size=3),
    max_leaves=10,
)
LINES = st.lists(st.sampled_from(["one", "two", "three two one", ""]), max_size=12).map("\n".join)


def drawn(expected, actual, **about):
    signs = {"both": " ", "expected": "-", "actual": "+", "gap": "~"}
    return [f"{signs[item.side]}{item.left_out or item.text}" for item in compare_texts(expected, actual, **about)]


def changes(expected, actual):
    return [(change.path, change.kind, change.expected, change.actual) for change in compare_values(expected, actual)]


def test_lines_that_differ_stand_together_and_words_are_marked():
    assert drawn("a\nQuiet Harbour\nz", "a\nQuiet Harbor\nz") == [" a", "-Quiet Harbour", "+Quiet Harbor", " z"]
    _, ours, theirs, _ = compare_texts("a\nQuiet Harbour\nz", "a\nQuiet Harbor\nz")
    assert [(part.text, part.marked) for part in ours.parts] == [("Quiet ", False), ("Harbour", True)]
    assert [(part.text, part.marked) for part in theirs.parts] == [("Quiet ", False), ("Harbor", True)]


def test_lines_with_nothing_in_common_are_not_marked():
    assert not any(part.marked for item in compare_texts("some words", "others!") for part in item.parts)


def test_equal_lines_far_from_a_difference_are_left_out():
    text = "\n".join(map(str, range(20)))
    assert drawn(text, text.replace("10", "ten"), context=1) == ["~9", " 9", "-10", "+ten", " 11", "~8"]


@given(LINES, LINES)
def test_both_texts_can_be_read_from_a_difference(expected, actual):
    assume(expected != actual)  # without a difference there is nothing to read
    lines = compare_texts(expected, actual, context=99)
    assert "\n".join(item.text for item in lines if item.side in {"both", "expected"}) == expected
    assert "\n".join(item.text for item in lines if item.side in {"both", "actual"}) == actual


def test_a_difference_of_long_texts_takes_no_time():
    expected = "\n".join(f"{number} some line with words in it" for number in range(50_000))
    actual = "\n".join(f"{number} another line, quite unlike" for number in range(50_000))
    begun = time.perf_counter()
    lines = compare_texts(expected, actual)
    assert time.perf_counter() - begun < 3
    assert lines[-1].side == "gap"
    assert lines[-1].left_out == 49_600


def test_json_differs_by_path():
    expected = {"id": 1, "nodes": [{"id": 1}, {"id": 2}], "odd key": "x", "gone": None}
    actual = {"id": 2, "nodes": [{"id": 1}, {"id": 3}], "odd key": "y", "new": True}
    assert changes(expected, actual) == [
        ("$.id", "changed", 1, 2),
        ("$.nodes[1].id", "changed", 2, 3),
        ('$["odd key"]', "changed", "x", "y"),
        ("$.gone", "missing", None, None),
        ("$.new", "unexpected", None, True),
    ]


def test_one_item_too_many_does_not_make_the_rest_differ():
    assert changes([1, 2, 3], [0, 1, 2, 3]) == [("$[0]", "unexpected", None, 0)]
    assert changes([1, 2, 3], [1, 3]) == [("$[1]", "missing", 2, None)]


def test_true_is_no_number_and_one_is_one_point_nothing():
    assert changes({"a": True, "b": 1, "c": -1}, {"a": 1, "b": 1.0, "c": -2}) == [
        ("$.a", "changed", True, 1),
        ("$.c", "changed", -1, -2),
    ]


@given(JSON, JSON)
def test_no_difference_means_equal(expected, actual):
    assert (not changes(expected, actual)) == same(expected, actual)
    assert not changes(expected, expected)


def test_long_lists_are_compared_by_position():
    begun = time.perf_counter()
    found = changes([{"id": number} for number in range(5_000)], [{"id": number + 1} for number in range(5_001)])
    assert time.perf_counter() - begun < 3
    assert found[0] == ("$[0].id", "changed", 0, 1)
    assert found[-1] == ("$[5000]", "unexpected", None, {"id": 5_001})


def test_a_difference_has_at_most_so_many_parts():
    found = difference(list(range(3_000)), list(range(1, 3_001)))
    assert isinstance(found, ValueDiff)
    assert len(found.changes) == 1_000


def test_only_values_of_one_kind_are_compared_part_by_part():
    assert isinstance(difference("a", "b"), TextDiff)
    assert isinstance(difference({}, {"a": 1}), ValueDiff)
    assert [difference(*pair) for pair in [("a", 1), ({}, []), (1, 2), (None, "a")]] == [None] * 4
