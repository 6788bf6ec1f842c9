"""The Service: what a server offers, and the one place where a request becomes an answer."""

import asyncio
import inspect
import logging
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from copy import deepcopy
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec

from antiphon.errors import (
    CannotAsk,
    InternalError,
    InvalidParams,
    MissingCapability,
    ProtocolError,
    ResourceNotFound,
    StateRefused,
    ToolError,
    UnstableQuestion,
)
from antiphon.rounds.journal import Conversation, Journal, RoundEnds
from antiphon.rounds.token import (
    Codec,
    Guard,
    Seal,
    SealBroken,
    SignedState,
    StateTooLarge,
    binding,
    generate_key,
    guard_of,
    parse_keys,
)
from antiphon.server.change_log import Changes
from antiphon.server.completion import completion, read_params
from antiphon.server.context import Channel, Context, StepObserver
from antiphon.server.registry import Registry
from antiphon.server.resources import ResourceEntry
from antiphon.server.running import ROUND, Handler, Threads, label, told_by
from antiphon.server.steps import SharedSteps
from antiphon.server.tools import error_result
from antiphon.stores.memory import MemoryStore
from antiphon.stores.store import Store
from antiphon.types import Icon, Implementation, JsonObject, PromptResult, ResourceResult, ToolResult
from antiphon.wire import jsonrpc
from antiphon.wire.call import Call, accept, unknown_method
from antiphon.wire.headers import RawHeaders
from antiphon.wire.jsonrpc import Message
from antiphon.wire.revisions import METHODS, REVISION, SERVER_INFO

log = logging.getLogger("antiphon")

Function = TypeVar("Function", bound=Callable[..., Any])
Route: TypeAlias = Callable[[Context], Awaitable[Any]]


class Middleware(Protocol):
    """A function around every request: ``async def timed(ctx, proceed): ...; return await proceed(ctx)``."""

    def __call__(self, ctx: Context, proceed: Route, /) -> Awaitable[JsonObject]: ...


Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]


class Older(Protocol):
    """One request in the words of an earlier revision: how it is accepted and answered.

    Its conversation is carried from run to run in memory, and nothing is sealed.
    """

    def accept(self, message: Message) -> Call: ...

    def carry(self, ctx: Context) -> None:
        """Give the context what was said so far."""
        ...

    def reply(self, call: Call, result: JsonObject) -> bytes: ...

    def refuse(self, message: object, fault: ProtocolError) -> bytes: ...


class Service(Registry):
    """Tools, prompts and resources, and how they answer."""

    def __init__(
        self,
        name: str,
        *,
        version: str = "0.1.0",
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Sequence[Icon] = (),
        lifespan: Lifespan | None = None,
        page_size: int | None = None,
        list_ttl: float = 60,
        seal: Seal | SignedState | Codec | None = None,
        store: Store | None = None,
        shim: bool = True,
        max_rounds: int = 10,
        ask_timeout: float | None = None,
        threads: int = 64,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        if page_size is not None and page_size < 1:
            raise ValueError("page_size must be at least 1")
        if list_ttl < 0:
            raise ValueError("list_ttl must not be negative")
        if max_rounds < 1:
            raise ValueError("max_rounds must be at least 1")
        if ask_timeout is not None and ask_timeout <= 0:
            raise ValueError("ask_timeout must be positive, or None to wait for as long as it takes")
        self.info = Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=tuple(icons) or None,
        )
        self.instructions = instructions
        self.clock = clock
        self.state: Any = None
        self.shim = shim
        """Whether handlers that ask by returning are run again for clients that can only be asked in the middle."""
        self.max_rounds = max_rounds
        self.ask_timeout = ask_timeout
        self.process_key = False
        self._guard: Guard = guard_of(self._keyed(seal))
        self.store: Store = MemoryStore()
        self.has_shared_store = False
        self.shared_steps: SharedSteps | None = None
        if store is not None:
            self.use_store(store)
        self._lifespan = lifespan
        self._life = AsyncExitStack()
        self._starting: asyncio.Lock | None = None
        self._running = 0
        self._threads = Threads(threads)
        self._step_threads = Threads(threads)
        self._observers: list[StepObserver] = []
        self._page_size = page_size
        self._list_ttl = int(list_ttl * 1000)
        self._meta: JsonObject = {SERVER_INFO: msgspec.to_builtins(self.info)}
        self._encoded_meta = msgspec.Raw(jsonrpc.encode(self._meta))
        self._middleware: list[Middleware] = []
        self._builtin: dict[str, Route] = {
            "server/discover": self._discover,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "completion/complete": self._complete_argument,
            "subscriptions/listen": self._listen,
        }
        self._routes: dict[str, Route] = dict(self._builtin)

    # --- around the methods, and below them ------------------------------------------------------------------------

    def middleware(self, function: Middleware) -> Middleware:
        """Put a function around every request; the first registered is the outermost."""
        self._middleware.append(function)
        self._route()
        return function

    def on(self, method: str) -> Callable[[Function], Function]:
        """The low level: serve a method yourself, ``fn(params)`` to result, with a Context if it takes one."""
        if method == "server/discover" or method.startswith("notifications/"):
            raise ValueError(f"{method} is not yours to serve")

        def register(function: Function) -> Function:
            self._builtin[method] = self._raw_route(function)
            feature = METHODS[method].feature if method in METHODS else None
            if feature is not None:
                self._features.add(feature)
            self._route()
            return function

        return register

    async def in_thread(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a plain function where it does not block the event loop."""
        return await self._threads.run(function, *args, **kwargs)

    async def in_step_thread(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """The same for a step: its handler may hold a thread of the other kind while it waits."""
        return await self._step_threads.run(function, *args, **kwargs)

    def use_store(self, store: Store) -> None:
        """Keep in this store what must outlive a request; before anything is served."""
        self.store = store
        self.has_shared_store = not isinstance(store, MemoryStore)
        self.shared_steps = SharedSteps(store, self._guard.ttl + 60)
        self.subscriptions.changes = None

    @property
    def changes(self) -> Changes:
        """What changed at any instance, in the store; from the first use on, what changes here is added."""
        if self.subscriptions.changes is None:
            self.subscriptions.changes = Changes(self.store, shared=self.has_shared_store)
        return self.subscriptions.changes

    def share_changes(self) -> None:
        """It is served from now on: instances with a common store tell each other what changes."""
        if self.has_shared_store:
            self.changes.want()

    # --- running --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """The server's lifespan. Transports enter it; enter it yourself where a host application owns the process."""
        if self._starting is None:
            self._starting = asyncio.Lock()
        async with self._starting:
            if self._running == 0:
                self.subscriptions.closing = False
                self.share_changes()
                if self._lifespan is not None:
                    self.state = await self._life.enter_async_context(self._lifespan(self))
            self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            if self._running == 0:
                self._starting = None
                self.subscriptions.close()
                self._threads.close()
                self._step_threads.close()
                life, self._life = self._life, AsyncExitStack()
                self.state = None
                await life.aclose()

    @contextmanager
    def rehearsal(self, observer: StepObserver) -> Generator[None]:
        """Let a test run rounds several times: accept tokens again, and tell the observer of every step that runs.

        Plain functions run in threads that start from here on, so that a profile function set before sees them.
        """
        self._observers.append(observer)
        self._threads.close()
        try:
            yield
        finally:
            self._observers.remove(observer)

    @property
    def observer(self) -> StepObserver | None:
        """What a test observes steps with."""
        return self._observers[-1] if self._observers else None

    def share_seal(self, other: "Service") -> None:
        """Seal and open tokens as another instance does; before anything is served."""
        self._guard = other._guard

    @property
    def single_use(self) -> bool:
        """Whether each token is accepted once."""
        return self._guard.single_use

    @property
    def is_running(self) -> bool:
        return self._running > 0

    @property
    def must_start(self) -> bool:
        """Whether there is a lifespan that has not begun."""
        return self._lifespan is not None and self._running == 0

    # --- answering ------------------------------------------------------------------------------------------------

    async def answer(
        self,
        message: Message,
        channel: Channel,
        headers: RawHeaders | None = None,
        principal: str | None = None,
        older: Older | None = None,
    ) -> tuple[int, bytes | None]:
        """The encoded reply to a decoded message, with the HTTP status that goes with it; none to a notification.

        This is the one place where an exception becomes a wire error.
        """
        ctx: Context | None = None
        result: Any
        try:
            id_ = type(message.get("id"))
            if not (
                (id_ is int or id_ is str)
                and type(message.get("params")) is dict
                and type(message.get("method")) is str
                and message.get("jsonrpc") == "2.0"
            ):
                jsonrpc.check(message)
                if "id" not in message:
                    return 202, None
            call = accept(message, headers) if older is None else older.accept(message)
            call.principal = principal
            route = self._routes.get(call.method)
            if route is None or (call.row.feature is not None and call.row.feature not in self._features):
                raise unknown_method(call.method, call.revision)
            ctx = Context(self, call, channel)
            if older is not None:
                older.carry(ctx)
            elif call.row.asks and "requestState" in call.params:
                await self._open(ctx)
            try:
                result = await route(ctx)
            except RoundEnds:
                result = ROUND  # a middleware asked
            except ToolError as fault:
                if call.method != "tools/call":
                    raise
                result = error_result(str(fault))
            if result is ROUND or "resultType" not in result:
                result = self._finished(ctx, result)
            if older is None:
                reply = jsonrpc.encode({"jsonrpc": "2.0", "id": call.id, "result": result})
            else:
                reply = older.reply(call, result)
        except BaseException as fault:  # noqa: BLE001 -- what is not ours to answer is raised again
            told = _as_error(fault, ctx)
            return _refusal(message, told) if older is None else (200, older.refuse(message, told))
        finally:
            if ctx is not None:
                ctx._over = True
        if log.isEnabledFor(logging.INFO):
            log.info("%s %s", _told(ctx), result["resultType"], extra=_facts(ctx, result["resultType"]))
        return 200, reply

    async def _open(self, ctx: Context) -> None:
        """Take up the conversation that a token carries; StateRefused, whatever is wrong with it."""
        call = ctx._call
        token = call.params["requestState"]
        try:
            if type(token) is not str:
                raise SealBroken("malformed")
            opened = self._guard.open(token, bound_to=self._bound(ctx), now=self.clock())
            journal = Journal.unpack(opened.payload)
            if self._guard.single_use and not self._observers:
                left = max(opened.expires - self.clock(), 1)
                if not await self.store.add(f"antiphon:used:{opened.id.hex()}", ttl=left):
                    raise SealBroken("already used")
        except (SealBroken, ValueError) as fault:
            log.warning("requestState refused for %s %r: %s", call.method, call.name, fault)
            raise StateRefused from None
        ctx._expires = opened.expires
        ctx._talk = Conversation(journal, call.params.get("inputResponses"), call.capabilities)

    def _close(self, ctx: Context) -> JsonObject:
        """The result that ends a round: the questions, and the journal under seal."""
        talk = ctx._conversation()
        result = talk.close()
        if ctx._call.revision != REVISION:
            return result  # the conversation stays where it is, in memory
        limits = [question.ttl for question in talk.pending.values() if question.ttl is not None]
        if self.process_key and ctx._call.headers is not None:
            self.process_key = False
            log.warning(
                "questions are sealed with a key of this process alone: a restart or a second instance cannot continue"
                " them. Set ANTIPHON_KEYS (`antiphon keygen` prints a key)."
            )
        try:
            result["requestState"] = self._guard.seal(
                talk.journal.pack(readable=self._guard.readable),
                bound_to=self._bound(ctx),
                now=self.clock(),
                ttl=min(limits) if limits else None,
                entropy=os.urandom(12),
            )
        except StateTooLarge as fault:
            log.error("%s: the conversation outgrew its token: %s; %s", _told(ctx), fault, talk.journal.weights())  # noqa: TRY400 -- the weights tell where it grew, a traceback does not
            raise InternalError("The conversation has grown too large to continue") from None
        result["_meta"] = dict(self._meta)
        return result

    def _bound(self, ctx: Context) -> bytes:
        call = ctx._call
        return binding(
            method=call.method,
            name=call.name,
            arguments=call.params.get("arguments") if call.arguments is None else call.arguments,
            audience=self._guard.audience,
            principal=call.principal,
        )

    def _keyed(self, seal: Seal | SignedState | Codec | None) -> Seal | SignedState | Codec:
        """The seal with keys: its own, those of the environment, or one that lives as long as the process."""
        if seal is None:
            seal = Seal()
        if not isinstance(seal, Seal) or seal.has_keys:
            return seal
        from_environment = os.environ.get("ANTIPHON_KEYS", "").strip()
        if from_environment:
            return seal.with_keys(parse_keys(from_environment))
        self.process_key = True
        return seal.with_keys([generate_key(os.urandom(32))])

    def _finished(self, ctx: Context, result: Any) -> JsonObject:
        """What a route gave, as a whole result: the end of a round, or complete."""
        if result is ROUND:
            return self._close(ctx)
        whole: JsonObject = {**self._cache(), **result} if ctx._call.row.cached else result
        if ctx._call.row.cached and ctx.round > 1:
            whole["ttlMs"] = 0  # server/utilities/caching: what came of answers is nobody else's
        if self._middleware:
            whole = msgspec.to_builtins(whole, str_keys=True)  # plain data for whoever looks at it on its way
        if "resultType" not in whole:
            whole["resultType"] = "complete"
        if "_meta" in whole:
            whole["_meta"] = {**self._meta, **(whole["_meta"] or {})}
        else:
            whole["_meta"] = dict(self._meta) if self._middleware else self._encoded_meta
        return whole

    # --- the methods ----------------------------------------------------------------------------------------------

    async def _discover(self, _: Context) -> JsonObject:
        result: JsonObject = {"supportedVersions": [REVISION], "capabilities": self.capabilities()}
        if self.instructions is not None:
            result["instructions"] = self.instructions
        return result

    def capabilities(self) -> JsonObject:
        """What this server declares that it can do."""
        capabilities: JsonObject = {"logging": {}}
        for kind in ("tools", "prompts", "resources"):
            if kind in self._features:
                capabilities[kind] = {"listChanged": True}
        if "resources" in self._features:
            capabilities["resources"]["subscribe"] = True
        if "completions" in self._features:
            capabilities["completions"] = {}
        return capabilities

    async def _list_tools(self, ctx: Context) -> JsonObject:
        return self._page(ctx, "tools", "name", (entry.tool for entry in self._tools.values()))

    async def _list_prompts(self, ctx: Context) -> JsonObject:
        return self._page(ctx, "prompts", "name", (entry.prompt for entry in self._prompts.values()))

    async def _list_resources(self, ctx: Context) -> JsonObject:
        return self._page(ctx, "resources", "uri", (entry.resource for entry in self._resources.values()))

    async def _list_templates(self, ctx: Context) -> JsonObject:
        found = (entry.resource for entry in self._templates.values())
        return self._page(ctx, "resourceTemplates", "uriTemplate", found)

    def _call_tool(self, ctx: Context) -> Awaitable[Any]:
        entry = self._tools.get(ctx._call.name)
        if entry is None:
            raise InvalidParams(f"Unknown tool: {ctx.name}")
        return entry.call(ctx)

    def _get_prompt(self, ctx: Context) -> Awaitable[Any]:
        entry = self._prompts.get(ctx.name)
        if entry is None:
            raise InvalidParams(f"Unknown prompt: {ctx.name}")
        return entry.get(ctx)

    def _read_resource(self, ctx: Context) -> Awaitable[Any]:
        static = self._resources.get(ctx.name)
        entry, variables = (static, {}) if static is not None else self._matching(ctx.name)
        return entry.read(ctx, variables)

    def _matching(self, uri: str) -> tuple[ResourceEntry, dict[str, Any]]:
        for entry in self._templates.values():
            assert entry.template is not None
            variables = entry.template.match(uri)
            if variables is not None:
                return entry, dict(variables)
        raise ResourceNotFound(uri)

    async def _complete_argument(self, ctx: Context) -> JsonObject:
        params = read_params(ctx.params)
        known = self._prompts if params.ref.type == "ref/prompt" else self._templates
        entry = known.get(params.target)
        if entry is None and params.ref.type == "ref/resource" and params.target in self._resources:
            return completion([])
        if entry is None:
            raise InvalidParams(f"Nothing to complete: {params.target} is not known")
        if params.argument.name not in entry.options:
            raise InvalidParams(f"{params.target} has no argument {params.argument.name!r}")
        completer = self._completers.get((params.target, params.argument.name))
        if completer is None:
            typed = params.argument.value.lower()
            options = entry.options[params.argument.name]
            return completion([item for item in options if item.lower().startswith(typed)])
        known_arguments: JsonObject = {} if params.context is None else dict(params.context.arguments)
        return await completer.suggest(ctx, params.argument.value, known_arguments)

    async def _listen(self, ctx: Context) -> JsonObject:
        return await self.subscriptions.listen(ctx, self._features)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _cache(self) -> JsonObject:
        return {"ttlMs": self._list_ttl, "cacheScope": "public"}

    def _page(self, ctx: Context, kind: str, key: str, items: Iterable[object]) -> JsonObject:
        """A list, or a page of it: a cursor is the key of the last item before the page."""
        listed = self._listed.get(kind)
        if listed is None:
            listed = self._listed[kind] = [msgspec.to_builtins(item) for item in items]
        cursor = ctx.params.get("cursor")
        start = 0
        if cursor is not None:
            start = 1 + next((at for at, item in enumerate(listed) if _cursor(item[key]) == cursor), -1)
            if start == 0:
                raise InvalidParams("Invalid cursor: list again from the beginning")
        size = self._page_size or len(listed)
        page = listed[start : start + size]
        if self._middleware:
            page = deepcopy(page)  # what one of them changes in a result must not stay
        result: JsonObject = {kind: page}
        if start + size < len(listed):
            result["nextCursor"] = _cursor(page[-1][key])
        return result

    def _raw_route(self, function: Callable[..., Any]) -> Route:
        handler = Handler(function)
        names = [name for name in _parameters(function) if name not in handler.hidden]
        if len(names) != 1:
            raise TypeError(f"{label(function)} must take the request's params, and may take a Context")

        async def route(ctx: Context) -> Any:
            value = await handler.run(ctx, {names[0]: ctx.params})
            return self._finished(ctx, value if value is ROUND else _plain(value))

        return route

    def _route(self) -> None:
        self._routes = {method: self._wrapped(route) for method, route in self._builtin.items()}

    def _wrapped(self, inner: Route) -> Route:
        """A route with all middleware around it; they see whole results."""
        if not self._middleware:
            return inner

        async def route(ctx: Context) -> Any:
            return self._finished(ctx, await inner(ctx))

        outer: Route = route
        for middleware in reversed(self._middleware):
            outer = _around(middleware, outer)

        async def outermost(ctx: Context) -> Any:
            ctx._task = asyncio.current_task()
            try:
                return await outer(ctx)
            except asyncio.CancelledError as fault:
                signal = None if ctx._settling is None else ctx._settling.heard(fault)
                if signal is None:
                    raise
                raise signal from None

        return outermost


def _as_error(fault: BaseException, ctx: Context | None) -> ProtocolError:
    """What the peer learns of an exception; the log learns the rest."""
    if isinstance(fault, BaseExceptionGroup):
        fault = told_by(fault)
    if isinstance(fault, CannotAsk):
        fault = MissingCapability(fault.required) if fault.required else InternalError(fault.message)
    if isinstance(fault, ProtocolError):
        if ctx is not None and not isinstance(fault, StateRefused) and log.isEnabledFor(logging.INFO):
            log.info("%s error %s", _told(ctx), fault.code, extra=_facts(ctx, "error"))
        return fault
    if isinstance(fault, ToolError | UnstableQuestion):
        log.warning("%s ended with: %s", _told(ctx), fault, extra=_facts(ctx, "error"))
        return InternalError(str(fault))
    task = asyncio.current_task()
    # A cancellation that nobody asked for comes from inside: the handler awaited something that was cancelled.
    own = isinstance(fault, asyncio.CancelledError) and task is not None and not task.cancelling()
    if not isinstance(fault, asyncio.CancelledError | GeneratorExit) or own:
        log.error("%s failed", _told(ctx), exc_info=fault, extra=_facts(ctx, "error"))
        return InternalError()
    raise fault


def _refusal(message: object, fault: ProtocolError) -> tuple[int, bytes]:
    """An error's reply; a plain internal error if it holds what JSON cannot say."""
    id_ = jsonrpc.id_of(message)
    try:
        return fault.status, jsonrpc.encode(jsonrpc.error(id_, fault))
    except (TypeError, ValueError, OverflowError, RecursionError):
        # Its text as Python writes it: what JSON cannot say, a log cannot always say either.
        log.error("an error cannot be sent: code %s, message %a, data %a", fault.code, fault.message, fault.data)  # noqa: TRY400 -- a traceback may hold what a log cannot say
        return 200, jsonrpc.encode(jsonrpc.error(id_, InternalError()))


def _around(middleware: Middleware, proceed: Route) -> Route:
    def route(ctx: Context) -> Awaitable[Any]:
        return middleware(ctx, proceed)

    return route


def _plain(value: object) -> JsonObject:
    """A low-level handler's value as a result."""
    if isinstance(value, ToolResult | PromptResult | ResourceResult):
        raise TypeError(f"A low-level handler returns the wire's own result, a dict; got {type(value).__name__}")
    made: object = {} if value is None else msgspec.to_builtins(value, str_keys=True)
    if type(made) is not dict:
        raise TypeError(f"A low-level handler returns an object, got {type(value).__name__}")
    return dict(made)


def _cursor(key: str) -> str:
    return key.encode().hex()


def _parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def _told(ctx: Context | None) -> str:
    """A call as a log line names it."""
    if ctx is None:
        return "a request"
    return f"{ctx.method} {ctx.name!r} id={ctx.request_id!r} round={ctx.round}"


def _facts(ctx: Context | None, outcome: object) -> dict[str, object] | None:
    """What a log record carries beside its text."""
    if ctx is None:
        return None
    talk = ctx._talk
    return {
        "mcp_method": ctx.method,
        "mcp_name": ctx.name,
        "mcp_request_id": ctx.request_id,
        "mcp_round": ctx.round,
        "mcp_flow": None if talk is None else talk.journal.flow.hex(),
        "mcp_result": outcome,
    }
