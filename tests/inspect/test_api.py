"""The API of `antiphon inspect`, over HTTP, with real servers of both eras."""

import asyncio
import json
import os
import re
import sys
import urllib.error
import urllib.request
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio
from msgspec.structs import replace

from antiphon import Client, Server, SQLiteStore
from antiphon.client.inbox import Inbox
from antiphon.inspect import safety
from antiphon.inspect.app import InspectApp
from antiphon.inspect.inspector import Inspector
from antiphon.inspect.instance import Spot
from antiphon.testing import Script, serving
from antiphon.testing.cassette.format import Cassette
from antiphon.testing.cassette.links import Player
from antiphon.testing.servers import new_key
from antiphon.testing.suite import load, run

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRAVEL = Path(__file__).with_name("travel.py")
SECRET = "a secret of this test"
BOOK = {"method": "tools/call", "params": {"name": "book", "arguments": {"traveller": "Ada"}}}
LISBON = {"trip": {"action": "accept", "content": {"city": "Lisbon", "nights": 3}}}
OSLO = {"trip": {"action": "accept", "content": {"city": "Oslo", "nights": 14}}}
YES = {"sure": {"action": "accept", "content": {"confirm": True}}}
ERAS = ["2026-07-28", "2025-11-25"]


def file_spot(file=TRAVEL):
    command = [sys.executable, "-m", "antiphon", "serve", str(file)]
    env = {"ANTIPHON_KEYS": new_key()}
    return Spot(target=command, text=str(file), label=file.name, file=str(file), versions=("2026-07-28",), env=env)


class Api:
    def __init__(self, url, inspector):
        self.url = url
        self.inspector = inspector

    async def __call__(self, path, data=None, *, status=200, **headers):
        def ask():
            body = None if data is None else json.dumps(data).encode()
            fields = {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json", **headers}
            request = urllib.request.Request(self.url + path, data=body, headers=fields)
            try:
                with urllib.request.urlopen(request) as response:
                    return response.status, response.headers, response.read()
            except urllib.error.HTTPError as fault:
                with fault:
                    return fault.code, fault.headers, fault.read()

        code, self.headers, body = await asyncio.to_thread(ask)
        assert code == status, body
        return json.loads(body) if "json" in self.headers["content-type"] else body.decode()

    async def until(self, wanted):
        """Wait until something is so; look again whenever an event comes."""
        async with asyncio.timeout(20), aclosing(self.inspector.feed.stream()) as events:
            async for _ in events:
                if (found := await wanted()) is not None:
                    return found
        raise AssertionError("the events ended")

    async def settled(self, id_):
        async def look():
            found = await self(f"/api/calls/{id_}")
            return None if found["status"] == "running" else found

        return await self.until(look)

    async def begin(self, call=BOOK, **about):
        return await self.settled((await self("/api/calls", {**call, **about}))["id"])

    async def answer(self, call, answers):
        await self(f"/api/calls/{call['id']}/answer", {"round": len(call["rounds"]), "answers": answers})
        return await self.settled(call["id"])

    async def booked(self, **about):
        return await self.answer(await self.answer(await self.begin(**about), LISBON), YES)

    async def fork(self, call, how, round_=1, *, status=200, **about):
        made = await self(f"/api/calls/{call['id']}/fork", {"how": how, "round": round_, **about}, status=status)
        return await self.settled(made["id"]) if status == 200 else made


@asynccontextmanager
async def inspecting(spot, **about):
    inspector = Inspector(spot, **about)
    async with serving(lambda _: InspectApp(inspector, secret=SECRET, user="ada")) as url:
        task = asyncio.create_task(inspector.run())
        api = Api(url, inspector)

        async def connected():
            return None if inspector.status == "connecting" else api

        try:
            await api.until(connected)
            yield api
        finally:
            task.cancel()
            await asyncio.wait({task})


def told(place):
    return "\n".join("".join(part["text"] for part in row["parts"]) for row in place["lines"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api():
    async with inspecting(file_spot()) as api:
        yield api


# --- what a server offers -----------------------------------------------------------------------------------------


async def test_the_state_says_who_the_server_is_and_what_it_offers(api):
    state = await api("/api/state")
    assert (state["status"], state["server"]["name"], state["target"]["kind"]) == ("connected", "travel", "file")
    assert (state["eras"], state["keys"]) == (ERAS, True)
    offers = state["offers"]
    assert {"book", "plan", "harm"} <= {tool["name"] for tool in offers["tools"]}
    assert [prompt["name"] for prompt in offers["prompts"]] == ["itinerary"]
    assert [template["variables"] for template in offers["templates"]] == [["number"]]
    assert offers["problems"] == []


@pytest.mark.parametrize("behind", ["2026-07-28", "legacy"])
async def test_a_server_is_inspected_through_a_bridge(behind):
    command = [sys.executable, "-m", "antiphon", "bridge", str(TRAVEL), "--era", behind]
    spot = Spot(target=command, text="bridge", label="bridge", env={"ANTIPHON_KEYS": new_key()})
    async with inspecting(spot) as api:
        assert (await api("/api/state"))["server"]["name"] == "travel"
        for era in ERAS:
            call = await api.booked(era=era)
            assert (call["status"], len(call["rounds"])) == ("done", 3)


async def test_prompts_are_completed_and_templates_are_filled_in(api):
    found = await api("/api/complete", {"prompt": "itinerary", "argument": "city", "value": "Li"})
    assert found["values"] == ["Lisbon"]
    read = await api.begin({"method": "resources/read", "template": "trip://{number}", "variables": {"number": "a/7"}})
    assert read["params"] == {"uri": "trip://a%2F7"}
    assert read["rounds"][0]["result"]["contents"][0]["text"] == "Trip a/7 goes to Oslo."
    prompt = await api.begin({"method": "prompts/get", "params": {"name": "itinerary", "arguments": {"city": "Oslo"}}})
    assert "Oslo" in prompt["rounds"][0]["result"]["messages"][0]["content"]["text"]


# --- a conversation -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_is_held_at_every_round_until_it_is_answered(api, era):
    call = await api.begin(era=era)
    assert (call["status"], call["era"], list(call["rounds"][0]["questions"])) == ("waiting", era, ["trip"])
    call = await api.answer(call, LISBON)
    assert call["rounds"][1]["questions"]["sure"]["params"]["message"].startswith("3 nights in Lisbon")
    call = await api.answer(call, YES)
    assert call["status"] == "done"
    assert call["rounds"][2]["result"]["content"][0]["text"] == "Booked: 3 nights in Lisbon for Ada, 280 euros."
    assert [step["kind"] for step in call["steps"]] == ["call", "question", "answer", "question", "answer", "result"]
    sent = [frame["message"].get("method") for round_ in call["rounds"] for frame in round_["frames"]]
    pushed = ["tools/call", *["elicitation/create", None] * 2, None]
    # An older server is told the level of the log once, by a request of its own.
    assert sent[-6:] == (pushed if era == "2025-11-25" else ["tools/call", None] * 3)
    late = await api(f"/api/calls/{call['id']}/answer", {"round": 1, "answers": LISBON}, status=409)
    assert "does not wait" in late["error"]


async def test_an_answer_that_is_missing_leaves_the_round_waiting(api):
    call = await api.begin()
    told = await api(f"/api/calls/{call['id']}/answer", {"round": 1, "answers": {}}, status=409)
    assert told == {"error": "There is no answer for trip"}
    assert (await api.answer(call, {"trip": {"action": "decline"}}))["status"] == "done"


async def test_the_token_is_opened_and_says_what_ran(api):
    call = await api.answer(await api.begin(), LISBON)
    first, second = (round_["token"] for round_ in call["rounds"])
    assert (first["opened"]["steps"], second["opened"]["steps"]) == ({}, {"price": 280})
    assert second["opened"]["answers"] == LISBON
    assert second["opened"]["asked"] == {"sure": {"drift": 0}}
    assert second["opened"]["bound_to"]["audience"] == "travel"
    assert second["bytes"] == len(second["text"]) > first["bytes"]
    assert call["rounds"][1]["ran"] == {"ran": ["price"], "recalled": ["trip"], "asked": ["sure"], "known": True}


async def test_progress_and_logs_are_events_and_stay_with_their_round(api):
    call = await api.begin({"method": "tools/call", "params": {"name": "pack"}})
    assert call["rounds"][0]["progress"] == {"progress": 1, "total": 2, "message": "packing"}
    assert [log["data"] for log in call["rounds"][0]["logs"]] == ["the suitcase is full"]
    notices = [each for each in (await api("/api/state"))["notices"] if each.get("call") == call["id"]]
    assert [(each["kind"], each["level"]) for each in notices] == [("log", "warning")]


async def test_a_call_is_given_up_or_left_for_later(api, tmp_path):
    call = await api.begin()
    later = await api(f"/api/calls/{call['id']}/later", {})
    waiting = tmp_path / later["name"]
    waiting.write_text(later["text"])
    waiting.chmod(0o600)
    from antiphon.cli.files import load_call

    target, pending = load_call(waiting, None)
    assert (target.text, list(pending.questions)) == (str(TRAVEL), ["trip"])
    assert (await api(f"/api/calls/{call['id']}/cancel", {}))["status"] == "cancelled"
    old = await api.begin(era="2025-11-25")
    assert "older era" in (await api(f"/api/calls/{old['id']}/later", {}, status=409))["error"]


async def test_a_call_that_is_left_for_later_is_answered_in_the_inbox(tmp_path, monkeypatch):
    spot = file_spot()
    monkeypatch.setenv("ANTIPHON_KEYS", spot.env["ANTIPHON_KEYS"])
    inbox = Inbox(SQLiteStore(tmp_path / "inbox.db"))
    async with inspecting(replace(spot, env={}), inbox=inbox) as api:
        call = await api.answer(await api.begin(), LISBON)
        left = await api(f"/api/calls/{call['id']}/later", {})
        (row,) = await inbox.waiting()
        assert left["inbox"] == f"{(await api('/api/state'))['inbox']}{row.id}"
        page = await api(left["inbox"], Authorization="")
        assert "3 nights in Lisbon for 280 euros" in page
        await api("/inbox/guess/", status=404)
        assert (await api(f"/api/calls/{call['id']}"))["status"] == "cancelled"
        await inbox.answer(row.id, YES, by="ada")
        assert (await inbox.result(row.id)).text.startswith("Booked: 3 nights")


# --- forks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_fork_with_another_answer_says_what_differs(api, era):
    call = await api.booked(era=era)
    fork = await api.fork(call, "answer", answers=OSLO)
    assert (fork["status"], fork["parent"]["how"], fork["era"]) == ("waiting", "answer", era)
    (place,) = fork["differs"]["places"]
    assert "14 nights in Oslo for 1160 euros. Book it?" in told(place)
    fork = await api.answer(fork, YES)
    assert told(fork["differs"]["places"][1]).startswith("Booked: 3")
    parent = await api(f"/api/calls/{call['id']}")
    assert [(each["id"], each["round"]) for each in parent["forks"]] == [(fork["id"], 1)]


async def test_a_token_is_sent_twice_spoiled_and_expired(api):
    call = await api.booked()
    twice = await api.fork(call, "twice")
    assert (twice["status"], twice["differs"]) == ("waiting", {"same": True, "places": []})
    for how in ("spoiled", "expired"):
        fork = await api.fork(call, how)
        assert (fork["status"], fork["rounds"][1]["error"]["code"]) == ("failed", -32602)
        assert fork["differs"]["same"] is False


async def test_a_fresh_instance_goes_on_and_the_other_era_says_the_same(api):
    call = await api.booked()
    fresh = await api.fork(call, "fresh", 2)
    assert (fresh["status"], fresh["differs"]) == ("done", {"same": True, "places": []})
    other = await api.fork(call, "era")
    assert (other["status"], other["era"], other["differs"]["same"]) == ("done", "2025-11-25", True)


async def test_the_older_era_has_no_token_to_fork_with(api):
    call = await api.booked(era="2025-11-25")
    assert call["can"]["fork"]["twice"] == (await api.fork(call, "twice", status=409))["error"]
    fresh = await api.fork(call, "fresh", 2)
    assert (fresh["status"], fresh["era"]) == ("done", "2025-11-25")
    assert "made again" in fresh["parent"]["note"]


# --- taken away ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_saved_test_passes_and_a_saved_cassette_replays(api, era, tmp_path):
    call = await api.booked(era=era)
    suite = await api(f"/api/calls/{call['id']}/export/test")
    (tmp_path / suite["name"]).write_text(suite["text"])
    report = await run(load(tmp_path / suite["name"]))
    assert report.passed
    cassette = Cassette.from_json((await api(f"/api/calls/{call['id']}/export/cassette"))["text"])
    player = Player(cassette)
    async with Client(player, **Script({"trip": {"city": "Lisbon", "nights": 3}, "sure": True}).handlers()) as client:
        assert (await client.call_tool("book", {"traveller": "Ada"})).text.startswith("Booked: 3 nights")
        assert client.protocol_version == era
    player.check()


async def test_a_saved_test_holds_what_looks_like_variables_and_matchers(api, tmp_path):
    arguments = {"name": "${env:HOME} $${x}", "stops": [{"city": "contains", "days": 2}]}
    call = await api.begin({"method": "tools/call", "params": {"name": "plan", "arguments": arguments}})
    suite = await api(f"/api/calls/{call['id']}/export/test")
    (tmp_path / suite["name"]).write_text(suite["text"])
    assert (await run(load(tmp_path / suite["name"]))).passed


@pytest.mark.heavy
async def test_a_call_is_copied_as_a_command_that_runs(api):
    call = await api.booked()
    command = await api(f"/api/calls/{call['id']}/export/call")
    assert command["text"] == f"antiphon call {TRAVEL} book traveller=Ada\n"
    curl = (await api(f"/api/calls/{call['id']}/export/curl"))["text"]
    script = await api(f"/api/calls/{call['id']}/export/python")
    env = {**os.environ, **api.inspector.spot.env}
    for words, text in ((["sh", "-e"], curl), ([sys.executable, "-"], script["text"])):
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=env
        )
        out, _ = await process.communicate(text.encode())
        assert b"Booked: 3 nights in Lisbon" in out


@pytest.mark.heavy
async def test_replay_safety_is_checked_in_a_process_of_its_own(api):
    call = await api.booked()
    report = await api(f"/api/calls/{call['id']}/replay-safety", {})
    assert report == {"ok": True, "text": ""}
    call = await api.answer(await api.begin({"method": "tools/call", "params": {"name": "clock"}}), YES)
    report = await api(f"/api/calls/{call['id']}/replay-safety", {})
    assert report["ok"] is False
    assert "travel.py" in report["text"]
    assert "ctx.now()" in report["text"]
    call = await api.begin({"method": "tools/call", "params": {"name": "pack"}})
    assert "Nothing was asked" in (await api(f"/api/calls/{call['id']}/replay-safety", {}))["text"]
    call = await api.begin()
    unfinished = await api(f"/api/calls/{call['id']}/replay-safety", {}, status=502)
    assert "The check could not be made" in unfinished["error"]


@pytest.mark.parametrize(
    ("checks", "ok"),
    [
        ([{"name": "replay safety", "passed": True}], True),
        ([{"name": "replay safety", "passed": True}, {"name": "call", "problem": "The tool failed"}], None),
        ([{"name": "replay safety", "passed": False, "problem": "a.py:1"}, {"name": "x", "problem": "Failed"}], False),
    ],
)
async def test_a_call_that_fails_is_not_called_safe_to_replay(checks, ok, monkeypatch):
    async def tested(*_):
        return {"problem": "", "checks": checks}

    monkeypatch.setattr(safety, "_tested", tested)
    monkeypatch.setattr(safety, "suite", lambda *_: "")
    found = await safety.check(SimpleNamespace(rounds=[]), SimpleNamespace())
    assert found["ok"] is ok
    assert ("its replay safety is unknown" in found["text"]) is (len(checks) > 1)


# --- over HTTP ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_over_http_the_legs_have_their_heads_and_no_secrets(era):
    from antiphon.loading import load_fresh

    app = load_fresh(str(TRAVEL), TRAVEL.parent, Server)
    async with serving(lambda _: app.asgi()) as url:
        headers = {"Authorization": "Bearer hunter2hunter2", "X-Tenant": "the-tenant"}
        async with inspecting(Spot(target=f"{url}/mcp", text=url, label=url, headers=headers)) as api:
            call = await api.booked(era=era)
            sent, *_, received = call["rounds"][0]["frames"]
            assert sent["head"] == "POST /mcp HTTP/1.1"
            assert {"Authorization", "X-Tenant"} <= {n for n, value in sent["headers"] if value == "[blanked]"}
            assert received["way"] == "received"
            assert any(frame["head"] == "HTTP/1.1 200" for frame in call["rounds"][0]["frames"])
            state = json.dumps([await api("/api/state"), await api("/api/traffic"), call])
            assert "hunter2" not in state
            assert "the-tenant" not in state
            assert "behind a URL" in (await api.fork(call, "fresh", status=409))["error"]
            assert "its file" in call["can"]["replay_safety"]
            if era == "2026-07-28":
                assert call["rounds"][0]["token"]["why"].startswith("There are no keys")
                assert "keys" in (await api.fork(call, "expired", status=409))["error"]
            for kind in ("test", "cassette", "call", "python"):
                assert "hunter2" not in (await api(f"/api/calls/{call['id']}/export/{kind}"))["text"]


# --- who may ask --------------------------------------------------------------------------------------------------


async def test_only_the_holder_of_the_secret_and_no_other_page_may_ask(api):
    await api("/api/state", status=401, Authorization="Bearer guess")
    await api("/api/state", status=403, Host="evil.example")
    await api("/api/state", status=403, Origin="http://evil.example")
    await api("/api/state", status=403, Origin="http://localhost:1")
    await api("/api/calls", {**BOOK}, status=400, **{"Content-Type": "text/plain"})
    await api("/static/../app.py", status=404)
    await api("/static/..%2fapp.py", status=404)
    page = await api("/", Authorization="")
    assert page.startswith("<!doctype html>")
    assert "default-src 'none'" in api.headers["content-security-policy"]
    assert api.headers["cache-control"] == "no-store"


async def test_what_cannot_be_done_is_said_in_a_sentence(api):
    wrong = [
        ("/api/calls/c99", None, 404, "There is no call c99: it may have been forgotten"),
        ("/api/nothing", None, 404, "There is nothing here"),
        ("/api/calls", {"method": "tools/list"}, 400, "'tools/list' is no call that can be asked about"),
        ("/api/calls", {"method": "tools/call"}, 400, "tools/call needs 'name', a string"),
        ("/api/calls", [], 400, "An object is needed here"),
        ("/api/calls", {**BOOK, "era": "1999-01-01"}, 409, "'1999-01-01' is not spoken here"),
        ("/api/subscriptions", {}, 400, "'uri' is missing"),
    ]
    for path, data, status, told in wrong:
        assert (await api(path, data, status=status))["error"].startswith(told)


# --- servers that misbehave ---------------------------------------------------------------------------------------

HOSTILE = """
import json, sys
deep = "[" * 200 + "]" * 200
for line in sys.stdin:
    message = json.loads(line)
    method, id_ = message.get("method"), message.get("id")
    if method == "server/discover":
        result = '{"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}'
    elif method == "tools/list":
        result = '{"resultType": "complete", "tools": [{"name": "x", "inputSchema": {"type": "object"}}]}'
    elif method == "tools/call":
        for n in range(2000):
            told = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "y" * 999}}
            print(json.dumps(told))
        print("a line that is no message")
        result = '{"resultType": "complete", "content": [], "structuredContent": {"deep": %s, "long": "%s"}}' % (
            deep, "z" * 3_000_000)
    elif method == "prompts/list":
        sys.exit(3)
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": id_, "error": {"code": -32601, "message": "?"}}), flush=True)
        continue
    print('{"jsonrpc": "2.0", "id": %s, "result": %s}' % (json.dumps(id_), result), flush=True)
"""


async def test_a_hostile_server_cannot_fill_the_page_or_break_it(tmp_path):
    file = tmp_path / "hostile.py"
    file.write_text(HOSTILE.replace('method == "prompts/list"', "False"))
    command = [sys.executable, str(file)]
    async with inspecting(Spot(target=command, text="hostile", label="hostile", versions=("2026-07-28",))) as api:
        call = await api.begin({"method": "tools/call", "params": {"name": "x"}})
        assert call["status"] == "done"
        assert len(json.dumps(call)) < 3_000_000
        assert len(call["rounds"][0]["logs"]) == 200
        assert "…" in json.dumps(call["rounds"][0]["result"], ensure_ascii=False)
        state = await api("/api/state")
        assert len(state["notices"]) <= 200
        assert any(each["kind"] == "stderr" and "no message" in each["text"] for each in state["notices"])


async def test_a_server_that_dies_is_lost_and_comes_back_when_it_is_restarted(tmp_path):
    file = tmp_path / "mortal.py"
    file.write_text(HOSTILE.replace('method == "tools/call"', 'method == "tools/call" and sys.exit(3)'))
    file.write_text(file.read_text().replace('method == "prompts/list"', "False"))
    command = [sys.executable, str(file)]
    async with inspecting(Spot(target=command, text="mortal", label="mortal", versions=("2026-07-28",))) as api:
        call = await api.begin({"method": "tools/call", "params": {"name": "x"}})
        assert call["status"] == "failed"
        assert "exit code 3" in call["rounds"][0]["error"]["message"]
        state = await api("/api/state")
        assert (state["status"], "exit code 3" in state["problem"]) == ("lost", True)
        assert (await api("/api/restart", {}))["status"] == "connected"


async def test_a_server_that_does_not_start_says_why(tmp_path):
    command = [sys.executable, "-c", "raise SystemExit(4)"]
    async with inspecting(Spot(target=command, text="none", label="none", versions=("2026-07-28",))) as api:
        state = await api("/api/state")
        assert (state["status"], "exit code 4" in state["problem"]) == ("failed", True)
        assert "not there" in (await api("/api/calls", BOOK, status=409))["error"]


async def test_a_file_that_is_edited_is_served_anew(tmp_path):
    file = tmp_path / "edited.py"
    file.write_text(TRAVEL.read_text("utf-8"))
    async with inspecting(file_spot(file)) as api:
        call = await api.begin()
        file.write_text(file.read_text("utf-8").replace("def pack(", "def unpack("))

        async def renamed():
            tools = [tool["name"] for tool in (await api("/api/offers"))["tools"]]
            return tools if "unpack" in tools else None

        assert "pack" not in await api.until(renamed)
        # What waited goes on: the new process has the same keys.
        assert (await api.answer(call, LISBON))["status"] == "waiting"


# --- events ----------------------------------------------------------------------------------------------------------


async def test_a_page_that_reads_too_slowly_is_told_to_reload(api):
    feed = api.inspector.feed
    async with aclosing(feed.stream()) as events:
        assert await anext(events) == b": hello\n\n"
        for number in range(600):
            feed.tell("log", {"number": number})
        assert b"event: reload" in await anext(events)
        assert b'{"number": 500}' in await anext(events)


@pytest.mark.heavy
async def test_the_program_prints_its_address_and_ends_when_it_is_told_to(tmp_path):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "antiphon", "inspect", str(TRAVEL), "--no-browser", "--port", "0"),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(20):
            line = (await process.stderr.readline()).decode()
            assert re.search(r"http://127\.0\.0\.1:\d+/#key=[\w-]{40,}", line)
            process.terminate()
            rest = await process.stderr.read()
            assert await process.wait() == 0
            assert b"Traceback" not in rest
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
