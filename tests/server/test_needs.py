"""Tools that need something of a client are shown to those clients that have it."""

from typing import Annotated, Any

import pytest

from antiphon import Ask, Browser, Client, Context, Refused, Server, ask
from antiphon.transports.memory import MemoryLink
from messages import request


def needy(**how: Any) -> Server:
    app = Server("needy", **how)

    @app.tool
    async def free() -> str:
        return "free"

    @app.tool
    async def wipe(sure: Annotated[bool, Ask("Sure?")]) -> str:
        return str(sure)

    @app.tool(needs="elicitation")
    async def erase(ctx: Context) -> str:
        return str(await ctx.confirm("Sure?"))

    @app.tool(needs=["sampling.tools", "roots"])
    async def think(ctx: Context) -> str:
        return str(await ctx.roots())

    @app.tool
    async def last() -> str:
        return "last"

    return app


async def names(app: Server, **about: Any) -> list[str]:
    found, cursor = [], None
    while True:
        params = {} if cursor is None else {"cursor": cursor}
        result = (await MemoryLink(app).send(request("tools/list", params, **about)))["result"]
        assert result["cacheScope"] == "private"
        found += [tool["name"] for tool in result["tools"]]
        cursor = result.get("nextCursor")
        if cursor is None:
            return found


@pytest.mark.parametrize("page_size", [None, 1, 2])
async def test_a_tool_is_hidden_from_clients_that_lack_what_it_needs(page_size: int | None) -> None:
    app = needy(page_size=page_size)
    everything = {"elicitation": {}, "sampling": {"tools": {}}, "roots": {}}
    assert await names(app) == ["free", "last"]
    assert await names(app, capabilities={"elicitation": {"url": {}}, "sampling": {}}) == ["free", "last"]
    assert await names(app, capabilities={"elicitation": {}}) == ["free", "wipe", "erase", "last"]
    assert await names(app, capabilities=everything) == ["free", "wipe", "erase", "think", "last"]
    app.remove_tool("wipe")
    assert await names(app, capabilities={"elicitation": {}}) == ["free", "erase", "last"]


async def test_a_hidden_tool_is_refused_as_ever() -> None:
    async with Client(needy()) as client:
        for name in ("wipe", "erase"):
            with pytest.raises(Refused) as refused:
                await client.call_tool(name)
            assert refused.value.code == -32021


async def test_asking_elsewhere_hides_only_what_it_does_not_reach() -> None:
    assert await names(needy(elsewhere=Browser())) == ["free", "wipe", "erase", "last"]


async def test_a_list_in_which_nothing_is_needed_is_public() -> None:
    app = Server("plain")
    app.add_tool(lambda: "x", name="x")
    reply = await MemoryLink(app).send(request("tools/list"))
    assert reply["result"]["cacheScope"] == "public"


async def test_a_question_in_a_function_is_no_need() -> None:
    app = Server("perhaps")

    def known(what: str) -> object:
        return True if what == "x" else ask.form("Sure?", bool)

    @app.tool
    async def wipe(what: str, sure: Annotated[bool, Ask(known)]) -> str:
        return f"{what} {sure}"

    async with Client(app) as client:
        assert [tool.name for tool in await client.list_tools()] == ["wipe"]
        assert (await client.call_tool("wipe", {"what": "x"})).text == "x True"


@pytest.mark.parametrize("needs", ["elicit", ["roots", "forms"], "sampling.magic"])
def test_a_need_that_no_client_declares_is_an_error(needs: Any) -> None:
    app = Server("wrong")
    with pytest.raises(ValueError, match="needs= takes what a client declares"):
        app.tool("x", needs=needs)(lambda: "x")
