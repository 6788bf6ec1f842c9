"""Read the arguments of a call: ``key=value`` by the tool's input schema, ``key:=value`` and ``--json`` as JSON."""

import re
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, Final, NamedTuple

import click
import msgspec

from antiphon.shapes import Mismatch, raw_shape
from antiphon.shapes.mismatch import quoted
from antiphon.shapes.schema_trees import schemas_at
from antiphon.types import JsonObject, PromptArgument

TRUE: Final = frozenset({"true", "yes", "on", "1"})
FALSE: Final = frozenset({"false", "no", "off", "0"})
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,400}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INTEGERS: Final = range(-(2**63), 2**64)
"""The integers that our JSON carries."""
_NO_JSON: Final = object()
_TYPES: Final[Mapping[type, frozenset[str]]] = {
    NoneType: frozenset({"null"}),
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    str: frozenset({"string"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
}
"""The JSON types of a value."""
_EXPECTED: Final = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "array": "a list such as a,b or [1, 2]",
    "object": 'an object such as {"key": 1}',
    "null": "null",
}


class Argument(NamedTuple):
    """One ``key=value``, or ``key:=value`` if the value is JSON."""

    key: str
    text: str
    is_json: bool


def read_argument(text: str) -> Argument:
    key, equals, value = text.partition("=")
    is_json = key.endswith(":")
    key = key[:-1] if is_json else key
    if not equals or not key:
        raise click.UsageError(f"{text!r} is not an argument: write key=value or key:=json")
    return Argument(key, value, is_json)


def read_json(text: str) -> JsonObject:
    """Read the value of ``--json``."""
    value = _decoded(text, "--json")
    if type(value) is not dict:
        raise click.UsageError(f"--json takes an object such as '{{\"key\": 1}}', got {quoted(value)}")
    return value


def tool_arguments(words: Sequence[str], base: JsonObject, schema: JsonObject) -> JsonObject:
    """Return ``base`` with the arguments in ``words``; raise a usage error if they do not fit the input schema."""
    given: dict[str, list[Argument]] = {}
    for argument in map(read_argument, words):
        given.setdefault(argument.key, []).append(argument)
    for key in (*given, *base):
        if not _knows(schema, key):
            raise click.UsageError(_unknown(key, schema))
    arguments = {**base, **{key: _value(key, of_key, schema) for key, of_key in given.items()}}
    _require(arguments, schema)
    _check(arguments, schema)
    return arguments


def prompt_arguments(words: Sequence[str], base: JsonObject, known: Sequence[PromptArgument]) -> dict[str, str]:
    """Return the arguments of a prompt, which are strings."""
    properties = {argument.name: {"type": "string", "description": argument.description or ""} for argument in known}
    return tool_arguments(words, base, _of_strings(properties, [a.name for a in known if a.required]))


def template_arguments(words: Sequence[str], base: JsonObject, variables: Sequence[str]) -> dict[str, str]:
    """Return the variables of a resource template, which are strings."""
    return tool_arguments(words, base, _of_strings({name: {"type": "string"} for name in variables}, variables))


def convert(text: str, schema: JsonObject, steps: Sequence[str | int] = ()) -> Any:
    """Return the text as the value that the schema asks for at ``steps``; raise ValueError if it is no such value."""
    kinds = {kind for part in schemas_at(schema, steps) for kind in _kinds(part)}
    literal = _literal(text)
    if not kinds:
        return text if literal is _NO_JSON else literal
    if "string" in kinds:
        # Any text is a string, so values of other types must be written as in JSON.
        return literal if literal is not None and kinds & _kinds_of(literal) - {"string"} else text
    word = text.strip().lower()
    if "null" in kinds and text in {"", "null"}:
        return None
    if "boolean" in kinds and word in TRUE | FALSE:
        return word in TRUE
    if kinds & {"integer", "number"} and _WHOLE.fullmatch(word):
        return _whole(word)
    if "number" in kinds and _NUMBER.fullmatch(word):
        return _finite(word)
    if "array" in kinds:
        return _items(text, schema, steps)
    if "object" in kinds and isinstance(literal, dict):
        return literal
    expected = " or ".join(words for kind, words in _EXPECTED.items() if kind in kinds) or "another type"
    raise ValueError(f"expected {expected}, got {quoted(text)}")


# --- values -------------------------------------------------------------------------------------------------------


def _value(key: str, arguments: list[Argument], schema: JsonObject) -> object:
    if any(argument.is_json for argument in arguments):
        if len(arguments) > 1:
            raise click.UsageError(f"The argument {key!r} is given twice, once as JSON: give only the JSON")
        return _decoded(arguments[0].text, key)
    try:
        if len(arguments) == 1:
            return convert(arguments[0].text, schema, (key,))
        if not any("array" in _kinds(part) for part in schemas_at(schema, (key,))):
            raise ValueError("given twice, but not a list")
        return [item for argument in arguments for item in _items(argument.text, schema, (key,))]
    except ValueError as fault:
        raise click.UsageError(f"The argument {key!r}: {fault}") from None


def _items(text: str, schema: JsonObject, steps: Sequence[str | int]) -> list[Any]:
    """Read ``a,b`` or ``["a", "b"]``."""
    literal = _literal(text)
    if isinstance(literal, list):
        return literal
    texts = text.split(",") if text.strip() else []
    return [convert(item.strip(), schema, (*steps, place)) for place, item in enumerate(texts)]


def _whole(text: str) -> int:
    value = int(text)
    if value not in _INTEGERS:
        raise ValueError(f"expected a whole number of at most 64 bits, got {quoted(text)}")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        raise ValueError(f"expected a number, got {quoted(text)}, which is too large")
    return value


def _decoded(text: str, key: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as fault:
        raise click.UsageError(f"{key} is not valid JSON: {fault}") from None


def _literal(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _NO_JSON


# --- schemas ------------------------------------------------------------------------------------------------------


def _of_strings(properties: JsonObject, required: Sequence[str]) -> JsonObject:
    return {"properties": properties, "required": list(required), "additionalProperties": False}


def _properties(schema: JsonObject) -> JsonObject:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _knows(schema: JsonObject, key: str) -> bool:
    properties = _properties(schema)
    allows_more = schema.get("additionalProperties", not properties or bool(schema.get("patternProperties")))
    return key in properties or allows_more is not False


def _kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    """The types that a schema names or implies; none if it allows any."""
    match schema:
        case {"type": str(kind)}:
            return frozenset({kind})
        case {"type": list(kinds)}:
            return frozenset(kind for kind in kinds if isinstance(kind, str))
        case {"const": value}:
            return _kinds_of(value)
        case {"enum": [_, *_] as options}:
            return frozenset[str]().union(*map(_kinds_of, options))
        case {"properties": _}:
            return frozenset({"object"})
        case {"items": _}:
            return frozenset({"array"})
        case _:
            return frozenset()


def _kinds_of(value: object) -> frozenset[str]:
    return _TYPES.get(type(value), frozenset())


def _unknown(key: str, schema: JsonObject) -> str:
    known = list(_properties(schema))
    if not known:
        return f"There is no argument {key!r}: no arguments are taken"
    return f"There is no argument {key!r}{meant(key, known)} Known arguments: {', '.join(known)}."


def meant(name: str, known: Sequence[str]) -> str:
    """Return ``; did you mean 'x'?`` if a known name is similar, else a full stop."""
    from antiphon.testing.suite.document import nearest  # only a typing error needs it

    return nearest(name, known) or "."


def _require(arguments: Mapping[str, object], schema: JsonObject) -> None:
    required = schema.get("required")
    names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    missing = [name for name in names if name not in arguments]
    if missing:
        noun = "argument is" if len(missing) == 1 else "arguments are"
        lines = [_missing(name, _properties(schema).get(name)) for name in missing]
        raise click.UsageError("\n  ".join([f"{len(missing)} {noun} missing:", *lines]))


def _missing(name: str, schema: object) -> str:
    description = schema.get("description") if isinstance(schema, dict) else None
    return f"{name}=...  {description}" if description else f"{name}=..."


def _check(arguments: JsonObject, schema: JsonObject) -> None:
    try:
        shape = raw_shape({"type": "object", **schema})
    except (ValueError, TypeError):
        # We cannot use this schema: the server will check the arguments.
        return
    try:
        shape.read(arguments)
    except Mismatch as fault:
        raise click.UsageError(f"Invalid arguments: {fault}") from None
