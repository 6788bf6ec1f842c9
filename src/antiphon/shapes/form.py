"""Types as forms: the protocol's restricted schema, and the typed value of an answer."""

import enum
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from antiphon.shapes.entry import Entry, Several, entry_of, opened
from antiphon.shapes.foreign import is_model, read_foreign
from antiphon.shapes.mismatch import Mismatch, quoted
from antiphon.shapes.records import MISSING, Record, record_of
from antiphon.shapes.restricted import checked_definition, read_value
from antiphon.shapes.values import is_object

__all__ = ["Form", "Several", "form_of"]


class Form:
    """What is asked (`schema`, the protocol's requestedSchema) and what an answer means."""

    __slots__ = ("_build", "_entries", "_only", "name", "schema", "stamp")

    def __init__(
        self, name: str, entries: Sequence[Entry], build: Callable[[dict[str, Any]], object], *, bare: bool = False
    ) -> None:
        self.name = name
        self._entries = tuple(entries)
        self._only = entries[0] if bare else None
        """The one field whose value is the form's, without anything around it."""
        self._build = build
        self.stamp: bytes | None = None
        """Room for a digest of the schema, made by whoever needs one."""
        properties = {entry.wire: entry.schema for entry in entries}
        self.schema: dict[str, object] = {"type": "object", "properties": properties}
        if required := [entry.wire for entry in entries if entry.required]:
            self.schema["required"] = required

    def __repr__(self) -> str:
        return f"Form({self.name!r}: {', '.join(entry.wire for entry in self._entries)})"

    def read(self, content: object) -> Any:
        """The typed value of an accepted answer's content; Mismatch when the answer is not valid."""
        values = {entry.name: _converted(entry, value) for entry, value in self._answered(content)}
        try:
            return self._build(values)
        except Mismatch:
            raise
        except (TypeError, ValueError) as problem:  # what a class's own checks have to say
            raise Mismatch(str(problem)) from problem

    def recall(self, content: Mapping[str, object]) -> Any:
        """The typed value of a content that was read before, under the same schema: converted, not checked again."""
        only = self._only
        if only is not None:
            value = content.get(only.wire)
            return None if value is None else only.convert(value)
        return self._build(
            {
                entry.name: entry.convert(content[entry.wire])
                for entry in self._entries
                if content.get(entry.wire) is not None
            }
        )

    def fill(self, content: Mapping[str, object]) -> dict[str, object]:
        """The content with defaults for what is absent, as it goes on the wire; Mismatch when it is not valid."""
        defaults = {entry.wire: entry.schema["default"] for entry in self._entries if "default" in entry.schema}
        return {entry.wire: value for entry, value in self._answered({**defaults, **content})}

    def _answered(self, content: object) -> list[tuple[Entry, Any]]:
        """The fields that were answered, checked, in the form's order."""
        if not isinstance(content, Mapping):
            raise Mismatch(f"expected an object with the form's fields, got {quoted(content)}")
        answered: list[tuple[Entry, Any]] = []
        given = cast("Mapping[str, object]", content)
        for entry in self._entries:
            value = given.get(entry.wire, MISSING)
            if value is MISSING or (value is None and entry.nullable):
                if entry.required:
                    raise Mismatch(f"missing required field '{entry.wire}'")
                continue
            try:
                answered.append((entry, read_value(entry.schema, value)))
            except Mismatch as problem:
                raise problem.within(entry.wire) from None
        return answered


def _converted(entry: Entry, value: object) -> object:
    try:
        return entry.convert(value)
    except Mismatch as problem:
        raise problem.within(entry.wire) from None


def form_of(shape: object, *, field: str = "value") -> Form:
    """The form that asks for a shape; TypeError naming the field when a form cannot ask for it.

    A scalar, an enum or a list of options becomes one field called `field`.
    """
    if isinstance(shape, type):
        return _of_class(shape, field)
    try:
        hash(shape)
    except TypeError:
        return _form(shape, field)
    # The text is part of the key: Literal["a", "b"] equals Literal["b", "a"], but its options are in another order.
    return _known(shape, repr(shape), field)


@functools.lru_cache(maxsize=1024)
def _of_class(shape: type, field: str) -> Form:
    return _form(shape, field)


@functools.lru_cache(maxsize=1024)
def _known(shape: object, _text: str, field: str) -> Form:
    return _form(shape, field)


def _form(shape: Any, field: str) -> Form:
    if is_object(shape):
        return _raw(shape, field)
    inner, _, _ = opened(shape)
    record = record_of(inner)
    if record is not None:
        return _record(record)
    name = _snake(inner.__name__) if isinstance(inner, type) and issubclass(inner, enum.Enum) else field
    return Form(name, [entry_of(field, shape)], lambda values: values.get(field), bare=True)


def _record(record: Record) -> Form:
    entries = [
        entry_of(field.name, field.annotation, wire=field.wire, required=field.required, default=field.plain())
        for field in record.fields
    ]
    wires = {entry.name: entry.wire for entry in entries}

    def build(values: dict[str, Any]) -> object:
        # A field that may be None need not be answered, even if the class insists on it.
        absent = dict.fromkeys(field.name for field in record.fields if field.required and field.name not in values)
        return record.build(**absent, **values)

    def build_model(values: dict[str, Any]) -> object:
        return read_foreign(record.cls, {wires[name]: value for name, value in values.items()})

    return Form(_snake(record.cls.__name__), entries, build_model if is_model(record.cls) else build)


_IDLE = frozenset({"title", "description", "additionalProperties"})  # on the root they change nothing in a form


def _raw(schema: dict[str, Any], field: str) -> Form:
    """A requestedSchema as it came, if it is one."""
    properties = schema.get("properties")
    if schema.get("type") != "object" or not is_object(properties):
        raise TypeError("a form's schema has type 'object' and properties")
    for key in schema.keys() - _IDLE - {"$schema", "type", "properties", "required"}:
        raise TypeError(f"a form cannot say {key!r}")
    required = schema.get("required", [])
    for name in set(required) - properties.keys():
        raise TypeError(f"form field {name!r} is required but not among the properties")
    entries = [
        Entry(name, name, checked_definition(name, definition), required=name in required)
        for name, definition in properties.items()
    ]

    def build(values: dict[str, Any]) -> object:
        defaults = {entry.wire: entry.schema["default"] for entry in entries if "default" in entry.schema}
        return {name: {**defaults, **values}[name] for name in properties if name in values or name in defaults}

    title = schema.get("title")
    form = Form(_snake(title) if isinstance(title, str) and title.isidentifier() else field, entries, build)
    if "$schema" in schema:
        form.schema["$schema"] = schema["$schema"]
    return form


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
