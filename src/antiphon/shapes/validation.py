"""Validates values by JSON Schemas: bounds what a schema may cost, and finds one reason why a value does not fit."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import msgspec

from antiphon.shapes.mismatch import Mismatch, listing, path_text, quoted
from antiphon.shapes.schema_trees import Schema, Step, is_array, is_object, pointed_at, referred, subschemas

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

# "Implementations SHOULD apply reasonable bounds, such as a maximum schema depth, a cap on the total number of
# subschemas" (basic, Composition-Keyword Resource Use).
MAX_DEPTH = 64
MAX_SUBSCHEMAS = 10_000
MAX_CHAIN = 1000
"""Schemas that may lead to each other, by references or nesting."""
MAX_CHECKS = 1_000_000
"""Checks of one value that a schema may ask for."""
MAX_WORK = 20_000_000
"""Checks that all values of a message may take: about a second at worst."""

# Keywords of which at most one applies to a value inside; all others add up.
_APART = frozenset({
    "additionalItems", "additionalProperties", "contentSchema", "items", "prefixItems", "properties", "propertyNames",
})  # fmt: skip
_UNUSED = frozenset({"$defs", "definitions"})
BACKTRACKS = 10_000
"""Steps back that one match of a pattern may take. Only patterns with these parts take any: the others are linear."""
_BACKTRACKING = re.compile(r"\(\?<?[=!>]|\\[1-9k]|[*+?}]\+")


def check_bounds(schema: Schema) -> int:
    """Return how many checks one value may need at worst.

    Raise ValueError if a schema is too large, too deep or too costly, or is not JSON; TypeError if it is not a dict.
    """
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
    # Where a cycle is cut depends on where it is entered, and the validator may enter it elsewhere: try both ends.
    return max(_checks(schema, 1), _checks(schema, -1))


def _checks(root: Schema, order: int) -> int:
    """Return how often one value may be checked: schemas in place add up, and references multiply them.

    A reference back to a schema that is still being counted counts once: the validator remembers what it finds there.
    """
    counts: dict[int, int] = {}
    seen: set[int] = set()
    waiting = [(root, False)]
    chained = 0
    while waiting:
        schema, counted = waiting.pop()
        parts = _applied(schema, root)
        if counted:
            chained -= 1
            apart = max((counts.get(id(part), 1) for keyword, part in parts if keyword in _APART), default=0)
            added = sum(counts.get(id(part), 1) for keyword, part in parts if keyword not in _APART)
            counts[id(schema)] = total = _own_checks(schema) + apart + added
            if total > MAX_CHECKS:
                raise ValueError(f"the schema's references expand to more than {MAX_CHECKS} checks of one value")
        elif id(schema) not in seen:
            seen.add(id(schema))
            chained += 1
            if chained > MAX_CHAIN:
                raise ValueError(f"the schema's references are chained more than {MAX_CHAIN} times")
            waiting += [(schema, True), *((part, False) for _, part in parts[::order])]
    return counts[id(root)]


def _applied(schema: Schema, root: Schema) -> list[tuple[str, Schema]]:
    """Return the schemas that this one applies, to the same value or to those inside it."""
    parts = [(keyword, part) for keyword, part in subschemas(schema) if keyword not in _UNUSED]
    target = referred(schema.get("$ref"), root)
    return parts if target is None else [*parts, ("$ref", target)]


def _own_checks(schema: Schema) -> int:
    """Return what the schema's own keywords cost, in checks of a type."""
    patterns = [schema["pattern"]] if "pattern" in schema else []
    if is_object(named := schema.get("patternProperties")):
        patterns += named
    options = schema.get("enum")
    deep = sum(is_object(option) or is_array(option) for option in options) if is_array(options) else 0
    return 1 + deep + 20 * ("multipleOf" in schema) + sum(1000 if _backtracks(text) else 10 for text in patterns)


def _backtracks(pattern: object) -> bool:
    return isinstance(pattern, str) and _BACKTRACKING.search(pattern) is not None


# --- validation ---


_DIALECTS = "2020-12, 2019-09, draft-07, draft-06 and draft-04"
_NAMES: dict[type, str] = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object",
}  # fmt: skip


class TooLarge(Mismatch):
    """A value may fit, but would take too long to check."""


class Validator:
    """Checks values against one schema; ValueError when the schema itself is wrong. Loads jsonschema_rs."""

    __slots__ = ("_checks", "_misfits", "_schema", "_validator")

    def __init__(self, schema: Schema, checks: int = 0) -> None:
        """`checks` is what `check_bounds` returns, to refuse values that would take too long; 0 takes all."""
        import jsonschema_rs  # only where a schema itself decides

        self._checks = checks
        self._schema = schema
        self._misfits: _Misfits | None = None
        refused: list[str] = []

        def refuse(uri: str) -> Any:
            refused.append(uri)
            raise LookupError(uri)

        try:
            # "Implementations MUST NOT automatically dereference $ref values that resolve to a network URI"
            # (basic, $ref Resolution).
            self._validator = _compiled(schema, retriever=refuse)
        except jsonschema_rs.ValidationError as problem:
            raise _schema_problem(problem, refused, schema.get("$schema")) from None
        except ValueError as problem:
            raise ValueError(f"not a JSON Schema: {problem}") from None

    def check(self, value: object, data: bytes = b"") -> None:
        """Raise Mismatch if the schema does not allow the value. `data` is its JSON, if a peer has sent it."""
        work = len(data) * self._checks
        if work > MAX_WORK:
            values = data.count(b",") + data.count(b"[") + data.count(b"{") + 1
            work = values * self._checks
            if work > MAX_WORK:
                raise TooLarge(f"too large: the schema may check each of {values} values {self._checks} times")
        try:
            # Only this is fast for every value: an error lists what each alternative lacks, at each level again.
            if self._validator.is_valid(value):
                return
        except ValueError as problem:
            raise Mismatch(f"not JSON: {problem}") from None
        raise self._mismatch(value, min(MAX_PROBES, 1 + MAX_WORK // (work + 1)))

    def _mismatch(self, value: object, probes: int) -> Mismatch:
        try:
            if self._misfits is None:
                self._misfits = _Misfits(self._schema)
            return self._misfits.reason(value, probes)
        except (_Unclear, RecursionError, LookupError, ValueError):  # such as a $ref that only the validator follows
            return Mismatch("does not fit the schema")


def _compiled(schema: Schema, **options: Any) -> Any:
    import jsonschema_rs

    patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS)
    return jsonschema_rs.validator_for(schema, pattern_options=patterns, **options)


def _schema_problem(problem: "ValidationError", refused: list[str], dialect: object) -> ValueError:
    if dialect in refused or problem.message.startswith("Unknown meta-schema"):
        return ValueError(f"the schema's dialect ($schema {quoted(dialect)}) is not supported; these are: {_DIALECTS}")
    if refused:
        return ValueError(f"the schema refers to {refused[0]!r}, which is never fetched: put it under $defs")
    where = path_text(problem.instance_path)
    return ValueError(f"not a JSON Schema{f', at {where}' if where else ''}: {problem.message[:300]}")


# --- one reason why a value does not fit ---


MAX_PROBES = 1000
"""Parts of a value that are tried to find out which one does not fit."""

_CHOICES = ("anyOf", "oneOf")
_OPAQUE = (
    "not", "contains", "propertyNames", "patternProperties", "unevaluatedItems", "unevaluatedProperties",
    "dependencies", "$dynamicRef", "$recursiveRef", "$ref",
)  # fmt: skip
_APPLYING = frozenset({
    *_CHOICES, *_OPAQUE, "allOf", "if", "then", "else", "dependentSchemas", "properties", "items", "prefixItems",
    "additionalItems", "definitions",
})  # fmt: skip


class _Unclear(Exception):
    """The reason was not found within bounds."""


class _Misfits:
    """Says why a value does not fit a schema: follows one path down, and asks a validator about parts on the way.

    The time grows with the depth of the value and the width of the schema, not with the ways to combine alternatives.
    """

    __slots__ = ("_base", "_probes", "_registry", "_root", "_validators")

    def __init__(self, root: Schema) -> None:
        import jsonschema_rs

        self._root = root
        self._base = str(root.get("$id", "https://schema.invalid/")).partition("#")[0]
        self._registry = jsonschema_rs.Registry([(self._base, root)])
        self._validators: dict[str, Any] = {}
        self._probes = 0

    def reason(self, value: object, probes: int) -> Mismatch:
        """Return one reason; raise _Unclear if it takes more probes."""
        self._probes = probes
        return self._reason(value, "", [])

    def _reason(self, value: Any, pointer: str, path: list[Step], *, nested: bool = True) -> Mismatch:
        """Return why the value at `path` does not fit the schema at `pointer`; unless `nested`, skip alternatives."""
        from jsonschema_rs import ValidationError

        schema = pointed_at(pointer, self._root)
        if not is_object(schema):
            return Mismatch("no value is allowed here", path_text(path))
        try:
            _compiled(self._flat(schema)).validate(value)
        except ValidationError as problem:
            return Mismatch(_worded(problem), path_text([*path, *problem.instance_path]))
        for steps, values, part in _inside(value, schema, pointer):
            if (index := self._misfit(values, part)) is not None:
                return self._reason(values[index], part, [*path, steps[index]], nested=nested)
        for part in self._in_place(value, schema, pointer):
            if self._misfit([value], part) is not None:
                return self._reason(value, part, path, nested=nested)
        for keyword in _CHOICES:
            branches = [f"{pointer}/{keyword}/{index}" for index in range(len(schema.get(keyword, ())))]
            fitting = sum(self._misfit([value], branch) is None for branch in branches)
            if fitting > 1 and keyword == "oneOf":
                return Mismatch("fits several alternatives, and must fit only one", path_text(path))
            if branches and not fitting:
                return self._no_branch(value, branches, path, nested=nested)
        blamed = " and ".join(keyword for keyword in _OPAQUE if keyword in schema)
        return Mismatch(f"does not fit {blamed or 'the schema'}", path_text(path))

    def _no_branch(self, value: Any, branches: list[str], path: list[Step], *, nested: bool) -> Mismatch:
        """Return why the one branch that is meant does not fit; if that is not clear, say it of five."""
        if not nested:
            return Mismatch("fits none of the alternatives", path_text(path))
        meant = [branch for branch in branches if self._is_meant(value, branch)]
        if len(meant) == 1:
            return self._reason(value, meant[0], path)
        told = [str(self._reason(value, branch, path, nested=False)) for branch in (meant or branches)[:5]]
        return Mismatch(f"fits none of the alternatives ({'; '.join(told)})", path_text(path))

    def _is_meant(self, value: Any, pointer: str) -> bool:
        """Return whether neither the type nor a constant (a tag) of the schema contradicts the value."""
        schema = pointed_at(pointer, self._root)
        for _ in range(MAX_DEPTH):
            if not is_object(schema):
                return False
            schema = referred(schema.get("$ref"), self._root) or schema
        kinds = schema.get("type", _NAMES.values())
        kind = _NAMES.get(type(value), "object")
        if kind not in kinds and not (kind == "integer" and "number" in kinds):
            return False
        return not is_object(value) or not any(
            name in value and is_object(part) and part.get("const", value[name]) != value[name]
            for name, part in schema.get("properties", {}).items()
        )

    def _in_place(self, value: Any, schema: Schema, pointer: str) -> Iterator[str]:
        """Yield where the schemas are that the value itself must fit, apart from alternatives."""
        if referred(schema.get("$ref"), self._root) is not None:
            yield unquote(schema["$ref"]).removeprefix("#")
        yield from (f"{pointer}/allOf/{index}" for index in range(len(schema.get("allOf", ()))))
        if "if" in schema:
            then = "else" if self._misfit([value], f"{pointer}/if") is not None else "then"
            if then in schema:
                yield f"{pointer}/{then}"
        if is_object(value):
            named = schema.get("dependentSchemas", {})
            yield from (f"{pointer}/dependentSchemas/{_escaped(name)}" for name in value if name in named)

    def _misfit(self, values: Sequence[object], pointer: str) -> int | None:
        """Return the index of a value that does not fit the schema at `pointer`, None if all fit."""
        self._probes -= 1
        if self._probes < 0:
            raise _Unclear
        if pointer not in self._validators:
            items = {"$ref": f"{self._base}#{quote(pointer, safe='/~')}"}
            made = _compiled({**self._dialect(), "items": items}, registry=self._registry)
            if len(self._validators) >= MAX_PROBES:
                self._validators.clear()
            self._validators[pointer] = made
        fits = self._validators[pointer].is_valid
        if fits(values):
            return None
        low, high = 0, len(values)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(values[low:middle]) else (low, middle)
        return low

    def _flat(self, schema: Schema) -> Schema:
        """Return what the schema says of a value itself, without the schemas it applies."""
        flat = {key: rule for key, rule in schema.items() if key not in _APPLYING and not key.startswith("$")}
        if flat.pop("additionalProperties", None) is False:
            for keyword in ("properties", "patternProperties"):
                flat[keyword] = {name: {} for name in schema.get(keyword, ())}
            flat["additionalProperties"] = False
        return {**self._dialect(), **flat}

    def _dialect(self) -> Schema:
        return {"$schema": self._root["$schema"]} if "$schema" in self._root else {}


def _inside(value: Any, schema: Schema, pointer: str) -> Iterator[tuple[Sequence[Step], list[Any], str]]:
    """Yield values inside this one that must fit one schema: where they are, the values, and where the schema is."""
    if is_object(value):
        known = schema.get("properties", {})
        for name in value:
            if name in known:
                yield [name], [value[name]], f"{pointer}/properties/{_escaped(name)}"
        if is_object(schema.get("additionalProperties")) and "patternProperties" not in schema:
            names = [name for name in value if name not in known]
            yield names, [value[name] for name in names], f"{pointer}/additionalProperties"
    elif is_array(value):
        listed = "items" if is_array(schema.get("items")) else "prefixItems"
        rest = "additionalItems" if listed == "items" else "items"
        first = min(len(value), len(schema.get(listed, ())))
        yield from (([index], [value[index]], f"{pointer}/{listed}/{index}") for index in range(first))
        if rest in schema:
            yield range(first, len(value)), value[first:], f"{pointer}/{rest}"


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _worded(problem: "ValidationError") -> str:
    import jsonschema_rs

    kinds = jsonschema_rs.ValidationErrorKind
    match problem.kind:
        case kinds.Type(types):
            return f"expected {' or '.join(types)}, got {_NAMES.get(type(problem.instance), 'object')}"
        case kinds.Required(name):
            return f"missing required field {name!r}"
        case kinds.AdditionalProperties(names):
            return f"unknown field {', '.join(repr(name) for name in names[:5])}"
        case kinds.Enum(options):
            return f"expected one of {listing(options)}, got {quoted(problem.instance)}"
        case kinds.Constant(expected):
            return f"expected {quoted(expected)}, got {quoted(problem.instance)}"
        case _:
            return problem.message[:300]
