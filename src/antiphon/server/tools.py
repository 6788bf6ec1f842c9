"""Tools: a function becomes a schema, a call, and a result."""

import inspect
import logging
import re
import types
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec

from antiphon.errors import InternalError, InvalidParams, ToolError
from antiphon.rounds.journal import InputRequired
from antiphon.rounds.token import as_they_are
from antiphon.server.handler import RETURNED, Handler, label, told_by
from antiphon.server.run import Run
from antiphon.shapes import Mismatch, Shape, describe, hints_of, name_of, raw_shape, shape_of, signature_of
from antiphon.types import (
    CONTENT_TYPES,
    UNSET,
    Contents,
    EmbeddedResource,
    Icon,
    JsonObject,
    Text,
    Tool,
    ToolResult,
)
from antiphon.wire.headers import check_params, header_params
from antiphon.wire.revisions import REVISION

log = logging.getLogger("antiphon")

Listed = TypeVar("Listed", bound=msgspec.Struct)

# server/tools, Tool Names.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
_ANY_KEYWORDS = inspect.Parameter.VAR_KEYWORD
_SCALARS: frozenset[Any] = frozenset({str, int, float, bool, type(None)})
_CONTENT: frozenset[Any] = frozenset({str, Contents, *CONTENT_TYPES})


class ToolEntry:
    """A registered tool: how it is listed, and how it is called."""

    __slots__ = ("_headers", "_holds", "_known", "_output", "_read", "_whole", "handler", "listed", "name")

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        input_schema: JsonObject | None = None,
        output_schema: JsonObject | None = None,
        **about: Any,
    ) -> None:
        self.handler = Handler(function)
        self.name = checked_name(name, function)
        self._read: Callable[[dict[str, Any]], Any]
        self._whole: str | None
        self._known: dict[str, bool] | None
        if input_schema is None:
            signature = signature_of(function, skip=self.handler.hidden)
            self._read, schema, told = signature.read, signature.schema, signature.description
            self._whole, self._known = None, None
        else:
            raw = raw_shape(_object_schema(input_schema, self.name))
            self._read, schema, told = _copied(raw.read), raw.schema, describe(function)[0]
            self._whole, self._known = _raw_parameters(function, schema, self.handler.hidden)
        self._headers = header_params(schema)
        self._output: Shape | None = raw_shape(output_schema) if output_schema else _output_of(function)
        self._holds = _may_ask(self.handler) and (input_schema is not None or _may_hold_more(function, schema))
        self.listed = typed(
            Tool,
            function,
            name=self.name,
            description=description or told,
            input_schema=schema,
            output_schema=None if self._output is None else self._output.schema,
            **about,
        )

    async def call(self, run: Run) -> Any:
        """Serve tools/call."""
        arguments = run.call.params.get("arguments")
        if arguments is None:
            arguments = {}
        elif type(arguments) is not dict:
            raise InvalidParams('tools/call needs "arguments" to be an object')
        handler = self.handler
        if self._holds and not _SCALARS.issuperset(map(type, arguments.values())):
            # A token is bound to them as they came, and a handler may change what it is given.
            run.call.arguments = as_they_are(arguments)
        if self._headers:
            headers = run.call.headers
            if headers is not None and run.call.revision == REVISION:  # older ones know no such headers
                check_params(self._headers, arguments, headers)
        if handler.asked:
            # A declared question is the user's to answer: what the model sends under its name is not looked at.
            arguments = {key: value for key, value in arguments.items() if key not in handler.hidden}
        try:
            values = self._read(arguments)
        except Mismatch as fault:
            return error_result(f"Invalid arguments for {self.name}: {fault}")
        if self._whole is not None:
            values = {self._whole: values}
        elif self._known is not None:
            missing = [name for name, needed in self._known.items() if needed and name not in values]
            if missing:
                return error_result(f"Invalid arguments for {self.name}: missing required argument {missing[0]!r}")
            values = {key: value for key, value in values.items() if key in self._known}
        try:
            # A coroutine function without a Context cannot ask, unless by what it returns.
            value = await (handler.function(**values) if handler.is_plain else handler.run(run, values))
        except (ToolError, BaseExceptionGroup) as fault:
            return _told_failure(fault)
        if type(value) is str and self._output is None:
            return {"content": [{"type": "text", "text": value}]}
        if isinstance(value, RETURNED):
            handler.ask_by_returning(run, value)
        return self._result(value)

    def _result(self, value: Any) -> JsonObject:
        if isinstance(value, ToolResult):
            return self._stated(value)
        if self._output is not None:
            try:
                data = self._output.write(value)
            except Mismatch as fault:
                raise _broken_promise(self.name, fault) from None
            return {"content": _told(data), "structuredContent": data}
        if value is None:
            return {"content": []}
        blocks = content_blocks(value)
        if blocks is not None:
            return {"content": blocks}
        data = msgspec.to_builtins(value, str_keys=True)
        return {"content": _told(data), "structuredContent": data}

    def _stated(self, value: ToolResult) -> JsonObject:
        blocks = content_blocks(value.content)
        if blocks is None:
            raise TypeError(f"{self.name}: ToolResult.content takes strings and content blocks, got {value.content!r}")
        result: JsonObject = {"content": blocks}
        if value.structured is UNSET and self._output is not None and not value.is_error:
            raise _broken_promise(self.name, Mismatch("there is no structured content"))
        if value.structured is not UNSET:
            data = msgspec.to_builtins(value.structured, str_keys=True)
            if self._output is not None and not value.is_error:
                try:
                    self._output.read(data)
                except Mismatch as fault:
                    raise _broken_promise(self.name, fault) from None
            result["structuredContent"] = data
            result["content"] = blocks or _told(data)
        if value.is_error:
            result["isError"] = True
        if value.meta is not None:
            result["_meta"] = value.meta
        return result


def typed(kind: type[Listed], function: Callable[..., Any], *, icons: Sequence[Icon] = (), **about: Any) -> Listed:
    """Return what is told to clients of a function; TypeError if a part of it is unknown, or not of its type."""
    told = {"icons": icons or None, **about}
    fields = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    for name in told.keys() - fields.keys():
        raise TypeError(f"{label(function)}: a {kind.__name__.lower()} has no option {name!r}")
    try:
        return msgspec.convert({fields[name]: msgspec.to_builtins(value) for name, value in told.items()}, kind)
    except (TypeError, msgspec.ValidationError) as fault:
        raise TypeError(f"{label(function)}: {fault}") from None


def checked_name(name: str | None, function: Callable[..., Any]) -> str:
    """Return the name of a tool or a prompt: the given one, else the function's."""
    name = name_of(function) if name is None else name
    if name == "<lambda>":
        raise ValueError("a lambda has no name: pass name=")
    if not _NAME.match(name):
        raise ValueError(
            f"{label(function)}: {name!r} is no valid name: use 1 to 128 of A-Z, a-z, 0-9, '_', '-' and '.'"
        )
    return name


def _told_failure(fault: BaseException) -> JsonObject:
    told = told_by(fault) if isinstance(fault, BaseExceptionGroup) else fault
    if not isinstance(told, ToolError):
        raise fault
    return error_result(str(told))


def error_result(text: str) -> JsonObject:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def content_blocks(value: object) -> list[Any] | None:
    """A value as content blocks, or None if it is data rather than content."""
    items: Sequence[object] = value if isinstance(value, list | tuple) else (value,)
    blocks: list[Any] = []
    for item in items:
        if isinstance(item, str):
            blocks.append(Text(item))
        elif isinstance(item, Contents):
            blocks.append(EmbeddedResource(_whole_contents(item)))
        elif isinstance(item, CONTENT_TYPES):
            if isinstance(item, EmbeddedResource):
                _whole_contents(item.resource)
            blocks.append(item)
        else:
            return None
    return blocks


def _whole_contents(contents: Contents) -> Contents:
    """server/prompts, Embedded Resources: a URI, and either text or a blob."""
    if not contents.uri or (contents.text is None) == (contents.blob is None):
        raise TypeError("An embedded resource needs a URI, and either text or a blob")
    return contents


def _told(data: object) -> list[JsonObject]:
    """Structured content for readers of text: the JSON, or one block for each string of a list."""
    if isinstance(data, str):
        return [{"type": "text", "text": data}]
    if isinstance(data, list) and data and all(isinstance(item, str) for item in data):
        return [{"type": "text", "text": item} for item in data]
    return [{"type": "text", "text": msgspec.json.encode(data).decode()}]


def _output_of(function: Callable[..., Any]) -> Shape | None:
    """The shape that a return annotation promises; None where it promises content, or nothing."""
    hint = hints_of(function).get("return", Any)
    hint = _without(hint, {InputRequired})
    if hint in {Any, None, type(None), ToolResult, InputRequired} or _is_content(hint):
        return None
    if ToolResult in get_args(hint):
        return None
    try:
        return shape_of(hint, output=True)
    except TypeError as fault:
        raise TypeError(f"{label(function)}: the return annotation makes no JSON Schema: {fault}") from None


def _may_ask(handler: Handler) -> bool:
    """Whether a tool may need a token: not if it has no Context, and its annotation says that it returns data."""
    hint = hints_of(handler.function).get("return", Any)
    return not handler.is_plain or not {Any, object, InputRequired}.isdisjoint({hint, *get_args(hint)})


def _is_content(hint: Any) -> bool:
    if hint in _CONTENT:
        return True
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return all(_is_content(option) or option is type(None) for option in arguments)
    if origin in {list, tuple, Sequence} and arguments:
        inner = [option for option in arguments if option is not Ellipsis]
        return inner != [str] and all(_is_content(option) for option in inner)
    return False


def _without(hint: Any, unwanted: set[Any]) -> Any:
    if get_origin(hint) in {Union, types.UnionType}:
        kept = tuple(option for option in get_args(hint) if option not in unwanted)
        if len(kept) != len(get_args(hint)):
            return Union[kept] if kept else None  # noqa: UP007 -- built at run time
    return hint


def _may_hold_more(function: Callable[..., Any], schema: JsonObject) -> bool:
    """Whether a function may be given objects or lists, which it could change."""
    if any(item.kind == _ANY_KEYWORDS for item in inspect.signature(function).parameters.values()):
        return True
    properties: JsonObject = schema.get("properties") or {}
    return not all(
        isinstance(item, dict) and item.get("type") in {"string", "integer", "number", "boolean"}
        for item in properties.values()
    )


def _copied(read: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
    return lambda arguments: dict(read(arguments))


def _raw_parameters(
    function: Callable[..., Any], schema: JsonObject, hidden: frozenset[str]
) -> tuple[str | None, dict[str, bool] | None]:
    """How a function under a raw schema takes its arguments: the parameter for all of them, or those it knows by name.

    Of the latter it says which ones it cannot do without, whatever the schema requires.

    TypeError names the parameter that the schema does not provide.
    """
    parameters = [item for name, item in inspect.signature(function).parameters.items() if name not in hidden]
    properties: JsonObject = schema.get("properties") or {}
    if len(parameters) == 1 and parameters[0].name not in properties and parameters[0].kind != _ANY_KEYWORDS:
        return parameters[0].name, None
    for item in parameters:
        if item.kind == _ANY_KEYWORDS:
            return None, None
        if item.name not in properties:
            raise TypeError(f"{label(function)} takes {item.name!r}, which input_schema does not have as a property")
    return None, {item.name: item.default is inspect.Parameter.empty for item in parameters}


def _object_schema(schema: JsonObject, name: str) -> JsonObject:
    if schema.get("type", "object") != "object":
        raise ValueError(f"Tool {name!r}: input_schema must describe an object")
    return {"type": "object", **schema}


def _broken_promise(name: str, fault: Mismatch) -> InternalError:
    log.error("tool %s returned what its output schema does not allow: %s", name, fault)
    return InternalError(f"The tool {name!r} returned a value that does not fit its output schema")
