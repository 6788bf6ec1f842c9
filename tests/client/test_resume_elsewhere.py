"""A call whose every question is answered by another process, from a file, with the server restarted in between."""

import asyncio
import contextlib
import json
import os
import socket
import sys
from pathlib import Path

import pytest

from antiphon import Client, Disconnected
from antiphon.rounds.token import generate_key

pytestmark = pytest.mark.heavy
HERE = Path(__file__).parent
PATIENCE = 30.0


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def serving(port, tmp_path):
    """The server as a process, from its first answer to the end of a block."""

    @contextlib.asynccontextmanager
    async def start(keys):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(HERE / "interview_file.py"),
            str(port),
            str(tmp_path / "diary"),
            env={**os.environ, "ANTIPHON_KEYS": keys},
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            url = f"http://127.0.0.1:{port}/mcp"
            await answering(url)
            yield url
        finally:
            process.terminate()
            await process.wait()

    return start


async def answering(url):
    async with asyncio.timeout(PATIENCE), Client(url) as client:
        while True:
            with contextlib.suppress(Disconnected):
                await client.discover()
                return
            await asyncio.sleep(0.02)


async def in_another_process(*arguments):
    """What the program that begins and resumes calls prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / "resume_file.py"),
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        said, complained = await process.communicate()
    assert process.returncode == 0, complained.decode()
    return said.decode().strip()


async def test_each_question_is_answered_by_another_process_and_the_server_restarted_in_between(serving, tmp_path):
    keys = generate_key(os.urandom(32))
    waiting, asked = tmp_path / "waiting.json", []
    for step in (("begin", "tea"), ('"Ada"',), ("36",), ("true",)):
        async with serving(keys) as url:
            asked.append(await in_another_process(url, waiting, *step))
    assert asked == ["Name, about tea?", "Age of Ada?", "Ada, 36?", ""]
    assert json.loads(waiting.read_text()) == {"text": "booking for Ada: Ada, 36, True", "rounds": 4}
    diary = [line.split(" ", 1) for line in (tmp_path / "diary").read_text().splitlines()]
    assert [what for _, what in diary] == ["booked Ada", "done Ada"], "what was done is not done again"
    assert len({process for process, _ in diary}) == 2


async def test_a_server_with_another_key_refuses_what_it_did_not_ask(serving, tmp_path):
    waiting = tmp_path / "waiting.json"
    async with serving(generate_key(os.urandom(32))) as url:
        await in_another_process(url, waiting, "begin", "tea")
    async with serving(generate_key(os.urandom(32))) as url:
        with pytest.raises(AssertionError, match=r"Refused.*requestState"):
            await in_another_process(url, waiting, '"Ada"')
