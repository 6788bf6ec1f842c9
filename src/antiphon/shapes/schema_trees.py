"""JSON Schemas as trees: walking them, finding what they say of a value, and naming their definitions."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard
from urllib.parse import unquote

Schema = dict[str, Any]
Step = str | int | None
"""A key, an index, or None for a value of an object whose key msgspec does not name."""


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


# Keywords that hold one schema, a list of schemas, or named schemas.
_ONE = frozenset({
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
})  # fmt: skip
_MANY = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_NAMED = frozenset({
    "$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties",
})  # fmt: skip


def subschemas(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the schemas directly inside this one, each with the keyword that holds it."""
    for key, value in schema.items():
        if is_object(value):
            if key in _NAMED:
                yield from ((key, part) for part in value.values() if is_object(part))
            elif key in _ONE:
                yield key, value
        elif is_array(value) and key in _MANY:
            yield from ((key, part) for part in value if is_object(part))


def rebuilt(schema: Schema, change: Callable[[Schema], Schema]) -> Schema:
    """Return a copy with `change` applied to this schema and every schema inside, from the inside out."""
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


def every(schema: Schema) -> Iterator[Schema]:
    """Yield this schema and all those inside it."""
    yield schema
    for _, part in subschemas(schema):
        yield from every(part)


def references(schema: Schema) -> Iterator[str]:
    """Yield the names under `$defs` that this schema and those inside it point to, once for each pointer."""
    for part in every(schema):
        if isinstance(pointer := part.get("$ref"), str) and pointer.startswith("#/$defs/"):
            yield pointer.removeprefix("#/$defs/")


def choices(schema: Schema) -> Iterator[list[Schema]]:
    """Yield the alternatives of each choice without a discriminator in this schema and those inside it."""
    for part in every(schema):
        if "discriminator" not in part:
            yield from ([one for one in part[key] if is_object(one)] for key in ("anyOf", "oneOf") if key in part)


# --- what a schema says of one value ---


def schemas_at(schema: Mapping[str, Any], steps: Sequence[Step]) -> list[Mapping[str, Any]]:
    """Return every schema that may describe the value at `steps`: references resolved, `anyOf` and its like opened."""
    current = _alternatives([schema], schema)
    for step in steps:
        current = _alternatives([_held_at(one, step) for one in current], schema)
    return current


def _alternatives(schemas: Sequence[object], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: dict[int, Mapping[str, Any]] = {}  # by id: a schema may refer to itself
    waiting = list(reversed(schemas))
    while waiting:
        schema = waiting.pop()
        if is_object(schema) and id(schema) not in found:
            found[id(schema)] = schema
            choices = [schema.get(keyword) for keyword in ("anyOf", "oneOf", "allOf")]
            parts = [part for several in choices if is_array(several) for part in several]
            waiting += reversed([referred(schema.get("$ref"), root), *parts])
    return list(found.values())


def referred(pointer: object, root: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema that a `$ref` within `root` points to, None if there is none."""
    if not isinstance(pointer, str) or not re.match(r"#(/|$)", pointer):
        return None
    found = pointed_at(unquote(pointer).removeprefix("#"), root)
    return found if is_object(found) else None


def pointed_at(pointer: str, root: Mapping[str, Any]) -> Any:
    """Return what a JSON Pointer within `root` points to, None if there is nothing."""
    found: Any = root
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if is_array(found):
            found = found[int(name)] if name.isdecimal() and int(name) < len(found) else None
        else:
            found = found.get(name) if is_object(found) else None
    return found


def _held_at(schema: Mapping[str, Any], step: Step) -> object:
    """Return the schema of the values at one step inside the values of this schema."""
    if isinstance(step, int):
        first = schema.get("prefixItems")
        return first[step] if is_array(first) and step < len(first) else schema.get("items")
    properties = schema.get("properties")
    rest = schema.get("additionalProperties")
    return properties.get(step, rest) if is_object(properties) and isinstance(step, str) else rest


# --- definitions ---


class Definitions:
    """Named schemas. `root` is a live view of them as a schema with `$defs`."""

    __slots__ = ("_bodies", "_owners", "_pinned", "root")

    def __init__(self) -> None:
        self._bodies: dict[str, Schema] = {}
        self._owners: dict[str, object] = {}
        self._pinned: set[str] = set()
        self.root: Schema = {"$defs": self._bodies}

    def __setitem__(self, name: str, schema: Schema) -> None:
        self._bodies[name] = schema

    def claim(self, name: str, owner: object) -> str:
        """Return a name for the owner's definition: always the same for one owner, never shared by two."""
        plain = re.sub(r"\W+", "_", name).strip("_") or "Type"
        number = 1
        candidate = plain
        while candidate in self._owners and self._owners[candidate] != owner:
            number += 1
            candidate = f"{plain}_{number}"
        self._owners[candidate] = owner
        return candidate

    def adopt(self, schema: Schema) -> Schema:
        """Take over a schema: move its `$defs` here under free names, and return the rest."""
        theirs: dict[str, Schema] = schema.get("$defs", {})
        names = {name: self.claim(name, body) for name, body in theirs.items()}

        def renamed(part: Schema) -> Schema:
            if isinstance(pointer := part.get("$ref"), str):
                part["$ref"] = _moved(pointer, names)
            if is_object(choice := part.get("discriminator")) and is_object(pointers := choice.get("mapping")):
                mapping = {tag: _moved(pointer, names) for tag, pointer in pointers.items()}
                part["discriminator"] = {**choice, "mapping": mapping}
                self._pinned.update(pointer.removeprefix("#/$defs/") for pointer in mapping.values())
            return part

        for name, body in theirs.items():
            self._bodies[names[name]] = rebuilt(body, renamed)
        return rebuilt({key: value for key, value in schema.items() if key != "$defs"}, renamed)

    def enclosed(self, schema: Schema) -> Schema:
        """Return the schema self-contained: definitions used once in place, the others under `$defs`."""
        counts = Counter(self._reachable(schema))
        kept = {name for name in counts if counts[name] > 1 or name in self._pinned or self._recurs(name)}

        def inlined(part: Schema) -> Schema:
            name = part.get("$ref", "").removeprefix("#/$defs/")
            if name in kept or name not in self._bodies:
                return part
            return {**rebuilt(self._bodies[name], inlined), **{key: part[key] for key in part if key != "$ref"}}

        # The root is in place even when others point to it: a peer may insist on its `type`.
        whole = rebuilt(self._opened(schema), inlined)
        used = sorted(name for name in kept if name in self._bodies)
        return {**whole, "$defs": {name: rebuilt(self._bodies[name], inlined) for name in used}} if used else whole

    def _opened(self, schema: Schema) -> Schema:
        while (name := schema.get("$ref", "").removeprefix("#/$defs/")) in self._bodies:
            schema = {**self._bodies[name], **{key: schema[key] for key in schema if key != "$ref"}}
        return schema

    def _reachable(self, schema: Schema) -> list[str]:
        """Return every pointer reachable from here, without that of the root itself."""
        found = list(references(self._opened(schema)))
        seen: set[str] = set()
        for name in found:
            if name in self._bodies and name not in seen:
                seen.add(name)
                found.extend(references(self._bodies[name]))
        return found

    def _recurs(self, name: str) -> bool:
        return name in self._bodies and name in self._reachable(self._bodies[name])


def _moved(pointer: str, names: dict[str, str]) -> str:
    name = pointer.removeprefix("#/$defs/")
    return f"#/$defs/{names[name]}" if name in names else pointer
