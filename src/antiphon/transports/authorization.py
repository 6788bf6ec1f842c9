"""Protection of a server: only requests with a token of its authorization server are served.

Each request is checked before its body is read. A token that was verified is remembered for a short while, so that the
usual request costs one look. Every bad token gets the same answer; the log says what was wrong with it.
"""

import asyncio
import logging
import os
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b, sha256
from inspect import isawaitable, isfunction, ismethod
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, cast
from urllib.parse import quote, urlencode

import msgspec

from antiphon.errors import CallFailed, InternalError, ProtocolError, Unauthorized
from antiphon.oauth.challenge import write_challenge
from antiphon.oauth.identity import LEEWAY, Identity, identity_of, with_implied
from antiphon.oauth.metadata import (
    AuthorizationServer,
    ProtectedResource,
    check_issuer,
    issuer_metadata_urls,
    read_document,
    resource_metadata_urls,
    served_metadata_url,
)
from antiphon.oauth.urls import check_endpoint
from antiphon.stores.store import Store
from antiphon.transports.fetch import fetch
from antiphon.wire.headers import RawHeaders

log = logging.getLogger("antiphon.auth")

RESOURCE, ISSUER = "ANTIPHON_RESOURCE", "ANTIPHON_ISSUER"
REMEMBERED = 10_000
"""Verified tokens that are remembered at most."""
FRESH = 60.0
"""Seconds for which a verified token is not looked at again."""
_SHORTEST, _LONGEST = 300.0, 86_400.0
"""Seconds for which an issuer's keys are kept, whatever it says."""
_AGAIN, _SOON = 30.0, 2.0
"""Seconds between two looks for a key that is not there; and for any keys at all, while there are none."""

Checked: TypeAlias = Identity | None


class Verifier(Protocol):
    """Tells whom a token speaks for; None if it does not count. Raise Unchecked if that cannot be told now.

    ``audiences`` are the names that a token may be for: the server's URL, and those of ``audience=``.
    """

    async def identify(self, token: str, audiences: Collection[str]) -> Checked: ...


class Unchecked(ProtocolError):
    """A token could not be checked, which says nothing about it."""

    default_status = 503

    def __init__(self) -> None:
        super().__init__("The token cannot be checked now; try again later")


class Protected:
    """Protects a server: ``Server(..., auth=Protected("https://mcp.example.com/mcp", issuer="https://auth..."))``.

    * ``resource``: the server's public URL. Tokens must be for it, and its metadata names it. Default: the environment
      variable ANTIPHON_RESOURCE, which ``antiphon serve --url`` sets.
    * ``issuer``: the authorization server whose tokens count, or several. Default: ANTIPHON_ISSUER.
    * ``scopes``: what every request needs.
    * ``audience``: other names that tokens may be for, where an authorization server knows no resource indicators.
    * ``verify``: a function that takes a token and returns an Identity or None, or an ``Introspect``. Default: tokens
      are JWTs, checked with the issuer's published keys.
    * ``implies``: scopes that include others, such as ``{"notes:admin": ["notes:read", "notes:write"]}``.
    * ``dpop``: whether tokens that are bound to a key of the client count, or are required (RFC 9449).
    """

    def __init__(
        self,
        resource: str | None = None,
        *,
        issuer: str | Sequence[str] | None = None,
        scopes: Iterable[str] = (),
        audience: str | Sequence[str] = (),
        verify: "Verifier | Callable[[str], Checked | Awaitable[Checked]] | None" = None,
        implies: Mapping[str, Iterable[str]] | None = None,
        dpop: Literal["off", "accept", "require"] = "off",
        name: str | None = None,
        documentation: str | None = None,
    ) -> None:
        resource = resource or os.environ.get(RESOURCE)
        issuer = issuer or os.environ.get(ISSUER)
        if not resource or not issuer:
            raise ValueError(
                "Protected() needs the server's URL and its issuer: pass them, or set ANTIPHON_RESOURCE (antiphon serve"
                " --url) and ANTIPHON_ISSUER"
            )
        self.resource = check_endpoint(resource, "The resource")
        self.issuers = (issuer,) if isinstance(issuer, str) else tuple(issuer)
        for each in self.issuers:
            check_endpoint(each, "The issuer")
        self.scopes = tuple(dict.fromkeys(scopes))
        self._implies = {scope: tuple(below) for scope, below in (implies or {}).items()}
        self._audiences = (self.resource, *((audience,) if isinstance(audience, str) else audience))
        self._verify = Jwt(self.issuers) if verify is None else verify
        self._dpop = dpop
        self._known: dict[bytes, _Known] = {}
        self.metadata_url = resource_metadata_urls(self.resource)[0]
        self.metadata = msgspec.json.encode(
            ProtectedResource(
                resource=self.resource,
                authorization_servers=self.issuers,
                scopes_supported=self.scopes or None,
                bearer_methods_supported=("header",),
                resource_name=name,
                resource_documentation=documentation,
                dpop_bound_access_tokens_required=dpop == "require",
            )
        )

    def __repr__(self) -> str:
        return f"Protected({self.resource!r}, issuer={self.issuers})"

    def __str__(self) -> str:
        return f"{self.resource} by {', '.join(self.issuers)}"

    def serve_at(self, path: str) -> None:
        """Note the path of the endpoint below its mount, for challenges that name metadata that is surely served."""
        self.metadata_url = served_metadata_url(self.resource, path)

    def recall(self, headers: RawHeaders) -> Identity | None:
        """Return who makes a request if its token was verified a short while ago and needs no proof."""
        authorization = headers.get(b"authorization")
        if authorization is None:
            return None
        # Remembered by digest: a copy of the memory gives no token away.
        known = self._known.get(blake2b(authorization, digest_size=32).digest())
        return known.identity if known is not None and known.bound_to is None and time.time() < known.until else None

    async def identify(self, verb: str, headers: RawHeaders, store: Store) -> Identity:
        """Return who makes a request; Unauthorized, with a challenge, if its token does not say that."""
        authorization = headers.get(b"authorization")
        if authorization is None:
            raise self.unauthorized()
        digest = blake2b(authorization, digest_size=32).digest()
        known = self._known.get(digest)
        if known is not None and known.bound_to is not None and time.time() < known.until:
            token = authorization.decode("latin-1").strip().partition(" ")[2].strip()
            await self._check_proof(verb, headers, token, known.bound_to, store)
            return known.identity
        scheme, _, token = authorization.decode("latin-1").strip().partition(" ")
        token = token.strip()
        identity = await self._identify(token)
        if identity is None or self.has_ended(identity):
            raise self.unauthorized(error="invalid_token")
        bound_to = _bound_to(identity)
        if bound_to is None:
            if scheme.lower() != "bearer" or self._dpop == "require":
                raise self.unauthorized(error="invalid_token")
        elif self._dpop == "off" or scheme.lower() != "dpop":
            raise self.unauthorized(error="invalid_token")
        self._remember(digest, identity, bound_to)
        if bound_to is not None:
            await self._check_proof(verb, headers, token, bound_to, store)
        return identity

    async def _check_proof(self, verb: str, headers: RawHeaders, token: str, bound_to: str, store: Store) -> None:
        from antiphon.oauth.jose import PROOF_LIFE, TokenRefused, check_proof  # only where proofs are wanted

        try:
            proof = headers.get(b"dpop", b"").decode("latin-1")
            id_ = check_proof(proof, verb=verb, url=self.resource, access=token, key=bound_to, now=time.time())
            digest = sha256(f"{bound_to} {id_}".encode()).hexdigest()
            if not await store.add(f"antiphon:proof:{digest}", ttl=2 * PROOF_LIFE + LEEWAY):
                raise TokenRefused("its proof was used before")
        except TokenRefused as fault:
            log.info("a token was refused: %s", fault)
            raise self.unauthorized(error="invalid_dpop_proof") from None

    def forget(self) -> None:
        """Verify every token again, and look for the issuers' keys, as after a key was withdrawn."""
        self._known.clear()
        if isinstance(self._verify, Jwt):
            self._verify.forget()

    def has_ended(self, identity: Identity | None) -> bool:
        """Return whether the token that told this identity has expired."""
        return identity is not None and identity.expires_at is not None and time.time() > identity.expires_at + LEEWAY

    def check_scopes(self, identity: Identity, needed: Sequence[str]) -> None:
        """Unauthorized, with status 403 and all scopes that are needed, if the token lacks one."""
        granted = identity.scopes
        if granted.issuperset(self.scopes) and (not needed or granted.issuperset(needed)):
            return
        wanted = tuple(dict.fromkeys([*self.scopes, *needed]))
        description = f"This needs {' '.join(identity.lacks(wanted))}"
        challenge = self.challenge(error="insufficient_scope", scopes=wanted, description=description)
        raise Unauthorized(description, challenge=challenge, status=403, data={"requiredScopes": list(wanted)})

    def admit(self, identity: Identity, needed: Sequence[str]) -> Identity:
        """Return who calls in memory, as a test says; Unauthorized as if their token had told it over HTTP."""
        if self.has_ended(identity):
            raise self.unauthorized(error="invalid_token")
        identity = self._with_implied(msgspec.structs.replace(identity, issuer=identity.issuer or self.issuers[0]))
        self.check_scopes(identity, needed)
        return identity

    def unauthorized(self, error: str | None = None) -> Unauthorized:
        """Return the refusal of a request without a token, or with a bad one (RFC 6750, 3.1)."""
        message = "A token is needed" if error is None else "The token is not valid"
        return Unauthorized(message, challenge=self.challenge(error=error, scopes=self.scopes))

    def challenge(self, *, error: str | None, scopes: Iterable[str], description: str | None = None) -> str:
        """Return the value of WWW-Authenticate."""
        told = {
            "error": error,
            "error_description": description,
            "scope": " ".join(scopes) or None,
            "resource_metadata": self.metadata_url,
        }
        given = {name: value for name, value in told.items() if value is not None}
        if self._dpop == "off":
            return write_challenge("Bearer", given)
        proven = write_challenge("DPoP", {**given, "algs": "ES256 ES384 ES512 RS256 PS256 EdDSA"})
        return proven if self._dpop == "require" else f"{write_challenge('Bearer', given)}, {proven}"

    async def _identify(self, token: str) -> Identity | None:
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            return None
        try:
            if isfunction(self._verify) or ismethod(self._verify):
                told = self._verify(token)
                found: Checked = await told if isawaitable(told) else told
            else:
                found = await cast("Verifier", self._verify).identify(token, self._audiences)
        except ProtocolError:
            raise
        except CallFailed as fault:
            log.warning("a token could not be checked: %s", fault)
            raise Unchecked from None
        except Exception:
            log.exception("verify= failed, so the request is refused")
            raise InternalError from None
        return None if found is None else self._with_implied(found)

    def _with_implied(self, identity: Identity) -> Identity:
        return msgspec.structs.replace(identity, scopes=with_implied(identity.scopes, self._implies))

    def _remember(self, digest: bytes, identity: Identity, bound_to: str | None) -> None:
        now = time.time()
        if len(self._known) >= REMEMBERED:
            self._known = {key: known for key, known in self._known.items() if known.until > now}
            while len(self._known) >= REMEMBERED:
                del self._known[next(iter(self._known))]
        until = now + (min(FRESH, self._verify.ttl) if isinstance(self._verify, Introspect) else FRESH)
        until = until if identity.expires_at is None else min(until, identity.expires_at)
        self._known[digest] = _Known(until, identity, bound_to)


class _Known(NamedTuple):
    """A token that was verified."""

    until: float
    identity: Identity
    bound_to: str | None


class Jwt:
    """Checks tokens that are JWTs (RFC 9068) with the keys that their issuers publish."""

    def __init__(self, issuers: Sequence[str]) -> None:
        self._issuers = {issuer: _IssuerKeys(issuer) for issuer in issuers}

    def forget(self) -> None:
        """Look for the issuers' keys with the next token."""
        for keys in self._issuers.values():
            keys.forget()

    async def identify(self, token: str, audiences: Collection[str]) -> Checked:
        """Return who a signed token speaks for; None if it is not good here."""
        from antiphon.oauth.jose import TokenRefused, issuer_of, kid_of, verify  # only who checks tokens needs it

        try:
            kid, issuer = kid_of(token), issuer_of(token)
            keys = self._issuers.get(issuer)
            if keys is None:
                raise TokenRefused(f"its issuer is {issuer[:200]!r}")
            key = await keys.find(kid)
            if key is None and not keys.are_known:
                raise Unchecked
            if key is None:
                raise TokenRefused("its key is not known")
            claims = verify(token, key, issuer=issuer, audiences=audiences, now=time.time())
        except TokenRefused as fault:
            log.info("a token was refused: %s", fault)
            return None
        return identity_of(claims, issuer)


class Introspect:
    """Asks the authorization server about each token (RFC 7662), at most once in ``ttl`` seconds.

    ``any_audience``: accept tokens that name no audience, or another one, where the authorization server has none but
    this server to issue tokens for.
    """

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        *,
        issuer: str = "",
        ttl: float = 30,
        any_audience: bool = False,
    ) -> None:
        self._url = check_endpoint(url, "The introspection endpoint")
        pair = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"
        self._authorization = f"Basic {b64encode(pair.encode()).decode()}"
        self._issuer = issuer
        self._any_audience = any_audience
        self.ttl = ttl

    def __repr__(self) -> str:
        return f"Introspect({self._url!r})"

    async def identify(self, token: str, audiences: Collection[str]) -> Checked:
        """Return who a token speaks for, as its issuer says; None if it is not active."""
        form = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        headers["Authorization"] = self._authorization
        reply = await fetch("POST", self._url, headers, form)
        told = read_document(reply.body, _Introspected) if reply.status == 200 else None
        if told is None:
            log.warning("%s answered an introspection with HTTP status %s", self._url, reply.status)
            raise Unchecked
        claims: dict[str, Any] = msgspec.json.decode(reply.body)
        audience = claims.get("aud")
        named = [audience] if isinstance(audience, str) else audience if isinstance(audience, list) else []
        if not told.active or (not self._any_audience and not set(map(str, named)) & set(audiences)):
            return None
        issuer = claims.get("iss")
        return identity_of(claims, issuer if isinstance(issuer, str) else self._issuer)


class _Introspected(msgspec.Struct):
    active: bool


class _IssuerKeys:
    """The keys of an issuer: found by its metadata, kept, and followed when they change."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer
        self._url: str | None = None
        self._keys: Any = None
        self._until = 0.0
        self._looked = self._missed = -_AGAIN
        self._looking: asyncio.Task[None] | None = None

    @property
    def are_known(self) -> bool:
        """Whether the issuer's keys were ever read."""
        return self._keys is not None

    def forget(self) -> None:
        self._until = 0.0
        self._looked = self._missed = -_AGAIN

    async def find(self, kid: str | None) -> Any:
        """Return the key of this name; None if the issuer has none. The last keys serve while it cannot be asked."""
        now = time.monotonic()
        found = None if self._keys is None else self._keys.find(kid)
        is_missing = found is None and self._keys is not None  # a new key, or a made-up token
        due = self._missed if is_missing else self._looked
        if (found is None or now > self._until) and now - due >= _AGAIN:
            self._looked = now
            self._missed = now if is_missing else self._missed
            self._looking = asyncio.get_running_loop().create_task(self._look())
        if found is None and self._looking is not None:
            await asyncio.shield(self._looking)
            found = None if self._keys is None else self._keys.find(kid)
        return found

    async def _look(self) -> None:
        from antiphon.oauth.jose import Keys

        try:
            if self._url is None:
                self._url = await self._find_url()
            reply = await fetch("GET", self._url, {"Accept": "application/json"})
            document: Any = msgspec.json.decode(reply.body) if reply.status == 200 else None
            keys = Keys(document if isinstance(document, dict) else {})
            if not len(keys):
                raise ValueError(f"{self._url} has no keys (HTTP status {reply.status})")
        except (CallFailed, ValueError, msgspec.MsgspecError) as fault:
            log.warning("the keys of %s could not be read: %s", self._issuer, fault)
            if self._keys is None:
                self._looked = time.monotonic() - _AGAIN + _SOON  # nothing to serve with: ask again soon
            return
        self._keys = keys
        self._until = time.monotonic() + min(max(_max_age(reply.headers), _SHORTEST), _LONGEST)

    async def _find_url(self) -> str:
        for url in issuer_metadata_urls(self._issuer):
            reply = await fetch("GET", url, {"Accept": "application/json"})
            about = read_document(reply.body, AuthorizationServer) if reply.status == 200 else None
            if about is not None:
                return check_issuer(about, self._issuer).endpoint("jwks_uri")
        raise ValueError("it has no metadata")


def _bound_to(identity: Identity) -> str | None:
    """Return the thumbprint of the key that a token is bound to (RFC 9449, 6.1)."""
    confirmation = identity.claims.get("cnf")
    bound: object = confirmation.get("jkt") if isinstance(confirmation, Mapping) else None
    return bound if isinstance(bound, str) else None


def _max_age(headers: Mapping[str, str]) -> float:
    for part in headers.get("cache-control", "").split(","):
        name, _, seconds = part.strip().partition("=")
        if name.lower() == "max-age" and seconds.isdigit():
            return float(seconds)
    return 0.0
