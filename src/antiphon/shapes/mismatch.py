"""Explains why a value does not fit, so that a language model can correct itself."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from msgspec import ValidationError

from antiphon.shapes.schema_trees import Step, is_array, is_object, schemas_at


class Mismatch(ValueError):
    """A value does not fit: `path` says where (`tags[2]`, empty for the whole value), `problem` says why."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem, path)
        self.problem = problem
        self.path = path
        self.culprit: object = ...  # the object that did not fit, if known

    def __str__(self) -> str:
        return f"'{self.path}': {self.problem}" if self.path else self.problem

    def within(self, path: str) -> "Mismatch":
        """Return the same problem, as seen from the value that holds this one at `path`."""
        return Mismatch(self.problem, _joined(path, self.path))

    def told(self) -> "Mismatch":
        return self


class Misfit(ValueError):
    """A value does not fit, and why is not yet worked out: another member of a union may take it."""

    def __init__(self, tell: Callable[..., Mismatch], *arguments: object) -> None:
        super().__init__()
        self._tell = tell
        self._arguments = arguments
        self._told: Mismatch | None = None
        self.culprit: object = ...

    def told(self) -> Mismatch:
        if self._told is None:
            self._told = self._tell(*self._arguments)
        return self._told


def path_text(steps: Sequence[Step]) -> str:
    path = ""
    for step in steps:
        if step is None:
            path += "[...]"
        elif isinstance(step, int):
            path += f"[{step}]"
        elif re.fullmatch(r"[\w-]{1,100}", step):
            path = _joined(path, step)
        else:
            path += f'["{step[:80]}"]'
    return path


def _joined(outer: str, inner: str) -> str:
    return f"{outer}.{inner}" if outer and inner and not inner.startswith("[") else outer + inner


def quoted(value: object) -> str:
    """Return a value as text for a message: strings quoted, long ones cut, containers by their kind."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return repr(value if len(value) <= 80 else value[:77] + "...")
        case int() if abs(value) > 10**80:
            return "a huge int"
        case int() | float():
            return repr(value)
        case Mapping():
            return "object"
        case list() | tuple():
            return "array"
        case _:
            return type(value).__name__


def listing(values: Sequence[object]) -> str:
    """Return options as text for a message, at most twenty."""
    shown = ", ".join(quoted(value) for value in values[:20])
    return f"{shown}, ... ({len(values)} in all)" if len(values) > 20 else shown


# msgspec's errors about strings that do not parse, and what to say instead.
_EXPECTED = {
    "Invalid RFC3339 encoded datetime": "expected a date-time such as '2026-07-28T09:30:00Z'",
    "Invalid RFC3339 encoded date": "expected a date such as '2026-07-28'",
    "Invalid RFC3339 encoded time": "expected a time such as '09:30:00'",
    "Invalid ISO8601 duration": "expected an ISO 8601 duration such as 'PT1H30M'",
    "Invalid UUID": "expected a UUID such as '123e4567-e89b-12d3-a456-426614174000'",
    "Invalid decimal string": "expected a decimal number such as '12.50'",
    "Invalid base64 encoded string": "expected a base64 encoded string",
}
_MARK = " - at `"
_STEP = r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]"
_MOST_KEYS = 64


def explain(
    error: ValidationError,
    value: object,
    schema: Mapping[str, object],
    *,
    noun: str = "field",
    failure: Callable[[object], ValidationError | None] | None = None,
) -> Mismatch:
    """Return msgspec's error about `value` as a Mismatch.

    `noun` is what the root's fields are called. `failure` returns the error that another value would cause; it serves
    to find the key of a wrong value, which msgspec does not name.
    """
    message, where = _split(error)
    at_key = where.startswith("key` in `")
    steps = _steps(where)
    cause = error.__cause__
    if isinstance(cause, (Misfit, Mismatch)):
        steps = _led_to(steps, value, cause.culprit) or steps
    elif failure is not None and None in steps:
        steps = _named(steps, value, failure, where)
    if isinstance(cause, (Misfit, Mismatch)):
        return cause.told().within(path_text(steps))
    if cause is not None:
        return Mismatch(message[:500], path_text(steps))
    here = schemas_at(schema, steps)
    problem = _worded(message, _value_at(value, steps), here, noun if not steps else "field")
    return Mismatch(f"a key is wrong: {problem}" if at_key else problem, path_text(steps))


def _split(error: ValidationError) -> tuple[str, str]:
    text = str(error)
    if error.__cause__ is not None:
        length = len(str(error.__cause__))
        return text[:length], text[length:].removeprefix(_MARK).removesuffix("`")
    message, mark, where = text.rpartition(_MARK)
    return (message, where.removesuffix("`")) if mark else (text, "")


def _steps(where: str) -> list[Step]:
    found: list[Step] = []
    for match in re.finditer(_STEP, where.removeprefix("key` in `").removeprefix("$")):
        name, index = match.groups()
        found.append(name if name is not None else int(index) if index is not None else None)
    return found


def _led_to(steps: list[Step], value: object, culprit: object) -> list[Step] | None:
    """Return `steps` with each unnamed key found by following them to the culprit; None if it is not there."""
    if not steps:
        return [] if value is culprit else None
    step, *rest = steps
    entries = value.items() if step is None and is_object(value) else [(step, _value_at(value, [step]))]
    for key, item in entries:
        found = _led_to(rest, item, culprit)
        if found is not None:
            return [key, *found]
    return None


def _named(
    steps: list[Step], value: object, failure: Callable[[object], ValidationError | None], where: str
) -> list[Step]:
    """Return `steps` with each unnamed key found by reducing its object to one entry at a time."""
    named: list[Step] = []
    for step in steps:
        key = step
        if key is None:
            holder = _value_at(value, named)
            entries = list(holder.items())[:_MOST_KEYS] if is_object(holder) else []
            for candidate, item in entries:
                reduced = _replaced(value, named, {candidate: item})
                found = failure(reduced)
                if found is not None and _split(found)[1] == where:
                    key, value = str(candidate), reduced
                    break
        named.append(key)
    return named


def _replaced(value: Any, steps: Sequence[Step], new: object) -> object:
    if not steps:
        return new
    head, *rest = steps
    copy = value.copy()
    copy[head] = _replaced(value[head], rest, new)
    return copy


def _value_at(value: Any, steps: Sequence[Step]) -> object:
    """Return the value at `steps`; Ellipsis if it cannot be found."""
    for step in steps:
        if (is_object(value) and step in value) or (is_array(value) and isinstance(step, int) and step < len(value)):
            value = cast("Any", value)[step]
        else:
            return ...
    return value


def _worded(message: str, value: object, here: list[Mapping[str, Any]], noun: str) -> str:
    if name := re.fullmatch(r"Object missing required field `(.*)`", message, re.DOTALL):
        return f"missing required {noun} '{name[1]}'"
    if name := re.fullmatch(r"Object contains unknown field `(.*)`", message, re.DOTALL):
        known = ", ".join(key for schema in here for key in schema.get("properties", ()))
        return f"unknown {noun} {quoted(name[1])}: expected {known or f'no {noun}s'}"
    if message.startswith(("Invalid enum value", "Invalid value")) and (options := _options(here)):
        return f"expected one of {listing(options)}{_got(value)}"
    if message in _EXPECTED:
        return _EXPECTED[message] + _got(value)
    plain = message.replace("`", "")
    plain = plain[:1].lower() + plain[1:500]
    return plain if "got" in plain else plain + _got(value)


def _got(value: object) -> str:
    if value is ...:
        return ""
    return f", got {len(value)}" if is_array(value) or is_object(value) else f", got {quoted(value)}"


def _options(here: list[Mapping[str, Any]]) -> list[object]:
    return [
        option
        for schema in here
        for option in (*schema.get("enum", ()), *((schema["const"],) if "const" in schema else ()))
    ]
