"""The token (`requestState`) that carries a call's state through the client and back.

A request state is attacker-controlled until opened (2026-07-28, basic/patterns/mrtr, Server Requirements). The holder
of a token can change it, send it again, send it late, with another call or as another user. Each layer stops one:

    armour      one text for each sequence of bytes, so that every character is protected
    key ring    the first key seals, every key opens, so a key can be replaced while calls are under way
    cipher      AES-256-GCM (`Seal`) or HMAC-SHA256 over readable text (`SignedState`): a changed token does not open
    bound_to    method, name, arguments, audience and principal (`binding`): a token moved elsewhere does not open
    expiry      inside what is protected: a late token does not open
    id          unique per token, for the store that lets it be used only once

What they do not hide is the token's length. A state over 1 KB is compressed before it is encrypted, so a client that
chooses part of it can tell from the length whether its guess occurs in the rest: keep credentials out of the state.

Nothing here reads a clock, the environment or random bytes; they are arguments.
"""

import binascii
import hmac
import re
import struct
import zlib
from collections.abc import Sequence
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CLOCK_SKEW: Final = 60.0
"""Seconds by which the clocks of instances may differ: so long after its end, what a token was used for is known."""

Reason = Literal["malformed", "wrong version", "too large", "unknown key", "forged", "expired", "already used"]


class SealBroken(Exception):
    """The token is refused. The reason is for the log; the peer learns only that the token was refused."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Final = reason


class StateTooLarge(ValueError):
    """The state's token would be longer than `max_bytes`."""

    def __init__(self, *, payload: int, token: int, limit: int) -> None:
        super().__init__(
            f"a state of {payload} bytes makes a token of {token} bytes, more than max_bytes={limit}:"
            " keep less in the state, or raise max_bytes"
        )
        self.payload: Final = payload
        self.token: Final = token
        self.limit: Final = limit


class Codec(Protocol):
    """The interface of an object that replaces `Seal` and `SignedState`."""

    def seal(self, payload: bytes, /) -> str:
        """Return a token for these bytes."""
        ...

    def open(self, token: str, /) -> bytes:
        """Return the bytes of a token; raise any exception if it is not one of ours."""
        ...


class Opened(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    payload: bytes
    id: bytes
    expires: float


_GENERATED: Final = "ak1_"
_SECRET_BYTES: Final = 32
_KEY_ID_BYTES: Final = 4
_ADVICE: Final = "`antiphon keygen` prints a good one"


def generate_key(entropy: bytes) -> str:
    """Return a key as text, from 32 random bytes; secret scanners recognise it by its prefix."""
    if len(entropy) != _SECRET_BYTES:
        raise ValueError(f"a key is made from {_SECRET_BYTES} random bytes, not {len(entropy)}")
    return _GENERATED + _armour(entropy)


def parse_keys(text: str) -> list[str]:
    """Return the keys in `text` (the variable ANTIPHON_KEYS), separated by commas or white space."""
    keys = [key for key in re.split(r"[,\s]+", text) if key]
    _secrets(keys)
    return keys


def _secrets(keys: str | bytes | Sequence[str | bytes]) -> tuple[bytes, ...]:
    ring = (keys,) if isinstance(keys, str | bytes) else tuple(keys)
    return tuple(_secret(key, f"key {place} of {len(ring)}") for place, key in enumerate(ring, 1))


def _secret(key: str | bytes, place: str) -> bytes:
    # The messages name the key by its place: a key must not reach a log or a terminal.
    secret = key.strip().encode("utf-8", "surrogatepass") if isinstance(key, str) else key
    if len(secret) < _SECRET_BYTES:
        raise ValueError(f"{place} has {len(secret)} bytes, and a key needs at least {_SECRET_BYTES}: {_ADVICE}")
    if secret.startswith(_GENERATED.encode()) and not _is_generated(secret):
        raise ValueError(f"{place} begins with {_GENERATED} but is not a whole generated key: copy it again, {_ADVICE}")
    return secret


def _is_generated(secret: bytes) -> bool:
    try:
        return len(_unarmour(secret[len(_GENERATED) :])) == _SECRET_BYTES
    except SealBroken:
        return False


def _derive(secret: bytes, purpose: bytes, size: int) -> bytes:
    """Derive a key for one purpose; no derived key reveals another."""
    return blake2b(purpose, key=blake2b(secret).digest(), digest_size=size).digest()


def _key_id(secret: bytes) -> bytes:
    return _derive(secret, b"antiphon key id", _KEY_ID_BYTES)


# Armour: bytes as URL-safe base64 without padding (RFC 4648, section 5), in exactly one way.

_ALPHABET: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_STANDARD: Final = _ALPHABET[:62] + b"+/"
_FROM_URL: Final = bytes(_STANDARD[_ALPHABET.index(byte)] if byte in _ALPHABET else ord("!") for byte in range(256))
# By length modulo 4: which last characters leave no unused bit set (section 3.5), and the padding that was left off.
_LAST: Final = (_ALPHABET, b"", _ALPHABET[::16], _ALPHABET[::4])
_CLOSE: Final = (b'"', b"", b'=="', b'="')

# msgspec reads a JSON string as base64 in a third of the time binascii needs.
_base64 = msgspec.json.Decoder(bytes)


def _armour(raw: bytes) -> str:
    return binascii.b2a_base64(raw, newline=False).rstrip(b"=").translate(_TO_URL).decode("ascii")


def _armoured_length(size: int) -> int:
    return (size * 4 + 2) // 3


def _unarmour(text: bytes) -> bytes:
    if not text:
        return b""
    rest = len(text) % 4
    if text[-1] not in _LAST[rest]:
        raise SealBroken("malformed")
    try:
        return _base64.decode(b'"' + text.translate(_FROM_URL) + _CLOSE[rest])
    except msgspec.MsgspecError:
        raise SealBroken("malformed") from None


def _ascii(token: str, max_bytes: int) -> bytes:
    if len(token) > max_bytes:
        raise SealBroken("too large")
    try:
        return token.encode("ascii")
    except UnicodeEncodeError:
        raise SealBroken("malformed") from None


_ENTROPY_BYTES: Final = 12
_NO_KEYS: Final = f"there is no key to seal with: pass keys, or set ANTIPHON_KEYS; {_ADVICE}"


def _positive(ttl: float) -> float:
    if not 0 < ttl < inf:
        raise ValueError(f"ttl is a number of seconds above 0, not {ttl!r}")
    return ttl


def _fresh(entropy: bytes) -> bytes:
    if len(entropy) != _ENTROPY_BYTES:
        raise ValueError(f"entropy is {_ENTROPY_BYTES} random bytes, fresh for every token, not {len(entropy)}")
    return entropy


def _in_time(expires: float, now: float) -> float:
    if not now < expires:
        raise SealBroken("expired")
    return expires


_VERSION: Final = "ap1."
_VERSION_BYTES: Final = _VERSION.encode()
_COMPRESSED: Final = 1
_EXPIRY: Final = struct.Struct(">d")
_HEAD_BYTES: Final = _KEY_ID_BYTES + 1
_NONCE_END: Final = _HEAD_BYTES + _ENTROPY_BYTES
_TAG_BYTES: Final = 16
_LEAST_BYTES: Final = _NONCE_END + _EXPIRY.size + _TAG_BYTES
_COMPRESS_ABOVE: Final = 1024
_INFLATION: Final = 16


class Seal:
    """AES-256-GCM with a key ring.

    The token is `ap1.` and the armoured bytes of: key id (4), flags (1), nonce (12), then encrypted expiry (8) and
    payload, then the tag (16). Version, key id, flags and `bound_to` are its associated data.

    Nonces are random: give a busy fleet a new first key before four thousand million tokens (NIST SP 800-38D, 8.3).
    """

    __slots__ = ("_ciphers", "_first", "_ring", "audience", "max_bytes", "single_use", "ttl")

    def __init__(
        self,
        keys: str | bytes | Sequence[str | bytes] = (),
        *,
        ttl: float = 600,
        audience: str | None = None,
        single_use: bool = False,
        max_bytes: int = 65536,
    ) -> None:
        self._ring: Final = {_key_id(secret): secret for secret in _secrets(keys)}
        self._first: Final = next(iter(self._ring), None)
        self._ciphers: dict[bytes, AESGCM] = {}
        self.ttl: Final = _positive(ttl)
        self.audience: Final = audience
        self.single_use: Final = single_use
        self.max_bytes: Final = max_bytes

    def __repr__(self) -> str:
        ids = ", ".join(key_id.hex() for key_id in self._ring)
        return f"<Seal key ids [{ids}] ttl={self.ttl} audience={self.audience!r} single_use={self.single_use}>"

    @property
    def readable(self) -> bool:
        """Whether the holder of a token can read its content."""
        return False

    @property
    def has_keys(self) -> bool:
        """Whether keys were given."""
        return self._first is not None

    def with_keys(self, keys: str | bytes | Sequence[str | bytes]) -> "Seal":
        """The same policy with other keys."""
        return Seal(keys, ttl=self.ttl, audience=self.audience, single_use=self.single_use, max_bytes=self.max_bytes)

    def seal(self, payload: bytes, *, bound_to: bytes, now: float, ttl: float | None = None, entropy: bytes) -> str:
        """Return a token for these bytes."""
        if self._first is None:
            raise ValueError(_NO_KEYS)
        flags, packed = _pack(payload, self.max_bytes * _INFLATION)
        head = self._first + flags
        size = len(_VERSION) + _armoured_length(_LEAST_BYTES + len(packed))
        if size > self.max_bytes:
            raise StateTooLarge(payload=len(payload), token=size, limit=self.max_bytes)
        expires = now + (self.ttl if ttl is None else _positive(ttl))
        cipher = self._ciphers.get(self._first) or self._cipher(self._first)
        sealed = cipher.encrypt(_fresh(entropy), _EXPIRY.pack(expires) + packed, _VERSION_BYTES + head + bound_to)
        return _VERSION + _armour(head + entropy + sealed)

    def open(self, token: str, *, bound_to: bytes, now: float) -> Opened:
        """Return what a token holds; raise SealBroken if it is forged, expired or bound to something else."""
        text = _ascii(token, self.max_bytes)
        if not text.startswith(_VERSION_BYTES):
            raise SealBroken("wrong version" if re.match(rb"ap\d+\.", text) else "malformed")
        raw = _unarmour(text[len(_VERSION_BYTES) :])
        if len(raw) < _LEAST_BYTES or raw[_KEY_ID_BYTES] & ~_COMPRESSED:
            raise SealBroken("malformed")
        head, nonce, key_id = raw[:_HEAD_BYTES], raw[_HEAD_BYTES:_NONCE_END], raw[:_KEY_ID_BYTES]
        cipher = self._ciphers.get(key_id) or self._cipher(key_id)
        try:
            opened = cipher.decrypt(nonce, raw[_NONCE_END:], _VERSION_BYTES + head + bound_to)
        except _invalid_tag():
            raise SealBroken("forged") from None
        expires = _in_time(_EXPIRY.unpack_from(opened)[0], now)
        payload = opened[_EXPIRY.size :]
        if raw[_KEY_ID_BYTES]:
            payload = _inflate(payload, self.max_bytes * _INFLATION)
        return Opened(payload=payload, id=key_id + nonce, expires=expires)

    def marks(self, value: bytes) -> list[str]:
        """Return what a value is found by in a store that must not tell it: a digest for each key, the first first."""
        return [_derive(secret, b"antiphon mark " + value, 24).hex() for secret in self._ring.values()]

    def _cipher(self, key_id: bytes) -> "AESGCM":
        secret = self._ring.get(key_id)
        if secret is None:
            raise SealBroken("unknown key")
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # 17 ms, only for servers that ask

        cipher = self._ciphers[key_id] = AESGCM(_derive(secret, b"antiphon seal AES-256-GCM", 32))
        return cipher


def _invalid_tag() -> type[Exception]:
    from cryptography.exceptions import InvalidTag  # 17 ms, only for servers that ask

    return InvalidTag


def _pack(payload: bytes, most: int) -> tuple[bytes, bytes]:
    """Return flags and body, compressed if that makes it shorter and `open` accepts its inflated size."""
    if _COMPRESS_ABOVE < len(payload) <= most:
        packed = zlib.compress(payload, 1, wbits=-zlib.MAX_WBITS)
        if len(packed) < len(payload):
            return b"\x01", packed
    return b"\x00", payload


def _inflate(packed: bytes, most: int) -> bytes:
    stream = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    try:
        payload = stream.decompress(packed, most + 1)
    except zlib.error:
        raise SealBroken("malformed") from None
    if len(payload) > most:
        raise SealBroken("too large")
    if not stream.eof or stream.unused_data:
        raise SealBroken("malformed")
    return payload


class _Claims(msgspec.Struct, frozen=True):
    exp: float
    id: str


_read_claims = msgspec.json.Decoder(_Claims)
_write_claims = msgspec.json.Encoder()


class SignedState:
    """HMAC-SHA256 over readable text, to see the state in a log or a proxy.

    The token is base64url(claims, newline, payload) `.` base64url(MAC), where the claims are the JSON object
    `{"exp": seconds, "id": text}`. `bound_to` is in the MAC, not in the text.
    """

    __slots__ = ("_ring", "audience", "max_bytes", "single_use", "ttl")

    def __init__(
        self,
        key: str | bytes | Sequence[str | bytes],
        ttl: float = 600,
        *,
        audience: str | None = None,
        single_use: bool = False,
        max_bytes: int = 65536,
    ) -> None:
        self._ring: Final = tuple(
            (_key_id(secret), _derive(secret, b"antiphon signed state HMAC-SHA256", 32)) for secret in _secrets(key)
        )
        if not self._ring:
            raise ValueError(_NO_KEYS)
        self.ttl: Final = _positive(ttl)
        self.audience: Final = audience
        self.single_use: Final = single_use
        self.max_bytes: Final = max_bytes

    def __repr__(self) -> str:
        ids = ", ".join(key_id.hex() for key_id, _ in self._ring)
        return f"<SignedState key ids [{ids}] ttl={self.ttl} audience={self.audience!r} single_use={self.single_use}>"

    @property
    def readable(self) -> bool:
        """Whether the holder of a token can read its content."""
        return True

    def seal(self, payload: bytes, *, bound_to: bytes, now: float, ttl: float | None = None, entropy: bytes) -> str:
        """Return a signed token that can be read."""
        expires = now + (self.ttl if ttl is None else _positive(ttl))
        claims = _write_claims.encode(_Claims(exp=expires, id=_fresh(entropy).hex()))
        body = claims + b"\n" + payload
        size = _armoured_length(len(body)) + 1 + _armoured_length(32)
        if size > self.max_bytes:
            raise StateTooLarge(payload=len(payload), token=size, limit=self.max_bytes)
        text = _armour(body)
        _, key = self._ring[0]
        return f"{text}.{_mac(key, bound_to, text.encode('ascii')).decode('ascii')}"

    def open(self, token: str, *, bound_to: bytes, now: float) -> Opened:
        """Return what a token holds; raise SealBroken if its signature or its time is wrong."""
        text, dot, mac = _ascii(token, self.max_bytes).partition(b".")
        if not dot:
            raise SealBroken("malformed")
        key_id = self._signer(text, mac, bound_to)
        claims, _, payload = _unarmour(text).partition(b"\n")
        try:
            read = _read_claims.decode(claims)
            nonce = bytes.fromhex(read.id)
        except (ValueError, msgspec.MsgspecError):
            raise SealBroken("malformed") from None
        return Opened(payload=payload, id=key_id + nonce, expires=_in_time(read.exp, now))

    def _signer(self, text: bytes, mac: bytes, bound_to: bytes) -> bytes:
        for key_id, key in self._ring:
            if hmac.compare_digest(_mac(key, bound_to, text), mac):
                return key_id
        raise SealBroken("forged")


def _mac(key: bytes, bound_to: bytes, text: bytes) -> bytes:
    """Return the MAC as text: compared as text, the same bytes cannot be written in a second way."""
    signed = len(bound_to).to_bytes(8) + bound_to + text
    return _armour(hmac.digest(key, signed, "sha256")).encode("ascii")


_canonical = msgspec.json.Encoder(order="sorted")


def as_they_are(arguments: object) -> msgspec.Raw:
    """Return a copy of the arguments that gives the same `binding`, even if the handler changes them."""
    return msgspec.Raw(_canonical.encode(arguments))


def binding(*, method: str, name: str, arguments: object, audience: str | None, principal: str | None) -> bytes:
    """Return a digest of the call and the caller, equal only for equal ones (mrtr, Server Requirements 5).

    `arguments` are decoded JSON; the order of an object's keys does not matter, and absent arguments are `{}`.
    """
    encoded = b"{}" if arguments is None else _canonical.encode(arguments)
    what, whom = method.encode("utf-8", "surrogatepass"), name.encode("utf-8", "surrogatepass")
    call = b"%d:%b%d:%b%d:%b" % (len(what), what, len(whom), whom, len(encoded), encoded)
    fields = call + _field(audience) + _field(principal)
    return blake2b(fields, digest_size=32, person=b"antiphon binding").digest()


def _field(text: str | None) -> bytes:
    if text is None:
        return b"-"
    field = text.encode("utf-8", "surrogatepass")
    return b"%d:%b" % (len(field), field)


_BOUND_BYTES: Final = 32
_HEAD: Final = _EXPIRY.size + _ENTROPY_BYTES + _BOUND_BYTES


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
    """Adds expiry, a token id and the binding to a call to a user's own codec."""

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
        except Exception:  # noqa: BLE001 -- whatever a codec raises, the token is refused
            raise SealBroken("forged") from None
        if len(sealed) < _HEAD:
            raise SealBroken("malformed")
        (expires,) = _EXPIRY.unpack_from(sealed)
        id_ = sealed[_EXPIRY.size : _EXPIRY.size + _ENTROPY_BYTES]
        if not hmac.compare_digest(sealed[_EXPIRY.size + _ENTROPY_BYTES : _HEAD], bound_to):
            raise SealBroken("forged")
        return Opened(payload=sealed[_HEAD:], id=id_, expires=_in_time(expires, now))
