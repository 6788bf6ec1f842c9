"""How a fork differs from the call that it was forked from."""

from collections.abc import Iterator
from typing import Final

import msgspec

from antiphon.client.results import CallResult
from antiphon.escaping import counted, indented
from antiphon.inspect.calls import InspectedCall, InspectedRound
from antiphon.inspect.traffic import bounded
from antiphon.testing.report.diff import compare_texts
from antiphon.types import JsonObject

_OF_THE_ERA: Final = frozenset({"_meta", "resultType", "ttlMs", "cacheScope"})
"""What results of one era have and those of the other have not."""


def differs(parent: InspectedCall, fork: InspectedCall) -> JsonObject | None:
    """Return what differs from the round of the fork on; None while there is nothing to compare."""
    first = 0 if fork.parent is None else fork.parent.round
    ours, theirs = parent.rounds[first:], fork.rounds[first:]
    places = [place for one, other in zip(ours, theirs, strict=False) for place in _compared(one, other)]
    if not places and (not theirs or fork.status == "running" or parent.status == "running"):
        return None
    if parent.is_over and fork.is_over and len(ours) != len(theirs) and not places:
        numbers = (counted(len(call.rounds), "round") for call in (parent, fork))
        places = [_place(len(fork.rounds), "rounds", *numbers)]
    return {"same": not places, "places": places}


def _compared(one: InspectedRound, other: InspectedRound) -> Iterator[JsonObject]:
    if "running" in {one.status, other.status}:
        return
    for what in ("questions", "result", "error"):
        ours, theirs = _plain(what, getattr(one, what)), _plain(what, getattr(other, what))
        if ours != theirs:
            texts = _text(ours), _text(theirs)
            yield _place(other.number, what, *(texts if all(texts) else (_json(ours), _json(theirs))))


def _place(number: int, what: str, ours: str, theirs: str) -> JsonObject:
    return {"round": number, "what": what, "lines": msgspec.to_builtins(compare_texts(ours, theirs))}


def _plain(what: str, value: JsonObject | None) -> JsonObject | None:
    """Return a value without what belongs to its era alone."""
    if value is None:
        return None
    if what == "questions":
        return {key: {**question, "params": _own(question.get("params") or {})} for key, question in value.items()}
    return _own(value)


def _own(value: JsonObject) -> JsonObject:
    return {name: item for name, item in value.items() if name not in _OF_THE_ERA}


def _text(value: JsonObject | None) -> str:
    """Return the text of a result that is nothing but text."""
    if not value or value.get("isError") or not {"content"} <= value.keys() <= {"content", "structuredContent"}:
        return ""
    try:
        read = msgspec.convert(value, CallResult)
    except msgspec.ValidationError:
        return ""
    told = read.structured
    is_same = told is None or (isinstance(told, dict) and list(told.values()) == [read.text])
    return read.text if is_same else ""


def _json(value: JsonObject | None) -> str:
    return indented(bounded(value)[0]) if value else "nothing"
