"""What a server said may be believed for a while, and no longer."""

import asyncio
from contextlib import aclosing

import pytest

from antiphon import Accepted, Client, Context, Server
from antiphon.client import catalogue as cache

from .scripted import YES, Scripted, asks, form


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""

    class Clock:
        now = 1000.0

    monkeypatch.setattr(cache, "monotonic", lambda: Clock.now)
    return Clock


def tools(*names, ttl=None, cursor=None):
    made = {"resultType": "complete", "tools": [{"name": name, "inputSchema": {"a": {}}} for name in names]}
    if ttl is not None:
        made |= {"ttlMs": ttl, "cacheScope": "private"}
    return made if cursor is None else {**made, "nextCursor": cursor}


async def names(client):
    return [tool.name for tool in await client.list_tools()]


async def test_a_fresh_list_is_not_fetched_again(clock):
    link = Scripted(tools("a", ttl=5000), tools("b", ttl=5000))
    async with Client(link) as client:
        assert await names(client) == ["a"]
        clock.now += 4.999
        assert await names(client) == ["a"]
        clock.now += 0.001
        assert await names(client) == ["b"]
    assert len(link.sent) == 2


@pytest.mark.parametrize("ttl", [None, 0, -5, "5000", 1.5, True])
async def test_without_a_lifetime_nothing_is_kept(clock, ttl):
    link = Scripted(tools("a", ttl=ttl), tools("b", ttl=ttl))
    async with Client(link) as client:
        assert await names(client) == ["a"]
        assert await names(client) == ["b"]


async def test_every_page_has_a_lifetime_of_its_own(clock):
    link = Scripted(tools("a", ttl=9000, cursor="2"), tools("b", ttl=1000), tools("c", ttl=1000))
    async with Client(link) as client:
        assert await names(client) == ["a", "b"]
        clock.now += 2
        assert await names(client) == ["a", "c"]
    assert link.params == [{}, {"cursor": "2"}, {"cursor": "2"}]


async def test_a_resource_is_kept_by_its_uri(clock):
    def read(message):
        uri = message["params"]["uri"]
        return {"contents": [{"uri": uri, "text": f"{uri} {message['id']}"}], "ttlMs": 1000}

    link = Scripted(read)
    async with Client(link) as client:
        assert (await client.read_resource("a://1")).text == "a://1 1"
        assert (await client.read_resource("a://2")).text == "a://2 2"
        assert (await client.read_resource("a://1")).text == "a://1 1"
        clock.now += 1
        assert (await client.read_resource("a://1")).text == "a://1 3"


async def test_what_came_of_answers_is_never_kept(clock):
    link = Scripted(
        asks("s", key=form(a=YES)),
        {"contents": [{"uri": "a://1", "text": "one"}], "ttlMs": 9000},
        {"contents": [{"uri": "a://1", "text": "two"}], "ttlMs": 9000},
    )
    async with Client(link, elicit=lambda _: Accepted(True)) as client:
        assert (await client.read_resource("a://1")).text == "one"
        assert (await client.read_resource("a://1")).text == "two"


async def test_calls_are_never_kept(clock):
    link = Scripted(lambda message: {"content": [{"type": "text", "text": str(message["id"])}], "ttlMs": 9000})
    async with Client(link) as client:
        assert [(await client.call_tool("x")).text for _ in range(2)] == ["1", "2"]


async def test_the_discovery_is_kept(clock):
    link = Scripted({"supportedVersions": ["2026-07-28"], "ttlMs": 1000})
    async with Client(link) as client:
        assert await client.discover() == await client.discover()
    assert len(link.sent) == 1


async def test_nobody_can_change_what_the_next_one_gets(clock):
    async with Client(Scripted(tools("a", ttl=5000))) as client:
        (tool,) = await client.list_tools()
        tool.input_schema["a"]["evil"] = True
        (again,) = await client.list_tools()
        again.input_schema["a"]["evil"] = True
        (once_more,) = await client.list_tools()
    assert once_more.input_schema == {"a": {}}


async def test_clients_do_not_share_what_they_keep(clock):
    link = Scripted(lambda message: tools(f"for {message['params']['_meta'][INFO]['name']}", ttl=9000))
    async with Client(link, name="one") as one, Client(link, name="two") as two:
        assert await names(one) == ["for one"]
        assert await names(two) == ["for two"]


INFO = "io.modelcontextprotocol/clientInfo"


async def test_the_memory_is_bounded(clock, monkeypatch):
    monkeypatch.setattr(cache, "MOST", 3500)
    link = Scripted(lambda message: {"contents": [{"uri": "x", "text": f"{message['id']:1000}"}], "ttlMs": 9000})
    async with Client(link) as client:
        for number in (0, 1, 2, 2, 3, 4):
            await client.read_resource(f"a://{number}")
        assert (await client.read_resource("a://4")).text.strip() == "5"
        assert (await client.read_resource("a://3")).text.strip() == "4"
        assert (await client.read_resource("a://0")).text.strip() == "6"


async def test_a_result_larger_than_the_memory_is_not_kept(clock, monkeypatch):
    monkeypatch.setattr(cache, "MOST", 3500)
    link = Scripted(lambda message: {"contents": [{"uri": "x", "text": f"{message['id']:9000}"}], "ttlMs": 9000})
    async with Client(link) as client:
        assert [(await client.read_resource("a://0")).text.strip() for _ in range(2)] == ["1", "2"]


async def test_a_real_servers_lifetimes_are_honoured(clock):
    app = Server("kept", list_ttl=10)
    reads = []

    @app.resource("text://x", ttl=5)
    async def text(ctx: Context) -> str:
        reads.append(1)
        return str(len(reads))

    async with Client(app) as client:
        assert [(await client.read_resource("text://x")).text for _ in range(2)] == ["1", "1"]
        clock.now += 5
        assert (await client.read_resource("text://x")).text == "2"


@pytest.mark.parametrize("method", ["tools/list", "resources/read"])
async def test_what_was_under_way_when_something_changed_is_not_kept(method):
    arrived, gate, subscribed = asyncio.Event(), asyncio.Event(), asyncio.Queue()

    class Slow(Scripted):
        async def request(self, message, *, headers, on_notification=None):
            if message["method"] == "subscriptions/listen":
                on_notification({"method": "notifications/subscriptions/acknowledged", "params": {}})
                subscribed.put_nowait(on_notification)
                await asyncio.Event().wait()
            return await super().request(message, headers=headers)

    async def stale(_message):
        arrived.set()
        await gate.wait()
        return {**tools("old", ttl=5000), "contents": [{"uri": "a:b", "text": "old"}]}

    fresh = {**tools("new", ttl=5000), "contents": [{"uri": "a:b", "text": "new"}]}
    async with Client(Slow(stale, fresh)) as client:

        async def ask():
            return await names(client) if method == "tools/list" else [(await client.read_resource("a:b")).text]

        async with aclosing(client.subscribe(tools=True)) as subscription:
            heard = asyncio.ensure_future(anext(subscription))
            tell = await subscribed.get()
            asking = asyncio.create_task(ask())
            await arrived.wait()
            tell({"method": "notifications/tools/list_changed", "params": {}})
            await heard
            gate.set()
            assert await asking == ["old"]
            assert await ask() == ["new"]
            assert await ask() == ["new"]
