"""Authorization with real parties: oidc-provider as the authorization server, the official SDKs as the other side."""

import asyncio
import html
import http.cookiejar
import json
import os
import re
import subprocess
import sys
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode, urljoin

import pytest
from tests.cli.pseudo_terminal import ENTER, PseudoTerminal

from antiphon import Accepted, Client, Context, Server
from antiphon.auth import ClientCredentials, File, Introspect, Memory, OAuth, Protected
from antiphon.oauth.jose import new_key
from antiphon.testing import Issuer

from .programs import answers, end, free_port, node_program, run

pytestmark = [pytest.mark.peers, pytest.mark.heavy]
HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


class Browser:
    """A browser whose user signs in and agrees: it posts the forms of the pages it is sent to."""

    def __init__(self):
        self.visits = 0

    def __call__(self, url, redirect):
        self.visits += 1
        opener = urllib.request.build_opener(Stay, urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        form = None
        for _ in range(20):
            try:
                response = opener.open(url, data=form, timeout=10)
            except HTTPError as answer:
                response = answer
            with response:
                status, there, page = response.status, response.headers["location"], response.read().decode()
            if status in {302, 303}:
                url, form = urljoin(url, there), None
                if url.startswith(redirect):
                    return url
                continue
            assert status == 200, page
            url = urljoin(url, html.unescape(re.search(r'<form[^>]* action="([^"]+)"', page)[1]))
            fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page))
            if 'name="login"' in page:
                fields |= {"login": "ada", "password": "any"}
            form = urlencode(fields).encode()
        raise AssertionError("the pages never end")


@pytest.fixture(scope="module")
def program():
    return node_program(HERE / "authorization_server.mjs")


@pytest.fixture
def authorization_server(program, tmp_path):
    @contextmanager
    def start(*options):
        port = free_port()
        with (tmp_path / "as.log").open("w") as log:
            process = subprocess.Popen(
                [*program, "--http", str(port), *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
            try:
                assert answers(process, port), (tmp_path / "as.log").read_text()
                yield f"http://127.0.0.1:{port}"
            finally:
                end(process)

    return start


def notes(live, issuer, **options):
    holder = {}

    async def door(scope, receive, send):
        await holder["app"](scope, receive, send)

    url = f"http://127.0.0.1:{live(door)}/mcp"
    app = Server("notes", auth=Protected(url, issuer=issuer, scopes=["notes:read"], **options))
    app.ran = []

    @app.tool
    async def who(ctx: Context) -> str:
        return f"{ctx.auth.subject} {' '.join(sorted(ctx.auth.scopes))}"

    @app.tool(scopes=["notes:write"])
    async def add(text: str, ctx: Context) -> str:
        sure = await ctx.confirm(f"Add {text}?")
        app.ran.append(sure)
        return f"{ctx.auth.subject} added {text}" if sure else "not added"

    holder["app"] = app.asgi()
    return url, app


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_our_client_signs_in_at_a_real_server_and_steps_up(authorization_server, live, era):
    browser = Browser()
    with authorization_server() as issuer:
        url, app = notes(live, issuer)
        async with Client(url, auth=OAuth(visit=browser), elicit=lambda _: Accepted(True), era=era) as client:
            assert (await client.call_tool("who")).text == "ada notes:read"
            assert (await client.call_tool("add", {"text": "milk"})).text == "ada added milk"
    assert app.ran == [True]
    assert browser.visits == 2


async def test_a_token_that_expires_between_the_rounds_is_refreshed_and_the_tool_runs_once(authorization_server, live):
    browser = Browser()
    with authorization_server("--ttl", "1") as issuer:
        url, app = notes(live, issuer)

        async def think(_):
            app.auth.forget()
            return Accepted(True)

        auth = OAuth(visit=browser, scopes=["notes:write", "offline_access"])
        async with Client(url, auth=auth, elicit=think) as client:
            assert (await client.call_tool("add", {"text": "milk"})).text == "ada added milk"
    assert app.ran == [True]
    assert browser.visits == 1


async def test_a_program_signs_in_by_its_secret(authorization_server, live):
    with authorization_server() as issuer:
        url, _ = notes(live, issuer)
        async with Client(url, auth=ClientCredentials("program", "program-secret", issuer=issuer)) as client:
            assert (await client.call_tool("who")).text == "program notes:read"


async def test_a_kept_login_survives_a_restart_without_a_browser(authorization_server, live, tmp_path):
    browser = Browser()
    with authorization_server() as issuer:
        url, _ = notes(live, issuer)
        async with Client(url, auth=OAuth(visit=browser, keep=File(tmp_path / "keep"))) as client:
            await client.call_tool("who")
        async with Client(url, auth=OAuth(visit=None, keep=File(tmp_path / "keep"))) as client:
            assert (await client.call_tool("who")).text.startswith("ada")
            await client.sign_out()
    assert browser.visits == 1
    assert list((tmp_path / "keep").glob("*.json")) == []


@pytest.mark.parametrize("options", [(), ("--dpop-nonce",)], ids=["plain", "nonce"])
async def test_tokens_are_bound_to_a_key(authorization_server, live, options):
    browser = Browser()
    with authorization_server(*options) as issuer:
        url, _ = notes(live, issuer, dpop="require")
        async with Client(url, auth=OAuth(visit=browser)) as client:
            for _ in range(3):
                assert (await client.call_tool("who")).text == "ada notes:read"


async def test_a_bound_token_is_refreshed_with_a_proof_of_its_key(authorization_server, live):
    browser = Browser()
    with authorization_server("--ttl", "1", "--dpop-nonce") as issuer:
        url, app = notes(live, issuer, dpop="require")
        keep = Memory()
        async with Client(url, auth=OAuth(visit=browser, scopes=["offline_access"], keep=keep)) as client:
            assert (await client.call_tool("who")).text.startswith("ada")
            first = json.loads(await keep.get(url))["token"]["access"]
            for _ in range(100):
                assert (await client.call_tool("who")).text.startswith("ada")
                if json.loads(await keep.get(url))["token"]["access"] != first:
                    break
                await asyncio.sleep(0.05)
        assert json.loads(await keep.get(url))["token"]["access"] != first
        assert app.auth is not None
    assert browser.visits == 1


async def test_a_program_signs_in_by_its_key(authorization_server, live):
    key = new_key()
    public = {name: value for name, value in key.items() if name != "d"}
    with authorization_server("--jwk", json.dumps({**public, "kid": "k", "use": "sig", "alg": "ES256"})) as issuer:
        url, _ = notes(live, issuer)
        async with Client(url, auth=ClientCredentials("keyed", key=json.dumps(key), issuer=issuer)) as client:
            assert (await client.call_tool("who")).text == "keyed notes:read"


async def test_tokens_can_be_introspected(authorization_server, live):
    with authorization_server("--opaque") as issuer:
        check = Introspect(f"{issuer}/token/introspection", "introspector", "introspector-secret", issuer=issuer)
        url, _ = notes(live, issuer, verify=check)
        async with Client(url, auth=ClientCredentials("program", "program-secret", issuer=issuer)) as client:
            assert (await client.call_tool("who")).text.startswith("program")


async def test_the_official_python_client_signs_in_to_our_server(authorization_server, live):
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

    browser, back = Browser(), {}

    async def visit(page):
        back["url"] = await asyncio.to_thread(browser, page, "http://127.0.0.1:3030/callback")

    async def callback():
        from urllib.parse import parse_qs, urlsplit

        from mcp.client.auth import AuthorizationCodeResult

        query = parse_qs(urlsplit(back["url"]).query)
        return AuthorizationCodeResult(code=query["code"][0], state=query["state"][0], iss=query["iss"][0])

    with authorization_server() as issuer:
        url, _ = notes(live, issuer)
        metadata = OAuthClientMetadata(
            client_name="official",
            redirect_uris=["http://127.0.0.1:3030/callback"],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            token_endpoint_auth_method="none",
        )
        provider = OAuthClientProvider(url, metadata, Storage(), visit, callback)
        async with create_mcp_http_client(auth=provider) as http_client:
            transport = streamable_http_client(url, http_client=http_client)
            async with OfficialClient(transport) as client:
                assert (await client.call_tool("who", {})).content[0].text == "ada notes:read"
    assert browser.visits == 1


async def test_the_terminal_signs_in_at_a_real_server(authorization_server, live, tmp_path):
    browser = tmp_path / "browser.py"
    browser.write_text(
        f"import sys, urllib.request\nfrom urllib.parse import parse_qs, urlsplit\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.peers.test_authorization import Browser\n"
        "redirect = parse_qs(urlsplit(sys.argv[1]).query)['redirect_uri'][0]\n"
        "urllib.request.urlopen(Browser()(sys.argv[1], redirect), timeout=10).read()\n"
    )
    env = {"XDG_STATE_HOME": str(tmp_path), "BROWSER": f"{sys.executable} {browser} %s"}

    def use(url):
        command = [sys.executable, "-m", "antiphon", "call", url, "who"]
        with closing(PseudoTerminal(command, cwd=tmp_path, env=env, columns=160)) as terminal:
            terminal.sees("(notes:read)", "[Y/n]").types(ENTER)
            terminal.sees("ada notes:read")
            assert terminal.ends() == 0
        where = {**os.environ, **env}
        return subprocess.run(
            command, check=False, env=where, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30
        )

    with authorization_server() as issuer:
        url, _ = notes(live, issuer)
        again = await asyncio.to_thread(use, url)
    assert (again.returncode, again.stdout.strip()) == (0, "ada notes:read"), again.stderr


async def test_the_official_typescript_client_signs_in_refreshes_and_steps_up(live):
    issuer, seen, ended = Issuer(), set(), set()

    async def check(token):
        seen.add(token)
        return None if token in ended else await issuer.identify(token, [url])

    async with issuer.serving():
        url, app = notes(live, issuer.url, verify=check)

        @app.tool
        async def end_tokens() -> str:
            ended.update(seen)
            app.auth.forget()
            return "ended"

        @app.tool(scopes=["notes:write"])
        async def keep(ctx: Context) -> str:
            return " ".join(sorted(ctx.auth.scopes))

        command = [*node_program(HERE / "signing_in_client.mjs"), url, "who", "end_tokens", "who", "keep"]
        told = await asyncio.to_thread(run, command, timeout=60)
    who = "ada notes:read"
    assert json.loads(told) == {"told": [who, "ended", who, "notes:read notes:write"], "visits": 2}
    used = [form for path, form in issuer.asked if path == "/token" and form["grant_type"] == "refresh_token"]
    assert len(used) == 1
