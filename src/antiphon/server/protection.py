"""The protection of a server, as far as the server knows it: who may call, and what they may do."""

from collections.abc import Iterable
from typing import Protocol

from antiphon.oauth.identity import Identity


class Protection(Protocol):
    """Checks the tokens of requests; ``antiphon.auth.Protected`` is one."""

    metadata: bytes
    """The resource's metadata document (RFC 9728)."""

    async def identify(self, authorization: bytes | None) -> Identity:
        """Return who makes a request with this Authorization header; raise Unauthorized if it does not say."""
        ...

    def check_scopes(self, identity: Identity, needed: Iterable[str]) -> None:
        """Raise Unauthorized if the token lacks one of these scopes, or one that every request needs."""
        ...

    def has_ended(self, identity: Identity | None) -> bool:
        """Return whether the token that told this identity has expired."""
        ...
