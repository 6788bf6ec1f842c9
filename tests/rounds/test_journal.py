"""The rules by which a handler's questions meet its answers, stepped without a server, a token or an event loop."""

import contextlib
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from antiphon.errors import CannotAsk, UnstableQuestion, UserRefused
from antiphon.rounds import ask
from antiphon.rounds.ask import Question
from antiphon.rounds.journal import AskedQuestion, Conversation, InputRequired, Journal, RoundEnds, input_required
from antiphon.types import Accepted, Cancelled, Declined, Elicited, Missing, Root, Rooted, Sample, Sampled

FLOW = b"a flow's id."
EVERYTHING: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}
SAMPLE = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "parrot"}


def begun(responses: object = None, capabilities: dict[str, Any] = EVERYTHING) -> Conversation:
    return Conversation(Journal(FLOW), responses, capabilities)


def next_round(talk: Conversation, responses: object = None) -> Conversation:
    """What the next request meets: the journal went through a token in between."""
    talk.close()
    return Conversation(Journal.unpack(talk.journal.pack()), responses, EVERYTHING)


def ends(talk: Conversation, *questions: Question) -> None:
    """Each of the questions ends the round."""
    for question in questions:
        with pytest.raises(RoundEnds):
            talk.ask(question)


def accept(value: object) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": value}}


def text(key: str | None = "a", message: str = "A?") -> Question:
    return ask.form(message, str, key=key)


# --- the journal -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("readable", [False, True])
def test_a_journal_goes_through_a_token_and_counts_its_rounds(readable: bool) -> None:
    empty = Journal.unpack(Journal(FLOW).pack(readable=readable))
    assert (empty.flow, empty.round, empty.asked, empty.answers, empty.steps) == (FLOW, 2, {}, {}, {})
    assert empty.state is None
    journal = Journal(FLOW, steps={"s": b"1"}, state=b'{"a":1}', asked={"q": AskedQuestion(b"12345678", 1)})
    again = Journal.unpack(journal.pack(readable=readable))
    assert (again.flow, again.round) == (FLOW, 2)
    assert (again.steps, again.state, again.asked) == (journal.steps, journal.state, journal.asked)
    assert Journal.unpack(again.pack()).round == 3


def test_journals_do_not_share_what_they_hold() -> None:
    one, other = Journal(FLOW), Journal(FLOW)
    one.steps["s"] = b"1"
    assert other.steps == {}


@given(st.binary(max_size=64))
@example(b"")
@example(b"\x90")
@example(b"\x91\xc4\x01a")
@example(b"{")
@example(b"{}")
@example(b'{"flow":"zz","round":1,"asked":{},"answers":{},"steps":{},"state":null}')
@example(b"\xc1")
@example(b"\x96\xc4\x01a\xa1b\x80\x80\x80\xc0")
def test_what_is_no_journal_is_a_value_error(payload: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(Journal.unpack(payload), Journal)


def test_a_journal_tells_what_fills_it_heaviest_first() -> None:
    talk = begun()
    ends(talk, text())
    talk = next_round(talk, {"a": accept("x" * 500)})
    talk.ask(text())
    talk.journal.steps["download"] = b"y" * 900
    talk.journal.steps["small"] = b"y"
    told = talk.journal.weights()
    assert told.index("step 'download': 900 bytes") < told.index("answer 'a'") < told.index("step 'small'")


# --- asking ------------------------------------------------------------------------------------------------------


def test_the_first_question_without_an_answer_ends_the_round() -> None:
    talk = begun()
    ends(talk, text())
    result = talk.close()
    assert result["resultType"] == "input_required"
    assert result["inputRequests"] == {"a": text().to_wire()}
    assert list(talk.journal.asked) == ["a"]


def test_an_answer_to_a_question_that_was_asked_counts_and_stays() -> None:
    talk = begun()
    ends(talk, text())
    talk = next_round(talk, {"a": accept("x")})
    assert talk.ask(text()) == Accepted("x")
    ends(talk, text("b", "B?"))
    talk = next_round(talk, {"b": accept("y")})
    assert (talk.ask(text()), talk.ask(text("b", "B?"))) == (Accepted("x"), Accepted("y"))


@pytest.mark.parametrize(
    ("response", "answer"),
    [({"action": "decline"}, Declined()), ({"action": "cancel"}, Cancelled())],
)
def test_a_refusal_counts_and_stays(response: object, answer: object) -> None:
    talk = begun()
    ends(talk, text())
    talk = next_round(talk, {"a": response})
    assert talk.ask(text()) == answer
    ends(talk, text("b"))
    assert next_round(talk, {}).ask(text()) == answer


def test_an_answer_counts_only_if_its_question_was_asked() -> None:
    talk = begun({"a": accept("x"), "b": accept("y")})
    ends(talk, text())
    talk = next_round(talk, {"a": accept("x"), "b": accept("y")})
    assert talk.ask(text()) == Accepted("x")
    ends(talk, text("b", "B?"))


def test_an_answer_belongs_to_the_exact_question() -> None:
    for other in (
        text(message="Another?"),
        ask.form("A?", int, key="a"),
        ask.form("A?", Literal["x", "y"], key="a"),
        ask.confirm("A?", key="a"),
        ask.url("A?", "https://example.com/", key="a"),
        ask.sample("A?", max_tokens=1, key="a"),
        ask.roots(key="a"),
    ):
        talk = begun()
        ends(talk, text())
        talk = next_round(talk, {"a": accept("x")})
        ends(talk, other)
        talk = next_round(talk, {})
        ends(talk, other)


@pytest.mark.parametrize("wrong", [None, 5, [], {}, accept(5), {"action": "accept"}, SAMPLE, {"roots": []}])
def test_an_answer_that_does_not_fit_is_asked_for_again(wrong: object) -> None:
    talk = begun()
    ends(talk, text())
    talk = next_round(talk, {"a": wrong})
    ends(talk, text())
    talk = next_round(talk, {"a": accept("x")})
    assert talk.ask(text()) == Accepted("x")


def test_the_same_key_twice_in_one_run_is_two_questions() -> None:
    talk = begun()
    ends(talk, text())
    talk = next_round(talk, {"a": accept("1")})
    assert talk.ask(text()) == Accepted("1")
    ends(talk, text())
    assert list(talk.close()["inputRequests"]) == ["a-2"]
    talk = next_round(talk, {"a-2": accept("2")})
    assert [talk.ask(text()), talk.ask(text())] == [Accepted("1"), Accepted("2")]


def test_all_questions_that_end_a_round_are_in_it() -> None:
    talk = begun()
    ends(talk, text("a"), text("b"), ask.roots())
    assert list(talk.close()["inputRequests"]) == ["a", "b", "roots"]


def test_completions_and_roots_are_read_by_their_own_shape() -> None:
    talk = begun()
    ends(talk, ask.sample("Hi", max_tokens=1), ask.roots())
    talk = next_round(talk, {"sample": SAMPLE, "roots": {"roots": [{"uri": "file:///a"}]}})
    sample = talk.ask(ask.sample("Hi", max_tokens=1))
    assert isinstance(sample, Sample)
    assert sample.text == "hi"
    assert talk.ask(ask.roots()) == [Root("file:///a")]


def test_no_roots_are_an_answer_but_no_response_is_not() -> None:
    talk = begun()
    ends(talk, ask.roots())
    assert next_round(talk, {"roots": {"roots": []}}).ask(ask.roots()) == []
    talk = begun()
    ends(talk, ask.roots())
    ends(next_round(talk, {"roots": {}}), ask.roots())


# --- answers are not lost ----------------------------------------------------------------------------------------


def test_an_answer_that_is_not_looked_at_in_its_round_is_kept() -> None:
    talk = begun()
    ends(talk, text("a"), text("b"))
    talk = next_round(talk, {"a": accept("x"), "b": accept("y")})
    ends(talk, text("c"))
    talk = next_round(talk, {"c": accept("z")})
    assert [talk.ask(text(key)) for key in "cab"] == [Accepted("z"), Accepted("x"), Accepted("y")]


def test_an_answer_to_an_automatic_name_moves_with_its_question() -> None:
    talk = begun()
    ends(talk, text(None, "Old?"))
    talk = next_round(talk, {"value": accept("old")})
    ends(talk, text(None, "New?"))
    (name,) = talk.pending
    talk = next_round(talk, {name: accept("new")})
    assert [talk.ask(text(None, "New?")), talk.ask(text(None, "Old?"))] == [Accepted("new"), Accepted("old")]


def test_recorded_answers_move_with_their_questions() -> None:
    talk = begun()
    ends(talk, text(None, "First?"))
    talk = next_round(talk, {"value": accept("1")})
    assert talk.ask(text(None, "First?")) == Accepted("1")
    ends(talk, text(None, "Second?"))
    talk = next_round(talk, {"value-2": accept("2")})
    assert [talk.ask(text(None, "Second?")), talk.ask(text(None, "First?"))] == [Accepted("2"), Accepted("1")]


def test_an_invalid_answer_that_was_kept_is_asked_for_again() -> None:
    """As when an older release returned the question, and a newer one awaits it."""
    question = ask.form("How many?", int, key="n")
    talk = begun()
    talk.returned(input_required({"n": question}))
    talk = next_round(talk, {"n": accept("many")})
    talk.returned(input_required({"n": question}))
    talk = next_round(talk, {})
    ends(talk, question)
    assert next_round(talk, {"n": accept(3)}).ask(question) == Accepted(3)


# --- drift -------------------------------------------------------------------------------------------------------


def test_a_question_that_changes_once_is_asked_again() -> None:
    talk = begun()
    ends(talk, text(message="v1"))
    talk = next_round(talk, {"a": accept("x")})
    ends(talk, text(message="v2"))
    talk = next_round(talk, {"a": accept("y")})
    assert talk.ask(text(message="v2")) == Accepted("y")


def test_a_question_that_changes_after_every_answer_is_an_error_that_names_it() -> None:
    talk = begun()
    for number in range(2):
        ends(talk, text(message=f"It is {number}"))
        talk = next_round(talk, {"a": accept("x")})
    ends(talk, text(message="It is late"))
    with pytest.raises(UnstableQuestion, match="'a'"):
        talk.close()


def test_a_question_that_changes_while_nobody_answers_is_no_error() -> None:
    talk = begun()
    for number in range(6):
        ends(talk, text(message=f"It is {number}"))
        talk = next_round(talk, {})


def test_changing_twice_with_a_steady_round_between_is_no_error() -> None:
    talk = begun()
    for message in ("v1", "v2", "v2", "v3", "v3", "v4"):
        ends(talk, text(message=message))
        talk = next_round(talk, {"a": accept(5)})


def test_returned_questions_may_change_after_every_answer() -> None:
    talk = begun()
    for number in range(6):
        talk.returned(input_required({"a": text(message=f"Question {number}")}))
        talk = next_round(talk, {"a": accept(str(number))})
        assert talk.answer("a") == Elicited("accept", {"value": str(number)})


# --- returning ---------------------------------------------------------------------------------------------------


def test_returned_answers_accumulate_and_stay() -> None:
    talk = begun()
    talk.returned(input_required({"a": text("a"), "b": text("b")}))
    talk = next_round(talk, {"a": accept("1")})
    talk.returned(input_required({"b": text("b")}))
    talk = next_round(talk, {"a": accept("2"), "b": accept("3")})
    assert talk.answer("a") == Elicited("accept", {"value": "1"})
    talk.returned(input_required(state=1))
    talk = next_round(talk, None)
    assert talk.answer("a") == Elicited("accept", {"value": "1"})
    assert talk.answer("b") == Elicited("accept", {"value": "3"})


def test_the_newest_answer_to_a_question_that_is_returned_again_wins() -> None:
    talk = begun()
    for value in ("1", "2"):
        talk.returned(input_required({"a": text("a")}))
        talk = next_round(talk, {"a": accept(value)})
        assert talk.answer("a") == Elicited("accept", {"value": value})


def test_an_answer_that_was_read_does_not_answer_the_same_question_returned_again() -> None:
    talk = begun()
    talk.returned(input_required({"a": text("a"), "b": text("b")}))
    talk = next_round(talk, {"a": accept("1"), "b": accept("2")})
    assert talk.answer("a") == Elicited("accept", {"value": "1"})
    talk.returned(input_required({"a": text("a")}))
    talk = next_round(talk)
    assert talk.answer("a") == Missing()
    assert talk.answer("b") == Elicited("accept", {"value": "2"})


def test_an_answer_that_a_handler_of_raw_parameters_was_given_does_not_answer_the_same_question_again() -> None:
    talk = begun()
    talk.returned(input_required({"a": text("a")}, state="one"))
    talk = next_round(talk, {"a": accept("1")})
    assert talk.retried() == {"requestState": "one", "inputResponses": {"a": accept("1")}}
    ends(talk, text("between", "Between?"))
    talk = next_round(talk, {"between": accept("2")})
    assert talk.retried()["inputResponses"] == {"a": accept("1")}
    talk.returned(input_required({"a": text("a")}, state="two"))
    talk = next_round(talk)
    assert talk.retried() == {"requestState": "two"}
    ends(talk, text("between", "Otherwise?"))
    assert next_round(talk, {"between": accept("3")}).retried() == {"requestState": "two"}


def test_what_nobody_asked_for_nor_looked_at_is_not_kept() -> None:
    talk = begun({"stray": accept("1"), "seen": accept("2")})
    talk.answer("seen")
    talk.returned(input_required({"a": text()}))
    talk = next_round(talk, {})
    assert talk.answer("stray") == Missing()
    assert talk.answer("seen") == Elicited("accept", {"value": "2"})


def test_after_the_first_request_only_what_was_asked_for_is_seen() -> None:
    talk = begun()
    talk.returned(input_required({"a": text()}))
    talk = next_round(talk, {"a": accept("1"), "stray": accept("2")})
    assert talk.answer("stray") == Missing()
    talk.returned(input_required({"b": text("b")}))
    assert next_round(talk, {}).answer("stray") == Missing()


def test_state_is_of_the_round_before_only() -> None:
    talk = begun()
    talk.returned(input_required(state={"n": 1}))
    talk = next_round(talk)
    assert talk.journal.state == b'{"n":1}'
    talk.returned(input_required({"a": text()}))
    assert next_round(talk).journal.state is None


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_returned_question_that_was_just_refused_is_refused(action: str) -> None:
    talk = begun()
    talk.returned(input_required({"a": text()}))
    talk = next_round(talk, {"a": {"action": action}})
    with pytest.raises(UserRefused) as caught:
        talk.returned(input_required({"a": text()}))
    assert caught.value.action == action
    assert "'a'" in str(caught.value)


def test_asking_again_on_purpose_or_something_else_is_fine() -> None:
    for second in (ask.form("A?", str, again=True), text(message="Something else?")):
        talk = begun()
        talk.returned(input_required({"a": text()}))
        talk = next_round(talk, {"a": {"action": "decline"}})
        talk.returned(input_required({"a": second}))
        assert list(talk.pending) == ["a"]


# --- capabilities ------------------------------------------------------------------------------------------------


def test_all_that_is_missing_is_told_and_nothing_is_pending() -> None:
    talk = begun(capabilities={"elicitation": {}})
    for question in (ask.url("A?", "https://example.com/"), ask.sample("Hi", max_tokens=1), ask.roots()):
        with pytest.raises(CannotAsk) as caught:
            talk.ask(question)
    assert caught.value.required == {"elicitation": {"url": {}}, "sampling": {}, "roots": {}}
    assert talk.pending == {}


def test_a_returned_round_is_checked_as_a_whole() -> None:
    talk = begun(capabilities={"elicitation": {"form": {}}, "sampling": {}})
    questions = {
        "form": text(),
        "page": ask.url("A?", "https://example.com/"),
        "tools": ask.sample("Hi", max_tokens=1, tools=[]),
        "roots": ask.roots(),
    }
    with pytest.raises(CannotAsk) as caught:
        talk.returned(input_required(questions))
    assert caught.value.required == {"elicitation": {"url": {}}, "sampling": {"tools": {}}, "roots": {}}
    assert talk.pending == {}


def test_neither_signal_is_an_exception() -> None:
    assert not issubclass(RoundEnds, Exception)
    assert not issubclass(CannotAsk, Exception)


# --- whatever arrives --------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
actions = st.sampled_from(["accept", "decline", "cancel", "Accept", "", None, 1, True, ["accept"], {"accept": True}])
contents = json_values | st.fixed_dictionaries(
    {}, optional={"value": json_values | st.sampled_from(["x", 1, True]), "confirm": json_values | st.booleans()}
)
elicited = st.fixed_dictionaries({}, optional={"action": actions, "content": contents})
sampled = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["assistant", "user", "system", 1]),
        "content": st.fixed_dictionaries({"type": st.sampled_from(["text", "image", "x"]), "text": json_values})
        | json_values,
        "model": json_values,
    },
)
rooted = st.fixed_dictionaries({"roots": json_values | st.lists(st.fixed_dictionaries({"uri": json_values}))})
responses = elicited | sampled | rooted | json_values
names = st.sampled_from(["value", "confirm", "n", "page", "sample", "roots", "value-2", "other"])
input_responses = st.dictionaries(names, responses, max_size=8) | json_values

QUESTIONS: list[Question] = [
    ask.form("Text?", str),
    ask.confirm("Sure?"),
    ask.form("How many?", int, key="n"),
    ask.url("Sign in", "https://example.com/", key="page"),
    ask.sample("Hi", max_tokens=1),
    ask.roots(),
]
ANSWER_TYPES: dict[str, tuple[type, ...]] = {
    "form": (Accepted, Declined, Cancelled),
    "url": (Accepted, Declined, Cancelled),
    "sample": (Sample,),
    "roots": (list,),
}


def heard(talk: Conversation, question: Question) -> object:
    """The answer, or None where the round ends."""
    try:
        return talk.ask(question)
    except RoundEnds:
        return None


@given(input_responses)
def test_before_anything_was_asked_nothing_is_an_answer(arrived: object) -> None:
    talk = begun(arrived)
    ends(talk, *QUESTIONS)
    assert len(talk.close()["inputRequests"]) == len(QUESTIONS)


@given(st.lists(input_responses, min_size=1, max_size=3), st.sets(st.integers(0, len(QUESTIONS) - 1)))
def test_whatever_arrives_only_what_was_asked_is_answered_and_only_by_what_fits(
    arriving: list[object], asked: set[int]
) -> None:
    talk = begun()
    for place in sorted(asked):
        ends(talk, QUESTIONS[place])
    for arrived in arriving:
        talk = next_round(talk, arrived)
        for place, question in enumerate(QUESTIONS):
            answer = heard(talk, question)
            if answer is None:
                continue
            assert place in asked
            assert isinstance(answer, ANSWER_TYPES[question.kind])
            if isinstance(answer, Accepted) and question.form is not None:
                assert type(answer.value) is (str, bool, int)[place]
        asked = set(range(len(QUESTIONS)))


@given(input_responses, input_responses)
def test_whatever_arrives_a_confirmation_is_only_an_accepted_tick(first: object, second: object) -> None:
    question = ask.confirm("Sure?")
    talk = begun(first)
    ends(talk, question)
    talk = next_round(talk, second)
    answer = heard(talk, question)
    ticked = {"action": "accept", "content": {"confirm": True}}
    arrived = second.get("confirm") if isinstance(second, dict) else None
    said_yes = isinstance(arrived, dict) and {key: arrived.get(key) for key in ticked} == ticked
    assert (answer == Accepted(value=True)) == (said_yes and arrived["content"]["confirm"] is True)  # type: ignore[index]


@given(input_responses, input_responses)
@example({"confirm": {"action": ["accept"]}}, {"confirm": {"action": {}}})
def test_whatever_arrives_the_return_style_sees_one_of_four_things(first: object, second: object) -> None:
    talk = begun(first)
    for arrived in (second, None):
        for name in ("value", "confirm", "roots", "other"):
            assert isinstance(talk.answer(name), Missing | Elicited | Sampled | Rooted)
        returned(talk, input_required({"confirm": ask.confirm("Sure?"), "roots": ask.roots()}, state=1))
        talk = next_round(talk, arrived)


def returned(talk: Conversation, wanted: InputRequired) -> None:
    try:
        talk.returned(wanted)
    except UserRefused:
        talk.returned(input_required(state=2))


@given(input_responses, input_responses)
def test_whatever_arrives_a_journal_can_be_sealed_and_opened(first: object, second: object) -> None:
    talk = begun(first)
    for arrived in (second, first):
        for question in QUESTIONS:
            heard(talk, question)
        talk = next_round(talk, arrived)
    assert talk.journal.round == 3
