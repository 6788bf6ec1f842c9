"""Handlers of the low level: the request's own parameters in, a result as the wire has it out."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from antiphon.rounds.journal import raw_input_required
from antiphon.server.handler import Handler, label
from antiphon.server.run import Run
from antiphon.types import JsonObject, PromptResult, ResourceResult, ToolResult


def raw_route(
    function: Callable[..., Any], complete: Callable[[Run, JsonObject], JsonObject]
) -> Callable[[Run], Awaitable[JsonObject]]:
    """Return the route to a function that takes the request's params, and may take a Context."""
    handler = Handler(function)
    names = [name for name in inspect.signature(function).parameters if name not in handler.hidden]
    if len(names) != 1:
        raise TypeError(f"{label(function)} must take the request's params, and may take a Context")

    async def route(run: Run) -> JsonObject:
        result = _plain(await handler.run(run, {names[0]: _params(run)}))
        if result.get("resultType") == "input_required":
            run.ask_by_returning(raw_input_required(result))
        return complete(run, result)

    return route


def _params(run: Run) -> JsonObject:
    """The parameters as they came; on a retry, with the handler's own state and the answers to what it asked."""
    params = run.call.params
    if run.round == 1:
        return params
    rest = {name: value for name, value in params.items() if name not in {"requestState", "inputResponses"}}
    return {**rest, **run.conversation().retried()}


def _plain(value: object) -> JsonObject:
    if isinstance(value, ToolResult | PromptResult | ResourceResult):
        raise TypeError(f"A low-level handler returns the wire's own result, a dict; got {type(value).__name__}")
    made: object = {} if value is None else msgspec.to_builtins(value, str_keys=True)
    if type(made) is not dict:
        raise TypeError(f"A low-level handler returns an object, got {type(value).__name__}")
    return dict(made)
