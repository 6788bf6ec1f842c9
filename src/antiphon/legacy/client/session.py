"""A session with an old server: its calls, what it asks on the way, and what it says unasked."""

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from antiphon.errors import CallFailed, CannotAnswer, Disconnected, PeerBroken, Refused
from antiphon.legacy.client.call import MOST_QUESTIONS, LegacyCall
from antiphon.legacy.client.translation import INTERNAL, ServerDescription, described, old_params, why_not
from antiphon.legacy.client.transport import Connect, SessionLost
from antiphon.legacy.client.unclaimed import UnclaimedQuestions, failure
from antiphon.transports.link import Caller, refusal, tell
from antiphon.transports.stdio_client import again
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import RequestId, notification
from antiphon.wire.revisions import CLIENT_CAPABILITIES, CLIENT_INFO, METHODS, PROGRESS_TOKEN, REQUEST, SUBSCRIPTION_ID

MOST_COMPLETED = 1000
"""Elicitations of which the server said that they are done."""
MOST_TOLD = 1000
"""Notifications of no call that may wait to be heard."""
TOO_MANY = "The server asks too much: too many questions wait already, or too many came since the last call"
FAREWELL = 2.0
"""Seconds that the last messages have to reach the server."""
_LISTS = ("tools", "prompts", "resources")

log = logging.getLogger("antiphon.client")


class ChangeListener:
    """One ``subscriptions/listen`` at a server that does not have that method."""

    def __init__(self, id_: object, wanted: object, server: ServerDescription, *, hears: bool) -> None:
        self.id = id_
        asked: JsonObject = wanted if type(wanted) is dict else {}
        uris = asked.get("resourceSubscriptions")
        self.uris: list[str] = []
        self._lists = [
            kind for kind in _LISTS if asked.get(f"{kind}ListChanged") and hears and server.has(kind, "listChanged")
        ]
        if type(uris) is list and hears and server.has("resources", "subscribe"):
            self.uris = [uri for uri in dict.fromkeys(uris) if type(uri) is str]
        self._news: asyncio.Queue[JsonObject | CallFailed] = asyncio.Queue()

    @property
    def acknowledgment(self) -> JsonObject:
        """What the server agrees to (2026-07-28, basic/patterns/subscriptions)."""
        agreed: JsonObject = {f"{kind}ListChanged": True for kind in self._lists}
        if self.uris:
            agreed["resourceSubscriptions"] = self.uris
        params = {"_meta": {SUBSCRIPTION_ID: self.id}, "notifications": agreed}
        return notification("notifications/subscriptions/acknowledged", params)

    def hear(self, message: JsonObject, params: JsonObject) -> bool:
        """Take a notification; return False if it is not listened for."""
        method, uri = message["method"], params.get("uri")
        if method != "notifications/resources/updated":
            wanted = any(method == f"notifications/{kind}/list_changed" for kind in self._lists)
        else:
            wanted = type(uri) is str and any(_covers(one, uri) for one in self.uris)
        if wanted:
            meta = params.get("_meta")
            tagged = {**(meta if type(meta) is dict else {}), SUBSCRIPTION_ID: self.id}
            self._news.put_nowait(notification(method, {**params, "_meta": tagged}))
        return wanted

    def fail(self, fault: CallFailed) -> None:
        self._news.put_nowait(fault)

    async def next(self) -> JsonObject:
        news = await self._news.get()
        if isinstance(news, CallFailed):
            raise news
        return news


def _covers(subscribed: str, uri: str) -> bool:
    """2025-11-25, schema, ResourceUpdatedNotification: the URI may be a part of the one that was subscribed to."""
    return uri == subscribed or uri.startswith(subscribed.rstrip("/") + "/")


class ClientSession:
    """From ``initialize`` to the end of the transport, whose Receiver it is."""

    def __init__(self, connect: Connect, caller: Caller, ids: Iterator[int]) -> None:
        self.server = ServerDescription(revision="", capabilities={})
        self.fault: CallFailed | None = None
        """Why it takes no more requests."""
        self.transport = connect(self)
        self.transport.introduce(caller)
        self._caller = caller
        self._ids = ids
        self._calls: dict[int, LegacyCall] = {}
        self._listeners: set[ChangeListener] = set()
        self._subscribed: Counter[str] = Counter()
        self._completed: dict[object, None] = {}
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.unclaimed = UnclaimedQuestions(caller, self.transport.tell, self.soon)
        self._untold: list[JsonObject] = []
        self._level: object = None
        self._early: list[JsonObject] = []
        """Questions that came before a call that could ask them."""

    @property
    def is_idle(self) -> bool:
        return not self._calls

    async def open(self, offered: str, accepted: tuple[str, ...]) -> None:
        """2025-11-25, basic/lifecycle, Initialization."""
        await self.transport.open()
        meta = self._caller.meta
        hello = {
            "protocolVersion": offered,
            "capabilities": meta.get(CLIENT_CAPABILITIES, {}),
            "clientInfo": meta.get(CLIENT_INFO, {"name": "antiphon", "version": "0"}),
        }
        self.server = described(await self.ask("initialize", hello), accepted)
        self.transport.agree(self.server.revision)
        await self.transport.tell({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.transport.listen()

    async def close(self) -> None:
        self.ended(Disconnected("The client was closed before the server had answered"))
        tasks = set(self._tasks)
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=FAREWELL)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.transport.close()

    # --- requests -------------------------------------------------------------------------------------------------

    def start(self, method: str, params: JsonObject, handle: str | None = None) -> LegacyCall:
        """Send a request; wait for the call that is returned."""
        id_ = next(self._ids)
        message: JsonObject = {"jsonrpc": "2.0", "id": id_, "method": method, "params": old_params(params, id_)}
        row = METHODS.get(method)
        call = LegacyCall(message, asks=row is not None and row.asks, handle=handle)
        self._calls[id_] = call
        self.transport.carry(call)
        if self._early and call.asks:
            early, self._early = self._early, []
            for request in early:
                call.ask(request, guessed=True)
        return call

    def done(self, call: LegacyCall) -> None:
        """Note that the server has replied: refuse the call's open questions, answer those that only seemed its own."""
        self._end(call)
        self.unclaimed.count = 0
        own, guessed = call.give_back()
        if self.fault is not None:
            return
        for request in own:
            self._refuse(request["id"], INTERNAL, "The call is over")
        for request in guessed:
            if not (self.unclaimed.ask(request) if self._caller.apart else self._place(request)):
                self._refuse(request["id"], INTERNAL, TOO_MANY)

    def _end(self, call: LegacyCall, *, left: bool = False) -> None:
        del self._calls[call.id]
        self.unclaimed.ended(call.id, left=left)

    @property
    def _asking(self) -> list[LegacyCall]:
        """The open calls that may ask."""
        return [one for one in self._calls.values() if one.asks and not one.is_over]

    @property
    def has_something_to_say(self) -> bool:
        return bool(self._tasks)

    def leave(self, call: LegacyCall, why: BaseException | None = None) -> None:
        """Give a call up, and tell the server unless it refused the call itself."""
        if call.id not in self._calls:
            return
        self.transport.drop(call)
        if isinstance(why, Refused | SessionLost):
            self.done(call)
            return
        told = "The client could not answer" if isinstance(why, CannotAnswer) else "The client left the call"
        self._end(call, left=True)
        # basic/utilities/cancellation: ``initialize`` must not be cancelled.
        if self.fault is None and call.message["method"] != "initialize":
            own, guessed = call.give_back()
            self.soon(self._given_up(call, [*own, *guessed], told))

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Send a request of the link's own; return its result."""
        call = self.start(method, params)
        try:
            reply = await call.reply()
        except BaseException as fault:
            self.leave(call, fault)
            raise
        self.done(call)
        assert reply is not None  # such a request asks nothing
        if "error" in reply:
            raise refusal(reply["error"])
        result = reply.get("result")
        if type(result) is not dict:
            raise PeerBroken("The server's reply has neither a result nor an error")
        return result

    async def log_from(self, level: object) -> None:
        """Set the session's log level, if it has another (server/utilities/logging)."""
        if level == self._level or not self.server.has("logging"):
            return
        try:
            await self.ask("logging/setLevel", {"level": level})
        except Refused as fault:
            log.warning("the server does not log from %s: %s", level, fault)
        self._level = level

    async def answer(self, request: JsonObject, response: object) -> None:
        """Answer what the server asked."""
        await self.transport.tell({"jsonrpc": "2.0", "id": request["id"], "result": response})

    async def completed(self, ids: set[object], seconds: float) -> None:
        """Wait until the server says that these elicitations are done, so many seconds at most: it need not."""
        try:
            async with asyncio.timeout(seconds):
                while not ids <= self._completed.keys() and self.fault is None:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            pass

    # --- changes --------------------------------------------------------------------------------------------------

    async def add(self, listener: ChangeListener) -> None:
        """Subscribe to what a listener wants."""
        self._listeners.add(listener)
        try:
            for uri in listener.uris:
                self._subscribed[uri] += 1
                if self._subscribed[uri] == 1:
                    await self.ask("resources/subscribe", {"uri": uri})
        except BaseException:
            self.remove(listener)
            raise

    def remove(self, listener: ChangeListener) -> None:
        self._listeners.discard(listener)
        for uri in listener.uris:
            self._subscribed[uri] -= 1
            if self._subscribed[uri] <= 0:
                del self._subscribed[uri]
                if self.fault is None:
                    self.soon(self.ask("resources/unsubscribe", {"uri": uri}))

    # --- what the transport brings --------------------------------------------------------------------------------

    def receive(self, message: JsonObject, call: LegacyCall | None = None) -> None:
        method = message.get("method")
        if "method" not in message:
            id_ = message.get("id")
            found = self._calls.get(id_) if type(id_) is int else None
            if found is not None:
                found.put(message)
        elif type(method) is not str:
            log.warning("the server sent a method that is no name: %r", str(method)[:80])
        elif "id" in message:
            self._asked(message, call)
        else:
            self._told(message, call)

    def missed(self) -> None:
        for listener in self._listeners:
            listener.fail(Disconnected("The server's stream broke"))

    def retire(self, fault: CallFailed) -> None:
        if self.fault is None:
            self.fault = fault
        for listener in self._listeners:
            listener.fail(again(fault))
        self._news.set()

    def ended(self, fault: CallFailed) -> None:
        self.retire(fault)
        self.unclaimed.stop()
        for call in self._calls.values():
            call.fail(again(fault))

    def _asked(self, request: JsonObject, call: LegacyCall | None) -> None:
        """Take a request of the server's."""
        id_ = request["id"]
        if type(id_) is not int and type(id_) is not str:
            return
        if request["method"] == "ping":
            self.soon(self.answer(request, {}))
            return
        fault = why_not(request, self._caller.meta.get(CLIENT_CAPABILITIES, {}))
        if fault is not None:
            log.warning("the server asks %s, and is told: %s", request["method"], fault[1])
            self._refuse(id_, *fault)
            return
        hint = _hint(request)
        if call is None and hint is not None:
            call = self._calls.get(hint)
        elif call is None:
            if not self._place(request):
                self._refuse(id_, INTERNAL, TOO_MANY)
            return
        if call is None or call.is_over:
            self._refuse(id_, INTERNAL, "The call is over")
        elif not (call.ask(request) if call.asks else self.unclaimed.ask(request)):
            self._refuse(id_, INTERNAL, TOO_MANY)

    def _place(self, request: JsonObject) -> bool:
        """Take a question of which neither the transport nor the server says whose it is; False if there are too many.

        The only call that may ask has most likely asked: it gets a round. Of several, a wrong one would be held up or
        ended by a question that is not its own: such a question is answered apart from them, where the caller can.
        """
        open_ = self._asking
        if len(open_) == 1 or (open_ and not self._caller.apart):
            return open_[0].ask(request, guessed=True)
        if open_ or self._caller.apart:
            return self.unclaimed.ask(request, [one.id for one in open_])
        if len(self._early) >= MOST_QUESTIONS:
            return False
        self._early.append(request)
        return True

    def _told(self, message: JsonObject, call: LegacyCall | None) -> None:
        """Take a notification."""
        method, params = message["method"], message.get("params")
        about: JsonObject = params if type(params) is dict else {}
        if method == "notifications/cancelled":
            for open_ in self._calls.values():
                open_.withdraw(about.get("requestId"))
            self._early = [one for one in self._early if one["id"] != about.get("requestId")]
            self.unclaimed.withdraw(about.get("requestId"))
        elif method == "notifications/elicitation/complete":
            if len(self._completed) >= MOST_COMPLETED:
                del self._completed[next(iter(self._completed))]
            if type(about.get("elicitationId")) is str:
                self._completed[about["elicitationId"]] = None
            self._news.set()
        else:
            heard = [listener.hear(message, about) for listener in self._listeners]
            call = call or self._telling(method, about)
            if any(heard):
                return
            if call is not None:
                call.put(message)
            elif len(self._untold) < MOST_TOLD:
                self._untold.append(message)
                if len(self._untold) == 1:
                    self.soon(self._heard())

    def _telling(self, method: str, about: JsonObject) -> LegacyCall | None:
        """The call that a notification belongs to: by its progress token; a log message is the newest call's."""
        if method == "notifications/progress":
            mark = about.get(PROGRESS_TOKEN)
            return next((call for call in self._calls.values() if mark is not None and call.token == mark), None)
        if method == "notifications/message":
            return next((call for call in reversed(self._calls.values()) if not call.is_over), None)
        return None

    async def _heard(self) -> None:
        """Pass on the notifications of no call, in order."""
        while self._untold:
            try:
                await tell(self._caller.hear, self._untold[0])
            except Exception:
                log.exception("a notification of the server could not be heard")
            finally:
                del self._untold[0]

    # --- what is sent beside the requests -------------------------------------------------------------------------

    async def _given_up(self, call: LegacyCall, questions: Sequence[JsonObject], told: str) -> None:
        for request in questions:
            await self.transport.tell(failure(request["id"], INTERNAL, told))
        await self.transport.tell(notification("notifications/cancelled", {"requestId": call.id, "reason": told}))

    def _refuse(self, id_: RequestId, code: int, told: str) -> None:
        self.soon(self.transport.tell(failure(id_, code, told)))

    def soon(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[None]:
        """Do something beside the requests; ``close`` waits for it."""
        task = asyncio.get_running_loop().create_task(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # cancelled before it began
        return task


async def _quietly(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except CallFailed as fault:
        log.info("a message did not reach the server: %s", fault)


def _hint(request: JsonObject) -> int | None:
    """The call that asks, where the server says so."""
    meta: Any = request.get("params", {}).get("_meta")
    hint = meta.get(REQUEST) if type(meta) is dict else None
    return hint if type(hint) is int else None
