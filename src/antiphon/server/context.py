"""The Context: the only thing a handler holds of the call that it serves."""

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from copy import copy
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, overload

import msgspec

from antiphon.errors import CannotAsk
from antiphon.oauth.identity import Identity
from antiphon.rounds import ask
from antiphon.rounds.ask import Question
from antiphon.rounds.journal import Conversation, RoundEnds
from antiphon.server import steps
from antiphon.server.round_end import Unheard, unheard
from antiphon.server.run import Host, Run, is_ticked
from antiphon.server.unawaited import Asking
from antiphon.shapes import Mismatch, form_of, shape_of
from antiphon.threads import in_threads
from antiphon.types import (
    LOG_LEVELS,
    Answer,
    Elicited,
    JsonObject,
    LogLevel,
    Message,
    ModelPreferences,
    Response,
    Root,
    Sample,
    Tool,
)
from antiphon.wire.jsonrpc import notification
from antiphon.wire.revisions import CLIENT_INFO, LOG_LEVEL, PROGRESS_TOKEN

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
if TYPE_CHECKING:
    from typing_extensions import TypeForm
    from typing_extensions import TypeVar as TypeVarWithDefault

    # A Context without a type in brackets stays valid under strict settings.
    State = TypeVarWithDefault("State", default=Any)
else:
    State = TypeVar("State")


class Peer:
    """Who calls, as it says of itself, and what it can be asked."""

    __slots__ = ("_info", "capabilities")

    def __init__(self, info: Mapping[str, Any], capabilities: Mapping[str, Any]) -> None:
        self._info = info
        self.capabilities = capabilities

    @property
    def name(self) -> str | None:
        return self._info.get("name")

    @property
    def version(self) -> str | None:
        return self._info.get("version")

    def supports(self, capability: str) -> bool:
        """``"elicitation"`` (forms), ``"elicitation.url"``, ``"sampling"``, ``"sampling.tools"``, ``"roots"`` ..."""
        return ask.supports(self.capabilities, capability.split("."))


class Headers(Mapping[str, str]):
    """The HTTP request's headers; names ignore case. Empty where there is no HTTP."""

    __slots__ = ("_raw",)

    def __init__(self, raw: Mapping[bytes, bytes]) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        try:
            return self._raw[name.lower().encode("latin-1")].decode("latin-1")
        except (KeyError, UnicodeEncodeError):
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._raw)

    def __len__(self) -> int:
        return len(self._raw)


class Context(Generic[State]):
    """What a handler knows of its call, and how it asks, reports and remembers.

    ``Context[Database]`` says that the lifespan yields a Database.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def server(self) -> Host:
        """The server that runs the handler."""
        return self._run.server

    # --- the call -------------------------------------------------------------------------------------------------

    @property
    def request_id(self) -> int | str:
        """The id of the request, as the client chose it. Each round has another."""
        return self._run.call.id

    @property
    def method(self) -> str:
        """The request's method, such as ``"tools/call"``."""
        return self._run.call.method

    @property
    def name(self) -> str:
        """The tool's or prompt's name, or the resource's URI."""
        return self._run.call.name

    @property
    def params(self) -> JsonObject:
        """The request's parameters as they came."""
        return self._run.call.params

    @property
    def meta(self) -> JsonObject:
        """The request's ``_meta``."""
        return self._run.call.meta

    @property
    def client(self) -> Peer:
        """Who calls, as it says of itself, and what it can be asked."""
        info = self._run.call.meta.get(CLIENT_INFO)
        return Peer(info if isinstance(info, dict) else {}, self._run.call.capabilities)

    @property
    def headers(self) -> Headers:
        """The headers of the HTTP request; empty where there is no HTTP."""
        return Headers(self._run.call.headers or {})

    @property
    def principal(self) -> str | None:
        """Who is authenticated, as the application's ``principal=`` hook says."""
        return self._run.call.principal

    @property
    def auth(self) -> Identity | None:
        """Who calls, as their token told; None where the server is not protected, or not reached over HTTP."""
        return self._run.channel.identity

    async def need(self, *scopes: str) -> None:
        """Require scopes that only the arguments tell; a client that knows how to gets them and calls again.

        Name all that the call needs at once. Nothing is required where ``auth`` is None.
        """
        protection, identity = self._run.server.auth, self._run.channel.identity
        if protection is not None and identity is not None:
            protection.check_scopes(identity, scopes)

    @property
    def protocol_version(self) -> str:
        """The revision that the client speaks."""
        return self._run.call.revision

    @property
    def lifespan(self) -> State:
        """What the server's lifespan yielded."""
        state: State = self._run.server.state
        return state

    @property
    def round(self) -> int:
        """1 on the first request of a conversation, 2 when its answers come back, and so on."""
        return self._run.round

    @property
    def flow(self) -> str:
        """The conversation's id, the same on every round and every instance."""
        return self._run.conversation().journal.flow.hex()

    # --- telling --------------------------------------------------------------------------------------------------

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the work is; only if the caller asked for it, and only forwards."""
        if not math.isfinite(progress) or (total is not None and not math.isfinite(total)):
            raise ValueError(f"ctx.progress takes finite numbers, got {progress!r} of {total!r}")
        run = self._run
        token = run.call.meta.get(PROGRESS_TOKEN)
        if token is None or run.over or (run.progress is not None and progress <= run.progress):
            return
        run.progress = progress
        params: JsonObject = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await run.channel.emit(notification("notifications/progress", params))

    async def log(self, level: LogLevel, data: object, logger: str | None = None) -> None:
        """Send a log message to the client; only if the request asked for that level."""
        wanted = self._run.call.meta.get(LOG_LEVEL)
        if level not in LOG_LEVELS:
            raise ValueError(f"Unknown log level {level!r}: expected one of {', '.join(LOG_LEVELS)}")
        if wanted is None or self._run.over or LOG_LEVELS[level] < LOG_LEVELS[wanted]:
            return
        params: JsonObject = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        await self._run.channel.emit(notification("notifications/message", params))

    async def hang_up(self, retry: float = 1.0) -> None:
        """Let go of the connection in the middle of a long call; the client comes back for the result.

        ``retry`` is the number of seconds after which it should. Only clients of 2025-11-25 over HTTP know how; with
        all others nothing happens.
        """
        if not self._run.over:
            await self._run.channel.hang_up(retry)

    async def url_done(self, key: str = "url") -> None:
        """Say that what the user had to do at ``ctx.elicit_url``'s page is done; clients of 2025-11-25 wait for it."""
        if not self._run.over:
            await self._run.channel.url_done(key)

    # --- asking, by awaiting --------------------------------------------------------------------------------------

    @overload
    def elicit(
        self, message: str, shape: type[T], *, key: str | None = None, ttl: float | None = None
    ) -> Coroutine[Any, Any, Answer[T]]: ...
    @overload
    def elicit(
        self, message: str, shape: "TypeForm[T]", *, key: str | None = None, ttl: float | None = None
    ) -> Coroutine[Any, Any, Answer[T]]: ...
    @overload
    def elicit(
        self, message: str, shape: object, *, key: str | None = None, ttl: float | None = None
    ) -> Coroutine[Any, Any, Answer[Any]]: ...
    def elicit(
        self, message: str, shape: object, *, key: str | None = None, ttl: float | None = None
    ) -> Coroutine[Any, Any, Answer[Any]]:
        """Ask the user to fill in a form."""
        return Asking("elicit", self._run.unawaited, self._run.elicit, message, form_of(shape), key, ttl)

    def elicit_url(
        self, message: str, url: str, *, key: str | None = None, ttl: float | None = None
    ) -> Coroutine[Any, Any, Answer[None]]:
        """Ask the user to open a page. Accepted means that they agreed to, not that they are done there."""
        return Asking("elicit_url", self._run.unawaited, self._run.put, ask.url(message, url, key=key, ttl=ttl))

    def confirm(self, message: str, *, key: str | None = None, ttl: float | None = None) -> Coroutine[Any, Any, bool]:
        """Whether the user accepted and ticked the box. Everything else is no."""
        return Asking("confirm", self._run.unawaited, self._run.confirm, ask.confirm(message, key=key, ttl=ttl))

    def sample(
        self,
        messages: str | Message | Sequence[str | Message],
        *,
        max_tokens: int,
        system: str | None = None,
        temperature: float | None = None,
        stop: Sequence[str] | None = None,
        model: ModelPreferences | None = None,
        tools: Sequence[Tool] | None = None,
        tool_choice: Literal["auto", "required", "none"] | None = None,
        context: Literal["none", "thisServer", "allServers"] | None = None,
        metadata: JsonObject | None = None,
        key: str | None = None,
        ttl: float | None = None,
    ) -> Coroutine[Any, Any, Sample]:
        """Ask the client's model for a completion."""
        question = ask.sample(
            messages,
            max_tokens=max_tokens,
            system=system,
            temperature=temperature,
            stop=stop,
            model=model,
            tools=tools,
            tool_choice=tool_choice,
            context=context,
            metadata=metadata,
            key=key,
            ttl=ttl,
        )
        return Asking("sample", self._run.unawaited, self._run.put, question)

    def roots(self, *, key: str | None = None, ttl: float | None = None) -> Coroutine[Any, Any, list[Root]]:
        """Ask for the folders that the user opened to this server."""
        return Asking("roots", self._run.unawaited, self._run.put, ask.roots(key=key, ttl=ttl))

    # --- asking, by returning -------------------------------------------------------------------------------------

    @overload
    def accepted(self, key: str, shape: type[T]) -> T | None: ...
    @overload
    def accepted(self, key: str, shape: "TypeForm[T]") -> T | None: ...
    @overload
    def accepted(self, key: str, shape: object) -> Any: ...
    def accepted(self, key: str, shape: object) -> Any:
        """The accepted answer under a key, typed; None while it is missing, declined, cancelled or invalid."""
        talk = self._run.conversation()
        response = talk.answer(key)
        if not isinstance(response, Elicited) or response.action != "accept":
            return None
        try:
            return form_of(shape).read(response.content)
        except Mismatch as fault:
            talk.refuse(key, {"action": response.action}, fault)
            return None

    def response(self, key: str) -> Response:
        """What has arrived under a key: Missing, Elicited, Sampled or Rooted."""
        return self._run.conversation().answer(key)

    @overload
    def state(self, shape: type[T]) -> T | None: ...
    @overload
    def state(self, shape: "TypeForm[T]") -> T | None: ...
    @overload
    def state(self, shape: object = Any) -> Any: ...
    def state(self, shape: object = Any) -> Any:
        """The state that ``input_required(state=...)`` was given on the round before; None if it was given none."""
        packed = self._run.conversation().journal.state
        return None if packed is None else shape_of(shape).read(msgspec.json.decode(packed))

    # --- remembering ----------------------------------------------------------------------------------------------

    @overload
    def step(
        self, key: str, fn: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]: ...
    @overload
    def step(self, key: str, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...
    def step(self, key: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        """Run ``fn`` once in the whole conversation; on later rounds, give back what it returned.

        The result is stored as JSON and read back by the function's return annotation, on the first round as well, so
        that every round sees the same thing.
        """
        return self._made("step", steps.step, self._run, key, fn, args, kwargs)

    def now(self) -> Coroutine[Any, Any, datetime]:
        """The time, in UTC: of the round that first asked for it, and the same ever after."""
        return self._made("now", self._now)

    def random(self) -> Coroutine[Any, Any, float]:
        """A random number from 0 up to 1, the same on every round."""
        return self._made("random", self._random)

    @property
    def sync(self) -> "SyncContext":
        """The same questions for a handler that is a plain function, running in a thread."""
        return SyncContext(self, self._run)

    async def _now(self) -> datetime:
        return datetime.fromtimestamp(float(await steps.remembered(self._run, "now", self._run.server.clock)), UTC)

    async def _random(self) -> float:
        return float(await steps.remembered(self._run, "random", _random))

    def _made(self, verb: str, function: Callable[..., Coroutine[Any, Any, R]], *arguments: Any) -> Asking[R]:
        """A coroutine that must be awaited."""
        return Asking(verb, self._run.unawaited, lambda: function(*arguments).__await__())


def _random() -> float:
    return (int.from_bytes(os.urandom(7)) >> 3) / (1 << 53)


class SyncContext:
    """``ctx.sync``: the asking, telling and remembering of a Context, for code in a thread."""

    __slots__ = ("_ctx", "_run")

    def __init__(self, ctx: Context, run: Run) -> None:
        self._ctx = ctx
        self._run = run

    @overload
    def elicit(
        self, message: str, shape: type[T], *, key: str | None = None, ttl: float | None = None
    ) -> Answer[T]: ...
    @overload
    def elicit(
        self, message: str, shape: "TypeForm[T]", *, key: str | None = None, ttl: float | None = None
    ) -> Answer[T]: ...
    @overload
    def elicit(
        self, message: str, shape: object, *, key: str | None = None, ttl: float | None = None
    ) -> Answer[Any]: ...
    def elicit(self, message: str, shape: object, *, key: str | None = None, ttl: float | None = None) -> Answer[Any]:
        answer: Answer[Any] = self._ask(ask.form(message, shape, key=key, ttl=ttl))
        return answer

    def elicit_url(self, message: str, url: str, *, key: str | None = None, ttl: float | None = None) -> Answer[None]:
        answer: Answer[None] = self._ask(ask.url(message, url, key=key, ttl=ttl))
        return answer

    def confirm(self, message: str, *, key: str | None = None, ttl: float | None = None) -> bool:
        return is_ticked(self._ask(ask.confirm(message, key=key, ttl=ttl)))

    def sample(self, messages: str | Message | Sequence[str | Message], *, max_tokens: int, **options: Any) -> Sample:
        """See Context.sample for the options."""
        answer: Sample = self._ask(ask.sample(messages, max_tokens=max_tokens, **options))
        return answer

    def roots(self, *, key: str | None = None, ttl: float | None = None) -> list[Root]:
        answer: list[Root] = self._ask(ask.roots(key=key, ttl=ttl))
        return answer

    def step(self, key: str, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self._await(self._ctx.step(key, fn, *args, **kwargs))
        return result

    def now(self) -> datetime:
        moment: datetime = self._await(self._ctx.now())
        return moment

    def random(self) -> float:
        number: float = self._await(self._ctx.random())
        return number

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        self._await(self._ctx.progress(progress, total, message))

    def log(self, level: LogLevel, data: object, logger: str | None = None) -> None:
        self._await(self._ctx.log(level, data, logger))

    def _ask(self, question: Question) -> Any:
        if self._run.channel.push is not None:
            return self._await(self._run.ask(question))
        try:
            return self._run.answer(question)
        except (CannotAsk, RoundEnds) as signal:
            task = self._run.task
            if task is None or self._run.is_plain or in_threads.get() is not None:
                raise
            task.get_loop().call_soon_threadsafe(self._run.settled().interrupt, signal)
            raise unheard(signal) from None

    def _await(self, awaitable: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            awaitable.close()
            raise RuntimeError("ctx.sync is for plain functions in a thread; await ctx.step() and the like here")
        task = self._run.task
        assert task is not None
        future = asyncio.run_coroutine_threadsafe(awaitable, task.get_loop())
        try:
            return future.result()
        except CancelledError:
            # Not an Exception, which a handler might take for an answer.
            raise CannotAsk("The call was cancelled", required={}) from None
        except Unheard as fault:
            raise fault.signal from None


def context_of(run: Run) -> Context:
    """The Context of a run. There is one: the handler finds what a middleware puts on it."""
    if run.context is None:
        run.context = Context(run)
    context: Context = run.context
    return context


def next_round(run: Run, talk: Conversation) -> Run:
    """A further run of the same request; what a middleware put on its Context is on the new one, too."""
    following = Run(run.server, run.call, run.channel)
    following.talk, following.progress = talk, run.progress
    if run.context is not None:
        following.context = copy(run.context)
        following.context._run = following  # noqa: SLF001 -- of this module
    return following


run_of: Callable[[Context], Run] = attrgetter("_run")
"""The run behind a Context, for the server's own code."""
