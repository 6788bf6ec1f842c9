"""A session with an old server: how it begins, what else it carries, and what is made of modern requests."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import Accepted, Change, Client, Context, Disconnected, PeerBroken, Refused, Root, Server
from client.until import until
from examples import examples

from .old import WELCOME, Error, Old, form, text


async def test_the_handshake():
    server = Old()
    async with Client(
        server.link(), elicit=print, elicit_url=print, sample=print, roots=[], name="me", version="7"
    ) as client:
        assert (client.era, client.protocol_version) == ("legacy", "2025-11-25")
    hello, ready = server.sent
    assert hello["params"] == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}},
        "clientInfo": {"name": "me", "version": "7"},
    }
    assert ready == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (server.opened, server.closed) == (1, 1)


@pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_any_older_revision_is_spoken(revision):
    async with Client(Old(welcome={**WELCOME, "protocolVersion": revision}).link()) as client:
        assert client.protocol_version == revision
        assert (await client.call_tool("x")).text == "done"


@pytest.mark.parametrize("revision", ["2026-07-28", "1999-01-01", "", None, 7])
async def test_a_revision_that_is_not_known_ends_it(revision):
    server = Old(welcome={**WELCOME, "protocolVersion": revision})
    with pytest.raises(PeerBroken, match="revision"):
        async with Client(server.link()):
            raise AssertionError
    assert server.closed == 1


async def test_a_revision_can_be_pinned():
    server = Old(welcome=lambda message: {**WELCOME, "protocolVersion": message["params"]["protocolVersion"]})
    async with Client(server.link(revision="2025-06-18")) as client:
        assert client.protocol_version == "2025-06-18"
    with pytest.raises(PeerBroken, match="speaks revision '2025-11-25', this client 2025-03-26"):
        async with Client(Old().link(revision="2025-03-26")):
            raise AssertionError


async def test_a_server_that_refuses_the_handshake():
    def welcome(message):
        raise Error(-32600, "not you")

    with pytest.raises(Refused, match="not you"):
        async with Client(Old(welcome=welcome).link()):
            raise AssertionError


async def test_a_server_that_says_nothing_is_not_waited_for():
    server = Old(welcome=lambda _: None)
    with pytest.raises(Exception, match="within 0.02 seconds"):
        async with Client(server.link(), timeout=0.02):
            raise AssertionError
    assert server.methods == ["initialize"], "initialize must not be cancelled"
    assert server.closed == 1


async def test_discovery_is_answered_from_the_handshake():
    server = Old()
    async with Client(server.link()) as client:
        found = await client.discover()
        assert found.supported_versions == ["2025-11-25"]
        assert found.capabilities == WELCOME["capabilities"]
        assert found.instructions == "Be kind."
        assert found.server.name == client.server.name == "old"
    assert server.methods == ["initialize", "notifications/initialized"]


async def test_nothing_modern_goes_out_and_what_is_ones_own_stays():
    server = Old()
    async with Client(server.link(), log_level="error") as client:
        await client.call_tool("x", {"a": 1}, progress=print)
        await client.list_tools()
        assert client.server.name == "old"
    call, listing = server.sent_of("tools/call")[0], server.sent_of("tools/list")[0]
    assert call["params"] == {"name": "x", "arguments": {"a": 1}, "_meta": {"progressToken": call["id"]}}
    assert listing["params"] == {}


async def test_the_ids_on_the_wire_are_never_used_twice():
    async def call(server, message):
        await server.ask("elicitation/create", form())
        return text()

    server = Old(call)
    async with Client(server.link(), elicit=lambda _: Accepted("x"), on_log=print) as client:
        await asyncio.gather(*[client.call_tool("x") for _ in range(5)])
        await client.list_tools()
    ids = [message["id"] for message in server.sent if "method" in message and "id" in message]
    assert len(set(ids)) == len(ids)


async def test_progress_and_logs_reach_their_call():
    async def call(server, message):
        server.note("progress", progressToken=message["params"]["_meta"]["progressToken"], progress=1, total=2)
        server.note("message", level="info", data=message["params"]["name"])
        server.note("progress", progressToken=999, progress=9)
        server.note("com.example/other")
        return text()

    told = []
    async with Client(Old(call).link(), on_log=lambda *log: told.append(log)) as client:
        await client.call_tool("a", progress=lambda *report: told.append(report))
    assert told == [(1, 2, None), ("info", "a", None)]


async def test_logs_that_belong_to_no_call_are_heard_in_order():
    told = []

    async def on_log(level, data, logger):
        await asyncio.sleep(0)
        told.append(data)

    server = Old()
    async with Client(server.link(), on_log=on_log):
        for at in range(5):
            server.note("message", level="info", data=at)
        await until(lambda: len(told) == 5)
    assert told == [0, 1, 2, 3, 4]


async def test_a_log_that_comes_with_the_reply_is_not_lost():
    async def call(server, message):
        server.say({"jsonrpc": "2.0", "id": message["id"], "result": text()})
        server.note("message", level="info", data="late")

    told = []
    async with Client(Old(call).link(), on_log=lambda *log: told.append(log)) as client:
        await client.call_tool("x")
        await until(lambda: told)
    assert told == [("info", "late", None)]


async def test_the_log_level_is_set_once_for_the_session():
    server = Old()
    async with Client(server.link(), log_level="error") as client:
        await client.call_tool("x")
        await client.call_tool("x")
    assert [message["params"] for message in server.sent_of("logging/setLevel")] == [{"level": "error"}]


async def test_a_server_that_does_not_log_is_not_told_to():
    server = Old(welcome={**WELCOME, "capabilities": {"tools": {}}})
    async with Client(server.link(), log_level="error") as client:
        await client.call_tool("x")
    assert not server.sent_of("logging/setLevel")


# --- what belongs to no call --------------------------------------------------------------------------------------


async def test_questions_that_belong_to_no_call_are_answered():
    server = Old()
    async with Client(server.link(), roots=lambda: [Root("file:///a")], elicit=lambda _: Accepted("x")):
        async with asyncio.timeout(5):
            assert (await server.ask("roots/list"))["result"] == {"roots": [{"uri": "file:///a"}]}
            assert (await server.ask("elicitation/create", form()))["result"]["content"] == {"value": "x"}


async def test_a_question_during_a_request_that_cannot_ask_is_answered_beside_it():
    class Nosy(Old):
        async def _result(self, message):
            if message["method"] == "tools/list":
                assert "roots" in (await self.ask("roots/list"))["result"]
            return await super()._result(message)

    async with Client(Nosy().link(), roots=[]) as client:
        assert len(await client.list_tools()) == 1


async def test_a_handler_that_fails_on_a_question_of_no_call_is_an_error_for_the_server(caplog):
    def elicit(question):
        raise ZeroDivisionError

    server = Old()
    async with Client(server.link(), elicit=elicit), asyncio.timeout(5):
        answer = await server.ask("elicitation/create", form())
    assert answer["error"] == {"code": -32603, "message": "The client could not answer"}
    assert "ZeroDivisionError" in caplog.text


async def test_a_client_that_answers_nothing_by_itself_gives_its_roots_only():
    server = Old()
    async with Client(server.link(), elicit=print, roots=[], auto=False), asyncio.timeout(5):
        assert "result" in await server.ask("roots/list")
        assert "error" in await server.ask("elicitation/create", form())


async def test_a_question_of_no_call_can_be_withdrawn():
    asked, gone = asyncio.Event(), asyncio.Event()

    async def elicit(question):
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    server = Old()
    async with Client(server.link(), elicit=elicit), asyncio.timeout(5):
        asking = asyncio.ensure_future(server.ask("elicitation/create", form(), name="q"))
        await asked.wait()
        server.note("cancelled", requestId="q")
        await gone.wait()
        asking.cancel()
    assert "response" not in server.methods


async def test_closing_does_not_wait_for_a_person():
    asked = asyncio.Event()

    async def elicit(question):
        asked.set()
        await asyncio.Event().wait()

    server = Old()
    async with asyncio.timeout(5), Client(server.link(), elicit=elicit):
        asking = asyncio.ensure_future(server.ask("elicitation/create", form()))
        await asked.wait()
    asking.cancel()


# --- changes ------------------------------------------------------------------------------------------------------


async def changes(client, count, **wanted):
    return [change async for change, _ in _counted(client.subscribe(**wanted), count)]


async def _counted(subscription, count):
    async for change in subscription:
        count -= 1
        yield change, count
        if not count:
            await subscription.aclose()
            return


async def test_changes_are_listened_for():
    server = Old()
    async with Client(server.link()) as client, asyncio.timeout(5):
        hearing = asyncio.create_task(changes(client, 3, tools=True, resources=["note://1", "note://2/"]))
        await until(lambda: len(server.sent_of("resources/subscribe")) == 2)
        await asyncio.sleep(0.01)
        server.note("resources/updated", uri="note://3")
        server.note("prompts/list_changed")
        server.note("tools/list_changed")
        server.note("resources/updated", uri="note://1")
        server.note("resources/updated", uri="note://2/part")
        heard = await hearing
        await until(lambda: len(server.sent_of("resources/unsubscribe")) == 2)
    assert heard == [Change("tools"), Change("resource", "note://1"), Change("resource", "note://2/part")]


async def test_two_who_listen_for_one_resource_subscribe_once():
    server = Old()
    async with Client(server.link()) as client, asyncio.timeout(5):
        hearing = [asyncio.create_task(changes(client, count, resources=["note://1"])) for count in (1, 2)]
        await until(lambda: server.sent_of("resources/subscribe"))
        await asyncio.sleep(0.01)
        server.note("resources/updated", uri="note://1")
        await hearing[0]
        await asyncio.sleep(0.01)
        assert not server.sent_of("resources/unsubscribe")
        server.note("resources/updated", uri="note://1")
        await hearing[1]
        await until(lambda: server.sent_of("resources/unsubscribe"))
    assert len(server.sent_of("resources/subscribe")) == 1


async def test_what_a_server_does_not_tell_of_is_said(caplog):
    server = Old(welcome={**WELCOME, "capabilities": {"tools": {"listChanged": True}, "resources": {}}})
    async with Client(server.link()) as client, asyncio.timeout(5):
        hearing = asyncio.create_task(changes(client, 1, tools=True, prompts=True, resources=["note://1"]))
        await until(lambda: "will not tell" in caplog.text)
        server.note("tools/list_changed")
        assert await hearing == [Change("tools")]
    assert "promptsListChanged, resourceSubscriptions" in caplog.text
    assert not server.sent_of("resources/subscribe")


# --- ends ---------------------------------------------------------------------------------------------------------


async def test_a_server_that_died_is_started_and_greeted_again():
    server = Old()
    async with Client(server.link()) as client:
        await client.call_tool("x")
        server.lost(Disconnected("The server's process ended (exit code 3)"))
        assert (await client.call_tool("x")).text == "done"
    assert (server.opened, server.closed) == (2, 2)
    assert server.methods.count("initialize") == 2


async def test_all_calls_under_way_hear_of_the_end():
    async def call(server, message):
        await asyncio.Event().wait()

    server = Old(call)
    async with Client(server.link()) as client:
        calls = [asyncio.create_task(client.call_tool("x")) for _ in range(3)]
        await until(lambda: len(server.sent_of("tools/call")) == 3)
        server.lost(Disconnected("gone"))
        ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(end) for end in ends] == ["gone"] * 3
    assert len({id(end) for end in ends}) == 3


async def test_a_server_that_talks_nonsense_is_not_started_again():
    server = Old()
    async with Client(server.link()) as client:
        server.lost(PeerBroken("nonsense"))
        for _ in range(2):
            with pytest.raises(PeerBroken, match="nonsense"):
                await client.call_tool("x")
    assert server.opened == 1


async def test_a_closed_link_takes_no_requests():
    link = Old().link()
    async with Client(link):
        pass
    with pytest.raises(Disconnected, match="closed"):
        await link.request({"id": 1, "method": "tools/list", "params": {}}, headers={})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text(max_size=5), below, max_size=3),
    max_leaves=8,
)
METHODS = st.sampled_from(
    ["elicitation/create", "sampling/createMessage", "roots/list", "ping"]
    + [f"notifications/{name}" for name in ("progress", "message", "cancelled", "elicitation/complete")]
    + ["notifications/tools/list_changed", "notifications/resources/updated", "initialize"]
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": JSON,
        "id": JSON,
        "method": METHODS | JSON,
        "params": st.dictionaries(
            st.sampled_from(["_meta", "message", "mode", "requestedSchema", "requestId", "uri", "progressToken"]), JSON
        )
        | JSON,
        "error": JSON,
    },
)


@examples(40)
@given(garbage=st.lists(MESSAGES, max_size=6))
async def test_whatever_an_old_server_says_the_call_ends_and_nothing_is_left(garbage):
    async def call(server, message):
        for nonsense in garbage:
            server.say(nonsense)
        return text()

    class Deaf(Old):
        def send(self, message):
            if "method" in message:
                super().send(message)

    before = asyncio.all_tasks()
    handlers = {"elicit": lambda _: Accepted({}), "sample": lambda _: "x", "roots": []}
    async with asyncio.timeout(5), Client(Deaf(call).link(), **handlers, on_log=lambda *_: None) as client:
        try:
            await client.call_tool("x")
        except Exception as fault:
            assert type(fault).__module__ == "antiphon.errors", fault
    assert asyncio.all_tasks() == before


async def test_our_own_server_in_memory():
    app = Server("ours")

    @app.tool
    async def paint(ctx: Context) -> str:
        return (await ctx.elicit("Which?", str, key="colour")).unwrap()

    for era, rounds in (("legacy", 2), ("2025-06-18", 2), ("auto", 2)):
        async with Client(app, era=era, elicit=lambda question: Accepted(question.key)) as client:
            result = await client.call_tool("paint")
            assert (result.text, result.rounds) == ("colour", rounds)
            assert client.protocol_version == {"legacy": "2025-11-25", "auto": "2026-07-28"}.get(era, era)
