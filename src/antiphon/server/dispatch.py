"""The Service: what a server offers, and the one place where a request becomes an answer."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from antiphon.errors import (
    CannotAsk,
    InternalError,
    MissingCapability,
    ProtocolError,
    StateRefused,
    ToolError,
    UnstableQuestion,
)
from antiphon.http.exchange import Application, Scope
from antiphon.oauth.identity import Identity
from antiphon.rounds.journal import RoundEnds
from antiphon.rounds.token import (
    Codec,
    Seal,
    SignedState,
)
from antiphon.server.change_log import ChangeLog
from antiphon.server.era_dialect import MODERN, Dialect
from antiphon.server.handler import raw_route, told_by
from antiphon.server.methods import Methods, Route
from antiphon.server.middleware import Middleware, check_middleware, wrapped
from antiphon.server.mounts import Mount
from antiphon.server.run import Channel, Protection, Run, StepObserver
from antiphon.server.tokens import Tokens
from antiphon.server.tools import error_result
from antiphon.stores.memory import MemoryStore
from antiphon.stores.shared_steps import SharedSteps
from antiphon.stores.store import Store
from antiphon.threads import Threads
from antiphon.tracebacks import from_own_frame
from antiphon.types import Icon, Implementation, JsonObject
from antiphon.wire import jsonrpc
from antiphon.wire.call import Call, unknown_method
from antiphon.wire.headers import RawHeaders
from antiphon.wire.jsonrpc import Message
from antiphon.wire.revisions import METHODS, SERVER_INFO

if TYPE_CHECKING:
    from antiphon.server.elsewhere import AskingElsewhere, Elsewhere

log = logging.getLogger("antiphon")

Function = TypeVar("Function", bound=Callable[..., Any])
Principal: TypeAlias = Callable[[Scope], Awaitable[str | None] | str | None] | str
"""Says who is authenticated, from the ASGI scope of a request; or the name of the header in which a gateway says it."""
Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]


class Service(Methods):
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
        principal: Principal | None = None,
        fallback: Application | None = None,
        threads: int = 64,
        auth: Protection | None = None,
        elsewhere: "Elsewhere | None" = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(
            instructions=instructions,
            page_size=page_size,
            list_ttl=list_ttl,
            is_private=auth is not None or principal is not None,
        )
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
        self.auth = auth
        self.clock = clock
        self.state: Any = None
        self.shim = shim
        """Whether handlers that ask by returning are run again for clients that can only be asked in the middle."""
        self.max_rounds = max_rounds
        self.ask_timeout = ask_timeout
        self.principal = principal
        self.fallback = fallback
        """The ASGI application for every path but the endpoint's."""
        self.tokens = Tokens(seal, clock, name)
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
        self._meta: JsonObject = {SERVER_INFO: msgspec.to_builtins(self.info)}
        self._encoded_meta = msgspec.Raw(jsonrpc.encode(self._meta))
        self._middleware: list[Middleware] = []
        self._builtin: dict[str, Route] = self._methods()
        self._routes: dict[str, Route] = dict(self._builtin)
        self.elsewhere = elsewhere
        """Where people are asked whom a client cannot ask."""
        self._asking_elsewhere: AskingElsewhere | None = None
        if elsewhere is not None:
            self._ask_elsewhere(elsewhere)

    # --- around the methods, and below them ------------------------------------------------------------------------

    def middleware(self, function: Middleware) -> Middleware:
        """Put a function around every request; the first registered is the outermost."""
        check_middleware(function)
        self._middleware.append(function)
        self._route()
        return function

    def on(self, method: str) -> Callable[[Function], Function]:
        """The low level: serve a method yourself, ``fn(params)`` to result, with a Context if it takes one."""
        if not isinstance(method, str):
            raise TypeError(f'on() takes a method, got {method!r}: write @app.on("tools/list")')
        if method == "server/discover" or method.startswith("notifications/"):
            raise ValueError(f"{method} is not yours to serve")

        def register(function: Function) -> Function:
            self._builtin[method] = raw_route(function, self._completed)
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
        self.shared_steps = SharedSteps(store, self.tokens.ttl)
        self.subscriptions.changes = None

    @property
    def changes(self) -> ChangeLog:
        """What changed at any instance, in the store; from the first use on, what changes here is added."""
        if self.subscriptions.changes is None:
            self.subscriptions.changes = ChangeLog(self.store, shared=self.has_shared_store)
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
                if self.mounts:
                    await self._life.enter_async_context(self.mounts.running())
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
                if self.elsewhere is not None:
                    await self.elsewhere.close()
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
        self.tokens = other.tokens

    @property
    def single_use(self) -> bool:
        """Whether each token is accepted once."""
        return self.tokens.single_use

    @property
    def is_running(self) -> bool:
        return self._running > 0

    @property
    def must_start(self) -> bool:
        """Whether there is a lifespan that has not begun."""
        return (self._lifespan is not None or len(self.mounts) > 0) and self._running == 0

    # --- answering ------------------------------------------------------------------------------------------------

    async def answer(
        self,
        message: Message,
        channel: Channel,
        headers: RawHeaders | None = None,
        principal: str | None = None,
        dialect: Dialect = MODERN,
    ) -> tuple[int, bytes | None]:
        """The encoded reply to a decoded message, with the HTTP status that goes with it; none to a notification.

        This is the one place where an exception becomes a wire error.
        """
        run: Run | None = None
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
            call = dialect.accept(message, headers)
            call.principal = principal
            route = self._routes.get(call.method)
            feature = call.row.feature
            if route is None or (
                feature is not None and feature not in self._features and feature not in self.features
            ):
                raise unknown_method(call.method, call.revision)
            run = Run(self, call, channel)
            if call.talk is not None:
                run.talk = call.talk
            elif (
                call.row.sealed
                and call.params.get("requestState") is not None
                and not (self.mounts and await self._relays(call))
            ):
                await self.tokens.open(run, self.store, again=bool(self._observers))
            try:
                result = await route(run)
            except RoundEnds:
                result = self.asking(run)
            except (ToolError, CannotAsk) as fault:
                # A capability that the client did not declare has an error of its own.
                if call.method != "tools/call" or (isinstance(fault, CannotAsk) and fault.required):
                    raise
                result = error_result(str(fault))
            if "resultType" not in result:
                result = self._completed(run, result)
            call.talk = run.talk
            reply = dialect.encode({"jsonrpc": "2.0", "id": call.id, "result": result})
        except BaseException as fault:  # noqa: BLE001 -- what is not ours to answer is raised again
            error = as_error(fault, run)
            if error.headers:
                channel.add_headers(error.headers)
            return dialect.refuse(message, error)
        finally:
            if run is not None:
                run.over, run.context = True, None  # a context holds its run
        if log.isEnabledFor(logging.INFO) and run is not None:
            log.info("%s %s", run, result["resultType"], extra=run.facts(result["resultType"]))
        return 200, reply

    def admitted(self, message: Message, identity: Identity | None) -> Identity | None:
        """Return who sends a message in memory; Unauthorized if a protected server would refuse them."""
        if self.auth is None or identity is None:
            return identity
        return self.auth.admit(identity, self.scopes_for(message))

    def asking(self, run: Run) -> JsonObject:
        """The result that ends a round."""
        result = run.instead
        if result is None:
            talk = run.conversation()
            if talk.unfit:
                run.log_unfit(talk.pending)
            result = self.tokens.close(run)
        run.asking = result
        if run.call.row.sealed:
            result["_meta"] |= self._meta
        return result

    def _completed(self, run: Run, result: JsonObject) -> JsonObject:
        """What a route gave, with the members that every result has."""
        if result.get("resultType") == "input_required":
            return result  # as a mounted server asked it
        whole: JsonObject = {**self._cache(), **result} if run.call.row.cached else result
        if run.call.row.cached and run.round > 1:
            whole["ttlMs"] = 0  # server/utilities/caching: a result that depends on answers is not shared
        if self._middleware:
            whole = msgspec.to_builtins(whole, str_keys=True)  # plain data for what looks at it on its way
        if "resultType" not in whole:
            whole["resultType"] = "complete"
        if "_meta" in whole:
            whole["_meta"] = {**self._meta, **(whole["_meta"] or {})}
        else:
            whole["_meta"] = dict(self._meta) if self._middleware else self._encoded_meta
        return whole

    def add_mount(self, mount: Mount) -> None:
        if self._running:
            raise RuntimeError("mount() comes before the server is served")
        super().add_mount(mount)

    async def route(self, run: Run) -> JsonObject:
        """Answer a request that came to the server that this one is mounted in."""
        result: JsonObject = await self._routes[run.call.method](run)
        return result

    # --- inside ---------------------------------------------------------------------------------------------------

    def _route(self) -> None:
        self._routes = {
            method: wrapped(self._with_elsewhere(method, route), self._middleware, self._completed)
            for method, route in self._builtin.items()
        }

    def _ask_elsewhere(self, elsewhere: "Elsewhere") -> None:
        """Ask people there whom their clients cannot ask."""
        from antiphon.server.elsewhere import AskingElsewhere  # with the inbox, which most servers do not have

        self._asked_elsewhere = frozenset({"elicitation"})
        self._asking_elsewhere = AskingElsewhere(
            elsewhere,
            lambda run: self.tokens.bound(run),  # noqa: PLW0108 -- share_seal() replaces the tokens
            self._shown_name,
        )
        self._route()

    def _shown_name(self) -> str:
        """Its name, or that of the server that stands here under its own names."""
        about = self.mounts.info
        name = about.get("name") if isinstance(about, dict) else None
        return name if isinstance(name, str) else self.info.name

    def asks_elsewhere(self, call: Call) -> bool:
        """Whether people are asked elsewhere what the client of this call cannot show."""
        return self._asking_elsewhere is not None and self._asking_elsewhere.takes(call)

    async def _relays(self, call: Call) -> bool:
        return not self.asks_elsewhere(call) and await super()._relays(call)

    def _with_elsewhere(self, method: str, route: Route) -> Route:
        asks = method in METHODS and METHODS[method].asks
        return self._asking_elsewhere.around(route) if self._asking_elsewhere is not None and asks else route


def as_error(fault: BaseException, run: Run | None) -> ProtocolError:
    """What the peer learns of an exception; the log learns the rest."""
    if isinstance(fault, BaseExceptionGroup):
        fault = told_by(fault)
    if isinstance(fault, CannotAsk):
        fault = MissingCapability(fault.required) if fault.required else InternalError(fault.message)
    if isinstance(fault, ProtocolError):
        if run is not None and not isinstance(fault, StateRefused) and log.isEnabledFor(logging.INFO):
            log.info("%s error %s", run, fault.code, extra=run.facts("error"))
        return fault
    if isinstance(fault, ToolError | UnstableQuestion):
        log.warning("%s ended with: %s", run or "a request", fault, extra=_facts(run))
        return InternalError(str(fault))
    task = asyncio.current_task()
    # A cancellation that was not requested comes from inside: the handler awaited something that was cancelled.
    own = isinstance(fault, asyncio.CancelledError) and task is not None and not task.cancelling()
    if not isinstance(fault, asyncio.CancelledError | GeneratorExit) or own:
        log.error("%s failed", run or "a request", exc_info=from_own_frame(fault), extra=_facts(run))
        return InternalError()
    raise fault


def _facts(run: Run | None) -> dict[str, object] | None:
    return None if run is None else run.facts("error")
