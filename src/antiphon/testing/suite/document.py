"""A document: YAML as nodes with their places, and as plain JSON values; and all problems found in it."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

import msgspec
import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from antiphon.errors import AntiphonError
from antiphon.testing.suite.model import Place


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class SuiteBroken(AntiphonError):
    """A suite cannot be run as it is written; ``problems`` says why, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` if a known word is similar, else an empty string."""
    by_folded = {name.replace("_", "").replace("-", "").lower(): name for name in known}
    near = get_close_matches(word.replace("_", "").replace("-", "").lower(), by_folded, n=1, cutoff=0.6)
    return f"; did you mean {by_folded[near[0]]!r}?" if near else ""


Kind: TypeAlias = str
"""What messages call the type of a node."""

TEXT, NUMBER, FLAG, NOTHING, LIST, MAP = "a text", "a number", "true or false", "nothing", "a list", "a map"
DEEPEST: Final = 100
MOST: Final = 1_000_000
"""Values that a document may have once its aliases are followed."""

_STR: Final = "tag:yaml.org,2002:str"
_TAGS: Final = {
    "tag:yaml.org,2002:int": NUMBER,
    "tag:yaml.org,2002:float": NUMBER,
    "tag:yaml.org,2002:bool": FLAG,
    "tag:yaml.org,2002:null": NOTHING,
}

# The core schema of YAML 1.2, which editors use: `no` is a text, and 12:30 as well.
_CORE: Final = (
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    ("tag:yaml.org,2002:float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", "~nN\0"),
)


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    made: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, expression, firsts in _CORE:
        for first in firsts:
            made.setdefault("" if first == "\0" else first, []).append((tag, re.compile(rf"(?:{expression})\Z")))
    return made


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the fast one where it was built
    yaml_implicit_resolvers = _resolvers()


def check_nesting(text: str) -> None:
    """Raise a YAMLError for a text that is nested too deep, which would overflow the stack of the parser."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            mark: Any = event.start_mark
            raise yaml.MarkedYAMLError(problem=f"it is nested more than {DEEPEST} deep", problem_mark=mark)


def check_size(value: object, open_: tuple[int, ...] = (), count: Iterator[int] | None = None) -> None:
    """Raise ValueError for a value that contains itself, or too much once its aliases are followed."""
    count = count or itertools.count()
    if id(value) in open_ or len(open_) > DEEPEST or next(count) > MOST:
        raise ValueError(_ENDLESS)
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            check_size(item, (*open_, id(value)), count)


class Document:
    """One file that is read: what is in it, and what is wrong with it."""

    def __init__(self, file: Path, text: str) -> None:
        self.file = file
        self.text = text
        self.problems: list[Problem] = []
        self._open: set[int] = set()
        self._count = 0

    def root(self) -> Node:
        """Return the node of the whole document; SuiteBroken if it is empty, or is not YAML."""
        try:
            check_nesting(self.text)
            root: Node | None = yaml.compose(self.text, Loader=_Loader)
        except yaml.MarkedYAMLError as fault:
            mark = fault.problem_mark or fault.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
            told = " ".join(part for part in (fault.problem, fault.context) if part)
            self._refuse(f"This is not YAML: {told or fault}{self._hint(line)}", line, column)
        except (yaml.YAMLError, ValueError, RecursionError) as fault:
            self._refuse(f"This is not YAML: {' '.join(str(fault).split())}")
        if root is None:
            self._refuse("The suite is empty")
        return root

    def _refuse(self, why: str, line: int = 1, column: int = 1) -> NoReturn:
        raise SuiteBroken([Problem(Place(file=self.file, line=line, column=column), why)]) from None

    def _hint(self, line: int) -> str:
        lines = self.text.splitlines()
        has_reference = 0 < line <= len(lines) and "${" in lines[line - 1]
        return "; between { and }, a text with ${...} in it stands in quotes" if has_reference else ""

    def place(self, node: Node) -> Place:
        mark = node.start_mark
        return Place(file=self.file, line=mark.line + 1, column=mark.column + 1)

    def wrong(self, node: Node, message: str) -> None:
        self.problems.append(Problem(self.place(node), message))

    def finish(self) -> None:
        """Raise SuiteBroken if anything was wrong."""
        if self.problems:
            raise SuiteBroken(sorted(set(self.problems), key=lambda each: (each.place.line, each.place.column)))

    # --- values -------------------------------------------------------------------------------------------------------

    def entries(self, node: MappingNode) -> dict[str, tuple[Node, Node]]:
        """Return the keys of a map with their nodes; note a key that is no text, or is there twice.

        SuiteBroken once aliases have made the document too large.
        """
        self._count += len(node.value)
        if self._count > MOST:
            raise SuiteBroken([Problem(self.place(node), _ENDLESS)])
        found: dict[str, tuple[Node, Node]] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                self.wrong(key, "A key must be a text")
            elif key.value in found:
                first = self.place(found[key.value][0])
                self.wrong(key, f"The key {key.value!r} stands here twice: first on line {first.line}")
            else:
                found[key.value] = (key, value)
        return found

    def plain(self, node: Node) -> Any:
        """Return the JSON value of a node; note what JSON does not have, and return None for it."""
        if isinstance(node, ScalarNode):
            return node.value if node.tag == _STR else self._scalar(node)
        if not isinstance(node, MappingNode):
            self._count += len(node.value)
        if id(node) in self._open or len(self._open) > DEEPEST or self._count > MOST:
            if not self.problems or self.problems[-1].message != _ENDLESS:
                self.wrong(node, _ENDLESS)
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                return {name: self.plain(value) for name, (_, value) in self.entries(node).items()}
            return [self.plain(item) for item in node.value]
        finally:
            self._open.discard(id(node))

    def _scalar(self, node: ScalarNode) -> Any:
        """Return the value of what is not written as a text."""
        text: str = node.value
        kind = _TAGS.get(node.tag)
        if kind == NUMBER:
            return _number(text)
        if kind == FLAG:
            return text[0] in "tT"
        if kind != NOTHING:
            self.wrong(node, f"A suite has no {node.tag}: it has texts, numbers, true, false, null, lists and maps")
        return None


_ENDLESS: Final = "This contains itself, or too much"


def kind_of(node: Node) -> Kind:
    if isinstance(node, MappingNode):
        return MAP
    if isinstance(node, SequenceNode):
        return LIST
    return _TAGS.get(node.tag, TEXT)


def _number(text: str) -> int | float:
    if text[:2] in {"0o", "0x"}:
        return int(text, 0)
    try:
        return int(text)
    except ValueError:
        return float(text)


def read_document(path: Path) -> Document:
    """Read a file; SuiteBroken if that fails."""
    start = Place(file=path, line=1, column=1)
    try:
        return Document(path, path.read_bytes().decode("utf-8-sig"))
    except OSError as fault:
        raise SuiteBroken([Problem(start, f"The file cannot be read: {fault.strerror or fault}")]) from None
    except UnicodeDecodeError as fault:
        raise SuiteBroken([Problem(start, f"The file is not UTF-8: {fault.reason} at byte {fault.start}")]) from None
