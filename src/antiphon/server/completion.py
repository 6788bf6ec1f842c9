"""Completion: suggestions for prompt arguments and template variables."""

import enum
import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from antiphon.errors import InvalidParams
from antiphon.server.handler import Handler, label
from antiphon.server.run import Run
from antiphon.types import Completion, JsonObject

MOST = 100
"""Values in one answer (server/utilities/completion, Completion Results)."""


class Completer:
    """A function that suggests values: ``fn(value)``, and if it wants them ``arguments`` and a Context."""

    __slots__ = ("_handler", "_takes_arguments")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._handler = Handler(function)
        names = [name for name in inspect.signature(function).parameters if name not in self._handler.hidden]
        if not names or names[0] != "value" or names[1:] not in ([], ["arguments"]):
            raise TypeError(f"{label(function)} must take value, and may take arguments and a Context")
        self._takes_arguments = len(names) > 1

    async def suggest(self, run: Run, value: str, arguments: JsonObject) -> JsonObject:
        given: JsonObject = {"value": value}
        if self._takes_arguments:
            given["arguments"] = arguments
        return completion(await self._handler.run(run, given))


def completion(found: Any) -> JsonObject:
    """A completer's value as the wire has it."""
    more: bool | None
    if isinstance(found, Completion):
        values, total = found.values, found.total
        more = True if len(values) > MOST else found.has_more
    else:
        values = [] if found is None else [str(item) for item in found]
        total, more = len(values), len(values) > MOST
    body: JsonObject = {"values": values[:MOST]}
    if total is not None:
        body["total"] = total
    if more is not None:
        body["hasMore"] = more
    return {"completion": body}


def options_of(annotation: object) -> list[str]:
    """The values that a Literal or an Enum allows: they complete themselves."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in {Union, types.UnionType}:
        return [option for choice in get_args(annotation) for option in options_of(choice)]
    if get_origin(annotation) is Literal:
        return [str(option) for option in get_args(annotation)]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return [str(member.value) for member in annotation]
    return []


class _Argument(msgspec.Struct):
    name: str
    value: str


class _Reference(msgspec.Struct):
    type: Literal["ref/prompt", "ref/resource"]
    name: str | None = None
    uri: str | None = None


class _Known(msgspec.Struct):
    arguments: dict[str, str] = {}


class CompleteParams(msgspec.Struct):
    ref: _Reference
    argument: _Argument
    context: _Known | None = None

    @property
    def target(self) -> str:
        target = self.ref.name if self.ref.type == "ref/prompt" else self.ref.uri
        if target is None:
            raise InvalidParams(
                f"A {self.ref.type} reference needs its {'name' if 'prompt' in self.ref.type else 'uri'}"
            )
        return target


def read_params(params: JsonObject) -> CompleteParams:
    try:
        return msgspec.convert(params, CompleteParams)
    except msgspec.ValidationError as fault:
        raise InvalidParams(f"completion/complete: {fault}") from None
