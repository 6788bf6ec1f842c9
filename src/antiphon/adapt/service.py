"""The service inside another library's server: a middleware that keeps the conversations of its calls.

It takes the place of the library's own boundary for ``requestState``. What a handler asks by returning, as declared
questions do, passes through the same journal and under the same seal.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, authenticated_principal
from mcp.server.runner import modern_error_data, modern_on_request
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.transport_context import TransportContext
from mcp_types.methods import is_input_required
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from antiphon.adapt.effects import acts_before_asking
from antiphon.adapt.session import AskingSession, ElsewhereSession, PushingSession, let_fastmcp_ask
from antiphon.adapt.versions import check_mcp
from antiphon.errors import CannotAsk, InvalidRequest, ProtocolError, StateRefused, UnstableQuestion
from antiphon.rounds.ask import supports
from antiphon.rounds.journal import RoundEnds, raw_input_required
from antiphon.rounds.token import Codec, Seal, SignedState
from antiphon.server.dispatch import Service, as_error
from antiphon.server.elsewhere import Elsewhere
from antiphon.server.era_dialect import MODERN, Dialect
from antiphon.server.handler import raw_params, take_end, take_return
from antiphon.server.run import Channel, Run
from antiphon.server.tools import error_result
from antiphon.stores.store import Store
from antiphon.types import JsonObject
from antiphon.wire import jsonrpc
from antiphon.wire.call import Call
from antiphon.wire.headers import RawHeaders
from antiphon.wire.jsonrpc import Message
from antiphon.wire.revisions import CLIENT_CAPABILITIES, METHODS, PROGRESS_TOKEN, REVISION, SERVER_INFO, Method

log = logging.getLogger("antiphon")

Next: TypeAlias = Callable[[Any], Awaitable[Any]]


def adapt(server: Any, **how: Any) -> None:
    """Put an Adapted service into the middleware of a server; TypeError if it is none of those that are known."""
    low: Any = getattr(server, "_mcp_server", None) or getattr(server, "_lowlevel_server", server)
    if not isinstance(low, Server):
        raise TypeError(f"awaited() takes an MCPServer or a Server of mcp, or a FastMCP; got {server!r}")
    check_mcp(low)
    if hasattr(server, "_mcp_server"):
        let_fastmcp_ask()
    chain: list[Any] = low.middleware
    if any(isinstance(link, Adapted) for link in chain):
        raise ValueError(f"The server {low.name!r} was given to awaited() before")
    theirs = [index for index, link in enumerate(chain) if isinstance(link, RequestStateBoundary)]
    boundary = chain[theirs[0]] if theirs else None
    ours = Adapted(server, low, boundary, **how)
    if theirs:
        chain[theirs[0]] = ours
    else:
        chain.append(ours)


class Adapted(Service):
    """The conversations of another library's server."""

    def __init__(
        self,
        server: Any,
        low: Server[Any],
        boundary: Any,
        *,
        seal: Seal | SignedState | Codec | None,
        store: Store | None,
        elsewhere: Elsewhere | None,
    ) -> None:
        audience = getattr(boundary, "_audience", None) or low.name
        super().__init__(audience, seal=seal, store=store, elsewhere=elsewhere, lifespan=lambda _: self._theirs())
        self.original = server
        self._low = low
        policy = getattr(boundary, "_security", None)
        bind = authenticated_principal if policy is None else policy.bind_principal
        self._principal: Callable[[Any], str | None] = bind or (lambda _: None)
        self._looked = False
        self._known: dict[str, Callable[..., Any]] = {}

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: Next) -> Any:
        """The middleware."""
        if not self._looked:
            self._looked = True
            await self._warn_of_acts()
        row = METHODS.get(ctx.method)
        if row is None or not row.asks or ctx.request_id is None:
            return await call_next(ctx)
        call = _call(ctx, row)
        run = Run(self, call, Channel())
        is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        try:
            if call.params.get("requestState") is not None:
                if not is_modern:
                    raise StateRefused  # an older client was never given one: handlers take it for their own
                call.principal = self._principal(ctx)
                await self.tokens.open(run, self.store, again=self.observer is not None)
            return await self._served(run, ctx, call_next, is_modern=is_modern)
        except (ProtocolError, CannotAsk, UnstableQuestion) as fault:
            if isinstance(fault, CannotAsk) and ctx.method == "tools/call" and not is_modern:
                return error_result(fault.message)
            error = as_error(fault, run)
            raise MCPError(error.code, error.message, error.data) from None
        finally:
            run.over = True

    async def _served(self, run: Run, ctx: ServerRequestContext[Any, Any], call_next: Next, *, is_modern: bool) -> Any:
        """The result of a request: of its handler, or what ends its round."""
        meta: JsonObject = {}
        kind = AskingSession if is_modern else ElsewhereSession
        converse = partial(self._converse, ctx, call_next, kind, meta)
        try:
            if self._asks_elsewhere(ctx, run.call, is_modern=is_modern):
                # Here nothing but the caller tells whose call it is, so bind_principal=None does not count.
                run.call.principal = self._principal(ctx) or authenticated_principal(ctx)
                result: JsonObject = await self._with_elsewhere(ctx.method, converse)(run)
                return {"resultType": "complete", **result} if is_modern else result
            return await (converse(run) if is_modern else self._pushed(ctx, call_next, run))
        except RoundEnds:
            if not is_modern:
                raise CannotAsk("An older client cannot be asked this", required={}) from None
            run.call.principal = self._principal(ctx)
            return {**self.asking(run), "_meta": {SERVER_INFO: self._low.server_info_stamp, **meta}}

    async def _converse(
        self,
        ctx: ServerRequestContext[Any, Any],
        call_next: Next,
        kind: type[AskingSession],
        meta: JsonObject,
        run: Run,
    ) -> Any:
        """Run the handler once: its result, or RoundEnds with its questions in the conversation."""
        run.task = asyncio.current_task()
        own = replace(ctx, session=kind(ctx.session, run), params=raw_params(run))
        result = await _handled(run, own, call_next)
        if run.talk is None or not run.talk.pending:
            if not is_input_required(result):
                return self._whole(run, result)
            returned = _plain(result)
            meta.update(returned.get("_meta") or {})
            run.conversation().returned(raw_input_required(returned, again=True))
        await run.close_round()
        raise RoundEnds

    async def _pushed(self, ctx: ServerRequestContext[Any, Any], call_next: Next, run: Run) -> Any:
        """Run the handler for an older client, which is asked in the middle of the call."""
        run.task = asyncio.current_task()
        return await _handled(run, replace(ctx, session=PushingSession(ctx.session, run)), call_next)

    def _asks_elsewhere(self, ctx: ServerRequestContext[Any, Any], call: Call, *, is_modern: bool) -> bool:
        """Whether people are asked elsewhere what this client cannot show."""
        place = self.elsewhere
        if place is None or (place.is_local and ctx.request is not None):  # HTTP: the person is at another machine
            return False
        if is_modern:
            return True
        if supports(call.capabilities, ("elicitation", "form")) and not place.always:
            return False
        # An older client is told to come again. It opens no page in the middle of that.
        call.capabilities = {name: able for name, able in call.capabilities.items() if name != "elicitation"}
        return True

    def _whole(self, run: Run, result: Any) -> Any:
        """A result that no cache may share if it depends on answers (server/utilities/caching)."""
        if run.able is not None:
            result = _plain(result)  # an inbox keeps it
        if run.round > 1 and run.call.row.cached and isinstance(result, dict) and "ttlMs" in result:
            return {**result, "ttlMs": 0}
        return result

    # --- what a server knows of its handlers ------------------------------------------------------------------------

    async def _warn_of_acts(self) -> None:
        for name, function in (await self._tools_of_theirs()).items():
            for act in acts_before_asking(function):
                log.warning(
                    "the tool %r awaits %s() (%s:%d) before it asks: with clients of 2026-07-28, that runs again on"
                    " every round. If it acts, write 'await step(ctx, %r, %s, ...)', from antiphon.adapt",
                    *(name, act.called, act.file, act.line, act.called.rpartition(".")[2], act.called),
                )

    async def _tools_of_theirs(self) -> dict[str, Callable[..., Any]]:
        """The functions of the tools that are registered, by name."""
        local = getattr(self.original, "local_provider", None)
        manager = getattr(self.original, "_tool_manager", None)
        tools: Any = (
            await local.list_tools() if local is not None else manager.list_tools() if manager is not None else []
        )
        return {tool.name: tool.fn for tool in tools if callable(getattr(tool, "fn", None))}

    def functions(self) -> Iterator[Callable[..., Any]]:
        return iter(self._known.values())

    def function_of(self, method: str, name: str) -> Callable[..., Any] | None:
        return self._known.get(name) if method == "tools/call" else None

    # --- in memory, as the test kit reaches it ----------------------------------------------------------------------

    @asynccontextmanager
    async def _theirs(self) -> AsyncGenerator[Any]:
        self._known = await self._tools_of_theirs()
        async with self._low.lifespan(self._low) as state:
            yield state

    async def answer(
        self,
        message: Message,
        channel: Channel,
        headers: RawHeaders | None = None,
        principal: str | None = None,
        dialect: Dialect = MODERN,
    ) -> tuple[int, bytes | None]:
        """The reply that the library's own dispatch makes."""
        del headers, principal
        if dialect is not MODERN:
            return dialect.refuse(message, InvalidRequest(f"In memory, this server is reached by {REVISION} alone"))
        if "id" not in message:
            return 202, None
        reply: JsonObject = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            reply["result"] = await modern_on_request(self._low, self.state)(
                _Direct(channel, message), message["method"], message.get("params")
            )
        except Exception as fault:  # noqa: BLE001 -- the library tells what the peer learns of it
            reply["error"] = modern_error_data(fault).model_dump(exclude_none=True)
        return 200, jsonrpc.encode(reply)


async def _handled(run: Run, ctx: ServerRequestContext[Any, Any], call_next: Next) -> Any:
    """The handler's result; None if its round ended. CannotAsk if a question got no answer, even if it caught that."""
    result: Any = None
    try:
        result = await call_next(ctx)
    except BaseException as fault:  # noqa: BLE001 -- raised again, unless it ends the round
        take_end(run, fault)
    else:
        take_return(run)
    unanswered: CannotAsk | None = getattr(ctx.session, "unanswered", None)
    if unanswered is not None:
        raise CannotAsk(unanswered.message, required=unanswered.required)
    return result


def _plain(value: Any) -> JsonObject:
    """A value of the library's as the wire has it."""
    made: JsonObject = (
        value.model_dump(by_alias=True, mode="json", exclude_none=True) if isinstance(value, BaseModel) else value
    )
    return made


class _Direct:
    """The way back to a caller in this process, as the library's session wants it."""

    transport = TransportContext(kind="direct", can_send_request=False)
    can_send_request = False
    message_metadata = None

    def __init__(self, channel: Channel, message: Message) -> None:
        self._channel = channel
        self._token = message["params"]["_meta"].get(PROGRESS_TOKEN)
        self.request_id = message["id"]
        self.cancel_requested = anyio.Event()

    async def send_raw_request(self, method: str, params: Any, opts: Any = None) -> JsonObject:  # noqa: ARG002 -- the library's signature
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: Any = None) -> None:  # noqa: ARG002 -- the library's signature
        await self._channel.emit({"jsonrpc": "2.0", "method": method, "params": dict(params or {})})

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self._token is not None:
            told = {"progressToken": self._token, "progress": progress, "total": total, "message": message}
            await self.notify(
                "notifications/progress", {key: value for key, value in told.items() if value is not None}
            )


def _call(ctx: ServerRequestContext[Any, Any], row: Method) -> Call:
    """A request of the library's as a Call."""
    call = Call()
    call.id = ctx.request_id or 0
    call.method = ctx.method
    call.params = dict(ctx.params or {})
    call.meta = dict(call.params.get("_meta") or {})
    told = call.meta.get(CLIENT_CAPABILITIES, ctx.session.client_capabilities)  # older clients said it once
    able = _plain(told)
    call.capabilities = able if type(able) is dict else {}
    call.headers = None if ctx.request is None else {}
    call.row = row
    call.name = str(call.params.get(row.target or "name"))
    call.arguments = deepcopy(call.params.get("arguments"))
    return call
