"""Old and new clients of old and new servers: whatever one side says, the other side understands."""

import asyncio

import pytest
from conversing import ERAS, asker, bridged, upstream

from antiphon import CallFailed, Client, Refused, eras
from antiphon.bridge.upstream import Upstream

pytestmark = pytest.mark.parametrize("behind", ERAS)
both_eras = pytest.mark.parametrize("before", ERAS)


@both_eras
async def test_a_server_is_known_by_its_own_name_and_offers_its_own_things(before, behind):
    async with asker(bridged(upstream(), behind), era=before) as client:
        found = await client.discover()
        tools = [tool.name for tool in await client.list_tools()]
        assert (client.server.name, client.server.version, found.instructions) == ("shop", "2.0.0", "Ask first.")
        assert tools == ["echo", "order", "both", "confirm", "tell", "wait", "slowly", "ask_and_wait"]
        assert [prompt.name for prompt in await client.list_prompts()] == ["greet"]
        assert [resource.uri for resource in await client.list_resources()] == ["note://all"]
        assert [template.uri_template for template in await client.list_resource_templates()] == ["note://{number}"]


@both_eras
async def test_every_kind_of_question_is_asked_and_answered(before, behind):
    async with asker(bridged(upstream(), behind), era=before) as client:
        result = await client.call_tool("order")
        assert (result.text, result.rounds) == ("Ann accept True file:///work Hi!", 6)


@both_eras
async def test_questions_that_are_asked_at_once_stay_one_round(before, behind):
    async with asker(bridged(upstream(), behind), era=before) as client:
        result = await client.call_tool("both")
        assert (result.text, result.rounds) == ("Ann Ann", 2)


@both_eras
async def test_prompts_and_resources_ask_as_well(before, behind):
    async with asker(bridged(upstream(), behind), era=before) as client:
        prompt = await client.get_prompt("greet", {"name": "Bob"})
        assert prompt.messages[0].content.text == "Hello Bob"
        assert (await client.read_resource("note://7")).contents[0].text == "note 7"
        assert (await client.read_resource("note://all")).contents[0].text == "all notes"
        assert (await client.complete(prompt="greet", argument="name", value="B")).values == ["Bob"]


@both_eras
async def test_progress_logs_and_structured_content_arrive(before, behind):
    logs, progress = [], []
    server = bridged(upstream(), behind)
    async with asker(server, era=before, on_log=lambda *log: logs.append(log)) as client:
        result = await client.call_tool("tell", progress=lambda *step: progress.append(step))
    assert (result.structured, progress, logs) == ({"total": 3}, [(1, 2, "half")], [("warning", "nearly", None)])


@both_eras
async def test_a_client_that_wants_neither_gets_no_progress_and_no_logs(before, behind, call):
    told = []
    server = bridged(upstream(), behind)
    async with server.running():
        await call(server, "tools/call", {"name": "tell", "arguments": {}}, told=told)
    assert told == []


@both_eras
async def test_cancelling_a_call_cancels_it_at_the_server(before, behind):
    app = upstream()
    async with asker(bridged(app, behind), era=before) as client:
        call = asyncio.create_task(client.call_tool("wait"))
        await asyncio.wait_for(app.entered.wait(), 5)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await asyncio.wait_for(app.left.wait(), 5)


@both_eras
async def test_errors_are_those_of_the_era_of_the_client(before, behind):
    async with asker(bridged(upstream(), behind), era=before) as client:
        with pytest.raises(Refused, match="Unknown tool: nothing") as unknown:
            await client.call_tool("nothing")
        with pytest.raises(Refused, match="not found") as missing:
            await client.read_resource("other://7")
    assert unknown.value.code == -32602
    assert missing.value.code == (-32602 if before == "2026-07-28" else -32002)
    assert missing.value.data == {"uri": "other://7"}


@both_eras
async def test_the_server_sees_what_the_client_can_be_asked_and_asks_nothing_else(before, behind):
    async with Client(bridged(upstream(), behind), era=before, roots=[]) as client:
        with pytest.raises(CallFailed) as refused:
            await client.call_tool("confirm")
    assert refused.value.code == -32021
    assert refused.value.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}


@both_eras
async def test_changes_are_told(before, behind):
    app = upstream()
    async with asker(bridged(app, behind), era=before) as client:
        await client.list_tools()
        changes = client.subscribe(tools=True)
        one = client.subscribe(resources=["note://all"])
        waiting = [asyncio.create_task(anext(changes)), asyncio.create_task(anext(one))]
        while not all(task.done() for task in waiting):
            await asyncio.sleep(0.01)
            app.changed("tools")
            app.updated("note://all")
        assert [task.result().kind for task in waiting] == ["tools", "resource"]
        await changes.aclose()
        await one.aclose()


@both_eras
async def test_everything_ends_with_the_bridge(before, behind):
    app = upstream()
    async with asker(bridged(app, behind), era=before) as client:
        await client.call_tool("echo", {"text": "x"})
        assert app.is_running
    assert not app.is_running


@both_eras
async def test_parallel_calls_are_each_asked_their_own_questions(before, behind):
    async with asker(bridged(upstream(), behind), era=before) as client:
        results = await asyncio.gather(*(client.call_tool(name) for name in ("order", "both", "confirm")))
    assert [result.text for result in results] == ["Ann accept True file:///work Hi!", "Ann Ann", "True"]


@both_eras
async def test_middleware_of_the_bridge_sees_whole_results(before, behind):
    seen = []
    server = bridged(upstream(), behind)

    @server.middleware
    async def note(ctx, proceed):
        result = await proceed(ctx)
        seen.append((ctx.method, ctx.name, result["resultType"]))
        return result

    async with asker(server, era=before) as client:
        assert (await client.call_tool("confirm")).text == "True"
    assert seen[-1] == ("tools/call", "confirm", "complete")


async def test_a_mount_of_a_link_is_one_connection_for_all(behind):
    server = bridged(upstream(), behind)
    link = eras.connect(upstream(), era=behind)
    server.add_mount(Upstream("one", lambda: link, server, single=True))
    async with asker(server) as client, asker(server, name="another") as other:
        assert (await client.call_tool("one_confirm")).text == "True"
        assert (await other.call_tool("one_confirm")).text == "True"
