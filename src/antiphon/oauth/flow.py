"""The flow of a sign-in, as generators: they yield the steps that they need, and a driver takes them.

``sign_in`` finds the authorization server, identifies the client and gets a token; ``finish`` ends a login that a
person has been through; ``refresh`` renews a token. What is sent to which address is decided here:

* a document is used only if it speaks of the server, or of the issuer, that it was asked for;
* a secret, an assertion and a refresh token go only to the issuer that they belong to;
* a code is redeemed only if the answer repeats the state and does not name another issuer.
"""

import hmac
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Generator, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec
from msgspec.structs import replace

from antiphon.errors import SignInFailed
from antiphon.oauth.account import Account, ClientAuth, Login, Registration, Token
from antiphon.oauth.challenge import Challenge, scopes_in, union
from antiphon.oauth.discovery import FoundIssuer, find_issuer
from antiphon.oauth.metadata import S256, AuthorizationServer, MetadataRefused, is_issuer, read_document
from antiphon.oauth.steps import (
    FORM,
    JSON,
    Assertion,
    Fetch,
    Fetched,
    Flow,
    Goal,
    IdentityExchange,
    Listen,
    NewKey,
    Note,
    Person,
    Program,
    Save,
    Sign,
    Step,
    Visit,
    failed,
    plain,
)
from antiphon.oauth.urls import UrlRefused, check_endpoint

ENTROPY = 64
"""Random bytes that a sign-in needs."""
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_CLIENT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_FOREVER = 10.0**9
_UNKNOWN = frozenset({"invalid_client", "unauthorized_client"})
_SPENT = frozenset({"invalid_grant", *_UNKNOWN})


def sign_in(goal: Goal, account: Account, challenge: Challenge | None, entropy: bytes) -> Flow:
    """Get a token, from discovery on. ``entropy`` is so many random bytes as ENTROPY says."""
    try:
        issuer = yield from find_issuer(goal, challenge)
        scopes = _scopes(goal, account, issuer, challenge)
        binds = goal.dpop or issuer.binds or (challenge is not None and challenge.scheme == "dpop")
        account = replace(
            account,
            issuer=issuer.about.issuer,
            resource=issuer.resource,
            token_endpoint=issuer.about.endpoint("token_endpoint"),
            revocation_endpoint=issuer.about.revocation_endpoint,
            key=(account.key or (yield NewKey())) if binds else None,
            token=None,
        )
        registration: Registration | None
        match goal.grant:
            case Person():
                return (yield from _by_person(goal, goal.grant, account, issuer, scopes=scopes, entropy=entropy))
            case Program():
                form = {"grant_type": "client_credentials"}
                registration = _registered_before(goal, issuer.about)
            case Assertion(token):
                form = {"grant_type": _JWT_BEARER, "assertion": token}
                registration = goal.client
            case IdentityExchange():
                form = {"grant_type": _JWT_BEARER, "assertion": (yield from _exchanged(goal.grant, issuer))}
                registration = _registered_before(goal, issuer.about)
        return (yield from _redeem(account, registration, _with_scopes(form, scopes), scopes))
    except (UrlRefused, MetadataRefused) as fault:
        raise SignInFailed(str(fault)) from None


def finish(login: Login, account: Account, callback: str) -> Flow:
    """End a login with the URL that the person came back to."""
    code = read_callback(login, callback)
    account = replace(
        account,
        issuer=login.issuer,
        resource=login.resource,
        token_endpoint=login.token_endpoint,
        revocation_endpoint=login.revocation_endpoint,
        registrations={**account.registrations, login.issuer: login.registration},
        key=login.key,
    )
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": login.redirect}
    form["code_verifier"] = login.verifier
    return (yield from _redeem(account, login.registration, form, login.scopes))


def refresh(goal: Goal, account: Account) -> Generator[Step, Any, Account | None]:
    """Renew a token, without discovery. None if it cannot be tried; SignInFailed if it may work another time.

    A refresh token that is not taken any more is gone from the account that is returned.
    """
    token = account.token
    known = account.registrations.get(account.issuer)
    if token is None or token.refresh is None or known is None:
        return None
    if goal.issuer is not None and not is_issuer(account.issuer, goal.issuer):
        return None  # what was kept is of another issuer, which gets nothing of this one
    if goal.client is not None:
        if goal.client.client_id != known.client_id:
            return None
        known = replace(known, secret=goal.client.secret)
    # Some servers grant less than before unless the scopes are repeated.
    form = _with_scopes({"grant_type": "refresh_token", "refresh_token": token.refresh}, token.scopes)
    # If the process ends in the middle, the next one sends the same token again. An authorization server that knows
    # such accidents takes it once more; where it does not, the note says what has happened.
    was_begun = account.renewal == "begun"
    yield Note(replace(account, renewal="begun"))
    try:
        return (yield from _redeem(account, known, form, token.scopes))
    except SignInFailed as fault:
        if fault.error not in _SPENT:
            raise
        others = {name: one for name, one in account.registrations.items() if name != account.issuer}
        return replace(
            account,
            token=replace(token, refresh=None),
            registrations=others if fault.error in _UNKNOWN and known.redirect is not None else account.registrations,
            renewal="lost" if was_begun else "done",
        )
    except UrlRefused as fault:
        raise SignInFailed(str(fault)) from None


def revoke(account: Account) -> Generator[Step, Any, None]:
    """Tell the authorization server that the tokens are not used any more (RFC 7009); its answer changes nothing."""
    token, url = account.token, account.revocation_endpoint
    if token is None or url is None:
        return
    for kind, value in (("refresh_token", token.refresh), ("access_token", token.access)):
        if value is not None:
            form = {"token": value, "token_type_hint": kind}
            headers = yield from _identify(account.registrations.get(account.issuer), account.issuer, form)
            yield Fetch("POST", check_endpoint(url, "The revocation_endpoint"), headers, urlencode(form).encode())


def _scopes(goal: Goal, account: Account, issuer: FoundIssuer, challenge: Challenge | None) -> tuple[str, ...] | None:
    """Return the scopes to ask for: those of the challenge, else of the metadata, and what was granted before."""
    told = None if challenge is None else challenge.scopes
    same = account.token is not None and account.issuer == issuer.about.issuer
    held = account.token.scopes if account.token is not None and same else None
    return union(goal.scopes, held, told) if goal.scopes or told else union(held, issuer.scopes)


# --- a person signs in --------------------------------------------------------------------------------------------


def _by_person(
    goal: Goal, grant: Person, account: Account, issuer: FoundIssuer, *, scopes: tuple[str, ...] | None, entropy: bytes
) -> Flow:
    about = issuer.about
    page = about.endpoint("authorization_endpoint")
    if S256 not in about.code_challenge_methods_supported and not grant.pkce_unadvertised:
        raise SignInFailed(
            f"The authorization server {about.issuer} does not say that it supports PKCE with S256. If you know that it"
            " does, pass OAuth(pkce_unadvertised=True)."
        )
    registration = yield from _find_registration(goal, grant, account, about)
    redirect: str = registration.redirect or (yield Listen(None))
    verifier, state = _text(entropy[:32]), _text(entropy[32:64])
    parameters = {"response_type": "code", "client_id": registration.client_id, "redirect_uri": redirect}
    parameters |= {"state": state, "resource": issuer.resource}
    parameters |= {"code_challenge": _text(sha256(verifier.encode()).digest()), "code_challenge_method": S256}
    wanted = scopes
    if grant.offline and "offline_access" in about.scopes_supported:
        wanted = union(scopes or (), ("offline_access",))
        parameters["prompt"] = "consent"  # OpenID Connect Core, 11
    login = Login(
        url=f"{page}{'&' if urlsplit(page).query else '?'}{urlencode(_with_scopes(parameters, wanted))}",
        server=goal.server,
        issuer=about.issuer,
        resource=issuer.resource,
        token_endpoint=account.token_endpoint,
        revocation_endpoint=about.revocation_endpoint,
        names_issuer=about.authorization_response_iss_parameter_supported,
        registration=registration,
        redirect=redirect,
        state=state,
        verifier=verifier,
        scopes=scopes,
        key=account.key,
    )
    callback: str = yield Visit(login)
    return (yield from finish(login, account, callback))


def read_callback(login: Login, callback: str) -> str:
    """Return the code that a person came back with; SignInFailed if the answer is not this login's, or a refusal."""
    answer = dict(parse_qsl(urlsplit(callback).query, keep_blank_values=True))
    if not hmac.compare_digest(answer.get("state", "").encode(), login.state.encode()):
        raise SignInFailed("The answer belongs to another login: its state is not the one that was sent")
    # RFC 9207, 2.4: checked before anything else is believed, an error too, and compared without normalisation.
    issuer = answer.get("iss")
    if issuer is None and login.names_issuer:
        raise SignInFailed(f"The answer does not say that it comes from {login.issuer}")
    if issuer is not None and issuer != login.issuer:
        raise SignInFailed(f"The answer comes from another authorization server than {login.issuer}")
    if "error" in answer:
        why = answer.get("error_description") or answer["error"]
        raise SignInFailed(f"{login.issuer} did not sign you in: {plain(why)}", error=answer["error"])
    if not answer.get("code"):
        raise SignInFailed("The answer has no code")
    return answer["code"]


# --- who the client is --------------------------------------------------------------------------------------------


def _find_registration(
    goal: Goal, grant: Person, account: Account, about: AuthorizationServer
) -> Generator[Step, Any, Registration]:
    """Identify the client: as registered beforehand, by its metadata document, or by registering it."""
    if goal.client is not None:
        return _registered_before(goal, about)
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


def _registered_before(goal: Goal, about: AuthorizationServer) -> Registration:
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


def _identify(
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
        form["client_assertion_type"] = _CLIENT_ASSERTION
        form["client_assertion"] = yield Sign(registration.client_id, issuer)
    return FORM


# --- tokens -------------------------------------------------------------------------------------------------------


class _TokenReply(msgspec.Struct):
    access_token: str
    token_type: str
    expires_in: float | str | None = None
    refresh_token: str | None = None
    scope: str | None = None


def _redeem(
    account: Account, registration: Registration | None, form: dict[str, str], scopes: tuple[str, ...] | None
) -> Flow:
    """Ask the token endpoint, and return the account with the token that it gave."""
    form = {**form, "resource": account.resource}
    headers = yield from _identify(registration, account.issuer, form)
    url = check_endpoint(account.token_endpoint, "The token_endpoint")
    reply: Fetched = yield Fetch("POST", url, headers, urlencode(form).encode(), account.key)
    given = read_document(reply.body, _TokenReply) if reply.status == 200 else None
    if given is None:
        fault = failed(f"{account.issuer} gave no token", reply)
        if fault.error in _UNKNOWN and registration is not None and registration.redirect is not None:
            yield Save(account.issuer, None)  # the client was registered here, and is not known any more
        raise fault
    scheme = given.token_type.lower()
    if (scheme == "dpop") != (account.key is not None):
        raise SignInFailed(f"{account.issuer} gave a token of type {given.token_type[:40]!a}, where another was asked")
    if scheme not in {"bearer", "dpop"} or not given.access_token.isascii() or not given.access_token.isprintable():
        raise SignInFailed(f"{account.issuer} gave a token that cannot be used, of type {given.token_type[:40]!a}")
    before = account.token.refresh if account.token is not None and "refresh_token" in form else None
    life = _life(given.expires_in)
    token = Token(
        access=given.access_token,
        scheme="DPoP" if scheme == "dpop" else "Bearer",
        expires=None if life is None else reply.at + life,
        life=life or 0.0,
        refresh=given.refresh_token or before,
        scopes=scopes_in(given.scope) or scopes,
    )
    return replace(account, token=token, renewal="done")


def _exchanged(grant: IdentityExchange, issuer: FoundIssuer) -> Generator[Step, Any, str]:
    """Get the identity provider's assertion for this authorization server and resource (RFC 8693)."""
    form = {
        "grant_type": _EXCHANGE,
        "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
        "audience": issuer.about.issuer,
        "resource": issuer.resource,
        "subject_token": grant.id_token,
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
    }
    method: ClientAuth = "none" if grant.secret is None else "client_secret_post"
    registration = Registration(client_id=grant.client_id, secret=grant.secret, method=method)
    headers = yield from _identify(registration, grant.token_endpoint, form)
    url = check_endpoint(grant.token_endpoint, "The identity provider's token endpoint")
    reply: Fetched = yield Fetch("POST", url, headers, urlencode(form).encode())
    given = read_document(reply.body, _TokenReply) if reply.status == 200 else None
    if given is None:
        raise failed("The identity provider gave no assertion", reply)
    return given.access_token


def _with_scopes(form: dict[str, str], scopes: tuple[str, ...] | None) -> dict[str, str]:
    return {**form, "scope": " ".join(scopes)} if scopes else form


def _life(seconds: float | str | None) -> float | None:
    """Return the seconds that a token lives; some servers write the number as a text."""
    try:
        life = None if seconds is None else float(seconds)
    except ValueError:
        return None
    return life if life is not None and 0 <= life < _FOREVER else None


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
