"""Matchers: what a value is expected to be. A plain value is equal; a map of operators says more."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeGuard

import msgspec

from antiphon.testing.suite.path import ABSENT

LONGEST: Final = 200
"""Characters of a value that are shown in a sentence; reports show the whole."""

TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def is_matcher(expected: object) -> TypeGuard[dict[str, object]]:
    """Whether it is a map of operators, and not a value to be equal to."""
    return type(expected) is dict and len(expected) > 0 and expected.keys() <= OPERATORS.keys()


def problem_with(expected: object, actual: object) -> str:
    """Why a value is not what was expected, in a phrase that follows its name; empty if it is."""
    if not is_matcher(expected):
        return _equals(expected, actual)
    assert isinstance(expected, dict)
    for operator, operand in expected.items():
        why = OPERATORS[operator](operand, actual)
        if why:
            return why
    return ""


def same(left: object, right: object) -> bool:
    """Equal as JSON has it: 1 is 1.0, and true is not 1."""
    if left is right:
        return True
    if type(left) is dict and type(right) is dict:
        return left.keys() == right.keys() and all(same(value, right[name]) for name, value in left.items())
    if type(left) is list and type(right) is list:
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    return left == right


def shown(value: object) -> str:
    """A value in a sentence."""
    if value is ABSENT:
        return "nothing"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


@lru_cache(maxsize=512)
def pattern(text: str) -> re.Pattern[str]:
    """A regular expression; ValueError if it is none."""
    try:
        return re.compile(text)
    except re.error as fault:
        where = "" if fault.pos is None else f", at character {fault.pos + 1}"
        raise ValueError(f"{text!r} is not a regular expression: {fault.msg}{where}") from None


# --- operators ----------------------------------------------------------------------------------------------------


def _equals(expected: object, actual: object) -> str:
    if expected == actual and same(expected, actual):
        return ""
    return f"is {shown(actual)}, and not {shown(expected)}"


def _contains(expected: object, actual: object) -> str:
    parts = expected if type(expected) is list and type(actual) is not dict else [expected]
    missing = [part for part in parts if not _has(actual, part)]
    return f"does not contain {shown(missing[0])}: it is {shown(actual)}" if missing else ""


def _has(actual: object, part: object) -> bool:
    if type(actual) is str:
        return str(part) in actual if type(part) is str else False
    if type(actual) is list:
        return any(not problem_with(part, item) or _is_within(part, item) for item in actual)
    return _is_within(part, actual)


def _is_within(part: object, whole: object) -> bool:
    """Whether a map has at least what another one has, at every depth."""
    if type(part) is not dict or type(whole) is not dict:
        return False
    return all(
        name in whole and (not problem_with(value, whole[name]) or _is_within(value, whole[name]))
        for name, value in part.items()
    )


def _matches(expected: object, actual: object) -> str:
    if type(actual) is not str:
        return f"is {shown(actual)}, which is no text that could match {shown(expected)}"
    return "" if pattern(str(expected)).search(actual) else f"does not match {expected}: it is {shown(actual)}"


def _not(expected: object, actual: object) -> str:
    if problem_with(expected, actual):
        return ""
    if is_matcher(expected):
        told = ", ".join(f"{operator} {shown(operand)}" for operator, operand in expected.items())
        return f"is {shown(actual)}, which should not be so: {told}"
    return f"is {shown(actual)}, and should not be"


def _exists(expected: object, actual: object) -> str:
    if (actual is not ABSENT) == expected:
        return ""
    return "is not there" if expected else f"is there, and should not be: it is {shown(actual)}"


def _type(expected: object, actual: object) -> str:
    fits = type(actual) in TYPES[str(expected)]
    return "" if fits else f"is {shown(actual)}, and not of type {expected}"


def _length(expected: object, actual: object) -> str:
    if not isinstance(actual, str | list | dict):
        return f"is {shown(actual)}, which has no length"
    why = problem_with(expected, len(actual))
    return f"has a length that {why}: it is {shown(actual)}" if why else ""


def _min(expected: Any, actual: object) -> str:
    if isinstance(actual, bool) or not isinstance(actual, int | float):
        return f"is {shown(actual)}, and no number"
    return "" if actual >= expected else f"is {shown(actual)}, less than {shown(expected)}"


def _max(expected: Any, actual: object) -> str:
    if isinstance(actual, bool) or not isinstance(actual, int | float):
        return f"is {shown(actual)}, and no number"
    return "" if actual <= expected else f"is {shown(actual)}, more than {shown(expected)}"


OPERATORS: Final[dict[str, Callable[[Any, object], str]]] = {
    "equals": _equals,
    "contains": _contains,
    "matches": _matches,
    "not": _not,
    "exists": _exists,
    "type": _type,
    "length": _length,
    "min": _min,
    "max": _max,
}
