"""The Link: carries a client's requests to one server, and what a link with a session has on top."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from antiphon.errors import PeerBroken, Refused
from antiphon.types import JsonObject
from antiphon.wire.revisions import REVISION

OnNotification: TypeAlias = Callable[[JsonObject], Awaitable[None] | None]

_decode = msgspec.json.Decoder().decode


def _ignore_time(_: object, runs: bool) -> None:
    """Count nothing."""


class Caller(NamedTuple):
    """The client, for a link with a session: its server is told of it once, and may ask at any time."""

    meta: JsonObject
    """What every request says of the client in its ``_meta``."""
    answer: Callable[[str, JsonObject], Awaitable[JsonObject]]
    """Answers a question, given its key, that belongs to no call; raises CannotAnswer if it cannot."""
    hear: OnNotification
    """Takes the notifications that belong to no request."""
    clock: Callable[[object, bool], None] = _ignore_time
    """Stops (False) or starts (True) the server's time for the request of this id, while a person signs in for it.

    None stands for all that are under way: the link cannot tell for which of them a person signs in, or answers.
    """
    apart: bool = True
    """Whether ``answer`` takes what may be asked by several calls. Else one of those calls asks it, or the next one."""


class Attempt(Protocol):
    """One request on its way through authorization."""

    async def lines(self, verb: str) -> str:
        """Return the header lines that authorize the request."""
        ...

    def renewal(self, status: int, headers: Mapping[str, str], address: str | None) -> Awaitable[None] | None:
        """Return what to await before the request is sent again; None if the refusal stands.

        ``address`` is the IP address that refused, where it is known.
        """
        ...

    def accepted(self) -> None:
        """Note that the server did not refuse the request."""


class Authorizer(Protocol):
    """Authorizes the requests to one server."""

    def attempt(self, *, signs_in: bool = True) -> Attempt:
        """Return the way of one request. ``signs_in``: whether it is worth a sign-in."""
        ...


@runtime_checkable
class Link(Protocol):
    """Carries requests to a server and replies back.

    ``request`` returns the JSON-RPC reply, a result or an error; notifications that belong to the request go to the
    callback before that, one after the other, and what the callback raises ends the request. Cancelling it cancels the
    request at the server. What cannot be carried raises Disconnected, Refused or PeerBroken. ``headers`` mirror the
    body where the link speaks HTTP; other links ignore them. ``close`` ends the requests under way with Disconnected;
    later ones raise it as well, until the link is opened again.

    ``antiphon.testing.contracts.check_link`` checks that a link keeps these promises.

    A link that keeps a session derives from SessionLink, and one that wraps another link from Around.
    """

    async def open(self) -> None:
        """Connect. Called once, before the first request."""
        ...

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        """Send a request and return its reply, a message with ``result`` or ``error``."""
        ...

    async def close(self) -> None:
        """End all requests under way and let go of the connection."""
        ...


class SessionLink(Link):
    """A Link, and what a client says to one that keeps a session. The defaults are those of a link without one."""

    @property
    def revision(self) -> str:
        """The revision that is spoken; until the server has answered, the one that is tried."""
        return REVISION

    @property
    def stateful(self) -> bool:
        """Whether the server keeps a session: ``open`` greets it, and a call that asks stays open until answered."""
        return self.revision != REVISION

    def introduce(self, caller: Caller) -> None:
        """Take the client's side, before the link is opened."""

    def abandon(self, state: str | None, why: BaseException) -> None:
        """Give up the call that was answered with questions and this state: it will not be resumed."""

    def moot(self, state: str) -> Awaitable[None] | None:
        """Return what ends when the questions of this state need no answers any more; None if they always do."""


L = TypeVar("L", bound=Link)


class _Sessionless(SessionLink, Generic[L]):
    """A Link of three methods, with the defaults of a SessionLink."""

    def __init__(self, link: L) -> None:
        self._link = link

    async def open(self) -> None:
        await self._link.open()

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        return await self._link.request(message, headers=headers, on_notification=on_notification)

    async def close(self) -> None:
        await self._link.close()


class Around(_Sessionless[SessionLink]):
    """A Link around another one, which forwards everything. Derive from it, and override what is done differently.

    A subclass that changes what is carried overrides ``request``; one that shares the other link with more clients
    overrides ``open`` and ``close``.
    """

    def __init__(self, link: Link) -> None:
        super().__init__(session_of(link))

    @property
    def revision(self) -> str:
        return self._link.revision

    def introduce(self, caller: Caller) -> None:
        self._link.introduce(caller)

    def abandon(self, state: str | None, why: BaseException) -> None:
        self._link.abandon(state, why)

    def moot(self, state: str) -> Awaitable[None] | None:
        return self._link.moot(state)


def session_of(link: Link) -> SessionLink:
    """Return the link itself if it is a SessionLink, else the same link with a SessionLink's defaults."""
    return link if isinstance(link, SessionLink) else _Sessionless(link)


def read_message(data: bytes) -> JsonObject:
    """A message out of a server's bytes; PeerBroken if they are none."""
    message = _read(data)
    if type(message) is not dict:
        raise PeerBroken(f"The server sent JSON that is no message: {data[:80]!r}")
    return message


def read_messages(data: bytes) -> list[JsonObject]:
    """A message, or several at once, as 2025-03-26 has them (basic, Batching); PeerBroken if the bytes are neither."""
    found = _read(data)
    messages: list[Any] = found if type(found) is list else [found]
    if not messages or not all(type(message) is dict for message in messages):
        raise PeerBroken(f"The server sent JSON that is no message: {data[:80]!r}")
    return messages


def _read(data: bytes) -> Any:
    try:
        return _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as fault:
        raise PeerBroken(f"The server sent what is not JSON ({fault}): {data[:80]!r}") from None


def refusal(error: object, *, status: int | None = None, retry_after: float | None = None) -> Refused:
    """A JSON-RPC error as what the caller gets; PeerBroken if it is not one."""
    body: JsonObject = error if type(error) is dict else {}
    code, message = body.get("code"), body.get("message")
    if type(code) is not int or type(message) is not str:
        raise PeerBroken("The server sent an error without a code and a message")
    return Refused(message, code=code, data=body.get("data"), status=status, retry_after=retry_after)


async def tell(on_notification: OnNotification | None, message: JsonObject) -> None:
    if on_notification is not None:
        told = on_notification(message)
        if told is not None:
            await told
