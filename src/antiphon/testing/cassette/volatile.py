"""What is another value each time: where the protocol has such values, and where the user says so."""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from antiphon.testing.paths import JsonPath, read_path
from antiphon.types import JsonObject
from antiphon.wire.revisions import PROGRESS_TOKEN, SUBSCRIPTION_ID

Side: TypeAlias = Literal["client", "server"]
Place: TypeAlias = tuple[str | int, ...]
"""The steps from a message to a value in it."""

RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
KEY: Final = "antiphon/key"
HINT: Final = "antiphon/request"
"""In the ``_meta`` of a question that our server pushes in the older era: its key, and the id of the call that asks."""
OTHER: Final[dict[Side, Side]] = {"client": "server", "server": "client"}


class Volatile(NamedTuple):
    """A value that is another one each time."""

    place: Place
    kind: str
    value: Any
    side: Side
    """Whose it is: the same number may be an id of the client's and one of the server's."""


def volatile_in(message: JsonObject, side: Side) -> Iterator[Volatile]:
    """The values of the protocol's own that a message of this side carries."""
    method, params, result = message.get("method"), message.get("params"), message.get("result")
    if "id" in message and message["id"] is not None:
        yield Volatile(("id",), "id", message["id"], side if method is not None else OTHER[side])
    if isinstance(params, dict):
        yield from _in_params(method, params, side)
    if isinstance(result, dict):
        yield from _in_result(result, side)


def _in_params(method: object, params: JsonObject, side: Side) -> Iterator[Volatile]:
    if method == "notifications/cancelled":
        # The server cancels its own requests, and ends subscriptions, which are the client's.
        yield from _values(params, "requestId", "id", side, ("params",), kinds=(str, int))
    if method == "notifications/progress":
        yield from _values(params, PROGRESS_TOKEN, "progress", OTHER[side], ("params",), kinds=(str, int, float))
    meta = params.get("_meta")
    if isinstance(meta, dict):
        yield from _values(meta, PROGRESS_TOKEN, "progress", side, ("params", "_meta"), kinds=(str, int, float))
        yield from _in_meta(meta, side, ("params", "_meta"))
    yield from _values(params, "requestState", "state", side, ("params",))
    yield from _values(params, "cursor", "cursor", side, ("params",))
    yield from _values(params, "elicitationId", "elicitation", side, ("params",))
    yield from _values(params, "taskId", "task", side, ("params",))


def _in_result(result: JsonObject, side: Side) -> Iterator[Volatile]:
    meta = result.get("_meta")
    if isinstance(meta, dict):
        yield from _in_meta(meta, side, ("result", "_meta"))
    yield from _values(result, "requestState", "state", side, ("result",))
    yield from _values(result, "nextCursor", "cursor", side, ("result",))
    yield from _values(result, "taskId", "task", side, ("result",))
    asked, task, tasks = result.get("inputRequests"), result.get("task"), result.get("tasks")
    if isinstance(asked, dict):
        for key, request in asked.items():
            params = request.get("params") if isinstance(request, dict) else None
            if isinstance(params, dict):
                place = ("result", "inputRequests", key, "params")
                yield from _values(params, "elicitationId", "elicitation", side, place)
    if isinstance(task, dict):
        yield from _values(task, "taskId", "task", side, ("result", "task"))
    if isinstance(tasks, list):
        for index, each in enumerate(tasks):
            if isinstance(each, dict):
                yield from _values(each, "taskId", "task", side, ("result", "tasks", index))


def _in_meta(meta: JsonObject, side: Side, place: Place) -> Iterator[Volatile]:
    yield from _values(meta, SUBSCRIPTION_ID, "id", "client", place, kinds=(str, int))
    if side == "server":
        yield from _values(meta, HINT, "id", "client", place, kinds=(str, int))
    related = meta.get(RELATED_TASK)
    if isinstance(related, dict):
        yield from _values(related, "taskId", "task", side, (*place, RELATED_TASK))


def _values(
    within: JsonObject, name: str, kind: str, side: Side, place: Place, *, kinds: tuple[type, ...] = (str,)
) -> Iterator[Volatile]:
    value = within.get(name)
    if type(value) in kinds:
        yield Volatile((*place, name), kind, value, side)


def key_of(question: JsonObject) -> str | None:
    """The key of a question that is pushed, where the server says it."""
    params = question.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    key = meta.get(KEY) if isinstance(meta, dict) else None
    return key if isinstance(key, str) else None


def without_hint(request: Any) -> Any:
    """A question without the id of the call that asks: on a wire that tells by itself, it does not stand there."""
    params = request.get("params") if isinstance(request, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(params, dict) or not isinstance(meta, dict) or HINT not in meta:
        return request
    rest = {name: value for name, value in meta.items() if name != HINT}
    kept = {name: value for name, value in params.items() if name != "_meta" or rest}
    return {**request, "params": {**kept, "_meta": rest} if rest else kept}


# --- what is the protocol's own -----------------------------------------------------------------------------------

_WORDS: Final = frozenset(
    {"jsonrpc", "method", "type", "role", "mode", "action", "resultType", "mimeType", "protocolVersion", "level"}
    | {"cacheScope", "name", "uri", "uriTemplate", "supportedVersions", "required", "format", "$schema", "$ref"}
)
"""Fields that say which message it is, what it is about, and of what kind; not what it says."""


def is_protocols(place: Place) -> bool:
    """Whether the protocol says what stands there, or what it is called."""
    for step, below in pairwise(place):
        if step in {"structuredContent", "data"} or (step in {"arguments", "content"} and isinstance(below, str)):
            return False  # the user's own, whatever it is called
    return next((step for step in reversed(place) if isinstance(step, str)), None) in _WORDS


# --- what the user lists ------------------------------------------------------------------------------------------

_QUESTIONS: Final = frozenset({("result", "inputRequests"), ("params", "inputResponses")})
"""Objects whose keys are the names of questions, not of fields."""


class Field(NamedTuple):
    """A value in a JSON text: where it begins and ends, quotes aside."""

    name: str
    value: Any
    start: int
    end: int


class Places:
    """Paths such as ``$.result.structuredContent.id``, or names of fields, wherever they are."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._names: set[str] = set()
        self._paths: list[JsonPath] = []
        for text in texts:
            if text.startswith("$"):
                self._paths.append(read_path(text))
            elif text:
                self._names.add(text.lower())
            else:
                raise ValueError("a field's name, or a path that begins with $, cannot be empty")

    def __contains__(self, name: object) -> bool:
        """Whether a field of this name is listed."""
        return isinstance(name, str) and name.lower() in self._names

    def find(self, message: JsonObject, key: str | None = None) -> Iterator[tuple[Place, Any]]:
        """The values at these places that are no objects and no lists; of those, all that is inside.

        ``key`` is that of the question which the message answers.
        """
        seen: set[Place] = set()
        answer = [("result",)] if key in self and isinstance(message.get("result"), dict) else []
        for root in (*self._contents(message, answer), *self._roots(message)):
            for place, value in _leaves(root, _at(message, root)):
                if place not in seen:
                    seen.add(place)
                    yield place, value

    def find_in_text(self, text: str) -> Iterator[Field]:
        """The same in a text that is a JSON object or a list; by name only."""
        for place, start, end in _scalars(text):
            name = next((step for step in reversed(place) if step in self), None)
            if name is not None:
                value = json.loads(text[start:end])
                yield Field(str(name), value, *((start + 1, end - 1) if isinstance(value, str) else (start, end)))

    def _contents(self, message: JsonObject, answers: Iterable[Place]) -> Iterator[Place]:
        """Of the answer to a question of a listed name, what was filled in."""
        for place in answers:
            answer = _at(message, place)
            if isinstance(answer, dict) and "action" in answer and "content" in answer:
                yield (*place, "content")

    def _roots(self, message: JsonObject) -> Iterator[Place]:
        if self._names:
            named = [place for place, _ in _inside((), message) if place and place[-1] in self]
            yield from self._contents(message, (place for place in named if place[:-1] in _QUESTIONS))
            yield from (place for place in named if place[:-1] not in _QUESTIONS)
        for path in self._paths:
            found: list[Place] = [()]
            for step, is_deep in path.steps:
                found = [
                    below
                    for place in found
                    for top in ([inner for inner, _ in _inside(place, _at(message, place))] if is_deep else [place])
                    for below in _under(top, _at(message, top), step)
                ]
            yield from found


def _at(value: Any, place: Place) -> Any:
    for step in place:
        value = value[step]
    return value


def _inside(place: Place, value: Any) -> Iterator[tuple[Place, Any]]:
    yield place, value
    for step, item in _items(value):
        yield from _inside((*place, step), item)


def _leaves(place: Place, value: Any) -> Iterator[tuple[Place, Any]]:
    return ((inner, item) for inner, item in _inside(place, value) if not isinstance(item, dict | list))


def _under(place: Place, value: Any, step: str | int | None) -> Iterator[Place]:
    for name, _ in _items(value):
        from_the_end = type(step) is int and isinstance(value, list) and step + len(value) == name
        if step is None or step == name or from_the_end:
            yield (*place, name)


_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},]|[^\s\[\]{},:"]+', re.DOTALL)


def _scalars(text: str) -> Iterator[tuple[Place, int, int]]:
    """The values of a JSON object or list that are neither: where they stand in it, and in its text."""
    if not is_json(text):
        return
    steps: list[str | int | None] = []
    for token in _TOKEN.finditer(text):
        match token[0][0]:
            case "{":
                steps.append(None)
            case "[":
                steps.append(0)
            case "}" | "]":
                steps.pop()
            case ",":
                last = steps[-1]
                steps[-1] = last + 1 if isinstance(last, int) else None
            case _ if steps[-1] is None:
                steps[-1] = str(json.loads(token[0]))
            case _:
                yield tuple(step for step in steps if step is not None), token.start(), token.end()


def is_json(text: str) -> bool:
    """Whether a text is a JSON object, or a list."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def texts_in(value: Any) -> Iterator[str]:
    """All texts of a message."""
    return (item for _, item in _leaves((), value) if isinstance(item, str))


def _items(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)
