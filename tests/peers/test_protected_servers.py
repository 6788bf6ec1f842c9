"""Other people's clients sign in to our protected server, wherever it is served; our client to other people's."""

import asyncio
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from secrets import token_hex
from urllib.parse import parse_qs, parse_qsl, urlsplit

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from antiphon import Client, Context, Server
from antiphon.auth import Enterprise, Identity, Memory, OAuth, Protected
from antiphon.testing import Issuer

from .programs import answers, end, free_port, node_program, run

pytestmark = [pytest.mark.peers, pytest.mark.heavy]
HERE = Path(__file__).parent


@pytest.fixture
async def issuer():
    made = Issuer()
    async with made.serving():
        yield made


def notes(url, issuer, **options):
    app = Server("notes", auth=Protected(url, issuer=issuer.url, scopes=["notes:read"], **options))

    @app.tool
    async def who(ctx: Context) -> str:
        return f"{ctx.auth.subject} {' '.join(sorted(ctx.auth.scopes))}"

    @app.tool(scopes=["notes:write"])
    async def add(ctx: Context) -> str:
        return f"{ctx.auth.subject} added"

    return app


def as_it_is(app):
    return app


def mounted(live, issuer, path, front=as_it_is, **options):
    """Serve a protected server at a path; return its URL. ``front`` puts an application around it."""
    holder = {}

    async def door(scope, receive, send):
        await holder["app"](scope, receive, send)

    url = f"http://127.0.0.1:{live(door)}{path}"
    app = notes(url, issuer, **options)
    holder["app"] = front(app.asgi(path=path) if front is as_it_is else app.asgi())
    return url


def in_starlette(app):
    return Starlette(routes=[Mount("/a/b", app=app)])


def in_fastapi(app):
    from fastapi import FastAPI

    host = FastAPI()
    host.mount("/a/b", app)
    return host


PLACES = pytest.mark.parametrize(
    ("path", "front"),
    [
        pytest.param("/", as_it_is, id="root"),
        pytest.param("/mcp", as_it_is, id="path"),
        pytest.param("/a/b/mcp", in_starlette, id="starlette"),
        pytest.param("/a/b/mcp", in_fastapi, id="fastapi"),
        pytest.param("/a/b/", in_starlette, id="the mount itself"),
    ],
)


# --- other people's clients ---------------------------------------------------------------------------------------


def location(page):
    """Where a person who agrees at once is sent to."""
    return parse_qs(urlsplit(httpx2.get(page, follow_redirects=False).headers["location"]).query)


async def result_of(back):
    from mcp.client.auth import AuthorizationCodeResult

    return AuthorizationCodeResult(code=back["code"][0], state=back["state"][0], iss=back["iss"][0])


def fastmcp_auth():
    from fastmcp.client.auth import OAuth as FastOAuth

    class Headless(FastOAuth):
        visits = 0

        async def redirect_handler(self, authorization_url):
            self.visits += 1
            self.back = await asyncio.to_thread(location, authorization_url)

        async def callback_handler(self):
            return await result_of(self.back)

    return Headless()


async def by_fastmcp(url, tools, mode="auto"):
    from fastmcp import Client as FastClient

    auth = fastmcp_auth()
    with pytest.warns(UserWarning, match="in-memory token storage"):
        client = FastClient(url, auth=auth, mode=mode)
    async with client:
        return [(await client.call_tool(tool, {})).content[0].text for tool in tools], auth.visits


async def by_official_python(url, tools, mode="auto"):
    from mcp import Client as OfficialClient
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client
    from mcp.shared.auth import OAuthClientMetadata

    class Storage:
        tokens = client = None

        async def get_tokens(self):
            return self.tokens

        async def set_tokens(self, tokens):
            self.tokens = tokens

        async def get_client_info(self):
            return self.client

        async def set_client_info(self, client):
            self.client = client

    visits = []

    async def visit(page):
        visits.append(await asyncio.to_thread(location, page))

    metadata = OAuthClientMetadata(
        client_name="official",
        redirect_uris=["http://127.0.0.1:3030/callback"],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
    )
    provider = OAuthClientProvider(url, metadata, Storage(), visit, lambda: result_of(visits[-1]))
    async with (
        create_mcp_http_client(auth=provider) as http,
        OfficialClient(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        return [(await client.call_tool(tool, {})).content[0].text for tool in tools], len(visits)


async def by_official_typescript(url, tools):
    command = [*node_program(HERE / "signing_in_client.mjs"), url, *tools]
    done = json.loads(await asyncio.to_thread(run, command, timeout=60))
    return done["told"], done["visits"]


async def by_ours(url, tools, mode="auto"):
    visits = []

    async def visit(page, _):
        visits.append(page)
        return (await asyncio.to_thread(httpx2.get, page, follow_redirects=False)).headers["location"]

    async with Client(url, auth=OAuth(visit=visit), era="auto" if mode == "auto" else "legacy") as client:
        return [(await client.call_tool(tool)).text for tool in tools], len(visits)


CLIENTS = [by_ours, by_fastmcp, by_official_python, by_official_typescript]


@PLACES
@pytest.mark.parametrize("sign_in", CLIENTS)
async def test_the_metadata_is_found_wherever_the_server_is(live, issuer, path, front, sign_in):
    url = mounted(live, issuer, path, front)
    assert await sign_in(url, ["who"]) == (["ada notes:read"], 1)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("sign_in", [by_ours, by_fastmcp, by_official_python])
async def test_a_client_steps_up_when_a_tool_needs_it(live, issuer, sign_in, mode):
    url = mounted(live, issuer, "/mcp", as_it_is)
    told, visits = await sign_in(url, ["who", "add", "who"], mode)
    assert (told, visits) == (["ada notes:read", "ada added", "ada notes:read notes:write"], 2)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_fastmcps_client_refreshes_its_token(live, issuer, mode):
    from fastmcp import Client as FastClient

    ended = set()

    async def check(token):
        seen.add(token)
        return None if token in ended else await issuer.identify(token, [url])

    seen, auth = set(), fastmcp_auth()
    issuer.expires_in = 1
    url = mounted(live, issuer, "/mcp", verify=check)
    with pytest.warns(UserWarning, match="in-memory token storage"):
        client = FastClient(url, auth=auth, mode=mode)
    async with client:
        assert (await client.call_tool("who", {})).content[0].text == "ada notes:read"
        ended.update(seen)
        auth.context.token_expiry_time = time.time() - 1
        assert (await client.call_tool("who", {})).content[0].text == "ada notes:read"
    used = [form for path, form in issuer.asked if path == "/token" and form["grant_type"] == "refresh_token"]
    assert (len(used), auth.visits) == (1, 1)


async def test_behind_a_tls_proxy_the_configured_url_is_named_whatever_the_host(live, issuer):
    # A proxy that ends TLS speaks plain HTTP to the server, with any Host and any X-Forwarded-* header.
    public = "https://mcp.example.com/team/mcp"
    app = notes(public, issuer)
    url = f"http://127.0.0.1:{live(app.asgi(allowed_hosts=['*']))}"
    forged = {"host": "evil.example", "x-forwarded-host": "evil.example", "x-forwarded-proto": "http"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with httpx2.AsyncClient(trust_env=False) as http:
        refused = await http.post(f"{url}/mcp", json=body, headers=forged)
        challenge = refused.headers["www-authenticate"]
        named = "https://mcp.example.com/team/.well-known/oauth-protected-resource/mcp"
        assert (refused.status_code, f'resource_metadata="{named}"' in challenge) == (401, True)
        assert "evil" not in challenge
        for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"):
            assert (await http.get(f"{url}{path}", headers=forged)).json()["resource"] == public
    # Without being told, the server takes requests for its own name, and for no other.
    strict = f"http://127.0.0.1:{live(app.asgi())}/mcp"
    async with httpx2.AsyncClient(trust_env=False) as http:
        answers = [
            await http.post(strict, json=body, headers={"host": host}) for host in ("mcp.example.com", "evil.example")
        ]
    assert [answer.status_code for answer in answers] == [401, 403]


# --- other people's authorization servers -------------------------------------------------------------------------


class OfficialProvider:
    """The storage that the official SDK's authorization server wants."""

    def __init__(self, clients=()):
        self.clients = {client.client_id: client for client in clients}
        self.codes, self.refresh, self.access, self.asked = {}, {}, {}, []

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client):
        self.clients[client.client_id] = client

    async def authorize(self, client, params):
        from mcp.server.auth.provider import AuthorizationCode, construct_redirect_uri

        known = params.model_dump(exclude={"state"})
        code = AuthorizationCode(code=token_hex(20), client_id=client.client_id, expires_at=time.time() + 60, **known)
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(self, client, code):
        return self.codes.get(code)

    async def exchange_authorization_code(self, client, code):
        del self.codes[code.code]
        return self.issue(client.client_id, code.scopes, code.resource, "ada")

    async def load_refresh_token(self, client, token):
        return self.refresh.get(token)

    async def exchange_refresh_token(self, client, token, scopes):
        self.asked.append("refresh")
        del self.refresh[token.token]
        return self.issue(client.client_id, scopes, token.resource, "ada")

    async def load_access_token(self, token):
        return self.access.get(token)

    async def revoke_token(self, token):
        self.refresh.pop(token.token, None)
        self.access.pop(token.token, None)

    async def exchange_identity_assertion(self, client, params):
        return self.issue(client.client_id, params.scopes or ["notes:read"], params.resource, params.assertion)

    def issue(self, client_id, scopes, resource, subject):
        from mcp.server.auth.provider import AccessToken, RefreshToken
        from mcp.shared.auth import OAuthToken

        about = {"client_id": client_id, "scopes": scopes, "resource": resource, "subject": subject}
        access, refresh = token_hex(20), token_hex(20)
        self.access[access] = AccessToken(token=access, **about)
        self.refresh[refresh] = RefreshToken(token=refresh, **about)
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=3600, scope=" ".join(scopes))

    async def check(self, token):
        known = self.access.get(token)
        return None if known is None else Identity(subject=known.subject, scopes=frozenset(known.scopes))


def official_issuer(live, provider, **options):
    from mcp.server.auth.routes import create_auth_routes
    from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
    from pydantic import AnyHttpUrl

    holder = {}

    async def door(scope, receive, send):
        await holder["app"](scope, receive, send)

    url = f"http://127.0.0.1:{live(door)}"
    scopes = ["notes:read", "notes:write"]
    registration = ClientRegistrationOptions(enabled=True, valid_scopes=scopes, default_scopes=scopes)
    routes = create_auth_routes(
        provider, AnyHttpUrl(url), None, registration, RevocationOptions(enabled=True), **options
    )
    holder["app"] = Starlette(routes=routes)
    return Issuer(url)


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_our_client_signs_in_at_the_official_authorization_server(live, era):
    provider = OfficialProvider()
    issuer = official_issuer(live, provider)
    url = mounted(live, issuer, "/mcp", verify=provider.check)
    told, visits = await by_ours(url, ["who", "add", "who"], "auto" if era == "2026-07-28" else "legacy")
    assert (told, visits) == (["ada notes:read", "ada added", "ada notes:read notes:write"], 2)


async def test_a_token_of_the_official_authorization_server_is_refreshed(live):
    provider = OfficialProvider()
    url = mounted(live, official_issuer(live, provider), "/mcp", verify=provider.check)
    visits = []

    async def visit(page, _):
        visits.append(page)
        return (await asyncio.to_thread(httpx2.get, page, follow_redirects=False)).headers["location"]

    keep = Memory()
    async with Client(url, auth=OAuth(visit=visit, keep=keep)) as client:
        assert (await client.call_tool("who")).text == "ada notes:read"
    # Another client, whose token the server has forgotten: it refreshes, and asks no person.
    provider.access.clear()
    url_again = mounted(live, Issuer(f"http://{urlsplit(visits[0]).netloc}"), "/mcp", verify=provider.check)
    assert url_again != url
    kept = await keep.get(url)
    await keep.put(url_again, kept)
    async with Client(url_again, auth=OAuth(visit=None, keep=keep)) as client:
        assert (await client.call_tool("who")).text == "ada notes:read"
        await client.sign_out()
    assert (provider.asked, len(visits)) == (["refresh"], 1)
    # Its revocation endpoint wants a field that RFC 7009 does not know, and refuses; the tokens are forgotten anyway.
    assert await keep.get(url_again) is None


async def test_an_enterprise_vouches_for_its_user_at_the_official_authorization_server(live):
    from mcp.shared.auth import OAuthClientInformationFull

    client = OAuthClientInformationFull(
        client_id="at-the-server",
        client_secret="hush",
        redirect_uris=["http://127.0.0.1/none"],
        grant_types=["urn:ietf:params:oauth:grant-type:jwt-bearer"],
        token_endpoint_auth_method="client_secret_basic",
    )
    provider, asked = OfficialProvider([client]), []

    async def identity_provider(scope, receive, send):
        asked.append(dict(parse_qsl((await receive())["body"].decode())))
        body = json.dumps({"access_token": "grace", "token_type": "N_A", "issued_token_type": "id-jag"}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": body})

    issuer = official_issuer(live, provider, identity_assertion_enabled=True)
    url = mounted(live, issuer, "/mcp", verify=provider.check)
    auth = Enterprise(
        idp=f"http://127.0.0.1:{live(identity_provider)}/token",
        id_token="of-grace",
        idp_client_id="at-the-idp",
        client_id="at-the-server",
        client_secret="hush",
        issuer=issuer.url,
    )
    async with Client(url, auth=auth) as ours:
        assert (await ours.call_tool("who")).text == "grace notes:read"
    assert asked[0]["subject_token"] == "of-grace"
    assert asked[0]["resource"] == url


@pytest.fixture
def mock_issuer(tmp_path):
    """oauth2-mock-server: its URL, and its process."""
    port = free_port()
    command = [*node_program(HERE / "mock_issuer.mjs"), "--http", str(port)]
    with (tmp_path / "mock.log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            assert answers(process, port), (tmp_path / "mock.log").read_text()
            yield f"http://127.0.0.1:{port}", process
        finally:
            end(process)


async def test_keys_that_change_and_claims_that_are_wrong(mock_issuer, live):
    issuer, process = mock_issuer
    url = mounted(live, Issuer(issuer), "/mcp")
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}

    async def token(**claims):
        told = json.dumps({"aud": url, "scope": "notes:read", "sub": "ada", **claims})
        form = {"grant_type": "client_credentials", "claims": told}
        return (await http.post(f"{issuer}/token", data=form)).json()["access_token"]

    async def status(value):
        reply = await http.post(url, json=body, headers={"authorization": f"Bearer {value}"})
        return reply.status_code

    async with httpx2.AsyncClient(trust_env=False) as http:
        first = await token()
        assert await status(first) != 401
        now = int(time.time())
        wrong = [{"aud": "https://other.example"}, {"aud": None}, {"iss": "https://evil.example"}, {"exp": now - 60}]
        wrong += [{"exp": None}, {"nbf": now + 600}, {"sub": None}]
        assert [await status(await token(**claims)) for claims in wrong] == [401] * len(wrong)
        os.kill(process.pid, signal.SIGUSR2)
        kids = set()
        async with asyncio.timeout(20):
            while len(kids) < 2:
                kids.add((await token()).partition(".")[0])
        # No request fails: the key that is not known yet is looked for.
        assert 401 not in [await status(await token()) for _ in range(4)]
