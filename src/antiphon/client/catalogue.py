"""What a client remembers of a server: what its tools want and promise, and results that are still fresh."""

import logging
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from antiphon.client.results import CallResult
from antiphon.errors import PeerBroken
from antiphon.types import JsonObject, Tool
from antiphon.wire.headers import HeaderParam, header_params
from antiphon.wire.jsonrpc import encode

if TYPE_CHECKING:
    from antiphon.shapes import Shape

MOST = 16 * 1024 * 1024
"""Bytes of results that are kept; the oldest make room."""
ENTRY = 500
"""Bytes that a result takes beside its own."""

_decode = msgspec.json.Decoder().decode
log = logging.getLogger("antiphon.client")


class Catalogue:
    """Filled by listing the tools; a call of a tool that was never listed is neither mirrored nor checked."""

    __slots__ = ("_outputs", "_shapes", "headers")

    def __init__(self) -> None:
        self.headers: dict[str, tuple[HeaderParam, ...]] = {}
        """The arguments of each tool that are repeated in headers."""
        self._outputs: dict[str, JsonObject] = {}
        self._shapes: dict[str, Shape] = {}

    def learn(self, tool: Tool) -> bool:
        """Remember a tool; False, with a warning, if its definition is invalid.

        streamable-http, Schema Extension: such a tool must not be shown, and the others must not suffer from it.
        """
        self.forget(tool.name)
        try:
            self.headers[tool.name] = header_params(tool.input_schema)
        except ValueError as fault:
            log.warning("the tool %r is left out: %s", tool.name, fault)
            return False
        if tool.output_schema is not None:
            self._outputs[tool.name] = tool.output_schema
        return True

    def forget(self, name: str) -> None:
        self.headers.pop(name, None)
        self._outputs.pop(name, None)
        self._shapes.pop(name, None)

    def check(self, name: str, result: CallResult, *, is_structured: bool) -> None:
        """PeerBroken if a result is not what the tool's output schema promises (server/tools, Output Schema)."""
        schema = self._outputs.get(name)
        if schema is None or result.is_error:
            return
        if not is_structured:
            raise PeerBroken(f"The result of {name} has no structured content, which its output schema promises")
        from antiphon.shapes import Mismatch, raw_shape  # 60 ms that only a promise costs
        from antiphon.shapes.validation import TooLarge

        try:
            if name not in self._shapes:
                self._shapes[name] = raw_shape(schema)
            self._shapes[name].read(result.structured)
        except TooLarge as fault:
            log.warning("the result of %r is not checked: %s", name, fault)
        except Mismatch as fault:
            raise PeerBroken(f"The result of {name} does not fit its output schema: {fault}") from None
        except ValueError as fault:
            log.warning("the output schema of %r cannot be used: %s", name, fault)
            del self._outputs[name]


class Cache:
    """Results by method and parameters, for as long as the server allows (2026-07-28, server/utilities/caching).

    Kept as bytes, so that a caller cannot change them.
    """

    __slots__ = ("_kept", "_size", "age")

    def __init__(self) -> None:
        self.age = 0
        """How often something has changed: what was asked for at another age may be stale when it comes."""
        self._kept: dict[bytes, tuple[float, bytes]] = {}
        self._size = 0

    def get(self, method: str, params: JsonObject) -> JsonObject | None:
        kept = self._kept.get(_key(method, params))
        if kept is None or monotonic() >= kept[0]:
            return None
        fresh: JsonObject = _decode(kept[1])
        return fresh

    def keep(self, method: str, params: JsonObject, result: JsonObject, age: int) -> None:
        """Only a whole result has a lifetime, and only a positive one counts."""
        ttl = result.get("ttlMs")
        if type(ttl) is int and ttl > 0 and age == self.age:
            key, kept = _key(method, params), encode(result)
            self._forget(key)
            self._kept[key] = (monotonic() + ttl / 1000, kept)
            self._size += len(key) + len(kept) + ENTRY
            while self._size > MOST:
                self._forget(next(iter(self._kept)))

    def _forget(self, key: bytes) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._size -= len(key) + len(kept[1]) + ENTRY

    def clear(self) -> None:
        self.age += 1
        self._kept.clear()
        self._size = 0


def _key(method: str, params: JsonObject) -> bytes:
    return msgspec.json.encode([method, params], order="sorted")
