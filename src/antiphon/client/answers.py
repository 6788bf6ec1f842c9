"""Answering: a server's questions go to the handlers that the client was given."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from antiphon.errors import CannotAnswer
from antiphon.rounds.responses import filled
from antiphon.types import Accepted, Cancelled, Declined, Implementation, JsonObject, Message, Root, Sample, Text, Tool


class Elicitation(msgspec.Struct, frozen=True, kw_only=True):
    """A question for the user, and who asks it."""

    message: str
    mode: Literal["form", "url"]
    schema: JsonObject
    """The form's JSON Schema; empty for a URL."""
    url: str | None
    key: str
    server: Implementation | None
    tool: str
    """The tool, prompt or resource whose call asks."""
    round: int


class SampleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for the model, and who makes it."""

    messages: list[Message]
    max_tokens: int
    system: str | None
    temperature: float | None
    stop: list[str] | None
    tools: list[Tool] | None
    params: JsonObject
    """All that the server sent."""
    key: str
    server: Implementation | None
    tool: str
    round: int


ElicitAnswer: TypeAlias = Accepted[Any] | Declined | Cancelled
Elicit: TypeAlias = Callable[[Elicitation], Awaitable[ElicitAnswer] | ElicitAnswer]
Sampler: TypeAlias = Callable[[SampleRequest], Awaitable[Sample | str] | Sample | str]
Roots: TypeAlias = Sequence[Root] | Callable[[], Awaitable[Sequence[Root]] | Sequence[Root]]


class Asker(NamedTuple):
    """Who asks: shown to every handler."""

    server: Implementation | None
    tool: str
    round: int


class ElicitationModes(NamedTuple):
    form: bool
    url: bool


def elicitation_modes(capability: Mapping[str, object] | None) -> ElicitationModes:
    """What an elicitation capability allows: an empty one means forms only."""
    if capability is None:
        return ElicitationModes(form=False, url=False)
    return ElicitationModes(form="form" in capability or "url" not in capability, url="url" in capability)


class Answers:
    """The handlers of a client: what they can answer, and how."""

    __slots__ = ("_elicit", "_elicit_url", "_roots", "_sample", "_sample_tools", "capabilities")

    def __init__(
        self,
        *,
        elicit: Elicit | None = None,
        elicit_url: Elicit | None = None,
        sample: Sampler | None = None,
        sample_tools: bool = False,
        roots: Roots | None = None,
        parks: bool = False,
    ) -> None:
        self._elicit = elicit
        self._elicit_url = elicit_url
        self._sample = sample
        self._sample_tools = sample_tools
        self._roots = roots
        self.capabilities: JsonObject = {}
        # A person at an inbox fills in forms and opens pages.
        handlers = (("form", elicit), ("url", elicit_url))
        modes: JsonObject = {mode: {} for mode, given in handlers if parks or given is not None}
        if modes:
            self.capabilities["elicitation"] = modes
        if sample is not None:
            self.capabilities["sampling"] = {"tools": {}} if sample_tools else {}
        if roots is not None:
            self.capabilities["roots"] = {}

    async def answer_all(self, requests: JsonObject, asker: Asker) -> JsonObject:
        """All questions of a round at once; the first that fails ends it, and the others are cancelled."""
        if len(requests) == 1:
            ((key, request),) = requests.items()
            return {key: await self.answer(key, request, asker)}
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {key: group.create_task(self.answer(key, request, asker)) for key, request in requests.items()}
        except BaseExceptionGroup as faults:
            raise _first(faults) from None
        return {key: task.result() for key, task in tasks.items()}

    def has(self, request: JsonObject) -> bool:
        """Whether there is a handler for a question; True for what is no question, which `answer` refuses."""
        params = request.get("params") or {}
        match request["method"]:
            case "elicitation/create":
                return (self._elicit_url if params.get("mode") == "url" else self._elicit) is not None
            case "sampling/createMessage":
                return self._sample is not None and (self._sample_tools or "tools" not in params)
            case "roots/list":
                return self._roots is not None
            case _:
                return True

    def answer(self, key: str, request: JsonObject, asker: Asker) -> Coroutine[Any, Any, JsonObject]:
        """One response, to be awaited; CannotAnswer if there is no handler, or its answer does not fit."""
        method, params = request["method"], request.get("params") or {}
        if method == "elicitation/create":
            # client/elicitation: every mode but url is a form; older servers name no mode.
            return self._url(key, params, asker) if params.get("mode") == "url" else self._form(key, params, asker)
        if method == "sampling/createMessage":
            return self._sampled(key, params, asker)
        if method == "roots/list":
            return self._listed(key)
        raise CannotAnswer(f"The server asks {method!r}, which this client does not know", key=key)

    async def _form(self, key: str, params: JsonObject, asker: Asker) -> JsonObject:
        if self._elicit is None:
            raise CannotAnswer(
                "Elicitation not supported: the server asks a form, and there is no elicit handler", key=key
            )
        schema = params.get("requestedSchema")
        question = _elicitation(key, params, "form", schema if type(schema) is dict else {}, asker)
        answer: Any = self._elicit(question)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Accepted):
            return {"action": "accept", "content": fitted(answer.value, question.schema, key)}
        if isinstance(answer, Declined | Cancelled):
            return {"action": answer.action}
        raise CannotAnswer(f"elicit must return Accepted, Declined or Cancelled, got {answer!r}", key=key)

    async def _url(self, key: str, params: JsonObject, asker: Asker) -> JsonObject:
        if self._elicit_url is None:
            raise CannotAnswer(
                "Elicitation not supported: the server wants a URL opened, and there is no elicit_url handler", key=key
            )
        answer: Any = await _called(self._elicit_url, _elicitation(key, params, "url", {}, asker))
        if not isinstance(answer, Accepted | Declined | Cancelled):
            raise CannotAnswer(f"elicit_url must return Accepted, Declined or Cancelled, got {answer!r}", key=key)
        return {"action": answer.action}

    async def _sampled(self, key: str, params: JsonObject, asker: Asker) -> JsonObject:
        if self._sample is None:
            raise CannotAnswer("Sampling not supported: there is no sample handler", key=key)
        if not self._sample_tools and ("tools" in params or "toolChoice" in params):
            raise CannotAnswer(
                "Sampling with tools not supported: sample_tools=True declares that the sample handler knows them",
                key=key,
            )
        made: Any = await _called(self._sample, _sample_request(key, params, asker))
        if isinstance(made, str):
            made = Sample(role="assistant", content=Text(made), model="unknown")
        if not isinstance(made, Sample):
            raise CannotAnswer(f"sample must return text or a Sample, got {made!r}", key=key)
        wire: JsonObject = msgspec.to_builtins(made)
        return wire

    async def _listed(self, key: str) -> JsonObject:
        if self._roots is None:
            raise CannotAnswer("Roots not supported: this client was given none", key=key)
        roots: Any = await _called(self._roots) if callable(self._roots) else self._roots
        return {"roots": [msgspec.to_builtins(root) for root in roots]}


def response(key: str, request: JsonObject, answer: object) -> JsonObject:
    """An answer given by hand, as the wire has it."""
    if isinstance(answer, Accepted):
        params = request.get("params") or {}
        if params.get("mode") == "url":
            return {"action": "accept"}
        schema = params.get("requestedSchema")
        return {"action": "accept", "content": fitted(answer.value, schema if isinstance(schema, dict) else {}, key)}
    if isinstance(answer, Declined | Cancelled):
        return {"action": answer.action}
    made = _plain(answer, key)
    if type(made) is list:
        return {"roots": made}
    if type(made) is not dict:
        raise CannotAnswer(f"The answer to {key!r} must be Accepted, Declined, Cancelled, a Sample or Roots", key=key)
    return made


def fitted(value: object, schema: JsonObject, key: str) -> JsonObject:
    """An accepted value as the content that a form asks for: defaults filled in, and checked."""
    content = _plain(value, key)
    properties = schema.get("properties")
    if type(content) is not dict and isinstance(properties, dict) and len(properties) == 1:
        content = {next(iter(properties)): content}
    if content is None:
        content = {}
    if type(content) is not dict:
        raise CannotAnswer(f"The answer to {key!r} must be an object with the form's fields", key=key)
    try:
        return filled(schema, content)
    except ValueError as fault:
        raise CannotAnswer(f"The answer to {key!r} does not fit its form: {fault}", key=key) from None


def _plain(value: object, key: str) -> Any:
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError) as fault:
        raise CannotAnswer(f"The answer to {key!r} is not JSON: {fault}", key=key) from None


def _elicitation(
    key: str, params: JsonObject, mode: Literal["form", "url"], schema: JsonObject, asker: Asker
) -> Elicitation:
    url = params.get("url")
    if mode == "url" and not isinstance(url, str):
        raise CannotAnswer("The server wants a URL opened, but names none", key=key)
    return Elicitation(
        message=str(params.get("message", "")),
        mode=mode,
        schema=schema,
        url=url if mode == "url" else None,
        key=key,
        server=asker.server,
        tool=asker.tool,
        round=asker.round,
    )


class _SampleParams(msgspec.Struct, rename="camel"):
    messages: list[Message]
    max_tokens: int
    system_prompt: str | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    tools: list[Tool] | None = None


def _sample_request(key: str, params: JsonObject, asker: Asker) -> SampleRequest:
    try:
        read = msgspec.convert(params, _SampleParams)
    except msgspec.ValidationError as fault:
        raise CannotAnswer(f"The server's sampling request is malformed: {fault}", key=key) from None
    return SampleRequest(
        messages=read.messages,
        max_tokens=read.max_tokens,
        system=read.system_prompt,
        temperature=read.temperature,
        stop=read.stop_sequences,
        tools=read.tools,
        params=params,
        key=key,
        server=asker.server,
        tool=asker.tool,
        round=asker.round,
    )


async def _called(handler: Callable[..., Any], *args: object) -> object:
    made = handler(*args)
    return await made if inspect.isawaitable(made) else made


def _first(faults: BaseExceptionGroup[Any]) -> BaseException:
    for fault in faults.exceptions:
        return _first(fault) if isinstance(fault, BaseExceptionGroup) else fault
    raise AssertionError("an exception group is never empty")
