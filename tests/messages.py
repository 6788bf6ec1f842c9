"""Messages of revision 2026-07-28 written by hand, and a referee that knows what a reply must look like.

Nothing here comes from the library: the names are spelled out, so that a slip in it cannot hide in its tests.
"""

import json

REVISION = "2026-07-28"
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SERVER = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
LISTED = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
CACHED = {"server/discover", "resources/read", *LISTED}
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
MCP_CODES = {-32020, -32021, -32022}


def meta(*, client=None, capabilities=None, log_level=None, progress=None, version=REVISION, **more):
    made = {VERSION: version, CAPABILITIES: {} if capabilities is None else capabilities, **more}
    made[CLIENT] = {"name": "tests", "version": "1.0"} if client is None else client
    if log_level is not None:
        made[LOG_LEVEL] = log_level
    if progress is not None:
        made["progressToken"] = progress
    return made


def request(method, params=None, *, id=1, **about):
    """A well-formed request; what is `about` it goes into its `_meta`."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {"_meta": meta(**about), **(params or {})}}


def tool_call(name, arguments=None, *, id=1, **about):
    return request("tools/call", {"name": name, "arguments": arguments or {}}, id=id, **about)


def headers_for(message):
    """The headers that go with a request over HTTP; only plain names, no sentinel."""
    method, params = message.get("method"), message.get("params")
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "host": "localhost:8000",
        "mcp-protocol-version": REVISION,
        "mcp-method": _plain(method),
    }
    target = NAMED.get(method) if isinstance(method, str) else None
    if target is not None and isinstance(params, dict):
        headers["mcp-name"] = _plain(params.get(target))
    return headers


def _plain(value):
    return value if isinstance(value, str) and value.isascii() and value.isprintable() else None


# --- the referee --------------------------------------------------------------------------------------------------


def check_reply(sent, reply):
    """A reply to what was sent (None where it was no JSON): a result or an error, and in order either way."""
    assert isinstance(reply, dict), reply
    json.dumps(reply, allow_nan=False)
    assert reply["jsonrpc"] == "2.0", reply
    assert ("result" in reply) != ("error" in reply), reply
    assert set(reply) <= {"jsonrpc", "id", "result", "error"}, reply
    if "result" in reply:
        check_id(sent, reply)
        check_result(sent["method"], reply["result"])
    else:
        if "id" in reply:
            check_id(sent, reply)
        check_error(reply["error"])


def check_id(sent, reply):
    assert "id" in reply, reply
    assert type(reply["id"]) in {int, str}, reply
    assert (type(reply["id"]), reply["id"]) == (type(sent["id"]), sent["id"]), reply


def check_error(error):
    assert set(error) <= {"code", "message", "data"}, error
    assert type(error["code"]) is int, error
    assert type(error["message"]) is str, error
    assert error["message"], error
    assert "Traceback" not in error["message"], error
    # basic, Error Codes: two ranges are not ours to use.
    assert not -32019 <= error["code"] <= -32000, error
    assert not -32099 <= error["code"] <= -32020 or error["code"] in MCP_CODES, error
    if error["code"] == -32021:
        assert isinstance(error["data"]["requiredCapabilities"], dict), error
    if error["code"] == -32022:
        assert isinstance(error["data"]["requested"], str), error
        assert REVISION in error["data"]["supported"], error


def check_result(method, result):
    assert isinstance(result, dict), result
    assert result["resultType"] in {"complete", "input_required"}, result
    info = result["_meta"][SERVER]
    assert info["name"], info
    assert info["version"], info
    assert None not in result.values() or "structuredContent" in result, result
    if result["resultType"] == "input_required":
        assert "inputRequests" in result or "requestState" in result, result
        assert "ttlMs" not in result, result
        return
    if method in CACHED:
        assert type(result["ttlMs"]) is int, result
        assert result["ttlMs"] >= 0, result
        assert result["cacheScope"] in {"public", "private"}, result
    else:
        assert "ttlMs" not in result, result
    if method in LISTED:
        check_list(LISTED[method], result)
    elif method == "tools/call":
        for block in result["content"]:
            check_block(block)
    elif method == "prompts/get":
        for message in result["messages"]:
            assert message["role"] in {"user", "assistant"}, message
            check_block(message["content"])
    elif method == "resources/read":
        for item in result["contents"]:
            check_contents(item)
    elif method == "completion/complete":
        assert len(result["completion"]["values"]) <= 100, result
        assert all(type(value) is str for value in result["completion"]["values"]), result
    elif method == "server/discover":
        assert result["supportedVersions"] == [REVISION], result
        assert isinstance(result["capabilities"], dict), result
    elif method == "subscriptions/listen":
        assert SUBSCRIPTION in result["_meta"], result


def check_list(kind, result):
    for item in result[kind]:
        assert None not in item.values(), item
        assert item["name"], item
        if kind == "tools":
            assert item["inputSchema"]["type"] == "object", item
        if kind == "resources":
            assert item["uri"], item
        if kind == "resourceTemplates":
            assert item["uriTemplate"], item
    assert type(result.get("nextCursor", "")) is str, result


def check_block(block):
    assert None not in block.values(), block
    match block["type"]:
        case "text":
            assert type(block["text"]) is str, block
        case "image" | "audio":
            assert type(block["data"]) is str, block
            assert block["mimeType"], block
        case "resource_link":
            assert block["uri"], block
            assert block["name"], block
        case "resource":
            check_contents(block["resource"])
        case other:
            raise AssertionError(f"unknown block {other!r}")


def check_contents(item):
    assert None not in item.values(), item
    assert item["uri"], item
    assert ("text" in item) != ("blob" in item), item
    assert type(item.get("text", item.get("blob"))) is str, item


def check_notification(message):
    assert message["jsonrpc"] == "2.0", message
    assert message["method"].startswith("notifications/"), message
    assert "id" not in message, message
    params = message["params"]
    match message["method"]:
        case "notifications/progress":
            assert type(params["progressToken"]) in {int, str}, message
            assert type(params["progress"]) in {int, float}, message
        case "notifications/message":
            assert params["level"], message
            assert "data" in params, message
        case "notifications/subscriptions/acknowledged":
            assert isinstance(params["notifications"], dict), message
            assert SUBSCRIPTION in params["_meta"], message
        case _:
            assert SUBSCRIPTION in params["_meta"], message
