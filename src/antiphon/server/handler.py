"""Running a handler once, and telling how it ended: with a value, or with questions."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from types import UnionType
from typing import Annotated, Any, NoReturn, Union, get_args, get_origin

import msgspec

from antiphon.errors import CannotAsk, ProtocolError, ToolError, UserRefused
from antiphon.rounds.ask import Question
from antiphon.rounds.asked_parameters import AskedParameter, asked_parameters
from antiphon.rounds.journal import InputRequired, RoundEnds, raw_input_required
from antiphon.server.context import Context, context_of
from antiphon.server.run import Run
from antiphon.shapes import hints_of
from antiphon.types import Accepted, JsonObject, PromptResult, ResourceResult, ToolResult

RETURNED = (InputRequired, Question)
"""What a handler asks by returning."""


class Handler:
    """A user's function: where its context goes, which parameters are questions, and whether it needs a thread."""

    __slots__ = ("asked", "context", "function", "hidden", "is_async", "is_plain")

    def __init__(self, function: Callable[..., Any]) -> None:
        _check_callable(function)
        hints = hints_of(function)
        parameters = inspect.signature(function).parameters
        _check_annotations(function, [name for name in parameters if name not in hints])
        contexts = [name for name in parameters if _is_context(hints.get(name))]
        if len(contexts) > 1:
            raise TypeError(f"{label(function)} takes the Context twice: {', '.join(contexts)}")
        self.function = function
        self.context = contexts[0] if contexts else None
        self.asked: tuple[AskedParameter, ...] = asked_parameters(function, contexts)
        self.hidden = frozenset([*contexts, *(parameter.name for parameter in self.asked)])
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 -- an object whose call is a coroutine function
        )
        self.is_plain = self.is_async and not self.hidden

    @property
    def asks_forms(self) -> bool:
        """Whether it cannot run without a form: a question in a text is asked, one in a function may not be."""
        return any(isinstance(parameter.source, str) for parameter in self.asked)

    async def run(self, run: Run, arguments: dict[str, Any]) -> Any:
        """The handler's value. RoundEnds if it ended with questions, which stand in the conversation."""
        if self.context is not None:
            run.task = asyncio.current_task()
            run.is_plain = not self.is_async
            arguments[self.context] = run.context or context_of(run)
        try:
            if self.asked:
                await self._fill_in(run, arguments)
            if self.is_async:
                value = await self.function(**arguments)
            else:
                value = await run.server.in_thread(self.function, **arguments)
                if inspect.isawaitable(value):
                    # A decorator may hide that a function is a coroutine function.
                    run.is_plain = False
                    value = await value
        except BaseException as fault:  # noqa: BLE001 -- raised again, unless it ends the round
            take_end(run, fault)
            value = None
        else:
            take_return(run)
        talk = run.talk
        if isinstance(value, RETURNED):
            self.ask_by_returning(run, value)
        if talk is not None and talk.pending:
            await run.close_round()
            raise RoundEnds
        return value

    def ask_by_returning(self, run: Run, wanted: InputRequired | Question) -> NoReturn:
        """End the round with the questions that the handler returned."""
        if isinstance(wanted, Question):
            raise TypeError(
                f"{label(self.function)} returned a question without a name: write"
                " 'return input_required({\"name\": ask.form(...)})'"
            )
        run.ask_by_returning(wanted)

    async def _fill_in(self, run: Run, arguments: dict[str, Any]) -> None:
        """Answer the declared questions; all that can be asked now are asked in one round."""
        open_: set[str] = set()
        cannot: CannotAsk | None = None
        for parameter in self.asked:
            if open_.intersection(parameter.needs):
                open_.add(parameter.name)
                continue
            try:
                arguments[parameter.name] = await self._value(run, parameter, arguments)
            except RoundEnds:
                open_.add(parameter.name)
            except CannotAsk as fault:
                cannot = fault
                open_.add(parameter.name)
            except UserRefused:
                run.conversation().pending.clear()
                raise
        if cannot is not None:
            raise cannot
        if open_:
            raise RoundEnds

    async def _value(self, run: Run, parameter: AskedParameter, arguments: dict[str, Any]) -> Any:
        answer: Any
        if isinstance(parameter.source, str):
            answer = run.answer(parameter.question(arguments))
        else:
            made = parameter.source(**{name: arguments[name] for name in parameter.needs})
            if inspect.isawaitable(made):
                made = await made
            if isinstance(made, Question):
                answer = run.answer(made.under(made.key or parameter.name, parameter.ttl))
                if made.kind in {"sample", "roots"}:
                    return parameter.fitted(answer)
            else:
                answer = Accepted(made)
            if isinstance(answer, Accepted):
                answer = Accepted(parameter.fitted(answer.value))
        return answer if parameter.handles_refusal else answer.unwrap()


def take_end(run: Run, fault: BaseException) -> None:
    """Take what left a handler as the end of its round; raise what is none."""
    signal = None if run.settling is None else run.settling.heard(fault)
    if run.unawaited:
        run.check_awaited(signal or fault)
    if not _ends_round(signal or fault, run):
        if signal is None:
            raise fault
        raise signal from None
    # Its frames hold the signal, too: without this, only the garbage collector would free the run.
    (signal or fault).__traceback__ = None


def take_return(run: Run) -> None:
    """Take it that a handler has returned: it may have caught what interrupted it."""
    if run.settling is not None:
        run.settling.returned()
    if run.unawaited:
        run.check_awaited()


def label(function: Callable[..., Any]) -> str:
    named = getattr(function, "func", function)  # of a partial
    return f"{getattr(named, '__qualname__', type(named).__qualname__)}()"


def _check_callable(function: object) -> None:
    if isinstance(function, classmethod):
        raise TypeError(f"{label(function.__func__)} is a classmethod: register it when its class is complete")
    if not callable(function):
        raise TypeError(f"{function!r} is not a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{label(function)} is a generator; return the whole result, for example as a list")


def _check_annotations(function: Callable[..., Any], bare: list[str]) -> None:
    """Refuse parameters that would be asked of the model, but are meant for an object or the Context."""
    if bare and bare[0] in {"self", "cls"}:
        raise TypeError(f"{label(function)} is a method: register it on an object, as in app.add_tool(shop.add)")
    for name in {"ctx", "context"}.intersection(bare):
        raise TypeError(
            f"{label(function)}: the parameter {name!r} has no annotation: write {name}: Context,"
            " or its own type if clients are to send it"
        )


def _is_context(hint: Any) -> bool:
    """Whether an annotation is a Context: of a state, with notes, or optional."""
    if get_origin(hint) is Annotated:
        return _is_context(get_args(hint)[0])
    if get_origin(hint) in {Union, UnionType}:
        return any(map(_is_context, get_args(hint)))
    return (get_origin(hint) or hint) is Context


def _ends_round(fault: BaseException, run: Run) -> bool:
    """Whether what left the handler is the end of a round; raises what must go on instead.

    A handler may swallow the signal and fail with an error of its own: its questions are still asked. A task group that
    failed for another reason as well reports that reason.
    """
    if isinstance(fault, RoundEnds):
        return True
    if isinstance(fault, BaseExceptionGroup):
        _, rest = fault.split(RoundEnds)
        if rest is None:
            return True
        cannot = rest.subgroup(CannotAsk)
        if cannot is not None:
            raise _first(cannot) from None
        raise told_by(rest) from None
    if isinstance(fault, Exception):
        talk = run.talk
        return talk is not None and bool(talk.pending)
    return False


def told_by(faults: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a task group failed with, where all of that is meant to be told; else the group itself."""
    _, rest = faults.split((ToolError, ProtocolError))
    return faults if rest is not None else _first(faults)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


# --- handlers of the low level: parameters in, a result as the wire has it out ----------------------------------------


def raw_route(
    function: Callable[..., Any], complete: Callable[[Run, JsonObject], JsonObject]
) -> Callable[[Run], Awaitable[JsonObject]]:
    """Return the route to a function that takes the request's params, and may take a Context."""
    handler = Handler(function)
    names = [name for name in inspect.signature(function).parameters if name not in handler.hidden]
    if len(names) != 1:
        raise TypeError(f"{label(function)} must take the request's params, and may take a Context")

    async def route(run: Run) -> JsonObject:
        result = _plain(await handler.run(run, {names[0]: raw_params(run)}))
        if result.get("resultType") == "input_required":
            run.ask_by_returning(raw_input_required(result))
        return complete(run, result)

    return route


def raw_params(run: Run) -> JsonObject:
    """The parameters as they came; on a retry, with the handler's own state and the answers to what it asked."""
    params = run.call.params
    if run.round == 1:
        return params
    rest = {name: value for name, value in params.items() if name not in {"requestState", "inputResponses"}}
    return {**rest, **run.conversation().retried()}


def _plain(value: object) -> JsonObject:
    if isinstance(value, ToolResult | PromptResult | ResourceResult):
        raise TypeError(f"A low-level handler returns the wire's own result, a dict; got {type(value).__name__}")
    made: object = {} if value is None else msgspec.to_builtins(value, str_keys=True)
    if type(made) is not dict:
        raise TypeError(f"A low-level handler returns an object, got {type(value).__name__}")
    return dict(made)
