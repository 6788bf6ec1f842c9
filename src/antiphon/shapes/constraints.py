"""Limits and notes that `Annotated` adds to a type: ours, msgspec's, annotated-types' and pydantic's."""

import datetime as dt
import inspect
import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from antiphon.shapes.schema_trees import is_object

NUMERIC = frozenset({"gt", "ge", "lt", "le", "multiple_of"})
SIZED = frozenset({"min_length", "max_length"})
TEXTUAL = SIZED | {"pattern", "format"}

_NUMBER = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
}
_KEYWORDS = {
    "integer": _NUMBER,
    "number": _NUMBER,
    "string": {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern", "format": "format"},
    "array": {"min_length": "minItems", "max_length": "maxItems"},
    "object": {"min_length": "minProperties", "max_length": "maxProperties"},
}
_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "gt": (">", operator.gt),
    "ge": (">=", operator.ge),
    "lt": ("<", operator.lt),
    "le": ("<=", operator.le),
}


def keywords(schema: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    """Return the limits as keywords of JSON Schema, as far as it has them."""
    names = _KEYWORDS.get(schema.get("type", ""), {})
    said = {names[key]: value for key, value in limits.items() if key in names}
    if "contentEncoding" in schema:  # lengths count bytes, three of which take four characters
        said = {key: 4 * math.ceil(value / 3) for key, value in said.items()}
    if limits.get("tz"):
        said["format"] = "time" if schema.get("format") == "time" else "date-time"
    return said


def integral(limits: dict[str, Any]) -> dict[str, Any]:
    """Return the same limits for integers, in integers."""
    whole = dict(limits)
    for key, rounded in (("gt", math.floor), ("ge", math.ceil), ("lt", math.ceil), ("le", math.floor)):
        if isinstance(whole.get(key), float):
            whole[key] = rounded(whole[key])
    return whole


def problem_with_limits(value: Any, limits: dict[str, Any]) -> str | None:
    """Return what is wrong with a converted value, None if nothing is."""
    for key, limit in limits.items():
        if key in _BOUNDS:
            symbol, holds = _BOUNDS[key]
            if not holds(value, limit):
                return f"expected a value {symbol} {limit}"
        elif key == "multiple_of" and value % limit:
            return f"expected a multiple of {limit}"
        elif key == "min_length" and len(value) < limit:
            return f"expected a length of at least {limit}, got {len(value)}"
        elif key == "max_length" and len(value) > limit:
            return f"expected a length of at most {limit}, got {len(value)}"
    return None


# --- string formats that forms can ask for (client/elicitation, Requested Schema) ---

FormatName = Literal["email", "uri", "date", "date-time"]
FORMATS: tuple[FormatName, ...] = get_args(FormatName)

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u0080-\U0010ffff-]+"
_LABEL = r"[A-Za-z0-9\u0080-\U0010ffff](?:[A-Za-z0-9\u0080-\U0010ffff-]{0,61}[A-Za-z0-9\u0080-\U0010ffff])?"
# Strings: `re` compiles them at first use, and the character classes take 25 ms.
_EMAIL = rf"{_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*"
_URI = r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DATE_TIME = r"[0-9-]{10}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"


def _is_email(text: str) -> bool:
    return len(text) <= 320 and re.fullmatch(_EMAIL, text) is not None


def _is_uri(text: str) -> bool:
    return re.fullmatch(_URI, text) is not None and bool(urlsplit(text).scheme)


def _is_date(text: str) -> bool:
    return re.fullmatch(_DATE, text) is not None and bool(dt.date.fromisoformat(text))


def _is_date_time(text: str) -> bool:
    return re.fullmatch(_DATE_TIME, text) is not None and bool(dt.datetime.fromisoformat(text.upper()))


_CHECKS: dict[FormatName, tuple[Callable[[str], bool], str]] = {
    "email": (_is_email, "an email address such as 'ada@example.com'"),
    "uri": (_is_uri, "an absolute URI such as 'https://example.com/page'"),
    "date": (_is_date, "a date such as '2026-07-28'"),
    "date-time": (_is_date_time, "a date-time with its offset such as '2026-07-28T09:30:00Z'"),
}


def problem_with(name: FormatName, text: str) -> str | None:
    """Return what is wrong with `text` as a value of this format, None if nothing is."""
    check, expected = _CHECKS[name]
    try:
        fits = check(text)
    except ValueError:  # such as the 30th of February
        fits = False
    return None if fits else f"expected {expected}"


@dataclass(frozen=True, slots=True, repr=False)
class Header:
    """Mirrors an argument into the HTTP header `Mcp-Param-{name}` (server/tools, x-mcp-header)."""

    name: str

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", self.name):
            raise ValueError(f"{self.name!r} is not an HTTP field name: use letters, digits and -")

    def __repr__(self) -> str:
        return f"Header({self.name!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Format:
    """A string in one of the formats a form can ask for."""

    name: FormatName

    def __post_init__(self) -> None:
        if self.name not in FORMATS:
            raise ValueError(f"unknown format {self.name!r}: expected one of {', '.join(FORMATS)}")

    def __repr__(self) -> str:
        return f"Format({self.name!r})"


Email = Annotated[str, Format("email")]
Url = Annotated[str, Format("uri")]

_LOWER = ("gt", "ge", "min_length")
_UPPER = ("lt", "le", "max_length")
_LIMITS = (*_LOWER, *_UPPER, "multiple_of", "pattern", "tz")
_NOTES = ("title", "description", "examples")


class Facets(msgspec.Struct):
    """What metadata says of a type: limits are enforced and described, notes only described."""

    limits: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    native: bool = True  # every limit came as a msgspec.Meta, so msgspec enforces it by itself
    needs_pydantic: bool = False  # there is a validator or serializer that only pydantic can run

    def note(self, **notes: object) -> None:
        self.notes.update({key: value for key, value in notes.items() if value is not None})

    def limit(self, key: str, value: Any) -> None:
        """Add a limit; of two of the same kind the tighter one holds."""
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
        """Keep at most one lower and one upper bound, as JSON Schema readers and msgspec expect."""
        limits = self.limits
        if "gt" in limits and "ge" in limits:
            del limits["ge" if limits["gt"] >= limits["ge"] else "gt"]
        if "lt" in limits and "le" in limits:
            del limits["le" if limits["lt"] <= limits["le"] else "lt"]
        return self


def facets_of(metadata: Iterable[object]) -> Facets:
    """Return the facets of an `Annotated`'s metadata; of two descriptions the outer, later one holds."""
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
        facets.native = False
    elif isinstance(documentation := getattr(item, "documentation", None), str):
        facets.note(description=inspect.cleandoc(documentation))
    elif type(item).__module__.partition(".")[0] == "pydantic":
        _add_pydantic(facets, item)
    elif _add_limits(facets, item):
        facets.native = False


def _add_limits(facets: Facets, item: object) -> bool:
    found = False
    for name in _LIMITS:
        value = getattr(item, name, None)
        # A minimum length of zero says nothing; a callable is a method of the item, not a bound.
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
        case "Strict" | "AllowInfNan":  # reading is strict, and JSON has no infinity or NaN
            pass
        case _:
            facets.needs_pydantic = True


def _add_general(facets: Facets, said: dict[str, Any]) -> None:
    pattern = said.get("pattern")
    if pattern is not None:
        facets.limit("pattern", getattr(pattern, "pattern", pattern))
        facets.native = False
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
