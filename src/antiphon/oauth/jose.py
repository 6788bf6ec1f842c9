"""Signed tokens: proofs of a key (DPoP, RFC 9449) and client assertions (RFC 7523). The only user of joserfc here."""

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any

import msgspec
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key

_LIFE = 120
"""Seconds that an assertion is valid."""
_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


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
        claims["ath"] = urlsafe_b64encode(sha256(access.encode()).digest()).rstrip(b"=").decode()
    if nonce is not None:
        claims["nonce"] = nonce
    header = {"typ": "dpop+jwt", "alg": "ES256", "jwk": private.as_dict(private=False)}
    return jwt.encode(header, claims, private)


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
