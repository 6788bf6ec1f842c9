"""The placeholders of a recording: how they are written, where the protocol has values for them, what they stand for.

``${state:1}`` stands for a value that changes with every run. ``${kind:number}`` belongs to the entry that it stands
in, ``${kind:number@entry}`` to another one; ``${time}`` and ``${secret:name}`` belong to none. A text that is one
placeholder stands for any value, a placeholder within a text for a part of it. ``${$}`` is a dollar sign where a brace,
or a placeholder, comes next.
"""

import itertools
import json
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec

from antiphon.testing.json_paths import JsonPath, Step, read_path
from antiphon.types import JsonObject
from antiphon.wire.revisions import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    KEY,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    REQUEST,
    SUBSCRIPTION_ID,
)

Side: TypeAlias = Literal["client", "server"]
Place: TypeAlias = tuple[str | int, ...]
"""The steps from a message to a value in it."""

# --- messages -----------------------------------------------------------------------------------------------------

MAX_DEPTH: Final = 200
"""Levels of nesting that a message may have."""
OWN: Final = (PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL)
"""What every request of a client repeats in its ``_meta``."""
TRACING: Final = frozenset({"traceparent", "tracestate", "baggage"})

_decode = msgspec.json.Decoder().decode


def read_json(data: bytes) -> object:
    """Return the message in a line or a body; None if there is none, or if it is nested too deep."""
    try:
        message: object = _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return None if is_too_deep(message) else message


def params_of(message: JsonObject) -> JsonObject:
    """Return the params of a message; empty where they are no object."""
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def meta_of(message: JsonObject) -> JsonObject:
    """Return the ``_meta`` of a message's params; empty where there is none."""
    meta = params_of(message).get("_meta")
    return meta if isinstance(meta, dict) else {}


def key_of(question: JsonObject) -> str | None:
    """Return the key of a question that an older server pushes, where it says one."""
    key = meta_of(question).get(KEY)
    return key if isinstance(key, str) else None


def without_call(question: Any) -> Any:
    """Return a question without the id of its call, which our server writes only where the transport does not tell."""
    if not isinstance(question, dict) or REQUEST not in meta_of(question):
        return question
    meta = {name: value for name, value in meta_of(question).items() if name != REQUEST}
    params = {name: value for name, value in question["params"].items() if name != "_meta" or meta}
    return {**question, "params": {**params, "_meta": meta} if meta else params}


def id_key(value: Any) -> tuple[type, Any]:
    """Return what an id is looked up by: JSON's 1, 1.0 and true are three ids, and an id may be no scalar."""
    return type(value), value if isinstance(value, str | int | float) else repr(value)


def is_too_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Return whether a JSON value is nested deeper than the functions here, which call themselves, can follow."""
    level = [value]
    for _ in range(limit):
        level = [item for each in level for _, item in _items(each)]
    return bool(level)


def mapped(value: Any, change: Callable[[Any, Place], Any], place: Place = ()) -> Any:
    """Return a JSON value with ``change(scalar, place)`` for each of its scalars."""
    if isinstance(value, dict):
        return {name: mapped(item, change, (*place, name)) for name, item in value.items()}
    if isinstance(value, list):
        return [mapped(item, change, (*place, index)) for index, item in enumerate(value)]
    return change(value, place)


def inside(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield a JSON value and everything in it, with the places; ``place`` is that of the value."""
    yield place, value
    for step, item in _items(value):
        yield from inside(item, (*place, step))


def texts_in(value: Any) -> Iterator[str]:
    """Yield all texts of a JSON value."""
    return (item for _, item in inside(value) if isinstance(item, str))


def value_at(value: Any, place: Place) -> Any:
    for step in place:
        value = value[step]
    return value


def places_of(path: JsonPath, message: JsonObject) -> list[Place]:
    """Return the places of a message that a path points at."""
    found: list[Place] = [()]
    for step, is_deep in path.steps:
        tops = [(place, value_at(message, place)) for place in found]
        if is_deep:
            tops = [each for place, value in tops for each in inside(value, place)]
        found = [(*top, name) for top, value in tops for name, _ in _items(value) if _is_step(step, name, value)]
    return found


def _items(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def _is_step(step: Step, name: str | int, value: Any) -> bool:
    from_the_end = type(step) is int and isinstance(value, list) and step + len(value) == name
    return step is None or step == name or from_the_end


# --- how placeholders are written ---------------------------------------------------------------------------------

_PATTERN: Final = re.compile(r"\$\{(?:(\$)|([a-z]+)(?::([\w.-]+))?(?:@([0-9]{1,9}))?)\}")
TIME: Final = re.compile(
    r"\b\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-6]\d(?:[.,]\d+)?(?:Z|[+-][0-2]\d:?[0-5]\d)?(?![\w:])"
)
"""A time as RFC 3339 writes it; also without its zone, as Python often does."""
TYPES: Final[dict[str, tuple[type, ...]]] = {
    "id": (str, int),
    "progress": (str, int, float),
    "secret": (str, int, float),
    "number": (float, int),
    "boolean": (bool,),
}
"""The types of a placeholder's values, by its kind; the others are texts."""
WITHOUT_NUMBER: Final = frozenset({"time", "secret"})
BLIND: Final[dict[type, str]] = {str: "text", bool: "boolean", int: "number", float: "number"}
"""The kinds of the fields that a user lists, by the type of their values."""
KINDS: Final = WITHOUT_NUMBER | {"id", "progress", "state", "cursor", "elicitation", "task", *BLIND.values()}


class Ref(msgspec.Struct, frozen=True):
    """A placeholder."""

    kind: str
    name: str = ""
    entry: int | None = None
    """The entry that it belongs to, from 1; None: the one that it stands in, or none at all."""

    def __str__(self) -> str:
        name = f":{self.name}" if self.name else ""
        entry = "" if self.entry is None else f"@{self.entry}"
        return f"${{{self.kind}{name}{entry}}}"


Part: TypeAlias = str | Ref
Lookup: TypeAlias = Callable[[Ref], Any]


def written(parts: list[Part]) -> str:
    """Return the text of a recording that has these parts; the literal ones may say anything."""
    made: list[str] = []
    for part, after in zip(parts, [*parts[1:], ""], strict=False):
        if isinstance(part, Ref):
            made.append(str(part))
            continue
        text = part.replace("${", "${$}{")
        if text.endswith("$") and (isinstance(after, Ref) or after.startswith("{")):
            text = f"{text[:-1]}${{$}}"
        made.append(text)
    return "".join(made)


def parts_of(text: str) -> list[Part]:
    """Split a text of a recording into literal parts and placeholders."""
    if "${" not in text:
        return [text]
    parts: list[Part] = []
    literal, at = "", 0
    for found in _PATTERN.finditer(text):
        literal += text[at : found.start()]
        at = found.end()
        if found[1]:
            literal += "$"
            continue
        if literal:
            parts.append(literal)
            literal = ""
        parts.append(Ref(found[2], found[3] or "", int(found[4]) if found[4] else None))
    literal += text[at:]
    if literal or not parts:
        parts.append(literal)
    return parts


def split(parts: list[Part], pattern: re.Pattern[str], ref_of: Callable[[str], Ref | None]) -> list[Part]:
    """Replace what a pattern finds in the literal parts; ``ref_of`` returns None for what stays."""
    made: list[Part] = []
    for part in parts:
        if isinstance(part, Ref):
            made.append(part)
            continue
        at = 0
        for found in pattern.finditer(part):
            ref = ref_of(found[0])
            if ref is not None:
                made += [part[at : found.start()], ref] if found.start() > at else [ref]
                at = found.end()
        if at < len(part) or not part:
            made.append(part[at:])
    return made


def refs_in(value: Any) -> Iterator[Ref]:
    """Yield all placeholders of a message, in the order of its texts."""
    return (part for text in texts_in(value) for part in parts_of(text) if isinstance(part, Ref))


def filled(pattern: Any, lookup: Lookup) -> Any:
    """Return a recorded message with values for its placeholders."""
    return mapped(pattern, lambda value, _: _filled_text(value, lookup) if isinstance(value, str) else value)


def _filled_text(text: str, lookup: Lookup) -> Any:
    values = [lookup(part) if isinstance(part, Ref) else part for part in parts_of(text)]
    if len(values) == 1:
        return values[0]
    return "".join(value if isinstance(value, str) else json.dumps(value, default=str) for value in values)


def literal(value: Any) -> Any:
    """Return a message as a recording has it when nothing in it is a placeholder."""
    return mapped(value, lambda item, _: written([item]) if isinstance(item, str) else item)


# --- where the protocol has values that change with every run -----------------------------------------------------


_RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
_VOLATILE: Final = [
    (read_path(path), kind, owner, only)
    for path, kind, owner, only in (
        # The server cancels its own requests, and ends subscriptions, which are the client's.
        ("$.params.requestId", "id", "sender", "notifications/cancelled"),
        (f"$.params.{PROGRESS_TOKEN}", "progress", "receiver", "notifications/progress"),
        (f"$.params._meta.{PROGRESS_TOKEN}", "progress", "sender", None),
        (f"$.*._meta['{SUBSCRIPTION_ID}']", "id", "client", None),
        (f"$.*._meta['{REQUEST}']", "id", "client", "server"),
        (f"$.*._meta['{_RELATED_TASK}'].taskId", "task", "sender", None),
        ("$.*.requestState", "state", "sender", None),
        ("$.params.cursor", "cursor", "sender", None),
        ("$.result.nextCursor", "cursor", "sender", None),
        ("$.params.elicitationId", "elicitation", "sender", None),
        ("$.result.inputRequests.*.params.elicitationId", "elicitation", "sender", None),
        ("$.*.taskId", "task", "sender", None),
        ("$.result.task.taskId", "task", "sender", None),
        ("$.result.tasks[*].taskId", "task", "sender", None),
    )
]
"""Where the protocol has such values, of what kind, whose they are, and the only method, or side, that has them."""


def volatile_in(message: JsonObject, side: Side) -> Iterator[tuple[Place, str, Any, Side]]:
    """Yield the protocol's own values that change with every run, in a message of this side.

    With each its place, its kind, and who made it: the same number may be an id of the client's and of the server's.
    """
    receiver: Side = "server" if side == "client" else "client"
    owners: dict[str, Side] = {"sender": side, "receiver": receiver, "client": "client"}
    method = message.get("method")
    if message.get("id") is not None:
        yield ("id",), "id", message["id"], side if method is not None else receiver
    for path, kind, owner, only in _VOLATILE:
        for place in places_of(path, message) if only in (None, method, side) else ():
            value = value_at(message, place)
            if type(value) in TYPES.get(kind, (str,)):
                yield place, kind, value, owners[owner]


# --- what placeholders stand for this time ------------------------------------------------------------------------


class Unbound:
    """The value of a placeholder that has none yet."""


UNBOUND: Final = Unbound()


class Bindings:
    """The values of placeholders in one run, by the entry that they belong to. Secrets belong to the whole run."""

    def __init__(self) -> None:
        self._values: defaultdict[int, dict[Ref, Any]] = defaultdict(dict)
        self._ids = itertools.count(1)
        self.time = "2000-01-01T00:00:00Z"

    def known(self, entry: int) -> Lookup:
        """Return a function that returns the value of a placeholder in an entry, or UNBOUND."""
        return lambda ref: self._values[_entry_of(ref, entry)].get(_local(ref), UNBOUND)

    def made(self, entry: int) -> Lookup:
        """Return a function that returns the value of a placeholder in an entry, a fresh one if it has none yet."""

        def lookup(ref: Ref) -> Any:
            if ref.kind == "time":
                return self.time
            owner = _entry_of(ref, entry)
            known = self._values[owner]
            if ref.kind == "secret":
                return known.get(ref, "secret")  # not bound: the other side may still send its own
            if _local(ref) not in known:
                known[_local(ref)] = self._fresh(ref, owner)
            return known[_local(ref)]

        return lookup

    def bind(self, entry: int, values: dict[Ref, Any]) -> None:
        for ref, value in values.items():
            self._values[_entry_of(ref, entry)][_local(ref)] = value

    def clear(self, entry: int) -> None:
        """Forget the values of an entry."""
        self._values.pop(entry, None)

    def swap(self, one: int, other: int) -> None:
        """Exchange the values of two entries."""
        self._values[one], self._values[other] = self._values[other], self._values[one]

    def _fresh(self, ref: Ref, entry: int) -> Any:
        """Return a value that is unique where the other side has to repeat it."""
        match ref.kind:
            case "id" | "progress":
                return next(self._ids)
            case "text":
                return f"text-{entry}-{ref.name}"
            case "number":
                return int(ref.name)
            case "boolean":
                return False
            case _:
                return f"{ref.kind}-{ref.name}-{secrets.token_urlsafe(18)}"


def _entry_of(ref: Ref, entry: int) -> int:
    return 0 if ref.kind == "secret" else ref.entry or entry


def _local(ref: Ref) -> Ref:
    return Ref(ref.kind, ref.name)
