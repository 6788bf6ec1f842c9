"""A client among servers that mean it no good: where it is sent, what it is sent, and what it tells of it."""

import asyncio
import gzip
import json
import logging
import socket
import subprocess
import sys
import traceback

import pytest

from antiphon import Client, Context, Server, SignInFailed
from antiphon.auth import Bearer, ClientCredentials, File, Login, LoginNeeded, Memory, OAuth, Protected
from antiphon.oauth.account import Registration
from antiphon.testing import Issuer
from antiphon.transports import fetch

from .test_signing_in import logins, protected

CALLBACK = "http://127.0.0.1/callback?code=c&state=s"


@pytest.fixture
async def issuer():
    made = Issuer(clients={"svc": "hush"})
    async with made.serving():
        yield made


@pytest.fixture
async def listener():
    """A listener on this machine, and the bytes that it was sent."""
    sent = []

    async def serve(reader, writer):
        sent.append(await reader.read(1000))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], sent


# --- where a client is sent ---------------------------------------------------------------------------------------


def login_of_a_public_server(endpoint):
    return Login(
        url="https://auth.example.com/authorize",
        server="https://mcp.example.com/mcp",
        issuer="https://auth.example.com",
        resource="https://mcp.example.com/mcp",
        token_endpoint=endpoint,
        registration=Registration(client_id="c"),
        redirect="http://127.0.0.1/callback",
        state="s",
        verifier="v",
        network="public",
    )


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0177.0.0.1", "2130706433", "auth.example.com", "10.0.0.1"],
)
async def test_a_public_server_cannot_send_a_client_into_a_private_network(listener, host, monkeypatch):
    port, sent = listener
    asked = socket.getaddrinfo

    def resolve(name, *about, **more):  # a name of the attacker's that leads here
        return asked("127.0.0.1" if name == "auth.example.com" else name, *about, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    login = login_of_a_public_server(f"https://{host}:{port}/token")
    async with Client(login.server, auth=OAuth(visit=None)) as client:
        with pytest.raises(SignInFailed, match="private network"):
            await client.sign_in(login, CALLBACK)
    assert not any(sent)


async def test_a_private_address_is_refused_behind_a_proxy_as_well(listener, monkeypatch):
    port, sent = listener
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
    login = login_of_a_public_server("https://169.254.169.254/token")
    async with Client(login.server, auth=OAuth(visit=None)) as client:
        with pytest.raises(SignInFailed, match="private network"):
            await client.sign_in(login, CALLBACK)
    assert not sent


@pytest.mark.parametrize("url", ["file:///etc/passwd", "gopher://auth.example.com/", "http://auth.example.com/token"])
async def test_a_client_asks_https_alone(url):
    login = login_of_a_public_server(url)
    async with Client(login.server, auth=OAuth(visit=None)) as client:
        with pytest.raises((SignInFailed, ValueError), match=r"http"):
            await client.sign_in(login, CALLBACK)


async def test_a_redirect_is_not_followed(live, listener):
    port, sent = listener

    async def redirects(scope, receive, send):
        head = [(b"location", f"http://127.0.0.1:{port}/token".encode())]
        await send({"type": "http.response.start", "status": 307, "headers": head})
        await send({"type": "http.response.body", "body": b""})

    url = f"http://127.0.0.1:{live(redirects)}/mcp"
    async with Client(url, auth=ClientCredentials("svc", "hush", issuer=url)) as client:
        with pytest.raises(SignInFailed):
            await client.sign_in()
    assert not sent


# --- what it is sent ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ([], b"[" * 100_000),
        ([], b'{"a":' * 100_000),
        ([], json.dumps({"resource": "x" * 2_000_000}).encode()),
        ([(b"content-encoding", b"gzip")], gzip.compress(b"0" * 50_000_000)),
        ([], b"\xff\xfe"),
        ([], b'{"resource": 3, "authorization_servers": {}}'),
    ],
    ids=["deep lists", "deep maps", "a large text", "a bomb", "no text", "other types"],
)
async def test_a_document_that_is_no_document_ends_the_sign_in(live, head, body):
    async def serve(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})

    url = f"http://127.0.0.1:{live(serve)}/mcp"
    async with Client(url, auth=OAuth(visit=None)) as client:
        with pytest.raises(SignInFailed):
            await client.sign_in()


async def test_an_endless_answer_and_a_slow_one_are_cut_off(live, monkeypatch):
    monkeypatch.setattr(fetch.fetch, "__kwdefaults__", {**fetch.fetch.__kwdefaults__, "timeout": 0.5})

    async def serve(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(10_000):
            await send(
                {
                    "type": "http.response.body",
                    "body": b" " * (65536 if "long" in scope["path"] else 1),
                    "more_body": True,
                }
            )
            await asyncio.sleep(0 if "long" in scope["path"] else 0.1)

    port = live(serve)
    for path in ("long", "slow"):
        async with Client(f"http://127.0.0.1:{port}/{path}", auth=OAuth(visit=None)) as client:
            with pytest.raises(SignInFailed):
                async with asyncio.timeout(10):
                    await client.sign_in()


async def test_ten_thousand_scopes_are_carried_or_refused_and_nothing_hangs(issuer, live):
    url, app = protected(live, issuer)
    app.auth.scopes = tuple(f"scope-{number}" for number in range(10_000))
    async with Client(url, auth=OAuth(visit=None)) as client:
        with pytest.raises(SignInFailed):
            async with asyncio.timeout(10):
                await client.call_tool("who")


# --- another authorization server ---------------------------------------------------------------------------------


class Recording(Issuer):
    """An authorization server that records every byte that it is sent."""

    def __init__(self, **options):
        super().__init__(**options)
        self.bytes = b""

    async def __call__(self, scope, receive, send):
        self.bytes += scope["path"].encode() + scope["query_string"] + repr(scope["headers"]).encode()

        async def heard():
            event = await receive()
            self.bytes += event.get("body", b"")
            return event

        await super().__call__(scope, heard, send)


async def test_nothing_of_one_issuer_is_sent_to_the_next(live):
    first, second = Recording(), Recording(subject="ada")
    async with first.serving(), second.serving():
        url, app = protected(live, first)
        keep = Memory()
        visits = {first.url: first, second.url: second}

        async def visit(page, redirect):
            return await next(one for url, one in visits.items() if page.startswith(url)).visit(page, redirect)

        async with Client(url, auth=OAuth(visit=visit, keep=keep)) as client:
            await client.call_tool("who")
            kept = json.loads(await keep.get(url))
            app.auth.__init__(url, issuer=second.url, scopes=["read"])
            assert (await client.call_tool("who")).text == "ada read"
    of_the_first = [kept["token"]["access"], kept["token"]["refresh"], kept["registrations"][first.url]["client_id"]]
    assert len(logins(second)) == 1
    assert not [secret for secret in of_the_first if secret.encode() in second.bytes]


# --- what it tells ------------------------------------------------------------------------------------------------


class Secrets:
    """Tokens that are told apart from everything else."""

    def __init__(self, issuer):
        self.found = set()
        made = issuer.token

        def note(*args, **kwargs):
            token = made(*args, **kwargs)
            self.found.add(token)
            return token

        issuer.token = note


async def test_no_secret_is_in_logs_errors_traces_or_pending_calls(issuer, live, caplog, capsys, tmp_path):
    caplog.set_level(logging.DEBUG)
    secrets = Secrets(issuer)
    url, _ = protected(live, issuer)
    told = []

    async def visit(page, redirect):
        back = await issuer.visit(page, redirect)
        secrets.found.add(dict(part.split("=") for part in back.partition("?")[2].split("&"))["code"])
        return back

    auth = OAuth(visit=visit, keep=File(tmp_path / "keep"), scopes=["write"])
    async with Client(url, auth=auth, auto=False, elicit=lambda _: None) as client:
        pending = await client.begin("tools/call", name="add", arguments={})
        told += [repr(client), repr(auth), repr(vars(client)), pending.to_json(), repr(pending)]
        kept = json.loads(next((tmp_path / "keep").glob("*.json")).read_text())
        secrets.found |= {kept["token"]["access"], kept["token"]["refresh"]}
    ways = [Bearer("bearer-secret"), ClientCredentials("svc", "wrong-secret", issuer=issuer.url), OAuth(visit=None)]
    secrets.found |= {"bearer-secret", "wrong-secret"}
    for way in ways:
        try:
            async with Client(url, auth=way) as client:
                await client.call_tool("who")
        except SignInFailed as fault:
            told += ["".join(traceback.format_exception(fault)), repr(fault)]
            if isinstance(fault, LoginNeeded):
                told.append(repr(fault.login))
                secrets.found |= {fault.login.state, fault.login.verifier}
    out, err = capsys.readouterr()
    written = "\n".join([*told, caplog.text, out, err])
    assert len(told) >= 8
    assert not [secret for secret in secrets.found if secret in written]


async def test_a_handler_does_not_find_the_token(issuer, live):
    url, app = protected(live, issuer)
    token = issuer.token("bob", audience=url, scopes=["read"])

    @app.tool
    async def search(ctx: Context) -> bool:
        seen, waiting = set(), [ctx]
        while waiting and len(seen) < 20_000:
            each = waiting.pop()
            if id(each) in seen:
                continue
            seen.add(id(each))
            if isinstance(each, str | bytes):
                if (token if isinstance(each, str) else token.encode()) in each:
                    return True
            elif isinstance(each, dict):
                waiting += [*each.keys(), *each.values()]
            elif isinstance(each, list | tuple | set | frozenset):
                waiting += each
            elif isinstance(each, Context):
                names = [name for name in dir(each) if not name.startswith("_")]
                waiting += [getattr(each, name, None) for name in names if name not in {"client", "state"}]
            elif hasattr(each, "__struct_fields__"):
                waiting += [getattr(each, name) for name in each.__struct_fields__]
        return False

    async with Client(url, auth=Bearer(token)) as client:
        assert (await client.call_tool("search")).structured is False


# --- what it loads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import antiphon", {"joserfc", "cryptography", "webbrowser", "ssl", "antiphon.auth", "antiphon.oauth.flow"}),
        (
            "import antiphon, antiphon.auth as auth; antiphon.Client('http://127.0.0.1:1/mcp', auth=auth.Bearer('x'))",
            {"joserfc", "cryptography", "webbrowser"},
        ),
    ],
)
def test_what_is_not_needed_is_not_loaded(code, absent):
    command = [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.split())
    assert not loaded & absent


def test_protection_takes_six_lines_of_a_user():
    Server(
        "notes",
        auth=Protected(
            "https://mcp.example.com/mcp",
            issuer="https://auth.example.com",
        ),
    )
