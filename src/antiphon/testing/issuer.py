"""An authorization server for tests: it signs in whoever asks, and does what a real one does with the result.

In memory, it checks its own tokens (``verify=issuer``) and makes them (``issuer.token("ada", scopes=[...])``). Over
HTTP, it is an ASGI application with metadata, keys, registration, PKCE, refresh tokens that rotate, introspection and
revocation (``async with issuer.serving() as url``).
"""

import hashlib
import secrets
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import msgspec
from joserfc import jwt
from joserfc.jwk import ECKey

from antiphon.http.exchange import Receive, Scope, Send
from antiphon.oauth.identity import Identity, identity_of
from antiphon.oauth.jose import Keys, TokenRefused, kid_of, verify
from antiphon.testing.servers import serving

METADATA = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


class Issuer:
    """An authorization server for tests.

    ``expires_in`` is the life of its access tokens in seconds, ``subject`` the user who signs in, ``clients`` the
    secrets of clients that are registered beforehand. A refresh token counts once, and again for ``grace`` seconds, for
    clients that lost the answer; after that, it ends the login. ``metadata`` overrides what it says of itself; a value
    of None leaves a field out.
    """

    def __init__(
        self,
        url: str = "https://issuer.test",
        *,
        subject: str = "ada",
        expires_in: float = 3600,
        grace: float = 0,
        clients: dict[str, str] | None = None,
        metadata: dict[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.url = url
        self.subject = subject
        self.expires_in = expires_in
        self.asked: list[tuple[str, dict[str, str]]] = []
        """What it was asked: the path, and the form or the query."""
        self._grace = grace
        self._clients = dict(clients or {})
        self._metadata = metadata or {}
        self._clock = clock
        self._keys: list[ECKey] = []
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: dict[str, dict[str, str]] = {}
        self._spent: dict[str, tuple[float, dict[str, str]]] = {}
        self._revoked: set[str] = set()
        self.rotate_keys()

    def rotate_keys(self) -> None:
        """Sign with a new key from now on; the last one stays published."""
        key = ECKey.generate_key("P-256", {"kid": secrets.token_hex(4), "use": "sig"}, private=True)
        self._keys = [key, *self._keys[:1]]

    def token(
        self,
        subject: str | None = None,
        *,
        audience: str | list[str],
        scopes: Iterable[str] = (),
        expires_in: float | None = None,
        client_id: str = "test",
        **claims: Any,
    ) -> str:
        """Return an access token: a JWT as RFC 9068 has it. ``claims`` override; None leaves one out."""
        now = self._clock()
        key = self._keys[0]
        body = {
            "iss": self.url,
            "sub": subject or self.subject,
            "aud": audience,
            "client_id": client_id,
            "scope": " ".join(scopes),
            "iat": int(now),
            "exp": int(now + (self.expires_in if expires_in is None else expires_in)),
            "jti": secrets.token_hex(8),
            **claims,
        }
        body = {name: value for name, value in body.items() if value is not None}
        return jwt.encode({"alg": "ES256", "typ": "at+jwt", "kid": key.kid}, body, key)

    def identity(self, subject: str | None = None, *, scopes: Iterable[str] = (), **claims: Any) -> Identity:
        """Return who a token of this issuer would speak for: ``Client(app, identity=issuer.identity("ada"))``."""
        told = {"sub": subject or self.subject, "client_id": "test", "scope": " ".join(scopes), **claims}
        made = identity_of(told, self.url)
        assert made is not None  # a token always has a subject
        return made

    async def identify(self, token: str, audiences: Collection[str]) -> Identity | None:
        """Check a token, as ``Protected(..., verify=issuer)`` wants it."""
        try:
            key = Keys(self.public_keys()).find(kid_of(token))
            claims = verify(token, key, issuer=self.url, audiences=audiences, now=self._clock()) if key else {}
        except TokenRefused:
            return None
        return None if claims.get("jti") in self._revoked else identity_of(claims, self.url)

    async def visit(self, url: str, redirect: str) -> str:  # noqa: ARG002 -- the URL names it too
        """Sign in at once, as ``OAuth(visit=issuer.visit)`` wants it; return where the browser would come back to."""
        return self._authorize(dict(parse_qsl(urlsplit(url).query)))

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        """Serve on a free port of this machine; ``url`` is that address from then on."""
        async with serving(lambda _: self) as self.url:
            yield self.url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while (event := await receive())["type"] == "http.request":
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        path, headers = scope["path"], {name.decode(): value.decode() for name, value in scope["headers"]}
        query = dict(parse_qsl(scope.get("query_string", b"").decode()))
        form = dict(parse_qsl(body.decode())) if "json" not in headers.get("content-type", "") else query
        self.asked.append((path, form or query))
        status, reply, more = self._answer(path, query, form, headers, body)
        head = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), *more]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": msgspec.json.encode(reply)})

    # --- endpoints ------------------------------------------------------------------------------------------------

    def _answer(
        self, path: str, query: dict[str, str], form: dict[str, str], headers: dict[str, str], body: bytes
    ) -> tuple[int, object, list[tuple[bytes, bytes]]]:
        match path:
            case "/jwks":
                return 200, self.public_keys(), []
            case "/register":
                return 201, self._register(msgspec.json.decode(body)), []
            case "/authorize":
                return 302, {}, [(b"location", self._authorize(query).encode())]
            case "/token":
                return (*self._token(form, headers), [])
            case "/introspect":
                return 200, self._introspect(form.get("token", "")), []
            case "/revoke":
                self._revoke(form.get("token", ""))
                return 200, {}, []
            case _ if path in METADATA:
                return 200, self._about(), []
            case _:
                return 404, {}, []

    def _about(self) -> dict[str, Any]:
        about: dict[str, Any] = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "revocation_endpoint": f"{self.url}/revoke",
            "introspection_endpoint": f"{self.url}/introspect",
            "jwks_uri": f"{self.url}/jwks",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
            "authorization_response_iss_parameter_supported": True,
            **self._metadata,
        }
        return {name: value for name, value in about.items() if value is not None}

    def public_keys(self) -> dict[str, Any]:
        """Return the published keys, as a JWK set."""
        return {"keys": [key.as_dict(private=False) for key in self._keys]}

    def _register(self, wanted: dict[str, Any]) -> dict[str, Any]:
        made = {**wanted, "client_id": secrets.token_hex(8)}
        self._clients[made["client_id"]] = ""
        if wanted.get("token_endpoint_auth_method", "none") != "none":
            made["client_secret"] = self._clients[made["client_id"]] = secrets.token_hex(16)
        return made

    def _authorize(self, asked: dict[str, str]) -> str:
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        back = {"code": code, "state": asked.get("state", ""), "iss": self.url}
        return f"{asked['redirect_uri']}?{urlencode(back)}"

    def _token(self, form: dict[str, str], headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        client = self._client(form, headers)
        if client is None:
            return 401, {"error": "invalid_client"}
        match form.get("grant_type"):
            case "authorization_code":
                granted = self._redeemed(form, client)
            case "refresh_token":
                granted = self._refreshed(form.get("refresh_token", ""))
            case "client_credentials":
                granted = {"scope": form.get("scope", "")}
            case _:
                return 400, {"error": "unsupported_grant_type"}
        if not granted:
            why = "the code or the refresh token is unknown, another client's, or was used before"
            return 400, {"error": "invalid_grant", "error_description": why}
        subject = self.subject if "family" in granted else client
        resource, scopes = form.get("resource", self.url), granted["scope"].split()
        reply: dict[str, Any] = {"token_type": "Bearer", "expires_in": self.expires_in}
        reply["access_token"] = self.token(subject, audience=resource, scopes=scopes, client_id=client)
        if scopes:
            reply["scope"] = granted["scope"]
        if "family" in granted:
            reply["refresh_token"] = secrets.token_urlsafe(16)
            self._refresh[reply["refresh_token"]] = granted
        return 200, reply

    def _redeemed(self, form: dict[str, str], client: str) -> dict[str, str]:
        """Return what a code grants; nothing if it does not belong to this client and this verifier."""
        asked = self._codes.pop(form.get("code", ""), {})
        digest = urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        wanted = {"client_id": client, "code_challenge": digest.rstrip(b"=").decode()}
        wanted["redirect_uri"] = form.get("redirect_uri", "")
        if any(asked.get(name) != value for name, value in wanted.items()):
            return {}
        return {"scope": asked.get("scope", ""), "family": secrets.token_hex(4)}

    def _refreshed(self, token: str) -> dict[str, str]:
        """Return what a refresh token grants; nothing if it is unknown, or was used too long ago."""
        used, granted = self._spent.get(token, (0.0, self._refresh.pop(token, {})))
        if token in self._spent and self._clock() > used + self._grace:
            # A token that was used before is in two hands: none of its family counts any more.
            family = granted["family"]
            self._refresh = {key: held for key, held in self._refresh.items() if held["family"] != family}
            return {}
        if granted:
            self._spent.setdefault(token, (self._clock(), granted))
        return granted

    def _client(self, form: dict[str, str], headers: dict[str, str]) -> str | None:
        """Return who asks for a token; None if the secret is not right."""
        name, secret = form.get("client_id", ""), form.get("client_secret", "")
        if headers.get("authorization", "").startswith("Basic "):
            name, _, secret = b64decode(headers["authorization"][6:]).decode().partition(":")
            name, secret = unquote(name), unquote(secret)
        known = self._clients.get(name, "" if name.startswith("https://") else None)
        return name if known is not None and secrets.compare_digest(known, secret) else None

    def _introspect(self, token: str) -> dict[str, Any]:
        try:
            key = Keys(self.public_keys()).find(kid_of(token))
            claims: dict[str, Any] = jwt.decode(token, key, algorithms=["ES256"]).claims if key else {}
        except (TokenRefused, ValueError):
            claims = {}
        active = bool(claims) and claims["exp"] > self._clock() and claims.get("jti") not in self._revoked
        return {"active": True, **claims} if active else {"active": False}

    def _revoke(self, token: str) -> None:
        self._refresh.pop(token, None)
        jti = self._introspect(token).get("jti")
        if isinstance(jti, str):
            self._revoked.add(jti)
