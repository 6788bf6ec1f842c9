"""Several messages at once, as a server of 2025-03-26 may send them (basic, Batching)."""

import asyncio
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import Accepted, Client, PeerBroken, eras
from antiphon.transports.link import read_message, read_messages
from antiphon.transports.stdio_client import ChildLink
from client.hostile import answer
from client.until import until

from .old import WELCOME, form, text
from .old_http import OldHttp, ask, event, result, stream

OLDER = {**WELCOME, "protocolVersion": "2025-03-26"}
LOG = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}


def test_a_message_alone_is_a_batch_of_one():
    assert read_messages(b'{"id": 1}') == [{"id": 1}]


@pytest.mark.parametrize("data", [b"[]", b"[1]", b"[{}, []]", b"7", b"null", b"[{}", b"\xff"])
def test_what_is_no_batch_is_said_to_be_none(data):
    with pytest.raises(PeerBroken):
        read_messages(data)


@given(st.lists(st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2), min_size=1, max_size=4))
def test_a_batch_is_read_in_its_order(messages):
    data = json.dumps(messages).encode()
    assert read_messages(data) == messages
    with pytest.raises(PeerBroken):
        read_message(data)


def in_json(*messages):
    async def post(server, message, writer):
        return answer([made(message) for made in messages])

    return post


def in_events(*messages):
    async def post(server, message, writer):
        await stream(writer, event([made(message) for made in messages]))

    return post


@pytest.mark.parametrize("way", [in_json, in_events])
async def test_a_batch_over_http(way):
    told = []
    server = OldHttp(way(result, lambda _: LOG, lambda _: LOG), welcome=OLDER)
    async with server, Client(server.url, era="legacy", on_log=lambda *log: told.append(log)) as client:
        assert (await client.call_tool("x")).text == "done"
    assert told == [("info", "x", None)] * 2, "wherever the reply stands"


async def test_questions_in_a_batch_make_one_round():
    async def post(server, message, writer):
        await stream(writer, event([ask("q1"), ask("q2")]), end=False)
        answered = [(await server.answers.get())["id"] for _ in range(2)]
        writer.write(event([result(message, text(sorted(answered)))]))

    server = OldHttp(post, welcome=OLDER)
    async with asyncio.timeout(5), server, Client(server.url, era="legacy", elicit=lambda _: Accepted("y")) as client:
        called = await client.call_tool("x")
    assert (called.text, called.rounds) == ("['q1', 'q2']", 2)


async def test_a_batch_without_the_reply_is_none():
    server = OldHttp(in_json(lambda _: LOG), welcome=OLDER)
    async with server, Client(server.url, era="legacy") as client:
        with pytest.raises(PeerBroken, match="no reply"):
            await client.call_tool("x")


CHILD = """
import json, sys

def say(message):
    print(json.dumps(message), flush=True)

for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        say({"jsonrpc": "2.0", "id": message["id"], "result": WELCOME})
    elif message.get("method") == "tools/call":
        print("[info] called", flush=True)
        print("[1, 2]", flush=True)
        called = message["id"]
        say([LOG, {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": FORM}])
    elif message.get("id") == "q":
        value = message["result"]["content"]["value"]
        say([{"jsonrpc": "2.0", "id": called, "result": {"content": [{"type": "text", "text": value}]}}])
    elif "id" in message and message["method"] != "server/discover":
        say([{"jsonrpc": "2.0", "id": message["id"], "result": {}}])
"""


@pytest.fixture
def command(tmp_path):
    path = tmp_path / "batching.py"
    path.write_text(f"WELCOME = {OLDER!r}\nLOG = {LOG!r}\nFORM = {form()!r}\n{CHILD}")
    return [sys.executable, str(path)]


async def test_a_batch_in_a_line(command, caplog):
    told = []
    handlers = {"elicit": lambda _: Accepted("yes"), "on_log": lambda *log: told.append(log)}
    async with asyncio.timeout(10), Client(command, era="legacy", **handlers) as client:
        called = await client.call_tool("x")
        await until(lambda: told)
    assert (called.text, called.rounds) == ("yes", 2)
    assert told == [("info", "x", None)]
    assert [record.args[0] for record in caplog.records] == [b"[info] called", b"[1, 2]"], "prints are not messages"


async def test_lines_of_an_old_server_that_are_no_messages_are_told_to_a_callback(command):
    heard = []
    link = eras.connect(command, era="legacy", on_stray_line=heard.append)
    async with asyncio.timeout(10), Client(link, elicit=lambda _: Accepted("yes")) as client:
        await client.call_tool("x")
        await until(lambda: len(heard) == 2)
    assert heard == ["[info] called", "[1, 2]"]


async def test_a_modern_server_sends_no_batches(command, caplog):
    link = ChildLink(command)
    await link.open()
    listing = asyncio.create_task(link.request({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers={}))
    await until(lambda: "a line that is no message: b'[{" in caplog.text)
    assert not listing.done()
    listing.cancel()
    await asyncio.wait({listing})
    await link.close()
