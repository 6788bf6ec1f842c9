"""Who a token speaks for, and what that allows."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

_FOREVER = 10.0**12
LEEWAY = 30.0
"""Seconds by which clocks may differ."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a request, as a token told: ``ctx.auth`` in a handler."""

    subject: str
    issuer: str = ""
    client_id: str | None = None
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = {}
    """What else the token says."""
    expires_at: float | None = None
    """Seconds since the epoch."""

    @property
    def principal(self) -> str:
        """The user as a text: the same after a refresh, a new login and a new registration of the client."""
        return f"{self.issuer} {self.subject}" if self.issuer else self.subject

    def lacks(self, scopes: Iterable[str]) -> list[str]:
        """Return those of the scopes that were not granted."""
        return [scope for scope in scopes if scope not in self.scopes]


def with_implied(scopes: Iterable[str], implies: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Return scopes with all that they imply, over any number of steps."""
    found: set[str] = set()
    waiting = list(scopes)
    while waiting:
        scope = waiting.pop()
        if scope not in found:
            found.add(scope)
            waiting += implies.get(scope, ())
    return frozenset(found)


def identity_of(claims: Mapping[str, Any], issuer: str) -> Identity | None:
    """Return whom the claims of a token speak for; None if they name no subject."""
    subject, client = claims.get("sub"), claims.get("client_id", claims.get("azp"))
    subject = subject if isinstance(subject, str) and subject else client
    if not isinstance(subject, str) or not subject:
        return None
    # RFC 9068 has "scope" as a text; some servers write a list, or "scp".
    told = claims.get("scope", claims.get("scp", ""))
    listed = told.split() if isinstance(told, str) else told if isinstance(told, list) else []
    scopes = [each for each in listed if isinstance(each, str)]
    expires = claims.get("exp")
    return Identity(
        subject=subject,
        issuer=issuer,
        client_id=client if isinstance(client, str) else None,
        scopes=frozenset(scopes),
        claims=claims,
        expires_at=float(expires) if isinstance(expires, int | float) and expires < _FOREVER else None,
    )
