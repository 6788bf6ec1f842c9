"""What a server said, for as long as it says that it holds (2026-07-28, server/utilities/caching)."""

from time import monotonic

import msgspec

from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import encode

MOST = 256
"""Results that are kept; the oldest make room."""

_decode = msgspec.json.Decoder().decode


class Cache:
    """Fresh results by method and parameters. Kept as bytes, so that nobody changes what the next one gets."""

    __slots__ = ("_kept", "age")

    def __init__(self) -> None:
        self.age = 0
        """How often something has changed: what was asked for at another age may be stale when it comes."""
        self._kept: dict[bytes, tuple[float, bytes]] = {}

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
            if len(self._kept) >= MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[_key(method, params)] = (monotonic() + ttl / 1000, encode(result))

    def clear(self) -> None:
        self.age += 1
        self._kept.clear()


def _key(method: str, params: JsonObject) -> bytes:
    return msgspec.json.encode([method, params], order="sorted")
