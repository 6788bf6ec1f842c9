"""The transcript: a Link around another one that notes every round that goes through it."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter

import msgspec

from antiphon.errors import CallFailed, Refused
from antiphon.testing.outcome import Turn
from antiphon.transports.link import Around, Link, OnNotification
from antiphon.types import JsonObject

_noted: ContextVar[list[Turn] | None] = ContextVar("noted", default=None)
"""The turns of the call that is made here, if somebody wants them apart from those of other calls."""
_waits: ContextVar[list[float]] = ContextVar("waits")
"""Seconds of the request that is made here that are not the server's."""


def waited(seconds: float) -> None:
    """So long the request waited for a server to be there; that counts for nobody."""
    waits = _waits.get(None)
    if waits is not None:
        waits.append(seconds)


class Recorded(Around):
    """A Link that keeps a transcript: ``Client(Recorded(connect(target)))``."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.turns: list[Turn] = []
        """Every turn of every call, in the order in which they ended."""

    @contextmanager
    def noting(self) -> Generator[list[Turn]]:
        """The turns of the calls made inside this block, by this task: other calls may go on beside it."""
        turns: list[Turn] = []
        before = _noted.set(turns)
        try:
            yield turns
        finally:
            _noted.reset(before)

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        begun, waits = perf_counter(), list[float]()
        before = _waits.set(waits)
        try:
            reply = await self._link.request(message, headers=headers, on_notification=on_notification)
        except BaseException as fault:
            self._note(message, {"error": _error_of(fault)}, perf_counter() - begun - sum(waits))
            raise
        finally:
            _waits.reset(before)
        self._note(message, reply, perf_counter() - begun - sum(waits))
        return reply

    def _note(self, message: JsonObject, reply: JsonObject, seconds: float) -> None:
        turn = turn_of(message, reply, seconds)
        self.turns.append(turn)
        noted = _noted.get()
        if noted is not None:
            noted.append(turn)


def turn_of(message: JsonObject, reply: JsonObject, seconds: float = 0.0) -> Turn:
    """A request and its reply as a turn: the answers and the token apart from what was sent, and no token in sight."""
    sent: JsonObject = message.get("params") or {}
    params = {name: value for name, value in sent.items() if name not in {"_meta", "inputResponses", "requestState"}}
    state = sent.get("requestState")
    if isinstance(state, str):
        params["requestState"] = f"<{len(state)} characters>"
    result = reply.get("result")
    asks = isinstance(result, dict) and result.get("resultType") == "input_required"
    questions = result.get("inputRequests") if isinstance(result, dict) and asks else None
    answers = sent.get("inputResponses")
    error = reply.get("error")
    # A copy of its own: whoever sent or got these may change them.
    return msgspec.convert(
        msgspec.json.decode(
            msgspec.json.encode(
                {
                    "method": message.get("method", ""),
                    "params": params,
                    "answers": answers if isinstance(answers, dict) else {},
                    "questions": questions if isinstance(questions, dict) else {},
                    "result": result if isinstance(result, dict) and not asks else None,
                    "error": error if isinstance(error, dict) else None,
                    "seconds": seconds,
                }
            )
        ),
        Turn,
    )


def _error_of(fault: BaseException) -> JsonObject:
    if isinstance(fault, Refused):
        error: JsonObject = {"message": fault.message}
        known = {"code": fault.code, "data": fault.data, "status": fault.status}
        return error | {name: value for name, value in known.items() if value is not None}
    if isinstance(fault, CallFailed):
        return {"message": str(fault)}
    return {"message": "The call was given up"}
