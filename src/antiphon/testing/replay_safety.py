"""Replay safety: whether a handler may be run from the top on every round, and anywhere.

Every round of a call is run twice, and once more on a fresh instance. What differs is reported, and so is what ran
again although it should not have: effects outside of ``ctx.step``, readings of the clock, random numbers.
"""

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

import msgspec

from antiphon.client.answers import Answers, Asker
from antiphon.client.results import Complete, Pending
from antiphon.errors import CallFailed, Disconnected, Refused, RoundsExceeded
from antiphon.rounds.client_loop import MAX_ROUNDS
from antiphon.server.dispatch import Service
from antiphon.testing.answer_values import message_of
from antiphon.testing.answers import Script
from antiphon.testing.replay_observer import STEPS, Effect, Observer, Sighting, place_of
from antiphon.testing.servers import Instances, ServerUnderTest, instances, is_here
from antiphon.types import JsonObject
from antiphon.wire.revisions import METHODS

Kind: TypeAlias = Literal["question", "result", "instance", "effect", "clock", "random"]

_METHODS: Final = {
    "tool": ("tools/call", "name"),
    "prompt": ("prompts/get", "name"),
    "resource": ("resources/read", "uri"),
}
_REFUSED: Final = -32602


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that does not survive a replay: what, where, and what to do about it."""

    kind: Kind
    what: str
    where: str = ""
    """``file:line``, as far as it can be told."""
    advice: str
    rounds: tuple[int, ...]
    key: str = ""
    """The question's, if it is about one."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}\n    {self.advice}" if self.where else f"{self.what}\n    {self.advice}"


class SafetyReport(str):
    """What a check of replay safety found: ``assert report.ok, report``. A text, of which pytest shows all."""

    __slots__ = ("asked", "call", "findings", "notes", "problem", "rounds")

    call: str
    findings: tuple[Finding, ...]
    rounds: int
    asked: tuple[str, ...]
    problem: str
    """Why the call was not run through: it ended with an error, and what would have come next was not checked."""
    notes: tuple[str, ...]
    """What else could not be checked, and why."""

    def __new__(
        cls,
        *,
        call: str,
        findings: tuple[Finding, ...],
        rounds: int,
        asked: tuple[str, ...],
        problem: str = "",
        notes: tuple[str, ...] = (),
    ) -> Self:
        about = f"{call} ({rounds} round{'' if rounds == 1 else 's'}, asking {', '.join(asked) or 'nothing'})"
        if problem and not findings:
            lines = [f"{about} was not run to its end, so its replay safety is unknown. {problem}"]
        else:
            lines = [f"{about} is {'not safe' if findings else 'safe'} to replay{':' if findings else '.'}"]
            lines += [f"  {finding}" for finding in findings]
            lines += [f"  Note: {problem}"] if problem else []
        self = super().__new__(cls, "\n".join([*lines, *(f"  Note: {note}" for note in notes)]))
        self.call, self.findings, self.rounds, self.asked = call, findings, rounds, asked
        self.problem, self.notes = problem, notes
        return self

    def __bool__(self) -> bool:
        return self.ok

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings and not self.problem


async def check_replay_safety(
    app: object,
    call: str | tuple[str, Mapping[str, object]] | Mapping[str, object],
    answers: Script | Mapping[Any, object] | Callable[..., object] | None = None,
    *,
    effects: Iterable[Effect] = (),
    ignore: Collection[str] = (),
    max_rounds: int = MAX_ROUNDS,
    may_fail: bool = False,
) -> SafetyReport:
    """Run a call with every round twice and on a fresh instance, and tell what differs or runs again.

    ``app`` is a Server, a function that makes one (then the fresh instances come from it), a command, or a URL;
    or a ServerUnderTest, which says how to reach one of these.
    ``call`` is a tool's name, a tool's name with its arguments, or a map as suites have it: ``{"tool": ...,
    "arguments": ...}``, ``{"prompt": ...}``, ``{"resource": uri}``. ``effects`` are functions, or their names, that
    must not run twice. What is in ``ignore`` is not reported: ``"time.time"``, ``"till.py:18"``, or all of ``"clock"``,
    ``"random"``, ``"effect"``.

    A call that ends with an error, a tool's own included, is not ``ok``: it may have failed before anything was worth a
    look. ``may_fail`` is for one that is meant to. One that asks nothing is ``ok``, and a note says so.

    The call really happens, several times: point it at a server whose effects do no harm.
    """
    method, params = _read(call)
    script = answers if isinstance(answers, Script) else Script(answers)
    effects = list(effects)
    known = app if isinstance(app, ServerUnderTest) else ServerUnderTest(target=app)
    if effects and not is_here(known):
        raise ValueError("Effects can be watched in a Server of this process alone, not behind a URL or a command")
    async with instances(known, script, STEPS) as server:
        function = None if server.service is None else _function(server.service, method, params)
        observer = None if server.service is None else Observer(effects, _homes(function))
        trial = _Trial(server, observer, written=_place(function), ignore=ignore)
        with observer or nullcontext():
            await trial.run(method, params, Answers(**script.handlers()), max_rounds)
    problem = _problem_of(trial.rounds[-1].end)
    unseen = "Effects, clock and random numbers were not observed: the server is in another process."
    return SafetyReport(
        problem="" if may_fail else problem,
        call=str(params[METHODS[method].target or "name"]),
        findings=(*trial.differing.values(), *trial.repeated()),
        rounds=len(trial.rounds),
        asked=tuple(key for round_ in trial.rounds for key in round_.end.questions or ()),
        notes=tuple(filter(None, [problem if may_fail else "", server.note, *trial.notes, "" if observer else unseen])),
    )


# --- the trial ----------------------------------------------------------------------------------------------------


class _End(msgspec.Struct, frozen=True, kw_only=True):
    """How a round ended: with questions, a result or an error."""

    questions: JsonObject | None = None
    result: JsonObject | None = None
    error: JsonObject | None = None


class _Round(msgspec.Struct, frozen=True, kw_only=True):
    """A round of the call: how it ended, what was seen of it, and what to send to run it again."""

    number: int
    end: _End
    sightings: tuple[Sighting, ...]
    request: Pending | None
    """None for a call that asks nothing, which is never sent twice."""
    responses: JsonObject

    @property
    def causes(self) -> list[Sighting]:
        return [sight for sight in self.sightings if sight.kind in {"clock", "random"}]

    def asked_at(self, request: object) -> str:
        """Return where a question is asked; empty if that cannot be told."""
        asked = [sight.place for sight in self.sightings if sight.kind == "ask" and sight.what == message_of(request)]
        return asked[0] if asked else ""


class _Trial:
    """One call, round by round, and each round again."""

    def __init__(
        self, server: Instances, observer: Observer | None, *, written: str, ignore: Collection[str] = ()
    ) -> None:
        self._server = server
        self._observer = observer
        self._written = written
        """Where the handler is."""
        self._ignore = ignore
        self.rounds: list[_Round] = []
        self.differing: dict[tuple[Kind, str], Finding] = {}
        """The first finding of each kind and question: one that changes does so on every round."""
        self.notes: list[str] = []

    async def run(self, method: str, params: JsonObject, answers: Answers, max_rounds: int) -> None:
        """Make the call as it is, and then run each of its rounds again: a token may be good for one use only."""
        client = self._server.client
        pending: Pending | None = None
        responses: JsonObject = {}
        while not self.rounds or pending is not None:
            number = len(self.rounds) + 1
            with _seeing(self._observer) as seen:
                started = client.begin(method, **params) if pending is None else client.resume(pending, responses)
                end, waiting = await _ended(started)
            self.rounds.append(
                _Round(
                    number=number,
                    end=end,
                    sightings=tuple(sight for sight in dict.fromkeys(seen) if not _is_harmless(sight, self._ignore)),
                    # The token without answers is a replay up to the questions, which must be the same.
                    request=pending if waiting is None else msgspec.structs.replace(waiting, questions={}),
                    responses=responses if waiting is None else {},
                )
            )
            if waiting is not None:
                if number > max_rounds:
                    raise RoundsExceeded(number)
                asker = Asker(client.server, str(params.get("name") or params.get("uri")), number)
                responses = await answers.answer_all(waiting.questions, asker) if waiting.questions else {}
            pending = waiting
        for round_ in self.rounds:
            if round_.request is None:
                self.notes.append("It asks nothing, so nothing is replayed.")
            elif round_.end.questions != {}:
                await self._repeat(round_, round_.request)

    async def _repeat(self, round_: _Round, request: Pending) -> None:
        """Run a round again, here and on a fresh instance, and compare how it ends."""
        here, _ = await _ended(self._server.client.resume(request, round_.responses))
        if self._differs(round_, here, _AGAIN) or self._server.fresh is None:
            return
        async with self._server.fresh() as client:
            elsewhere, _ = await _ended(client.resume(request, round_.responses))
        self._differs(round_, elsewhere, _ELSEWHERE)

    # --- comparing ------------------------------------------------------------------------------------------------

    def _differs(self, round_: _Round, other: _End, when: str) -> bool:
        """Return whether another run of a round ended differently, and note what differs."""
        first = round_.end
        if first == other:
            return False
        steps = ", ".join(dict.fromkeys(sight.what for sight in round_.sightings if sight.kind == "step"))
        if first.questions is not None and other.questions is not None:
            for key in dict.fromkeys([*first.questions, *other.questions]):
                ours, theirs = first.questions.get(key), other.questions.get(key)
                if ours != theirs:
                    what = f"The question {key!r} changed {when}: {_became(ours, theirs)}"
                    self._found("question", what, round_, when, key=key)
        elif first.error is None and other.error is not None and other.error.get("code") == _REFUSED:
            return self._refused(str(other.error["message"]), when, round_)
        elif first.result is not None and steps and not round_.causes:
            self.notes.append(
                f"The result of round {round_.number} differs {when}, which may come from a step that ran in it for the"
                f" first time ({steps}): a request that is sent twice runs it twice, unless the server has a store."
            )
        else:
            both = first.result is not None and other.result is not None
            what = f"The result changed {when}" if both else f"Round {round_.number} ended differently {when}"
            self._found("result", f"{what}: {_became(_plain(first), _plain(other))}", round_, when)
        return True

    def _refused(self, why: str, when: str, round_: _Round) -> bool:
        if when == _AGAIN:
            self.notes.append(f"Round {round_.number} was not run twice: {why}")
            return False
        what = f"Round {round_.number} was refused by a fresh instance: {why}"
        advice = "Give all instances the same key: Seal(keys=[...]), or the variable ANTIPHON_KEYS."
        self._note("instance", what, self._written, advice, round_)
        return True

    def _found(self, kind: Kind, what: str, round_: _Round, when: str, *, key: str = "") -> None:
        reasons = " and ".join(sorted({f"{sight.what} at {sight.place}" for sight in round_.causes}))
        what = f"{what}. It may come from {reasons}." if reasons else f"{what}."
        asked = round_.asked_at((round_.end.questions or {}).get(key)) if key else ""
        advice = self._told(_advice(round_.causes, when, is_observed=self._observer is not None))
        self._note(kind, what, asked or self._written, advice, round_, key=key)

    def _note(self, kind: Kind, what: str, where: str, advice: str, round_: _Round, *, key: str = "") -> None:
        found = Finding(kind=kind, what=what, where=where, advice=advice, rounds=(round_.number,), key=key)
        self.differing.setdefault((kind, key), found)

    def _told(self, advice: str) -> str:
        """The advice, for the server at hand: a Context of another library has no steps."""
        if not hasattr(self._server.service, "original"):
            return advice
        for ours, theirs in _OTHER_WORDS.items():
            advice = advice.replace(ours, theirs)
        return advice

    def repeated(self) -> Iterator[Finding]:
        """Yield what ran in several rounds, and should not have."""
        found: dict[object, tuple[Sighting, dict[int, None]]] = {}
        for round_ in self.rounds:
            for sight in round_.sightings:
                # One line may have many effects, as rmtree() has: the first one stands for all.
                name = "" if sight.kind == "effect" else sight.name
                same = (sight.kind, name, sight.file, sight.line, sight.called_at)
                found.setdefault(same, (sight, {}))[1][round_.number] = None
        for sight, rounds in found.values():
            if len(rounds) == 1 or sight.kind == "ask" or sight.kind == "step":  # noqa: PLR1714 -- mypy reads it so
                continue
            called = f" (called at {place_of(*sight.called_at[-1])})" if sight.called_at else ""
            yield Finding(
                kind=sight.kind,
                what=f"{sight.what} ran in {_counted([*rounds])}, outside of a step{called}",
                where=sight.place if sight.file else self._written,
                advice=self._told(_REMEDIES[sight.kind]),
                rounds=tuple(rounds),
            )


def _seeing(observer: Observer | None) -> AbstractContextManager[list[Sighting]]:
    return nullcontext([]) if observer is None else observer.seeing()


async def _ended(running: Awaitable[Complete | Pending]) -> tuple[_End, Pending | None]:
    """Return how a round ended, and what waits then."""
    try:
        made = await running
    except Refused as fault:
        return _End(error={"code": fault.code, "message": fault.message}), None
    except Disconnected:
        raise
    except CallFailed as fault:
        return _End(error={"message": str(fault)}), None
    if isinstance(made, Pending):
        return _End(questions=made.questions), made
    result: JsonObject = msgspec.to_builtins(made.result)
    return _End(result={name: value for name, value in result.items() if name not in {"_meta", "rounds"}}), None


_AGAIN: Final = "when the round was run again"
_ELSEWHERE: Final = "on a fresh instance"
_REMEDIES: Final[dict[str, str]] = {
    "clock": "Take the time from await ctx.now(), which is the same on every round.",
    "random": "Take it from await ctx.random(), or put it into a step: await ctx.step('name', function).",
    "effect": "Put it into a step, which runs once: await ctx.step('name', function, ...). Or move it below the last"
    " question.",
}

_OTHER_WORDS: Final = {
    "await ctx.step(": "await step(ctx, ",
    "await ctx.now()": "await step(ctx, 'now', time.time)",
    "await ctx.random()": "await step(ctx, 'draw', random.random)",
}


def _advice(cause: list[Sighting], when: str, *, is_observed: bool) -> str:
    kinds = {sight.kind for sight in cause}
    if kinds:
        return " ".join(_REMEDIES[kind] for kind in ("clock", "random") if kind in kinds)
    if when == _ELSEWHERE:
        return "Keep nothing in the process between rounds: use ctx.step, input_required(state=...), or a store."
    advice = "Whatever differs from run to run belongs into a step: await ctx.step('name', function)."
    # Where steps can be seen, one that ran in the last round is a note and no finding.
    return advice if is_observed else f"{advice} A step of the last round runs once only if the server has a store."


def _is_harmless(sight: Sighting, ignore: Collection[str]) -> bool:
    return sight.kind in _REMEDIES and bool({sight.kind, sight.name, sight.place} & {*ignore})


def _plain(end: _End) -> object:
    """How a round ended, as short as can be."""
    if end.questions is not None:
        return {"asks": {key: message_of(request) for key, request in end.questions.items()}}
    if end.result is None:
        return {"error": end.error}
    content = end.result.get("content")
    if isinstance(content, list) and all(block.get("type") == "text" for block in content):
        return "\n".join(block["text"] for block in content)
    return end.result


def _problem_of(end: _End) -> str:
    """What went wrong with a call; empty if nothing did."""
    if end.error is not None:
        return f"The call ended with an error: {end.error['message']}"
    if end.result is None or not end.result.get("isError"):
        return ""
    told = _plain(end)
    return f"The tool failed: {told if isinstance(told, str) else _short(told)}"


def _became(ours: object, theirs: object) -> str:
    if ours is None or theirs is None:
        return "it was not asked" if theirs is None else "it was not asked before"
    if message_of(ours) != message_of(theirs):
        ours, theirs = message_of(ours), message_of(theirs)
    return f"{_short(ours)} became {_short(theirs)}"


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else f"{text[:200]}..."


def _counted(rounds: list[int]) -> str:
    *most, last = map(str, rounds)
    return f"rounds {', '.join(most)} and {last}"


# --- the call -----------------------------------------------------------------------------------------------------


def _read(call: object) -> tuple[str, JsonObject]:
    """The method and the parameters of a call, however it was written."""
    if isinstance(call, str):
        return "tools/call", {"name": call, "arguments": {}}
    if isinstance(call, tuple) and len(call) == 2:
        return "tools/call", {"name": call[0], "arguments": dict(call[1])}
    if isinstance(call, Mapping):
        for name, (method, target) in _METHODS.items():
            if name in call:
                arguments = {} if name == "resource" else {"arguments": dict(call.get("arguments") or {})}
                return method, {target: call[name], **arguments}
        if "method" in call:
            return str(call["method"]), dict(call.get("params") or {})
    raise TypeError(
        f"A call is a tool's name, a name with arguments, or a map with 'tool', 'prompt' or 'resource': got {call!r}"
    )


def _function(service: Service, method: str, params: JsonObject) -> Any:
    """The function that serves a call; None if that cannot be told."""
    function = service.function_of(method, str(params.get("name") or params.get("uri")))
    return None if function is None else inspect.unwrap(function)


def _place(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return "" if code is None else place_of(code.co_filename, code.co_firstlineno)


def _homes(function: Any) -> list[Path]:
    """The folder of the handler's package, which is the user's even if it is installed."""
    file = Path(getattr(getattr(function, "__code__", None), "co_filename", ""))
    # A package ends where a folder has no __init__.py: one further up is another's.
    return list(takewhile(lambda folder: (folder / "__init__.py").is_file(), file.resolve().parents))[-1:]
