"""Calls at old servers that wait for the answers of new clients, here and at other instances.

An old server keeps a call open while it asks. A new client ends its request with the question, and comes back with the
answer later, maybe to another instance. So the call waits at the instance that made it, under a name that says which.
"""

import asyncio
import contextlib
import copy
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.bridge.connections import OpenLink
from antiphon.errors import Disconnected, InternalError, ProtocolError, StateRefused
from antiphon.stores.store import Store, StoreError
from antiphon.transports.link import OnNotification, tell
from antiphon.types import JsonObject
from antiphon.wire.call import Call
from antiphon.wire.jsonrpc import encode

log = logging.getLogger("antiphon.bridge")

MOST: Final = 1000
"""Calls that may wait at a time: of one principal, or of a client without one, a tenth of them."""
LEAST: Final = 10
"""Calls that one principal or client may always have waiting, as long as there are not too many of all."""
GREETING: Final = 3.0
"""Seconds in which the instance that holds a call says that it does."""
BEAT, SILENCE = 2.0, 10.0
"""Seconds between its signs of life while the call goes on, and without one after which it is gone."""
LOST: Final = "The call was lost: the instance of the bridge that held it open is gone. Make the call again."
_decode = msgspec.json.Decoder().decode


class HeldCall(NamedTuple):
    connection: OpenLink
    call: Call
    params: JsonObject
    handle: str
    """The state under which the link knows it."""
    end: asyncio.TimerHandle
    ttl: float
    """Seconds that it may wait for the answers to a round."""


Resume = Callable[[HeldCall, JsonObject, OnNotification], Awaitable[JsonObject]]
"""Goes on with a call, given the members of the request that answer, and what takes notifications."""


class HeldCalls:
    """The calls that wait at this instance. ``resume`` gives answers to one of them, wherever it waits."""

    def __init__(self, resume: Resume) -> None:
        self._resume = resume
        self._instance = secrets.token_hex(8)
        self._waiting: dict[str, HeldCall] = {}
        self._store: Store | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._ready: asyncio.Event = asyncio.Event()

    async def hold(
        self, connection: OpenLink, call: Call, params: JsonObject, handle: str, *, ttl: float, store: Store | None
    ) -> str:
        """Keep a call until its answers come, ``ttl`` seconds at most; return the name it waits under."""
        caller = _caller(connection, call)
        own = sum(_caller(held.connection, held.call) == caller for held in self._waiting.values())
        if len(self._waiting) >= MOST or own >= max(LEAST, MOST // 10):
            connection.link.abandon(handle, Disconnected("Too many calls wait"))
            whose = "calls" if len(self._waiting) >= MOST else "of your calls"
            raise InternalError(f"Too many {whose} wait for answers: answer or cancel some, and call again")
        name = f"{self._instance}.{secrets.token_hex(8)}"
        end = asyncio.get_running_loop().call_later(ttl, self.abandon, name, "The client did not come back")
        self._waiting[name] = HeldCall(connection, copy.copy(call), params, handle, end, ttl)
        connection.hold()
        if store is not None:
            await self._listen(store)
        return name

    def abandon(self, name: str, why: str) -> None:
        """Cancel a call that waits."""
        call = self._taken(name)
        if call is not None:
            log.info("%s %r waits no more, and is cancelled: %s", call.call.method, call.call.name, why)
            call.connection.link.abandon(call.handle, Disconnected(why))

    def _taken(self, name: str) -> HeldCall | None:
        call = self._waiting.pop(name, None)
        if call is not None:
            call.end.cancel()
            call.connection.release()
        return call

    async def resume(
        self, name: str, answers: JsonObject, on_notification: OnNotification, store: Store | None
    ) -> JsonObject:
        """Give answers to the call that waits under a name; return the connection's next result.

        InternalError if it was lost with its instance, StateRefused if it does not wait any more.
        """
        instance = name.partition(".")[0]
        if instance == self._instance:
            return await self._resume_here(name, answers, on_notification)
        if store is None:
            raise InternalError(LOST)
        return await self._resume_there(instance, name, answers, on_notification, store)

    async def _resume_here(self, name: str, answers: JsonObject, on_notification: OnNotification) -> JsonObject:
        call = self._taken(name)
        if call is None:
            log.warning("requestState refused: the call does not wait any more (answered, cancelled or too late)")
            raise StateRefused
        return await self._resume(call, answers, on_notification)

    async def close(self) -> None:
        """Cancel what waits."""
        tasks = [*self._tasks.values(), *([self._listening] if self._listening else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listening = None
        for name in list(self._waiting):
            self.abandon(name, "The bridge stops")

    # --- between instances ----------------------------------------------------------------------------------------

    async def _resume_there(
        self, instance: str, name: str, answers: JsonObject, on_notification: OnNotification, store: Store
    ) -> JsonObject:
        back = f"antiphon:bridge:{secrets.token_hex(12)}"
        async with store.subscribe(back) as messages:
            await store.publish(_channel(instance), encode({"resume": name, "answers": answers, "back": back}))
            patience = GREETING
            try:
                while True:
                    async with asyncio.timeout(patience):
                        message = _decode(await anext(messages))
                    patience = SILENCE
                    if "tell" in message:
                        await tell(on_notification, message["tell"])
                    elif "result" in message:
                        result: JsonObject = message["result"]
                        return result
                    elif "error" in message:
                        raise relayed(*message["error"])
            except (TimeoutError, StopAsyncIteration):
                raise InternalError(LOST) from None
            except asyncio.CancelledError:
                with contextlib.suppress(StoreError):
                    await store.publish(_channel(instance), encode({"cancel": back}))
                raise

    async def _listen(self, store: Store) -> None:
        """Hear the answers that come to other instances."""
        if self._listening is None or self._listening.done():
            self._store = store
            self._ready = asyncio.Event()
            self._listening = asyncio.ensure_future(self._hear(store))
        await self._ready.wait()

    async def _hear(self, store: Store) -> None:
        while True:
            try:
                async with store.subscribe(_channel(self._instance)) as messages:
                    self._ready.set()
                    async for data in messages:
                        with contextlib.suppress(msgspec.DecodeError):  # not of an instance: that would be JSON
                            self._act_on(_decode(data), store)
            except StoreError as fault:
                log.warning("answers that come to other instances cannot be heard: %s", fault)
            self._ready.set()
            await asyncio.sleep(1.0)

    def _act_on(self, message: Any, store: Store) -> None:
        match message:
            case {"resume": str(name), "answers": dict(answers), "back": str(back)}:
                task = asyncio.ensure_future(self._serve(name, answers, back, store))
                self._tasks[back] = task
                task.add_done_callback(lambda _: self._tasks.pop(back, None))
            case {"cancel": str(back)} if back in self._tasks:
                self._tasks[back].cancel()
            case _:
                pass

    async def _serve(self, name: str, answers: JsonObject, back: str, store: Store) -> None:
        """Go on with a call for another instance, and tell it how."""

        async def say(**message: object) -> None:
            await store.publish(back, encode(message))

        async def beat() -> None:
            while True:
                await say(alive=True)
                await asyncio.sleep(BEAT)

        beating = asyncio.ensure_future(beat())
        try:
            result = await self._resume_here(name, answers, lambda message: say(tell=message))
            await say(result=result)
        except ProtocolError as fault:
            await say(error=[fault.code, fault.message, fault.data])
        except StoreError as fault:
            log.warning("another instance cannot be told how a call went on: %s", fault)
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)


def _caller(connection: OpenLink, call: Call) -> str | OpenLink:
    """Whose call it is: the principal's, or that of the client of this connection."""
    return connection if call.principal is None else call.principal


def _channel(instance: str) -> str:
    return f"antiphon:bridge:{instance}"


_STATUS: Final = {-32601: 404, -32600: 400, -32700: 400, -32020: 400, -32021: 400, -32022: 400}


class RelayedError(ProtocolError):
    """What a server said no with, passed on."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message, data=data, status=_STATUS.get(code))
        vars(self)["code"] = code


def relayed(code: int, message: str, data: object = None) -> ProtocolError:
    return RelayedError(code, message, data)
