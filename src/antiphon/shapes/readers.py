"""Reads JSON values as types: by msgspec, and by code of our own for types that msgspec does not know."""

import datetime as dt
import decimal
import math
import threading
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, ValidationError, convert

from antiphon.shapes.mismatch import Misfit, Mismatch, explain
from antiphon.shapes.records import Record, attempts_of_foreign, read_foreign
from antiphon.shapes.schema_trees import is_array, is_object

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


def read_by_pydantic(type_: Any, value: object, _lax: bool) -> object:
    _count(attempts_of_foreign(type_, value, MAX_ATTEMPTS))
    return read_foreign(type_, value)


def _read(type_: Any, value: object, *, lax: bool) -> object:
    try:
        return type_.read(value, lax) if isinstance(type_, Opaque) else read_by_pydantic(type_, value, lax)
    except (Misfit, Mismatch) as problem:
        problem.culprit = value
        raise


read_strictly = partial(_read, lax=False)
read_laxly = partial(_read, lax=True)

Failures = dict[tuple[int, int, bool], tuple[object, Misfit]]


class _Reading(threading.local):
    """What the readers of nested values share during one reading."""

    attempts = -math.inf
    """How often a member of a union was tried; below zero if that is not limited."""
    telling = 0
    """How many unions around this one are saying why a value fits no member: the inner ones are cut off anyway."""
    failures: Failures | None = None
    """Values that fit no member of a union, so that nested unions do not multiply their attempts.

    Each value is kept with its error, so that no other value can get its id in the meantime.
    """


_reading = _Reading()
MAX_ATTEMPTS = 100_000
"""Attempts to read a value as a member of a union that one message may take: about a second."""
MAX_TOLD = 3
"""Unions inside each other of which an error gives the details."""


class _TooMany(Exception):
    """The attempts are used up; not a ValueError, which would only mean that another member is tried."""


def _count(attempts: int) -> None:
    _reading.attempts += attempts
    if _reading.attempts > MAX_ATTEMPTS:
        raise _TooMany


class TypeReader:
    """Reads JSON-decoded builtins as one type."""

    __slots__ = ("decode", "noun", "schema")

    def __init__(self, decode: Any, schema: Mapping[str, object], *, noun: str = "field") -> None:
        self.decode = decode
        self.schema = schema
        self.noun = noun

    def read(self, value: object, lax: bool = False) -> Any:
        """Read what a peer has sent; raise Mismatch if it does not fit, or takes too many attempts."""
        _reading.attempts = 0
        try:
            return self.attempt(value, lax)
        except Misfit as problem:
            misfit = problem
        except _TooMany:
            raise Mismatch("too many values, or too deeply nested, for a union without tags: send less") from None
        finally:
            _reading.attempts = -math.inf
        raise misfit.told() from None

    def attempt(self, value: object, lax: bool) -> Any:
        """Read a value; raise Misfit, which says why only when asked: another reader may take the value."""
        try:
            try:
                return self._convert(value, lax)
            except ValidationError as error:
                if "got `float`" not in str(error):
                    raise
                value = _whole(value)  # JavaScript may send its 3 as 3.0
                return self._convert(value, lax)
        except ValidationError as error:
            raise Misfit(self._mismatch, value, error, lax) from None
        except RecursionError:
            raise Mismatch("nested too deeply") from None

    def _mismatch(self, value: object, error: ValidationError, lax: bool) -> Mismatch:
        def failure(other: object) -> ValidationError | None:
            try:
                self._convert(other, lax)
            except ValidationError as problem:
                return problem
            return None

        return explain(error, value, self.schema, noun=self.noun, failure=failure)

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

    @property
    def holds(self) -> bool | None:
        """Whether it takes objects and arrays only (True), or other values only (False); None if it may take both."""
        if self.keys is not None or self.type in (list, dict, set, frozenset, tuple):
            return True
        return False if self.type in _TEXT or self.type in (int, float, bool, type(None)) else None


_TEXT = {dt.date: 0, dt.datetime: 0, dt.time: 0, dt.timedelta: 0, uuid.UUID: 0, decimal.Decimal: 0,
         str: 1, bytes: 2, bytearray: 2}  # fmt: skip
"""How much text a type takes: those that take less are tried before those that take more."""


class Alternatives:
    """A union whose members msgspec cannot tell apart: tries one after the other, the most likely first."""

    __slots__ = ("_all", "_holding", "_single")

    def __init__(self, alternatives: list[Alternative]) -> None:
        self._all = alternatives
        ordered = sorted(alternatives, key=lambda one: _TEXT.get(one.type, 0))
        self._holding = [one for one in ordered if one.holds is not False] or ordered
        self._single = [one for one in ordered if one.holds is not True] or ordered

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
        except Misfit as problem:
            failures[key] = (value, problem)
            raise

    def _read(self, value: object, lax: bool) -> object:
        likely = self._holding if is_object(value) or is_array(value) else self._single
        if is_object(value) and len(likely) > 1:
            names = value.keys()
            likely = sorted(likely, key=lambda one: len(names - one.keys) if one.keys is not None else 0)
        _count(len(likely))
        problems: list[tuple[Alternative, Misfit | Mismatch]] = []
        for leniency in (False, True) if lax else (False,):
            for one in likely:
                try:
                    return one.reader.attempt(value, leniency)
                except (Misfit, Mismatch) as problem:
                    problems.append((one, problem))
        raise Misfit(self._told, problems)

    def _told(self, problems: list[tuple[Alternative, Misfit | Mismatch]]) -> Mismatch:
        told = f"fits none of {', '.join(one.name for one in self._all)}"
        if _reading.telling == MAX_TOLD:
            return Mismatch(told)
        last = {one.name: problem for one, problem in problems}
        _reading.telling += 1
        try:
            reasons = [f"{name}: {str(problem.told())[:150]}" for name, problem in list(last.items())[:5]]
        finally:
            _reading.telling -= 1
        return Mismatch(f"{told} ({'; '.join(reasons)})")


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
        shape = reader.attempt(value, lax)
        values = {field.name: getattr(shape, slot) for slot, field in slots.items()}
        try:
            return record.build(**{name: item for name, item in values.items() if item is not UNSET})
        except (TypeError, ValueError) as problem:  # from its __post_init__
            raise Mismatch(str(problem)) from problem

    return read
