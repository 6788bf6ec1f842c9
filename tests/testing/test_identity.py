"""In memory, a test says who calls: the server does as over HTTP with a token of theirs."""

import time
from importlib.util import find_spec

import pytest

from antiphon import Accepted, Client, Context, Refused, Server
from antiphon.auth import Identity, Protected
from antiphon.testing import Issuer

ERAS = pytest.mark.parametrize("era", ["2026-07-28", *(["legacy"] if find_spec("antiphon.legacy") else [])])
issuer = Issuer()


@pytest.fixture
def app():
    auth = Protected("https://notes.test/mcp", issuer=issuer.url, scopes=["read"], implies={"admin": ["write"]})
    app = Server("notes", auth=auth)
    app.seen = []

    @app.middleware
    async def note(ctx, proceed):
        app.seen.append(ctx.auth and ctx.auth.subject)
        return await proceed(ctx)

    @app.tool
    async def who(ctx: Context) -> dict[str, object]:
        return {"subject": ctx.auth.subject, "scopes": sorted(ctx.auth.scopes), "principal": ctx.principal}

    @app.tool(scopes=["write"])
    async def add(ctx: Context) -> str:
        sure = await ctx.confirm("Really?")
        return await ctx.step("note", lambda: f"{ctx.auth.subject} {sure}")

    @app.tool
    async def delete(notebook: str, ctx: Context) -> str:
        await ctx.need(f"delete:{notebook}")
        return "deleted"

    @app.prompt(scopes=["prompts"])
    def hello() -> str:
        return "Hello"

    @app.resource("note://{id}", scopes=["notes"])
    async def note_of(id: str) -> str:
        return id

    return app


def calling(app, era, *scopes, **options):
    return Client(
        app, era=era, elicit=lambda _: Accepted(True), identity=issuer.identity("ada", scopes=scopes, **options)
    )


@ERAS
async def test_a_handler_sees_who_calls(app, era):
    async with calling(app, era, "read", "admin") as client:
        told = (await client.call_tool("who")).structured
        assert told == {"subject": "ada", "scopes": ["admin", "read", "write"], "principal": f"{issuer.url} ada"}
        assert (await client.call_tool("add")).text == "ada True"
    assert set(app.seen) == {"ada"}


@ERAS
@pytest.mark.parametrize(
    ("ask", "needs"),
    [
        (lambda client: client.call_tool("add"), ["read", "write"]),
        (lambda client: client.call_tool("delete", {"notebook": "work"}), ["read", "delete:work"]),
        (lambda client: client.get_prompt("hello"), ["read", "prompts"]),
        (lambda client: client.read_resource("note://7"), ["read", "notes"]),
    ],
)
async def test_a_scope_that_is_missing_is_refused_and_named(app, era, ask, needs):
    async with calling(app, era, "read") as client:
        with pytest.raises(Refused, match=f"This needs {needs[1]}") as refused:
            await ask(client)
        assert refused.value.data == {"requiredScopes": needs}
    async with calling(app, era, *needs) as client:
        await ask(client)


@ERAS
async def test_what_every_request_needs_is_asked_of_every_request(app, era):
    with pytest.raises(Refused, match="This needs read"):
        async with calling(app, era) as client:
            await client.list_tools()


@ERAS
async def test_an_identity_that_has_ended_is_refused_as_a_token_would_be(app, era):
    with pytest.raises(Refused, match="token is not valid"):
        async with calling(app, era, "read", exp=time.time() - 60) as client:
            await client.list_tools()


async def test_a_conversation_of_another_user_looks_nonexistent(app):
    async with calling(app, "2026-07-28", "read", "write") as ada:
        pending = await ada.begin("tools/call", name="add", arguments={})
    answers = {"confirm": Accepted(True)}
    async with Client(app, identity=issuer.identity("bob", scopes=["read", "write"])) as bob:
        with pytest.raises(Refused, match="Invalid or expired requestState"):
            await bob.resume(pending, answers)
    async with calling(app, "2026-07-28", "read", "write") as ada:
        assert (await ada.resume(pending, answers)).result.text == "ada True"


@ERAS
async def test_a_server_without_protection_sees_who_calls_as_well(era):
    app = Server("open")

    @app.tool(scopes=["anything"])
    async def who(ctx: Context) -> str:
        return f"{ctx.auth.subject} {ctx.principal}"

    async with Client(app, era=era, identity=Identity(subject="ada")) as client:
        assert (await client.call_tool("who")).text == "ada ada"


async def test_without_an_identity_nothing_is_asked(app):
    async with Client(app) as client:
        assert (await client.call_tool("delete", {"notebook": "work"})).text == "deleted"


@pytest.mark.parametrize("target", ["https://mcp.example.com/mcp", ["python", "x.py"]])
def test_an_identity_is_for_a_server_in_this_process(target):
    with pytest.raises(TypeError, match="in this process"):
        Client(target, identity=Identity(subject="ada"))


@pytest.mark.mcp(identity=issuer.identity("grace", scopes=["read"]))
async def test_the_client_of_the_plugin_takes_one(mcp_client):
    assert (await mcp_client.call_tool("who")).structured["subject"] == "grace"


@pytest.fixture
def mcp_server(app):
    return app
