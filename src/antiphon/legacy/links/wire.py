"""The Wire: what carries the old messages, both ways; and the Ear that hears what it brings."""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from antiphon.errors import CallFailed, Disconnected, Refused
from antiphon.legacy.links.call import Call
from antiphon.types import JsonObject


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
