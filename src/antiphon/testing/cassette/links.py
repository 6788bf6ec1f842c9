"""Links that record a Client's conversation, or answer it from a recording."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping

from msgspec import structs

from antiphon import eras
from antiphon.errors import Disconnected, Refused
from antiphon.testing.cassette.format import Cassette, CassetteEntry, CassetteTurn
from antiphon.testing.cassette.matching import Drift, Drifted
from antiphon.testing.cassette.recording import Recording
from antiphon.testing.cassette.replaying import Inboxes, Replay, ReplayClient, ReplayMessage
from antiphon.testing.cassette.secrets import Redaction
from antiphon.transports.link import Around, Link, OnNotification, refusal, tell
from antiphon.types import JsonObject


class Recorder(Around):
    """Records a client's conversation: ``Client(Recorder("server.py", "session.json"))``.

    ``target`` is anything that a Client takes. The file is written when the client closes. ``blind`` are fields, by
    name or by path, that change with every run; ``redact`` are those that must not be written down. ``headers`` are
    those that the target is sent; where it is a Link already, that link has them, and here they only say what is
    secret.
    """

    def __init__(
        self,
        target: object,
        path: str | os.PathLike[str],
        *,
        blind: Iterable[str] = (),
        redact: Iterable[str] = (),
        keep_times: bool = False,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        era: str = "auto",
    ) -> None:
        env = {**os.environ, **(env or {})}
        super().__init__(eras.connect(target, headers=headers, env=env, cwd=cwd, era=era))
        self._path = path
        redact = list(redact)
        self._secrets = Redaction(redact).headers_in(headers or {})
        """The secret headers that the target is sent with each message, and may repeat."""
        self._recording = Recording(blind=blind, redact=redact, keep_times=keep_times)
        self._connection = self._recording.connect()

    @property
    def cassette(self) -> Cassette:
        """What was recorded so far."""
        return structs.replace(self._recording.cassette(), revision=self.revision if self.stateful else None)

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        exchange = self._connection.sent(message, {**headers, **self._secrets})

        async def listen(notification: JsonObject) -> None:
            self._connection.received(notification, exchange)
            await tell(on_notification, notification)

        try:
            reply = await self._link.request(message, headers=headers, on_notification=listen)
        except Refused as fault:
            error = {"code": -32603 if fault.code is None else fault.code, "message": fault.message}
            error |= {} if fault.data is None else {"data": fault.data}
            self._connection.take(
                CassetteTurn(server={"id": message["id"], "error": error}, status=fault.status), exchange
            )
            raise
        self._connection.received(reply, exchange)
        return reply

    async def close(self) -> None:
        try:
            await self._link.close()
        finally:
            self.cassette.save(self._path)


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
    def unplayed(self) -> list[CassetteEntry]:
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
        self._inboxes = Inboxes(replay)
        self._client = ReplayClient()
        self._open = False

    async def open(self) -> None:
        self._open = True

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        del headers
        if not self._open:
            raise Disconnected("The client is closed")
        with self._inboxes.request(self._client, message) as inbox:
            while (came := await inbox.get()) is not None:
                if came.is_reply:
                    return _reply(came)
                await tell(on_notification, came.message)
        raise Disconnected("The client was closed before the recording had answered")

    async def close(self) -> None:
        self._open = False
        self._inboxes.close()


def _reply(came: ReplayMessage) -> JsonObject:
    if came.status is not None and "error" in came.message:
        raise refusal(came.message["error"], status=came.status)
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
            loop.call_soon(self._receive, each.message)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""
