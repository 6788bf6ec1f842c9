"""What a protected server and an authorization server say about themselves, where to find it, and how to check it."""

from typing import Any, TypeVar

import msgspec

from antiphon.oauth.urls import UrlRefused, base_of, check_endpoint, covers, path_of

T = TypeVar("T", bound=msgspec.Struct)

S256 = "S256"


class MetadataRefused(ValueError):
    """A document that must not be used; the text says why."""


class ProtectedResource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Protected resource metadata (RFC 9728, 2)."""

    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] | None = None
    bearer_methods_supported: tuple[str, ...] | None = None
    resource_name: str | None = None
    resource_documentation: str | None = None
    dpop_signing_alg_values_supported: tuple[str, ...] | None = None
    dpop_bound_access_tokens_required: bool = False


class AuthorizationServer(msgspec.Struct, frozen=True, kw_only=True):
    """Authorization server metadata (RFC 8414, 2), as far as a client or a resource server needs it."""

    issuer: str
    token_endpoint: str | None = None
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    introspection_endpoint: str | None = None
    jwks_uri: str | None = None
    scopes_supported: tuple[str, ...] = ()
    code_challenge_methods_supported: tuple[str, ...] = ()
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    authorization_response_iss_parameter_supported: bool = False
    client_id_metadata_document_supported: bool = False
    dpop_signing_alg_values_supported: tuple[str, ...] = ()

    def endpoint(self, name: str) -> str:
        """Return an endpoint that may be asked; MetadataRefused if there is none, UrlRefused if it must not be."""
        url: str | None = getattr(self, name)
        if url is None:
            raise MetadataRefused(f"The authorization server {self.issuer} has no {name}")
        return check_endpoint(url, f"The {name} of {self.issuer}")


def resource_metadata_urls(server: str) -> list[str]:
    """Return where a server's metadata may be when its challenge does not say (RFC 9728, 3.1): by path, at the root."""
    path = path_of(server)
    found = [f"{base_of(server)}/.well-known/oauth-protected-resource"]
    return [f"{found[0]}{path}", *found] if path else found


def served_metadata_url(resource: str, endpoint: str) -> str:
    """Return where an application with its endpoint at this path surely serves the metadata of a resource.

    That is the place of RFC 9728 if the application has the whole origin, else one below its mount.
    """
    path, endpoint = path_of(resource), endpoint.rstrip("/")
    mount = path.removesuffix(endpoint)
    if not mount:
        return resource_metadata_urls(resource)[0]
    return f"{base_of(resource)}{mount}/.well-known/oauth-protected-resource{path[len(mount) :]}"


def issuer_metadata_urls(issuer: str) -> list[str]:
    """Return where an authorization server's metadata may be, in the specification's order."""
    base, path = base_of(issuer), path_of(issuer)
    found = [f"{base}/.well-known/{name}{path}" for name in ("oauth-authorization-server", "openid-configuration")]
    return [*found, f"{base}{path}/.well-known/openid-configuration"] if path else found


def read_document(body: bytes, kind: type[T]) -> T | None:
    """Return a document, null fields left out; None if the bytes are no JSON object of this kind."""
    try:
        fields: Any = msgspec.json.decode(body)
        if type(fields) is not dict:
            return None
        return msgspec.convert({name: value for name, value in fields.items() if value is not None}, kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def check_resource(document: ProtectedResource, server: str) -> ProtectedResource:
    """Return metadata that speaks of this server; MetadataRefused if it speaks of another one (RFC 9728, 3.3)."""
    if not covers(document.resource, server):
        raise MetadataRefused(f"The server's metadata is for another resource: {document.resource[:200]!a}")
    return document


def check_issuer(document: AuthorizationServer, issuer: str) -> AuthorizationServer:
    """Return metadata of this issuer; MetadataRefused if it names another one (RFC 8414, 3.3)."""
    if not is_issuer(document.issuer, issuer):
        raise MetadataRefused(
            f"The metadata of the authorization server {issuer} names another issuer: {document.issuer[:200]!a}"
        )
    return document


def is_issuer(one: str, other: str) -> bool:
    """Return whether two issuers are the same. A bare origin may end with a slash: both have the same metadata URL."""
    if one == other:
        return True
    try:
        bare = not path_of(one) and not path_of(other)
    except UrlRefused:
        return False
    return bare and one.rstrip("/") == other.rstrip("/")
