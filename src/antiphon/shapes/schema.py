"""Types as JSON Schemas, with readers of what peers send and writers of what they get."""

import functools
from typing import Any

import msgspec
from msgspec import ValidationError, convert

from antiphon.shapes.annotations import type_name
from antiphon.shapes.mismatch import Mismatch, is_array, is_object
from antiphon.shapes.readers import TypeReader, read_strictly
from antiphon.shapes.translation import Translation, Walk, convertible, encoded, settled
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


def shape_of(type_: object, *, output: bool = False) -> Shape:
    """Return the shape of a type; raise TypeError naming the type if JSON Schema cannot express it.

    With `output` the schema describes what `write` returns, where pydantic writes other values than it reads.
    """
    try:
        hash(type_)
    except TypeError:  # an `Annotated` with a list in its metadata
        return _shape(type_, output)
    return _known(type_, repr(type_), output)


# The text is part of the key: Literal["a", "b"] equals Literal["b", "a"], but its options are in another order.
@functools.lru_cache(maxsize=1024)
def _known(type_: object, _text: str, output: bool) -> Shape:
    return _shape(type_, output)


def _shape(type_: object, output: bool) -> Shape:
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
