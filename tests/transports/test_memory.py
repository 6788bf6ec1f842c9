"""In memory: the same server without bytes."""

import asyncio
import json

import pytest

from antiphon import Context, Icon, Image
from antiphon.transports.memory import MemoryLink
from messages import check_reply, request, tool_call


def only_json(value):
    """Whether a value is made of what a JSON parser would give."""
    if type(value) is dict:
        return all(type(key) is str and only_json(item) for key, item in value.items())
    if type(value) is list:
        return all(map(only_json, value))
    return value is None or type(value) in {str, int, float, bool}


async def test_replies_are_what_a_parser_would_give(app):
    @app.tool(icons=[Icon("https://example.com/i.png", sizes=("48x48",))])
    def picture() -> tuple[str, Image]:
        return "look", Image(b"png")

    for message in (request("tools/list"), tool_call("picture"), request("server/discover")):
        reply = await MemoryLink(app).send(message)
        check_reply(message, reply)
        assert only_json(reply), reply


async def test_notifications_come_before_the_reply_and_are_plain_too(app):
    @app.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1, message="one")
        await ctx.log("info", ("a", 1))
        return "done"

    told = []
    await MemoryLink(app).send(tool_call("work", progress="t", log_level="info"), told.append)
    assert [message["method"] for message in told] == ["notifications/progress", "notifications/message"]
    assert all(map(only_json, told))


async def test_the_callback_may_be_async_and_may_be_missing(app):
    @app.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1)
        return "done"

    told = asyncio.Queue()
    await MemoryLink(app).send(tool_call("work", progress="t"), told.put)
    assert told.qsize() == 1
    assert (await MemoryLink(app).send(tool_call("work", progress="t")))["result"]


async def test_a_notification_gets_no_reply(app):
    assert await MemoryLink(app).send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}}) is None


@pytest.mark.parametrize("message", [{}, {"jsonrpc": "2.0"}, {"jsonrpc": "2.0", "id": None, "method": "x"}])
async def test_a_message_that_is_none_is_an_error_here_too(app, message):
    reply = await MemoryLink(app).send(message)
    assert reply["error"]["code"] == -32600
    assert "id" not in reply


async def test_the_message_is_left_as_it_was(app):
    app.add_tool(lambda: "x", name="echo")
    message = tool_call("echo")
    before = json.dumps(message)
    await MemoryLink(app).send(message)
    assert json.dumps(message) == before


async def test_cancelling_the_call_cancels_the_handler(app):
    started, ended = asyncio.Event(), []

    @app.tool
    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    task = asyncio.ensure_future(MemoryLink(app).send(tool_call("wait")))
    await asyncio.wait_for(started.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]
