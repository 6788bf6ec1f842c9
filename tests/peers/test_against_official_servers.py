"""Our client against the official Python and TypeScript servers, over HTTP and over stdio."""

import sys
from pathlib import Path

import pytest

from antiphon import (
    Accepted,
    CallFailed,
    CannotAnswer,
    Client,
    Complete,
    Declined,
    Pending,
    Refused,
    Root,
    Text,
)

from .programs import node_program, served

pytestmark = [pytest.mark.peers, pytest.mark.heavy]

HERE = Path(__file__).parent


@pytest.fixture(scope="session", params=["python", "typescript"])
def peer(request):
    """The language of an official server, and the command that starts it over stdio."""
    if request.param == "python":
        return request.param, [sys.executable, str(HERE / "asking_server.py")]
    return request.param, node_program(HERE / "asking_server.mjs")


@pytest.fixture(scope="session", params=["http", "stdio"])
def target(request, peer, tmp_path_factory):
    """Where the client finds the server: a URL, or the command itself."""
    language, command = peer
    if request.param == "stdio":
        yield command
        return
    with served(command, tmp_path_factory.mktemp(language)) as url:
        yield url


@pytest.fixture
def asked():
    """What the handlers of the client were asked, in their order."""
    return []


@pytest.fixture
def client(target, asked):
    def elicit(question):
        asked.append((question.mode, question.message, question.server and question.server.name.split("-")[0]))
        return Accepted({"confirm": True} if "Deploy" in question.message else {"region": "eu"})

    def visit(question):
        asked.append((question.mode, question.message, question.url))
        return Accepted(None)

    async def sample(request):
        asked.append(("sampling", request.messages[0].content.text, request.max_tokens))
        return "Bob"

    return Client(
        target, elicit=elicit, elicit_url=visit, sample=sample, roots=[Root("file:///work", name="Work")], timeout=30
    )


async def test_the_client_learns_who_the_server_is(client, peer):
    language, _ = peer
    async with client:
        found = await client.discover()
        assert "2026-07-28" in found.supported_versions
        assert client.server.name == f"official-{language}"


async def test_a_tool_is_listed_called_and_its_result_checked(client):
    async with client:
        assert {"at_once", "one_by_one", "waits", "count", "add"} <= {tool.name for tool in await client.list_tools()}
        result = await client.call_tool("add", {"a": 2})
    assert (result.structured, result.rounds) == ({"total": 3}, 1)


async def test_everything_is_asked_in_one_round(client, asked):
    async with client:
        result = await client.call_tool("at_once")
    assert (result.text, result.rounds) == ("eux2; accept; Bob; file:///work; everything", 2)
    assert {kind for kind, *_ in asked} == {"form", "url", "sampling"}
    assert ("url", "Sign in", "https://example.com/sign-in") in asked
    assert ("sampling", "Name it", 20) in asked


async def test_everything_is_asked_in_several_rounds(client, asked):
    async with client:
        result = await client.call_tool("one_by_one")
    assert (result.text, result.rounds) == ("eux2; accept; Bob; file:///work", 5)
    assert [kind for kind, *_ in asked] == ["form", "url", "sampling"]
    assert asked[0][2] == "official"


async def test_a_refusal_is_heard(target):
    async with Client(
        target,
        elicit=lambda _: Declined(),
        elicit_url=lambda _: Declined(),
        sample=lambda _: "Bob",
        roots=[],
    ) as client:
        assert (await client.call_tool("at_once")).text == "decline; decline; Bob; ; everything"


async def test_what_the_client_did_not_declare_is_not_answered(target):
    async with Client(target, elicit=lambda _: Accepted({"region": "eu"})) as client:
        with pytest.raises((Refused, CannotAnswer)):
            await client.call_tool("at_once")
    async with Client(target) as client:
        with pytest.raises(CallFailed):
            await client.call_tool("one_by_one")


async def test_a_server_that_only_wants_the_call_again_gets_it(client, asked):
    async with client:
        result = await client.call_tool("waits")
    assert (result.text, result.rounds, asked) == ("waited", 3, [])


async def test_progress_arrives_before_the_result(client):
    seen = []
    async with client:
        result = await client.call_tool("count", {"to": 3}, progress=lambda *told: seen.append(told))
    assert result.text == "counted to 3"
    assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


async def test_a_prompt_and_a_resource_ask(client):
    async with client:
        prompt = await client.get_prompt("greeting")
        note = await client.read_resource("note://x")
    assert (prompt.messages[0].content, prompt.rounds) == (Text("Greet eux2"), 2)
    assert (note.text, note.rounds) == ("x for eux2", 2)


async def test_a_call_is_left_and_resumed_by_another_client(client, target):
    async with client:
        pending = await client.begin("tools/call", name="one_by_one", arguments={})
    text = pending.to_json()
    by_hand = {
        "form": Accepted({"region": "us", "replicas": 5}),
        "url": Accepted(None),
        "model": {"role": "assistant", "content": {"type": "text", "text": "Ann"}, "model": "hand"},
        "roots": [Root("file:///elsewhere")],
    }
    if isinstance(target, list):
        # The Python server's key lives as long as its process, and every client has a process of its own here.
        async with client:
            outcome = await client.begin("tools/call", name="one_by_one", arguments={})
            while isinstance(outcome, Pending):
                outcome = await client.resume(Pending.from_json(outcome.to_json()), by_hand)
    else:
        async with Client(target, elicit=print, elicit_url=print, sample=print, roots=[]) as other:
            outcome = Pending.from_json(text)
            while isinstance(outcome, Pending):
                outcome = await other.resume(outcome, by_hand)
    assert isinstance(outcome, Complete)
    assert (outcome.result.text, outcome.result.rounds) == ("usx5; accept; Ann; file:///elsewhere", 5)


@pytest.mark.parametrize("peer", ["python"], indirect=True)
async def test_the_python_server_asks_by_its_parameters(client, asked):
    async with client:
        result = await client.call_tool("declared", {"env": "prod"})
    assert (result.text, result.rounds) == ("prod True Bob file:///work", 2)
    assert {kind for kind, *_ in asked} == {"form", "sampling"}


async def test_an_unknown_tool_is_an_error(client, peer):
    language, _ = peer
    async with client:
        if language == "python":
            assert (await client.call_tool("no_such_tool")).is_error
        else:
            with pytest.raises(Refused) as refused:
                await client.call_tool("no_such_tool")
            assert refused.value.code == -32602
