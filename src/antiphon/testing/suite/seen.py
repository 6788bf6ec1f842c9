"""What was seen of a call: its result or its error, its rounds, its questions."""

from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.testing.suite.outcome import Turn
from antiphon.testing.suite.path import ABSENT
from antiphon.types import JsonObject

_ENVELOPE = frozenset({"_meta", "resultType", "ttlMs", "cacheScope"})
"""What the protocol wraps around a result, and what differs from era to era."""


class Asked(msgspec.Struct, frozen=True):
    """A question that came: its key, and its message if it has one."""

    key: str
    message: str


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """All that an expectation can look at."""

    method: str
    result: JsonObject | None = None
    error: JsonObject | None = None
    turns: tuple[Turn, ...] = ()
    seconds: float = 0.0
    names: Mapping[str, str] = {}
    """What the test calls the questions of an older server, which have no keys of their own."""

    @property
    def rounds(self) -> int:
        """How many requests the call took; what a client asks besides does not count."""
        return sum(turn.method == self.method for turn in self.turns)

    @property
    def asked(self) -> list[Asked]:
        return [
            Asked(self.names.get(key, key), _message(request))
            for turn in self.turns
            if turn.method == self.method
            for key, request in turn.questions.items()
        ]

    @property
    def is_error(self) -> bool:
        return self.result is not None and self.result.get("isError") is True

    @property
    def has_failed(self) -> bool:
        return self.error is not None or self.is_error

    @property
    def text(self) -> object:
        """The texts of the result, one a line; ABSENT if it has none."""
        texts = _texts(self.result or {})
        return "\n".join(texts) if texts else ABSENT

    @property
    def structured(self) -> object:
        return ABSENT if self.result is None else self.result.get("structuredContent", ABSENT)

    @property
    def essence(self) -> JsonObject:
        """The result without its envelope, or the error: what a snapshot keeps."""
        if self.result is None:
            return {"error": self.error}
        return {name: value for name, value in self.result.items() if name not in _ENVELOPE}


def _texts(result: JsonObject) -> list[str]:
    """The texts of a tool's content, of a resource's contents, of a prompt's messages."""
    found: list[str] = []
    for name in ("content", "contents", "messages"):
        items = result.get(name)
        for item in items if isinstance(items, list) else ():
            found += _text_of(item)
    return found


def _text_of(item: Any) -> list[str]:
    if not isinstance(item, dict):
        return []
    if "role" in item:
        content = item.get("content")
        return [text for block in (content if isinstance(content, list) else [content]) for text in _text_of(block)]
    text = item.get("text")
    return [text] if isinstance(text, str) else []


def _message(request: Any) -> str:
    params = request.get("params") if isinstance(request, dict) else None
    message = params.get("message") if isinstance(params, dict) else None
    return message if isinstance(message, str) else ""
