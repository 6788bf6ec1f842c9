"""What `Annotated` says about a type, whoever's words it uses."""

import inspect
import math
import re
from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from antiphon.shapes.formats import FORMATS, FormatName
from antiphon.shapes.values import is_object

__all__ = ["Email", "Facets", "Format", "Header", "Url", "facets_of"]


class Header:
    """Mirrors an argument into the HTTP header `Mcp-Param-{name}` (server/tools, x-mcp-header)."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise ValueError(f"{name!r} is not an HTTP field name: use letters, digits and -")
        self.name = name

    def __repr__(self) -> str:
        return f"Header({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Header) and other.name == self.name

    def __hash__(self) -> int:
        return hash((Header, self.name))


class Format:
    """A string in one of the formats a form can ask for."""

    __slots__ = ("name",)

    def __init__(self, name: FormatName) -> None:
        if name not in FORMATS:
            raise ValueError(f"unknown format {name!r}: expected one of {', '.join(FORMATS)}")
        self.name: FormatName = name

    def __repr__(self) -> str:
        return f"Format({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Format) and other.name == self.name

    def __hash__(self) -> int:
        return hash((Format, self.name))


Email = Annotated[str, Format("email")]
Url = Annotated[str, Format("uri")]

_LOWER = ("gt", "ge", "min_length")
_UPPER = ("lt", "le", "max_length")
_LIMITS = (*_LOWER, *_UPPER, "multiple_of", "pattern", "tz")
_NOTES = ("title", "description", "examples")


class Facets(msgspec.Struct):
    """Limits are enforced and described; notes are only described."""

    limits: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    ours: bool = True  # every limit came as a msgspec.Meta, so msgspec enforces it unaided
    needs_pydantic: bool = False  # a validator or serializer of pydantic's, which only pydantic can run

    def note(self, **notes: object) -> None:
        self.notes.update({key: value for key, value in notes.items() if value is not None})

    def limit(self, key: str, value: Any) -> None:
        """Adds a limit; of two of the same kind the tighter one holds."""
        known = self.limits.get(key)
        if known is None:
            self.limits[key] = value
        elif key in _LOWER:
            self.limits[key] = max(known, value)
        elif key in _UPPER:
            self.limits[key] = min(known, value)
        elif key == "multiple_of" and isinstance(known, int) and isinstance(value, int):
            self.limits[key] = math.lcm(known, value)
        elif known != value:
            raise TypeError(f"two different values for {key}: {known!r} and {value!r}")

    def settle(self) -> "Facets":
        """At most one lower and one upper bound, as JSON Schema readers and msgspec expect."""
        limits = self.limits
        if "gt" in limits and "ge" in limits:
            del limits["ge" if limits["gt"] >= limits["ge"] else "gt"]
        if "lt" in limits and "le" in limits:
            del limits["le" if limits["lt"] <= limits["le"] else "lt"]
        return self


def facets_of(metadata: Iterable[object]) -> Facets:
    """The facets of an `Annotated`'s metadata; of two descriptions the outer, later one wins."""
    facets = Facets()
    for item in metadata:
        _add(facets, item)
    return facets.settle()


def _add(facets: Facets, item: Any) -> None:
    if isinstance(item, str):
        facets.note(description=inspect.cleandoc(item))
    elif isinstance(item, Meta):
        _add_limits(facets, item)
        facets.note(**{name: getattr(item, name) for name in _NOTES}, **(item.extra_json_schema or {}))
    elif isinstance(item, Header):
        facets.notes["x-mcp-header"] = item.name
    elif isinstance(item, Format):
        facets.limits["format"] = item.name
        facets.ours = False
    elif isinstance(documentation := getattr(item, "documentation", None), str):
        facets.note(description=inspect.cleandoc(documentation))
    elif type(item).__module__.partition(".")[0] == "pydantic":
        _add_pydantic(facets, item)
    elif _add_limits(facets, item):
        facets.ours = False


def _add_limits(facets: Facets, item: object) -> bool:
    found = False
    for name in _LIMITS:
        value = getattr(item, name, None)
        # A zero minimum length says nothing; a callable is somebody's method, not a bound.
        if value is not None and not callable(value) and not (name == "min_length" and value == 0):
            facets.limit(name, value)
            found = True
    return found


def _add_pydantic(facets: Facets, item: Any) -> None:
    match type(item).__name__:
        case "FieldInfo":
            _add_field_info(facets, item)
        case "PydanticGeneralMetadata" | "_PydanticGeneralMetadata":
            _add_general(facets, dict[str, Any](item.__dict__))
        case "StringConstraints":
            for inner in item:
                _add(facets, inner)
        case "Strict" | "AllowInfNan":  # reading is strict as it is, and JSON knows neither infinity nor NaN
            pass
        case _:
            facets.needs_pydantic = True


def _add_general(facets: Facets, said: dict[str, Any]) -> None:
    pattern = said.get("pattern")
    if pattern is not None:
        facets.limit("pattern", getattr(pattern, "pattern", pattern))
        facets.ours = False
    if any(value is not None for key, value in said.items() if key not in {"pattern", "strict"}):
        facets.needs_pydantic = True


def _add_field_info(facets: Facets, item: Any) -> None:
    for inner in item.metadata:
        _add(facets, inner)
    extra = item.json_schema_extra
    facets.note(
        **{name: getattr(item, name, None) for name in _NOTES},
        **(extra if is_object(extra) else {}),
    )
    if getattr(item, "discriminator", None) is not None:
        facets.needs_pydantic = True
