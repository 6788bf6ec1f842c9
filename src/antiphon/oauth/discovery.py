"""Find the authorization server of a protected server."""

from collections.abc import Generator
from typing import Any, NamedTuple

from antiphon.errors import SignInFailed
from antiphon.oauth.challenge import Challenge
from antiphon.oauth.metadata import (
    S256,
    AuthorizationServer,
    ProtectedResource,
    check_issuer,
    check_resource,
    is_issuer,
    issuer_metadata_urls,
    read_document,
    resource_metadata_urls,
)
from antiphon.oauth.steps import Fetch, Fetched, Goal, Step
from antiphon.oauth.urls import base_of, check_endpoint


class FoundIssuer(NamedTuple):
    """The authorization server of a resource, and what the resource says of itself."""

    about: AuthorizationServer
    resource: str
    scopes: tuple[str, ...] | None
    binds: bool
    """Whether tokens for the resource have to be bound to a key."""


def find_issuer(goal: Goal, challenge: Challenge | None) -> Generator[Step, Any, FoundIssuer]:
    """Find the authorization server of a server; SignInFailed, MetadataRefused or UrlRefused if there is none."""
    resource = yield from _find_resource(goal.server, challenge)
    if resource is None:
        # 2025-03-26, Authorization: a server without resource metadata is its own authorization server.
        own = goal.issuer or base_of(goal.server)
        about = yield from _find_metadata(own)
        if about is None and goal.fallback_endpoints:
            about = _fixed_endpoints(own)
        if about is None:
            raise SignInFailed(f"{goal.server} says nothing about how to sign in: it has no resource metadata")
        return FoundIssuer(about, goal.server, None, binds=False)
    named = resource.authorization_servers
    if not named:
        raise SignInFailed(f"The metadata of {goal.server} names no authorization server")
    issuer = next((each for each in named if goal.issuer is None or is_issuer(each, goal.issuer)), None)
    if issuer is None:
        raise SignInFailed(
            f"{goal.server} names the authorization server {named[0][:200]!a}, and credentials were given for"
            f" {goal.issuer}: nothing was sent"
        )
    about = yield from _find_metadata(check_endpoint(issuer, "The authorization server"))
    if about is None:
        raise SignInFailed(f"The authorization server {issuer} has no metadata")
    return FoundIssuer(about, resource.resource, resource.scopes_supported, resource.dpop_bound_access_tokens_required)


def _find_resource(server: str, challenge: Challenge | None) -> Generator[Step, Any, ProtectedResource | None]:
    told = None if challenge is None else challenge.parameters.get("resource_metadata")
    for url in [told] if told else resource_metadata_urls(server):
        document = yield from _fetched(url, "The server's metadata", ProtectedResource)
        if document is not None:
            return check_resource(document, server)
    if told:
        raise SignInFailed(f"There is no metadata at {told[:200]!a}, where the server's challenge points to")
    return None


def _find_metadata(issuer: str) -> Generator[Step, Any, AuthorizationServer | None]:
    for url in issuer_metadata_urls(issuer):
        document = yield from _fetched(url, "The authorization server's metadata", AuthorizationServer)
        if document is not None:
            return check_issuer(document, issuer)
    return None


def _fetched(url: str, what: str, kind: type[Any]) -> Generator[Step, Any, Any]:
    """Return a document; None where there is none. A server that fails is an error, not a missing document."""
    reply: Fetched = yield Fetch("GET", check_endpoint(url, what))
    if reply.status >= 500 or reply.status == 429:
        raise SignInFailed(f"{what} could not be read: {url} answered with HTTP status {reply.status}")
    return read_document(reply.body, kind) if reply.status == 200 else None


def _fixed_endpoints(issuer: str) -> AuthorizationServer:
    base = base_of(issuer)
    return AuthorizationServer(
        issuer=base,
        authorization_endpoint=f"{base}/authorize",
        token_endpoint=f"{base}/token",
        registration_endpoint=f"{base}/register",
        code_challenge_methods_supported=(S256,),
    )
