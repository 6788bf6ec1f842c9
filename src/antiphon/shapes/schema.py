"""Types as shapes: a JSON Schema, a reader and a writer."""

import functools
from typing import Any

import msgspec
from msgspec import ValidationError, convert

from antiphon.shapes.facets import Email, Format, Header, Url
from antiphon.shapes.hints import type_name
from antiphon.shapes.mismatch import Mismatch
from antiphon.shapes.reader import Reader, read_strictly
from antiphon.shapes.translation import Translation, Walk, convertible, encoded, settled

__all__ = ["Email", "Format", "Header", "Mismatch", "Shape", "Url", "shape_of"]


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
