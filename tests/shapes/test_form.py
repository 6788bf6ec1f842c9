"""Types as forms: what goes on the wire, and what an answer means."""

import datetime as dt
import enum
import json
import math
import tracemalloc
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict

import annotated_types as at
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.shapes import Email, Form, Format, Mismatch, Several, Url, form_of
from examples import examples


class Region(enum.Enum):
    EU_WEST = "eu-west-1"
    US = "us-east-1"


class Size(enum.Enum):
    SMALL = 1
    EXTRA_LARGE = 2


@dataclass
class Where:
    """Where it goes."""

    region: str
    replicas: int = 2


# The protocol's rule (schema.ts, ElicitRequestFormParams.requestedSchema and PrimitiveSchemaDefinition), written out.
NOTES = {"title": str, "description": str}
KINDS = {
    "string": {"minLength": int, "maxLength": int, "format": str, "default": str},
    "number": {"minimum": (int, float), "maximum": (int, float), "default": (int, float)},
    "integer": {"minimum": (int, float), "maximum": (int, float), "default": (int, float)},
    "boolean": {"default": bool},
}


def is_titled(options):
    return isinstance(options, list) and all(
        set(option) == {"const", "title"} and all(isinstance(text, str) for text in option.values())
        for option in options
    )


def is_untitled(options):
    return isinstance(options, list) and bool(options) and all(isinstance(option, str) for option in options)


def check_property(schema):
    kind = schema["type"]
    rest = {key: value for key, value in schema.items() if key != "type"}
    allowed: dict[str, Any] = dict(NOTES)
    if kind == "array":
        allowed |= {"minItems": int, "maxItems": int, "items": dict, "default": list}
        items = rest["items"]
        assert set(items) in ({"type", "enum"}, {"anyOf"})
        assert (
            is_titled(items["anyOf"])
            if "anyOf" in items
            else (items["type"] == "string" and is_untitled(items["enum"]))
        )
        assert all(isinstance(one, str) for one in rest.get("default", []))
    elif kind == "string" and "oneOf" in rest:
        allowed |= {"oneOf": list, "default": str}
        assert is_titled(rest["oneOf"])
    elif kind == "string" and "enum" in rest:
        allowed |= {"enum": list, "enumNames": list, "default": str}
        assert is_untitled(rest["enum"])
    else:
        allowed |= KINDS[kind]
    for key, value in rest.items():
        assert key in allowed, f"{key} may not appear"
        assert isinstance(value, allowed[key])
    assert rest.get("format", "email") in ("email", "uri", "date", "date-time")


def check_requested_schema(schema):
    assert set(schema) <= {"$schema", "type", "properties", "required"}
    assert schema["type"] == "object"
    assert set(schema.get("required", [])) <= set(schema["properties"])
    for part in schema["properties"].values():
        check_property(part)
    assert json.loads(json.dumps(schema)) == schema


UNTITLED = {"type": "string", "enum": ["eu", "us"]}
TITLED = {
    "type": "string",
    "oneOf": [{"const": "eu-west-1", "title": "Eu West"}, {"const": "us-east-1", "title": "Us"}],
}

SCALARS = [
    (bool, {"type": "boolean"}, True, True),
    (str, {"type": "string"}, "a", "a"),
    (int, {"type": "integer"}, 3, 3),
    (int, {"type": "integer"}, 3.0, 3),
    (float, {"type": "number"}, 3, 3.0),
    (dt.date, {"type": "string", "format": "date"}, "2026-07-28", dt.date(2026, 7, 28)),
    (dt.datetime, {"type": "string", "format": "date-time"}, "2026-07-28t09:30:00z",
     dt.datetime(2026, 7, 28, 9, 30, tzinfo=dt.UTC)),
    (Email, {"type": "string", "format": "email"}, "a@b.example", "a@b.example"),
    (Url, {"type": "string", "format": "uri"}, "urn:x", "urn:x"),
    (Literal["eu", "us"], UNTITLED, "us", "us"),
    (["eu", "us"], UNTITLED, "us", "us"),
    (("eu", "us"), UNTITLED, "us", "us"),
    (Region, TITLED, "us-east-1", Region.US),
    (Size, {"type": "string", "oneOf": [{"const": "SMALL", "title": "Small"},
                                        {"const": "EXTRA_LARGE", "title": "Extra Large"}]},
     "EXTRA_LARGE", Size.EXTRA_LARGE),
    ([("eu", "Europe"), ("us", "America")],
     {"type": "string", "oneOf": [{"const": "eu", "title": "Europe"}, {"const": "us", "title": "America"}]},
     "eu", "eu"),
    (Several(["eu", "us"], at_least=1, at_most=2),
     {"type": "array", "items": UNTITLED, "minItems": 1, "maxItems": 2}, ["us"], ["us"]),
    (Several([("eu", "Europe")]), {"type": "array", "items": {"anyOf": [{"const": "eu", "title": "Europe"}]}}, [], []),
    (Several(Region), {"type": "array", "items": {"anyOf": TITLED["oneOf"]}}, ["us-east-1"], [Region.US]),
    (list[Literal["eu", "us"]], {"type": "array", "items": UNTITLED}, ["us", "eu"], ["us", "eu"]),
    (set[Region], {"type": "array", "items": {"anyOf": TITLED["oneOf"]}}, ["us-east-1"], {Region.US}),
    (tuple[Region, ...], {"type": "array", "items": {"anyOf": TITLED["oneOf"]}}, ["us-east-1"], (Region.US,)),
    (Annotated[list[Literal["eu", "us"]], at.MinLen(1)], {"type": "array", "items": UNTITLED, "minItems": 1},
     ["us"], ["us"]),
    (Annotated[int, at.Gt(0), at.Lt(10)], {"type": "integer", "minimum": 1, "maximum": 9}, 9, 9),
    (Annotated[float, at.Ge(0.5)], {"type": "number", "minimum": 0.5}, 0.5, 0.5),
    (Annotated[str, at.Len(1, 3), "Name it."],
     {"type": "string", "minLength": 1, "maxLength": 3, "description": "Name it."}, "abc", "abc"),
    (Annotated[str, msgspec.Meta(title="Name", examples=["a"])], {"type": "string", "title": "Name"}, "a", "a"),
    (NewType("Name", str), {"type": "string"}, "a", "a"),
    (Literal["eu"] | Literal["us"], UNTITLED, "eu", "eu"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "schema", "answer", "value"), SCALARS, ids=lambda it: str(it)[:40])
def test_a_scalar_or_choice_is_one_field(shape, schema, answer, value):
    form = form_of(shape, field="it")
    assert form.schema == {"type": "object", "properties": {"it": schema}, "required": ["it"]}
    check_requested_schema(form.schema)
    read = form.read({"it": answer, "unknown": 1})
    assert read == value
    assert type(read) is type(value)
    assert form.fill({"it": answer, "unknown": 1}) == {"it": answer}
    with pytest.raises(Mismatch, match="missing required field 'it'"):
        form.read({})


def test_the_field_is_called_value_unless_told_otherwise():
    assert form_of(bool).schema["properties"] == {"value": {"type": "boolean"}}
    assert form_of(bool).name == "value"
    assert form_of(bool, field="confirm").read({"confirm": False}) is False
    assert form_of(bool, field="confirm").name == "confirm"


def test_a_form_is_named_after_its_class():
    class HTTPServerChoice(TypedDict):
        host: str

    assert form_of(Where).name == "where"
    assert form_of(HTTPServerChoice).name == "http_server_choice"
    assert form_of(Region).name == "region"
    assert form_of({"type": "object", "properties": {}, "title": "Where"}).name == "where"
    assert form_of({"type": "object", "properties": {}, "title": "Where to?"}).name == "value"


def test_an_optional_scalar_need_not_be_answered():
    form = form_of(int | None)
    assert form.schema == {"type": "object", "properties": {"value": {"type": "integer"}}}
    assert form.read({}) is None
    assert form.read({"value": None}) is None
    assert form.read({"value": 1}) == 1


def test_a_class_becomes_a_form_and_an_answer_its_instance():
    @dataclass
    class Everything:
        region: Region
        name: Annotated[str, at.MinLen(2)]
        note: str | None
        size: Size = Size.SMALL
        mail: Optional[Email] = None
        day: dt.date = dt.date(2026, 1, 1)
        tags: set[Literal["a", "b"]] = field(default_factory=set)
        sure: bool = False
        ratio: Annotated[float, at.Interval(ge=0, le=1)] = 0.5
        stamp: str = field(default_factory=lambda: "made", metadata={"title": "Stamp", "description": "When."})

    form = form_of(Everything)
    check_requested_schema(form.schema)
    assert form.schema["required"] == ["region", "name"]
    properties = form.schema["properties"]
    assert properties["size"]["default"] == "SMALL"
    assert properties["day"] == {"type": "string", "format": "date", "default": "2026-01-01"}
    assert properties["tags"]["default"] == []
    assert properties["mail"] == {"type": "string", "format": "email"}
    assert properties["stamp"] == {"type": "string", "title": "Stamp", "description": "When."}
    assert form.read({"region": "us-east-1", "name": "ab", "extra": 1}) == Everything(
        Region.US, "ab", None, stamp="made"
    )
    assert form.read({"region": "us-east-1", "name": "ab", "tags": ["b"], "day": "2026-02-02", "mail": "a@b"}) == (
        Everything(Region.US, "ab", None, tags={"b"}, day=dt.date(2026, 2, 2), mail="a@b")
    )
    assert form.fill({"region": "us-east-1", "name": "ab"}) == {
        "region": "us-east-1",
        "name": "ab",
        "size": "SMALL",
        "day": "2026-01-01",
        "tags": [],
        "sure": False,
        "ratio": 0.5,
    }


def test_every_kind_of_class_can_be_asked_for():
    class Dict(TypedDict):
        a: int
        b: NotRequired[str]

    class Tuple(NamedTuple):
        a: int
        b: str = "x"

    class Struct(msgspec.Struct, rename="camel"):
        the_a: int
        b: str = "x"

    assert form_of(Dict).read({"a": 1}) == {"a": 1}
    assert form_of(Tuple).read({"a": 1}) == Tuple(1, "x")
    assert form_of(Struct).read({"theA": 1}) == Struct(1)
    for shape in (Dict, Tuple, Struct):
        check_requested_schema(form_of(shape).schema)
        assert form_of(shape).schema["required"] == [next(iter(form_of(shape).schema["properties"]))]


def test_a_class_may_have_the_last_word():
    @dataclass
    class Span:
        low: int
        high: int

        def __post_init__(self):
            if self.low > self.high:
                raise ValueError("low is above high")

    with pytest.raises(Mismatch, match="^low is above high$"):
        form_of(Span).read({"low": 2, "high": 1})


@pytest.mark.parametrize(
    ("shape", "answer", "told"),
    [
        (bool, "true", "'value': expected bool, got 'true'"),
        (bool, 1, "'value': expected bool, got 1"),
        (bool, None, "'value': expected bool, got null"),
        (int, "1", "'value': expected int, got '1'"),
        (int, True, "'value': expected int, got true"),
        (int, 1.5, "'value': expected int, got 1.5"),
        (float, math.nan, "'value': expected a number, got nan"),
        (float, False, "'value': expected a number, got false"),
        (str, 5, "'value': expected str, got 5"),
        (Annotated[int, at.Ge(1)], 0, "'value': expected a number >= 1, got 0"),
        (Annotated[int, at.Le(1)], 2, "'value': expected a number <= 1, got 2"),
        (Annotated[str, at.MinLen(2)], "a", "'value': expected at least 2 characters, got 'a'"),
        (Annotated[str, at.MaxLen(2)], "abc", "'value': expected at most 2 characters, got 'abc'"),
        (Literal["a", "b"], "c", "'value': expected one of 'a', 'b', got 'c'"),
        (Region, "EU_WEST", "'value': expected one of 'eu-west-1', 'us-east-1', got 'EU_WEST'"),
        (Several(["a", "b"]), ["a", "c"], "'value[1]': expected one of 'a', 'b', got 'c'"),
        (Several(["a", "b"]), ["a", "a"], "'value': expected each option at most once"),
        (Several(["a", "b"], at_least=1), [], "'value': expected at least 1 of the options, got 0"),
        (Several(["a", "b"], at_most=1), ["a", "b"], "'value': expected at most 1 of the options, got 2"),
        (Several(["a", "b"]), "a", "'value': expected a list of options, got 'a'"),
        (Email, "nobody", "'value': expected an email address such as 'ada@example.com', got 'nobody'"),
        (Url, "example.com", "'value': expected an absolute URI"),
        (dt.date, "2026-02-30", "'value': expected a date such as '2026-07-28', got '2026-02-30'"),
        (dt.datetime, "2026-07-28 soon", "'value': expected a date-time with its offset"),
        (dt.datetime, "2026-07-28T09:30:00", "'value': expected a date-time with its offset"),
    ],
)
def test_an_answer_that_is_not_valid_is_a_mismatch(shape, answer, told):
    for use in (form_of(shape).read, form_of(shape).fill):
        with pytest.raises(Mismatch) as caught:
            use({"value": answer})
        assert str(caught.value).startswith(told)


@pytest.mark.parametrize("content", [None, [], "x", 1])
def test_content_that_is_no_object_is_a_mismatch(content):
    with pytest.raises(Mismatch, match="expected an object"):
        form_of(bool).read(content)


@dataclass
class Nested:
    where: Where


@dataclass
class Patterned:
    code: Annotated[str, msgspec.Meta(pattern="^x")]


@dataclass
class Recursive:
    inner: Optional["Recursive"] = None


@dataclass
class BadDefault:
    count: Annotated[int, at.Ge(1)] = 0


@pytest.mark.parametrize(
    ("shape", "named"),
    [
        (Nested, "'where'.*do not nest"),
        (Recursive, "'inner'.*do not nest"),
        (Patterned, "'code'.*pattern"),
        (BadDefault, "'count': the default does not fit"),
        (Annotated[float, at.Gt(0)], "'value'.*greater than"),
        (Annotated[int, at.MultipleOf(2)], "'value'.*multiple of"),
        (Annotated[dt.date, at.Ge(dt.date(2026, 1, 1))], "'value'"),
        (Annotated[bool, at.Ge(1)], "'value'"),
        (list[str], "'value'.*list"),
        (list[int], "'value'"),
        (dict[str, int], "'value'.*dict"),
        (int | str, "'value'.*int . str"),
        (None, "'value'"),
        (Any, "'value'"),
        (bytes, "'value'.*bytes"),
        (dt.time, "'value'.*time"),
        (Literal[1, 2], "'value': options must be strings"),
        ([], "'value'.*list of options"),
        (["a", "a"], "'value': an option is given twice"),
        (["a", 1], "'value'.*list of options"),
        (Several([]), "'value'"),
        (list[Literal["a", None]], "'value'"),
        (5, "'value'"),
        ("text", "'value'"),
    ],
    ids=str,
)
def test_what_the_wire_cannot_say_is_a_type_error_naming_the_field(shape, named):
    with pytest.raises(TypeError, match=f"form field {named}"):
        form_of(shape)


def test_forms_are_made_once_for_each_order_of_options():
    assert form_of(Where) is form_of(Where)
    assert form_of(Literal["a", "b"]).schema["properties"]["value"]["enum"] == ["a", "b"]
    assert form_of(Literal["b", "a"]).schema["properties"]["value"]["enum"] == ["b", "a"]
    assert form_of(bool, field="a") is not form_of(bool, field="b")


# --------------------------------------------------------------------------------------------- raw schemas

RAW = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "format": "email", "default": "a@b.example"},
        "age": {"type": "number", "minimum": 18, "maximum": 99},
        "sure": {"type": "boolean", "default": False},
        "colour": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"], "default": "r"},
        "shade": {"type": "string", "oneOf": [{"const": "d", "title": "Dark"}]},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}, "maxItems": 1, "default": ["x"]},
        "marks": {"type": "array", "items": {"anyOf": [{"const": "m", "title": "M"}]}},
    },
    "required": ["age"],
}


def test_a_raw_schema_is_taken_as_it_is():
    form = form_of(RAW)
    assert form.schema == RAW
    check_requested_schema(form.schema)
    assert form.read({"age": 20, "marks": ["m"], "x": 1}) == {
        "name": "a@b.example",
        "age": 20,
        "sure": False,
        "colour": "r",
        "tags": ["x"],
        "marks": ["m"],
    }
    assert form.fill({"age": 20}) == {"name": "a@b.example", "age": 20, "sure": False, "colour": "r", "tags": ["x"]}
    for wrong in ({}, {"age": 17}, {"age": 20, "colour": "Red"}, {"age": 20, "tags": ["x", "y"]}):
        with pytest.raises(Mismatch):
            form.read(wrong)


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "string"}, "type 'object'"),
        ({"type": "object"}, "type 'object' and properties"),
        ({"type": "object", "properties": {}, "$defs": {}}, "'\\$defs'"),
        ({"type": "object", "properties": {}, "required": ["x"]}, "'x' is required but"),
        ({"type": "object", "properties": {"x": {"type": "object", "properties": {}}}}, "'x'.*'object'"),
        ({"type": "object", "properties": {"x": {"$ref": "#/x"}}}, "'x'"),
        ({"type": "object", "properties": {"x": {"type": ["string", "null"]}}}, "'x'"),
        ({"type": "object", "properties": {"x": {"type": "null"}}}, "'x'"),
        ({"type": "object", "properties": {"x": True}}, "'x'"),
        ({"type": "object", "properties": {"x": {"type": "string", "pattern": "a"}}}, "'x'.*'pattern'"),
        ({"type": "object", "properties": {"x": {"type": "integer", "exclusiveMinimum": 0}}}, "'x'.*exclusiveMinimum"),
        ({"type": "object", "properties": {"x": {"type": "integer", "enum": [1]}}}, "'x'.*'enum'"),
        ({"type": "object", "properties": {"x": {"type": "string", "format": "uuid"}}}, "'x'.*uuid"),
        ({"type": "object", "properties": {"x": {"type": "string", "enum": []}}}, "'x'.*at least one"),
        ({"type": "object", "properties": {"x": {"type": "string", "enum": ["a"], "enumNames": []}}}, "'x'.*enumNames"),
        ({"type": "object", "properties": {"x": {"type": "string", "oneOf": [{"const": "a"}]}}}, "'x'.*options"),
        ({"type": "object", "properties": {"x": {"type": "string", "minLength": -1}}}, "'x'.*minLength"),
        ({"type": "object", "properties": {"x": {"type": "string", "title": 1}}}, "'x'.*title"),
        ({"type": "object", "properties": {"x": {"type": "number", "minimum": "1"}}}, "'x'.*minimum"),
        ({"type": "object", "properties": {"x": {"type": "array", "items": {"type": "string"}}}}, "'x'.*list"),
        ({"type": "object", "properties": {"x": {"type": "array"}}}, "'x'.*list"),
        ({"type": "object", "properties": {"x": {"type": "boolean", "default": "no"}}}, "'x'.*default"),
        ({"type": "object", "properties": {"x": {"type": "string", "enum": ["a"], "default": "b"}}}, "'x'.*default"),
    ],
)  # fmt: skip
def test_a_raw_schema_outside_the_subset_is_a_type_error(schema, told):
    with pytest.raises(TypeError, match=told):
        form_of(schema)


def test_root_keywords_that_change_nothing_are_left_off():
    raw = {"type": "object", "title": "T", "description": "D", "additionalProperties": False, "properties": {}}
    assert form_of(raw).schema == {"type": "object", "properties": {}}


# ---------------------------------------------------------------------------------------------- any form

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
options = st.lists(text, min_size=1, max_size=4, unique=True)
annotations = st.one_of(
    st.sampled_from([bool, str, int, float, dt.date, dt.datetime, Email, Url, Region, Size, set[Size], bool | None]),
    st.builds(
        lambda low, width: Annotated[int, at.Interval(gt=low, le=low + width)], st.integers(-9, 9), st.integers(1)
    ),
    st.builds(lambda low, width: Annotated[str, at.Len(low, low + width), "D"], st.integers(0, 3), st.integers(0, 3)),
    options.map(lambda names: Literal[tuple(names)]),
    options.map(lambda names: list[Literal[tuple(names)]]),
)
shapes = st.one_of(
    annotations,
    options,
    st.lists(st.tuples(text, text), min_size=1, max_size=3, unique_by=lambda pair: pair[0]),
    st.builds(Several, options, at_least=st.none() | st.just(1), at_most=st.none() | st.just(1)),
    st.lists(annotations, max_size=4).map(
        lambda types: dataclass(
            type("Made", (), {"__annotations__": {f"f{number}": it for number, it in enumerate(types)}})
        )
    ),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


def answers(schema):
    """Valid answers to a property."""
    if schema["type"] == "array":
        items = schema["items"]
        values = items.get("enum") or [option["const"] for option in items["anyOf"]]
        return st.lists(
            st.sampled_from(values), unique=True, min_size=schema.get("minItems", 0), max_size=schema.get("maxItems")
        )
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "oneOf" in schema:
        return st.sampled_from([option["const"] for option in schema["oneOf"]])
    match schema["type"], schema.get("format"):
        case "boolean", _:
            return st.booleans()
        case "integer", _:
            return st.integers(schema.get("minimum"), schema.get("maximum"))
        case "number", _:
            return st.floats(allow_nan=False, allow_infinity=False)
        case _, "email":
            return st.emails(domains=st.sampled_from(["example.com", "a-b.example"]))
        case _, "uri":
            return st.sampled_from(["https://example.com/a?b=c#d", "urn:isbn:1", "mailto:a@b.c", "http://[::1]:80/"])
        case _, "date":
            return st.dates().map(dt.date.isoformat)
        case _, "date-time":
            return st.datetimes(timezones=st.just(dt.UTC)).map(dt.datetime.isoformat)
    return st.text(min_size=schema.get("minLength", 0), max_size=schema.get("maxLength"))


@examples(150)
@given(st.data(), shapes)
def test_any_form_is_inside_the_subset_and_reads_valid_answers(data, shape):
    form = form_of(shape)
    check_requested_schema(form.schema)
    content = {name: data.draw(answers(part)) for name, part in form.schema["properties"].items()}
    form.read(content)
    assert form.fill(content) == content


@examples(150)
@given(st.data(), shapes)
def test_any_answer_is_read_or_a_mismatch(data, shape):
    form = form_of(shape)
    names = st.sampled_from([*form.schema["properties"], "other"])
    content = data.draw(json_values | st.dictionaries(names, json_values))
    for use in (form.read, form.fill) if isinstance(content, dict) else (form.read,):
        try:
            use(content)
        except Mismatch as problem:
            assert str(problem)


def test_forms_show_their_fields():
    assert repr(form_of(Where)) == "Form('where': region, replicas)"
    assert isinstance(form_of(Where), Form)
    assert repr(Several(["a"], at_least=1)) == "Several(['a'], at_least=1, at_most=None)"
    assert repr(Format("email")) == "Format('email')"


def test_options_found_at_run_time_are_not_kept():
    tracemalloc.start()
    for number in range(20):
        form_of(tuple((f"{number}-{index}", "title") for index in range(2000)))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 500_000
    assert form_of((("a", "A"),)) is form_of((("a", "A"),))
