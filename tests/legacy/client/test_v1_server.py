"""Our client against a real old server: the official TypeScript SDK v1, over HTTP and over stdio."""

import asyncio
from pathlib import Path

import pytest

from antiphon import Accepted, CallTimeout, CannotAnswer, Change, Client, Declined, Root
from client.until import until
from peers.programs import node_program, served

pytestmark = [pytest.mark.peers, pytest.mark.heavy]


@pytest.fixture(scope="module")
def command():
    return node_program(Path(__file__).parent / "v1_server.mjs")


@pytest.fixture(scope="module")
def url(command, tmp_path_factory):
    with served(command, tmp_path_factory.mktemp("v1")) as url:
        yield url


@pytest.fixture(params=["http", "stdio"])
def target(request, url, command):
    return url if request.param == "http" else command


@pytest.fixture
async def client(target):
    told = []
    handlers = {
        "elicit": lambda question: Accepted({"region": "eu"}),
        "elicit_url": lambda question: Accepted(None),
        "sample": lambda request: "Bob",
        "roots": [Root("file:///work")],
        "on_log": lambda *log: told.append(log),
    }
    async with asyncio.timeout(30), Client(target, **handlers, timeout=20) as client:
        client.told = told
        yield client


async def test_a_conversation(client, target):
    """One after the other, because every start of the server costs."""
    assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"
    assert (client.era, client.protocol_version, client.server.name) == ("legacy", "2025-11-25", "typescript-v1")
    found = await client.discover()
    assert (found.supported_versions, found.instructions) == (["2025-11-25"], "Ask.")
    assert "one_by_one" in {tool.name for tool in await client.list_tools()}
    assert (await client.read_resource("note://1")).text == "one"

    asked = await client.call_tool("one_by_one")
    assert (asked.text, asked.rounds) == ("eux2; accept; Bob; file:///work", 5)
    at_once = await client.call_tool("at_once")
    assert (at_once.text, at_once.rounds) == ("eu Bob", 2)
    protected = await client.call_tool("protected")
    assert (protected.text, protected.rounds) in {("signed in", 2), ("signed in", 1)}
    assert (await client.call_tool("polled")).text == "taken up again"

    steps = []
    await client.call_tool("count", {"to": 2}, progress=lambda *step: steps.append(step))
    assert steps == [(1, 2, None), (2, 2, None)]
    await until(lambda: ("warning", "counted to 2", None) in client.told)

    before = int((await client.call_tool("aborted")).text)
    with pytest.raises(CallTimeout):
        await client.call_tool("hang", timeout=0.1)
    assert await soon(client, "aborted", str(before + 1))

    subscription = client.subscribe(tools=True, resources=["note://1"])
    hearing = asyncio.create_task(anext(subscription))
    assert await soon(client, "watched", "note://1")
    await client.call_tool("change")
    assert {await hearing, await anext(subscription)} == {Change("tools"), Change("resource", "note://1")}
    await subscription.aclose()
    assert await soon(client, "watched", "")

    if isinstance(target, str):
        await client.call_tool("forget")
        await asyncio.sleep(0.05)
        assert (await client.call_tool("add", {"a": 1, "b": 1})).text == "2", "in a new session"


async def soon(client, tool, text):
    """Whether a tool says so, soon: what is told on the side takes its own way there."""
    for _ in range(100):
        if (await client.call_tool(tool)).text == text:
            return True
        await asyncio.sleep(0.01)
    return False


async def test_refusals(url):
    async with asyncio.timeout(30):
        async with Client(url, elicit=lambda _: Declined(), era="legacy") as client:
            result = await client.call_tool("ask")
            assert (result.text, result.rounds) == ("decline", 2)
        async with Client(url, era="2025-06-18") as client:
            assert client.protocol_version == "2025-06-18"
            assert "-32601" in (await client.call_tool("ask")).text
        async with Client(url, elicit=lambda _: Accepted({"region": "moon"}), era="legacy") as client:
            with pytest.raises(CannotAnswer, match="does not fit"):
                await client.call_tool("ask")
            assert (await client.call_tool("add", {"a": 1, "b": 1})).text == "2"
