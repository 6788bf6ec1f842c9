"""Any conversation: recorded, loaded, and played to a client that says the same with other ids, in another order."""

import itertools
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from conversation import META, Conversation, note, result

from antiphon.testing.cassette import Cassette
from antiphon.testing.cassette.replaying import Replay, ReplayClient
from antiphon.types import JsonObject

words = st.text(alphabet=st.sampled_from(list("ab${}:1 é")), min_size=1, max_size=6)
values = st.none() | st.booleans() | st.integers(-9, 9) | words | st.lists(words, max_size=2)
answers = st.dictionaries(words, values, max_size=2)


@dataclass
class Round:
    """What a server asks, and what is answered."""

    questions: JsonObject
    """By key; empty: only to be called again."""
    has_state: bool
    steps: int
    """Progress that is told before."""


@dataclass
class Exchange:
    """One call of the model: modern rounds, or questions that are pushed."""

    number: int
    arguments: JsonObject
    rounds: list[Round]
    pushes: list[JsonObject]
    outcome: JsonObject
    wants_progress: bool


@dataclass
class Speaker:
    """Plays both sides of an exchange, with ids and tokens of its own; ``given`` are those of the server."""

    exchange: Exchange
    ids: Any
    given: dict[str, Any] = field(default_factory=dict)

    def script(self) -> list[list[tuple[str, JsonObject]]]:
        """Pieces that are not torn apart: the client speaks, then the server, up to where the client has to."""
        pieces = []
        extra: JsonObject = {}
        for index, each in enumerate(self.exchange.rounds):
            id_ = self.ids()
            asked: JsonObject = {"resultType": "input_required", "inputRequests": each.questions}
            if each.has_state:
                asked["requestState"] = self.given.setdefault(f"state {index}", self.ids())
            pieces.append([(">", self._call(id_, extra)), *self._progress(each.steps), ("<", result(id_, **asked))])
            extra = {"inputResponses": {key: {"n": index} for key in each.questions}}
            if each.has_state:
                extra["requestState"] = asked["requestState"]
        id_ = self.ids()
        piece = [(">", self._call(id_, extra))]
        for index, question in enumerate(self.exchange.pushes):
            push = self.given.setdefault(f"push {index}", self.ids())
            piece.append(("<", {"jsonrpc": "2.0", "id": push, "method": "elicitation/create", "params": question}))
            pieces.append(piece)
            piece = [(">", result(push, action="accept", content={"n": index}))]
        pieces.append([*piece, ("<", {"jsonrpc": "2.0", "id": id_, **self.exchange.outcome})])
        return pieces

    def _call(self, id_: Any, extra: JsonObject) -> JsonObject:
        meta: JsonObject = dict(META)
        if self.exchange.wants_progress:
            meta["progressToken"] = self.given.setdefault("token", self.ids())
        params = {"name": f"t{self.exchange.number}", "arguments": self.exchange.arguments, **extra, "_meta": meta}
        return {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params}

    def _progress(self, steps: int) -> list[tuple[str, JsonObject]]:
        if not self.exchange.wants_progress:
            return []
        return [("<", note("progress", progressToken=self.given["token"], progress=step)) for step in range(steps)]


rounds = st.builds(
    Round,
    questions=st.dictionaries(words, st.just({"method": "roots/list"}), max_size=2),
    has_state=st.booleans(),
    steps=st.integers(0, 2),
).filter(lambda each: each.questions or each.has_state)
exchanges = st.builds(
    Exchange,
    number=st.just(0),
    arguments=answers,
    rounds=st.lists(rounds, max_size=3),
    pushes=st.lists(answers, max_size=2),
    outcome=st.builds(lambda content: {"result": content}, answers)
    | st.builds(lambda text: {"error": {"code": -1, "message": text}}, words),
    wants_progress=st.booleans(),
)


def numbered(made: list[Exchange]) -> list[Exchange]:
    for number, each in enumerate(made):
        each.number = number
    return made


def ids_from(seed: int) -> Any:
    """Ids of both kinds that JSON-RPC has; tokens that mean nothing."""
    count = itertools.count(seed)
    return lambda: f"t-{next(count)}-{seed}"


def interleaved(scripts: list[list[Any]], chance: random.Random) -> list[Any]:
    """The pieces of all scripts; the first ones in order, the others as chance has it."""
    order = [script.pop(0) for script in scripts]
    while any(scripts):
        order.append(chance.choice([script for script in scripts if script]).pop(0))
    return order


def recorded(made: list[Exchange], seed: int, chance: random.Random) -> str:
    ids = ids_from(seed)
    tape = Conversation()
    for piece in interleaved([Speaker(each, ids).script() for each in made], chance):
        tape.hear(*piece)
    return tape.recording.cassette().to_json()


@settings(max_examples=60, deadline=None)
@given(st.lists(exchanges, min_size=1, max_size=4).map(numbered), st.integers(0, 2**32))
def test_it_is_recorded_the_same_and_played_as_it_was(made: list[Exchange], seed: int) -> None:
    text = recorded(made, 1, random.Random(seed))
    if not any(each.pushes for each in made):
        # Which of several calls a pushed question belongs to can only be guessed on a pipe; all else is the same
        # in whatever order the later turns come.
        assert text == recorded(made, 50_000, random.Random(seed + 1))
    assert text == recorded(made, 50_000, random.Random(seed))
    cassette = Cassette.from_json(text)
    assert cassette.to_json() == text
    replay = Replay(cassette)
    order = list(made)
    if not any(each.pushes for each in made):
        random.Random(seed).shuffle(order)
    for each in order:
        play(replay, each)
    assert (replay.drifts, replay.unplayed) == ([], [])


def play(replay: Replay, exchange: Exchange) -> None:
    """What the server gives this time is used; everything else must be what was recorded."""
    client, speaker = ReplayClient(), Speaker(exchange, ids_from(900_000))
    now: dict[Any, Any] = {}
    """The tokens and ids that the replay gave, by those of the script."""
    for (_, message), *expected in speaker.script():
        if "method" not in message:
            message["id"] = now[message["id"]]
        elif "requestState" in message["params"]:
            message["params"]["requestState"] = now[message["params"]["requestState"]]
        told = [each.message for each in replay.answer(client, message)]
        assert [as_scripted(scripted, real, now) for (_, scripted), real in zip(expected, told, strict=True)] == [
            scripted for _, scripted in expected
        ]


def as_scripted(scripted: JsonObject, real: Any, now: dict[Any, Any]) -> JsonObject:
    """What was told, with the script's own tokens and ids in it."""
    state = (scripted.get("result") or {}).get("requestState")
    if state is not None:
        now[state] = real["result"]["requestState"]
        assert now[state] != state
        return {**real, "result": {**real["result"], "requestState": state}}
    if "method" in scripted and "id" in scripted:
        now[scripted["id"]] = real["id"]
        return {**real, "id": scripted["id"]}
    made: JsonObject = real
    return made
