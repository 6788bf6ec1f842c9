"""Answer the requests of older clients, whatever connection they came by."""

import asyncio
import logging
import os
import secrets
from typing import Any, Final, cast

import msgspec

from antiphon.errors import CannotAsk, InvalidParams, MethodNotFound, ProtocolError, ResourceNotFound
from antiphon.legacy.server.sessions import MAX_BYTES, MAX_URIS, Session
from antiphon.legacy.server.watches import Watches
from antiphon.rounds.client_loop import FIRST_PAUSE, LAST_PAUSE
from antiphon.rounds.journal import Conversation, Journal
from antiphon.server.dispatch import Service
from antiphon.server.era_dialect import Dialect
from antiphon.server.run import Channel, push_all
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
    PROGRESS_TOKEN,
    RESOURCE_NOT_FOUND,
    SERVER_INFO,
    UNSEALED,
    URL_REQUIRED,
    Method,
)

log = logging.getLogger("antiphon")

_FOREIGN: Final = Method()
_decode: Final = msgspec.json.Decoder().decode
_MODERN_MEMBERS: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
_MODERN_METHODS: Final = frozenset({"server/discover", "subscriptions/listen"})
_EMPTY: Final[JsonObject] = {}
_ALL: Final[JsonObject] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}
_NO_WAY_BACK: Final = (
    "This has to ask the user, and this connection has no way to: the client speaks an older revision of MCP, and the"
    " server keeps no sessions for those (legacy='stateless'). Use a client of revision 2026-07-28, or serve with"
    " legacy='sessions'."
)
_NO_SHIM: Final = (
    "This asks by returning its questions, which a client of an older revision cannot be given, and the server was made"
    " with shim=False. Use a client of revision 2026-07-28."
)


class Dispatcher:
    """Has a service answer the requests of older clients."""

    __slots__ = ("_service", "watches")

    def __init__(self, service: Service) -> None:
        self._service = service
        self.watches = Watches(service.mounts)

    async def welcome(self, message: Message, session: Session) -> bytes:
        """The reply to initialize."""
        log.info("a client of revision %s opened a session", session.revision)
        service = self._service
        await service.ready(LegacyRequest(session).accept({**message, "params": {}}))
        able = service.capabilities()
        result: JsonObject = {
            "protocolVersion": session.revision,
            # A client without a session cannot be told later what changed.
            "capabilities": able if session.id else {name: {} for name in able},
            "serverInfo": service.mounts.info or service.info,
        }
        instructions = service.mounts.instructions(service.instructions)
        if instructions is not None:
            result["instructions"] = instructions
        return encode(jsonrpc.result(message["id"], result))

    async def answer(
        self, message: Message, session: Session, channel: Channel, headers: RawHeaders | None = None
    ) -> bytes:
        """The reply to any other request."""
        service, of_session = self._service, _OF_SESSION.get(message["method"])
        if of_session is not None:
            try:
                of_session(session, message.get("params") or {})
            except ProtocolError as fault:
                return encode(jsonrpc.error(message["id"], fault))
            if message["method"] == "resources/subscribe" and service.mounts:
                self.watches.start(LegacyRequest(session).accept(message), message["params"]["uri"])
            elif message["method"] == "resources/unsubscribe":
                self.watches.stop(session.id, message["params"]["uri"])
            return encode(jsonrpc.result(message["id"], {}))
        if message["method"] in _MODERN_METHODS:
            gone = MethodNotFound(f"Method not found: {message['method']} (this session speaks {session.revision})")
            return encode(jsonrpc.error(message["id"], gone))
        return await self._run(message, session, channel, headers)

    async def _run(self, message: Message, session: Session, channel: Channel, headers: RawHeaders | None) -> bytes:
        """Run the handler until it is done, putting the questions that it returns to the client in between."""
        service, push = self._service, channel.push
        request = UnaskableRequest(session) if push is None else LegacyRequest(session)
        pause = FIRST_PAUSE
        for asked in range(service.max_rounds + 1):
            _, reply = await service.answer(message, channel, headers, session.principal, request)
            questions = request.questions
            if questions is None:
                assert reply is not None
                return reply
            if questions and push is None:
                return _unasked(message, session, questions)
            if not service.shim:
                log.error("%s %r asks by returning, and shim=False", message["method"], _target(message))
                return _failure(message, _NO_SHIM)
            if asked == service.max_rounds:
                break
            if questions and push is not None:
                try:
                    request.responses = await push_all(push, questions)
                except CannotAsk as fault:
                    return _failure(message, fault.message)
            else:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LAST_PAUSE)
                request.responses = {}
        log.error("%s %r still asked after %s rounds", message["method"], _target(message), service.max_rounds)
        return _failure(message, f"This asked {service.max_rounds} times and was not done, so the call ends here.")


class LegacyRequest(Call, Dialect):
    """One request of an older client: the call that the service answers, once for each round of its questions."""

    questions: JsonObject | None = None
    """What the last run ended with, if not with a result."""
    responses: JsonObject = _EMPTY
    """The answers to them, for the next run."""
    _sent: bytes
    """The parameters as they came: a run may change what it is given, and the next one starts from the same."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def accept(self, message: Message, headers: RawHeaders | None = None) -> Call:
        if self.talk is not None:
            self.talk.journal.round += 1
            self.talk = Conversation(self.talk.journal, self.responses, self.capabilities)
            self.params = _decode(self._sent)
            return self
        session = self._session
        params: Message = message.get("params") or {}
        given: Any = params.get("_meta")
        if given is not None and type(given) is not dict:
            raise InvalidParams('"params._meta" must be an object')
        meta: JsonObject = {} if given is None else dict(given)
        if type(meta.get(PROGRESS_TOKEN, "")) not in {int, str}:
            raise InvalidParams('"progressToken" must be a string or an integer')
        meta[CLIENT_INFO] = session.client
        meta[LOG_LEVEL] = session.level
        self.id = message["id"]
        self.method = method = message["method"]
        self.params = params
        self.meta = meta
        self.capabilities = session.capabilities
        self.principal = session.principal
        self.session = session.id
        self.headers = headers
        self.revision = session.revision
        self.row = row = UNSEALED.get(method, _FOREIGN)
        self.name = ""
        if row.target is not None:
            name = params.get(row.target)
            if type(name) is not str:
                raise InvalidParams(f'{method} needs "{row.target}", a string')
            self.name = name
        if row.asks:
            # These revisions know neither answers nor a state that come with the request.
            params.pop("inputResponses", None)
            params.pop("requestState", None)
            self._sent = encode(params)
        return self

    def encode(self, reply: Message) -> bytes:
        """The reply; nothing if the run ended with questions."""
        result: JsonObject = reply["result"]
        if result["resultType"] == "input_required":
            self.questions = result.get("inputRequests", _EMPTY)
            return b""
        self.questions = None
        told = {name: value for name, value in result.items() if name not in _MODERN_MEMBERS}
        meta = told.get("_meta")
        if type(meta) is msgspec.Raw:
            del told["_meta"]  # it only says which server this is
        elif type(meta) is dict:
            told["_meta"] = {name: value for name, value in meta.items() if name != SERVER_INFO}
        if self.method == "tools/call":
            # server/tools: structured content was an object before 2026-07-28, and so was what a schema says of it.
            if "structuredContent" in told and not _is_object(told["structuredContent"]):
                del told["structuredContent"]
        elif self.method == "tools/list" and type(told.get("tools")) is list:
            told["tools"] = [_listed(tool) for tool in told["tools"]]
        return encode(jsonrpc.result(self.id, told))

    def refuse(self, message: object, fault: ProtocolError) -> tuple[int, bytes]:
        self.questions = None
        if isinstance(fault, ResourceNotFound):
            fault = _NotFound(fault.message, data=fault.data)
        return super().refuse(message, fault)


class _NotFound(ProtocolError):
    code = RESOURCE_NOT_FOUND


class UnaskableRequest(LegacyRequest):
    """A request over a connection on which the client cannot be asked anything.

    What this client can do is not known. Its handler is told that it can do nothing; what the handler asks all the same
    is taken, so that the reply can say why there is no way to ask.
    """

    def accept(self, message: Message, headers: RawHeaders | None = None) -> Call:
        call = super().accept(message, headers)
        journal = Journal(os.urandom(12)) if call.talk is None else call.talk.journal
        call.talk = Conversation(journal, None, _ALL)
        return call


def _unasked(message: Message, session: Session, questions: JsonObject) -> bytes:
    """The end of a call whose questions cannot be asked."""
    pages = [question["params"] for question in questions.values() if question["params"].get("mode") == "url"]
    if not pages or len(pages) != len(questions) or not EARLIER[session.revision].modes:
        return _failure(message, _NO_WAY_BACK)
    # 2025-11-25, client/elicitation, URL Elicitation Required: pages can be named without a way back.
    needed = [{**page, "elicitationId": secrets.token_hex(12)} for page in pages]
    fault = {"code": URL_REQUIRED, "message": "The user has to open a page first", "data": {"elicitations": needed}}
    return encode({"jsonrpc": "2.0", "id": message["id"], "error": fault})


def _failure(message: Message, text: str) -> bytes:
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


def _target(message: Message) -> object:
    params: JsonObject = message.get("params") or {}
    return params.get("name") or params.get("uri")


# --- the methods of a session -----------------------------------------------------------------------------------------


def _ping(_: Session, __: JsonObject) -> None:
    """The empty result is the answer."""


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
"""Requests that change a session, and so must not be answered twice at once."""
_OF_SESSION: Final = {
    "ping": _ping,
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
}
