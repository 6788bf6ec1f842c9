"""Arguments: from ``key=value`` on the command line to what the tool's input schema asks for."""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import click
import msgspec

from antiphon.shapes import Mismatch, raw_shape
from antiphon.shapes.mismatch import listing, quoted
from antiphon.types import JsonObject, PromptArgument

TRUE: Final = frozenset({"true", "yes", "on", "1"})
FALSE: Final = frozenset({"false", "no", "off", "0"})
_DEEPEST: Final = 16
"""How many references and alternatives deep a schema is looked through."""
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,400}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
INTEGERS: Final = range(-(2**63), 2**64)
"""The integers that our JSON carries."""


class Word(NamedTuple):
    """One ``key=value``, or ``key:=value`` if the value is JSON."""

    key: str
    text: str
    is_json: bool


def read_word(text: str) -> Word:
    key, equals, value = text.partition("=")
    is_json = key.endswith(":")
    key = key[:-1] if is_json else key
    if not equals or not key:
        raise click.UsageError(f"{text!r} is no argument: write key=value, or key:=json")
    return Word(key, value, is_json)


def read_json(text: str) -> JsonObject:
    """The value of ``--json``."""
    value = _decoded(text, "--json")
    if type(value) is not dict:
        raise click.UsageError(f"--json takes an object such as '{{\"key\": 1}}', got {quoted(value)}")
    return value


def tool_arguments(words: Sequence[str], base: JsonObject, schema: JsonObject) -> JsonObject:
    """The arguments of a tool; a usage error if they do not fit its input schema."""
    arguments = dict(base)
    given: dict[str, list[Word]] = {}
    for word in map(read_word, words):
        given.setdefault(word.key, []).append(word)
    for key, of_key in given.items():
        part = _part(schema, key)
        if part is None:
            raise click.UsageError(_unknown(key, schema))
        arguments[key] = _value(key, of_key, part, schema)
    for key in base:
        if _part(schema, key) is None:
            raise click.UsageError(_unknown(key, schema))
    _require(arguments, schema)
    _check(arguments, schema)
    return arguments


def prompt_arguments(words: Sequence[str], base: JsonObject, known: Sequence[PromptArgument]) -> dict[str, str]:
    """The arguments of a prompt: strings, all of them."""
    schema: JsonObject = {
        "properties": {argument.name: {"type": "string", "description": argument.description} for argument in known},
        "required": [argument.name for argument in known if argument.required],
        "additionalProperties": False,
    }
    arguments = tool_arguments(words, base, schema)
    for key, value in arguments.items():
        if not isinstance(value, str):
            raise click.UsageError(f"The prompt's argument {key!r} is a string, got {quoted(value)}")
    return arguments


def convert(text: str, schema: object, root: JsonObject) -> Any:
    """A text as the value that a schema asks for; ValueError says what was expected."""
    parts = list(_alternatives(schema, root))
    options = [option for part in parts for option in _options(part)]
    if options and all(_options(part) for part in parts):
        return _option(text, options)
    kinds = {kind for part in parts for kind in _kinds(part)}
    if not kinds:
        value = _literal(text)
        return text if value is _NONE else value
    if "string" in kinds:
        # A string is never wrong, so that anything else must be written as JSON has it.
        value = _literal(text)
        return value if value is not None and kinds & _kinds_of(value) - {"string"} else text
    for kind in ("null", "boolean", "integer", "number", "array", "object"):
        if kind in kinds:
            value = _READERS[kind](text, parts, root)
            if value is not _NONE:
                return value
    raise ValueError(f"expected {_wanted(kinds)}, got {quoted(text)}")


# --- one key ------------------------------------------------------------------------------------------------------


def _value(key: str, words: list[Word], schema: object, root: JsonObject) -> object:
    if any(word.is_json for word in words):
        if len(words) > 1:
            raise click.UsageError(f"The argument {key!r} is given twice, and once as JSON: give the JSON alone")
        return _decoded(words[0].text, key)
    try:
        if len(words) == 1:
            return convert(words[0].text, schema, root)
        parts = list(_alternatives(schema, root))
        if not any("array" in _kinds(part) for part in parts):
            raise ValueError("it is given twice, but is no list")
        return [item for word in words for item in _items(word.text, parts, root)]
    except ValueError as fault:
        raise click.UsageError(f"The argument {key!r}: {fault}") from None


def _decoded(text: str, key: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as fault:
        raise click.UsageError(f"{key} is not valid JSON: {fault}") from None


def _option(text: str, options: list[Any]) -> Any:
    if text in options:
        return text
    value = _literal(text)
    for option in options:
        if type(option) is type(value) and option == value:
            return option
    raise ValueError(f"expected one of {listing(options)}, got {quoted(text)}")


# --- readers by type: the value, or _NONE if the text is not of that type -----------------------------------------

_NONE: Final = object()
_Reader = Callable[[str, list[JsonObject], JsonObject], Any]


def _null(text: str, _parts: list[JsonObject], _root: JsonObject) -> Any:
    return None if text in {"", "null"} else _NONE


def _boolean(text: str, _parts: list[JsonObject], _root: JsonObject) -> Any:
    word = text.strip().lower()
    return True if word in TRUE else False if word in FALSE else _NONE


def _integer(text: str, _parts: list[JsonObject], _root: JsonObject) -> Any:
    if not _WHOLE.fullmatch(text.strip()):
        return _NONE
    value = int(text)
    if value not in INTEGERS:
        raise ValueError(f"expected a whole number of at most 64 bits, got {quoted(text)}")
    return value


def _number(text: str, parts: list[JsonObject], root: JsonObject) -> Any:
    if not _NUMBER.fullmatch(text.strip()):
        return _NONE
    whole = _integer(text, parts, root)
    value = float(text) if whole is _NONE else whole
    if value in {float("inf"), float("-inf")}:
        raise ValueError(f"expected a number, got {quoted(text)}, which is too large for one")
    return value


def _array(text: str, parts: list[JsonObject], root: JsonObject) -> Any:
    return _items(text, parts, root)


def _items(text: str, parts: list[JsonObject], root: JsonObject) -> list[Any]:
    """``a,b`` or ``["a", "b"]``."""
    if text.lstrip().startswith("["):
        value = _literal(text)
        if isinstance(value, list):
            return value
    if not text.strip():
        return []
    schema = next((part["items"] for part in parts if "items" in part), True)
    return [convert(item.strip(), schema, root) for item in text.split(",")]


def _object(text: str, _parts: list[JsonObject], _root: JsonObject) -> Any:
    value = _literal(text)
    return value if isinstance(value, dict) else _NONE


_READERS: Final[dict[str, _Reader]] = {
    "null": _null,
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "array": _array,
    "object": _object,
}
_WORDS: Final = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "array": "a list such as a,b or [1, 2]",
    "object": 'an object such as {"key": 1}',
    "null": "null",
}


def _literal(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _NONE


def _wanted(kinds: set[str]) -> str:
    return " or ".join(words for kind, words in _WORDS.items() if kind in kinds) or "another type"


# --- schemas ------------------------------------------------------------------------------------------------------


def _part(schema: JsonObject, key: str) -> object:
    """The schema of one argument; None if the tool knows none of that name."""
    properties = schema.get("properties")
    if isinstance(properties, dict) and key in properties:
        return properties[key]
    patterns = schema.get("patternProperties")
    rest = schema.get("additionalProperties", not properties or bool(patterns))
    return None if rest is False else rest


def _alternatives(schema: object, root: JsonObject, depth: int = 0) -> Iterator[JsonObject]:
    """The schemas that a value may follow: references resolved, ``anyOf`` and its like opened."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        yield {}
        return
    found = False
    if isinstance(pointer := schema.get("$ref"), str):
        found = True
        yield from _alternatives(_at(pointer, root), root, depth + 1)
    for keyword in ("anyOf", "oneOf", "allOf"):
        choices = schema.get(keyword)
        for choice in choices if isinstance(choices, list) else ():
            found = True
            yield from _alternatives(choice, root, depth + 1)
    if not found or "type" in schema:
        yield schema


def _at(pointer: str, root: JsonObject) -> object:
    place: Any = root
    if not pointer.startswith("#/"):
        return {}
    for step in pointer[2:].split("/"):
        place = place.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(place, dict) else None
    return place


def _options(schema: JsonObject) -> list[Any]:
    if "const" in schema:
        return [schema["const"]]
    options = schema.get("enum")
    return options if isinstance(options, list) else []


def _kinds(schema: JsonObject) -> set[str]:
    """The types that a schema names or implies; none where it allows any."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return {kind}
    if isinstance(kind, list):
        return {one for one in kind if isinstance(one, str)}
    if options := _options(schema):
        return {kind for option in options for kind in _kinds_of(option)}
    if "properties" in schema:
        return {"object"}
    return {"array"} if "items" in schema else set()


def _kinds_of(value: object) -> set[str]:
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number"}
        case str():
            return {"string"}
        case list():
            return {"array"}
        case dict():
            return {"object"}
        case _:
            return set()


# --- the whole ----------------------------------------------------------------------------------------------------


def _unknown(key: str, schema: JsonObject) -> str:
    known: list[str] = list(schema.get("properties") or {})
    if not known:
        return f"There is no argument {key!r}: it takes none"
    close = difflib.get_close_matches(key, known, n=1)
    meant = f" Did you mean {close[0]}?" if close else ""
    return f"There is no argument {key!r}. It knows {', '.join(known)}.{meant}"


def _require(arguments: Mapping[str, object], schema: JsonObject) -> None:
    required = schema.get("required")
    missing = [key for key in required if key not in arguments] if isinstance(required, list) else []
    if not missing:
        return
    properties: JsonObject = schema.get("properties") or {}
    lines = [_missing(key, properties.get(key)) for key in missing]
    noun = "argument is" if len(missing) == 1 else "arguments are"
    raise click.UsageError("\n  ".join([f"{len(missing)} {noun} missing:", *lines]))


def _missing(key: str, schema: object) -> str:
    description = schema.get("description") if isinstance(schema, dict) else None
    return f"{key}=...  {description}" if description else f"{key}=..."


def _check(arguments: JsonObject, schema: JsonObject) -> None:
    try:
        shape = raw_shape({"type": "object", **schema})
    except (ValueError, TypeError):
        # A schema that we cannot use: the server will say what it thinks.
        return
    try:
        shape.read(arguments)
    except Mismatch as fault:
        raise click.UsageError(f"The arguments do not fit: {fault}") from None
