"""The token between two rounds: what it is bound to, how long it lives, and the one answer to all that is wrong."""

import asyncio
import base64
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from antiphon import (
    Context,
    InputRequired,
    MemoryStore,
    Seal,
    Server,
    SignedState,
    SQLiteStore,
    Store,
    ask,
    input_required,
)
from antiphon.rounds.token import CLOCK_SKEW, generate_key

from .driver import ABSENT, Round, accept, converse, leg, prompt, resource, tool

KEY = generate_key(b"1" * 32)
NEWER = generate_key(b"2" * 32)
STRANGER = generate_key(b"3" * 32)

FROZEN = b'{"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid or expired requestState"}}'


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def deploying(seal: Any = None, *, name: str = "deploying", **options: Any) -> Server:
    """A server on which one name is a tool and a prompt, and where tools do and do not ask."""
    app = Server(name, seal=Seal(KEY) if seal is None else seal, **options)

    @app.tool
    async def deploy(env: str, ctx: Context, zone: str = "a") -> str:
        return f"deployed to {env}" if await ctx.confirm(f"Deploy to {env}?") else "not deployed"

    @app.tool
    async def destroy(env: str, ctx: Context, zone: str = "a") -> str:
        return f"destroyed {env}" if await ctx.confirm(f"Deploy to {env}?") else "not destroyed"

    @app.tool
    async def ping(env: str = "") -> str:
        return "pong"

    @app.prompt(name="deploy")
    async def deploy_prompt(env: str, ctx: Context) -> str:
        return str(await ctx.confirm(f"Deploy to {env}?"))

    @app.resource("env://prod")
    async def prod(ctx: Context) -> str:
        return str(await ctx.confirm("Read prod?"))

    @app.resource("env://{name}/log")
    async def log(name: str, ctx: Context) -> str:
        return str(await ctx.confirm("Read a log?"))

    return app


YES = {"confirm": accept(confirm=True)}
CALL = tool("deploy", env="prod")


def frozen(done: Round) -> bool:
    """Whether the reply is the frozen error, to the byte."""
    body = {key: value for key, value in done.reply.items() if key != "id"}
    return json.dumps(body, separators=(",", ":")).encode() == FROZEN


def told_why(log: pytest.LogCaptureFixture, reason: str) -> bool:
    found = [record for record in log.records if record.name == "antiphon" and record.levelno == logging.WARNING]
    return len(found) == 1 and found[0].getMessage().endswith(f": {reason}")


async def token_of(app: Server, call: tuple[str, dict[str, Any]] = CALL, **about: Any) -> str:
    return (await leg(app, *call, **about)).token


async def test_an_untouched_token_in_time_is_accepted() -> None:
    app = deploying()
    done = await leg(app, *CALL, state=await token_of(app), responses=YES)
    assert done.result["content"][0]["text"] == "deployed to prod"


# --- what is wrong with it -----------------------------------------------------------------------------------


async def test_a_token_with_any_character_changed_is_refused() -> None:
    app = deploying()
    token = await token_of(app)
    for place, character in enumerate(token):
        other = "B" if character == "A" else "A"
        done = await leg(app, *CALL, state=token[:place] + other + token[place + 1 :], responses=YES)
        assert frozen(done), f"place {place} of {token}"


async def test_a_token_cut_short_or_grown_is_refused() -> None:
    app = deploying()
    token = await token_of(app)
    for length in range(len(token)):
        assert frozen(await leg(app, *CALL, state=token[:length], responses=YES)), length
    for longer in (token + "A", token + "=", token + " ", token + "\n", " " + token, token + token, token + "."):
        assert frozen(await leg(app, *CALL, state=longer, responses=YES)), repr(longer)


@pytest.mark.parametrize(
    "state", [0, 1.5, True, [], {}, ["ap1."], "", " ", "ap1.", "ap2.AAAA", "état", "\ud83d\ude00", "x" * 100_000]
)
async def test_what_is_no_token_at_all_is_refused(state: object) -> None:
    assert frozen(await leg(deploying(), *CALL, state=state, responses=YES))
    assert frozen(await leg(deploying(), *CALL, state=state))


HERE = "https://here"
REBOUND: list[Any] = [
    pytest.param(None, tool("destroy", env="prod"), "ada", "forged", id="another tool"),
    pytest.param(None, tool("deploy", env="dev"), "ada", "forged", id="other arguments"),
    pytest.param(None, tool("deploy", env="prod", zone="a"), "ada", "forged", id="one argument more"),
    pytest.param(None, tool("deploy"), "ada", "forged", id="no arguments"),
    pytest.param(None, prompt("deploy", env="prod"), "ada", "forged", id="another method"),
    pytest.param(None, resource("env://prod"), "ada", "forged", id="a resource"),
    pytest.param(None, tool("ping", env="prod"), "ada", "forged", id="a tool that never asks"),
    pytest.param(None, tool("gone", env="prod"), "ada", "forged", id="a tool that is not there"),
    pytest.param(None, CALL, "eve", "forged", id="another principal"),
    pytest.param(None, CALL, None, "forged", id="no principal"),
    pytest.param(Seal(KEY, audience="https://other"), CALL, "ada", "forged", id="another audience"),
    pytest.param(Seal(KEY), CALL, "ada", "forged", id="no audience"),
    pytest.param(Seal(STRANGER, audience=HERE), CALL, "ada", "unknown key", id="another key"),
    pytest.param(SignedState(KEY, audience=HERE), CALL, "ada", "forged", id="another codec"),
]


@pytest.mark.parametrize(("seal", "call", "principal", "reason"), REBOUND)
async def test_a_token_that_is_used_elsewhere_is_refused(
    seal: Any, call: Any, principal: str | None, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    here = deploying(Seal(KEY, audience=HERE))
    token = await token_of(here, principal="ada")
    there = here if seal is None else deploying(seal)
    assert frozen(await leg(there, *call, state=token, responses=YES, principal=principal))
    assert told_why(caplog, reason)
    assert (await leg(here, *CALL, state=token, responses=YES, principal="ada")).result["content"]


async def test_a_principal_does_not_take_up_what_nobody_began() -> None:
    app = deploying()
    token = await token_of(app)
    assert frozen(await leg(app, *CALL, state=token, responses=YES, principal="eve"))
    assert frozen(await leg(app, *CALL, state=token, responses=YES, principal=""))


async def test_a_token_of_one_resource_does_not_open_another() -> None:
    app = deploying()
    token = await token_of(app, resource("env://a/log"))
    assert (await leg(app, *resource("env://a/log"), state=token, responses=YES)).result["contents"]
    assert frozen(await leg(app, *resource("env://b/log"), state=token, responses=YES))


async def test_the_order_of_arguments_does_not_matter() -> None:
    app = deploying()
    token = await token_of(app, tool("deploy", env="prod", zone="b"))
    assert (await leg(app, *tool("deploy", zone="b", env="prod"), state=token, responses=YES)).result["content"]


@pytest.mark.parametrize("kind", [Seal, SignedState])
async def test_an_expired_token_is_refused(kind, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    app = deploying(kind(KEY, ttl=600), clock=clock)
    token = await token_of(app)
    clock.now += 599.9
    assert (await leg(app, *CALL, state=token, responses=YES)).result["content"]
    clock.now += 0.2
    assert frozen(await leg(app, *CALL, state=token, responses=YES))
    assert told_why(caplog, "expired")


async def test_every_round_has_its_full_time() -> None:
    clock = Clock()
    app = Server("slow", seal=Seal(KEY, ttl=60), clock=clock)

    @app.tool
    async def plan(ctx: Context) -> str:
        for number in range(4):
            await ctx.confirm(f"Step {number}?", key=f"step-{number}")
        return "planned"

    done = await leg(app, *tool("plan"))
    for number in range(4):
        clock.now += 50
        done = await leg(app, *tool("plan"), state=done.token, responses={f"step-{number}": accept(confirm=True)})
    assert done.result["content"][0]["text"] == "planned"


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda token: token[:-1] + ("A" if token[-1] != "A" else "Q"), "forged"),
        (lambda token: token[:40], "malformed"),
        (lambda token: "ap9." + token[4:], "wrong version"),
        (lambda token: "not a token", "malformed"),
        (lambda token: token + "A" * 70_000, "too large"),
        (lambda token: 5, "malformed"),
    ],
)
async def test_the_log_says_why_and_the_client_does_not(
    spoil: Callable[[str], object], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = deploying()
    done = await leg(app, *CALL, state=spoil(await token_of(app)), responses=YES)
    assert frozen(done)
    assert reason in caplog.text
    assert "tools/call" in caplog.text
    assert "'deploy'" in caplog.text


async def test_the_log_repeats_neither_tokens_nor_keys_nor_answers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    app = Server("quiet", seal=Seal(KEY))

    @app.tool
    async def name(ctx: Context) -> str | InputRequired:
        await ctx.step("step", lambda: "a result to keep quiet")
        return (await ctx.elicit("Name?", str, key="name")).unwrap()

    token = await token_of(app, tool("name"))
    answer = {"name": accept(value="an answer to keep quiet")}
    await leg(app, *tool("name"), state=token + "A", responses=answer)
    await leg(app, *tool("name"), state=token, responses=answer)
    assert "refused" in caplog.text
    for secret in (token[20:], KEY[8:], "to keep quiet"):
        assert secret not in caplog.text


@pytest.mark.parametrize("call", [tool("ping"), resource("env://prod"), prompt("deploy", env="x"), tool("gone")])
async def test_a_token_is_checked_before_anything_else_is_done_with_it(call) -> None:
    assert frozen(await leg(deploying(), *call, state="ap1.AAAA"))


async def test_a_handler_that_never_asks_never_sees_a_bad_token() -> None:
    ran: list[int] = []
    app = Server("plain", seal=Seal(KEY))

    @app.tool
    def count() -> str:
        ran.append(1)
        return "counted"

    assert frozen(await leg(app, *tool("count"), state="anything"))
    assert ran == []


async def test_what_the_handler_wrote_is_safe_from_a_client_that_forges_its_state() -> None:
    app = Server("stateful", seal=SignedState(KEY))

    @app.tool
    async def pay(ctx: Context) -> str | InputRequired:
        price = ctx.state(int)
        return f"paid {price}" if price else input_required({"a": ask.form("Pay?", bool)}, state=100)

    token = await token_of(app, tool("pay"))
    text, _, mac = token.partition(".")
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    assert b"100" in raw
    cheaper = base64.urlsafe_b64encode(raw.replace(b"100", b"001")).rstrip(b"=").decode()
    assert frozen(await leg(app, *tool("pay"), state=f"{cheaper}.{mac}"))


# --- keys --------------------------------------------------------------------------------------------------------


async def test_keys_rotate_while_calls_are_under_way() -> None:
    before, during, after = deploying(Seal(KEY)), deploying(Seal([NEWER, KEY])), deploying(Seal(NEWER))
    old = await token_of(before)
    assert (await leg(during, *CALL, state=old, responses=YES)).result["content"]
    assert frozen(await leg(after, *CALL, state=old, responses=YES))
    new = await token_of(during)
    assert (await leg(after, *CALL, state=new, responses=YES)).result["content"]
    assert frozen(await leg(before, *CALL, state=new, responses=YES))


async def test_without_keys_a_process_has_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTIPHON_KEYS", raising=False)
    one, other = deploying(Seal()), deploying(Seal())
    token = await token_of(one)
    assert (await leg(one, *CALL, state=token, responses=YES)).result["content"]
    assert frozen(await leg(other, *CALL, state=token, responses=YES))


async def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_KEYS", f"{NEWER}, {KEY}")
    shared = Server("deploying")
    policy = deploying(Seal(ttl=5, audience="x"))
    explicit = deploying(Seal(STRANGER))
    monkeypatch.setenv("ANTIPHON_KEYS", NEWER)

    @shared.tool
    async def deploy(env: str, ctx: Context) -> str:
        return str(await ctx.confirm(f"Deploy to {env}?"))

    old = await token_of(deploying(Seal(KEY)))
    assert (await leg(shared, *CALL, state=old, responses=YES)).result["content"]
    new = await token_of(shared)
    assert (await leg(deploying(Seal(NEWER)), *CALL, state=new, responses=YES)).result["content"]
    assert (await leg(deploying(Seal(audience="x")), *CALL, state=await token_of(policy), responses=YES)).result[
        "content"
    ]
    assert frozen(await leg(explicit, *CALL, state=new, responses=YES))


@pytest.mark.parametrize("keys", ["short", f"{KEY},short", KEY[:-3]])
def test_bad_keys_in_the_environment_are_told_at_the_start_and_not_shown(
    keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_KEYS", keys)
    with pytest.raises(ValueError, match="key") as caught:
        Server("shared")
    assert KEY[8:20] not in str(caught.value)


async def test_an_http_server_on_a_key_of_its_own_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("ANTIPHON_KEYS", raising=False)

    async def ask_twice(app: Server) -> None:
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "deploy"}
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        }
        params = {"name": "deploy", "arguments": {"env": "prod"}, "_meta": meta}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app.asgi()), base_url="http://localhost") as client:
            for number in range(2):
                body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
                response = await client.post("/mcp", json=body, headers=headers)
                assert response.json()["result"]["resultType"] == "input_required"

    await ask_twice(deploying(Seal()))
    assert caplog.text.count("ANTIPHON_KEYS") == 1
    caplog.clear()
    await ask_twice(deploying(Seal(KEY)))
    assert "ANTIPHON_KEYS" not in caplog.text
    await token_of(deploying(Seal()))
    assert "ANTIPHON_KEYS" not in caplog.text


# --- other codecs ------------------------------------------------------------------------------------------------


class Base64:
    """The simplest codec there is. It protects nothing."""

    def seal(self, payload: bytes) -> str:
        return base64.b64encode(payload).decode()

    def open(self, token: str) -> bytes:
        return base64.b64decode(token, validate=True)


class Vault:
    """A codec that keeps everything at home."""

    ttl = 60
    audience = "https://here"
    single_use = True
    max_bytes = 40

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def seal(self, payload: bytes) -> str:
        token = f"ticket-{len(self.kept)}"
        self.kept[token] = payload
        return token

    def open(self, token: str) -> bytes:
        return self.kept[token]


@pytest.mark.parametrize("codec", [Seal(KEY), SignedState(KEY), SignedState([NEWER, KEY], 30), Base64()])
async def test_every_codec_carries_a_conversation(codec: Any) -> None:
    def make() -> Server:
        app = Server("codecs", seal=codec)

        @app.tool
        async def plan(ctx: Context) -> str:
            made = await ctx.step("make", lambda: "made")
            names = [(await ctx.elicit(f"{key}?", str, key=key)).unwrap() for key in "abc"]
            return " ".join([made, *names])

        return app

    answers = {key: accept(value=key.upper()) for key in "abc"}
    told = await converse([make(), make()], *tool("plan"), answers=answers)
    assert (told.asked, told.text) == ([["a"], ["b"], ["c"]], "made A B C")


@pytest.mark.parametrize("codec", [SignedState(KEY), Base64()])
async def test_every_codec_is_bound_to_the_call(codec: Any) -> None:
    app = deploying(codec)
    token = await token_of(app, principal="ada")
    assert frozen(await leg(app, *CALL, state=token, responses=YES, principal="eve"))
    assert frozen(await leg(app, *tool("destroy", env="prod"), state=token, responses=YES, principal="ada"))
    assert frozen(await leg(app, *tool("deploy", env="dev"), state=token, responses=YES, principal="ada"))
    assert (await leg(app, *CALL, state=token, responses=YES, principal="ada")).result["content"]


async def test_a_custom_codec_gets_expiry_single_use_and_size_from_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    app = deploying(Vault(), clock=clock)
    late = await token_of(app)
    clock.now += 61
    assert frozen(await leg(app, *CALL, state=late, responses=YES))
    assert "expired" in caplog.text
    token = await token_of(app)
    assert (await leg(app, *CALL, state=token, responses=YES)).result["content"]
    assert frozen(await leg(app, *CALL, state=token, responses=YES))
    assert "already used" in caplog.text
    assert frozen(await leg(app, *CALL, state="ticket-" + "9" * 50, responses=YES))
    assert "too large" in caplog.text


@pytest.mark.parametrize("state", ["", "ticket-7", "nonsense", "\u00e9"])
async def test_whatever_a_custom_codec_raises_is_the_frozen_error(state: str) -> None:
    assert frozen(await leg(deploying(Vault()), *CALL, state=state, responses=YES))
    assert frozen(await leg(deploying(Base64()), *CALL, state=state, responses=YES))


async def test_a_payload_that_is_no_journal_is_the_frozen_error() -> None:
    vault = Vault()
    app = deploying(vault)
    token = await token_of(app)
    whole = vault.kept[token]
    for payload in (b"", whole[:10], whole[:52], whole[:52] + b"\xc1", whole[:52] + b"\xff" * 20, whole[:-1]):
        vault.kept[token] = payload
        assert frozen(await leg(app, *CALL, state=token, responses=YES)), payload


# --- single use --------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path):
    store = MemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "store.db")
    yield store
    await store.close()


def once(store: Store, ran: list[str], seal: Any = None) -> Server:
    app = Server("once", seal=seal or Seal(KEY, single_use=True), store=store)

    @app.tool
    async def redeem(code: str, ctx: Context) -> str:
        if not await ctx.confirm(f"Redeem {code}?"):
            return "kept"
        await asyncio.sleep(0.001)
        ran.append(code)
        return "redeemed"

    return app


REDEEM = tool("redeem", code="X")


@pytest.mark.parametrize("kind", [Seal, SignedState])
async def test_a_token_that_may_be_used_once_is_refused_the_second_time(
    store: Store, kind, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []
    app = once(store, ran, kind(KEY, single_use=True))
    token = await token_of(app, REDEEM)
    assert (await leg(app, *REDEEM, state=token, responses=YES)).result["content"][0]["text"] == "redeemed"
    for _ in range(3):
        assert frozen(await leg(app, *REDEEM, state=token, responses=YES))
    assert ran == ["X"]
    assert "already used" in caplog.text


async def test_of_many_simultaneous_sends_exactly_one_runs(store: Store) -> None:
    ran: list[str] = []
    instances = [once(store, ran), once(store, ran)]
    token = await token_of(instances[0], REDEEM)
    replies = await asyncio.gather(
        *(leg(instances[number % 2], *REDEEM, state=token, responses=YES) for number in range(50))
    )
    assert ran == ["X"]
    assert sum(frozen(reply) for reply in replies) == 49
    assert sum("result" in reply.reply for reply in replies) == 1


async def test_each_round_of_a_flow_has_a_token_of_its_own(store: Store) -> None:
    app = Server("rounds", seal=Seal(KEY, single_use=True), store=store)

    @app.tool
    async def plan(ctx: Context) -> str:
        return " ".join([(await ctx.elicit(f"{key}?", str, key=key)).unwrap() for key in "abc"])

    told = await converse(app, *tool("plan"), answers={key: accept(value=key) for key in "abc"})
    assert told.text == "a b c"
    tokens = [done.token for done in told.rounds if done.asks]
    assert len(set(tokens)) == 3
    for token in tokens:
        assert frozen(await leg(app, *tool("plan"), state=token))


async def test_a_refused_send_does_not_use_a_token_up(store: Store) -> None:
    ran: list[str] = []
    app = once(store, ran)
    token = await token_of(app, REDEEM)
    assert frozen(await leg(app, *REDEEM, state=token, responses=YES, principal="eve"))
    assert frozen(await leg(app, *tool("redeem", code="Y"), state=token, responses=YES))
    assert frozen(await leg(app, *REDEEM, state=token[:-1], responses=YES))
    assert (await leg(app, *REDEEM, state=token, responses=YES)).result["content"]


async def test_without_single_use_a_leg_may_be_sent_again(store: Store) -> None:
    ran: list[str] = []
    app = once(store, ran, Seal(KEY))
    token = await token_of(app, REDEEM)
    for _ in range(2):
        assert (await leg(app, *REDEEM, state=token, responses=YES)).result["content"]
    assert ran == ["X", "X"]


async def test_single_use_holds_without_a_store_of_ones_own() -> None:
    app = deploying(Seal(KEY, single_use=True))
    token = await token_of(app)
    assert (await leg(app, *CALL, state=token, responses=YES)).result["content"]
    assert frozen(await leg(app, *CALL, state=token, responses=YES))


async def test_a_used_token_is_remembered_for_a_while_beyond_its_end() -> None:
    clock = Clock()
    store = MemoryStore(clock=clock)
    app = deploying(Seal(KEY, single_use=True, ttl=100), store=store, clock=clock)
    token = await token_of(app)
    clock.now += 40
    assert (await leg(app, *CALL, state=token, responses=YES)).result["content"]
    clock.now += 60 + CLOCK_SKEW - 1
    assert len(store) == 1
    clock.now += 2
    await store.get("anything")
    assert len(store) == 0


@pytest.mark.parametrize("behind", [0.5, 2, CLOCK_SKEW - 1])
@pytest.mark.parametrize("how", ["set back", "another instance"])
async def test_a_used_token_is_refused_where_the_clock_is_behind(
    how: str, behind: float, caplog: pytest.LogCaptureFixture
) -> None:
    right, clock, other = Clock(), Clock(), Clock()
    store, seal = MemoryStore(clock=right), Seal(KEY, single_use=True, ttl=100)
    app = deploying(seal, store=store, clock=clock)
    token = await token_of(app)
    right.now = clock.now = clock.now + 99.9
    assert (await leg(app, *CALL, state=token, responses=YES)).result["content"]
    right.now += behind
    other.now = right.now - behind
    asked = app if how == "set back" else deploying(seal, store=store, clock=other)
    assert frozen(await leg(asked, *CALL, state=token, responses=YES))
    assert told_why(caplog, "already used")


# --- the audience ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Seal, SignedState])
async def test_servers_that_share_a_key_refuse_each_others_tokens(kind, caplog: pytest.LogCaptureFixture) -> None:
    payments, refunds = deploying(kind(KEY), name="payments"), deploying(kind(KEY), name="refunds")
    token = await token_of(payments)
    assert frozen(await leg(refunds, *CALL, state=token, responses=YES))
    assert told_why(caplog, "forged")
    again = deploying(kind(KEY), name="payments")
    assert (await leg(again, *CALL, state=token, responses=YES)).result["content"]


async def test_a_codec_of_ones_own_is_bound_to_the_server_too() -> None:
    codec = Base64()
    token = await token_of(deploying(codec, name="payments"))
    assert frozen(await leg(deploying(codec, name="refunds"), *CALL, state=token, responses=YES))
    assert (await leg(deploying(codec, name="payments"), *CALL, state=token, responses=YES)).result["content"]


async def test_an_audience_of_ones_own_counts_instead_of_the_name() -> None:
    before, after = (deploying(Seal(KEY, audience=HERE), name=name) for name in ("payments", "payments-2"))
    token = await token_of(before)
    assert (await leg(after, *CALL, state=token, responses=YES)).result["content"]
    elsewhere = deploying(Seal(KEY, audience="https://there"), name="payments")
    assert frozen(await leg(elsewhere, *CALL, state=token, responses=YES))


# --- size and time -----------------------------------------------------------------------------------------------


def noise(size: int) -> str:
    return base64.b64encode(os.urandom(size)).decode()


def filled(what: str) -> Server:
    app = Server("filled", seal=Seal(KEY, max_bytes=3000))

    @app.tool
    async def work(ctx: Context) -> str | InputRequired:
        if what == "state":
            return input_required({"a": ask.form("A?", str)}, state=noise(4000))
        await ctx.step("small", lambda: "small")
        if what == "step":
            await ctx.step("download", noise, 4000)
        await ctx.elicit("A novel?", str, key="novel")
        await ctx.elicit("B?", str, key="b")
        return "done"

    return app


@pytest.mark.parametrize(
    ("what", "named", "rounds"),
    [("state", "state", 0), ("step", "step 'download'", 0), ("answer", "answer 'novel'", 1)],
)
async def test_a_conversation_that_outgrows_its_token_fails_and_the_log_says_what_filled_it(
    what: str, named: str, rounds: int, caplog: pytest.LogCaptureFixture
) -> None:
    told = await converse(filled(what), *tool("work"), answers={"novel": accept(value=noise(4000))})
    assert told.error["code"] == -32603
    assert "too large" in told.error["message"]
    assert len(told.asked) == rounds
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    message = record.getMessage()
    assert "max_bytes=3000" in message
    assert named in message
    if what == "step":
        assert message.index("'download'") < message.index("'small'")


async def test_what_compresses_fits_into_a_small_token() -> None:
    app = Server("filled", seal=Seal(KEY, max_bytes=3000))

    @app.tool
    async def work(ctx: Context) -> str:
        page = await ctx.step("page", lambda: "again and " * 2000)
        await ctx.confirm("Go on?")
        return str(len(page))

    told = await converse(app, *tool("work"), answers=YES)
    assert told.text == "20000"


async def test_a_question_may_have_a_shorter_time_than_the_seal(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    app = Server("timed", seal=Seal(KEY, ttl=600), clock=clock)

    @app.tool
    async def work(ctx: Context) -> str:
        await ctx.confirm("Slow?", key="slow")
        await asyncio.gather(ctx.confirm("Quick?", key="quick", ttl=30), ctx.confirm("Any time?", key="other"))
        return "done"

    first = await leg(app, *tool("work"))
    clock.now += 500
    second = await leg(app, *tool("work"), state=first.token, responses={"slow": accept(confirm=True)})
    answers = {"quick": accept(confirm=True), "other": accept(confirm=True)}
    clock.now += 29
    assert (await leg(app, *tool("work"), state=second.token, responses=answers)).result["content"]
    clock.now += 2
    assert frozen(await leg(app, *tool("work"), state=second.token, responses=answers))
    assert told_why(caplog, "expired")


@pytest.mark.parametrize("style", ["await", "return"])
async def test_a_question_may_have_a_longer_time_than_the_seal(style: str) -> None:
    clock = Clock()
    app = Server("timed", seal=Seal(KEY, ttl=60), clock=clock)

    @app.tool(name="await")
    async def awaiting(ctx: Context) -> str:
        return str((await ctx.elicit("Over night?", bool, key="a", ttl=86_400)).unwrap())

    @app.tool(name="return")
    async def returning(ctx: Context) -> str | InputRequired:
        answer = ctx.accepted("a", bool)
        return input_required({"a": ask.form("Over night?", bool, ttl=86_400)}) if answer is None else str(answer)

    first = await leg(app, *tool(style))
    clock.now += 80_000
    last = await leg(app, *tool(style), state=first.token, responses={"a": accept(value=True)})
    assert last.result["content"][0]["text"] == "True"


# --- who may ask, and what is cached -----------------------------------------------------------------------------


async def test_results_that_ask_are_never_cached() -> None:
    app = Server("cached", seal=Seal(KEY), list_ttl=100)

    @app.resource("page://a", ttl=100, scope="public")
    async def page(ctx: Context) -> str:
        return str(await ctx.confirm("Read?"))

    @app.resource("page://b", ttl=100, scope="public")
    async def returned(ctx: Context) -> str | InputRequired:
        answer = ctx.accepted("confirm", bool)
        return input_required({"confirm": ask.form("Read?", bool)}) if answer is None else str(answer)

    for uri, answer in (("page://a", accept(confirm=True)), ("page://b", accept(value=True))):
        told = await converse(app, *resource(uri), answers={"confirm": answer})
        assert told.rounds[0].result.keys() == {"resultType", "inputRequests", "requestState", "_meta"}
        assert told.result["ttlMs"] == 0


async def test_a_low_level_read_that_asks_is_not_cached() -> None:
    app = Server("cached", seal=Seal(KEY), list_ttl=100)

    @app.on("resources/read")
    async def read(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        text = str(await ctx.confirm("Read?"))
        return {"contents": [{"uri": params["uri"], "text": text}]}

    told = await converse(app, *resource("page://a"), answers=YES)
    assert "ttlMs" not in told.rounds[0].result
    assert "ttlMs" in told.result


def curious() -> Iterator[tuple[str, Server, tuple[str, dict[str, Any]]]]:
    """Handlers of methods that may not ask, trying to."""

    async def awaits(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        await ctx.confirm("Sure?")
        return {}

    async def careless(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        try:
            await ctx.confirm("Sure?")
        except Exception:
            return {"tools": []}
        return {"tools": []}

    async def returns(params: dict[str, Any], ctx: Context) -> InputRequired:
        return input_required({"a": ask.form("Sure?", bool)})

    async def sheds(params: dict[str, Any], ctx: Context) -> InputRequired:
        return input_required(state=1)

    for method in ("tools/list", "prompts/list", "resources/list", "completion/complete", "custom/method"):
        for handler in (awaits, careless, returns, sheds):
            app = Server("curious")
            app.on(method)(handler)
            yield f"{method} {handler.__name__}", app, (method, {})


@pytest.mark.parametrize(("app", "call"), [pytest.param(app, call, id=name) for name, app, call in curious()])
async def test_only_tools_prompts_and_resources_may_ask(app: Server, call) -> None:
    done = await leg(app, *call)
    assert done.reply["error"]["code"] == -32603
    assert "requestState" not in json.dumps(done.reply)


async def test_a_completion_may_not_ask() -> None:
    app = Server("completing")

    @app.prompt
    async def greet(name: str) -> str:
        return name

    @app.complete("greet", "name")
    async def names(value: str, ctx: Context) -> list[str]:
        await ctx.confirm("Sure?")
        return ["Ada"]

    params = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}}
    done = await leg(app, "completion/complete", params)
    assert done.reply["error"]["code"] == -32603
    assert "may not ask" in done.reply["error"]["message"]


async def test_a_method_that_may_not_ask_does_not_look_at_a_token() -> None:
    done = await leg(deploying(), "tools/list", {}, state="anything", responses={"a": 1})
    assert done.result["tools"]


async def test_answers_without_a_token_begin_a_new_conversation() -> None:
    app = deploying()
    first = await leg(app, *CALL, state=ABSENT, responses=YES)
    assert list(first.questions) == ["confirm"]
