"""The ways a client authenticates: ``Client(url, auth=OAuth())`` and its siblings."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from antiphon.client.keeps import Keep
from antiphon.client.signing_in import Way, authorization_line, check_secure
from antiphon.client.visits import REDIRECT, ByBrowser, ByFunction, Visiting, Visitor
from antiphon.oauth.account import Registration
from antiphon.oauth.steps import Assertion, Goal, IdentityExchange, Person, Program, Sign
from antiphon.oauth.urls import UrlRefused, is_loopback, origin_of

Source: TypeAlias = str | Callable[[], str | Awaitable[str]]
"""A secret, or a function that returns it when it is needed."""

# --- a token of one's own -----------------------------------------------------------------------------------------


class Bearer:
    """Sends a token that you have: a text, or a function that returns one, which may be a coroutine function.

    A function is called again after a 401.
    """

    def __init__(self, token: Source) -> None:
        self._source = token

    def __repr__(self) -> str:
        return "Bearer(...)"

    def for_server(self, url: str, *, era: str = "auto", patience: float | None = None) -> "Bearer":  # noqa: ARG002 -- the same for all
        """Return what authorizes the requests to one server."""
        check_secure(url)
        return self

    def attempt(self, *, signs_in: bool = True) -> "_BearerAttempt":  # noqa: ARG002 -- nothing to sign in for
        """Return the headers of a request, and whether a refusal may be tried again."""
        return _BearerAttempt(self._source)


class _BearerAttempt:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._tried = isinstance(source, str)

    async def lines(self, verb: str) -> str:  # noqa: ARG002 -- a bearer token is the same for all
        return authorization_line("Bearer", await read_source(self._source))

    def renewal(
        self,
        status: int,
        headers: Mapping[str, str],  # noqa: ARG002 -- a token of one's own is not made to a challenge
        address: str | None,  # noqa: ARG002 -- nor to an address
    ) -> Awaitable[None] | None:
        if status != 401 or self._tried:
            return None
        self._tried = True
        return asyncio.sleep(0)

    def accepted(self) -> None:
        """Nothing to note: the token is its owner's."""


# --- ways to sign in ----------------------------------------------------------------------------------------------


class OAuth(Way):
    """A person signs in, in a browser.

    * ``keep``: where tokens are kept; default: in this object. ``File()`` stays signed in.
    * ``client_id``: a client registered beforehand, with its ``client_secret`` and ``issuer``; or the https URL of a
      client ID metadata document. Default: register by itself.
    * ``visit``: how the person gets to the page: a browser by default, a function of yours, or None, which raises
      LoginNeeded.
    * ``redirect``: the URL that the person comes back to. Default: a free port of this machine.
    * ``scopes``: asked for beside those that the server names.
    * ``pkce_unadvertised``: accept an authorization server that does not say that it supports PKCE.
    * ``private_networks``: let a public server send this client to a private address.
    """

    def __init__(
        self,
        *,
        client_id: str | None = None,
        client_secret: Source | None = None,
        issuer: str | None = None,
        scopes: Iterable[str] | None = None,
        keep: Keep | None = None,
        user: str = "",
        name: str = "antiphon",
        visit: Visitor | Literal["browser"] | None = "browser",
        redirect: str | None = None,
        dpop: bool = False,
        pkce_unadvertised: bool = False,
        private_networks: bool = False,
    ) -> None:
        super().__init__(
            issuer=issuer, scopes=scopes, keep=keep, dpop=dpop, private_networks=private_networks, account=user
        )
        if client_secret is not None and (client_id is None or issuer is None):
            raise TypeError("OAuth(client_secret=...) needs client_id= and issuer=, the only server that it is sent to")
        document = client_id is not None and client_id.startswith("https://") and client_secret is None
        self._client_id = None if document else client_id
        self._secret = client_secret
        self._visit = visit
        self.redirect = redirect or REDIRECT
        self._person = Person(
            name=name,
            document=client_id if document else None,
            application="native" if _is_native(self.redirect) else "web",
            offline=self.keep.lasting,
            pkce_unadvertised=pkce_unadvertised,
        )

    async def goal(self, server: str, era: str) -> Goal:
        """Return what a sign-in at this server is to reach."""
        client = None
        if self._client_id is not None:
            secret = None if self._secret is None else await read_source(self._secret)
            client = Registration(client_id=self._client_id, secret=secret)
        return Goal(server, self._person, self.issuer, client, self.scopes, self.dpop, era == "2025-03-26")

    def visiting(self) -> Visiting | None:
        """Return how a person gets to a page and back."""
        if self._visit is None:
            return None
        if isinstance(self._visit, str):
            return ByBrowser(self.redirect)
        return ByFunction(self._visit, self.redirect)


class ClientCredentials(Way):
    """The program signs in as itself, with a secret or with a private key (PEM or JWK).

    ``issuer`` is the only authorization server that gets them; None trusts the one that the server names.
    """

    extension = "io.modelcontextprotocol/oauth-client-credentials"

    def __init__(
        self,
        client_id: str,
        client_secret: Source | None = None,
        *,
        issuer: str | None,
        key: bytes | str | Path | None = None,
        scopes: Iterable[str] | None = None,
        keep: Keep | None = None,
        dpop: bool = False,
        private_networks: bool = False,
    ) -> None:
        super().__init__(issuer=issuer, scopes=scopes, keep=keep, dpop=dpop, private_networks=private_networks)
        if (client_secret is None) == (key is None):
            raise TypeError("ClientCredentials takes a client_secret or a key")
        self._client_id = client_id
        self._secret = client_secret
        self._key = key
        self.account = f"client {client_id} {issuer or ''}".strip()

    async def goal(self, server: str, era: str) -> Goal:  # noqa: ARG002 -- the same in every era
        """Return what a sign-in at this server is to reach."""
        if self._secret is None:
            client = Registration(client_id=self._client_id, method="private_key_jwt")
        else:
            client = Registration(client_id=self._client_id, secret=await read_source(self._secret))
        return Goal(server, Program(), self.issuer, client, self.scopes, self.dpop)

    async def sign(self, step: Sign) -> str:
        """Return a signed assertion that this client is who it says."""
        from antiphon.oauth.jose import assertion  # few clients sign

        key = await asyncio.to_thread(self._key.read_bytes) if isinstance(self._key, Path) else self._key
        assert key is not None
        pem = key.encode() if isinstance(key, str) else key
        return assertion(pem, step.client_id, step.audience, id_=os.urandom(16).hex(), now=time.time())


class Workload(Way):
    """A platform vouches for the program, with a token of its own (RFC 7523): Kubernetes, a CI service, SPIFFE.

    ``token`` is read again for every sign-in. ``issuer`` is the only authorization server that gets it.
    """

    def __init__(
        self,
        token: Source,
        *,
        issuer: str | None,
        client_id: str | None = None,
        scopes: Iterable[str] | None = None,
        keep: Keep | None = None,
        dpop: bool = False,
        private_networks: bool = False,
    ) -> None:
        super().__init__(issuer=issuer, scopes=scopes, keep=keep, dpop=dpop, private_networks=private_networks)
        self._token = token
        self._client_id = client_id
        self.account = f"workload {client_id or ''} {issuer or ''}".strip()

    async def goal(self, server: str, era: str) -> Goal:  # noqa: ARG002 -- the same in every era
        """Return what a sign-in at this server is to reach."""
        client = None if self._client_id is None else Registration(client_id=self._client_id)
        return Goal(server, Assertion(await read_source(self._token)), self.issuer, client, self.scopes, self.dpop)


class Enterprise(Way):
    """The identity provider of an enterprise vouches for the user (enterprise-managed authorization).

    ``idp`` is its token endpoint, ``id_token`` the user's identity there, ``idp_client_id`` this client's name there.
    ``client_id``, ``client_secret`` and ``issuer`` are for the authorization server of the MCP server.
    """

    extension = "io.modelcontextprotocol/enterprise-managed-authorization"

    def __init__(
        self,
        *,
        idp: str,
        id_token: Source,
        idp_client_id: str,
        client_id: str,
        client_secret: Source,
        issuer: str | None,
        idp_client_secret: Source | None = None,
        scopes: Iterable[str] | None = None,
        keep: Keep | None = None,
        user: str = "",
        dpop: bool = False,
        private_networks: bool = False,
    ) -> None:
        super().__init__(issuer=issuer, scopes=scopes, keep=keep, dpop=dpop, private_networks=private_networks)
        self._idp = (idp, id_token, idp_client_id, idp_client_secret)
        self.account = f"enterprise {client_id} {issuer or ''} {user}".strip()
        self._client = (client_id, client_secret)

    async def goal(self, server: str, era: str) -> Goal:  # noqa: ARG002 -- the same in every era
        """Return what a sign-in at this server is to reach."""
        endpoint, id_token, client_id, secret = self._idp
        grant = IdentityExchange(
            endpoint, await read_source(id_token), client_id, None if secret is None else await read_source(secret)
        )
        client = Registration(client_id=self._client[0], secret=await read_source(self._client[1]))
        return Goal(server, grant, self.issuer, client, self.scopes, self.dpop)


def _is_native(redirect: str) -> bool:
    try:
        scheme, host, _ = origin_of(redirect)
    except UrlRefused:
        return True  # a scheme of the application's own
    return scheme == "http" and is_loopback(host)


async def read_source(source: Source) -> str:
    """Return a secret: the text itself, or what the function gives."""
    if isinstance(source, str):
        return source
    given = source()
    return given if isinstance(given, str) else await given
