"""The Context: the only thing a handler holds of the call that it serves."""

import asyncio
import contextvars
import inspect
import math
import os
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, NoReturn, ParamSpec, Protocol, TypeAlias, TypeVar, overload

import msgspec

from antiphon.errors import CannotAsk, ToolError
from antiphon.rounds import ask
from antiphon.rounds.ask import FormQuestion, Question
from antiphon.rounds.journal import Conversation, Journal, RoundEnds
from antiphon.server.asking import Asking
from antiphon.server.settling import Settling
from antiphon.shapes import Form, Mismatch, form_of, hints_of, shape_of
from antiphon.types import (
    LOG_LEVELS,
    Accepted,
    Answer,
    Elicited,
    Implementation,
    JsonObject,
    LogLevel,
    Message,
    ModelPreferences,
    Response,
    Root,
    Sample,
    Tool,
)
from antiphon.wire.call import Call
from antiphon.wire.jsonrpc import notification
from antiphon.wire.revisions import CLIENT_INFO, LOG_LEVEL, PROGRESS_TOKEN

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

_step: contextvars.ContextVar["asyncio.Task[Any] | None"] = contextvars.ContextVar("step", default=None)
"""The task of the step that runs here, if one does: a question inside it must not wait for it."""
_UNOBSERVED = nullcontext()
_PUSHES = 3
"""How often an older client is asked the same question before its unfit answers end the call."""
in_threads: contextvars.ContextVar[object] = contextvars.ContextVar("in_threads", default=None)
"""The server's threads, in code that runs in one of them: what it raises reaches the task that awaits it."""


class Channel(Protocol):
    """The way back to the peer while a call runs; each transport has one.

    The channel of an older client has more: ``push(name, request) -> response`` puts a question to it at once, and
    ``hang_up(retry)`` lets go of the connection, to which the client comes back.
    """

    async def emit(self, message: JsonObject) -> None: ...


Push: TypeAlias = Callable[[str, JsonObject], Awaitable[object]]


class Steps(Protocol):
    """Runs a step once per key, across instances."""

    async def once(self, key: str, run: Callable[[], Awaitable[bytes]], ttl: float) -> bytes: ...


class StepObserver(Protocol):
    """A test's view of a server: see `Service.rehearsal`."""

    def step(self, key: str) -> AbstractContextManager[None]:
        """Enter this around what runs once and is recorded: a step, or ``ctx.now()`` (":now") and ``ctx.random()``."""
        ...


class Host(Protocol):
    """The server, as far as a handler's context knows it."""

    @property
    def info(self) -> Implementation: ...
    @property
    def state(self) -> Any: ...
    @property
    def clock(self) -> Callable[[], float]: ...
    @property
    def shared_steps(self) -> Steps | None: ...
    @property
    def observer(self) -> StepObserver | None: ...

    async def in_thread(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...

    async def in_step_thread(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...

    def changed(self, kind: Literal["tools", "prompts", "resources"]) -> None: ...

    def updated(self, uri: str) -> None: ...


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


class Context:
    """What a handler knows of its call, and how it asks, reports and remembers."""

    # Set on the class, since most calls never set them otherwise.
    _talk: Conversation | None = None
    _task: asyncio.Task[Any] | None = None
    _settling: Settling | None = None
    _is_plain = False
    _ran: set[str] | None = None
    _progress: float | None = None
    _over = False
    _expires = 0.0

    def __init__(self, server: Host, call: Call, channel: Channel) -> None:
        self.server = server
        self._call = call
        self._channel = channel
        self._loose: set[Asking[Any]] = set()
        """The questions that were made and not awaited yet."""

    # --- the call -------------------------------------------------------------------------------------------------

    @property
    def request_id(self) -> int | str:
        return self._call.id

    @property
    def method(self) -> str:
        return self._call.method

    @property
    def name(self) -> str:
        """The tool's or prompt's name, or the resource's URI."""
        return self._call.name

    @property
    def params(self) -> JsonObject:
        """The request's parameters as they came."""
        return self._call.params

    @property
    def meta(self) -> JsonObject:
        """The request's ``_meta``."""
        return self._call.meta

    @property
    def client(self) -> Peer:
        info = self._call.meta.get(CLIENT_INFO)
        return Peer(info if isinstance(info, dict) else {}, self._call.capabilities)

    @property
    def headers(self) -> Headers:
        return Headers(self._call.headers or {})

    @property
    def principal(self) -> str | None:
        """Who is authenticated, as the application's ``principal=`` hook says."""
        return self._call.principal

    @property
    def protocol_version(self) -> str:
        return self._call.revision

    @property
    def lifespan(self) -> Any:
        """What the server's lifespan yielded."""
        return self.server.state

    @property
    def round(self) -> int:
        """1 on the first request of a conversation, 2 when its answers come back, and so on."""
        return 1 if self._talk is None else self._talk.journal.round

    @property
    def flow(self) -> str:
        """The conversation's id, the same on every round and every instance."""
        return self._conversation().journal.flow.hex()

    # --- telling --------------------------------------------------------------------------------------------------

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the work is; only if the caller asked for it, and only forwards."""
        if not math.isfinite(progress) or (total is not None and not math.isfinite(total)):
            raise ValueError(f"ctx.progress takes finite numbers, got {progress!r} of {total!r}")
        token = self._call.meta.get(PROGRESS_TOKEN)
        if token is None or self._over or (self._progress is not None and progress <= self._progress):
            return
        self._progress = progress
        params: JsonObject = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self._channel.emit(notification("notifications/progress", params))

    async def log(self, level: LogLevel, data: object, logger: str | None = None) -> None:
        """Send a log message to the client; only if the request asked for that level."""
        wanted = self._call.meta.get(LOG_LEVEL)
        if level not in LOG_LEVELS:
            raise ValueError(f"Unknown log level {level!r}: expected one of {', '.join(LOG_LEVELS)}")
        if wanted is None or self._over or LOG_LEVELS[level] < LOG_LEVELS[wanted]:
            return
        params: JsonObject = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        await self._channel.emit(notification("notifications/message", params))

    async def hang_up(self, retry: float = 1.0) -> None:
        """Let go of the connection in the middle of a long call; the client comes back for the result.

        ``retry`` is the number of seconds after which it should. Only clients of 2025-11-25 over HTTP know how; with
        all others nothing happens.
        """
        leave: Callable[[float], Awaitable[None]] | None = getattr(self._channel, "hang_up", None)
        if leave is not None and not self._over:
            await leave(retry)

    async def url_done(self, key: str = "url") -> None:
        """Say that what the user had to do at ``ctx.elicit_url``'s page is done; clients of 2025-11-25 wait for it."""
        tell: Callable[[str], Awaitable[None]] | None = getattr(self._channel, "url_done", None)
        if tell is not None and not self._over:
            await tell(key)

    # --- asking, by awaiting --------------------------------------------------------------------------------------

    @overload
    def elicit(
        self, message: str, shape: type[T], *, key: str | None = None, ttl: float | None = None
    ) -> Coroutine[Any, Any, Answer[T]]: ...
    @overload
    def elicit(
        self, message: str, shape: object, *, key: str | None = None, ttl: float | None = None
    ) -> Coroutine[Any, Any, Answer[Any]]: ...
    def elicit(
        self, message: str, shape: object, *, key: str | None = None, ttl: float | None = None
    ) -> Coroutine[Any, Any, Answer[Any]]:
        """Ask the user to fill in a form."""
        return Asking("elicit", self._loose, self._elicit, message, form_of(shape), key, ttl)

    def _elicit(self, message: str, form: Form, key: str | None, ttl: float | None) -> Generator[Any, Any, Answer[Any]]:
        recalled = None if self._talk is None or self._over else self._talk.recalled(form, message, key)
        if recalled is not None:
            return recalled
        answer: Answer[Any] = yield from self._ask(FormQuestion(message, form, key=key, ttl=ttl)).__await__()
        return answer

    def elicit_url(
        self, message: str, url: str, *, key: str | None = None, ttl: float | None = None
    ) -> Coroutine[Any, Any, Answer[None]]:
        """Ask the user to open a page. Accepted means that they agreed to, not that they are done there."""
        return Asking("elicit_url", self._loose, self._steps, ask.url(message, url, key=key, ttl=ttl))

    def confirm(self, message: str, *, key: str | None = None, ttl: float | None = None) -> Coroutine[Any, Any, bool]:
        """Whether the user accepted and ticked the box. Everything else is no."""
        return Asking("confirm", self._loose, self._confirm, ask.confirm(message, key=key, ttl=ttl))

    def _confirm(self, question: Question) -> Generator[Any, Any, bool]:
        return _ticked((yield from self._ask(question).__await__()))

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
        return Asking("sample", self._loose, self._steps, question)

    def roots(self, *, key: str | None = None, ttl: float | None = None) -> Coroutine[Any, Any, list[Root]]:
        """Ask for the folders that the user opened to this server."""
        return Asking("roots", self._loose, self._steps, ask.roots(key=key, ttl=ttl))

    # --- asking, by returning -------------------------------------------------------------------------------------

    @overload
    def accepted(self, key: str, shape: type[T]) -> T | None: ...
    @overload
    def accepted(self, key: str, shape: object) -> Any: ...
    def accepted(self, key: str, shape: object) -> Any:
        """The accepted answer under a key, typed; None while it is missing, declined, cancelled or invalid."""
        response = self._conversation().answer(key)
        if not isinstance(response, Elicited) or response.action != "accept":
            return None
        try:
            return form_of(shape).read(response.content)
        except Mismatch:
            return None

    def response(self, key: str) -> Response:
        """What has arrived under a key: Missing, Elicited, Sampled or Rooted."""
        return self._conversation().answer(key)

    @overload
    def state(self, shape: type[T]) -> T | None: ...
    @overload
    def state(self, shape: object = Any) -> Any: ...
    def state(self, shape: object = Any) -> Any:
        """The state that ``input_required(state=...)`` was given on the round before; None if it was given none."""
        packed = self._conversation().journal.state
        return None if packed is None else shape_of(shape).read(msgspec.json.decode(packed))

    # --- remembering ----------------------------------------------------------------------------------------------

    @overload
    async def step(self, key: str, fn: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def step(self, key: str, fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def step(self, key: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run ``fn`` once in the whole conversation; on later rounds, give back what it returned.

        The result is stored as JSON and read back by the function's return annotation, on the first round as well, so
        that every round sees the same thing.
        """
        if self._over:
            raise RoundEnds
        self._claim(key)
        recorded = self._conversation().journal.steps.get(key)
        if recorded is None:
            recorded = await self._guarded(self._run(key, fn, args, kwargs))
        return _recall(key, fn, recorded)

    async def now(self) -> datetime:
        """The time, in UTC: of the round that first asked for it, and the same ever after."""
        return datetime.fromtimestamp(float(self._remembered("now", self.server.clock)), UTC)

    async def random(self) -> float:
        """A random number from 0 up to 1, the same on every round."""
        return float(self._remembered("random", lambda: (int.from_bytes(os.urandom(7)) >> 3) / (1 << 53)))

    @property
    def sync(self) -> "SyncContext":
        """The same questions for a handler that is a plain function, running in a thread."""
        return SyncContext(self)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _conversation(self) -> Conversation:
        if self._talk is None:
            call = self._call
            responses = call.params.get("inputResponses") if call.row.asks else None
            self._talk = Conversation(Journal(os.urandom(12)), responses, call.capabilities)
        return self._talk

    def _steps(self, question: Question) -> Generator[Any, Any, Any]:
        return self._ask(question).__await__()

    async def _ask(self, question: Question) -> Any:
        try:
            if self._talk is None or self._over or not self._call.row.asks:
                return self._answer(question)
            return self._talk.ask(question)
        except CannotAsk as fault:
            await self._end(fault)
        except RoundEnds as signal:
            question.beside = asyncio.current_task() is not self._task
            push: Push | None = getattr(self._channel, "push", None)
            if push is None or self._over:
                await self._end(signal)
        try:
            return await self._put(push, question)
        except CannotAsk as fault:
            await self._end(fault, at_once=True)

    async def _put(self, push: "Push", question: Question) -> Any:
        """Ask at once, in the middle of the call: older clients are asked so. What does not fit is asked again."""
        talk = self._conversation()
        name = talk.withdraw(question)
        for _ in range(_PUSHES):
            answer = talk.told(name, question, await push(name, question.to_wire()))
            if answer is not None:
                return answer
        raise ToolError(f"The answers to {name!r} do not fit what was asked, so the call ends here.")

    def _answer(self, question: Question) -> Any:
        if self._over:
            raise RoundEnds
        self._check_may_ask()
        return self._conversation().ask(question)

    def _check_may_ask(self) -> None:
        if not self._call.row.asks:
            raise CannotAsk(f"{self._call.method} may not ask: only tools, prompts and resources do", required={})

    def _end(self, signal: BaseException, *, at_once: bool = False) -> Coroutine[Any, Any, NoReturn]:
        """End the run for a question that gets no answer in it; see settling.py for how."""
        settling = self._settled_by()
        inside = _step.get()
        if inside is not None:
            settling.running.discard(inside)
        return settling.end(signal, at_once=at_once)

    def _settled_by(self) -> Settling:
        if self._settling is None:
            task = None if self._is_plain else self._task
            self._settling = Settling(self._conversation(), task, lambda: self._over)
        return self._settling

    def _claim(self, key: str) -> None:
        if self._ran is None:
            self._ran = set()
        if key in self._ran:
            raise ValueError(f"The step {key!r} was called already in this run: give each step a key of its own")
        self._ran.add(key)

    def _remembered(self, base: str, make: Callable[[], float]) -> Any:
        base = key = f":{base}"  # a colon first: no key that a user would choose
        count = 1
        while self._ran is not None and key in self._ran:
            count += 1
            key = f"{base}-{count}"
        self._claim(key)
        steps = self._conversation().journal.steps
        if key not in steps:
            with self._observed(base):
                steps[key] = msgspec.json.encode(make())
        return msgspec.json.decode(steps[key])

    def _observed(self, key: str) -> AbstractContextManager[None]:
        observer = self.server.observer
        return _UNOBSERVED if observer is None else observer.step(key)

    async def _guarded(self, run: Coroutine[Any, Any, bytes]) -> bytes:
        """Await a step so that neither a sibling's question nor a task group's end can stop it half-way."""
        if asyncio.current_task() is self._task:
            return await run

        async def inside() -> bytes:
            _step.set(asyncio.current_task())
            return await run

        task: asyncio.Task[bytes] = asyncio.ensure_future(inside())
        running = self._settled_by().running
        running.add(task)
        task.add_done_callback(running.discard)
        return await asyncio.shield(task)

    async def _run(self, key: str, fn: Callable[..., Any], args: Any, kwargs: Any) -> bytes:
        async def once() -> bytes:
            if inspect.iscoroutinefunction(fn):
                value = await fn(*args, **kwargs)
            else:
                value = await self.server.in_step_thread(fn, *args, **kwargs)
                if inspect.isawaitable(value):
                    value = await value
            return _store(key, value)

        talk = self._conversation()
        shared = self.server.shared_steps if talk.journal.round > 1 else None
        with self._observed(key):
            if shared is None:
                recorded = await once()
            else:
                # A copy of this leg may arrive as long as its token lives.
                recorded = await shared.once(f"{self.flow}:{key}", once, self._expires - self.server.clock())
        talk.journal.steps[key] = recorded
        return recorded

    async def _end_round(self) -> None:
        """Wait for steps under way; their results belong into the journal."""
        if self._settling is not None:
            await self._settling.close()
        self._over = True


class SyncContext:
    """``ctx.sync``: the asking, telling and remembering of a Context, for code in a thread."""

    __slots__ = ("_ctx",)

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    @overload
    def elicit(
        self, message: str, shape: type[T], *, key: str | None = None, ttl: float | None = None
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
        return _ticked(self._ask(ask.confirm(message, key=key, ttl=ttl)))

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
        if getattr(self._ctx._channel, "push", None) is not None:
            return self._await(self._ctx._ask(question))
        try:
            return self._ctx._answer(question)
        except (CannotAsk, RoundEnds) as signal:
            task = self._ctx._task
            if task is not None and in_threads.get() is None:
                task.get_loop().call_soon_threadsafe(self._ctx._settled_by().interrupt, signal)
            raise

    def _await(self, awaitable: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            awaitable.close()
            raise RuntimeError("ctx.sync is for plain functions in a thread; await ctx.step() and the like here")
        task = self._ctx._task
        assert task is not None
        future = asyncio.run_coroutine_threadsafe(awaitable, task.get_loop())
        try:
            return future.result()
        except CancelledError:
            # Not an Exception, which a handler might take for an answer.
            raise CannotAsk("The call was cancelled", required={}) from None


def _ticked(answer: object) -> bool:
    return isinstance(answer, Accepted) and answer.value is True


def _store(key: str, value: object) -> bytes:
    try:
        stored = msgspec.json.encode(value)
        if b"null" in stored:
            import json  # only to tell a None from what JSON has no word for

            json.dumps(msgspec.to_builtins(value, str_keys=True), allow_nan=False)
        return stored
    except (TypeError, ValueError, OverflowError, RecursionError) as fault:
        raise TypeError(f"The result of step {key!r} cannot be stored: {fault}. Return plain data.") from None


def _recall(key: str, fn: Callable[..., Any], recorded: bytes) -> Any:
    value = msgspec.json.decode(recorded)
    returns = _returns(fn)
    if returns is None:
        return value
    try:
        return shape_of(returns).read(value)
    except Mismatch as fault:
        raise TypeError(f"The result of step {key!r} does not fit {fn!r}'s return annotation: {fault}") from None


@lru_cache(maxsize=512)
def _returns(fn: Callable[..., Any]) -> object | None:
    try:
        annotation = hints_of(fn).get("return")
    except TypeError:
        return None
    return None if annotation is Any or annotation is type(None) else annotation
