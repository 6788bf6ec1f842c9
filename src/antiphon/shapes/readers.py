"""Values converted by msgspec, and by our own code where a type is beyond it."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, ValidationError, convert

from antiphon.shapes.mismatch import Mismatch, explain, is_array, is_object
from antiphon.shapes.records import Record, read_foreign

__all__ = [
    "Alternative",
    "Alternatives",
    "Opaque",
    "Read",
    "Reader",
    "opaque",
    "read_laxly",
    "read_strictly",
    "shadow_of",
]

Read = Callable[[object, bool], object]  # a value, and whether strings may stand for numbers


class Opaque(type):
    """A class that stands for a type msgspec cannot convert to: its values go through `read` instead."""

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


def read_strictly(type_: Any, value: object) -> object:
    return _read(type_, value, lax=False)


def read_laxly(type_: Any, value: object) -> object:
    return _read(type_, value, lax=True)


def _read(type_: Any, value: object, *, lax: bool) -> object:
    try:
        return type_.read(value, lax) if isinstance(type_, Opaque) else read_foreign(type_, value)
    except Mismatch as problem:
        problem.culprit = value
        raise


class Search(threading.local):
    """Whether a wrong value's key is being looked for; readers inside must not start searches of their own."""

    probing = False


_search = Search()


class Reader:
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
        """A second reading after a failure: JavaScript has no integers, so its 3 may arrive as 3.0."""
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
            _search.probing = True
            try:
                self._convert(other, lax)
            except ValidationError as problem:
                return problem
            finally:
                _search.probing = False
            return None

        return explain(error, value, self.schema, noun=self.noun, failure=None if _search.probing else failure)

    def _convert(self, value: object, lax: bool) -> Any:
        hook = read_laxly if lax else read_strictly
        return convert(value, self.decode, strict=not lax, str_keys=True, dec_hook=hook)


def _whole(value: Any) -> Any:
    """The value with every float that is an integer turned into one."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if is_object(value):
        return {key: _whole(item) for key, item in value.items()}
    if is_array(value):
        return [_whole(item) for item in value]
    return value


# Unions that msgspec cannot tell apart: tried one by one, the best guess first.


class Alternative(msgspec.Struct, frozen=True):
    name: str
    type: Any
    keys: frozenset[str] | None
    reader: Reader

    def strangeness(self, value: object) -> tuple[int, int]:
        """How unlikely this one is meant: by the fields it does not know, then by how much text it would take."""
        unknown = len(value.keys() - self.keys) if is_object(value) and self.keys is not None else 0
        return unknown, {str: 1, bytes: 2, bytearray: 2}.get(self.type, 0)


class Memory(threading.local):
    """What one reading has found out already: nested unions would otherwise multiply their guesses.

    A value is kept with its verdict, so that no other value can come to have its id meanwhile.
    """

    failures: dict[tuple[int, int, bool], tuple[object, Mismatch]] | None = None


_memory = Memory()


class Alternatives:
    __slots__ = ("_alternatives",)

    def __init__(self, alternatives: list[Alternative]) -> None:
        self._alternatives = alternatives

    def read(self, value: object, lax: bool) -> object:
        if _memory.failures is not None:
            return self._recalled(_memory.failures, value, lax)
        _memory.failures = {}
        try:
            return self._read(value, lax)
        finally:
            _memory.failures = None

    def _recalled(
        self, failures: dict[tuple[int, int, bool], tuple[object, Mismatch]], value: object, lax: bool
    ) -> object:
        key = (id(self), id(value), lax)
        if key in failures:
            raise failures[key][1]
        try:
            return self._read(value, lax)
        except Mismatch as problem:
            failures[key] = (value, problem)
            raise

    def _read(self, value: object, lax: bool) -> object:
        likely = sorted(self._alternatives, key=lambda one: one.strangeness(value))
        problems: dict[str, Mismatch] = {}
        for leniency in (False, True) if lax else (False,):
            for one in likely:
                try:
                    return one.reader.read(value, leniency)
                except Mismatch as problem:
                    problems[one.name] = problem
        told = "; ".join(f"{name}: {str(problem)[:150]}" for name, problem in list(problems.items())[:5])
        raise Mismatch(f"fits none of {', '.join(one.name for one in self._alternatives)} ({told})")


# A record class read through a shadow: a Struct with the translated field types, from which the real one is built.


def shadow_of(record: Record, types: list[Any], schema: Mapping[str, object]) -> Read:
    """A reader of the record, given its fields' types in msgspec's terms."""
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
    reader = Reader(shadow, schema)

    def read(value: object, lax: bool) -> object:
        shape = reader.read(value, lax)
        values = {field.name: getattr(shape, slot) for slot, field in slots.items()}
        try:
            return record.build(**{name: item for name, item in values.items() if item is not UNSET})
        except (TypeError, ValueError) as problem:  # what its __post_init__ has to say
            raise Mismatch(str(problem)) from problem

    return read
