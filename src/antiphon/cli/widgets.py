"""A widget for each kind of field. Esc leaves any of them."""

from collections.abc import Callable, Sequence
from datetime import date, timedelta
from functools import partial
from typing import Any, Final

import questionary
from prompt_toolkit.application import Application
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings

from antiphon.cli.fields import Field

ABSENT: Final = object()
"""The answer to a field that was left out."""
SEARCHED: Final = 12
"""With more options than this, typing filters them."""
_ESCAPE: Final = 0.1
"""Seconds after which an Esc is a key of its own, and not the beginning of an arrow."""
_INDENT: Final = "  "


class Escaped(Exception):
    """Esc was pressed."""


class _Unfit(Exception):
    """What was given does not fit, and is to be asked for again."""

    def __init__(self, fault: ValueError, given: object) -> None:
        super().__init__(str(fault))
        self.why = str(fault)[:1].upper() + str(fault)[1:]
        self.given = given


async def ask(field: Field, before: object, complain: Callable[[str], None]) -> Any:
    """A valid value for a field, or ABSENT; ``before`` is what was answered to it earlier."""
    while True:
        try:
            match field.kind:
                case "boolean":
                    return await _yes_or_no(field, before)
                case "choice":
                    return await _choice(field, before)
                case "several":
                    return await _several(field, before)
                case _:
                    return await _typed(field, before)
        except _Unfit as unfit:
            complain(unfit.why)
            before = unfit.given


async def choose(message: str, choices: Sequence[tuple[str, object]], start: object = None) -> Any:
    """One of several things to do."""
    options = [questionary.Choice(title, value) for title, value in choices]
    return await _put(questionary.select(message, options, default=_choice_of(options, start), instruction=" "))


# --- by kind ------------------------------------------------------------------------------------------------------


async def _typed(field: Field, before: object) -> Any:
    start = field.default if before is ABSENT else before
    prefilled = "" if start is None else start if isinstance(start, str) else field.shown(start)
    keys: dict[str, Any] = {"key_bindings": _days()} if field.kind == "date" else {}
    hint = f" ({field.hint})" if field.hint else ""
    text: str = await _put(questionary.text(f"{field.label}{hint}:", default=prefilled, **keys))
    try:
        return _read(field, text)
    except ValueError as fault:
        raise _Unfit(fault, text) from None


def _read(field: Field, text: str) -> Any:
    if text.strip() or text == field.default:
        return field.read(text)
    if field.is_required:
        raise ValueError("this must be answered (Esc offers to decline or to cancel)")
    return ABSENT


async def _yes_or_no(field: Field, before: object) -> Any:
    choices = [questionary.Choice("Yes", True, shortcut_key="y"), questionary.Choice("No", False, shortcut_key="n")]
    if not field.is_required and field.default is None:
        choices.append(questionary.Choice("Leave it open", ABSENT, shortcut_key="l"))
    # Enter alone never says yes, unless the form's own default does.
    start = before if before is not ABSENT else field.default if field.default is not None else choices[-1].value
    question = questionary.select(
        f"{field.label}:",
        choices,
        default=_choice_of(choices, start),
        instruction=_hint(field, "arrows or y, n; then Enter"),
        use_shortcuts=True,
        use_jk_keys=False,
        use_emacs_keys=False,
    )
    return await _put(question)


async def _choice(field: Field, before: object) -> Any:
    choices = [questionary.Choice(option.title or '""', option.value) for option in field.options]
    if not field.is_required and field.default is None:
        choices.append(questionary.Choice("Leave it open", ABSENT))
    search = len(choices) > SEARCHED
    question = questionary.select(
        f"{field.label}:",
        choices,
        default=_choice_of(choices, field.default if before is ABSENT else before),
        instruction=_hint(field, "arrows, then Enter; type to search" if search else "arrows, then Enter"),
        use_search_filter=search,
        use_jk_keys=False,
    )
    return await _put(question)


async def _several(field: Field, before: object) -> Any:
    start: Any = (field.default or []) if before is ABSENT else before
    choices = [
        questionary.Choice(option.title or '""', option.value, checked=option.value in start)
        for option in field.options
    ]
    search = len(choices) > SEARCHED
    question = questionary.checkbox(
        f"{field.label}:",
        choices,
        instruction=_hint(field, "arrows, space to mark, then Enter" + ("; type to search" if search else "")),
        use_search_filter=search,
        use_jk_keys=False,
    )
    values: list[str] = await _put(question)
    if not values and not field.is_required and field.default is None:
        return ABSENT
    try:
        return field.check(values)
    except ValueError as fault:
        raise _Unfit(fault, values) from None


# --- parts --------------------------------------------------------------------------------------------------------


async def _put(question: questionary.Question) -> Any:
    """Ask; Escaped when Esc was pressed, KeyboardInterrupt after Ctrl-C, EOFError when the terminal has ended."""
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
    """Up and down move a date by a day, from today if there is none yet."""
    bindings = KeyBindings()

    def move(event: KeyPressEvent, days: int) -> None:
        buffer = event.current_buffer
        try:
            moved = date.fromisoformat(buffer.text.strip()) + timedelta(days=days)
        except (ValueError, OverflowError):
            moved = date.today()  # noqa: DTZ011 -- the person's own day
        text = moved.isoformat()
        buffer.set_document(Document(text, len(text)))

    bindings.add("up", eager=True)(partial(move, days=1))
    bindings.add("down", eager=True)(partial(move, days=-1))
    return bindings


def _choice_of(choices: list[questionary.Choice], value: object) -> Any:
    return next((choice for choice in choices if choice.value is value or choice.value == value), None)


def _hint(field: Field, keys: str) -> str:
    return f"({'; '.join(part for part in (field.hint, keys) if part)})"
