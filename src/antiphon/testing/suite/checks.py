"""Expectations against what was seen: one Check for each."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, TypeGuard

import msgspec

from antiphon.shapes import raw_shape
from antiphon.testing.outcome import Check, Place
from antiphon.testing.paths import ABSENT, read_path
from antiphon.testing.snapshots import Snapshots, without
from antiphon.testing.suite.attempt import Seen
from antiphon.testing.suite.model import Case, Expectation

# Matchers: what a value is expected to be. A plain value is equal; a map of operators says more.


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


_ABOUT_RESULT: Final = frozenset({"text", "structured", "result", "schema", "isError"})


def checks(case: Case, seen: Seen, snapshots: Snapshots) -> tuple[Check, ...]:
    """Every expectation of a case, and the two that nobody needs to write: no error, and no failed tool."""
    # `error: false` says what is expected anyway.
    expected = {each.name for each in case.expect if each.name != "error" or each.value is not False}
    made: list[Check] = []
    refused = seen.error is not None
    if refused and "error" not in expected:
        made.append(_failed("error", f"The server refused: {_error_told(seen)}", actual=seen.error, place=case.place))
    if seen.is_error and not expected & {"isError", "error"}:
        told = f": {seen.text}" if isinstance(seen.text, str) else ""
        made.append(_failed("isError", f"The tool failed{told}", expected=False, actual=True, place=case.place))
    for each in case.expect:
        if refused and each.name in _ABOUT_RESULT:
            if "error" in expected:
                made.append(_failed(each.name, "There is no result: the server refused", each.value, None, each.place))
            continue
        made.extend(_KINDS[each.name](each, seen, snapshots, case))
    return tuple(made)


def _failed(
    name: str, problem: str, expected: object = None, actual: object = None, place: Place | None = None
) -> Check:
    return Check(
        name=name,
        passed=False,
        problem=problem,
        expected=expected,
        actual=None if actual is ABSENT else actual,
        place=place,
    )


def _judged(name: str, what: str, expected: object, actual: object, place: Place) -> Check:
    why = problem_with(expected, actual)
    if why:
        return _failed(name, f"{what} {why}", expected, actual, place)
    return Check(name=name, passed=True, expected=expected, actual=None if actual is ABSENT else actual, place=place)


def _error_told(seen: Seen) -> str:
    error = seen.error or {}
    code = f" (error {error['code']})" if "code" in error else ""
    return f"{error.get('message', 'without a message')}{code}"


# --- one function for each key of `expect` ------------------------------------------------------------------------


def _text(each: Expectation, seen: Seen, *_: object) -> Iterator[Check]:
    yield _judged("text", "The text", each.value, seen.text, each.place)


def _structured(each: Expectation, seen: Seen, *_: object) -> Iterator[Check]:
    yield from _parts("structured", "The structured content", each, seen.structured)


def _result(each: Expectation, seen: Seen, *_: object) -> Iterator[Check]:
    yield from _parts("result", "The result", each, seen.result)


def _parts(name: str, what: str, each: Expectation, actual: object, *, expected: Any = ABSENT) -> Iterator[Check]:
    """The whole, or what paths find in it."""
    wanted = each.value if expected is ABSENT else expected
    if type(wanted) is dict and wanted and not is_matcher(wanted) and all(key[:1] == "$" for key in wanted):
        for path, value in wanted.items():
            found = read_path(path).find(actual)
            yield _judged(f"{name}.{path}", f"{name}.{path}", value, found, each.places.get(path, each.place))
        return
    yield _judged(name, what, wanted, actual, each.place)


def _is_error(each: Expectation, seen: Seen, *_: object) -> Iterator[Check]:
    if seen.is_error == each.value:
        yield Check(name="isError", passed=True, expected=each.value, actual=seen.is_error, place=each.place)
        return
    told = f": {seen.text}" if isinstance(seen.text, str) else ""
    why = f"The tool failed{told}" if seen.is_error else f"The tool did not fail{told}"
    yield _failed("isError", why, each.value, seen.is_error, each.place)


def _error(each: Expectation, seen: Seen, *_: object) -> Iterator[Check]:
    expected: Any = each.value
    if expected is False:
        # Whether it failed is looked at in any case; that it did not is worth a line only if it did not.
        if not seen.has_failed:
            yield Check(name="error", passed=True, expected=False, place=each.place)
        return
    if seen.error is None:
        came = "the tool failed, which 'isError: true' expects" if seen.is_error else "a result came"
        yield _failed("error", f"A JSON-RPC error was expected, and {came}", expected, seen.result, each.place)
        return
    if expected is True:
        yield Check(name="error", passed=True, actual=seen.error, place=each.place)
    elif isinstance(expected, dict):
        for name, value in expected.items():
            found = seen.error.get(name, ABSENT)
            yield from _parts(f"error.{name}", f"The error's {name}", each, found, expected=value)
    else:
        name = "message" if isinstance(expected, str) else "code"
        yield _judged(f"error.{name}", f"The error's {name}", expected, seen.error.get(name, ABSENT), each.place)


def _schema(each: Expectation, seen: Seen, *_: object) -> Iterator[Check]:

    if seen.structured is ABSENT:
        yield _failed("schema", "There is no structured content to hold to the schema", each.value, None, each.place)
        return
    why = problem_under(each.value, seen.structured)
    if why:
        problem = f"The structured content does not fit the schema: {why}"
        yield _failed("schema", problem, each.value, seen.structured, each.place)
    else:
        yield Check(name="schema", passed=True, place=each.place)


def _snapshot(each: Expectation, seen: Seen, snapshots: Snapshots, case: Case) -> Iterator[Check]:
    said: Any = each.value
    if said is False:
        return
    options = said if isinstance(said, dict) else {"name": said} if isinstance(said, str) else {}
    name = options.get("name") or case.name
    actual = without(seen.essence, [read_path(path) for path in options.get("ignore", ())])
    if snapshots.update:
        other = snapshots.put(name, actual, by=case.name)
        if other:
            why = f"The snapshot {name!r} is also that of {other!r}, whose result differs: give them different names"
            yield _failed("snapshot", why, snapshots.get(name), actual, each.place)
            return
    kept = snapshots.get(name)
    if kept is ABSENT:
        why = f"There is no snapshot {name!r} yet: run with --update-snapshots to keep this result"
        yield _failed("snapshot", why, None, actual, each.place)
    elif problem_with({"equals": kept}, actual):
        why = f"The result differs from the snapshot {name!r}: --update-snapshots keeps it as it is now"
        yield _failed("snapshot", why, kept, actual, each.place)
    else:
        yield Check(name="snapshot", passed=True, place=each.place)


def _rounds(each: Expectation, seen: Seen, *_: object) -> Iterator[Check]:
    yield _judged("rounds", "The number of rounds", each.value, seen.rounds, each.place)


def _asked(each: Expectation, seen: Seen, *_: object) -> Iterator[Check]:
    expected: Any = each.value
    keys = [next(iter(item)) if isinstance(item, dict) else item for item in expected]
    asked = [key for key, _ in seen.asked]
    if keys != asked:
        yield _failed("asked", f"The server asked {shown(asked)}, and not {shown(keys)}", keys, asked, each.place)
        return
    wrong = [
        _judged(f"asked.{key}", f"The message of {key!r}", matcher, message, each.place)
        for item, (_, message) in zip(expected, seen.asked, strict=True)
        if isinstance(item, dict)
        for key, matcher in item.items()
    ]
    yield from wrong or [Check(name="asked", passed=True, expected=keys, actual=asked, place=each.place)]


def _within(each: Expectation, seen: Seen, *_: object) -> Iterator[Check]:
    allowed: Any = each.value
    if seen.seconds <= allowed:
        yield Check(name="within", passed=True, expected=allowed, actual=seen.seconds, place=each.place)
    else:
        why = f"The call took {seen.seconds:.3f} s, more than {allowed:g} s"
        yield _failed("within", why, allowed, round(seen.seconds, 3), each.place)


_KINDS: Final[dict[str, Callable[[Expectation, Seen, Snapshots, Case], Iterator[Check]]]] = {
    "text": _text,
    "structured": _structured,
    "result": _result,
    "isError": _is_error,
    "error": _error,
    "schema": _schema,
    "snapshot": _snapshot,
    "rounds": _rounds,
    "asked": _asked,
    "within": _within,
}


# JSON Schemas that suites bring along.


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
