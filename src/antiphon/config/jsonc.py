"""JSON with comments and trailing commas: read it, and set or remove one member. Every other character stays.

What JSON does not have is replaced by spaces, so that Python's own reader takes the rest and finds each value where it
stands in the text.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

from antiphon.errors import ConfigUnusable

_BLANK: Final = " \t\r\n"
_DEEPEST: Final = 200
_STRING: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_COMMENT: Final = r"//[^\r\n]*|/\*.*?\*/"
_SPACE: Final = re.compile(f"[{_BLANK}]*")
_OPEN: Final = r'(?:"|/\*).*'
"""What is not closed goes to the end of the text, once: it is left to the reader to refuse."""
_COMMENTS: Final = re.compile(rf"{_STRING}|({_COMMENT})|{_OPEN}", re.DOTALL)
_COMMAS: Final = re.compile(rf"{_STRING}|[\[{{:,][{_BLANK}]*,|(,)(?=[{_BLANK}]*[\]}}])|{_OPEN}", re.DOTALL)
"""A comma before a closing bracket, if there is a value before it."""
_BRACKETS: Final = re.compile(rf"{_STRING}|([\[{{])|([\]}}])|{_OPEN}", re.DOTALL)
_BESIDE: Final = re.compile(rf"(?:[ \t]*(?:{_COMMENT}))*", re.DOTALL)
"""The comments that begin on the same line."""


class Member(NamedTuple):
    """Where a member of an object stands: its name, its value, and the comma after it, if there is one."""

    name: str
    start: int
    value: int
    end: int
    comma: int | None


def load(text: str) -> Any:
    """Return the value of a text; an empty one counts as an empty object. Raise ConfigUnusable."""
    return JsonText(text).value if text.strip(f"\ufeff{_BLANK}") else {}


def with_member(text: str, path: Sequence[str], value: object) -> str:
    """Return the text with the member at a path of names replaced, or added as the last of its object.

    Objects on the way are made where they are missing. An empty text counts as an empty object.
    """
    if not text.strip(f"\ufeff{_BLANK}"):
        text += "{}\n"
    document = JsonText(text)
    start, end = document.start, len(text)
    for depth, name in enumerate(path):
        members = document.members(start)
        found = _last(members, name)
        if found is None:
            for inner in reversed(path[depth + 1 :]):
                value = {inner: value}
            return document.added(start, members, f"{json.dumps(name, ensure_ascii=False)}: ", value)
        start, end = found.value, found.end
    return text[:start] + document.written(value, document.indent(start)) + text[end:]


def without_member(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at a path of names, nor any other of that name; unchanged if there is none."""
    while True:
        document = JsonText(text)
        start = document.start
        for name in path[:-1]:
            found = _last(document.members(start), name)
            if found is None:
                return text
            start = found.value
        members = document.members(start)
        last = _last(members, path[-1])
        if last is None:
            return text
        text = document.without(start, members, members.index(last))


def _last(members: list[Member], name: str) -> Member | None:
    """Return the member of that name; the last one counts."""
    return next((member for member in reversed(members) if member.name == name), None)


def _blanked(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else re.sub(r"[^\r\n]", " ", found[0])


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


class JsonText:
    """A text and its value, where its members stand, and how it is laid out: what is added looks like the rest."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._code = _COMMENTS.sub(_blanked, re.sub("^\ufeff", " ", text))
        self._json = _COMMAS.sub(_blanked, self._code)
        self.start = self._skip(0)
        self._check_depth()
        try:
            self.value: Any = _DECODER.decode(self._json)
        except json.JSONDecodeError as fault:
            raise self._broken(fault.pos, fault.msg) from None
        except ValueError as fault:  # a constant, or a number of too many digits
            raise ConfigUnusable(str(fault)) from None

    def members(self, start: int) -> list[Member]:
        """Return the members of the object that begins there; ConfigUnusable if it is none."""
        if self._code[start] != "{":
            raise self._broken(start, "expected an object")
        members: list[Member] = []
        at = self._skip(start + 1)
        while self._code[at] != "}":
            name, end = _DECODER.raw_decode(self._json, at)
            value = self._skip(self._skip(end) + 1)
            _, end = _DECODER.raw_decode(self._json, value)
            after = self._skip(end)
            comma = after if self._code[after] == "," else None
            members.append(Member(name, at, value, end, comma))
            at = after if comma is None else self._skip(comma + 1)
        return members

    def _skip(self, at: int) -> int:
        """Return where the next token begins."""
        found = _SPACE.match(self._code, at)
        assert found is not None
        return found.end()

    def _check_depth(self) -> None:
        depth = 0
        for found in _BRACKETS.finditer(self._json):
            depth += bool(found[1]) - bool(found[2])
            if depth > _DEEPEST:
                raise self._broken(found.start(), "it is nested too deeply")

    def _broken(self, at: int, problem: str) -> ConfigUnusable:
        """Return the error for a place in the text, with its line and column, both counted from 1."""
        before = self._text[:at].replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return ConfigUnusable(f"line {line}, column {column}: {problem}")

    # --- changing -------------------------------------------------------------------------------------------------

    def written(self, value: object, indent: str) -> str:
        lines = json.dumps(value, indent=self._unit, ensure_ascii=False)
        return lines.replace("\n", f"{self._newline}{indent}")

    def added(self, start: int, members: list[Member], name: str, value: object) -> str:
        """Return the text with a member added at the end of an object."""
        text = self._text
        if not members:
            end = self._code.index("}", start)
            base = self.indent(start)
            indent = f"{base}{self._unit}"
            at = len(text[:end].rstrip(_BLANK))
            tail = "" if "\n" in text[at:end] else f"{self._newline}{base}"
            return f"{text[:at]}{self._newline}{indent}{name}{self.written(value, indent)}{tail}{text[at:]}"
        last = members[-1]
        end = last.end if last.comma is None else last.comma + 1
        at = self._beside(end)
        if self._is_alone(last.start):
            indent = self.indent(last.start)
            member = f"{self._newline}{indent}{name}{self.written(value, indent)}"
        else:
            # Not into a comment that ends with its line.
            gap = self._newline if at > end and text[at : at + 1] in {"\r", "\n"} else " "
            member = f"{gap}{name}{json.dumps(value, ensure_ascii=False)}"
        if last.comma is None:
            return f"{text[:end]},{text[end:at]}{member}{text[at:]}"
        return f"{text[:at]}{member},{text[at:]}"

    def without(self, start: int, members: list[Member], index: int) -> str:
        """Return the text without one of the members of an object."""
        text, member = self._text, members[index]
        before = members[index - 1] if index else None
        begin = len(text[: member.start].rstrip(_BLANK))
        end = member.end if member.comma is None else member.comma + 1
        beside = self._beside(end)
        if text[beside:].lstrip(" \t")[:1] in {"\r", "\n", "}"}:
            end = beside  # a comment on its line goes with it
        if len(members) == 1 and begin == start + 1 and text[end:].lstrip(_BLANK)[:1] == "}":
            return text[:begin] + text[end:].lstrip(_BLANK)
        *_, comment = (None, *_COMMENTS.finditer(text, start + 1 if before is None else before.end, begin))
        if comment is not None and comment.end() == begin and comment[0].startswith("//"):
            rest = text[end:].lstrip(" \t")
            begin = begin if rest[:1] in {"\r", "\n"} else member.start  # or that comment would swallow the rest
        if before is not None and before.comma is not None and member.comma is None:
            return text[: before.comma] + text[before.comma + 1 : begin] + text[end:]
        return text[:begin] + text[end:]

    # --- the layout -----------------------------------------------------------------------------------------------

    @property
    def _newline(self) -> str:
        return "\r\n" if "\r\n" in self._text else "\n"

    @property
    def _unit(self) -> str:
        members = self.members(self.start)
        return (self.indent(members[0].start) if members and self._is_alone(members[0].start) else "") or "  "

    def _beside(self, at: int) -> int:
        """Return where the comments end that begin on the same line."""
        found = _BESIDE.match(self._text, at)
        assert found is not None
        return found.end()

    def indent(self, at: int) -> str:
        """Return the white space that the line begins with."""
        line = self._before(at).removeprefix("\ufeff")
        return line[: len(line) - len(line.lstrip(" \t"))]

    def _is_alone(self, at: int) -> bool:
        """Whether only white space is before it on its line, which is not the first."""
        line = self._before(at)
        return len(line) < at and not line.strip(" \t")

    def _before(self, at: int) -> str:
        """Return what its line has before it."""
        return self._text[max(self._text.rfind("\n", 0, at), self._text.rfind("\r", 0, at)) + 1 : at]
