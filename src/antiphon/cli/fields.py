"""The fields of a form, as a terminal asks for them."""

import math
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec

from antiphon.cli.arguments import INTEGERS, convert
from antiphon.cli.text import line
from antiphon.shapes import Mismatch
from antiphon.shapes.mismatch import quoted
from antiphon.shapes.restricted import checked_definition, options_of, read_value
from antiphon.types import JsonObject

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


class Field(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    schema: JsonObject
    kind: Kind
    is_required: bool

    @property
    def label(self) -> str:
        title = self.schema.get("title")
        return line(title) if isinstance(title, str) and title else line(self.name)

    @property
    def description(self) -> str:
        told = self.schema.get("description")
        return line(told) if isinstance(told, str) else ""

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
        """What may be entered: bounds, formats, and whether it may be left out."""
        parts = [_bounds(self.schema, self.kind)]
        if self.kind == "other":
            parts.append("as JSON")
        if not self.is_required and self.default is None and self.kind not in {"boolean", "choice", "several"}:
            parts.append("may be left empty")
        return ", ".join(part for part in parts if part)

    def shown(self, value: object) -> str:
        """A value of this field as a person reads it."""
        titles = {option.value: option.title for option in self.options} if self.kind in {"choice", "several"} else {}
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, list):
            return ", ".join(titles.get(item, line(str(item))) for item in value) or "none"
        if isinstance(value, str):
            return titles.get(value, line(value))
        return msgspec.json.encode(value).decode()

    def read(self, text: str) -> Any:
        """What was typed, as the field's value; ValueError says what is wrong with it."""
        if self.kind == "other":
            return convert(text, self.schema, self.schema)
        value: object = text
        if self.kind == "number":
            value = _number(text, whole=self.schema["type"] == "integer")
        elif self.kind == "date-time":
            value = _with_offset(text)
        elif self.kind == "date":
            value = text.strip()
        return self.check(value)

    def check(self, value: object) -> Any:
        """The value, if it is a valid one; ValueError says what is wrong with it."""
        return read_value(self.schema, value)


def fields_of(schema: JsonObject) -> list[Field]:
    """The fields of a form. One that the protocol's forms do not know is asked for as JSON."""
    properties = schema.get("properties")
    required = schema.get("required")
    names: list[Any] = required if isinstance(required, list) else []
    found = properties.items() if isinstance(properties, dict) else ()
    return [_field(name, definition, is_required=name in names) for name, definition in found]


def _field(name: str, definition: object, *, is_required: bool) -> Field:
    schema: JsonObject = definition if isinstance(definition, dict) else {}
    try:
        kind = _kind(checked_definition(name, definition))
    except TypeError:
        kind = "other"
    return Field(name=name, schema=schema, kind=kind, is_required=is_required)


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


def _number(text: str, *, whole: bool) -> int | float:
    stripped = text.strip()
    try:
        value = int(stripped) if whole or stripped.lstrip("+-").isdecimal() else float(stripped)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or (isinstance(value, int) and value not in INTEGERS):
        raise Mismatch(f"expected {'a whole number' if whole else 'a number'}, got {quoted(text)}")
    return value


def _with_offset(text: str) -> str:
    """A moment without an offset is meant where the person is."""
    stripped = text.strip()
    try:
        moment = datetime.fromisoformat(stripped.upper())
    except ValueError:
        return stripped
    if moment.tzinfo is not None and len(stripped) >= len("2026-07-28T09:30:00Z"):
        return stripped
    return (moment if moment.tzinfo is not None else moment.astimezone()).isoformat(timespec="seconds")
