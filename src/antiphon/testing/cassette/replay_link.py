"""Replay a cassette to a Client: a Link without a server."""

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any

from antiphon.errors import Disconnected, Refused
from antiphon.testing.cassette.format import Cassette, Entry
from antiphon.testing.cassette.matching import Drift, Drifted
from antiphon.testing.cassette.replaying import Replay, ReplayClient, ReplayMessage
from antiphon.transports.link import Around, Link, OnNotification, tell
from antiphon.types import JsonObject


class Player(Around):
    """Answers a client from a recording: ``Client(Player("session.json"))``.

    What the recording does not have is refused; ``drifts`` keeps it with its diff, and ``check()`` raises it.
    """

    def __init__(self, tape: str | os.PathLike[str] | Cassette) -> None:
        cassette = tape if isinstance(tape, Cassette) else Cassette.load(tape)
        self._replay = Replay(cassette)
        self._revision = cassette.revision
        super().__init__(_legacy_link(self._replay) if cassette.is_old else _ReplayLink(self._replay))

    @property
    def revision(self) -> str:
        """The revision that was spoken with the server."""
        return self._revision or super().revision

    @property
    def drifts(self) -> list[Drift]:
        """What the client sent and the recording does not have."""
        return self._replay.drifts

    @property
    def unplayed(self) -> list[Entry]:
        """What the recording has and the client did not send."""
        return self._replay.unplayed

    def check(self, *, complete: bool = False) -> None:
        """Raise Drifted unless all went as it was recorded; with ``complete``, also if something was left out."""
        left = [
            Drift(title=entry.title, reason="it was recorded, and the client did not send it, or not to its end")
            for entry in (self.unplayed if complete else ())
        ]
        if self.drifts or left:
            raise Drifted([*self.drifts, *left])


class _ReplayLink:
    """A replay as a Link."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._client = ReplayClient()
        self._waiting: dict[Any, asyncio.Queue[ReplayMessage | None]] = {}
        self._open = False

    async def open(self) -> None:
        self._open = True

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        del headers
        if not self._open:
            raise Disconnected("The client is closed")
        inbox: asyncio.Queue[ReplayMessage | None] = asyncio.Queue()
        self._waiting[message["id"]] = inbox
        try:
            for each in self._replay.answer(self._client, message):
                if (waiting := self._waiting.get(each.to)) is not None:
                    waiting.put_nowait(each)
            while (came := await inbox.get()) is not None:
                if came.is_reply:
                    return _reply(came)
                await tell(on_notification, came.to_jsonrpc())
            raise Disconnected("The client was closed before the recording had answered")
        finally:
            del self._waiting[message["id"]]
            self._replay.cancel(self._client, message["id"])

    async def close(self) -> None:
        self._open = False
        for inbox in self._waiting.values():
            inbox.put_nowait(None)


def _reply(came: ReplayMessage) -> JsonObject:
    if came.message is None:
        raise Refused(came.reason, status=came.status)
    error = came.message.get("error")
    if came.status is not None and isinstance(error, dict):
        raise Refused(str(error.get("message")), code=error.get("code"), data=error.get("data"), status=came.status)
    return came.message


def _legacy_link(replay: Replay) -> Link:
    """Return a link to a recording of an older server."""
    from antiphon.legacy.client.link import over_pipe  # only old recordings need it

    return over_pipe(lambda receive, _: _ReplayPipe(replay, receive))


class _ReplayPipe:
    """A replay as a pipe: messages both ways."""

    def __init__(self, replay: Replay, receive: Callable[[JsonObject], None]) -> None:
        self._replay = replay
        self._receive = receive
        self._client = ReplayClient()

    async def open(self) -> None:
        """Do nothing: there is nothing to open."""

    def send(self, message: JsonObject) -> None:
        loop = asyncio.get_running_loop()
        for each in self._replay.answer(self._client, message):
            # On the loop's next turn: the sender is not ready for the answer yet.
            loop.call_soon(self._receive, each.to_jsonrpc())

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
