"""Matching: whether a message is the one that was recorded, whatever its tokens are this time."""

import re
from collections.abc import Callable
from typing import Any, Final

from antiphon.testing.cassette.naming import OWN, TRACING
from antiphon.testing.cassette.placeholder import TIME, Ref, literal, parts_of
from antiphon.types import JsonObject
from antiphon.wire.rev2026 import PROGRESS_TOKEN


class Unbound:
    """Stands for the value of a placeholder that none was seen for yet."""


UNBOUND: Final = Unbound()
Known = Callable[[Ref], Any]
"""The value of a placeholder, or UNBOUND."""

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "text": (str,),
    "integer": (int,),
    "number": (float, int),
    "boolean": (bool,),
    "state": (str,),
    "cursor": (str,),
    "elicitation": (str,),
    "task": (str,),
    "id": (str, int),
    "progress": (str, int, float),
}


class Match:
    """A recorded message against one that came: ``fits``, and the values that its placeholders have then."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self.bound: dict[Ref, Any] = {}

    def fits(self, pattern: Any, value: Any) -> bool:
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
        """A value as the recording would have it: what fits a placeholder is written as that placeholder."""
        if isinstance(pattern, str) and self.fits(pattern, value):
            return pattern
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
        if not isinstance(value, str):
            return False
        found = re.fullmatch("".join(self._expression(part) for part in parts), value, re.DOTALL)
        if found is None:
            return False
        unbound = [part for part in parts if isinstance(part, Ref) and self._is_open(part)]
        return all(self._ref_fits(ref, text) for ref, text in zip(unbound, found.groups(), strict=True))

    def _expression(self, part: str | Ref) -> str:
        if isinstance(part, str):
            return re.escape(part)
        if self._is_open(part):
            return f"({TIME.pattern})" if part.kind == "time" else "(.*?)"
        return re.escape(str(self._value(part)))

    def _is_open(self, ref: Ref) -> bool:
        return ref.kind in {"time", "secret"} or self._value(ref) is UNBOUND

    def _value(self, ref: Ref) -> Any:
        return self.bound[ref] if ref in self.bound else self._known(ref)

    def _ref_fits(self, ref: Ref, value: Any) -> bool:
        if ref.kind == "secret":
            return True
        if ref.kind == "time":
            return isinstance(value, str) and TIME.fullmatch(value) is not None
        known = self._value(ref)
        if known is not UNBOUND:
            return _is_same(known, value)
        if type(value) not in _TYPES.get(ref.kind, (str,)):
            return False
        self.bound[ref] = value
        return True


def _is_same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    return type(one) is type(other) and bool(one == other)


def content(message: JsonObject) -> JsonObject:
    """What a client's message says: without who it is, how it counts, and what it leaves out or writes as empty."""
    made = {name: value for name, value in message.items() if name not in {"jsonrpc", "id"}}
    error = made.get("error")
    if isinstance(error, dict):
        return {"error": {"code": error.get("code")}}  # its words are each client's own
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
