"""A client that keeps calling, signed in by a keep that others share: URL, folder, seconds. Prints its calls."""

import asyncio
import sys
import time

from antiphon import Client
from antiphon.auth import File, OAuth


async def main(url, folder, seconds):
    calls, end = 0, time.monotonic() + float(seconds)
    async with Client(url, auth=OAuth(visit=None, keep=File(folder))) as client:
        while time.monotonic() < end:
            result = await client.call_tool("who")
            assert result.text == "ada read", result.text
            calls += 1
            await asyncio.sleep(0.05)
    sys.stdout.write(f"{calls}\n")


asyncio.run(main(*sys.argv[1:]))
