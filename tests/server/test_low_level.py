"""The low level: raw params in, raw results out; and what the server says of itself."""

import pytest

from antiphon import Context, Icon, InvalidParams, MethodNotFound, Server, ToolResult
from messages import SERVER

PLACE = {"type": "object", "properties": {"place": {"type": "string"}}}

# --- asking -------------------------------------------------------------------------------------------------------


async def test_what_a_raw_handler_returned_is_answered_on_every_round_after(app, call):
    asked = {"method": "elicitation/create", "params": {"message": "Where?", "requestedSchema": PLACE}}
    seen = []

    @app.on("tools/call")
    async def call_tool(params, ctx: Context):
        seen.append((params.get("requestState"), params.get("inputResponses")))
        if "inputResponses" not in params:
            return {"resultType": "input_required", "inputRequests": {"confirm": asked}, "requestState": "s"}
        sure = [await ctx.confirm("First?"), await ctx.confirm("Last?")]
        return {"content": [], "structuredContent": {"sure": sure}}

    there = {"action": "accept", "content": {"place": "eu"}}
    params, answers = (
        {"name": "any", "arguments": {}},
        [there, *[{"action": "accept", "content": {"confirm": True}}] * 2],
    )
    about = {"capabilities": {"elicitation": {}}}
    result = (await call(app, "tools/call", params, **about))["result"]
    for answer in answers:
        (key,) = result["inputRequests"]
        more = {"requestState": result["requestState"], "inputResponses": {key: answer}}
        result = (await call(app, "tools/call", {**params, **more}, **about))["result"]
    assert result["structuredContent"] == {"sure": [True, True]}
    assert seen == [(None, None)] + [("s", {"confirm": there})] * 3


# --- methods of one's own -----------------------------------------------------------------------------------------


async def test_a_method_of_ones_own_is_served(app, call):
    @app.on("com.example/add")
    async def add(params):
        return {"sum": params["a"] + params["b"]}

    result = (await call(app, "com.example/add", {"a": 1, "b": 2}))["result"]
    assert result["sum"] == 3
    assert result["resultType"] == "complete"
    assert "ttlMs" not in result


async def test_it_may_be_plain_and_may_take_the_context(app, call):
    @app.on("com.example/who")
    def who(params, ctx: Context):
        return {"client": ctx.client.name, "method": ctx.method}

    result = (await call(app, "com.example/who"))["result"]
    assert (result["client"], result["method"]) == ("tests", "com.example/who")


async def test_a_result_may_be_nothing(app, call):
    app.on("com.example/ping")(lambda params: None)
    assert (await call(app, "com.example/ping"))["result"]["resultType"] == "complete"


async def test_a_method_of_ones_own_works_over_http(app, http):
    app.on("com.example/ping")(lambda params: {"pong": True})
    reply = await http.call("com.example/ping")
    assert (reply.status, reply.result["pong"]) == (200, True)


async def test_its_errors_are_its_own(app, call, caplog):
    @app.on("com.example/fail")
    async def fail(params):
        raise InvalidParams("no", data=[1])

    @app.on("com.example/crash")
    async def crash(params):
        raise RuntimeError("the password is 1234")

    assert (await call(app, "com.example/fail"))["error"] == {"code": -32602, "message": "no", "data": [1]}
    assert (await call(app, "com.example/crash"))["error"] == {"code": -32603, "message": "Internal error"}


@pytest.mark.parametrize(
    "value", [5, "x", [1], object(), ToolResult(content="x")], ids=["5", "x", "[1]", "object", "ToolResult"]
)
async def test_a_result_that_is_no_object_is_an_internal_error(app, call, value, caplog):
    app.on("com.example/odd")(lambda params: value)
    assert (await call(app, "com.example/odd"))["error"]["code"] == -32603


async def test_a_result_that_is_not_json_is_an_internal_error(app, http, caplog):
    app.on("com.example/odd")(lambda params: {"a": "\ud800"})
    reply = await http.call("com.example/odd")
    assert (reply.status, reply.error["code"]) == (200, -32603)


def test_a_handler_takes_the_params_and_nothing_else(app):
    for wrong in (lambda: {"a": 1}, lambda a, b: {}):
        with pytest.raises(TypeError, match="params"):
            app.on("com.example/x")(wrong)


@pytest.mark.parametrize("method", ["server/discover", "notifications/cancelled"])
def test_some_methods_are_not_for_the_taking(app, method):
    with pytest.raises(ValueError, match=method):
        app.on(method)


# --- the protocol's methods ---------------------------------------------------------------------------------------


async def test_tools_can_be_served_raw(app, call):
    @app.on("tools/list")
    async def tools(params):
        return {"tools": [{"name": "any", "inputSchema": {"type": "object"}}], "nextCursor": "n"}

    @app.on("tools/call")
    async def run(params, ctx: Context):
        return {"content": [{"type": "text", "text": f"{params['name']} {params['arguments']} {ctx.name}"}]}

    assert "tools" in (await call(app, "server/discover"))["result"]["capabilities"]
    listed = (await call(app, "tools/list"))["result"]
    assert listed["tools"][0]["name"] == "any"
    assert listed["nextCursor"] == "n"
    assert listed["ttlMs"] >= 0
    called = (await call(app, "tools/call", {"name": "any", "arguments": {"a": 1}}))["result"]
    assert called["content"][0]["text"] == "any {'a': 1} any"
    assert called["_meta"][SERVER]["name"] == "tests"


async def test_prompts_and_resources_can_be_served_raw(app, call):
    app.on("prompts/list")(lambda params: {"prompts": []})
    app.on("prompts/get")(lambda params: {"messages": []})
    app.on("resources/list")(lambda params: {"resources": []})
    app.on("resources/templates/list")(lambda params: {"resourceTemplates": []})
    app.on("resources/read")(
        lambda params: {"contents": [{"uri": params["uri"], "text": ""}], "ttlMs": 7, "cacheScope": "private"}
    )
    app.on("completion/complete")(lambda params: {"completion": {"values": []}})
    capabilities = (await call(app, "server/discover"))["result"]["capabilities"]
    assert {"prompts", "resources", "completions"} <= set(capabilities)
    for method, params in [
        ("prompts/list", {}),
        ("prompts/get", {"name": "x"}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("completion/complete", {}),
    ]:
        assert "result" in await call(app, method, params)
    read = (await call(app, "resources/read", {"uri": "a://b"}))["result"]
    assert (read["ttlMs"], read["cacheScope"]) == (7, "private")


async def test_a_raw_result_that_says_it_is_complete_is_completed_all_the_same(app, call):
    app.on("resources/list")(lambda params: {"resultType": "complete", "resources": []})
    result = (await call(app, "resources/list"))["result"]
    assert (result["ttlMs"], result["cacheScope"]) == (60_000, "public")
    assert SERVER in result["_meta"]


async def test_a_raw_result_keeps_its_meta(app, call):
    app.on("com.example/x")(lambda params: {"_meta": {"com.example/a": 1}})
    meta = (await call(app, "com.example/x"))["result"]["_meta"]
    assert meta["com.example/a"] == 1
    assert SERVER in meta


async def test_what_a_raw_handler_returned_is_left_as_it_was(app, call):
    kept = {"a": 1}
    app.on("com.example/x")(lambda params: kept)
    await call(app, "com.example/x")
    assert kept == {"a": 1}


async def test_raw_and_registered_live_side_by_side(app, use, call):
    app.add_tool(lambda: "x", name="echo")

    @app.on("tools/list")
    def filtered(params):
        return {"tools": []}

    assert (await call(app, "tools/list"))["result"]["tools"] == []
    assert (await use(app, "echo"))["content"][0]["text"] == "x"


async def test_a_handler_may_say_that_there_is_no_such_method(app, http):
    @app.on("com.example/x")
    async def gone(params):
        raise MethodNotFound("gone")

    reply = await http.call("com.example/x")
    assert (reply.status, reply.error["code"]) == (404, -32601)


# --- what is not there --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "unknown/method", ""],
)
async def test_methods_of_other_revisions_and_of_none_do_not_exist(app, call, http, method):
    app.add_tool(lambda: "x", name="echo")
    app.add_resource("a://b", lambda: "")
    assert (await call(app, method))["error"]["code"] == -32601
    reply = await http.call(method)
    assert (reply.status, reply.error["code"]) == (404, -32601)


# --- discovery ----------------------------------------------------------------------------------------------------


async def test_a_bare_server_introduces_itself(app, call):
    result = (await call(app, "server/discover"))["result"]
    assert result["supportedVersions"] == ["2026-07-28"]
    assert result["_meta"][SERVER] == {"name": "tests", "version": "1.0.0"}
    assert "instructions" not in result


async def test_a_server_says_all_there_is_to_say_of_itself(call):
    app = Server(
        "notes",
        version="2.0",
        title="Notes",
        description="Keeps notes.",
        instructions="Use add.",
        website_url="https://example.com",
        icons=[Icon("https://example.com/i.png")],
        list_ttl=3600,
    )
    result = (await call(app, "server/discover"))["result"]
    assert result["instructions"] == "Use add."
    assert (result["ttlMs"], result["cacheScope"]) == (3600000, "public")
    assert result["_meta"][SERVER] == {
        "name": "notes",
        "version": "2.0",
        "title": "Notes",
        "description": "Keeps notes.",
        "websiteUrl": "https://example.com",
        "icons": [{"src": "https://example.com/i.png"}],
    }


async def test_capabilities_are_what_was_registered(app, call):
    app.add_tool(lambda: "x", name="echo")
    app.add_prompt(lambda: "", name="p")
    app.add_resource("a://{b}", lambda b: "")
    app.complete("a://{b}", "b")(lambda value: [])
    assert (await call(app, "server/discover"))["result"]["capabilities"] == {
        "logging": {},
        "tools": {"listChanged": True},
        "prompts": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "completions": {},
    }


async def test_the_server_signs_every_result(app, call):
    app.add_tool(lambda: "x", name="echo")
    for method, params in (("tools/list", {}), ("tools/call", {"name": "echo"}), ("server/discover", {})):
        assert (await call(app, method, params))["result"]["_meta"][SERVER] == {"name": "tests", "version": "1.0.0"}


# --- ids ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", [0, 1, -1, "", "0", "a b", "\u00e9", 2**53, 2**80])
async def test_ids_come_back_as_they_were(app, call, id_):
    app.add_tool(lambda: "x", name="echo")
    assert (await call(app, "tools/call", {"name": "echo"}, id=id_))["id"] == id_
    assert (await call(app, "tools/call", {"name": "none"}, id=id_))["id"] == id_
