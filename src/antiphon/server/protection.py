"""The protection of a server, as far as the server knows it: who may call, and what they may do."""

from collections.abc import Sequence
from typing import Protocol

from antiphon.oauth.identity import Identity
from antiphon.stores.store import Store
from antiphon.wire.headers import RawHeaders


class Protection(Protocol):
    """Checks the tokens of requests; ``antiphon.auth.Protected`` is one."""

    resource: str
    """The server's public URL."""
    metadata: bytes
    """The resource's metadata document (RFC 9728)."""

    def serve_at(self, path: str) -> None:
        """Note the path of the endpoint below its mount: challenges name metadata that is surely served."""
        ...

    def recall(self, headers: RawHeaders) -> Identity | None:
        """Return who makes a request with these headers if that is known without looking; None if it is not."""
        ...

    async def identify(self, verb: str, headers: RawHeaders, store: Store) -> Identity:
        """Return who makes a request with these headers; raise Unauthorized if they do not say.

        ``store`` remembers proofs, which count once.
        """
        ...

    def check_scopes(self, identity: Identity, needed: Sequence[str]) -> None:
        """Raise Unauthorized if the token lacks one of these scopes, or one that every request needs."""
        ...

    def admit(self, identity: Identity, needed: Sequence[str]) -> Identity:
        """Return who calls without HTTP, with all that their scopes imply; raise Unauthorized as over HTTP."""
        ...

    def has_ended(self, identity: Identity | None) -> bool:
        """Return whether the token that told this identity has expired."""
        ...
