"""Questions that are answered apart from the calls: those of no call, and those that may be of several."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
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
    """Puts each question to the client once, and one answer or error to the server, whose time stops meanwhile.

    A question may be that of any call that was open when it came. When the last open call has ended, and the client
    gave one of them up, the question was most likely that one's, and is refused. When all had their replies it belongs
    to none of them, and is answered.
    """

    def __init__(self, caller: Caller, tell: Tell, soon: Soon) -> None:
        self._caller = caller
        self._tell = tell
        self._soon = soon
        self._open: dict[RequestId, asyncio.Task[None]] = {}
        self._of_calls: set[RequestId] = set()
        """Those that an open call may have asked."""
        self._was_left = False
        """Whether the client gave up a call that may have asked one of them."""
        self.count = 0
        """Questions since the last reply to a call: a server that asks on and on is refused."""

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, request: JsonObject, *, of_calls: bool = False) -> bool:
        """Answer a question; return False if there were too many already."""
        id_: RequestId = request["id"]
        if id_ in self._open:
            return True  # sent twice, answered once
        if self.count >= MOST_QUESTIONS:
            return False
        self.count += 1
        if of_calls:
            self._of_calls.add(id_)
        if not self._open:
            self._caller.clock(None, False)
        self._open[id_] = self._soon(self._answered(request))
        return True

    def withdraw(self, id_: object) -> None:
        """Drop a question that the server takes back."""
        if isinstance(id_, int | str):
            self._cancel(id_)

    def ended(self, *, left: bool, last: bool) -> None:
        """A call has ended that may have asked, by its reply or ``left`` by the client; the ``last`` that was open."""
        self._was_left = bool(self._of_calls) and (self._was_left or left)
        if not last:
            return
        refused, self._of_calls = self._of_calls if self._was_left else set[RequestId](), set()
        for id_ in refused:
            self._cancel(id_)
            self._soon(self._tell(failure(id_, INTERNAL, "The client left the call")))

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
        task = self._open.pop(id_, None)
        self._of_calls.discard(id_)
        if task is not None and not self._open:
            self._caller.clock(None, True)
        return task

    async def _answered(self, request: JsonObject) -> None:
        id_: RequestId = request["id"]
        response: JsonObject = failure(id_, INTERNAL, "The client could not answer")
        try:
            key = given_name(request) or text_name(request)
            response = {"jsonrpc": "2.0", "id": id_, "result": await self._caller.answer(key, question(request))}
        except CannotAnswer as fault:
            log.warning("a question of the server was not answered: %s", fault)
        except Exception:
            log.exception("a question of the server could not be answered")
        self._settle(id_)
        await self._tell(response)


def failure(id_: RequestId, code: int, told: str) -> JsonObject:
    """An error as the response to a request of the server's."""
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": told}}
