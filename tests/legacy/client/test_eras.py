"""Which era a server is of, and how a client finds out."""

import asyncio
import json
import subprocess
import sys

import pytest

from antiphon import Accepted, CallTimeout, Client, Context, Disconnected, Discovery, Refused, Server, eras
from client.hostile import Hostile, answer
from client.until import until

from .old import WELCOME
from .old_http import ACCEPTED, OldHttp, result

NEW = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}, "ttlMs": 0}


def refused(code, message="No", **data):
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message, **data}}


class Answering(Hostile):
    """Answers modern requests with one response, and old ones as an old server would, if it is one."""

    def __init__(self, response, *, is_old=True, discovers=None):
        super().__init__(Answering._behave)
        self._response = response
        self._is_old = is_old
        self._discovers = discovers

    async def _behave(self, reader, writer):
        while True:
            message = await self.request(reader)
            verb = self.heads[-1][0].split()[0]
            writer.write(answer(b"", "405 Method Not Allowed") if verb != "POST" else self._made(message))
            await writer.drain()

    def _made(self, message):
        method = message["method"]
        if "io.modelcontextprotocol/protocolVersion" in json.dumps(message):
            if method == "server/discover" and self._discovers is not None:
                return answer(result(message, self._discovers))
            return self._response
        if not self._is_old:
            return answer(refused(-32022, "Too old", data={"supported": ["2026-07-28"]}), "400 Bad Request")
        if "id" not in message:
            return ACCEPTED
        return answer(result(message, WELCOME if method == "initialize" else None))

    @property
    def methods(self):
        return [message["method"] for message in self.requests if message]


OLD = {
    "the TypeScript SDK, v1": answer(refused(-32000, "Bad Request: Server not initialized"), "400 Bad Request"),
    "the Python SDK, v1": answer(refused(-32600, "Bad Request: Missing session ID"), "400 Bad Request"),
    "plain text": answer(b"Unexpected message", "422 Unprocessable Entity", kind="text/plain"),
    "nothing": answer(b"", "400 Bad Request"),
    "404": answer(b"<html>", "404 Not Found", kind="text/html"),
    "405": answer(b"", "405 Method Not Allowed"),
    "406": answer(b"", "406 Not Acceptable"),
    "JSON of its own": answer({"error": "what?"}, "400 Bad Request"),
    "only old versions": answer(refused(-32022, data={"supported": ["2025-11-25", "2025-06-18"]}), "400 Bad Request"),
    "older and newer versions": answer(
        refused(-32022, data={"supported": ["2025-11-25", "2027-01-01"]}), "400 Bad Request"
    ),
    "invalid parameters": answer(refused(-32602), "400 Bad Request"),
}


@pytest.mark.parametrize("response", OLD.values(), ids=OLD.keys())
async def test_an_old_server_is_recognised_and_what_it_refused_is_sent_again(response):
    async with Answering(response) as server, Client(server.url) as client:
        assert (await client.call_tool("x", {"a": 1})).text == "done"
        assert (client.era, client.protocol_version) == ("legacy", "2025-11-25")
        assert (await client.call_tool("x")).text == "done"
    assert server.methods.count("initialize") == 1
    assert [one for one in server.methods if one != "server/discover"] == [
        "tools/call",
        "initialize",
        "notifications/initialized",
        "tools/call",
        "tools/call",
    ]


NEITHER = {
    "401": answer(b"", "401 Unauthorized"),
    "403": answer(refused(-32600), "403 Forbidden"),
    "413": answer(b"", "413 Content Too Large"),
    "429": answer(b"", "429 Too Many Requests"),
    "500": answer(refused(-32603), "500 Internal Server Error"),
    "503": answer(b"", "503 Service Unavailable"),
    "301": answer(b"", "301 Moved Permanently"),
    "a header mismatch": answer(refused(-32020), "400 Bad Request"),
    "a missing capability": answer(refused(-32021), "400 Bad Request"),
    "a newer version": answer(refused(-32022, data={"supported": ["2027-01-01"]}), "400 Bad Request"),
    "no versions": answer(refused(-32022), "400 Bad Request"),
    "an unknown method": answer(refused(-32601), "404 Not Found"),
}


@pytest.mark.parametrize("response", NEITHER.values(), ids=NEITHER.keys())
async def test_what_does_not_mean_an_old_server(response):
    async with Answering(response) as server, Client(server.url) as client:
        with pytest.raises(Refused):
            await client.get_prompt("x")
        assert client.era == "modern"
    assert server.methods == ["prompts/get"]


@pytest.mark.parametrize("code", [-32600, -32602, -32603])
@pytest.mark.parametrize("era", ["auto", "2026-07-28"])
async def test_a_server_that_answers_discovery_is_not_taken_for_an_old_one(code, era):
    async with (
        Answering(answer(refused(code, "The tool says no"), "400 Bad Request"), discovers=NEW) as server,
        Client(server.url, era=era) as client,
    ):
        with pytest.raises(Refused, match="^The tool says no$"):
            await client.call_tool("x")
        assert client.era == "modern"
    assert server.methods == ["tools/call", "server/discover"]


class Careless(Answering):
    """An old server that wants no greeting, and reads no headers."""

    def _made(self, message):
        return answer(result(message)) if message["method"] == "tools/call" else super()._made(message)


async def test_an_old_server_that_answers_ungreeted_is_greeted_afterwards():
    async with Careless(answer(refused(-32601))) as server, Client(server.url) as client:
        assert (await client.call_tool("x")).text == "done"
        assert (client.era, client.protocol_version) == ("legacy", "2025-11-25")
        assert (await client.call_tool("x")).text == "done"
    assert server.methods == [
        *("tools/call", "server/discover", "initialize", "notifications/initialized"),
        "tools/call",
    ]


async def test_a_server_that_knows_neither_discovery_nor_the_handshake_is_spoken_to_as_before():
    async with Careless(answer(refused(-32601)), is_old=False) as server, Client(server.url) as client:
        for _ in range(2):
            assert (await client.call_tool("x")).text == "done"
        assert client.era == "modern"
    assert server.methods == ["tools/call", "server/discover", "initialize", "tools/call"]


async def test_an_error_to_discovery_with_status_200_means_an_old_server():
    async with (
        Answering(answer({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "What?"}})) as server,
        Client(server.url) as client,
    ):
        assert (await client.discover()).supported_versions == ["2025-11-25"]


async def test_a_server_that_refuses_the_handshake_as_well_is_quoted_as_it_spoke_first():
    async with (
        Answering(answer(b"first words", "400 Bad Request", kind="text/plain"), is_old=False) as server,
        Client(server.url) as client,
    ):
        for _ in range(2):
            with pytest.raises(Refused, match="first words"):
                await client.call_tool("x")
        assert client.era == "modern"


async def test_requests_that_find_out_at_the_same_time_shake_hands_once():
    async with Answering(OLD["nothing"]) as server, Client(server.url) as client:
        results = await asyncio.gather(*[client.call_tool("x") for _ in range(5)])
    assert [one.text for one in results] == ["done"] * 5
    assert server.methods.count("initialize") == 1


async def test_what_was_found_is_remembered_for_the_next_client():
    async with Answering(OLD["nothing"]) as server:
        for _ in range(2):
            async with Client(server.url) as client:
                await client.call_tool("x")
    assert server.methods[4:] == ["initialize", "notifications/initialized", "tools/call"]


async def test_what_is_remembered_wrongly_is_found_out_anew():
    modern = {"content": [], "resultType": "complete"}
    async with Answering(answer({"jsonrpc": "2.0", "id": 1, "result": modern}), is_old=False) as server:
        eras._found[server.url] = "legacy"
        async with Client(server.url) as client:
            await client.call_tool("x")
            assert client.era == "modern"
        assert eras._found[server.url] == "modern"
    assert server.methods == ["initialize", "tools/call"]


async def test_a_client_can_be_opened_again():
    async with Answering(OLD["nothing"]) as server:
        client = Client(server.url)
        for _ in range(2):
            async with client:
                assert (await client.call_tool("x")).text == "done"


async def test_a_pinned_modern_client_says_that_the_server_is_old():
    async with Answering(OLD["the TypeScript SDK, v1"]) as server, Client(server.url, era="2026-07-28") as client:
        with pytest.raises(Refused, match=r"only older revisions than 2026-07-28 .*not initialized.*era='auto'"):
            await client.call_tool("x")
    assert server.methods == ["tools/call"]


@pytest.mark.parametrize(("era", "offered"), [("legacy", "2025-11-25"), ("2025-11-25", "2025-11-25")])
async def test_a_pinned_old_client_never_tries_the_new_era(era, offered):
    async with OldHttp() as server, Client(server.url, era=era) as client:
        assert client.era == "legacy"
        await client.call_tool("x")
    assert server.requests[0]["params"]["protocolVersion"] == offered
    assert "2026-07-28" not in json.dumps(server.requests)


@pytest.mark.parametrize(("versions", "first"), [(["2025-06-18"], "initialize"), (["2026-07-28"], "tools/call")])
async def test_a_prior_discovery_tells_the_era(versions, first):
    async with (
        Answering(OLD["nothing"]) as server,
        Client(server.url, prior=Discovery(supported_versions=versions)) as client,
    ):
        await client.call_tool("x")
    assert server.methods[0] == first


def test_a_link_of_ones_own_has_an_era_already():
    from antiphon.transports.http_client import HttpLink

    with pytest.raises(ValueError, match="A Link speaks the era that it was made for"):
        Client(HttpLink("http://localhost/mcp"), era="legacy")


async def test_our_own_server_is_modern_and_can_be_asked_to_be_old(live):
    app = Server("ours")

    @app.tool
    async def paint(ctx: Context) -> str:
        return (await ctx.elicit("Which?", str, key="colour")).unwrap()

    url = f"http://127.0.0.1:{live(app.asgi())}/mcp"
    for era, spoken in (("auto", "2026-07-28"), ("legacy", "2025-11-25"), ("2025-03-26", "2025-03-26")):
        async with Client(url, era=era, elicit=lambda question: Accepted(question.key)) as client:
            result_ = await client.call_tool("paint")
            assert (result_.text, result_.rounds, client.protocol_version) == ("colour", 2, spoken)


# --- a process of its own -----------------------------------------------------------------------------------------

PRELUDE = """
import json, os, sys, time
def say(id, **body): print(json.dumps({"jsonrpc": "2.0", "id": id, **body}), flush=True)
def note(word): open(NOTES, "a").write(word + "\\n")
WELCOME = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
DONE = {"content": [{"type": "text", "text": "done"}]}
def no(id, code=-32601, message="What?", **more): say(id, error={"code": code, "message": message, **more})
def serve(discover, greet=lambda id: say(id, result=WELCOME)):
    note("start")
    for line in sys.stdin:
        message = json.loads(line)
        id, method = message.get("id"), message.get("method")
        note(method)
        if method == "server/discover": discover(id)
        elif method == "initialize": greet(id)
        elif id is not None: say(id, result=DONE)
"""
OLD_CHILDREN = {
    "knows no such method": "serve(no)",
    "finds it invalid": "serve(lambda id: no(id, -32602, 'Invalid request parameters'))",
    "says nothing": "serve(lambda id: None)",
    "has only old versions": "serve(lambda id: no(id, -32022, data={'supported': ['2025-11-25']}))",
}
NEW_CHILD = "serve(lambda id: say(id, result={'supportedVersions': ['2026-07-28'], 'capabilities': {}}))"


@pytest.fixture
def child(tmp_path):
    """The command of a child, and what it has noted down so far."""
    notes = tmp_path / "notes"

    def make(code):
        return [sys.executable, "-c", PRELUDE + f"NOTES = {str(notes)!r}\n" + code]

    return make, lambda: notes.read_text().split()


@pytest.mark.parametrize("code", OLD_CHILDREN.values(), ids=OLD_CHILDREN.keys())
async def test_the_process_that_answered_is_kept_and_greeted(child, code):
    make, notes = child
    async with asyncio.timeout(20), Client(make(code), probe_timeout=0.5) as client:
        assert (await client.call_tool("x")).text == "done"
        assert client.era == "legacy"
    heard = [word for word in notes() if word != "notifications/cancelled"]
    assert heard == ["start", "server/discover", "initialize", "notifications/initialized", "tools/call"]


async def test_a_process_that_dies_of_the_new_era_is_started_again_for_the_handshake(child):
    make, notes = child
    async with asyncio.timeout(20), Client(make("serve(lambda id: os._exit(3))")) as client:
        assert (await client.call_tool("x")).text == "done"
        assert client.era == "legacy"
    assert notes() == ["start", "server/discover", "start", "initialize", "notifications/initialized", "tools/call"]


async def test_a_process_that_dies_of_either_era_is_started_twice_and_named(child):
    make, notes = child
    code = "serve(lambda id: os._exit(3), lambda id: os._exit(4))"
    async with asyncio.timeout(20), Client(make(code)) as client:
        with pytest.raises(Disconnected, match="exit code 4"):
            await client.call_tool("x")
    assert notes() == ["start", "server/discover", "start", "initialize"]


async def test_a_kept_process_that_dies_later_is_started_and_greeted_again(child):
    make, notes = child
    async with asyncio.timeout(20), Client(make(OLD_CHILDREN["knows no such method"])) as client:
        assert (await client.call_tool("x")).text == "done"
        process = client._link._link._session.transport._pipe._process
        process._signal(9)
        await until(lambda: process.has_ended)
        assert (await client.call_tool("x")).text == "done"
        living = client._link._link._session.transport._pipe._process
    assert living.has_ended, "the second one is ended with the client"
    greeted = ["initialize", "notifications/initialized", "tools/call"]
    assert notes() == ["start", "server/discover", *greeted, "start", *greeted]


async def test_the_era_of_a_command_is_remembered(child):
    make, notes = child
    for code, heard in ((OLD_CHILDREN["knows no such method"], ["start", "initialize"]), (NEW_CHILD, ["start"])):
        for _ in range(2):
            begin = len(notes()) if _ else 0
            async with asyncio.timeout(20), Client(make(code)) as client:
                await client.call_tool("x")
        assert [word for word in notes()[begin:] if word != "notifications/initialized"] == [*heard, "tools/call"]


async def test_a_modern_server_in_a_process_is_asked_once_and_stays(child):
    make, notes = child
    async with asyncio.timeout(20), Client(make(NEW_CHILD)) as client:
        await asyncio.gather(*[client.call_tool("x") for _ in range(3)])
        assert client.era == "modern"
    assert notes() == ["start", "server/discover", *["tools/call"] * 3]


async def test_a_modern_server_that_is_slow_to_start_is_modern_after_all(child):
    make, notes = child
    slow = "serve(lambda id: None, no)"
    async with asyncio.timeout(20), Client(make(slow), probe_timeout=0.5) as client:
        assert (await client.call_tool("x")).text == "done"
        assert client.era == "modern"
    assert [word for word in notes() if word != "notifications/cancelled"] == [
        *("start", "server/discover", "initialize", "tools/call"),
    ]


async def test_a_server_that_knows_neither_opening_is_modern(child):
    make, notes = child
    async with asyncio.timeout(20), Client(make("serve(no, no)")) as client:
        assert (await client.call_tool("x")).text == "done"
        assert client.era == "modern"
    assert notes() == ["start", "server/discover", "initialize", "tools/call"]


async def test_a_server_that_knows_no_common_revision_is_quoted(child):
    make, _ = child
    code = "serve(no, lambda id: no(id, -32602, 'Unsupported protocol version', data={'supported': ['2024-01-01']}))"
    async with asyncio.timeout(20), Client(make(code)) as client:
        with pytest.raises(Refused, match="Unsupported protocol version"):
            await client.call_tool("x")


async def test_a_pinned_modern_client_says_that_a_process_is_old(child):
    make, notes = child
    async with asyncio.timeout(20), Client(make(OLD_CHILDREN["knows no such method"]), era="2026-07-28") as client:
        with pytest.raises(Refused, match="only older revisions than 2026-07-28"):
            await client.call_tool("x")
    assert notes() == ["start", "server/discover"]


async def test_a_pinned_old_client_starts_one_process(child):
    make, notes = child
    async with asyncio.timeout(20), Client(make(OLD_CHILDREN["says nothing"]), era="legacy") as client:
        assert (await client.call_tool("x")).text == "done"
        (process,) = [client._link._session.transport._pipe._process]
        process._signal(9)
        await until(lambda: process.has_ended)
        assert (await client.call_tool("x")).text == "done", "it was started and greeted again"
    assert notes() == ["start", "initialize", "notifications/initialized", "tools/call"] * 2


async def test_a_process_that_never_answers_is_not_waited_for(child):
    make, _ = child
    async with asyncio.timeout(20):
        with pytest.raises(CallTimeout):
            async with Client(make("note('start'); sys.stdin.read()"), era="legacy", timeout=0.5):
                raise AssertionError


# --- without the part that speaks the old era ---------------------------------------------------------------------

ABSENT = """
import asyncio, sys
sys.modules["antiphon.legacy"] = None
from antiphon import Client, Refused, Server
async def main():
    async with Client(Server("new")) as client:
        await client.discover()
    async with Client({new!r}) as client:
        print((await client.discover()).supported_versions, client.era)
    async with Client({old!r}) as client:
        try:
            await client.call_tool("x")
        except Refused as fault:
            print(fault)
try:
    Client({old!r}, era="legacy")
except ImportError as fault:
    print(fault)
asyncio.run(main())
"""


async def test_without_the_old_era_the_new_one_works_and_an_old_server_is_explained(live):
    new = f"http://127.0.0.1:{live(Server('new').asgi())}/mcp"
    async with OldHttp() as server:
        code = ABSENT.format(new=new, old=server.url)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
        output, _ = await asyncio.wait_for(process.communicate(), 20)
    first, second, third = output.decode().splitlines()
    assert "antiphon.legacy, is not installed" in first
    assert second == "['2026-07-28'] modern"
    assert "only older revisions than 2026-07-28" in third
    assert "antiphon.legacy, is not installed" in third


async def test_a_modern_connection_loads_nothing_of_the_old_era(live):
    new = f"http://127.0.0.1:{live(Server('new').asgi())}/mcp"
    code = f"""
import asyncio, sys
from antiphon import Client
async def main():
    async with Client({new!r}) as client:
        await client.discover()
asyncio.run(main())
print(*[name for name in sys.modules if name.startswith("antiphon.legacy")])
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
    output, _ = await asyncio.wait_for(process.communicate(), 20)
    assert (process.returncode, output.split()) == (0, [])
