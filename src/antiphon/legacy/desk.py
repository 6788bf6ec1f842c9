"""The Desk: answers the requests of an older client, whatever connection they came by."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias, cast

from antiphon.errors import CannotAsk, InvalidParams, MethodNotFound, ProtocolError
from antiphon.legacy.request import Request, Voiceless, failure
from antiphon.legacy.revisions import URL_REQUIRED, knows_modes
from antiphon.legacy.session import MAX_BYTES, MAX_URIS, Session, welcome
from antiphon.protocol.loop import FIRST_PAUSE, LAST_PAUSE
from antiphon.server.context import Channel
from antiphon.server.service import Service
from antiphon.types import LOG_LEVELS, JsonObject, LogLevel
from antiphon.wire import jsonrpc
from antiphon.wire.headers import RawHeaders
from antiphon.wire.jsonrpc import Message, encode

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
    if not pages or len(pages) != len(questions) or not knows_modes(session.revision):
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
