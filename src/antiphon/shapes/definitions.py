"""The `$defs` of a schema: named, taken over from elsewhere, and put in place where they are used but once."""

import re
from collections import Counter
from typing import Any

from antiphon.shapes.tree import rebuilt, references
from antiphon.shapes.values import is_object

__all__ = ["Definitions"]

Schema = dict[str, Any]


class Definitions:
    """Named schemas. `root` is a live view of them as a schema with `$defs`, for looking things up."""

    __slots__ = ("_bodies", "_owners", "_pinned", "root")

    def __init__(self) -> None:
        self._bodies: dict[str, Schema] = {}
        self._owners: dict[str, object] = {}
        self._pinned: set[str] = set()
        self.root: Schema = {"$defs": self._bodies}

    def __contains__(self, name: str) -> bool:
        return name in self._bodies

    def __setitem__(self, name: str, schema: Schema) -> None:
        self._bodies[name] = schema

    def claim(self, name: str, owner: object) -> str:
        """A name for the owner's definition: always the same for one owner, never shared by two."""
        plain = re.sub(r"\W+", "_", name).strip("_") or "Type"
        number = 1
        candidate = plain
        while candidate in self._owners and self._owners[candidate] != owner:
            number += 1
            candidate = f"{plain}_{number}"
        self._owners[candidate] = owner
        return candidate

    def adopt(self, schema: Schema) -> Schema:
        """A schema from elsewhere, its `$defs` moved here under names that are free."""
        theirs: dict[str, Schema] = schema.get("$defs", {})
        names = {name: self.claim(name, body) for name, body in theirs.items()}

        def renamed(part: Schema) -> Schema:
            if isinstance(pointer := part.get("$ref"), str):
                part["$ref"] = _moved(pointer, names)
            if is_object(choice := part.get("discriminator")) and is_object(pointers := choice.get("mapping")):
                mapping = {tag: _moved(pointer, names) for tag, pointer in pointers.items()}
                part["discriminator"] = {**choice, "mapping": mapping}
                self._pinned.update(pointer.removeprefix("#/$defs/") for pointer in mapping.values())
            return part

        for name, body in theirs.items():
            self._bodies[names[name]] = rebuilt(body, renamed)
        return rebuilt({key: value for key, value in schema.items() if key != "$defs"}, renamed)

    def enclosed(self, schema: Schema) -> Schema:
        """The schema made self-contained: what is used once stands where it is used, the rest under `$defs`."""
        counts = Counter(self._reachable(schema))
        kept = {name for name in counts if counts[name] > 1 or name in self._pinned or self._recurs(name)}

        def inlined(part: Schema) -> Schema:
            name = part.get("$ref", "").removeprefix("#/$defs/")
            if name in kept or name not in self._bodies:
                return part
            return {**rebuilt(self._bodies[name], inlined), **{key: part[key] for key in part if key != "$ref"}}

        whole = self._opened(schema)
        # The root stands in place even when others point to it: a peer may insist on its `type`.
        whole = rebuilt(whole, inlined)
        used = sorted(name for name in kept if name in self._bodies)
        return {**whole, "$defs": {name: rebuilt(self._bodies[name], inlined) for name in used}} if used else whole

    def _opened(self, schema: Schema) -> Schema:
        while (name := schema.get("$ref", "").removeprefix("#/$defs/")) in self._bodies:
            schema = {**self._bodies[name], **{key: schema[key] for key in schema if key != "$ref"}}
        return schema

    def _reachable(self, schema: Schema) -> list[str]:
        """Every pointer found from here on, those of the root itself excepted."""
        found = list(references(self._opened(schema)))
        seen: set[str] = set()
        for name in found:
            if name in self._bodies and name not in seen:
                seen.add(name)
                found.extend(references(self._bodies[name]))
        return found

    def _recurs(self, name: str) -> bool:
        return name in self._bodies and name in self._reachable(self._bodies[name])


def _moved(pointer: str, names: dict[str, str]) -> str:
    name = pointer.removeprefix("#/$defs/")
    return f"#/$defs/{names[name]}" if name in names else pointer
