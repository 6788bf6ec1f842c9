"""Questions as parts of an HTML form, and the responses in what a browser sends of it.

Names and values of the form's elements are numbers, or what a person typed: what a server calls its fields and options
is only ever shown.
"""

import html
import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

from antiphon.errors import CannotAnswer
from antiphon.escaping import fitted, line, shortened, visible
from antiphon.inbox.locations import read_location
from antiphon.shapes.form_fields import PromptField, fields_of
from antiphon.types import JsonObject

Sent: TypeAlias = Mapping[str, list[str]]
"""The fields that a browser sent."""

_MOST_LETTERS: Final = 100_000
_MOST_LINES: Final = 3000
_ONE_LINE: Final = 80
_LONG: Final = 200
"""Letters from which on a text gets several lines."""
_TYPES: Final = {"email": "email", "uri": "url", "date": "date", "date-time": "datetime-local"}
_ABSENT: Final = object()
ACTIONS: Final = {"accept": "Accept", "decline": "Decline", "cancel": "Cancel"}


def text(words: object, *, letters: int = _MOST_LETTERS) -> str:
    """Return words as HTML shows them: no markup, nothing that hides or turns letters, not without end."""
    return html.escape(visible(shortened(str(words), letters=letters, lines=_MOST_LINES)), quote=True)


def data(value: object) -> str:
    """Return JSON as HTML shows it."""
    return f"<pre>{text(fitted(value, _ONE_LINE))}</pre>"


def is_elicitation(request: JsonObject) -> bool:
    return bool(request["method"] == "elicitation/create")


def summary(request: JsonObject) -> str:
    """Return a question in a few words."""
    params = request.get("params") or {}
    words = params.get("message") if is_elicitation(request) else None
    return str(words or _KINDS.get(request["method"], request["method"]))


_KINDS: Final = {
    "sampling/createMessage": "Write a reply in place of a model",
    "roots/list": "Name the folders that the server may see",
}


# --- drawing ------------------------------------------------------------------------------------------------------


def drawn(number: int, key: str, request: JsonObject, sent: Sent, *, several: bool) -> str:
    """Return a question with its widgets; ``sent`` is what was entered before."""
    params = request.get("params") or {}
    if is_elicitation(request):
        is_url = params.get("mode") == "url"
        body = _link(params.get("url")) if is_url else _fields(number, params.get("requestedSchema"), sent)
        body += _actions(number, sent) if several else ""
    else:
        body = f"<p>This page takes no answer to this: use antiphon inbox answer --answers FILE.</p>{data(params)}"
    label = f'<span class="key">{text(line(key), letters=200)}</span>' if several else ""
    return f'<fieldset class="question"><legend>{label}{text(summary(request))}</legend>{body}</fieldset>'


def _actions(number: int, sent: Sent) -> str:
    chosen = _one(sent, f"{number}.action") or "accept"
    return f'<div class="options">{_radios(f"{number}.action", ACTIONS, chosen)}</div>'


def _fields(number: int, schema: object, sent: Sent) -> str:
    found = fields_of(schema if isinstance(schema, dict) else {})
    return "".join(_field(f"{number}.{place}", field, sent) for place, field in enumerate(found))


def _field(name: str, field: PromptField, sent: Sent) -> str:
    star = ' <span class="star" title="required">*</span>' if field.is_required else ""
    label = f"{text(field.label)}{star}"
    about = ""
    if field.description:
        about += f'<p class="about">{text(field.description)}</p>'
    if hint := _hint(field):
        about += f'<p class="hint">{text(hint)}</p>'
    given = sent.get(name)
    if field.kind in {"boolean", "several"}:
        return f'<fieldset class="field"><legend>{label}</legend>{about}{_marks(name, field, given)}</fieldset>'
    widget = _select(name, field, given) if field.kind == "choice" else _input(name, field, given)
    return f'<div class="field"><label for="{name}">{label}</label>{about}{widget}</div>'


def _hint(field: PromptField) -> str:
    parts = ["" if field.kind in {"date", "date-time"} else field.hint]
    if field.kind == "date-time":
        parts.append("in UTC")
    default = field.default
    if not field.is_required and default is not None and field.kind not in {"boolean", "choice", "several"}:
        parts.append(f"left empty: {field.shown(default)}")
    return ", ".join(part for part in parts if part)


def _marks(name: str, field: PromptField, given: list[str] | None) -> str:
    if field.kind == "boolean":
        options = {"1": "Yes", "0": "No"} | ({} if field.is_required else {"": "Leave it open"})
        chosen = "" if field.default is None else str(int(field.default is True))
        return f'<div class="options">{_radios(name, options, given[0] if given else chosen, field=field)}</div>'
    marked = {str(place) for place, option in enumerate(field.options) if option.value in (field.default or [])}
    marked = marked if given is None else set(given)
    boxes = "".join(
        f'<label><input type="checkbox" name="{name}" value="{place}"{" checked" if str(place) in marked else ""}>'
        f" {text(option.title)}</label>"
        for place, option in enumerate(field.options)
    )
    # An empty one tells a form with no mark from a form that was never filled in.
    return f'<div class="options"><input type="hidden" name="{name}" value="">{boxes}</div>'


def _radios(name: str, options: Mapping[str, str], chosen: str, *, field: PromptField | None = None) -> str:
    required = " required" if field is not None and field.is_required else ""
    # Nothing is chosen where a yes or no has to be given: what is sent unread must not be an answer.
    free = field is not None and field.is_required and not chosen
    return "".join(
        f'<label><input type="radio" name="{name}" value="{value}"{required}'
        f"{' checked' if value == chosen and not free else ''}> {title}</label>"
        for value, title in options.items()
    )


def _select(name: str, field: PromptField, given: list[str] | None) -> str:
    start = next((str(place) for place, option in enumerate(field.options) if option.value == field.default), "")
    chosen = start if given is None else given[0]
    options = f'<option value="">{"Choose" if field.is_required else "Leave it open"}</option>'
    options += "".join(
        f'<option value="{place}"{" selected" if str(place) == chosen else ""}>{text(option.title)}</option>'
        for place, option in enumerate(field.options)
    )
    return f'<select id="{name}" name="{name}"{_required(field)}>{options}</select>'


def _input(name: str, field: PromptField, given: list[str] | None) -> str:
    start = _shown_default(field) if given is None else given[0]
    value = html.escape(start, quote=True)
    if field.kind == "other" or (field.kind == "text" and max(len(start), field.schema.get("maxLength") or 0) > _LONG):
        return f'<textarea id="{name}" name="{name}" rows="4"{_required(field)}>\n{value}</textarea>'
    extra = ""
    if field.kind == "number":
        kind = "number"
        step = "1" if field.schema["type"] == "integer" else "any"
        bounds = (("min", "minimum"), ("max", "maximum"))
        extra = f' step="{step}"' + "".join(
            f' {word}="{field.schema[key]}"' for word, key in bounds if field.schema.get(key) is not None
        )
    else:
        kind = _TYPES.get(str(field.schema.get("format")), "text")
        extra = ' step="1"' if kind == "datetime-local" else ""
    return (
        f'<input id="{name}" name="{name}" type="{kind}" value="{value}"{extra}{_required(field)} autocomplete="off">'
    )


def _required(field: PromptField) -> str:
    return " required" if field.is_required else ""


def _shown_default(field: PromptField) -> str:
    default = field.default
    if default is None or (isinstance(default, str) and visible(default) != default):
        return ""  # what cannot be seen is not sent by a click: its hint shows it
    if field.kind == "date-time":
        with suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(str(default).upper())
            return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds")
        return ""
    return default if isinstance(default, str) else msgspec.json.encode(default).decode()


def _link(url: object) -> str:
    address = url if isinstance(url, str) else ""
    location = read_location(address)
    shown = f"{text(location.before)}<b>{text(location.host)}</b>{text(location.after)}"
    warnings = "".join(f'<p class="warning">{text(words)}</p>' for words in location.warnings)
    if not location.can_be_opened:
        return f"<p><code>{shown}</code></p>{warnings}"
    return (
        "<p>Open this page only if you expect it, and know the host in bold.</p>"
        f'<p><a href="{html.escape(address)}" target="_blank" rel="noopener noreferrer">{shown}</a></p>{warnings}'
    )


# --- reading ------------------------------------------------------------------------------------------------------


def responses(questions: JsonObject, sent: Sent) -> JsonObject:
    """Return the raw responses in a form; raise CannotAnswer for a field that is no value at all."""
    return {key: _response(number, key, request, sent) for number, (key, request) in enumerate(questions.items())}


def _response(number: int, key: str, request: JsonObject, sent: Sent) -> JsonObject:
    if not is_elicitation(request):
        raise CannotAnswer(f"This page takes no answer to {key!r}", key=key)
    action = _one(sent, f"{number}.action") or _one(sent, "action")
    if action != "accept":
        return {"action": action}
    params = request.get("params") or {}
    if params.get("mode") == "url":
        return {"action": "accept"}
    content: JsonObject = {}
    schema = params.get("requestedSchema")
    for place, field in enumerate(fields_of(schema if isinstance(schema, dict) else {})):
        try:
            value = _value(field, sent.get(f"{number}.{place}", []))
        except (ValueError, IndexError):
            raise CannotAnswer(f"{field.label}: expected {field.hint or 'one of the options'}", key=key) from None
        if value is not _ABSENT:
            content[field.name] = value
    return {"action": "accept", "content": content}


def _value(field: PromptField, given: list[str]) -> Any:
    typed = given[0] if given else ""
    match field.kind:
        case "several":
            marked = [field.options[int(place)].value for place in given if place]
            return marked if marked or not field.is_optional else _ABSENT
        case "boolean":
            return _ABSENT if not typed else typed == "1"
        case "choice":
            return _ABSENT if not typed else field.options[int(typed)].value
        case _ if not typed.strip():
            return _ABSENT
        case "number":
            return _number(typed.strip())
        case "date-time":
            moment = datetime.fromisoformat(typed.strip().upper())
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat(timespec="seconds")
        case "other":
            return msgspec.json.decode(typed)
        case _:
            return typed.replace("\r\n", "\n")


def _number(typed: str) -> float:
    if typed.lstrip("+-").isdecimal():
        return int(typed)
    value = float(typed)
    if not math.isfinite(value):
        raise ValueError(typed)
    return value


def _one(sent: Sent, name: str) -> str | None:
    return next(iter(sent.get(name, [])), None)
