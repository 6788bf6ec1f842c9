"""JSON paths: the part of RFC 9535 without filters and slices."""

import re
from typing import Any, Final, NamedTuple, TypeAlias

Step: TypeAlias = str | int | None
"""A name, an index, or None for all there are."""

_STEP: Final = re.compile(
    r"""
      \.(?P<deep>\.)? (?: (?P<name>[^\W\d][\w-]*) | (?P<star>\*) )
    | \[ \s* (?: (?P<index>-?\d+) | (?P<all>\*) | '(?P<single>(?:[^'\\]|\\.)*)' | "(?P<double>(?:[^"\\]|\\.)*)" ) \s* \]
    """,
    re.VERBOSE,
)


class NoValue:
    """What a path finds where nothing is."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT: Final = NoValue()


class JsonPath(NamedTuple):
    """A path that was read: ``$.notes[0].title``, ``$.tools[*].name``, ``$['odd name']``, ``$..id``."""

    text: str
    steps: tuple[tuple[Step, bool], ...]
    """Each step, and whether it applies at every depth."""
    is_plural: bool
    """Whether it may find several values; they come as a list."""

    def find(self, value: object) -> object:
        """Return the value there, or ABSENT; a list of all where the path may find several."""
        if self.is_plural:
            return self.find_all(value)
        for step, _ in self.steps:
            if type(value) is dict:
                value = value.get(step, ABSENT)
            elif type(value) is list and type(step) is int and -len(value) <= step < len(value):
                value = value[step]
            else:
                return ABSENT
        return value

    def find_all(self, value: object) -> list[Any]:
        """Return all values there."""
        found: list[Any] = [value]
        for step, is_deep in self.steps:
            found = [
                below for each in found for top in (depths(each) if is_deep else (each,)) for below in _under(top, step)
            ]
        return found


def read_path(text: str) -> JsonPath:
    """Read a path; ValueError says where it makes no sense."""
    if not text.startswith("$"):
        raise ValueError(f"a path begins with $, as in $.{text.lstrip('.') or 'name'}")
    steps: list[tuple[Step, bool]] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            raise ValueError(
                f"the path {text!r} makes no sense from {text[at:]!r} on: it has .name, [0], [*] and ..name"
            )
        steps.append((_step(found), found["deep"] is not None))
        at = found.end()
    return JsonPath(text, tuple(steps), any(step is None or is_deep for step, is_deep in steps))


def _step(found: re.Match[str]) -> Step:
    if found["index"] is not None:
        return int(found["index"])
    if found["star"] or found["all"]:
        return None
    quoted = found["single"] if found["single"] is not None else found["double"]
    return found["name"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)


def _under(value: object, step: Step) -> list[Any]:
    if type(value) is dict:
        if step is None:
            return list(value.values())
        return [value[step]] if step in value else []
    if type(value) is list:
        if step is None:
            return value
        if type(step) is int and -len(value) <= step < len(value):
            return [value[step]]
    return []


def depths(value: object) -> list[Any]:
    """Return the value and everything inside it."""
    found: list[Any] = [value]
    for each in found:
        if type(each) is dict:
            found.extend(each.values())
        elif type(each) is list:
            found.extend(each)
    return found
