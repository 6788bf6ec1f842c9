"""The recorder: a Link around another one, that writes a cassette of what goes through it."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import structs

from antiphon import eras
from antiphon.errors import Refused
from antiphon.testing.cassette.redaction import Redaction
from antiphon.testing.cassette.scribe import Line, Scribe
from antiphon.testing.cassette.tape import Cassette
from antiphon.transports.link import Link, OnNotification, tell
from antiphon.types import JsonObject
from antiphon.wire.rev2026 import REVISION


class Recorder:
    """Records a client's conversation: ``Client(Recorder("server.py", "session.json"))``.

    ``target`` is whatever a Client takes. The file is written when the client closes. ``blind`` are fields, by name or
    by path, that are another each time; ``redact`` are those that must not be written down. ``headers`` are those that
    the target is sent; where it is a Link already, that link has them, and here they only say what is secret.
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
        self._link: Link = eras.connect(target, headers=headers, env=env, cwd=cwd, era=era)
        self._path = path
        redact = list(redact)
        self._secrets = Redaction(redact).headers_in(headers or {})
        """What the target is sent beside each message, and may repeat."""
        self._scribe = Scribe(blind=blind, redact=redact, keep_times=keep_times)
        self._line = Line()

    def __getattr__(self, name: str) -> Any:
        # What else a link knows, such as its era, is not hidden.
        return getattr(self._link, name)

    @property
    def cassette(self) -> Cassette:
        """What was recorded so far."""
        spoken = getattr(self._link, "revision", REVISION)
        return structs.replace(self._scribe.cassette(), revision=None if spoken == REVISION else spoken)

    async def open(self) -> None:
        await self._link.open()

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        strand = self._scribe.sent(self._line, message, {**headers, **self._secrets})

        async def listen(notification: JsonObject) -> None:
            self._scribe.came(self._line, notification, near=strand)
            await tell(on_notification, notification)

        try:
            reply = await self._link.request(message, headers=headers, on_notification=listen)
        except Refused as fault:
            self._scribe.came(self._line, _error(message, fault), near=strand, status=fault.status)
            raise
        self._scribe.came(self._line, reply, near=strand)
        return reply

    async def close(self) -> None:
        try:
            await self._link.close()
        finally:
            self.cassette.save(self._path)


def _error(message: JsonObject, fault: Refused) -> JsonObject:
    error: JsonObject = {"code": -32603 if fault.code is None else fault.code, "message": fault.message}
    if fault.data is not None:
        error["data"] = fault.data
    return {"id": message["id"], "error": error}
