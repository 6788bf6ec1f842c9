"""Questions that are answered apart from the calls: those of no call, and those that may be of several."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from antiphon.errors import CannotAnswer
from antiphon.legacy.client.call import MOST_QUESTIONS, given_name, question, text_name
from antiphon.legacy.client.translation import INTERNAL
from antiphon.transports.link import Caller
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import RequestId

Tell: TypeAlias = Callable[[JsonObject], Coroutine[Any, Any, None]]
Soon: TypeAlias = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]

log = logging.getLogger("antiphon.client")


class UnclaimedQuestions:
    """Puts each question to the client once, and one answer or error to the server.

    A question may be that of any call that was open when it came; while one of those is open, the server's time stops.
    When all of them have ended, and the client gave one of them up, the question was most likely that one's, and is
    refused. When all had their replies it belongs to none of them, and is answered.
    """

    def __init__(self, caller: Caller, tell: Tell, soon: Soon) -> None:
        self._caller = caller
        self._tell = tell
        self._soon = soon
        self._open: dict[RequestId, asyncio.Task[None]] = {}
        self._askers: dict[RequestId, set[int]] = {}
        """The open calls that may have asked a question, where there are any."""
        self._left: set[RequestId] = set()
        """Those of them that a call may have asked which the client gave up."""
        self.count = 0
        """Questions since the last reply to a call: a server that asks on and on is refused."""

    def ask(self, request: JsonObject, askers: Iterable[int] = ()) -> bool:
        """Answer a question that these open calls may have asked; return False if there were too many already."""
        id_: RequestId = request["id"]
        if id_ in self._open:
            return True  # sent twice, answered once
        if self.count >= MOST_QUESTIONS:
            return False
        self.count += 1
        if calls := set(askers):
            self._askers[id_] = calls
            self._caller.clock(None, False)  # again with each question: a call may have begun since the last one
        self._open[id_] = self._soon(self._answered(request))
        return True

    def withdraw(self, id_: object) -> None:
        """Drop a question that the server takes back."""
        if isinstance(id_, int | str):
            self._cancel(id_)

    def ended(self, call: int, *, left: bool) -> None:
        """A call has ended by its reply, or was ``left`` by the client."""
        for id_ in [id_ for id_, calls in self._askers.items() if call in calls]:
            self._askers[id_].remove(call)
            if left:
                self._left.add(id_)
            if self._askers[id_]:
                continue
            if id_ in self._left:
                self._cancel(id_)
                self._soon(self._tell(failure(id_, INTERNAL, "The client left the call")))
            else:
                self._release(id_)

    def may_be_of(self, call: int) -> bool:
        """Whether a question is open that this call may have asked."""
        return any(call in calls for calls in self._askers.values())

    def stop(self) -> None:
        """Drop all questions: the session is over."""
        for id_ in list(self._open):
            self._cancel(id_)

    def _cancel(self, id_: RequestId) -> None:
        task = self._settle(id_)
        if task is not None:
            task.cancel()

    def _settle(self, id_: RequestId) -> "asyncio.Task[None] | None":
        """Take a question off the list: from here on, only the caller of this responds to it."""
        self._release(id_)
        return self._open.pop(id_, None)

    def _release(self, id_: RequestId) -> None:
        """Note that no open call has asked a question. Without any that one has, the server's time goes on."""
        self._left.discard(id_)
        if self._askers.pop(id_, None) is not None and not self._askers:
            self._caller.clock(None, True)

    async def _answered(self, request: JsonObject) -> None:
        id_: RequestId = request["id"]
        response: JsonObject = failure(id_, INTERNAL, "The client could not answer")
        try:
            key = given_name(request) or text_name(request)
            response = {"jsonrpc": "2.0", "id": id_, "result": await self._caller.answer(key, question(request))}
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            log.warning("a question of the server was not answered: the handler was cancelled")
        except CannotAnswer as fault:
            log.warning("a question of the server was not answered: %s", fault)
        except Exception:
            log.exception("a question of the server could not be answered")
        self._settle(id_)
        await self._tell(response)


def failure(id_: RequestId, code: int, told: str) -> JsonObject:
    """An error as the response to a request of the server's."""
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": told}}
