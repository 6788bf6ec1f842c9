"""A server elsewhere, mounted: its requests are relayed, and translated where one side is old and the other is new.

Every link speaks modern to its client, and every dialect to the dispatcher. What is left to translate are the rounds:

    new client, new server    each round is relayed as it is, with the server's own token: nothing is held here
    old client, any server    the rounds are driven here, and each question is pushed to the client
    new client, old server    the server's call waits here, under a sealed token, until the client comes back

Where people are asked elsewhere what a client cannot show, each round is one of our own: its questions stand in the
journal, and so does the server's token.
"""

import asyncio
import contextlib
import copy
import sys
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from antiphon.bridge.connections import Connections, OpenLink, askable, connector, log, meta_of, quietly
from antiphon.bridge.waiting import HeldCall, HeldCalls, relayed
from antiphon.client.listening import Change
from antiphon.errors import (
    CallFailed,
    CannotAsk,
    Disconnected,
    MissingCapability,
    PeerBroken,
    ProtocolError,
    Refused,
    ResourceNotFound,
    StateRefused,
)
from antiphon.rounds.ask import missing, of_wire
from antiphon.rounds.client_loop import Leg, Questions, Step, rounds
from antiphon.rounds.journal import raw_input_required
from antiphon.server.dispatch import Service
from antiphon.server.mounts import Mount, Unreachable
from antiphon.server.run import Channel, Push, Run, push_all
from antiphon.server.subscriptions import Kind
from antiphon.stores.store import Store
from antiphon.transports.link import Link, OnNotification
from antiphon.types import LOG_LEVELS, JsonObject
from antiphon.uri import Template
from antiphon.wire.call import Call
from antiphon.wire.headers import check_params
from antiphon.wire.revisions import LOG_LEVEL, PROGRESS_TOKEN, RESOURCE_NOT_FOUND, REVISION

__all__ = ["Upstream", "connector"]

GREETING: Final = 10.0
"""Seconds for which a client waits to be told what there is."""
MOST_WATCHED: Final = 100
"""Resources whose changes are listened for at a time."""
_LISTS: Final[tuple[Kind, ...]] = ("tools", "prompts", "resources")
_ALL: Final = (*_LISTS, "completions")
_INVALID_PARAMS: Final = -32602


class Upstream(Mount):
    """A server elsewhere, reached by the links that ``connect`` makes."""

    def __init__(
        self, prefix: str, connect: Callable[[], Link], service: Service, *, label: str = "", single: bool = False
    ) -> None:
        self.prefix = prefix
        self._label = label or prefix or "upstream"
        self._service = service
        self._connections = Connections(self._label, connect, self._opened, single=single)
        self._waiting = HeldCalls(self._go_on)
        self._features: frozenset[str] | None = None
        self._uris: tuple[set[str], list[Template]] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._watched: dict[str, tuple[int, asyncio.Task[None]]] = {}

    # --- what it is -----------------------------------------------------------------------------------------------

    @property
    def features(self) -> Iterable[str]:
        return _ALL if self._features is None else self._features

    @property
    def instructions(self) -> str | None:
        found = self._connections.any
        return None if found is None else found.discovery.instructions

    @property
    def info(self) -> JsonObject | None:
        found = self._connections.any
        return None if found is None else found.info

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._waiting.close()
            await self._connections.close()

    async def ready(self, call: Call) -> None:
        with contextlib.suppress(Unreachable, TimeoutError):
            async with asyncio.timeout(GREETING):
                await self._connections.of(self._shown(call))

    def _shown(self, call: Call) -> Call:
        """A call as its server sees it: a client is as good as able to answer what people are asked elsewhere."""
        if not self._service.asks_elsewhere(call):
            return call
        shown = copy.copy(call)
        shown.capabilities = {**call.capabilities, "elicitation": {"form": {}, "url": {}}}
        return shown

    async def relays(self, call: Call) -> bool:
        del call
        return True

    async def has(self, call: Call, uri: str) -> bool:
        """Whether a resource is listed, or a template fits it."""
        if self._uris is None:
            try:
                self._uris = await self._listed(call)
            except ProtocolError:
                return False
        uris, templates = self._uris
        return uri in uris or any(str(template) == uri or template.match(uri) is not None for template in templates)

    async def _listed(self, call: Call) -> tuple[set[str], list[Template]]:
        call = self._shown(call)
        connection = await self._connections.of(call)
        uris: set[str] = set()
        templates: list[Template] = []
        try:
            async for resource in connection.requests.listed("resources/list", "resources", dict[str, Any]):
                uris.add(str(resource.get("uri")))
            listed = connection.requests.listed("resources/templates/list", "resourceTemplates", dict[str, Any])
            async for template in listed:
                with contextlib.suppress(ValueError):
                    uris.add(str(template.get("uriTemplate")))
                    templates.append(Template(str(template.get("uriTemplate"))))
        except CallFailed as fault:
            raise self._failed(fault, connection, call) from None
        return uris, templates

    # --- requests -------------------------------------------------------------------------------------------------

    async def answer(self, run: Run) -> JsonObject:
        """The result of a request."""
        call = self._shown(run.call)
        connection = await self._connections.of(call)
        params = {name: value for name, value in call.params.items() if name != "_meta"}
        hear = _teller(call, run.channel)
        push = run.channel.push
        with connection.in_use():
            if call.method == "tools/call" and call.headers is not None:
                self._check_headers(connection, call)
            if not call.row.asks:
                result = await self._send(connection, call, params, hear)
                if call.method == "tools/list":
                    connection.requests.learn(result)
            elif run.able is not None:
                result = await self._asking_elsewhere(connection, run, call, params, hear)
            elif push is not None:
                result = await self._drive(connection, call, params, hear, push)
            elif connection.link.stateful:
                result = await self._held_round(connection, run, params, hear)
            else:
                result = await self._send(connection, call, params, hear)
                requests = result.get("inputRequests")
                if result.get("resultType") == "input_required" and type(requests) is dict:
                    _check_may_ask(requests, call)
        if result.get("resultType") == "input_required":
            run.asking = result
        return result

    async def _send(
        self, connection: OpenLink, call: Call, params: JsonObject, hear: OnNotification | None
    ) -> JsonObject:
        try:
            return await connection.requests.send(call.method, params, tell=hear, meta=meta_of(call))
        except CallFailed as fault:
            raise self._failed(fault, connection, call) from None

    def _check_headers(self, connection: OpenLink, call: Call) -> None:
        """streamable-http: the headers that repeat arguments must say the same, as far as the tool is known."""
        mirrored = connection.requests.catalogue.headers.get(call.name)
        arguments = call.params.get("arguments") or {}
        if mirrored and call.headers is not None and call.revision == REVISION and type(arguments) is dict:
            check_params(mirrored, arguments, call.headers)

    def _failed(self, fault: CallFailed, connection: OpenLink, call: Call) -> ProtocolError:
        """What the client learns of a failed request."""
        if isinstance(fault, Refused) and fault.code is not None:
            about = fault.data if isinstance(fault.data, dict) else {}
            is_missing = fault.code == RESOURCE_NOT_FOUND or (fault.code == _INVALID_PARAMS and "uri" in about)
            if call.method == "resources/read" and is_missing:
                return ResourceNotFound(call.name)
            return relayed(fault.code, fault.message, fault.data)
        if isinstance(fault, Disconnected):
            return self._connections.lost(connection, fault, call)
        log.warning("%s %r at %r failed: %s", call.method, call.name, self._label, fault)
        told = "broke the protocol" if isinstance(fault, PeerBroken) else "did not take the request"
        return Unreachable(f"The server {self._label!r} {told}: {fault}")

    # --- old clients ----------------------------------------------------------------------------------------------

    async def _drive(
        self, connection: OpenLink, call: Call, params: JsonObject, hear: OnNotification | None, push: Push
    ) -> JsonObject:
        """Drive the rounds of a call, and push each question to the client."""
        steps = rounds(params, max_rounds=sys.maxsize)
        step: Step = next(steps)
        try:
            while True:
                reply: Any = None
                if isinstance(step, Leg):
                    reply = await self._send(connection, call, step.params, hear)
                elif isinstance(step, Questions):
                    _check_may_ask(step.requests, call)
                    reply = await push_all(push, step.requests)
                else:
                    await asyncio.sleep(step.seconds)
                step = steps.send(reply)
        except StopIteration as end:
            result: JsonObject = end.value[0]
            return result
        except PeerBroken as fault:
            raise self._failed(fault, connection, call) from None
        except BaseException as fault:
            connection.link.abandon(step.params.get("requestState") if isinstance(step, Leg) else step.state, fault)
            raise

    # --- people elsewhere -----------------------------------------------------------------------------------------

    async def _asking_elsewhere(
        self, connection: OpenLink, run: Run, call: Call, params: JsonObject, hear: OnNotification | None
    ) -> JsonObject:
        """One round of a call whose questions people answer elsewhere: the journal keeps the server's own state."""
        params = {name: value for name, value in params.items() if name not in {"requestState", "inputResponses"}}
        params |= run.conversation().retried()
        if connection.link.stateful:
            place = self._service.elsewhere
            lasts = self._service.tokens.ttl if place is None else place.lasts
            result = await self._held(connection, call, params, hear, lasts)
        else:
            result = await self._send(connection, call, params, hear)
        if result.get("resultType") != "input_required":
            return result
        if connection.link.stateful:
            run.give_up = partial(self._waiting.abandon, result["requestState"], "The same call waits already")
        try:
            run.ask_by_returning(raw_input_required(result, again=True))
        except (TypeError, CannotAsk) as fault:
            if connection.link.stateful:
                self._waiting.abandon(result["requestState"], "The client cannot be asked")
            if isinstance(fault, CannotAsk):
                raise
            raise Unreachable(f"The server {self._label!r} broke the protocol: {fault}") from None

    # --- old servers ----------------------------------------------------------------------------------------------

    async def _held_round(
        self, connection: OpenLink, run: Run, params: JsonObject, hear: OnNotification | None
    ) -> JsonObject:
        """One round of a call that stays open at the server while a new client answers."""
        call, tokens = run.call, self._service.tokens
        if "requestState" in params:
            try:
                params["requestState"] = tokens.opened(run).decode("ascii")
            except UnicodeDecodeError:  # a journal, of when the client could not be asked and people were, elsewhere
                raise StateRefused from None
        else:
            params.pop("inputResponses", None)  # answers to nothing that was asked
        result = await self._held(connection, call, params, hear, tokens.ttl)
        if result.get("resultType") != "input_required":
            return result
        if call.revision != REVISION:
            # An old client without a way back: it is told so, and the call ends.
            self._waiting.abandon(result["requestState"], "The client cannot be asked")
            return result
        return {**result, "requestState": tokens.sealed(run, result["requestState"].encode())}

    async def _held(
        self, connection: OpenLink, call: Call, params: JsonObject, hear: OnNotification | None, ttl: float
    ) -> JsonObject:
        """Send a call, or its answers to the one that waits under the name in its state."""
        if "requestState" in params:
            answers = {"inputResponses": params.get("inputResponses") or {}}
            return await self._waiting.resume(params["requestState"], answers, hear or (lambda _: None), self._store)
        result = await self._send(connection, call, params, hear)
        return await self._wait(connection, call, params, result, ttl)

    async def _go_on(self, waiting: HeldCall, answers: JsonObject, hear: OnNotification) -> JsonObject:
        """Give a call that waited its answers."""
        connection = waiting.connection
        params = {**waiting.params, **answers, "requestState": waiting.handle}
        with connection.in_use():
            try:
                result = await connection.requests.send(waiting.call.method, params, tell=hear)
            except CallFailed as fault:
                raise self._failed(fault, connection, waiting.call) from None
            return await self._wait(connection, waiting.call, waiting.params, result, waiting.ttl)

    async def _wait(
        self, connection: OpenLink, call: Call, params: JsonObject, result: JsonObject, ttl: float
    ) -> JsonObject:
        """Let a call wait that asks; the state of its questions is the name under which it does."""
        if result.get("resultType") != "input_required":
            return result
        handle = result["requestState"]
        name = await self._waiting.hold(connection, call, params, handle, ttl=ttl, store=self._store)
        return {**result, "requestState": name}

    @property
    def _store(self) -> Store | None:
        return self._service.store if self._service.has_shared_store else None

    # --- changes --------------------------------------------------------------------------------------------------

    def _opened(self, connection: OpenLink, was_away: bool) -> None:
        """Hear of changes on a new connection, and tell what is new about the server."""
        able = connection.discovery.capabilities
        before, self._features = self._features, frozenset(name for name in _ALL if name in able)
        self._uris = None
        if was_away or before not in {None, self._features}:
            for kind in _LISTS:
                if kind in self._features:
                    self._service.changed(kind)
        wanted = {kind: type(able.get(kind)) is dict and bool(able[kind].get("listChanged")) for kind in _LISTS}
        if any(wanted.values()):
            self._start(quietly(self._label, connection.changes(**wanted), self._hear))

    def _hear(self, change: Change) -> None:
        if change.kind == "resource":
            self._service.updated(change.uri or "")
        else:
            self._uris = None
            self._service.changed(change.kind)

    def watch(self, call: Call, uri: str) -> Callable[[], None]:
        count, task = self._watched.get(uri, (0, None))
        if task is None:
            if len(self._watched) >= MOST_WATCHED:
                log.warning("changes of %r are not listened for: there are %s already", uri, MOST_WATCHED)
                return lambda: None
            task = self._start(self._watch(call, uri))
        self._watched[uri] = count + 1, task

        def stop() -> None:
            count, task = self._watched.pop(uri)
            if count > 1:
                self._watched[uri] = count - 1, task
            else:
                task.cancel()

        return stop

    async def _watch(self, call: Call, uri: str) -> None:
        with contextlib.suppress(ProtocolError):
            connection = await self._connections.of(self._shown(call))
            changes = connection.changes(tools=False, prompts=False, resources=[uri])
            await quietly(self._label, changes, self._hear)

    def _start(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _teller(call: Call, channel: Channel) -> OnNotification | None:
    """Pass on the progress of a call under the client's token, and the log messages that the client wants."""
    token, level = call.meta.get(PROGRESS_TOKEN), call.meta.get(LOG_LEVEL)
    if token is None and level is None:
        return None
    lowest = LOG_LEVELS.get(str(level), 0)

    async def hear(message: JsonObject) -> None:
        params = message.get("params")
        if type(params) is not dict:
            return
        if message["method"] == "notifications/progress" and token is not None:
            await channel.emit({**message, "params": {**params, PROGRESS_TOKEN: token}})
        elif message["method"] == "notifications/message" and level is not None:
            severity: Any = params.get("level")
            if type(severity) is str and LOG_LEVELS.get(severity, 0) >= lowest:
                await channel.emit(message)

    return hear


def _check_may_ask(requests: JsonObject, call: Call) -> None:
    """MissingCapability if a server asks what the client did not declare."""
    with contextlib.suppress(TypeError):  # a question of a kind that is not known here is the client's to judge
        lacking = missing(askable(call), [of_wire(request) for request in requests.values()])
        if lacking:
            log.warning("%s %r asks for what the client did not declare", call.method, call.name)
            raise MissingCapability(lacking)
