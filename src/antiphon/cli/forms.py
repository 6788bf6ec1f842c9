"""Widgets in the terminal, one for each kind of field of a form. Esc leaves any widget."""

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, Final

import questionary
from prompt_toolkit.application import Application
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from prompt_toolkit.layout.screen import Char

from antiphon.cli.arguments import convert
from antiphon.escaping import visible
from antiphon.shapes.form_fields import PromptField


def read(field: PromptField, text: str) -> Any:
    """Return the value for what was typed; raise ValueError if it is not valid."""
    match field.kind:
        case "other":
            return convert(text, field.schema)
        case "number":
            return field.check(convert(text, field.schema))
        case "date":
            return field.check(text.strip())
        case "date-time":
            return field.check(_with_offset(text))
        case _:
            return field.check(text)


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
        return read(field, given)
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
