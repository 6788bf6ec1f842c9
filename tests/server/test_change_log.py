"""Instances that share a store tell each other's listeners what changes."""

import asyncio
from contextlib import aclosing, asynccontextmanager

import pytest

from antiphon import Change, Client, MemoryStore, RedisStore, Server, SQLiteStore, StoreError
from antiphon.server import change_log as changes
from asgi import Http
from client.until import until
from messages import SUBSCRIPTION, check_notification, request
from redis_server import start_redis

PATIENCE = 20.0
EVERYTHING = {"toolsListChanged": True, "resourceSubscriptions": ["note://1"]}


class Wire:
    """A store that is elsewhere, and sometimes out of reach."""

    def __init__(self, far):
        self.far = far
        self.is_down = False

    def __getattr__(self, name):
        if self.is_down:
            raise StoreError("nobody there")
        return getattr(self.far, name)


def server(store):
    app = Server("one of several", store=store)
    app.add_tool(lambda: "", name="t")
    app.add_resource("note://{number}", lambda number: number)
    return app


@pytest.fixture(params=["sqlite", "redis"])
async def instances(request, tmp_path):
    """Two servers that know of each other only what is in the store."""
    if request.param == "sqlite":
        stores = [SQLiteStore(tmp_path / "store.db") for _ in range(2)]
        yield [server(store) for store in stores]
    else:
        with start_redis(tmp_path) as url:
            stores = [RedisStore(url) for _ in range(2)]
            yield [server(store) for store in stores]
    for store in stores:
        await store.close()


@asynccontextmanager
async def listening(app, wanted=EVERYTHING):
    """A stream of this server, acknowledged."""
    stream = Http(app.asgi()).open(request("subscriptions/listen", {"notifications": wanted}, id="s"))
    async with asyncio.timeout(PATIENCE):
        assert (await stream.next_message())["method"] == "notifications/subscriptions/acknowledged"
        yield stream
        stream.disconnect()
        await stream.finished()


async def heard(stream):
    message = await stream.next_message()
    check_notification(message)
    assert message["params"]["_meta"] == {SUBSCRIPTION: "s"}
    return message["method"].removeprefix("notifications/"), message["params"].get("uri")


async def served(app):
    """Make a server one that is being served."""
    await Http(app.asgi()).post(request("server/discover"))


async def test_a_listener_hears_what_changes_at_another_instance(instances):
    here, there = instances
    await served(there)
    async with listening(here) as stream:
        there.changed("tools")
        assert await heard(stream) == ("tools/list_changed", None)
        there.updated("note://2")
        there.changed("resources")
        there.updated("note://1")
        assert await heard(stream) == ("resources/updated", "note://1")


async def test_a_change_is_heard_once_where_it_happens(instances):
    here, there = instances
    async with listening(here) as near, listening(there) as far:
        here.updated("note://1")
        assert await heard(near) == ("resources/updated", "note://1")
        assert await heard(far) == ("resources/updated", "note://1")
        # Its own is skipped when it comes back: the next that is heard is the next that happened.
        there.changed("tools")
        assert await heard(near) == ("tools/list_changed", None)
        assert await heard(far) == ("tools/list_changed", None)


async def test_a_client_subscribes_at_one_instance_and_hears_of_all(instances):
    here, there = instances
    await served(there)
    async with Client(here) as client, aclosing(client.subscribe(resources=["note://1"])) as subscription:
        first = asyncio.create_task(anext(subscription))
        await until(lambda: here.changes._reading and here.changes._tried.is_set())
        there.updated("note://1")
        assert await asyncio.wait_for(first, PATIENCE) == Change("resource", "note://1")


async def test_a_change_in_a_thread_reaches_other_instances(instances):
    here, there = instances
    await served(there)
    async with listening(here) as stream:
        await asyncio.to_thread(there.changed, "tools")
        assert await heard(stream) == ("tools/list_changed", None)


async def test_nothing_goes_on_when_the_last_listener_has_left(instances):
    here, _ = instances
    before = asyncio.all_tasks()
    async with listening(here):
        assert here.changes._reading is not None
    assert here.changes._reading is None
    await here.store.close()
    await until(lambda: not asyncio.all_tasks() - before)


async def test_what_is_there_before_serving_is_no_change():
    store = MemoryStore()
    app = server(Wire(store))
    app.add_tool(lambda: "", name="another")
    assert app.subscriptions.changes is None
    app.asgi()
    await asyncio.sleep(0)
    assert len(store) == 0


async def test_a_store_out_of_reach_leaves_listeners_the_changes_of_their_own_instance(monkeypatch, caplog):
    monkeypatch.setattr(changes, "PAUSE", 0.01)
    far = MemoryStore()
    wires = [Wire(far), Wire(far)]
    here, there = (server(wire) for wire in wires)
    await served(there)
    wires[0].is_down = True
    async with listening(here) as stream:
        here.changed("tools")
        assert await heard(stream) == ("tools/list_changed", None)
        assert "changes at other instances cannot be heard of for the moment: nobody there" in caplog.text
        wires[0].is_down = False
        await until(lambda: here.changes._fault is None)
        there.updated("note://1")
        assert await heard(stream) == ("resources/updated", "note://1")


async def test_a_store_that_is_lost_for_a_while_loses_no_change(monkeypatch):
    monkeypatch.setattr(changes, "PAUSE", 0.01)
    monkeypatch.setattr(changes, "SILENCE", 0.01)
    far = MemoryStore()
    wires = [Wire(far), Wire(far)]
    here, there = (server(wire) for wire in wires)
    await served(there)
    async with listening(here) as stream:
        wires[0].is_down = True
        await until(lambda: here.changes._fault)
        there.updated("note://1")
        await until(lambda: len(far))
        wires[0].is_down = False
        assert await heard(stream) == ("resources/updated", "note://1")


async def test_a_change_that_cannot_be_told_is_logged(caplog):
    wire = Wire(MemoryStore())
    app = server(wire)
    async with app.running():
        wire.is_down = True
        app.changed("tools")
        await until(lambda: "other instances cannot be told of a change: nobody there" in caplog.text)
