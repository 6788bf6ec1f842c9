"""Types that pydantic converts, when the user brings pydantic. Nothing here imports it."""

import functools
import sys
from typing import Any, TypeGuard, cast

from antiphon.shapes.mismatch import Mismatch, path_text

__all__ = ["dumped", "is_foreign", "is_model", "read_foreign", "schema_of_foreign"]


def is_foreign(type_: object) -> TypeGuard[type]:
    """A class pydantic knows how to read and write better than we do."""
    return (
        "pydantic" in sys.modules
        and isinstance(type_, type)
        and (hasattr(type_, "__pydantic_validator__") or hasattr(type_, "__get_pydantic_core_schema__"))
    )


def is_model(type_: object) -> bool:
    return is_foreign(type_) and issubclass(type_, sys.modules["pydantic"].BaseModel)


@functools.lru_cache(maxsize=512)
def _adapter(type_: Any) -> Any:
    pydantic = sys.modules["pydantic"]
    try:
        return pydantic.TypeAdapter(type_)
    except pydantic.PydanticUserError as problem:
        raise TypeError(f"pydantic cannot describe {type_!r}: {problem}") from problem


def schema_of_foreign(type_: object, *, output: bool) -> dict[str, Any]:
    pydantic = sys.modules["pydantic"]
    try:
        schema: dict[str, Any] = _adapter(type_).json_schema(mode="serialization" if output else "validation")
    except pydantic.errors.PydanticInvalidForJsonSchema as problem:
        raise TypeError(f"{type_!r} cannot be expressed in JSON Schema: {problem}") from problem
    return schema


def read_foreign(type_: object, value: object) -> object:
    try:
        return _adapter(type_).validate_python(value)
    except sys.modules["pydantic"].ValidationError as problem:
        raise _first(problem.errors(include_url=False, include_context=False)) from None


def _first(errors: list[dict[str, Any]]) -> Mismatch:
    error = errors[0]
    text = str(error["msg"])
    text = text[:1].lower() + text[1:]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    steps = [step for step in error["loc"] if isinstance(step, (str, int))]
    return Mismatch(f"{text}{more}", path_text(steps))


def dumped(value: object) -> Any:
    """A pydantic value as JSON-able builtins; NotImplementedError when it is none."""
    if not is_foreign(type(value)):
        raise NotImplementedError(type(value).__name__)
    if is_model(type(value)):
        return cast("Any", value).model_dump(mode="json", by_alias=True, warnings="error")
    return _adapter(cast("Any", type(value))).dump_python(value, mode="json", by_alias=True)
