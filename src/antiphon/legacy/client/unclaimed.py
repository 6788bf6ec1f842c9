"""Questions that are answered apart from the calls: those of no call, and those that may be of several."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from antiphon.errors import CannotAnswer
from antiphon.legacy.client.call import MOST_QUESTIONS, LegacyCall, given_name, question, text_name
from antiphon.legacy.client.translation import INTERNAL
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import RequestId

Answer: TypeAlias = Callable[[str, JsonObject], Awaitable[JsonObject]]
Tell: TypeAlias = Callable[[JsonObject], Coroutine[Any, Any, None]]
Soon: TypeAlias = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]

log = logging.getLogger("antiphon.client")


class UnclaimedQuestions:
    """Puts each question to the client once, and one answer or error to the server.

    The calls that may have asked are its candidates. The server's time for them stops meanwhile. A candidate that ends
    is one no longer. When none is left, and the client gave one of them up, the question was most likely that one's,
    and is refused. When all had their replies it belongs to none of them, and is answered.
    """

    def __init__(self, answer: Answer, tell: Tell, soon: Soon) -> None:
        self._answer = answer
        self._tell = tell
        self._soon = soon
        self._open: dict[RequestId, _Unclaimed] = {}
        self._of_no_call = 0
        """Questions that no call has asked, since the last reply to one."""

    def ask(self, request: JsonObject, candidates: Sequence[LegacyCall] = ()) -> bool:
        """Answer a question; return False if there are too many already."""
        id_: RequestId = request["id"]
        if id_ in self._open:
            return True  # sent twice, answered once
        # Each call may be a candidate as often as it may ask: one that asks without end uses up its share.
        if candidates and all(call.guesses >= MOST_QUESTIONS for call in candidates):
            return False
        if len(self._open) >= MOST_QUESTIONS or self._of_no_call >= MOST_QUESTIONS:
            return False
        self._of_no_call += not candidates
        self._open[id_] = _Unclaimed(set(candidates), self._soon(self._answered(request)))
        for call in candidates:
            call.hold()
        return True

    def withdraw(self, id_: object) -> None:
        """Drop a question that the server takes back."""
        if isinstance(id_, int | str):
            self._cancel(id_)

    def over(self, call: LegacyCall) -> None:
        """The server has replied to a call: it is no candidate any more."""
        self._of_no_call = 0
        for id_ in self._without(call):
            if self._open[id_].was_left:
                self._refuse(id_, "The client left the call")

    def left(self, call: LegacyCall, told: str) -> None:
        """The client has given a call up: it is no candidate any more."""
        for unclaimed in self._open.values():
            unclaimed.was_left |= call in unclaimed.candidates
        for id_ in self._without(call):
            self._refuse(id_, told)

    def stop(self) -> None:
        """Drop all questions: the session is over."""
        for id_ in list(self._open):
            self._cancel(id_)

    def _without(self, call: LegacyCall) -> list[RequestId]:
        """Remove a call from all candidates; return the questions that have none left."""
        found: list[RequestId] = []
        for id_, unclaimed in self._open.items():
            if call in unclaimed.candidates:
                unclaimed.candidates.remove(call)
                call.release()
                if not unclaimed.candidates:
                    found.append(id_)
        return found

    def _refuse(self, id_: RequestId, told: str) -> None:
        self._cancel(id_)
        self._soon(self._tell(failure(id_, INTERNAL, told)))

    def _cancel(self, id_: RequestId) -> None:
        unclaimed = self._settle(id_)
        if unclaimed is not None:
            unclaimed.task.cancel()

    def _settle(self, id_: RequestId) -> "_Unclaimed | None":
        """Take a question off the list: from here on, only the caller of this responds to it."""
        unclaimed = self._open.pop(id_, None)
        if unclaimed is not None:
            for call in unclaimed.candidates:
                call.release()
        return unclaimed

    async def _answered(self, request: JsonObject) -> None:
        id_: RequestId = request["id"]
        response: JsonObject = failure(id_, INTERNAL, "The client could not answer")
        try:
            key = given_name(request) or text_name(request)
            response = {"jsonrpc": "2.0", "id": id_, "result": await self._answer(key, question(request))}
        except CannotAnswer as fault:
            log.warning("a question of the server was not answered: %s", fault)
        except Exception:
            log.exception("a question of the server could not be answered")
        self._settle(id_)
        await self._tell(response)


class _Unclaimed:
    """A question that is being answered."""

    __slots__ = ("candidates", "task", "was_left")

    def __init__(self, candidates: set[LegacyCall], task: "asyncio.Task[None]") -> None:
        self.candidates = candidates
        self.task = task
        self.was_left = False
        """Whether the client gave up one of the candidates."""


def failure(id_: RequestId, code: int, told: str) -> JsonObject:
    """An error as the response to a request of the server's."""
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": told}}
