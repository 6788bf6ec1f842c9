"""Our client through the same conversations: `python our_client.py ERA CONVERSATIONS http URL`, or `stdio COMMAND`."""

import asyncio
import json
import sys
from itertools import groupby
from pathlib import Path

import msgspec

from antiphon import Accepted, Cancelled, Client, Declined, Refused, Root, Sample

REFUSALS = {"decline": Declined(), "cancel": Cancelled()}


class Person:
    """Answers what the conversation under way says, and remembers what was asked."""

    def __init__(self):
        self.answers = {}
        self.asked = []

    async def elicit(self, question):
        raw = self._answer(question.mode, question.message)
        return Accepted(raw.get("content")) if raw["action"] == "accept" else REFUSALS[raw["action"]]

    async def sample(self, request):
        raw = self._answer("sample", request.messages[0].content.text)
        return msgspec.convert(raw, Sample)

    async def roots(self):
        return [Root(root["uri"]) for root in self._answer("roots", "roots")["roots"]]

    def _answer(self, kind, text):
        self.asked.append([kind, text])
        return self.answers[text]


async def main(era, kind, target, conversations):
    told = {}
    for site, each in groupby(conversations, key=lambda conversation: conversation["site"]):
        person = Person()
        server = f"{target[0]}/{site}/mcp" if kind == "http" else [*target, site]
        async with Client(
            server, elicit=person.elicit, elicit_url=person.elicit, sample=person.sample, roots=person.roots, era=era
        ) as client:
            for conversation in each:
                person.answers, person.asked = conversation["answers"], []
                try:
                    result = await client.call_tool(conversation["tool"], conversation["arguments"])
                    outcome = {"text": result.text, "is_error": result.is_error}
                except Refused as fault:
                    outcome = {"text": str(fault), "is_error": True}
                told[conversation["name"]] = {
                    "revision": client.protocol_version,
                    **outcome,
                    "asked": sorted(person.asked),
                }
    return told


if __name__ == "__main__":
    era, file, kind, *target = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(main(era, kind, target, json.loads(Path(file).read_text())))))
