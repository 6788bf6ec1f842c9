"""The official Python client through a list of conversations; how each went goes to standard output as JSON.

`python asking_client.py CONVERSATIONS http URL`, or `... stdio COMMAND...`: a JSON file that `conversations.py`
describes, and where. A command is given the example's name as its last argument.
"""

import asyncio
import json
import sys
from itertools import groupby
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.types import CreateMessageResult, ElicitResult, ListRootsResult


class Person:
    """Answers what the conversation under way says, and remembers what was asked."""

    def __init__(self):
        self.answers = {}
        self.asked = []

    async def elicit(self, _context, params):
        return ElicitResult.model_validate(self._answer(params.mode, params.message))

    async def sample(self, _context, params):
        return CreateMessageResult.model_validate(self._answer("sample", params.messages[0].content.text))

    async def roots(self, _context):
        return ListRootsResult.model_validate(self._answer("roots", "roots"))

    def _answer(self, kind, text):
        self.asked.append([kind, text])
        return self.answers[text]


async def main(server, conversations, **how):
    """How the conversations went with a client of each site; `server` says where that is."""
    told = {}
    for site, each in groupby(conversations, key=lambda conversation: conversation["site"]):
        person = Person()
        async with Client(
            server(site),
            elicitation_callback=person.elicit,
            sampling_callback=person.sample,
            list_roots_callback=person.roots,
            **how,
        ) as client:
            for conversation in each:
                person.answers, person.asked = conversation["answers"], []
                told[conversation["name"]] = {
                    "revision": client.protocol_version,
                    **await outcome(client.call_tool(conversation["tool"], conversation["arguments"])),
                    "asked": sorted(person.asked),
                }
    return told


def server(kind, target, site):
    if kind == "http":
        return f"{target[0]}/{site}/mcp"
    return StdioServerParameters(command=target[0], args=[*target[1:], site])


def tell(arguments, **how):
    """Print how the conversations went; `arguments` are those of the program."""
    file, kind, *target = arguments
    told = asyncio.run(main(lambda site: server(kind, target, site), json.loads(Path(file).read_text()), **how))
    sys.stdout.write(json.dumps(told))


async def outcome(call):
    try:
        result = await call
    except Exception as fault:
        return {"failed": repr(fault)}
    return {"text": "".join(block.text for block in result.content), "is_error": result.is_error}


if __name__ == "__main__":
    tell(sys.argv[1:])
