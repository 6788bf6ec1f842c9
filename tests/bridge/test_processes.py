"""Bridges in processes of their own that share a Redis: answers land at the other one, and one of them dies."""

import contextlib
import os
import subprocess
import sys

import pytest

from antiphon import Accepted, Client, Pending, Refused
from antiphon.rounds.token import generate_key
from redis_server import start_redis

pytestmark = pytest.mark.heavy

SHOP = """
from antiphon import Context, Server

app = Server("shop")

@app.tool
async def order(ctx: Context) -> str:
    name = (await ctx.elicit("Your name?", str)).unwrap()
    await ctx.progress(1, 2, name)
    return f"{name} {await ctx.confirm('Sure?')}"
"""


@contextlib.contextmanager
def bridge(file, redis):
    """A bridge that speaks the old protocol to a server, and its URL."""
    command = [sys.executable, "-m", "antiphon", "bridge", str(file), "--era", "legacy", "--redis", redis, "--http"]
    environment = {**os.environ, "ANTIPHON_KEYS": generate_key(b"k" * 32)}
    process = subprocess.Popen([*command, "--port", "0"], env=environment, stderr=subprocess.PIPE, text=True)
    try:
        line = next(line for line in process.stderr if line.startswith("Serving "))
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.wait(10)
        process.stderr.close()


@pytest.fixture
def bridges(tmp_path):
    file = tmp_path / "shop.py"
    file.write_text(SHOP)
    with start_redis(tmp_path) as redis, bridge(file, redis) as one, bridge(file, redis) as two:
        yield one, two


def client(url):
    return Client(url, elicit=lambda _: Accepted("x"))


async def test_answers_land_at_the_other_bridge(bridges):
    (_, one), (_, two) = bridges
    async with client(one) as first, client(two) as second:
        pending = await first.begin("tools/call", name="order", arguments={})
        pending = await second.resume(pending, dict.fromkeys(pending.questions, Accepted("Ann")))
        assert isinstance(pending, Pending)
        done = await second.resume(pending, dict.fromkeys(pending.questions, Accepted(value=True)))
        assert done.result.text == "Ann True"
        with pytest.raises(Refused, match="Invalid or expired requestState"):
            await first.resume(pending, dict.fromkeys(pending.questions, Accepted(value=True)))


async def test_a_call_of_a_bridge_that_died_is_lost_and_says_so(bridges):
    (process, one), (_, two) = bridges
    async with client(one) as first:
        pending = await first.begin("tools/call", name="order", arguments={})
    process.kill()
    process.wait(10)
    async with client(two) as second:
        with pytest.raises(Refused, match=r"The call was lost.*Make the call again"):
            await second.resume(pending, dict.fromkeys(pending.questions, Accepted("Ann")))
