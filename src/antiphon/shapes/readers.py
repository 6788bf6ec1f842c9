"""Reads JSON values as types: by msgspec, and by code of our own for types that msgspec does not know."""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, ValidationError, convert

from antiphon.shapes.mismatch import Mismatch, explain, is_array, is_object
from antiphon.shapes.records import Record, read_foreign

Read = Callable[[object, bool], object]
"""Reads a value; the flag says whether strings may stand for numbers."""


class Opaque(type):
    """The class of stand-ins for types that msgspec cannot convert to; their values go through `read`."""

    _read: Read

    def bind(cls, read: Read) -> None:
        cls._read = read

    def read(cls, value: object, lax: bool) -> object:
        return cls._read(value, lax)

    def __instancecheck__(cls, instance: object) -> bool:
        return True


def opaque(name: str, read: Read | None = None) -> Opaque:
    made = Opaque(name, (), {})
    if read is not None:
        made.bind(read)
    return made


def _read(type_: Any, value: object, *, lax: bool) -> object:
    try:
        return type_.read(value, lax) if isinstance(type_, Opaque) else read_foreign(type_, value)
    except Mismatch as problem:
        problem.culprit = value
        raise


read_strictly = partial(_read, lax=False)
read_laxly = partial(_read, lax=True)

Failures = dict[tuple[int, int, bool], tuple[object, Mismatch]]


class _Reading(threading.local):
    """What the readers of nested values share during one reading."""

    probing = False
    """Whether the key of a wrong value is being searched for: readers inside must not start searches of their own."""
    failures: Failures | None = None
    """Values that fit no member of a union, so that nested unions do not multiply their attempts.

    Each value is kept with its error, so that no other value can get its id in the meantime.
    """


_reading = _Reading()


class TypeReader:
    """Reads JSON-decoded builtins as one type."""

    __slots__ = ("decode", "noun", "schema")

    def __init__(self, decode: Any, schema: Mapping[str, object], *, noun: str = "field") -> None:
        self.decode = decode
        self.schema = schema
        self.noun = noun

    def read(self, value: object, lax: bool = False) -> Any:
        try:
            return self._convert(value, lax)
        except ValidationError as error:
            return self.again(value, error, lax=lax)
        except RecursionError:
            raise Mismatch("nested too deeply") from None

    def again(self, value: object, error: ValidationError, *, lax: bool) -> Any:
        """Read once more after a failure, whole floats as integers: JavaScript may send its 3 as 3.0."""
        try:
            if "got `float`" in str(error):
                value = _whole(value)
                return self._convert(value, lax)
        except ValidationError as second:
            error = second
        except RecursionError:
            raise Mismatch("nested too deeply") from None
        raise self.mismatch(value, error, lax=lax) from None

    def mismatch(self, value: object, error: ValidationError, *, lax: bool = False) -> Mismatch:
        def failure(other: object) -> ValidationError | None:
            _reading.probing = True
            try:
                self._convert(other, lax)
            except ValidationError as problem:
                return problem
            finally:
                _reading.probing = False
            return None

        return explain(error, value, self.schema, noun=self.noun, failure=None if _reading.probing else failure)

    def _convert(self, value: object, lax: bool) -> Any:
        hook = read_laxly if lax else read_strictly
        return convert(value, self.decode, strict=not lax, str_keys=True, dec_hook=hook)


def _whole(value: Any) -> Any:
    """Return the value with every whole float as an integer."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if is_object(value):
        return {key: _whole(item) for key, item in value.items()}
    if is_array(value):
        return [_whole(item) for item in value]
    return value


class Alternative(msgspec.Struct, frozen=True):
    """One member of a union."""

    name: str
    type: Any
    keys: frozenset[str] | None
    reader: TypeReader

    def distance(self, value: object) -> tuple[int, int]:
        """Rank how unlikely this member is meant: by fields it does not know, then by how much text it accepts."""
        unknown = len(value.keys() - self.keys) if is_object(value) and self.keys is not None else 0
        return unknown, {str: 1, bytes: 2, bytearray: 2}.get(self.type, 0)


class Alternatives:
    """A union whose members msgspec cannot tell apart: tries one after the other, the most likely first."""

    __slots__ = ("_alternatives",)

    def __init__(self, alternatives: list[Alternative]) -> None:
        self._alternatives = alternatives

    def read(self, value: object, lax: bool) -> object:
        if _reading.failures is not None:
            return self._recalled(_reading.failures, value, lax)
        _reading.failures = {}
        try:
            return self._read(value, lax)
        finally:
            _reading.failures = None

    def _recalled(self, failures: Failures, value: object, lax: bool) -> object:
        key = (id(self), id(value), lax)
        if key in failures:
            raise failures[key][1]
        try:
            return self._read(value, lax)
        except Mismatch as problem:
            failures[key] = (value, problem)
            raise

    def _read(self, value: object, lax: bool) -> object:
        likely = sorted(self._alternatives, key=lambda one: one.distance(value))
        problems: dict[str, Mismatch] = {}
        for leniency in (False, True) if lax else (False,):
            for one in likely:
                try:
                    return one.reader.read(value, leniency)
                except Mismatch as problem:
                    problems[one.name] = problem
        told = "; ".join(f"{name}: {str(problem)[:150]}" for name, problem in list(problems.items())[:5])
        raise Mismatch(f"fits none of {', '.join(one.name for one in self._alternatives)} ({told})")


def record_reader(record: Record, types: list[Any], schema: Mapping[str, object]) -> Read:
    """Return a reader of the record: it reads a Struct with the translated field types, then builds the real class."""
    slots = {f"f{index}": field for index, field in enumerate(record.fields)}
    shadow = msgspec.defstruct(
        record.cls.__name__,
        [
            (slot, type_) if field.required else (slot, type_, UNSET)
            for (slot, field), type_ in zip(slots.items(), types, strict=True)
        ],
        rename={slot: field.wire for slot, field in slots.items()},
        kw_only=not record.as_array,
        array_like=record.as_array,
        forbid_unknown_fields=record.closed or issubclass(record.cls, tuple),
        tag_field=record.tag[0] if record.tag else None,
        tag=record.tag[1] if record.tag else None,
    )
    reader = TypeReader(shadow, schema)

    def read(value: object, lax: bool) -> object:
        shape = reader.read(value, lax)
        values = {field.name: getattr(shape, slot) for slot, field in slots.items()}
        try:
            return record.build(**{name: item for name, item in values.items() if item is not UNSET})
        except (TypeError, ValueError) as problem:  # from its __post_init__
            raise Mismatch(str(problem)) from problem

    return read
