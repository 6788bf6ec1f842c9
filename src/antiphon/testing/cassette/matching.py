"""Match a message with a recorded one, whatever its tokens are this time, and show how they differ."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.errors import AntiphonError
from antiphon.testing.cassette.format import TIME, Lookup, Part, Ref, literal, parts_of, title_of, written
from antiphon.testing.cassette.placeholders import OWN, TRACING
from antiphon.testing.cassette.replaced_values import TYPES, Place, Redaction, forms, is_protocols, mapped, wherever
from antiphon.types import JsonObject
from antiphon.wire.revisions import PROGRESS_TOKEN


class Unbound:
    """The value of a placeholder that has none."""


UNBOUND: Final = Unbound()
"""No value was seen yet."""
MISSING: Final = Unbound()
"""The secret was not sent, so that the server cannot repeat it."""


class Match:
    """Compares recorded messages with those that came; ``bound`` are the values of placeholders found on the way.

    ``known`` returns the value of a placeholder, or UNBOUND, or MISSING.
    """

    def __init__(self, known: Lookup) -> None:
        self._known = known
        self.bound: dict[Ref, Any] = {}

    def fits(self, pattern: Any, value: Any) -> bool:
        """Return whether a value is the recorded one."""
        if isinstance(pattern, str):
            return self._text_fits(pattern, value)
        if isinstance(pattern, dict):
            return (
                isinstance(value, dict)
                and pattern.keys() == value.keys()
                and all(self.fits(item, value[name]) for name, item in pattern.items())
            )
        if isinstance(pattern, list):
            return (
                isinstance(value, list)
                and len(pattern) == len(value)
                and all(self.fits(item, other) for item, other in zip(pattern, value, strict=True))
            )
        return _is_same(pattern, value)

    def shown(self, pattern: Any, value: Any) -> Any:
        """Return a value as the recording would have it: what fits a placeholder is written as that placeholder."""
        if isinstance(pattern, str) and self.fits(pattern, value):
            return pattern
        if isinstance(pattern, str) and type(value) in TYPES["secret"] and "${secret:" in pattern:
            told = self._told(parts_of(pattern), _text(value))
            if told is not None:
                return told
        if isinstance(pattern, dict) and isinstance(value, dict):
            return {name: self.shown(pattern.get(name), item) for name, item in value.items()}
        if isinstance(pattern, list) and isinstance(value, list):
            padded = [*pattern, *[None] * len(value)]
            return [self.shown(other, item) for other, item in zip(padded, value, strict=False)]
        if isinstance(pattern, str) and isinstance(value, str) and len(parts_of(pattern)) == 1 and "${" in pattern:
            # A token is opaque, and long; that it is another one is all there is to say.
            return value if len(value) <= 60 else f"{value[:24]}... ({len(value)} characters)"
        return literal(value)

    def _text_fits(self, pattern: str, value: Any) -> bool:
        parts = parts_of(pattern)
        if len(parts) == 1:
            return self._ref_fits(parts[0], value) if isinstance(parts[0], Ref) else parts[0] == value
        return isinstance(value, str) and self._parts_fit(parts, value)

    def _parts_fit(self, parts: list[Part], text: str) -> bool:
        """Return whether a text has these parts: a value that is not known yet ends where what follows it is found.

        It is not looked for again: the time this takes grows with the text, and not with the ways to split it.
        """
        at = index = 0
        while index < len(parts):
            pending = parts[index] if self._is_open(parts[index]) else None
            index += pending is not None
            run = index
            while index < len(parts) and not self._is_open(parts[index]):
                index += 1
            follows = "".join(map(self._expression, parts[run:index])) + ("" if index < len(parts) else r"\Z")
            expression = re.compile(follows, re.DOTALL)
            found = expression.match(text, at) if pending is None else expression.search(text, at + _least(pending))
            if found is None or (isinstance(pending, Ref) and not self._ref_fits(pending, text[at : found.start()])):
                return False
            at = found.end()
        return at == len(text)

    def _expression(self, part: Part) -> str:
        """Return an expression for a part that is known; it never matches in two ways."""
        if isinstance(part, str):
            return re.escape(part)
        if part.kind == "time":
            return f"(?>{TIME.pattern})"
        known = self._value(part)
        if known is MISSING:
            return r"(?!)"
        if part.kind != "secret":
            return re.escape(_text(known))
        longest_first = sorted(_forms(_text(known)), key=len, reverse=True)
        return f"(?>{'|'.join(map(re.escape, longest_first))})"

    def _is_open(self, part: Part) -> bool:
        return isinstance(part, Ref) and part.kind != "time" and self._value(part) is UNBOUND

    def _told(self, parts: list[Part], text: str) -> str | None:
        """Return a text that differs in its secrets alone, without them; None if it differs in more."""
        apart: list[Part] = [
            Ref("secret", str(index)) if isinstance(part, Ref) and part.kind == "secret" else part
            for index, part in enumerate(parts)
        ]
        match = Match(lambda ref: UNBOUND if ref.kind == "secret" else self._value(ref))
        if not match._parts_fit(apart, text):
            return None
        return "".join(self._without_secrets(parts, apart, match))

    def _without_secrets(self, parts: list[Part], apart: list[Part], match: "Match") -> Iterator[str]:
        for part, each in zip(parts, apart, strict=True):
            if isinstance(part, str) or isinstance(each, str) or each.kind != "secret":
                yield written([part])
            else:
                yield str(part) if self._ref_fits(part, match.bound[each]) else f"(not {part})"

    def _value(self, ref: Ref) -> Any:
        return self.bound[ref] if ref in self.bound else self._known(ref)

    def _ref_fits(self, ref: Ref, value: Any) -> bool:
        if ref.kind == "time":
            return isinstance(value, str) and TIME.fullmatch(value) is not None
        known = self._value(ref)
        if known is MISSING or type(value) not in TYPES.get(ref.kind, (str,)):
            return False
        if known is not UNBOUND:
            return _text(value) in _forms(_text(known)) if ref.kind == "secret" else _is_same(known, value)
        if ref.kind == "secret" and value == "":
            return False
        self.bound[ref] = value
        return True


def _least(part: Part) -> int:
    """Return how many characters a value has at least."""
    return int(isinstance(part, Ref) and part.kind == "secret")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _forms(secret: str) -> list[str]:
    """Return a secret as it may stand in a text; the one that is known may itself have been read out of JSON."""
    try:
        inner: Any = json.loads(f'"{secret}"') if "\\" in secret else secret
    except ValueError:
        inner = secret
    return [*dict.fromkeys([*forms(secret), *(forms(inner) if isinstance(inner, str) else ())])]


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
    meta = params.get("_meta")
    kept = {name: value for name, value in params.items() if name != "_meta" and (name != "arguments" or value)}
    if isinstance(meta, dict):
        skipped = TRACING | {*OWN, PROGRESS_TOKEN}
        rest = {name: value for name, value in meta.items() if name not in skipped}
        if rest:
            kept["_meta"] = rest
    made["params"] = kept
    if not kept:
        del made["params"]
    return made


# --- drift --------------------------------------------------------------------------------------------------------


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
    """From 1."""
    turn: int
    message: JsonObject
    known: Lookup


def drift_from(message: JsonObject, candidates: list[Candidate], reason: str, key: str | None = None) -> Drift:
    """Show how a client's message differs from the nearest of those that were recorded.

    ``key`` is that of the question which it answers.
    """
    near = _nearest(message, candidates)
    if near is None:
        return Drift(title=title_of(message), reason=reason)
    recorded, sent = content(near.message), content(message)
    shown = masked(Match(near.known).shown(recorded, sent), sent, Redaction(), key)
    place = f"recorded in entry {near.entry}, turn {near.turn}"
    return Drift(title=title_of(message), reason=reason, diff=diff_of(recorded, shown, place, "sent now"))


def _nearest(message: JsonObject, candidates: list[Candidate]) -> Candidate | None:
    """Return the candidate of the same method that has most in common with a message."""
    same = [each for each in candidates if each.message.get("method") == message.get("method")]
    if len(same) < 2:
        return same[0] if same else None
    ours = _compact(content(message))

    def alike(candidate: Candidate) -> float:
        return difflib.SequenceMatcher(None, ours, _compact(content(candidate.message))).quick_ratio()

    return max(same, key=alike)


def diff_of(one: Any, other: Any, one_name: str, other_name: str) -> str:
    """Return a unified diff of two JSON values, indented."""
    ours, theirs = (
        json.dumps(each, indent=2, sort_keys=True, ensure_ascii=False).splitlines() for each in (one, other)
    )
    return "\n".join(difflib.unified_diff(ours, theirs, one_name, other_name, lineterm=""))


def masked(shown: Any, message: JsonObject, redaction: Redaction, key: str | None = None) -> Any:
    """Return what is to be shown of a message, without its secrets and those that are known."""
    redaction.learn(message, {}, key)
    marks = dict(redaction.places(message, key))

    def hidden(value: Any, place: Place) -> Any:
        if isinstance(value, str) and "${secret:" in value:
            return value  # it names a secret already
        if place in marks:
            return str(Ref("secret", marks[place]))
        return _hidden(value, redaction) if isinstance(value, str) and not is_protocols(place) else value

    return mapped(shown, hidden)


def _hidden(text: str, redaction: Redaction) -> str:
    for field in reversed(list(redaction.fields(text))):
        text = text[: field.start] + str(Ref("secret", field.name)) + text[field.end :]
    known = sorted(redaction.values, key=len, reverse=True)
    if not known:
        return text
    return re.sub("|".join(map(wherever, known)), lambda found: str(Ref("secret", redaction.values[found[0]])), text)


def _compact(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()[:_LONGEST]
