"""Compare messages with recorded ones, and say how they differ."""

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.errors import AntiphonError
from antiphon.testing.cassette.format import title_of
from antiphon.testing.cassette.placeholders import (
    OWN,
    TIME,
    TRACING,
    TYPES,
    UNBOUND,
    Lookup,
    Part,
    Ref,
    literal,
    meta_of,
    params_of,
    parts_of,
    written,
)
from antiphon.testing.cassette.secrets import Redaction, forms
from antiphon.types import JsonObject
from antiphon.wire.revisions import PROGRESS_TOKEN

_LONGEST: Final = 4_000
"""Characters of a message that are compared to find the nearest recorded one."""


class Match:
    """Compares recorded messages with those that came; ``bound`` are the values of placeholders found on the way.

    ``known`` returns the value of a placeholder, or UNBOUND.
    """

    def __init__(self, known: Lookup) -> None:
        self._known = known
        self.bound: dict[Ref, Any] = {}

    def fits(self, pattern: Any, value: Any) -> bool:
        """Return whether a value is the recorded one."""
        if isinstance(pattern, str):
            return self._text_fits(parts_of(pattern), value)
        if isinstance(pattern, dict):
            is_like = isinstance(value, dict) and pattern.keys() == value.keys()
            return is_like and all(self.fits(item, value[name]) for name, item in pattern.items())
        if isinstance(pattern, list):
            is_like = isinstance(value, list) and len(pattern) == len(value)
            return is_like and all(self.fits(item, other) for item, other in zip(pattern, value, strict=True))
        return _is_same(pattern, value)

    def shown(self, pattern: Any, value: Any) -> Any:
        """Return a value as the recording would have it: what fits a placeholder is written as that placeholder."""
        if isinstance(pattern, str):
            return pattern if self.fits(pattern, value) else self._told(parts_of(pattern), value)
        if isinstance(pattern, dict) and isinstance(value, dict):
            return {name: self.shown(pattern.get(name), item) for name, item in value.items()}
        if isinstance(pattern, list) and isinstance(value, list):
            padded = [*pattern, *[None] * len(value)]
            return [self.shown(other, item) for other, item in zip(padded, value, strict=False)]
        return literal(value)

    def _told(self, parts: list[Part], value: Any) -> Any:
        """Return what to show of a value that does not fit a text; not the secrets in which it differs."""
        apart = [Ref("secret", str(at)) if _is_secret(part) else part for at, part in enumerate(parts)]
        loose = Match(lambda ref: UNBOUND if _is_secret(ref) else self._value(ref))
        if apart != parts and loose._text_fits(apart, value):
            return "".join(f"(not {part})" if _is_secret(part) else written([part]) for part in parts)
        if isinstance(value, str) and isinstance(parts[0], Ref) and len(parts) == 1 and len(value) > 60:
            # A token is opaque, and long; that it is another one is all there is to say.
            return f"{value[:24]}... ({len(value)} characters)"
        return literal(value)

    def _text_fits(self, parts: list[Part], value: Any) -> bool:
        if len(parts) == 1:
            return self._fits(parts[0], value)
        if not isinstance(value, str):
            return False
        groups: dict[Ref, str] = {}
        found = re.fullmatch(self._expression(parts, groups), value, re.DOTALL)
        return found is not None and all(self._fits(ref, found[name]) for ref, name in groups.items())

    def _expression(self, parts: list[Part], groups: dict[Ref, str]) -> str:
        """Return an expression for a text; ``groups`` gets those of placeholders whose values are not known yet.

        Such a value ends where what follows it is found. It is not looked for again: the groups are atomic, so the time
        this takes grows with the text, and not with the ways to split it.
        """
        made = ""
        for part in parts:
            if isinstance(part, str):
                made += re.escape(part)
            elif part.kind == "time":
                made += f"(?>{TIME.pattern})"
            elif part in groups:
                made += f"(?P={groups[part]})"
            elif (known := self._value(part)) is not UNBOUND:
                longest_first = sorted(
                    _forms(_text(known)) if _is_secret(part) else [_text(known)], key=len, reverse=True
                )
                made += f"(?>{'|'.join(map(re.escape, longest_first))})"
            else:
                made += f"{')' if groups else ''}(?>(?P<_{len(groups)}>.+?)"
                groups[part] = f"_{len(groups)}"
        return made + (r"\Z)" if groups else "")

    def _value(self, ref: Ref) -> Any:
        return self.bound[ref] if ref in self.bound else self._known(ref)

    def _fits(self, part: Part, value: Any) -> bool:
        if isinstance(part, str):
            return bool(part == value)
        if part.kind == "time":
            return isinstance(value, str) and TIME.fullmatch(value) is not None
        if type(value) not in TYPES.get(part.kind, (str,)) or (_is_secret(part) and value == ""):
            return False
        known = self._value(part)
        if known is not UNBOUND:
            return _text(value) in _forms(_text(known)) if _is_secret(part) else _is_same(known, value)
        self.bound[part] = value
        return True


def _is_secret(part: Part) -> bool:
    return isinstance(part, Ref) and part.kind == "secret"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _forms(secret: str) -> list[str]:
    """Return a secret as it may stand in a text; the one that is known may itself have been read out of JSON."""
    try:
        inner: Any = json.loads(f'"{secret}"') if "\\" in secret else secret
    except ValueError:
        inner = secret
    return [*dict.fromkeys([*forms(secret), *forms(inner)])]


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    return type(one) is type(other) and bool(one == other)


def content(message: JsonObject) -> JsonObject:
    """Return what a client's message asks for, without what each client has of its own: name, ids, empty fields."""
    made = {name: value for name, value in message.items() if name not in {"jsonrpc", "id"}}
    error = made.get("error")
    if isinstance(error, dict):
        return {"error": {"code": error.get("code")}}  # the message is each client's own
    params = made.get("params")
    if not isinstance(params, dict):
        return {name: value for name, value in made.items() if value is not None}
    if made.get("method") == "initialize":
        return {"method": "initialize"}  # who the client is, and what it can do
    own = TRACING | {*OWN, PROGRESS_TOKEN}
    meta = {name: value for name, value in meta_of(message).items() if name not in own}
    kept = {name: value for name, value in params.items() if name != "_meta" and (name != "arguments" or value)}
    made["params"] = {**kept, "_meta": meta} if meta else kept
    return made if made["params"] else {name: value for name, value in made.items() if name != "params"}


def diff_of(one: Any, other: Any, one_name: str, other_name: str) -> str:
    """Return a unified diff of two JSON values, indented."""
    ours, theirs = (
        json.dumps(each, indent=2, sort_keys=True, ensure_ascii=False).splitlines() for each in (one, other)
    )
    return "\n".join(difflib.unified_diff(ours, theirs, one_name, other_name, lineterm=""))


# --- drift -----------------------------------------------------------------------------------------------------------


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
