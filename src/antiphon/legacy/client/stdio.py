"""The wire as a pipe: messages both ways, of whatever call."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from antiphon.errors import CallFailed, Disconnected
from antiphon.legacy.client.call import Call, Ear
from antiphon.transports.stdio_client import ChildLink, Process
from antiphon.types import JsonObject


class Pipe(Protocol):
    """Something that takes messages, and gives those that come back to the callback that it was made with."""

    async def open(self) -> None: ...

    def send(self, message: JsonObject) -> None: ...

    async def close(self) -> None: ...


Receive: TypeAlias = Callable[[JsonObject], None]
Lost: TypeAlias = Callable[[CallFailed], None]


class PipeWire:
    """A Wire over a pipe, which must say which call a message belongs to, or leaves it to be guessed."""

    def __init__(self, lay: Callable[[Receive, Lost], Pipe], ear: Ear) -> None:
        self._pipe = lay(ear.receive, ear.ended)
        self._is_open = False

    async def open(self) -> None:
        await self._pipe.open()
        self._is_open = True

    def carry(self, call: Call) -> None:
        try:
            self._pipe.send(call.message)
        except CallFailed as fault:
            call.fail(fault)

    def drop(self, call: Call) -> None:
        """A pipe is everybody's."""

    async def tell(self, message: JsonObject) -> None:
        self._pipe.send(message)

    def agree(self, revision: str) -> None:
        """A pipe has no headers to say it in."""

    def listen(self) -> None:
        """A pipe always does."""

    async def hears(self) -> bool:
        return True

    async def close(self) -> None:
        if self._is_open:
            self._is_open = False
            await self._pipe.close()


class ChildPipe:
    """The standard streams of a process that is started for it."""

    def __init__(self, child: ChildLink, receive: Receive, lost: Lost) -> None:
        self._child = child
        self._receive = receive
        self._lost = lost
        self._process: Process | None = None

    async def open(self) -> None:
        self._process = await self._child.start(self._receive, self._lost)

    def send(self, message: JsonObject) -> None:
        if self._process is None:
            raise Disconnected("The server's process was not started")
        self._process.send(message)

    async def close(self) -> None:
        if self._process is not None:
            await self._process.close()
