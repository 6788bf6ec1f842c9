"""Drift: a message that is not the one that was recorded, and how it differs."""

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.errors import AntiphonError
from antiphon.testing.cassette.matching import Known, Match, content
from antiphon.testing.cassette.placeholder import Ref
from antiphon.testing.cassette.redaction import Redaction, wherever
from antiphon.testing.cassette.tape import title_of
from antiphon.testing.cassette.volatile import Place, is_protocols
from antiphon.types import JsonObject

_LONGEST: Final = 4_000
"""Letters of a message that are looked at to find the nearest recorded one."""


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """One message that the recording does not have."""

    title: str
    """What was sent: ``tools/call deploy``."""
    reason: str
    """In one sentence."""
    diff: str = ""
    """What was recorded against what was sent; empty where nothing near was recorded."""

    def __str__(self) -> str:
        return f"{self.title}: {self.reason}" + (f"\n{self.diff}" if self.diff else "")


class Drifted(AntiphonError):
    """A conversation that did not go as it was recorded; ``drifts`` says how."""

    def __init__(self, drifts: Iterable[Drift]) -> None:
        self.drifts = tuple(drifts)
        super().__init__("\n".join(map(str, self.drifts)))


class Candidate(NamedTuple):
    """A recorded message that could have been meant."""

    entry: int
    """From 1."""
    turn: int
    message: JsonObject
    known: Known


def drift_from(message: JsonObject, candidates: list[Candidate], reason: str, key: str | None = None) -> Drift:
    """How a client's message differs from the nearest of those that were recorded.

    ``key`` is that of the question which it answers.
    """
    near = nearest(message, candidates)
    if near is None:
        return Drift(title=title_of(message), reason=reason)
    recorded, sent = content(near.message), content(message)
    shown = masked(Match(near.known).shown(recorded, sent), sent, Redaction(), key)
    place = f"recorded in entry {near.entry}, turn {near.turn}"
    return Drift(title=title_of(message), reason=reason, diff=diff_of(recorded, shown, place, "sent now"))


def nearest(message: JsonObject, candidates: list[Candidate]) -> Candidate | None:
    """The candidate of the same method that has most in common with a message."""
    same = [each for each in candidates if each.message.get("method") == message.get("method")]
    if len(same) < 2:
        return same[0] if same else None
    ours = _text(content(message))

    def alike(candidate: Candidate) -> float:
        return difflib.SequenceMatcher(None, ours, _text(content(candidate.message))).quick_ratio()

    return max(same, key=alike)


def diff_of(one: Any, other: Any, one_name: str, other_name: str) -> str:
    """A unified diff of two JSON values, indented."""
    lines = difflib.unified_diff(pretty(one), pretty(other), one_name, other_name, n=3, lineterm="")
    return "\n".join(lines)


def pretty(value: Any) -> list[str]:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).splitlines()


def masked(shown: Any, message: JsonObject, redaction: Redaction, key: str | None = None) -> Any:
    """What is to be shown of a message, without its secrets, and those that are known."""
    redaction.learn(message, {}, key)
    marks = dict(redaction.places(message, key))

    def hidden(value: Any, place: Place) -> Any:
        if isinstance(value, dict):
            return {name: hidden(item, (*place, name)) for name, item in value.items()}
        if isinstance(value, list):
            return [hidden(item, (*place, index)) for index, item in enumerate(value)]
        if isinstance(value, str) and "${secret:" in value:
            return value  # it says what it has to
        if place in marks:
            return str(Ref("secret", marks[place]))
        return _hidden(value, redaction) if isinstance(value, str) and not is_protocols(place) else value

    return hidden(shown, ())


def _hidden(text: str, redaction: Redaction) -> str:
    for field in reversed(list(redaction.fields(text))):
        text = text[: field.start] + str(Ref("secret", field.name)) + text[field.end :]
    known = sorted(redaction.values, key=len, reverse=True)
    if not known:
        return text
    return re.sub("|".join(map(wherever, known)), lambda found: str(Ref("secret", redaction.values[found[0]])), text)


def _text(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()[:_LONGEST]
