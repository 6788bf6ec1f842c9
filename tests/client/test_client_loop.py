"""The loop of a call, stepped by hand: what it asks its driver for, and what it makes of the replies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import PeerBroken, RoundsExceeded
from antiphon.rounds.client_loop import Leg, Pause, Questions, asked, retry, rounds

from .scripted import YES, asks, done, form

CALL = {"name": "deploy", "arguments": {"env": "prod"}}
QUESTION = form(confirm=YES)


def end_of(steps, reply):
    with pytest.raises(StopIteration) as stopped:
        steps.send(reply)
    return stopped.value.value


def test_a_call_without_questions_is_one_leg():
    steps = rounds(CALL)
    assert next(steps) == Leg(CALL)
    assert end_of(steps, done()) == (done(), 1)


def test_a_question_is_put_and_its_answer_goes_back_with_the_state():
    steps = rounds(CALL)
    next(steps)
    assert steps.send(asks("token", sure=QUESTION)) == Questions({"sure": QUESTION}, "token", 1)
    answers = {"sure": {"action": "decline"}}
    assert steps.send(answers) == Leg({**CALL, "inputResponses": answers, "requestState": "token"})
    assert end_of(steps, done()) == (done(), 2)


def test_only_the_latest_rounds_answers_and_state_are_sent():
    steps = rounds(CALL)
    next(steps)
    steps.send(asks("one", first=QUESTION))
    steps.send({"first": {"action": "cancel"}})
    steps.send(asks(second=QUESTION))
    assert steps.send({"second": {"action": "decline"}}) == Leg(
        {**CALL, "inputResponses": {"second": {"action": "decline"}}}
    )


def test_a_round_without_a_state_is_answered_without_one():
    steps = rounds(CALL)
    next(steps)
    steps.send(asks(sure=QUESTION))
    assert "requestState" not in steps.send({"sure": {"action": "accept"}}).params


def test_a_round_of_only_a_state_waits_and_doubles_up_to_a_quarter_of_a_second():
    steps = rounds(CALL)
    step, waits = next(steps), []
    for _ in range(5):
        assert isinstance(step, Leg)
        pause = steps.send(asks("again"))
        assert isinstance(pause, Pause)
        waits.append(pause.seconds)
        step = steps.send(None)
        assert step == Leg({**CALL, "requestState": "again"})
    assert waits == [0.05, 0.1, 0.2, 0.25, 0.25]


def test_a_question_between_them_makes_the_waits_short_again():
    steps = rounds(CALL)
    next(steps)
    for _ in range(3):
        steps.send(asks("again"))
        steps.send(None)
    steps.send(asks("s", sure=QUESTION))
    steps.send({"sure": {"action": "decline"}})
    assert steps.send(asks("again")).seconds == 0.05


def test_ten_rounds_are_answered_and_the_eleventh_is_one_too_many():
    steps = rounds(CALL)
    next(steps)
    for number in range(1, 11):
        assert steps.send(asks("s", sure=QUESTION)).round == number
        steps.send({"sure": {"action": "decline"}})
    with pytest.raises(RoundsExceeded) as raised:
        steps.send(asks("s", sure=QUESTION))
    assert raised.value.code == "INPUT_REQUIRED_ROUNDS_EXCEEDED"
    assert raised.value.rounds == 11


def test_rounds_that_ask_nothing_count_towards_the_limit_too():
    steps = rounds(CALL, max_rounds=2)
    next(steps)
    for _ in range(2):
        steps.send(asks("again"))
        steps.send(None)
    with pytest.raises(RoundsExceeded):
        steps.send(asks("again"))


def test_a_call_goes_on_from_a_round_that_was_asked_elsewhere():
    start = Questions({"sure": QUESTION}, "token", 4)
    steps = rounds(CALL, start=start)
    assert next(steps) == start
    answers = {"sure": {"action": "decline"}}
    assert steps.send(answers) == Leg({**CALL, "inputResponses": answers, "requestState": "token"})
    assert end_of(steps, done()) == (done(), 5)


def test_a_result_without_a_type_is_complete():
    plain = {"content": []}
    assert asked(plain, 1) is None


@pytest.mark.parametrize("kind", ["task", "", None, 7, "COMPLETE"])
def test_a_result_of_an_unknown_type_is_an_error(kind):
    with pytest.raises(PeerBroken, match="unknown type"):
        asked({"resultType": kind, "content": []}, 1)


@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "input_required"},
        {"resultType": "input_required", "inputRequests": {}},
        {"resultType": "input_required", "inputRequests": [QUESTION]},
        {"resultType": "input_required", "inputRequests": {"a": "what?"}},
        {"resultType": "input_required", "inputRequests": {"a": {"params": {}}}},
        {"resultType": "input_required", "inputRequests": {"a": {"method": "x", "params": []}}},
        {"resultType": "input_required", "inputRequests": "yes", "requestState": "s"},
        {"resultType": "input_required", "requestState": 7},
        {"resultType": "input_required", "requestState": {"a": 1}},
    ],
)
def test_a_round_that_makes_no_sense_is_an_error(result):
    with pytest.raises(PeerBroken):
        asked(result, 1)


def test_what_an_earlier_leg_carried_is_not_carried_again():
    carried = {**CALL, "inputResponses": {"old": {}}, "requestState": "old"}
    assert retry(carried, None, None) == CALL


@given(st.text(), st.dictionaries(st.text(), st.integers()))
def test_the_state_is_echoed_exactly_as_it_came(state, arguments):
    call = {"name": "x", "arguments": arguments}
    steps = rounds(call)
    next(steps)
    steps.send(asks(state, sure=QUESTION))
    leg = steps.send({"sure": {"action": "decline"}})
    assert leg.params["requestState"] == state
    assert leg.params["arguments"] == arguments
    assert call == {"name": "x", "arguments": arguments}
