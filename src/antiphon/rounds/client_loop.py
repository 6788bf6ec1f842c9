"""The client's side of a call as a generator: it yields what it needs, and a driver does the I/O.

``result = yield Leg(params)``, ``responses = yield Questions(requests)``, ``yield Pause(seconds)``; it returns the
complete result. Tests step it with ``.send()``.
"""

from collections.abc import Generator
from typing import Any

import msgspec

from antiphon.errors import PeerBroken, RoundsExceeded
from antiphon.types import JsonObject
from antiphon.wire.revisions import STATE_TTL

MAX_ROUNDS = 10
FIRST_PAUSE, LAST_PAUSE = 0.05, 0.25
"""Seconds to wait after a round without questions: doubling from the first to the last."""


class Leg(msgspec.Struct, frozen=True):
    """Send the request with these parameters; send back its result."""

    params: JsonObject


class Questions(msgspec.Struct, frozen=True):
    """Get these questions answered; send back the responses."""

    requests: JsonObject
    state: str | None
    round: int
    ttl: float | None = None
    """Seconds for which the server keeps the state, where it says so."""


class Pause(msgspec.Struct, frozen=True):
    """Wait: the server wants the call again and asks nothing."""

    seconds: float
    state: str | None
    round: int


Step = Leg | Questions | Pause


def rounds(
    params: JsonObject, *, max_rounds: int = MAX_ROUNDS, start: "Questions | Pause | None" = None
) -> Generator[Step, Any, tuple[JsonObject, int]]:
    """Drive a call to its complete result; return it with the number of requests sent.

    With ``start``, continue from an earlier round, even one of another process.
    """
    pause = FIRST_PAUSE
    done, waiting, sent = (0, None, params) if start is None else (start.round, start, params)
    while True:
        if waiting is None:
            result = yield Leg(sent)
            done += 1
            waiting = asked(result, done)
            if waiting is None:
                return result, done
            if done > max_rounds:
                raise RoundsExceeded(done)
        if isinstance(waiting, Pause):
            yield Pause(pause, waiting.state, waiting.round)
            pause = min(pause * 2, LAST_PAUSE)
            responses = None
        else:
            responses = yield waiting
            pause = FIRST_PAUSE
        sent = retry(params, waiting.state, responses)
        waiting = None


def asked(result: JsonObject, round_: int) -> Questions | Pause | None:
    """Return what a result asks for, None if it is complete; raise PeerBroken if it is neither.

    2026-07-28, basic, ResultType: an absent type is "complete", an unknown one is invalid.
    """
    kind = result.get("resultType", "complete")
    if kind == "complete":
        return None
    if kind != "input_required":
        raise PeerBroken(f"The server sent a result of unknown type {kind!r}")
    requests, state = result.get("inputRequests"), result.get("requestState")
    if state is not None and type(state) is not str:
        raise PeerBroken("The server sent a requestState that is not a string")
    if requests:
        if type(requests) is not dict or not all(map(is_request, requests.values())):
            raise PeerBroken("The server sent inputRequests that are not a map of requests")
        return Questions(requests, state, round_, _ttl(result))
    if state is None:
        raise PeerBroken("The server requires input, but neither asks anything nor gives a requestState")
    return Pause(FIRST_PAUSE, state, round_)


def _ttl(result: JsonObject) -> float | None:
    meta = result.get("_meta")
    ttl = meta.get(STATE_TTL) if type(meta) is dict else None
    return ttl if isinstance(ttl, int | float) and 0 < ttl < 1e10 else None


def retry(params: JsonObject, state: str | None, responses: JsonObject | list[JsonObject] | None) -> JsonObject:
    """Return the parameters of the next leg: the same call, the answers, and the unchanged token, if there is one."""
    again = dict(params)
    again.pop("inputResponses", None)
    again.pop("requestState", None)
    if responses is not None:
        again["inputResponses"] = responses
    if state is not None:
        again["requestState"] = state
    return again


def is_request(item: object) -> bool:
    return type(item) is dict and type(item.get("method")) is str and type(item.get("params", {})) is dict
