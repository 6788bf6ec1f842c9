"""The fields of a form: what each one is, and a widget that asks for it. Esc leaves any widget."""

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import msgspec
import questionary
from prompt_toolkit.application import Application
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from prompt_toolkit.layout.screen import Char

from antiphon.cli.arguments import convert
from antiphon.escaping import line, visible, visible_json
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
        if isinstance(value, list):
            return ", ".join(titles.get(item, line(str(item))) for item in value) or "none"
        if isinstance(value, str):
            return titles.get(value, line(value))
        return line(visible_json(value, indent=-1))

    def read(self, text: str) -> Any:
        """Return the value for what was typed; raise ValueError if it is not valid."""
        match self.kind:
            case "other":
                return convert(text, self.schema)
            case "number":
                return self.check(convert(text, self.schema))
            case "date":
                return self.check(text.strip())
            case "date-time":
                return self.check(_with_offset(text))
            case _:
                return self.check(text)

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


def _with_offset(text: str) -> str:
    """Return a date-time with the local offset, if it has none."""
    stripped = text.strip()
    try:
        moment = datetime.fromisoformat(stripped.upper())
    except ValueError:
        return stripped
    if moment.tzinfo is not None and len(stripped) >= len("2026-07-28T09:30:00Z"):
        return stripped
    return (moment if moment.tzinfo is not None else moment.astimezone()).isoformat(timespec="seconds")


# --- widgets ------------------------------------------------------------------------------------------------------

ABSENT: Final = object()
"""The value of a field that was left out."""
SEARCHED: Final = 12
"""With more options than this, typing filters them."""
_ESCAPE: Final = 0.1
"""Seconds after which Esc counts as a key, not as the start of an arrow key."""
_UNSEEN: Final = (0xAD, 0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
# A default may hold letters that cannot be seen, and a person may paste some: show them, but send them unchanged.
Char.display_mappings.update({chr(code): visible(chr(code)) for code in (*_UNSEEN, *range(0xE0000, 0xE0080))})


class Escaped(Exception):
    """Esc was pressed."""


async def ask(field: PromptField, before: object, complain: Callable[[str], None]) -> Any:
    """Return a valid value for a field, or ABSENT; ``before`` is what was answered earlier."""
    while True:
        match field.kind:
            case "boolean" | "choice":
                return await _choose(field, before)
            case "several":
                before = await _choose_several(field, before)
            case _:
                before = await _type(field, before)
        try:
            return _value(field, before)
        except ValueError as fault:
            complain(str(fault)[:1].upper() + str(fault)[1:])


def _value(field: PromptField, given: Any) -> Any:
    """Return the value for what was typed or marked; raise ValueError if it is not valid."""
    if isinstance(given, list):
        return ABSENT if not given and field.is_optional else field.check(given)
    if given.strip() or given == field.default:
        return field.read(given)
    if field.is_required:
        raise ValueError("this field is required (Esc: decline or cancel)")
    return ABSENT


async def choose(message: str, choices: Sequence[tuple[str, object]], start: object = None) -> Any:
    """Ask to choose one of several actions, and return its value."""
    options = [questionary.Choice(title, value) for title, value in choices]
    return await _put(questionary.select(message, options, default=_choice_of(options, start), instruction=" "))


async def _type(field: PromptField, before: object) -> Any:
    start = field.default if before is ABSENT else before
    prefilled = "" if start is None else start if isinstance(start, str) else field.shown(start)
    keys: dict[str, Any] = {"key_bindings": _days()} if field.kind == "date" else {}
    hint = f" ({field.hint})" if field.hint else ""
    return await _put(questionary.text(f"{field.label}{hint}:", default=prefilled, **keys))


async def _choose(field: PromptField, before: object) -> Any:
    is_boolean = field.kind == "boolean"
    if is_boolean:
        choices = [questionary.Choice("Yes", True, shortcut_key="y"), questionary.Choice("No", False, shortcut_key="n")]
    else:
        choices = [questionary.Choice(option.title or '""', option.value) for option in field.options]
    if field.is_optional:
        choices.append(questionary.Choice("Leave it open", ABSENT, shortcut_key="l"))
    start = field.default if before is ABSENT else before
    if start is None and is_boolean:
        # Enter alone never means yes, unless the form's default is yes.
        start = choices[-1].value
    return await _put(
        questionary.select(
            f"{field.label}:",
            choices,
            default=_choice_of(choices, start),
            use_shortcuts=is_boolean,
            use_emacs_keys=not is_boolean,
            **_list_options(field, "arrows or y, n; then Enter" if is_boolean else "arrows, then Enter", choices),
        )
    )


async def _choose_several(field: PromptField, before: object) -> Any:
    start: Any = (field.default or []) if before is ABSENT else before
    choices = [
        questionary.Choice(option.title or '""', option.value, checked=option.value in start)
        for option in field.options
    ]
    options = _list_options(field, "arrows, space to mark, then Enter", choices)
    return await _put(questionary.checkbox(f"{field.label}:", choices, **options))


def _list_options(field: PromptField, keys: str, choices: list[questionary.Choice]) -> dict[str, Any]:
    search = len(choices) > SEARCHED
    parts = (field.hint, f"{keys}; type to search" if search else keys)
    instruction = f"({'; '.join(part for part in parts if part)})"
    return {"instruction": instruction, "use_search_filter": search, "use_jk_keys": False}


async def _put(question: questionary.Question) -> Any:
    """Ask; raise Escaped on Esc, KeyboardInterrupt on Ctrl-C, EOFError when the terminal is closed."""
    application: Application[Any] = question.application
    escape = KeyBindings()

    @escape.add("escape", eager=True)
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=Escaped())

    bindings = [escape] if application.key_bindings is None else [application.key_bindings, escape]
    application.key_bindings = merge_key_bindings(bindings)
    application.ttimeoutlen = _ESCAPE
    return await question.unsafe_ask_async()


def _days() -> KeyBindings:
    """Let up and down move a date by a day, starting today."""
    bindings = KeyBindings()

    def move(event: KeyPressEvent, days: int) -> None:
        buffer = event.current_buffer
        try:
            moved = date.fromisoformat(buffer.text.strip()) + timedelta(days=days)
        except (ValueError, OverflowError):
            moved = date.today()  # noqa: DTZ011 -- the local day
        text = moved.isoformat()
        buffer.set_document(Document(text, len(text)))

    bindings.add("up", eager=True)(partial(move, days=1))
    bindings.add("down", eager=True)(partial(move, days=-1))
    return bindings


def _choice_of(choices: list[questionary.Choice], value: object) -> Any:
    return next((choice for choice in choices if choice.value is value or choice.value == value), None)
