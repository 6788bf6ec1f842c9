"""Schemas that users and peers bring take bounded time, whatever they say and whatever the value is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.shapes import Mismatch, raw_shape
from examples import examples

DEEP = 60
"""A chain of this many alternatives, two at each level, has more ways than anything could try."""


def filters(keyword: str = "oneOf") -> dict[str, Any]:
    both = {"type": "array", "items": {"$ref": "#/$defs/filter"}}
    several = [
        {"type": "object", "properties": {"args": both, "op": {"const": op}}, "required": ["op", "args"]}
        for op in ("and", "or")
    ]
    one = {"type": "object", "properties": {"op": {"const": "eq"}}, "required": ["op", "field"]}
    return {
        "type": "object",
        "properties": {"filter": {"$ref": "#/$defs/filter"}},
        "$defs": {"filter": {keyword: [*several, one]}},
    }


def nested(depth: int, leaf: object) -> Any:
    for _ in range(depth):
        leaf = {"op": "and", "args": [leaf]}
    return leaf


@pytest.mark.parametrize("keyword", ["oneOf", "anyOf"])
def test_a_deep_value_of_a_recursive_choice_is_refused_at_once_with_the_innermost_reason(keyword):
    shape = raw_shape(filters(keyword))
    with pytest.raises(Mismatch) as caught:
        shape.read({"filter": nested(DEEP, {"op": "eq"})})
    assert caught.value.problem == "missing required field 'field'"
    assert caught.value.path == "filter" + ".args[0]" * DEEP
    shape.read({"filter": nested(DEEP, {"op": "eq", "field": "x"})})


def test_alternatives_without_tags_are_refused_at_once():
    branches = [
        {"type": "object", "properties": {"x": {"$ref": "#"}}, "required": [name]} for name in ("a", "b")
    ]  # fmt: skip
    value: Any = "wrong"
    for _ in range(DEEP):
        value = {"x": value, "a": 1, "b": 1}
    with pytest.raises(Mismatch, match="fits none of the alternatives"):
        raw_shape({"anyOf": [*branches, {"type": "integer"}]}).read(value)


def test_all_parts_of_a_recursive_schema_together_are_checked_once_for_each_value():
    value: Any = "wrong"
    for _ in range(DEEP):
        value = {"x": value}
    doubled = {"type": ["object", "integer"], "allOf": [{"properties": {"x": {"$ref": "#"}}}] * 2}
    with pytest.raises(Mismatch, match="expected integer or object, got string") as caught:
        raw_shape(doubled).read(value)
    assert caught.value.path == ".".join(["x"] * DEEP)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("back", [False, True])
def test_definitions_that_double_at_each_level_of_a_value_are_refused(reverse, back):
    names = [f"d{number}" for number in range(DEEP)]
    schema: dict[str, Any] = {"properties": {"first": {"$ref": f"#/$defs/{names[0]}"}}, "$defs": {}}
    for name, following in zip(names, [*names[1:], names[0]], strict=True):
        twice = {"properties": {"x": {"$ref": f"#/$defs/{following}"}}}
        schema["$defs"][name] = {"anyOf": [twice, {**twice, "minProperties": 1}]}
    if back:  # a cycle that one enters at its other end has other references back
        schema["properties"] = {"last": {"$ref": f"#/$defs/{names[-1]}"}, **schema["properties"]}
    if reverse:
        schema["properties"] = dict(reversed(schema["properties"].items()))
    with pytest.raises(ValueError, match="more than 1000000 checks"):
        raw_shape(schema)


def test_a_large_value_and_a_costly_schema_do_not_meet():
    shape = raw_shape({"items": {"anyOf": [{"minimum": number} for number in range(2000, 0, -1)]}})
    shape.read([1] * 5000)
    with pytest.raises(Mismatch, match="too large: the schema may check each of 20001 values 200"):
        shape.read([1] * 20_000)
    assert len(raw_shape({"items": {"type": "integer"}}).read([1] * 1_000_000)) == 1_000_000


@pytest.mark.parametrize(
    "part",
    [
        {"not": {"pattern": "^(a|aa)+(?=c)$"}},
        {"enum": [{"a": number} for number in range(1500)]},
        {"patternProperties": {"^(a|aa)+(?=c)$": True}},
    ],
)
def test_costly_keywords_count_as_many_checks(part):
    with pytest.raises(Mismatch, match="too large"):
        raw_shape({"items": part}).read(["a"] * 30_000)


def test_a_pattern_that_backtracks_gives_up():
    shape = raw_shape({"pattern": r"^(a|aa)+(?=c)$"})
    with pytest.raises(Mismatch):
        shape.read("a" * 500)
    assert raw_shape({"pattern": r"^(?=.*[A-Z])(?=.*\d).{8,}$"}).read("x" * 50_000 + "A1")


def test_the_reason_is_found_in_long_lists_and_objects():
    with pytest.raises(Mismatch, match=r"'\[77777\]': expected integer, got string"):
        raw_shape({"items": {"type": "integer"}}).read([*range(77_777), "x", *range(9)])
    with pytest.raises(Mismatch, match=r"'k4321': expected integer, got string"):
        raw_shape({"additionalProperties": {"type": "integer"}}).read({
            f"k{number}": "x" if number == 4321 else number for number in range(9000)
        })  # fmt: skip


def test_a_reason_that_takes_too_long_to_find_is_left_out():
    schema = {"properties": {f"k{number}": {"type": "integer"} for number in range(2000)}}
    with pytest.raises(Mismatch, match="does not fit the schema"):
        raw_shape(schema).read({f"k{number}": "x" if number == 1999 else 1 for number in range(2000)})


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ({"prefixItems": [{"type": "string"}, {"type": "integer"}]}, ["a", "b"], "'[1]': expected integer, got string"),
        ({"prefixItems": [{}], "items": False}, ["a", "b"], "'[1]': no value is allowed here"),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}, {"const": 1}]},
            [1, 2],
            "'[1]': expected 1, got 2",
        ),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1}, "missing required field 'b'"),
        ({"if": {"required": ["a"]}, "else": {"required": ["b"]}}, {}, "missing required field 'b'"),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1}, "missing required field 'b'"),
        ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, 3, "fits several alternatives, and must fit only one"),
        ({"not": {"type": "integer"}}, 3, "does not fit not"),
        ({"contains": {"const": 1}}, [2], "does not fit contains"),
        ({"unevaluatedProperties": False}, {"a": 1}, "does not fit unevaluatedProperties"),
        ({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"b": 1}, "unknown field 'b'"),
        ({"properties": {"a~/b %": {"type": "integer"}}}, {"a~/b %": "x"}, "'[\"a~/b %\"]': expected integer"),
        ({"$defs": {"é /x": {"type": "integer"}}, "$ref": "#/$defs/%C3%A9%20~1x"}, "x", "expected integer, got string"),
        ({"$defs": {"n": {"$anchor": "n", "type": "integer"}}, "$ref": "#n"}, "x", "does not fit $ref"),
        ({"allOf": [{"$ref": "#"}], "not": {"type": "integer"}}, 3, "does not fit"),
    ],
)
def test_the_reason_names_what_did_not_fit(schema, value, told):
    with pytest.raises(Mismatch) as caught:
        raw_shape(schema).read(value)
    assert str(caught.value).startswith(told)


names = st.sampled_from(["a", "b"])
leaves: list[dict[str, Any]] = [{}, {"type": "integer"}, {"type": "string"}, {"const": 1}, {"minimum": 3}]
parts = st.recursive(
    st.sampled_from([*leaves, {"required": ["a"]}, {"$ref": "#"}, {"$ref": "#/$defs/other"}]),
    lambda inner: st.one_of(
        st.builds(lambda found: {"properties": found}, st.dictionaries(names, inner, max_size=2)),
        st.builds(
            lambda keyword, part: {keyword: part},
            st.sampled_from(["items", "additionalProperties", "not", "contains", "unevaluatedProperties"]),
            inner,
        ),
        st.builds(
            lambda keyword, found: {keyword: found},
            st.sampled_from(["anyOf", "oneOf", "allOf", "prefixItems"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        st.builds(lambda one, two, three: {"if": one, "then": two, "else": three}, inner, inner, inner),
    ),
    max_leaves=8,
)
values = st.recursive(
    st.sampled_from([None, True, 1, 5, 1.5, "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=2),
    max_leaves=8,
)


@examples(300)
@given(parts, parts, values)
def test_a_value_is_refused_exactly_where_the_validator_refuses_it(part, other, value):
    import jsonschema_rs

    schema = {**part, "$defs": {"other": other}}
    try:
        shape = raw_shape(schema)
    except ValueError:
        return
    try:
        shape.read(value)
        fits = True
    except Mismatch as problem:
        assert str(problem)
        fits = False
    assert fits == jsonschema_rs.validator_for(schema).is_valid(value)
