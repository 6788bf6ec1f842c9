"""Translates a type into a type that msgspec can convert to, and into its JSON Schema."""

import collections.abc
import datetime as dt
import decimal
import enum
import inspect
import os
import pathlib
import types
import typing
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, Union, cast

import msgspec
from msgspec import Meta, UnsetType, ValidationError
from msgspec.structs import replace

from antiphon.shapes.annotations import peeled, type_name
from antiphon.shapes.constraints import (
    NUMERIC,
    SIZED,
    TEXTUAL,
    Facets,
    Format,
    facets_of,
    integral,
    keywords,
    problem_with,
    problem_with_limits,
)
from antiphon.shapes.mismatch import Mismatch, quoted
from antiphon.shapes.readers import (
    Alternative,
    Alternatives,
    Opaque,
    Read,
    TypeReader,
    opaque,
    read_by_pydantic,
    record_reader,
)
from antiphon.shapes.records import (
    MISSING,
    Field,
    Record,
    dumped,
    is_foreign,
    is_model,
    record_of,
    schema_of_foreign,
)
from antiphon.shapes.schema_trees import Definitions, Schema

T = TypeVar("T")


class Translation(msgspec.Struct, frozen=True):
    decode: Any  # what msgspec converts to
    schema: Schema
    native: bool = True  # msgspec would do the same if given the annotation itself
    keys: frozenset[str] | None = None  # the fields of a record, by which a union chooses


_SCALARS: dict[Any, Schema] = {
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    bytearray: {"type": "string", "contentEncoding": "base64"},
    dt.date: {"type": "string", "format": "date"},
    dt.timedelta: {"type": "string", "format": "duration"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"type": "string", "format": "decimal"},
}
# RFC 3339 requires an offset. In an input schema the format is a hint; in an output schema it would be a promise that
# naive values break.
_CLOCK: dict[Any, str] = {dt.datetime: "date-time", dt.time: "time"}
ARRAYS: dict[Any, Any] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    collections.abc.Sequence: list,
    collections.abc.MutableSequence: list,
    collections.abc.Set: set,
    collections.abc.MutableSet: set,
}
_OBJECTS = frozenset({dict, collections.abc.Mapping, collections.abc.MutableMapping})
# The limits msgspec enforces, by type.
_TAKES: dict[Any, frozenset[str]] = {
    int: NUMERIC,
    float: NUMERIC,
    str: TEXTUAL,
    **dict.fromkeys(_CLOCK, frozenset({"tz"})),
    **dict.fromkeys((bytes, bytearray, *ARRAYS, *_OBJECTS), SIZED),
}


def encoded(value: object) -> object:
    """Convert an object that msgspec cannot write: its `enc_hook`."""
    return os.fspath(value) if isinstance(value, pathlib.PurePath) else dumped(value)


def builtins_of(value: object) -> Any:
    """Return a value as JSON-able builtins, MISSING if that is not possible."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=encoded))
    except (TypeError, ValueError, NotImplementedError, RecursionError):
        return MISSING


def settled(translate: Callable[["Walk"], T], *, output: bool = False) -> tuple["Walk", T]:
    """Return a walk and what it translated; repeat it until msgspec takes all classes and unions it met."""
    beyond: set[object] = set()
    misfits: set[str] = set()
    while True:
        walk = Walk(beyond, misfits, output=output)
        try:
            translated = translate(walk)
        except RecursionError:
            raise TypeError("a type alias that holds itself cannot be expressed: use a class") from None
        if walk.beyond != beyond:
            beyond = walk.beyond
        elif found := walk.new_misfits():
            misfits |= found
        else:
            return walk, translated


def convertible(decode: Any) -> bool:
    """Return whether msgspec takes this as a type."""
    try:
        msgspec.convert(..., decode, dec_hook=_refused)
    except (ValidationError, NameError):  # another walk finds or reports the names
        return True
    except (TypeError, ValueError):
        return False
    return True


def _refused(_type: type, _value: object) -> object:
    raise ValueError


class Walk:
    """One pass over a type and the types inside it, which collects the definitions for its schema."""

    __slots__ = ("_misfits", "_output", "_records", "_unions", "beyond", "custom", "definitions", "foreign")

    def __init__(self, beyond: set[object], misfits: set[str], *, output: bool = False) -> None:
        self._output = output
        self._misfits = misfits  # the unions msgspec cannot convert to by itself
        self._unions: dict[str, Any] = {}
        self._records: dict[object, Translation] = {}
        self.definitions = Definitions()
        self.beyond = set(beyond)  # the record classes msgspec cannot convert to by itself
        self.custom = False  # reading needs the hooks
        self.foreign = False  # only the schema can tell whether a written value fits

    def translate(self, annotation: Any, *metadata: object) -> Translation:
        inner, found = peeled(annotation)
        facets = facets_of((*found, *metadata))
        if facets.needs_pydantic:
            part = self._by_pydantic(Annotated[inner, *found, *metadata])
        elif typing.get_origin(inner) in {Union, types.UnionType}:
            part = self._union(inner, facets)
        else:
            part = self._limited(inner, facets)
        return replace(part, schema=_noted(part.schema, facets.notes)) if facets.notes else part

    def _bare(self, type_: Any) -> Translation:
        origin = typing.get_origin(type_) or type_
        if type_ in (Any, object, inspect.Parameter.empty):
            return Translation(Any, {})
        if type_ is None:
            return Translation(type(None), {"type": "null"})
        if isinstance(type_, TypeVar):
            return self._variable(type_)
        if origin is Literal:
            return _literal(type_)
        if origin is tuple:
            return self._tuple(type_)
        if origin in _OBJECTS:
            return self._object(*(typing.get_args(type_) or (Any, Any)))
        if origin in ARRAYS:
            return self._array(origin, *(typing.get_args(type_) or (Any,)))
        if isinstance(origin, type):
            return self._class(type_, origin)
        raise TypeError(f"{type_name(type_)} cannot be expressed in JSON Schema")

    def _class(self, type_: Any, cls: Any) -> Translation:
        if cls in _SCALARS:
            return Translation(cls, dict(_SCALARS[cls]))
        if cls in _CLOCK:
            return Translation(cls, {"type": "string"} if self._output else {"type": "string", "format": _CLOCK[cls]})
        if issubclass(cls, enum.Enum):
            return self._enum(cls)
        if is_foreign(cls):
            return self._by_pydantic(cls)
        if issubclass(cls, pathlib.PurePath):
            return self._opaque(cls.__name__, _path_reader(cls), {"type": "string"})
        record = record_of(type_)
        if record is None:
            raise TypeError(
                f"{type_name(type_)} cannot be expressed in JSON Schema: use builtins, a dataclass, a TypedDict, "
                "a NamedTuple, an Enum, a msgspec Struct or a pydantic model"
            )
        return self._record(type_, record)

    def _variable(self, variable: TypeVar) -> Translation:
        if variable.__bound__ is None and not variable.__constraints__:
            return Translation(Any, {})
        stands_for: Any = variable.__bound__ or Union[variable.__constraints__]  # noqa: UP007 -- built at run time
        return replace(self.translate(stands_for), native=False)

    def _enum(self, cls: type[enum.Enum]) -> Translation:
        values: list[Any] = [member.value for member in cls]
        kind = str if all(isinstance(value, str) for value in values) else int
        if not values or not all(isinstance(value, kind) for value in values):
            raise TypeError(
                f"{cls.__qualname__} cannot be expressed in JSON Schema: "
                "the values of an Enum must be all strings or all integers"
            )
        name = self.definitions.claim(cls.__name__, cls)
        schema: Schema = {"type": _SCALARS[kind]["type"], "enum": values}
        doc = str(cls.__dict__.get("__doc__") or "")
        self.definitions[name] = {"description": inspect.cleandoc(doc), **schema} if doc else schema
        return Translation(cls, _pointer(name))

    def _array(self, origin: Any, item_type: Any) -> Translation:
        item = self.translate(item_type)
        schema: Schema = {"type": "array"}
        if item.schema:
            schema["items"] = item.schema
        kind = ARRAYS[origin]
        if kind is not list:
            schema["uniqueItems"] = True
        return Translation(
            types.GenericAlias(kind, (item.decode,)), schema, item.native and origin is not collections.abc.Iterable
        )

    def _tuple(self, type_: Any) -> Translation:
        arguments = typing.get_args(type_)
        if type_ is tuple or type_ is typing.Tuple or arguments[1:] == (...,):  # noqa: UP006 -- what a user may have written
            item = self.translate(arguments[0] if arguments else Any)
            schema: Schema = {"type": "array", "items": item.schema} if item.schema else {"type": "array"}
            return Translation(types.GenericAlias(tuple, (item.decode, ...)), schema, item.native)
        items = [self.translate(argument) for argument in arguments]
        schema = {"type": "array", "minItems": len(items), "maxItems": len(items)}
        if items:
            schema |= {"prefixItems": [item.schema for item in items], "items": False}
        decode = types.GenericAlias(tuple, tuple(item.decode for item in items))
        return Translation(decode, schema, all(item.native for item in items))

    def _object(self, key_type: Any, value_type: Any) -> Translation:
        key, value = self.translate(key_type), self.translate(value_type)
        if isinstance(key.decode, Opaque) or is_foreign(key.decode):
            raise TypeError(f"{type_name(key_type)} cannot be the key type of a dict")
        schema: Schema = {"type": "object"}
        names = {name: rule for name, rule in key.schema.items() if name != "type"}
        if key.schema.get("type") == "integer":
            names = {"pattern": "^-?[0-9]+$"}
        if names:
            schema["propertyNames"] = names
        if value.schema:
            schema["additionalProperties"] = value.schema
        decode = types.GenericAlias(dict, (key.decode, value.decode))
        return Translation(decode, schema, key.native and value.native)

    def _record(self, type_: Any, record: Record) -> Translation:
        if type_ in self._records:
            return self._records[type_]
        name = self.definitions.claim(type_name(type_).rpartition(".")[2], type_)
        tag = [record.tag[0]] if record.tag else []
        keys = frozenset([*tag, *(field.wire for field in record.fields)])
        beyond = type_ in self.beyond
        stand_in: Any = opaque(name) if beyond else type_
        # Entered before its fields are walked: a field may be of the same class.
        self._records[type_] = Translation(stand_in, _pointer(name), not beyond, keys)
        parts = [self._field(record, field) for field in record.fields]
        self.definitions[name] = _record_schema(record, parts)
        if not (record.plain and all(part.native for part in parts)):
            self.beyond.add(type_)
            self._records[type_] = replace(self._records[type_], native=False)
        if beyond:
            self.custom = True
            reads = [part.decode for part in parts]
            stand_in.bind(record_reader(record, reads, {**_pointer(name), **self.definitions.root}))
        return self._records[type_]

    def _field(self, record: Record, field: Field) -> Translation:
        try:
            return self.translate(field.annotation)
        except TypeError as problem:
            raise TypeError(f"{record.cls.__qualname__}.{field.name}: {problem}") from problem

    def _by_pydantic(self, type_: Any) -> Translation:
        self.custom = self.foreign = True
        schema = schema_of_foreign(type_, output=self._output)
        if not is_model(type_):
            return self._opaque("pydantic", partial(read_by_pydantic, type_), self.definitions.adopt(schema))
        if "$ref" not in schema:
            name = type_.__name__
            body = {key: value for key, value in schema.items() if key != "$defs"}
            schema = {**_pointer(name), "$defs": {**schema.get("$defs", {}), name: body}}
        return Translation(type_, self.definitions.adopt(schema))

    def _union(self, type_: Any, facets: Facets) -> Translation:
        """Give each member the limits that apply to it, as in `Annotated[int | None, Ge(1)]`."""
        members = typing.get_args(type_)
        takes = [_TAKES.get(_origin(member), frozenset[str]()) for member in members]
        parts = [self._member(member, facets.limits, taken) for member, taken in zip(members, takes, strict=True)]
        shown = [part.schema for part in parts if part.decode is not UnsetType]
        schema = {"anyOf": shown} if len(shown) > 1 else shown[0]
        key = repr((type_, facets.limits))
        if key in self._misfits:
            whole = self._opaque("Union", self._alternatives(members, parts).read, schema)
        else:
            self._unions[key] = cast("Any", Union)[tuple(part.decode for part in parts)]
            whole = Translation(self._unions[key], schema, all(part.native for part in parts) and not facets.limits)
        left = {key: value for key, value in facets.limits.items() if not any(key in taken for taken in takes)}
        return self._checked(type_, whole, left) if left else whole

    def new_misfits(self) -> set[str]:
        """Return the unions met that msgspec cannot convert to; those that would crash it are not tried."""
        unsafe = {key for key, decode in self._unions.items() if not _is_safe(decode)}
        return unsafe or {key for key, decode in self._unions.items() if not convertible(decode)}

    def _member(self, member: Any, limits: dict[str, Any], takes: frozenset[str]) -> Translation:
        if member is UnsetType:
            return Translation(UnsetType, {})
        taken = {key: value for key, value in limits.items() if key in takes}
        if not taken:
            return self.translate(member)
        name = taken.pop("format", None)
        return self.translate(member, types.SimpleNamespace(**taken), *(() if name is None else (Format(name),)))

    def _alternatives(self, members: tuple[Any, ...], parts: list[Translation]) -> Alternatives:
        return Alternatives([
            Alternative(type_name(member), _origin(member), part.keys, self._reader(part))
            for member, part in zip(members, parts, strict=True)
        ])  # fmt: skip

    def _opaque(self, name: str, read: Read, schema: Schema) -> Translation:
        self.custom = True
        return Translation(opaque(name, read), schema, native=False)

    def _reader(self, part: Translation) -> TypeReader:
        return TypeReader(part.decode, {**part.schema, **self.definitions.root})

    def _limited(self, type_: Any, facets: Facets) -> Translation:
        """Translate a type with its limits: enforced by msgspec where it can, else by `_checked`."""
        whole = self._bare(type_)
        if not facets.limits:
            return whole
        origin = _origin(type_)
        takes = SIZED if origin is tuple and "prefixItems" not in whole.schema else _TAKES.get(origin, frozenset())
        limits = integral(facets.limits) if origin is int else facets.limits
        schema = {**whole.schema, **keywords(whole.schema, limits)}
        taken = {key: value for key, value in limits.items() if key in takes and key != "format"}
        if origin is int and any(abs(limit) >= 2**63 for limit in taken.values()):  # msgspec counts in 64 bits
            taken = {}
        decode: Any = Annotated[whole.decode, Meta(**taken)] if taken else whole.decode
        left = {key: value for key, value in limits.items() if key not in taken}
        part = Translation(decode, schema, whole.native and facets.native, whole.keys)
        return self._checked(type_, part, left) if left else part

    def _checked(self, type_: Any, part: Translation, limits: dict[str, Any]) -> Translation:
        """Check the limits that msgspec does not know after it has converted."""
        for key in ("pattern", "tz", "format"):
            if key in limits and (key == "tz" or _origin(type_) is not str):
                raise TypeError(f"{type_name(type_)} cannot have a {key}")
        read = self._reader(part).attempt
        name = limits.get("format")

        def checked(value: object, lax: bool) -> object:
            made = read(value, lax)
            if made is not None and (problem := problem_with_limits(made, limits)):
                raise Mismatch(problem)
            if name is not None and isinstance(made, str) and (problem := problem_with(name, made)):
                raise Mismatch(f"{problem}, got {quoted(made)}")
            return made

        return self._opaque(type_name(type_), checked, part.schema)


def _origin(annotation: Any) -> Any:
    inner, _ = peeled(annotation)
    return typing.get_origin(inner) or inner


def _is_safe(union: Any) -> bool:
    """Return whether msgspec survives the union: limits on one of two members other than None corrupt its memory.

    Seen with msgspec 0.22.0: `Annotated[int, Meta(ge=3)] | tuple[int, int]` and
    `Annotated[str, Meta(pattern="x")] | list[int]` end the process, sooner or later.
    """
    members = [member for member in typing.get_args(union) if member is not type(None)]
    return len(members) < 2 or not any(typing.get_origin(member) is Annotated for member in members)


def _pointer(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _literal(type_: Any) -> Translation:
    values: list[Any] = list(typing.get_args(type_))
    names = {_SCALARS[value.__class__]["type"] for value in values if value.__class__ in _SCALARS}
    said: Schema = {"type": names.pop()} if len(names) == 1 else {}
    return Translation(type_, {**said, "enum": values})


def _path_reader(cls: type[pathlib.PurePath]) -> Read:
    def read(value: object, _lax: bool) -> object:
        if not isinstance(value, str):
            raise Mismatch(f"expected str, got {quoted(value)}")
        return cls(value)

    return read


def _record_schema(record: Record, parts: list[Translation]) -> Schema:
    schema: Schema = {"description": record.description} if record.description else {}
    if record.as_array:
        shown = [_with_default(part.schema, field.plain()) for field, part in zip(record.fields, parts, strict=True)]
        first = [{"const": record.tag[1]}] if record.tag else []
        least = len(first) + sum(field.required for field in record.fields)
        schema |= {"type": "array", "prefixItems": [*first, *shown], "minItems": least}
        return {**schema, "items": False} if record.closed or issubclass(record.cls, tuple) else schema
    schema |= object_schema(record.fields, parts, record.tag)
    return {**schema, "additionalProperties": False} if record.closed else schema


def object_schema(
    fields: Iterable[Field], parts: Iterable[Translation], tag: tuple[str, str | int] | None = None
) -> Schema:
    """Return the schema of an object with these fields, and with a tag if it has one."""
    properties = {
        field.wire: _with_default(part.schema, field.plain()) for field, part in zip(fields, parts, strict=True)
    }
    required = [field.wire for field in fields if field.required]
    if tag:
        properties = {tag[0]: {"const": tag[1]}, **properties}
        required = [tag[0], *required]
    schema: Schema = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def _with_default(schema: Schema, default: object) -> Schema:
    """Return the schema with a default, if there is one and JSON can express it."""
    if default is MISSING or (said := builtins_of(default)) is MISSING:
        return schema
    if said is None and "x-mcp-header" in schema:
        return schema
    return {**schema, "default": said}


def _noted(schema: Schema, notes: dict[str, Any]) -> Schema:
    said = {key: value for key, note in notes.items() if (value := builtins_of(note)) is not MISSING}
    if "x-mcp-header" in notes:
        # A header's parameter must have one primitive type (server/tools, x-mcp-header): absent means null.
        others = [part for part in schema.get("anyOf", ()) if part != {"type": "null"}]
        if len(others) == 1:
            schema = others[0]
    return {**schema, **said}
