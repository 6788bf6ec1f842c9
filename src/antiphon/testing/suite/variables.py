"""Variables: the texts of a suite refer to values of the suite, to values that a test captured, and to the environment.

``${name}`` stands for a value and ``${env:NAME}`` for a variable of the environment. ``${env:NAME:-otherwise}`` has a
default, and ``$${`` stands for the two characters themselves.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from antiphon.testing.suite.document import Document, nearest

_REFERENCE: Final = re.compile(
    r"\$\$\{|\$\{\s*(?:env:(?P<env>[^}:\s]+)(?::-(?P<default>[^}]*))?|(?P<name>[^}]*?))\s*\}"
)
NAME: Final = re.compile(r"[^\W\d][\w.-]*")


def names_in(text: str) -> Iterator[str]:
    """Return the variables that a text refers to, without those of the environment."""
    return (found["name"] for found in _REFERENCE.finditer(text) if found["name"] is not None)


def missing_environment(text: str) -> list[str]:
    """Return the variables of the environment that a text needs and that are not set."""
    needed = (found["env"] for found in _REFERENCE.finditer(text) if found["env"] and found["default"] is None)
    return [name for name in needed if name not in os.environ]


def filled(value: Any, known: Mapping[str, object]) -> Any:
    """Return a value with its references replaced, at every depth; KeyError for one that is not known.

    A text that is nothing but one reference becomes the value itself, whatever its type.
    """
    kind = type(value)
    if kind is str:
        return _text(value, known) if "${" in value else value
    if kind is dict:
        return {written(filled(name, known)): filled(item, known) for name, item in value.items()}
    if kind is list:
        return [filled(item, known) for item in value]
    return value


def _text(text: str, known: Mapping[str, object]) -> object:
    whole = _REFERENCE.fullmatch(text)
    if whole is not None:
        return _value(whole, known)
    return _REFERENCE.sub(lambda found: written(_value(found, known)), text)


def _value(found: re.Match[str], known: Mapping[str, object]) -> object:
    if found["env"] is None:
        return "${" if found["name"] is None else known[found["name"]]
    value = os.environ.get(found["env"], found["default"])
    if value is None:
        raise KeyError(f"env:{found['env']}")
    return value


def written(value: object) -> str:
    """Return a value as it stands in a text: JSON, if it is no text itself."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# --- what the tests of a suite refer to ---------------------------------------------------------------------------


class Uses(NamedTuple):
    """What a part of a document refers to."""

    names: frozenset[str] = frozenset()
    anything: bool = False
    """Whether there is any reference at all, to the environment for instance."""


def read_uses(page: Document, root: Node, given: Iterable[str]) -> dict[int, Uses]:
    """Return what each test of a suite refers to, by the id of its node; note what no test before it captures."""
    parts = _members(root)
    known = {*given, *_members(parts.get("variables"))}
    _uses(page, parts.get("server"), known)
    shared = _uses(page, parts.get("defaults"), known)
    found: dict[int, Uses] = {}
    tests = parts.get("tests")
    for call in tests.value if isinstance(tests, SequenceNode) else ():
        own = _uses(page, call, known)
        found[id(call)] = Uses(own.names | shared.names, own.anything or shared.anything)
        known |= _members(_members(call).get("capture")).keys()
    return found


def _uses(page: Document, node: Node | None, known: set[str]) -> Uses:
    scalars = list(_scalars(node, set()))
    names: set[str] = set()
    for scalar in scalars:
        for name in names_in(scalar.value):
            names.add(name)
            if name not in known:
                hint = nearest(name, known) or "; variables come from 'variables' and from 'capture' above"
                page.wrong(scalar, f"There is no variable {name!r} here{hint}")
        for name in missing_environment(scalar.value):
            why = f"The environment has no {name}; ${{env:{name}:-something}} says what holds without it"
            page.wrong(scalar, why)
    return Uses(frozenset(names), bool(scalars))


def _scalars(node: Node | None, seen: set[int]) -> Iterator[ScalarNode]:
    """Return the texts with references below a node, keys included."""
    if isinstance(node, ScalarNode):
        if "${" in node.value:
            yield node
    elif node is not None and id(node) not in seen:
        seen.add(id(node))
        for item in node.value:
            for below in item if isinstance(item, tuple) else (item,):
                yield from _scalars(below, seen)


def _members(node: Node | None) -> dict[str, Node]:
    if not isinstance(node, MappingNode):
        return {}
    return {key.value: value for key, value in node.value if isinstance(key, ScalarNode)}
