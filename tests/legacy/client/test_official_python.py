"""Our client against the official Python server, in the era that it speaks to old clients."""

import asyncio
import sys
from pathlib import Path

import pytest

from antiphon import Accepted, Client, Root

pytestmark = pytest.mark.peers

SERVER = Path(__file__).parent.parent.parent / "peers" / "asking_server.py"


async def test_its_questions_are_rounds():
    seen = []

    def elicit(question):
        seen.append((question.message, question.server.name, question.tool))
        return Accepted(True)

    handlers = {"elicit": elicit, "sample": lambda _: "Bob", "roots": [Root("file:///work")]}
    command = [sys.executable, str(SERVER)]
    async with asyncio.timeout(60), Client(command, **handlers, era="legacy") as client:
        result = await client.call_tool("declared", {"env": "prod"})
        assert (result.text, result.rounds) == ("prod True Bob file:///work", 4)
        assert (client.era, client.protocol_version) == ("legacy", "2025-11-25")
        assert (await client.call_tool("add", {"a": 2})).structured == {"total": 3}
    assert seen == [("Deploy to prod?", "official-python", "declared")]
