"""What is another value each time: where the protocol has such values, and where the user says so."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from antiphon.testing.suite.path import JsonPath, read_path
from antiphon.types import JsonObject
from antiphon.wire.rev2026 import PROGRESS_TOKEN, SUBSCRIPTION_ID

Side: TypeAlias = Literal["client", "server"]
Place: TypeAlias = tuple[str | int, ...]
"""The steps from a message to a value in it."""

RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
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
    related = meta.get(RELATED_TASK)
    if isinstance(related, dict):
        yield from _values(related, "taskId", "task", side, (*place, RELATED_TASK))


def _values(
    within: JsonObject, name: str, kind: str, side: Side, place: Place, *, kinds: tuple[type, ...] = (str,)
) -> Iterator[Volatile]:
    value = within.get(name)
    if type(value) in kinds:
        yield Volatile((*place, name), kind, value, side)


# --- what the user lists ------------------------------------------------------------------------------------------


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

    def find(self, message: JsonObject) -> Iterator[tuple[Place, Any]]:
        """The values at these places that are no objects and no lists; of those, all that is inside."""
        seen: set[Place] = set()
        for root in self._roots(message):
            for place, value in _leaves(root, _at(message, root)):
                if place not in seen:
                    seen.add(place)
                    yield place, value

    def _roots(self, message: JsonObject) -> Iterator[Place]:
        if self._names:
            for place, _ in _inside((), message):
                if place and isinstance(place[-1], str) and place[-1].lower() in self._names:
                    yield place
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


def _items(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)
