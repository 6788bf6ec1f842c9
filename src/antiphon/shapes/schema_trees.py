"""JSON Schemas as trees: walking them, naming their definitions, bounding their size, and validating values."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from antiphon.shapes.mismatch import Mismatch, is_array, is_object, listing, path_text, quoted, referred

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

Schema = dict[str, Any]

# "Implementations SHOULD apply reasonable bounds, such as a maximum schema depth, a cap on the total number of
# subschemas" (basic, Composition-Keyword Resource Use).
MAX_DEPTH = 64
MAX_SUBSCHEMAS = 10_000

_IN_PLACE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"})
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


def references(schema: Schema) -> Iterator[str]:
    """Yield the names under `$defs` that this schema and those inside it point to, once for each pointer."""
    pointer = schema.get("$ref")
    if isinstance(pointer, str) and pointer.startswith("#/$defs/"):
        yield pointer.removeprefix("#/$defs/")
    for _, part in subschemas(schema):
        yield from references(part)


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


# --- bounds ---


def check_bounds(schema: Schema) -> None:
    """Raise ValueError if a schema is too large or too deep, or is not JSON; TypeError if it is not a dict."""
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
    """Counts the schemas that one value is checked against: references multiply what `allOf` and the like add."""

    __slots__ = ("_active", "_root", "_widths")

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._widths: dict[int, int] = {}
        self._active: set[int] = set()

    def width(self, schema: Schema) -> int:
        key = id(schema)
        if key in self._active:  # a cycle: followed once for each value
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


# --- validation ---


_DIALECTS = "2020-12, 2019-09, draft-07, draft-06 and draft-04"
_NAMES: dict[type, str] = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array",
}  # fmt: skip


class Validator:
    """Checks values against one schema; ValueError when the schema itself is wrong. Loads jsonschema_rs."""

    __slots__ = ("_validator",)

    def __init__(self, schema: Mapping[str, object]) -> None:
        import jsonschema_rs  # only where a schema itself decides

        refused: list[str] = []

        def refuse(uri: str) -> Any:
            refused.append(uri)
            raise LookupError(uri)

        try:
            # "Implementations MUST NOT automatically dereference $ref values that resolve to a network URI"
            # (basic, $ref Resolution).
            self._validator = jsonschema_rs.validator_for(cast("dict[str, Any]", schema), retriever=refuse)
        except jsonschema_rs.ValidationError as problem:
            raise _schema_problem(problem, refused, schema.get("$schema")) from None
        except ValueError as problem:
            raise ValueError(f"not a JSON Schema: {problem}") from None

    def check(self, value: object) -> None:
        """Raise Mismatch if the schema does not allow the value."""
        from jsonschema_rs import ValidationError

        try:
            self._validator.validate(value)
        except ValidationError as problem:
            raise _mismatch(problem) from None
        except ValueError as problem:
            raise Mismatch(f"not JSON: {problem}") from None


def _schema_problem(problem: "ValidationError", refused: list[str], dialect: object) -> ValueError:
    if dialect in refused or problem.message.startswith("Unknown meta-schema"):
        return ValueError(f"the schema's dialect ($schema {quoted(dialect)}) is not supported; these are: {_DIALECTS}")
    if refused:
        return ValueError(f"the schema refers to {refused[0]!r}, which is never fetched: put it under $defs")
    where = path_text(problem.instance_path)
    return ValueError(f"not a JSON Schema{f', at {where}' if where else ''}: {problem.message[:300]}")


def _mismatch(problem: "ValidationError") -> Mismatch:
    return Mismatch(_worded(problem), path_text(problem.instance_path))


def _worded(problem: "ValidationError") -> str:
    import jsonschema_rs

    kinds = jsonschema_rs.ValidationErrorKind
    match problem.kind:
        case kinds.Type(types):
            return f"expected {' or '.join(types)}, got {_NAMES.get(type(problem.instance), 'object')}"
        case kinds.Required(name):
            return f"missing required field {name!r}"
        case kinds.AdditionalProperties(names) | kinds.UnevaluatedProperties(names):
            return f"unknown field {', '.join(repr(name) for name in names[:5])}"
        case kinds.Enum(options):
            return f"expected one of {listing(options)}, got {quoted(problem.instance)}"
        case kinds.Constant(expected):
            return f"expected {quoted(expected)}, got {quoted(problem.instance)}"
        case kinds.AnyOf(context) | kinds.OneOfNotValid(context):
            told = "; ".join(str(_mismatch(branch[0])) for branch in context[:5] if branch)
            return f"fits none of the alternatives ({told})"
        case _:
            return problem.message[:300]
