"""Checks what was seen against what was expected: a Check for each expectation.

A plain value is compared; a map of operators is a matcher, which says more.
"""

import operator
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeGuard

import msgspec

from antiphon.shapes import raw_shape
from antiphon.testing.json_paths import ABSENT, read_path
from antiphon.testing.snapshots import Snapshots, without
from antiphon.testing.suite.attempt import Seen
from antiphon.testing.suite.model import Case, Check, Expectation, Place

LONGEST: Final = 200
"""Characters of a value that a message shows; reports show the whole."""

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
    """Return whether it is a map of operators, and not a value to be equal to."""
    return type(expected) is dict and len(expected) > 0 and expected.keys() <= OPERATORS.keys()


def problem_with(expected: object, actual: object) -> str:
    """Return why a value is not what was expected, as a phrase that follows its name; empty if it is."""
    if type(expected) is not dict or not is_matcher(expected):
        return _equals(expected, actual)
    for name, operand in expected.items():
        why = OPERATORS[name](operand, actual)
        if why:
            return why
    return ""


def same(left: object, right: object) -> bool:
    """Compare as JSON does: 1 is 1.0, and true is not 1."""
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
    """Return a value as a message shows it."""
    if value is ABSENT:
        return "nothing"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


@lru_cache(maxsize=512)
def pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression; ValueError if it is none."""
    try:
        return re.compile(text)
    except re.error as fault:
        where = "" if fault.pos is None else f", at character {fault.pos + 1}"
        raise ValueError(f"{text!r} is not a regular expression: {fault.msg}{where}") from None


# --- operators ----------------------------------------------------------------------------------------------------


def _equals(expected: object, actual: object) -> str:
    if expected == actual and (type(expected) is str or same(expected, actual)):
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
    """Return whether a map has at least what another one has, at every depth."""
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
        told = ", ".join(f"{name} {shown(operand)}" for name, operand in expected.items())
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


def _bound(fits: Callable[[Any, Any], bool], told: str) -> Callable[[Any, object], str]:
    def check(expected: Any, actual: object) -> str:
        if isinstance(actual, bool) or not isinstance(actual, int | float):
            return f"is {shown(actual)}, and no number"
        return "" if fits(actual, expected) else f"is {shown(actual)}, {told} than {shown(expected)}"

    return check


OPERATORS: Final[dict[str, Callable[[Any, object], str]]] = {
    "equals": _equals,
    "contains": _contains,
    "matches": _matches,
    "not": _not,
    "exists": _exists,
    "type": _type,
    "length": _length,
    "min": _bound(operator.ge, "less"),
    "max": _bound(operator.le, "more"),
}


_ABOUT_RESULT: Final = frozenset({"text", "structured", "result", "schema", "isError"})


def checks(case: Case, seen: Seen, snapshots: Snapshots) -> list[Check]:
    """Check every expectation of a case, and what holds unless it says otherwise: no error, no unused answer."""
    # `error: false` says what is expected anyway.
    expected = {each.name for each in case.expect if each.name != "error" or each.value is not False}
    made: list[Check] = []
    refused = seen.error is not None
    if refused and "error" not in expected:
        made.append(_check("error", f"The server refused: {_error_told(seen)}", None, seen.error, case.place))
    if seen.is_error and not expected & {"isError", "error"}:
        made.append(_check("isError", f"The tool failed{_text_told(seen)}", False, True, case.place))
    for each in case.expect:
        if refused and each.name in _ABOUT_RESULT:
            if "error" in expected:
                made.append(_check(each.name, "There is no result: the server refused", each.value, None, each.place))
        elif each.name == "snapshot":
            made += _snapshot(each, seen, snapshots, case)
        elif each.name in _VALUES:
            what, value_of = _VALUES[each.name]
            made += _parts(each.name, what, each.value, value_of(seen), each)
        else:
            made += _KINDS[each.name](each, seen)
    # A call that failed may not have got so far as to ask.
    if seen.unused and (not seen.has_failed or all(check.passed for check in made)):
        asked = ", ".join(repr(key) for key, _ in seen.asked) or "nothing"
        why = (
            f"Answers that were not asked for: {', '.join(seen.unused)}. The server asked {asked}."
            " ('unusedResponses: ignore' allows it)"
        )
        made.append(_check("inputResponses", why, None, None, case.place))
    return made


def captured(case: Case, seen: Seen, values: dict[str, object]) -> list[Check]:
    """Keep the values that a test captures; return a failed check for each that is not there."""
    failed: list[Check] = []
    for name, capture in case.capture.items():
        if capture.path is not None:
            where, found = f"result has no {capture.path.text}", capture.path.find(seen.result)
        else:
            where, found = f"text has no {capture.pattern}", _group(capture.pattern, seen.text)
        if found is ABSENT:
            why = f"There is nothing to capture as {name!r}: {where}"
            failed.append(_check(f"capture.{name}", why, None, seen.essence, capture.place))
        else:
            values[name] = found
    return failed


def _group(expression: str, text: object) -> object:
    """Return the first group of what an expression finds, or all of it."""
    found = re.search(expression, text) if isinstance(text, str) else None
    return ABSENT if found is None else found[1] if found.re.groups else found[0]


def _check(name: str, problem: str, expected: object, actual: object, place: Place) -> Check:
    """Return a check that has passed if there is no problem."""
    return Check(
        name=name,
        passed=not problem,
        problem=problem,
        expected=expected,
        actual=None if actual is ABSENT else actual,
        place=place,
    )


def _compared(name: str, what: str, expected: object, actual: object, place: Place) -> Check:
    why = problem_with(expected, actual)
    return _check(name, f"{what} {why}" if why else "", expected, actual, place)


def _error_told(seen: Seen) -> str:
    error = seen.error or {}
    code = f" (error {error['code']})" if "code" in error else ""
    return f"{error.get('message', 'without a message')}{code}"


def _text_told(seen: Seen) -> str:
    return f": {seen.text}" if isinstance(seen.text, str) else ""


# --- what each key of `expect` looks at -----------------------------------------------------------------------------


_VALUES: Final[dict[str, tuple[str, Callable[[Seen], object]]]] = {
    "text": ("The text", operator.attrgetter("text")),
    "structured": ("The structured content", operator.attrgetter("structured")),
    "result": ("The result", operator.attrgetter("result")),
    "rounds": ("The number of rounds", operator.attrgetter("rounds")),
}
"""What is compared with a value or a matcher: what messages call it, and where it is."""


def _parts(name: str, what: str, expected: Any, actual: object, each: Expectation) -> list[Check]:
    """Check the whole, or what paths find in it."""
    if type(expected) is not dict or not expected or not all(key[:1] == "$" for key in expected):
        return [_compared(name, what, expected, actual, each.place)]
    return [
        _compared(
            f"{name}.{path}", f"{name}.{path}", value, read_path(path).find(actual), each.places.get(path, each.place)
        )
        for path, value in expected.items()
    ]


def _is_error(each: Expectation, seen: Seen) -> list[Check]:
    why = f"The tool {'failed' if seen.is_error else 'did not fail'}{_text_told(seen)}"
    return [_check("isError", "" if seen.is_error == each.value else why, each.value, seen.is_error, each.place)]


def _error(each: Expectation, seen: Seen) -> list[Check]:
    expected: Any = each.value
    if expected is False:
        # A failure has its own check in any case; only that there was none is said here.
        return [] if seen.has_failed else [_check("error", "", False, None, each.place)]
    if seen.error is None:
        came = "the tool failed, which 'isError: true' expects" if seen.is_error else "a result came"
        why = f"A JSON-RPC error was expected, and {came}"
        return [_check("error", why, expected, seen.result, each.place)]
    if expected is True:
        return [_check("error", "", None, seen.error, each.place)]
    if not isinstance(expected, dict):
        expected = {"message" if isinstance(expected, str) else "code": expected}
    made: list[Check] = []
    for name, value in expected.items():
        made += _parts(f"error.{name}", f"The error's {name}", value, seen.error.get(name, ABSENT), each)
    return made


def _schema(each: Expectation, seen: Seen) -> list[Check]:
    schema: Any = each.value
    if seen.structured is ABSENT:
        return [_check("schema", "There is no structured content to hold to the schema", schema, None, each.place)]
    try:
        raw_shape(schema).read(seen.structured)
    except ValueError as fault:
        why = f"The structured content does not fit the schema: {fault}"
        return [_check("schema", why, schema, seen.structured, each.place)]
    return [_check("schema", "", None, None, each.place)]


def _snapshot(each: Expectation, seen: Seen, snapshots: Snapshots, case: Case) -> list[Check]:
    said: Any = each.value
    if said is False:
        return []
    options = said if isinstance(said, dict) else {"name": said} if isinstance(said, str) else {}
    name = options.get("name") or case.name
    actual = without(seen.essence, [read_path(path) for path in options.get("ignore", ())])
    other = snapshots.put(name, actual, by=case.name) if snapshots.update else ""
    kept = snapshots.get(name)
    if other:
        why = f"The snapshot {name!r} is also that of {other!r}, whose result differs: give them different names"
    elif kept is ABSENT:
        kept, why = None, f"There is no snapshot {name!r} yet: run with --update-snapshots to keep this result"
    elif problem_with({"equals": kept}, actual):
        why = f"The result differs from the snapshot {name!r}: --update-snapshots keeps it as it is now"
    else:
        return [_check("snapshot", "", None, None, each.place)]
    return [_check("snapshot", why, kept, actual, each.place)]


def _asked(each: Expectation, seen: Seen) -> list[Check]:
    expected: Any = each.value
    keys = [next(iter(item)) if isinstance(item, dict) else item for item in expected]
    questions = seen.asked
    asked = [key for key, _ in questions]
    if keys != asked:
        why = f"The server asked {shown(asked)}, and not {shown(keys)}"
        return [_check("asked", why, keys, asked, each.place)]
    messages = [
        _compared(f"asked.{key}", f"The message of {key!r}", matcher, message, each.place)
        for item, (_, message) in zip(expected, questions, strict=True)
        if isinstance(item, dict)
        for key, matcher in item.items()
    ]
    return messages or [_check("asked", "", keys, asked, each.place)]


_KINDS: Final[dict[str, Callable[[Expectation, Seen], list[Check]]]] = {
    "isError": _is_error,
    "error": _error,
    "schema": _schema,
    "asked": _asked,
}
