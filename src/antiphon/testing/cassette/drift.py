"""Say how a message of a client differs from what was recorded."""

import difflib
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.errors import AntiphonError
from antiphon.testing.cassette.format import title_of
from antiphon.testing.cassette.patterns import Match, content, diff_of
from antiphon.testing.cassette.placeholders import Lookup, params_of
from antiphon.testing.cassette.secrets import Redaction
from antiphon.types import JsonObject

_LONGEST: Final = 4_000
"""Characters of a message that are compared to find the nearest recorded one."""


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """A message that the recording does not have."""

    title: str
    """What was sent: ``tools/call deploy``."""
    reason: str
    """In one sentence."""
    diff: str = ""
    """What was recorded against what was sent; empty where nothing near was recorded."""

    def __str__(self) -> str:
        return f"{self.title}: {self.reason}" + (f"\n{self.diff}" if self.diff else "")


class Drifted(AntiphonError):
    """A conversation did not go as it was recorded; ``drifts`` says how."""

    def __init__(self, drifts: Iterable[Drift]) -> None:
        self.drifts = tuple(drifts)
        super().__init__("\n".join(map(str, self.drifts)))


class Candidate(NamedTuple):
    """A recorded message that could have been meant."""

    entry: int
    turn: int
    """Both from 1."""
    message: JsonObject
    known: Lookup

    def fits(self, message: JsonObject) -> bool:
        return Match(self.known).fits(content(self.message), content(message))


def drift_of_request(message: JsonObject, candidates: list[Candidate]) -> Drift:
    """Say why a request is none of the candidates, or not any more."""
    same = [each for each in candidates if each.message.get("method") == message["method"]]
    times = sum(each.fits(message) for each in same)
    stateful = [each for each in same if "requestState" in params_of(each.message)]
    if not same:
        methods = sorted({title_of({"method": each.message.get("method")}) for each in candidates})
        reason = f"no such request was recorded; there are {', '.join(methods) or 'none at all'}"
    elif times:
        reason = f"it was recorded {'once' if times == 1 else f'{times} times'}, and this is one more"
    elif not any(
        each._replace(message=_without_state(each.message)).fits(_without_state(message)) for each in stateful
    ):
        reason = "it is not what was recorded"
    elif params_of(message).get("requestState") is None:
        reason = "it brings no requestState back, and the one that was recorded does"
    else:
        reason = "its requestState is not the one that this replay gave out"
    return drift_from(message, same, reason)


def drift_from(message: JsonObject, candidates: list[Candidate], reason: str, key: str | None = None) -> Drift:
    """Show how a message differs from the nearest candidate; ``key`` is that of the question which it answers."""
    if not candidates:
        return Drift(title=title_of(message), reason=reason)
    sent = content(message)

    def alike(candidate: Candidate) -> float:
        return difflib.SequenceMatcher(None, _compact(sent), _compact(content(candidate.message))).quick_ratio()

    near = max(candidates, key=alike)
    recorded = content(near.message)
    shown = Redaction().masked(Match(near.known).shown(recorded, sent), sent, key)
    place = f"recorded in entry {near.entry}, turn {near.turn}"
    return Drift(title=title_of(message), reason=reason, diff=diff_of(recorded, shown, place, "sent now"))


def _without_state(message: JsonObject) -> JsonObject:
    return {**message, "params": {name: value for name, value in params_of(message).items() if name != "requestState"}}


def _compact(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()[:_LONGEST]
