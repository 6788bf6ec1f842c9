"""The official Python client, declaring nothing: calls what each line of its input says, and prints what a model saw.

`python silent_client.py auto|legacy http URL`, or `... stdio COMMAND...`
"""

import asyncio
import json
import sys

from client import target_of
from mcp import Client


async def main(mode, *target):
    async with Client(target_of(*target), mode=mode) as client:
        print(json.dumps(client.protocol_version), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            call = json.loads(line)
            result = await client.call_tool(call["name"], call["arguments"])
            print(result.model_dump_json(by_alias=True), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
