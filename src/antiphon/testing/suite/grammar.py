"""A grammar: shapes that read nodes, and that say the same as JSON Schema. So the two cannot disagree."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec
from yaml.nodes import MappingNode, Node, ScalarNode

from antiphon.testing.outcome import Place
from antiphon.testing.suite.document import FLAG, LIST, MAP, NOTHING, NUMBER, TEXT, Document, Kind, kind_of, nearest
from antiphon.types import JsonObject


class Wrong:
    """Stands for a value that could not be read; the document knows why."""


WRONG: Final = Wrong()

_JSON_TYPES: Final = {
    TEXT: "string",
    NUMBER: "number",
    FLAG: "boolean",
    NOTHING: "null",
    LIST: "array",
    MAP: "object",
}


class Shape(Protocol):
    """What may stand in a place."""

    def read(self, node: Node, page: Document) -> Any: ...

    def schema(self) -> JsonObject: ...


def mismatch(node: Node, page: Document, expected: str) -> Wrong:
    kind = kind_of(node)
    told = kind
    if isinstance(node, ScalarNode) and kind != NOTHING:
        told = f"{kind} ({node.value})" if kind != TEXT else f"the text {node.value!r}"
    hint = "; put it in quotes" if expected == TEXT and kind in {NUMBER, FLAG} else ""
    page.wrong(node, f"Expected {expected}, got {told}{hint}")
    return WRONG


class Plain(msgspec.Struct, frozen=True, kw_only=True):
    """Any value of some kinds, as it stands."""

    kinds: tuple[Kind, ...] = ()
    """Empty: any."""
    check: Callable[[Any], Any] | None = None
    """Turns the value into what is kept; ValueError says what is wrong with it."""
    rules: JsonObject = {}
    """What JSON Schema can say of it besides."""
    named: str = ""
    """How it is called where something else stands."""

    def read(self, node: Node, page: Document) -> Any:
        if self.kinds and kind_of(node) not in self.kinds:
            return mismatch(node, page, self.named or " or ".join(self.kinds))
        count = len(page.problems)
        value = page.plain(node)
        if len(page.problems) > count:
            return WRONG
        if self.check is None:
            return value
        try:
            return self.check(value)
        except ValueError as fault:
            text = str(fault)
            page.wrong(node, text[:1].upper() + text[1:])
            return WRONG

    def schema(self) -> JsonObject:
        types = [_JSON_TYPES[kind] for kind in self.kinds]
        said: JsonObject = {} if not types else {"type": types[0] if len(types) == 1 else types}
        return {**said, **self.rules}


class Word(msgspec.Struct, frozen=True):
    """One of some words."""

    words: tuple[str, ...]

    def read(self, node: Node, page: Document) -> Any:
        if kind_of(node) != TEXT:
            return mismatch(node, page, " or ".join(self.words))
        assert isinstance(node, ScalarNode)
        if node.value not in self.words:
            page.wrong(node, f"Expected {' or '.join(self.words)}, got {node.value!r}{nearest(node.value, self.words)}")
            return WRONG
        return node.value

    def schema(self) -> JsonObject:
        return {"enum": list(self.words)}


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A list of the same."""

    of: Shape
    least: int = 0

    def read(self, node: Node, page: Document) -> Any:
        if kind_of(node) != LIST:
            return mismatch(node, page, LIST)
        if len(node.value) < self.least:
            page.wrong(node, "Expected at least one item here")
            return WRONG
        values = [self.of.read(item, page) for item in node.value]
        return WRONG if any(value is WRONG for value in values) else values

    def schema(self) -> JsonObject:
        said: JsonObject = {"type": "array", "items": self.of.schema()}
        return {**said, "minItems": self.least} if self.least else said


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """A map of the same, by names of the author's own."""

    of: Shape
    name: Callable[[str], object] | None = None
    """Looks at each name; ValueError says what is wrong with it."""
    names: JsonObject = {}
    """What JSON Schema says of the names."""

    def read(self, node: Node, page: Document) -> Any:
        if not isinstance(node, MappingNode):
            return mismatch(node, page, MAP)
        values: dict[str, Any] = {}
        for name, (key, value) in page.entries(node).items():
            if self.name is not None:
                try:
                    self.name(name)
                except ValueError as fault:
                    text = str(fault)
                    page.wrong(key, text[:1].upper() + text[1:])
            values[name] = self.of.read(value, page)
        return WRONG if any(value is WRONG for value in values.values()) else values

    def schema(self) -> JsonObject:
        said: JsonObject = {"type": "object", "additionalProperties": self.of.schema()}
        return {**said, "propertyNames": self.names} if self.names else said


class Either(msgspec.Struct, frozen=True):
    """What it is depends on whether it is a text, a number, a list ..."""

    by_kind: Mapping[Kind, Shape]

    def read(self, node: Node, page: Document) -> Any:
        shape = self.by_kind.get(kind_of(node))
        return mismatch(node, page, " or ".join(self.by_kind)) if shape is None else shape.read(node, page)

    def schema(self) -> JsonObject:
        shapes = list({id(shape): shape for shape in self.by_kind.values()}.values())
        return shapes[0].schema() if len(shapes) == 1 else {"anyOf": [shape.schema() for shape in shapes]}


class Key(msgspec.Struct, frozen=True):
    """A key of a record: what it holds, and what editors say of it."""

    shape: Shape
    about: str
    needed: bool = False


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """What a record held: values and places by key, and the place of the whole."""

    place: Place
    values: dict[str, Any]
    places: dict[str, Place]
    nodes: dict[str, Node]

    def get(self, name: str, default: Any = None) -> Any:
        return self.values.get(name, default)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A map with known keys. Reads to Fields."""

    title: str
    """What it is, with its article: "a test"."""
    keys: Mapping[str, Key]
    one_of: tuple[str, ...] = ()
    """Exactly one of these keys is there."""
    needs: Mapping[str, str] = {}
    """A key that makes sense only beside another one."""

    def read(self, node: Node, page: Document) -> Any:
        if not isinstance(node, MappingNode):
            return mismatch(node, page, f"{self.title} (a map)")
        values: dict[str, Any] = {}
        places: dict[str, Place] = {}
        nodes: dict[str, Node] = {}
        is_wrong = False
        for name, (key, value) in page.entries(node).items():
            known = self.keys.get(name)
            if known is None:
                hint = nearest(name, self.keys) or f"; it has {', '.join(self.keys)}"
                page.wrong(key, f"Unknown key {name!r} in {self.title}{hint}")
                is_wrong = True
                continue
            read = known.shape.read(value, page)
            if read is WRONG:
                is_wrong = True
            values[name] = read
            places[name] = page.place(key)
            nodes[name] = value
        is_wrong |= self._incomplete(values, nodes, node, page)
        if is_wrong:
            return WRONG
        return Fields(place=page.place(node), values=values, places=places, nodes=nodes)

    def _incomplete(self, values: dict[str, Any], nodes: dict[str, Node], node: Node, page: Document) -> bool:
        count = len(page.problems)
        for name, key in self.keys.items():
            if key.needed and name not in values:
                page.wrong(node, f"{self.title[:1].upper()}{self.title[1:]} needs {name!r}: {key.about}")
        chosen = [name for name in self.one_of if name in values]
        if self.one_of and len(chosen) != 1:
            choice = ", ".join(self.one_of[:-1]) + f" or {self.one_of[-1]}"
            got = f"got {' and '.join(chosen)}" if chosen else "got none of them"
            page.wrong(node, f"{self.title[:1].upper()}{self.title[1:]} needs one of {choice}, and {got}")
        for name, beside in self.needs.items():
            if name in values and beside not in values:
                page.wrong(nodes[name], f"{name!r} makes sense only beside {beside!r}")
        return len(page.problems) > count

    def schema(self) -> JsonObject:
        said: JsonObject = {
            "type": "object",
            "properties": {name: {**key.shape.schema(), "description": key.about} for name, key in self.keys.items()},
            "additionalProperties": False,
        }
        needed = [name for name, key in self.keys.items() if key.needed]
        if needed:
            said["required"] = needed
        if self.one_of:
            said["oneOf"] = [{"required": [name]} for name in self.one_of]
        if self.needs:
            said["dependentRequired"] = {name: [beside] for name, beside in self.needs.items()}
        return said


class Named(msgspec.Struct, frozen=True):
    """A shape that is defined once in the schema, and may contain itself."""

    name: str
    shape: Callable[[], Shape]

    def read(self, node: Node, page: Document) -> Any:
        return self.shape().read(node, page)

    def schema(self) -> JsonObject:
        return {"$ref": f"#/$defs/{self.name}"}
