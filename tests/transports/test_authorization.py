"""A protected server serves requests with a good token, and tells all others what they need."""

import asyncio
import base64
import hashlib
import json
import logging
import sys
import time
import traceback
from pathlib import Path
from secrets import token_hex

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from antiphon import Context, Server
from antiphon.auth import Identity, Introspect, Protected
from antiphon.oauth.challenge import challenge_of
from antiphon.oauth.identity import LEEWAY
from antiphon.oauth.jose import new_key, proof
from antiphon.testing.issuer import Issuer
from antiphon.transports.memory import MemoryLink
from asgi import Http
from messages import request, tool_call

URL = "https://mcp.example.com/mcp"
METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"


@pytest.fixture
def issuer():
    return Issuer()


@pytest.fixture
def app(issuer):
    return guarded(issuer)


def guarded(issuer, url=URL, **options):
    named = options.pop("issuer_url", issuer.url)
    options = {"issuer": named, "scopes": ["read"], "verify": issuer, **options}
    app = Server("notes", auth=Protected(url, **options))

    @app.tool
    async def who(ctx: Context) -> str:
        return f"{ctx.auth.subject} of {ctx.auth.client_id}: {' '.join(sorted(ctx.auth.scopes))}"

    @app.tool(scopes=["write"])
    async def add(ctx: Context) -> str:
        return "added" if await ctx.confirm("Really?") else "not added"

    @app.tool
    async def by_argument(level: str, ctx: Context) -> str:
        await ctx.need(level, "extra")
        return "fine"

    @app.prompt(scopes=["prompts"])
    def hello() -> str:
        return "Hello"

    @app.resource("note://{id}", scopes=["notes"])
    async def note(id: str) -> str:
        return id

    @app.resource("note://all", scopes=["all"])
    async def notes() -> str:
        return "all"

    return app


def bearer(token):
    return {"authorization": f"Bearer {token}"}


async def ask(app, token, message, **about):
    return await Http(app.asgi(allowed_hosts=["*"])).post(message, headers=bearer(token) if token else None, **about)


def good(issuer, *scopes, **about):
    return issuer.token(audience=URL, scopes=["read", *scopes], **about)


# --- who calls ----------------------------------------------------------------------------------------------------


async def test_a_good_token_tells_who_calls(app, issuer):
    reply = await ask(app, good(issuer, "x"), tool_call("who"))
    assert reply.result["content"][0]["text"] == "ada of test: read x"


async def test_a_request_without_a_token_is_told_where_to_get_one(app):
    reply = await ask(app, None, tool_call("who"))
    assert reply.status == 401
    challenge = challenge_of(reply.headers["www-authenticate"])
    assert challenge.parameters == {"scope": "read", "resource_metadata": METADATA}
    assert reply.headers["cache-control"] == "no-store"


def spoiled(issuer):
    """Tokens that must not count, by what is wrong with them."""
    now = int(time.time())
    own = ECKey.generate_key("P-256", {"kid": "own"}, private=True)
    claims = {"iss": issuer.url, "sub": "ada", "aud": URL, "scope": "read", "exp": now + 60}
    token = good(issuer)
    head, body, signature = token.split(".")
    kid = json.loads(base64.urlsafe_b64decode(head + "=="))["kid"]
    public = issuer.public_keys()["keys"][0]
    flipped = "A" if signature[5] != "A" else "B"

    def plain(header):
        return base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()

    yield "another audience", issuer.token(audience="https://other.example/mcp", scopes=["read"])
    yield "no audience", issuer.token(audience=[], scopes=["read"])
    yield "another issuer", good(issuer, iss="https://evil.example")
    yield "expired", good(issuer, expires_in=-60)
    yield "no expiry", good(issuer, exp=None)
    yield "not valid yet", good(issuer, nbf=now + 600)
    yield "another key of the same name", jwt.encode({"alg": "ES256", "kid": kid}, claims, own)
    yield "an unknown key", jwt.encode({"alg": "ES256", "kid": "own"}, claims, own)
    yield "a key it brings along", jwt.encode({"alg": "ES256", "jwk": own.as_dict(private=False)}, claims, own)
    yield "a key it points to", jwt.encode({"alg": "ES256", "jku": "http://127.0.0.1:9/jwks"}, claims, own)
    yield "no signature", f"{plain({'alg': 'none', 'kid': kid})}.{body}."
    secret = OctKey.import_key(json.dumps(public).encode())
    yield "the public key as a secret", jwt.encode({"alg": "HS256", "kid": kid}, claims, secret)
    yield "critical extensions", f"{plain({'alg': 'ES256', 'kid': kid, 'crit': ['x'], 'x': 1})}.{body}.{signature}"
    yield "an identity token", f"{plain({'alg': 'ES256', 'kid': kid, 'typ': 'id+jwt'})}.{body}.{signature}"
    yield "a spoiled signature", f"{head}.{body}.{signature[:5]}{flipped}{signature[6:]}"
    yield "no subject", good(issuer, sub=None, client_id=None)
    yield "too long", good(issuer, more="x" * 20_000)
    yield "no token at all", "x"
    yield "three dots", "a.b.c.d"
    yield "deep JSON", f"{plain({})[:2]}{'[' * 500}.{body}.{signature}"


async def test_every_bad_token_gets_the_same_answer_and_is_not_logged(app, issuer, caplog):
    caplog.set_level(logging.DEBUG)
    answers = {}
    for wrong, token in spoiled(issuer):
        reply = await ask(app, token, tool_call("who"))
        answers[wrong] = (reply.status, reply.body, reply.headers["www-authenticate"])
        assert token not in caplog.text, wrong
    assert len(set(answers.values())) == 1, answers
    status, _, challenge = next(iter(answers.values()))
    assert status == 401
    assert challenge_of(challenge).error == "invalid_token"


@pytest.mark.parametrize("value", ["Basic YTpi", "Bearer", "Bearer ", "bearer\t", "token x", "Bearer a b", "Bearer ü"])
async def test_an_authorization_of_another_kind_is_a_bad_token(app, value):
    reply = await Http(app.asgi(allowed_hosts=["*"])).post(
        tool_call("who"), headers={"authorization": value.encode("utf-8")}
    )
    assert reply.status == 401


async def test_two_authorizations_are_refused(app, issuer):
    pairs = [(b"authorization", f"Bearer {good(issuer)}".encode())] * 2
    reply = await Http(app.asgi(allowed_hosts=["*"])).post(tool_call("who"), pairs=pairs)
    assert reply.status in {400, 401}


async def test_a_token_is_looked_for_in_the_header_alone(app, issuer):
    reply = await ask(app, None, tool_call("who"), path=f"/mcp?access_token={good(issuer)}")
    assert reply.status in {401, 404}


async def test_a_bad_token_is_refused_before_the_body_is_read(app):
    exchange = Http(app.asgi(allowed_hosts=["*"])).open(b"", headers=bearer("x"), message=tool_call("who"), chunks=[])
    await exchange.finished()
    assert exchange.status == 401
    assert not exchange.watched.is_set()


async def test_the_same_user_is_the_same_principal_whatever_the_token(app, issuer):
    one = await issuer.identify(good(issuer, client_id="a"), [URL])
    other = await issuer.identify(good(issuer, "write", client_id="b"), [URL])
    assert one.principal == other.principal == f"{issuer.url} ada"
    assert one.principal != (await issuer.identify(issuer.token("bob", audience=URL), [URL])).principal


async def test_a_conversation_goes_on_with_a_new_token_of_the_same_user_only(app, issuer):
    asking = Http(app.asgi(allowed_hosts=["*"]))
    can = {"capabilities": {"elicitation": {}}}
    first = await asking.post(tool_call("add", **can), headers=bearer(good(issuer, "write")))
    state = first.result["requestState"]
    answers = {"inputResponses": {"confirm": {"action": "accept", "content": {"confirm": True}}}, "requestState": state}
    retry = tool_call("add", **can)
    retry["params"] |= answers
    foreign = await asking.post(retry, headers=bearer(issuer.token("bob", audience=URL, scopes=["read", "write"])))
    assert foreign.error["code"] == -32602
    mine = await asking.post(retry, headers=bearer(good(issuer, "write", client_id="another")))
    assert mine.result["content"][0]["text"] == "added"


# --- scopes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "needs"),
    [
        (tool_call("add"), "read write"),
        (request("prompts/get", {"name": "hello"}), "read prompts"),
        (request("resources/read", {"uri": "note://7"}), "read notes"),
        (request("resources/read", {"uri": "note://all"}), "read all"),
        (tool_call("by_argument", {"level": "admin"}), "read admin extra"),
    ],
)
async def test_what_needs_a_scope_says_all_that_it_needs(app, issuer, message, needs):
    reply = await ask(app, good(issuer), message)
    assert reply.status == 403
    challenge = challenge_of(reply.headers["www-authenticate"])
    assert challenge.error == "insufficient_scope"
    assert challenge.parameters["scope"] == needs
    assert challenge.parameters["resource_metadata"] == METADATA
    assert reply.error["data"] == {"requiredScopes": needs.split()}
    granted = await ask(app, issuer.token(audience=URL, scopes=needs.split()), message)
    assert granted.status in {200, 400}  # 400: the tool then asks a client that cannot be asked


async def test_a_token_without_the_scopes_of_every_request_is_refused(app, issuer):
    reply = await ask(app, issuer.token(audience=URL), request("tools/list"))
    assert reply.status == 403


async def test_a_scope_may_include_others(issuer):
    app = guarded(issuer, implies={"admin": ["write"], "write": ["read"]})
    reply = await ask(app, issuer.token(audience=URL, scopes=["admin"]), tool_call("who"))
    assert reply.result["content"][0]["text"].endswith("admin read write")


async def test_a_missing_scope_is_told_before_a_single_use_token_is_spent(issuer):
    from antiphon import Seal

    app = Server("once", seal=Seal(single_use=True), auth=Protected(URL, issuer=issuer.url, verify=issuer))

    @app.tool(scopes=["write"])
    async def add(ctx: Context) -> str:
        return "added" if await ctx.confirm("Really?") else "not added"

    http = Http(app.asgi(allowed_hosts=["*"]))
    can = {"capabilities": {"elicitation": {}}}
    full = bearer(issuer.token(audience=URL, scopes=["write"]))
    first = await http.post(tool_call("add", **can), headers=full)
    retry = tool_call("add", **can)
    retry["params"] |= {
        "inputResponses": {"confirm": {"action": "accept", "content": {"confirm": True}}},
        "requestState": first.result["requestState"],
    }
    assert (await http.post(retry, headers=bearer(issuer.token(audience=URL)))).status == 403
    assert (await http.post(retry, headers=full)).result["content"][0]["text"] == "added"
    assert (await http.post(retry, headers=full)).error["code"] == -32602


def test_scopes_are_a_list():
    with pytest.raises(TypeError, match="list"):
        Server("x").add_tool(lambda: "x", name="x", scopes="write")


# --- metadata -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource"])
@pytest.mark.parametrize("host", ["mcp.example.com", "evil.example"])
async def test_metadata_is_that_of_the_configured_url_whatever_the_request_says(app, path, host):
    async def other(scope, receive, send):
        raise AssertionError("the fallback was asked")

    http = Http(app.asgi(allowed_hosts=["mcp.example.com"], fallback=other))
    exchange = http.open(b"", verb="GET", path=path, headers={"host": host, "x-forwarded-host": "evil.example"})
    reply = await exchange.reply()
    assert reply.status == 200
    assert json.loads(reply.body) == {
        "resource": URL,
        "authorization_servers": ["https://issuer.test"],
        "scopes_supported": ["read"],
        "bearer_methods_supported": ["header"],
    }
    assert reply.headers["access-control-allow-origin"] == "*"


async def test_metadata_is_found_below_a_mount(app):
    exchange = Http(app.asgi()).open(
        b"", verb="GET", path="/a/b/.well-known/oauth-protected-resource/mcp", root_path="/a/b"
    )
    assert (await exchange.reply()).status == 200


# --- lists, other transports, options ------------------------------------------------------------------------------


async def test_the_lists_of_a_server_that_knows_who_asks_are_private(app, issuer):
    reply = await ask(app, good(issuer), request("tools/list"))
    assert reply.result["cacheScope"] == "private"
    for options, scope in ({}, "public"), ({"principal": lambda _: "ada"}, "private"):
        other = Server("other")
        other.add_tool(lambda: "x", name="x")
        reply = await Http(other.asgi(**options)).post(request("tools/list"))
        assert reply.result["cacheScope"] == scope


async def test_a_subscription_ends_with_its_token(app, issuer):
    listen = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    token = good(issuer, expires_in=1.5 - LEEWAY)
    exchange = Http(app.asgi(allowed_hosts=["*"])).open(listen, headers=bearer(token))
    assert "error" not in await exchange.next_message()
    async with asyncio.timeout(5):
        await exchange.finished()


async def test_nothing_is_asked_of_a_caller_in_memory(app):
    reply = await MemoryLink(app).send(tool_call("by_argument", {"level": "admin"}))
    assert reply["result"]["content"][0]["text"] == "fine"


def test_auth_and_principal_exclude_each_other(app):
    with pytest.raises(ValueError, match="principal"):
        app.asgi(principal=lambda _: "ada")


@pytest.mark.parametrize("url", ["http://mcp.example.com/mcp", "mcp.example.com", "https://u@mcp.example.com"])
def test_a_resource_is_an_https_url(url):
    with pytest.raises(ValueError, match="resource"):
        Protected(url, issuer="https://auth.example.com")


# --- keys and other ways to check ----------------------------------------------------------------------------------


async def test_keys_are_found_cached_and_followed_when_they_change():
    issuer = Issuer()
    async with issuer.serving():
        app = guarded(issuer, verify=None)
        for _ in range(3):
            assert (await ask(app, good(issuer), tool_call("who"))).status == 200
        assert [path for path, _ in issuer.asked].count("/jwks") == 1
        old = good(issuer)
        issuer.rotate_keys()
        replies = await asyncio.gather(*(ask(app, good(issuer), tool_call("who")) for _ in range(10)))
        assert {reply.status for reply in replies} == {200}
        assert [path for path, _ in issuer.asked].count("/jwks") == 2
        issuer.rotate_keys()
        assert (await ask(app, good(issuer), tool_call("who"))).status == 401  # looked for a moment ago
        app.auth.forget()
        assert (await ask(app, good(issuer), tool_call("who"))).status == 200
        old = good(issuer)
        assert (await ask(app, old, tool_call("who"))).status == 200
    assert (await ask(app, good(issuer), tool_call("who"))).status == 200  # the issuer is down, its keys are known


async def test_a_flood_of_unknown_keys_asks_the_issuer_once():
    issuer = Issuer()
    async with issuer.serving():
        app = guarded(issuer, verify=None)
        key = RSAKey.generate_key(2048, private=True)
        for number in range(20):
            token = jwt.encode({"alg": "RS256", "kid": f"k{number}"}, {"iss": issuer.url, "aud": URL}, key)
            assert (await ask(app, token, tool_call("who"))).status == 401
        assert [path for path, _ in issuer.asked].count("/jwks") == 2  # the first time, and once for what is not there


async def test_a_token_is_introspected():
    issuer = Issuer(clients={"me": "mine"})
    async with issuer.serving():
        check = Introspect(f"{issuer.url}/introspect", "me", "mine")
        app = guarded(issuer, verify=check)
        token = good(issuer)
        assert (await ask(app, token, tool_call("who"))).status == 200
        assert (await ask(app, token, tool_call("who"))).status == 200
        assert [path for path, _ in issuer.asked].count("/introspect") == 1
        assert (await ask(app, issuer.token(audience="https://x"), tool_call("who"))).status == 401
        assert (await ask(app, "opaque", tool_call("who"))).status == 401
        assert "mine" not in repr(check)


async def test_an_introspected_token_without_this_audience_is_refused_unless_any_counts():
    issuer = Issuer(clients={"me": "mine"})
    async with issuer.serving():
        for any_audience, status in (False, 401), (True, 200):
            check = Introspect(f"{issuer.url}/introspect", "me", "mine", any_audience=any_audience)
            app = guarded(issuer, verify=check)
            assert (await ask(app, good(issuer, aud=None), tool_call("who"))).status == status
            assert (await ask(app, good(issuer, aud=3), tool_call("who"))).status == status


async def test_a_token_that_cannot_be_checked_is_not_called_bad(issuer):
    down = guarded(issuer, verify=Introspect("http://127.0.0.1:9/introspect", "me", "mine"))
    assert (await ask(down, good(issuer), tool_call("who"))).status == 503
    keyless = guarded(issuer, verify=None, issuer_url="http://127.0.0.1:9")
    assert (await ask(keyless, good(issuer, iss="http://127.0.0.1:9"), tool_call("who"))).status == 503

    def fails(_):
        raise ConnectionRefusedError

    assert (await ask(guarded(issuer, verify=fails), "x", tool_call("who"))).error["code"] == -32603


async def test_a_function_may_check_tokens(issuer):
    def check(token):
        return Identity(subject="eve", scopes=frozenset({"read"})) if token == "open-sesame" else None

    app = guarded(issuer, verify=check)
    assert (await ask(app, "open-sesame", tool_call("who"))).result["content"][0]["text"] == "eve of None: read"
    assert (await ask(app, "other", tool_call("who"))).status == 401


# --- tokens that are bound to a key -------------------------------------------------------------------------------


class Holder:
    """A client that holds a key, and a token that is bound to it."""

    def __init__(self, issuer):
        self.key = new_key()
        public = ECKey.import_key(self.key)
        self.token = good(issuer, cnf={"jkt": public.thumbprint()})

    def headers(self, scheme="DPoP", **changed):
        claims = changed.pop("claims", None)
        if claims is not None:
            key = ECKey.import_key(self.key)
            digest = base64.urlsafe_b64encode(hashlib.sha256(self.token.encode()).digest()).rstrip(b"=").decode()
            body = {"jti": "x", "htm": "POST", "htu": URL, "iat": time.time(), "ath": digest, **claims}
            head = {"typ": "dpop+jwt", "alg": "ES256", "jwk": key.as_dict(private=False)}
            return {"authorization": f"{scheme} {self.token}", "dpop": jwt.encode(head, body, key)}
        about = {"key": self.key, "verb": "POST", "url": URL, "id_": token_hex(8), "now": time.time()}
        return {"authorization": f"{scheme} {self.token}", "dpop": proof(**{**about, "access": self.token, **changed})}


async def prove(app, headers):
    return (await Http(app.asgi(allowed_hosts=["*"])).post(tool_call("who"), headers=headers)).status


@pytest.mark.parametrize("dpop", ["accept", "require"])
async def test_a_bound_token_counts_with_a_fresh_proof_of_its_key(issuer, dpop):
    app, holder = guarded(issuer, dpop=dpop), Holder(issuer)
    for _ in range(2):
        assert await prove(app, holder.headers()) == 200
    used = holder.headers()
    assert [await prove(app, used), await prove(app, used)] == [200, 401]
    for wrong in (
        {"verb": "GET"},
        {"url": "https://mcp.example.com/other"},
        {"access": "another"},
        {"access": None},
        {"key": new_key()},
        {"now": time.time() - 400},
        {"now": time.time() + 400},
        {"claims": {"iat": float("nan")}},
        {"id_": ""},
    ):
        assert await prove(app, holder.headers(**wrong)) == 401, wrong
    assert await prove(app, {**holder.headers(), "dpop": None}) == 401
    assert await prove(app, {**holder.headers(), "dpop": "x.y.z"}) == 401
    assert await prove(app, holder.headers(scheme="Bearer")) == 401
    assert await prove(app, bearer(good(issuer))) == (200 if dpop == "accept" else 401)


async def test_a_server_without_proofs_takes_no_bound_token(app, issuer):
    holder = Holder(issuer)
    assert await prove(app, holder.headers()) == 401
    assert await prove(app, holder.headers(scheme="Bearer")) == 401


async def test_a_token_that_is_known_costs_at_most_one_frame_more(issuer):
    def frames(app):
        @app.tool
        async def look() -> int:
            return sum(antiphon in Path(frame.filename).parents for frame in traceback.extract_stack())

        return app

    antiphon = Path(sys.modules["antiphon"].__file__).parent
    depth = []
    for app in (frames(Server("open")), frames(guarded(issuer))):
        for _ in range(2):
            reply = await ask(app, good(issuer), tool_call("look"))
        depth.append(reply.result["structuredContent"])
    assert depth[1] <= depth[0] + 1
