"""One run of a request: what the server knows of it, and how a question in it is answered or ends it.

The dispatcher makes a Run for each request and hands it to routes and entries. A handler holds a Context, which is the
public face of the same run.
"""

import asyncio
import contextvars
import logging
import os
from collections.abc import Callable, Container, Coroutine, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NoReturn, Protocol, TypeAlias

from antiphon.errors import CannotAsk, UserRefused
from antiphon.oauth.identity import Identity
from antiphon.rounds.ask import FormQuestion, Question, missing
from antiphon.rounds.journal import Conversation, InputRequired, Journal, RoundEnds
from antiphon.server.round_end import Settling
from antiphon.server.unawaited import Asking, not_awaited
from antiphon.shapes import Form
from antiphon.stores.shared_steps import SharedSteps
from antiphon.stores.store import Store
from antiphon.types import Accepted, Answer, Implementation, JsonObject
from antiphon.wire.call import Call
from antiphon.wire.headers import RawHeaders

log = logging.getLogger("antiphon")

Push: TypeAlias = Callable[[str, JsonObject], Coroutine[Any, Any, object]]

current_step: contextvars.ContextVar["asyncio.Task[Any] | None"] = contextvars.ContextVar("current_step", default=None)
"""The task of the step that the current code is part of: a question inside a step must not wait for it."""
_PUSHES = 3
"""How often an older client is asked the same question before its unfit answers end the call."""


class Channel:
    """The way back to the peer while a call runs; each transport has one."""

    __slots__ = ()
    identity: Identity | None = None
    """Who is at the other end, where the server is protected."""
    push: Push | None = None
    """Asks ``(name, request)`` in the middle of the call and gives the response; None where a round ends with it."""

    async def emit(self, message: JsonObject) -> None:
        """Send a notification."""
        raise NotImplementedError

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Send these along with the refusal that follows; nothing where there are no headers."""

    async def hang_up(self, retry: float) -> None:
        """Let go of the connection, to which the client comes back; nothing where it would not."""

    async def url_done(self, key: str) -> None:
        """Say that a page has served its purpose; nothing where the client does not wait for it."""


class StepObserver(Protocol):
    """A test's view of a server: see `Service.rehearsal`."""

    def step(self, key: str) -> AbstractContextManager[None]:
        """Enter this around what runs once and is recorded: a step, or ``ctx.now()`` (":now") and ``ctx.random()``."""
        ...


class Protection(Protocol):
    """Says who may call, and what they may do: checks the tokens of requests. ``antiphon.auth.Protected`` is one."""

    resource: str
    """The server's public URL."""
    metadata: bytes
    """The resource's metadata document (RFC 9728)."""

    def serve_at(self, path: str) -> None:
        """Note the path of the endpoint below its mount: challenges name metadata that is surely served."""
        ...

    def recall(self, headers: RawHeaders) -> Identity | None:
        """Return who makes a request with these headers if that is known without looking; None if it is not."""
        ...

    async def identify(self, verb: str, headers: RawHeaders, store: Store) -> Identity:
        """Return who makes a request with these headers; raise Unauthorized if they do not say.

        ``store`` remembers proofs, which count once.
        """
        ...

    def check_scopes(self, identity: Identity, needed: Sequence[str]) -> None:
        """Raise Unauthorized if the token lacks one of these scopes, or one that every request needs."""
        ...

    def admit(self, identity: Identity, needed: Sequence[str]) -> Identity:
        """Return who calls without HTTP, with all that their scopes imply; raise Unauthorized as over HTTP."""
        ...

    def has_ended(self, identity: Identity | None) -> bool:
        """Return whether the token that told this identity has expired."""
        ...


class Host(Protocol):
    """The server, as far as a run needs it."""

    @property
    def info(self) -> Implementation: ...
    @property
    def state(self) -> Any: ...
    @property
    def clock(self) -> Callable[[], float]: ...
    @property
    def shared_steps(self) -> SharedSteps | None: ...
    @property
    def observer(self) -> StepObserver | None: ...
    @property
    def auth(self) -> Protection | None: ...

    async def in_thread(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...

    async def in_step_thread(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...

    def changed(self, kind: Literal["tools", "prompts", "resources"]) -> None: ...

    def updated(self, uri: str) -> None: ...

    def asking(self, run: "Run") -> JsonObject: ...


class Run:
    """A request while it is served."""

    # Set on the class, since most requests never set them otherwise.
    talk: Conversation | None = None
    task: asyncio.Task[Any] | None = None
    """The handler's own task."""
    is_plain = False
    """Whether the handler is a plain function in a thread."""
    settling: Settling | None = None
    steps: set[str] | None = None
    """The keys of the steps that were called in this run."""
    progress: float | None = None
    """The last progress that was reported."""
    over = False
    """Whether the run has ended: nothing more is asked, sent or recorded."""
    brought: bytes | None = None
    """The journal in the token that this request brought, as it was packed."""
    expires = 0.0
    """When that token expires."""
    asking: JsonObject | None = None
    """The result that ended a round of this run."""
    instead: JsonObject | None = None
    """The questions to the client in place of those that the handler asked, since these are asked elsewhere."""
    able: Mapping[str, Any] | None = None
    """What the client itself is asked, where any other question ends the round and is asked elsewhere."""
    give_up: Callable[[], None] | None = None
    """Ends what waits at another server for the answers to this round; called if no person is asked for them."""
    context: Any = None
    """The Context that stands for this run, once something holds it."""

    def __init__(self, server: Host, call: Call, channel: Channel) -> None:
        self.server = server
        self.call = call
        self.channel = channel
        self.unawaited: set[Asking[Any]] = set()
        """The questions and steps that were made and not awaited yet."""

    def __str__(self) -> str:
        """The request as a log line names it."""
        return f"{self.call.method} {self.call.name!r} id={self.call.id!r} round={self.round}"

    def facts(self, outcome: object) -> dict[str, object]:
        """What a log record carries beside its text."""
        return {
            "mcp_method": self.call.method,
            "mcp_name": self.call.name,
            "mcp_request_id": self.call.id,
            "mcp_round": self.round,
            "mcp_flow": None if self.talk is None else self.talk.journal.flow.hex(),
            "mcp_result": outcome,
        }

    @property
    def round(self) -> int:
        """1 on the first request of a conversation, 2 when its answers come back, and so on."""
        return 1 if self.talk is None else self.talk.journal.round

    def conversation(self) -> Conversation:
        """What was asked and answered so far; begins with the first use."""
        if self.talk is None:
            call = self.call
            responses = call.params.get("inputResponses") if call.row.asks else None
            self.talk = Conversation(Journal(os.urandom(12)), responses, call.capabilities)
        return self.talk

    # --- asking ---------------------------------------------------------------------------------------------------

    def elicit(self, message: str, form: Form, key: str | None, ttl: float | None) -> Generator[Any, Any, Answer[Any]]:
        """The steps of ``ctx.elicit``. An answer that is recorded costs no Question."""
        recalled = None if self.talk is None or self.over else self.talk.recalled(form, message, key)
        if recalled is not None:
            return recalled
        answer: Answer[Any] = yield from self.ask(FormQuestion(message, form, key=key, ttl=ttl)).__await__()
        return answer

    def confirm(self, question: Question) -> Generator[Any, Any, bool]:
        """The steps of ``ctx.confirm``."""
        return is_ticked((yield from self.ask(question).__await__()))

    def put(self, question: Question) -> Generator[Any, Any, Any]:
        """The steps of every other question."""
        return self.ask(question).__await__()

    async def ask(self, question: Question) -> Any:
        """The answer to a question: recorded, pushed to an older client, or none, which ends the run."""
        try:
            if self.talk is None or self.over or not self.call.row.asks:
                return self.answer(question)
            return self.talk.ask(question)
        except CannotAsk as fault:
            await self._end(fault)
        except RoundEnds as signal:
            question.beside = asyncio.current_task() is not self.task
            push = self.channel.push
            if push is None or self.over or (self.able is not None and missing(self.able, (question,))):
                await self._end(signal)
        pushing = asyncio.ensure_future(self._push(push, question)) if self.able is not None else None
        if pushing is not None:
            # A question that is asked elsewhere ends the round: not before the client has answered its own.
            running = self.settled().running
            running.add(pushing)
            pushing.add_done_callback(running.discard)
        try:
            return await (pushing or self._push(push, question))
        except CannotAsk as fault:
            await self._end(fault, at_once=True)

    def answer(self, question: Question) -> Any:
        """The recorded answer; RoundEnds or CannotAsk if there is none."""
        if self.over:
            raise RoundEnds
        self.check_may_ask()
        return self.conversation().ask(question)

    def check_may_ask(self) -> None:
        """CannotAsk if this method may not ask."""
        if not self.call.row.asks:
            raise CannotAsk(f"{self.call.method} may not ask: only tools, prompts and resources do", required={})

    def ask_by_returning(self, wanted: InputRequired) -> NoReturn:
        """End the round with the questions that a handler returned."""
        self.check_may_ask()
        self.conversation().returned(wanted)
        raise RoundEnds

    def log_unfit(self, asked: Container[str]) -> None:
        """Log why the answers to questions that are asked again were not accepted."""
        for name, (reason, _) in self.conversation().unfit.items():
            if name in asked:
                log.warning("%s: the answer to %r was not accepted: %s", self, name, reason, extra=self.facts("asks"))

    def check_awaited(self, fault: BaseException | None = None, *, may_wait: bool = False) -> None:
        """TypeError if the run, which ends with this fault, leaves behind a question or step that was not awaited.

        When it ends with another question or its refusal, those that come after it were rightly not awaited yet: then
        it is only an error if one was taken for its answer. So it is with ``may_wait``, when the run does not end.
        """
        if isinstance(fault, asyncio.CancelledError):
            return
        may_wait = may_wait or isinstance(fault, UserRefused) or not isinstance(fault, Exception | None)
        for asking in tuple(self.unawaited):
            if asking.mistaken or not (may_wait or asking.excused):
                raise not_awaited(asking) from fault if isinstance(fault, Exception) else None
            asking.excused = fault is not None

    def settled(self) -> Settling:
        """What ends this run when a question gets no answer in it."""
        if self.settling is None:
            task = None if self.is_plain else self.task
            self.settling = Settling(self.conversation(), task, lambda: self.over)
        return self.settling

    async def close_round(self) -> None:
        """Wait for steps under way, whose results belong into the journal; then the run is over."""
        if self.settling is not None:
            await self.settling.close()
        self.over = True

    async def _push(self, push: Push, question: Question) -> Any:
        """Ask at once, in the middle of the call, as older clients are asked. What does not fit is asked again.

        CannotAsk if no answer fits: a handler that catches every Exception must not go on without one.
        """
        talk = self.conversation()
        name = talk.withdraw(question)
        for _ in range(_PUSHES):
            answer = talk.told(name, question, await push(name, talk.request(name, question)))
            if answer is not None:
                return answer
            self.log_unfit([name])
        raise CannotAsk(f"The answers to {name!r} do not fit what was asked, so the call ends here.", required={})

    async def _end(self, signal: BaseException, *, at_once: bool = False) -> NoReturn:
        """End the run for a question that gets no answer in it; see round_end.py for how."""
        settling = self.settled()
        inside = current_step.get()
        if inside is not None:
            settling.running.discard(inside)
        await settling.end(signal, at_once=at_once)


async def push_all(push: Push, questions: JsonObject) -> JsonObject:
    """The answers to all questions of a round, which are asked at once."""
    if len(questions) == 1:
        ((name, wire),) = questions.items()
        return {name: await push(name, wire)}
    try:
        async with asyncio.TaskGroup() as group:
            asked = {name: group.create_task(push(name, wire)) for name, wire in questions.items()}
    except BaseExceptionGroup as faults:
        cannot = faults.subgroup(CannotAsk)
        if cannot is None:
            raise
        raise cannot.exceptions[0] from None
    return {name: task.result() for name, task in asked.items()}


def is_ticked(answer: object) -> bool:
    """Whether an answer to ``ctx.confirm`` is a yes: accepted, and ticked."""
    return isinstance(answer, Accepted) and answer.value is True
