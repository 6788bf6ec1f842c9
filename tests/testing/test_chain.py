"""The chain: every branch of the recogniser, the answering and the loop, in both dialects."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import Accepted, Cancelled, Declined, Root, Sample, Text
from antiphon.errors import CannotAnswer, PeerBroken, RoundsExceeded
from antiphon.testing import (
    DEFAULT_MAX_ROUNDS,
    AnswerMissing,
    AnswerUnfit,
    HalfShaped,
    InputRequest,
    InputResponseFixture,
    build_retry_params,
    collect_responses,
    recognize_input_required,
    run_chain,
    run_chain_async,
)

CONFIRM = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Deploy?",
        "requestedSchema": {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]},
    },
}
PAGE = {"method": "elicitation/create", "params": {"mode": "url", "message": "Log in", "url": "https://example.com"}}
POEM = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 10}}
ROOTS = {"method": "roots/list"}
CITY = {"id": "city", "kind": "string", "description": "What city?", "required": True}
CALL = {"name": "weather", "arguments": {"loc": "SFO"}}


def reply(**result):
    return {"jsonrpc": "2.0", "id": 1, "result": result}


def asks(requests=None, state=None):
    """A result of the protocol's own shape."""
    result = {"resultType": "input_required"}
    if requests is not None:
        result["inputRequests"] = requests
    if state is not None:
        result["requestState"] = state
    return reply(**result)


def lists(*requests, state="token", **more):
    """A result of the list dialect."""
    return reply(inputRequests=list(requests), requestState=state, **more)


def form(**fields):
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": schema}}


DONE = reply(resultType="complete", content=[])


# --- recognising, the protocol's shape ----------------------------------------------------------------------------


def test_requests_and_a_state_are_recognised():
    found = recognize_input_required(asks({"confirm": CONFIRM, "poem": POEM}, "token"))
    assert found is not None
    assert found.dialect == "spec"
    assert found.requests == {"confirm": CONFIRM, "poem": POEM}
    assert found.keys == ("confirm", "poem")
    assert found.state == "token"
    assert found.problems == ()


def test_requests_alone_are_enough():
    found = recognize_input_required(asks({"where": ROOTS}))
    assert found is not None
    assert (found.state, found.problems) == (None, ())


def test_a_state_alone_is_enough():
    for response in (asks(state="later"), asks({}, "later")):
        found = recognize_input_required(response)
        assert found is not None
        assert (found.requests, found.state, found.problems) == ({}, "later", ())


def test_a_state_is_opaque_and_may_even_be_empty():
    found = recognize_input_required(asks({"confirm": CONFIRM}, ""))
    assert found is not None
    assert (found.state, found.problems) == ("", ())


@pytest.mark.parametrize(
    "envelope",
    [
        DONE,
        reply(content=[]),
        reply(inputRequests={"confirm": CONFIRM}, requestState="token"),
        reply(resultType="complete", inputRequests={"confirm": CONFIRM}, requestState="token"),
        reply(resultType="complete", inputRequests=[CITY], requestState="token"),
        reply(resultType="streaming", inputRequests={"confirm": CONFIRM}),
        reply(resultType=["input_required"], inputRequests={"confirm": CONFIRM}),
        {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no"}},
        {"error": {}, **asks({"confirm": CONFIRM})},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "result": None},
        {"jsonrpc": "2.0", "id": 1, "result": [asks({"confirm": CONFIRM})]},
        asks({"confirm": CONFIRM})["result"],
        [],
        "input_required",
        None,
        7,
    ],
    ids=repr,
)
def test_what_does_not_ask_is_an_ordinary_response(envelope):
    assert recognize_input_required(envelope) is None


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (asks(), "neither inputRequests nor a requestState"),
        (asks({}), "neither inputRequests nor a requestState"),
        (reply(resultType="input_required", inputRequests=None), "map from keys to requests, got nothing"),
        (asks([CITY]), "map from keys to requests, got a list"),
        (asks([], "token"), "map from keys to requests, got a list"),
        (asks("confirm", "token"), "map from keys to requests, got a string"),
        (reply(resultType="input_required", requestState=7), "requestState must be a string, got a whole number"),
        (reply(resultType="input_required", requestState=None), "requestState must be a string, got nothing"),
        (asks({"x": "Deploy?"}), "inputRequests['x']: a request is an object, got a string"),
        (asks({"x": {}}), "its method is None"),
        (asks({"x": {"method": "tools/call"}}), "its method is 'tools/call', not elicitation/create"),
        (asks({"x": {"method": "roots/list", "params": []}}), "params must be an object, got a list"),
        (asks({"x": {"method": "elicitation/create"}}), "params.message must be a string, got nothing"),
        (asks({"x": {"method": "elicitation/create", "params": {"message": "?"}}}), "params.requestedSchema must be"),
        (
            asks({"x": {"method": "elicitation/create", "params": {"mode": "url", "message": "?"}}}),
            "params.url must be a string",
        ),
        (asks({"x": {"method": "sampling/createMessage", "params": {"maxTokens": 1}}}), "params.messages must be"),
        (
            asks({"x": {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": True}}}),
            "params.maxTokens must be a whole number, got a boolean",
        ),
        (asks({1: CONFIRM}), "its key is not a string"),
    ],
)
def test_a_half_shaped_result_is_reported_as_one(response, problem):
    found = recognize_input_required(response)
    assert found is not None
    assert problem in "; ".join(found.problems)
    with pytest.raises(HalfShaped, match="half-shaped") as caught:
        run_chain(response, CALL, {"x": True, "confirm": True, "city": "Rome"})
    assert caught.value.found == found
    assert isinstance(caught.value, PeerBroken)


def test_the_sound_part_of_a_half_shaped_result_is_kept():
    found = recognize_input_required(asks({"good": CONFIRM, "bad": 1}, "token"))
    assert found is not None
    assert (found.requests, found.state) == ({"good": CONFIRM}, "token")
    assert len(found.problems) == 1


# --- recognising, the list dialect --------------------------------------------------------------------------------


def test_a_list_of_requests_is_the_other_dialect():
    response = lists(CITY, {"id": "days", "kind": "number", "required": False}, description="Needed for the forecast.")
    found = recognize_input_required(response)
    assert found is not None
    assert (found.dialect, found.state, found.problems) == ("mcptest", "token", ())
    assert found.description == "Needed for the forecast."
    assert found.keys == ("city", "days")
    assert found.requests == (
        InputRequest(id="city", kind="string", description="What city?", required=True),
        InputRequest(id="days", kind="number", description=None, required=False),
    )


def test_a_request_that_does_not_say_is_required():
    found = recognize_input_required(lists({"id": "city", "kind": "string"}))
    assert found is not None
    assert found.requests[0].required is True


def test_a_result_type_does_not_disturb_the_list_dialect():
    found = recognize_input_required(lists(CITY, resultType="input_required"))
    assert found is not None
    assert found.dialect == "mcptest"


@pytest.mark.parametrize(
    "response",
    [
        lists(),
        lists(CITY, state=""),
        lists(CITY, state=None),
        lists(CITY, state=7),
        reply(inputRequests=[CITY]),
        reply(requestState="token"),
        lists("city"),
        lists({"kind": "string"}),
        lists({"id": "city"}),
        lists({"id": 1, "kind": "string"}),
        lists({"id": "city", "kind": "string", "required": "yes"}),
        reply(inputRequests={"confirm": CONFIRM}, requestState="token"),
        {"result": None},
        None,
    ],
    ids=repr,
)
@pytest.mark.parametrize("dialect", ["mcptest", None])
def test_a_half_shaped_list_is_an_ordinary_result(response, dialect):
    assert recognize_input_required(response, dialect) is None
    assert run_chain(response, CALL, {}, dialect=dialect) == response


def test_a_dialect_can_be_chosen_by_name():
    both = lists(CITY, resultType="input_required")
    assert recognize_input_required(both, "mcptest").dialect == "mcptest"
    assert recognize_input_required(both, "spec").problems == (
        "inputRequests must be a map from keys to requests, got a list",
    )
    assert recognize_input_required(lists(CITY), "spec") is None
    assert recognize_input_required(asks({"confirm": CONFIRM}, "token"), "mcptest") is None
    with pytest.raises(ValueError, match="spec or mcptest, got 'other'"):
        recognize_input_required(DONE, "other")


# --- answering, the protocol's shape ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "answer", "response"),
    [
        (CONFIRM, {"confirm": True}, {"action": "accept", "content": {"confirm": True}}),
        (CONFIRM, False, {"action": "accept", "content": {"confirm": False}}),
        (CONFIRM, Accepted(True), {"action": "accept", "content": {"confirm": True}}),
        (CONFIRM, Declined(), {"action": "decline"}),
        (CONFIRM, Cancelled(), {"action": "cancel"}),
        (CONFIRM, "decline", {"action": "decline"}),
        (CONFIRM, {"action": "cancel"}, {"action": "cancel"}),
        (
            CONFIRM,
            {"action": "accept", "content": {"confirm": "sure"}},
            {"action": "accept", "content": {"confirm": "sure"}},
        ),
        (
            form(n={"type": "integer", "default": 3}),
            "accept",
            {"action": "accept", "content": {"n": 3}},
        ),
        (
            form(verb={"type": "string", "enum": ["keep", "cancel"]}),
            "cancel",
            {"action": "accept", "content": {"verb": "cancel"}},
        ),
        (
            form(verb={"type": "string", "oneOf": [{"const": "decline", "title": "Down"}]}),
            "decline",
            {"action": "accept", "content": {"verb": "decline"}},
        ),
        (form(action={"type": "string"}), {"action": "jump"}, {"action": "accept", "content": {"action": "jump"}}),
        (form(action={"type": "string"}), {"action": "decline", "content": None}, {"action": "decline"}),
        (PAGE, "accept", {"action": "accept"}),
        (PAGE, True, {"action": "accept"}),
        (PAGE, Accepted(None), {"action": "accept"}),
        (PAGE, {"action": "decline"}, {"action": "decline"}),
        (PAGE, Cancelled(), {"action": "cancel"}),
        (ROOTS, ["file:///a"], {"roots": [{"uri": "file:///a"}]}),
        (ROOTS, [], {"roots": []}),
        (ROOTS, {"roots": [Root("file:///a", name="A")]}, {"roots": [{"uri": "file:///a", "name": "A"}]}),
        (ROOTS, [{"uri": "file:///a"}], {"roots": [{"uri": "file:///a"}]}),
    ],
)
def test_an_answer_becomes_a_response(request_, answer, response):
    assert collect_responses({"key": request_}, {"key": answer}) == {"key": response}


@pytest.mark.parametrize(
    "answer", ["Roses", {"sample": "Roses"}, Sample(role="assistant", content=Text("Roses"), model="m")]
)
def test_a_text_is_what_a_model_wrote(answer):
    response = collect_responses({"poem": POEM}, {"poem": answer})["poem"]
    assert response["role"] == "assistant"
    assert response["content"] == {"type": "text", "text": "Roses"}
    assert response["model"]


@pytest.mark.parametrize(
    ("request_", "answer", "why"),
    [
        (CONFIRM, {"confrim": True}, "no such field: it has confirm"),
        (CONFIRM, "maybe", "does not fit its form"),
        (CONFIRM, {}, "does not fit its form"),
        (CONFIRM, "accept", "does not fit its form"),
        (CONFIRM, {"action": "agree"}, "accept, decline or cancel"),
        (CONFIRM, {"action": ["accept"]}, "accept, decline or cancel"),
        (CONFIRM, object(), "is not JSON"),
        (CONFIRM, None, "is empty"),
        (CONFIRM, [None], "is empty"),
        (form(), None, "is empty"),
        (form(n={"type": "integer", "default": 3}, m={"type": "string"}), None, "is empty"),
        (PAGE, None, "is empty"),
        (PAGE, [None], "is empty"),
        (POEM, None, "is empty"),
        (ROOTS, None, "is empty"),
        (form(), {"x": 1}, "it has no fields"),
        (PAGE, {"action": "accept", "content": {}}, "since a URL is opened or not"),
        (PAGE, "maybe", "since a URL is opened or not"),
        (POEM, 7, "must be what a model wrote"),
        (POEM, {"role": "assistant"}, "must be what a model wrote"),
        (ROOTS, "file:///a", "must be roots, a list of URIs"),
        (ROOTS, [7], "a root that is none"),
        ({"method": "tools/call"}, True, "which the protocol does not know"),
    ],
)
def test_an_answer_that_fits_nothing_says_why(request_, answer, why):
    with pytest.raises(AnswerUnfit, match=why) as caught:
        collect_responses({"key": request_}, {"key": answer})
    assert caught.value.key == "key"


def test_every_request_of_the_protocol_must_be_answered():
    with pytest.raises(AnswerMissing, match="no answer for 'confirm': the fixture answers 'other'") as caught:
        collect_responses({"confirm": CONFIRM}, {"other": True})
    assert caught.value.key == "confirm"
    assert isinstance(caught.value, CannotAnswer)
    with pytest.raises(AnswerMissing, match="the fixture answers nothing"):
        collect_responses({"confirm": CONFIRM}, InputResponseFixture())


def test_answers_may_be_a_list_as_the_other_dialect_has_it():
    given = [{"id": "confirm", "value": True}]
    assert collect_responses({"confirm": CONFIRM}, given)["confirm"]["content"] == {"confirm": True}
    fixture = InputResponseFixture([{"id": "city", "value": "Rome"}])
    assert collect_responses([{"id": "city", "kind": "string"}], fixture) == [{"id": "city", "value": "Rome"}]


def test_what_was_recognized_can_be_answered_as_a_whole():
    found = recognize_input_required(
        {"result": {"resultType": "input_required", "inputRequests": {"confirm": CONFIRM}}}
    )
    assert collect_responses(found, {"confirm": False})["confirm"]["content"] == {"confirm": False}
    assert not found.is_half_shaped


@pytest.mark.parametrize("requests", [None, 3, "confirm", {"a": None}, {"a": [CONFIRM]}, {1: CONFIRM}, [None], [{}]])
def test_requests_that_are_none_are_the_servers_fault(requests):
    with pytest.raises(PeerBroken):
        collect_responses(requests, {"a": True})


@pytest.mark.parametrize("fixture", [3, "yes", [True], [{"id": 1, "value": 2}], [{"value": 2}]])
def test_a_fixture_that_is_none_is_the_callers_fault(fixture):
    with pytest.raises(TypeError, match="maps keys to answers|list of answers holds"):
        collect_responses({"confirm": CONFIRM}, fixture)


@pytest.mark.parametrize("responses", ["yes", 3, True])
def test_responses_that_are_neither_map_nor_list_are_not_sent(responses):
    with pytest.raises(TypeError, match="Responses are a map"):
        build_retry_params({}, "state", responses)


def test_a_list_holds_one_answer_for_each_time():
    fixture = InputResponseFixture({"confirm": [False, "decline"], "spare": 1})
    assert collect_responses({"confirm": CONFIRM}, fixture)["confirm"]["content"] == {"confirm": False}
    assert fixture.unused == ["confirm", "spare"]
    # The same key asked twice within one call gets a number.
    assert collect_responses({"confirm-2": CONFIRM}, fixture) == {"confirm-2": {"action": "decline"}}
    assert fixture.unused == ["spare"]
    assert fixture.asked == ["confirm", "confirm-2"]
    with pytest.raises(AnswerMissing, match="2 answers for 'confirm' are used up"):
        collect_responses({"confirm": CONFIRM}, fixture)


def test_one_answer_serves_its_own_key_for_ever_and_no_other():
    fixture = InputResponseFixture({"confirm": True})
    for _ in range(3):
        assert collect_responses({"confirm": CONFIRM}, fixture)["confirm"]["action"] == "accept"
    with pytest.raises(AnswerMissing, match="'confirm-2'"):
        collect_responses({"confirm-2": CONFIRM}, fixture)


COLOURS = form(colours={"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}})


def test_a_list_is_the_answer_itself_where_one_is_asked_for():
    def content(answer, times=1):
        fixture = InputResponseFixture({"c": answer})
        responses = [collect_responses({"c": COLOURS}, fixture)["c"] for _ in range(times)]
        return [response.get("content", response) for response in responses]

    assert content(["red", "blue"]) == [{"colours": ["red", "blue"]}]
    assert content([]) == [{"colours": []}]
    assert content([["red"], {"colours": ["blue"]}], 2) == [{"colours": ["red"]}, {"colours": ["blue"]}]
    assert content(["decline", "cancel"], 2) == [{"action": "decline"}, {"action": "cancel"}]
    two = InputResponseFixture({"r": [["file:///a"], ["file:///b"]]})
    assert collect_responses({"r": ROOTS}, two) == {"r": {"roots": [{"uri": "file:///a"}]}}
    assert collect_responses({"r": ROOTS}, two) == {"r": {"roots": [{"uri": "file:///b"}]}}


# --- answering, the list dialect ----------------------------------------------------------------------------------


def test_a_list_is_answered_with_a_list():
    requests = (
        InputRequest(id="city", kind="string"),
        {"id": "days", "kind": "number"},
        {"id": "sure", "kind": "boolean"},
    )
    answers = {"city": "Rome", "days": [2.5], "sure": Accepted(False)}
    assert collect_responses(requests, answers) == [
        {"id": "city", "value": "Rome"},
        {"id": "days", "value": 2.5},
        {"id": "sure", "value": False},
    ]


def test_an_optional_request_without_an_answer_is_left_out():
    requests = [CITY, {"id": "days", "kind": "number", "required": False}]
    assert collect_responses(requests, {"city": "Rome"}) == [{"id": "city", "value": "Rome"}]
    assert collect_responses(requests[1:], {}) == []
    assert collect_responses(requests, {"city": "Rome", "days": 3})[1] == {"id": "days", "value": 3}


def test_a_required_request_without_an_answer_is_named():
    with pytest.raises(AnswerMissing, match="'city'"):
        collect_responses([CITY], {})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", 1),
        ("string", None),
        ("string", Declined()),
        ("number", "1"),
        ("number", True),
        ("number", float("nan")),
        ("number", float("inf")),
        ("boolean", 1),
        ("boolean", "yes"),
    ],
)
def test_a_value_of_another_kind_is_refused(kind, value):
    with pytest.raises(AnswerUnfit, match=f"'x' must be a {kind}"):
        collect_responses([{"id": "x", "kind": kind}], {"x": value})


def test_numbers_of_any_size_are_numbers():
    assert collect_responses([{"id": "x", "kind": "number"}], {"x": 10**400}) == [{"id": "x", "value": 10**400}]


@pytest.mark.parametrize("request_", [{"id": "x", "kind": "date"}, {"id": "x"}, "x", None])
def test_a_request_of_no_known_kind_is_the_servers_fault(request_):
    with pytest.raises(PeerBroken):
        collect_responses([request_], {"x": "today"})


# --- the next request ---------------------------------------------------------------------------------------------


def test_a_retry_is_the_same_call_with_answers_and_state():
    original = {**CALL, "_meta": {"a": 1}}
    responses = {"confirm": {"action": "accept", "content": {"confirm": True}}}
    assert build_retry_params(original, "token", responses) == {
        "name": "weather",
        "arguments": {"loc": "SFO"},
        "_meta": {"a": 1},
        "inputResponses": responses,
        "requestState": "token",
    }
    assert original == {**CALL, "_meta": {"a": 1}}


def test_a_retry_keeps_the_dialect_of_its_responses():
    assert build_retry_params(CALL, "token", [{"id": "city", "value": "Rome"}])["inputResponses"] == [
        {"id": "city", "value": "Rome"}
    ]
    assert build_retry_params(CALL, "token", [])["inputResponses"] == []


@pytest.mark.parametrize("responses", [None, {}])
def test_nothing_is_sent_that_did_not_come(responses):
    assert build_retry_params(CALL, None, responses) == CALL
    assert build_retry_params(CALL, "", responses) == {**CALL, "requestState": ""}


def test_what_an_earlier_round_left_is_replaced():
    stale = {**CALL, "requestState": "old", "inputResponses": {"old": {}}}
    assert build_retry_params(stale, None, None) == CALL


@pytest.mark.parametrize("params", [None, [], [1], "params", 7])
def test_params_that_are_no_object_count_as_none(params):
    assert build_retry_params(params, "token", None) == {"requestState": "token"}


def test_a_state_that_is_no_string_is_refused():
    with pytest.raises(TypeError, match="echoed as the string"):
        build_retry_params(CALL, 7, None)


# --- the chain ----------------------------------------------------------------------------------------------------


class Peer:
    """A server that gives its replies one after the other."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.got = []

    def send(self, params):
        self.got.append(params)
        return self.replies.pop(0)

    async def send_later(self, params):
        return self.send(params)


def test_a_response_that_asks_nothing_passes_through():
    for response in (DONE, {"error": {"code": 1, "message": "no"}}, None, "?"):
        assert run_chain(response, CALL, {}, DEFAULT_MAX_ROUNDS, Peer().send) is response


def test_one_round():
    peer = Peer(DONE)
    assert run_chain(asks({"confirm": CONFIRM}, "t1"), CALL, {"confirm": True}, 1, peer.send) == DONE
    assert peer.got == [
        {
            **CALL,
            "inputResponses": {"confirm": {"action": "accept", "content": {"confirm": True}}},
            "requestState": "t1",
        }
    ]


def test_one_round_in_the_list_dialect():
    peer = Peer(DONE)
    assert run_chain(lists(CITY), CALL, InputResponseFixture({"city": "San Francisco"}), 5, peer.send) == DONE
    assert peer.got == [{**CALL, "inputResponses": [{"id": "city", "value": "San Francisco"}], "requestState": "token"}]


def test_each_round_sends_its_own_answers_and_state_only():
    peer = Peer(asks({"poem": POEM}), asks(state="t3"), asks({"where": ROOTS}, "t4"), DONE)
    answers = {"confirm": True, "poem": "Roses", "where": []}
    assert run_chain(asks({"confirm": CONFIRM}, "t1"), CALL, answers, send=peer.send) == DONE
    assert [list(params.get("inputResponses", {})) for params in peer.got] == [["confirm"], ["poem"], [], ["where"]]
    assert [params.get("requestState") for params in peer.got] == ["t1", None, "t3", "t4"]


def test_a_server_may_change_its_dialect_on_the_way():
    peer = Peer(lists(CITY), DONE)
    assert run_chain(asks({"confirm": CONFIRM}), CALL, {"confirm": True, "city": "Rome"}, send=peer.send) == DONE
    assert peer.got[1]["inputResponses"] == [{"id": "city", "value": "Rome"}]


@pytest.mark.parametrize("most", [0, 1, DEFAULT_MAX_ROUNDS])
def test_a_server_that_asks_for_ever_is_left(most):
    peer = Peer(*[asks({"confirm": CONFIRM}, "again")] * 10)
    with pytest.raises(RoundsExceeded) as caught:
        run_chain(asks({"confirm": CONFIRM}, "first"), CALL, {"confirm": True}, most, peer.send)
    assert len(peer.got) == most
    assert caught.value.code == "INPUT_REQUIRED_ROUNDS_EXCEEDED"


def test_five_rounds_are_the_default():
    assert DEFAULT_MAX_ROUNDS == 5
    peer = Peer(*[asks({"confirm": CONFIRM})] * 4, DONE)
    assert run_chain(asks({"confirm": CONFIRM}), CALL, {"confirm": True}, send=peer.send) == DONE
    assert len(peer.got) == 5


def test_an_error_on_the_way_ends_the_chain():
    error = {"jsonrpc": "2.0", "id": 2, "error": {"code": -32602, "message": "Invalid or expired requestState"}}
    assert run_chain(asks(state="t"), CALL, {}, send=Peer(error).send) == error


def test_a_negative_limit_is_refused():
    with pytest.raises(ValueError, match="0 or more"):
        run_chain(DONE, CALL, {}, -1)


def test_a_chain_that_must_go_on_needs_a_way_to_send():
    with pytest.raises(TypeError, match="give send="):
        run_chain(asks(state="t"), CALL, {})


def test_an_asynchronous_send_belongs_to_the_other_function():
    with pytest.raises(TypeError, match="use run_chain_async"):
        run_chain(asks(state="t"), CALL, {}, send=Peer(DONE).send_later)


def test_the_end_of_the_callers_own_iterator_is_not_the_end_of_the_chain():
    replies = iter(())
    with pytest.raises(StopIteration):
        run_chain(asks(state="t"), CALL, {}, send=lambda params: next(replies))


async def test_the_asynchronous_twin_does_the_same():
    peer = Peer(asks({"poem": POEM}), DONE)
    answers = {"confirm": True, "poem": "Roses"}
    assert await run_chain_async(asks({"confirm": CONFIRM}), CALL, answers, send=peer.send_later) == DONE
    assert await run_chain_async(asks(state="t"), CALL, {}, send=Peer(DONE).send) == DONE
    assert await run_chain_async(DONE, CALL, {}) == DONE
    with pytest.raises(RoundsExceeded):
        await run_chain_async(asks(state="t"), CALL, {}, 1, Peer(asks(state="t")).send_later)
    assert len(peer.got) == 2


# --- anything at all ----------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
REQUEST = st.one_of(
    st.sampled_from([CONFIRM, PAGE, POEM, ROOTS]),
    st.fixed_dictionaries(
        {},
        optional={
            "method": st.sampled_from(["elicitation/create", "sampling/createMessage", "roots/list"]) | JSON,
            "params": JSON,
        },
    ),
    JSON,
)
LISTED = st.fixed_dictionaries(
    {},
    optional={
        "id": st.text(max_size=3) | JSON,
        "kind": st.sampled_from(["string", "number", "boolean"]) | JSON,
        "required": st.booleans() | JSON,
        "description": JSON,
    },
)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "resultType": st.sampled_from(["input_required", "complete"]) | JSON,
        "inputRequests": st.dictionaries(st.text(max_size=3), REQUEST, max_size=3)
        | st.lists(LISTED | JSON, max_size=3)
        | JSON,
        "requestState": st.text(max_size=3) | JSON,
    },
)
ENVELOPE = st.builds(lambda result: {"jsonrpc": "2.0", "id": 1, "result": result}, NEARLY | JSON) | JSON


@given(ENVELOPE, st.sampled_from(["spec", "mcptest", None]))
def test_whatever_comes_is_recognised_or_not_and_nothing_breaks(envelope, dialect):
    before = json.dumps(envelope)
    found = recognize_input_required(envelope, dialect)
    assert json.dumps(envelope) == before
    if found is None:
        return
    if found.dialect == "mcptest":
        assert found.requests
        assert found.state
        assert found.problems == ()
    else:
        assert envelope["result"]["resultType"] == "input_required"
        assert found.problems or found.requests or found.state is not None


@given(ENVELOPE, JSON, st.dictionaries(st.text(max_size=3), JSON, max_size=3), st.integers(0, 3), st.data())
@settings(max_examples=60)
def test_a_chain_ends_whatever_the_server_sends(first, params, answers, most, data):
    sent = []

    def send(next_params):
        json.dumps(next_params)
        sent.append(next_params)
        return data.draw(ENVELOPE)

    try:
        last = run_chain(first, params, answers, most, send)
    except (HalfShaped, RoundsExceeded, CannotAnswer, PeerBroken):
        pass
    else:
        assert recognize_input_required(last) is None
    assert len(sent) <= most


@given(st.dictionaries(st.text(max_size=5), st.booleans(), max_size=5), st.none() | st.text())
def test_a_retry_differs_from_the_call_in_two_fields_only(answers, state):
    requests = dict.fromkeys(answers, CONFIRM)
    found = recognize_input_required(asks(requests, state))
    assert found is not None
    if found.problems:
        assert not answers
        assert state is None
        return
    again = build_retry_params(CALL, found.state, collect_responses(found.requests, answers))
    assert {name: value for name, value in again.items() if name in CALL} == CALL
    assert again.keys() - CALL.keys() == {
        *(["inputResponses"] if answers else []),
        *(["requestState"] if state is not None else []),
    }
    assert again.get("requestState") == state
