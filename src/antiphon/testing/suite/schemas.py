"""JSON Schemas that suites bring along."""

from typing import Any

from antiphon.shapes import raw_shape


def problem_of(schema: Any) -> str:
    """Why it cannot be used as a schema; empty if it can."""
    try:
        raw_shape(schema)
    except (ValueError, TypeError) as fault:
        return str(fault)
    return ""


def problem_under(schema: Any, value: object) -> str:
    """Why a value does not fit a schema; empty if it does."""
    try:
        raw_shape(schema).read(value)
    except ValueError as fault:
        return str(fault)
    return ""
