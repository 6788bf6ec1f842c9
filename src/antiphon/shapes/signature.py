"""Functions as JSON Schemas: the arguments of a handler, described and read by its signature."""

import copy
import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

import msgspec
from msgspec import ValidationError, convert
from msgspec.structs import asdict

from antiphon.shapes.annotations import hints_of, parsed, peeled, target_of, type_name
from antiphon.shapes.constraints import facets_of
from antiphon.shapes.mismatch import Mismatch
from antiphon.shapes.readers import TypeReader
from antiphon.shapes.records import MISSING
from antiphon.shapes.schema_trees import Schema, subschemas
from antiphon.shapes.translation import Translation, Walk, convertible, settled, with_default

_SIMPLE = (str, int, float, bytes, type(None))
_CONTAINERS: tuple[type[Any], ...] = (list, dict, set, bytearray)


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    annotation: object
    default: object = MISSING
    description: str | None = None


class Signature:
    """The parameters of a function that a peer may send."""

    __slots__ = ("_extra", "_plain", "_reader", "_struct", "description", "parameters", "schema")

    def __init__(
        self,
        parameters: tuple[Parameter, ...],
        walk: Walk,
        parts: list[Translation],
        rest: Translation | None,
        *,
        name: str,
        description: str | None = None,
    ) -> None:
        self.parameters = parameters
        self.description = description
        self.schema: dict[str, object] = _schema(walk, parameters, parts, rest)
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
    parameters: list[Parameter] = []
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
        parts = [_translated(walk, parameter, name) for parameter in parameters]
        return parts, None if extra is MISSING else _translated(walk, Parameter("**", extra), name)

    walk, (parts, rest) = settled(translate)
    return Signature(tuple(parameters), walk, parts, rest, name=name, description=description)


def describe(function: Callable[..., object]) -> tuple[str | None, dict[str, str], str | None]:
    """Return what the docstring says: the description, each argument, and the result."""
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.isroutine(function) or isinstance(function, type):
        text = inspect.getdoc(function)
    else:
        text = inspect.getdoc(target_of(function)) or inspect.getdoc(type(function))
    docstring = parsed(text)
    return docstring.description, docstring.arguments, docstring.returns


def name_of(function: Callable[..., object]) -> str:
    """Return the function's name; of a partial, that of its function; of an object, that of its class."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


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


def _parameter(item: inspect.Parameter, annotation: Any, told: str | None) -> Parameter:
    default: Any = MISSING if item.default is item.empty else item.default
    if _is_field_info(default):  # limit: int = Field(10, le=100)
        annotation = Annotated[annotation, default]
        default = _field_default(default)
    inner, metadata = peeled(annotation)
    if default is MISSING:
        default = next((found for it in metadata if (found := _field_default(it)) is not MISSING), MISSING)
    description = facets_of(metadata).notes.get("description")
    if description is None and told:
        annotation = Annotated[inner, *metadata, told]
    return Parameter(item.name, annotation, default, description or told)


def _is_field_info(value: object) -> bool:
    return type(value).__name__ == "FieldInfo" and type(value).__module__.startswith("pydantic")


def _field_default(info: Any) -> object:
    if not _is_field_info(info) or info.is_required():
        return MISSING
    return info.get_default(call_default_factory=True)


def _translated(walk: Walk, parameter: Parameter, name: str) -> Translation:
    try:
        return walk.translate(parameter.annotation)
    except TypeError as problem:
        raise TypeError(f"parameter '{parameter.name}' of {name}(): {problem}") from problem


def _schema(
    walk: Walk, parameters: tuple[Parameter, ...], parts: list[Translation], rest: Translation | None
) -> Schema:
    properties = {
        parameter.name: with_default(part.schema, parameter.default)
        for parameter, part in zip(parameters, parts, strict=True)
    }
    schema: Schema = {"type": "object", "properties": properties}
    if required := [parameter.name for parameter in parameters if parameter.default is MISSING]:
        schema["required"] = required
    schema["additionalProperties"] = False if rest is None else rest.schema or True
    return walk.definitions.enclosed(schema)


def _struct(parameters: tuple[Parameter, ...], parts: list[Translation], name: str, *, closed: bool) -> Any:
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
    if _headers(schema) != len(reachable):
        raise TypeError(f"{name}(): a Header cannot be inside a list, a union, or a class that is used twice")


def _headers(schema: Schema) -> int:
    return ("x-mcp-header" in schema) + sum(_headers(part) for _, part in subschemas(schema))
