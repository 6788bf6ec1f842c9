"""A token that is opened for people, and sealed again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import Seal, SignedState
from antiphon.rounds.journal import Answered, AskedQuestion, Journal
from antiphon.rounds.opened_token import TokenKeys
from antiphon.rounds.token import SealBroken, binding, generate_key

KEY = generate_key(b"k" * 32)
CALL = {"method": "tools/call", "params": {"name": "pay", "arguments": {"euros": 40}}}
BOUND = binding(method="tools/call", name="pay", arguments={"euros": 40}, audience="bank", principal=None)
JOURNAL = Journal(
    flow=b"\x01\x02",
    round=2,
    asked={"sure": AskedQuestion(b"f", 1)},
    answers={"to": Answered(b"g", b'{"action":"accept","content":{"to":"Ada"}}', read=True)},
    steps={"fee": b"3"},
    state=b'{"at":1}',
)


def sealed(guard, journal=JOURNAL):
    return guard.seal(journal.pack(readable=guard.readable), bound_to=BOUND, now=1000.0, entropy=b"e" * 12)


@pytest.mark.parametrize("guard", [Seal([KEY]), SignedState([KEY])], ids=["sealed", "signed"])
def test_a_token_is_opened_even_after_its_end_and_says_what_it_holds(guard):
    opened = TokenKeys([KEY], audience="bank").open(sealed(guard), **CALL)
    assert (opened.flow, opened.round, opened.expires) == ("0102", 2, 1600.0)
    assert opened.asked == {"sure": 1}
    assert opened.answers == {"to": {"action": "accept", "content": {"to": "Ada"}}}
    assert (opened.steps, opened.state) == ({"fee": 3}, {"at": 1})


@pytest.mark.parametrize("guard", [Seal([KEY]), SignedState([KEY])], ids=["sealed", "signed"])
def test_a_token_that_is_sealed_again_in_the_past_has_expired(guard):
    keys = TokenKeys([KEY], audience="bank")
    old = keys.seal(sealed(guard), **CALL, now=0.0, entropy=b"f" * 12)
    assert keys.open(old, **CALL).steps == {"fee": 3}
    with pytest.raises(SealBroken, match="expired"):
        guard.open(old, bound_to=BOUND, now=1000.0)


def test_other_keys_another_call_and_another_server_do_not_open_it():
    token = sealed(Seal([KEY]))
    other = generate_key(b"o" * 32)
    with pytest.raises(SealBroken, match="unknown key"):
        TokenKeys([other], audience="bank").open(token, **CALL)
    with pytest.raises(SealBroken, match="forged"):
        TokenKeys([KEY], audience="shop").open(token, **CALL)
    with pytest.raises(SealBroken, match="forged"):
        TokenKeys([KEY], audience="bank").open(token, method="tools/call", params={"name": "pay", "arguments": {}})


@given(st.text())
def test_any_text_is_opened_or_refused(text):
    with pytest.raises(SealBroken):
        TokenKeys([KEY], audience="bank").open(text, **CALL)
