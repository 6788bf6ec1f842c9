"""The player: a Link that answers from a cassette, without a server."""

import asyncio
import os
import secrets
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from antiphon.errors import Disconnected, Refused
from antiphon.testing.cassette.drift import Drift, Drifted
from antiphon.testing.cassette.pipe import message_of
from antiphon.testing.cassette.stage import Cue, Stage, Visitor
from antiphon.testing.cassette.tape import Cassette, Entry
from antiphon.transports.link import Link, OnNotification, tell
from antiphon.types import JsonObject
from antiphon.wire.rev2026 import REVISION


def fresh(kind: str, number: int) -> str:
    """A value that nobody can have had before, so that a client has to bring back what it was given."""
    return str(uuid.uuid4()) if kind in {"elicitation", "task"} else f"{kind}-{number}-{secrets.token_urlsafe(18)}"


class Player:
    """Answers a client from a recording: ``Client(Player("session.json"))``.

    What the recording does not have is refused; ``drifts`` keeps it with its diff, and ``check()`` raises it.
    """

    def __init__(self, tape: str | os.PathLike[str] | Cassette) -> None:
        cassette = tape if isinstance(tape, Cassette) else Cassette.load(tape)
        self._stage = Stage(cassette, fresh)
        self._revision = cassette.revision
        self._link: Link = _older(self._stage) if cassette.is_old else _Modern(self._stage)

    def __getattr__(self, name: str) -> Any:
        # What else a link knows, such as its revision, is not hidden.
        return getattr(self._link, name)

    @property
    def revision(self) -> str:
        """The revision that was spoken with the server."""
        if self._revision is not None:
            return self._revision
        spoken: str = getattr(self._link, "revision", REVISION)
        return spoken

    @property
    def drifts(self) -> list[Drift]:
        """What the client sent and the recording does not have."""
        return self._stage.drifts

    @property
    def unplayed(self) -> list[Entry]:
        """What the recording has and the client did not send."""
        return self._stage.unplayed

    def check(self, *, complete: bool = False) -> None:
        """Drifted unless everything went as it was recorded; with ``complete``, also if something was left out."""
        left = [
            Drift(title=entry.title, reason="it was recorded, and the client did not send it, or not to its end")
            for entry in (self.unplayed if complete else ())
        ]
        if self.drifts or left:
            raise Drifted([*self.drifts, *left])

    async def open(self) -> None:
        await self._link.open()

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        return await self._link.request(message, headers=headers, on_notification=on_notification)

    async def close(self) -> None:
        await self._link.close()


class _Modern:
    """The stage as a Link."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._visitor = Visitor()
        self._waiting: dict[Any, asyncio.Queue[Cue | None]] = {}
        self._open = False

    async def open(self) -> None:
        self._open = True

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        del headers
        if not self._open:
            raise Disconnected("The client is closed")
        inbox: asyncio.Queue[Cue | None] = asyncio.Queue()
        self._waiting[message["id"]] = inbox
        try:
            for cue in self._stage.heard(self._visitor, message):
                if (waiting := self._waiting.get(cue.to)) is not None:
                    waiting.put_nowait(cue)
            while (came := await inbox.get()) is not None:
                if came.is_reply:
                    return _reply(came)
                await tell(on_notification, message_of(came))
            raise Disconnected("The client was closed before the recording had answered")
        finally:
            del self._waiting[message["id"]]
            self._stage.left(self._visitor, message["id"])

    async def close(self) -> None:
        self._open = False
        for inbox in self._waiting.values():
            inbox.put_nowait(None)


def _reply(cue: Cue) -> JsonObject:
    if cue.message is None:
        raise Refused(cue.text or f"The server answered with HTTP status {cue.status}", status=cue.status)
    error = cue.message.get("error")
    if cue.status is not None and isinstance(error, dict):
        raise Refused(str(error.get("message")), code=error.get("code"), data=error.get("data"), status=cue.status)
    return cue.message


# --- the older revisions ------------------------------------------------------------------------------------------


def _older(stage: Stage) -> Link:
    """A recording of an old server, spoken to as one."""
    from antiphon.legacy.links.link import LegacyLink  # only old recordings need it
    from antiphon.legacy.links.pipe import PipeWire

    return LegacyLink(lambda ear: PipeWire(lambda receive, _: _StagePipe(stage, receive), ear))


class _StagePipe:
    """The stage as a pipe, messages both ways."""

    def __init__(self, stage: Stage, receive: Callable[[JsonObject], None]) -> None:
        self._stage = stage
        self._receive = receive
        self._visitor = Visitor()

    async def open(self) -> None:
        """There is nothing to open."""

    def send(self, message: JsonObject) -> None:
        loop = asyncio.get_running_loop()
        for cue in self._stage.heard(self._visitor, message):
            # On the loop's next turn: whoever sends is not ready for the answer yet.
            loop.call_soon(self._receive, message_of(cue))

    async def close(self) -> None:
        """Nor to close."""
