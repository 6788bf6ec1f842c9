"""Types as shapes: a JSON Schema, a reader and a writer."""

import functools
from typing import Any

import msgspec
from msgspec import ValidationError, convert

from antiphon.shapes.annotations import type_name
from antiphon.shapes.constraints import Email, Format, Header, Url
from antiphon.shapes.definitions import subschemas
from antiphon.shapes.mismatch import Mismatch, is_array, is_object, referred
from antiphon.shapes.readers import Reader, read_strictly
from antiphon.shapes.translation import Translation, Walk, convertible, encoded, settled

__all__ = [
    "MAX_DEPTH",
    "MAX_SUBSCHEMAS",
    "Email",
    "Format",
    "Header",
    "Mismatch",
    "RawShape",
    "Shape",
    "Url",
    "raw_shape",
    "shape_of",
]


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
        self._reader = Reader(part.decode, self.schema)
        self._decoder: Any = None
        if not walk.foreign:
            self._decoder = msgspec.json.Decoder(part.decode, dec_hook=read_strictly)
        self._validator: Any = None

    def __repr__(self) -> str:
        return f"Shape({type_name(self.type)})"

    def read(self, value: object, *, lax: bool = False) -> Any:
        """A typed value from JSON-decoded builtins; with `lax`, strings may stand for numbers and booleans."""
        if lax or not self._plain:
            return self._reader.read(value, lax)
        try:
            return convert(value, self._decode)
        except (ValidationError, RecursionError):  # the reader takes a little more, and says what is wrong
            return self._reader.read(value)

    def write(self, value: object) -> Any:
        """JSON-able builtins that fit the schema, from a typed value."""
        data = encode(value)
        written = msgspec.json.decode(data)
        if self._decoder is None:
            self._judge(written)
            return written
        try:
            self._decoder.decode(data)
        except ValidationError as error:
            self._reader.again(written, error, lax=False)
        return written

    def _judge(self, written: object) -> None:
        """What pydantic wrote need not be what it reads, so the schema itself is the judge."""
        if self._validator is None:
            from antiphon.shapes.validator import Validator

            self._validator = Validator(self.schema)
        self._validator.check(written)


def encode(value: object) -> bytes:
    """A value as JSON; Mismatch when it has no such form."""
    try:
        return msgspec.json.encode(value, enc_hook=encoded)
    except NotImplementedError as problem:
        raise Mismatch(f"not JSON: a value of type {problem}") from None
    except RecursionError:
        raise Mismatch("nested too deeply") from None
    except (TypeError, ValueError, OverflowError) as problem:
        raise Mismatch(f"not JSON: {problem}") from problem


def shape_of(type_: object, *, output: bool = False) -> Shape:
    """The shape of a type; TypeError naming the type when JSON Schema cannot express it.

    With `output` the schema promises what `write` gives, which pydantic may write differently from what it reads.
    """
    return _known(type_, repr(type_), output) if _hashable(type_) else _shape(type_, output)


def _hashable(type_: object) -> bool:
    try:
        hash(type_)
    except TypeError:  # an `Annotated` with a list in its metadata
        return False
    return True


# The text is part of the key: Literal["a", "b"] equals Literal["b", "a"], but its options are in another order.
@functools.lru_cache(maxsize=1024)
def _known(type_: object, _text: str, output: bool) -> Shape:
    return _shape(type_, output)


def _shape(type_: object, output: bool) -> Shape:
    return Shape(type_, *settled(lambda walk: walk.translate(type_), output=output))


# A user's own JSON Schema as a shape.


# "Implementations SHOULD apply reasonable bounds, such as a maximum schema depth, a cap on the total number of
# subschemas" (basic, Composition-Keyword Resource Use).
MAX_DEPTH = 64
MAX_SUBSCHEMAS = 10_000

_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})
_TYPES: dict[object, Any] = {"integer": int, "number": float, "boolean": bool, "null": None}


class RawShape(Shape):
    """A JSON Schema; what it reads and writes are plain JSON values that it allows."""

    __slots__ = ()

    def __init__(self, schema: dict[str, object]) -> None:
        _bounded(schema)
        from antiphon.shapes.validator import Validator

        self.type = dict
        self.schema = schema
        self._validator = Validator(schema)

    def read(self, value: object, *, lax: bool = False) -> Any:
        encode(value)  # refuses what is nested too deeply for the validator, whose stack has no guard
        value = _loosened(value, self.schema) if lax else value
        self._validator.check(value)
        return value

    def write(self, value: object) -> Any:
        written = msgspec.json.decode(encode(value))
        self._validator.check(written)
        return written


def raw_shape(schema: dict[str, object]) -> Shape:
    """A shape from a JSON Schema of any supported dialect (`$schema`, else 2020-12).

    ValueError when it is not a schema, refers to something outside itself, or is too large.
    """
    return RawShape(schema)


def _bounded(schema: dict[str, Any]) -> None:
    if not isinstance(schema, dict):
        raise TypeError(f"a JSON Schema is a dict, not {type(schema).__name__}")
    level, count = [schema], 0
    for _ in range(MAX_DEPTH):
        level = [part for one in level for _, part in subschemas(one)]
        count += len(level)
        if count >= MAX_SUBSCHEMAS:
            raise ValueError(f"the schema holds more than {MAX_SUBSCHEMAS} schemas")
        if not level:
            break
    if level:
        raise ValueError(f"the schema is nested more than {MAX_DEPTH} levels deep")
    try:
        msgspec.json.encode(schema)
    except (TypeError, ValueError) as problem:
        raise ValueError(f"the schema is not JSON: {problem}") from None
    except RecursionError:
        raise ValueError("the schema's values are nested too deeply") from None
    _Expansion(schema).width(schema)


class _Expansion:
    """How many schemas one value is checked against: references multiply what `allOf` and the like add."""

    __slots__ = ("_active", "_root", "_widths")

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._widths: dict[int, int] = {}
        self._active: set[int] = set()

    def width(self, schema: dict[str, Any]) -> int:
        key = id(schema)
        if key in self._active:  # a circle: it is walked once for each value
            return 1
        if key not in self._widths:
            if len(self._active) > MAX_DEPTH * 4:
                raise ValueError(f"the schema's references are chained more than {MAX_DEPTH * 4} times")
            self._active.add(key)
            parts = [part for keyword, part in subschemas(schema) if keyword in _IN_PLACE]
            target = referred(schema.get("$ref"), self._root)
            wide = 1 + sum(self.width(part) for part in (*parts, *([target] if target is not None else [])))
            self._active.discard(key)
            if wide > MAX_SUBSCHEMAS:
                raise ValueError(f"the schema's references expand to more than {MAX_SUBSCHEMAS} schemas")
            self._widths[key] = wide
            for _, part in subschemas(schema):
                self.width(part)
        return self._widths[key]


def _loosened(value: Any, schema: Any) -> Any:
    """The value with strings turned into the numbers and booleans that the schema asks for."""
    if not is_object(schema):
        return value
    if isinstance(value, str) and isinstance(kind := schema.get("type"), str) and kind in _TYPES:
        try:
            return msgspec.convert(value, _TYPES[kind], strict=False)
        except msgspec.ValidationError:
            return value
    if is_object(value):
        known = schema.get("properties")
        parts = known if is_object(known) else {}
        return {key: _loosened(item, parts.get(key)) for key, item in value.items()}
    if is_array(value):
        return [_loosened(item, schema.get("items")) for item in value]
    return value
