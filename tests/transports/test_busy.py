"""A process serves so many requests at once; more are refused before their body is read."""

import asyncio

import pytest

from antiphon import Client, Refused, Server
from antiphon.testing import serving


async def test_what_is_too_much_gets_503_with_retry_after_and_the_rest_goes_on():
    begun, go = asyncio.Event(), asyncio.Event()
    app = Server("busy")

    @app.tool
    async def wait() -> str:
        begun.set()
        await go.wait()
        return "done"

    async with serving(lambda _: app.asgi(max_requests=1)) as base, Client(f"{base}/mcp", era="2026-07-28") as client:
        first = asyncio.create_task(client.call_tool("wait"))
        await begun.wait()
        with pytest.raises(Refused) as refused:
            await client.call_tool("wait")
        assert (refused.value.status, refused.value.retry_after) == (503, 1)
        go.set()
        assert (await first).text == "done"
        assert (await client.call_tool("wait")).text == "done"


def test_a_limit_that_admits_nothing_is_an_error():
    with pytest.raises(ValueError, match="max_requests"):
        Server("busy").asgi(max_requests=0)
