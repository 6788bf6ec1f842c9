"""JSON-RPC 2.0: bytes to checked messages, and messages to bytes."""

import re
from functools import cache
from types import GenericAlias
from typing import Any, AnyStr, Final, TypeAlias

import msgspec

from antiphon.errors import InvalidRequest, ParseError, ProtocolError

RequestId: TypeAlias = int | str
Message: TypeAlias = dict[str, Any]

MAX_DEPTH = 64
"""Levels of nesting that a message may have. Anything deeper is an attack or an accident."""

LOOK = 256
"""Bytes at either end of a message in which `id_in` searches, for a message that cannot be decoded."""
_ID: Final = rb'"id"\s*:\s*(-?(?:0|[1-9][0-9]{0,18})|"[^"\\\x00-\x1f]*")\s*'
# Both match only members of the outermost object: one with nothing but plain members before it, one with only the end
# of the object after it.
_FIRST_ID: Final = re.compile(rb'\s*\{\s*(?:"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*,\s*)*' + _ID + rb",")
_LAST_ID: Final = re.compile(rb"[,{]\s*" + _ID + rb"\}\s*\Z")

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class TooDeep(InvalidRequest):
    """The message is nested too deeply; `id_in` may still find its id."""

    def __init__(self) -> None:
        super().__init__(f"The message is nested deeper than {MAX_DEPTH} levels")


def decode(body: bytes) -> Message:
    """Return the message in these bytes; raise ParseError or InvalidRequest if there is none."""
    try:
        message = _decode(body) if len(body) < _LONG else _decode_long(body)
    except UnicodeDecodeError:
        raise ParseError("The message is not valid UTF-8") from None
    except (msgspec.MsgspecError, ValueError) as fault:
        raise ParseError(f"The message is not valid JSON: {fault}") from None
    except RecursionError:
        raise TooDeep from None
    if type(message) is not dict:
        if type(message) is list:
            raise InvalidRequest("JSON-RPC batches are not supported: send each message by itself")
        raise InvalidRequest("A message must be a JSON object")
    if len(body) < _LONG:
        if len(body) - len(body.translate(None, b"{[")) > MAX_DEPTH:
            _check_depth(body, MAX_DEPTH)
    elif _is_whole(message, body):
        return message
    # A message that encodes to the same bytes again has no repeated keys: the decoder would have dropped them.
    again = encode(message)
    if again != body:
        _check_keys(body, again)
    return message


def decode_batch(body: bytes) -> list[Any]:
    """Return the messages of a batch (2025-03-26 only), each decoded but not checked."""
    try:
        messages = _decode(body)
    except (UnicodeDecodeError, msgspec.MsgspecError, ValueError, RecursionError) as fault:
        raise ParseError(f"The batch is not valid JSON: {fault}") from None
    if type(messages) is not list or not messages:
        raise InvalidRequest("A batch is a list of messages, and not an empty one")
    _check_depth(body, MAX_DEPTH + 1)
    _check_keys(body, encode(messages))
    if any(type(message) is not dict for message in messages):
        raise InvalidRequest("Each message of a batch must be a JSON object")
    return messages


# Long messages are mostly a few long strings, or many small values that are not nested deeply: both are told at less
# cost than a pass over the bytes.

_LONG: Final = 4096
"""Bytes from which on a message is long."""
_SHALLOW: Final = 8
_FEW: Final = 32


def _decode_long(body: bytes) -> Any:
    """Decode a long message, and raise TooDeep if it is nested too deeply."""
    if not _opens_more(body, MAX_DEPTH):
        return _decode(body)
    try:
        return _shallow_decoder().decode(body)
    except msgspec.ValidationError:
        message = _decode(body)
        if type(message) is dict:
            _check_depth(body, MAX_DEPTH)
        return message


@cache
def _shallow_decoder() -> msgspec.json.Decoder[Any]:
    """A decoder that refuses more than _SHALLOW levels, at no cost: its types, 5 ms to make, end there."""
    scalar: Any = str | int | float | bool | None
    value = scalar
    for _ in range(_SHALLOW):
        value = scalar | GenericAlias(dict, (str, value)) | GenericAlias(list, value)
    return msgspec.json.Decoder(value)


def _opens_more(body: bytes, most: int) -> bool:
    """Return whether there are more opening brackets than this, in strings or not."""
    for bracket in (b"{", b"["):
        at = body.find(bracket)
        while at >= 0:
            if not most:
                return True
            most -= 1
            at = body.find(bracket, at + 1)
    return False


def _is_whole(message: Message, body: bytes) -> bool:
    """Return whether no key was dropped, as far as that can be told from few values.

    Each key has a colon, so the body has as many colons as the message has keys, and colons in strings.
    """
    keys = colons = 0
    most = len(body) >> 7
    values: list[Any] = [message]
    for value in values:
        kind = type(value)
        if kind is str:
            colons += _count(value, ":")
        elif kind is dict or kind is list:
            if len(values) + 2 * len(value) > most:
                return False
            values += value
            if kind is dict:
                values += value.values()
                keys += len(value)
    if keys + colons != _count(body, b":"):
        return False
    return not (colons and b"\\" in body and rb"\u003" in body)  # a colon that is escaped could stand for a dropped key


def _count(text: AnyStr, mark: AnyStr) -> int:
    """Return `text.count(mark)`, which is slow to find nothing."""
    at = text.find(mark)
    for found in range(_FEW):
        if at < 0:
            return found
        at = text.find(mark, at + 1)
    return _FEW + (text.count(mark, at) if at >= 0 else 0)


def _check_depth(body: bytes, most: int) -> None:
    braces = _structure(body).replace(b":", b"")
    while braces:
        if not most:
            raise TooDeep
        braces = braces.replace(b"{}", b"")  # takes away the innermost level, and only that
        most -= 1


def _check_keys(body: bytes, again: bytes) -> None:
    """Raise InvalidRequest if an object in the body repeats a key; `again` is what was decoded, encoded.

    Parsers disagree on which of two equal keys counts, so a proxy and this server could see two different requests.
    The decoder keeps the last one. Each key has a colon: if there are fewer of them now, some were dropped.
    """
    # An escaped colon in a string would be counted in one of the two only.
    if b"\\" in body and rb"\u003" in body:
        body, again = _structure(body), _structure(again)
    if body.count(b":") != again.count(b":"):
        raise InvalidRequest("The message repeats a key within one object")


_BRACES: Final = bytes.maketrans(b"[]", b"{}")
_NO_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}:"'))


def _structure(text: bytes) -> bytes:
    """Return the brackets (as braces) and colons of valid JSON that are outside its strings."""
    if b"\\" in text:  # take away escaped backslashes, and then escaped quotes
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    text = text.translate(_BRACES, _NO_STRUCTURE).replace(b'""', b"")
    # Quotes side by side hold nothing, or separate strings: what is left in quotes is in strings still.
    return b"".join(text.split(b'"')[::2]) if b'"' in text else text


def check(message: Message) -> None:
    """Raise InvalidRequest unless the message is a well-formed request or notification."""
    if message.get("jsonrpc") != "2.0":
        raise InvalidRequest('The message must have "jsonrpc": "2.0"')
    method = message.get("method")
    if type(method) is not str:
        if is_response(message):
            raise InvalidRequest("This server sends no requests, so it accepts no responses")
        raise InvalidRequest('The message must have a "method" that is a string')
    if "id" in message:
        # 2026-07-28, basic, Requests: a string or an integer, never null.
        id_ = message["id"]
        if type(id_) is not int and type(id_) is not str:
            raise InvalidRequest('The "id" must be a string or an integer')
    elif not method.startswith("notifications/"):
        raise InvalidRequest(f'{method!r} is a request and needs an "id"')
    if type(message.get("params", _EMPTY)) is not dict:
        raise InvalidRequest('"params" must be an object')


_EMPTY: dict[str, Any] = {}


def id_of(message: object) -> RequestId | None:
    """Return the id for an error response, None if there is no valid one."""
    if isinstance(message, dict):
        id_ = message.get("id")
        if type(id_) is int or type(id_) is str:
            return id_
    return None


def is_response(message: Message) -> bool:
    return "method" not in message and ("result" in message or "error" in message)


def cancelled_id(message: Message) -> RequestId | None:
    """The id of the request that a ``notifications/cancelled`` is about, if one can be read."""
    params = message.get("params")
    id_ = params.get("requestId") if type(params) is dict else None
    return id_ if type(id_) is int or type(id_) is str else None


def id_in(start: bytes, end: bytes) -> RequestId | None:
    """Return the id of a message given its two ends; None unless it is found beyond doubt."""
    found = {match[1] for match in (_FIRST_ID.match(start), _LAST_ID.search(end)) if match is not None}
    if len(found) != 1:
        return None
    try:
        id_: RequestId = _decode(found.pop())
    except (msgspec.MsgspecError, ValueError):
        return None
    return id_


def result(id_: RequestId, value: object) -> Message:
    return {"jsonrpc": "2.0", "id": id_, "result": value}


def error(id_: RequestId | None, fault: ProtocolError) -> Message:
    body: Message = {"code": fault.code, "message": fault.message}
    if fault.data is not None:
        body["data"] = fault.data
    # basic, Error Responses: no id where none could be read; null is not allowed.
    return {"jsonrpc": "2.0", "error": body} if id_ is None else {"jsonrpc": "2.0", "id": id_, "error": body}


def notification(method: str, params: Message) -> Message:
    return {"jsonrpc": "2.0", "method": method, "params": params}
