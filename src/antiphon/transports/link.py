"""The Link: a client's way to one server. One method does the work, so that a test's own is a few lines."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from antiphon.errors import PeerBroken, Refused
from antiphon.types import JsonObject

OnNotification: TypeAlias = Callable[[JsonObject], Awaitable[None] | None]


def _uncounted(_: object, runs: bool) -> None:
    """Nobody counts the time."""


class Caller(NamedTuple):
    """The client, to a link that must know it: an older server is told of it once, and may ask at any time."""

    meta: JsonObject
    """What every request says of the client in its ``_meta``."""
    answer: Callable[[str, JsonObject], Awaitable[JsonObject]]
    """The response to a question, with its key, that belongs to no call; CannotAnswer if there is none."""
    hear: OnNotification
    """Takes the notifications that belong to no request."""
    clock: Callable[[object, bool], None] = _uncounted
    """Whether the server's time for a request runs: not while somebody is asked what may be its question."""


_decode = msgspec.json.Decoder().decode


@runtime_checkable
class Link(Protocol):
    """Carries requests to a server and replies back.

    ``request`` returns the JSON-RPC reply, whatever it says; notifications that belong to the request go to the
    callback before that, one after the other, and what the callback raises ends the request. Cancelling it cancels the
    request at the server. What cannot be carried raises Disconnected, Refused or PeerBroken. ``headers`` mirror the
    body where the link speaks HTTP; other links ignore them. ``close`` ends the requests under way with Disconnected;
    later ones raise it as well, until the link is opened again.

    ``antiphon.testing.contracts.check_link`` checks that a link keeps these promises.

    A link that may speak an older revision has more, which a client uses where it finds it: ``revision``, the one that
    is spoken; ``introduce(caller)``, before it is opened; ``abandon(state, fault)``, when a call that was answered with
    questions and this state will not be taken up again; and ``moot(state)``, to be awaited: it ends when nobody wants
    to know those answers any more.
    """

    async def open(self) -> None: ...

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject: ...

    async def close(self) -> None: ...


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
