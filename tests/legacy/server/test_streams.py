"""Streams: of changes and of calls, left and taken up again."""

import asyncio
import json
import logging

import pytest

from antiphon import CannotAsk, Context, MemoryStore, Server
from antiphon.legacy.server import exchange as exchanges
from antiphon.legacy.server import reply_stream
from antiphon.stores import StoreError
from antiphon.transports import asgi, asgi_exchange
from client.until import until

from .driver import Client, accept, notification, request, text_of, tool_call

LIST_CHANGED = notification("notifications/tools/list_changed", {})


def updated(uri):
    return notification("notifications/resources/updated", {"uri": uri})


class Gate:
    """What a handler waits for, and what it saw."""

    def __init__(self):
        self.running = asyncio.Event()
        self.open = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.done = asyncio.Event()

    async def pass_through(self):
        self.running.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def app(store, gate):
    app = Server("tests", store=store)

    @app.tool
    async def work(ctx: Context, more: int = 0) -> str:
        await ctx.log("warning", "begun")
        await gate.pass_through()
        for number in range(more):
            await ctx.log("warning", number)
        gate.done.set()
        return "worked"

    @app.tool
    async def ask(ctx: Context) -> str:
        gate.running.set()
        try:
            sure = await ctx.confirm("Sure?")
        except asyncio.CancelledError:
            gate.cancelled.set()
            raise
        return f"sure: {sure}"

    @app.tool
    async def work_then_ask(ctx: Context) -> str:
        await ctx.log("warning", "begun")
        await gate.pass_through()
        return f"sure: {await ctx.confirm('Sure?')}"

    @app.tool
    async def part(ctx: Context) -> str:
        await ctx.hang_up(retry=0.5)
        await ctx.log("warning", "after")
        await gate.pass_through()
        return "worked"

    @app.resource("note://{id}")
    async def note(id: str) -> str:
        return id

    return app


async def leave(exchange):
    exchange.disconnect()
    await exchange.finished()


def router_of(client):
    return client.app.dialect.router


# --- changes ------------------------------------------------------------------------------------------------------


async def test_changes_of_lists_come_on_the_stream(app, client):
    stream = client.listen()
    await stream.opened()
    assert stream.headers["content-type"] == "text/event-stream"
    app.changed("tools")
    assert await stream.next_message() == LIST_CHANGED
    app.add_tool(lambda: None, name="new")
    assert await stream.next_message() == LIST_CHANGED
    app.changed("prompts")
    assert (await stream.next_message())["method"] == "notifications/prompts/list_changed"
    await leave(stream)


async def test_changes_of_resources_come_to_those_who_subscribed(app, client):
    other = Client(client.app)
    await other.connect()
    mine, theirs = client.listen(), other.listen()
    await mine.opened()
    await theirs.opened()
    await client.call("resources/subscribe", {"uri": "note://1"})
    app.updated("note://2")
    app.updated("note://1")
    assert await mine.next_message() == updated("note://1")
    await client.call("resources/unsubscribe", {"uri": "note://1"})
    app.updated("note://1")
    app.changed("tools")
    assert await mine.next_message() == LIST_CHANGED
    assert await theirs.next_message() == LIST_CHANGED
    await leave(mine)
    await leave(theirs)


async def test_a_change_may_happen_in_any_thread(app, client):
    stream = client.listen()
    await stream.opened()
    await asyncio.to_thread(app.changed, "tools")
    assert await stream.next_message() == LIST_CHANGED
    await leave(stream)


async def test_who_lost_the_stream_gets_what_was_missed_and_nothing_twice(app, client):
    await client.call("resources/subscribe", {"uri": "note://1"})
    stream = client.listen()
    await stream.opened()
    app.changed("tools")
    await stream.next_message()
    last = stream.last_id
    await leave(stream)
    app.updated("note://1")
    app.updated("note://2")
    app.changed("prompts")
    await client.call("ping")
    again = client.listen(last)
    assert await again.next_message() == updated("note://1")
    assert (await again.next_message())["method"] == "notifications/prompts/list_changed"
    app.changed("resources")
    assert (await again.next_message())["method"] == "notifications/resources/list_changed"
    assert last not in [event.id for event in again.events if event.data]
    await leave(again)


async def test_who_comes_without_a_last_event_gets_only_what_is_new(app, client):
    stream = client.listen()
    await stream.opened()
    app.changed("tools")
    await stream.next_message()
    await leave(stream)
    again = client.listen()
    await again.opened()
    app.changed("prompts")
    assert (await again.next_message())["method"] == "notifications/prompts/list_changed"
    await leave(again)


async def test_only_so_many_changes_are_kept(store):
    app = Server("tests", store=store)
    client = Client(app.asgi(event_buffer=5))
    await client.connect()
    await client.call("resources/subscribe", {"uri": "note://1"})
    stream = client.listen()
    await stream.opened()
    app.changed("tools")
    await stream.next_message()
    last = stream.last_id
    await leave(stream)
    for number in range(20):
        await client.call("resources/subscribe", {"uri": f"note://{number}"})
        app.updated(f"note://{number}")
    again = client.listen(last)
    found = [(await again.next_message())["params"]["uri"] for _ in range(5)]
    assert found == [f"note://{number}" for number in range(15, 20)]
    await leave(again)


async def test_a_second_stream_takes_the_place_of_the_first(app, client):
    # 2025-11-25, basic/transports, Multiple Connections: no message goes to two streams.
    first = client.listen()
    await first.opened()
    second = client.listen()
    await second.opened()
    await first.closed()
    app.changed("tools")
    assert await second.next_message() == LIST_CHANGED
    assert first.messages == []
    await leave(second)


async def test_streams_of_two_sessions_do_not_disturb_each_other(app, client):
    other = Client(client.app)
    await other.connect()
    streams = [client.listen(), other.listen()]
    for stream in streams:
        await stream.opened()
    app.changed("tools")
    for stream in streams:
        assert await stream.next_message() == LIST_CHANGED
        await leave(stream)


async def test_what_belongs_to_a_call_is_not_on_the_stream_of_changes(app, client, gate):
    stream = client.listen()
    await stream.opened()
    gate.open.set()
    call = client.tool("work")
    app.changed("tools")
    assert await stream.next_message() == LIST_CHANGED
    assert [message.get("method") for message in await call.closed()] == ["notifications/message", None]
    assert stream.messages == [LIST_CHANGED]
    await leave(stream)


@pytest.mark.parametrize("accept", ["application/json", "text/html", ""])
async def test_a_stream_is_only_for_those_who_accept_one(client, accept):
    assert (await client.listen(accept=accept).reply()).status == 406


@pytest.mark.parametrize("accept", ["text/event-stream", "*/*", "text/*;q=0.5, application/json", None])
async def test_a_stream_is_for_all_who_accept_one(client, accept):
    stream = client.listen(accept=accept)
    await stream.opened()
    assert stream.status == 200
    await leave(stream)


@pytest.mark.parametrize("last", ["x", "changes.x", "x.y", ".", "..", "changes.", "a.0", "0.0000000000000000001"])
async def test_an_event_that_never_was_is_refused_or_not_looked_at(app, client, last):
    app.changed("tools")
    await asyncio.sleep(0)
    exchange = client.listen(last)
    await exchange.until(lambda: exchange.status is not None)
    assert exchange.status in {200, 400}
    await leave(exchange)


async def test_a_quiet_stream_shows_that_it_is_alive(client, monkeypatch):
    monkeypatch.setattr(asgi_exchange, "KEEP_ALIVE", 0.02)
    monkeypatch.setattr(asgi, "PATIENCE", 0.01)
    stream = client.listen()
    await stream.until(lambda: stream.body.count(b":\n\n") >= 3)
    assert stream.messages == []
    await leave(stream)


async def test_a_server_that_ends_ends_its_streams(app):
    client = Client(app.asgi())
    async with app.running():
        await client.connect()
        stream = client.listen()
        await stream.opened()
        call = client.tool("ask")
        await call.next_message()
    assert await stream.closed() == []
    assert text_of((await call.closed())[-1]).startswith("The server stops")
    await stream.finished()
    await call.finished()


async def test_a_session_that_expires_under_a_stream_ends_it(app, client):
    stream = client.listen()
    await stream.opened()
    await app.store.take(f"antiphon:session:{client.session}")
    app.updated("note://1")
    await stream.closed()
    await stream.finished()


# --- calls --------------------------------------------------------------------------------------------------------


async def test_a_stream_begins_with_a_place_to_come_back_to(client, gate):
    gate.open.set()
    call = client.tool("work")
    await call.closed()
    first = call.events[0]
    # 2025-11-25, basic/transports: an event id and empty data, at once.
    assert (bool(first.id), first.data, first.retry) == (True, "", 1000)
    ids = [event.id for event in call.events]
    assert len(set(ids)) == len(ids) == 3


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-03-26"])
async def test_an_older_revision_is_sent_no_empty_event(app, gate, revision):
    gate.open.set()
    client = Client(app.asgi(), revision=revision)
    await client.connect()
    call = client.tool("work")
    await call.closed()
    assert all(event.data for event in call.events)
    assert all(event.id for event in call.events)


async def test_a_call_goes_on_without_its_client_who_fetches_the_result(client, gate):
    call = client.tool("work")
    await call.next_message()
    await leave_stream(call)
    gate.open.set()
    await call.finished()
    assert gate.done.is_set()
    again = client.listen(call.last_id)
    assert text_of((await again.closed())[-1]) == "worked"
    assert len(again.messages) == 1
    await again.finished()


async def leave_stream(exchange):
    """The connection dies, and the server has noticed."""
    await exchange.watched.wait()
    exchange.disconnect()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_a_client_comes_back_while_the_handler_works(client, gate):
    call = client.tool("work", {"more": 3})
    await call.next_message()
    await leave_stream(call)
    again = client.listen(call.last_id)
    await again.opened()
    gate.open.set()
    messages = await again.closed()
    assert [message["params"]["data"] for message in messages[:-1]] == [0, 1, 2]
    assert text_of(messages[-1]) == "worked"
    await again.finished()
    await call.finished()
    assert call.late == []


async def test_coming_back_from_the_first_event_brings_everything_again(client, gate):
    gate.open.set()
    call = client.tool("work", {"more": 2})
    messages = await call.closed()
    again = client.listen(call.events[0].id)
    assert await again.closed() == messages
    assert [event.id for event in again.events] == [event.id for event in call.events[1:]]


async def test_only_so_many_events_are_kept(app, gate):
    client = Client(app.asgi(event_buffer=4))
    await client.connect()
    gate.open.set()
    call = client.tool("work", {"more": 10})
    await call.closed()
    again = client.listen(call.events[0].id)
    messages = await again.closed()
    assert [message.get("params", {}).get("data") for message in messages] == [7, 8, 9, None]


async def test_who_comes_back_takes_the_stream_from_the_connection_before(client, gate):
    call = client.tool("work", {"more": 2})
    await call.next_message()
    again = client.listen(call.last_id)
    await again.opened()
    await call.until(lambda: call.ended)
    gate.open.set()
    messages = await again.closed()
    assert [message.get("method") for message in messages] == ["notifications/message"] * 2 + [None]
    assert [message.get("method") for message in call.messages] == ["notifications/message"]


async def test_who_comes_back_twice_reads_once(client, gate):
    call = client.tool("work", {"more": 2})
    await call.next_message()
    await leave_stream(call)
    first = client.listen(call.last_id)
    await first.opened()
    second = client.listen(call.last_id)
    await second.opened()
    await first.closed()
    gate.open.set()
    assert len(await second.closed()) == 3
    assert first.messages == []


async def test_a_stream_of_another_session_cannot_be_read(client, gate):
    gate.open.set()
    call = client.tool("work")
    await call.closed()
    other = Client(client.app)
    await other.connect()
    for event in call.events:
        reply = await other.listen(event.id).reply()
        assert reply.status == 400


async def test_the_end_of_a_stream_can_be_asked_for(client, gate):
    gate.open.set()
    call = client.tool("work")
    await call.closed()
    reply = await client.listen(call.last_id).reply()
    assert reply.status == 400
    assert "over" in reply.error["message"]


async def test_a_cancelled_call_ends_the_stream_that_is_read_elsewhere(client, gate, soon):
    call = client.tool("work", id="mine")
    await call.next_message()
    await leave_stream(call)
    again = client.listen(call.last_id)
    await again.opened()
    await client.tell("notifications/cancelled", {"requestId": "mine"})
    assert await again.closed() == []
    await again.finished()


# --- asked while away ---------------------------------------------------------------------------------------------


async def test_a_client_that_comes_back_in_time_still_answers(client):
    call = client.tool("ask")
    await call.next_message()
    await leave_stream(call)
    again = client.listen(call.events[0].id)
    question = await again.next_message()
    await client.answer(question, accept(confirm=True))
    assert text_of((await again.closed())[-1]) == "sure: True"


async def test_a_question_asked_while_the_client_is_away_waits_for_it(client, gate):
    call = client.tool("work_then_ask")
    await call.next_message()
    await leave_stream(call)
    gate.open.set()
    again = client.listen(call.last_id)
    await client.answer(await again.next_message(), accept(confirm=True))
    assert text_of((await again.closed())[-1]) == "sure: True"


async def test_a_client_that_stays_away_is_given_up_and_so_is_the_handler(client, gate, soon):
    call = client.tool("ask", id="mine")
    await call.next_message()
    await leave_stream(call)
    await asyncio.wait_for(gate.cancelled.wait(), 2)
    await call.finished()
    router = router_of(client)
    assert (len(router.pushes), router._replies, router._running) == (0, {}, {})
    # And who comes back too late hears so.
    again = client.listen(call.last_id)
    end = (await again.closed())[-1]
    assert "given up" in end["error"]["message"]
    assert end["id"] == "mine"


async def waited_for(client):
    """Return when the time is over that a client with one call has to come back."""
    (reply,) = router_of(client)._replies.values()
    await until(lambda: reply._absent)


async def test_a_handler_that_does_not_ask_is_not_given_up(client, gate, soon):
    call = client.tool("work")
    await call.next_message()
    await leave_stream(call)
    await waited_for(client)
    assert not gate.cancelled.is_set()
    gate.open.set()
    again = client.listen(call.last_id)
    assert text_of((await again.closed())[-1]) == "worked"


async def test_nobody_is_asked_who_has_been_away_for_too_long(client, gate, soon):
    call = client.tool("work_then_ask")
    await call.next_message()
    await leave_stream(call)
    await waited_for(client)
    gate.open.set()
    await call.finished()
    again = client.listen(call.last_id)
    assert "went away" in json.dumps((await again.closed())[-1])


async def test_who_came_back_late_but_before_the_question_is_asked(client, gate, soon):
    call = client.tool("work_then_ask")
    await call.next_message()
    await leave_stream(call)
    await waited_for(client)
    again = client.listen(call.last_id)
    await again.opened()
    gate.open.set()
    await client.answer(await again.next_message(), accept(confirm=True))
    assert text_of((await again.closed())[-1]) == "sure: True"


async def test_who_comes_back_and_leaves_again_is_given_up(client, gate, monkeypatch):
    monkeypatch.setattr(reply_stream, "GRACE", 0.5)
    call = client.tool("ask")
    await call.next_message()
    await leave_stream(call)
    (reply,) = router_of(client)._replies.values()
    again = client.listen(call.last_id)
    await again.opened()
    await until(reply._timer.cancelled)
    assert not gate.cancelled.is_set()
    again.disconnect()
    await asyncio.wait_for(gate.cancelled.wait(), 2)
    await call.finished()
    await again.finished()


async def test_a_thread_that_asks_is_not_left_waiting_when_the_client_stays_away(app, client, soon):
    import threading

    ended = threading.Event()

    @app.tool
    def in_a_thread(ctx: Context) -> str:
        try:
            return str(ctx.sync.confirm("Sure?"))
        finally:
            ended.set()

    call = client.tool("in_a_thread")
    await call.next_message()
    await leave_stream(call)
    assert await asyncio.to_thread(ended.wait, 2)
    await call.finished()


@pytest.mark.parametrize("legacy", ["sessions", "stateless"])
async def test_a_call_that_has_said_nothing_goes_on_without_its_connection(app, gate, monkeypatch, legacy):
    monkeypatch.setattr(asgi, "PATIENCE", 0.02)
    ended = asyncio.Event()

    @app.tool
    async def quiet(ctx: Context) -> str:
        await gate.pass_through()
        await ctx.log("error", "to nobody")
        ended.set()
        return "never heard"

    client = Client(app.asgi(legacy=legacy))
    await client.connect()
    call = client.tool("quiet")
    await gate.running.wait()
    await call.watched.wait()
    call.disconnect()
    gate.open.set()
    await call.finished()
    assert ended.is_set()
    assert not gate.cancelled.is_set()


async def test_a_call_that_asks_when_its_connection_is_gone_cannot(app, client, gate, monkeypatch):
    monkeypatch.setattr(asgi, "PATIENCE", 0.02)
    why = []

    @app.tool
    async def late(ctx: Context) -> str:
        await gate.pass_through()
        try:
            return str(await ctx.confirm("Sure?"))
        except CannotAsk as fault:
            why.append(fault.message)
            raise

    call = client.tool("late")
    await gate.running.wait()
    await call.watched.wait()
    call.disconnect()
    gate.open.set()
    await call.finished()
    assert why == ["The client went away"]


async def test_a_connection_is_kept_alive_while_a_person_thinks(client, monkeypatch):
    monkeypatch.setattr(asgi_exchange, "KEEP_ALIVE", 0.02)
    monkeypatch.setattr(asgi, "PATIENCE", 0.01)
    call = client.tool("ask")
    question = await call.next_message()
    await call.until(lambda: call.body.count(b":\n\n") >= 2)
    again = client.listen(call.last_id)
    await again.until(lambda: again.body.count(b":\n\n") >= 3)
    await client.answer(question, accept(confirm=True))
    assert text_of((await again.closed())[-1]) == "sure: True"


async def test_a_stream_is_kept_alive_while_its_handler_works(app, client, gate, monkeypatch):
    monkeypatch.setattr(asgi_exchange, "KEEP_ALIVE", 0.02)
    monkeypatch.setattr(asgi, "PATIENCE", 0.01)
    call = client.tool("work")
    await call.next_message()
    await call.until(lambda: call.body.count(b":\n\n") >= 2)
    gate.open.set()
    assert text_of((await call.closed())[-1]) == "worked"
    await call.finished()


# --- clients that do not read -------------------------------------------------------------------------------------


async def test_a_stream_that_is_taken_up_elsewhere_does_not_wait_for_its_old_connection(client, gate):
    call = client.tool("work", {"more": 3})
    await call.next_message()
    call.reads.clear()
    gate.open.set()
    await call.blocked.wait()
    again = client.listen(call.last_id)
    assert text_of((await again.closed())[-1]) == "worked"
    assert [message["params"]["data"] for message in again.messages[:-1]] == [0, 1, 2]
    call.disconnect()
    await call.finished()


async def test_an_end_that_cannot_be_sent_is_given_up(client, gate, monkeypatch):
    monkeypatch.setattr(exchanges, "ENDING", 0.01)
    call = client.tool("work")
    await call.next_message()
    call.reads.clear()
    again = client.listen(call.last_id)
    await again.opened()
    gate.open.set()
    assert text_of((await again.closed())[-1]) == "worked"
    await call.finished()
    assert not call.ended


async def test_a_server_ends_whose_streams_nobody_reads(app, monkeypatch):
    monkeypatch.setattr(exchanges, "ENDING", 0.01)
    client = Client(app.asgi())
    async with app.running():
        await client.connect()
        stream = client.listen()
        await stream.opened()
        stream.reads.clear()
        app.changed("tools")
        await stream.blocked.wait()
    await stream.finished()


async def test_a_stream_of_changes_that_nobody_reads_ends_before_it_grows_too_long(app, monkeypatch):
    monkeypatch.setattr(exchanges, "ENDING", 0.01)
    client = Client(app.asgi(event_buffer=3))
    await client.connect()
    for number in range(9):
        assert (await client.call("resources/subscribe", {"uri": f"note://{number}"}))["result"] == {}
    stream = client.listen()
    await stream.opened()
    stream.reads.clear()
    for number in range(9):
        before = app.changes._last
        app.updated(f"note://{number}")
        await until(lambda before=before: stream.task.done() or app.changes._last != before)
    await stream.finished()
    # What is kept is there for a client that comes back.
    again = client.listen(stream.last_id) if stream.last_id else client.listen()
    await again.opened()
    app.updated("note://0")
    assert await again.next_message() in [updated(f"note://{number}") for number in range(9)]
    await leave(again)


async def test_equal_changes_that_wait_to_be_sent_are_one(app, client):
    stream = client.listen()
    await stream.opened()
    stream.reads.clear()
    app.changed("tools")
    await stream.blocked.wait()
    for _ in range(10):
        app.changed("tools")
        before = app.changes._last
        await until(lambda before=before: app.changes._last != before)
    stream.reads.set()
    assert await stream.next_message() == LIST_CHANGED
    assert await stream.next_message() == LIST_CHANGED
    app.changed("prompts")
    assert (await stream.next_message())["method"] == "notifications/prompts/list_changed"
    await leave(stream)


# --- hanging up ---------------------------------------------------------------------------------------------------


async def test_a_handler_hangs_up_and_its_client_comes_back(client, gate):
    call = client.tool("part")
    await call.until(lambda: call.ended)
    assert [(event.data, event.retry) for event in call.events] == [("", 1000), ("", 500)]
    await gate.running.wait()
    again = client.listen(call.last_id)
    assert (await again.next_message())["params"]["data"] == "after"
    gate.open.set()
    assert text_of(await again.next_message()) == "worked"
    await again.finished()
    await call.finished()


async def test_hanging_up_is_nothing_to_those_who_cannot_come_back(app, gate):
    gate.open.set()
    for revision in ("2025-06-18", "2025-03-26", "2024-11-05"):
        client = Client(app.asgi(), revision=revision)
        await client.connect()
        told = await client.converse(tool_call("part"), {})
        assert told.text == "worked"
    client = Client(app.asgi())
    await client.connect()
    reply = await client.post(tool_call("part"), headers={"accept": "application/json"})
    assert text_of(reply.message) == "worked"


async def test_the_result_waits_for_who_was_hung_up_on(client, gate):
    gate.open.set()
    call = client.tool("part")
    await call.finished()
    again = client.listen(call.last_id)
    assert text_of((await again.closed())[-1]) == "worked"


async def test_the_end_of_a_session_ends_its_questions_without_a_word_in_the_log(client, gate, caplog):
    import gc

    call = client.tool("ask")
    question = await call.next_message()
    await client.delete()
    assert await call.closed() == [question]
    await call.finished()
    assert gate.cancelled.is_set()
    gc.collect()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# --- stores that fail ---------------------------------------------------------------------------------------------


class Failing(MemoryStore):
    """A store that can be switched off."""

    broken = False

    async def append(self, *args, **options):
        self._check()
        return await super().append(*args, **options)

    async def get(self, *args, **options):
        self._check()
        return await super().get(*args, **options)

    def _check(self):
        if self.broken:
            raise StoreError("secret address")


async def test_a_store_that_cannot_be_reached_is_an_error_that_tells_nothing(gate, caplog):
    store = Failing()
    app = Server("tests", store=store)
    client = Client(app.asgi())
    await client.connect()
    store.broken = True
    for exchange in (client.open(request("ping")), client.listen(), client.open(b"", verb="DELETE")):
        reply = await exchange.reply()
        assert reply.status == 503
        assert "secret" not in reply.error["message"]
    assert "secret address" in caplog.text
    store.broken = False
    assert (await client.call("ping"))["result"] == {}


async def test_a_store_that_fails_under_a_call_ends_it_and_leaves_nothing(gate):
    store = Failing()
    app = Server("tests", store=store)

    @app.tool
    async def work(ctx: Context) -> str:
        await ctx.log("warning", "begun")
        store.broken = True
        await ctx.log("warning", "more")
        return "worked"

    client = Client(app.asgi())
    await client.connect()
    call = client.tool("work")
    await call.finished()
    assert call.ended
    store.broken = False
    assert (router_of(client)._replies, router_of(client)._running) == ({}, {})
    assert (await client.call("ping"))["result"] == {}


# --- nothing is left ----------------------------------------------------------------------------------------------


async def test_conversations_leave_nothing_behind(app, client, gate, caplog):
    caplog.set_level(logging.DEBUG)
    gate.open.set()
    for _ in range(5):
        await client.converse(tool_call("work"), {})
        await client.converse(tool_call("ask"), {"confirm": accept(confirm=True)})
        stream = client.listen()
        await stream.opened()
        await leave(stream)
    router = router_of(client)
    assert (len(router.pushes), router._replies, router._running) == (0, {}, {})
    assert (router._readers, router._active) == ({}, 0)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
