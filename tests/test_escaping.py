"""What a server says is harmless before it is shown."""

import json
import math
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.escaping import compact, counted, duration, indented, line, plain, shortened, visible
from testing.report.sample import HOSTILE, PASSED, TOKEN

ANYTHING = st.text(st.characters())  # lone surrogates included
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANYTHING,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANYTHING, inner, max_size=3),
    max_leaves=8,
)


@given(ANYTHING)
def test_no_letter_that_steers_a_terminal_is_left(text):
    shown = visible(text)
    assert {unicodedata.category(letter) for letter in shown if letter not in "\n\t\u200d"}.isdisjoint(
        {"Cc", "Cf", "Cs"}
    )
    assert "##[" not in shown
    shown.encode()


@given(ANYTHING)
def test_one_line_is_one_line(text):
    assert len(line(text).splitlines()) <= 1


@pytest.mark.parametrize("text", ["plain", "Größe 10 €", "two\nlines\tand a tab", "👩‍👩‍👧", ""])
def test_ordinary_text_stays_as_it_is(text):
    assert visible(text) == text


def test_what_is_dangerous_is_written_out():
    assert visible("\x1b[31m") == "\\x1b[31m"
    assert visible("\u202egnp.exe") == "\\u202egnp.exe"
    assert visible("\U000e0041") == "\\U000e0041"
    assert visible("##[group]") == "#\\x23[group]"


@given(JSON)
def test_anything_becomes_json(value):
    assert json.loads(compact(value)) == json.loads(indented(value)) == json.loads(json.dumps(plain(value)))


def test_values_that_json_has_not_are_told_in_words():
    assert plain({1: math.inf, "when": {"a"}, "file": PASSED.place.file}) == {
        "1": "inf",
        "when": ["a"],
        "file": "suites/deploy.mcp.yaml",
    }
    assert plain(PASSED.place) == {"file": "suites/deploy.mcp.yaml", "line": 6, "column": 5}


def test_depth_without_end_is_cut():
    deep: object = "bottom"
    for _ in range(100_000):
        deep = [deep]
    assert compact(deep) == "[" * 61 + '"…"' + "]" * 61


def test_a_token_is_shown_by_its_length():
    assert plain({"deep": [{"requestState": TOKEN}]}) == {"deep": [{"requestState": "<480 characters>"}]}
    assert plain({"requestState": "<480 characters>"}) == {"requestState": "<480 characters>"}


def test_long_text_says_how_much_is_left_out():
    assert shortened("abc", letters=3, lines=1) == "abc"
    assert shortened("abcdef", letters=3, lines=9) == "abc…\n(3 more characters)"
    assert shortened("a\nb\nc", letters=9, lines=2) == "a\nb…\n(2 more characters)"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0 ms"), (0.0123, "12 ms"), (0.9994, "999 ms"), (0.9996, "1.0 s"), (12.34, "12.3 s"), (125, "2 min 5 s")],
)
def test_a_duration_is_told_in_what_fits(seconds, told):
    assert duration(seconds) == told


def test_one_is_singular():
    assert [counted(1, "round"), counted(0, "round"), counted(1200, "line")] == ["1 round", "0 rounds", "1,200 lines"]


def test_the_sample_is_hostile():
    assert all(part in HOSTILE for part in ["\x1b", "<script>", "::error", "##[", "]]>", "\x00", "\u202e", "\ud800"])
