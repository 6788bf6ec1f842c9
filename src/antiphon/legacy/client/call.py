"""One request at an old server: what came for it, and the questions it asks on the way."""

import asyncio
import re
from collections import deque

from antiphon.errors import CallFailed
from antiphon.transports.link import OnNotification, tell
from antiphon.types import JsonObject
from antiphon.wire.revisions import KEY, PROGRESS_TOKEN

GATHERING = 0.005
"""Seconds after a question in which others join its round: what a server asks at once arrives one by one."""
MOST_QUESTIONS = 100
"""Questions of one call that may wait at the same time."""
MOST_NEWS = 10_000
"""Notifications that may wait to be taken; further ones are dropped."""


class LegacyCall:
    """A request under way, over all its rounds.

    Its questions are ``waiting`` until ``round`` puts them to the caller, and ``asked`` from then on.
    """

    def __init__(self, message: JsonObject, *, asks: bool = False, handle: str | None = None) -> None:
        self.message = message
        self.id: int = message["id"]
        self.asks = asks
        """Whether its questions can be put to the caller."""
        self.handle = handle or f"antiphon/legacy/{self.id}"
        """The requestState with which the caller comes back."""
        self.waiting: dict[str, JsonObject] = {}
        """The server's requests, by key, that were not put to the caller yet."""
        self.asked: dict[str, JsonObject] = {}
        """Those that the caller is answering."""
        self.urls: JsonObject | None = None
        """The error of a server that wants URLs visited before the call is made again."""
        self._replied = False
        self._keys: set[str] = set()
        self._guessed: set[str] = set()
        self._news: deque[JsonObject] = deque()
        self._fault: CallFailed | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._moot: asyncio.Future[None] | None = None

    @property
    def token(self) -> object:
        """The progress token that it was sent with."""
        return self.message.get("params", {}).get("_meta", {}).get(PROGRESS_TOKEN)

    @property
    def is_over(self) -> bool:
        """Whether it has its reply or failed: what comes now comes too late."""
        return self._replied or self._fault is not None

    def put(self, message: JsonObject) -> None:
        """Take a notification that belongs to it, or its reply."""
        if "method" not in message:
            self._replied = True
        elif len(self._news) >= MOST_NEWS:
            return
        self._news.append(message)
        self._wake()

    def ask(self, request: JsonObject, *, guessed: bool = False) -> bool:
        """Take a question that belongs to it, or seems to; return False if too many wait already."""
        if len(self.waiting) >= MOST_QUESTIONS:
            return False
        key = self._key(request)
        self.waiting[key] = request
        # A server's own names come again.
        (self._guessed.add if guessed else self._guessed.discard)(key)
        self._wake()
        return True

    def give_back(self) -> tuple[list[JsonObject], list[JsonObject]]:
        """Drop the questions that are open; return those that are its own, and those that only seemed to be."""
        if not self.asked and not self.waiting:
            return [], []
        left = self.asked | self.waiting
        self.asked, self.waiting = {}, {}
        own = [request for key, request in left.items() if key not in self._guessed]
        return own, [request for key, request in left.items() if key in self._guessed]

    def must_visit(self, urls: list[JsonObject], error: JsonObject) -> None:
        """Ask for these URLs to be visited: the call failed with an error that wants it, and is made again then."""
        self.urls = error
        for request in urls[:MOST_QUESTIONS]:
            self.ask(request)

    def fail(self, fault: CallFailed) -> None:
        self._fault = fault
        self._wake()

    def withdraw(self, id_: object) -> None:
        """Drop the server's request of this id."""
        for questions in (self.waiting, self.asked):
            for key in [key for key, request in questions.items() if request["id"] == id_]:
                del questions[key]
        self._wake()

    def moot(self) -> "asyncio.Future[None]":
        """Return what is done when the questions need no answers: the call is over, or they were all withdrawn."""
        self._moot = asyncio.get_running_loop().create_future()
        self._wake()
        return self._moot

    async def reply(self, on_notification: OnNotification | None = None) -> JsonObject | None:
        """Wait for the server's reply; return None when its questions must be answered first."""
        gathered = False
        while True:
            while self._news:
                message = self._news.popleft()
                if "method" not in message:
                    return message
                await tell(on_notification, message)
            if self._fault is not None:
                raise self._fault
            if not self.waiting:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
            elif gathered:
                return None
            else:
                gathered = True
                await asyncio.sleep(GATHERING)

    def round(self) -> JsonObject:
        """Ask the questions that wait: return them as the result that the modern revision has for them."""
        self.asked, self.waiting = self.waiting, {}
        # 2026-07-28, basic/patterns/mrtr: questions by key, and the state to come back with.
        shown = {key: question(request) for key, request in self.asked.items()}
        return {"resultType": "input_required", "inputRequests": shown, "requestState": self.handle}

    def _key(self, request: JsonObject) -> str:
        """The server's own name for a question; else one out of its text, used once in a call."""
        name = given_name(request)
        taken = self.waiting.keys() | self.asked.keys()
        if name is None:
            name = text_name(request)
            taken |= self._keys
        key, count = name, 1
        while key in taken:
            count += 1
            key = f"{name}-{count}"
        self._keys.add(key)
        return key

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        moot = self._moot
        if moot is not None and not moot.done() and (self._replied or self._fault is not None or not self.asked):
            moot.set_result(None)


def question(request: JsonObject) -> JsonObject:
    """A server's request without what belongs to the wire."""
    made: JsonObject = {"method": request["method"]}
    if "params" in request:
        made["params"] = request["params"]
    return made


def given_name(request: JsonObject) -> str | None:
    """The name that a server gives its question."""
    meta = request.get("params", {}).get("_meta")
    given = meta.get(KEY) if type(meta) is dict else None
    return given if type(given) is str and given else None


def text_name(request: JsonObject) -> str:
    """A name for a question that has none."""
    kind = request["method"].partition("/")[0]
    message = request.get("params", {}).get("message")
    words = re.findall(r"[a-z0-9]+", message[:200].lower()) if kind == "elicitation" and type(message) is str else []
    return "-".join(words[:6]) or kind
