"""A client that keeps calling, signed in by a keep that others share: URL, folder, seconds. Prints its calls.

With a fourth word, it has a person who signs in.
"""

import asyncio
import sys
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

from antiphon import Client
from antiphon.auth import File, OAuth


def visit(page, _):
    connection = HTTPConnection(urlsplit(page).netloc, timeout=10)
    connection.request("GET", page.removeprefix(f"http://{urlsplit(page).netloc}"))
    return connection.getresponse().headers["location"]


async def main(url, folder, seconds, *person):
    calls, end = 0, time.monotonic() + float(seconds)
    async with Client(url, auth=OAuth(visit=visit if person else None, keep=File(folder))) as client:
        while time.monotonic() < end:
            result = await client.call_tool("who")
            assert result.text == "ada read", result.text
            calls += 1
            await asyncio.sleep(0.05)
    sys.stdout.write(f"{calls}\n")


asyncio.run(main(*sys.argv[1:]))
