"""A bridge with an inbox: a client that cannot be asked finds a person elsewhere, whatever the eras of both sides."""

import asyncio

import pytest
from conversing import ERAS, SAMPLE, Rude, Tapped, asker, bridged, upstream

from antiphon import Client, Context, Refused, Server, eras
from server.desk import NO, YES, Desk

both_sides = [pytest.mark.parametrize("era", ERAS), pytest.mark.parametrize("behind", ERAS)]
ANN = {"action": "accept", "content": {"value": "Ann"}}


def on_both_sides(test):
    for mark in both_sides:
        test = mark(test)
    return test


def waits(result):
    return result.is_error and result.text.startswith("This call is not done yet: a person has to answer first.")


@on_both_sides
async def test_the_same_call_goes_on_with_the_answers_of_a_person(era, behind):
    for name, answer, text in (("confirm", YES, "True"), ("confirm", NO, "False"), ("both", ANN, "Ann Ann")):
        desk = Desk()
        async with Client(bridged(upstream(), behind, elsewhere=desk), era=era) as client:
            assert waits(await client.call_tool(name))
            assert waits(await client.call_tool(name))
            await desk.answer(answer)
            result = await client.call_tool(name)
            assert (result.is_error, result.text) == (False, text)
        assert [(row.name, row.server) for row in desk.told] == [(name, "shop")]


@on_both_sides
async def test_questions_come_one_after_the_other_and_the_client_s_own_are_its_own(era, behind):
    desk = Desk()
    async with asker(bridged(upstream(), behind, elsewhere=desk), era=era, elicit=None, elicit_url=None) as client:
        for answer in (ANN, {"action": "accept"}, YES):
            assert waits(await client.call_tool("order"))
            await desk.answer(answer)
        assert (await client.call_tool("order")).text == "Ann accept True file:///work Hi!"
    assert [row.round for row in desk.told] == [1, 2, 3]


@on_both_sides
async def test_prompts_and_resources_wait_as_well(era, behind):
    desk = Desk()
    async with Client(bridged(upstream(), behind, prefix="shop", elsewhere=desk), era=era) as client:
        with pytest.raises(Refused, match="This call is not done yet"):
            await client.get_prompt("shop_greet", {"name": "Bob"})
        await desk.answer()
        assert (await client.get_prompt("shop_greet", {"name": "Bob"})).messages[0].content.text == "Hello Bob"
        with pytest.raises(Refused, match="This call is not done yet"):
            await client.read_resource("note://7")
        await desk.answer()
        assert (await client.read_resource("note://7")).contents[0].text == "note 7"


@pytest.mark.parametrize("behind", ERAS)
async def test_what_a_client_answers_that_cannot_be_asked_is_not_read(behind, call):
    desk, answers = Desk(), {"confirm": YES, "elicitation-1": YES}
    server = bridged(upstream(), behind, elsewhere=desk)
    async with server.running():
        for _ in range(2):
            reply = await call(server, "tools/call", {"name": "confirm", "inputResponses": answers}, capabilities={})
            assert "not done yet" in reply["result"]["content"][0]["text"]
    assert len(desk.told) == 1


async def test_a_client_that_shows_everything_is_relayed_as_without_an_inbox():
    front, back, desk = [], [], Desk()
    server = bridged(upstream(), wrap=lambda link: Tapped(link, back), elsewhere=desk)
    async with asker(Tapped(eras.connect(server), front)) as client:
        assert (await client.call_tool("confirm")).text == "True"
    shown, asked = (
        [reply["result"]["requestState"] for _, reply in seen if "requestState" in reply["result"]]
        for seen in (front, back)
    )
    assert shown == asked != []
    assert desk.told == []


@pytest.mark.parametrize("behind", ERAS)
@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (SAMPLE, "did not declare|capabilit"),
        ({"method": "tools/list", "params": {}}, "broke the protocol"),
    ],
)
async def test_what_no_person_can_answer_is_refused_and_the_call_ended(behind, asked, why):
    app, desk = upstream(), Desk()
    server = bridged(app, behind, elsewhere=desk, wrap=lambda link: Rude(link, asked))
    async with Client(server) as client:
        with pytest.raises(Refused, match=why):
            await client.call_tool("ask_and_wait")
        if behind == "legacy":
            await asyncio.wait_for(app.left.wait(), 5)
    assert desk.told == []


async def test_a_call_that_an_old_server_held_for_a_person_is_lost_with_the_bridge():
    app, desk = upstream(), Desk()
    async with Client(bridged(app, "legacy", elsewhere=desk)) as client:
        assert waits(await client.call_tool("confirm"))
    await desk.answer()
    async with Client(bridged(app, "legacy", elsewhere=desk)) as client:
        with pytest.raises(Refused, match="The call was lost"):
            await client.call_tool("confirm")
        await desk.ended()
        assert waits(await client.call_tool("confirm"))
        await desk.answer()
        assert (await client.call_tool("confirm")).text == "True"


async def test_a_new_server_s_call_goes_on_through_another_bridge():
    app, desk = upstream(), Desk()
    async with Client(bridged(app, elsewhere=desk)) as client:
        assert waits(await client.call_tool("confirm"))
    await desk.answer()
    async with Client(bridged(app, elsewhere=desk)) as client:
        assert (await client.call_tool("confirm")).text == "True"


async def test_a_server_with_an_inbox_mounts_one_that_asks():
    desk = Desk()
    app = Server("office", elsewhere=desk)
    app.mount("shop", eras.connect(upstream()))
    async with Client(app) as client:
        assert waits(await client.call_tool("shop_confirm"))
        await desk.answer()
        assert (await client.call_tool("shop_confirm")).text == "True"
    assert desk.told[0].server == "office"


@on_both_sides
async def test_a_bridge_with_an_inbox_is_mounted(era, behind):
    desk = Desk()
    app = Server("office")
    app.mount("shop", bridged(upstream(), behind, elsewhere=desk))
    async with asker(app, era=era, elicit=None, elicit_url=None) as client:
        for answer in (ANN, {"action": "accept"}, YES):
            assert waits(await client.call_tool("shop_order"))
            await desk.answer(answer)
        result = await asyncio.wait_for(client.call_tool("shop_order"), 10)
        assert result.text == "Ann accept True file:///work Hi!"


async def test_of_equal_calls_at_once_one_waits_at_the_server():
    app, desk = upstream(), Desk()
    left = []

    @app.tool
    async def choose(ctx: Context) -> str:
        try:
            return str(await ctx.confirm("Sure?"))
        except asyncio.CancelledError:
            left.append(ctx.name)
            app.left.set()
            raise

    async with Client(bridged(app, "legacy", elsewhere=desk)) as client:
        results = await asyncio.gather(*(client.call_tool("choose") for _ in range(10)))
        assert all(map(waits, results))
        while len(left) < 9:
            app.left.clear()
            await asyncio.wait_for(app.left.wait(), 5)
        await desk.answer()
        assert (await client.call_tool("choose")).text == "True"
    assert len(left) == 9
    assert len(desk.told) == 1


async def test_a_token_of_a_client_that_now_shows_everything_is_refused(call):
    app = upstream()

    @app.tool
    async def greeting(ctx: Context) -> str:
        return (await ctx.sample("Greet", max_tokens=5)).text

    server, params = bridged(app, "legacy", elsewhere=Desk()), {"name": "greeting"}
    async with server.running():
        first = await call(server, "tools/call", params, capabilities={"sampling": {}})
        again = {**params, "requestState": first["result"]["requestState"], "inputResponses": {}}
        everything = {"sampling": {}, "elicitation": {"form": {}, "url": {}}}
        reply = await call(server, "tools/call", again, capabilities=everything)
    assert reply["error"]["message"] == "Invalid or expired requestState"
