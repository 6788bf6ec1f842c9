"""Dataclasses, TypedDicts, NamedTuples, msgspec Structs and pydantic models as one kind: records."""

import dataclasses
import functools
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeGuard, cast

import msgspec
from msgspec import NODEFAULT, UNSET
from msgspec.structs import replace

from antiphon.shapes.annotations import bindings, class_hints, parsed, peeled, substituted, wrapper_name
from antiphon.shapes.constraints import facets_of
from antiphon.shapes.mismatch import Mismatch, path_text
from antiphon.shapes.schema_trees import Schema, choices, is_array, is_object, references

# --- types that pydantic converts, if the user has loaded it; nothing here imports it ---


def is_foreign(type_: object) -> TypeGuard[type]:
    """Return whether pydantic reads and writes this class."""
    return (
        "pydantic" in sys.modules
        and isinstance(type_, type)
        and (hasattr(type_, "__pydantic_validator__") or hasattr(type_, "__get_pydantic_core_schema__"))
    )


def is_model(type_: object) -> bool:
    return is_foreign(type_) and issubclass(type_, sys.modules["pydantic"].BaseModel)


@functools.lru_cache(maxsize=512)
def _adapter(type_: Any) -> Any:
    pydantic = sys.modules["pydantic"]
    try:
        return pydantic.TypeAdapter(type_)
    except pydantic.PydanticUserError as problem:
        raise TypeError(f"pydantic cannot describe {type_!r}: {problem}") from problem


def schema_of_foreign(type_: object, *, output: bool) -> dict[str, Any]:
    pydantic = sys.modules["pydantic"]
    try:
        schema: dict[str, Any] = _adapter(type_).json_schema(mode="serialization" if output else "validation")
    except pydantic.errors.PydanticInvalidForJsonSchema as problem:
        raise TypeError(f"{type_!r} cannot be expressed in JSON Schema: {problem}") from problem
    return schema


def read_foreign(type_: object, value: object) -> object:
    try:
        return _adapter(type_).validate_python(value)
    except sys.modules["pydantic"].ValidationError as problem:
        if (count := problem.error_count()) > MAX_ERRORS:  # each takes a kilobyte
            raise Mismatch(f"does not fit in {count} places") from None
        raise _first(problem.errors(include_url=False, include_context=False, include_input=False)) from None


MAX_ERRORS = 10_000
"""Errors of pydantic that are looked at."""


def attempts_of_foreign(type_: object, value: object, most: int) -> int:
    """Return how often pydantic may try a part of the value, 0 if that does not multiply; above `most`, any number."""
    objects, arrays = _recursive_members(type_)
    total = 0
    waiting: list[tuple[Any, int]] = [(value, 1)] if max(objects, arrays) > 1 else []
    while waiting and total <= most:
        one, ways = waiting.pop()
        total += ways
        if is_object(one):
            waiting += [(item, ways * objects) for item in one.values()]
        elif is_array(one):
            waiting += [(item, ways * arrays) for item in one]
    return total


@functools.lru_cache(maxsize=512)
def _recursive_members(type_: object) -> tuple[int, int]:
    """Return how many objects, and how many arrays, an untagged union offers that may hold the same union again.

    Pydantic tries them all at every level: two of them double the time with every level of the value.
    """
    schema = schema_of_foreign(type_, output=False)
    bodies: dict[str, Schema] = {"": {key: schema[key] for key in schema if key != "$defs"}, **schema.get("$defs", {})}
    reached = {name: set(references(body)) for name, body in bodies.items()}
    for _ in bodies:
        reached = {name: found.union(*(reached[one] for one in found)) for name, found in reached.items()}
    most = [1, 1]
    for name, body in bodies.items():
        for choice in choices(body):
            again = [part for part in choice if any(name in {one, *reached[one]} for one in references(part))]
            kinds = [bodies[next(references(part))] if "$ref" in part else part for part in again]
            for index, kind in enumerate(("object", "array")):
                most[index] = max(most[index], sum(part.get("type", kind) == kind for part in kinds))
    return most[0], most[1]


def _first(errors: list[dict[str, Any]]) -> Mismatch:
    error = errors[0]
    text = str(error["msg"])
    text = text[:1].lower() + text[1:]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    steps = [step for step in error["loc"] if isinstance(step, (str, int))]
    return Mismatch(f"{text}{more}", path_text(steps))


def dumped(value: object) -> Any:
    """Return a pydantic value as JSON-able builtins; raise NotImplementedError for any other value."""
    if not is_foreign(type(value)):
        raise NotImplementedError(type(value).__name__)
    if is_model(type(value)):
        return cast("Any", value).model_dump(mode="json", by_alias=True, warnings="error")
    return _adapter(cast("Any", type(value))).dump_python(value, mode="json", by_alias=True)


class NoDefault:
    """The type of MISSING."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = NoDefault()
_EMPTY: tuple[Callable[[], object], ...] = (list, dict, set, tuple, frozenset)


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a record, or a parameter of a function."""

    name: str
    wire: str
    annotation: object
    default: object = MISSING
    factory: Callable[[], object] | None = None
    required: bool

    @property
    def description(self) -> str | None:
        _, metadata = peeled(self.annotation)
        return facets_of(metadata).notes.get("description")

    def plain(self) -> object:
        """Return the default if it is known without calling a user's factory, else MISSING."""
        return self.factory() if self.factory is not None and self.factory in _EMPTY else self.default


_NO_DEFAULT = (MISSING, NODEFAULT, UNSET, dataclasses.MISSING)


def field(
    name: str,
    annotation: object,
    default: object = MISSING,
    *,
    factory: Any = None,
    wire: str = "",
    required: bool | None = None,
) -> Field:
    """Return a field; unless `required` says otherwise, it is required if it has no default."""
    default = MISSING if any(default is none for none in _NO_DEFAULT) else default
    factory = None if any(factory is none for none in _NO_DEFAULT) else factory
    if required is None:
        required = default is MISSING and factory is None
    return Field(
        name=name, wire=wire or name, annotation=annotation, default=default, factory=factory, required=required
    )


class Record(msgspec.Struct, frozen=True, kw_only=True):
    cls: type
    fields: tuple[Field, ...]
    build: Callable[..., object]
    description: str | None = None
    as_array: bool = False
    closed: bool = False  # refuses unknown fields
    tag: tuple[str, str | int] | None = None
    plain: bool = True  # msgspec sees the same fields


def record_of(type_: Any) -> Record | None:
    """Return the record for a class (or a parametrised generic class), None for any other type."""
    cls: Any = typing.get_origin(type_) or type_
    if not isinstance(cls, type):
        return None
    if is_model(cls):
        return _model(cls)
    read = _reader(cls)
    if read is None:
        return None
    return _described(read(type_, cls))


def _reader(cls: Any) -> Callable[[Any, Any], Record] | None:
    if issubclass(cls, msgspec.Struct):
        return _struct
    if dataclasses.is_dataclass(cls):
        return _dataclass
    if hasattr(cls, "__required_keys__") and issubclass(cls, dict):
        return _typed_dict
    if hasattr(cls, "_field_defaults") and issubclass(cls, tuple):
        return _named_tuple
    return None


def _hints(type_: Any, cls: type) -> tuple[dict[str, Any], bool]:
    hints, resolved = class_hints(cls)
    bound = bindings(type_)
    return {name: substituted(hint, bound) for name, hint in hints.items()}, resolved


def _dataclass(type_: Any, cls: Any) -> Record:
    hints, plain = _hints(type_, cls)
    fields: list[Field] = []
    for item in cls.__dataclass_fields__.values():
        if isinstance(hints.get(item.name), dataclasses.InitVar):
            raise TypeError(f"{cls.__qualname__}.{item.name} is an InitVar, which has no value to write back")
        if item not in dataclasses.fields(cls):
            continue
        if not item.init:
            plain = False
            continue
        annotation = _noted(hints[item.name], item.metadata)
        fields.append(field(item.name, annotation, item.default, factory=item.default_factory))
    return Record(cls=cls, fields=tuple(fields), build=cls, description=_dataclass_doc(cls), plain=plain)


def _noted(annotation: Any, metadata: Mapping[Any, Any]) -> Any:
    """Return the annotation with the title and description of `field(metadata=...)`."""
    notes = {key: metadata[key] for key in ("title", "description") if isinstance(metadata.get(key), str)}
    return Annotated[annotation, msgspec.Meta(**notes)] if notes else annotation


def _dataclass_doc(cls: type) -> str | None:
    """Return the docstring, unless it is the signature that `dataclass` writes itself."""
    doc = cls.__dict__.get("__doc__")
    return None if doc is None or doc.startswith(f"{cls.__name__}(") else doc


def _typed_dict(type_: Any, cls: Any) -> Record:
    hints, plain = _hints(type_, cls)
    fields: list[Field] = []
    for name, hint in hints.items():
        # `__required_keys__` is wrong for string annotations, the wrapper is right.
        wrapper = wrapper_name(typing.get_origin(hint))
        required = wrapper == "Required" or (wrapper != "NotRequired" and name in cls.__required_keys__)
        fields.append(field(name, hint, required=required))
    return Record(cls=cls, fields=tuple(fields), build=dict, description=cls.__dict__.get("__doc__"), plain=plain)


def _named_tuple(type_: Any, cls: Any) -> Record:
    hints, plain = _hints(type_, cls)
    defaults = cls._field_defaults
    fields = tuple(field(name, hints.get(name, Any), defaults.get(name, MISSING)) for name in cls._fields)
    return Record(cls=cls, fields=fields, build=cls, description=_dataclass_doc(cls), as_array=True, plain=plain)


def _struct(type_: Any, cls: Any) -> Record:
    try:
        infos = msgspec.structs.fields(type_)
    except NameError as problem:
        raise TypeError(
            f"an annotation of {cls.__qualname__} cannot be resolved: {problem}. "
            "Define the classes it refers to at the top level of the module."
        ) from problem
    config = cls.__struct_config__
    fields = tuple(
        field(
            info.name,
            info.type,
            info.default,
            factory=info.default_factory,
            wire=info.encode_name,
            required=info.required,
        )
        for info in infos
    )
    return Record(
        cls=cls,
        fields=fields,
        build=cls,
        description=cls.__dict__.get("__doc__"),
        as_array=config.array_like,
        closed=config.forbid_unknown_fields,
        tag=None if config.tag is None else (config.tag_field, config.tag),
    )


def _model(cls: Any) -> Record:
    """Return the record of a pydantic model, which builds itself from the names on the wire."""
    undefined = sys.modules["pydantic_core"].PydanticUndefined
    fields = tuple(
        field(
            name,
            Annotated[info.annotation, info],
            MISSING if info.default is undefined else info.default,
            factory=info.default_factory,
            wire=_model_wire(name, info),
            required=info.is_required(),
        )
        for name, info in cls.model_fields.items()
    )
    return Record(cls=cls, fields=fields, build=cls.model_validate, description=cls.__dict__.get("__doc__"))


def _model_wire(name: str, info: Any) -> str:
    alias = info.validation_alias if isinstance(info.validation_alias, str) else info.alias
    return alias if isinstance(alias, str) else name


def _described(record: Record) -> Record:
    """Add what the docstring says of the fields; an annotation's own description holds."""
    docstring = parsed(record.description)
    fields = tuple(
        replace(item, annotation=_annotated_first(item.annotation, docstring.arguments[item.name]))
        if item.name in docstring.arguments
        else item
        for item in record.fields
    )
    return replace(record, fields=fields, description=docstring.description)


def _annotated_first(annotation: Any, description: str) -> Any:
    if typing.get_origin(annotation) is Annotated:
        return Annotated[annotation.__origin__, description, *annotation.__metadata__]
    return Annotated[annotation, description]
