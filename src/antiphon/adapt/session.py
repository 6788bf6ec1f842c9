"""The session that asks: what every question of the other library ends in."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

from mcp.server.session import ServerSession
from pydantic import BaseModel, ValidationError

from antiphon.adapt.versions import check_fastmcp
from antiphon.errors import CannotAsk
from antiphon.rounds.ask import Question, of_wire
from antiphon.rounds.journal import RoundEnds
from antiphon.server.run import Run
from antiphon.shapes import Mismatch, form_of, raw_shape
from antiphon.types import JsonObject

R = TypeVar("R", bound=BaseModel)

runs: "WeakKeyDictionary[ServerSession, Run]" = WeakKeyDictionary()
"""The run of a call, by the session that its handler has."""


def run_of(session: Any) -> Run:
    """Return the run that a session belongs to; raise RuntimeError if it belongs to none."""
    run = runs.get(session) if isinstance(session, ServerSession) else None
    if run is None:
        raise RuntimeError("step() needs the context of a call to a server that was given to antiphon.adapt.awaited()")
    return run


class _Session(ServerSession):
    """The session of a call, in which no exception that a handler may catch stands for an answer."""

    asks: ClassVar[frozenset[str]]
    """The methods whose answers must not be missing."""
    unanswered: CannotAsk | None = None
    """Why the call ends, whatever its handler makes of that."""

    def __init__(self, session: ServerSession, run: Run) -> None:  # pyright: ignore[reportMissingSuperCall]
        vars(self).update(vars(session))
        runs[self] = run

    async def send_request(
        self,
        request: Any,
        result_type: type[R],
        request_read_timeout_seconds: float | None = None,
        *more: Any,
        **rest: Any,
    ) -> R:
        wire = request.model_dump(by_alias=True, mode="json", exclude_none=True)
        send = functools.partial(
            super().send_request, request, result_type, request_read_timeout_seconds, *more, **rest
        )
        if wire["method"] not in self.asks:
            return await send()
        run = run_of(self)
        in_thread = _is_awaited_by_a_thread()
        run.is_plain = run.is_plain or in_thread
        try:
            return await self.answer(run, _Foreign(wire, result_type), send)
        except CannotAsk as fault:
            self.unanswered = self.unanswered or fault
            raise
        except asyncio.CancelledError:
            if in_thread:
                # In a thread, a cancellation is an Exception, which a handler may catch and go on.
                raise RoundEnds from None
            raise

    async def answer(self, run: Run, question: "_Foreign", send: Callable[[], Awaitable[R]]) -> R:
        """The answer to a question, which ``send`` would put to the client as the library does."""
        raise NotImplementedError


class AskingSession(_Session):
    """A session whose questions are answered by the rounds of a call."""

    asks = frozenset({"elicitation/create", "roots/list", "sampling/createMessage"})

    @property
    def can_send_request(self) -> bool:
        """A question is always on its way back: with the result that ends the round."""
        return True

    async def answer(self, run: Run, question: "_Foreign", send: Callable[[], Awaitable[R]]) -> R:
        del send
        answer: R = await run.ask(question)
        return answer


class ElsewhereSession(AskingSession):
    """The session of an older client whose user is asked elsewhere; its model and its roots are asked in the call."""

    asks = frozenset({"elicitation/create"})


class PushingSession(_Session):
    """The session of an older client, which is asked in the middle of the call.

    A form or page that gets no answer ends the call, as it does with clients of 2026-07-28. Sampling and roots are
    no consent: a handler that goes on without them may still do so.
    """

    asks = frozenset({"elicitation/create"})

    async def answer(self, run: Run, question: "_Foreign", send: Callable[[], Awaitable[R]]) -> R:
        try:
            answer = await send()
            question.read(answer.model_dump(by_alias=True, mode="json", exclude_none=True))
        except Exception as fault:  # noqa: BLE001 -- whatever it is, it is no answer
            self.unanswered = CannotAsk(f"The question was not answered: {fault}", required={})
            await run.settled().end(self.unanswered, at_once=True)
        return answer


def _is_awaited_by_a_thread() -> bool:
    """Whether the current task was started by ``anyio.from_thread.run`` or ``asyncio.run_coroutine_threadsafe``."""
    callbacks: Any = getattr(asyncio.current_task(), "_callbacks", None) or ()
    return any("_chain_future" in getattr(callback, "__qualname__", "") for callback, _ in callbacks)


class _Foreign(Question):
    """A question of the other library; its answer is what that makes of the response."""

    __slots__ = ("_check", "_result")

    def __init__(self, wire: JsonObject, result: type[BaseModel]) -> None:
        # 2026-07-28 has no id of an elicitation, and a tool that draws one would never ask the same question twice.
        params = {name: value for name, value in wire.get("params", {}).items() if name != "elicitationId"}
        known = of_wire({**wire, "params": params})
        super().__init__(known.kind, known.method, known.params, known.needs)
        self._result = result
        self._check: Callable[[Any], Any] | None = None
        if known.kind == "form":
            try:
                self.form = form_of(params["requestedSchema"])
                self._check = self.form.read
            except TypeError:  # more than a form of the protocol can say
                self._check = raw_shape(params["requestedSchema"]).read

    def read(self, raw: object) -> Any:
        if self._check is not None and type(raw) is dict and raw.get("action") == "accept":
            content = raw.get("content")
            # A field that is left empty may be null.
            self._check({k: v for k, v in content.items() if v is not None} if type(content) is dict else content)
        try:
            return self._result.model_validate(raw, by_name=False)
        except ValidationError as fault:
            raise Mismatch(fault.errors()[0]["msg"]) from None


def let_fastmcp_ask() -> None:
    """Let ``Context.elicit`` of FastMCP reach a session that asks: on 2026-07-28 it raises before it tries."""
    from fastmcp.server.context import Context

    check_fastmcp(Context)
    original: Any = Context.elicit
    if hasattr(original, "by_antiphon"):
        return

    @functools.wraps(original)
    async def elicit(self: Any, *args: Any, **kwargs: Any) -> Any:
        current = self.request_context
        asks = current is not None and isinstance(current.session, AskingSession)
        return await original(_Asking(self) if asks else self, *args, **kwargs)

    vars(elicit)["by_antiphon"] = True
    type.__setattr__(Context, "elicit", elicit)


class _Asking:
    """A Context of FastMCP that does not know that its client is of 2026-07-28."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def _is_modern_protocol(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
