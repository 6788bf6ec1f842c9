"""Types, JSON Schemas and functions as shapes: a schema, and a reader of what peers send."""

import copy
import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, cast

import msgspec
from msgspec import ValidationError, convert
from msgspec.structs import asdict

from antiphon.shapes.annotations import describe, hints_of, name_of, peeled, remembered, type_name
from antiphon.shapes.constraints import facets_of
from antiphon.shapes.mismatch import Mismatch
from antiphon.shapes.readers import TypeReader, read_strictly
from antiphon.shapes.records import MISSING, Field, field
from antiphon.shapes.schema_trees import Schema, every, is_array, is_object
from antiphon.shapes.translation import Translation, Walk, convertible, encoded, object_schema, settled
from antiphon.shapes.validation import Validator, check_bounds

_JSON_TYPES: dict[object, Any] = {"integer": int, "number": float, "boolean": bool, "null": None}


class Shape:
    """A type, its JSON Schema (2020-12, self-contained) and its converter."""

    __slots__ = ("_decode", "_decoder", "_plain", "_reader", "_validator", "schema", "type")

    def __init__(self, type_: object, walk: Walk, part: Translation) -> None:
        if not convertible(part.decode):
            raise TypeError(f"{type_name(type_)} cannot be read from JSON")
        self.type = type_
        self.schema: dict[str, object] = walk.definitions.enclosed(part.schema)
        self._decode = part.decode
        self._plain = not walk.custom
        self._reader = TypeReader(part.decode, self.schema)
        self._decoder: Any = None
        if not walk.foreign:
            self._decoder = msgspec.json.Decoder(part.decode, dec_hook=read_strictly)
        self._validator: Any = None

    def __repr__(self) -> str:
        return f"Shape({type_name(self.type)})"

    def read(self, value: object, *, lax: bool = False) -> Any:
        """Return a typed value from JSON-decoded builtins; with `lax`, read strings as numbers and booleans too."""
        if lax or not self._plain:
            return self._reader.read(value, lax)
        try:
            return convert(value, self._decode)
        except (ValidationError, RecursionError):  # the reader also takes 3.0 for 3, and explains the error
            return self._reader.read(value)

    def write(self, value: object) -> Any:
        """Return JSON-able builtins that fit the schema, from a typed value."""
        data = encode(value)
        written = msgspec.json.decode(data)
        if self._decoder is None:
            self._validate(written)
            return written
        try:
            self._decoder.decode(data)
        except ValidationError:
            self._reader.read(written)
        return written

    def _validate(self, written: object) -> None:
        """Validate by the schema itself: pydantic may write other values than it reads."""
        if self._validator is None:
            self._validator = Validator(self.schema)
        self._validator.check(written)


def encode(value: object) -> bytes:
    """Encode a value as JSON; raise Mismatch if that is not possible."""
    try:
        return msgspec.json.encode(value, enc_hook=encoded)
    except NotImplementedError as problem:
        raise Mismatch(f"not JSON: a value of type {problem}") from None
    except RecursionError:
        raise Mismatch("nested too deeply") from None
    except (TypeError, ValueError, OverflowError) as problem:
        raise Mismatch(f"not JSON: {problem}") from problem


@remembered
def shape_of(type_: object, *, output: bool = False) -> Shape:
    """Return the shape of a type; raise TypeError naming the type if JSON Schema cannot express it.

    With `output` the schema describes what `write` returns, where pydantic writes other values than it reads.
    """
    return Shape(type_, *settled(lambda walk: walk.translate(type_), output=output))


# --- JSON Schemas given by the user ---


class RawShape(Shape):
    """A JSON Schema that reads and writes the plain JSON values it allows."""

    __slots__ = ()

    def __init__(self, schema: dict[str, object]) -> None:
        self.type = dict
        self.schema = schema
        self._validator = Validator(schema, check_bounds(schema))

    def read(self, value: object, *, lax: bool = False) -> Any:
        data = encode(value)  # refuses a value nested too deeply for the validator, whose stack has no guard
        value = _loosened(value, self.schema) if lax else value
        self._validator.check(value, data)
        return value

    def write(self, value: object) -> Any:
        written = msgspec.json.decode(encode(value))
        self._validator.check(written)
        return written


def raw_shape(schema: dict[str, object]) -> Shape:
    """Return a shape for a JSON Schema of any supported dialect (`$schema`, else 2020-12).

    Raise ValueError if it is not a schema, refers to something outside itself, or is too large.
    """
    return RawShape(schema)


def _loosened(value: Any, schema: Any) -> Any:
    """Return the value with strings converted to the numbers and booleans that the schema asks for."""
    if not is_object(schema):
        return value
    if isinstance(value, str) and isinstance(kind := schema.get("type"), str) and kind in _JSON_TYPES:
        try:
            return msgspec.convert(value, _JSON_TYPES[kind], strict=False)
        except msgspec.ValidationError:
            return value
    if is_object(value):
        known = schema.get("properties")
        parts = known if is_object(known) else {}
        return {key: _loosened(item, parts.get(key)) for key, item in value.items()}
    if is_array(value):
        return [_loosened(item, schema.get("items")) for item in value]
    return value


# --- functions ---


_SIMPLE = (str, int, float, bytes, type(None))
_CONTAINERS: tuple[type[Any], ...] = (list, dict, set, bytearray)


class Signature:
    """The parameters of a function that a peer may send."""

    __slots__ = ("_extra", "_plain", "_reader", "_struct", "description", "parameters", "schema")

    def __init__(
        self,
        parameters: tuple[Field, ...],
        walk: Walk,
        parts: list[Translation],
        rest: Translation | None,
        *,
        name: str,
        description: str | None = None,
    ) -> None:
        self.parameters = parameters
        self.description = description
        schema = {
            **object_schema(parameters, parts),
            "additionalProperties": False if rest is None else rest.schema or True,
        }
        self.schema: dict[str, object] = walk.definitions.enclosed(schema)
        self._struct = _struct(parameters, parts, name, closed=rest is None)
        self._plain = not walk.custom
        self._reader = TypeReader(self._struct, self.schema, noun="argument")
        self._extra = None if rest is None else TypeReader(rest.decode, rest.schema)
        _check_headers(self.schema, name)

    def read(self, arguments: Mapping[str, object], *, lax: bool = False) -> dict[str, Any]:
        """Return keyword arguments, converted and with defaults; raise Mismatch naming the argument."""
        if lax or not self._plain:
            values = asdict(self._reader.read(_plain(arguments), lax))
        else:
            try:
                values = asdict(convert(arguments, self._struct))
            except (ValidationError, RecursionError):  # the reader also takes 3.0 for 3, and explains the error
                values = asdict(self._reader.read(_plain(arguments)))
        if self._extra is not None:
            self._read_extra(self._extra, arguments, values, lax=lax)
        return values

    def _read_extra(
        self, reader: TypeReader, arguments: Mapping[str, object], values: dict[str, Any], *, lax: bool
    ) -> None:
        for name in [name for name in arguments if name not in values]:
            try:
                values[name] = reader.read(arguments[name], lax)
            except Mismatch as problem:
                raise problem.within(name) from None


def _plain(arguments: object) -> object:
    return dict(cast("Mapping[str, object]", arguments)) if isinstance(arguments, Mapping) else arguments


def signature_of(function: Callable[..., object], *, skip: Collection[str] = ()) -> Signature:
    """Return the signature of a function, without the parameters that the caller fills in itself (`skip`)."""
    name = name_of(function)
    hints = hints_of(function)
    description, told, _ = describe(function)
    parameters: list[Field] = []
    extra: object = MISSING
    for item in _parameters(function, name):
        if item.name in skip:
            continue
        annotation = hints.get(item.name, Any)
        if item.kind is item.VAR_KEYWORD:
            extra = annotation
        else:
            parameters.append(_parameter(item, annotation, told.get(item.name)))

    def translate(walk: Walk) -> tuple[list[Translation], Translation | None]:
        parts = [_translated(walk, parameter.name, parameter.annotation, name) for parameter in parameters]
        return parts, None if extra is MISSING else _translated(walk, "**", extra, name)

    walk, (parts, rest) = settled(translate)
    return Signature(tuple(parameters), walk, parts, rest, name=name, description=description)


def _parameters(function: Callable[..., object], name: str) -> list[inspect.Parameter]:
    """Return the parameters that can be passed by keyword; raise TypeError if one cannot."""
    try:
        found = inspect.signature(function).parameters
    except ValueError as problem:
        raise TypeError(f"{name}() has no signature that can be read") from problem
    bound: Collection[str] = function.keywords if isinstance(function, functools.partial) else ()
    for item in found.values():
        if item.kind is item.VAR_POSITIONAL:
            raise TypeError(f"{name}(): *{item.name} cannot be sent by name; use a list parameter")
        if item.kind is item.POSITIONAL_ONLY:
            raise TypeError(f"{name}(): parameter '{item.name}' is positional-only and cannot be sent by name")
    return [item for item in found.values() if item.name not in bound]


def _parameter(item: inspect.Parameter, annotation: Any, told: str | None) -> Field:
    default: Any = MISSING if item.default is item.empty else item.default
    if _is_field_info(default):  # limit: int = Field(10, le=100)
        annotation = Annotated[annotation, default]
        default = _field_default(default)
    inner, metadata = peeled(annotation)
    if default is MISSING:
        default = next((found for it in metadata if (found := _field_default(it)) is not MISSING), MISSING)
    if told and "description" not in facets_of(metadata).notes:
        annotation = Annotated[inner, *metadata, told]
    return field(item.name, annotation, default)


def _is_field_info(value: object) -> bool:
    return type(value).__name__ == "FieldInfo" and type(value).__module__.startswith("pydantic")


def _field_default(info: Any) -> object:
    if not _is_field_info(info) or info.is_required():
        return MISSING
    return info.get_default(call_default_factory=True)


def _translated(walk: Walk, parameter: str, annotation: Any, name: str) -> Translation:
    try:
        return walk.translate(annotation)
    except TypeError as problem:
        raise TypeError(f"parameter '{parameter}' of {name}(): {problem}") from problem


def _struct(parameters: tuple[Field, ...], parts: list[Translation], name: str, *, closed: bool) -> Any:
    for parameter, part in zip(parameters, parts, strict=True):
        if not convertible(part.decode):
            told = type_name(parameter.annotation)
            raise TypeError(f"parameter '{parameter.name}' of {name}(): {told} cannot be read from JSON")
    fields: list[Any] = [
        (parameter.name, part.decode, *_initial(parameter.default))
        for parameter, part in zip(parameters, parts, strict=True)
    ]
    try:
        return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=closed, gc=False)
    except RuntimeError as problem:  # a name that Python mangles
        raise TypeError(f"{name}(): a parameter's name cannot start with two underscores") from problem


def _initial(default: Any) -> tuple[object, ...]:
    """Return a field's default as msgspec takes it: containers are copied for every call."""
    if default is MISSING:
        return ()
    kind = next((kind for kind in _CONTAINERS if isinstance(default, kind)), None)
    if kind is not None:
        fresh: Callable[[], object] = kind if default == kind() else lambda: copy.deepcopy(default)
        return (msgspec.field(default_factory=fresh),)
    if isinstance(default, _SIMPLE):
        return (default,)
    return (msgspec.field(default_factory=lambda: default),)


def _check_headers(schema: Schema, name: str) -> None:
    """ "MUST only be applied to properties that are statically reachable ... of primitive types" (x-mcp-header)."""
    reachable: dict[str, str] = {}
    pending = [schema]
    while pending:
        for key, part in pending.pop().get("properties", {}).items():
            pending.append(part)
            if (header := part.get("x-mcp-header")) is None:
                continue
            if part.get("type") not in ("integer", "string", "boolean"):
                raise TypeError(f"parameter '{key}' of {name}(): only a str, an int or a bool can be a header")
            if header.lower() in reachable:
                raise TypeError(f"parameter '{key}' of {name}(): the header {header!r} is used twice")
            reachable[header.lower()] = key
    if sum("x-mcp-header" in part for part in every(schema)) != len(reachable):
        raise TypeError(f"{name}(): a Header cannot be inside a list, a union, or a class that is used twice")
