"""Header values that mirror the body: how they are written, read and compared."""

import base64
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from antiphon.errors import HeaderMismatch
from antiphon.wire.headers import (
    check_equal,
    check_params,
    decode_value,
    encode_params,
    encode_value,
    header_params,
)

SAFE = 2**53 - 1


# --- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        # The spec's own table, Value Encoding.
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("", ""),
        ("two words", "two words"),
        ("=?base64?half", "=?base64?half"),
        ("half?=", "half?="),
    ],
)
def test_values_are_encoded_as_the_spec_shows(value, encoded):
    assert encode_value(value) == encoded
    assert decode_value(encoded.encode(), "Mcp-Name") == value


@given(st.text())
@example("=?base64?=")
@example("=?base64??=")
@example("\t")
@example("a\tb")
@example("\x7f")
@example("\u2028")
def test_any_string_survives_the_way_through_a_header(value):
    encoded = encode_value(value)
    assert re.fullmatch(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?|", encoded)
    assert decode_value(encoded.encode("ascii"), "Mcp-Name") == value
    check_equal(encoded.encode("ascii"), value, "Mcp-Name")


@given(st.text(min_size=1))
def test_an_encoded_value_may_be_plain_as_well_as_base64(value):
    wrapped = b"=?base64?" + base64.b64encode(value.encode()) + b"?="
    assert decode_value(wrapped, "Mcp-Name") == value


def test_white_space_around_a_value_is_not_part_of_it():
    assert decode_value(b" \techo\t ", "Mcp-Name") == "echo"
    check_equal(b"  echo ", "echo", "Mcp-Name")


@pytest.mark.parametrize(
    "raw",
    [
        b"=?base64?SGVsbG8?=",
        b"=?base64?SGVs!!!bG8=?=",
        b"=?base64?SGVs bG8=?=",
        b"=?base64?/w==?=",
        b"=?base64?=SGVsbG8=?=",
        b"=?base64?SGVsbG8=SGVsbG8=?=",
    ],
)
def test_bad_base64_is_a_mismatch(raw):
    with pytest.raises(HeaderMismatch, match="Base64") as caught:
        decode_value(raw, "Mcp-Name")
    assert (caught.value.code, caught.value.status) == (-32020, 400)


@pytest.mark.parametrize("raw", [b"SGVsbG8=", b"=?BASE64?SGVsbG8=?=", b"=?base64?SGVsbG8=", b"SGVsbG8=?="])
def test_without_the_exact_sentinel_a_value_is_literal(raw):
    assert decode_value(raw, "Mcp-Name") == raw.decode()


@pytest.mark.parametrize("raw", ["h\xe9".encode(), b"\xe9", b"a\x00b", b"a\x01", b"a\rb", b"a\nb", b"\x7f"])
def test_characters_that_a_header_may_not_carry_are_a_mismatch(raw):
    with pytest.raises(HeaderMismatch, match="characters"):
        decode_value(raw, "Mcp-Name")


@given(st.binary())
def test_any_bytes_are_a_string_or_a_mismatch(raw):
    try:
        value = decode_value(raw, "Mcp-Name")
    except HeaderMismatch:
        return
    assert isinstance(value, str)


# --- mirrored names -----------------------------------------------------------------------------------------------


def test_a_missing_header_is_named():
    with pytest.raises(HeaderMismatch, match="Mcp-Method header is missing"):
        check_equal(None, "tools/list", "Mcp-Method")


@pytest.mark.parametrize("raw", [b"TOOLS/LIST", b"tools/call", b"", b"tools/list,tools/list"])
def test_a_header_that_says_something_else_is_a_mismatch(raw):
    with pytest.raises(HeaderMismatch, match="does not match"):
        check_equal(raw, "tools/list", "Mcp-Method")


@given(st.binary(max_size=12), st.text(max_size=12))
def test_a_header_passes_only_if_it_decodes_to_the_body_value(raw, expected):
    try:
        check_equal(raw, expected, "Mcp-Name")
    except HeaderMismatch:
        return
    assert decode_value(raw, "Mcp-Name") == expected


def test_a_control_character_is_refused_even_if_the_body_has_it_too():
    # Server Validation: "A header value contains invalid characters".
    with pytest.raises(HeaderMismatch):
        check_equal(b"a\x01b", "a\x01b", "Mcp-Name")


def test_a_literal_that_looks_like_the_sentinel_must_be_encoded():
    with pytest.raises(HeaderMismatch):
        check_equal(b"=?base64?literal?=", "=?base64?literal?=", "Mcp-Name")


# --- x-mcp-header in a schema -------------------------------------------------------------------------------------


def schema(**properties):
    return {"type": "object", "properties": properties}


def test_annotations_are_found_with_their_paths():
    found = header_params(
        schema(
            region={"type": "string", "x-mcp-header": "Region"},
            query={"type": "string"},
            nested={"type": "object", "properties": {"depth": {"type": "integer", "x-mcp-header": "Depth"}}},
        )
    )
    assert [(param.header, param.path, param.type) for param in found] == [
        ("Mcp-Param-Region", ("region",), "string"),
        ("Mcp-Param-Depth", ("nested", "depth"), "integer"),
    ]


def test_a_schema_without_annotations_has_none():
    assert header_params(schema(a={"type": "string"})) == ()
    assert header_params({"type": "object"}) == ()
    assert header_params({"type": "object", "properties": {"a": True}}) == ()


@pytest.mark.parametrize("name", ["", "My Region", "Region:Primary", "Rég", "a\r\nb", "a\tb", "a\x7f", 7, None, ["x"]])
def test_a_header_name_is_a_token(name):
    with pytest.raises(ValueError, match="token"):
        header_params(schema(a={"type": "string", "x-mcp-header": name}))


@pytest.mark.parametrize("name", ["Region", "x-y_z.1", "!#$%&'*+.^_`|~09azAZ-"])
def test_any_token_is_a_header_name(name):
    (param,) = header_params(schema(a={"type": "string", "x-mcp-header": name}))
    assert param.header == f"Mcp-Param-{name}"


@pytest.mark.parametrize("type_", ["number", "object", "array", "null", None, ["string", "null"], "text"])
def test_only_strings_integers_and_booleans_travel_in_headers(type_):
    with pytest.raises(ValueError, match="string, integer or boolean"):
        header_params(schema(a={"type": type_, "x-mcp-header": "A"}))


def test_header_names_are_unique_whatever_their_case():
    with pytest.raises(ValueError, match="twice"):
        header_params(
            schema(a={"type": "string", "x-mcp-header": "Region"}, b={"type": "string", "x-mcp-header": "REGION"})
        )


HIDDEN = {"type": "string", "x-mcp-header": "A"}


@pytest.mark.parametrize(
    "bad",
    [
        schema(a={"type": "array", "items": HIDDEN}),
        schema(a={"type": "array", "items": schema(b=HIDDEN)}),
        schema(a={"type": "array", "prefixItems": [HIDDEN]}),
        {**schema(), "anyOf": [schema(a=HIDDEN)]},
        {**schema(), "oneOf": [schema(a=HIDDEN)]},
        {**schema(), "allOf": [schema(a=HIDDEN)]},
        {**schema(), "not": schema(a=HIDDEN)},
        {**schema(), "if": schema(a=HIDDEN)},
        {**schema(), "then": schema(a=HIDDEN)},
        {**schema(a={"$ref": "#/$defs/a"}), "$defs": {"a": HIDDEN}},
        {**schema(), "additionalProperties": HIDDEN},
        {**schema(), "patternProperties": {"^a": HIDDEN}},
        {**schema(), "x-mcp-header": "Root"},
    ],
)
def test_an_annotation_out_of_static_reach_is_refused(bad):
    with pytest.raises(ValueError, match="properties"):
        header_params(bad)


def test_a_property_may_be_called_like_the_annotation():
    assert header_params(schema(**{"x-mcp-header": {"type": "string"}})) == ()


# --- x-mcp-header in a call ---------------------------------------------------------------------------------------

PARAMS = header_params(
    schema(
        text={"type": "string", "x-mcp-header": "Text"},
        count={"type": "integer", "x-mcp-header": "Count"},
        flag={"type": "boolean", "x-mcp-header": "Flag"},
        inner={"type": "object", "properties": {"text": {"type": "string", "x-mcp-header": "Inner"}}},
    )
)


def raw_headers(sent):
    return {name.lower().encode(): value.encode() for name, value in sent.items()}


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "text": st.text() | st.none(),
            "count": st.integers(-SAFE, SAFE) | st.none(),
            "flag": st.booleans() | st.none(),
            "inner": st.fixed_dictionaries({}, optional={"text": st.text()}),
            "other": st.text(),
        },
    )
)
def test_the_headers_a_client_makes_are_the_headers_a_server_takes(arguments):
    sent = encode_params(PARAMS, arguments)
    check_params(PARAMS, arguments, raw_headers(sent))
    for name in sent:
        without = {other: value for other, value in sent.items() if other != name}
        with pytest.raises(HeaderMismatch, match=re.escape(f"{name} header is missing")):
            check_params(PARAMS, arguments, raw_headers(without))


@given(st.text(), st.text())
def test_a_string_header_must_say_exactly_what_the_body_says(said, value):
    assume(said != value)
    with pytest.raises(HeaderMismatch, match="Mcp-Param-Text"):
        check_params(PARAMS, {"text": value}, {b"mcp-param-text": encode_value(said).encode()})


@given(st.integers(-SAFE, SAFE))
def test_integers_are_compared_as_numbers(value):
    for said in (str(value), f"{value}.0"):
        check_params(PARAMS, {"count": value}, {b"mcp-param-count": said.encode()})
        check_params(PARAMS, {"count": float(value)}, {b"mcp-param-count": said.encode()})
    with pytest.raises(HeaderMismatch):
        check_params(PARAMS, {"count": value}, {b"mcp-param-count": str(value + 1).encode()})


@pytest.mark.parametrize("said", ["", "x", "nan", "inf", "-inf", "4 2", "0x2a", "true", "42a", "42.5", "--42"])
def test_what_is_not_the_number_is_a_mismatch(said):
    with pytest.raises(HeaderMismatch):
        check_params(PARAMS, {"count": 42}, {b"mcp-param-count": said.encode()})


@pytest.mark.parametrize("said", ["4_2", "٤٢", " 42 ", "42\n"])
def test_what_only_python_takes_for_a_number_is_a_mismatch(said):
    # A proxy that reads the header does not read it as Python does.
    with pytest.raises(HeaderMismatch):
        check_params(PARAMS, {"count": 42}, {b"mcp-param-count": encode_value(said).encode()})


def test_integers_beyond_the_safe_range_are_refused():
    for value in (SAFE + 1, -SAFE - 1, 10**40):
        with pytest.raises(HeaderMismatch):
            check_params(PARAMS, {"count": value}, {b"mcp-param-count": str(value).encode()})


def test_a_number_too_long_to_be_read_is_a_mismatch():
    with pytest.raises(HeaderMismatch):
        check_params(PARAMS, {"count": 1}, {b"mcp-param-count": b"1" * 5000})


@pytest.mark.parametrize(("value", "said"), [(True, "True"), (True, "1"), (False, "true"), (False, "0"), (1, "true")])
def test_booleans_are_true_and_false_in_lower_case(value, said):
    with pytest.raises(HeaderMismatch):
        check_params(PARAMS, {"flag": value}, {b"mcp-param-flag": said.encode()})


@pytest.mark.parametrize("arguments", [{}, {"text": None}, {"inner": None}, {"inner": "x"}, {"inner": {}}])
def test_no_header_is_expected_where_the_body_has_no_value(arguments):
    check_params(PARAMS, arguments, {})


@pytest.mark.parametrize("arguments", [{}, {"text": None}])
def test_a_header_without_a_value_in_the_body_is_a_mismatch(arguments):
    with pytest.raises(HeaderMismatch, match="Mcp-Param-Text"):
        check_params(PARAMS, arguments, {b"mcp-param-text": b"x"})


def test_headers_that_no_parameter_claims_are_ignored():
    check_params(PARAMS, {}, {b"mcp-param-unknown": b"\xff\xff"})


@given(st.binary(max_size=20), st.text() | st.integers() | st.booleans() | st.floats() | st.lists(st.none()))
def test_any_header_and_any_value_match_or_mismatch(raw, value):
    for name in ("text", "count", "flag"):
        try:
            check_params(PARAMS, {name: value}, {f"mcp-param-{name}".encode(): raw})
        except HeaderMismatch:
            continue
