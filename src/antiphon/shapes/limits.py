"""Bounds, lengths and patterns: as schema keywords, and as checks where msgspec has none of its own."""

import math
from typing import Any

__all__ = ["NUMERIC", "SIZED", "TEXTUAL", "integral", "keywords", "problem_with_limits"]

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


def keywords(schema: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    """The limits in JSON Schema's words, as far as it has words for them."""
    names = _KEYWORDS.get(schema.get("type", ""), {})
    said = {names[key]: value for key, value in limits.items() if key in names}
    if "contentEncoding" in schema:  # lengths count bytes, three of which take four characters
        said = {key: 4 * math.ceil(value / 3) for key, value in said.items()}
    if limits.get("tz"):
        said["format"] = "time" if schema.get("format") == "time" else "date-time"
    return said


def integral(limits: dict[str, Any]) -> dict[str, Any]:
    """The same limits for integers, in integers."""
    whole = dict(limits)
    for key, rounded in (("gt", math.floor), ("ge", math.ceil), ("lt", math.ceil), ("le", math.floor)):
        if isinstance(whole.get(key), float):
            whole[key] = rounded(whole[key])
    return whole


def problem_with_limits(value: Any, limits: dict[str, Any]) -> str | None:
    """What is wrong with a converted value, None when nothing is."""
    for key, limit in limits.items():
        match key:
            case "gt" if not value > limit:
                return f"expected a value > {limit}"
            case "ge" if not value >= limit:
                return f"expected a value >= {limit}"
            case "lt" if not value < limit:
                return f"expected a value < {limit}"
            case "le" if not value <= limit:
                return f"expected a value <= {limit}"
            case "multiple_of" if value % limit:
                return f"expected a multiple of {limit}"
            case "min_length" if len(value) < limit:
                return f"expected a length of at least {limit}, got {len(value)}"
            case "max_length" if len(value) > limit:
                return f"expected a length of at most {limit}, got {len(value)}"
            case _:
                pass
    return None
