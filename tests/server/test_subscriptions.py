"""Change notifications: streams with filters, acknowledgement, ids and keep-alive comments."""

import asyncio
import threading

import pytest

from antiphon import Context
from antiphon.transports import asgi, asgi_exchange
from antiphon.transports.memory import MemoryLink
from asgi import Http
from messages import SERVER, SUBSCRIPTION, check_notification, check_reply, request

EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["note://1", "note://2"],
}


@pytest.fixture
def full(app):
    """A server that has something of everything."""
    app.add_tool(lambda: "", name="t")
    app.add_prompt(lambda: "", name="p")
    app.add_resource("note://1", lambda: "")
    return app


@pytest.fixture
def listen(full):
    """Opens a stream over HTTP and reads its acknowledgement."""
    http = Http(full.asgi())
    opened = []

    async def listen(wanted, *, id=1):
        stream = http.open(request("subscriptions/listen", {"notifications": wanted}, id=id))
        opened.append(stream)
        acknowledged = await stream.next_message()
        check_notification(acknowledged)
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["_meta"] == {SUBSCRIPTION: id}
        stream.agreed = acknowledged["params"]["notifications"]
        return stream

    yield listen
    for stream in opened:
        stream.disconnect()


async def heard(stream):
    message = await stream.next_message()
    check_notification(message)
    return message["method"].removeprefix("notifications/"), message["params"]


async def test_a_stream_is_acknowledged_with_what_was_agreed(listen):
    stream = await listen(EVERYTHING)
    assert stream.agreed == EVERYTHING
    assert stream.headers["content-type"] == "text/event-stream"
    assert stream.headers["x-accel-buffering"] == "no"


@pytest.mark.parametrize("id_", [0, "", "abc", 7])
async def test_the_subscription_is_known_by_the_requests_id(full, listen, id_):
    stream = await listen({"toolsListChanged": True}, id=id_)
    full.changed("tools")
    method, params = await heard(stream)
    assert method == "tools/list_changed"
    assert params["_meta"] == {SUBSCRIPTION: id_}


async def test_what_the_server_has_not_got_is_not_agreed_to(app):
    app.add_tool(lambda: "", name="t")
    stream = Http(app.asgi()).open(request("subscriptions/listen", {"notifications": EVERYTHING}))
    acknowledged = await stream.next_message()
    assert acknowledged["params"]["notifications"] == {"toolsListChanged": True}
    stream.disconnect()
    await stream.finished()


@pytest.mark.parametrize("wanted", [{}, {"toolsListChanged": False}, {"resourceSubscriptions": []}])
async def test_a_stream_may_want_nothing(listen, wanted):
    assert (await listen(wanted)).agreed in ({}, wanted)


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_changes_reach_those_who_wanted_to_hear_of_them_and_nobody_else(full, listen, kind):
    streams = {name: await listen({f"{name}ListChanged": True}, id=name) for name in ("tools", "prompts", "resources")}
    full.changed(kind)
    assert (await heard(streams[kind]))[0] == f"{kind}/list_changed"
    for name in ("tools", "prompts", "resources"):
        full.changed(name)
        assert (await heard(streams[name]))[0] == f"{name}/list_changed"
    assert [len(stream.messages) for name, stream in streams.items() if name != kind] == [2, 2]


async def test_adding_and_removing_at_run_time_is_told(full, listen):
    stream = await listen(EVERYTHING)
    for change, method in [
        (lambda: full.add_tool(lambda: "", name="new"), "tools/list_changed"),
        (lambda: full.remove_tool("new"), "tools/list_changed"),
        (lambda: full.add_prompt(lambda: "", name="new"), "prompts/list_changed"),
        (lambda: full.remove_prompt("new"), "prompts/list_changed"),
        (lambda: full.add_resource("new://1", lambda: ""), "resources/list_changed"),
        (lambda: full.remove_resource("new://1"), "resources/list_changed"),
        (lambda: full.add_resource("new://{x}", lambda x: ""), "resources/list_changed"),
        (lambda: full.remove_resource("new://{x}"), "resources/list_changed"),
    ]:
        change()
        assert (await heard(stream))[0] == method


async def test_updates_reach_those_who_watch_that_resource(full, listen):
    one = await listen({"resourceSubscriptions": ["note://1"]}, id="one")
    both = await listen({"resourceSubscriptions": ["note://1", "note://2"]}, id="both")
    full.updated("note://3")
    full.updated("note://2")
    full.updated("note://1")
    assert await heard(one) == ("resources/updated", {"_meta": {SUBSCRIPTION: "one"}, "uri": "note://1"})
    assert await heard(both) == ("resources/updated", {"_meta": {SUBSCRIPTION: "both"}, "uri": "note://2"})
    assert await heard(both) == ("resources/updated", {"_meta": {SUBSCRIPTION: "both"}, "uri": "note://1"})


async def test_equal_news_that_waits_is_told_once(full, listen):
    stream = await listen(EVERYTHING)
    for _ in range(100):
        full.changed("tools")
        full.updated("note://1")
    full.changed("prompts")
    assert [(await heard(stream))[0] for _ in range(3)] == [
        "tools/list_changed",
        "resources/updated",
        "prompts/list_changed",
    ]


async def test_a_handler_may_cause_the_change_from_a_thread(full, listen):
    @full.tool
    def touch() -> bool:
        full.updated("note://1")
        full.changed("tools")
        return threading.current_thread() is threading.main_thread()

    stream = await listen(EVERYTHING)
    reply = await Http(full.asgi()).tool("touch")
    assert reply.result["structuredContent"] is False
    assert (await heard(stream))[0] == "resources/updated"
    assert (await heard(stream))[0] == "tools/list_changed"


async def test_what_belongs_to_other_requests_is_not_told_on_the_stream(full, listen):
    @full.tool
    async def chatter(ctx: Context) -> None:
        await ctx.log("info", "x")
        await ctx.progress(1)

    stream = await listen(EVERYTHING)
    reply = await Http(full.asgi()).tool("chatter", log_level="debug", progress="t")
    assert len(reply.messages) == 3
    full.changed("tools")
    assert (await heard(stream))[0] == "tools/list_changed"


async def test_a_quiet_stream_shows_that_it_is_alive(full, listen, monkeypatch):
    monkeypatch.setattr(asgi_exchange, "KEEP_ALIVE", 0.01)
    monkeypatch.setattr(asgi, "PATIENCE", 0.005)
    stream = await listen({"toolsListChanged": True})
    await stream.sends(b"\n\n:\n\n:")
    full.changed("tools")
    assert (await heard(stream))[0] == "tools/list_changed"
    assert len(stream.messages) == 2


async def test_closing_the_stream_ends_the_subscription(full, listen):
    stream = await listen(EVERYTHING)
    assert len(full.subscriptions) == 1
    stream.disconnect()
    await stream.finished()
    assert len(full.subscriptions) == 0
    full.changed("tools")
    assert stream.late == []


async def test_a_server_that_stops_ends_its_streams_gracefully(full):
    http = Http(full.asgi())
    async with full.running():
        message = request("subscriptions/listen", {"notifications": EVERYTHING}, id=5)
        stream = http.open(message)
        await stream.next_message()
    reply = await stream.reply()
    check_reply(message, reply.message)
    assert reply.result["resultType"] == "complete"
    assert reply.result["_meta"][SUBSCRIPTION] == 5
    assert reply.result["_meta"][SERVER]["name"] == "tests"


async def test_a_server_that_starts_again_listens_again(full):
    async with full.running():
        pass
    async with full.running():
        stream = Http(full.asgi()).open(request("subscriptions/listen", {"notifications": EVERYTHING}))
        await stream.next_message()
        full.changed("tools")
        assert (await heard(stream))[0] == "tools/list_changed"
    await stream.finished()


async def test_streams_work_in_memory_too(full):
    told = asyncio.Queue()
    listener = asyncio.ensure_future(
        MemoryLink(full).send(request("subscriptions/listen", {"notifications": EVERYTHING}), told.put)
    )
    async with asyncio.timeout(5):
        assert (await told.get())["method"] == "notifications/subscriptions/acknowledged"
        full.updated("note://1")
        assert (await told.get())["params"]["uri"] == "note://1"
        full.subscriptions.close()
        assert (await listener)["result"]["_meta"][SUBSCRIPTION] == 1


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"notifications": None},
        {"notifications": []},
        {"notifications": "tools"},
        {"notifications": {"toolsListChanged": "yes"}},
        {"notifications": {"resourceSubscriptions": "note://1"}},
        {"notifications": {"resourceSubscriptions": [1]}},
        {"notifications": {"resourceSubscriptions": ["note://1"] * 100_000}},
    ],
)
async def test_a_filter_that_is_none_is_invalid_params(full, params):
    reply = await Http(full.asgi()).call("subscriptions/listen", params)
    assert reply.error["code"] == -32602
    assert "subscriptions/listen" in reply.error["message"]
    assert not reply.is_stream


async def test_kinds_of_notification_that_this_revision_does_not_know_are_left_out(listen):
    stream = await listen({"toolsListChanged": True, "tasksChanged": True})
    assert stream.agreed == {"toolsListChanged": True}


def test_only_lists_can_change(app):
    with pytest.raises(ValueError, match="'tools', 'prompts' or 'resources'"):
        app.changed("tasks")


async def test_a_client_that_takes_no_streams_cannot_listen(full):
    http = Http(full.asgi(), accept="application/json")
    reply = await http.call("subscriptions/listen", {"notifications": EVERYTHING})
    assert reply.status == 406
    assert "text/event-stream" in reply.error["message"]


async def test_changes_without_anybody_listening_are_no_trouble(full):
    full.changed("tools")
    full.updated("note://1")


def test_changes_after_the_loop_has_gone_are_no_trouble(full):
    async def once():
        stream = Http(full.asgi()).open(request("subscriptions/listen", {"notifications": EVERYTHING}))
        await stream.next_message()

    asyncio.run(once())
    full.changed("tools")
