"""Signed tokens: access tokens (RFC 9068), proofs of a key (RFC 9449), client assertions (RFC 7523)."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

import msgspec
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key

from antiphon.oauth.identity import LEEWAY

_LIFE = 120
"""Seconds that an assertion is valid."""
MAX_TOKEN = 16 * 1024
"""Characters that an access token may have."""
PROOF_LIFE = 300.0
"""Seconds by which a proof may be older, or younger, than the clock."""
_ALGORITHMS = {
    "RSA": ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
    "EC": ["ES256", "ES384", "ES512"],
    "OKP": ["EdDSA", "Ed25519"],
}
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


class TokenRefused(ValueError):
    """A token, or a proof, that does not count; the text says why, for the log only."""


class Keys:
    """The public keys of an issuer."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        listed = document.get("keys")
        self._keys: dict[str | int, Any] = {}
        for each in listed if isinstance(listed, list) else []:
            if isinstance(each, dict) and each.get("use", "sig") == "sig" and each.get("kty") in {"RSA", "EC", "OKP"}:
                with suppress(Exception):  # a key of a kind that is not known here
                    self._keys[each.get("kid") or len(self._keys)] = import_key(each)

    def find(self, kid: str | None) -> Any:
        """Return the key of this name; without one, the only key. None if there is none."""
        if kid is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid)

    def __len__(self) -> int:
        return len(self._keys)


def kid_of(token: str) -> str | None:
    """Return the name of the key that signed a token; TokenRefused if it cannot be an access token at all."""
    if len(token) > MAX_TOKEN:
        raise TokenRefused(f"it has {len(token)} characters")
    header = _part(token, 0)
    if "crit" in header:
        raise TokenRefused("it has critical extensions")
    if str(header.get("typ", "JWT")).lower().removeprefix("application/") not in {"at+jwt", "jwt"}:
        raise TokenRefused(f"it is of type {header.get('typ')!r}")
    kid = header.get("kid")
    return kid if isinstance(kid, str) else None


def issuer_of(token: str) -> str:
    """Return the issuer that a token names, unverified: to know whose keys to check it with."""
    claims = _part(token, 1)
    issuer = claims.get("iss")
    if not isinstance(issuer, str):
        raise TokenRefused("it names no issuer")
    return issuer


def verify(token: str, key: Any, *, issuer: str, audiences: Collection[str], now: float) -> dict[str, Any]:
    """Return the claims of an access token; TokenRefused unless the issuer signed it, for us, for now."""
    claims = _verified(token, key)
    audience = claims.get("aud")
    named = {audience} if isinstance(audience, str) else {each for each in audience or () if isinstance(each, str)}
    expires, begins = claims.get("exp"), claims.get("nbf", 0)
    if claims.get("iss") != issuer:
        raise TokenRefused(f"its issuer is {claims.get('iss')!r}")
    if not named & set(audiences):
        raise TokenRefused(f"its audience is {audience!r}")
    # Written so that NaN, which is neither more nor less than anything, is refused.
    if not isinstance(expires, int | float) or not expires > now - LEEWAY:
        raise TokenRefused("it has expired, or does not say when it does")
    if not isinstance(begins, int | float) or not begins < now + LEEWAY:
        raise TokenRefused("it is not valid yet")
    return claims


def _verified(token: str, key: Any) -> dict[str, Any]:
    try:
        return dict(jwt.decode(token, key, algorithms=_ALGORITHMS[key.key_type]).claims)
    except Exception as fault:  # noqa: BLE001 -- joserfc and cryptography raise many kinds
        raise TokenRefused(f"its signature is not valid ({type(fault).__name__})") from None


def _part(token: str, index: int) -> dict[str, Any]:
    """Return the header (0) or the claims (1) of a token, unverified."""
    parts = token.split(".")
    try:
        text = parts[index] if len(parts) == 3 else ""
        found: Any = msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, msgspec.MsgspecError, RecursionError):
        found = None
    if type(found) is not dict:
        raise TokenRefused("it is no JWT")
    return found


def new_key() -> dict[str, Any]:
    """Return a fresh private key for DPoP, as a JWK."""
    return dict(ECKey.generate_key("P-256", private=True).as_dict(private=True))


def proof(
    key: dict[str, Any],
    verb: str,
    url: str,
    *,
    id_: str,
    now: float,
    access: str | None = None,
    nonce: str | None = None,
) -> str:
    """Return a proof that the sender of this request holds the key, and of the token that is bound to it."""
    private = ECKey.import_key(key)
    claims: dict[str, Any] = {"jti": id_, "htm": verb, "htu": url.partition("?")[0].partition("#")[0], "iat": int(now)}
    if access is not None:
        claims["ath"] = _digest(access)
    if nonce is not None:
        claims["nonce"] = nonce
    header = {"typ": "dpop+jwt", "alg": "ES256", "jwk": private.as_dict(private=False)}
    return jwt.encode(header, claims, private)


def check_proof(text: str, *, verb: str, url: str, access: str, key: str, now: float) -> str:
    """Return the id of a proof for this request and token; TokenRefused if it proves nothing (RFC 9449, 4.3).

    ``key`` is the thumbprint that the token is bound to. The caller sees to it that no id is used twice.
    """
    header = _part(text, 0) if len(text) <= MAX_TOKEN else {}
    jwk = header.get("jwk")
    if header.get("typ") != "dpop+jwt" or not isinstance(jwk, dict) or "d" in jwk or "k" in jwk:
        raise TokenRefused("its proof is none")
    if str(jwk.get("kty")) not in _ALGORITHMS:
        raise TokenRefused("its proof is by a key of another kind")
    try:
        public = import_key(jwk)
        thumbprint = public.thumbprint()
    except Exception as fault:  # noqa: BLE001 -- joserfc and cryptography raise many kinds
        raise TokenRefused(f"the key of its proof is not valid ({type(fault).__name__})") from None
    claims = _verified(text, public)
    issued, id_ = claims.get("iat"), claims.get("jti")
    if thumbprint != key:
        raise TokenRefused("its proof is by another key")
    if claims.get("htm") != verb or str(claims.get("htu")).partition("?")[0] != url:
        raise TokenRefused("its proof is for another request")
    if claims.get("ath") != _digest(access):
        raise TokenRefused("its proof is for another token")
    if not isinstance(issued, int | float) or not now - PROOF_LIFE <= issued <= now + PROOF_LIFE:
        raise TokenRefused("its proof is too old, or of the future")
    if not isinstance(id_, str) or not 0 < len(id_) <= 256:
        raise TokenRefused("its proof has no id")
    return id_


def _digest(access: str) -> str:
    return urlsafe_b64encode(sha256(access.encode()).digest()).rstrip(b"=").decode()


def assertion(pem: bytes, client_id: str, audience: str, *, id_: str, now: float) -> str:
    """Return a client's assertion that it is itself, for an authorization server."""
    key = read_key(pem)
    claims = {"iss": client_id, "sub": client_id, "aud": audience, "jti": id_, "iat": int(now), "exp": int(now) + _LIFE}
    header = {"alg": _algorithm(key), **({"kid": key.kid} if key.kid else {})}
    return jwt.encode(header, claims, key)


def read_key(data: bytes) -> RSAKey | ECKey | OKPKey:
    """Return a private key from PEM or a JWK; ValueError if it is none."""
    try:
        found = import_key(msgspec.json.decode(data)) if data.lstrip().startswith(b"{") else _from_pem(data)
    except Exception as fault:  # noqa: BLE001 -- joserfc and cryptography raise many kinds
        raise ValueError(f"This is no private key in PEM or JWK form: {type(fault).__name__}") from None
    if not isinstance(found, RSAKey | ECKey | OKPKey) or not found.is_private:
        raise ValueError("This is no private key for signing")
    return found


def _from_pem(data: bytes) -> RSAKey | ECKey | OKPKey:
    for kind in (ECKey, RSAKey, OKPKey):
        try:
            return kind.import_key(data)
        except (ValueError, TypeError):
            continue
    raise ValueError("unknown kind of key")


def _algorithm(key: RSAKey | ECKey | OKPKey) -> str:
    if isinstance(key, RSAKey):
        return "RS256"
    return "EdDSA" if isinstance(key, OKPKey) else _CURVES[key.curve_name]
