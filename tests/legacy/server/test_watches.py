"""What a session subscribed to at a mounted server ends with the session, however that ends."""

import asyncio
import time

import pytest

from antiphon import Client as OurClient
from antiphon import MemoryStore, Server
from antiphon.legacy.server import watches
from antiphon.server.mounts import Mount
from client.until import until

from .driver import Client
from .test_sessions import Clock

NOTE = {"uri": "note://1"}


class Elsewhere(Mount):
    """A server elsewhere, which knows what is watched there."""

    prefix = "there"
    features = ("resources",)

    def __init__(self):
        self.watched = []

    def watch(self, call, uri):
        self.watched.append(uri)
        return lambda: self.watched.remove(uri)


@pytest.fixture
def elsewhere():
    return Elsewhere()


def front(elsewhere, **options):
    app = Server("front", **options)
    app.mounts.add(elsewhere)
    return app


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


async def subscriber(endpoint, *uris):
    client = Client(endpoint)
    await client.connect()
    for uri in uris or ["note://1"]:
        await client.call("resources/subscribe", {"uri": uri})
    return client


async def test_a_session_watches_until_it_unsubscribes(elsewhere):
    client = await subscriber(front(elsewhere).asgi(), "note://1", "note://2", "note://1")
    assert sorted(elsewhere.watched) == ["note://1", "note://2"]
    await client.call("resources/unsubscribe", NOTE)
    assert elsewhere.watched == ["note://2"]


async def test_nothing_is_watched_for_a_session_that_was_deleted(elsewhere):
    endpoint = front(elsewhere).asgi()
    client, other = await subscriber(endpoint, "note://1", "note://2"), await subscriber(endpoint)
    assert (await client.delete()).status == 204
    assert elsewhere.watched == ["note://1"]
    assert (await other.delete()).status == 204
    assert elsewhere.watched == []


async def test_nothing_is_watched_for_a_session_that_expired(elsewhere, clock):
    client = await subscriber(front(elsewhere, store=MemoryStore(clock=clock)).asgi(session_ttl=10))
    await clock.passes(8)
    await client.call("ping")
    await clock.passes(8)
    assert elsewhere.watched == ["note://1"]
    for _ in range(3):
        await clock.passes(6)
    assert elsewhere.watched == []


async def test_nothing_is_watched_for_a_session_that_made_room(elsewhere):
    endpoint = front(elsewhere).asgi(max_sessions=1)
    await subscriber(endpoint)
    await Client(endpoint).connect()
    assert elsewhere.watched == []


@pytest.mark.parametrize("ends", [True, False])
async def test_a_session_that_moved_to_another_instance_is_watched_for_until_it_ends(elsewhere, clock, ends):
    store = MemoryStore(clock=clock)
    here, there = (front(mount, store=store).asgi(session_ttl=10) for mount in (elsewhere, Elsewhere()))
    client = await subscriber(here)
    client.app = there
    for _ in range(8):
        await clock.passes(5)
        await client.call("ping")
    assert len(here.dialect.sessions) == 0
    assert elsewhere.watched == ["note://1"]
    if ends:
        await client.delete()
    for _ in range(1 if ends else 4):
        await clock.passes(5)
    assert elsewhere.watched == []


async def test_nothing_is_watched_for_a_pipe_that_was_closed_and_another_one_watches_on(elsewhere):
    app = front(elsewhere)

    async def change_of(client):
        async for _ in client.subscribe(resources=["note://1"]):
            pass

    async with asyncio.timeout(5), OurClient(app, era="legacy") as staying:
        listening = asyncio.create_task(change_of(staying))
        await until(lambda: len(elsewhere.watched) == 1)
        async with OurClient(app, era="legacy") as leaving:
            leaving_too = asyncio.create_task(change_of(leaving))
            await until(lambda: len(elsewhere.watched) == 2)
        await asyncio.gather(leaving_too, return_exceptions=True)
        assert len(elsewhere.watched) == 1
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    assert elsewhere.watched == []


async def test_too_many_subscriptions_are_logged_and_sessions_that_end_make_room(elsewhere, monkeypatch, caplog):
    monkeypatch.setattr(watches, "MAX_WATCHES", 2)
    endpoint = front(elsewhere).asgi()
    first = await subscriber(endpoint, "note://1", "note://2", "note://3")
    assert elsewhere.watched == ["note://1", "note://2"]
    assert "note://3" in caplog.text
    await first.delete()
    await subscriber(endpoint, "note://3")
    assert elsewhere.watched == ["note://3"]
