"""The inbox of a client: calls wait without cost, go on in any process, and end once."""

import asyncio
import json
import logging
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from antiphon import (
    Accepted,
    AlreadyAnswered,
    CallResult,
    CallTimeout,
    Client,
    Context,
    Declined,
    Disconnected,
    Inbox,
    InputNeeded,
    MemoryStore,
    NotAllowed,
    Refused,
    RoundsExceeded,
    Seal,
    Server,
    SQLiteStore,
    TicketClosed,
    TicketExpired,
    TicketUnknown,
    TicketWithdrawn,
)
from antiphon.testing.servers import serving
from redis_server import start_redis

HERE = Path(__file__).parent
KEY = "k" * 32
LONG = Seal(keys=[KEY], ttl=30 * 86400)


@pytest.fixture
def booked():
    return []


@pytest.fixture
def app(booked):
    server = Server("travel", seal=LONG)

    @server.tool
    async def book(day: str, ctx: Context) -> str:
        seats = (await ctx.elicit(f"Seats on {day}?", int, key="seats")).unwrap()
        sure = await ctx.confirm(f"{seats} seats on {day}?", key="sure")
        booked.append((day, seats, sure))
        return f"{seats} seats on {day}" if sure else "nothing"

    @server.tool
    async def visit(ctx: Context) -> str:
        answer, reply = await asyncio.gather(
            ctx.elicit_url("Look", "https://example.com/", key="look"), ctx.sample("Hi", max_tokens=9, key="write")
        )
        return f"{answer.action}, {reply.text}"

    @server.prompt
    async def greet(ctx: Context) -> str:
        return f"Hello {(await ctx.elicit('Name?', str, key='name')).unwrap()}"

    @server.resource("note://x")
    async def note(ctx: Context) -> str:
        return f"for {(await ctx.elicit('Name?', str, key='name')).unwrap()}"

    return server


@pytest.fixture
def inbox(store):
    return Inbox(store, keys=KEY)


async def parked(client, *call):
    with pytest.raises(InputNeeded) as needed:
        await client.call_tool(*(call or ("book", {"day": "Monday"})))
    return needed.value.ticket


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


async def in_time(awaitable):
    async with asyncio.timeout(60):
        return await awaitable


async def round_of(inbox, ticket, number):
    """The row, once it has come to a round."""
    async with asyncio.timeout(20), inbox.rows.changes(ticket) as changed:
        while (row := await inbox.rows.get(ticket)).round < number:
            await changed(1)
    return row


async def next_row(inbox):
    """The one row that waits, once there is one."""
    async with asyncio.timeout(20):
        while not (rows := await inbox.waiting()):  # noqa: ASYNC110 -- no channel tells of new rows
            await asyncio.sleep(0.005)
    (row,) = rows
    return row


# --- three lines --------------------------------------------------------------------------------------------------


async def test_a_client_with_an_inbox_puts_its_questions_there(app, inbox, booked):
    async with Client(app, inbox=inbox.to("finance", on_behalf="ada")) as client:
        ticket = await parked(client)
        (row,) = await inbox.waiting()
        assert (row.id, row.server, row.name, row.arguments) == (ticket, "travel", "book", {"day": "Monday"})
        assert (row.who, row.on_behalf, row.round, row.warning) == ("finance", "ada", 1, None)
        assert row.questions["seats"]["params"]["message"] == "Seats on Monday?"
        result = asyncio.create_task(inbox.result(ticket))
        with pytest.raises(NotAllowed):
            await inbox.answer(ticket, {"seats": Accepted(2)}, by="bob")
        await inbox.answer(ticket, {"seats": Accepted(2)}, by="bob", groups=["finance"])
        row = await round_of(inbox, ticket, 2)
        assert row.questions["sure"]["params"]["message"] == "2 seats on Monday?"
        await inbox.answer(ticket, {"sure": Accepted(True)}, by="finance")
        made = await in_time(result)
    assert isinstance(made, CallResult)
    assert (made.text, made.rounds) == ("2 seats on Monday", 3)
    assert booked == [("Monday", 2, True)]
    assert await inbox.waiting() == []
    assert [given.by for given in (await inbox.rows.get(ticket)).given] == ["bob", "finance"]
    assert await inbox.result(ticket) == made, "and again, and for ever the same"


async def test_a_decline_is_an_answer_and_the_call_goes_on_with_it(app, inbox, booked):
    async with Client(app, inbox=inbox) as client:
        ticket = await parked(client)
        await inbox.answer(ticket, {"seats": Declined()}, by="ada")
        result = await inbox.result(ticket)
    assert result.is_error
    assert "declined" in result.text
    assert booked == []


async def test_prompts_and_resources_wait_as_well(app, inbox):
    async with Client(app, inbox=inbox) as client:
        for call in (client.get_prompt("greet"), client.read_resource("note://x")):
            with pytest.raises(InputNeeded) as needed:
                await call
            await inbox.answer(needed.value.ticket, {"name": Accepted("Ada")}, by="bob")
            assert "Ada" in repr(await inbox.result(needed.value.ticket))


async def test_what_handlers_can_answer_is_not_put_to_a_person(app, inbox):
    async with Client(app, inbox=inbox, sample=lambda request: "from a model") as client:
        ticket = await parked(client, "visit")
        (row,) = await inbox.waiting()
        assert list(row.questions) == ["look"]
        await inbox.answer(ticket, {"look": Accepted(None)}, by="ada")
        assert (await inbox.result(ticket)).text == "accept, from a model"


async def test_further_rounds_that_handlers_answer_do_not_wait(app, inbox, booked):
    async with Client(app, auto=False, inbox=inbox) as client:
        ticket = await parked(client)
    async with Client(app, elicit=lambda question: Accepted(True)) as other:
        inbox._clients[ticket] = other
        await inbox.answer(ticket, {"seats": Accepted(3)}, by="ada")
        assert (await inbox.result(ticket)).text == "3 seats on Monday"
    assert booked == [("Monday", 3, True)]


async def test_a_pending_call_is_put_by_hand(app, inbox):
    async with Client(app, auto=False, elicit=print) as client:
        with pytest.raises(InputNeeded) as needed:
            await client.call_tool("book", {"day": "Monday"})
        assert needed.value.ticket is None
        ticket = await inbox.put(client, needed.value.pending, who="finance", until=timedelta(days=2))
        (row,) = await inbox.waiting()
        assert row.id == ticket
        assert row.until - row.since == pytest.approx(2 * 86400, abs=5)
        later = datetime.now(UTC) + timedelta(hours=3)
        await inbox.put(client, needed.value.pending, until=later)
        assert {round(one.until - later.timestamp()) for one in await inbox.waiting()} >= {0}


# --- any process, today or tomorrow -------------------------------------------------------------------------------


async def test_a_call_goes_on_with_a_client_of_its_own_after_the_first_one_closed(app, inbox, booked):
    async with serving(lambda url: app.asgi()) as url:
        async with Client(f"{url}/mcp", inbox=inbox) as client:
            ticket = await parked(client)
        await inbox.answer(ticket, {"seats": Accepted(2)}, by="ada")
        result = asyncio.create_task(inbox.result(ticket))
        await round_of(inbox, ticket, 2)
        with pytest.raises(CallTimeout, match="not answered within"):
            await inbox.result(ticket, timeout=0.05)
        await inbox.answer(ticket, {"sure": Accepted(True)}, by="ada")
        assert (await in_time(result)).text == "2 seats on Monday"
    assert booked == [("Monday", 2, True)]


async def test_of_many_that_wait_for_a_result_one_goes_on_and_all_get_it(store, app, booked):
    inboxes = [Inbox(store, keys=KEY) for _ in range(5)]
    async with serving(lambda url: app.asgi()) as url, Client(f"{url}/mcp", inbox=inboxes[0]) as client:
        ticket = await parked(client)
        results = [asyncio.create_task(inbox.result(ticket)) for inbox in inboxes for _ in range(2)]
        await inboxes[1].answer(ticket, {"seats": Accepted(2)}, by="ada")
        await round_of(inboxes[0], ticket, 2)
        await inboxes[2].answer(ticket, {"sure": Accepted(True)}, by="ada")
        made = await in_time(asyncio.gather(*results))
    assert {result.text for result in made} == {"2 seats on Monday"}
    assert booked == [("Monday", 2, True)]


async def test_without_a_way_to_the_server_the_error_says_what_to_pass(app, live):
    inbox = Inbox(MemoryStore())
    async with Client(app, inbox=inbox) as client:
        ticket = await parked(client)
    await inbox.answer(ticket, {"seats": Declined()}, by="ada")
    with pytest.raises(Disconnected, match="connect="):
        await inbox.result(ticket)
    url = f"http://127.0.0.1:{live(app.asgi())}/mcp"
    async with Client(url, headers={"x-user": "ada"}, inbox=inbox) as client:
        private = await parked(client)
    await inbox.answer(private, {"seats": Declined()}, by="ada")
    with pytest.raises(Disconnected, match="headers, a login"):
        await inbox.result(private)
    asked = []

    def connect(target):
        asked.append(target)
        return Client(app)

    again = Inbox(inbox.rows.store, connect=connect)
    again.rows = inbox.rows
    assert "declined" in (await again.result(ticket)).text
    assert "declined" in (await again.result(private)).text
    assert asked == [None, url]


async def test_a_refusal_of_the_server_is_the_same_for_all_that_ask(booked):
    server = Server("strict", seal=Seal(keys=[KEY]))

    @server.tool
    async def book(day: str, ctx: Context) -> str:
        return (await ctx.elicit("Seats?", str, key="seats")).unwrap()

    inbox = Inbox(MemoryStore())
    async with Client(server, inbox=inbox) as client:
        ticket = await parked(client)
        row = await inbox.rows.get(ticket)
        spoiled = row.payload.replace(b"Monday", b"Sunday")
        assert spoiled != row.payload
        await inbox.rows.forget(ticket)
        await inbox.rows.add(replace(row, payload=spoiled))
        await inbox.answer(ticket, {"seats": Accepted("2")}, by="ada")
        for _ in range(2):
            with pytest.raises(Refused, match="requestState") as refused:
                await inbox.result(ticket)
            assert refused.value.code == -32602


async def test_a_server_that_never_stops_asking_ends_the_call():
    server = Server("endless")

    @server.tool
    async def nag(ctx: Context) -> str:
        for number in range(99):
            await ctx.elicit(f"Number {number}?", int, key=f"n{number}")
        return "never"

    inbox = Inbox(MemoryStore())
    async with Client(server, inbox=inbox, max_rounds=3) as client:
        ticket = await parked(client, "nag")
        result = asyncio.create_task(inbox.result(ticket))
        for number in range(3):
            row = await round_of(inbox, ticket, number + 1)
            await inbox.answer(ticket, {key: Accepted(1) for key in row.questions}, by="ada")
        with pytest.raises(RoundsExceeded):
            await in_time(result)


async def test_a_server_that_cannot_be_reached_can_be_tried_again(app, booked, tmp_path):
    inbox = Inbox(MemoryStore())
    async with serving(lambda url: app.asgi()) as url, Client(f"{url}/mcp", inbox=inbox) as client:
        ticket = await parked(client)
    await inbox.answer(ticket, {"seats": Accepted(2)}, by="ada")
    with pytest.raises(Disconnected):
        await inbox.result(ticket)
    assert (await inbox.rows.get(ticket)).status == "answered"
    again = Inbox(inbox.rows.store, connect=lambda target: Client(app, elicit=lambda _: Accepted(True)))
    again.rows = inbox.rows
    assert (await in_time(again.result(ticket))).text == "2 seats on Monday"


async def test_a_process_that_died_while_it_went_on_is_replaced(app, booked, monkeypatch):
    from antiphon.stores import shared_steps

    monkeypatch.setattr(shared_steps, "LEASE", 0.2)
    inbox = Inbox(MemoryStore())
    async with Client(app, inbox=inbox) as client:
        ticket = await parked(client)
        await inbox.rows.store.add(f"antiphon:step:inbox:{ticket}:1", b"a process that died", ttl=0.2)
        await inbox.answer(ticket, {"seats": Declined()}, by="ada")
        assert "declined" in (await in_time(inbox.result(ticket))).text


async def test_a_call_to_a_command_goes_on_in_another_process_after_a_restart(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHON_KEYS", KEY)

    async def run(*words):
        process = await asyncio.create_subprocess_exec(
            sys.executable, HERE / "agent_file.py", tmp_path / "inbox.db", *words, stdout=-1, stderr=-1
        )
        said, complained = await in_time(process.communicate())
        assert process.returncode == 0, complained.decode()
        return said.decode().strip()

    ticket = await run("call")
    store = SQLiteStore(tmp_path / "inbox.db")
    inbox = Inbox(store)
    await inbox.answer(ticket, {"seats": Accepted(4)}, by="ada")
    assert await run("result", ticket) == "4 seats"
    assert (await inbox.result(ticket)).text == "4 seats"
    await store.close()


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_of_ten_processes_that_answer_at_once_one_counts(kind, tmp_path, monkeypatch):
    from antiphon.cli.stores import open_store

    monkeypatch.setenv("ANTIPHON_KEYS", KEY)
    with start_redis(tmp_path) as url:
        address = url if kind == "redis" else str(tmp_path / "inbox.db")
        store = open_store(address)
        inbox = Inbox(store)
        server = Server("one", seal=LONG)

        @server.tool
        async def book(day: str, ctx: Context) -> int:
            return (await ctx.elicit("Seats?", int, key="seats")).unwrap()

        async with Client(server, inbox=inbox) as client:
            ticket = await parked(client)
            words = (sys.executable, HERE / "agent_file.py", address, "answer", ticket)
            processes = [
                await asyncio.create_subprocess_exec(*words, str(number), stdin=-1, stdout=-1) for number in range(10)
            ]
            async with asyncio.timeout(120):
                for process in processes:
                    assert await process.stdout.readline() == b"ready\n"
                for process in processes:
                    process.stdin.write(b"now\n")
                said = [json.loads((await process.communicate())[0]) for process in processes]
            (winner,) = [one for one in said if one["won"]]
            assert {one["by"] for one in said} == {winner["by"]}
            assert (await inbox.result(ticket)).structured == int(winner["by"].split()[1])
        await store.close()


# --- what waits costs nothing -------------------------------------------------------------------------------------


async def test_a_thousand_waiting_calls_cost_no_task_and_no_connection(store, app):
    inbox = Inbox(store, keys=KEY)
    async with serving(lambda url: app.asgi()) as url:
        async with Client(f"{url}/mcp", inbox=inbox) as client:
            first = await parked(client)
            pending = await client.begin("tools/call", name="book", arguments={"day": "Monday"})
        tasks, files = len(asyncio.all_tasks()), open_files()
        tickets = [await inbox.put(client, pending) for _ in range(1000)]
        assert len(asyncio.all_tasks()) <= tasks
        assert open_files() <= files
        assert {row.id for row in await inbox.waiting()} == {first, *tickets}


# --- the end ------------------------------------------------------------------------------------------------------


async def test_a_token_that_ends_before_the_deadline_is_warned_of_at_once(caplog):
    server = Server("short", seal=Seal(keys=[KEY], ttl=600))

    @server.tool
    async def book(ctx: Context) -> str:
        return (await ctx.elicit("Seats?", str, key="seats")).unwrap()

    @server.tool
    async def patient(ctx: Context) -> str:
        return (await ctx.elicit("Seats?", str, key="seats", ttl=30 * 86400)).unwrap()

    inbox = Inbox(MemoryStore())
    async with Client(server, inbox=inbox) as client:
        with caplog.at_level(logging.WARNING, "antiphon"):
            ticket = await parked(client, "book")
        row = await inbox.rows.get(ticket)
        assert "keeps its question only until" in row.warning
        assert "before the deadline" in caplog.text
        assert row.until - time.time() == pytest.approx(600, abs=20), "an answer that comes later would be in vain"
        assert (await inbox.rows.get(await parked(client, "patient"))).warning is None


async def test_an_end_without_an_answer_has_a_name(app):
    now = [time.time()]
    inbox = Inbox(MemoryStore())
    inbox.rows._clock = lambda: now[0]
    async with Client(app, inbox=inbox) as client:
        withdrawn, expired = await parked(client), await parked(client)
        await inbox.withdraw(withdrawn)
        with pytest.raises(TicketWithdrawn):
            await inbox.result(withdrawn)
        now[0] += 86401
        with pytest.raises(TicketExpired):
            await inbox.result(expired)
        with pytest.raises(TicketUnknown):
            await inbox.result("nothing-here")


async def test_what_cannot_wait_is_refused(app):
    inbox = Inbox(MemoryStore())
    async with Client(app, elicit=print) as client:
        pending = await client.begin("tools/call", name="book", arguments={"day": "Monday"})
        with pytest.raises(ValueError, match="waits for no person"):
            await inbox.put(client, pending, known={"seats": {"action": "decline"}})
        with pytest.raises(ValueError, match="in the past"):
            await inbox.put(client, pending, until=timedelta(seconds=-1))
    with pytest.raises(ValueError, match="notify is a URL"):
        Inbox(MemoryStore(), notify="hooks.example.com")
    with pytest.raises(ValueError, match="page is a URL"):
        Inbox(MemoryStore(), page="/inbox")


# --- servers of older revisions -----------------------------------------------------------------------------------


async def test_a_call_to_an_older_server_waits_where_it_is(app, booked):
    inbox = Inbox(MemoryStore())
    async with Client(app, era="legacy", inbox=inbox) as client:
        call = asyncio.create_task(client.call_tool("book", {"day": "Monday"}))
        for answer in (Accepted(2), Accepted(True)):
            row = await next_row(inbox)
            await inbox.answer(row.id, dict.fromkeys(row.questions, answer), by="ada")
            with pytest.raises(TicketClosed, match="where it was made"):
                await in_time(inbox.result(row.id))
            with pytest.raises(AlreadyAnswered):
                await inbox.answer(row.id, dict.fromkeys(row.questions, answer), by="bob")
        assert (await in_time(call)).text == "2 seats on Monday"
    assert booked == [("Monday", 2, True)]


async def test_a_call_that_is_given_up_withdraws_its_question(app):
    inbox = Inbox(MemoryStore())
    async with Client(app, era="legacy", inbox=inbox) as client:
        call = asyncio.create_task(client.call_tool("book", {"day": "Monday"}))
        row = await next_row(inbox)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert (await inbox.rows.get(row.id)).status == "withdrawn"
