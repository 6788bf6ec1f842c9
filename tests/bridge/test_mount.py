"""A server of the same process under a prefix: as if its handlers were the other's own."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from conversing import ERAS, asker, upstream

from antiphon import Context, Refused, Server
from antiphon.testing import check_replay_safety

both_eras = pytest.mark.parametrize("era", ERAS)


def crm(steps):
    @asynccontextmanager
    async def life(app):
        yield {"of": app.info.name}

    app = Server("crm", lifespan=life)

    @app.tool
    async def sell(count: int, ctx: Context) -> str:
        """Sell."""

        async def reserve() -> str:
            steps.append(count)
            return f"r{count}"

        ticket = await ctx.step("reserve", reserve)
        sure = await ctx.confirm("Sure?")
        return f"{ticket} {sure} {ctx.lifespan['of']} {ctx.name} {ctx.params['name']}"

    return app


@both_eras
async def test_questions_and_steps_work_across_the_mount(era):
    steps = []
    app = Server("front")
    app.mount("crm", crm(steps))
    async with asker(app, era=era) as client:
        result = await client.call_tool("crm_sell", {"count": 3})
    assert (result.text, steps) == ("r3 True crm sell sell", [3])


@both_eras
async def test_all_that_a_server_has_is_there(era):
    app = Server("front", instructions="Outer.")
    app.mount("shop", upstream())
    async with asker(app, era=era) as client:
        assert (await client.discover()).instructions == "Outer.\n\nAsk first."
        assert (await client.call_tool("shop_order")).text == "Ann accept True file:///work Hi!"
        assert (await client.get_prompt("shop_greet", {"name": "Bob"})).messages[0].content.text == "Hello Bob"
        assert (await client.complete(prompt="shop_greet", argument="name", value="B")).values == ["Bob"]
        assert (await client.read_resource("note://7")).contents[0].text == "note 7"
        assert [resource.uri for resource in await client.list_resources()] == ["note://all"]


async def test_the_token_is_the_outer_server_s_and_bound_to_the_outer_name():
    app, inner = Server("front"), crm([])
    app.mount("one", inner)
    app.mount("two", crm([]))
    async with asker(app) as client, asker(inner) as alone:
        pending = await client.begin("tools/call", name="one_sell", arguments={"count": 1})
        answers = {key: {"action": "accept", "content": {"confirm": True}} for key in pending.questions}
        for other, name in ((client, "two_sell"), (alone, "sell")):
            moved = type(pending)(
                method=pending.method,
                params={**pending.params, "name": name},
                questions=pending.questions,
                state=pending.state,
                round=pending.round,
            )
            with pytest.raises(Refused, match="Invalid or expired requestState"):
                await other.resume(moved, answers)
        assert (await client.resume(pending, answers)).result.text.startswith("r1 True")


async def test_middleware_of_both_runs_and_questions_pass_through():
    app, inner, seen = Server("front"), crm([]), []
    app.mount("crm", inner)
    for server in (app, inner):

        @server.middleware
        async def note(ctx, proceed, server=server):
            result = await proceed(ctx)
            seen.append((server.info.name, ctx.name, result["resultType"]))
            return result

    async with asker(app) as client:
        assert (await client.call_tool("crm_sell", {"count": 1})).text.startswith("r1 True")
    assert seen == [
        ("crm", "sell", "input_required"),
        ("front", "crm_sell", "input_required"),
        ("crm", "sell", "complete"),
        ("front", "crm_sell", "complete"),
    ]


@both_eras
async def test_mounts_are_nested_also_around_a_server_elsewhere(era):
    app, middle = Server("front"), Server("middle")
    middle.mount("crm", crm([]))
    middle.mount("old", upstream())
    app.mount("mid", middle)
    async with asker(app, era=era) as client:
        assert (await client.call_tool("mid_crm_sell", {"count": 2})).text == "r2 True crm sell sell"
        assert (await client.call_tool("mid_old_confirm")).text == "True"


async def test_changes_inside_are_told_outside():
    app, inner = Server("front"), upstream()
    app.mount("shop", inner)
    async with asker(app) as client:
        await client.list_tools()
        changes = client.subscribe(tools=True)
        change = asyncio.create_task(anext(changes))
        inner.add_tool(lambda: "new", name="late", description=".")
        while not change.done():
            await asyncio.sleep(0.01)
            inner.changed("tools")
        assert "shop_late" in {tool.name for tool in await client.list_tools()}
        await changes.aclose()


async def test_a_mounted_tool_can_be_checked_for_replay():
    app = Server("front")
    app.mount("crm", crm([]))
    report = await check_replay_safety(app, ("crm_sell", {"count": 1}), {"confirm": True})
    assert report.ok, report


def test_scopes_of_a_mounted_tool_count_outside():
    app, inner = Server("front"), Server("inner")
    inner.add_tool(lambda: "", name="sell", scopes=["sell"])
    app.mount("crm", inner)
    message = {"method": "tools/call", "params": {"name": "crm_sell"}}
    assert app.scopes_for(message) == ("sell",)


def test_names_that_are_taken_and_servers_in_circles_are_refused():
    app, inner = Server("front"), crm([])
    app.add_tool(lambda: "", name="crm_sell")
    with pytest.raises(ValueError, match="There is a tool 'crm_sell' already"):
        app.mount("crm", inner)
    with pytest.raises(ValueError, match="'front' cannot be mounted here: it would serve itself"):
        app.mount("x", app)
    inner.mount("front", app)
    with pytest.raises(ValueError, match="it would serve itself"):
        app.mount("x", inner)
    other = Server("other")
    other.mount("a", Server("one"))
    for prefix, why in (
        ("a", "There is something under 'a' already"),
        ("a_b", "The prefixes 'a' and 'a_b' make the same names"),
        ("a b", "'a b' is no prefix"),
    ):
        with pytest.raises(ValueError, match=why):
            other.mount(prefix, Server("two"))


async def test_nothing_is_mounted_while_it_is_served():
    app = Server("front")
    async with app.running():
        with pytest.raises(RuntimeError, match="before the server is served"):
            app.mount("x", Server("two"))
