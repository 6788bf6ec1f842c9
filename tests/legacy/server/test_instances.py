"""Several instances that share a store: a session's requests, answers and streams land on any of them."""

import asyncio
from contextlib import aclosing

import pytest

import antiphon
from antiphon import Context, Server, SQLiteStore

from .driver import Client, accept, initialize, notification, request, text_of, tool_call

YES = accept(confirm=True)


class Instances:
    """Two servers in one process, which know of each other only what is in the store."""

    def __init__(self, path):
        self.stores = [SQLiteStore(path), SQLiteStore(path)]
        self.gates = [asyncio.Event(), asyncio.Event()]
        self.cancelled = asyncio.Event()
        self.apps = [self._app(store, gate) for store, gate in zip(self.stores, self.gates, strict=True)]
        self.endpoints = [app.asgi() for app in self.apps]

    def _app(self, store, gate):
        app = Server("tests", store=store)

        @app.tool
        async def sure(ctx: Context) -> str:
            try:
                return str(await ctx.confirm("Sure?"))
            except asyncio.CancelledError:
                self.cancelled.set()
                raise

        @app.tool
        async def work(ctx: Context) -> str:
            await ctx.log("warning", "begun")
            try:
                await gate.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            await ctx.log("warning", "more")
            return "worked"

        @app.resource("note://{id}")
        async def note(id: str) -> str:
            return id

        return app

    async def client(self):
        """One session, as seen from each instance."""
        here, there = (Client(endpoint) for endpoint in self.endpoints)
        await here.connect()
        there.session, there.headers = here.session, dict(here.headers)
        return here, there


@pytest.fixture
async def instances(tmp_path):
    made = Instances(tmp_path / "store.db")
    yield made
    for app, store in zip(made.apps, made.stores, strict=True):
        app.subscriptions.close()
        await asyncio.sleep(0)
        await store.close()


async def test_a_session_is_known_everywhere(instances):
    here, there = await instances.client()
    assert (await there.call("ping"))["result"] == {}
    await there.call("logging/setLevel", {"level": "emergency"})
    instances.gates[0].set()
    assert (await here.converse(tool_call("work"), {})).notified == []
    await there.delete()
    assert (await here.post(request("ping"))).status == 404


async def test_an_answer_finds_the_instance_that_waits(instances):
    here, there = await instances.client()
    call = here.tool("sure")
    await there.answer(await call.next_message(), YES)
    assert text_of(await call.next_message()) == "True"
    await call.finished()


async def test_an_answer_from_another_session_is_ignored_there_too(instances):
    here, _ = await instances.client()
    _, mallory = await instances.client()
    call = here.tool("sure")
    question = await call.next_message()
    await mallory.answer(question, YES)
    await here.answer(question, accept(confirm=False))
    assert text_of(await call.next_message()) == "False"
    await call.finished()


async def test_a_call_is_cancelled_from_anywhere(instances):
    here, there = await instances.client()
    call = here.open(tool_call("sure", id="mine"))
    question = await call.next_message()
    await there.tell("notifications/cancelled", {"requestId": "mine"})
    assert await call.closed() == [question, notification("notifications/cancelled", {"requestId": question["id"]})]
    await call.finished()


async def test_a_stream_is_taken_up_elsewhere(instances):
    here, there = await instances.client()
    call = here.tool("work")
    await call.next_message()
    again = there.listen(call.last_id)
    await again.opened()
    await call.until(lambda: call.ended)
    instances.gates[0].set()
    messages = await again.closed()
    assert messages[0]["params"]["data"] == "more"
    assert text_of(messages[1]) == "worked"
    assert len(call.messages) == 1
    await call.finished()


async def test_a_question_is_read_and_answered_elsewhere(instances):
    here, there = await instances.client()
    call = here.tool("sure")
    await call.next_message()
    again = there.listen(call.events[0].id)
    await there.answer(await again.next_message(), YES)
    assert text_of((await again.closed())[-1]) == "True"
    await call.finished()


async def test_who_leaves_elsewhere_is_given_up_here(instances, soon):
    here, there = await instances.client()
    call = here.tool("sure")
    await call.next_message()
    again = there.listen(call.last_id)
    await again.opened()
    await call.until(lambda: call.ended)
    again.disconnect()
    await asyncio.wait_for(instances.cancelled.wait(), 3)
    await again.finished()
    await call.finished()


async def test_changes_are_heard_everywhere_and_once(instances):
    here, there = await instances.client()
    await here.call("resources/subscribe", {"uri": "note://1"})
    stream = there.listen()
    await stream.opened()
    instances.apps[0].updated("note://1")
    assert (await stream.next_message())["params"] == {"uri": "note://1"}
    instances.apps[1].changed("tools")
    assert (await stream.next_message())["method"] == "notifications/tools/list_changed"
    # The same session's stream elsewhere takes the place of this one.
    other = here.listen()
    await other.opened()
    await stream.closed()
    instances.apps[1].changed("prompts")
    assert (await other.next_message())["method"] == "notifications/prompts/list_changed"
    assert len(stream.messages) == 2
    other.disconnect()
    await other.finished()


async def test_an_end_is_an_end_everywhere(instances):
    here, there = await instances.client()
    stream = there.listen()
    await stream.opened()
    call = there.tool("work")
    await call.next_message()
    await here.delete()
    await stream.closed()
    await call.finished()
    assert instances.cancelled.is_set()


async def test_a_stream_whose_instance_died_ends_with_an_error(instances, soon):
    here, there = await instances.client()
    call = here.tool("work", id="mine")
    await call.next_message()
    router = here.app.dialect.router
    router._stop()  # no sign of life, and nothing is heard any more
    await instances.stores[0].take(f"antiphon:alive:{router.instance}")
    again = there.listen(call.last_id)
    end = (await again.closed())[-1]
    assert (end["id"], end["error"]["code"]) == ("mine", -32603)
    assert "gone" in end["error"]["message"]
    call.disconnect()
    instances.gates[0].set()
    await call.finished()
    assert len(again.messages) == 1


async def test_a_client_on_a_pipe_hears_what_changes_at_another_instance(instances):
    here, there = instances.apps
    async with (
        there.running(),
        antiphon.Client(here, era="legacy") as client,
        aclosing(client.subscribe(resources=["note://1"])) as subscription,
    ):
        first = asyncio.create_task(anext(subscription))
        while not first.done():
            there.updated("note://1")  # as soon as it listens
            await asyncio.wait({first}, timeout=0.02)
        assert await first == antiphon.Change("resource", "note://1")


async def test_what_a_session_subscribes_to_at_two_instances_at_once_is_all_kept(instances):
    here, there = await instances.client()
    names = [f"note://{number}" for number in range(20)]
    replies = await asyncio.gather(
        *((here, there)[number % 2].call("resources/subscribe", {"uri": name}) for number, name in enumerate(names))
    )
    assert [reply["result"] for reply in replies] == [{}] * 20
    session = await instances.endpoints[0].dialect.sessions.find(here.session.encode(), None)
    assert sorted(session.uris) == sorted(names)


async def test_a_session_that_ends_at_one_instance_while_another_uses_it_stays_ended(instances):
    for _ in range(10):
        here, there = await instances.client()
        ended, _ = await asyncio.gather(here.delete(), there.post(request("ping")))
        assert ended.status == 204
        assert (await there.post(request("ping"))).status == 404


async def test_who_does_not_read_at_one_instance_holds_up_nobody_else_there(instances):
    here, there = await instances.client()
    call = here.tool("work")
    await call.next_message()
    call.reads.clear()
    instances.gates[0].set()
    await call.blocked.wait()
    again = there.listen(call.last_id)
    await again.opened()
    other, elsewhere = await instances.client()
    asked = other.tool("sure")
    await elsewhere.answer(await asked.next_message(), YES)
    assert text_of(await asked.next_message()) == "True"
    await asked.finished()
    assert text_of((await again.closed())[-1]) == "worked"
    call.disconnect()
    await call.finished()


async def test_sessions_that_ended_elsewhere_make_room(instances):
    crowded = instances.apps[0].asgi(max_sessions=3)
    for _ in range(3):
        client = Client(crowded)
        await client.connect()
        client.app = instances.endpoints[1]
        assert (await client.delete()).status == 204
    await Client(crowded).connect()


async def test_only_sessions_that_no_instance_uses_make_room(instances, monkeypatch):
    from antiphon.legacy.server import sessions

    now = 1000.0
    monkeypatch.setattr(sessions.time, "monotonic", lambda: now)
    crowded = instances.apps[0].asgi(max_sessions=2)
    elsewhere, idle = Client(crowded), Client(crowded)
    await elsewhere.connect()
    elsewhere.app = instances.endpoints[1]
    await elsewhere.call("ping")
    await idle.connect()
    await Client(crowded).connect()  # the first one counts at the other instance now
    refused = await Client(crowded).post(initialize())
    assert refused.status == 503  # another instance may use one without having written it yet
    now += 400
    await Client(crowded).connect()
    assert (await idle.post(request("ping"))).status == 404
    assert (await elsewhere.post(request("ping"))).status == 200
