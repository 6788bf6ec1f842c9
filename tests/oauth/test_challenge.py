"""WWW-Authenticate is read by its grammar, not by search."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.oauth.challenge import Challenge, challenge_of, read_challenges, union, write_challenge

WORDS = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8)
VALUES = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=30)


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("Bearer", [("bearer", {})]),
        ('Bearer realm="x"', [("bearer", {"realm": "x"})]),
        ('bEaReR Realm=x , scope = "a b"', [("bearer", {"realm": "x", "scope": "a b"})]),
        ('Bearer error="say \\"no\\", please", scope="a"', [("bearer", {"error": 'say "no", please', "scope": "a"})]),
        ('Basic realm="a", Bearer scope="b"', [("basic", {"realm": "a"}), ("bearer", {"scope": "b"})]),
        ("Negotiate abc==, Bearer scope=b", [("negotiate", {}), ("bearer", {"scope": "b"})]),
        ("Negotiate abc, Bearer scope=b", [("negotiate", {}), ("bearer", {"scope": "b"})]),
        ("Basic, Bearer", [("basic", {}), ("bearer", {})]),
        (", ,Bearer a=1,, b=2,", [("bearer", {"a": "1", "b": "2"})]),
        ('Bearer scope="a", scope="b"', [("bearer", {"scope": "a"})]),
        ('Bearer error_description="scope=\\"evil\\""', [("bearer", {"error_description": 'scope="evil"'})]),
        ('Bearer scope="never ends', [("bearer", {})]),
        ("", []),
        ("=,=", []),
    ],
)
def test_a_header_is_read_by_its_grammar(header, found):
    assert read_challenges(header) == [Challenge(scheme, parameters) for scheme, parameters in found]


@given(st.dictionaries(WORDS, VALUES, max_size=5))
def test_what_is_written_is_read_again(parameters):
    assert read_challenges(write_challenge("Bearer", parameters)) == [Challenge("bearer", parameters)]


@given(st.text(max_size=200))
def test_any_text_can_be_read(header):
    for challenge in read_challenges(header):
        assert challenge.scheme == challenge.scheme.lower()


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: x", "\x00", "ü"])
def test_a_value_that_would_break_the_header_is_refused(value):
    with pytest.raises(ValueError, match="printable"):
        write_challenge("Bearer", {"scope": value})


def test_the_challenge_to_follow_is_the_first_that_wants_a_token():
    assert challenge_of('Basic realm="x", DPoP algs="ES256", Bearer scope="a"').scheme == "dpop"
    assert challenge_of('Basic realm="x"') is None
    assert challenge_of(None) is None


def test_scopes_are_joined_without_repeating_any():
    assert union(("a", "b"), None, ("b", "c")) == ("a", "b", "c")
    assert union(None, None) is None
    assert challenge_of('Bearer scope="a  b a"').scopes == ("a", "b")
    assert challenge_of('Bearer scope=""').scopes is None
