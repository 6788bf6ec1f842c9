"""The Desk: answers the requests of an older client, whatever connection they came by."""

import asyncio
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias, cast

import msgspec

from antiphon.errors import CannotAsk, InvalidParams, MethodNotFound, ProtocolError, ResourceNotFound
from antiphon.legacy.server.sessions import MAX_BYTES, MAX_URIS, Session, welcome
from antiphon.rounds.journal import Conversation, Journal
from antiphon.rounds.loop import FIRST_PAUSE, LAST_PAUSE
from antiphon.server.context import Channel, Context
from antiphon.server.dispatch import Service
from antiphon.server.tools import error_result
from antiphon.types import LOG_LEVELS, JsonObject, LogLevel
from antiphon.wire import jsonrpc
from antiphon.wire.call import Call
from antiphon.wire.headers import RawHeaders
from antiphon.wire.jsonrpc import Message, encode
from antiphon.wire.revisions import (
    CLIENT_INFO,
    EARLIER,
    LOG_LEVEL,
    METHODS,
    PROGRESS_TOKEN,
    RESOURCE_NOT_FOUND,
    SERVER_INFO,
    URL_REQUIRED,
    Method,
)

# One request of an older client: accepted in its words, answered in its words.


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


log = logging.getLogger("antiphon")

Push: TypeAlias = Callable[[str, JsonObject], Awaitable[object]]

_NO_WAY_BACK: Final = (
    "This has to ask the user, and this connection has no way to: the client speaks an older revision of MCP, and the"
    " server keeps no sessions for those (legacy='stateless'). Use a client of revision 2026-07-28, or serve with"
    " legacy='sessions'."
)
_NO_SHIM: Final = (
    "This asks by returning its questions, which a client of an older revision cannot be given, and the server was made"
    " with shim=False. Use a client of revision 2026-07-28."
)
_MODERN_ONLY: Final = frozenset({"server/discover", "subscriptions/listen"})


class Way(Channel, Protocol):
    """A channel on which the client can be asked, unless ``push`` is None."""

    @property
    def push(self) -> Push | None: ...


class Desk:
    """Requests of older clients, answered by a service."""

    __slots__ = ("_service",)

    def __init__(self, service: Service) -> None:
        self._service = service

    def welcome(self, message: Message, session: Session) -> bytes:
        log.info("a client of revision %s opened a session", session.revision)
        return encode(jsonrpc.result(message["id"], welcome(self._service, session)))

    async def answer(self, message: Message, session: Session, way: Way, headers: RawHeaders | None = None) -> bytes:
        """The reply to a request."""
        small = _SMALL.get(message["method"])
        if small is not None:
            try:
                small(session, message.get("params") or {})
            except ProtocolError as fault:
                return encode(jsonrpc.error(message["id"], fault))
            return encode(jsonrpc.result(message["id"], {}))
        if message["method"] in _MODERN_ONLY:
            gone = MethodNotFound(f"Method not found: {message['method']} (this session speaks {session.revision})")
            return encode(jsonrpc.error(message["id"], gone))
        return await self._run(message, session, way, headers)

    async def _run(self, message: Message, session: Session, way: Way, headers: RawHeaders | None) -> bytes:
        """Run the handler until it is done, putting the questions that it returns to the client in between."""
        service, principal = self._service, session.principal
        request = Voiceless(session, headers) if way.push is None else Request(session, headers)
        pause = FIRST_PAUSE
        for asked in range(service.max_rounds + 1):
            _, reply = await service.answer(message, way, headers, principal, request)
            questions = request.questions
            if questions is None:
                assert reply is not None
                return reply
            if questions and way.push is None:
                return _without_way_back(message, session, questions)
            if not service.shim:
                log.error("%s %r asks by returning, and shim=False", message["method"], _target(message))
                return failure(message, _NO_SHIM)
            if asked == service.max_rounds:
                break
            if questions and way.push is not None:
                try:
                    request.responses = await _all(way.push, questions)
                except CannotAsk as fault:
                    return failure(message, fault.message)
            else:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LAST_PAUSE)
                request.responses = {}
        log.error("%s %r still asked after %s rounds", message["method"], _target(message), service.max_rounds)
        return failure(message, f"This asked {service.max_rounds} times and was not done, so the call ends here.")


async def _all(push: Push, questions: JsonObject) -> JsonObject:
    """The answers to all questions of a round, which are asked at once."""
    if len(questions) == 1:
        ((name, wire),) = questions.items()
        return {name: await push(name, wire)}
    try:
        async with asyncio.TaskGroup() as group:
            asked = {name: group.create_task(_awaited(push(name, wire))) for name, wire in questions.items()}
    except BaseExceptionGroup as faults:
        cannot = faults.subgroup(CannotAsk)
        if cannot is None:
            raise
        raise cannot.exceptions[0] from None
    return {name: task.result() for name, task in asked.items()}


async def _awaited(response: Awaitable[object]) -> object:
    return await response


def _without_way_back(message: Message, session: Session, questions: JsonObject) -> bytes:
    pages = [question["params"] for question in questions.values() if question["params"].get("mode") == "url"]
    if not pages or len(pages) != len(questions) or not EARLIER[session.revision].modes:
        return failure(message, _NO_WAY_BACK)
    # 2025-11-25, client/elicitation, URL Elicitation Required: pages can be named without a way back.
    needed = [{**page, "elicitationId": secrets.token_hex(12)} for page in pages]
    fault = {"code": URL_REQUIRED, "message": "The user has to open a page first", "data": {"elicitations": needed}}
    return encode({"jsonrpc": "2.0", "id": message["id"], "error": fault})


def _target(message: Message) -> object:
    params: JsonObject = message.get("params") or {}
    return params.get("name") or params.get("uri")


# --- what only a session knows ----------------------------------------------------------------------------------------


def _ping(_: Session, __: JsonObject) -> None:
    """Being answered is all."""


def _set_level(session: Session, params: JsonObject) -> None:
    level = params.get("level")
    if type(level) is not str or level not in LOG_LEVELS:
        raise InvalidParams(f'logging/setLevel needs "level", one of {", ".join(LOG_LEVELS)}')
    session.level = cast("LogLevel", level)


def _subscribe(session: Session, params: JsonObject) -> None:
    uri = _uri(params, "resources/subscribe")
    if not session.id:
        raise MethodNotFound("Method not found: resources/subscribe (this server keeps no sessions)")
    if uri in session.uris:
        return
    if len(session.uris) >= MAX_URIS or sum(map(len, session.uris)) + len(uri) > MAX_BYTES:
        raise InvalidParams(f"A session may subscribe to at most {MAX_URIS} resources of {MAX_BYTES} letters in all")
    session.uris = [*session.uris, uri]


def _unsubscribe(session: Session, params: JsonObject) -> None:
    uri = _uri(params, "resources/unsubscribe")
    session.uris = [other for other in session.uris if other != uri]


def _uri(params: JsonObject, method: str) -> str:
    uri = params.get("uri")
    if type(uri) is not str:
        raise InvalidParams(f'{method} needs "uri", a string')
    return uri


CHANGING: Final = frozenset({"logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
"""What changes a session, and so must not happen twice at once."""
_SMALL: Final = {
    "ping": _ping,
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
}
