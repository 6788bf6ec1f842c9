"""The chain of a call: answer what a server asks and send the call again, until it asks nothing. No I/O.

Works with any server behind any transport: functions recognise a response that asks, answer it from a fixture, and
build the parameters of the next request. There are two dialects. ``spec`` is the protocol's own (2026-07-28,
basic/patterns/mrtr): ``resultType: "input_required"``, requests in a map, responses in a map. ``mcptest`` is a list of
``{id, kind, description, required}``, answered with a list of ``{id, value}``.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, Literal, TypeAlias

import msgspec

from antiphon.errors import CannotAnswer, PeerBroken, RoundsExceeded
from antiphon.rounds.client_loop import retry
from antiphon.testing.answer_values import AnswerUnfit, Supply, again, response_to
from antiphon.types import Accepted, JsonObject

DEFAULT_MAX_ROUNDS = 5
"""How many times a call is answered before it fails with RoundsExceeded."""

Dialect: TypeAlias = Literal["spec", "mcptest"]
DIALECTS: Final = ("spec", "mcptest")


class InputRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A question of the ``mcptest`` dialect."""

    id: str
    kind: str
    description: str | None = None
    required: bool = True


class _ListedResponse(msgspec.Struct, frozen=True):
    id: str
    value: object


Requests: TypeAlias = Mapping[str, JsonObject] | Sequence[InputRequest]
Responses: TypeAlias = JsonObject | list[JsonObject]
Send: TypeAlias = Callable[[JsonObject], object]
SendAsync: TypeAlias = Callable[[JsonObject], Awaitable[object]]


class InputRequiredResult(msgspec.Struct, frozen=True, kw_only=True):
    """A response that asks."""

    requests: dict[str, JsonObject] | tuple[InputRequest, ...]
    """A map by key in the ``spec`` dialect, a tuple in the ``mcptest`` dialect."""
    state: str | None
    """The token to send back unchanged; None if there was none, and then none may be sent."""
    dialect: Dialect
    description: str | None = None
    problems: tuple[str, ...] = ()
    """The rules that it breaks; a response with problems is half-shaped."""

    @property
    def is_half_shaped(self) -> bool:
        """Whether only part of what the protocol demands is there."""
        return bool(self.problems)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the requests, in order."""
        if isinstance(self.requests, dict):
            return tuple(self.requests)
        return tuple(request.id for request in self.requests)


class HalfShaped(PeerBroken):
    """A server needs input, and its requests break the protocol's rules."""

    def __init__(self, found: InputRequiredResult) -> None:
        super().__init__("The server needs input, but its result is half-shaped: " + "; ".join(found.problems))
        self.found = found


class AnswerMissing(CannotAnswer):
    """The fixture has no answer to a required request."""


# --- recognising --------------------------------------------------------------------------------------------------


def recognize_input_required(envelope: object, dialect: Dialect | None = None) -> InputRequiredResult | None:
    """Return what a JSON-RPC response asks for; None if it asks nothing, or is not a response.

    In the ``spec`` dialect a half-shaped result is returned with its ``problems``; in the ``mcptest`` dialect it is an
    ordinary result. Without a dialect, a list of requests is read as ``mcptest`` and everything else as ``spec``.
    """
    if dialect is not None and dialect not in DIALECTS:
        raise ValueError(f"A dialect is {' or '.join(DIALECTS)}, got {dialect!r}")
    result = _result_of(envelope)
    if result is None:
        return None
    if dialect == "mcptest":
        return _listed(result)
    if dialect == "spec":
        return _mapped(result)
    if type(result.get("inputRequests")) is list and result.get("resultType") != "complete":
        return _listed(result) or _mapped(result)
    return _mapped(result)


def _result_of(envelope: object) -> JsonObject | None:
    if not isinstance(envelope, dict) or envelope.get("error") is not None:
        return None
    result = envelope.get("result")
    return result if isinstance(result, dict) else None


def _mapped(result: JsonObject) -> InputRequiredResult | None:
    if result.get("resultType") != "input_required":
        return None
    problems: list[str] = []
    requests = _requests_in(result, problems)
    state = result.get("requestState")
    if "requestState" in result and not isinstance(state, str):
        problems.append(f"requestState must be a string, got {_named(state)}")
        state = None
    # basic/patterns/mrtr, Server Requirements: at least one of the two.
    if not problems and not requests and state is None:
        problems.append("it has neither inputRequests nor a requestState")
    return InputRequiredResult(requests=requests, state=state, dialect="spec", problems=tuple(problems))


def _requests_in(result: JsonObject, problems: list[str]) -> dict[str, JsonObject]:
    if "inputRequests" not in result:
        return {}
    requests = result["inputRequests"]
    if not isinstance(requests, dict):
        problems.append(f"inputRequests must be a map from keys to requests, got {_named(requests)}")
        return {}
    found: dict[str, JsonObject] = {}
    for key, request in requests.items():
        wrong = _wrong_in(request) if isinstance(key, str) else "its key is not a string"
        if wrong:
            problems.append(f"inputRequests[{key!r}]: {wrong}")
        else:
            found[key] = request
    return found


def _wrong_in(request: object) -> str | None:
    """Return why a value is not one of the three requests that a server may make; None if it is one."""
    if not isinstance(request, dict):
        return f"a request is an object, got {_named(request)}"
    method, params = request.get("method"), request.get("params", {})
    if not isinstance(params, dict):
        return f"params must be an object, got {_named(params)}"
    required = _REQUIRED.get(method) if isinstance(method, str) else None
    if required is None:
        return f"its method is {method!r}, not elicitation/create, sampling/createMessage or roots/list"
    if method == "elicitation/create" and params.get("mode") == "url":
        required = _URL
    for name, type_ in required.items():
        value = params.get(name)
        if not isinstance(value, type_) or isinstance(value, bool):
            return f"params.{name} must be {_NAMES[type_]}, got {_named(value)}"
    return None


# The parameters that each request must have: client/elicitation, client/sampling.
_REQUIRED: Final[dict[str, dict[str, type]]] = {
    "elicitation/create": {"message": str, "requestedSchema": dict},
    "sampling/createMessage": {"messages": list, "maxTokens": int},
    "roots/list": {},
}
_URL: Final[dict[str, type]] = {"message": str, "url": str}
_NAMES: Final[dict[type, str]] = {
    str: "a string",
    dict: "an object",
    list: "a list",
    int: "a whole number",
    float: "a number",
    bool: "a boolean",
    type(None): "nothing",
}


def _named(value: object) -> str:
    return _NAMES.get(type(value), repr(value))


def _listed(result: JsonObject) -> InputRequiredResult | None:
    requests, state = result.get("inputRequests"), result.get("requestState")
    if not isinstance(requests, list) or not requests or not isinstance(state, str) or not state:
        return None
    try:
        read = tuple(msgspec.convert(requests, list[InputRequest]))
    except msgspec.ValidationError:
        return None
    description = result.get("description")
    return InputRequiredResult(
        requests=read,
        state=state,
        dialect="mcptest",
        description=description if isinstance(description, str) else None,
    )


# --- answering ----------------------------------------------------------------------------------------------------


class InputResponseFixture:
    """Answers by key, for a chain that runs without a person.

    An answer is content to accept, a bare value for a form of one field, ``"accept"``, ``"decline"`` or ``"cancel"``,
    a model's text, a list of roots, or a whole response; a list holds one answer for each time that the key is asked.
    """

    def __init__(self, answers: "Given | None" = None) -> None:
        """``answers`` maps keys to answers, or is a list of ``{"id", "value"}`` as in the ``mcptest`` dialect."""
        self._supplies = {name: Supply(name, given) for name, given in _by_key(answers).items()}
        self.asked: list[str] = []
        """The keys that were answered, in order."""

    @property
    def unused(self) -> list[str]:
        """The answers that no question asked for."""
        return [name for name, supply in self._supplies.items() if not supply.is_spent]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._supply(key) is not None

    def take(self, key: str, request: JsonObject) -> object:
        """Return the next answer under a key; AnswerMissing if there is none, or none left."""
        supply = self._supply(key)
        if supply is None:
            known = ", ".join(map(repr, self._supplies)) or "nothing"
            raise AnswerMissing(f"There is no answer for {key!r}: the fixture answers {known}", key=key)
        try:
            given = supply.take(request)
        except IndexError:
            raise AnswerMissing(
                f"The {supply.times} answers for {key!r} are used up, and it is asked again", key=key
            ) from None
        self.asked.append(key)
        return given

    def _supply(self, key: str) -> Supply | None:
        return self._supplies.get(key) or again(key, self._supplies)


Given: TypeAlias = Mapping[str, object] | Sequence[Mapping[str, object]]
Fixture: TypeAlias = InputResponseFixture | Given


def _fixture(answers: "Fixture | None") -> InputResponseFixture:
    return answers if isinstance(answers, InputResponseFixture) else InputResponseFixture(answers)


def _by_key(answers: object) -> dict[str, object]:
    if answers is None:
        return {}
    if isinstance(answers, Mapping):
        return dict(answers)
    if isinstance(answers, list | tuple):
        try:
            return {item.id: item.value for item in msgspec.convert(answers, list[_ListedResponse])}
        except msgspec.ValidationError as fault:
            raise TypeError(f"A list of answers holds {{'id': ..., 'value': ...}}: {fault}") from None
    raise TypeError(f"A fixture maps keys to answers, got {answers!r}")


def collect_responses(
    requests: "Mapping[str, JsonObject] | Sequence[InputRequest | JsonObject] | InputRequiredResult",
    fixture: Fixture | None,
) -> Responses:
    """Return the responses to requests, in the dialect of the requests: a map for a map, a list for a list.

    An optional request without an answer is left out; a required one raises AnswerMissing. All requests of the ``spec``
    dialect are required.
    """
    answers = _fixture(fixture)
    asked = requests.requests if isinstance(requests, InputRequiredResult) else requests
    if isinstance(asked, Mapping):
        for key, request in asked.items():
            if not isinstance(key, str) or not isinstance(request, dict):
                raise PeerBroken(f"This is no input request: {key!r}: {request!r}")
        return {key: response_to(key, request, answers.take(key, request)) for key, request in asked.items()}
    if not isinstance(asked, list | tuple):
        raise PeerBroken(f"Input requests are a map, or a list in the mcptest dialect, got {_named(asked)}")
    wanted = [_request(item) for item in asked]
    return [_value(item, answers) for item in wanted if item.required or item.id in answers]


def _request(item: object) -> InputRequest:
    try:
        return item if isinstance(item, InputRequest) else msgspec.convert(item, InputRequest)
    except msgspec.ValidationError as fault:
        raise PeerBroken(f"This is no input request: {item!r} ({fault})") from None


def _value(request: InputRequest, answers: InputResponseFixture) -> JsonObject:
    given = answers.take(request.id, {})
    value = given.value if isinstance(given, Accepted) else given
    fits = _KINDS.get(request.kind)
    if fits is None:
        known = ", ".join(_KINDS)
        raise PeerBroken(f"The server asks {request.id!r} of kind {request.kind!r}; the kinds are {known}")
    if not fits(value):
        raise AnswerUnfit(f"The answer to {request.id!r} must be a {request.kind}, got {value!r}", key=request.id)
    return {"id": request.id, "value": value}


def _is_number(value: object) -> bool:
    return type(value) is int or (type(value) is float and isfinite(value))


_KINDS: Final[dict[str, Callable[[object], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
}


def build_retry_params(original_params: object, state: str | None, responses: Responses | None) -> JsonObject:
    """Return the parameters of the next request: the same call, the responses, and the token, if there was one.

    Parameters that are not an object count as none. Responses and a token of an earlier round are replaced.
    """
    if state is not None and not isinstance(state, str):
        raise TypeError(f"A requestState is echoed as the string it was, got {state!r}")
    if responses is not None and not isinstance(responses, dict | list):
        raise TypeError(f"Responses are a map, or a list in the mcptest dialect, got {responses!r}")
    params = dict(original_params) if isinstance(original_params, Mapping) else {}
    return retry(params, state, None if responses == {} else responses)


# --- the chain ----------------------------------------------------------------------------------------------------


class _Chain:
    """The rounds of one call."""

    def __init__(self, params: object, fixture: Fixture, max_rounds: int, dialect: Dialect | None) -> None:
        if not isinstance(max_rounds, int) or max_rounds < 0:
            raise ValueError(f"max_rounds must be 0 or more, got {max_rounds!r}")
        self._params = params
        self._answers = _fixture(fixture)
        self._rounds_left = self._max_rounds = max_rounds
        self._dialect: Dialect | None = dialect

    def next_params(self, response: object) -> JsonObject | None:
        """Answer a response, and return the parameters of the next request; None if the response asks nothing."""
        found = recognize_input_required(response, self._dialect)
        if found is None:
            return None
        if found.problems:
            raise HalfShaped(found)
        if not self._rounds_left:
            raise RoundsExceeded(self._max_rounds + 1)
        self._rounds_left -= 1
        return build_retry_params(self._params, found.state, collect_responses(found, self._answers))


def _unsendable(params: JsonObject) -> object:
    raise TypeError(f"The server asks, and its answer cannot be sent: give send= (it would get {sorted(params)})")


def run_chain(
    first_response: object,
    params: object,
    fixture: Fixture,
    max_rounds: int = DEFAULT_MAX_ROUNDS,
    send: Send = _unsendable,
    *,
    dialect: Dialect | None = None,
) -> Any:
    """Answer a call until its response asks nothing, and return that response.

    ``send`` takes the parameters of the next request, sends it with a new JSON-RPC id, and returns its response.
    Raises RoundsExceeded if the server still asks after ``max_rounds`` answers, and HalfShaped, AnswerMissing or
    AnswerUnfit if it cannot be answered.
    """
    chain, response = _Chain(params, fixture, max_rounds, dialect), first_response
    while (next_params := chain.next_params(response)) is not None:
        response = send(next_params)
        if inspect.isawaitable(response):
            if inspect.iscoroutine(response):
                response.close()
            raise TypeError("send is asynchronous: use run_chain_async")
    return response


async def run_chain_async(
    first_response: object,
    params: object,
    fixture: Fixture,
    max_rounds: int = DEFAULT_MAX_ROUNDS,
    send: SendAsync | Send = _unsendable,
    *,
    dialect: Dialect | None = None,
) -> Any:
    """Do the same as `run_chain`, with a ``send`` that is awaited."""
    chain, response = _Chain(params, fixture, max_rounds, dialect), first_response
    while (next_params := chain.next_params(response)) is not None:
        response = send(next_params)
        if inspect.isawaitable(response):
            response = await response
    return response
