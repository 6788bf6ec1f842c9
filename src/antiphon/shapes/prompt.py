"""The fields of a form as a person is asked for them: what each one is called, offers and takes."""

from typing import Any, Final, Literal, NamedTuple

import msgspec

from antiphon.escaping import line, visible_json
from antiphon.shapes.form_schema import checked_definition, options_of, read_value
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
