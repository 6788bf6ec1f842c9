"""A user's own JSON Schema as a shape."""

import re
from typing import Any
from urllib.parse import unquote

import msgspec

from antiphon.shapes.schema import Shape, encode
from antiphon.shapes.tree import subschemas
from antiphon.shapes.values import is_array, is_object

__all__ = ["MAX_DEPTH", "MAX_SUBSCHEMAS", "RawShape", "raw_shape"]

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
            target = self._target(schema.get("$ref"))
            wide = 1 + sum(self.width(part) for part in (*parts, *([target] if target is not None else [])))
            self._active.discard(key)
            if wide > MAX_SUBSCHEMAS:
                raise ValueError(f"the schema's references expand to more than {MAX_SUBSCHEMAS} schemas")
            self._widths[key] = wide
            for _, part in subschemas(schema):
                self.width(part)
        return self._widths[key]

    def _target(self, pointer: object) -> dict[str, Any] | None:
        if not isinstance(pointer, str) or not re.match(r"#(/|$)", pointer):
            return None
        found: Any = self._root
        for step in pointer.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if is_array(found):
                found = found[int(name)] if name.isdecimal() and int(name) < len(found) else None
            else:
                found = found.get(name) if is_object(found) else None
        return found if is_object(found) else None


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
