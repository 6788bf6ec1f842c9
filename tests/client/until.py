"""Waiting for what another party does, which sends no word when it has."""

import asyncio


async def until(condition, *, patience=20.0):
    async with asyncio.timeout(patience):
        while not condition():  # noqa: ASYNC110 -- a socket's end, a server's list: nothing that sets an Event
            await asyncio.sleep(0.002)
