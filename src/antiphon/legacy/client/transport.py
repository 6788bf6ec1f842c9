"""What carries the messages of a session with an old server: the two seams, and the transport over a pipe."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from antiphon.errors import CallFailed, Disconnected, Refused
from antiphon.legacy.client.call import LegacyCall
from antiphon.transports.link import Caller
from antiphon.transports.stdio_client import ChildLink, Lost, Process, Receive
from antiphon.types import JsonObject


class SessionLost(Disconnected):
    """The server does not know the session: it refused a request, which therefore never ran.

    ``refusal`` is what it said, where that may mean something else: raise it if a new session does not help.
    """

    def __init__(self, message: str, refusal: Refused | None = None) -> None:
        super().__init__(message)
        self.refusal = refusal


class Receiver(Protocol):
    """Takes what a transport brings from the server."""

    def receive(self, message: JsonObject, call: LegacyCall | None = None) -> None:
        """Take a message, and the call on whose stream it came, where the transport can tell."""

    def missed(self) -> None:
        """Note that messages of no call may have been lost."""

    def retire(self, fault: CallFailed) -> None:
        """Send no more requests here; earlier ones may still be answered."""

    def ended(self, fault: CallFailed) -> None:
        """Note that nothing more will come."""


class Transport:
    """One connection to an old server, from ``initialize`` to its end. The defaults are those of a pipe."""

    def introduce(self, caller: Caller) -> None:
        """Take the client's side, whose clock stands still while a person signs in."""

    async def open(self) -> None:
        """Connect; nothing is sent yet."""

    def carry(self, call: LegacyCall) -> None:
        """Send a call's request. Its reply goes to the receiver, a failure to the call itself."""

    async def tell(self, message: JsonObject) -> None:
        """Send a response or a notification."""

    async def close(self) -> None:
        """End the connection."""

    def drop(self, call: LegacyCall) -> None:
        """Stop waiting for the reply to a call."""

    def agree(self, revision: str) -> None:
        """Name this revision from now on."""

    def listen(self) -> None:
        """Take messages of no call from now on."""

    async def hears(self) -> bool:
        """Whether messages of no call can arrive."""
        return True


Connect: TypeAlias = Callable[[Receiver], Transport]


class MessagePipe(Protocol):
    """Takes messages, and gives those that come back to the callback that it was made with."""

    async def open(self) -> None: ...

    def send(self, message: JsonObject) -> None: ...

    async def close(self) -> None: ...


class PipeTransport(Transport):
    """A Transport over a pipe: unless a message says which call it belongs to, that must be guessed."""

    def __init__(self, make: Callable[[Receive, Lost], MessagePipe], receiver: Receiver) -> None:
        self._pipe = make(receiver.receive, receiver.ended)
        self._is_open = False

    async def open(self) -> None:
        await self._pipe.open()
        self._is_open = True

    def carry(self, call: LegacyCall) -> None:
        try:
            self._pipe.send(call.message)
        except CallFailed as fault:
            call.fail(fault)

    async def tell(self, message: JsonObject) -> None:
        self._pipe.send(message)

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._pipe.close()


class ChildPipe:
    """The standard streams of a process."""

    def __init__(self, child: ChildLink, receive: Receive, lost: Lost) -> None:
        self._child = child
        self._receive = receive
        self._lost = lost
        self._process: Process | None = None

    async def open(self) -> None:
        self._process = await self._child.lend(self._receive, self._lost)

    def send(self, message: JsonObject) -> None:
        if self._process is None:
            raise Disconnected("The server's process was not started")
        self._process.send(message)

    async def close(self) -> None:
        if self._process is not None:
            await self._child.take_back(self._process)
