"""JSON-RPC frames: what is a message, what is not, and what is said about it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import InvalidParams, InvalidRequest, ParseError, ResourceNotFound
from antiphon.wire import jsonrpc
from examples import examples

PING = {"jsonrpc": "2.0", "id": 1, "method": "x", "params": {}}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


# --- decoding -----------------------------------------------------------------------------------------------------


def test_a_message_is_decoded():
    assert jsonrpc.decode(json.dumps(PING).encode()) == PING


@given(st.dictionaries(st.text(), json_values, max_size=4), st.sampled_from([None, 0, 2]), st.booleans())
def test_any_object_is_decoded_however_it_is_written(message, indent, ascii_only):
    body = json.dumps(message, indent=indent, ensure_ascii=ascii_only).encode()
    assert jsonrpc.decode(body) == message


@pytest.mark.parametrize("body", [b"", b" ", b"{", b'{"a":}', b"nonsense", b"{} {}", b'{"a":1,}', b"\xef\xbb\xbf{}"])
def test_bytes_that_are_not_json_are_a_parse_error(body):
    with pytest.raises(ParseError, match="JSON") as caught:
        jsonrpc.decode(body)
    assert (caught.value.code, caught.value.status) == (-32700, 400)


@pytest.mark.parametrize("body", [b'{"a":"\xff"}', b'{"\xff":1}', b'{"a":"\xed\xa0\x80"}', b'{"a":"\\ud800"}'])
def test_text_that_is_not_unicode_is_a_parse_error(body):
    with pytest.raises(ParseError):
        jsonrpc.decode(body)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le", "utf-8-sig"])
def test_other_encodings_than_utf_8_are_a_parse_error(encoding):
    with pytest.raises(ParseError):
        jsonrpc.decode(json.dumps(PING).encode(encoding))


def test_numbers_that_json_does_not_have_are_a_parse_error():
    for body in (b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1e999}', b'{"a":01}', b'{"a":+1}', b'{"a":.5}'):
        with pytest.raises(ParseError):
            jsonrpc.decode(body)


def test_a_batch_is_refused_and_told_what_to_do():
    with pytest.raises(InvalidRequest, match="batch") as caught:
        jsonrpc.decode(json.dumps([PING]).encode())
    assert (caught.value.code, caught.value.status) == (-32600, 400)


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "text"])
def test_json_that_is_no_object_is_an_invalid_request(value):
    with pytest.raises(InvalidRequest, match="object"):
        jsonrpc.decode(json.dumps(value).encode())


def nested(levels, *, of):
    return (
        (b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}")
        if of == "lists"
        else b'{"a":' * levels + b"1" + b"}" * levels
    )


@pytest.mark.parametrize("of", ["lists", "objects"])
def test_nesting_is_allowed_up_to_the_limit_and_refused_beyond(of):
    jsonrpc.decode(nested(jsonrpc.MAX_DEPTH, of=of))
    with pytest.raises(InvalidRequest, match="deep"):
        jsonrpc.decode(nested(jsonrpc.MAX_DEPTH + 1, of=of))


@pytest.mark.parametrize("of", ["lists", "objects"])
def test_a_tower_of_nesting_is_refused_without_a_recursion_error(of):
    with pytest.raises(InvalidRequest, match="deep"):
        jsonrpc.decode(nested(200_000, of=of))


# --- the text, against a reader of every byte ---------------------------------------------------------------------


def verdict(body):
    """The reference: reads the text byte by byte. What would the decoder have to say?"""
    depth = deepest = 0
    inside = escaped = False
    for byte in body.decode():
        if inside:
            inside = escaped or byte != '"'
            escaped = byte == "\\" and not escaped
        elif byte == '"':
            inside = True
        else:
            depth += (byte in "[{") - (byte in "]}")
            deepest = max(depth, deepest)
    if deepest > jsonrpc.MAX_DEPTH:
        return "deep"
    return "repeated" if repeats_a_key(body) else json.loads(body)


def decoded(body):
    try:
        return jsonrpc.decode(body)
    except jsonrpc.TooDeep:
        return "deep"
    except InvalidRequest as fault:
        assert "repeats a key" in fault.message
        return "repeated"


blanks = st.text(" \t\r\n", max_size=2)
strings = st.one_of(
    st.lists(
        st.sampled_from(
            ["a", "{", "}", "[", "]", ":", ",", " ", "é", '\\"', "\\\\", "\\n", "\\/", "\\u0061", "\\u0022"]
        ),
        max_size=5,
    ).map(lambda parts: f'"{"".join(parts)}"'),
    st.sampled_from(['"a"', '"b"']),
)


@st.composite
def any_json(draw, levels):
    """JSON with any white space and escapes, with keys that may repeat, and towers of brackets."""
    kind = draw(st.sampled_from(["scalar", "object", "object", "array", "tower"])) if levels else "scalar"
    blank = draw(blanks)
    if kind == "scalar":
        return blank + draw(strings | st.sampled_from(["1", "-2.5e3", "true", "null", "[]", "{}"])) + draw(blanks)
    if kind == "tower":
        height = draw(st.integers(55, 66))
        inner = draw(any_json(levels - 1))
        opens = draw(st.sampled_from([("[", "]"), ('{"a":', "}"), ('{"]":[', "]}"), ('["{",', ',"}"]')]))
        times = height // opens[0].count("[") if opens[0].startswith('{"]"') else height
        return opens[0] * times + inner + opens[1] * times
    parts = [draw(any_json(levels - 1)) for _ in range(draw(st.integers(0, 3)))]
    if kind == "array":
        return f"{blank}[{','.join(parts)}]"
    return blank + "{" + ",".join(f"{draw(blanks)}{draw(strings)}{draw(blanks)}:{part}" for part in parts) + "}"


# What makes a message long: one text, with and without what has to be told apart in it, or many values.
LONG = {
    "": "",
    "text": '"pad":"' + "x" * 5_000 + '",',
    "marks": '"pad":"' + r":{[\u003a\\u003a\\" * 300 + '",',
    "values": '"pad":[' + ",".join(['"a:"'] * 900) + "],",
}


@examples(300)
@given(any_json(3), strings, blanks, st.sampled_from(list(LONG)))
def test_every_text_is_judged_as_a_reader_of_every_byte_would(text, key, blank, long):
    body = f"{{{LONG[long]}{key}{blank}:{text}}}".encode()
    assert decoded(body) == verdict(body)


@pytest.mark.parametrize("long", LONG)
@pytest.mark.parametrize("pair", [r'"a":"\u003a","a":1', r'"a":1,"a":"\u003A"', r'"a":{"b":":","b":"\u003a"}'])
def test_an_escaped_colon_hides_no_repeated_key(long, pair):
    assert is_refused(f"{{{LONG[long]}{pair}}}".encode())


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":' + b'["}",' * 70 + b"1" + b',"{"]' * 70 + b"}",
        b'{"a":' + b'["]",' * 70 + b"1" + b',"["]' * 70 + b"}",
        b'{"a":' + b'["\\"]",' * 70 + b"1" + b',"["]' * 70 + b"}",
        b'{"a":' + b"[ " * 70 + b"] " * 70 + b"}",
        b'{"a":' + b'[{"b":' * 35 + b"1" + b"}]" * 35 + b"}",
    ],
)
def test_brackets_in_strings_hide_no_depth(body):
    assert decoded(body) == verdict(body) == "deep"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'[{"a":1,"a":2}]', "repeats a key"),
        (b'[{"a":' + b"[" * 64 + b"]" * 64 + b"}]", "deep"),
        (b"[[]]", "Each message"),
        (b"[]", "not an empty one"),
    ],
)
def test_a_batch_is_held_to_the_same_rules(body, told):
    with pytest.raises(InvalidRequest, match=told):
        jsonrpc.decode_batch(body)
    assert jsonrpc.decode_batch(b'[{"a":' + b"[" * 63 + b"]" * 63 + b"}]")


# --- repeated keys ------------------------------------------------------------------------------------------------


class Repeated(Exception):
    pass


def repeats_a_key(body):
    """The reference: the standard library's parser, looking at every pair."""

    def look(pairs):
        if len(dict(pairs)) != len(pairs):
            raise Repeated
        return dict(pairs)

    try:
        json.loads(body, object_pairs_hook=look)
    except Repeated:
        return True
    return False


def is_refused(body):
    try:
        jsonrpc.decode(body)
    except InvalidRequest as fault:
        return "repeats a key" in fault.message
    return False


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"a":2}',
        b'{"a" :1,"a" :2}',
        b'{"a"\t:1,"a"\n:2}',
        b'{"a":1,"\\u0061":2}',
        b'{"x":{"a":1,"a":2}}',
        b'{"x":[{"a":1},{"a":1,"b":2,"a":3}]}',
        b'{"":1,"":2}',
        b'{"\\"":1,"\\"":2}',
        b'{"a":"\\":","a":1}',
    ],
)
def test_a_repeated_key_is_an_invalid_request(body):
    assert is_refused(body)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"A":1}',
        b'{"a":{"a":{"a":1}}}',
        b'{"x":[{"a":1},{"a":1}]}',
        b'{"a":"\\":\\":"}',
        b'{"a\\":":1,"b":"\\":"}',
        b'{"a" : 1, "b" : 2}',
        b'{"a":"b : c"}',
        b'{"a":"one \\"two\\": three"}',
    ],
)
def test_keys_that_only_look_repeated_are_fine(body):
    assert not is_refused(body)


# Few different keys, white space anywhere, quotes and colons inside strings: what a shortcut could trip over.
blanks = st.text(" \t\r\n", max_size=2)
strings = st.sampled_from(["a", "b", "", 'a":', '":', "\\", 'x" :', "\u00e9", "a:b"]).map(json.dumps) | st.just(
    '"\\u0061"'
)


def written(parts, opening, closing):
    return st.tuples(blanks, st.lists(parts, max_size=4), blanks).map(
        lambda found: opening + found[0] + ",".join(found[1]) + found[2] + closing
    )


def objects(values):
    pairs = st.tuples(strings, blanks, blanks, values).map(lambda pair: f"{pair[0]}{pair[1]}:{pair[2]}{pair[3]}")
    return written(pairs, "{", "}")


texts = st.recursive(
    strings | st.sampled_from(["1", "null", "true", "-0.5"]),
    lambda inner: objects(inner) | written(inner, "[", "]"),
    max_leaves=12,
)


@given(objects(texts))
def test_repeated_keys_are_found_exactly_where_a_slow_parser_finds_them(text):
    body = text.encode()
    assert is_refused(body) == repeats_a_key(body)


# --- checking -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", [0, 1, -5, 10**30, "", "a", "0"])
def test_ids_are_integers_and_strings(id_):
    jsonrpc.check({**PING, "id": id_})


@pytest.mark.parametrize("id_", [None, 1.5, 1.0, True, False, [], {}])
def test_other_ids_are_refused(id_):
    with pytest.raises(InvalidRequest, match='"id"'):
        jsonrpc.check({**PING, "id": id_})


@pytest.mark.parametrize("version", [None, "1.0", 2.0, 2, "", ["2.0"]])
def test_another_version_of_json_rpc_is_refused(version):
    with pytest.raises(InvalidRequest, match="jsonrpc"):
        jsonrpc.check({**PING, "jsonrpc": version})


def test_a_message_without_a_version_is_refused():
    with pytest.raises(InvalidRequest, match="jsonrpc"):
        jsonrpc.check({key: value for key, value in PING.items() if key != "jsonrpc"})


@pytest.mark.parametrize("method", [None, 1, [], {}, True])
def test_a_method_is_a_string(method):
    with pytest.raises(InvalidRequest, match="method"):
        jsonrpc.check({**PING, "method": method})


@pytest.mark.parametrize("body", [{"result": {}}, {"error": {"code": 1, "message": "m"}}])
def test_a_response_is_refused_as_such(body):
    with pytest.raises(InvalidRequest, match="response"):
        jsonrpc.check({"jsonrpc": "2.0", "id": 1, **body})


def test_a_request_without_an_id_is_refused_by_name():
    with pytest.raises(InvalidRequest, match=r"tools/list.*id"):
        jsonrpc.check({"jsonrpc": "2.0", "method": "tools/list"})


def test_a_notification_needs_no_id():
    jsonrpc.check({"jsonrpc": "2.0", "method": "notifications/cancelled"})


@pytest.mark.parametrize("params", [None, [], "x", 1, True])
def test_params_are_an_object(params):
    with pytest.raises(InvalidRequest, match="params"):
        jsonrpc.check({**PING, "params": params})


def test_params_may_be_left_out():
    jsonrpc.check({key: value for key, value in PING.items() if key != "params"})


@given(st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]), json_values))
def test_whatever_is_checked_passes_or_is_an_invalid_request(message):
    try:
        jsonrpc.check(message)
    except InvalidRequest:
        return
    assert message["jsonrpc"] == "2.0"
    assert isinstance(message["method"], str)


# --- answering ----------------------------------------------------------------------------------------------------


@given(json_values)
def test_an_id_is_read_only_where_it_is_one(message):
    found = jsonrpc.id_of(message)
    if isinstance(message, dict) and type(message.get("id")) in {int, str}:
        assert found == message["id"]
    else:
        assert found is None


def test_an_error_echoes_the_id():
    assert jsonrpc.error(0, InvalidParams("no")) == {
        "jsonrpc": "2.0",
        "id": 0,
        "error": {"code": -32602, "message": "no"},
    }
    assert jsonrpc.error("", InvalidParams("no"))["id"] == ""


def test_an_error_to_nothing_that_was_read_has_no_id():
    # basic, Error Responses: the id is left out, never null.
    assert "id" not in jsonrpc.error(None, InvalidParams("no"))


def test_an_error_carries_data_if_there_is_some():
    assert jsonrpc.error(1, ResourceNotFound("note://1"))["error"] == {
        "code": -32602,
        "message": "Resource not found",
        "data": {"uri": "note://1"},
    }


def test_results_and_notifications_are_framed():
    assert jsonrpc.result("7", {"a": 1}) == {"jsonrpc": "2.0", "id": "7", "result": {"a": 1}}
    assert jsonrpc.notification("notifications/x", {"a": 1}) == {
        "jsonrpc": "2.0",
        "method": "notifications/x",
        "params": {"a": 1},
    }


@given(json_values)
def test_what_is_encoded_is_one_line(value):
    encoded = jsonrpc.encode({"value": value})
    assert b"\n" not in encoded
    assert json.loads(encoded) == {"value": value}


# --- the id of a message that is not decoded ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "id_"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":', b"]]}", 7),
        (b' { "method" : "x" , "id" : "a b" , "params', b"]]}", "a b"),
        (b'{"method":"x","params":', b'}},"jsonrpc":"2.0","id":-7}', -7),
        (b'{"method":"x","params":', b'}} , "id" : "a" } \r', "a"),
        (b'{"id":7,', b',"id":7}', 7),
        # Not beyond doubt.
        (b'{"id":7,', b',"id":8}', None),
        (b'{"params":{"id":7,', b"}}", None),
        (b'{"x":"","id":7,', b"}}", None),
        (b'{"method":"x","params":', b'{"id":7}}', None),
        (b'{"method":"x","params":', b'\\"id":7}', None),
        (b'{"method":"x","params":', b'"a\\",\\"id\\":7}"}', None),
        (b'{"id":7.0,', b"}", None),
        (b'{"id":null,', b"}", None),
        (b'{"id":true,', b"}", None),
        (b'{"id":"\xff",', b"}", None),
        (b"", b"", None),
    ],
)
def test_an_id_is_read_from_the_ends_of_a_message(start, end, id_):
    found = jsonrpc.id_in(start, end)
    assert (found, type(found)) == (id_, type(id_))


@given(start=st.binary(max_size=300), end=st.binary(max_size=300))
def test_any_ends_have_an_id_or_none(start, end):
    assert isinstance(jsonrpc.id_in(start, end), int | str | None)
