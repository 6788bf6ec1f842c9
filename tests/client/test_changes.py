"""Subscriptions: changes as they happen, over broken streams too."""

import asyncio
import logging
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from antiphon import CallTimeout, Change, Client, Disconnected, Refused, Server

from .hostile import END, STREAM, answer, event
from .scripted import Scripted, refused
from .until import until

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
FILE = Path(__file__).parent / "changes_file.py"
PATIENCE = 20.0


@pytest.fixture(autouse=True)
def quick_reconnects(monkeypatch):
    monkeypatch.setattr("antiphon.client.listening.FIRST_WAIT", 0.01)


@pytest.fixture
def app():
    server = Server("changing")
    server.add_tool(lambda: "x", name="x")
    server.add_resource("text://{name}", lambda name: name)
    return server


@pytest.fixture(params=["memory", "http"])
def target(request, app):
    """The same server in memory and behind HTTP."""
    if request.param == "memory":
        return app
    return f"http://127.0.0.1:{request.getfixturevalue('live')(app.asgi())}/mcp"


async def listening(app):
    """Wait until the server has somebody who listens."""
    await until(lambda: len(app.subscriptions))


async def heard(subscription, count):
    """The next changes of a subscription."""
    async with asyncio.timeout(PATIENCE):
        return [await anext(subscription) for _ in range(count)]


async def test_changes_arrive_as_they_happen(app, target):
    async with (
        Client(target) as client,
        aclosing(client.subscribe(tools=True, resources=["text://a"])) as subscription,
    ):
        first = asyncio.create_task(heard(subscription, 1))
        await listening(app)
        app.changed("tools")
        assert await first == [Change("tools")]
        app.updated("text://b")
        app.updated("text://a")
        assert await heard(subscription, 1) == [Change("resource", "text://a")]


async def test_a_subscription_is_left_by_breaking_out_of_it(app, target):
    async with Client(target) as client:

        async def first():
            async for change in client.subscribe(tools=True):
                return change
            return None

        waiting = asyncio.create_task(first())
        await listening(app)
        app.changed("tools")
        assert await waiting == Change("tools")


async def test_a_client_that_closes_ends_its_subscriptions(app, target):
    seen = []
    async with Client(target) as client:

        async def listen():
            async for change in client.subscribe(tools=True, prompts=True, resources=True):
                seen.append(change)

        ended = asyncio.create_task(listen())
        await listening(app)
        app.changed("tools")
        await until(lambda: seen)
    await ended
    assert seen == [Change("tools")]


async def test_a_listener_that_is_cancelled_leaves_nothing_behind(app, target):
    async with Client(target) as client:
        waiting = asyncio.create_task(heard(client.subscribe(tools=True), 1))
        await listening(app)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: not len(app.subscriptions))


async def test_a_change_makes_what_was_remembered_stale(app, target):
    async with Client(target) as client:
        assert len(await client.list_tools()) == 1
        async with aclosing(client.subscribe(tools=True)) as subscription:
            first = asyncio.create_task(heard(subscription, 1))
            await listening(app)
            app.add_tool(lambda: "y", name="y")
            await first
            assert len(await client.list_tools()) == 2


@pytest.mark.parametrize("wanted", [{}, {"resources": []}])
async def test_a_subscription_to_nothing_is_refused(wanted):
    async with Client(Scripted()) as client:
        with pytest.raises(ValueError, match="something to listen for"):
            await anext(client.subscribe(**wanted))


async def test_what_the_server_does_not_tell_of_is_warned_of(caplog):
    app = Server("no resources")
    app.add_tool(lambda: "x", name="x")
    async with Client(app) as client, aclosing(client.subscribe(tools=True, resources=["text://a"])) as subscription:
        with caplog.at_level(logging.WARNING, "antiphon.client"):
            first = asyncio.create_task(heard(subscription, 1))
            await listening(app)
            app.changed("tools")
            await first
    assert "will not tell of resourceSubscriptions" in caplog.text


# --- streams that break -------------------------------------------------------------------------------------------


def told(message, method, **params):
    meta = {SUBSCRIPTION: message["id"]}
    return event({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": {**params, "_meta": meta}})


def acknowledged(message):
    return told(message, "subscriptions/acknowledged", notifications=message["params"]["notifications"])


async def test_a_stream_that_breaks_is_opened_again_and_everything_may_have_changed(hostile):
    async def behave(server, reader, writer):
        message = await server.request(reader)
        writer.write(STREAM + acknowledged(message) + told(message, "prompts/list_changed"))
        await writer.drain()
        if server.connections < 3:
            writer.transport.abort()
        else:
            await reader.read()

    server = await hostile(behave)
    async with (
        Client(server.url) as client,
        aclosing(client.subscribe(prompts=True, resources=["a://1"])) as subscription,
    ):
        assert await heard(subscription, 1) == [Change("prompts")]
        for _ in range(2):
            unseen = [Change("prompts"), Change("resource", "a://1")]
            assert await heard(subscription, 3) == [*unseen, Change("prompts")]
    assert server.connections == 3
    assert len({message["id"] for message in server.requests}) == 3


@pytest.mark.parametrize("how", ["result", "end", "cancelled"])
async def test_a_stream_that_the_server_ends_is_opened_again(hostile, how):
    ends = {
        "result": lambda message: event({"id": message["id"], "result": {"resultType": "complete"}}) + END,
        "end": lambda message: END,
        "cancelled": lambda message: told(message, "cancelled", requestId=message["id"]),
    }

    async def behave(server, reader, writer):
        while True:
            message = await server.request(reader)
            writer.write(STREAM + acknowledged(message))
            if len(server.requests) == 1:
                writer.write(ends[how](message))

    server = await hostile(behave)
    async with Client(server.url) as client, aclosing(client.subscribe(tools=True)) as subscription:
        assert await heard(subscription, 1) == [Change("tools")]
    assert len(server.requests) == 2


async def test_a_server_that_is_busy_for_a_moment_is_tried_again(hostile):
    async def behave(server, reader, writer):
        message = await server.request(reader)
        if server.connections in {2, 3}:
            writer.write(answer(b"later", status="503 Service Unavailable", kind="text/plain"))
            await writer.drain()
            return
        writer.write(STREAM + acknowledged(message))
        await writer.drain()
        if server.connections > 1:
            await reader.read()

    server = await hostile(behave)
    async with Client(server.url) as client, aclosing(client.subscribe(tools=True)) as subscription:
        assert await heard(subscription, 1) == [Change("tools")]
    assert server.connections == 4


async def test_a_version_that_is_refused_once_is_tried_again(hostile):
    async def behave(server, reader, writer):
        message = await server.request(reader)
        data = {"supported": ["2026-07-28"], "requested": "2026-07-28"}
        refusal = {"id": message["id"], "error": {"code": -32022, "message": "Unsupported", "data": data}}
        writer.write(answer(refusal, status="400 Bad Request"))
        message = await server.request(reader)
        writer.write(STREAM + acknowledged(message) + told(message, "tools/list_changed"))
        await reader.read()

    server = await hostile(behave)
    async with Client(server.url) as client, aclosing(client.subscribe(tools=True)) as subscription:
        assert await heard(subscription, 1) == [Change("tools")]


async def test_a_refusal_ends_the_subscription(hostile):
    async with Client(Scripted(refused(-32601, "Method not found"))) as client:
        with pytest.raises(Refused, match="Method not found"):
            await anext(client.subscribe(tools=True))


async def test_a_refusal_after_a_break_ends_it_too(hostile):
    async def behave(server, reader, writer):
        message = await server.request(reader)
        if server.connections == 1:
            writer.write(STREAM + acknowledged(message))
        else:
            writer.write(answer(b"", status="401 Unauthorized"))
        await writer.drain()

    server = await hostile(behave)
    async with Client(server.url) as client:
        with pytest.raises(Refused, match="wants a token"):
            await heard(client.subscribe(tools=True), 1)


async def test_a_server_that_is_not_there_is_an_error_and_not_a_wait():
    async with Client("http://127.0.0.1:9/mcp") as client:
        with pytest.raises(Disconnected, match="Cannot connect"):
            await anext(client.subscribe(tools=True))


async def test_a_server_that_never_acknowledges_is_not_waited_for(hostile):
    async def behave(server, reader, writer):
        await server.request(reader)
        writer.write(STREAM)
        await reader.read()

    server = await hostile(behave)
    async with Client(server.url, timeout=0.1) as client:
        with pytest.raises(CallTimeout):
            await anext(client.subscribe(tools=True))


@pytest.mark.parametrize("params", [None, [], {"uri": 7}, {"_meta": 7}])
async def test_a_notification_that_makes_no_sense_is_skipped(hostile, params):
    async def behave(server, reader, writer):
        message = await server.request(reader)
        writer.write(STREAM + acknowledged(message))
        writer.write(event({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params}))
        writer.write(event({"jsonrpc": "2.0", "method": "notifications/unheard/of"}))
        writer.write(told(message, "tools/list_changed"))
        await reader.read()

    server = await hostile(behave)
    async with Client(server.url) as client, aclosing(client.subscribe(tools=True)) as subscription:
        assert await heard(subscription, 1) == [Change("tools")]


async def listened_to(client, count):
    async with asyncio.timeout(PATIENCE):
        while (await client.call_tool("listeners")).text != str(count):
            pass


# --- a child process ----------------------------------------------------------------------------------------------


async def test_subscriptions_to_a_child_process_are_told_apart():
    async with (
        Client([sys.executable, str(FILE)]) as client,
        aclosing(client.subscribe(tools=True)) as tools,
        aclosing(client.subscribe(resources=["text://a"])) as one,
        aclosing(client.subscribe(resources=["text://b"])) as other,
    ):
        waiting = [asyncio.create_task(heard(each, 1)) for each in (tools, one, other)]
        await listened_to(client, 3)
        await client.call_tool("change", {"uri": ""})
        await client.call_tool("change", {"uri": "text://b"})
        await client.call_tool("change", {"uri": "text://a"})
        assert await asyncio.gather(*waiting) == [
            [Change("tools")],
            [Change("resource", "text://a")],
            [Change("resource", "text://b")],
        ]


async def test_a_child_process_that_dies_is_started_again_and_listened_to():
    async with Client([sys.executable, str(FILE)]) as client:
        before = await client.call_tool("change", {"uri": ""})
        async with aclosing(client.subscribe(tools=True)) as subscription:
            first = asyncio.create_task(heard(subscription, 1))
            await listened_to(client, 1)
            await client.call_tool("change", {"uri": ""})
            assert await first == [Change("tools")]
            with pytest.raises(Disconnected, match="exit code 7"):
                await client.call_tool("die")
            assert await heard(subscription, 1) == [Change("tools")], "unseen"
            after = await client.call_tool("change", {"uri": ""})
            assert await heard(subscription, 1) == [Change("tools")]
    assert before.text != after.text
