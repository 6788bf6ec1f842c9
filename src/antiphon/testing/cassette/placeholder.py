"""Placeholders: ``${state:1}`` in a recording stands for a value that is another one each time.

``${kind:number}`` belongs to the entry that it stands in, ``${kind:number@entry}`` to another one; ``${time}`` and
``${secret:name}`` belong to none. A text that is one placeholder stands for any value, a placeholder within a text for
a part of it. ``${$}`` is a dollar sign where a brace, or a placeholder, comes next.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import msgspec

PATTERN: Final = re.compile(r"\$\{(?:(\$)|([a-z]+)(?::([\w.-]+))?(?:@(\d+))?)\}")
TIME: Final = re.compile(
    r"\b\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-6]\d(?:[.,]\d+)?(?:Z|[+-][0-2]\d:?[0-5]\d)?(?![\w:])"
)
"""A moment as RFC 3339 writes it; also without its zone, as Python often does."""

WITHOUT_NUMBER: Final = frozenset({"time", "secret"})


class Ref(msgspec.Struct, frozen=True):
    """What a placeholder says."""

    kind: str
    name: str = ""
    entry: int | None = None
    """The entry that it belongs to, from 1; None: the one that it stands in, or none at all."""

    def __str__(self) -> str:
        name = f":{self.name}" if self.name else ""
        entry = "" if self.entry is None else f"@{self.entry}"
        return f"${{{self.kind}{name}{entry}}}"


Part: TypeAlias = str | Ref
Lookup: TypeAlias = Callable[[Ref], Any]


def written(parts: list[Part]) -> str:
    """Parts of a text as a recording has them; the literal ones may say anything."""
    made: list[str] = []
    for part, after in zip(parts, [*parts[1:], ""], strict=False):
        if isinstance(part, Ref):
            made.append(str(part))
            continue
        text = part.replace("${", "${$}{")
        if text.endswith("$") and (isinstance(after, Ref) or after.startswith("{")):
            text = f"{text[:-1]}${{$}}"
        made.append(text)
    return "".join(made)


def parts_of(text: str) -> list[Part]:
    """A text out of a recording, taken apart."""
    if "${" not in text:
        return [text]
    parts: list[Part] = []
    literal, at = "", 0
    for found in PATTERN.finditer(text):
        literal += text[at : found.start()]
        at = found.end()
        if found[1]:
            literal += "$"
            continue
        if literal:
            parts.append(literal)
            literal = ""
        parts.append(Ref(found[2], found[3] or "", int(found[4]) if found[4] else None))
    literal += text[at:]
    if literal or not parts:
        parts.append(literal)
    return parts


def refs_in(value: Any) -> Iterator[Ref]:
    """All placeholders of a message, in the order of its text."""
    if isinstance(value, str):
        yield from (part for part in parts_of(value) if isinstance(part, Ref))
    elif isinstance(value, dict):
        for item in value.values():
            yield from refs_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from refs_in(item)


def filled(pattern: Any, lookup: Lookup) -> Any:
    """A recorded message with values for its placeholders."""
    if isinstance(pattern, str):
        parts = parts_of(pattern)
        if len(parts) == 1:
            return lookup(parts[0]) if isinstance(parts[0], Ref) else parts[0]
        return "".join(_text(lookup(part)) if isinstance(part, Ref) else part for part in parts)
    if isinstance(pattern, dict):
        return {name: filled(item, lookup) for name, item in pattern.items()}
    if isinstance(pattern, list):
        return [filled(item, lookup) for item in pattern]
    return pattern


def literal(value: Any) -> Any:
    """A message as a recording has it when nothing in it is a placeholder."""
    if isinstance(value, str):
        return written([value])
    if isinstance(value, dict):
        return {name: literal(item) for name, item in value.items()}
    if isinstance(value, list):
        return [literal(item) for item in value]
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
