"""What is known of a sign-in: the client's registration, its token, and a login that is under way. All plain data."""

from typing import Any, Literal, Self, TypeAlias

import msgspec

from antiphon.oauth.urls import Network

ClientAuth: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]

EARLY = 30.0
"""Seconds before its end that a token is renewed; a tenth of its life if that is less."""


class _Secretive(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Data that shows none of its secrets in ``repr``, logs and tracebacks."""

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__struct_fields__ if name not in _SECRETS}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def to_json(self) -> str:
        """Return everything as JSON. It holds secrets: keep it as you would keep a password."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, data: str | bytes) -> Self:
        """Read what ``to_json`` wrote; ValueError if it is something else."""
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
            raise ValueError(f"This is no {cls.__name__}: {fault}") from None


_SECRETS = frozenset({"secret", "access", "refresh", "verifier", "state", "url", "key"})


class Registration(_Secretive, frozen=True, kw_only=True, omit_defaults=True):
    """The client as one authorization server knows it."""

    client_id: str
    method: ClientAuth = "none"
    """How it authenticates at the token endpoint."""
    secret: str | None = None
    redirect: str | None = None
    """The redirect URI that it was registered with, where the server was told one."""


class Token(_Secretive, frozen=True, kw_only=True, omit_defaults=True):
    """An access token, and what it takes to renew it."""

    access: str
    scheme: Literal["Bearer", "DPoP"] = "Bearer"
    expires: float | None = None
    """Seconds since the epoch; None: until the server refuses it."""
    life: float = 0.0
    """Seconds that it had when it was given."""
    refresh: str | None = None
    scopes: tuple[str, ...] | None = None
    """What was granted; None if neither side named any."""

    def is_stale(self, now: float) -> bool:
        """Return whether it is time to renew the token."""
        return self.expires is not None and now > self.expires - min(EARLY, self.life / 10)


class Account(_Secretive, frozen=True, kw_only=True, omit_defaults=True):
    """All that a keep holds for one server and one user."""

    issuer: str = ""
    resource: str = ""
    token_endpoint: str = ""
    revocation_endpoint: str | None = None
    token: Token | None = None
    registrations: dict[str, Registration] = {}
    """By issuer: the credentials of one authorization server are never sent to another."""
    key: dict[str, Any] | None = None
    """The private key that tokens are bound to, as a JWK (DPoP)."""
    network: Network | None = None
    """Where the server was when the client signed in."""
    renewal: Literal["done", "begun", "lost"] = "done"
    """``begun``: a process asks for a new token, or ended while it did. ``lost``: the old one is not taken any more."""


class Login(_Secretive, frozen=True, kw_only=True, omit_defaults=True):
    """A sign-in that waits for a person: send them to ``url``, and finish with the URL that they come back to.

    ``client.sign_in(login, callback_url)`` finishes it, in this process or another one.
    """

    url: str
    server: str
    """The MCP server that the login is for."""
    issuer: str
    resource: str
    token_endpoint: str
    revocation_endpoint: str | None = None
    names_issuer: bool = False
    """Whether the authorization server said that its answers name it (RFC 9207)."""
    registration: Registration
    redirect: str
    state: str
    verifier: str
    scopes: tuple[str, ...] | None = None
    key: dict[str, Any] | None = None
    network: Network | None = None
