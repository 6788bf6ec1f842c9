"""A call under inspection: its rounds, held at every question until a person answers."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from time import time
from typing import Final, Literal

import msgspec

from antiphon.client.results import Complete, Pending
from antiphon.errors import AntiphonError, Disconnected, Refused
from antiphon.escaping import plain
from antiphon.inbox.locations import Location, read_location
from antiphon.inspect.instance import Instance
from antiphon.inspect.traffic import LONGEST, Frame, bounded, current
from antiphon.rounds.client_loop import FIRST_PAUSE
from antiphon.rounds.opened_token import OpenedToken, TokenKeys
from antiphon.rounds.token import SealBroken
from antiphon.testing.report.conversation import conversation
from antiphon.testing.transcript import Turn
from antiphon.types import JsonObject
from antiphon.wire.revisions import METHODS, REVISION

Status = Literal["running", "waiting", "answered", "again", "done", "failed", "cancelled"]
How = Literal["answer", "twice", "spoiled", "expired", "fresh", "era"]

MOST_FRAMES: Final = 200
"""Frames of a round that are kept; of those that follow, only the last."""
MOST_LOGS: Final = 200
MOST_SHOWN: Final = 1024 * 1024
"""Characters of a result or a question that are shown."""
MOST_RECORDED: Final = 4 * 1024 * 1024
"""Characters of a call's messages that are kept for its cassette."""
_MAX_BYTES: Final = 65536
"""What a token may have, unless the server says otherwise: see Seal."""
_UNSHOWN: Final = frozenset({"pending", "opened", "why_sealed"})
"""Of a round, what is shown in another form."""


class InspectedRound(msgspec.Struct, kw_only=True):
    """One round: a request, and what came back."""

    number: int
    status: Status = "running"
    questions: JsonObject = {}
    answers: JsonObject | None = None
    result: JsonObject | None = None
    error: JsonObject | None = None
    server_seconds: float = 0.0
    person_seconds: float | None = None
    asked_at: float | None = None
    progress: JsonObject | None = None
    logs: list[JsonObject] = []
    frames: list[Frame] = []
    pending: Pending | None = None
    opened: OpenedToken | None = None
    why_sealed: str | None = None


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """The call that another one was forked from."""

    id: str
    round: int
    how: How
    note: str | None = None


class InspectedCall:
    """A call and its rounds. ``changed`` is called with it whenever it has moved on."""

    def __init__(
        self,
        id_: str,
        instance: Instance,
        method: str,
        params: JsonObject,
        *,
        keys: TokenKeys | None,
        changed: "Callable[[InspectedCall], None]",
        parent: Parent | None = None,
    ) -> None:
        self.id = id_
        self.instance = instance
        self.method = method
        self.params = params
        self.parent = parent
        self.forks: list[str] = []
        self.rounds: list[InspectedRound] = []
        self.turns: list[Turn] = []
        self.started = time()
        self.version = 0
        self.recorded: list[tuple[JsonObject, Mapping[str, str] | None]] | None = []
        """All messages, in order: the client's with their headers. None if they were too many."""
        self.known: JsonObject = {}
        """Answers that are given without asking a person: those of the call that is made again."""
        self.revision = instance.client.protocol_version
        self._why = "The call was given up"
        self._weight = 0
        self.keys = keys
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._answered: asyncio.Future[JsonObject] | None = None

    @property
    def title(self) -> str:
        return str(self.params[METHODS[self.method].target or "name"])

    @property
    def status(self) -> Status:
        last = self.rounds[-1].status if self.rounds else "running"
        return "running" if last in {"answered", "again"} else last

    @property
    def is_over(self) -> bool:
        return self.status in {"done", "failed", "cancelled"}

    @property
    def is_modern(self) -> bool:
        return self.instance.client.era == "modern"

    # --- what a person does ---------------------------------------------------------------------------------------

    def start(self, resumed: Pending | None = None, answers: JsonObject | None = None) -> None:
        """Make the call; or go on with one that waited."""
        self._task = asyncio.create_task(self._run(resumed, answers))

    def answer(self, number: int, answers: JsonObject) -> None:
        """Answer the round that waits. ValueError if it does not, or an answer is missing."""
        waiting = self._answered
        if waiting is None or waiting.done() or self.status != "waiting" or self.rounds[-1].number != number:
            raise ValueError(f"Round {number} does not wait for answers: it may have been answered in another window")
        missing = [key for key in self.rounds[-1].questions if not isinstance(answers.get(key), dict)]
        if missing:
            raise ValueError(f"There is no answer for {', '.join(missing)}")
        waiting.set_result({key: answers[key] for key in self.rounds[-1].questions})

    async def cancel(self, why: str = "The call was given up") -> None:
        """Give the call up."""
        if self._task is not None and not self._task.done():
            self._why = why
            self._task.cancel()
            await asyncio.wait({self._task})

    # --- the rounds -----------------------------------------------------------------------------------------------

    async def _run(self, resumed: Pending | None, answers: JsonObject | None) -> None:
        current.set(self)
        outcomes = self._modern(resumed, answers) if self.is_modern else self._legacy()
        try:
            async with aclosing(outcomes):
                is_over = await self._leg(anext(outcomes))
                while not is_over:
                    given = await self._ask() if self.rounds[-1].questions else {}
                    is_over = await self._leg(outcomes.asend(given))
        except asyncio.CancelledError:
            self.rounds[-1].status = "cancelled"
            self.rounds[-1].error = {"message": self._why}
            raise
        except (AntiphonError, ValueError, TypeError) as fault:
            self._fail(fault)
        finally:
            self._move()

    async def _leg(self, outcome: Awaitable[tuple[JsonObject | None, Pending | None]]) -> bool:
        """Wait for one round to end; return whether the call has."""
        round_ = InspectedRound(number=len(self.rounds) + 1, logs=[], frames=[])
        self.rounds.append(round_)
        self._move()
        with self.instance.link.noting() as turns:
            try:
                questions, pending = await outcome
            finally:
                self.turns += turns
                round_.server_seconds = sum(turn.seconds for turn in turns)
        if questions is None:
            round_.status = "done"
            round_.result = turns[-1].result
            return True
        round_.questions, round_.pending = questions, pending
        round_.status = "waiting" if questions else "again"
        round_.asked_at = time()
        if pending is not None and pending.state is not None:
            round_.opened, round_.why_sealed = self._opened(pending.state)
        return False

    async def _modern(
        self, resumed: Pending | None, answers: JsonObject | None
    ) -> AsyncGenerator[tuple[JsonObject | None, Pending | None], JsonObject]:
        # The instance may have another client at each round, where it was restarted.
        if resumed is None:
            outcome = await self.instance.client.begin(self.method, **self.params)
        else:
            outcome = await self.instance.client.resume(resumed, answers)
        while not isinstance(outcome, Complete):
            given = yield outcome.questions, outcome
            if not outcome.questions:
                await asyncio.sleep(FIRST_PAUSE)
            outcome = await self.instance.client.resume(outcome, given)
        yield None, None

    async def _legacy(self) -> AsyncGenerator[tuple[JsonObject | None, Pending | None], JsonObject]:
        async with aclosing(self.instance.client.watch(self.method, **self.params)) as rounds:
            step = await anext(rounds)
            while step.result is None:
                given = yield step.questions, None
                step = await rounds.asend(given)
        yield None, None

    async def _ask(self) -> JsonObject:
        """Wait for the answers to the last round."""
        round_ = self.rounds[-1]
        if round_.questions.keys() <= self.known.keys():
            answers = {key: self.known[key] for key in round_.questions}
        else:
            self._answered = asyncio.get_running_loop().create_future()
            self._move()
            answers = await self._answered
        round_.answers, round_.status = answers, "answered"
        round_.person_seconds = time() - (round_.asked_at or time())
        return answers

    def _fail(self, fault: Exception) -> None:
        error: JsonObject = {"message": str(fault)}
        if isinstance(fault, Refused):
            told = {"code": fault.code, "data": fault.data, "status": fault.status}
            error |= {name: value for name, value in told.items() if value is not None}
        self.rounds[-1].status = "failed"
        self.rounds[-1].error = error
        if isinstance(fault, Disconnected):
            self.instance.traffic.lost(fault)

    def _opened(self, token: str) -> tuple[OpenedToken | None, str | None]:
        if self.keys is None:
            return None, "There are no keys: set ANTIPHON_KEYS to those of the server"
        try:
            return self.keys.open(token, method=self.method, params=self.params), None
        except SealBroken as fault:
            why = f"The keys do not open it ({fault.reason}): the server may have other keys, its own audience, or"
            return None, f"{why} a user of its own, or it is not made with Antiphon"

    def _move(self) -> None:
        self.version += 1
        self._changed(self)

    # --- what comes meanwhile -------------------------------------------------------------------------------------

    def take(self, frame: Frame) -> None:
        """Keep a frame of this call."""
        frames = self.rounds[-1].frames if self.rounds else []
        if len(frames) < MOST_FRAMES:
            frames.append(frame)
        else:
            frames[-1] = frame

    def sends(self, message: JsonObject, headers: Mapping[str, str]) -> None:
        self._record(message, headers)

    def receives(self, message: JsonObject) -> None:
        self._record(message, None)

    def hears(self, method: object, params: JsonObject) -> None:
        """Note a notification of this call."""
        round_ = self.rounds[-1]
        if method == "notifications/progress":
            told = {name: params.get(name) for name in ("progress", "total", "message")}
            round_.progress = bounded(told, LONGEST // 16)[0]
        elif method == "notifications/message" and len(round_.logs) < MOST_LOGS:
            round_.logs.append(log_of(params))

    def _record(self, message: JsonObject, headers: Mapping[str, str] | None) -> None:
        if self.recorded is None:
            return
        self._weight += len(msgspec.json.encode(message))
        if self._weight > MOST_RECORDED:
            self.recorded = None
        else:
            self.recorded.append((message, headers))


def log_of(params: JsonObject) -> JsonObject:
    """Return what a log message says."""
    told = {"level": str(params.get("level", "info")), "logger": params.get("logger"), "data": params.get("data")}
    shown: JsonObject = bounded(told, LONGEST // 8)[0]
    return {**(shown if isinstance(shown, dict) else {"level": "info", "logger": None, "data": shown}), "at": time()}


# --- as the page sees it ------------------------------------------------------------------------------------------


def summary_of(call: InspectedCall) -> JsonObject:
    """Return a call on one line."""
    arguments = call.params.get("arguments")
    given = arguments.items() if isinstance(arguments, dict) else ()
    told = [f"{name}={value}" for name, value in given]
    last = call.rounds[-1].result if call.rounds else None
    failed = call.status == "failed" or (last is not None and last.get("isError") is True)
    return {
        "id": call.id,
        "version": call.version,
        "title": call.title[:LONGEST],
        "method": call.method,
        "about": ", ".join(told)[:200],
        "era": call.revision,
        "status": call.status,
        "started": call.started,
        "rounds": len(call.rounds),
        "parent": None if call.parent is None else call.parent.id,
        "how": None if call.parent is None else call.parent.how,
        "failed": failed,
    }


def shown(call: InspectedCall) -> JsonObject:
    """Return a call with all that is known of its rounds, but what only the inspector knows."""
    rounds = [shown_round(call, number) for number in range(len(call.rounds))]
    steps = [
        {**msgspec.to_builtins(step), "speaker": step.speaker, "hearer": step.hearer}
        for step in conversation(call.turns)
    ]
    return {
        **{name: value for name, value in summary_of(call).items() if name not in {"rounds", "parent", "about"}},
        "params": bounded(call.params, MOST_SHOWN)[0],
        "server_seconds": sum(round_.server_seconds for round_ in call.rounds),
        "person_seconds": sum(round_.person_seconds or 0.0 for round_ in call.rounds),
        "parent": None if call.parent is None else msgspec.to_builtins(call.parent),
        "rounds": rounds,
        "steps": bounded(steps, MOST_SHOWN)[0],
    }


def shown_round(call: InspectedCall, place: int) -> JsonObject:
    round_ = call.rounds[place]
    return {
        **{name: value for name, value in msgspec.structs.asdict(round_).items() if name not in _UNSHOWN},
        "questions": bounded(round_.questions, MOST_SHOWN)[0],
        "locations": {key: place._asdict() for key, place in _locations(round_.questions)},
        "result": bounded(round_.result, MOST_SHOWN)[0],
        "token": _token(call, round_),
        "ran": _ran(call, place),
        "frames": [msgspec.to_builtins(frame) for frame in round_.frames],
    }


def _locations(questions: JsonObject) -> Iterator[tuple[str, Location]]:
    """Yield what a person should see of each URL before opening it."""
    for key, question in questions.items():
        url = (question.get("params") or {}).get("url")
        if isinstance(url, str) and len(url) <= LONGEST:
            yield key, read_location(url)


def _token(call: InspectedCall, round_: InspectedRound) -> JsonObject | None:
    state = None if round_.pending is None else round_.pending.state
    if state is None:
        return None
    opened = None
    if round_.opened is not None:
        held = {name: plain(getattr(round_.opened, name)) for name in ("answers", "steps", "state")}
        opened = {
            **{name: getattr(round_.opened, name) for name in ("flow", "round", "expires")},
            "asked": {name: {"drift": drift} for name, drift in round_.opened.asked.items()},
            **{name: bounded(value, LONGEST)[0] for name, value in held.items()},
            "bound_to": {
                "method": call.method,
                "name": call.title,
                "arguments": call.params.get("arguments"),
                "audience": None if call.keys is None else call.keys.audience,
                "principal": None,
            },
        }
    told = {"bytes": len(state), "max_bytes": _MAX_BYTES, "text": state[:LONGEST]}
    return {**told, "opened": opened, "why": round_.why_sealed}


def _ran(call: InspectedCall, place: int) -> JsonObject:
    """Return what a round ran and recalled, as far as the tokens before and after it tell."""
    round_ = call.rounds[place]
    before = call.rounds[place - 1].opened if place else None
    steps = set[str]() if before is None else {*before.steps}
    # The older era keeps the call open: nothing runs again.
    earlier_rounds = call.rounds[:place] if call.revision == REVISION else []
    answered = dict.fromkeys(key for earlier in earlier_rounds for key in earlier.answers or {})
    after = round_.opened
    return {
        "ran": [] if after is None else [name for name in after.steps if name not in steps],
        "recalled": [*answered, *sorted(steps)],
        "asked": [*round_.questions],
        "known": after is not None,
    }
