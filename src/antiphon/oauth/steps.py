"""What a sign-in is for, and the steps that it asks of its driver."""

from collections.abc import Generator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from antiphon.errors import SignInFailed
from antiphon.oauth.account import Account, Login, Registration
from antiphon.oauth.metadata import read_document

JSON = {"Accept": "application/json"}
FORM = {**JSON, "Content-Type": "application/x-www-form-urlencoded"}

# --- steps --------------------------------------------------------------------------------------------------------


class Fetch(NamedTuple):
    """Send a request, to no other address than this one; the reply is Fetched."""

    verb: Literal["GET", "POST"]
    url: str
    headers: Mapping[str, str] = JSON
    body: bytes = b""
    key: dict[str, Any] | None = None
    """The private key that the request proves to hold (DPoP), as a JWK."""

    def __repr__(self) -> str:
        """Show no secret."""
        return f"Fetch({self.verb} {self.url})"


class Fetched(NamedTuple):
    status: int
    body: bytes
    at: float
    """When it came, in seconds since the epoch."""


class Listen(NamedTuple):
    """Get ready for the person's return; the reply is the redirect URI."""

    preferred: str | None
    """The one of an earlier registration."""


class Visit(NamedTuple):
    """Send a person to the page of this login; the reply is the URL that they came back to."""

    login: Login


class Save(NamedTuple):
    """Keep this registration, or forget the one of this issuer; there is no reply."""

    issuer: str
    registration: Registration | None


class Note(NamedTuple):
    """Keep the account, before its refresh token is sent; there is no reply."""

    account: Account


class NewKey(NamedTuple):
    """Make a private key to bind tokens to; the reply is a JWK."""


class Sign(NamedTuple):
    """Sign a client assertion for this audience with the client's own key; the reply is the JWT."""

    client_id: str
    audience: str


Step: TypeAlias = Fetch | Listen | Visit | Save | Note | NewKey | Sign
Flow: TypeAlias = Generator[Step, Any, Account]

# --- goals --------------------------------------------------------------------------------------------------------


class Person(NamedTuple):
    """A person signs in, in a browser: the authorization code grant with PKCE."""

    name: str = "antiphon"
    document: str | None = None
    """The URL of a client ID metadata document."""
    application: Literal["native", "web"] = "native"
    offline: bool = False
    """Whether a refresh token would outlive the process, so that it is worth asking for."""
    pkce_unadvertised: bool = False


class Program(NamedTuple):
    """The client signs in as itself: the client credentials grant."""


class Assertion(NamedTuple):
    """Another party's token vouches for the client (RFC 7523), such as a workload identity."""

    token: str

    def __repr__(self) -> str:
        """Show no secret."""
        return "Assertion(...)"


class IdentityExchange(NamedTuple):
    """An enterprise's identity provider vouches for the user (identity assertion authorization grant)."""

    token_endpoint: str
    id_token: str
    client_id: str
    secret: str | None

    def __repr__(self) -> str:
        """Show no secret."""
        return f"IdentityExchange({self.token_endpoint})"


class Goal(NamedTuple):
    """A sign-in as its user wants it."""

    server: str
    grant: Person | Program | Assertion | IdentityExchange
    issuer: str | None = None
    """The only authorization server to use; None: the one that the server names."""
    client: Registration | None = None
    """The client as it was registered beforehand."""
    scopes: tuple[str, ...] | None = None
    dpop: bool = False
    fallback_endpoints: bool = False
    """Whether a server without any metadata has its endpoints at fixed paths, as in 2025-03-26."""


# --- refusals -----------------------------------------------------------------------------------------------------


class _ErrorReply(msgspec.Struct):
    error: str
    error_description: str | None = None


def failed(what: str, reply: Fetched) -> SignInFailed:
    told = read_document(reply.body, _ErrorReply)
    if told is None:
        return SignInFailed(f"{what}: HTTP status {reply.status}")
    why = told.error if told.error_description is None else f"{told.error}: {told.error_description}"
    return SignInFailed(f"{what}: {plain(why)}", error=told.error)


def plain(text: str) -> str:
    """Return a text of another party, fit for an error message."""
    return "".join(sign if sign.isprintable() else " " for sign in text[:300])
