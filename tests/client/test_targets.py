"""What a client can be pointed at, and what it is told when that cannot work."""

import sys
from pathlib import Path

import pytest

from antiphon import Accepted, Client, Context, Disconnected, Link, Refused, Server
from antiphon.transports.http_client import HttpLink
from antiphon.transports.stdio_client import ChildLink

from .scripted import Scripted, done

FILE = Path(__file__).parent / "server_file.py"


def yes(_question):
    return Accepted({"confirm": True})


@pytest.fixture
def app():
    server = Server("in memory", version="3.1")

    @server.tool
    async def deploy(env: str, ctx: Context) -> str:
        return f"deployed to {env}" if await ctx.confirm(f"Deploy to {env}?") else "left alone"

    return server


async def test_a_server_in_this_process(app):
    async with Client(app, elicit=yes) as client:
        result = await client.call_tool("deploy", {"env": "prod"})
    assert (result.text, result.rounds) == ("deployed to prod", 2)
    assert (client.server.name, client.server.version) == ("in memory", "3.1")


async def test_a_url(app, live):
    async with Client(f"http://127.0.0.1:{live(app.asgi())}/mcp", elicit=yes) as client:
        result = await client.call_tool("deploy", {"env": "prod"})
    assert (result.text, result.rounds) == ("deployed to prod", 2)
    assert client.server.name == "in memory"


async def test_a_command_with_its_environment_and_directory(tmp_path):
    async with Client([sys.executable, str(FILE)], env={"COLOUR": "green"}, cwd=str(tmp_path), elicit=yes) as client:
        seen = await client.call_tool("where", {"name": "COLOUR"})
        asked = await client.call_tool("deploy", {"env": "prod"})
        path = await client.call_tool("where", {"name": "PATH"})
    assert seen.text == f"green in {tmp_path.name}"
    assert (asked.text, asked.rounds) == ("deployed to prod", 2)
    assert not path.text.startswith("None"), "the environment is added to, not replaced"


async def test_a_command_inherits_a_short_list_of_variables_and_no_secrets(monkeypatch):
    monkeypatch.setenv("API_TOKEN", "secret")
    monkeypatch.setenv("SHELL", "() { :; }")
    async with Client([sys.executable, str(FILE)], env={"COLOUR": "green"}) as client:
        names = set((await client.call_tool("variables")).text.split())
    assert {"PATH", "HOME", "COLOUR"} <= names
    # LC_CTYPE is Python's own, where no locale is set (PEP 538).
    assert names <= {"HOME", "LOGNAME", "PATH", "TERM", "USER", "COLOUR", "LC_CTYPE"}


@pytest.mark.parametrize("target", [FILE, str(FILE)], ids=["Path", "str"])
async def test_the_file_of_a_server(target):
    async with Client(target, elicit=yes) as client:
        assert (await client.call_tool("deploy", {"env": "prod"})).text == "deployed to prod"
        assert client.server.name == "small"


async def test_a_link_of_ones_own():
    link = Scripted(done("hello"))
    async with Client(link) as client:
        assert (await client.call_tool("greet")).text == "hello"
        assert (link.opened, link.closed) == (1, 0)
    assert link.closed == 1


def test_the_links_of_the_library_are_links():
    assert isinstance(HttpLink("http://localhost/mcp"), Link)
    assert isinstance(ChildLink(["true"]), Link)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (7, "takes a URL"),
        (None, "takes a URL"),
        ([], "takes a URL"),
        ("server", "neither a URL nor a Python file"),
        ("ftp://example.com/mcp", "neither a URL nor a Python file"),
        ("nowhere.py", "There is no file"),
        ("http://", "starts with http"),
        ("http:///mcp", "starts with http"),
        ("http://localhost:99999/mcp", "[Pp]ort"),
        ("http://localhost:what/mcp", "[Pp]ort"),
    ],
)
def test_a_target_that_cannot_be_is_refused_at_once(target, told):
    with pytest.raises((TypeError, ValueError), match=told):
        Client(target)


@pytest.mark.parametrize("era", ["legacy-ish", "2025", ""])
def test_an_era_that_does_not_exist_is_refused(era):
    with pytest.raises(ValueError, match="era"):
        Client("http://localhost/mcp", era=era)


async def test_the_era_and_the_revision_are_known():
    async with Client(Scripted(done())) as client:
        assert client.protocol_version == "2026-07-28"
        assert client.era == "modern"
        assert client.server is None


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Key": "a\r\nX-Evil: b"},
        {"X-Key\r\nX-Evil": "b"},
        {"X Key": "b"},
        {"X-Key": "\u20ac"},
        {"Mcp-Name": "x"},
        {"mcp-param-region": "x"},
        {"Content-Length": "5"},
        {"Host": "elsewhere"},
    ],
)
def test_headers_that_would_break_or_forge_a_request_are_refused(headers):
    with pytest.raises(ValueError, match="header"):
        Client("http://localhost/mcp", headers=headers)


async def test_a_program_that_does_not_exist():
    with pytest.raises(Disconnected, match="Cannot start 'no-such-program'"):
        async with Client(["no-such-program"]):
            pass


async def test_a_program_that_ends_at_once():
    async with Client([sys.executable, "-c", "raise SystemExit(3)"], timeout=20) as client:
        with pytest.raises(Disconnected, match="exit code 3"):
            await client.call_tool("x")
        with pytest.raises(Disconnected, match="exit code 3"):
            await client.call_tool("x")


async def test_a_port_on_which_nobody_listens(hostile):
    async def behave(server, reader, writer):
        raise AssertionError

    gone = await hostile(behave)
    url = gone.url
    gone._server.close()
    await gone._server.wait_closed()
    async with Client(url) as client:
        with pytest.raises(Disconnected, match=r"Cannot connect to 127\.0\.0\.1"):
            await client.call_tool("x")


async def test_a_path_where_there_is_no_server(app, live):
    async with Client(f"http://127.0.0.1:{live(app.asgi())}/elsewhere") as client:
        with pytest.raises(Refused, match="no MCP endpoint here") as refused:
            await client.call_tool("x")
    assert refused.value.status == 404


async def test_a_client_is_used_inside_its_block(app):
    client = Client(app)
    with pytest.raises(Disconnected, match="async with"):
        await client.list_tools()
    async with client:
        assert len(await client.list_tools()) == 1
    with pytest.raises(Disconnected, match="async with"):
        await client.call_tool("deploy")


async def test_a_client_can_be_opened_again(app, live):
    client = Client(f"http://127.0.0.1:{live(app.asgi())}/mcp", elicit=yes)
    for _ in range(2):
        async with client:
            assert (await client.call_tool("deploy", {"env": "prod"})).text == "deployed to prod"


async def test_a_servers_lifespan_is_that_of_the_client_in_memory():
    from contextlib import asynccontextmanager

    seen = []

    @asynccontextmanager
    async def lifespan(_server):
        seen.append("begin")
        yield
        seen.append("end")

    async with Client(Server("living", lifespan=lifespan)) as client:
        assert seen == ["begin"]
        await client.discover()
    assert seen == ["begin", "end"]


async def test_what_is_raised_in_the_block_comes_out_and_closes_the_client():
    link = Scripted()
    with pytest.raises(ZeroDivisionError):
        async with Client(link):
            raise ZeroDivisionError
    assert link.closed == 1
