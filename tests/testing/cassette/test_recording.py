"""Recording: which messages belong together, which values are another each time, and which are nobody's business."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from conversation import FORM, META, NO, YES, Conversation, asks, call, note, request, result, said

from antiphon.testing.cassette import Cassette
from antiphon.testing.cassette.placeholders import read_json
from antiphon.testing.cassette.recording import Recording
from antiphon.testing.cassette.replaying import Replay, ReplayClient
from antiphon.wire.revisions import KEY as KEY_OF_QUESTION
from antiphon.wire.revisions import REQUEST

SECRET = "hunter2-is-no-password"


# --- exchanges ----------------------------------------------------------------------------------------------------


def test_all_rounds_of_a_call_are_one_entry() -> None:
    tape = Conversation().hear(
        (">", call(7, arguments={"env": "prod"})),
        ("<", asks(7, "sealed-1", confirm=FORM)),
        (">", call(8, arguments={"env": "prod"}, inputResponses={"confirm": YES}, requestState="sealed-1")),
        ("<", asks(8, "sealed-2", again=FORM)),
        (">", call(9, arguments={"env": "prod"}, inputResponses={"again": YES}, requestState="sealed-2")),
        ("<", said(9, "Deployed")),
    )
    ((first, asked, second, again, third, last),) = tape.turns()
    assert [first[1]["id"], second[1]["id"], third[1]["id"]] == ["${id:1}", "${id:2}", "${id:3}"]
    assert asked[1]["result"]["requestState"] == second[1]["params"]["requestState"] == "${state:1}"
    assert again[1]["result"]["requestState"] == third[1]["params"]["requestState"] == "${state:2}"
    assert last == ("<", {"id": "${id:3}", "result": {"content": [{"type": "text", "text": "Deployed"}]}})


def test_rounds_without_a_token_belong_to_the_call_that_they_repeat() -> None:
    tape = Conversation().hear(
        (">", call(1, arguments={"env": "a"})),
        (">", call(2, arguments={"env": "b"})),
        ("<", asks(2, confirm=FORM)),
        ("<", asks(1, confirm=FORM)),
        (">", call(3, arguments={"env": "b"}, inputResponses={"confirm": YES})),
        (">", call(4, arguments={"env": "a"}, inputResponses={"confirm": NO})),
        ("<", said(4, "a")),
        ("<", said(3, "b")),
    )
    assert [entry[-1][1]["result"]["content"][0]["text"] for entry in tape.turns()] == ["a", "b"]


def test_calls_that_have_the_same_token_are_told_apart_by_what_they_call() -> None:
    tape = Conversation().hear(
        (">", call(1, "x")),
        (">", call(2, "y")),
        ("<", asks(1, "constant", q=FORM)),
        ("<", asks(2, "constant", q=FORM)),
        (">", call(3, "y", inputResponses={"q": YES}, requestState="constant")),
        (">", call(4, "x", inputResponses={"q": YES}, requestState="constant")),
        ("<", said(3, "y")),
        ("<", said(4, "x")),
    )
    assert [[turn[1].get("params", {}).get("name") for turn in entry] for entry in tape.turns()] == [
        ["x", None, "x", None],
        ["y", None, "y", None],
    ]


def test_a_token_that_is_used_twice_names_the_entry_that_it_comes_from() -> None:
    retry = {"inputResponses": {"q": YES}, "requestState": "sealed"}
    tape = Conversation().hear(
        (">", call(1)), ("<", asks(1, "sealed", q=FORM)), (">", call(2, **retry)), ("<", said(2, "once")),
        (">", call(3, **retry)), ("<", said(3, "twice")),
    )  # fmt: skip
    first, second = tape.turns()
    assert len(first) == 4
    assert second[0][1]["params"]["requestState"] == "${state:1@1}"


def test_progress_logs_and_cancellation_belong_to_their_call() -> None:
    tape = Conversation().hear(
        (">", call(1, _meta={"progressToken": "p"})),
        (">", call(2, _meta={"progressToken": 1})),
        ("<", note("progress", progressToken=1, progress=1)),
        ("<", note("progress", progressToken="p", progress=1)),
        ("<", said(1, "done")),
        (">", note("cancelled", requestId=2)),
    )
    assert [[turn[1].get("method") for turn in entry] for entry in tape.turns()] == [
        ["tools/call", "notifications/progress", None],
        ["tools/call", "notifications/progress", "notifications/cancelled"],
    ]
    (_, progress, _), (_, _, cancelled) = tape.turns()
    assert progress[1]["params"]["progressToken"] == "${progress:1}"
    assert cancelled[1]["params"] == {"requestId": "${id:1}"}


def test_news_of_a_subscription_stand_where_they_came_and_name_their_stream() -> None:
    ours = {"_meta": {"io.modelcontextprotocol/subscriptionId": 1}}
    tape = Conversation().hear(
        (">", request(1, "subscriptions/listen", tools=True)),
        ("<", note("subscriptions/acknowledged", **ours)),
        (">", call(2)),
        ("<", said(2, "changed")),
        ("<", note("tools/list_changed", **ours)),
        ("<", note("tools/list_changed", **ours)),
        ("<", note("cancelled", requestId=1)),
    )
    listening, changing = tape.turns()
    assert [turn.get("method") for _, turn in listening] == [
        "subscriptions/listen",
        "notifications/subscriptions/acknowledged",
    ]
    assert [turn.get("method") for _, turn in changing[2:]] == [
        "notifications/tools/list_changed",
        "notifications/tools/list_changed",
        "notifications/cancelled",
    ]
    assert listening[1][1]["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "${id:1}"}
    assert changing[2][1]["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "${id:1@1}"}
    assert changing[-1][1]["params"] == {"requestId": "${id:1@1}"}


@pytest.mark.parametrize("is_first", [True, False])
def test_news_that_come_while_a_reply_is_owed_stand_behind_it(is_first: bool) -> None:
    """Which of the two is faster on its own stream is chance."""
    recording = Recording()
    listening, calling = recording.connect(), recording.connect()
    news = note("tools/list_changed", _meta={"io.modelcontextprotocol/subscriptionId": 1})
    stream = listening.sent(request(1, "subscriptions/listen"))
    exchange = calling.sent(call(1))
    if is_first:
        listening.received(news, on=stream)
    calling.received(said(1, "changed"), on=exchange)
    if not is_first:
        listening.received(news, on=stream)
    _, changing = recording.cassette().entries
    assert [turn.message.get("method") for turn in changing.turns] == [
        "tools/call",
        None,
        "notifications/tools/list_changed",
    ]
    assert changing.turns[2].message["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "${id:1@1}"}


@pytest.mark.parametrize("is_first", [True, False])
def test_news_name_their_own_stream_when_two_clients_have_the_same_ids(is_first: bool) -> None:
    recording = Recording()
    one, other, calling = recording.connect(), recording.connect(), recording.connect()
    name = "io.modelcontextprotocol/subscriptionId"
    news = note("tools/list_changed", _meta={name: 1})
    streams = [each.sent(request(1, "subscriptions/listen")) for each in (one, other)]
    exchange = calling.sent(call(1))
    if not is_first:
        calling.received(said(1, "changed"), on=exchange)
    for connection, stream in zip((other, one, other), (streams[1], streams[0], streams[1]), strict=True):
        connection.received(news, on=stream)
    if is_first:
        calling.received(said(1, "changed"), on=exchange)
    told = [turn.message["params"]["_meta"][name] for turn in recording.cassette().entries[2].turns[2:]]
    assert told == ["${id:1@2}", "${id:1@1}", "${id:1@2}"]
    replay = Replay(Cassette.from_json(recording.cassette().to_json()))
    first, second, third = ReplayClient(), ReplayClient(), ReplayClient()
    replay.answer(first, request("a", "subscriptions/listen"))
    replay.answer(second, request("b", "subscriptions/listen"))
    heard = [each for each in replay.answer(third, call(1)) if "method" in each.message]
    assert [each.client for each in heard] == [second, first, second]
    assert [each.message["params"]["_meta"][name] for each in heard] == ["b", "a", "b"]


# --- the older revisions ------------------------------------------------------------------------------------------


def test_what_an_old_server_asks_and_what_is_answered_are_turns_of_the_call() -> None:
    push = {"jsonrpc": "2.0", "id": 1, **FORM}
    tape = Conversation().hear(
        (">", request(0, "initialize", clientInfo={"name": "x"})), ("<", result(0, protocolVersion="2025-11-25")),
        (">", note("initialized")),
        (">", call(1)), ("<", push), ("<", {**push, "id": 2}),
        (">", result(2, **NO)), (">", result(1, **YES)), ("<", said(1, "done")),
    )  # fmt: skip
    greeting, asking = tape.turns()
    assert [turn[1].get("method") for turn in greeting] == ["initialize", None, "notifications/initialized"]
    # The answers stand in the order of the questions, whichever was faster.
    assert [(side, turn.get("id"), turn.get("result")) for side, turn in asking[1:5]] == [
        ("<", "${id:2}", None),
        ("<", "${id:3}", None),
        (">", "${id:2}", YES),
        (">", "${id:3}", NO),
    ]


def test_calls_at_once_are_asked_in_turn() -> None:
    """On a pipe nothing says which call a question belongs to: the first that waits for nothing is taken."""
    tape = Conversation().hear(
        (">", call("a", "x")), (">", call("b", "y")), ("<", {"id": 1, **FORM}), ("<", {"id": 2, **FORM}),
        (">", result(2, **NO)), (">", result(1, **YES)), ("<", said("b", "y")), ("<", said("a", "x")),
    )  # fmt: skip
    assert [[turn[1].get("result", turn[1].get("method")) for turn in entry][1:3] for entry in tape.turns()] == [
        ["elicitation/create", YES],
        ["elicitation/create", NO],
    ]


def test_what_a_server_sends_on_its_own_stands_where_it_came() -> None:
    tape = Conversation().hear(
        (">", request(0, "initialize")), ("<", result(0)), (">", note("initialized")),
        ("<", {"id": 9, "method": "roots/list"}), (">", result(9, roots=[])),
        ("<", note("tools/list_changed")),
    )  # fmt: skip
    ((*_, roots, answer, news),) = tape.turns()
    assert (roots[1]["method"], news[1]["method"]) == ("roots/list", "notifications/tools/list_changed")
    assert answer == (">", {"id": roots[1]["id"], "result": {"roots": []}})


def test_connections_keep_the_same_ids_apart() -> None:
    recording = Recording()
    one, other = recording.connect(), recording.connect()
    for connection, tool in ((one, "x"), (other, "y")):
        connection.sent(call(1, tool))
    for connection, text in ((other, "77aa"), (one, "5f3a")):
        connection.received(said(1, text))
    first, second = recording.cassette().entries
    assert [entry.turns[1].server["result"]["content"][0]["text"] for entry in (first, second)] == ["5f3a", "77aa"]


def test_batches_are_recorded_message_by_message() -> None:
    tape = Conversation().hear((">", [call(1, "x"), call(2, "y")]), ("<", [said(2, "y"), said(1, "x")]))  # type: ignore[arg-type]
    assert [len(entry) for entry in tape.turns()] == [2, 2]


@pytest.mark.parametrize("noise", [None, 5, "text", {"id": 4}, {"id": 99, "result": {}}, [], {}])
def test_what_belongs_to_nothing_is_left_out(noise: Any) -> None:
    tape = Conversation()
    _ = (tape > noise) < noise
    assert tape.turns() == []


@pytest.mark.parametrize(
    "odd", [{"method": ["x"]}, {"method": "tools/call", "params": [1]}, {"method": {}, "params": 3}]
)
def test_what_makes_no_sense_is_recorded_as_it_is(odd: Any) -> None:
    tape = Conversation().hear((">", {"id": [1], **odd}), ("<", {"id": [1], "result": 5}), ("<", odd), (">", odd))
    assert tape.turns()[0][:2] == [(">", {"id": "${id:1}", **odd}), ("<", {"id": "${id:1}", "result": 5})]


def test_what_is_nested_too_deep_is_left_out() -> None:
    deep: Any = {"id": 1, "result": {}}
    for _ in range(900):
        deep = {"id": 1, "result": deep}
    tape = Conversation().hear((">", call(1)), ("<", deep), (">", {**deep, "method": "ping"}), ("<", said(1, "x")))
    assert [len(entry) for entry in tape.turns()] == [2]
    assert read_json(json.dumps(result(1, x=[[1]])).encode()) == result(1, x=[[1]])
    assert read_json(b"[" * 900 + b"]" * 900) is None


# --- what is another each time ------------------------------------------------------------------------------------


def conversation(token: str, moment: str, order: str, first: int) -> Conversation:
    """One and the same conversation, with other tokens, times and numbers."""
    tape = Conversation(blind=["orderId", "$.result.structuredContent.took"])
    at = {"at": moment, "orderId": order, "took": first}
    answered = {"requestState": token, "inputResponses": {"confirm": YES}}
    return tape.hear(
        (">", call(first, arguments={"env": "prod"}, _meta={**META, "progressToken": first})),
        ("<", note("progress", progressToken=first, progress=1)),
        ("<", asks(first, token, confirm=FORM)),
        (">", call(first + 1, arguments={"env": "prod"}, **answered, _meta=META)),
        ("<", result(first + 1, structuredContent=at, content=[{"type": "text", "text": json.dumps(at)}])),
        (">", call(first + 2, "status", arguments={"order": order, "since": moment}, _meta=META)),
        ("<", result(first + 2, content=[{"type": "text", "text": f"Order {order} of {moment}"}])),
        (">", request(first + 3, "resources/list", _meta=META)),
        ("<", result(first + 3, resources=[], nextCursor=token[::-1])),
        (">", request(first + 4, "resources/list", cursor=token[::-1], _meta=META)),
        ("<", result(first + 4, resources=[])),
    )  # fmt: skip


def test_two_recordings_of_the_same_conversation_are_the_same_file() -> None:
    one = conversation("gAAAA", "2026-07-28T10:00:00Z", "order-7f3a9c", 1).recording.cassette().to_json()
    other = conversation("hBBBBBBB", "2027-01-01T00:00:00.5+02:00", "order-000001", 40).recording.cassette().to_json()
    # Only the number within a text that nobody listed is the server's own.
    assert one.replace('\\"took\\": 1}', "") == other.replace('\\"took\\": 40}', "")


def test_listed_fields_are_followed_wherever_the_client_or_the_server_repeats_them() -> None:
    buy, look, page, more = conversation("t", "2026-07-28T10:00:00Z", "order-7f3a9c", 1).turns()
    assert buy[-1][1]["result"]["structuredContent"] == {
        "at": "${time}",
        "orderId": "${text:1}",
        "took": "${number:1}",
    }
    assert '"orderId": "${text:1}"' in buy[-1][1]["result"]["content"][0]["text"]
    assert look[0][1]["params"]["arguments"] == {"order": "${text:1@1}", "since": "${time}"}
    assert look[1][1]["result"]["content"][0]["text"] == "Order ${text:1@1} of ${time}"
    assert page[1][1]["result"]["nextCursor"] == "${cursor:1}"
    assert more[0][1]["params"]["cursor"] == "${cursor:1@3}"


def test_the_clients_own_times_are_what_it_says() -> None:
    tape = Conversation().hear(
        (">", call(1, arguments={"since": "2026-07-28T10:00:00Z"})), ("<", said(1, "2026-07-28T10:00:00Z"))
    )
    ((asked, told),) = tape.turns()
    assert asked[1]["params"]["arguments"]["since"] == "2026-07-28T10:00:00Z"
    assert told[1]["result"]["content"][0]["text"] == "${time}"


def test_times_can_be_kept() -> None:
    tape = Conversation(keep_times=True).hear((">", call(1)), ("<", said(1, "2026-07-28T10:00:00Z")))
    assert tape.turns()[0][1][1]["result"]["content"][0]["text"] == "2026-07-28T10:00:00Z"


def test_an_elicitation_id_is_found_in_its_url_too() -> None:
    id_ = "0b0c7f5e-2c1e-4f0a-9d3c-2b1a0c9d8e7f"
    page = {
        "method": "elicitation/create",
        "params": {"mode": "url", "url": f"https://x/?e={id_}", "elicitationId": id_},
    }
    tape = Conversation().hear(
        (">", call(1)), ("<", asks(1, "s", sign_in=page)), ("<", note("elicitation/complete", elicitationId=id_))
    )
    ((_, asking, complete),) = tape.turns()
    asked = asking[1]["result"]["inputRequests"]["sign_in"]["params"]
    assert asked == {"mode": "url", "url": "https://x/?e=${elicitation:1}", "elicitationId": "${elicitation:1}"}
    assert complete[1]["params"]["elicitationId"] == "${elicitation:1}"


def test_what_every_request_repeats_stands_once() -> None:
    tape = Conversation().hear(
        (">", call(1, _meta={**META, "traceparent": "00-4bf9"})), (">", call(2, _meta={**META, "own": 1}))
    )
    cassette = tape.recording.cassette()
    assert [party.meta for party in cassette.clients] == [META]
    assert [entry.turns[0].party for entry in cassette.entries] == [1, 1]
    assert [entry.turns[0].client["params"].get("_meta") for entry in cassette.entries] == [None, {"own": 1}]


def test_a_text_that_looks_like_a_placeholder_stays_a_text() -> None:
    tape = Conversation().hear((">", call(1, arguments={"a": "${state:1} $${x}"})), ("<", said(1, "${id:1}")))
    ((asked, told),) = tape.turns()
    assert asked[1]["params"]["arguments"] == {"a": "${$}{state:1} $${$}{x}"}
    assert told[1]["result"]["content"][0]["text"] == "${$}{id:1}"


# --- secrets ------------------------------------------------------------------------------------------------------


def test_secrets_are_nowhere_in_the_file() -> None:
    recording = Recording(redact=["pin", "$.params.arguments.note", "X-Tenant-Key"])
    connection = recording.connect()
    headers = {
        "Authorization": f"Bearer {SECRET}-a",
        "Cookie": f"sid={SECRET}-b; theme=dark",
        "X-Tenant-Key": f"{SECRET}-c",
        "X-Request-Source": "tests",
        "Mcp-Param-Region": "eu",
        "User-Agent": "x",
    }
    arguments = {"password": f"{SECRET}-d", "pin": 4711, "note": f"{SECRET}-e", "name": "Ada", "token": ""}
    exchange = connection.sent(call(1, "login", arguments=arguments, _meta=META), headers)
    echo = " ".join([*(f"{SECRET}-{letter}" for letter in "abcde"), "PIN 4711", "Ada"])
    connection.received(said(1, echo), on=exchange)
    cassette = recording.cassette()
    text = cassette.to_json()
    assert SECRET not in text
    assert "4711" not in text
    assert cassette.clients[0].headers == {
        "authorization": "${secret:authorization}",
        "cookie": "${secret:cookie}",
        "x-tenant-key": "${secret:x-tenant-key}",
        "x-request-source": "tests",
    }
    turn = cassette.entries[0].turns[0]
    assert turn.headers == {"mcp-param-region": "eu"}
    assert turn.client["params"]["arguments"] == {
        "password": "${secret:password}",
        "pin": "${secret:pin}",
        "note": "${secret:note}",
        "name": "Ada",
        "token": "",
    }


def test_a_secret_in_what_a_client_says_of_itself_is_not_written() -> None:
    who = {"name": "tests", "version": "1 ${x}", "apiKey": SECRET}
    meta = {**META, "io.modelcontextprotocol/clientInfo": who}
    tape = Conversation().hear((">", call(1, _meta=meta)), ("<", said(1, "x")), (">", call(2, _meta=meta)))
    cassette = tape.recording.cassette()
    assert SECRET not in cassette.to_json()
    assert [party.meta["io.modelcontextprotocol/clientInfo"] for party in cassette.clients] == [
        {"name": "tests", "version": "1 ${$}{x}", "apiKey": "${secret:apiKey}"}
    ]


def test_a_header_that_mirrors_a_secret_argument_is_not_written() -> None:
    recording = Recording()
    headers = {"Mcp-Param-Password": "test", "Mcp-Param-Region": "eu"}
    recording.connect().sent(call(1, "login", arguments={"password": "test", "region": "eu"}), headers)
    (turn,) = recording.cassette().entries[0].turns
    assert turn.headers == {"mcp-param-password": "${secret:password}", "mcp-param-region": "eu"}


def test_a_secret_is_found_in_what_was_said_before_it_was_known() -> None:
    tape = Conversation().hear(
        (">", call(1)), ("<", said(1, f"use {SECRET}")), (">", call(2, arguments={"secret": SECRET}))
    )
    assert SECRET not in tape.recording.cassette().to_json()


def test_a_schema_may_speak_of_passwords() -> None:
    form = {
        "method": "elicitation/create",
        "params": {"requestedSchema": {"properties": {"password": {"type": "string"}}}},
    }
    tape = Conversation().hear((">", call(1)), ("<", asks(1, q=form)))
    assert tape.turns()[0][1][1]["result"]["inputRequests"]["q"] == form


@pytest.mark.parametrize("path", ["$.a[", "$a", ""])
def test_a_path_that_makes_no_sense_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        Recording(blind=[path])
    with pytest.raises(ValueError, match="path"):
        Recording(redact=[path])


KEY = '-----BEGIN\n"quoted" \\ key-with-é\nEND-----'


@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_secret_is_found_in_json_that_repeats_it(ascii_only: bool) -> None:
    content = {"private_key": KEY, "n": 1}
    inner = json.dumps(content, ensure_ascii=ascii_only)
    texts = [{"type": "text", "text": text} for text in (inner, json.dumps({"body": inner}), f"got {KEY}!")]
    tape = Conversation().hear((">", call(1)), ("<", result(1, structuredContent=content, content=texts)))
    written = tape.recording.cassette().to_json()
    assert "quoted" not in written
    assert "key-with" not in written
    told = tape.turns()[0][1][1]["result"]
    assert told["structuredContent"] == {"private_key": "${secret:private_key}", "n": 1}
    assert told["content"][0]["text"] == '{"private_key": "${secret:private_key}", "n": 1}'
    assert told["content"][2]["text"] == "got ${secret:private_key}!"


def test_the_fields_of_a_json_text_are_fields() -> None:
    text = '[{"session_token": "abcd.efgh-ijkl", "apiKey":"k7", "pin": 12, "token": null, "user": "\\u0041da"}]'
    tape = Conversation(redact=["pin"]).hear(
        (">", call(1)), ("<", said(1, text)), (">", call(2, arguments={"as": "abcd.efgh-ijkl"})),
    )  # fmt: skip
    (_, told), (again,) = tape.turns()
    assert told[1]["result"]["content"][0]["text"] == (
        '[{"session_token": "${secret:session_token}", "apiKey":"${secret:apiKey}", "pin": ${secret:pin},'
        ' "token": null, "user": "\\u0041da"}]'
    )
    assert again[1]["params"]["arguments"] == {"as": "${secret:session_token}"}


def test_json_within_json_has_fields_too() -> None:
    inner = json.dumps({"access_token": "abcd.efgh-ijkl"})
    tape = Conversation().hear((">", call(1)), ("<", said(1, json.dumps({"body": inner}))))
    assert "abcd" not in tape.recording.cassette().to_json()


@pytest.mark.parametrize("text", ["{", "[1, ", '{"password": "x"', "[" * 5000, "{]", '{"password": x}'])
def test_a_text_that_is_almost_json_stays_a_text(text: str) -> None:
    tape = Conversation().hear((">", call(1)), ("<", said(1, text)))
    assert tape.turns()[0][1][1]["result"]["content"][0]["text"] == text


def test_the_key_of_a_question_is_no_field_and_its_answer_is_one() -> None:
    form = {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": "Your password?", "requestedSchema": {"type": "object"}},
    }
    answers = {"password": {"action": "accept", "content": {"value": "my-pass-9999"}}, "token": {"action": "decline"}}
    tape = Conversation().hear(
        (">", call(1)), ("<", asks(1, "s", password=form, token=form)),
        (">", call(2, inputResponses=answers, requestState="s")), ("<", said(2, "thanks for my-pass-9999")),
    )  # fmt: skip
    ((_, asked, answered, told),) = tape.turns()
    assert asked[1]["result"]["inputRequests"] == {"password": form, "token": form}
    assert answered[1]["params"]["inputResponses"] == {
        "password": {"action": "accept", "content": {"value": "${secret:password}"}},
        "token": {"action": "decline"},
    }
    assert told[1]["result"]["content"][0]["text"] == "thanks for ${secret:password}"


def test_the_answer_to_an_old_servers_question_is_as_secret() -> None:
    push = {"id": 5, "method": "elicitation/create", "params": {"message": "?", "_meta": {KEY_OF_QUESTION: "password"}}}
    tape = Conversation().hear(
        (">", call(1)), ("<", push), (">", result(5, action="accept", content={"value": "my-pass-9999"})),
        ("<", said(1, "thanks for my-pass-9999")),
    )  # fmt: skip
    ((_, asked, answered, told),) = tape.turns()
    assert asked[1]["params"] == push["params"]
    assert answered[1]["result"] == {"action": "accept", "content": {"value": "${secret:password}"}}
    assert told[1]["result"]["content"][0]["text"] == "thanks for ${secret:password}"


def test_each_value_of_a_secret_has_a_name_of_its_own() -> None:
    tape = Conversation()
    for number, password in enumerate(("wrong-1234", "right-1234", "wrong-1234")):
        tape.hear((">", call(number, arguments={"password": password})), ("<", said(number, f"not {password}")))
    names = [entry[0][1]["params"]["arguments"]["password"] for entry in tape.turns()]
    assert names == ["${secret:password}", "${secret:password-2}", "${secret:password}"]
    assert [entry[1][1]["result"]["content"][0]["text"] for entry in tape.turns()] == [f"not {name}" for name in names]


@pytest.mark.parametrize("password", ["test", "Other", "PROD", "päss", "a1", "x"])
def test_a_short_word_is_a_secret_in_its_field_only(password: str) -> None:
    tape = Conversation().hear(
        (">", call(1, password, arguments={"password": password, "env": password})), ("<", said(1, f"in {password}")),
    )  # fmt: skip
    ((asked, told),) = tape.turns()
    assert asked[1]["params"] == {"name": password, "arguments": {"password": "${secret:password}", "env": password}}
    assert told[1]["result"]["content"][0]["text"] == f"in {password}"


@pytest.mark.parametrize("password", ["hunter2", "4711", "aBcD", "a-b-", "longword"])
def test_what_is_no_short_word_is_a_secret_everywhere(password: str) -> None:
    tape = Conversation().hear(
        (">", call(1, "t", arguments={"password": password, "again": password})), ("<", said(1, f"in {password}.")),
    )  # fmt: skip
    ((asked, told),) = tape.turns()
    assert asked[1]["params"]["arguments"]["again"] == "${secret:password}"
    assert told[1]["result"]["content"][0]["text"] == "in ${secret:password}."


def test_the_words_of_the_protocol_are_never_secrets() -> None:
    words = ["tools/call", "delete_everything", "elicitation/create", "complete", "notes://everything", "text/markdown"]
    tape = Conversation()
    for word in words:
        tape.hear((">", call(word, "delete_everything", arguments={"password": word, "name": word})))
    tape.hear((">", request(1, "resources/read", uri="notes://everything")))
    block = {"type": "resource", "resource": {"uri": "notes://everything", "mimeType": "text/markdown", "text": "x"}}
    tape.hear(("<", result(1, resultType="complete", contents=[block])))
    *calls, read = tape.turns()
    for number, (each,) in enumerate(calls, 1):
        secret = "${secret:password}" if number == 1 else f"${{secret:password-{number}}}"
        assert (each[1]["method"], each[1]["params"]["name"]) == ("tools/call", "delete_everything")
        assert each[1]["params"]["arguments"] == {"password": secret, "name": secret}
    assert read[0][1]["params"]["uri"] == "notes://everything"
    assert read[1][1]["result"] == {"resultType": "complete", "contents": [block]}


def test_a_long_secret_within_a_uri_is_not_written() -> None:
    tape = Conversation().hear(
        (">", call(1, arguments={"token": SECRET})), (">", request(2, "resources/read", uri=f"https://x/?key={SECRET}"))
    )
    assert tape.turns()[1][0][1]["params"]["uri"] == "https://x/?key=${secret:token}"


def test_the_parts_of_a_header_have_names_of_their_own() -> None:
    recording = Recording()
    connection = recording.connect()
    headers = {"Authorization": f"Bearer {SECRET}", "Cookie": "sid=abc-123-def; theme=dark"}
    exchange = connection.sent(call(1), headers)
    connection.received(said(1, f"Bearer {SECRET}, {SECRET}, abc-123-def, Bearer of the dark theme"), on=exchange)
    text = recording.cassette().entries[0].turns[1].server["result"]["content"][0]["text"]
    assert text == (
        "${secret:authorization}, ${secret:authorization.credentials}, ${secret:cookie.sid}, Bearer of the dark theme"
    )


# --- our own server of the older era ------------------------------------------------------------------------------


def hinted(id_: Any, of: Any) -> dict[str, Any]:
    """A question that says which call it belongs to."""
    return {"id": id_, **FORM, "params": {**FORM["params"], "_meta": {REQUEST: of, KEY_OF_QUESTION: "confirm"}}}


def test_a_question_belongs_to_the_call_that_it_names() -> None:
    tape = Conversation().hear(
        (">", call(7, "x")), (">", call(8, "y")), ("<", hinted(1, 8)), ("<", hinted(2, 7)),
        (">", result(2, **NO)), (">", result(1, **YES)), ("<", said(7, "x")), ("<", said(8, "y")),
    )  # fmt: skip
    x, y = tape.turns()
    for entry, answer in ((x, NO), (y, YES)):
        assert entry[0][1]["id"] == entry[1][1]["params"]["_meta"][REQUEST] == "${id:1}"
        assert entry[2][1]["result"] == answer


def test_the_number_that_a_link_has_for_a_call_is_not_written() -> None:
    asked = {name: value for name, value in hinted(0, 7).items() if name != "id"}
    tape = Conversation().hear((">", call(1)), ("<", asks(1, "s", confirm=asked)))
    params = tape.turns()[0][1][1]["result"]["inputRequests"]["confirm"]["params"]
    assert params == {**FORM["params"], "_meta": {KEY_OF_QUESTION: "confirm"}}
