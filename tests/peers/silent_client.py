"""The official Python client, declaring nothing: calls what each line of its input says, and prints what a model saw.

`python silent_client.py auto|legacy http URL`, or `... stdio COMMAND...`
"""

import asyncio
import json
import sys

from mcp import Client

from client import target_of


async def main(mode, *target):
    async with Client(target_of(*target), mode=mode) as client:
        tell(json.dumps(client.protocol_version))
        while line := await asyncio.to_thread(sys.stdin.readline):
            call = json.loads(line)
            result = await client.call_tool(call["name"], call["arguments"])
            tell(result.model_dump_json(by_alias=True))


def tell(line):
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
