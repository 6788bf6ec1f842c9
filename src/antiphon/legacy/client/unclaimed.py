"""Questions that are answered beside the calls: those of no call, and those of which nobody can say whose they are."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from antiphon.errors import CannotAnswer
from antiphon.legacy.client.call import MOST_QUESTIONS, Call, given_name, question, text_name
from antiphon.legacy.client.translation import INTERNAL
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import RequestId

Ask: TypeAlias = Callable[[str, JsonObject], Awaitable[JsonObject]]
Tell: TypeAlias = Callable[[JsonObject], Coroutine[Any, Any, None]]
Soon: TypeAlias = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]

log = logging.getLogger("antiphon.client")


class Beside:
    """Puts a question to the client once, and its answer or an error to the server once, whatever becomes of the calls.

    The calls that may have asked are its suspects. Their clocks are stopped meanwhile, and each may be suspected as
    often as a call may ask. When all of them are gone, and the client has left one of them, it was most likely that
    one's: the question is not wanted any more. When all got their replies it was none of theirs, and is answered.
    """

    def __init__(self, ask: Ask, tell: Tell, soon: Soon) -> None:
        self._ask = ask
        self._tell = tell
        self._soon = soon
        self._open: dict[RequestId, _Question] = {}

    def ask(self, request: JsonObject, suspects: Sequence[Call] = ()) -> bool:
        """False if there are too many already."""
        id_: RequestId = request["id"]
        if id_ in self._open:
            return True  # said twice, and answered once
        # Whichever call it is that asks on and on, there comes a time when all that it can hide among had their share.
        if suspects and all(call.suspicions >= MOST_QUESTIONS for call in suspects):
            return False
        if len(self._open) >= MOST_QUESTIONS:
            return False
        self._open[id_] = _Question(set(suspects), self._soon(self._answered(request)))
        for call in suspects:
            call.suspect()
        return True

    def withdraw(self, id_: object) -> None:
        """The server no longer wants to know."""
        if isinstance(id_, int | str):
            self._close(id_)

    def over(self, call: Call) -> None:
        """The server is through with a call: what is asked may be another's."""
        for id_ in self._acquitted(call):
            if self._open[id_].was_left:
                self._give_up(id_, "The client left the call")

    def left(self, call: Call, told: str) -> None:
        """The client has left a call."""
        for question_ in self._open.values():
            question_.was_left |= call in question_.suspects
        for id_ in self._acquitted(call):
            self._give_up(id_, told)

    def stop(self) -> None:
        """There is nobody to answer to."""
        for id_ in list(self._open):
            self._close(id_)

    def _acquitted(self, call: Call) -> list[RequestId]:
        """Suspect a call no longer; the questions for which it was the last suspect."""
        found: list[RequestId] = []
        for id_, question_ in self._open.items():
            if call in question_.suspects:
                question_.suspects.remove(call)
                call.clear()
                if not question_.suspects:
                    found.append(id_)
        return found

    def _give_up(self, id_: RequestId, told: str) -> None:
        self._close(id_)
        self._soon(self._tell(failure(id_, INTERNAL, told)))

    def _close(self, id_: RequestId) -> None:
        question_ = self._settled(id_)
        if question_ is not None:
            question_.task.cancel()

    def _settled(self, id_: RequestId) -> "_Question | None":
        """Take a question off the list: from here on, only who did so responds to it."""
        question_ = self._open.pop(id_, None)
        if question_ is not None:
            for call in question_.suspects:
                call.clear()
        return question_

    async def _answered(self, request: JsonObject) -> None:
        id_: RequestId = request["id"]
        response: JsonObject = failure(id_, INTERNAL, "The client could not answer")
        try:
            key = given_name(request) or text_name(request)
            response = {"jsonrpc": "2.0", "id": id_, "result": await self._ask(key, question(request))}
        except CannotAnswer as fault:
            log.warning("a question of the server was not answered: %s", fault)
        except Exception:
            log.exception("a question of the server could not be answered")
        self._settled(id_)
        await self._tell(response)


class _Question:
    __slots__ = ("suspects", "task", "was_left")

    def __init__(self, suspects: set[Call], task: "asyncio.Task[None]") -> None:
        self.suspects = suspects
        self.task = task
        self.was_left = False


def failure(id_: RequestId, code: int, told: str) -> JsonObject:
    """An error as the response to a request of the server's."""
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": told}}
