"""Ask in the middle of a call: push requests to a client, and wait for the answers that come back for them."""

import asyncio
from typing import Any, NamedTuple

from antiphon.errors import CannotAsk
from antiphon.legacy.server.sessions import Session
from antiphon.server.run import Channel
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import Message, notification
from antiphon.wire.revisions import EARLIER, KEY


class PushChannel(Channel):
    """A channel on which the client of a session can be asked."""

    __slots__ = ("_asking", "_pages", "_pushes", "_session")

    def __init__(self, session: Session, pushes: "Pushes") -> None:
        self._session = session
        self._pushes = pushes
        self._asking = 0
        self._pages: dict[str, str] = {}

    async def push(self, name: str, wire: JsonObject) -> object:  # pyright: ignore[reportIncompatibleVariableOverride] -- bound, it is a Push
        """Ask, and wait for the answer; CannotAsk if there will be none."""
        request = _request(wire, name, self._session.revision, self._pushes.new_id(), self.hint())
        page = request["params"].get("elicitationId")
        if page is not None:
            self._pages[name] = page
        self._asking += 1
        try:
            return await self._pushes.ask(request, self._session.id, self)
        finally:
            self._asking -= 1

    async def retract(self, message: JsonObject) -> None:
        """Say that a question is no longer asked, even where the call itself has nothing more to say."""
        await self.emit(message)

    def hint(self) -> JsonObject:
        """What else a question says in its ``_meta``."""
        return {}

    async def take_back(self) -> None:
        """The call has ended: retract what a thread or a task that it left behind still asks."""
        if self._asking:
            for id_ in self._pushes.give_up_on(self):
                await self.retract(_cancelled(id_))

    async def url_done(self, key: str) -> None:
        page = self._pages.get(key)
        if page is not None:
            await self.emit(notification("notifications/elicitation/complete", {"elicitationId": page}))


class Pushes:
    """Pushed requests, by id, until they are answered. An answer counts only from the session that was asked."""

    def __init__(self, name: str, timeout: float | None) -> None:
        self._name = name
        self._timeout = timeout
        self._count = 0
        self._waiting: dict[str, _Push] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def new_id(self) -> str:
        self._count += 1
        return f"{self._name}-{self._count}"

    async def ask(self, request: JsonObject, session: str, channel: PushChannel) -> object:
        """Send a request and wait for its answer; CannotAsk if there will be none."""
        id_: str = request["id"]
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[id_] = _Push(session, channel, answer)
        try:
            await channel.emit(request)
            async with asyncio.timeout(self._timeout):
                await asyncio.wait({answer})
            return _response(answer.result())
        except TimeoutError:
            raise CannotAsk(f"The client did not answer within {self._timeout:g} seconds", required={}) from None
        finally:
            del self._waiting[id_]
            if answer.cancelled() or not answer.done():
                await channel.retract(_cancelled(id_))

    def answered(self, session: str, message: Message) -> bool:
        """Hand over an answer; False if it is not waited for."""
        id_ = message.get("id")
        push = self._waiting.get(id_) if type(id_) is str else None
        if push is None or push.session != session:
            return False
        if not push.answer.done():
            push.answer.set_result(message)
        return True

    def give_up(self, session: str | None = None, *, why: str = "The client went away before it had answered") -> None:
        """End the waiting for answers of one session, or of all."""
        for push in list(self._waiting.values()):
            if session is None or push.session == session:
                push.end(why)

    def give_up_on(self, channel: PushChannel) -> list[str]:
        """End the waiting for what a channel asked; the ids of those questions."""
        mine = [id_ for id_, push in self._waiting.items() if push.channel is channel]
        return [id_ for id_ in mine if self._waiting[id_].end("The call has ended")]


class _Push(NamedTuple):
    session: str
    channel: PushChannel
    answer: "asyncio.Future[Message]"

    def end(self, why: str) -> bool:
        if self.answer.done():
            return False
        self.answer.set_exception(CannotAsk(why, required={}))
        self.answer.exception()  # the task that waits may be cancelled before it looks
        return True


def _cancelled(id_: str) -> Message:
    return notification("notifications/cancelled", {"requestId": id_})


def _request(wire: JsonObject, name: str, revision: str, id_: str, hint: JsonObject) -> JsonObject:
    """A question as the request that an older client gets."""
    params: JsonObject = {**wire.get("params", {})}
    if wire["method"] == "elicitation/create":
        if not EARLIER[revision].modes:
            params.pop("mode", None)
        elif params.get("mode") == "url":
            params["elicitationId"] = id_
    params["_meta"] = {**params.get("_meta", {}), KEY: name, **hint}
    return {"jsonrpc": "2.0", "id": id_, "method": wire["method"], "params": params}


def _response(message: Message) -> object:
    """What a client answered to a pushed request; CannotAsk if that is an error."""
    fault: Any = message.get("error")
    if fault is None:
        return message.get("result")
    told = fault.get("message") if isinstance(fault, dict) else fault
    raise CannotAsk(f"The client could not be asked: {told}", required={})
