"""Docstrings read: Google, NumPy and reST styles."""

import inspect
import re
from collections.abc import Iterator

import msgspec

__all__ = ["Docstring", "parsed"]

_ARGUMENTS = frozenset({
    "args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters", "attributes",
})  # fmt: skip
_RETURNS = frozenset({"return", "returns", "yield", "yields"})
_OTHERS = frozenset({
    "raises", "example", "examples", "note", "notes", "see also", "references", "warning", "warnings", "warns", "todo",
})  # fmt: skip
# Plain texts, which `re` compiles when first used.
_NAME = r"\*{0,2}[A-Za-z_]\w*"
_GOOGLE_ITEM = rf"({_NAME})\s*(?:\([^)]*(?:\([^)]*\)[^)]*)*\))?\s*:(?:\s+|$)(.*)"
_NUMPY_ITEM = rf"({_NAME}(?:\s*,\s*{_NAME})*)\s*(?::.*)?"
_REST_ITEM = rf":(?:param|parameter|arg|argument|key|keyword|cvar|ivar|var)\s+(?:[^:]*?\s)?({_NAME})\s*:\s*(.*)"
_REST_RETURNS = r":(?:returns?|yields?)\s*:\s*(.*)"


class Docstring(msgspec.Struct):
    description: str | None = None
    arguments: dict[str, str] = {}
    returns: str | None = None


def parsed(text: str | None) -> Docstring:
    """The description without the sections about arguments and the result, and those sections."""
    docstring = Docstring()
    if not text:
        return docstring
    kept: list[str] = []
    for kind, lines in _blocks(inspect.cleandoc(text).splitlines()):
        match kind:
            case "google":
                docstring.arguments |= dict(_google_items(lines))
            case "numpy":
                docstring.arguments |= dict(_numpy_items(lines))
            case "google returns":
                docstring.returns = _flowed(lines)
            case "numpy returns":
                docstring.returns = _numpy_returns(lines)
            case "rest":
                _read_field(docstring, _flowed(lines) or "")
            case _:
                kept.extend(lines)
    docstring.description = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip() or None
    return docstring


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The text cut into sections: each with what it is about, headings left out except in ordinary text."""
    index = 0
    while index < len(lines):
        kind, start = _heading(lines, index)
        end = start + (kind == "rest")  # a field's own first line does not end it
        while end < len(lines) and not _ends(kind, lines, end):
            end += 1
        yield kind, lines[start:end]
        index = max(end, index + 1)


def _heading(lines: list[str], index: int) -> tuple[str, int]:
    """What begins at a line, and where its content does."""
    line = lines[index]
    title = line.strip().removesuffix(":").lower()
    if _underlined(lines, index):
        if title in _ARGUMENTS:
            return "numpy", index + 2
        if title in _RETURNS:
            return "numpy returns", index + 2
    elif line.endswith(":") and not line[:1].isspace() and _indented(lines, index + 1):
        if title in _ARGUMENTS:
            return "google", index + 1
        if title in _RETURNS:
            return "google returns", index + 1
    if re.match(r":[a-z]+(\s[^:]*)?:", line):
        return "rest", index
    return "text", index


def _ends(kind: str, lines: list[str], index: int) -> bool:
    line = lines[index]
    match kind:
        case "google" | "google returns":
            return bool(line) and not line[:1].isspace()
        case "numpy" | "numpy returns":
            return _underlined(lines, index) and line.strip().lower() in _ARGUMENTS | _RETURNS | _OTHERS
        case "rest":
            return not line or line.startswith(":")
        case _:
            return _heading(lines, index)[0] != "text"


def _underlined(lines: list[str], index: int) -> bool:
    return (
        index + 1 < len(lines) and bool(lines[index].strip()) and re.fullmatch(r"-{3,}", lines[index + 1]) is not None
    )


def _indented(lines: list[str], index: int) -> bool:
    following = next((line for line in lines[index:] if line), "")
    return following[:1].isspace()


def _items(lines: list[str]) -> Iterator[list[str]]:
    """The entries of a section: each starts at the section's own indentation."""
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    item: list[str] = []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) == depth:
            if item:
                yield item
            item = []
        item.append(line)
    if item:
        yield item


def _google_items(lines: list[str]) -> Iterator[tuple[str, str]]:
    for item in _items(lines):
        if found := re.fullmatch(_GOOGLE_ITEM, _flowed(item) or "", re.DOTALL):
            yield found[1].lstrip("*"), found[2]


def _numpy_items(lines: list[str]) -> Iterator[tuple[str, str]]:
    for first, *rest in _items(lines):
        if (found := re.fullmatch(_NUMPY_ITEM, first.strip())) and (text := _flowed(rest)):
            for name in found[1].split(","):
                yield name.strip().lstrip("*"), text


def _numpy_returns(lines: list[str]) -> str | None:
    """NumPy names the type first and explains it below, indented."""
    told = [text for _, *rest in _items(lines) if (text := _flowed(rest))]
    return " ".join(told) or _flowed(lines)


def _read_field(docstring: Docstring, text: str) -> None:
    if found := re.fullmatch(_REST_ITEM, text, re.DOTALL):
        docstring.arguments[found[1].lstrip("*")] = found[2].strip()
    elif found := re.fullmatch(_REST_RETURNS, text, re.DOTALL):
        docstring.returns = found[1].strip() or None


def _flowed(lines: list[str]) -> str | None:
    """Lines as one line, paragraphs kept apart."""
    paragraphs = "\n".join(line.strip() for line in lines).strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs).strip() or None
