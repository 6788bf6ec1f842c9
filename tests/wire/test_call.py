"""From a message to a Call: every rule of `_meta` and of the mirrored headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import HeaderMismatch, InvalidParams, ProtocolError, UnsupportedVersion
from antiphon.wire.call import accept, unknown_method
from messages import CAPABILITIES, CLIENT, LOG_LEVEL, REVISION, VERSION, headers_for, meta, request, tool_call

LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
anything = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.none()) | st.just({})


def raw(message, **changed):
    headers = {**headers_for(message), **{name.replace("_", "-"): value for name, value in changed.items()}}
    return {name.encode(): value.encode("latin-1") for name, value in headers.items() if value is not None}


# --- what is accepted ---------------------------------------------------------------------------------------------


def test_a_request_becomes_a_call():
    message = tool_call("echo", {"text": "hi"}, id="7", capabilities={"roots": {}})
    headers = raw(message)
    call = accept(message, headers)
    assert (call.id, call.method, call.name, call.revision) == ("7", "tools/call", "echo", REVISION)
    assert call.params == message["params"]
    assert call.meta == message["params"]["_meta"]
    assert call.capabilities == {"roots": {}}
    assert call.headers == headers
    assert call.principal is None


def test_without_http_there_are_no_headers_to_check():
    assert accept(tool_call("echo")).headers is None


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "echo"}, "echo"),
        ("prompts/get", {"name": "greet"}, "greet"),
        ("resources/read", {"uri": "note://1"}, "note://1"),
        ("tools/list", {"name": "x"}, ""),
        ("my/method", {"name": "x"}, ""),
    ],
)
def test_the_name_is_that_of_the_tool_the_prompt_or_the_resource(method, params, name):
    message = request(method, params)
    assert accept(message, raw(message)).name == name


def test_the_client_need_not_say_who_it_is():
    message = request("tools/list")
    del message["params"]["_meta"][CLIENT]
    accept(message)


@pytest.mark.parametrize("level", LEVELS)
def test_every_log_level_is_accepted(level):
    accept(request("tools/list", log_level=level))


@pytest.mark.parametrize("token", [0, "", 5, "t"])
def test_progress_tokens_are_strings_and_integers(token):
    accept(request("tools/list", progress=token))


def test_keys_that_are_not_reserved_are_accepted():
    accept(request("tools/list", **{"com.example/x": [1], "traceparent": "00-0-0-01"}))


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [VERSION, CAPABILITIES])
def test_required_meta_fields_are_required(gone):
    message = request("server/discover")
    del message["params"]["_meta"][gone]
    for headers in (None, raw(message)):
        with pytest.raises(InvalidParams, match=gone) as caught:
            accept(message, headers)
        assert (caught.value.code, caught.value.status) == (-32602, 400)


@pytest.mark.parametrize("params", [None, {}, {"_meta": None}, {"_meta": []}, {"_meta": "x"}])
def test_meta_itself_is_required(params):
    message = {"jsonrpc": "2.0", "id": 1, "method": "server/discover"}
    if params is not None:
        message["params"] = params
    for headers in (None, raw(message)):
        with pytest.raises(InvalidParams, match="_meta") as caught:
            accept(message, headers)
        assert caught.value.status == 400


@pytest.mark.parametrize("version", ["2025-11-25", "v999.0.0", "", "2026-07-28 "])
def test_another_revision_is_unsupported_and_ours_is_named(version):
    message = request("server/discover", version=version)
    for headers in (None, raw(message, mcp_protocol_version=version)):
        with pytest.raises(ProtocolError) as caught:
            accept(message, headers)
        if isinstance(caught.value, UnsupportedVersion):
            assert (caught.value.code, caught.value.status) == (-32022, 400)
            assert caught.value.data == {"supported": [REVISION], "requested": version}
        else:  # white space around a header value is not part of it
            assert version.strip() == REVISION


@pytest.mark.parametrize("version", [None, 1, [], {}, True])
def test_a_version_is_a_string(version):
    with pytest.raises(InvalidParams):
        accept(request("tools/list", version=version))


@pytest.mark.parametrize("capabilities", [None, [], "x", 1, True])
def test_capabilities_are_an_object(capabilities):
    message = request("tools/list")
    message["params"]["_meta"][CAPABILITIES] = capabilities
    with pytest.raises(InvalidParams, match=CAPABILITIES):
        accept(message)


@pytest.mark.parametrize("level", ["INFO", "trace", "", 3, [], {}])
def test_an_unknown_log_level_is_invalid(level):
    with pytest.raises(InvalidParams, match="debug, info") as caught:
        accept(request("tools/list", **{LOG_LEVEL: level}))
    assert caught.value.code == -32602


@pytest.mark.parametrize("token", [1.5, True, [], {}])
def test_other_progress_tokens_are_invalid(token):
    with pytest.raises(InvalidParams, match="progressToken"):
        accept(request("tools/list", progressToken=token))


@pytest.mark.parametrize("info", ["x", [], {}, {"name": "x"}, {"name": 1, "version": "1"}, {"name": "x", "version": 1}])
def test_client_info_has_a_name_and_a_version(info):
    with pytest.raises(InvalidParams, match=CLIENT):
        accept(request("tools/list", client=info))


@pytest.mark.parametrize(
    ("method", "key"), [("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")]
)
@pytest.mark.parametrize("value", [None, 1, [], {}])
def test_what_is_asked_for_has_a_name(method, key, value):
    message = request(method, {key: value})
    with pytest.raises(InvalidParams, match=key):
        accept(message, raw(message))


@pytest.mark.parametrize("transport", ["http", "memory"])
def test_initialize_is_told_which_revision_is_spoken_here(transport):
    # basic/versioning: "SHOULD name the protocol versions it supports in any error it returns to an initialize".
    message = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
    }
    for version in (None, "2025-11-25"):
        headers = raw(message, mcp_protocol_version=version) if transport == "http" else None
        with pytest.raises(ProtocolError, match=REVISION):
            accept(message, headers)


def test_an_unknown_method_is_named_and_so_is_the_revision():
    fault = unknown_method("my/method")
    assert (fault.code, fault.status) == (-32601, 404)
    assert "my/method" in fault.message
    assert REVISION in fault.message


# --- the mirrored headers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["mcp_protocol_version", "mcp_method", "mcp_name"])
def test_each_mirrored_header_is_required(header):
    message = tool_call("echo")
    with pytest.raises(HeaderMismatch, match="missing") as caught:
        accept(message, raw(message, **{header: None}))
    assert (caught.value.code, caught.value.status) == (-32020, 400)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("mcp_protocol_version", "2025-11-25"),
        ("mcp_protocol_version", ""),
        ("mcp_method", "tools/list"),
        ("mcp_method", "TOOLS/CALL"),
        ("mcp_method", ""),
        ("mcp_name", "other"),
        ("mcp_name", "ECHO"),
        ("mcp_name", "éch"),
        ("mcp_name", ""),
    ],
)
def test_a_header_that_contradicts_the_body_is_a_mismatch(header, value):
    message = tool_call("echo")
    with pytest.raises(HeaderMismatch):
        accept(message, raw(message, **{header: value}))


@pytest.mark.parametrize("name", ["ünï", " padded", "line\nbreak", "=?base64?x?="])
def test_a_name_that_no_header_can_carry_travels_in_base64(name):
    import base64

    message = request("resources/read", {"uri": name})
    sentinel = f"=?base64?{base64.b64encode(name.encode()).decode()}?="
    assert accept(message, raw(message, mcp_name=sentinel)).name == name


def test_the_method_may_not_travel_in_base64():
    # Server Validation: the sentinel is for Mcp-Name and Mcp-Param-* alone.
    message = tool_call("echo")
    with pytest.raises(HeaderMismatch):
        accept(message, raw(message, mcp_method="=?base64?dG9vbHMvY2FsbA==?="))


def test_white_space_around_header_values_does_not_count():
    message = tool_call("echo")
    accept(message, raw(message, mcp_protocol_version=f" {REVISION} ", mcp_method="\ttools/call ", mcp_name=" echo "))


def test_only_requests_with_a_name_need_the_name_header():
    message = request("tools/list")
    accept(message, raw(message, mcp_name=None))


def test_a_method_of_ones_own_needs_the_method_header_too():
    message = request("my/method")
    with pytest.raises(HeaderMismatch, match="Mcp-Method"):
        accept(message, raw(message, mcp_method=None))


# --- anything at all ----------------------------------------------------------------------------------------------


@given(
    st.sampled_from(["tools/call", "tools/list", "resources/read", "subscriptions/listen", "x"]),
    st.dictionaries(st.sampled_from(["name", "uri", "_meta", "arguments", "cursor"]), anything),
    st.dictionaries(st.sampled_from([*meta(), LOG_LEVEL, "progressToken", "x"]), anything),
    st.dictionaries(
        st.sampled_from([b"mcp-method", b"mcp-name", b"mcp-protocol-version", b"x"]), st.binary(max_size=30)
    ),
    st.booleans(),
)
def test_whatever_comes_is_a_call_or_a_protocol_error(method, params, changed, headers, over_http):
    params = {"_meta": {**meta(), **changed}, **params}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    try:
        call = accept(message, headers if over_http else None)
    except ProtocolError as fault:
        refused = fault
    else:
        assert call.meta[VERSION] == REVISION
        return
    assert refused.message
    assert 200 <= refused.status < 500
