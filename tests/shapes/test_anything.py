"""Any type against any JSON value."""

import datetime as dt
import decimal
import enum
import json
import uuid
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict

import annotated_types as at
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from pydantic import BaseModel

from antiphon.shapes import Email, Mismatch, Shape, shape_of, signature_of
from examples import examples


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Pair(NamedTuple):
    left: int
    right: str = "r"


class Bag(TypedDict):
    a: int
    b: NotRequired[list[str]]


class Record(msgspec.Struct, forbid_unknown_fields=True):
    a: int = 0
    c: Annotated[str, at.MaxLen(3)] = ""


class Model(BaseModel):
    a: int
    b: list[str] = []


@dataclass
class Tree:
    a: Annotated[int, at.Ge(0)]
    b: dict[str, "Tree"] = field(default_factory=dict)
    c: Optional["Tree"] = None


SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
    dt.date: st.dates().map(dt.date.isoformat),
    dt.datetime: st.datetimes().map(dt.datetime.isoformat),
    uuid.UUID: st.uuids().map(str),
    bytes: st.just("aGk="),
    Colour: st.sampled_from(["red", "blue"]),
    Literal["a", "b"]: st.sampled_from(["a", "b"]),
    Annotated[int, at.Ge(3)]: st.integers(3),
    Email: st.just("a@b.example"),
    Pair: st.tuples(st.integers(), st.just("x")).map(list),
    Bag: st.fixed_dictionaries({"a": st.integers()}, optional={"b": st.lists(st.just("x"), max_size=2)}),
    Record: st.fixed_dictionaries({"a": st.integers(), "c": st.just("x")}),
    Model: st.fixed_dictionaries({"a": st.integers(-9, 9), "b": st.just(["x"])}),
    Tree: st.builds(lambda a, c: {"a": a, "b": {"k": {"a": a, "b": {}, "c": None}}, "c": c},
                    st.integers(0), st.none() | st.just({"a": 1, "b": {}, "c": None})),
}  # fmt: skip


def containers(inner):
    """Types with values inside them, each with valid values for it."""

    def record(parts):
        names = [f"f{number}" for number in range(len(parts))]
        made = make_dataclass("Made", [(name, type_) for name, (type_, _) in zip(names, parts, strict=True)])
        values = {name: values for name, (_, values) in zip(names, parts, strict=True)}
        return made, st.fixed_dictionaries(values)

    return st.one_of(
        inner.map(lambda part: (list[part[0]], st.lists(part[1], max_size=3))),
        inner.map(lambda part: (dict[str, part[0]], st.dictionaries(SCALARS[str], part[1], max_size=3))),
        inner.map(lambda part: (Optional[part[0]], st.none() | part[1])),
        st.tuples(inner, inner).map(
            lambda both: (tuple[both[0][0], both[1][0]], st.tuples(both[0][1], both[1][1]).map(list))
        ),
        st.lists(inner, max_size=3).map(record),
    )


typed = st.recursive(st.sampled_from(list(SCALARS.items())), containers, max_leaves=5)
names = st.sampled_from(["a", "b", "c", "f0", "f1", "f2"])
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["red", "2026-07-28", "1e400", "9" * 5000, "null", "x - at `$.a`", "`key` in `$`"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names | st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


def reads_or_mismatches(shape: Shape, value, *, lax):
    try:
        shape.read(value, lax=lax)
    except Mismatch as problem:
        assert str(problem)
        assert len(str(problem)) < 5000


@examples(250)
@given(typed, anything, st.booleans())
def test_reading_anything_gives_a_value_or_a_mismatch(part, value, lax):
    reads_or_mismatches(shape_of(part[0]), value, lax=lax)


@examples(150)
@given(typed, typed, anything)
def test_unions_too(one, other, value):
    reads_or_mismatches(shape_of(one[0] | other[0] | decimal.Decimal), value, lax=False)


@examples(250)
@given(st.data(), typed)
def test_valid_data_round_trips_and_fits_the_schema(data, part):
    type_, values = part
    wire = data.draw(values)
    shape = shape_of(type_)
    read = shape.read(wire)
    written = shape.write(read)
    assert shape.read(written) == read
    assert shape.write(shape.read(written)) == written
    validator = Draft202012Validator(shape.schema)
    assert validator.is_valid(wire)
    assert validator.is_valid(written)
    assert json.loads(json.dumps(shape.schema)) == shape.schema


@examples(150)
@given(typed, st.dictionaries(names, anything) | anything, st.booleans())
def test_arguments_too(part, arguments, lax):
    def f(a, b, c=1):
        """F."""

    f.__annotations__ = {"a": part[0], "b": int, "c": list[int]}
    signature = signature_of(f)
    try:
        signature.read(arguments, lax=lax)
    except Mismatch as problem:
        assert str(problem)
