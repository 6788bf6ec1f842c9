"""Types as shapes: what their schemas say, what they read and what they write."""

import datetime as dt
import decimal
import enum
import pathlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict, TypeVar

import annotated_types as at
import msgspec
import pytest
from jsonschema_rs import Draft202012Validator
from typing_extensions import Doc, TypeAliasType

from antiphon.shapes import Email, Format, Header, Mismatch, Url, shape_of

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    DARK_BLUE = "dark-blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Address:
    """Where somebody lives."""

    street: str
    zip: Annotated[str, msgspec.Meta(pattern="^[0-9]{5}$")] = "00000"


@dataclass
class Person:
    name: str
    address: Address
    age: int = 0


class Options(TypedDict):
    verbose: bool
    limit: NotRequired[int]


class Point(NamedTuple):
    x: int
    y: int = 0


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: list[str] = []


@dataclass
class Node:
    value: int
    children: list["Node"] = field(default_factory=list)


@dataclass
class Strict:
    """A node whose limits msgspec does not read by itself.

    Attributes:
        value: How much.
    """

    value: Annotated[int, at.Ge(0)]
    mail: Email = "nobody@example.com"
    next: Optional["Strict"] = None
    named: dict[str, "Strict"] = field(default_factory=dict)


@dataclass
class Box(Generic[T]):
    item: T


@dataclass
class IntBox(Box[int]):
    label: str = ""


UserId = NewType("UserId", int)
Names = TypeAliasType("Names", list[str])

JSON_AND_PYTHON = [
    (str, "text", "text"),
    (int, 3, 3),
    (float, 1.5, 1.5),
    (float, 2, 2.0),
    (bool, True, True),
    (None, None, None),
    (Any, {"a": [1]}, {"a": [1]}),
    (object, [1], [1]),
    (list[int], [1, 2], [1, 2]),
    (list, [1, "a"], [1, "a"]),
    (dict, {"a": 1}, {"a": 1}),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (dict[int, str], {"1": "a"}, {1: "a"}),
    (dict[Literal["a"], int], {"a": 1}, {"a": 1}),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[int, ...], [1, 2], (1, 2)),
    (tuple, [1, "a"], (1, "a")),
    (tuple[()], [], ()),
    (set[int], [1], {1}),
    (frozenset[str], ["a"], frozenset({"a"})),
    (Sequence[int], [1], [1]),
    (Iterable[int], [1], [1]),
    (Mapping[str, int], {"a": 1}, {"a": 1}),
    (Literal["a", "b"], "b", "b"),
    (Literal["a", 1, None], 1, 1),
    (int | None, None, None),
    (int | str, "a", "a"),
    (Colour, "dark-blue", Colour.DARK_BLUE),
    (Level, 2, Level.HIGH),
    (dt.datetime, "2026-07-28T09:30:00Z", dt.datetime(2026, 7, 28, 9, 30, tzinfo=dt.UTC)),
    (dt.date, "2026-07-28", dt.date(2026, 7, 28)),
    (dt.time, "09:30:00", dt.time(9, 30)),
    (dt.timedelta, "PT90S", dt.timedelta(seconds=90)),
    (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID(int=0x12345678123456781234567812345678)),
    (decimal.Decimal, "1.50", decimal.Decimal("1.50")),
    (bytes, "aGk=", b"hi"),
    (pathlib.Path, "a/b", pathlib.Path("a/b")),
    (Address, {"street": "Elm", "zip": "12345"}, Address("Elm", "12345")),
    (Person, {"name": "Ada", "address": {"street": "Elm", "zip": "12345"}, "age": 1},
     Person("Ada", Address("Elm", "12345"), 1)),
    (Options, {"verbose": True}, {"verbose": True}),
    (Point, [1, 2], Point(1, 2)),
    (Cat | Dog, {"type": "dog", "tricks": ["sit"]}, Dog(["sit"])),
    (Node, {"value": 1, "children": [{"value": 2, "children": []}]}, Node(1, [Node(2)])),
    (Strict, {"value": 1, "mail": "a@b.example", "next": None, "named": {}}, Strict(1, "a@b.example")),
    (Box[int], {"item": 1}, Box(1)),
    (IntBox, {"item": 1, "label": ""}, IntBox(1)),
    (UserId, 7, 7),
    (Names, ["a"], ["a"]),
    (Email, "ada@example.com", "ada@example.com"),
    (Url | None, "https://example.com", "https://example.com"),
    (str | dt.date, "2026-07-28", dt.date(2026, 7, 28)),
    (str | dt.date, "soon", "soon"),
    (Person | Address, {"street": "Elm", "zip": "12345"}, Address("Elm", "12345")),
    (Annotated[int | None, at.Ge(1)], None, None),
    (Annotated[decimal.Decimal, at.Gt(0)], "0.5", decimal.Decimal("0.5")),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "wire", "value"), JSON_AND_PYTHON, ids=lambda it: str(it)[:40])
def test_a_type_reads_its_json_and_writes_it_back(type_, wire, value):
    shape = shape_of(type_)
    read = shape.read(wire)
    assert read == value
    assert type(read) is type(value)
    assert shape.write(read) == wire
    assert Draft202012Validator(shape.schema).is_valid(wire)


@pytest.mark.parametrize(
    ("type_", "wire"),
    [
        (int, "1"),
        (int, True),
        (int, 1.5),
        (bool, 1),
        (bool, "true"),
        (float, True),
        (str, 1),
        (list[int], [1, "2"]),
        (tuple[int, str], [1]),
        (Point, [1, 2, 3]),
        (Literal["a"], "b"),
        (Colour, "green"),
        (Address, {"zip": "12345"}),
        (Address, {"street": "Elm", "zip": "x"}),
        (dt.datetime, 5),
        (dt.date, "2026-02-30"),
        (uuid.UUID, "x"),
        (bytes, "%"),
        (decimal.Decimal, "much"),
        (Email, "nobody"),
        (Url, "example.com"),
        (pathlib.Path, 1),
        (Strict, {"value": -1}),
        (Strict, {"value": 1, "next": {"value": -1}}),
        (Annotated[int | None, at.Ge(1)], 0),
        (Annotated[list[int], at.MinLen(1)], []),
        (Annotated[decimal.Decimal, at.Gt(0)], "0"),
        (Annotated[dt.date, at.Ge(dt.date(2026, 1, 1))], "2025-12-31"),
        (Annotated[int, at.Lt(2**70)], 2**71),
        (None, 0),
    ],
    ids=str,
)
def test_reading_is_strict(type_, wire):
    with pytest.raises(Mismatch):
        shape_of(type_).read(wire)


def test_a_javascript_integer_may_arrive_as_a_float():
    assert shape_of(int).read(3.0) == 3
    assert type(shape_of(int).read(3.0)) is int
    assert shape_of(list[Node]).read([{"value": 1.0}, {"value": 2}]) == [Node(1), Node(2)]
    assert shape_of(Level).read(2.0) is Level.HIGH
    assert shape_of(Strict).read({"value": 2.0}) == Strict(2)


def test_lax_reading_turns_strings_into_numbers_and_booleans():
    assert shape_of(int).read("3", lax=True) == 3
    assert shape_of(float).read("1.5", lax=True) == 1.5
    assert shape_of(bool).read("true", lax=True) is True
    assert shape_of(Strict).read({"value": "3"}, lax=True) == Strict(3)
    assert shape_of(Person | Node).read({"value": "3"}, lax=True) == Node(3)
    with pytest.raises(Mismatch):
        shape_of(int).read("three", lax=True)


@pytest.mark.parametrize(
    ("type_", "wire", "path", "problem"),
    [
        (dict[str, int], {"count": "x"}, "count", "expected int, got str"),
        (dict[str, int], {"a": 1, "b c": "x"}, '["b c"]', "expected int, got str"),
        (dict[str, dict[str, int]], {"a": {"x": 1}, "b": {"x": 1, "y": None}}, "b.y", "expected int, got null"),
        (dict[int, int], {"x": 1}, "", "a key is wrong: expected int, got str"),
        (list[int], [1, 2, "x"], "[2]", "expected int, got str"),
        (Person, {"name": "Ada", "address": {}}, "address", "missing required field 'street'"),
        (Node, {"value": 1, "children": [{"value": 1}, {"value": "x"}]}, "children[1].value", "expected int, got str"),
        (Strict, {"value": 1, "next": {"value": -1}}, "next.value", "expected int >= 0, got -1"),
        (Strict, {"value": 1, "named": {"a": {"value": 1}, "b": {"value": -1}}}, "named.b.value",
         "expected int >= 0, got -1"),
        (Strict, {"value": 1, "mail": "x"}, "mail", "expected an email address such as 'ada@example.com', got 'x'"),
        (Colour, "green", "", "expected one of 'red', 'dark-blue', got 'green'"),
        (list[Literal["a", "b"]], ["a", "c"], "[1]", "expected one of 'a', 'b', got 'c'"),
        (Cat | Dog, {"type": "cow"}, "type", "expected one of 'cat', 'dog', got 'cow'"),
        (dt.datetime, "soon", "", "expected a date-time such as '2026-07-28T09:30:00Z', got 'soon'"),
        (Annotated[list[int], at.MinLen(2)], [1], "", "expected array of length >= 2, got 1"),
        (Person, [], "", "expected object, got array"),
    ],
)  # fmt: skip
def test_a_mismatch_says_where_and_why(type_, wire, path, problem):
    with pytest.raises(Mismatch) as caught:
        shape_of(type_).read(wire)
    assert (caught.value.path, caught.value.problem) == (path, problem)
    assert str(caught.value) == (f"'{path}': {problem}" if path else problem)


def test_a_mismatch_of_a_union_tells_what_each_type_wanted():
    with pytest.raises(Mismatch, match="fits none of Person, Node") as caught:
        shape_of(Person | Node).read({"value": "x"})
    assert "Node: 'value': expected int, got str" in str(caught.value)
    assert "Person: missing required field 'name'" in str(caught.value)


def test_a_mismatch_survives_pickling():
    import pickle

    again = pickle.loads(pickle.dumps(Mismatch("expected int, got str", "a")))
    assert (again.path, again.problem, str(again)) == ("a", "expected int, got str", "'a': expected int, got str")


def test_endless_nesting_is_a_mismatch():
    deep: Any = {"value": 1}
    for _ in range(100_000):
        deep = {"value": 1, "children": [deep]}
    with pytest.raises(Mismatch, match="deep"):
        shape_of(Node).read(deep)
    while deep.get("children"):  # freed step by step, as freeing it at once would recurse
        deep = deep["children"].pop()


def test_nested_unions_do_not_multiply_their_guesses():
    @dataclass
    class Left:
        inner: "Left | Right | int"

    @dataclass
    class Right:
        inner: "Left | Right | int"

    value: Any = {"inner": "x"}
    for _ in range(60):
        value = {"inner": value}
    with pytest.raises(Mismatch, match="fits none of"):
        shape_of(Left | Right).read(value)
    shallow: Any = {"inner": {"inner": {"inner": 1}}}
    assert shape_of(Left | Right).read(shallow) == Left(Left(Left(1)))


class Own(msgspec.Struct):
    value: Annotated[str, msgspec.Meta(pattern="^x")] | list[int] | None
    more: "list[Own] | Annotated[int, msgspec.Meta(ge=3)]" = 3


def test_unions_with_limits_are_kept_from_msgspec():
    # msgspec 0.22 corrupts its memory over these types: it took the interpreter with it within a few rounds.
    for number in range(100):
        either = Annotated[int, at.Ge(3), f"{number}"] | tuple[int, int]
        several = Annotated[str, msgspec.Meta(pattern="b"), f"{number}"] | Annotated[list[int], at.MaxLen(1)]
        for type_, wire, value in [
            (either, [1, 2], (1, 2)),
            (dict[str, either], {"a": 3}, {"a": 3}),
            (several, "ab", "ab"),
            (several, [1], [1]),
            (Annotated[Own, f"{number}"], {"value": [1], "more": [{"value": "x"}]}, Own([1], [Own("x")])),
        ]:
            assert shape_of(type_).read(wire) == value
        for type_, wrong in [(either, 2), (several, "a"), (several, [1, 2]), (Own, {"value": "y"})]:
            with pytest.raises(Mismatch):
                shape_of(type_).read(wrong)


def test_searching_for_a_wrong_key_does_not_multiply():
    value: Any = {"value": -1}
    for _ in range(60):
        value = {"value": 1, "named": {"a": {"value": 1}, "b": value}}
    with pytest.raises(Mismatch) as caught:
        shape_of(Strict).read(value)
    assert caught.value.path == ".".join(["named.b"] * 60) + ".value"


# ------------------------------------------------------------------------------------------------ schemas


@pytest.mark.parametrize(
    ("type_", "schema"),
    [
        (int, {"type": "integer"}),
        (Any, {}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Colour, {"type": "string", "enum": ["red", "dark-blue"]}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (dict[int, str], {"type": "object", "propertyNames": {"pattern": "^-?[0-9]+$"},
                          "additionalProperties": {"type": "string"}}),
        (set[str], {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        (tuple[int, str], {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False,
                           "minItems": 2, "maxItems": 2}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (Email, {"type": "string", "format": "email"}),
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (Options, {"type": "object", "properties": {"verbose": {"type": "boolean"}, "limit": {"type": "integer"}},
                   "required": ["verbose"]}),
        (Point, {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer", "default": 0}],
                 "minItems": 1, "items": False}),
        (Cat, {"type": "object", "properties": {"type": {"const": "cat"}, "lives": {"type": "integer"}},
               "required": ["type", "lives"]}),
    ],
    ids=str,
)  # fmt: skip
def test_a_schema_says_what_the_type_says(type_, schema):
    assert shape_of(type_).schema == schema


def test_a_class_used_once_stands_in_place_and_one_used_twice_is_defined():
    once = shape_of(Person).schema
    assert "$defs" not in once
    assert once["properties"]["address"]["description"] == "Where somebody lives."

    twice = shape_of(tuple[Address, Address]).schema
    assert twice["prefixItems"] == [{"$ref": "#/$defs/Address"}] * 2
    assert set(twice["$defs"]) == {"Address"}


def test_a_recursive_class_has_its_type_at_the_root():
    schema = shape_of(Node).schema
    assert schema["type"] == "object"
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert Draft202012Validator(schema).is_valid({"value": 1, "children": [{"value": 2}]})
    assert not Draft202012Validator(schema).is_valid({"value": 1, "children": [{"value": "x"}]})


def test_two_classes_of_one_name_keep_apart():
    def made(kind):
        @dataclass
        class Same:
            value: kind

        return Same

    one, two = made(int), made(str)
    schema = shape_of(tuple[one, one, two, two]).schema
    assert set(schema["$defs"]) == {"Same", "Same_2"}
    assert Draft202012Validator(schema).is_valid([{"value": 1}, {"value": 1}, {"value": "a"}, {"value": "a"}])
    assert not Draft202012Validator(schema).is_valid([{"value": 1}, {"value": 1}, {"value": "a"}, {"value": 1}])


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (Annotated[int, at.Ge(1), at.Le(5)], {"minimum": 1, "maximum": 5}),
        (Annotated[int, at.Gt(1), at.Lt(5)], {"exclusiveMinimum": 1, "exclusiveMaximum": 5}),
        (Annotated[int, at.Ge(0.5)], {"minimum": 1}),
        (Annotated[int, at.Interval(ge=1, lt=9)], {"minimum": 1, "exclusiveMaximum": 9}),
        (Annotated[int, at.Ge(1), at.Ge(3)], {"minimum": 3}),
        (Annotated[int, at.Gt(1), at.Ge(1)], {"exclusiveMinimum": 1}),
        (Annotated[int, at.MultipleOf(3)], {"multipleOf": 3}),
        (Annotated[int, msgspec.Meta(ge=1, title="Count", examples=[2])],
         {"minimum": 1, "title": "Count", "examples": [2]}),
        (Annotated[float, at.Gt(0)], {"exclusiveMinimum": 0}),
        (Annotated[str, at.MinLen(1), at.MaxLen(3)], {"minLength": 1, "maxLength": 3}),
        (Annotated[str, at.Len(2, 4)], {"minLength": 2, "maxLength": 4}),
        (Annotated[list[int], at.Len(2, 4)], {"minItems": 2, "maxItems": 4}),
        (Annotated[dict[str, int], at.MinLen(1)], {"minProperties": 1}),
        (Annotated[str, "A name."], {"description": "A name."}),
        (Annotated[str, Doc("A name.")], {"description": "A name."}),
        (Annotated[str, "inner", "outer"], {"description": "outer"}),
        (Annotated[Annotated[str, "inner"], "outer"], {"description": "outer"}),
        (Annotated[str, Header("Region")], {"x-mcp-header": "Region"}),
        (Annotated[str, Format("date")], {"format": "date"}),
        (Annotated[str, msgspec.Meta(extra_json_schema={"contentMediaType": "text/html"})],
         {"contentMediaType": "text/html"}),
        (Annotated[bytes, at.MaxLen(4)], {"maxLength": 8}),
    ],
    ids=str,
)  # fmt: skip
def test_annotations_are_described(annotation, said):
    schema = shape_of(annotation).schema
    assert {key: schema.get(key) for key in said} == said


def test_limits_apply_to_the_members_of_a_union():
    schema = shape_of(Annotated[int | str | None, at.Ge(1), at.MinLen(2)]).schema
    assert schema == {
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "minLength": 2}, {"type": "null"}]
    }
    shape = shape_of(Annotated[int | str | None, at.Ge(1), at.MinLen(2)])
    assert shape.read("ab") == "ab"
    for wrong in (0, "a"):
        with pytest.raises(Mismatch):
            shape.read(wrong)


def test_fields_tell_their_titles_and_descriptions():
    @dataclass
    class Form:
        """A form.

        Attributes:
            name: From the docstring.
            both: From the docstring.
        """

        name: str
        both: Annotated[str, "From the annotation."]
        titled: int = field(default=1, metadata={"title": "Titled", "description": "From the field."})

    schema = shape_of(Form).schema
    assert schema["description"] == "A form."
    assert schema["properties"] == {
        "name": {"type": "string", "description": "From the docstring."},
        "both": {"type": "string", "description": "From the annotation."},
        "titled": {"type": "integer", "title": "Titled", "description": "From the field.", "default": 1},
    }


def test_an_optional_header_parameter_keeps_one_primitive_type():
    assert shape_of(Annotated[str | None, Header("Region")]).schema == {"type": "string", "x-mcp-header": "Region"}


@pytest.mark.parametrize("name", ["", "Two Words", "line\nbreak", "colon:", "ümlaut"])
def test_a_header_is_an_http_field_name(name):
    with pytest.raises(ValueError, match="field name"):
        Header(name)


def test_an_unknown_format_is_refused():
    with pytest.raises(ValueError, match="email, uri, date, date-time"):
        Format("phone")


@pytest.mark.parametrize(
    ("type_", "named"),
    [
        (complex, "complex"),
        (list[complex], "complex"),
        (type, "type"),
        (enum.Enum("Mixed", {"A": 1, "B": "b"}), "Mixed"),
        (Annotated[int, msgspec.Meta(pattern="x")], "int cannot have a pattern"),
        (dict[pathlib.Path, int], "Path"),
        (Literal[Colour.RED], "Literal"),
    ],
    ids=str,
)
def test_what_json_schema_cannot_express_is_named(type_, named):
    with pytest.raises(TypeError, match=named):
        shape_of(type_)


def test_a_field_that_cannot_be_expressed_is_named():
    @dataclass
    class Odd:
        fine: int
        wave: complex

    @dataclass
    class Half:
        fine: InitVar[int]

    with pytest.raises(TypeError, match=r"Odd\.wave: complex"):
        shape_of(Odd)
    with pytest.raises(TypeError, match=r"Half\.fine"):
        shape_of(Half)


def test_a_class_whose_annotations_cannot_be_resolved_is_named():
    @dataclass
    class Lost:
        where: "Nowhere"  # noqa: F821

    class Gone(msgspec.Struct):
        where: "Nowhere"  # noqa: F821

    for cls in (Lost, Gone):
        with pytest.raises(TypeError, match=rf"an annotation of .*{cls.__name__} cannot be resolved.*Nowhere"):
            shape_of(cls)


def test_limits_that_contradict_each_other_are_refused():
    with pytest.raises(TypeError, match="two different values for pattern"):
        shape_of(Annotated[str, msgspec.Meta(pattern="a"), msgspec.Meta(pattern="b")])
    assert shape_of(Annotated[int, at.MultipleOf(4), at.MultipleOf(6)]).schema["multipleOf"] == 12


def test_an_alias_that_holds_itself_is_a_type_error():
    class Alias:  # what `type Alias = list[Alias]` makes, on Pythons without the statement
        __type_params__ = ()
        __value__: Any

    alias = Alias()
    alias.__value__ = list[alias]
    with pytest.raises(TypeError, match="holds itself"):
        shape_of(alias)


# ------------------------------------------------------------------------------------------------ classes


def test_a_class_of_a_running_function_may_refer_to_its_neighbours():
    @dataclass
    class Inner:
        x: int

    @dataclass
    class Outer:
        inner: "Inner"
        more: "list[Outer]" = field(default_factory=list)

    assert shape_of(Outer).read({"inner": {"x": 1}, "more": [{"inner": {"x": 2}}]}) == Outer(
        Inner(1), [Outer(Inner(2))]
    )


def test_limits_reach_into_every_kind_of_class():
    class Dict(TypedDict):
        n: Annotated[int, at.Ge(1)]
        m: NotRequired[int]

    class Tuple(NamedTuple):
        n: Annotated[int, at.Ge(1)]
        m: int = 5

    class Struct(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
        the_n: Annotated[int, at.Ge(1)]
        m: int = 5

    assert shape_of(Dict).read({"n": 1}) == {"n": 1}
    assert shape_of(Tuple).read([1]) == Tuple(1, 5)
    assert shape_of(Struct).read({"theN": 1}) == Struct(1, 5)
    assert shape_of(Struct).write(Struct(1, 5)) == {"theN": 1, "m": 5}
    for type_, wrong in [(Dict, {"n": 0}), (Tuple, [0]), (Tuple, [1, 2, 3]), (Struct, {"theN": 0}),
                         (Struct, {"theN": 1, "x": 1})]:  # fmt: skip
        with pytest.raises(Mismatch):
            shape_of(type_).read(wrong)


def test_a_class_checks_itself():
    @dataclass
    class Range:
        low: int
        high: Annotated[int, at.Ge(0)]
        width: int = field(init=False)

        def __post_init__(self):
            if self.low > self.high:
                raise ValueError("low is above high")
            self.width = self.high - self.low

    assert shape_of(Range).read({"low": 1, "high": 3}).width == 2
    assert "width" not in shape_of(Range).schema["properties"]
    with pytest.raises(Mismatch, match="low is above high"):
        shape_of(list[Range]).read([{"low": 3, "high": 1}])


def test_defaults_are_fresh():
    shape = shape_of(Strict)
    one = shape.read({"value": 1})
    one.named["x"] = one
    assert shape.read({"value": 1}).named == {}


def test_a_key_is_named_through_several_objects():
    with pytest.raises(Mismatch) as caught:
        shape_of(dict[str, dict[str, list[Strict]]]).read({"a": {"b": []}, "c": {"d": [{"value": 1}, {"value": -1}]}})
    assert caught.value.path == "c.d[1].value"


def test_shapes_are_made_once():
    assert shape_of(Person) is shape_of(Person)
    assert shape_of(list[int]) is shape_of(list[int])
    unhashable = Annotated[int, ["a list"]]
    assert shape_of(unhashable).schema == {"type": "integer"}


# ------------------------------------------------------------------------------------------------ writing


@pytest.mark.parametrize(
    ("type_", "value", "told"),
    [
        (dict[str, int], {"a": "x"}, "'a': expected int, got str"),
        (int, "1", "expected int, got str"),
        (int, True, "expected int, got bool"),
        (list[Person], [Person("a", Address("b"))], None),
        (list[Person], [Person("a", None)], r"'\[0\]\.address': expected object, got null"),
        (Any, object(), "not JSON"),
        (float, float("nan"), "expected float, got null"),
        (str, "\ud800", "not JSON"),
        (Strict, Strict(-1), "'value': expected int >= 0, got -1"),
        (Any, {(1, 2): 3}, "not JSON"),
    ],
    ids=lambda it: "an object" if type(it) is object else str(it),
)
def test_writing_checks_what_a_function_returned(type_, value, told):
    if told is None:
        shape_of(type_).write(value)
        return
    with pytest.raises(Mismatch, match=told):
        shape_of(type_).write(value)


def test_a_circle_cannot_be_written():
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(Mismatch, match="too deeply"):
        shape_of(list[Any]).write(circle)


def test_what_fits_the_schema_may_be_written_whatever_its_class():
    assert shape_of(Person).write({"name": "a", "address": Address("b", "12345")}) == {
        "name": "a",
        "address": {"street": "b", "zip": "12345"},
    }
    assert shape_of(int).write(3.0) == 3.0
    assert shape_of(dict[int, int]).write({1: 2}) == {"1": 2}


def test_an_output_promises_no_offset_for_naive_times():
    assert shape_of(dt.datetime, output=True).schema == {"type": "string"}
    aware = Annotated[dt.datetime, msgspec.Meta(tz=True)]
    assert shape_of(aware, output=True).schema == {"type": "string", "format": "date-time"}
    assert shape_of(dt.datetime, output=True).write(dt.datetime(2026, 1, 1)) == "2026-01-01T00:00:00"  # noqa: DTZ001
