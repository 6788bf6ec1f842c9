"""Turns become a conversation, whatever a server sends."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.escaping import compact
from antiphon.testing.report.conversation import conversation
from antiphon.testing.transcript import Turn
from testing.report.sample import BROKEN, FAILED, PASSED, REFUSED, TOKEN

WORDS = ["method", "params", "message", "messages", "requestedSchema", "properties", "required", "role", "content"]
WORDS += ["type", "text", "data", "resource", "roots", "uri", "action", "enum", "oneOf", "items", "contents", "name"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=6,
)
OBJECTS = st.dictionaries(
    st.sampled_from(["a", "content", "messages", "contents", "name", "arguments", "uri"]), JSON, max_size=3
)


def told(turns):
    return [(said.round, said.speaker, said.hearer, said.title, said.text) for said in conversation(turns)]


def last(**about):
    return conversation([Turn(method="tools/call", params={"name": "x"}, **about)])[-1]


def test_a_question_goes_to_the_user_and_its_answer_to_the_server():
    assert told(PASSED.turns) == [
        (1, "client", "server", "tools/call deploy", ""),
        (1, "server", "user", "asks confirm", "Deploy shop 2.4.0 to prod?"),
        (2, "user", "server", "confirm: accept", ""),
        (2, "server", "client", "answers", "Deployed to prod"),
    ]


def test_the_fields_of_a_form_are_told_in_words():
    (question,) = [said for said in conversation(FAILED.turns) if said.title == "asks where"]
    assert [(field.name, field.about, field.description) for field in question.fields] == [
        ("region", "eu-west | us-east, required", ""),
        ("replicas", "integer = 2", "How many copies."),
        ("contact", "string (email)", ""),
    ]


def test_a_model_is_asked_and_says_something():
    titles = [(said.title, said.text) for said in conversation(FAILED.turns)]
    assert ("asks the model name", "user: Name the release.") in titles
    assert ("name: the model says", "Quiet Harbor") in titles


def test_a_round_without_questions_is_a_wait_and_the_end_is_silence():
    assert [(said.kind, said.title) for said in conversation(BROKEN.turns)] == [
        ("call", "tools/call queue"),
        ("wait", "asks to be called again"),
        ("retry", "tries again"),
        ("silence", "no answer"),
    ]


def test_several_calls_begin_anew():
    assert [(round_, title) for round_, _, _, title, _ in told([*PASSED.turns, *REFUSED.turns])] == [
        (1, "tools/call deploy"),
        (1, "asks confirm"),
        (2, "confirm: accept"),
        (2, "answers"),
        (1, "resources/read note://missing"),
        (1, "refuses (-32002)"),
    ]


def test_a_refusal_has_its_code_and_its_data():
    _, refusal = conversation(REFUSED.turns)
    assert (refusal.title, refusal.text, refusal.data) == (
        "refuses (-32002)",
        "Resource not found",
        {"uri": "note://missing"},
    )
    assert refusal.failed


def test_an_answer_that_never_came_is_no_refusal():
    said = last(error={"message": "The server's process ended"})
    assert (said.title, said.text, said.failed) == ("no answer", "The server's process ended", True)


def test_a_tool_that_fails_is_not_a_refusal():
    said = last(result={"content": [{"type": "text", "text": "no"}], "isError": True})
    assert (said.kind, said.title, said.failed) == ("result", "fails", True)


def test_structured_content_that_repeats_the_text_is_shown_once():
    said = last(result={"content": [{"type": "text", "text": '{"a":1}'}], "structuredContent": {"a": 1}})
    assert (said.text, said.data) == ("", {"a": 1})
    said = last(result={"content": [{"type": "text", "text": "Booked"}], "structuredContent": {"result": "Booked"}})
    assert (said.text, said.data) == ("Booked", msgspec.UNSET)


def test_bytes_are_shown_by_their_size():
    blocks = [
        {"type": "image", "data": "QUJD" * 1000, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "a://b", "blob": "QUI="}},
        {"type": "resource_link", "uri": "a://b", "name": "b"},
        {"type": "resource", "resource": {"uri": "a://b", "text": "embedded"}},
    ]
    assert last(result={"content": blocks}).text == "[image/png, 3.0 kB]\n[bytes, 2 bytes]\n[a://b]\nembedded"


def test_prompts_and_resources_are_read_as_well():
    message = {"role": "user", "content": {"type": "text", "text": "Hello"}}
    assert last(result={"messages": [message]}).text == "user: Hello"
    assert last(result={"contents": [{"uri": "a://b", "text": "note"}]}).text == "note"
    assert last(result={"tools": []}).data == {"tools": []}


def test_the_other_kinds_of_questions():
    questions = {
        "in": {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "Sign in", "url": "https://a.example"},
        },
        "where": {"method": "roots/list"},
        "n": {"kind": "number", "description": "How many?", "required": False},
    }
    turns = [Turn(method="tools/call", params={"name": "x"}, questions=questions)]
    assert [(said.title, said.text) for said in conversation(turns)[1:]] == [
        ("asks in, in a browser", "Sign in\nhttps://a.example"),
        ("asks for roots where", ""),
        ("asks n", "How many?"),
    ]


def test_no_token_is_in_it():
    assert TOKEN not in repr(conversation(PASSED.turns))


TURNS = st.builds(
    Turn,
    method=st.sampled_from(["tools/call", "x"]),
    params=OBJECTS,
    answers=OBJECTS,
    questions=OBJECTS,
    result=st.none() | OBJECTS,
    error=st.none() | OBJECTS,
)


@settings(max_examples=40)
@given(st.lists(TURNS, max_size=2))
def test_nothing_that_a_server_sends_breaks_it(turns):
    for said in conversation(turns):
        assert said.title
        assert isinstance(said.text, str)
        assert said.data is msgspec.UNSET or compact(said.data)
