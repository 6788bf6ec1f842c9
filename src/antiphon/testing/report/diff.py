"""Differences between an expected and an actual value: texts by line and word, JSON by path."""

import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from itertools import islice, takewhile
from typing import Final, Literal

import msgspec

from antiphon.escaping import compact, plain
from antiphon.testing.suite.checks import is_matcher, shown
from antiphon.testing.suite.model import Check

UNTOLD: Final = "is not as expected"
"""What a check says that has no sentence."""
CONTEXT: Final = 2
"""Equal lines that are shown around a difference."""
_RULES: Final = frozenset({"schema"})
"""Checks whose expectation is never a value that the actual one could equal."""
# A matcher's time grows with the square of what it compares.
_LONGEST_TEXT: Final = 400
"""Lines that are compared, counted from the first difference."""
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


class DiffLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of one text, or of both; a ``gap`` stands for lines that are left out."""

    side: Literal["both", "expected", "actual", "gap"]
    parts: tuple[Part, ...] = ()
    left_out: int = 0

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a JSON value: ``missing`` (only expected), ``unexpected`` (only actual), or ``changed``."""

    path: str
    """Empty for two values that are not compared part by part."""
    kind: Literal["missing", "unexpected", "changed"]
    expected: object = None
    actual: object = None


class TextDiff(msgspec.Struct, frozen=True):
    """How two texts differ."""

    lines: tuple[DiffLine, ...]


class ValueDiff(msgspec.Struct, frozen=True):
    """How two JSON values differ."""

    changes: tuple[ValueChange, ...]


Difference = TextDiff | ValueDiff


def told_of(check: Check) -> tuple[str, Difference | None]:
    """Return what reports tell of a failed check: its sentence, and how its values differ.

    There is no difference if no value is expected, or the sentence holds values that are not compared part by part.
    There is no sentence if it says only what the difference shows.
    """
    expected, problem = check.expected, check.problem or UNTOLD
    if check.name in _RULES:
        return problem, None
    says_it_all = all(shown(plain(value)) in check.problem for value in (expected, check.actual))
    found = None
    if isinstance(expected, dict) and expected.keys() == {"equals"}:
        found = difference(expected["equals"], check.actual)
    elif not is_matcher(expected):
        found = difference(expected, check.actual)
    if found is not None:
        return "" if says_it_all else problem, found
    if expected is None or says_it_all:
        return problem, None
    return problem, ValueDiff((ValueChange(path="", kind="changed", expected=expected, actual=check.actual),))


def difference(expected: object, actual: object) -> Difference | None:
    """Return how two values differ, if they are of a kind that is compared part by part."""
    match expected, actual:
        case str(), str():
            return TextDiff(tuple(compare_texts(expected, actual)))
        case (dict(), dict()) | (list() | tuple(), list() | tuple()):
            return ValueDiff(tuple(islice(compare_values(expected, actual), _MOST_CHANGES)))
        case _:
            return None


# --- texts --------------------------------------------------------------------------------------------------------


def compare_texts(expected: str, actual: str, *, context: int = CONTEXT) -> list[DiffLine]:
    """Return both texts in one, line by line, without the equal lines far from a difference."""
    ours, theirs = expected.split("\n"), actual.split("\n")
    before = _common(ours, theirs)
    after = _common(ours[before:][::-1], theirs[before:][::-1])
    start = max(before - context, 0)
    end = before + _LONGEST_TEXT
    uncompared = max(len(ours), len(theirs)) - after - end
    left, right = ours[start : len(ours) - after][: end - start], theirs[start : len(theirs) - after][: end - start]
    lines: list[DiffLine] = []
    told = -start
    for group in SequenceMatcher(None, left, right, autojunk=False).get_grouped_opcodes(context):
        lines += _gap(group[0][1] - told)
        for kind, i, j, k, m in group:
            lines += _equal(left[i:j]) if kind == "equal" else _replaced(left[i:j], right[k:m])
        told = group[-1][2]
    lines += _gap(len(left) - told + max(uncompared, 0))
    return [*lines, *_equal(ours[len(ours) - after :][:context]), *_gap(after - context)]


def _common(ours: list[str], theirs: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))


def _gap(size: int) -> list[DiffLine]:
    return [DiffLine(side="gap", left_out=size)] if size > 0 else []


def _equal(texts: list[str]) -> list[DiffLine]:
    return [DiffLine(side="both", parts=(Part(text),)) for text in texts]


def _replaced(ours: list[str], theirs: list[str]) -> Iterator[DiffLine]:
    pairs = [_marked(one, other) for one, other in zip(ours, theirs, strict=False)]
    for number, text in enumerate(ours):
        yield DiffLine(side="expected", parts=pairs[number][0] if number < len(pairs) else (Part(text),))
    for number, text in enumerate(theirs):
        yield DiffLine(side="actual", parts=pairs[number][1] if number < len(pairs) else (Part(text),))


def _marked(one: str, other: str) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Two lines with the words marked that differ; unmarked where they have too little in common."""
    if len(one) > _LONGEST_LINE or len(other) > _LONGEST_LINE:
        return (Part(one),), (Part(other),)
    ours, theirs = _WORDS.findall(one), _WORDS.findall(other)
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    if matcher.ratio() < _ALIKE:
        return (Part(one),), (Part(other),)
    codes = matcher.get_opcodes()
    left = (Part("".join(ours[i:j]), kind != "equal") for kind, i, j, _, _ in codes if j > i)
    right = (Part("".join(theirs[k:m]), kind != "equal") for kind, _, _, k, m in codes if m > k)
    return tuple(left), tuple(right)


# --- JSON ---------------------------------------------------------------------------------------------------------


def compare_values(expected: object, actual: object, path: str = "$") -> Iterator[ValueChange]:
    """Yield every place where two JSON values differ. 1 equals 1.0, and true equals no number."""
    match plain(expected), plain(actual):
        case dict() as ours, dict() as theirs:
            yield from _compare_objects(ours, theirs, path)
        case list() as ours, list() as theirs:
            yield from _compare_lists(ours, theirs, path)
        case ours, theirs:
            if _key(ours) != _key(theirs):
                yield ValueChange(path=path, kind="changed", expected=ours, actual=theirs)


def _compare_objects(ours: Mapping[str, object], theirs: Mapping[str, object], path: str) -> Iterator[ValueChange]:
    for name in dict.fromkeys([*ours, *theirs]):
        place = path + (f".{name}" if _NAME.fullmatch(name) else f"[{compact(name)}]")
        if name not in theirs:
            yield ValueChange(path=place, kind="missing", expected=ours[name])
        elif name not in ours:
            yield ValueChange(path=place, kind="unexpected", actual=theirs[name])
        else:
            yield from compare_values(ours[name], theirs[name], place)


def _compare_lists(ours: list[object], theirs: list[object], path: str) -> Iterator[ValueChange]:
    # Items are matched first, so that one item too many does not make all that follow differ.
    if max(len(ours), len(theirs)) > _LONGEST_LIST:
        blocks = [(0, len(ours), 0, len(theirs))]
    else:
        matcher = SequenceMatcher(None, [*map(_key, ours)], [*map(_key, theirs)], autojunk=False)
        blocks = [(i, j, k, m) for kind, i, j, k, m in matcher.get_opcodes() if kind != "equal"]
    for i, j, k, m in blocks:
        pairs = min(j - i, m - k)
        for n in range(pairs):
            yield from compare_values(ours[i + n], theirs[k + n], f"{path}[{k + n}]")
        for n in range(i + pairs, j):
            yield ValueChange(path=f"{path}[{n}]", kind="missing", expected=ours[n])
        for n in range(k + pairs, m):
            yield ValueChange(path=f"{path}[{n}]", kind="unexpected", actual=theirs[n])


def _key(value: object) -> str:
    """A text that is equal for equal JSON."""
    match value:
        case float() if value.is_integer():
            return str(int(value))
        case dict():
            return "{" + ",".join(f"{compact(name)}:{_key(value[name])}" for name in sorted(value)) + "}"
        case list():
            return "[" + ",".join(map(_key, value)) + "]"
        case _:
            return compact(value)
