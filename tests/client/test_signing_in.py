"""A client signs in: when it is told to, once, and without getting in its own way."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from antiphon import Accepted, CallTimeout, Client, Context, Refused, Server, SignInFailed
from antiphon.auth import Bearer, ClientCredentials, File, Login, LoginNeeded, Memory, OAuth, Protected
from antiphon.testing.issuer import Issuer

from .until import until

ERAS = pytest.mark.parametrize("era", ["2026-07-28", *(["legacy"] if find_spec("antiphon.legacy") else [])])


@pytest.fixture
async def issuer():
    made = Issuer(clients={"svc": "hush"})
    async with made.serving():
        yield made


def protected(live, issuer, **options):
    """Serve a protected server; return its URL and the server."""
    holder = {}

    async def door(scope, receive, send):
        await holder["app"](scope, receive, send)

    port = live(door)
    url = f"http://127.0.0.1:{port}/mcp"
    app = Server("notes", auth=Protected(url, issuer=issuer.url, scopes=["read"], **options))
    app.ran = []

    @app.tool
    async def who(ctx: Context) -> str:
        return f"{ctx.auth.subject} {' '.join(sorted(ctx.auth.scopes))}"

    @app.tool
    async def extensions(ctx: Context) -> list[str]:
        return sorted(ctx.client.capabilities.get("extensions", {}))

    @app.tool(scopes=["write"])
    async def add(ctx: Context) -> str:
        sure = await ctx.confirm("Really?")
        app.ran.append(sure)
        return f"{ctx.auth.subject} {sure}"

    @app.tool
    async def wait() -> str:
        await asyncio.sleep(0.3)
        return "waited"

    holder["app"] = app.asgi()
    return url, app


def logins(issuer):
    return [form for path, form in issuer.asked if path == "/token" and form["grant_type"] == "authorization_code"]


def refreshes(issuer):
    return [form for path, form in issuer.asked if path == "/token" and form["grant_type"] == "refresh_token"]


@ERAS
async def test_a_client_signs_in_when_the_server_asks_and_steps_up_when_a_tool_needs_it(issuer, live, era):
    url, app = protected(live, issuer)
    async with Client(url, auth=OAuth(visit=issuer.visit), elicit=lambda _: Accepted(True), era=era) as client:
        assert (await client.call_tool("who")).text == "ada read"
        assert (await client.call_tool("add")).text == "ada True"
        assert (await client.call_tool("who")).text == "ada read write"
    assert app.ran == [True]
    assert len(logins(issuer)) == 2


@ERAS
async def test_parallel_calls_sign_in_once_and_do_not_wait_for_each_other(issuer, live, era):
    url, _ = protected(live, issuer)
    async with Client(url, auth=OAuth(visit=issuer.visit), era=era) as client:
        await asyncio.gather(*(client.call_tool("who") for _ in range(10)))
        assert len(logins(issuer)) == 1
        taken = []
        for _ in range(3):  # the best of three: others load the machine
            begun = time.perf_counter()
            await asyncio.gather(*(client.call_tool("wait") for _ in range(4)))
            taken.append(time.perf_counter() - begun)
            if taken[-1] < 0.45:
                break
        assert min(taken) < 0.45  # one after the other would take 1.2


async def test_a_client_that_starts_again_refreshes_and_opens_no_browser(issuer, live, tmp_path):
    url, _ = protected(live, issuer)
    keep = File(tmp_path / "keep")
    async with Client(url, auth=OAuth(visit=issuer.visit, keep=keep)) as client:
        await client.call_tool("who")
    path = next((tmp_path / "keep").glob("*.json"))
    kept = json.loads(path.read_text())
    kept["token"]["expires"] = time.time() - 1
    path.write_text(json.dumps(kept))
    issuer.asked.clear()
    async with Client(url, auth=OAuth(visit=None, keep=File(tmp_path / "keep"))) as client:
        assert (await client.call_tool("who")).text == "ada read"
    assert [asked for asked, _ in issuer.asked if asked != "/jwks"] == ["/token"]
    assert len(refreshes(issuer)) == 1


async def test_a_token_that_ends_between_two_rounds_is_renewed_and_the_conversation_goes_on(issuer, live):
    ended = set()

    async def check(token):
        seen.add(token)
        return None if token in ended else await issuer.identify(token, [url])

    seen = set()
    url, app = protected(live, issuer, verify=check)

    async def answer(_):
        ended.update(seen)
        app.auth.forget()
        return Accepted(True)

    async with Client(url, auth=OAuth(visit=issuer.visit, scopes=["write"]), elicit=answer) as client:
        assert (await client.call_tool("add")).text == "ada True"
    assert app.ran == [True]
    assert (len(logins(issuer)), len(refreshes(issuer))) == (1, 1)


async def test_a_scope_that_is_missing_in_the_second_round_costs_one_login_and_the_conversation_goes_on(issuer, live):
    states = []
    url, app = protected(live, issuer)

    @app.tool
    async def late(ctx: Context) -> str:
        sure = await ctx.confirm("Really?")
        await ctx.need("write")
        app.ran.append(sure)
        return f"{ctx.auth.subject} {sure}"

    @app.middleware
    async def note(ctx, proceed):
        result = await proceed(ctx)
        states.append(result.get("requestState"))
        return result

    async with Client(url, auth=OAuth(visit=issuer.visit), elicit=lambda _: Accepted(True)) as client:
        assert (await client.call_tool("late")).text == "ada True"
    assert app.ran == [True]
    assert states[0] is not None
    assert states[1:] == [None]  # asked once: the state was good to the end
    assert len(logins(issuer)) == 2


@pytest.mark.heavy
@ERAS
async def test_a_subscription_ends_with_its_token_and_comes_back_with_a_new_one(issuer, live, era, monkeypatch):
    for module in ("antiphon.transports.authorization.LEEWAY", "antiphon.oauth.jose.LEEWAY"):
        monkeypatch.setattr(module, 0.0)
    issuer.expires_in = 2
    url, app = protected(live, issuer)
    async with Client(url, auth=OAuth(visit=issuer.visit), era=era) as client, asyncio.timeout(30):
        changes = client.subscribe(tools=True)
        # When the stream has ended, all may have changed.
        assert (await anext(changes)).kind == "tools"
        await until(lambda: refreshes(issuer))
        heard = asyncio.ensure_future(anext(changes))
        while not heard.done():
            app.changed("tools")
            await asyncio.wait({heard}, timeout=0.2)
        assert heard.result().kind == "tools"
        await changes.aclose()
    assert len(logins(issuer)) == 1


async def test_a_login_is_data_that_another_client_finishes(issuer, live):
    url, _ = protected(live, issuer)
    async with Client(url, auth=OAuth(visit=None, redirect="https://app.example/back")) as client:
        with pytest.raises(LoginNeeded) as needed:
            await client.call_tool("who")
    text = needed.value.login.to_json()
    login = Login.from_json(text)
    back = await issuer.visit(login.url, login.redirect)
    async with Client(url, auth=OAuth(visit=None, redirect="https://app.example/back")) as other:
        with pytest.raises(SignInFailed, match="another login"):
            await other.sign_in(login, back.replace("state=", "state=x"))
        await other.sign_in(login, back)
        assert (await other.call_tool("who")).text == "ada read"
        with pytest.raises(SignInFailed, match="invalid_grant"):
            await other.sign_in(login, back)


async def test_a_cancelled_caller_leaves_the_login_to_the_others(issuer, live):
    url, _ = protected(live, issuer)
    arrived, leave = asyncio.Event(), asyncio.Event()

    async def visit(page, redirect):
        arrived.set()
        await leave.wait()
        return await issuer.visit(page, redirect)

    async with Client(url, auth=OAuth(visit=visit)) as client:
        first = asyncio.create_task(client.call_tool("who"))
        await arrived.wait()
        second = asyncio.create_task(client.call_tool("who"))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        leave.set()
        assert (await second).text == "ada read"
        assert (await client.call_tool("who")).text == "ada read"
    assert len(logins(issuer)) == 1


@ERAS
@pytest.mark.parametrize("first", ["who", "tools"])
async def test_the_time_at_the_browser_is_not_the_servers(issuer, live, era, first):
    url, _ = protected(live, issuer)

    async def visit(page, redirect):
        await asyncio.sleep(0.6)  # a person's time
        return await issuer.visit(page, redirect)

    answer = {"elicit": lambda _: Accepted(True)}
    async with Client(url, auth=OAuth(visit=visit), timeout=0.5, era=era, **answer) as client:
        if first == "tools":
            assert len(await client.list_tools()) == 4
        assert (await client.call_tool("who")).text == "ada read"
        assert (await client.call_tool("add")).text == "ada True"  # steps up: another visit
    assert len(logins(issuer)) == 2


@ERAS
async def test_the_time_at_the_browser_is_the_persons(issuer, live, era):
    url, _ = protected(live, issuer)

    async def visit(page, redirect):
        await asyncio.get_running_loop().create_future()

    with pytest.raises(CallTimeout, match="sign-in was not finished within 0.2"):
        async with Client(url, auth=OAuth(visit=visit), patience=0.2, era=era) as client:
            await client.call_tool("who")


@ERAS
async def test_a_call_beside_a_sign_in_ends_as_if_there_were_none(issuer, live, era):
    url, _ = protected(live, issuer)
    arrived, leave = asyncio.Event(), asyncio.Event()

    async def visit(page, redirect):
        if "write" in page:
            arrived.set()
            await leave.wait()
        return await issuer.visit(page, redirect)

    answer = {"elicit": lambda _: Accepted(True)}
    async with Client(url, auth=OAuth(visit=visit), timeout=0.5, era=era, **answer) as client:
        await client.call_tool("who")
        stepping_up = asyncio.create_task(client.call_tool("add"))
        await arrived.wait()
        assert (await client.call_tool("wait")).text == "waited"
        with pytest.raises(CallTimeout, match="server"):
            await client.call_tool("wait", timeout=0.1)
        leave.set()
        assert (await stepping_up).text == "ada True"


async def test_a_program_signs_in_as_itself(issuer, live):
    url, _ = protected(live, issuer)
    async with Client(url, auth=ClientCredentials("svc", "hush", issuer=issuer.url)) as client:
        assert (await client.call_tool("who")).text == "svc read"
        declared = (await client.call_tool("extensions")).structured
        assert declared == ["io.modelcontextprotocol/oauth-client-credentials"]
    with pytest.raises(SignInFailed, match="invalid_client"):
        async with Client(url, auth=ClientCredentials("svc", "wrong", issuer=issuer.url)) as client:
            await client.call_tool("who")
    with pytest.raises(SignInFailed, match="nothing was sent"):
        async with Client(url, auth=ClientCredentials("svc", "hush", issuer="https://other.example")) as client:
            await client.call_tool("who")
    assert all("hush" not in str(form) for _, form in issuer.asked)


async def test_a_token_of_ones_own_is_sent_as_it_is(issuer, live):
    url, _ = protected(live, issuer)
    token = issuer.token("bob", audience=url, scopes=["read"])
    async with Client(url, auth=Bearer(token)) as client:
        assert (await client.call_tool("who")).text == "bob read"
    tokens = iter(["stale", token])

    async def next_token():
        return next(tokens)

    async with Client(url, auth=Bearer(next_token)) as client:
        assert (await client.list_tools()) != []


async def test_a_client_without_auth_is_told_what_to_pass(issuer, live):
    url, _ = protected(live, issuer)
    with pytest.raises(Refused, match=r"auth=OAuth\(\)") as refused:
        async with Client(url) as client:
            await client.call_tool("who")
    assert refused.value.status == 401


def test_auth_is_for_https_or_this_machine():
    with pytest.raises(TypeError, match="URL"):
        Client(["python", "x.py"], auth=OAuth())
    with pytest.raises(TypeError, match="URL"):
        Client(Server("x"), auth=Bearer("x"))
    with pytest.raises(ValueError, match="https"):
        Client("http://mcp.example.com/mcp", auth=OAuth())
    with pytest.raises(TypeError, match="issuer"):
        OAuth(client_id="a", client_secret="b")
    with pytest.raises(TypeError):
        ClientCredentials("svc", "hush")


async def test_this_machine_is_reached_without_the_proxy_of_the_environment(issuer, live, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    url, _ = protected(live, issuer)
    async with Client(url, auth=OAuth(visit=issuer.visit)) as client:
        assert (await client.call_tool("who")).text == "ada read"


async def test_signing_out_revokes_and_forgets(issuer, live):
    url, _ = protected(live, issuer)
    keep = Memory()
    async with Client(url, auth=OAuth(visit=issuer.visit, keep=keep)) as client:
        await client.sign_in()
        assert (await client.call_tool("who")).text == "ada read"
        await client.sign_out()
        assert [path for path, _ in issuer.asked][-2:] == ["/revoke", "/revoke"]
        await client.call_tool("who")
    assert len(logins(issuer)) == 2


async def test_a_server_that_never_has_enough_ends_in_an_error(issuer, live):
    url, app = protected(live, issuer)

    @app.tool
    async def greedy(ctx: Context) -> str:
        await ctx.need(f"scope-{len(logins(issuer))}")
        return "never"

    async with Client(url, auth=OAuth(visit=issuer.visit)) as client:
        with pytest.raises(Refused) as refused:
            await client.call_tool("greedy")
    assert refused.value.status == 403
    assert len(logins(issuer)) <= 4


async def test_parallel_first_calls_ask_for_one_token(issuer, live):
    url, _ = protected(live, issuer)
    async with Client(url, auth=ClientCredentials("svc", "hush", issuer=issuer.url)) as client:
        await asyncio.gather(*(client.call_tool("who") for _ in range(5)))
    assert [path for path, _ in issuer.asked].count("/token") == 1


async def test_each_way_to_sign_in_has_a_login_of_its_own(issuer, live):
    url, _ = protected(live, issuer)
    keep = Memory()
    async with Client(url, auth=OAuth(visit=issuer.visit, keep=keep)) as client:
        assert (await client.call_tool("who")).text == "ada read"
    async with Client(url, auth=ClientCredentials("svc", "hush", issuer=issuer.url, keep=keep)) as client:
        assert (await client.call_tool("who")).text == "svc read"
    async with Client(url, auth=OAuth(visit=None, keep=keep)) as client:
        assert (await client.call_tool("who")).text == "ada read"


async def test_a_kept_token_of_another_issuer_is_not_sent(issuer, live):
    url, _ = protected(live, issuer)
    keep = Memory()
    async with Client(url, auth=OAuth(visit=issuer.visit, keep=keep)) as client:
        await client.call_tool("who")
    other = OAuth(visit=issuer.visit, keep=keep, issuer="https://other.example")
    with pytest.raises(SignInFailed, match="nothing was sent"):
        async with Client(url, auth=other) as client:
            await client.call_tool("who")


async def test_a_token_that_is_refused_at_once_is_not_asked_for_again_and_again(issuer, live):
    url, _ = protected(live, issuer, verify=lambda _: None)
    async with Client(url, auth=OAuth(visit=issuer.visit)) as client:
        calls = [client.call_tool("who") for _ in range(4)]
        done = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(fault, SignInFailed) for fault in done), done
    assert len(logins(issuer)) <= 2


def test_a_url_with_a_user_in_it_is_refused_and_not_repeated():
    with pytest.raises(ValueError, match="user name") as refused:
        Client("https://ada:secret@mcp.example.com/mcp", auth=OAuth())
    assert "secret" not in str(refused.value)


# --- ten processes on one keep ------------------------------------------------------------------------------------


async def keep_calling(url, keep, *person):
    """Run ten processes that call for some seconds; return them with what they wrote."""
    script = str(Path(__file__).with_name("signed_in_file.py"))
    command = [sys.executable, script, url, str(keep), "8", *person]
    pipe = asyncio.subprocess.PIPE
    started = [asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe) for _ in range(10)]
    processes = await asyncio.gather(*started)
    ended = await asyncio.gather(*(process.communicate() for process in processes))
    return [(process.returncode, out, err.decode()) for process, (out, err) in zip(processes, ended, strict=True)]


@pytest.mark.heavy
async def test_processes_on_one_keep_use_each_refresh_token_once(live, tmp_path):
    issuer = Issuer(expires_in=1)
    async with issuer.serving():
        url, _ = protected(live, issuer)
        async with Client(url, auth=OAuth(visit=issuer.visit, keep=File(tmp_path / "keep"))) as client:
            await client.call_tool("who")
        ended = await keep_calling(url, tmp_path / "keep")
    assert [code for code, _, _ in ended] == [0] * 10, ended
    assert all(int(out) > 10 for _, out, _ in ended)
    used = [form["refresh_token"] for form in refreshes(issuer)]
    assert len(used) == len(set(used)) >= 5
    assert len(logins(issuer)) == 1


class Deadly(Issuer):
    """Kills the process that asks for the second refresh, before or after it has given another token."""

    def __init__(self, keep, when, **options):
        super().__init__(**options)
        self._keep = keep
        self._when = when
        self._seen = 0

    def _token(self, form, headers):
        self._seen += form.get("grant_type") == "refresh_token"
        if form.get("grant_type") != "refresh_token" or self._seen != 2:
            return super()._token(form, headers)
        reply = super()._token(form, headers) if self._when == "after" else (503, {})
        self._kill()
        return reply

    def _kill(self):
        """The process that refreshes is the one that holds a lock of the keep."""
        inodes = {lock.stat().st_ino for lock in self._keep.glob("*.lock")}
        rows = [row.split() for row in Path("/proc/locks").read_text().splitlines()]
        (pid,) = {int(row[4]) for row in rows if row[1] == "FLOCK" and int(row[5].split(":")[2]) in inodes}
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(OSError):  # it is gone
            while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                pass


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("when", "grace", "lost"),
    [("before", 0, False), ("after", 30, False), ("after", 0, True)],
    ids=["before the issuer rotates", "at an issuer with a grace period", "after the issuer has rotated"],
)
async def test_a_process_that_is_killed_in_its_refresh_costs_the_others_no_call(live, tmp_path, when, grace, lost):
    async def check(token):
        identity = await issuer.identify(token, [url])
        return identity if identity is not None and identity.expires_at > time.time() else None  # to the second

    keep = tmp_path / "keep"
    issuer = Deadly(keep, when, expires_in=2, grace=grace)
    async with issuer.serving():
        url, _ = protected(live, issuer, verify=check)
        async with Client(url, auth=OAuth(visit=issuer.visit, keep=File(keep))) as client:
            await client.call_tool("who")
        ended = await keep_calling(url, keep, *(["person"] if lost else []))
    assert sorted(code for code, _, _ in ended) == [-signal.SIGKILL, *[0] * 9], ended
    assert all(int(out) > 10 for code, out, _ in ended if code == 0)
    # Where nothing of the new token is left, one person signs in once, and is told why.
    assert len(logins(issuer)) == (2 if lost else 1)
    assert "".join(err for _, _, err in ended).count("a process ended while it renewed") == lost
