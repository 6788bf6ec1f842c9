"""An older client in the same process: the pipe in memory."""

import asyncio
import contextlib

import pytest

from antiphon import Context, Server
from antiphon.legacy.server.stdio import MemoryPipe

from .driver import EVERYTHING, LATEST, accept, check, initialize, notification, request, text_of, tool_call

YES = accept(confirm=True)


class Far:
    """What comes back, in order."""

    def __init__(self, app):
        self.heard = asyncio.Queue()
        self.pipe = MemoryPipe(app, self.heard.put_nowait)

    async def next(self):
        async with asyncio.timeout(10):
            message = await self.heard.get()
        check(message)
        return message

    async def call(self, message):
        self.pipe.send(message)
        return await self.next()


@contextlib.asynccontextmanager
async def reached(app):
    far = Far(app)
    await far.pipe.open()
    try:
        yield far
    finally:
        await far.pipe.close()


@pytest.fixture
def app():
    app = Server("tests")
    app.seen = []

    @app.tool
    async def sure(ctx: Context) -> str:
        try:
            return str(await ctx.confirm("Sure?"))
        except asyncio.CancelledError:
            app.seen.append("cancelled")
            raise

    @app.tool
    async def echo(data: dict) -> dict:
        app.seen.append(data)
        return data

    return app


@pytest.fixture
async def far(app):
    async with reached(app) as far:
        assert (await far.call(initialize(capabilities=EVERYTHING)))["result"]["protocolVersion"] == LATEST
        far.pipe.send(notification("notifications/initialized"))
        yield far


async def test_it_opens_asks_and_answers(far):
    question = await far.call(tool_call("sure", id=5))
    assert question["method"] == "elicitation/create"
    assert question["params"]["_meta"]["antiphon/request"] == 5
    assert text_of(await far.call({"jsonrpc": "2.0", "id": question["id"], "result": YES})) == "True"


async def test_changes_are_told_from_any_thread(app, far):
    await asyncio.to_thread(app.changed, "tools")
    assert (await far.next())["method"] == "notifications/tools/list_changed"


async def test_neither_side_holds_what_the_other_changes(app, far):
    data = {"list": [1]}
    reply = await far.call(tool_call("echo", {"data": data}))
    data["list"].append(2)
    assert app.seen == [{"list": [1]}]
    reply["result"]["structuredContent"]["list"].append(3)
    assert app.seen == [{"list": [1]}]


async def test_a_cancelled_call_is_not_answered(app, far):
    question = await far.call(tool_call("sure", id=5))
    far.pipe.send(notification("notifications/cancelled", {"requestId": 5}))
    assert await far.next() == notification("notifications/cancelled", {"requestId": question["id"]})
    assert (await far.call(request("ping")))["result"] == {}
    assert app.seen == ["cancelled"]


@pytest.mark.parametrize("params", [None, {}, {"requestId": []}, {"requestId": {}}, {"requestId": None}, []])
async def test_a_cancellation_of_nothing_is_ignored(far, params):
    far.pipe.send(notification("notifications/cancelled", params))
    assert (await far.call(request("ping")))["result"] == {}


async def test_closing_ends_what_is_under_way(app):
    async with reached(app) as far:
        await far.call(initialize(capabilities=EVERYTHING))
        await far.call(tool_call("sure"))
    assert len(app.subscriptions) == 0
    assert app.is_running is False


async def test_nothing_is_served_before_initialize(app):
    async with reached(app) as far:
        for message in (request("tools/list"), request("logging/setLevel", {"level": "debug"})):
            assert "Initialize" in (await far.call(message))["error"]["message"]
        assert (await far.call(request("ping")))["result"] == {}


async def test_two_pipes_are_two_sessions(app):
    async with reached(app) as one, reached(app) as two:
        for far in (one, two):
            await far.call(initialize(capabilities=EVERYTHING))
        mine = await one.call(tool_call("sure", id=1))
        other = await two.call(tool_call("sure", id=1))
        two.pipe.send({"jsonrpc": "2.0", "id": other["id"], "result": YES})
        assert text_of(await two.next()) == "True"
        assert one.heard.empty()
        one.pipe.send({"jsonrpc": "2.0", "id": mine["id"], "result": accept(confirm=False)})
        assert text_of(await one.next()) == "False"
