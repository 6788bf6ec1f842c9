"""JSON with comments and trailing commas: read it, and set or remove one member. Every other character stays."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from antiphon.errors import ConfigUnusable

_BLANK: Final = " \t\r\n"
_DEEPEST: Final = 200
_TRIVIA: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_COMMENT: Final = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_BESIDE: Final = re.compile(r"(?:[ \t]*(?://[^\r\n]*|/\*.*?\*/))*", re.DOTALL)
"""The comments that begin on the same line."""
_STRING: Final = re.compile(r'"[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*"')
_SCALAR: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")


class Member(msgspec.Struct, frozen=True):
    """A name and its value in an object; ``comma`` is where the comma after it is, if there is one."""

    name: str
    start: int
    value: "Node"
    comma: int | None


class Node(msgspec.Struct, frozen=True):
    """A value, where it stands in the text, and the members if it is an object."""

    start: int
    end: int
    value: Any
    members: tuple[Member, ...] = ()


def broken(text: str, at: int, problem: str) -> ConfigUnusable:
    """Return the error for a place in the text, with its line and column, both counted from 1."""
    before = text[:at].replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return ConfigUnusable(f"line {line}, column {column}: {problem}")


# --- reading ------------------------------------------------------------------------------------------------------


def parse(text: str) -> Node:
    """Return what the text holds; raise ConfigUnusable."""
    reader = _Reader(text)
    node = reader.value(reader.skip(1 if text.startswith("\ufeff") else 0), 0)
    end = reader.skip(node.end)
    if end != len(text):
        raise broken(text, end, f"expected the end of the file, got {text[end]!r}")
    return node


def load(text: str) -> Any:
    """Return the value of a text; an empty one counts as an empty object."""
    return parse(text).value if text.strip(f"\ufeff{_BLANK}") else {}


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def skip(self, at: int) -> int:
        """Return where the next token begins, after white space and comments."""
        found = _TRIVIA.match(self._text, at)
        assert found is not None
        return found.end()

    def value(self, at: int, depth: int) -> Node:
        if depth > _DEEPEST:
            raise broken(self._text, at, "it is nested too deeply")
        match self._text[at : at + 1]:
            case "{":
                return self._object(at, depth)
            case "[":
                return self._array(at, depth)
            case _:
                return self._scalar(at)

    def _scalar(self, at: int) -> Node:
        found = _STRING.match(self._text, at) or _SCALAR.match(self._text, at)
        if found is None:
            raise self._unexpected(at, "a value")
        try:
            return Node(at, found.end(), json.loads(found[0]))
        except ValueError:
            raise broken(self._text, at, "this value cannot be read") from None

    def _object(self, start: int, depth: int) -> Node:
        members: list[Member] = []
        at, more = self.skip(start + 1), True
        while self._text[at : at + 1] != "}":
            name = _STRING.match(self._text, at)
            if name is None or not more:
                raise self._unexpected(at, "a name in double quotes, or }" if more else "a comma or }")
            colon = self.skip(name.end())
            if self._text[colon : colon + 1] != ":":
                raise self._unexpected(colon, "a colon")
            node = self.value(self.skip(colon + 1), depth + 1)
            after = self.skip(node.end)
            more = self._text[after : after + 1] == ","
            members.append(Member(self._scalar(at).value, at, node, after if more else None))
            at = self.skip(after + 1) if more else after
        return Node(start, at + 1, {member.name: member.value.value for member in members}, tuple(members))

    def _array(self, start: int, depth: int) -> Node:
        items: list[Any] = []
        at, more = self.skip(start + 1), True
        while self._text[at : at + 1] != "]":
            if not more:
                raise self._unexpected(at, "a comma or ]")
            node = self.value(at, depth + 1)
            items.append(node.value)
            after = self.skip(node.end)
            more = self._text[after : after + 1] == ","
            at = self.skip(after + 1) if more else after
        return Node(start, at + 1, items)

    def _unexpected(self, at: int, expected: str) -> ConfigUnusable:
        got = "the end of the file" if at >= len(self._text) else repr(self._text[at])
        return broken(self._text, at, f"expected {expected}, got {got}")


# --- changing -----------------------------------------------------------------------------------------------------


def with_member(text: str, path: Sequence[str], value: object) -> str:
    """Return the text with the member at a path of names replaced, or added as the last of its object.

    Objects on the way are made where they are missing. An empty text counts as an empty object.
    """
    if not text.strip(f"\ufeff{_BLANK}"):
        text += "{}\n"
    root = node = parse(text)
    style = _Style(text, root)
    for depth, name in enumerate(path):
        found = _last(text, node, name)
        if found is None:
            for inner in reversed(path[depth + 1 :]):
                value = {inner: value}
            return style.added(node, f"{json.dumps(name, ensure_ascii=False)}: ", value)
        node = found.value
    return text[: node.start] + style.written(value, _indent(text, node.start)) + text[node.end :]


def without_member(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at a path of names, nor any other of that name; unchanged if there is none."""
    while True:
        node = parse(text)
        for name in path[:-1]:
            found = _last(text, node, name)
            if found is None:
                return text
            node = found.value
        last = _last(text, node, path[-1])
        if last is None:
            return text
        text = _removed(text, node, node.members.index(last))


def _last(text: str, node: Node, name: str) -> Member | None:
    """Return the member of that name; the last one counts."""
    if not isinstance(node.value, dict):
        raise broken(text, node.start, "expected an object")
    return next((member for member in reversed(node.members) if member.name == name), None)


class _Style(msgspec.Struct, frozen=True):
    """How a text is laid out, so that what is added looks like the rest."""

    text: str
    root: Node

    @property
    def newline(self) -> str:
        return "\r\n" if "\r\n" in self.text else "\n"

    @property
    def unit(self) -> str:
        first = self.root.members[0].start if self.root.members else 0
        return (_indent(self.text, first) if _is_alone(self.text, first) else "") or "  "

    def written(self, value: object, indent: str) -> str:
        lines = json.dumps(value, indent=self.unit, ensure_ascii=False)
        return lines.replace("\n", f"{self.newline}{indent}")

    def added(self, node: Node, name: str, value: object) -> str:
        """Return the text with a member added at the end of an object."""
        text = self.text
        if not node.members:
            base = _indent(text, node.start)
            indent = f"{base}{self.unit}"
            at = len(text[: node.end - 1].rstrip(_BLANK))
            tail = "" if "\n" in text[at : node.end - 1] else f"{self.newline}{base}"
            return f"{text[:at]}{self.newline}{indent}{name}{self.written(value, indent)}{tail}{text[at:]}"
        last = node.members[-1]
        end = last.value.end if last.comma is None else last.comma + 1
        at = _beside(text, end)
        if _is_alone(text, last.start):
            indent = _indent(text, last.start)
            member = f"{self.newline}{indent}{name}{self.written(value, indent)}"
        else:
            # Not into a comment that ends with its line.
            gap = self.newline if at > end and text[at : at + 1] in {"\r", "\n"} else " "
            member = f"{gap}{name}{json.dumps(value, ensure_ascii=False)}"
        if last.comma is None:
            return f"{text[:end]},{text[end:at]}{member}{text[at:]}"
        return f"{text[:at]}{member},{text[at:]}"


def _removed(text: str, node: Node, index: int) -> str:
    member = node.members[index]
    before = node.members[index - 1] if index else None
    start = len(text[: member.start].rstrip(_BLANK))
    end = member.value.end if member.comma is None else member.comma + 1
    beside = _beside(text, end)
    if text[beside:].lstrip(" \t")[:1] in {"\r", "\n", "}"}:
        end = beside  # a comment on its line goes with it
    if len(node.members) == 1 and start == node.start + 1 and not text[end : node.end - 1].strip(_BLANK):
        return text[:start] + text[node.end - 1 :]
    comments = [*_COMMENT.finditer(text, node.start + 1 if before is None else before.value.end, start)]
    if comments and comments[-1].end() == start and comments[-1][0].startswith("//"):
        rest = text[end:].lstrip(" \t")
        start = start if rest[:1] in {"\r", "\n"} else member.start  # or that comment would swallow the rest
    if before is not None and before.comma is not None and member.comma is None:
        return text[: before.comma] + text[before.comma + 1 : start] + text[end:]
    return text[:start] + text[end:]


def _beside(text: str, at: int) -> int:
    """Return where the comments end that begin on the same line."""
    found = _BESIDE.match(text, at)
    assert found is not None
    return found.end()


def _indent(text: str, at: int) -> str:
    """Return the white space that the line begins with."""
    start = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    line = text[start:at].removeprefix("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _is_alone(text: str, at: int) -> bool:
    """Whether only white space is before it on its line."""
    start = max(text.rfind("\n", 0, at), text.rfind("\r", 0, at)) + 1
    return start > 0 and not text[start:at].strip(" \t")
