"""Answers the question of a waiting call: `python resume_file.py URL FILE ANSWER`; FILE waits on, or holds the result.

With `begin TOPIC` instead of an answer it makes the call.
"""

import asyncio
import json
import sys
from pathlib import Path

from antiphon import Accepted, Client, Complete, Pending


def nobody(_question):
    raise AssertionError("the questions are answered by hand")


async def go_on(url, text, *answer):
    async with Client(url, elicit=nobody) as client:
        if answer[0] == "begin":
            return await client.begin("tools/call", name="interview", arguments={"topic": answer[1]})
        pending = Pending.from_json(text)
        (key,) = pending.questions
        return await client.resume(pending, {key: Accepted(json.loads(answer[0]))})


def main(url, path, *answer):
    file = Path(path)
    outcome = asyncio.run(go_on(url, file.read_text() if file.exists() else "", *answer))
    if isinstance(outcome, Complete):
        file.write_text(json.dumps({"text": outcome.result.text, "rounds": outcome.result.rounds}))
    else:
        file.write_text(outcome.to_json())
        (question,) = outcome.questions.values()
        sys.stdout.write(question["params"]["message"])


if __name__ == "__main__":
    main(*sys.argv[1:])
