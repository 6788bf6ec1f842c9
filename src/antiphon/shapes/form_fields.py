"""The fields of a form: definitions checked, answers read, and what a person is shown.

The definitions are those of client/elicitation, PrimitiveSchemaDefinition.
"""

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from antiphon.escaping import line, visible_json
from antiphon.shapes.constraints import FORMATS, problem_with
from antiphon.shapes.mismatch import Mismatch, listing, quoted
from antiphon.shapes.schema_trees import is_array, is_object
from antiphon.types import JsonObject

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


# --- answers ---


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


# --- what a person is shown ---


Kind = Literal["text", "number", "boolean", "choice", "several", "date", "date-time", "other"]

_HINTS: Final = {
    "email": "an email address",
    "uri": "a URI such as https://example.com",
    "date": "YYYY-MM-DD, or the arrows up and down",
    "date-time": "such as 2026-07-28 09:30, or with an offset",
}


class Option(NamedTuple):
    value: str
    title: str


class PromptField(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    schema: JsonObject
    kind: Kind
    is_required: bool

    @property
    def is_optional(self) -> bool:
        """Whether it can be left out: neither required nor filled in by a default."""
        return not self.is_required and self.default is None

    @property
    def is_decision(self) -> bool:
        """Whether it is a yes or no that has to be given, and that Enter alone does not make a yes."""
        return self.kind == "boolean" and self.is_required and self.default is not True

    @property
    def label(self) -> str:
        title = self.schema.get("title")
        return line(title) if isinstance(title, str) and title else line(self.name)

    @property
    def description(self) -> str:
        text = self.schema.get("description")
        return line(text) if isinstance(text, str) else ""

    @property
    def default(self) -> Any:
        return self.schema.get("default")

    @property
    def options(self) -> list[Option]:
        values = options_of(self.schema)
        inner = self.schema.get("items", self.schema)
        titled = inner.get("oneOf") or inner.get("anyOf") or []
        names = [item["title"] for item in titled] or inner.get("enumNames") or values
        return [Option(value, line(str(name))) for value, name in zip(values, names, strict=True)]

    @property
    def hint(self) -> str:
        """What may be entered: bounds, format, and whether it may be left empty."""
        parts = [_bounds(self.schema, self.kind)]
        if self.kind == "other":
            parts.append("as JSON")
        if self.is_optional and self.kind not in {"boolean", "choice", "several"}:
            parts.append("may be left empty")
        return ", ".join(part for part in parts if part)

    def shown(self, value: object) -> str:
        """Return a value of this field as a person reads it."""
        titles = {option.value: option.title for option in self.options} if self.kind in {"choice", "several"} else {}
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, list) and self.kind == "several":
            return ", ".join(titles.get(item, line(str(item))) for item in value) or "none"
        if isinstance(value, str):
            return titles.get(value, line(value))
        return line(visible_json(value, indent=-1))

    def check(self, value: object) -> Any:
        """Return the value; raise ValueError if it is not valid."""
        return read_value(self.schema, value)


def fields_of(schema: JsonObject) -> list[PromptField]:
    """Return the fields of a form. A field that the protocol does not allow is asked for as JSON."""
    properties = schema.get("properties")
    required = schema.get("required")
    names: list[Any] = required if isinstance(required, list) else []
    found = properties.items() if isinstance(properties, dict) else ()
    return [_field(name, definition, is_required=name in names) for name, definition in found]


def _field(name: str, definition: object, *, is_required: bool) -> PromptField:
    schema: JsonObject = definition if isinstance(definition, dict) else {}
    try:
        kind = _kind(checked_definition(name, definition))
    except TypeError:
        kind = "other"
    return PromptField(name=name, schema=schema, kind=kind, is_required=is_required)


def _kind(schema: JsonObject) -> Kind:
    match schema["type"]:
        case "boolean":
            return "boolean"
        case "integer" | "number":
            return "number"
        case "array":
            return "several"
        case _ if options_of(schema):
            return "choice"
        case _:
            return schema["format"] if schema.get("format") in {"date", "date-time"} else "text"


def _bounds(schema: JsonObject, kind: Kind) -> str:
    match kind:
        case "number":
            noun = "a whole number" if schema["type"] == "integer" else "a number"
            return _range(noun, schema.get("minimum"), schema.get("maximum"), "")
        case "several":
            return _range("", schema.get("minItems"), schema.get("maxItems"), "of them")
        case "text" | "date" | "date-time":
            known = _HINTS.get(str(schema.get("format")), "")
            return known or _range("", schema.get("minLength"), schema.get("maxLength"), "characters")
        case _:
            return ""


def _range(noun: str, least: float | None, most: float | None, unit: str) -> str:
    if least is None and most is None:
        return noun
    if least is None:
        told = f"at most {most}"
    elif most is None:
        told = f"at least {least}"
    else:
        told = f"{least} to {most}"
    return " ".join(part for part in (noun, told, unit) if part)
