"""A user's own JSON Schema."""

import socket
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.shapes import Mismatch, raw_shape
from antiphon.shapes.shape import Shape
from examples import examples

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}},
        "kind": {"enum": ["a", "b"]},
        "mode": {"const": "fast"},
        "id": {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 3}]},
        "ok": {"type": "boolean"},
    },
    "required": ["count"],
    "additionalProperties": False,
}


def test_a_valid_value_passes_through():
    shape = raw_shape(SCHEMA)
    value = {"count": 1, "tags": ["a"], "kind": "b"}
    assert isinstance(shape, Shape)
    assert shape.schema is SCHEMA
    assert shape.read(value) == value
    assert shape.write({"count": 2, "tags": ("x",)}) == {"count": 2, "tags": ["x"]}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ([], "expected object, got array"),
        ({}, "missing required field 'count'"),
        ({"count": "1"}, "'count': expected integer, got string"),
        ({"count": None}, "'count': expected integer, got null"),
        ({"count": True}, "'count': expected integer, got boolean"),
        ({"count": 0}, "'count': 0 is less than the minimum of 1"),
        ({"count": 1, "tags": ["a", 1.5]}, "'tags[1]': expected string, got number"),
        ({"count": 1, "kind": "c"}, "'kind': expected one of 'a', 'b', got 'c'"),
        ({"count": 1, "mode": "slow"}, "'mode': expected 'fast', got 'slow'"),
        ({"count": 1, "x": 1}, "unknown field 'x'"),
        ({"count": 1, "id": 2}, "'id': 2 is less than the minimum of 3"),
        (
            {"count": 1, "id": None},
            "'id': fits none of the alternatives ('id': expected string, got null; 'id': expected integer, got null)",
        ),
    ],
)
def test_a_mismatch_says_where_and_why(value, told):
    with pytest.raises(Mismatch) as caught:
        raw_shape(SCHEMA).read(value)
    assert str(caught.value).startswith(told)
    with pytest.raises(Mismatch):
        raw_shape(SCHEMA).write(value)


def test_a_huge_value_does_not_fill_the_message():
    with pytest.raises(Mismatch) as caught:
        raw_shape({"type": "string", "maxLength": 3}).read("x" * 100_000)
    assert len(str(caught.value)) < 500


def test_lax_reading_turns_strings_into_what_the_schema_asks_for():
    shape = raw_shape(SCHEMA)
    assert shape.read({"count": "3", "ok": "true", "tags": ["1"]}, lax=True) == {"count": 3, "ok": True, "tags": ["1"]}
    with pytest.raises(Mismatch, match="'count'"):
        shape.read({"count": "three"}, lax=True)


def test_the_dialect_is_the_schemas_own():
    old = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}
    with pytest.raises(Mismatch):
        raw_shape(old).read(["x"])
    with pytest.raises(ValueError, match="items"):
        raw_shape({"items": [{"type": "integer"}]})
    with pytest.raises(ValueError, match="dialect.*not supported"):
        raw_shape({"$schema": "https://example.com/mine"})


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "text"}, "at type"),
        ({"properties": {"a": {"minimum": "x"}}}, "at properties.a.minimum"),
        ({"pattern": "(("}, "at pattern"),
        ({"$ref": "#/$defs/nothing"}, "nothing"),
        ({"default": {1, 2}, "enum": object()}, "not JSON"),
        ({"required": "name"}, "at required"),
    ],
)
def test_what_is_no_schema_is_refused_at_once_and_says_where(schema, told):
    with pytest.raises(ValueError, match=told):
        raw_shape(schema)


def test_a_schema_is_a_dict():
    with pytest.raises(TypeError, match="a JSON Schema is a dict, not list"):
        raw_shape([])  # type: ignore[arg-type]


@pytest.fixture
def listener():
    """A port that counts who knocks."""
    knocks = []
    server = socket.create_server(("127.0.0.1", 0))

    def wait():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            knocks.append(connection)
            connection.close()

    thread = threading.Thread(target=wait)
    thread.start()
    yield server.getsockname()[1], knocks
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(5)


def test_a_remote_reference_is_never_fetched(listener, tmp_path):
    port, knocks = listener
    remote = f"http://127.0.0.1:{port}/schema.json"
    local = tmp_path / "schema.json"
    local.write_text("{}")
    for pointer in (remote, local.as_uri()):
        for schema in (
            {"$ref": pointer},
            {"properties": {"a": {"$ref": pointer + "#/$defs/x"}}},
            {"$dynamicRef": pointer},
            {"$id": pointer, "properties": {"a": {"$ref": "other.json"}}},
            {"$schema": pointer},
        ):
            with pytest.raises(ValueError, match=r"never fetched|not supported"):
                raw_shape(schema)
    assert not knocks


def test_references_inside_the_schema_are_fine():
    shape = raw_shape({
        "$id": "https://example.com/root",
        "$defs": {"n": {"$anchor": "number", "type": "integer"}, "m": {"$id": "other", "type": "string"}},
        "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#number"}, "c": {"$ref": "other"}},
    })  # fmt: skip
    shape.read({"a": 1, "b": 2, "c": "x"})
    for wrong in ({"a": "x"}, {"b": "x"}, {"c": 1}):
        with pytest.raises(Mismatch):
            shape.read(wrong)


def test_a_value_too_deep_for_the_validator_is_a_mismatch():
    deep: Any = 1
    for _ in range(200_000):
        deep = [deep]
    with pytest.raises(Mismatch, match="nested too deeply"):
        raw_shape({"items": {"$ref": "#"}}).read(deep)
    with pytest.raises(Mismatch, match="not JSON"):
        raw_shape({}).read({"a": object()})


def test_a_schema_too_deep_is_refused():
    deep: dict[str, Any] = {}
    for _ in range(64):
        deep = {"not": deep}
    with pytest.raises(ValueError, match="64 levels"):
        raw_shape(deep)
    raw_shape(deep["not"])


def test_a_schema_with_too_many_parts_is_refused():
    wide = {"properties": {str(number): {"type": "integer"} for number in range(10_000)}}
    with pytest.raises(ValueError, match="more than 10000 schemas"):
        raw_shape(wide)


def test_a_schema_that_holds_itself_is_refused():
    circle: dict[str, Any] = {}
    circle["not"] = circle
    with pytest.raises(ValueError, match="64 levels"):
        raw_shape(circle)
    nested: list[Any] = []
    nested.append(nested)
    with pytest.raises(ValueError, match="nested too deeply"):
        raw_shape({"default": nested})


def test_references_that_multiply_are_refused():
    bomb: dict[str, Any] = {"$defs": {"d0": {"type": "integer"}}, "$ref": "#/$defs/d30"}
    for number in range(1, 31):
        bomb["$defs"][f"d{number}"] = {"allOf": [{"$ref": f"#/$defs/d{number - 1}"}] * 2}
    with pytest.raises(ValueError, match="references expand"):
        raw_shape(bomb)


def test_references_that_chain_without_end_are_refused():
    chain: dict[str, Any] = {"$defs": {"d0": {"type": "integer"}}, "$ref": "#/$defs/d1999"}
    for number in range(1, 2000):
        chain["$defs"][f"d{number}"] = {"$ref": f"#/$defs/d{number - 1}"}
    with pytest.raises(ValueError, match="chained"):
        raw_shape(chain)


def test_a_recursive_schema_is_fine():
    shape = raw_shape({
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "value": {"type": "integer"}},
    })  # fmt: skip
    shape.read({"value": 1, "next": {"value": 2, "next": {"value": 3}}})
    with pytest.raises(Mismatch, match="'next.next.value'"):
        shape.read({"value": 1, "next": {"value": 2, "next": {"value": "x"}}})


def test_jsonschema_is_loaded_only_when_it_is_needed():
    import subprocess

    probe = "import sys, antiphon.shapes; assert 'jsonschema_rs' not in sys.modules"
    subprocess.run([sys.executable, "-c", probe], check=True)


names = st.sampled_from(["a", "b", "count", "tags"])
schemas = st.recursive(
    st.sampled_from([{}, {"type": "integer"}, {"type": "string"}, {"enum": ["a", 1, None]}, {"minimum": 3}]),
    lambda inner: st.one_of(
        st.builds(lambda parts: {"type": "object", "properties": parts}, st.dictionaries(names, inner, max_size=3)),
        st.builds(lambda part: {"type": "array", "items": part}, inner),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=6,
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@examples(150)
@given(schemas, values)
def test_any_value_is_read_or_a_mismatch(schema, value):
    shape = raw_shape(schema)
    for lax in (False, True):
        try:
            shape.read(value, lax=lax)
        except Mismatch as problem:
            assert str(problem)
