"""Find the values of a message that change with every run, and those that are secrets."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from antiphon.testing.json_paths import JsonPath, Step, read_path
from antiphon.types import JsonObject
from antiphon.wire.revisions import KEY, PROGRESS_TOKEN, REQUEST, SUBSCRIPTION_ID

Side: TypeAlias = Literal["client", "server"]
Place: TypeAlias = tuple[str | int, ...]
"""The steps from a message to a value in it."""

MAX_DEPTH: Final = 200
"""Levels of nesting that a message may have."""

# --- JSON values --------------------------------------------------------------------------------------------------


def params_of(message: JsonObject) -> JsonObject:
    """Return the params of a message; empty where they are no object."""
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def meta_of(message: JsonObject) -> JsonObject:
    """Return the ``_meta`` of a message's params; empty where there is none."""
    meta = params_of(message).get("_meta")
    return meta if isinstance(meta, dict) else {}


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


def texts_in(value: Any) -> Iterator[str]:
    """Yield all texts of a JSON value."""
    return (item for _, item in _leaves((), value) if isinstance(item, str))


def _at(value: Any, place: Place) -> Any:
    for step in place:
        value = value[step]
    return value


def _items(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def _inside(place: Place, value: Any) -> Iterator[tuple[Place, Any]]:
    yield place, value
    for step, item in _items(value):
        yield from _inside((*place, step), item)


def _leaves(place: Place, value: Any) -> Iterator[tuple[Place, Any]]:
    return ((inner, item) for inner, item in _inside(place, value) if not isinstance(item, dict | list))


def _places_of(path: JsonPath, message: JsonObject) -> list[Place]:
    """Return the places of a message that a path points at."""
    found: list[Place] = [()]
    for step, is_deep in path.steps:
        found = [
            (*top, name)
            for place in found
            for top, value in (_inside(place, _at(message, place)) if is_deep else [(place, _at(message, place))])
            for name, _ in _items(value)
            if _is_step(step, name, value)
        ]
    return found


def _is_step(step: Step, name: str | int, value: Any) -> bool:
    from_the_end = type(step) is int and isinstance(value, list) and step + len(value) == name
    return step is None or step == name or from_the_end


# --- values that change with every run ----------------------------------------------------------------------------

TYPES: Final[dict[str, tuple[type, ...]]] = {
    "id": (str, int),
    "progress": (str, int, float),
    "secret": (str, int, float),
    "integer": (int,),
    "number": (float, int),
    "boolean": (bool,),
}
"""The types of a placeholder's values, by its kind; the others are texts."""


class Volatile(NamedTuple):
    """A value that changes with every run."""

    place: Place
    kind: str
    value: Any
    owner: Side
    """Who made it: the same number may be an id of the client's and one of the server's."""


_RELATED_TASK: Final = "io.modelcontextprotocol/related-task"
_VOLATILE: Final = [
    (read_path(path), kind, owner, only)
    for path, kind, owner, only in (
        # The server cancels its own requests, and ends subscriptions, which are the client's.
        ("$.params.requestId", "id", "sender", "notifications/cancelled"),
        (f"$.params.{PROGRESS_TOKEN}", "progress", "receiver", "notifications/progress"),
        (f"$.params._meta.{PROGRESS_TOKEN}", "progress", "sender", None),
        (f"$.params._meta['{SUBSCRIPTION_ID}']", "id", "client", None),
        (f"$.params._meta['{REQUEST}']", "id", "client", "server"),
        (f"$.params._meta['{_RELATED_TASK}'].taskId", "task", "sender", None),
        ("$.params.requestState", "state", "sender", None),
        ("$.params.cursor", "cursor", "sender", None),
        ("$.params.elicitationId", "elicitation", "sender", None),
        ("$.params.taskId", "task", "sender", None),
        (f"$.result._meta['{SUBSCRIPTION_ID}']", "id", "client", None),
        (f"$.result._meta['{REQUEST}']", "id", "client", "server"),
        (f"$.result._meta['{_RELATED_TASK}'].taskId", "task", "sender", None),
        ("$.result.requestState", "state", "sender", None),
        ("$.result.nextCursor", "cursor", "sender", None),
        ("$.result.taskId", "task", "sender", None),
        ("$.result.inputRequests.*.params.elicitationId", "elicitation", "sender", None),
        ("$.result.task.taskId", "task", "sender", None),
        ("$.result.tasks[*].taskId", "task", "sender", None),
    )
]
"""Where the protocol has such values, of what kind, whose they are, and the only method, or side, that has them."""


def volatile_in(message: JsonObject, side: Side) -> Iterator[Volatile]:
    """Yield the protocol's own values that change with every run, in a message of this side."""
    receiver: Side = "server" if side == "client" else "client"
    owners: dict[str, Side] = {"sender": side, "receiver": receiver, "client": "client"}
    method = message.get("method")
    if message.get("id") is not None:
        yield Volatile(("id",), "id", message["id"], side if method is not None else receiver)
    for path, kind, owner, only in _VOLATILE:
        for place in _places_of(path, message) if only in (None, method, side) else ():
            value = _at(message, place)
            if type(value) in TYPES.get(kind, (str,)):
                yield Volatile(place, kind, value, owners[owner])


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


_WORDS: Final = frozenset(
    {"jsonrpc", "method", "type", "role", "mode", "action", "resultType", "mimeType", "protocolVersion", "level"}
    | {"cacheScope", "name", "uri", "uriTemplate", "supportedVersions", "required", "format", "$schema", "$ref"}
)
"""Fields that say which message it is, what it is about, and of what kind; not what it says."""


def is_protocols(place: Place) -> bool:
    """Return whether the protocol defines what a field says, or names things by it."""
    for step, below in pairwise(place):
        if step in {"structuredContent", "data"} or (step in {"arguments", "content"} and isinstance(below, str)):
            return False  # the user's own, whatever it is called
    return next((step for step in reversed(place) if isinstance(step, str)), None) in _WORDS


# --- fields that the user lists -----------------------------------------------------------------------------------

_QUESTIONS: Final = frozenset({("result", "inputRequests"), ("params", "inputResponses")})
"""Objects whose keys are the names of questions, not of fields."""


class TextField(NamedTuple):
    """A value in a JSON text: where it begins and ends, without quotes."""

    name: str
    value: Any
    start: int
    end: int


class FieldSelector:
    """Selects values by a path such as ``$.result.structuredContent.id``, or by the name of their field."""

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
        """Return whether fields of this name are selected."""
        return isinstance(name, str) and name.lower() in self._names

    def find(self, message: JsonObject, key: str | None = None) -> Iterator[tuple[Place, Any]]:
        """Yield the scalars that are selected, and those within objects and lists that are.

        ``key`` is that of the question which the message answers.
        """
        seen: set[Place] = set()
        answer = [("result",)] if key in self and isinstance(message.get("result"), dict) else []
        for root in (*self._contents(message, answer), *self._roots(message)):
            for place, value in _leaves(root, _at(message, root)):
                if place not in seen:
                    seen.add(place)
                    yield place, value

    def find_in_text(self, text: str) -> Iterator[TextField]:
        """Yield the scalars of a JSON text that are selected by name."""
        for place, start, end in _scalars(text):
            name = next((step for step in reversed(place) if step in self), None)
            if name is not None:
                value = json.loads(text[start:end])
                yield TextField(str(name), value, *((start + 1, end - 1) if isinstance(value, str) else (start, end)))

    def _contents(self, message: JsonObject, answers: Iterable[Place]) -> Iterator[Place]:
        """Yield what was filled in, of the answers to questions that are selected."""
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
            yield from _places_of(path, message)


_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},]|[^\s\[\]{},:"]+', re.DOTALL)


def _scalars(text: str) -> Iterator[tuple[Place, int, int]]:
    """Yield the scalars of a text that is a JSON object or list: their place in it, and where they begin and end."""
    if not text.lstrip().startswith(("{", "[")) or _parsed(text) is None:
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


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# --- secrets ------------------------------------------------------------------------------------------------------

HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key"})
FIELDS: Final = (
    *("password", "passwd", "passphrase", "secret", "token", "authorization", "apiKey", "api_key", "api-key"),
    *("clientSecret", "client_secret", "secretKey", "secret_key", "privateKey", "private_key"),
    *("accessToken", "access_token", "refreshToken", "refresh_token", "sessionToken", "session_token"),
    *("authToken", "auth_token", "bearerToken", "bearer_token", "idToken", "id_token"),
)
"""Fields whose values are secrets wherever they are; the case does not matter."""
LEAST: Final = 4
"""Characters that a secret must have to be looked for in other texts as well."""
LONG: Final = 8
"""Characters from which on it is looked for whatever it is: shorter texts are equal by chance."""
_DEPTH: Final = 2
"""How often a secret may have been written as a JSON string: a result as JSON text, and that within another one."""


class Redaction:
    """The secrets of a conversation: fields and headers by name, and every text that repeats their values."""

    def __init__(self, named: Iterable[str] = ()) -> None:
        named = list(named)
        self._selected = FieldSelector([*FIELDS, *named])
        self._headers = HEADERS | {name.lower() for name in named}
        self._names: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._used: set[str] = set()
        self.values: dict[str, str] = {}
        """What to look for in texts, in all its forms, with the names."""

    def learn(self, message: JsonObject, headers: Mapping[str, str], key: str | None = None) -> None:
        """Remember the secrets of a message, to find them wherever else they are.

        ``key`` is that of the question which the message answers.
        """
        for place, value in self._found(message, key):
            self.learn_value(self._base(place, key), value)
        for text in texts_in(message):
            self.learn_text(text)
        for name, value in self.headers_in(headers).items():
            for base, part in header_secrets(name, value).items():
                self.learn_value(base, part)

    def learn_text(self, text: str, depth: int = _DEPTH) -> None:
        """Remember the secrets of a JSON text."""
        for field in self.fields(text):
            self.learn_value(field.name, field.value)
        if depth and '\\"' in text:
            for inner in texts_in(_parsed(text)):
                self.learn_text(inner, depth - 1)

    def learn_value(self, base: str, value: object) -> None:
        """Remember a secret under a name."""
        text = str(value)
        name = self._named(_plain(base), text)
        if _is_findable(text):
            for form in forms(text):
                self.values.setdefault(form, name)

    def places(self, message: JsonObject, key: str | None = None) -> Iterator[tuple[Place, str]]:
        """Yield where a message has secrets, and their names."""
        return ((place, self._named(self._base(place, key), str(value))) for place, value in self._found(message, key))

    def fields(self, text: str) -> Iterator[TextField]:
        """Yield where a JSON text has secrets, and their names."""
        for field in self._selected.find_in_text(text):
            if _is_secret(field.value):
                yield field._replace(name=self._named(_plain(field.name), str(field.value)))

    def headers_in(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers that are secrets."""
        return {name.lower(): value for name, value in headers.items() if name.lower() in self._headers}

    def _found(self, message: JsonObject, key: str | None) -> Iterator[tuple[Place, Any]]:
        for place, value in self._selected.find(message, key):
            if _is_secret(value) and not _in_schema(place) and (place[-1] == "uri" or not is_protocols(place)):
                yield place, value

    def _base(self, place: Place, key: str | None) -> str:
        """Return the name of a secret: that of its field, or of the question that it answers."""
        names = [step for step in place if isinstance(step, str)]
        if place[:2] == ("params", "inputResponses"):
            key = str(place[2])
        is_answer = key in self._selected and names[-1] not in self._selected
        return _plain(str(key) if is_answer else names[-1])

    def _named(self, base: str, text: str) -> str:
        """Return one name for one value: another value of the same field is ``password-2``."""
        if (base, text) not in self._names:
            number = self._counts[base] = self._counts.get(base, 0) + 1
            name = base if number == 1 else f"{base}-{number}"
            while name in self._used:
                name = f"{name}-2"
            self._used.add(name)
            self._names[base, text] = name
        return self._names[base, text]


def wherever(secret: str) -> str:
    """Return an expression that finds a secret; a short one as a whole word only."""
    return re.escape(secret) if len(secret) >= LONG else rf"(?<!\w){re.escape(secret)}(?!\w)"


def forms(text: str) -> list[str]:
    """Return a text as it is, and as it stands in JSON."""
    made = {text: None}
    for _ in range(_DEPTH):
        for each in list(made):
            made[json.dumps(each)[1:-1]] = made[json.dumps(each, ensure_ascii=False)[1:-1]] = None
    return list(made)


def header_secrets(name: str, value: str) -> dict[str, str]:
    """Return a header's value, and its parts that are secret by themselves: ``Bearer x``, ``a=x; b=y``."""
    made = {name.lower(): value}
    pieces = [piece for piece in re.split(r"[;,\s]+", value) if piece]
    if len(pieces) > 1 and "=" not in pieces[0].rstrip("="):
        pieces = pieces[1:]  # the scheme: Bearer, Basic
    for number, piece in enumerate(pieces, 1):
        known, sign, given = piece.partition("=")
        part = given.strip('"') if sign and given.strip("=") else piece
        suffix = _plain(known) if part is not piece else ("credentials" if number == 1 else f"credentials{number}")
        if part != value:
            made[f"{name.lower()}.{suffix}"] = part
    return made


def _is_findable(secret: str) -> bool:
    """Return whether a secret can be told from a text that happens to say the same: a short word cannot."""
    is_word = secret.isalpha() and secret in {secret.lower(), secret.upper(), secret.capitalize()}
    return len(secret) >= LONG or (len(secret) >= LEAST and not is_word)


def _is_secret(value: object) -> bool:
    return (isinstance(value, str) and value != "") or type(value) in {int, float}


def _in_schema(place: Place) -> bool:
    """Return whether a place is in a schema, which only describes passwords."""
    return not {"inputSchema", "outputSchema", "requestedSchema"}.isdisjoint(place)


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name) or "value"
