"""Values converted by msgspec, and by our own code where a type is beyond it."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import ValidationError, convert

from antiphon.shapes.foreign import read_foreign
from antiphon.shapes.mismatch import Mismatch, explain
from antiphon.shapes.values import is_array, is_object

__all__ = ["Opaque", "Read", "Reader", "opaque", "read_laxly", "read_strictly"]


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
