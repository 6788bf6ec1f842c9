"""Answers as a test writes them down, and the responses that they stand for on the wire.

``{"confirm": True}`` is content to accept, ``True`` is the same for a form of one field, ``"decline"`` is an action, a
text answers a question to a model, and a list of URIs is roots. ``response_to`` reads them all.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, TypeGuard

import msgspec

from antiphon.client.answers import fitted
from antiphon.errors import CannotAnswer
from antiphon.types import Accepted, Cancelled, Declined, JsonObject, Root, Sample, Text

Kind: TypeAlias = Literal["form", "url", "sample", "roots"]

ACTIONS: Final = ("accept", "decline", "cancel")
_ABSENT: Final = object()


class AnswerUnfit(CannotAnswer):
    """An answer does not fit what was asked."""


def kind_of(request: JsonObject) -> Kind | None:
    """Return what kind of question a request is; None if the protocol has no such question."""
    method = request.get("method")
    if method == "elicitation/create":
        return "url" if params_of(request).get("mode") == "url" else "form"
    return "sample" if method == "sampling/createMessage" else "roots" if method == "roots/list" else None


def params_of(request: JsonObject) -> JsonObject:
    params = request.get("params")
    return params if isinstance(params, dict) else {}


def message_of(request: object) -> str:
    """Return what a request shows; empty if it shows nothing, or is no request."""
    message = params_of(request).get("message") if isinstance(request, dict) else None
    return message if isinstance(message, str) else ""


def fields_of(request: JsonObject) -> JsonObject:
    """Return the fields of a form by name; empty where there is no form."""
    schema = params_of(request).get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, dict) else None
    return fields if isinstance(fields, dict) else {}


def response_to(key: str, request: JsonObject, given: object) -> JsonObject:
    """Return the response that an answer stands for; AnswerUnfit if it does not fit the request.

    None, as of an empty value in YAML, fits nothing: it must not accept a URL, nor a form that has defaults.
    """
    if given is None:
        raise AnswerUnfit(f"The answer to {key!r} is empty: write what is answered, or accept or decline", key=key)
    kind = kind_of(request)
    if kind == "form":
        return _form(key, request, given)
    if kind == "url":
        return _url(key, given)
    if kind == "sample":
        return _sample(key, given)
    if kind == "roots":
        return {"roots": [_root(key, item) for item in _roots(key, given)]}
    raise AnswerUnfit(
        f"The server asks {request.get('method')!r} under {key!r}, which the protocol does not know", key=key
    )


def is_in_turn(given: object, request: JsonObject) -> TypeGuard[Sequence[object]]:
    """Return whether a list holds one answer for each time that the question comes, and is not itself the answer."""
    if not isinstance(given, list | tuple):
        return False
    if kind_of(request) == "roots":
        return any(isinstance(item, list | tuple) or (isinstance(item, dict) and "roots" in item) for item in given)
    fields = fields_of(request)
    if len(fields) == 1 and _is_list(*fields.values()):
        return any(not isinstance(item, str | int | float) for item in given) or (
            bool(given) and all(item in ACTIONS for item in given)
        )
    return True


def _is_list(field: object) -> bool:
    return isinstance(field, dict) and field.get("type") == "array"


def _form(key: str, request: JsonObject, given: object) -> JsonObject:
    fields = fields_of(request)
    action, content = _action(key, given, fields)
    if action != "accept":
        return {"action": action}
    if isinstance(given, dict) and content is not _ABSENT and content is given.get("content"):
        # A whole response goes as it is: how a server takes a wrong answer is worth a test.
        return {"action": "accept", "content": content}
    value = {} if content is _ABSENT else content
    if isinstance(value, Mapping):
        for name in value:
            if name not in fields:
                known = ", ".join(fields) or "no fields"
                raise AnswerUnfit(
                    f"The answer to {key!r} has {name!r}, and the form has no such field: it has {known}", key=key
                )
    schema = params_of(request).get("requestedSchema")
    try:
        return {"action": "accept", "content": fitted(value, schema if isinstance(schema, dict) else {}, key)}
    except CannotAnswer as fault:
        raise AnswerUnfit(str(fault), key=key) from None


def _action(key: str, given: object, fields: JsonObject) -> tuple[str, Any]:
    """Return the action and the content. A form that has a field called action is answered with its content."""
    if isinstance(given, Accepted):
        return "accept", given.value
    if isinstance(given, Declined | Cancelled):
        return given.action, _ABSENT
    if isinstance(given, str) and given in ACTIONS and not _is_option(given, fields):
        return given, _ABSENT
    if isinstance(given, dict) and "action" in given and given.keys() <= {"action", "content"}:
        if "action" in fields and "content" not in given:
            return "accept", given
        return _named(key, given["action"]), given.get("content", _ABSENT)
    return "accept", given


def _named(key: str, action: object) -> str:
    if not isinstance(action, str) or action not in ACTIONS:
        raise AnswerUnfit(f"The answer to {key!r} has the action {action!r}: it is accept, decline or cancel", key=key)
    return action


def _is_option(word: str, fields: JsonObject) -> bool:
    """Return whether the only field of the form offers a word that would otherwise be an action."""
    if len(fields) != 1:
        return False
    (field,) = fields.values()
    if not isinstance(field, dict):
        return False
    titled = [item.get("const") for item in field.get("oneOf") or () if isinstance(item, dict)]
    return word in (field.get("enum") or ()) or word in titled


def _url(key: str, given: object) -> JsonObject:
    action, content = _action(key, given, {})
    if content is _ABSENT or content is None or content is True:
        return {"action": action}
    raise AnswerUnfit(
        f"The answer to {key!r} must be accept, decline or cancel, since a URL is opened or not: got {given!r}", key=key
    )


def _sample(key: str, given: object) -> JsonObject:
    if isinstance(given, dict) and given.keys() == {"sample"}:
        given = given["sample"]
    if isinstance(given, str):
        given = Sample(role="assistant", content=Text(given), model="scripted", stop_reason="endTurn")
    try:
        return _builtins(given, Sample)
    except (TypeError, ValueError) as fault:
        raise AnswerUnfit(
            f"The answer to {key!r} must be what a model wrote: a text, or a whole result of sampling ({fault})",
            key=key,
        ) from None


def _roots(key: str, given: object) -> Sequence[object]:
    found = given.get("roots") if isinstance(given, dict) else given
    if not isinstance(found, list | tuple):
        raise AnswerUnfit(f"The answer to {key!r} must be roots, a list of URIs: got {given!r}", key=key)
    return found


def _root(key: str, item: object) -> JsonObject:
    if isinstance(item, str):
        return {"uri": item}
    try:
        return _builtins(item, Root)
    except (TypeError, ValueError) as fault:
        raise AnswerUnfit(f"The answer to {key!r} has a root that is none, {item!r}: {fault}", key=key) from None


def _builtins(value: object, type_: type[Sample | Root]) -> JsonObject:
    """Return a value of this type as JSON; raise ValueError or TypeError if it is none."""
    made: JsonObject = msgspec.to_builtins(value if isinstance(value, type_) else msgspec.convert(value, type_))
    return made


class Supply:
    """The answers under one name: the same every time, or a list with one for each time."""

    __slots__ = ("_is_whole", "given", "name", "used")

    def __init__(self, name: str, given: object) -> None:
        self.name = name
        self.given = given
        self.used = 0
        self._is_whole = False

    def peek(self, request: JsonObject) -> object:
        """Return the answer that ``take`` would give; IndexError when there is none left."""
        return self.given[self.used] if is_in_turn(self.given, request) else self.given

    def take(self, request: JsonObject) -> object:
        given = self.peek(request)
        self.used += 1
        # A list may be one answer itself: several choices, or roots.
        self._is_whole = not is_in_turn(self.given, request)
        return given

    @property
    def times(self) -> int | None:
        """How many answers there are; None for one that may be used any number of times."""
        return len(self.given) if isinstance(self.given, list | tuple) else None

    @property
    def is_spent(self) -> bool:
        """Whether all that was given was used."""
        return self.used >= (1 if self._is_whole else self.times or 1)


def again(key: str, supplies: Mapping[Any, Supply]) -> Supply | None:
    """Return the list for a key that one call asks several times: the server names it ``key-2``, ``key-3``."""
    base, _, number = key.rpartition("-")
    supply = supplies.get(base) if number.isdecimal() and len(number) < 6 else None
    if supply is None or supply.times is None:
        return None
    if not supply.used:
        # The call was resumed: the answers before this one were for the rounds before.
        supply.used = max(int(number) - 1, 0)
    return supply
