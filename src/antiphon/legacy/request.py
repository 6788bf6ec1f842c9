"""One request of an older client: accepted in its words, answered in its words."""

import os
from typing import Any, Final

import msgspec

from antiphon.errors import InvalidParams, ProtocolError, ResourceNotFound
from antiphon.legacy.revisions import RESOURCE_NOT_FOUND
from antiphon.legacy.session import Session
from antiphon.protocol.accept import Call
from antiphon.rounds.replay import Conversation, Journal
from antiphon.server.context import Context
from antiphon.server.tools import error_result
from antiphon.types import JsonObject
from antiphon.wire import jsonrpc
from antiphon.wire.headers import RawHeaders
from antiphon.wire.jsonrpc import Message, encode
from antiphon.wire.rev2026 import CLIENT_INFO, LOG_LEVEL, METHODS, PROGRESS_TOKEN, SERVER_INFO, Method

_FOREIGN: Final = Method()
_MODERN: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
"""Members of results that came later."""
_EMPTY: Final[JsonObject] = {}
_ALL: Final[JsonObject] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}


class Request:
    """A request on its way through the service, as often as its questions need it to go."""

    __slots__ = ("_ctx", "_headers", "_session", "questions", "responses")

    def __init__(self, session: Session, headers: RawHeaders | None) -> None:
        self._session = session
        self._headers = headers
        self._ctx: Context | None = None
        self.questions: JsonObject | None = None
        """What the last run ended with, if not with a result."""
        self.responses: JsonObject = _EMPTY

    def accept(self, message: Message) -> Call:
        session = self._session
        method: str = message["method"]
        params: Message = message.get("params") or {}
        given: Any = params.get("_meta")
        if given is not None and type(given) is not dict:
            raise InvalidParams('"params._meta" must be an object')
        meta: JsonObject = {} if given is None else dict(given)
        if type(meta.get(PROGRESS_TOKEN, "")) not in {int, str}:
            raise InvalidParams('"progressToken" must be a string or an integer')
        meta[CLIENT_INFO] = session.client
        meta[LOG_LEVEL] = session.level
        call = Call()
        call.id = message["id"]
        call.method = method
        call.params = params
        call.meta = meta
        call.capabilities = session.capabilities
        call.headers = self._headers
        call.revision = session.revision
        call.row = row = METHODS.get(method, _FOREIGN)
        call.name = ""
        if row.target is not None:
            name = params.get(row.target)
            if type(name) is not str:
                raise InvalidParams(f'{method} needs "{row.target}", a string')
            call.name = name
        return call

    def carry(self, ctx: Context) -> None:
        before, self._ctx = self._ctx, ctx
        if before is not None and before._talk is not None:
            journal = before._talk.journal
            journal.round += 1
            ctx._talk = Conversation(journal, self.responses, ctx._call.capabilities)
        elif ctx._call.row.asks:
            # These revisions know no answers that come with the request.
            ctx._call.params.pop("inputResponses", None)

    def reply(self, call: Call, result: JsonObject) -> bytes:
        if result["resultType"] == "input_required":
            self.questions = result.get("inputRequests", _EMPTY)
            return b""
        self.questions = None
        return self.encoded(call, result)

    def encoded(self, call: Call, result: JsonObject) -> bytes:
        told = {name: value for name, value in result.items() if name not in _MODERN}
        meta = told.get("_meta")
        if type(meta) is msgspec.Raw:
            del told["_meta"]  # it only says which server this is
        elif type(meta) is dict:
            told["_meta"] = {name: value for name, value in meta.items() if name != SERVER_INFO}
        if call.method == "tools/call":
            # server/tools: structured content was an object before 2026-07-28, and so was what a schema says of it.
            if "structuredContent" in told and not _is_object(told["structuredContent"]):
                del told["structuredContent"]
        elif call.method == "tools/list" and type(told.get("tools")) is list:
            told["tools"] = [_listed(tool) for tool in told["tools"]]
        return encode({"jsonrpc": "2.0", "id": call.id, "result": told})

    def refuse(self, message: object, fault: ProtocolError) -> bytes:
        self.questions = None
        error = jsonrpc.error(jsonrpc.id_of(message), fault)
        if isinstance(fault, ResourceNotFound):
            error["error"]["code"] = RESOURCE_NOT_FOUND
        try:
            return encode(error)
        except (TypeError, ValueError, OverflowError, RecursionError):
            return encode(jsonrpc.error(jsonrpc.id_of(message), ProtocolError("Internal error")))


class Voiceless(Request):
    """A request over a connection on which the client cannot be asked anything."""

    def carry(self, ctx: Context) -> None:
        # Nobody has told what this client can do. Its handler hears that it can do nothing; what it asks all the same
        # is taken, so that it can be told why there is no way to ask.
        super().carry(ctx)
        journal = Journal(os.urandom(12)) if ctx._talk is None else ctx._talk.journal
        ctx._talk = Conversation(journal, None, _ALL)


def failure(message: Message, text: str) -> bytes:
    """The end of a call that cannot go on: as a result that a model reads, where there is such a thing."""
    if message["method"] == "tools/call":
        return encode(jsonrpc.result(message["id"], error_result(text)))
    return encode(jsonrpc.error(message["id"], ProtocolError(text)))


def _is_object(value: object) -> bool:
    return type(value) is dict or isinstance(value, msgspec.Struct) or hasattr(value, "__dataclass_fields__")


def _listed(tool: JsonObject) -> JsonObject:
    schema = tool.get("outputSchema")
    if schema is None or schema.get("type") == "object":
        return tool
    return {name: value for name, value in tool.items() if name != "outputSchema"}
