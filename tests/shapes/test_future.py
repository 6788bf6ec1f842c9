"""Functions and classes whose annotations are all strings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NotRequired, TypedDict

import annotated_types as at
import msgspec

from antiphon.shapes import form_of, shape_of, signature_of


class Named(TypedDict):
    name: Annotated[str, at.MinLen(1)]
    age: NotRequired[int]


class Counted(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=0)] = 0


def test_module_level_names_are_resolved():
    def f(a: Named, b: Counted | None = None) -> list[Named]:
        """F."""

    assert signature_of(f).read({"a": {"name": "x"}, "b": {"count": 1}}) == {"a": {"name": "x"}, "b": Counted(1)}
    assert shape_of(Named).schema["required"] == ["name"]
    assert form_of(Named).schema["required"] == ["name"]


def test_local_names_are_resolved_while_their_function_runs():
    @dataclass
    class Inner:
        x: Annotated[int, at.Ge(1)]

    @dataclass
    class Outer:
        inner: Inner
        others: list[Outer]

    def f(outer: Outer):
        """F."""

    value = {"inner": {"x": 1}, "others": [{"inner": {"x": 2}, "others": []}]}
    assert signature_of(f).read({"outer": value}) == {"outer": Outer(Inner(1), [Outer(Inner(2), [])])}
    assert form_of(Inner).read({"x": 3}) == Inner(3)
