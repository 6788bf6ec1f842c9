"""Definitions of form fields, checked, and answers to them (client/elicitation, PrimitiveSchemaDefinition)."""

import math
from collections.abc import Mapping
from typing import Any

from antiphon.shapes.constraints import FORMATS, problem_with
from antiphon.shapes.mismatch import Mismatch, is_array, is_object, listing, quoted

_NOTES = frozenset({"type", "title", "description", "default"})
_NUMBER = _NOTES | {"minimum", "maximum"}
_ALLOWED: dict[str, frozenset[str]] = {
    "string": _NOTES | {"minLength", "maxLength", "format"},
    "integer": _NUMBER,
    "number": _NUMBER,
    "boolean": _NOTES,
    "array": _NOTES | {"minItems", "maxItems", "items"},
}
_LENGTHS = ("minLength", "maxLength", "minItems", "maxItems")
_BOUNDS = ("minimum", "maximum")


def checked_definition(name: str, schema: object) -> dict[str, Any]:
    """Return a field's definition if the protocol allows it; raise TypeError naming the field if not."""
    if not is_object(schema):
        raise TypeError(f"form field '{name}': expected a schema, got {quoted(schema)}")
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _ALLOWED:
        raise _cannot(name, f"type {quoted(kind)}; it knows string, number, integer, boolean and array of options")
    for key in schema.keys() - _allowed(schema, kind):
        raise _cannot(name, f"{key!r} for type {kind!r}")
    _check_texts(name, schema)
    _check_numbers(name, schema)
    _check_options(name, schema, kind)
    if "default" in schema:
        try:
            read_value(schema, schema["default"])
        except Mismatch as problem:
            raise TypeError(f"form field '{name}': the default does not fit: {problem}") from None
    return schema


def _cannot(name: str, what: str) -> TypeError:
    return TypeError(f"form field '{name}': a form cannot say {what}")


def _allowed(schema: Mapping[str, Any], kind: str) -> frozenset[str]:
    if kind == "string" and "oneOf" in schema:
        return _NOTES | {"oneOf"}
    if kind == "string" and "enum" in schema:
        return _NOTES | {"enum", "enumNames"}
    return _ALLOWED[kind]


def _check_texts(name: str, schema: Mapping[str, Any]) -> None:
    for key in ("title", "description"):
        if not isinstance(schema.get(key, ""), str):
            raise TypeError(f"form field '{name}': {key} must be a string")
    if "format" in schema and schema["format"] not in FORMATS:
        raise _cannot(name, f"format {quoted(schema['format'])}; it knows {', '.join(FORMATS)}")


def _check_numbers(name: str, schema: Mapping[str, Any]) -> None:
    for key in _LENGTHS:
        value = schema.get(key, 0)
        if type(value) is not int or value < 0:
            raise TypeError(f"form field '{name}': {key} must be a whole number")
    for key in _BOUNDS:
        value = schema.get(key, 0)
        if type(value) not in (int, float) or not math.isfinite(value):
            raise TypeError(f"form field '{name}': {key} must be a number")


def _check_options(name: str, schema: Mapping[str, Any], kind: str) -> None:
    if kind == "array":
        _check_items(name, schema.get("items"))
    if not {"enum", "oneOf", "items"} & schema.keys():
        return
    for titled in (schema.get("oneOf"), schema.get("items", {}).get("anyOf")):
        _check_titled(name, titled)
    options = options_of(schema)
    if not options or not all(isinstance(option, str) for option in options):
        raise TypeError(f"form field '{name}': options must be strings, and at least one")
    if len(set(options)) != len(options):
        raise TypeError(f"form field '{name}': an option is given twice")
    names = schema.get("enumNames", options)
    if not is_array(names) or len(names) != len(options):
        raise TypeError(f"form field '{name}': enumNames must name each option")


def _check_items(name: str, items: object) -> None:
    if not is_object(items):
        raise _cannot(name, "a list of anything but options")
    untitled = items.keys() == {"type", "enum"} and items["type"] == "string"
    if not untitled and items.keys() != {"anyOf"}:
        raise _cannot(name, "a list of anything but options: items has either type 'string' and enum, or anyOf")


def _check_titled(name: str, titled: object) -> None:
    if titled is None:
        return
    if not is_array(titled) or not all(
        is_object(one) and one.keys() == {"const", "title"} and isinstance(one["title"], str) for one in titled
    ):
        raise _cannot(name, "options other than {'const': ..., 'title': ...}")


def options_of(schema: Mapping[str, Any]) -> list[Any]:
    """Return the values that a field offers; an empty list if it offers no choice."""
    if "items" in schema:
        schema = schema["items"]
    titled = schema.get("oneOf", schema.get("anyOf"))
    if titled is not None:
        return [option["const"] for option in titled]
    options = schema.get("enum")
    return options if is_array(options) else []


def read_value(schema: Mapping[str, Any], value: object) -> Any:
    """Return an answer to a field; raise Mismatch if it is not valid."""
    match schema["type"]:
        case "boolean":
            return _expect(isinstance(value, bool), "bool", value)
        case "integer" | "number":
            return _number(schema, value)
        case "array":
            return _several(schema, value)
        case _ if options := options_of(schema):
            return _option(options, value)
        case _:
            return _text(schema, value)


def _expect(fits: bool, expected: str, value: Any) -> Any:
    if not fits:
        raise Mismatch(f"expected {expected}, got {quoted(value)}")
    return value


def _number(schema: Mapping[str, Any], value: Any) -> Any:
    whole = schema["type"] == "integer"
    if whole and isinstance(value, float) and value.is_integer():
        value = int(value)
    kinds = int if whole else (int, float)
    _expect(isinstance(value, kinds) and not isinstance(value, bool), "int" if whole else "a number", value)
    _expect(isinstance(value, int) or math.isfinite(value), "a number", value)
    if "minimum" in schema:
        _expect(value >= schema["minimum"], f"a number >= {schema['minimum']}", value)
    if "maximum" in schema:
        _expect(value <= schema["maximum"], f"a number <= {schema['maximum']}", value)
    return value


def _text(schema: Mapping[str, Any], value: Any) -> Any:
    _expect(isinstance(value, str), "str", value)
    least, most = schema.get("minLength", 0), schema.get("maxLength", math.inf)
    _expect(len(value) >= least, f"at least {least} characters", value)
    _expect(len(value) <= most, f"at most {most} characters", value)
    if "format" in schema and (problem := problem_with(schema["format"], value)):
        raise Mismatch(f"{problem}, got {quoted(value)}")
    return value


def _option(options: list[Any], value: Any) -> Any:
    return _expect(isinstance(value, str) and value in options, f"one of {listing(options)}", value)


def _several(schema: Mapping[str, Any], value: Any) -> Any:
    _expect(isinstance(value, list), "a list of options", value)
    options = options_of(schema)
    for index, one in enumerate(value):
        try:
            _option(options, one)
        except Mismatch as problem:
            raise problem.within(f"[{index}]") from None
    if len(set(value)) != len(value):
        raise Mismatch("expected each option at most once")
    least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
    if not least <= len(value) <= most:
        wanted = f"at least {least}" if len(value) < least else f"at most {most}"
        raise Mismatch(f"expected {wanted} of the options, got {len(value)}")
    return list(value)
