"""Types as forms: the restricted schema that the protocol allows, and the typed value of an answer."""

import datetime as dt
import enum
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Union, cast

import msgspec
from msgspec.structs import replace

from antiphon.shapes.annotations import peeled, remembered, type_name
from antiphon.shapes.constraints import Facets, facets_of, integral, keywords
from antiphon.shapes.form_fields import checked_definition, read_value
from antiphon.shapes.mismatch import Mismatch, quoted
from antiphon.shapes.records import (
    MISSING,
    Field,
    Record,
    is_foreign,
    is_model,
    read_foreign,
    record_of,
    schema_of_foreign,
)
from antiphon.shapes.schema_trees import Schema, is_object
from antiphon.shapes.translation import ARRAYS, builtins_of


class Several:
    """A choice of several options: strings, pairs of value and title, an Enum or a Literal of strings."""

    __slots__ = ("at_least", "at_most", "options")

    def __init__(self, options: object, *, at_least: int | None = None, at_most: int | None = None) -> None:
        self.options = options
        self.at_least = at_least
        self.at_most = at_most

    def __repr__(self) -> str:
        return f"Several({self.options!r}, at_least={self.at_least}, at_most={self.at_most})"


def _same(value: Any) -> Any:
    return value


class FormField(msgspec.Struct, frozen=True):
    """A field of a form: its name in the built value and on the wire, its definition, and its converter."""

    name: str
    wire: str
    schema: Schema
    convert: Callable[[Any], object] = _same
    required: bool = True
    nullable: bool = False


class Kind(msgspec.Struct, frozen=True):
    """A type that a field can have: its bare definition, and how its values are converted from and to JSON."""

    schema: Schema
    convert: Callable[[Any], object] = _same
    revert: Callable[[Any], object] = builtins_of
    takes: frozenset[str] = frozenset()


_BOUNDS = frozenset({"gt", "ge", "lt", "le"})
_LENGTHS = frozenset({"min_length", "max_length"})
_KINDS: dict[Any, Kind] = {
    bool: Kind({"type": "boolean"}),
    str: Kind({"type": "string"}, takes=_LENGTHS | {"format"}),
    int: Kind({"type": "integer"}, takes=_BOUNDS),
    float: Kind({"type": "number"}, float, takes=frozenset({"ge", "le"})),
    dt.date: Kind({"type": "string", "format": "date"}, dt.date.fromisoformat),
    dt.datetime: Kind(
        {"type": "string", "format": "date-time"},
        lambda text: dt.datetime.fromisoformat(text.upper()),
    ),
}
_MANY: dict[Any, Callable[[list[Any]], object]] = {**ARRAYS, tuple: tuple}
_WORDS = {
    "pattern": "a pattern",
    "multiple_of": "'multiple of'",
    "gt": "'greater than': use 'at least' (ge)",
    "lt": "'less than': use 'at most' (le)",
}


def field_of(item: Field) -> FormField:
    """Return the field of a form for one of a record; raise TypeError naming it if a form cannot have such a field."""
    wire, default = item.wire, item.plain()
    inner, metadata, nullable = opened(item.annotation)
    facets = facets_of(metadata)
    kind = _kind(inner)
    if kind is None:
        raise TypeError(f"form field '{wire}': a form cannot ask for {_told(inner)}")
    schema = {**kind.schema, **_limits(wire, kind, facets)}
    schema |= {key: facets.notes[key] for key in ("title", "description") if key in facets.notes}
    if default is not MISSING and default is not None:
        schema["default"] = kind.revert(default)
    definition = checked_definition(wire, schema)
    required = item.required and not nullable
    return FormField(item.name, wire, definition, kind.convert, required=required, nullable=nullable)


def opened(annotation: Any) -> tuple[Any, tuple[object, ...], bool]:
    """Return the type inside the wrappers, their metadata, and whether None is allowed as well."""
    inner, metadata = peeled(annotation)
    if typing.get_origin(inner) not in {Union, types.UnionType}:
        return inner, metadata, False
    members = [member for member in typing.get_args(inner) if member is not type(None)]
    nullable = len(members) < len(typing.get_args(inner))
    if len(members) == 1:
        within, more, _ = opened(members[0])
        return within, (*more, *metadata), nullable
    if all(typing.get_origin(peeled(member)[0]) is Literal for member in members):
        values = tuple(value for member in members for value in typing.get_args(peeled(member)[0]))
        return Literal[values], metadata, nullable
    return inner, metadata, nullable


def _told(type_: Any) -> str:
    if record_of(type_) is not None:
        return f"{type_name(type_)}: it is flat, classes do not nest"
    return type_name(type_) if not isinstance(type_, list | tuple) else "an empty or mixed list of options"


def _limits(wire: str, kind: Kind, facets: Facets) -> Schema:
    limits = dict(facets.limits)
    for key in limits.keys() - kind.takes:
        raise TypeError(f"form field '{wire}': a form cannot say {_WORDS.get(key, repr(key))} for this field")
    if kind.schema["type"] == "integer":
        limits = integral(limits)
        # For integers, "greater than 0" is "at least 1".
        if "gt" in limits:
            limits["ge"] = limits.pop("gt") + 1
        if "lt" in limits:
            limits["le"] = limits.pop("lt") - 1
    return keywords(kind.schema, limits)


def _kind(type_: Any) -> Kind | None:
    if isinstance(type_, Several):
        return _several(type_)
    if isinstance(type_, list | tuple) or _is_choice(type_):
        return _one_of(type_)
    origin = typing.get_origin(type_)
    arguments = typing.get_args(type_)
    if origin in _MANY and (origin is not tuple or arguments[1:] == (...,)):
        inner, _, nullable = opened(arguments[0])
        return _many_of(inner, _MANY[origin]) if _is_choice(inner) and not nullable else None
    if isinstance(type_, type) and type_ in _KINDS:
        return _KINDS[type_]
    if is_foreign(type_) and record_of(type_) is None:
        return Kind(schema_of_foreign(type_, output=False), lambda value: read_foreign(type_, value))
    return None


def _is_choice(type_: Any) -> bool:
    return typing.get_origin(type_) is Literal or (isinstance(type_, type) and issubclass(type_, enum.Enum))


# --- choices ---


class Choice(msgspec.Struct, frozen=True):
    """Options: their values on the wire, their titles (if any), and the Python values they stand for."""

    values: list[Any]
    titles: list[str] | None
    meanings: list[Any]

    def titled(self) -> list[Schema]:
        return [{"const": value, "title": title} for value, title in zip(self.values, self.titles or (), strict=True)]

    def convert(self, value: str) -> object:
        return self.meanings[self.values.index(value)]

    def revert(self, meaning: object) -> object:
        return self.values[self.meanings.index(meaning)] if meaning in self.meanings else meaning


def _choice(options: Any) -> Choice | None:
    if typing.get_origin(options) is Literal:
        values = list(typing.get_args(options))
        return Choice(values, None, values)
    if isinstance(options, type) and issubclass(options, enum.Enum):
        return _members(options)
    given: list[Any] = list(cast("Any", options)) if isinstance(options, list | tuple) else []
    if given and all(isinstance(option, str) for option in given):
        return Choice(given, None, given)
    if given and all(_is_pair(option) for option in given):
        values = [value for value, _ in given]
        return Choice(values, [title for _, title in given], values)
    return None


def _is_pair(option: Any) -> bool:
    return (
        isinstance(option, tuple | list) and [isinstance(part, str) for part in cast("list[Any]", option)] == [True] * 2
    )


def _members(cls: type[enum.Enum]) -> Choice:
    """Return an Enum's members: by value if all values are strings, else by name; titled by their names."""
    members = list(cls)
    by_value = all(isinstance(member.value, str) for member in members)
    return Choice(
        [str(member.value) if by_value else member.name for member in members],
        [member.name.replace("_", " ").strip().title() for member in members],
        members,
    )


def _one_of(options: Any) -> Kind | None:
    choice = _choice(options)
    if choice is None:
        return None
    said: Schema = {"enum": choice.values} if choice.titles is None else {"oneOf": choice.titled()}
    return Kind({"type": "string", **said}, choice.convert, choice.revert)


def _many_of(options: Any, container: Callable[[list[Any]], object]) -> Kind | None:
    choice = _choice(options)
    if choice is None:
        return None
    items: Schema = {"type": "string", "enum": choice.values} if choice.titles is None else {"anyOf": choice.titled()}

    def convert(values: list[str]) -> object:
        return container([choice.convert(value) for value in values])

    def revert(meanings: Iterable[object]) -> object:
        chosen = [choice.revert(meaning) for meaning in meanings]
        return sorted(chosen, key=choice.values.index) if set(chosen) <= set(choice.values) else chosen

    return Kind({"type": "array", "items": items}, convert, revert, _LENGTHS)


def _several(several: Several) -> Kind | None:
    kind = _many_of(several.options, list)
    counts = {"min_length": several.at_least, "max_length": several.at_most}
    limits = {key: value for key, value in counts.items() if value is not None}
    return kind and replace(kind, schema={**kind.schema, **keywords(kind.schema, limits)})


# --- forms ---


class Form:
    """A question (`schema`, the protocol's requestedSchema) and the reader of its answer."""

    __slots__ = ("_build", "_fields", "_only", "name", "schema", "stamp")

    def __init__(
        self, name: str, fields: Sequence[FormField], build: Callable[[dict[str, Any]], object], *, bare: bool = False
    ) -> None:
        self.name = name
        self._fields = tuple(fields)
        self._only = fields[0] if bare else None
        """The one field whose value is the form's value."""
        self._build = build
        self.stamp: bytes | None = None
        """A digest of the schema, filled in by `rounds.ask` when needed."""
        properties = {item.wire: item.schema for item in fields}
        self.schema: dict[str, object] = {"type": "object", "properties": properties}
        if required := [item.wire for item in fields if item.required]:
            self.schema["required"] = required

    def __repr__(self) -> str:
        return f"Form({self.name!r}: {', '.join(item.wire for item in self._fields)})"

    def read(self, content: object) -> Any:
        """Return the typed value of an accepted answer's content; raise Mismatch if it is not valid."""
        values = {item.name: _converted(item, value) for item, value in self._answered(content)}
        try:
            return self._build(values)
        except Mismatch:
            raise
        except (TypeError, ValueError) as problem:  # from a class's own checks
            raise Mismatch(str(problem)) from problem

    def recall(self, content: Mapping[str, object]) -> Any:
        """Return the typed value of a content that `read` has accepted before: converted, not checked again."""
        only = self._only
        if only is not None:
            value = content.get(only.wire)
            return None if value is None else only.convert(value)
        return self._build(
            {item.name: item.convert(content[item.wire]) for item in self._fields if content.get(item.wire) is not None}
        )

    def fill(self, content: Mapping[str, object]) -> dict[str, object]:
        """Return the content with defaults for absent fields, as sent; raise Mismatch if it is not valid."""
        defaults = {item.wire: item.schema["default"] for item in self._fields if "default" in item.schema}
        return {item.wire: value for item, value in self._answered({**defaults, **content})}

    def _answered(self, content: object) -> list[tuple[FormField, Any]]:
        """Return the answered fields, checked, in the form's order."""
        if not isinstance(content, Mapping):
            raise Mismatch(f"expected an object with the form's fields, got {quoted(content)}")
        answered: list[tuple[FormField, Any]] = []
        given = cast("Mapping[str, object]", content)
        for item in self._fields:
            value = given.get(item.wire, MISSING)
            if value is MISSING or (value is None and item.nullable):
                if item.required:
                    raise Mismatch(f"missing required field '{item.wire}'")
                continue
            try:
                answered.append((item, read_value(item.schema, value)))
            except Mismatch as problem:
                raise problem.within(item.wire) from None
        return answered


def _converted(item: FormField, value: object) -> object:
    try:
        return item.convert(value)
    except Mismatch as problem:
        raise problem.within(item.wire) from None


@remembered
def form_of(shape: Any, *, field: str = "value") -> Form:
    """Return the form that asks for a shape; raise TypeError naming the field if a form cannot ask for it.

    A scalar, an enum or a list of options becomes one field called `field`.
    """
    if is_object(shape):
        return _raw(shape, field)
    inner, _, _ = opened(shape)
    record = record_of(inner)
    if record is not None:
        return _record(record)
    name = _snake(inner.__name__) if isinstance(inner, type) and issubclass(inner, enum.Enum) else field
    only = field_of(Field(name=field, wire=field, annotation=shape, required=True))
    return Form(name, [only], lambda values: values.get(field), bare=True)


def _record(record: Record) -> Form:
    fields = [field_of(field) for field in record.fields]
    wires = {item.name: item.wire for item in fields}

    def build(values: dict[str, Any]) -> object:
        # A field that may be None need not be answered, even if the class requires it.
        absent = dict.fromkeys(field.name for field in record.fields if field.required and field.name not in values)
        return record.build(**absent, **values)

    def build_model(values: dict[str, Any]) -> object:
        return read_foreign(record.cls, {wires[name]: value for name, value in values.items()})

    return Form(_snake(record.cls.__name__), fields, build_model if is_model(record.cls) else build)


_IGNORED = frozenset({"title", "description", "additionalProperties"})  # without effect on the root of a form


def _raw(schema: dict[str, Any], field: str) -> Form:
    """Return the form of a requestedSchema; raise TypeError if it is not one."""
    properties = schema.get("properties")
    if schema.get("type") != "object" or not is_object(properties):
        raise TypeError("a form's schema has type 'object' and properties")
    for key in schema.keys() - _IGNORED - {"$schema", "type", "properties", "required"}:
        raise TypeError(f"a form cannot say {key!r}")
    required = schema.get("required", [])
    for name in set(required) - properties.keys():
        raise TypeError(f"form field {name!r} is required but not among the properties")
    fields = [
        FormField(name, name, checked_definition(name, definition), required=name in required)
        for name, definition in properties.items()
    ]

    def build(values: dict[str, Any]) -> object:
        defaults = {item.wire: item.schema["default"] for item in fields if "default" in item.schema}
        return {name: {**defaults, **values}[name] for name in properties if name in values or name in defaults}

    title = schema.get("title")
    form = Form(_snake(title) if isinstance(title, str) and title.isidentifier() else field, fields, build)
    if "$schema" in schema:
        form.schema["$schema"] = schema["$schema"]
    return form


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
