"""The Guard: what the server needs of a seal, whichever codec a user brings."""

import hmac
import struct
from typing import Final, Protocol

from antiphon.rounds.seal import Codec, Opened, Seal, SealBroken, SignedState, StateTooLarge

_EXPIRY: Final = struct.Struct(">d")
_ID_BYTES: Final = 12
_BOUND_BYTES: Final = 32
_HEAD: Final = _EXPIRY.size + _ID_BYTES + _BOUND_BYTES


class Guard(Protocol):
    """Seals and opens tokens that are bound to a call and expire."""

    @property
    def ttl(self) -> float: ...
    @property
    def audience(self) -> str | None: ...
    @property
    def single_use(self) -> bool: ...
    @property
    def readable(self) -> bool: ...

    def seal(self, payload: bytes, *, bound_to: bytes, now: float, ttl: float | None = None, entropy: bytes) -> str: ...

    def open(self, token: str, *, bound_to: bytes, now: float) -> Opened: ...


def guard_of(codec: Seal | SignedState | Codec) -> Guard:
    return codec if isinstance(codec, Seal | SignedState) else Enclosed(codec)


class Enclosed:
    """A user's own codec, given what it does not know of: expiry, a token's id and the call it is bound to."""

    __slots__ = ("_codec", "audience", "max_bytes", "readable", "single_use", "ttl")

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.ttl = float(getattr(codec, "ttl", 600))
        self.audience: str | None = getattr(codec, "audience", None)
        self.single_use = bool(getattr(codec, "single_use", False))
        self.max_bytes = int(getattr(codec, "max_bytes", 65536))
        self.readable = False

    def seal(self, payload: bytes, *, bound_to: bytes, now: float, ttl: float | None = None, entropy: bytes) -> str:
        expires = now + (self.ttl if ttl is None else ttl)
        token = self._codec.seal(_EXPIRY.pack(expires) + entropy + bound_to + payload)
        if len(token) > self.max_bytes:
            raise StateTooLarge(payload=len(payload), token=len(token), limit=self.max_bytes)
        return token

    def open(self, token: str, *, bound_to: bytes, now: float) -> Opened:
        if len(token) > self.max_bytes:
            raise SealBroken("too large")
        try:
            sealed = self._codec.open(token)
        except Exception:  # noqa: BLE001 -- whatever a codec raises, it means no
            raise SealBroken("forged") from None
        if len(sealed) < _HEAD:
            raise SealBroken("malformed")
        (expires,) = _EXPIRY.unpack_from(sealed)
        id_ = sealed[_EXPIRY.size : _EXPIRY.size + _ID_BYTES]
        if not hmac.compare_digest(sealed[_EXPIRY.size + _ID_BYTES : _HEAD], bound_to):
            raise SealBroken("forged")
        if not now < expires:
            raise SealBroken("expired")
        return Opened(payload=sealed[_HEAD:], id=id_, expires=expires)
