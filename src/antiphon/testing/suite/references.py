"""References: which variables a suite's tests use, and whether each is known by then."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from antiphon.testing.suite.document import Document
from antiphon.testing.suite.problem import nearest
from antiphon.testing.suite.variables import missing_environment, names_in

_CALLS: Final = ("setup", "tests")


class Uses(NamedTuple):
    """What one call refers to."""

    names: set[str]
    anything: bool
    """Whether there is any reference at all, to the environment for instance."""


class References:
    """What was found: what each test refers to, by its number."""

    def __init__(self, page: Document, root: Node, given: Iterable[str], environment: Mapping[str, str]) -> None:
        self.used: dict[str, list[Uses]] = {"setup": [], "tests": []}
        self._page = page
        self._known = set(given)
        self._environment = environment
        if isinstance(root, MappingNode):
            self._read(root)

    def _read(self, root: MappingNode) -> None:
        parts = {key.value: value for key, value in root.value if isinstance(key, ScalarNode)}
        self._known |= _keys(parts.get("variables"))
        self._uses(parts.get("server"))
        shared = self._uses(parts.get("defaults"))
        for kind in _CALLS:
            calls = parts.get(kind)
            for call in calls.value if isinstance(calls, SequenceNode) else ():
                own = self._uses(call)
                self.used[kind].append(Uses(own.names | shared.names, own.anything or shared.anything))
                self._known |= _captured(call)

    def _uses(self, node: Node | None) -> Uses:
        """What a part of the document refers to; what nobody has set is a problem."""
        found: set[str] = set()
        scalars = list(_scalars(node, set()))
        for scalar in scalars:
            for name in names_in(scalar.value):
                found.add(name)
                if name not in self._known:
                    hint = nearest(name, self._known) or "; variables come from 'variables' and from 'capture' above"
                    self._page.wrong(scalar, f"There is no variable {name!r} here{hint}")
            for name in missing_environment(scalar.value, self._environment):
                self._page.wrong(
                    scalar, f"The environment has no {name}; ${{env:{name}:-something}} says what holds without it"
                )
        return Uses(found, bool(scalars))


def _scalars(node: Node | None, seen: set[int]) -> Iterator[ScalarNode]:
    if node is None or id(node) in seen:
        return
    if isinstance(node, ScalarNode):
        if "${" in node.value:
            yield node
        return
    seen.add(id(node))
    for item in node.value:
        for below in item if isinstance(item, tuple) else (item,):
            yield from _scalars(below, seen)


def _keys(node: Node | None) -> set[str]:
    return (
        {key.value for key, _ in node.value if isinstance(key, ScalarNode)} if isinstance(node, MappingNode) else set()
    )


def _captured(call: Node) -> set[str]:
    if not isinstance(call, MappingNode):
        return set()
    return set().union(*(_keys(value) for key, value in call.value if key.value == "capture"))
