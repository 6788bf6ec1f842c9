"""Several servers behind one: their names, their lists, and one that is down."""

import asyncio
import logging
import os
import signal
import sys

import pytest
from conversing import ERAS, asker, bridged, upstream

from antiphon import Disconnected, Refused, Server, eras
from antiphon.bridge import connections
from antiphon.bridge.upstream import Upstream
from antiphon.transports.link import Around

PROGRAM = """
import asyncio, os
from antiphon import Context, Server

app = Server("child")

@app.tool
async def pid() -> dict[str, int]:
    return {"pid": os.getpid()}

@app.tool
async def hang(ctx: Context) -> str:
    await ctx.progress(1, 2)
    await asyncio.Event().wait()

@app.tool
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Your name?", str)).unwrap()

app.run()
"""


@pytest.fixture
def child(tmp_path):
    file = tmp_path / "child.py"
    file.write_text(PROGRAM)
    return [sys.executable, str(file)]


def several(**mounted):
    """A server in front of several, each a pair of an application and the era to speak to it."""
    server = Server("front")
    for prefix, (app, era) in mounted.items():
        server.add_mount(Upstream(prefix, lambda app=app, era=era: eras.connect(app, era=era), server))
    return server


@pytest.mark.parametrize("before", ERAS)
async def test_names_get_a_prefix_and_lists_are_merged(before):
    server = several(crm=(upstream(), "2026-07-28"), wiki=(upstream(), "legacy"))

    @server.tool
    def own() -> str:
        return "own"

    async with asker(server, era=before) as client:
        tools = [tool.name for tool in await client.list_tools()]
        assert tools[0] == "own"
        assert {"crm_echo", "wiki_echo", "crm_order", "wiki_order"} <= set(tools)
        assert [prompt.name for prompt in await client.list_prompts()] == ["crm_greet", "wiki_greet"]
        assert (await client.call_tool("own")).text == "own"
        assert (await client.call_tool("crm_order")).text == "Ann accept True file:///work Hi!"
        assert (await client.call_tool("wiki_order")).text == "Ann accept True file:///work Hi!"
        assert (await client.get_prompt("wiki_greet", {"name": "Bob"})).messages[0].content.text == "Hello Bob"
        assert (await client.complete(prompt="crm_greet", argument="name", value="B")).values == ["Bob"]
        with pytest.raises(Refused, match="Unknown tool: other_echo"):
            await client.call_tool("other_echo")


async def test_resources_keep_their_uris_and_the_first_server_that_has_one_gives_it(caplog):
    one, two = Server("one"), Server("two")
    one.resource("a://x")(lambda: "one")
    two.resource("a://x")(lambda: "two")
    two.resource("b://{id}")(lambda id: f"two {id}")  # noqa: A006 -- the template's own name
    async with asker(several(one=(one, "2026-07-28"), two=(two, "legacy"))) as client:
        assert [resource.uri for resource in await client.list_resources()] == ["a://x"]
        assert (await client.read_resource("a://x")).contents[0].text == "one"
        assert (await client.read_resource("b://7")).contents[0].text == "two 7"
        with pytest.raises(Refused, match="not found"):
            await client.read_resource("c://7")
    assert "resources 'a://x' is there twice: the one in 'two' is left out" in caplog.text


async def test_lists_come_in_pages():
    one, two = Server("one", page_size=2), Server("two", page_size=3)
    for app in (one, two):
        for number in range(5):
            app.add_tool(lambda: "", name=f"t{number}", description=".")
    async with asker(several(a=(one, "2026-07-28"), b=(two, "legacy"))) as client:
        names = [tool.name for tool in await client.list_tools()]
    assert sorted(names) == [f"{prefix}_t{number}" for prefix in "ab" for number in range(5)]


@pytest.mark.parametrize("cursor", ["zz", "7b7d", b'{"other":"x"}'.hex(), b"[1]".hex()])
async def test_a_cursor_of_its_own_making_is_refused(cursor, call):
    server = several(a=(upstream(), "2026-07-28"))
    async with server.running():
        reply = await call(server, "tools/list", {"cursor": cursor})
    assert reply["error"]["message"] == "Invalid cursor: list again from the beginning"


class Gated(Around):
    """A link to a server that is down, until it is up."""

    up = False

    async def open(self):
        if not Gated.up:
            raise Disconnected("nobody is there")
        await super().open()


async def test_one_that_is_down_is_reported_and_comes_back(monkeypatch, caplog):
    monkeypatch.setattr(connections, "FIRST_WAIT", 0.05)
    monkeypatch.setattr(Gated, "up", False)
    server = several(up=(upstream(), "2026-07-28"))
    app = upstream()
    server.add_mount(Upstream("down", lambda: Gated(eras.connect(app)), server))
    async with asker(server) as client:
        tools = {tool.name for tool in await client.list_tools()}
        assert "up_echo" in tools
        assert "down_echo" not in tools
        assert (await client.call_tool("up_echo", {"text": "x"})).text == "x"
        with pytest.raises(Refused, match="The server 'down' cannot be reached: nobody is there"):
            await client.call_tool("down_echo", {"text": "x"})
        assert "The server 'down' cannot be reached: nobody is there" in caplog.text
        changes = client.subscribe(tools=True)
        change = asyncio.create_task(anext(changes))
        await asyncio.sleep(0)
        Gated.up = True
        assert (await asyncio.wait_for(change, 5)).kind == "tools"
        await changes.aclose()
        assert "down_echo" in {tool.name for tool in await client.list_tools()}
        assert (await client.call_tool("down_echo", {"text": "y"})).text == "y"


async def test_a_server_keeps_its_own_tools_when_the_only_other_one_is_down(monkeypatch):
    monkeypatch.setattr(Gated, "up", False)
    server = Server("front")
    server.add_tool(lambda: "own", name="own", description=".")
    server.add_mount(Upstream("down", lambda: Gated(eras.connect(upstream())), server))
    async with asker(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["own"]


async def test_only_what_is_there_is_declared():
    only_tools = Server("tools")
    only_tools.add_tool(lambda: "x", name="x", description=".")
    async with asker(several(a=(only_tools, "legacy"), b=(only_tools, "2026-07-28"))) as client:
        assert await client.list_prompts() == []
        assert set((await client.discover()).capabilities) == {"logging", "tools"}
        with pytest.raises(Refused, match="Method not found"):
            await client.get_prompt("a_x")


async def test_a_server_alone_that_is_down_says_so_instead_of_an_empty_list(monkeypatch):
    monkeypatch.setattr(Gated, "up", False)
    server = Server("front")
    server.add_mount(Upstream("", lambda: Gated(eras.connect(upstream())), server, label="shop"))
    async with asker(server) as client:
        with pytest.raises(Refused, match="The server 'shop' cannot be reached"):
            await client.list_tools()


@pytest.mark.parametrize("behind", ERAS)
async def test_a_server_that_is_killed_in_a_call_ends_it_and_nothing_else(behind, child, caplog):
    caplog.set_level(logging.WARNING)
    server = several(other=(upstream(), "2026-07-28"))
    server.mount("child", child, era=behind)
    begun = asyncio.Event()
    async with asker(server) as client:
        process = (await client.call_tool("child_pid")).structured
        calls = [asyncio.create_task(client.call_tool("child_hang", progress=lambda *_: begun.set())) for _ in "ab"]
        await asyncio.wait_for(begun.wait(), 10)
        os.kill(process["pid"], signal.SIGKILL)
        ended = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 10)
        assert all(isinstance(end, Refused) for end in ended)
        assert all("The server 'child' went away before it had answered" in str(end) for end in ended)
        assert (await client.call_tool("other_echo", {"text": "x"})).text == "x"
        again = (await client.call_tool("child_pid")).structured
        assert again != process


async def test_a_server_that_is_killed_while_a_call_waits_says_so_when_it_is_answered(child):
    server = Server("front")
    server.mount("", child, era="legacy")
    async with asker(server) as client:
        process = (await client.call_tool("pid")).structured
        pending = await client.begin("tools/call", name="ask", arguments={})
        os.kill(process["pid"], signal.SIGKILL)
        with pytest.raises(Refused, match="went away before it had answered"):
            await client.resume(pending, {key: {"action": "decline"} for key in pending.questions})
        assert (await client.call_tool("pid")).structured != process


async def test_each_client_of_an_old_server_has_a_session_and_one_asks_only_its_own(monkeypatch):
    monkeypatch.setattr(connections, "MOST", 2)
    app = upstream()
    server = bridged(app, "legacy")
    async with asker(server, name="one") as one, asker(server, name="two", sample=None) as two:
        assert (await one.call_tool("confirm")).text == "True"
        with pytest.raises(Refused) as refused:
            await two.call_tool("order")
        assert refused.value.data == {"requiredCapabilities": {"sampling": {}}}
        for number in range(4):
            async with asker(server, name=f"client {number}") as more:
                assert (await more.call_tool("echo", {"text": "x"})).text == "x"


def test_what_cannot_be_mounted_says_why(tmp_path):
    app = Server("app")
    for target, why in (
        ("nowhere", "'nowhere' is neither a URL nor a Python file"),
        (str(tmp_path / "missing.py"), "There is no file"),
        (7, "takes a URL, a command, a server's file, a Server or a Link"),
    ):
        with pytest.raises((ValueError, TypeError), match=why):
            app.mount("x", target)
    with pytest.raises(ValueError, match="era must be"):
        app.mount("x", "https://example.com/mcp", era="ancient")
