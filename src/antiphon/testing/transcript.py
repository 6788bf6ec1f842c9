"""The transcript of a call: its turns, and a Link around another one that notes them."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter

import msgspec

from antiphon.errors import CallFailed, Refused
from antiphon.transports.link import Around, Caller, Link, OnNotification
from antiphon.types import JsonObject


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One round of a call: what was sent, and what came back. Of a token it has only the length."""

    method: str
    params: JsonObject
    """What was sent, without the answers."""
    answers: JsonObject = {}
    """The responses that went with it, by key: answers to what the turn before asked."""
    questions: JsonObject = {}
    """What the server asked back, by key, as requests."""
    result: JsonObject | None = None
    """The complete result, on the last turn."""
    error: JsonObject | None = None
    """The JSON-RPC error, on the last turn."""
    seconds: float = 0.0
    """How long the server took."""


_noted: ContextVar[list[Turn] | None] = ContextVar("noted", default=None)
"""The turns of the calls that are made in a ``noting`` block. A client and its user's code are between the two."""


class _Stopwatch:
    """The server's time for one request: it stands still while an instance starts, or a person is asked."""

    def __init__(self) -> None:
        self._before = 0.0
        self._since: float | None = perf_counter()

    def turn(self, runs: bool) -> None:
        self._before = self.seconds
        self._since = perf_counter() if runs else None

    @property
    def seconds(self) -> float:
        return self._before + (0.0 if self._since is None else perf_counter() - self._since)


class Recorded(Around):
    """A Link that keeps a transcript: ``Client(Recorded(connect(target)))``."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.turns: list[Turn] = []
        """Every turn of every call, in the order in which they ended."""
        self._watches: dict[object, _Stopwatch] = {}

    def introduce(self, caller: Caller) -> None:
        def clock(id_: object, runs: bool) -> None:
            if id_ in self._watches:
                self._watches[id_].turn(runs)
            caller.clock(id_, runs)

        self._link.introduce(caller._replace(clock=clock))

    @contextmanager
    def noting(self) -> Generator[list[Turn]]:
        """Collect the turns of the calls made inside this block by this task; other tasks may make calls meanwhile."""
        turns: list[Turn] = []
        before = _noted.set(turns)
        try:
            yield turns
        finally:
            _noted.reset(before)

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        id_ = message.get("id")
        watch = self._watches[id_] = _Stopwatch()
        try:
            reply = await self._link.request(message, headers=headers, on_notification=on_notification)
        except BaseException as fault:
            self._note(message, {"error": _error_of(fault)}, watch.seconds)
            raise
        finally:
            self._watches.pop(id_, None)
        self._note(message, reply, watch.seconds)
        return reply

    def _note(self, message: JsonObject, reply: JsonObject, seconds: float) -> None:
        turn = turn_of(message, reply, seconds)
        self.turns.append(turn)
        noted = _noted.get()
        if noted is not None:
            noted.append(turn)


def turn_of(message: JsonObject, reply: JsonObject, seconds: float = 0.0) -> Turn:
    """Return a request and its reply as a turn: the answers apart from the parameters, and of the token its length."""
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
    # A copy: the sender and the receiver may change their objects afterwards.
    copied = msgspec.json.encode(
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
    return msgspec.json.decode(copied, type=Turn)


def _error_of(fault: BaseException) -> JsonObject:
    if isinstance(fault, Refused):
        error: JsonObject = {"message": fault.message}
        known = {"code": fault.code, "data": fault.data, "status": fault.status}
        return error | {name: value for name, value in known.items() if value is not None}
    if isinstance(fault, CallFailed):
        return {"message": str(fault)}
    return {"message": "The call was given up"}
