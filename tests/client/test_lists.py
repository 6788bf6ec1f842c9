"""Lists: awaited whole, or iterated over as their pages come."""

import logging

import pytest

from antiphon import Client, PeerBroken, Server
from antiphon.client import requests

from .scripted import Scripted


@pytest.fixture
def shop():
    """A server with five of everything, two on a page."""
    app = Server("shop", page_size=2)
    for number in range(5):
        app.add_tool(lambda: "x", name=f"tool{number}")
        app.add_prompt(lambda: "x", name=f"prompt{number}")
        app.add_resource(f"text://{number}", lambda: "x", name=f"resource{number}")
        app.add_resource(f"note{number}://{{name}}", lambda name: name, name=f"template{number}")
    return app


KINDS = {
    "list_tools": lambda item: item.name,
    "list_prompts": lambda item: item.name,
    "list_resources": lambda item: item.uri,
    "list_resource_templates": lambda item: item.uri_template,
}
WHOLE = {
    "list_tools": [f"tool{n}" for n in range(5)],
    "list_prompts": [f"prompt{n}" for n in range(5)],
    "list_resources": [f"text://{n}" for n in range(5)],
    "list_resource_templates": [f"note{n}://{{name}}" for n in range(5)],
}


@pytest.mark.parametrize("method", KINDS)
async def test_a_list_is_awaited_whole(shop, method):
    async with Client(shop) as client:
        assert [KINDS[method](item) for item in await getattr(client, method)()] == WHOLE[method]


@pytest.mark.parametrize("method", KINDS)
async def test_a_list_is_iterated_over(shop, method):
    async with Client(shop) as client:
        assert [KINDS[method](item) async for item in getattr(client, method)()] == WHOLE[method]


def page(*names, cursor=None):
    made = {"resultType": "complete", "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
    return made if cursor is None else {**made, "nextCursor": cursor}


async def test_pages_are_fetched_as_they_are_needed():
    link = Scripted(page("a", "b", cursor="2"), page("c"))
    async with Client(link) as client:
        seen = []
        async for tool in client.list_tools():
            seen.append((tool.name, len(link.sent)))
    assert seen == [("a", 1), ("b", 1), ("c", 2)]
    assert link.params == [{}, {"cursor": "2"}]


async def test_a_list_can_be_left_early():
    link = Scripted(page("a", "b", cursor="2"))
    async with Client(link) as client:
        async for tool in client.list_tools():
            assert tool.name == "a"
            break
    assert len(link.sent) == 1


async def test_an_empty_page_is_not_the_end():
    link = Scripted(page("a", cursor="2"), page(cursor="3"), page("b", cursor=""), page("c"))
    async with Client(link) as client:
        assert [tool.name for tool in await client.list_tools()] == ["a", "b", "c"]
    assert link.params[-1] == {"cursor": ""}


async def test_cursors_that_go_round_in_a_circle_are_noticed():
    link = Scripted(page("a", cursor="1"), page("b", cursor="2"), page("c", cursor="1"))
    async with Client(link) as client:
        with pytest.raises(PeerBroken, match="again and again"):
            await client.list_tools()
    assert len(link.sent) == 3


async def test_a_list_without_end_is_noticed(monkeypatch):
    monkeypatch.setattr(requests, "MAX_PAGES", 20)
    link = Scripted(lambda message: page("a", cursor=str(message["id"])))
    async with Client(link) as client:
        with pytest.raises(PeerBroken, match="more than 20 pages"):
            await client.list_tools()


@pytest.mark.parametrize("cursor", [7, ["a"], {"a": 1}, True])
async def test_a_cursor_that_is_not_text_is_an_error(cursor):
    async with Client(Scripted(page("a", cursor=cursor))) as client:
        with pytest.raises(PeerBroken, match="cursor"):
            await client.list_tools()


@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "complete"},
        {"resultType": "complete", "tools": None},
        {"resultType": "complete", "tools": {"a": 1}},
        {"resultType": "complete", "tools": ["a"]},
        {"resultType": "complete", "tools": [{"name": "a"}]},
        {"resultType": "complete", "tools": [{"name": 1, "inputSchema": {}}]},
        {"resultType": "input_required", "requestState": "s"},
        {"resultType": "later", "tools": []},
    ],
)
async def test_a_list_that_is_none_is_an_error(result):
    async with Client(Scripted(result)) as client:
        with pytest.raises(PeerBroken):
            await client.list_tools()


async def test_a_list_of_a_server_that_says_no_type_is_read():
    async with Client(Scripted({"tools": [{"name": "a", "inputSchema": {}}]})) as client:
        assert [tool.name for tool in await client.list_tools()] == ["a"]


def annotated(name, **properties):
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


BAD = {
    "empty": {"a": {"type": "string", "x-mcp-header": ""}},
    "space": {"a": {"type": "string", "x-mcp-header": "My Header"}},
    "colon": {"a": {"type": "string", "x-mcp-header": "A:B"}},
    "foreign": {"a": {"type": "string", "x-mcp-header": "Größe"}},
    "newline": {"a": {"type": "string", "x-mcp-header": "A\r\nB"}},
    "number": {"a": {"type": "number", "x-mcp-header": "A"}},
    "object": {"a": {"type": "object", "x-mcp-header": "A"}},
    "twice": {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}},
    "nested": {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}},
}


async def test_an_invalid_tool_definition_is_left_out_with_a_warning_and_the_others_stay(caplog):
    tools = [annotated("good", a={"type": "string", "x-mcp-header": "A"})]
    tools += [annotated(name, **properties) for name, properties in BAD.items()]
    tools += [annotated("plain", a={"type": "string"})]
    async with Client(Scripted({"resultType": "complete", "tools": tools})) as client:
        with caplog.at_level(logging.WARNING, "antiphon.client"):
            assert [tool.name for tool in await client.list_tools()] == ["good", "plain"]
    for name in BAD:
        assert any(f"'{name}' is left out" in record.getMessage() for record in caplog.records), name


async def test_a_tools_definition_arrives_as_it_was_written():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"a": {"type": "string"}},
        "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"$ref": "https://example.com/never-fetched.json"}},
        "additionalProperties": False,
    }
    tool = {"name": "a", "inputSchema": schema, "description": "does", "annotations": {"readOnlyHint": True}}
    async with Client(Scripted({"resultType": "complete", "tools": [tool]})) as client:
        (seen,) = await client.list_tools()
    assert seen.input_schema == schema
    assert seen.annotations.read_only_hint is True


async def test_completions_are_suggested():
    app = Server("complete")

    @app.prompt
    def greet(name: str) -> str:
        return name

    @app.complete(greet, "name")
    def names(value: str) -> list[str]:
        return [name for name in ("Ada", "Alan", "Grace") if name.startswith(value)]

    async with Client(app) as client:
        assert (await client.complete(prompt="greet", argument="name", value="A")).values == ["Ada", "Alan"]
        with pytest.raises(TypeError, match="prompt= or template="):
            await client.complete(argument="name", value="A")


async def test_what_was_chosen_already_is_told_with_a_completion():
    link = Scripted({"resultType": "complete", "completion": {"values": ["x"], "total": 1, "hasMore": False}})
    async with Client(link) as client:
        found = await client.complete(template="note://{id}", argument="id", value="x", known={"shelf": "2"})
    assert (found.values, found.total, found.has_more) == (["x"], 1, False)
    assert link.params == [
        {
            "ref": {"type": "ref/resource", "uri": "note://{id}"},
            "argument": {"name": "id", "value": "x"},
            "context": {"arguments": {"shelf": "2"}},
        }
    ]


async def test_a_server_is_discovered():
    app = Server("known", version="1.2", instructions="Be kind.")
    app.add_tool(lambda: "x", name="x")
    async with Client(app) as client:
        found = await client.discover()
    assert found.supported_versions == ["2026-07-28"]
    assert found.instructions == "Be kind."
    assert "tools" in found.capabilities
    assert (found.server.name, found.server.version) == ("known", "1.2")


async def test_a_prior_discovery_tells_who_the_server_is_before_it_is_asked():
    app = Server("known", version="1.2")
    async with Client(app) as client:
        found = await client.discover()
    assert Client(app, prior=found).server.name == "known"


@pytest.mark.parametrize("meta", [{}, {"io.modelcontextprotocol/serverInfo": "me"}])
async def test_a_server_that_does_not_say_who_it_is_is_served_all_the_same(meta):
    async with Client(Scripted({"resultType": "complete", "content": [], "_meta": meta})) as client:
        await client.call_tool("x")
        assert client.server is None


async def test_a_server_may_still_say_who_it_is_where_older_ones_did():
    info = {"name": "old style", "version": "1"}
    async with Client(Scripted({"resultType": "complete", "supportedVersions": [], "serverInfo": info})) as client:
        await client.discover()
        assert client.server.name == "old style"


async def test_a_tool_with_a_very_deep_schema_does_not_hide_the_others():
    schema = {"type": "string"}
    for _ in range(450):
        schema = {"type": "object", "properties": {"a": schema}}
    listed = [{"name": "deep", "inputSchema": schema}, {"name": "good", "inputSchema": {"type": "object"}}]
    async with Client(Scripted({"resultType": "complete", "tools": listed})) as client:
        assert "good" in [tool.name for tool in await client.list_tools()]
