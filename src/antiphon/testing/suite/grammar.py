"""A grammar: rules that read the nodes of a document, and that describe themselves as JSON Schema.

One definition serves both, so the loader and the schema cannot disagree.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec
from yaml.nodes import MappingNode, Node, ScalarNode

from antiphon.testing.suite.document import FLAG, LIST, MAP, NOTHING, NUMBER, TEXT, Document, Kind, kind_of, nearest
from antiphon.types import JsonObject

_JSON_TYPES: Final = {
    TEXT: "string",
    NUMBER: "number",
    FLAG: "boolean",
    NOTHING: "null",
    LIST: "array",
    MAP: "object",
}


class Rule(Protocol):
    """What may stand in a place of the document.

    ``read`` notes in the document what is wrong; it returns the value that is kept, which counts only if nothing is.
    """

    def read(self, node: Node, page: Document) -> Any: ...

    def schema(self) -> JsonObject: ...


def mismatch(node: Node, page: Document, expected: str) -> Any:
    """Note that something else was expected in this place, and return no value."""
    kind = kind_of(node)
    told = kind
    if isinstance(node, ScalarNode) and kind != NOTHING:
        told = f"the text {node.value!r}" if kind == TEXT else f"{kind} ({node.value})"
    hint = "; put it in quotes" if expected == TEXT and kind in {NUMBER, FLAG} else ""
    page.wrong(node, f"Expected {expected}, got {told}{hint}")
    return None


class Plain(msgspec.Struct, frozen=True, kw_only=True):
    """Any value of some kinds, unchanged unless ``check`` changes it."""

    kinds: tuple[Kind, ...] = ()
    """Empty: any."""
    check: Callable[[Any], Any] | None = None
    """Turns the value into what is kept; ValueError says what is wrong with it."""
    rules: JsonObject = {}
    """What the JSON Schema says of it besides its type."""
    named: str = ""
    """What messages call it."""

    def read(self, node: Node, page: Document) -> Any:
        if self.kinds and kind_of(node) not in self.kinds:
            return mismatch(node, page, self.named or " or ".join(self.kinds))
        count = len(page.problems)
        value = page.plain(node)
        if self.check is None or len(page.problems) > count:
            return value
        try:
            return self.check(value)
        except ValueError as fault:
            page.wrong(node, _sentence(fault))
            return None

    def schema(self) -> JsonObject:
        types = [_JSON_TYPES[kind] for kind in self.kinds]
        said: JsonObject = {} if not types else {"type": types[0] if len(types) == 1 else types}
        return {**said, **self.rules}


def _sentence(fault: ValueError) -> str:
    text = str(fault)
    return text[:1].upper() + text[1:]


def one_of(*words: str) -> Plain:
    """Return the rule of one of some words."""
    choice = " or ".join(words)

    def check(value: str) -> str:
        if value not in words:
            raise ValueError(f"expected {choice}, got {value!r}{nearest(value, words)}")
        return value

    return Plain(kinds=(TEXT,), check=check, rules={"enum": list(words)}, named=choice)


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A list of items of one kind."""

    of: Rule
    least: int = 0

    def read(self, node: Node, page: Document) -> Any:
        if kind_of(node) != LIST:
            return mismatch(node, page, LIST)
        if len(node.value) < self.least:
            page.wrong(node, "Expected at least one item here")
        return [self.of.read(item, page) for item in node.value]

    def schema(self) -> JsonObject:
        said: JsonObject = {"type": "array", "items": self.of.schema()}
        return {**said, "minItems": self.least} if self.least else said


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """A map of values of one kind, under names that the author chooses."""

    of: Rule
    name: Callable[[str], object] | None = None
    """Checks each name; ValueError says what is wrong with it."""
    names: JsonObject = {}
    """What JSON Schema says of the names."""

    def read(self, node: Node, page: Document) -> Any:
        if not isinstance(node, MappingNode):
            return mismatch(node, page, MAP)
        values: dict[str, Any] = {}
        for name, (key, value) in page.entries(node).items():
            try:
                if self.name is not None:
                    self.name(name)
            except ValueError as fault:
                page.wrong(key, _sentence(fault))
            values[name] = self.of.read(value, page)
        return values

    def schema(self) -> JsonObject:
        said: JsonObject = {"type": "object", "additionalProperties": self.of.schema()}
        return {**said, "propertyNames": self.names} if self.names else said


class ChosenRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that is chosen by the node. It may contain itself, as the schema says it by name."""

    of: Callable[[Node], Rule]
    said: JsonObject
    """The JSON Schema."""

    def read(self, node: Node, page: Document) -> Any:
        return self.of(node).read(node, page)

    def schema(self) -> JsonObject:
        return self.said


class ByKind(msgspec.Struct, frozen=True):
    """Different rules for a text, a number, a list ..."""

    by_kind: Mapping[Kind, Rule]

    def read(self, node: Node, page: Document) -> Any:
        shape = self.by_kind.get(kind_of(node))
        return mismatch(node, page, " or ".join(self.by_kind)) if shape is None else shape.read(node, page)

    def schema(self) -> JsonObject:
        shapes = list({id(shape): shape for shape in self.by_kind.values()}.values())
        return shapes[0].schema() if len(shapes) == 1 else {"anyOf": [shape.schema() for shape in shapes]}


class Key(msgspec.Struct, frozen=True):
    """A key of a map: what it holds, and what editors show for it."""

    shape: Rule
    about: str
    needed: bool = False
    ref: str = ""
    """The definition that the JSON Schema refers to, for what several maps have."""

    def schema(self) -> JsonObject:
        said = {"$ref": f"#/$defs/{self.ref}"} if self.ref else self.shape.schema()
        return {**said, "description": self.about}


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """What a map with known keys held: its values, and the nodes of its keys and values, by key."""

    node: Node
    values: dict[str, Any]
    keys: dict[str, Node]
    nodes: dict[str, Node]


class Fixed(msgspec.Struct, frozen=True, kw_only=True):
    """A map with known keys."""

    title: str
    """What it is, with its article: "a test"."""
    keys: Mapping[str, Key]
    one_of: tuple[str, ...] = ()
    """Exactly one of these keys is there."""
    needs: Mapping[str, str] = {}
    """A key that makes sense only beside another one."""
    least: int = 0
    aside: str = ""
    """What the message of an unknown key says as well."""
    with_nodes: bool = False
    """Whether it reads to Fields; if not, to the values alone."""

    def read(self, node: Node, page: Document) -> Any:
        if not isinstance(node, MappingNode):
            return mismatch(node, page, f"{self.title} (a map)")
        made = Fields(node=node, values={}, keys={}, nodes={})
        for name, (key, value) in page.entries(node).items():
            known = self.keys.get(name)
            if known is None:
                hint = nearest(name, self.keys) or f"; it has {', '.join(self.keys)}"
                page.wrong(key, f"Unknown key {name!r} in {self.title}{hint}{self.aside}")
            else:
                made.values[name] = known.shape.read(value, page)
                made.keys[name] = key
                made.nodes[name] = value
        if len(node.value) < self.least:
            page.wrong(node, f"{self._title} needs one of {', '.join(self.keys)}")
        self._check(made, page)
        return made if self.with_nodes else made.values

    @property
    def _title(self) -> str:
        return self.title[:1].upper() + self.title[1:]

    def _check(self, made: Fields, page: Document) -> None:
        """Note the keys that are missing, or that do not go together."""
        for name, key in self.keys.items():
            if key.needed and name not in made.values:
                page.wrong(made.node, f"{self._title} needs {name!r}: {key.about}")
        if self.one_of and len(made.values.keys() & self.one_of) != 1:
            chosen = [name for name in self.one_of if name in made.values]
            choice = ", ".join(self.one_of[:-1]) + f" or {self.one_of[-1]}"
            got = f"got {' and '.join(chosen)}" if chosen else "got none of them"
            page.wrong(made.node, f"{self._title} needs one of {choice}, and {got}")
        for name, beside in self.needs.items():
            if name in made.values and beside not in made.values:
                page.wrong(made.nodes[name], f"{name!r} makes sense only beside {beside!r}")

    def schema(self) -> JsonObject:
        said: JsonObject = {
            "type": "object",
            "properties": {name: key.schema() for name, key in self.keys.items()},
            "additionalProperties": False,
        }
        needed = [name for name, key in self.keys.items() if key.needed]
        if needed:
            said["required"] = needed
        if self.least:
            said["minProperties"] = self.least
        if self.one_of:
            said["oneOf"] = [{"required": [name]} for name in self.one_of]
        if self.needs:
            said["dependentRequired"] = {name: [beside] for name, beside in self.needs.items()}
        return said
