"""Who the client is to an authorization server: registered beforehand, by a document, or by registering now."""

from base64 import b64encode
from collections.abc import Generator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from antiphon.errors import SignInFailed
from antiphon.oauth.account import Account, ClientAuth, Registration
from antiphon.oauth.metadata import AuthorizationServer, read_document
from antiphon.oauth.steps import FORM, JSON, Fetch, Fetched, Goal, Listen, Person, Save, Sign, Step, failed

_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def find_registration(
    goal: Goal, grant: Person, account: Account, about: AuthorizationServer
) -> Generator[Step, Any, Registration]:
    """Identify the client: as registered beforehand, by its metadata document, or by registering it."""
    if goal.client is not None:
        return registered(goal, about)
    if grant.document is not None and about.client_id_metadata_document_supported:
        return Registration(client_id=grant.document)
    if about.registration_endpoint is None:
        raise SignInFailed(
            f"The authorization server {about.issuer} does not register clients by itself. Register one there, and"
            f" pass OAuth(client_id=..., client_secret=..., issuer={about.issuer!r})."
        )
    known = account.registrations.get(about.issuer)
    redirect: str = yield Listen(None if known is None else known.redirect)
    if known is not None and known.redirect == redirect:
        return known
    made = yield from _register(grant, about, redirect)
    yield Save(about.issuer, made)
    return made


def _register(grant: Person, about: AuthorizationServer, redirect: str) -> Generator[Step, Any, Registration]:
    """Register the client (RFC 7591)."""
    listed = about.token_endpoint_auth_methods_supported
    wanted: ClientAuth = "none"
    if listed is not None and "none" not in listed:
        wanted = "client_secret_post" if "client_secret_basic" not in listed else "client_secret_basic"
    body = {
        "client_name": grant.name,
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": wanted,
        "application_type": grant.application,
    }
    headers = {**JSON, "Content-Type": "application/json"}
    url = about.endpoint("registration_endpoint")
    reply: Fetched = yield Fetch("POST", url, headers, msgspec.json.encode(body))
    made = read_document(reply.body, _Registered) if reply.status in {200, 201} else None
    if made is None:
        raise failed(f"The authorization server {about.issuer} did not register this client", reply)
    secret = made.client_secret or None
    method = made.token_endpoint_auth_method or (wanted if wanted != "none" else "client_secret_basic")
    if secret is None or method == "none":
        return Registration(client_id=made.client_id, redirect=redirect)
    if method not in {"client_secret_basic", "client_secret_post"}:
        raise SignInFailed(f"The authorization server {about.issuer} wants {method!a}, which is not supported")
    return Registration(client_id=made.client_id, secret=secret, method=_secret_method(method), redirect=redirect)


class _Registered(msgspec.Struct):
    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None


def registered(goal: Goal, about: AuthorizationServer) -> Registration:
    """Return the client as it was registered beforehand, authenticating as this server wants."""
    client = goal.client
    assert client is not None
    if client.secret is None:
        return client
    listed = about.token_endpoint_auth_methods_supported
    basic = listed is None or "client_secret_basic" in listed or "client_secret_post" not in listed
    return replace(client, method="client_secret_basic" if basic else "client_secret_post")


def _secret_method(method: str) -> ClientAuth:
    return "client_secret_post" if method == "client_secret_post" else "client_secret_basic"


def identify(
    registration: Registration | None, issuer: str, form: dict[str, str]
) -> Generator[Step, Any, Mapping[str, str]]:
    """Put what identifies the client into the form; return the headers of the request."""
    if registration is None:
        return FORM
    form["client_id"] = registration.client_id  # the official SDK's server wants it beside the header as well
    if registration.method == "client_secret_basic":
        # RFC 6749, 2.3.1: both are encoded before they are joined.
        pair = f"{quote(registration.client_id, safe='')}:{quote(registration.secret or '', safe='')}"
        return {**FORM, "Authorization": f"Basic {b64encode(pair.encode()).decode()}"}
    if registration.method == "client_secret_post":
        form["client_secret"] = registration.secret or ""
    elif registration.method == "private_key_jwt":
        form["client_assertion_type"] = _ASSERTION
        form["client_assertion"] = yield Sign(registration.client_id, issuer)
    return FORM
