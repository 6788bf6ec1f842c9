"""Responses to questions, as the wire has them: filled in and checked before they count."""

import functools
import logging
from collections.abc import Callable

import msgspec

from antiphon.types import JsonObject

log = logging.getLogger("antiphon")

_SHORT = 4096
"""Bytes that a form's schema may have to be kept for the next time: servers choose it, and it outlives the client."""


def checked(request: JsonObject, response: object) -> JsonObject:
    """Return a response that fits the question, with defaults filled in; raise ValueError that says why it does not."""
    from antiphon.rounds.ask import of_wire  # with all shapes: 60 ms that a client without forms need not pay

    try:
        question = of_wire(request)
    except TypeError as fault:
        raise ValueError(str(fault)) from None
    given: JsonObject = response if type(response) is dict else {}
    if question.kind == "form" and given.get("action") == "accept":
        schema, content = question.params.get("requestedSchema"), given.get("content")
        if type(content) is not dict:
            raise ValueError("an accepted form has a content with its fields")
        return {"action": "accept", "content": filled(schema if type(schema) is dict else {}, content)}
    question.read(response)
    return {"action": given["action"]} if "action" in given else given


def filled(schema: JsonObject, content: JsonObject) -> JsonObject:
    """Return a form's content with its defaults; raise ValueError if it does not fit the form."""
    form = msgspec.json.encode(schema)
    return (_known_filler(form) if len(form) <= _SHORT else _filler(form))(content)


def _filler(schema: bytes) -> Callable[[JsonObject], JsonObject]:
    from antiphon.shapes import form_of, raw_shape  # 60 ms that a client without forms need not pay

    plain: JsonObject = msgspec.json.decode(schema)
    try:
        return form_of(plain).fill
    except TypeError:
        pass  # a form beyond what the protocol allows: the answer is held to its schema all the same, if it is one
    properties = plain.get("properties")
    fields = properties.items() if isinstance(properties, dict) else ()
    defaults = {name: field["default"] for name, field in fields if isinstance(field, dict) and "default" in field}
    try:
        check = raw_shape({"type": "object", **plain}).read
    except ValueError as fault:
        log.warning("a form's schema cannot be used, and the answers to it are not checked: %s", fault)
        return lambda content: {**defaults, **content}

    def fill(content: JsonObject) -> JsonObject:
        made: JsonObject = check({**defaults, **content})
        return made

    return fill


_known_filler = functools.lru_cache(maxsize=64)(_filler)
