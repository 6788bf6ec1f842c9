"""One request at an old server: what came for it, and what it asks on the way."""

import asyncio
import re
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

from antiphon.errors import CallFailed, Disconnected, Refused
from antiphon.transports.link import OnNotification, tell
from antiphon.types import JsonObject
from antiphon.wire.revisions import KEY, PROGRESS_TOKEN

GATHERING = 0.005
"""Seconds after a question in which others join its round: what a server asks at once arrives one by one."""
MOST_QUESTIONS = 100
"""Questions of one call that may wait at the same time."""
MOST_NEWS = 10_000
"""Notifications that may wait while nobody takes them; further ones are dropped."""


class Call:
    """A request under way, over all its rounds."""

    __slots__ = (
        "_clock",
        "_fault",
        "_guessed",
        "_held",
        "_keys",
        "_news",
        "_replied",
        "_waiter",
        "asked",
        "asks",
        "handle",
        "id",
        "message",
        "suspicions",
        "urls",
        "waiting",
    )

    def __init__(self, message: JsonObject, *, asks: bool = False, handle: str | None = None) -> None:
        self.message = message
        self.id: int = message["id"]
        self.asks = asks
        """Whether a question on the way can be brought before the caller."""
        self.handle = handle or f"antiphon/legacy/{self.id}"
        """What the caller knows it by when it comes back with answers."""
        self.waiting: dict[str, JsonObject] = {}
        """The requests that the server pushed, by key, and nobody was asked yet."""
        self.asked: dict[str, JsonObject] = {}
        """Those that somebody is answering."""
        self.urls: JsonObject | None = None
        """The error of a server that wants URLs visited before the call is made again."""
        self.suspicions = 0
        """How many questions there were that may have been its own, or another call's."""
        self._replied = False
        self._keys: set[str] = set()
        self._guessed: set[str] = set()
        self._held = 0
        self._clock: Callable[[bool], None] = _no_clock
        self._news: deque[JsonObject] = deque()
        self._fault: CallFailed | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def token(self) -> object:
        """The progress token that it was sent with."""
        return self.message.get("params", {}).get("_meta", {}).get(PROGRESS_TOKEN)

    @property
    def is_over(self) -> bool:
        """Whether what comes now comes too late."""
        return self._replied or self._fault is not None

    def put(self, message: JsonObject) -> None:
        """A notification that belongs to it, or its reply."""
        if "method" not in message:
            self._replied = True
        elif len(self._news) >= MOST_NEWS:
            return
        self._news.append(message)
        self._wake()

    def ask(self, request: JsonObject, *, guessed: bool = False) -> bool:
        """A question that belongs to it, or seems to; False if too many wait already."""
        if len(self.waiting) >= MOST_QUESTIONS:
            return False
        key = self._key(request)
        self.waiting[key] = request
        # A server's own names come again.
        (self._guessed.add if guessed else self._guessed.discard)(key)
        self._wake()
        return True

    def give_back(self) -> tuple[list[JsonObject], list[JsonObject]]:
        """What it leaves open: the questions that are its own, and those that only seemed to be."""
        left = self.asked | self.waiting
        self.asked, self.waiting = {}, {}
        own = [request for key, request in left.items() if key not in self._guessed]
        return own, [request for key, request in left.items() if key in self._guessed]

    def suspect(self) -> None:
        """Somebody is asked what may be its question: until that is cleared up, the server's time does not run."""
        self.suspicions += 1
        self._held += 1
        if self._held == 1:
            self._clock(False)

    def clear(self) -> None:
        self._held -= 1
        if not self._held:
            self._clock(True)

    def must_visit(self, urls: list[JsonObject], error: JsonObject) -> None:
        """It is over, with an error that wants these URLs visited before it is made again."""
        self.urls = error
        for request in urls[:MOST_QUESTIONS]:
            self.ask(request)

    def fail(self, fault: CallFailed) -> None:
        self._fault = fault
        self._wake()

    def withdraw(self, id_: object) -> None:
        """The server no longer wants to know."""
        for questions in (self.waiting, self.asked):
            for key in [key for key, request in questions.items() if request["id"] == id_]:
                del questions[key]
        self._wake()

    async def moot(self) -> None:
        """Wait until nobody wants to know any more what was asked: the call is over, or its questions are withdrawn."""
        while self.asked and not self.is_over:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    async def reply(
        self, on_notification: OnNotification | None = None, clock: Callable[[bool], None] | None = None
    ) -> JsonObject | None:
        """The server's reply; None when its questions must be answered first."""
        self._clock = clock or _no_clock
        if self._held:
            self._clock(False)
        try:
            return await self._reply(on_notification)
        finally:
            if self._held:
                self._clock(True)
            self._clock = _no_clock

    async def _reply(self, on_notification: OnNotification | None) -> JsonObject | None:
        gathered = False
        while True:
            while self._news:
                message = self._news.popleft()
                if "method" not in message:
                    return message
                await tell(on_notification, message)
            if self._fault is not None:
                raise self._fault
            if self.waiting:
                if gathered:
                    return None
                gathered = True
                await asyncio.sleep(GATHERING)
                continue
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def round(self) -> JsonObject:
        """The questions that wait, from now on asked, as the result that the modern revision has for them."""
        self.asked, self.waiting = self.waiting, {}
        return input_required(self.asked, self.handle)

    def _key(self, request: JsonObject) -> str:
        """The server's own name for a question; else one out of its text, once in a call."""
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


def input_required(requests: JsonObject, handle: str) -> JsonObject:
    """2026-07-28, basic/patterns/mrtr: questions by key, and what to come back with."""
    shown: JsonObject = {key: question(request) for key, request in requests.items()}
    return {"resultType": "input_required", "inputRequests": shown, "requestState": handle}


def question(request: JsonObject) -> JsonObject:
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


def _no_clock(runs: bool) -> None:
    """Nobody counts the time."""


# The Wire: what carries the old messages, both ways; and the Ear that hears what it brings.


class SessionLost(Disconnected):
    """The server knows nothing of the session: it refused a request, which therefore never ran.

    ``refusal`` is what it said, where that may mean something else: if a new session does not help, it did.
    """

    def __init__(self, message: str, refusal: Refused | None = None) -> None:
        super().__init__(message)
        self.refusal = refusal


class Ear(Protocol):
    """Where a wire takes what the server says."""

    def receive(self, message: JsonObject, call: Call | None = None) -> None:
        """A message, and the call on whose stream it came, where the wire can tell."""

    def missed(self) -> None:
        """Something may have been said that did not arrive."""

    def retire(self, fault: CallFailed) -> None:
        """The server takes no more requests here; what it was asked before may still be answered."""

    def ended(self, fault: CallFailed) -> None:
        """Nothing more will come."""


class Wire(Protocol):
    """One connection to an old server, from ``initialize`` to its end."""

    async def open(self) -> None: ...

    def carry(self, call: Call) -> None:
        """Send a call's request. Its reply goes to the ear, a failure to the call itself."""

    def drop(self, call: Call) -> None:
        """Nobody waits for the call any more."""

    async def tell(self, message: JsonObject) -> None:
        """Send a response or a notification."""

    def agree(self, revision: str) -> None:
        """Say from now on that this revision is spoken."""

    def listen(self) -> None:
        """The server may speak unasked from now on."""

    async def hears(self) -> bool:
        """Whether what belongs to no call can arrive."""
        ...

    async def close(self) -> None: ...


Dial: TypeAlias = Callable[[Ear], Wire]
