"""A JSON Schema as a tree: where schemas are, as opposed to names and data."""

from collections.abc import Callable, Iterator
from typing import Any

from antiphon.shapes.values import is_array, is_object

__all__ = ["rebuilt", "references", "subschemas"]

_ONE = frozenset({
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_MANY = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_NAMED = frozenset({
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties",
})  # fmt: skip

Schema = dict[str, Any]


def subschemas(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The schemas directly inside this one, each with the keyword that holds it."""
    for key, value in schema.items():
        if is_object(value):
            if key in _NAMED:
                yield from ((key, part) for part in value.values() if is_object(part))
            elif key in _ONE:
                yield key, value
        elif is_array(value) and key in _MANY:
            yield from ((key, part) for part in value if is_object(part))


def rebuilt(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """A copy in which `change` was applied to this schema and every schema inside, from the inside out."""
    copy: Schema = {}
    for key, value in schema.items():
        if is_object(value) and key in _NAMED:
            copy[key] = {name: _part(part, change) for name, part in value.items()}
        elif key in _ONE or key in _MANY:
            copy[key] = [_part(part, change) for part in value] if is_array(value) else _part(value, change)
        else:
            copy[key] = value
    return change(copy)


def _part(part: Any, change: Callable[[Schema], Schema]) -> Any:
    return rebuilt(part, change) if is_object(part) else part


def references(schema: Schema) -> Iterator[str]:
    """The names under `$defs` this schema and the schemas inside it point to, once for each pointer."""
    pointer = schema.get("$ref")
    if isinstance(pointer, str) and pointer.startswith("#/$defs/"):
        yield pointer.removeprefix("#/$defs/")
    for _, part in subschemas(schema):
        yield from references(part)
