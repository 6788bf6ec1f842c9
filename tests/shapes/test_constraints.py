"""The formats a form can ask for."""

import pytest

from antiphon.shapes.constraints import problem_with

GOOD = {
    "email": ["a@b", "ada.lovelace+tag@mail.example.com", "o'brien@example.com", "jürgen@müller.example"],
    "uri": ["https://example.com", "http://[::1]:8080/a?b#c", "urn:isbn:1", "mailto:a@b.c", "file:///tmp/%20x"],
    "date": ["2026-07-28", "2024-02-29", "0001-01-01"],
    "date-time": ["2026-07-28T09:30:00Z", "2026-07-28t09:30:00.123456789+02:00", "2026-07-28 09:30:00-00:00"],
}
BAD = {
    "email": ["", "a", "@b", "a@", "a b@c", "a@b c", "a@b@c", "a@-b", ".a@b", "a@b..c", "a@b\n", "x" * 400 + "@b"],
    "uri": ["", "example.com", "/path", "http://a b", "https:", "1http://x", "http://[::1", "http://x/%zz", "a:b\n"],
    "date": ["", "2026-7-28", "20260728", "2026-02-30", "2026-13-01", "2026-07-28T00:00Z", "٢٠٢٦-٠٧-٢٨", "2026-W01-1"],
    "date-time": ["", "2026-07-28", "2026-07-28T09:30:00", "2026-07-28T09:30Z", "2026-02-30T09:30:00Z",
                  "2026-07-28T25:00:00Z", "2026-07-28T09:30:00+99:00", "09:30:00Z"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in GOOD.items() for text in texts])
def test_a_good_one_is_taken(name, text):
    assert problem_with(name, text) is None


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BAD.items() for text in texts])
def test_a_bad_one_is_told_what_was_expected(name, text):
    assert problem_with(name, text).startswith("expected a")


@pytest.mark.parametrize("name", ["email", "uri", "date", "date-time"])
def test_hostile_text_is_checked_in_no_time(name):
    for text in ("a" * 200_000, "a." * 100_000 + "@", "a:" + "%" * 200_000, "1" * 200_000, "a@" + "b-" * 100_000):
        assert problem_with(name, text)  # a regular expression that backtracks would never return
