"""What differs between what was expected and what came: texts by line and word, JSON by path."""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal

import msgspec

from antiphon.testing.outcome import Check
from antiphon.testing.report.escaping import compact, plain
from antiphon.testing.suite.checks import is_matcher, shown

RULES: Final = frozenset({"schema"})
"""Checks whose expectation is never a value that the actual one could be equal to."""
CONTEXT: Final = 2
"""Equal lines that are shown around a difference."""
_LONGEST_TEXT: Final = 400
"""Lines between the first and the last difference that are compared; a matcher's time grows with their square."""
_LONGEST_LINE: Final = 2_000
_LONGEST_LIST: Final = 200
_MOST_CHANGES: Final = 1_000
_ALIKE: Final = 0.5
_WORDS: Final = re.compile(r"\w+|\s+|.", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class Part(msgspec.Struct, frozen=True):
    """A piece of a line; ``marked`` if the other text's line has something else there."""

    text: str
    marked: bool = False


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of either text, or of both; a ``gap`` stands for lines that are left out."""

    side: Literal["both", "expected", "actual", "gap"]
    parts: tuple[Part, ...] = ()
    left_out: int = 0

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a JSON value: ``missing`` (only expected), ``unexpected`` (only there), or ``changed``."""

    path: str
    kind: Literal["missing", "unexpected", "changed"]
    expected: object = None
    actual: object = None


class Texts(msgspec.Struct, frozen=True):
    """How two texts differ."""

    lines: tuple[Line, ...]


class Values(msgspec.Struct, frozen=True):
    """How two JSON values differ."""

    changes: tuple[Change, ...]


Difference = Texts | Values


def difference_of(check: Check) -> Difference | None:
    """How what came differs from what was expected, where the expectation is a value and not a rule."""
    expected = check.expected
    if isinstance(expected, dict) and expected.keys() == {"equals"}:
        expected = expected["equals"]
    elif is_matcher(expected) or check.name in RULES:
        return None
    return difference(expected, check.actual)


def says_it_all(check: Check) -> bool:
    """Whether the sentence holds both values whole or in part, so that beside a difference it tells nothing new."""
    return all(shown(plain(value)) in check.problem for value in (check.expected, check.actual))


def difference(expected: object, actual: object) -> Difference | None:
    """How two values differ, if they are of a kind that is compared part by part."""
    match expected, actual:
        case str(), str():
            return Texts(tuple(compare_texts(expected, actual)))
        case (dict(), dict()) | (list() | tuple(), list() | tuple()):
            return Values(tuple(_first(_MOST_CHANGES, compare_values(expected, actual))))
        case _:
            return None


# --- texts --------------------------------------------------------------------------------------------------------


def compare_texts(expected: str, actual: str, *, context: int = CONTEXT) -> list[Line]:
    """Both texts in one, line by line; of long runs of equal lines only the ends."""
    ours, theirs = expected.split("\n"), actual.split("\n")
    before = _common(ours, theirs)
    after = _common(ours[before:][::-1], theirs[before:][::-1])
    middle = _compare(ours[before : len(ours) - after], theirs[before : len(theirs) - after])
    whole = [*map(_equal, ours[:before]), *middle, *map(_equal, ours[len(ours) - after :])]
    return _folded(whole, context)


def _common(ours: Sequence[str], theirs: Sequence[str]) -> int:
    length = 0
    for one, other in zip(ours, theirs, strict=False):
        if one != other:
            break
        length += 1
    return length


def _compare(ours: list[str], theirs: list[str]) -> Iterator[Line]:
    rest = (ours[_LONGEST_TEXT:], theirs[_LONGEST_TEXT:])
    ours, theirs = ours[:_LONGEST_TEXT], theirs[:_LONGEST_TEXT]
    for kind, i, j, k, m in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from map(_equal, ours[i:j])
        else:
            yield from _replaced(ours[i:j], theirs[k:m])
    if any(rest):
        yield Line(side="gap", left_out=max(map(len, rest)))


def _replaced(ours: list[str], theirs: list[str]) -> Iterator[Line]:
    removed: list[Line] = []
    added: list[Line] = []
    for one, other in zip(ours, theirs, strict=False):
        left, right = _marked(one, other)
        removed.append(Line(side="expected", parts=left))
        added.append(Line(side="actual", parts=right))
    shorter = len(removed)
    yield from removed
    yield from (Line(side="expected", parts=(Part(text),)) for text in ours[shorter:])
    yield from added
    yield from (Line(side="actual", parts=(Part(text),)) for text in theirs[shorter:])


def _marked(one: str, other: str) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Two lines with the words marked that differ; unmarked where they have too little in common."""
    if len(one) > _LONGEST_LINE or len(other) > _LONGEST_LINE:
        return (Part(one),), (Part(other),)
    ours, theirs = _WORDS.findall(one), _WORDS.findall(other)
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    if matcher.ratio() < _ALIKE:
        return (Part(one),), (Part(other),)
    left: list[Part] = []
    right: list[Part] = []
    for kind, i, j, k, m in matcher.get_opcodes():
        marked = kind != "equal"
        left += [Part("".join(ours[i:j]), marked)] if j > i else []
        right += [Part("".join(theirs[k:m]), marked)] if m > k else []
    return tuple(left), tuple(right)


def _equal(text: str) -> Line:
    return Line(side="both", parts=(Part(text),))


def _folded(lines: list[Line], context: int) -> list[Line]:
    near = {
        place
        for number, line in enumerate(lines)
        if line.side != "both"
        for place in range(number - context, number + context + 1)
    }
    folded: list[Line] = []
    for number, line in enumerate(lines):
        if number in near:
            folded.append(line)
        elif folded and folded[-1].side == "gap" and number - 1 not in near:
            folded[-1] = Line(side="gap", left_out=folded[-1].left_out + 1)
        else:
            folded.append(Line(side="gap", left_out=1))
    return folded


# --- JSON ---------------------------------------------------------------------------------------------------------


def compare_values(expected: object, actual: object, path: str = "$") -> Iterator[Change]:
    """Every place where two JSON values differ. ``1`` and ``1.0`` are the same number, ``true`` is none."""
    match plain(expected), plain(actual):
        case dict() as ours, dict() as theirs:
            yield from _compare_objects(ours, theirs, path)
        case list() as ours, list() as theirs:
            yield from _compare_lists(ours, theirs, path)
        case ours, theirs:
            if _key(ours) != _key(theirs):
                yield Change(path=path, kind="changed", expected=ours, actual=theirs)


def _compare_objects(ours: Mapping[str, object], theirs: Mapping[str, object], path: str) -> Iterator[Change]:
    for name in dict.fromkeys([*ours, *theirs]):
        place = path + _step(name)
        if name not in theirs:
            yield Change(path=place, kind="missing", expected=ours[name])
        elif name not in ours:
            yield Change(path=place, kind="unexpected", actual=theirs[name])
        else:
            yield from compare_values(ours[name], theirs[name], place)


def _compare_lists(ours: list[object], theirs: list[object], path: str) -> Iterator[Change]:
    for i, k in _pairs(ours, theirs):
        if k is None:
            assert i is not None
            yield Change(path=f"{path}[{i}]", kind="missing", expected=ours[i])
        elif i is None:
            yield Change(path=f"{path}[{k}]", kind="unexpected", actual=theirs[k])
        else:
            yield from compare_values(ours[i], theirs[k], f"{path}[{k}]")


def _pairs(ours: list[object], theirs: list[object]) -> Iterator[tuple[int | None, int | None]]:
    """Which items belong together, so that one item too many does not make all that follow differ."""
    if max(len(ours), len(theirs)) > _LONGEST_LIST:
        blocks = [(0, len(ours), 0, len(theirs))]
    else:
        matcher = SequenceMatcher(None, [*map(_key, ours)], [*map(_key, theirs)], autojunk=False)
        blocks = [(i, j, k, m) for _, i, j, k, m in matcher.get_opcodes()]
    for i, j, k, m in blocks:
        together = min(j - i, m - k)
        yield from ((i + n, k + n) for n in range(together))
        yield from ((n, None) for n in range(i + together, j))
        yield from ((None, n) for n in range(k + together, m))


def _key(value: object) -> str:
    """Equal for equal JSON."""
    match value:
        case bool() | None | str():
            return compact(value)
        case int():
            return str(value)
        case float():
            return str(int(value)) if value.is_integer() else repr(value)
        case dict():
            return "{" + ",".join(f"{compact(name)}:{_key(value[name])}" for name in sorted(value)) + "}"
        case list():
            return "[" + ",".join(map(_key, value)) + "]"
        case _:
            raise TypeError(f"{type(value).__name__} is not JSON")


def _step(name: str) -> str:
    return f".{name}" if _NAME.fullmatch(name) else f"[{compact(name)}]"


def _first(most: int, changes: Iterator[Change]) -> Iterator[Change]:
    for _, change in zip(range(most), changes, strict=False):
        yield change
