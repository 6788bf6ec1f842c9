"""Calls that a server may answer with questions: the one driver of ``rounds``, and what a caller gives and gets."""

import asyncio
import re
import time
from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any

import msgspec

from antiphon.client.answers import response
from antiphon.client.requests import OnProgress, Requests
from antiphon.client.results import Pending, Result, check_call
from antiphon.errors import CannotAnswer, Refused
from antiphon.rounds.client_loop import Leg, Pause, Questions, Step, rounds
from antiphon.types import JsonObject

_INVALID_PARAMS = -32602
_OF_THE_STATE = re.compile("request ?state", re.IGNORECASE)


class RunningCall:
    """A call under way. ``advance`` does what the server must, and returns what the client must answer.

    The server's ``timeout`` runs only inside ``advance``. With ``start``, go on from a round that was asked before.
    """

    __slots__ = ("_age", "_budget", "_method", "_params", "_progress", "_requests", "_step", "_steps", "result")

    def __init__(
        self,
        requests: Requests,
        method: str,
        params: JsonObject,
        max_rounds: int,
        *,
        timeout: float | None = None,
        progress: OnProgress | None = None,
        start: Questions | Pause | None = None,
        responses: JsonObject | None = None,
    ) -> None:
        self._requests = requests
        self._method = method
        self._params = params
        self._progress = progress
        self._budget = requests.budget(requests.timeout if timeout is None else timeout)
        self._age = requests.cache.age
        self._steps = rounds(params, max_rounds=max_rounds, start=start)
        self._step: Step = next(self._steps)
        if start is not None:
            self._step = self._steps.send(responses)
        self.result: Result
        """Set when the call is complete."""

    async def advance(self, responses: JsonObject | None = None) -> Questions | Pause | None:
        """Send the next request, after the responses to the last round; return the next round, None at the end."""
        with self._budget:
            if isinstance(self._step, Pause):
                await asyncio.sleep(self._step.seconds)
            if not isinstance(self._step, Leg):
                self._step = self._steps.send(responses)
            assert isinstance(self._step, Leg)
            params = self._step.params
            try:
                result = await self._requests.send(self._method, params, self._progress, budget=self._budget)
            except Refused as fault:
                raise _state_refused(fault) if "requestState" in params else fault from None
        try:
            step = self._step = self._steps.send(result)
        except StopIteration as end:
            result, count = end.value
            self.result = self._requests.read(self._method, self._params, result, count=count, age=self._age)
            return None
        assert not isinstance(step, Leg)
        return step

    def pending(self, step: Questions | Pause) -> Pending:
        """The call as it waits, to be resumed anywhere; CannotAnswer where the server keeps it open instead."""
        questions = questions_of(step)
        link = self._requests.link
        if link.stateful:
            raise CannotAnswer(
                f"The server speaks revision {link.revision}, in which a call cannot wait for answers that come later:"
                " give the client handlers (elicit=, sample=, ...), leave auto=True, and use call_tool or watch",
                key=next(iter(questions), ""),
            )
        ttl = step.ttl if isinstance(step, Questions) else None
        return Pending(
            method=self._method,
            params=self._params,
            questions=questions,
            state=step.state,
            round=step.round,
            expires=None if ttl is None else time.time() + ttl,
        )

    def abandon(self, why: BaseException) -> None:
        """Tell the link that the call will not be resumed."""
        step = self._step
        self._requests.link.abandon(step.params.get("requestState") if isinstance(step, Leg) else step.state, why)


def _state_refused(fault: Refused) -> Refused:
    """Say what a refused state can mean: the server gives no reason, so that a prober learns nothing."""
    if fault.code != _INVALID_PARAMS or not _OF_THE_STATE.search(fault.message):
        return fault
    told = (
        f"{fault.message}. The server does not take this call up again: its token may have expired or been used, the"
        " server may have another key or name now (ANTIPHON_KEYS), the call may have been changed, or another user"
        " began the call. Resume it as that user, or begin it again."
    )
    made = Refused(told, code=fault.code, data=fault.data, status=fault.status, retry_after=fault.retry_after)
    made.message = fault.message
    return made


def questions_of(step: Questions | Pause) -> JsonObject:
    return step.requests if isinstance(step, Questions) else {}


def start_of(pending: Pending) -> Questions | Pause:
    """The round at which a call waits."""
    check_call(pending.method, pending.params)
    if pending.questions:
        return Questions(pending.questions, pending.state, pending.round)
    return Pause(0, pending.state, pending.round)


def params_of(method: str, params: Mapping[str, object]) -> JsonObject:
    """The parameters of a call as the wire has them; ValueError if it cannot be asked about."""
    made: JsonObject = msgspec.to_builtins(dict(params))
    check_call(method, made)
    return made


def responses_of(questions: JsonObject, answers: Mapping[str, object]) -> JsonObject:
    """Answers given by hand, as the wire has them; CannotAnswer unless there is one for each question."""
    missing = [key for key in questions if key not in answers]
    if missing:
        raise CannotAnswer(f"There is no answer for {', '.join(map(repr, missing))}", key=missing[0])
    return {key: response(key, request, answers[key]) for key, request in questions.items()}


async def unless(moot: Awaitable[None], answers: Coroutine[Any, Any, JsonObject]) -> JsonObject:
    """Return the answers; cancel them and return none if they become moot."""
    asking, ended = asyncio.ensure_future(answers), asyncio.ensure_future(moot)
    try:
        await asyncio.wait({asking, ended}, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else {}
    finally:
        for task in (asking, ended):
            task.cancel()
        await asyncio.gather(asking, ended, return_exceptions=True)
