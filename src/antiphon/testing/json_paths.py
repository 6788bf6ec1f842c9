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
        found = [holder[key] for holder, key in self._places([value])]
        return found if self.is_plural else found[0] if found else ABSENT

    def replace(self, value: Any, new: object) -> Any:
        """Return the value with something else in all places of the path. Lists and maps in it are changed."""
        root = [value]
        for holder, key in self._places(root):
            holder[key] = new
        return root[0]

    def _places(self, root: list[Any]) -> list[tuple[Any, Any]]:
        """Return each place as the map or list that holds it, and its key there."""
        found: list[tuple[Any, Any]] = [(root, 0)]
        for step, is_deep in self.steps:
            found = [
                (below, key)
                for holder, name in found
                for below in (_depths(holder[name]) if is_deep else (holder[name],))
                for key in _keys(below, step)
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


def _keys(value: object, step: Step) -> list[Any]:
    """Return the keys, or indices, that a step stands for in a value."""
    if type(value) is dict:
        return list(value) if step is None else [step] if step in value else []
    if type(value) is list:
        size = len(value)
        return list(range(size)) if step is None else [step] if type(step) is int and -size <= step < size else []
    return []


def _depths(value: object) -> list[Any]:
    """Return the value and everything inside it."""
    found: list[Any] = [value]
    for each in found:
        if type(each) is dict:
            found.extend(each.values())
        elif type(each) is list:
            found.extend(each)
    return found
