"""Playing: a client gets what was recorded, with fresh tokens; anything else is refused with a diff."""

import asyncio
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from conversation import FORM, META, NO, YES, Conversation, asks, call, note, request, result, said

from antiphon import Accepted, Client, Context, Declined, Refused, Server
from antiphon.errors import Disconnected
from antiphon.testing.cassette import Cassette, Drifted, Player, Recorder
from antiphon.testing.cassette.replaying import Replay, ReplayClient
from antiphon.types import JsonObject
from antiphon.wire.revisions import KEY, REQUEST


class Guest:
    """A client of a replay, word by word."""

    def __init__(self, tape: Conversation | Cassette) -> None:
        self.replay = Replay(tape.recording.cassette() if isinstance(tape, Conversation) else tape)
        self.client = ReplayClient()

    def say(self, message: object) -> list[JsonObject]:
        return [each.message or {} for each in self.replay.answer(self.client, message)]


def state_of(message: JsonObject) -> str:
    state: str = message["result"]["requestState"]
    return state


@pytest.fixture
def app() -> Server:
    app = Server("releases", version="1.0.0")

    @app.tool
    async def deploy(env: str, ctx: Context) -> str:
        """Deploy after a yes."""
        return f"Deployed to {env}" if await ctx.confirm(f"Deploy to {env}?") else "Not deployed"

    @app.tool
    async def count(to: int, ctx: Context) -> str:
        """Count."""
        for number in range(to):
            await ctx.progress(number + 1, to)
        return "done"

    return app


# --- in process ---------------------------------------------------------------------------------------------------


async def talk(target: Any, *, answer: Any = lambda _: Accepted({"confirm": True}), env: str = "prod") -> list[Any]:
    heard: list[Any] = []
    async with Client(target, elicit=answer) as client:
        heard.append((await client.call_tool("deploy", {"env": env})).text)
        counted = await client.call_tool("count", {"to": 2}, progress=lambda *step: heard.append(step[:2]))
        heard += [counted.text, [tool.name for tool in await client.list_tools()]]
    return heard


async def test_a_client_hears_the_same_from_the_tape(app: Server, tmp_path: Path) -> None:
    heard = await talk(Recorder(app, tmp_path / "a.json"))
    player = Player(tmp_path / "a.json")
    assert await talk(player) == heard == ["Deployed to prod", (1, 2), (2, 2), "done", ["deploy", "count"]]
    player.check(complete=True)


async def test_recording_twice_gives_the_same_bytes(app: Server, tmp_path: Path) -> None:
    for name in ("a", "b"):
        await talk(Recorder(app, tmp_path / name))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


async def test_a_recording_that_is_played_can_be_recorded_again(app: Server, tmp_path: Path) -> None:
    await talk(Recorder(app, tmp_path / "a"))
    await talk(Recorder(Player(tmp_path / "a"), tmp_path / "b"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


async def test_the_revision_that_was_spoken_is_played_too(app: Server, tmp_path: Path) -> None:
    heard = await talk(Recorder(app, tmp_path / "a", era="2025-06-18"))
    player = Player(tmp_path / "a")
    assert await talk(player) == heard
    async with Client(Player(tmp_path / "a")) as client:
        assert (client.era, client.protocol_version) == ("legacy", "2025-06-18")


async def test_drift_is_refused_with_a_diff(app: Server, tmp_path: Path) -> None:
    await talk(Recorder(app, tmp_path / "a"))
    player = Player(tmp_path / "a")
    with pytest.raises(Refused, match="Not as recorded: tools/call deploy: it is not what was recorded"):
        await talk(player, env="test")
    assert '-      "env": "prod"\n+      "env": "test"' in player.drifts[0].diff
    assert [entry.title for entry in player.unplayed] == ["tools/call deploy", "tools/call count", "tools/list"]
    with pytest.raises(Drifted, match="recorded in entry 1, turn 1"):
        player.check()


async def test_another_answer_is_drift_in_the_second_turn(app: Server, tmp_path: Path) -> None:
    await talk(Recorder(app, tmp_path / "a"))
    player = Player(tmp_path / "a")
    with pytest.raises(Refused, match="it is not what was recorded"):
        await talk(player, answer=lambda _: Declined())
    assert "recorded in entry 1, turn 3" in player.drifts[0].diff
    assert "requestState" not in player.drifts[0].diff


async def test_what_was_left_out_counts_only_when_asked_for(app: Server, tmp_path: Path) -> None:
    await talk(Recorder(app, tmp_path / "a"))
    player = Player(tmp_path / "a")
    async with Client(player) as client:
        await client.list_tools()
    player.check()
    with pytest.raises(Drifted, match="tools/call deploy: it was recorded, and the client did not send it"):
        player.check(complete=True)


async def test_calls_at_once_are_answered_each_with_its_own(app: Server, tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]

    async def all_at_once(target: Any, order: list[str]) -> list[str]:
        async with Client(target, elicit=lambda asked: Accepted({"confirm": "a" not in asked.message[-2:]})) as client:
            calls = [client.call_tool("deploy", {"env": name}) for name in order]
            return [result.text for result in await asyncio.gather(*calls)]

    recorded = await all_at_once(Recorder(app, tmp_path / "a"), names)
    await all_at_once(Recorder(app, tmp_path / "b"), names)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    player = Player(tmp_path / "a")
    assert await all_at_once(player, names[::-1]) == recorded[::-1]
    player.check(complete=True)


async def test_errors_are_played_as_they_were(app: Server, tmp_path: Path) -> None:
    async def wrong(target: Any) -> tuple[int | None, str]:
        async with Client(target) as client:
            with pytest.raises(Refused) as fault:
                await client.read_resource("note://1")
            return fault.value.code, fault.value.message

    assert await wrong(Recorder(app, tmp_path / "a")) == await wrong(Player(tmp_path / "a"))


async def test_a_closed_player_answers_nobody(tmp_path: Path) -> None:
    Conversation().hear((">", call(1)), (">", note("cancelled", requestId=1))).recording.cassette().save(tmp_path / "a")
    player = Player(tmp_path / "a")
    with pytest.raises(Disconnected, match="closed"):
        await player.request(call(1), headers={})
    await player.open()
    waiting = asyncio.ensure_future(player.request(call(1), headers={}))
    await asyncio.sleep(0)
    await player.close()
    with pytest.raises(Disconnected, match="closed before the recording had answered"):
        await waiting


@pytest.mark.parametrize("probed", [False, True])
async def test_an_old_recording_is_played_to_our_client_as_an_old_server(tmp_path: Path, probed: bool) -> None:
    probe = [(">", PROBE), ("<", {"id": 0, "error": {"code": -32601, "message": "Method not found"}})]
    old_conversation(before=probe if probed else []).recording.cassette().save(tmp_path / "old")
    player = Player(tmp_path / "old")
    async with Client(player, elicit=lambda _: Accepted({"confirm": True})) as client:
        assert client.era == "legacy"
        made = await client.call_tool("deploy", {"env": "prod"})
        assert (made.text, made.rounds) == ("Deployed", 2)
    player.check(complete=True)


# --- tokens -------------------------------------------------------------------------------------------------------


def asking() -> Conversation:
    return Conversation().hear(
        (">", call(1, arguments={"env": "prod"})), ("<", asks(1, "sealed", confirm=FORM)),
        (">", call(2, arguments={"env": "prod"}, inputResponses={"confirm": YES}, requestState="sealed")),
        ("<", said(2, "Deployed")),
    )  # fmt: skip


def test_every_play_has_a_token_of_its_own() -> None:
    states = {state_of(Guest(asking()).say(call(5, arguments={"env": "prod"}))[0]) for _ in range(3)}
    assert len(states) == 3
    assert "sealed" not in states


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("sealed", "its requestState is not the one that this replay gave out"),
        (None, "it brings no requestState back, and the one that was recorded does"),
    ],
)
def test_a_wrong_or_missing_token_is_drift(state: str | None, reason: str) -> None:
    client = Guest(asking())
    (asked,) = client.say(call(5, arguments={"env": "prod"}))
    retry = {"arguments": {"env": "prod"}, "inputResponses": {"confirm": YES}}
    (refused,) = client.say(call(6, **retry, **({} if state is None else {"requestState": state})))
    assert refused["error"]["message"] == f"Not as recorded: tools/call deploy: {reason}"
    (told,) = client.say(call(7, **retry, requestState=state_of(asked)))
    assert told == {**said(7, "Deployed")}


def test_a_token_cannot_be_used_twice_unless_it_was() -> None:
    client = Guest(asking())
    (asked,) = client.say(call(1, arguments={"env": "prod"}))
    retry = call(2, arguments={"env": "prod"}, inputResponses={"confirm": YES}, requestState=state_of(asked))
    assert "result" in client.say(retry)[0]
    assert "recorded once, and this is one more" in client.say(retry)[0]["error"]["message"]


def test_a_token_of_an_earlier_day_is_whatever_the_client_has() -> None:
    tape = Conversation().hear(
        (">", call(1, inputResponses={"q": YES}, requestState="from a file")), ("<", said(1, "done"))
    )
    assert Guest(tape).say(call(1, inputResponses={"q": YES}, requestState="another"))[0] == said(1, "done")


# --- which entry is meant -----------------------------------------------------------------------------------------


def test_the_same_call_is_answered_in_the_order_of_the_recording() -> None:
    tape = Conversation().hear((">", call(1)), ("<", said(1, "first")), (">", call(2)), ("<", said(2, "second")))
    client = Guest(tape)
    told = [client.say(call(number))[0] for number in (1, 2, 3)]
    assert told[:2] == [said(1, "first"), said(2, "second")]
    assert told[2]["error"]["message"].endswith("it was recorded 2 times, and this is one more")


def both_ways() -> Conversation:
    tape = Conversation()
    for number, (answer, text) in enumerate(((YES, "Deployed"), (NO, "Left alone"))):
        state, id_ = f"sealed-{number}", 10 * number
        tape.hear(
            (">", call(id_)), ("<", asks(id_, state, confirm=FORM)),
            (">", call(id_ + 1, inputResponses={"confirm": answer}, requestState=state)), ("<", said(id_ + 1, text)),
        )  # fmt: skip
    return tape


def test_the_same_call_with_several_answers_is_played_by_the_answer() -> None:
    client = Guest(both_ways())
    (asked,) = client.say(call(1))
    assert client.say(call(2, inputResponses={"confirm": NO}, requestState=state_of(asked))) == [said(2, "Left alone")]
    (asked,) = client.say(call(3))
    assert client.say(call(4, inputResponses={"confirm": YES}, requestState=state_of(asked))) == [said(4, "Deployed")]
    assert (client.replay.drifts, client.replay.unplayed) == ([], [])


def test_the_same_call_twice_at_once_is_played_by_the_answers() -> None:
    client = Guest(both_ways())
    one, other = (state_of(client.say(call(number))[0]) for number in (1, 2))
    assert client.say(call(3, inputResponses={"confirm": NO}, requestState=one)) == [said(3, "Left alone")]
    assert client.say(call(4, inputResponses={"confirm": YES}, requestState=other)) == [said(4, "Deployed")]
    assert (client.replay.drifts, client.replay.unplayed) == ([], [])


def test_what_only_looks_can_be_asked_again() -> None:
    listing = {"tools": [], "nextCursor": "page-2"}
    tape = Conversation().hear(
        (">", request(1, "tools/list")), ("<", result(1, **listing)),
        (">", request(2, "tools/list", cursor="page-2")), ("<", result(2, tools=[{"name": "x"}])),
    )  # fmt: skip
    client = Guest(tape)
    cursors = []
    for id_ in (1, 3, 5):
        (page,) = client.say(request(id_, "tools/list"))
        cursors.append(page["result"]["nextCursor"])
        assert client.say(request(id_ + 1, "tools/list", cursor=cursors[-1])) == [
            result(id_ + 1, tools=[{"name": "x"}])
        ]
    assert len(set(cursors)) == 3
    assert "error" in client.say(request(9, "tools/list", cursor=cursors[0]))[0]


def test_an_id_may_be_written_without_a_placeholder() -> None:
    turns = [{"client": {"id": 1, "method": "tools/list"}}, {"server": {"id": 1, "result": {"tools": []}}}]
    client = Guest(Cassette.from_json(json.dumps({"antiphon-cassette": 1, "entries": [{"turns": turns}]})))
    for id_ in (1, 1, "x"):
        assert client.say(request(id_, "tools/list")) == [result(id_, tools=[])]


def test_nothing_near_was_recorded() -> None:
    (refused,) = Guest(asking()).say(request(1, "prompts/get", name="x"))
    assert refused["error"]["message"].endswith("prompts/get x: no such request was recorded; there are tools/call")


def test_the_nearest_of_several_is_shown() -> None:
    tape = Conversation()
    for number, env in enumerate(("europe-west", "us-east")):
        tape.hear((">", call(number, arguments={"env": env})), ("<", said(number, env)))
    client = Guest(tape)
    client.say(call(1, arguments={"env": "us-east-2"}))
    assert "recorded in entry 2, turn 1" in client.replay.drifts[0].diff


def test_a_diff_shows_no_secrets() -> None:
    client = Guest(Conversation().hear((">", call(1, arguments={"password": "hunter2", "a": 1})), ("<", said(1, "in"))))
    client.say(call(1, arguments={"password": "correct horse", "a": 2}))
    assert '+      "a": 2' in client.replay.drifts[0].diff
    assert "correct horse" not in str(client.replay.drifts[0])


# --- how clients begin --------------------------------------------------------------------------------------------


def test_a_client_that_looks_first_is_told_what_follows_from_the_recording() -> None:
    tape = Conversation().hear((">", call(1, _meta=META)), ("<", said(1, "x")))
    (found,) = Guest(tape).say(request(1, "server/discover", _meta=META))
    assert found["result"]["supportedVersions"] == ["2026-07-28"]
    assert found["result"]["capabilities"] == {"tools": {}}
    assert Guest(tape).say(request(1, "ping")) == [result(1)]


def test_an_old_recording_knows_nothing_of_discovery() -> None:
    tape = Conversation().hear((">", request(1, "initialize")), ("<", result(1)))
    client = Guest(tape)
    assert client.say(request(1, "server/discover"))[0]["error"]["code"] == -32601
    assert client.replay.drifts == []


PROBE = request(0, "server/discover", _meta=META)


@pytest.mark.parametrize(
    "answer", [[], [("<", {"id": 0, "error": {"code": -32602, "message": "Invalid request"}})]], ids=["silent", "error"]
)
def test_an_old_recording_is_the_same_with_a_probe_and_without(answer: list[Any]) -> None:
    tape = old_conversation(before=[(">", PROBE), *answer])
    code = answer[0][1]["error"]["code"] if answer else -32601
    for probes in (False, True):
        client = Guest(tape)
        if probes:
            assert client.say(PROBE)[0]["error"]["code"] == code
        client = greeted(client)
        (asked,) = client.say(call("c", arguments={"env": "prod"}))
        assert client.say(result(asked["id"], **YES)) == [said("c", "Deployed")]
        assert (client.replay.drifts, client.replay.unplayed) == ([], [])


def test_a_server_that_refuses_to_initialize_is_not_old() -> None:
    refused = {"id": 0, "error": {"code": -32022, "message": "Unsupported protocol version"}}
    tape = Conversation().hear(
        (">", request(0, "initialize")), ("<", refused), (">", request(1, "server/discover")), ("<", result(1, x=1)),
    )  # fmt: skip
    assert not tape.recording.cassette().is_old
    assert Guest(tape).say(request(5, "server/discover")) == [result(5, x=1)]


# --- the older revisions ------------------------------------------------------------------------------------------


def old_conversation(before: Iterable[tuple[str, JsonObject]] = ()) -> Conversation:
    push = {"jsonrpc": "2.0", "id": 1, **FORM}
    welcome = {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "x", "version": "1"},
    }
    return Conversation().hear(
        *before,
        (">", request(0, "initialize")), ("<", result(0, **welcome)), (">", note("initialized")),
        (">", call(1, arguments={"env": "prod"})), ("<", push), (">", result(1, **YES)), ("<", said(1, "Deployed")),
    )  # fmt: skip


def greeted(tape: Conversation | Guest) -> Guest:
    client = Guest(tape) if isinstance(tape, Conversation) else tape
    assert "result" in client.say(request("hello", "initialize", clientInfo={"name": "another"}))[0]
    assert client.say(note("initialized")) == []
    return client


def test_questions_are_pushed_and_answers_waited_for() -> None:
    client = greeted(old_conversation())
    (asked,) = client.say(call("c", arguments={"env": "prod"}))
    assert asked["method"] == "elicitation/create"
    assert client.say(result(asked["id"], **YES)) == [said("c", "Deployed")]
    assert client.say(result(asked["id"], **YES)) == []
    assert (client.replay.drifts, client.replay.unplayed) == ([], [])


def test_another_answer_ends_the_call_with_drift() -> None:
    client = greeted(old_conversation())
    (asked,) = client.say(call(1, arguments={"env": "prod"}))
    (refused,) = client.say(result(asked["id"], **NO))
    assert refused["error"]["message"].startswith("Not as recorded: tools/call deploy, an answer: ")
    assert '-    "action": "accept"' in client.replay.drifts[0].diff


def test_answers_may_come_in_another_order() -> None:
    tape = old_conversation().hear(
        (">", call(2, "two")), ("<", {"id": 2, **FORM}), ("<", {"id": 3, **FORM}), (">", result(2, **YES)),
        ("<", note("message", level="info", data="halfway")), (">", result(3, **NO)), ("<", said(2, "both")),
    )  # fmt: skip
    client = greeted(tape)
    one, other = client.say(call(2, "two"))
    assert client.say(result(other["id"], **NO)) == []
    assert [each.get("method") for each in client.say(result(one["id"], **YES))] == ["notifications/message", None]


def test_what_a_server_sent_on_its_own_comes_when_it_came() -> None:
    tape = Conversation().hear(
        (">", request(0, "initialize")), ("<", result(0)), (">", note("initialized")),
        ("<", {"id": 9, "method": "roots/list"}), (">", result(9, roots=[])),
        (">", call(1)), ("<", said(1, "changed")), ("<", note("tools/list_changed")),
    )  # fmt: skip
    client = Guest(tape)
    assert [each.get("method") for each in client.say(request(0, "initialize"))] == [None]
    (roots,) = client.say(note("initialized"))
    assert roots["method"] == "roots/list"
    assert client.say(result(roots["id"], roots=[])) == []
    assert [each.get("method") for each in client.say(call(1))] == [None, "notifications/tools/list_changed"]
    assert client.replay.unplayed == []


# --- streams, and the end of patience -----------------------------------------------------------------------------


def test_news_of_a_subscription_wait_for_what_caused_them() -> None:
    def about(id_: Any) -> JsonObject:
        return {"_meta": {"io.modelcontextprotocol/subscriptionId": id_}}

    tape = Conversation().hear(
        (">", request(1, "subscriptions/listen")), ("<", note("subscriptions/acknowledged", **about(1))),
        (">", call(2)), ("<", said(2, "changed")), ("<", note("tools/list_changed", **about(1))),
    )  # fmt: skip
    client = Guest(tape)
    assert client.say(request("s", "subscriptions/listen")) == [note("subscriptions/acknowledged", **about("s"))]
    assert client.say(call(5)) == [said(5, "changed"), note("tools/list_changed", **about("s"))]


def test_news_that_followed_a_list_do_not_follow_it_again() -> None:
    """A client that looks again at each of them would never come to an end."""
    tape = Conversation().hear(
        (">", request(1, "tools/list")), ("<", result(1, tools=[])), ("<", note("tools/list_changed")),
    )  # fmt: skip
    client = Guest(tape)
    assert client.say(request(5, "tools/list")) == [result(5, tools=[]), note("tools/list_changed")]
    assert client.say(request(6, "tools/list")) == [result(6, tools=[])]


def test_progress_goes_to_those_who_wanted_it() -> None:
    tape = Conversation().hear(
        (">", call(1, _meta={"progressToken": 1})), ("<", note("progress", progressToken=1, progress=1)),
        ("<", said(1, "x")),
    )  # fmt: skip
    assert Guest(tape).say(call(7)) == [said(7, "x")]
    told = Guest(tape).say(call(7, _meta={"progressToken": "mine"}))
    assert told == [note("progress", progressToken="mine", progress=1), said(7, "x")]


def test_a_call_that_was_cancelled_is_not_answered() -> None:
    tape = Conversation().hear((">", call(1)), (">", note("cancelled", requestId=1)))
    client = Guest(tape)
    assert client.say(call(3)) == []
    assert client.say(note("cancelled", requestId=3)) == []
    assert (client.replay.drifts, client.replay.unplayed) == ([], [])


@pytest.mark.parametrize("noise", [None, 1, "x", [], {}, {"id": 1}, {"method": 5}, {"id": [1], "result": {}}])
def test_nonsense_is_not_answered(noise: Any) -> None:
    assert Guest(asking()).say(noise) == []


# --- secrets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "odd", [{"method": ["x"]}, {"method": "tools/call", "params": [1]}, {"method": {}, "params": 3}]
)
def test_a_request_that_makes_no_sense_is_drift(odd: Any) -> None:
    for before in ([], [call(4, arguments={"env": "prod"})]):
        client = Guest(asking())
        for message in before:
            client.say(message)
        (refused,) = client.say({"jsonrpc": "2.0", "id": 5, **odd})
        assert refused["error"]["code"] == -32603
        assert client.say({"jsonrpc": "2.0", **odd}) == []


def test_a_secret_is_whatever_the_client_has_and_the_same_from_then_on() -> None:
    tape = Conversation()
    for number in (1, 2):
        tape.hear(
            (">", call(number, "login", arguments={"password": "hunter22"})), ("<", said(number, "hunter22 it is")),
        )  # fmt: skip
    client = Guest(tape)
    assert client.say(call(1, "login", arguments={"password": "open sesame"})) == [said(1, "open sesame it is")]
    (refused,) = client.say(call(2, "login", arguments={"password": "another"}))
    assert refused["error"]["message"] == "Not as recorded: tools/call login: it is not what was recorded"
    assert '+      "password": "(not ${secret:password})"' in client.replay.drifts[0].diff
    assert client.say(call(3, "login", arguments={"password": "open sesame"})) == [said(3, "open sesame it is")]


def test_a_secret_elsewhere_is_no_wildcard() -> None:
    tape = Conversation().hear(
        (">", call(1, "connect", arguments={"password": "production-1", "env": "production-1"})), ("<", said(1, "x")),
    )  # fmt: skip
    (refused,) = Guest(tape).say(call(1, "connect", arguments={"password": "mine", "env": "PRODUCTION"}))
    assert "not what was recorded" in refused["error"]["message"]
    assert Guest(tape).say(call(1, "connect", arguments={"password": "mine", "env": "mine"})) == [said(1, "x")]


def test_a_diff_of_an_answer_shows_no_secret() -> None:
    push = {"id": 5, "method": "elicitation/create", "params": {"message": "?", "_meta": {KEY: "password"}}}
    tape = Conversation().hear((">", call(1)), ("<", push), (">", result(5, action="decline")), ("<", said(1, "no")))
    client = Guest(tape)
    (asked,) = client.say(call(1))
    client.say(result(asked["id"], action="accept", content={"value": "my-pass-9999"}))
    assert "my-pass" not in client.replay.drifts[0].diff
    assert '+      "value": "${secret:password}"' in client.replay.drifts[0].diff


@pytest.mark.parametrize("recorded", ["${id:1}", 4])
def test_a_question_names_the_call_of_this_client(recorded: Any) -> None:
    """Also where an older recording has the number of the client that was recorded."""
    push = {"id": 5, **FORM, "params": {**FORM["params"], "_meta": {REQUEST: 4, KEY: "confirm"}}}
    tape = Conversation().hear((">", call(4)), ("<", push), (">", result(5, **YES)), ("<", said(4, "done")))
    cassette = tape.recording.cassette()
    question = cassette.entries[0].turns[1].server
    assert question is not None
    assert question["params"]["_meta"][REQUEST] == "${id:1}"
    question["params"]["_meta"][REQUEST] = recorded
    client = Guest(cassette)
    (asked,) = client.say(call("mine"))
    assert asked["params"]["_meta"] == {REQUEST: "mine", KEY: "confirm"}
    assert client.say(result(asked["id"], **YES)) == [said("mine", "done")]
