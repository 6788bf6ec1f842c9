"""JSON Schema itself as the judge. Importing this loads jsonschema_rs."""

from collections.abc import Mapping
from typing import Any, cast

import jsonschema_rs

from antiphon.shapes.mismatch import Mismatch, listing, path_text, quoted

__all__ = ["Validator"]

_DIALECTS = "2020-12, 2019-09, draft-07, draft-06 and draft-04"


class Validator:
    """Checks values against one schema; ValueError when the schema itself is wrong."""

    __slots__ = ("_validator",)

    def __init__(self, schema: Mapping[str, object]) -> None:
        refused: list[str] = []

        def refuse(uri: str) -> Any:
            refused.append(uri)
            raise LookupError(uri)

        try:
            # "Implementations MUST NOT automatically dereference $ref values that resolve to a network URI"
            # (basic, $ref Resolution).
            self._validator = jsonschema_rs.validator_for(cast("dict[str, Any]", schema), retriever=refuse)
        except jsonschema_rs.ValidationError as problem:
            raise _schema_problem(problem, refused, schema.get("$schema")) from None
        except ValueError as problem:
            raise ValueError(f"not a JSON Schema: {problem}") from None

    def check(self, value: object) -> None:
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as problem:
            raise _mismatch(problem) from None
        except ValueError as problem:
            raise Mismatch(f"not JSON: {problem}") from None


def _schema_problem(problem: jsonschema_rs.ValidationError, refused: list[str], dialect: object) -> ValueError:
    if dialect in refused or problem.message.startswith("Unknown meta-schema"):
        return ValueError(f"the schema's dialect ($schema {quoted(dialect)}) is not supported; these are: {_DIALECTS}")
    if refused:
        return ValueError(f"the schema refers to {refused[0]!r}, which is never fetched: put it under $defs")
    where = path_text(problem.instance_path)
    return ValueError(f"not a JSON Schema{f', at {where}' if where else ''}: {problem.message[:300]}")


def _mismatch(problem: jsonschema_rs.ValidationError) -> Mismatch:
    return Mismatch(_worded(problem), path_text(problem.instance_path))


def _worded(problem: jsonschema_rs.ValidationError) -> str:
    kinds = jsonschema_rs.ValidationErrorKind
    match problem.kind:
        case kinds.Type(types):
            return f"expected {' or '.join(types)}, got {_kind(problem.instance)}"
        case kinds.Required(name):
            return f"missing required field {name!r}"
        case kinds.AdditionalProperties(names) | kinds.UnevaluatedProperties(names):
            return f"unknown field {', '.join(repr(name) for name in names[:5])}"
        case kinds.Enum(options):
            return f"expected one of {listing(options)}, got {quoted(problem.instance)}"
        case kinds.Constant(expected):
            return f"expected {quoted(expected)}, got {quoted(problem.instance)}"
        case kinds.AnyOf(context) | kinds.OneOfNotValid(context):
            told = "; ".join(str(_mismatch(branch[0])) for branch in context[:5] if branch)
            return f"fits none of the alternatives ({told})"
        case _:
            return problem.message[:300]


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"
