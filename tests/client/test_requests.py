"""What a request carries, what is mended when it is refused, and what is made of the reply."""

import base64
import dataclasses
import datetime as dt
import logging
from typing import Annotated

import pytest

from antiphon import (
    Accepted,
    Client,
    Context,
    EmbeddedResource,
    Header,
    Image,
    PeerBroken,
    Refused,
    Server,
    Text,
    ToolError,
)

from .scripted import YES, Scripted, asks, done, form, refused

REVISION = "2026-07-28"


# --- what every request carries -----------------------------------------------------------------------------------


async def test_every_request_says_its_version_its_client_and_its_abilities():
    link = Scripted(done(), {"resultType": "complete", "tools": []})
    async with Client(link, name="me", version="7", elicit=print) as client:
        await client.call_tool("x", {"a": 1})
        await client.list_tools()
    for message in link.sent:
        assert message["jsonrpc"] == "2.0"
        assert message["params"]["_meta"] == {
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientInfo": {"name": "me", "version": "7"},
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
        }
    assert link.sent[0]["method"] == "tools/call"
    assert link.params[0] == {"name": "x", "arguments": {"a": 1}}


async def test_logs_are_asked_for_by_those_who_read_them():
    link = Scripted(done())
    async with Client(link, on_log=print) as client:
        await client.call_tool("x")
    assert link.sent[0]["params"]["_meta"]["io.modelcontextprotocol/logLevel"] == "info"


async def test_headers_repeat_the_method_and_what_it_is_about():
    link = Scripted(done(), {"messages": []}, {"contents": []}, {"tools": []})
    async with Client(link) as client:
        await client.call_tool("tool")
        await client.get_prompt("prompt")
        await client.read_resource("text://a b")
        await client.list_tools()
    assert link.headers == [
        {"MCP-Protocol-Version": REVISION, "Mcp-Method": "tools/call", "Mcp-Name": "tool"},
        {"MCP-Protocol-Version": REVISION, "Mcp-Method": "prompts/get", "Mcp-Name": "prompt"},
        {"MCP-Protocol-Version": REVISION, "Mcp-Method": "resources/read", "Mcp-Name": "text://a b"},
        {"MCP-Protocol-Version": REVISION, "Mcp-Method": "tools/list"},
    ]


@pytest.mark.parametrize("name", ["größe", " padded ", "a\r\nX-Evil: 1", "=?base64?eA==?=", "名"])
async def test_a_name_that_a_header_cannot_carry_is_encoded(name):
    link = Scripted(done())
    async with Client(link) as client:
        await client.call_tool(name)
    encoded = link.headers[0]["Mcp-Name"]
    assert encoded.startswith("=?base64?")
    assert base64.b64decode(encoded[len("=?base64?") : -2]).decode() == name
    assert link.params[0]["name"] == name


async def test_arguments_may_be_values_that_json_can_say():
    @dataclasses.dataclass
    class Point:
        x: int
        y: int

    link = Scripted(done())
    async with Client(link) as client:
        await client.call_tool("x", {"at": Point(1, 2), "day": dt.date(2026, 7, 28), "raw": b"ab"})
        with pytest.raises(TypeError):
            await client.call_tool("x", {"at": object()})
    assert link.params == [{"name": "x", "arguments": {"at": {"x": 1, "y": 2}, "day": "2026-07-28", "raw": "YWI="}}]


# --- parameters that travel in headers ----------------------------------------------------------------------------


@pytest.fixture
def routed():
    app = Server("routed")

    @app.tool
    async def query(region: Annotated[str, Header("Region")], text: str, ctx: Context) -> str:
        return f"{region} {text} {await ctx.confirm('Sure?')}"

    return app


async def test_annotated_parameters_are_mirrored_on_every_leg(routed, live):
    async with Client(
        f"http://127.0.0.1:{live(routed.asgi())}/mcp", elicit=lambda _: Accepted({"confirm": True})
    ) as client:
        await client.list_tools()
        result = await client.call_tool("query", {"region": "größe", "text": "x"})
    assert (result.text, result.rounds) == ("größe x True", 2)


async def test_a_tool_that_wants_headers_is_looked_up_when_it_was_never_listed(routed, live):
    async with Client(
        f"http://127.0.0.1:{live(routed.asgi())}/mcp", elicit=lambda _: Accepted({"confirm": True})
    ) as client:
        result = await client.call_tool("query", {"region": "eu", "text": "x"})
    assert result.text == "eu x True"


TOOLS = {
    "resultType": "complete",
    "tools": [
        {
            "name": "x",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "region": {"type": "string", "x-mcp-header": "Region"},
                    "size": {"type": "integer", "x-mcp-header": "Size"},
                    "fast": {"type": "boolean", "x-mcp-header": "Fast"},
                    "where": {"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}},
                    "text": {"type": "string"},
                },
            },
        }
    ],
    "ttlMs": 60000,
    "cacheScope": "public",
}


async def test_values_are_mirrored_by_their_type_and_absent_ones_are_not():
    link = Scripted(TOOLS, done(), done())
    async with Client(link) as client:
        await client.list_tools()
        await client.call_tool("x", {"region": "", "size": 7, "fast": True, "where": {"city": "Ulm"}, "text": "t"})
        await client.call_tool("x", {"region": None, "where": {}})
    mirrored = [{key: one[key] for key in one if key.startswith("Mcp-Param")} for one in link.headers]
    assert mirrored == [
        {},
        {"Mcp-Param-Region": "", "Mcp-Param-Size": "7", "Mcp-Param-Fast": "true", "Mcp-Param-City": "Ulm"},
        {},
    ]


async def test_a_header_mismatch_is_mended_by_listing_the_tools_and_asking_again():
    link = Scripted(refused(-32020), TOOLS, done("found"))
    async with Client(link) as client:
        assert (await client.call_tool("x", {"region": "eu"})).text == "found"
    assert [message["method"] for message in link.sent] == ["tools/call", "tools/list", "tools/call"]
    assert link.headers[2]["Mcp-Param-Region"] == "eu"
    assert len(set(link.ids)) == 3


async def test_a_tool_whose_headers_changed_since_is_looked_up_again():
    old = {"resultType": "complete", "tools": [{"name": "x", "inputSchema": {}}], "ttlMs": 60000}
    link = Scripted(old, refused(-32020), TOOLS, done("found"))
    async with Client(link) as client:
        await client.list_tools()
        assert (await client.call_tool("x", {"region": "eu"})).text == "found"


async def test_a_mismatch_that_listing_does_not_explain_is_an_error_and_no_loop():
    same = {"resultType": "complete", "tools": [{"name": "x", "inputSchema": {}}]}
    link = Scripted(refused(-32020, "Header mismatch"), same)
    async with Client(link) as client:
        with pytest.raises(Refused, match="Header mismatch") as raised:
            await client.call_tool("x")
    assert raised.value.code == -32020
    link = Scripted(refused(-32020), TOOLS, refused(-32020, "still"))
    async with Client(link) as client:
        with pytest.raises(Refused, match="still"):
            await client.call_tool("x", {"region": "eu"})
    assert len(link.sent) == 3


# --- versions -----------------------------------------------------------------------------------------------------


async def test_an_unsupported_version_is_tried_again_when_the_server_speaks_ours():
    told = {"supported": ["2027-01-01", REVISION], "requested": REVISION}
    link = Scripted(refused(-32022, data=told), done("fine"))
    async with Client(link) as client:
        assert (await client.call_tool("x")).text == "fine"
    assert len(set(link.ids)) == 2


@pytest.mark.parametrize(
    "data", [None, {}, {"supported": ["2025-11-25"], "requested": REVISION}, {"supported": "2026-07-28x"}, [], "x"]
)
async def test_a_server_that_speaks_nothing_of_ours_is_an_error(data):
    link = Scripted(refused(-32022, "Unsupported protocol version", data=data))
    async with Client(link) as client:
        with pytest.raises(Refused, match="Unsupported") as raised:
            await client.call_tool("x")
    assert (raised.value.code, raised.value.data) == (-32022, data)
    assert len(link.sent) == 1


async def test_a_version_that_is_refused_again_and_again_is_no_loop():
    link = Scripted(lambda _: refused(-32022, data={"supported": [REVISION], "requested": REVISION}))
    async with Client(link) as client:
        with pytest.raises(Refused):
            await client.call_tool("x")
    assert len(link.sent) == 2


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [-32600, -32601, -32602, -32603, -32021, -1, 7])
async def test_an_error_of_the_server_says_its_code_its_text_and_its_data(code):
    link = Scripted(refused(code, "because", data={"a": 1}))
    async with Client(link) as client:
        with pytest.raises(Refused, match="because") as raised:
            await client.call_tool("x")
    assert (raised.value.code, raised.value.message, raised.value.data) == (code, "because", {"a": 1})
    assert len(link.sent) == 1, "only what the specification allows is sent again"


@pytest.mark.parametrize("error", [None, "no", {}, {"code": "x", "message": "y"}, {"code": 1}, {"message": "y"}])
async def test_an_error_that_is_none_is_the_servers_fault(error):
    async with Client(Scripted({"error": error})) as client:
        with pytest.raises(PeerBroken, match="error without a code"):
            await client.call_tool("x")


@pytest.mark.parametrize("reply", [{"id": 99, "result": done()}, {"id": None, "result": done()}])
async def test_a_reply_to_another_request_is_not_taken(reply):
    async with Client(Scripted(reply)) as client:
        with pytest.raises(PeerBroken, match="answered request"):
            await client.call_tool("x")


@pytest.mark.parametrize("result", [None, [], "x", 7])
async def test_a_reply_without_a_result_is_an_error(result):
    async with Client(Scripted({"result": result})) as client:
        with pytest.raises(PeerBroken, match="neither a result nor an error"):
            await client.call_tool("x")


# --- results ------------------------------------------------------------------------------------------------------


async def test_a_tools_result_is_read():
    app = Server("results")

    @app.tool
    async def both() -> list[Text | Image]:
        return [Text("one"), Image(b"png"), Text("two")]

    @app.tool
    async def structured() -> dict[str, int]:
        return {"total": 5}

    @app.tool
    async def fails() -> str:
        raise ToolError("No: because")

    async with Client(app) as client:
        result = await client.call_tool("both")
        assert result.text == "one\ntwo"
        assert result.content[1] == Image(b"png")
        assert (result.is_error, result.rounds) == (False, 1)
        assert (await client.call_tool("structured")).structured == {"total": 5}
        result = await client.call_tool("fails")
        assert (result.is_error, result.text) == (True, "No: because")


async def test_prompts_and_resources_are_read():
    link = Scripted(
        {
            "description": "A greeting",
            "messages": [
                {"role": "user", "content": {"type": "text", "text": "hi"}},
                {"role": "assistant", "content": {"type": "resource", "resource": {"uri": "a://b", "text": "c"}}},
            ],
        },
        {"contents": [{"uri": "a://b", "text": "c"}, {"uri": "a://d", "blob": "YWI=", "mimeType": "x/y"}]},
    )
    async with Client(link) as client:
        prompt = await client.get_prompt("greet")
        read = await client.read_resource("a://b")
    assert prompt.description == "A greeting"
    assert [message.role for message in prompt.messages] == ["user", "assistant"]
    assert isinstance(prompt.messages[1].content, EmbeddedResource)
    assert read.text == "c"
    assert (read.contents[1].blob, read.contents[1].mime_type) == (b"ab", "x/y")


async def test_a_result_without_a_type_is_complete():
    async with Client(Scripted({"content": [{"type": "text", "text": "old style"}]})) as client:
        assert (await client.call_tool("x")).text == "old style"


@pytest.mark.parametrize("kind", ["task", "later", None])
async def test_a_result_of_an_unknown_type_is_an_error(kind):
    async with Client(Scripted({**done(), "resultType": kind})) as client:
        with pytest.raises(PeerBroken, match="unknown type"):
            await client.call_tool("x")


@pytest.mark.parametrize(
    "result",
    [
        {"content": "text"},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "smell", "text": "x"}]},
        {"content": [{"type": "image", "data": "???", "mimeType": "image/png"}]},
        {"content": [], "isError": "yes"},
        {"content": [], "_meta": 7},
    ],
)
async def test_a_malformed_result_is_the_servers_fault(result):
    async with Client(Scripted(result)) as client:
        with pytest.raises(PeerBroken, match="malformed"):
            await client.call_tool("x")


@pytest.mark.parametrize("result", [{}, {"messages": [{"role": "king", "content": "x"}]}])
async def test_a_malformed_prompt_is_the_servers_fault(result):
    async with Client(Scripted(result)) as client:
        with pytest.raises(PeerBroken, match="malformed"):
            await client.get_prompt("x")


@pytest.mark.parametrize("result", [{}, {"contents": [{"uri": "x", "blob": "?"}]}, {"contents": ["x"]}])
async def test_a_malformed_resource_is_the_servers_fault(result):
    async with Client(Scripted(result)) as client:
        with pytest.raises(PeerBroken, match="malformed"):
            await client.read_resource("x://y")


# --- output schemas -----------------------------------------------------------------------------------------------


def promising(schema, *results):
    tool = {"name": "x", "inputSchema": {"type": "object"}}
    if schema is not None:
        tool["outputSchema"] = schema
    return Scripted({"tools": [tool]}, *results)


TOTAL = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}


async def called_after_listing(link):
    async with Client(link, elicit=lambda _: Accepted(True)) as client:
        await client.list_tools()
        return await client.call_tool("x")


async def test_structured_content_that_fits_its_schema_is_given():
    assert (await called_after_listing(promising(TOTAL, done(structuredContent={"total": 1})))).structured == {
        "total": 1
    }


@pytest.mark.parametrize("structured", [{"total": "1"}, {}, None, [], "x"])
async def test_structured_content_that_does_not_fit_is_the_servers_fault(structured):
    with pytest.raises(PeerBroken, match="does not fit its output schema"):
        await called_after_listing(promising(TOTAL, done(structuredContent=structured)))


@pytest.mark.parametrize("result", [done(), done(structuredContent=None)], ids=["absent", "null"])
async def test_structured_content_that_is_not_there_is_none(result):
    async with Client(Scripted(result)) as client:
        assert (await client.call_tool("x")).structured is None


async def test_structured_content_that_was_promised_and_is_missing_is_the_servers_fault():
    with pytest.raises(PeerBroken, match="no structured content"):
        await called_after_listing(promising(TOTAL, done()))


async def test_what_comes_after_questions_is_checked_too():
    with pytest.raises(PeerBroken, match="output schema"):
        await called_after_listing(
            promising(TOTAL, asks("s", key=form(a=YES)), done(structuredContent={"total": "much"}))
        )


async def test_a_schema_that_doubles_at_each_level_of_a_result_holds_the_client_up_no_longer():
    twice = [{"type": "object", "properties": {"x": {"$ref": "#"}}, "required": [name]} for name in "ab"]
    result = "wrong"
    for _ in range(50):
        result = {"x": result, "a": 1, "b": 1}
    with pytest.raises(PeerBroken, match="fits none of the alternatives"):
        await called_after_listing(promising({"oneOf": [*twice, {"type": "integer"}]}, done(structuredContent=result)))


async def test_a_result_that_takes_too_long_to_check_is_given_unchecked(caplog):
    costly = {"items": {"anyOf": [{"minimum": number} for number in range(2000, 0, -1)]}}
    result = await called_after_listing(promising(costly, done(structuredContent=[1] * 20_000)))
    assert len(result.structured) == 20_000
    assert "the result of 'x' is not checked: too large" in caplog.text


async def test_an_error_promises_nothing():
    assert (await called_after_listing(promising(TOTAL, done(isError=True)))).is_error


@pytest.mark.parametrize("structured", [[1, 2], 7, "x", None])
async def test_structured_content_may_be_any_json_where_the_schema_says_so(structured):
    result = await called_after_listing(promising({}, done(structuredContent=structured)))
    assert result.structured == structured


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"$ref": "https://example.com/never-fetched.json"}])
async def test_a_schema_that_cannot_be_used_is_warned_of_and_never_fetched(schema, caplog):
    with caplog.at_level(logging.WARNING, "antiphon.client"):
        result = await called_after_listing(promising(schema, done(structuredContent={"a": 1})))
    assert result.structured == {"a": 1}
    assert "cannot be used" in caplog.text


async def test_a_promise_that_is_taken_back_is_forgotten():
    tool = {"name": "x", "inputSchema": {"type": "object"}}
    link = Scripted(
        {"tools": [{**tool, "outputSchema": TOTAL}]}, done(structuredContent={"total": 1}), {"tools": [tool]}, done()
    )
    async with Client(link) as client:
        await client.list_tools()
        await client.call_tool("x")
        await client.list_tools()
        assert (await client.call_tool("x")).text == "done"


@pytest.mark.parametrize("id_", [1.0, True, "1", 2, None])
async def test_a_reply_with_another_id_is_not_the_reply(id_):
    async with Client(Scripted({"id": id_, "result": done()})) as client:
        with pytest.raises(PeerBroken, match="not this one"):
            await client.call_tool("x")
