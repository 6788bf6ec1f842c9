"""The transport over HTTP: a POST for each message, a session in a header, and streams that can be resumed."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Coroutine
from typing import Any

from antiphon.errors import CallFailed, Disconnected, PeerBroken, Refused, SignInFailed
from antiphon.http.client import ClientConnection
from antiphon.legacy.client.call import LegacyCall
from antiphon.legacy.client.transport import Receiver, SessionLost, Transport
from antiphon.transports.http_client import MAX_REPLY, HttpLink, content_type, refused
from antiphon.transports.link import Caller, read_messages
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import encode
from antiphon.wire.sse import Events

RETRY = 1.0
"""Seconds before a broken stream is resumed, unless the server names them."""
SHORTEST_RETRY, LONGEST_RETRY = 0.05, 30.0
"""The least and the most of them; they grow from attempt to attempt."""
ATTEMPTS = 5
"""How often in a row a call's stream is resumed without a new event."""
HEARING = 2.0
"""Seconds to wait for a server's own stream; after that, it counts as open."""
FAREWELL = 2.0
"""Seconds that a server has to take the end of the session."""

_OF_THE_SESSION = re.compile(r"session|not initialized", re.IGNORECASE)
"""What the official servers say in a 400 when they do not know the session."""

log = logging.getLogger("antiphon.client")


class HttpTransport(Transport):
    """A Transport over the streamable HTTP of the older revisions (2025-11-25, basic/transports)."""

    def __init__(self, calls: HttpLink, aside: HttpLink, receiver: Receiver) -> None:
        # Answers have connections of their own: the calls that wait for them may fill all others.
        self._calls = calls
        self._aside = aside
        self._receiver = receiver
        self._headers: dict[str, str] = {}
        self._readers: dict[LegacyCall, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_listened = asyncio.Event()
        """Set once it is known whether the server has a stream of its own."""
        self._is_heard = False
        """Whether it has, and that is listened to."""
        self._lost = False

    def introduce(self, caller: Caller) -> None:
        self._calls.introduce(caller)
        self._aside.introduce(caller)

    async def open(self) -> None:
        await self._calls.open()
        await self._aside.open()

    def carry(self, call: LegacyCall) -> None:
        self._readers[call] = self._task(self._carry(call))

    def drop(self, call: LegacyCall) -> None:
        task = self._readers.pop(call, None)
        if task is not None:
            task.cancel()

    async def tell(self, message: JsonObject) -> None:
        response = await self._aside.exchange("POST", self._headers, encode(message))
        answered = False
        try:
            body = await response.read(MAX_REPLY)
            answered = True
        finally:
            self._aside.give_back(response, answered=answered)
        if not 200 <= response.status < 300:
            raise self._refusal(response, body)

    def agree(self, revision: str) -> None:
        self._headers = {**self._headers, "MCP-Protocol-Version": revision}

    def listen(self) -> None:
        self._task(self._listen())

    async def hears(self) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEARING):
                await self._has_listened.wait()
        return self._is_heard or not self._has_listened.is_set()

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            if "MCP-Session-Id" in self._headers and not self._lost:
                # Session Management, 5: a server may refuse this, which changes nothing.
                with contextlib.suppress(CallFailed, TimeoutError):
                    async with asyncio.timeout(FAREWELL):
                        response = await self._aside.exchange("DELETE", self._headers, signs_in=False)
                        self._aside.give_back(response, answered=True)
        finally:
            await self._calls.close()
            await self._aside.close()

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- a call ---------------------------------------------------------------------------------------------------

    async def _carry(self, call: LegacyCall) -> None:
        events = Events(MAX_REPLY, only_messages=True)
        try:
            response = await self._calls.exchange("POST", self._headers, encode(call.message))
            if not await self._read(response, events, call):
                await self._take_up(events, call)
        except CallFailed as fault:
            call.fail(_explained(fault) if call.message["method"] == "initialize" else fault)
        except Exception:
            log.exception("a call could not be carried")
            call.fail(Disconnected("The call was lost on the way; the log says why"))
        finally:
            self._readers.pop(call, None)

    async def _read(self, response: ClientConnection, events: Events, call: LegacyCall) -> bool:
        """Take all that a response brings; return whether the reply to the call was in it."""
        answered = False
        try:
            if response.status == 200 and content_type(response) == "text/event-stream":
                self._greeted(response, call)
                answered = await self._heard(response, events, call)
            else:
                body = await response.read(MAX_REPLY)
                if response.status != 200 or content_type(response) != "application/json":
                    raise self._refusal(response, body)
                self._greeted(response, call)
                answered = self._received(body, call)
                if not answered:
                    raise PeerBroken("The server answered with a message that is no reply to the request")
        finally:
            self._calls.give_back(response, answered=answered)
        return answered

    async def _heard(self, response: ClientConnection, events: Events, call: LegacyCall | None) -> bool:
        """Take the messages of a stream; return whether the reply to the call was the last of them."""
        try:
            while chunk := await response.next_chunk():
                for data in _fed(events, chunk):
                    if self._received(data, call):
                        return True
        except Disconnected:
            if events.last_id is None:
                raise
        if events.last_id is None and call is not None:
            raise Disconnected("The server closed the stream before it had answered")
        return False

    def _received(self, data: bytes, call: LegacyCall | None) -> bool:
        """Pass on all messages of an event or body; return whether the reply to the call is among them."""
        reply = None
        for message in read_messages(data):
            if call is None or "method" in message:
                self._receiver.receive(message, call)
            elif message.get("id") == call.id or ("error" in message and message.get("id") is None):
                reply = message
        if call is not None and reply is not None:
            call.put(reply)  # last, for it ends the call; a batch has no order
        return reply is not None

    async def _take_up(self, events: Events, call: LegacyCall) -> None:
        """Resume a stream that ended before the reply (Resumability and Redelivery)."""
        in_vain = 0
        while in_vain < ATTEMPTS:
            await asyncio.sleep(_pause(events, in_vain))
            seen = events.last_id
            try:
                headers = {**self._headers, "Last-Event-ID": events.last_id or ""}
                response = await self._calls.exchange("GET", headers)
                events.reconnected()
                if await self._read(response, events, call):
                    return
            except SessionLost:
                raise Disconnected("The server ended the session before it had answered") from None
            except Refused as fault:
                if fault.status is None or fault.status < 500:
                    raise Disconnected(
                        f"The server closed the stream before it had answered, and it cannot be taken up: {fault}"
                    ) from None
            except Disconnected as fault:
                log.info("a stream could not be taken up again: %s", fault)
            in_vain = in_vain + 1 if events.last_id == seen else 0
        raise Disconnected(f"The stream broke, and nothing came of taking it up {ATTEMPTS} times")

    def _refusal(self, response: ClientConnection, body: bytes) -> Refused | SessionLost:
        """The fault of a response that carries no reply: SessionLost if the session is over (Session Management, 3).

        That is a 404. Some servers answer 400, as to a request without a session: it counts if it speaks of one.
        """
        refusal = refused(response, body)
        told = str(refusal) if response.status == 400 else ""
        if "MCP-Session-Id" in self._headers and (response.status == 404 or _OF_THE_SESSION.search(told)):
            self._lost = True
            return SessionLost(f"The server ended the session: {refusal}", refusal if told else None)
        return refusal

    def _greeted(self, response: ClientConnection, call: LegacyCall) -> None:
        """Session Management, 1: the response to ``initialize`` may name a session."""
        session = response.headers.get("mcp-session-id")
        if session is None or call.message["method"] != "initialize":
            return
        if not session or not all("!" <= character <= "~" for character in session):
            raise PeerBroken("The server named a session that no header can carry")
        self._headers = {**self._headers, "MCP-Session-Id": session}

    # --- what belongs to no call ----------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """The server's own stream, for as long as there is one (Listening for Messages from the Server)."""
        events = Events(MAX_REPLY, only_messages=True)
        in_vain = 0
        try:
            while True:
                seen = events.last_id
                if not await self._listened(events):
                    return
                if events.last_id is None:
                    self._receiver.missed()
                in_vain = in_vain + 1 if events.last_id == seen else 0
                await asyncio.sleep(_pause(events, in_vain))
        finally:
            if self._is_heard:
                self._is_heard = False
                self._receiver.missed()
            self._has_listened.set()

    async def _listened(self, events: Events) -> bool:
        """Read one connection of the server's stream to its end; return whether to try another."""
        headers = self._headers if events.last_id is None else {**self._headers, "Last-Event-ID": events.last_id}
        try:
            response = await self._aside.exchange("GET", headers, signs_in=False)
        except SignInFailed:
            return False  # the next call signs in, with a person who waits for it
        except CallFailed:
            return self._is_heard
        try:
            if response.status != 200 or content_type(response) != "text/event-stream":
                if not self._is_heard:
                    return False  # it has none
                fault = self._refusal(response, await response.read(MAX_REPLY))
                if isinstance(fault, SessionLost):
                    self._receiver.retire(fault)
                return response.status >= 500
            self._is_heard = True
            self._has_listened.set()
            events.reconnected()
            await self._heard(response, events, None)
        except PeerBroken as fault:
            log.warning("the server's stream is broken, and listened to no longer: %s", fault)
            return False
        except CallFailed:
            pass  # broken: to be resumed
        finally:
            self._aside.give_back(response, answered=False)
        return True


def _pause(events: Events, in_vain: int) -> float:
    """Seconds before a stream is resumed: the server's own, and more with each attempt without a new event."""
    wait = RETRY if events.retry is None else max(events.retry, SHORTEST_RETRY)
    return wait if not in_vain else max(wait, min(SHORTEST_RETRY * 2 ** min(in_vain, 20), LONGEST_RETRY))


def _fed(events: Events, chunk: bytes) -> list[bytes]:
    try:
        return events.feed(chunk)
    except ValueError as fault:
        raise PeerBroken(f"The server's stream is broken: {fault}") from None


def _explained(fault: CallFailed) -> CallFailed:
    """Backwards Compatibility: a server that takes no POST here may be one of the transport before this one."""
    if not isinstance(fault, Refused) or fault.status not in {404, 405} or fault.code is not None:
        return fault
    return Refused(
        f"{fault}. If it speaks the HTTP+SSE transport of 2024-11-05, which this client does not: use the URL of its"
        " streamable HTTP transport",
        status=fault.status,
    )
