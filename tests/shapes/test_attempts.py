"""Unions whose members must be tried one after the other take bounded time, whatever a peer sends."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pydantic
import pytest

from antiphon.shapes import Mismatch, shape_of, signature_of

MAX_ATTEMPTS = 3000
TOO_MANY = "too many values, or too deeply nested, for a union without tags"


@dataclass
class Circle:
    size: int


@dataclass
class Square:
    size: str


@dataclass
class Branch:
    parts: "list[Branch | Twig]"


@dataclass
class Twig:
    parts: "list[Branch | Twig]"
    length: int = 0


class And(pydantic.BaseModel):
    op: Literal["and"]
    parts: "list[And | Or]"


class Or(pydantic.BaseModel):
    op: Literal["or"]
    parts: "list[And | Or]"


class All(pydantic.BaseModel):
    op: Literal["all"]
    parts: "list[Annotated[All | Some, pydantic.Field(discriminator='op')]]"


class Some(pydantic.BaseModel):
    op: Literal["some"]
    parts: "list[Annotated[All | Some, pydantic.Field(discriminator='op')]]"


class Json(pydantic.BaseModel):
    value: "dict[str, Json] | list[Json] | int"


class Linked(pydantic.BaseModel):
    next: "Linked | None" = None


@pytest.fixture(autouse=True)
def few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon.shapes.readers.MAX_ATTEMPTS", MAX_ATTEMPTS)


def nested(depth: int, **more: object) -> Any:
    value: dict[str, Any] = {**more, "parts": []}
    for _ in range(depth):
        value = {**more, "parts": [value]}
    return value


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (list[Circle | Square], [{"size": "x"}] * MAX_ATTEMPTS),
        (list[datetime | UUID | Decimal | str], ["x"] * MAX_ATTEMPTS),
        (list[list[Circle] | list[Square]], [[{"size": 1.0}]] * MAX_ATTEMPTS),
        (Branch | Twig, {"parts": [{"parts": []}] * MAX_ATTEMPTS}),
        (And, nested(50, op="and")),
        (And | Or, nested(50, op="or")),
        (And, {"op": "and", "parts": [nested(10, op="and")] * 100}),
        (list[And], [nested(10, op="and")] * 100),
    ],
)
def test_a_value_that_takes_too_many_attempts_is_refused(type_, value):
    with pytest.raises(Mismatch, match=TOO_MANY):
        shape_of(type_).read(value)

    def tool(given):
        pass

    tool.__annotations__["given"] = type_
    with pytest.raises(Mismatch, match=TOO_MANY):
        signature_of(tool).read({"given": value})


def test_each_reading_has_its_own_attempts():
    shape = shape_of(list[Circle | Square])
    for _ in range(5):
        assert len(shape.read([{"size": 1}] * 1000)) == 1000


def test_values_that_a_handler_returns_are_not_limited():
    shape = shape_of(list[Circle | Square])
    assert len(shape.write([Square("x")] * MAX_ATTEMPTS)) == MAX_ATTEMPTS


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (All, nested(31, op="all")),
        (Branch | Twig, nested(31)),
        (And, nested(8, op="and")),
        (Json, {"value": [{"value": {"a": {"value": [{"value": 1}] * 1000}}}] * 50}),
    ],
)
def test_what_does_not_multiply_is_read_at_any_depth(type_, value):
    assert shape_of(type_).read(value) is not None


def test_a_link_that_may_be_none_is_read_at_any_depth():
    value: Any = None
    for _ in range(60):
        value = {"next": value}
    assert shape_of(Linked).read(value).next is not None


def test_a_wrong_value_deep_in_a_tree_of_unions_is_told_at_once():
    def tree(depth: int) -> Any:
        return {"parts": [tree(depth - 1), tree(depth - 1)] if depth else "x"}

    with pytest.raises(Mismatch, match="fits none of Branch, Twig") as caught:
        shape_of(Branch | Twig).read(tree(12))
    assert len(str(caught.value)) < 2000


def test_a_member_that_cannot_take_the_value_is_not_tried():
    assert shape_of(list[Circle | Square | str]).read(["x"] * (MAX_ATTEMPTS - 1))


def test_thousands_of_errors_of_pydantic_are_counted_and_not_listed():
    class Numbers(pydantic.BaseModel):
        numbers: list[int]

    with pytest.raises(Mismatch, match="does not fit in 20000 places"):
        shape_of(Numbers).read({"numbers": ["x"] * 20_000})
    with pytest.raises(Mismatch, match=r"'numbers\[0\]': .* \(and 8 more\)"):
        shape_of(Numbers).read({"numbers": ["x"] * 9})
