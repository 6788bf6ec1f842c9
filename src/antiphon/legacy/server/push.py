"""Asking in the middle of a call: requests pushed to a client, and the answers that come back for them."""

import asyncio
from abc import abstractmethod
from typing import Any, NamedTuple

from antiphon.errors import CannotAsk
from antiphon.legacy.server.sessions import Session
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import Message, notification
from antiphon.wire.revisions import EARLIER, KEY


class Asker:
    """A channel on which the client of a session can be asked."""

    __slots__ = ("_asking", "_pages", "_session", "_waiting")

    def __init__(self, session: Session, waiting: "Waiting") -> None:
        self._session = session
        self._waiting = waiting
        self._asking = 0
        self._pages: dict[str, str] = {}

    @abstractmethod
    async def emit(self, message: JsonObject) -> None: ...

    async def retract(self, message: JsonObject) -> None:
        """Say that a question is no longer asked, even where the call itself has nothing more to say."""
        await self.emit(message)

    def hint(self) -> JsonObject:
        """What else a question says in its ``_meta``."""
        return {}

    async def push(self, name: str, wire: JsonObject) -> object:
        """Ask, and wait for the answer."""
        request = pushed(wire, name, self._session.revision, self._waiting.new_id(), self.hint())
        page = request["params"].get("elicitationId")
        if page is not None:
            self._pages[name] = page
        self._asking += 1
        try:
            return await self._waiting.ask(request, self._session.id, self)
        finally:
            self._asking -= 1

    async def take_back(self) -> None:
        """The call has ended: whatever it still asks, in a thread or a task that it left behind, it asks no more."""
        if self._asking:
            for id_ in self._waiting.give_up_on(self):
                await self.retract(_cancelled(id_))

    async def url_done(self, key: str) -> None:
        page = self._pages.get(key)
        if page is not None:
            await self.emit(notification("notifications/elicitation/complete", {"elicitationId": page}))


class Waiting:
    """Pushed requests, by id, until they are answered. An answer counts only from the session that was asked."""

    def __init__(self, name: str, timeout: float | None) -> None:
        self._name = name
        self._timeout = timeout
        self._count = 0
        self._asked: dict[str, _Asked] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def new_id(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"

    async def ask(self, request: JsonObject, session: str, channel: Asker) -> object:
        """Send a request and wait for its answer; CannotAsk if there will be none."""
        id_: str = request["id"]
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._asked[id_] = _Asked(session, channel, answer)
        try:
            await channel.emit(request)
            async with asyncio.timeout(self._timeout):
                await asyncio.wait({answer})
            return response_in(answer.result())
        except TimeoutError:
            raise CannotAsk(f"Nobody answered within {self._timeout:g} seconds", required={}) from None
        finally:
            del self._asked[id_]
            if answer.cancelled() or not answer.done():
                await channel.retract(_cancelled(id_))

    def answered(self, session: str, message: Message) -> bool:
        """Hand over an answer; False if nobody waits for it."""
        id_ = message.get("id")
        asked = self._asked.get(id_) if type(id_) is str else None
        if asked is None or asked.session != session:
            return False
        if not asked.answer.done():
            asked.answer.set_result(message)
        return True

    def give_up(self, session: str | None = None, *, why: str = "The client went away before it had answered") -> None:
        """Nobody will answer what was asked, in the session or in all of them."""
        for asked in list(self._asked.values()):
            if session is None or asked.session == session:
                asked.end(why)

    def give_up_on(self, channel: Asker) -> list[str]:
        """Wait no longer for what a channel asked; the ids of those questions."""
        mine = [id_ for id_, asked in self._asked.items() if asked.channel is channel]
        return [id_ for id_ in mine if self._asked[id_].end("The call has ended")]


class _Asked(NamedTuple):
    session: str
    channel: Asker
    answer: "asyncio.Future[Message]"

    def end(self, why: str) -> bool:
        if self.answer.done():
            return False
        self.answer.set_exception(CannotAsk(why, required={}))
        self.answer.exception()  # whoever waits may be cancelled before it looks
        return True


def _cancelled(id_: str) -> Message:
    return notification("notifications/cancelled", {"requestId": id_})


def pushed(wire: JsonObject, name: str, revision: str, id_: str, hint: JsonObject) -> JsonObject:
    """A question as the request that an older client gets."""
    params: JsonObject = {**wire.get("params", {})}
    if wire["method"] == "elicitation/create":
        if not EARLIER[revision].modes:
            params.pop("mode", None)
        elif params.get("mode") == "url":
            params["elicitationId"] = id_
    params["_meta"] = {**params.get("_meta", {}), KEY: name, **hint}
    return {"jsonrpc": "2.0", "id": id_, "method": wire["method"], "params": params}


def response_in(message: Message) -> object:
    """What a client answered to a pushed request; CannotAsk if that is an error."""
    fault: Any = message.get("error")
    if fault is None:
        return message.get("result")
    told = fault.get("message") if isinstance(fault, dict) else fault
    raise CannotAsk(f"The client could not be asked: {told}", required={})
