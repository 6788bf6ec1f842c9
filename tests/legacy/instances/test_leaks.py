"""Thousands of sessions are opened and abandoned, and nothing of them stays."""

import asyncio
import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from legacy.instances.measure import SESSIONS
from legacy.instances.older import REVISION, OlderClient, Refusal, closed

SERVER = Path(__file__).parent / "abandoned.py"
SESSION_TTL = 10.0
CONNECTIONS = 8
WITH_STREAM = 100
WITH_QUESTION = 100
PATIENCE = 60.0

Held = dict[str, int]

HELLO = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": REVISION,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "passer-by", "version": "1"},
        },
    }
).encode()
OPENING = (
    b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json, text/event-stream\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(HELLO)
) + HELLO


@pytest.fixture(params=["pymalloc", "malloc"])
def allocator(request: pytest.FixtureRequest) -> str:
    """Python's own, with which servers run, and the system's, which can tell how much of the memory is in use."""
    return str(request.param)


@pytest.fixture
def port(tmp_path: Path, allocator: str) -> Iterator[int]:
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    with listening, (tmp_path / "server.log").open("w") as log:
        command = [sys.executable, str(SERVER), str(listening.fileno()), str(SESSION_TTL)]
        environment = {**os.environ, "PYTHONMALLOC": allocator}
        process = subprocess.Popen(command, env=environment, pass_fds=[listening.fileno()], stdout=log, stderr=log)
        port = listening.getsockname()[1]
    yield port
    process.kill()
    process.wait(PATIENCE)
    assert (tmp_path / "server.log").read_text() == ""


async def held(port: int, path: bytes = b"/held") -> Held:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET %b HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n" % path)
        return dict(json.loads((await reader.read()).partition(b"\r\n\r\n")[2]))
    finally:
        await closed(writer)


async def open_sessions(port: int, number: int) -> None:
    """So many, over a few connections, and no word after the first."""

    async def some(share: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for _ in range(share):
                writer.write(OPENING)
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                assert b"mcp-session-id" in head
                await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
        finally:
            await closed(writer)

    await asyncio.gather(*(some(number // CONNECTIONS) for _ in range(CONNECTIONS)))


async def drop_streams(port: int, number: int) -> list[OlderClient]:
    """Clients that listened for changes and went away."""

    async def one() -> OlderClient:
        async with OlderClient(port) as client, client.stream() as answer:
            assert answer.status == 200
        return client

    return await asyncio.gather(*(one() for _ in range(number)))


async def drop_questions(port: int, number: int) -> list[OlderClient]:
    """Clients that were asked and went away."""

    async def one() -> OlderClient:
        call = {"name": "ask", "arguments": {}}
        async with OlderClient(port) as client, client.post("tools/call", call) as answer:
            async for event in answer.events():
                if event.message is not None:
                    break
        return client

    return await asyncio.gather(*(one() for _ in range(number)))


@pytest.mark.heavy
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc, which tells of its heap")
async def test_nothing_stays_of_sessions_that_were_abandoned(port: int, allocator: str) -> None:
    async with asyncio.timeout(2 * PATIENCE):
        # The first of everything costs memory that stays and is no leak: code, caches, pools.
        await open_sessions(port, 400)
        for client in [*await drop_streams(port, WITH_STREAM), *await drop_questions(port, WITH_QUESTION)]:
            await client.end()
        held_at_ends = [await until_all_is_gone(port)]
        for _ in range(2):
            await open_sessions(port, SESSIONS)
            await drop_streams(port, WITH_STREAM)
            await drop_questions(port, WITH_QUESTION)
            full = await held(port)
            assert full["sessions"] > 0
            assert full["questions"] == WITH_QUESTION
            assert full["tasks"] > WITH_QUESTION
            held_at_ends.append(await until_all_is_gone(port))

    before, *after = held_at_ends
    # Of Python's own allocator the system knows only which pages it holds: all that was ever used beside a live byte.
    memory = "live" if allocator == "malloc" else "resident"
    for end in after:
        assert end[memory] < 1.1 * before[memory]
        for kind in ("tasks", "descriptors", "deadlines", "channels", "questions"):
            assert end[kind] <= before[kind], kind
    # And whatever stays, stays once and not each time.
    assert held_at_ends[-1]["resident"] < 1.1 * held_at_ends[-2]["resident"]


async def until_all_is_gone(port: int) -> Held:
    stranger = OlderClient(port)
    stranger.session = "no-such-session"
    now = await held(port, b"/forget")
    while now["sessions"] or now["entries"] or now["streams"] or now["tasks"] > 4:
        await asyncio.sleep(0.1)
        # What has expired in a store in memory is dropped when the store is used.
        with pytest.raises(Refusal):
            await stranger.request("ping", {})
        now = await held(port, b"/forget")
    return now
