"""The player: a Link that answers from a cassette, without a server."""

import asyncio
import contextlib
import os
import secrets
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from antiphon.errors import Disconnected, Refused
from antiphon.http.exchange import Receive, Scope, Send
from antiphon.testing.cassette.format import Cassette, Entry
from antiphon.testing.cassette.http_listener import Site, body_of, gone, headers_of, respond, say
from antiphon.testing.cassette.matching import Drift, Drifted
from antiphon.testing.cassette.recording import read_line
from antiphon.testing.cassette.replaying import Cue, Stage, Visitor
from antiphon.transports.link import Around, Link, OnNotification, tell
from antiphon.types import JsonObject
from antiphon.wire import sse
from antiphon.wire.jsonrpc import encode

# Playing on standard streams: a line in, the recorded lines out.


def play(stage: Stage) -> None:
    """Answer the client on standard streams until its input ends, or it no longer listens."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    visitor = Visitor()
    for line in iter(source.readline, b""):
        message = read_line(line)
        if message is None:
            continue
        try:
            for cue in stage.heard(visitor, message):
                sink.write(encode(message_of(cue)) + b"\n")
            sink.flush()
        except OSError:
            return


def message_of(cue: Cue) -> JsonObject:
    """What a pipe says where HTTP has a status without a message."""
    if cue.message is not None:
        return cue.message
    text = cue.text or f"The server answered with HTTP status {cue.status}"
    return {"jsonrpc": "2.0", "id": cue.to, "error": {"code": -32603, "message": text}}


def fresh(kind: str, number: int) -> str:
    """A value that nobody can have had before, so that a client has to bring back what it was given."""
    return str(uuid.uuid4()) if kind in {"elicitation", "task"} else f"{kind}-{number}-{secrets.token_urlsafe(18)}"


class Player(Around):
    """Answers a client from a recording: ``Client(Player("session.json"))``.

    What the recording does not have is refused; ``drifts`` keeps it with its diff, and ``check()`` raises it.
    """

    def __init__(self, tape: str | os.PathLike[str] | Cassette) -> None:
        cassette = tape if isinstance(tape, Cassette) else Cassette.load(tape)
        self._stage = Stage(cassette, fresh)
        self._revision = cassette.revision
        super().__init__(_older(self._stage) if cassette.is_old else _Modern(self._stage))

    @property
    def revision(self) -> str:
        """The revision that was spoken with the server."""
        return self._revision or super().revision

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
    from antiphon.legacy.client.link import over_pipe  # only old recordings need it

    return over_pipe(lambda receive, _: _StagePipe(stage, receive))


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


# Playing over HTTP: an ASGI application that answers from a cassette, in either era.


Inbox = asyncio.Queue[Cue | None]
_BAD_ID = {"code": -32600, "message": "The id must be a string or an integer"}
_STREAM = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]


class Endpoint(Site):
    """Plays a stage at a path."""

    def __init__(self, stage: Stage, *, path: str = "/mcp", hosts: Iterable[str] = ()) -> None:
        super().__init__(hosts=hosts)
        self._stage = stage
        self._path = path
        self._sessions: dict[str, Visitor] = {}
        self._inboxes: dict[tuple[Visitor, Any], Inbox] = {}
        """Where what belongs to a request goes; under None, what belongs to none."""

    def close(self) -> None:
        for inbox in self._inboxes.values():
            inbox.put_nowait(None)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = headers_of(scope).get("mcp-session-id")
        visitor = Visitor() if session is None else self._sessions.get(session)
        if scope["path"] != self._path:
            await say(send, 404, f"There is nothing here: the recording is played at {self._path}")
        elif visitor is None:
            await say(send, 404, "There is no such session")
        elif scope["method"] == "POST":
            await self._post(visitor, receive, send)
        elif scope["method"] == "GET" and session is not None:
            await self._listen(visitor, receive, send)
        elif scope["method"] == "DELETE" and session is not None:
            del self._sessions[session]
            await respond(send, 204, b"")
        else:
            await say(send, 405, "Only POST is played")

    async def _post(self, visitor: Visitor, receive: Receive, send: Send) -> None:
        body = await body_of(receive)
        message = None if body is None else read_line(body)
        if not isinstance(message, dict):
            error = {"jsonrpc": "2.0", "error": {"code": -32700, "message": "This is not a message"}}
            await respond(send, 400, encode(error), "application/json")
        elif "method" in message and type(message.get("id", 0)) not in {int, str}:
            await respond(send, 400, encode({"jsonrpc": "2.0", "error": _BAD_ID}), "application/json")
        elif "id" not in message or "method" not in message:
            self._spread(self._stage.heard(visitor, message))
            await respond(send, 202, b"")
        else:
            await self._answer(visitor, message, receive, send)

    async def _answer(self, visitor: Visitor, message: JsonObject, receive: Receive, send: Send) -> None:
        place = (visitor, message["id"])
        inbox = self._inboxes[place] = asyncio.Queue()
        try:
            self._spread(self._stage.heard(visitor, message))
            first = await _next(inbox, receive)
            if first is None:
                return
            if first.is_reply:
                await self._reply(visitor, message, first, send)
            else:
                await _stream(inbox, receive, send, first)
        finally:
            del self._inboxes[place]
            self._stage.left(visitor, message["id"])

    async def _reply(self, visitor: Visitor, message: JsonObject, cue: Cue, send: Send) -> None:
        headers = list(cue.headers.items())
        if cue.message is None:
            text = (cue.text or "").encode()
            await respond(send, cue.status or 500, text, "text/plain; charset=utf-8" if text else None, headers)
            return
        if message["method"] == "initialize" and "result" in cue.message:
            session = str(fresh("session", 1))
            self._sessions[session] = visitor
            headers.append(("mcp-session-id", session))
        await respond(send, cue.status or 200, encode(cue.message), "application/json", headers)

    async def _listen(self, visitor: Visitor, receive: Receive, send: Send) -> None:
        inbox = self._inboxes.setdefault((visitor, None), asyncio.Queue())
        await _stream(inbox, receive, send, None)

    def _spread(self, cues: list[Cue]) -> None:
        for cue in cues:
            inbox = self._inboxes.get((cue.visitor, cue.to))
            if inbox is None:
                inbox = self._inboxes.setdefault((cue.visitor, None), asyncio.Queue())
            inbox.put_nowait(cue)


async def _stream(inbox: Inbox, receive: Receive, send: Send, first: Cue | None) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _STREAM})
    await send({"type": "http.response.body", "body": sse.KEEP_ALIVE, "more_body": True})
    cue = first or await _next(inbox, receive)
    while cue is not None:
        if cue.message is not None:
            data = sse.event(encode(cue.message))
            await send({"type": "http.response.body", "body": data, "more_body": True})
        if cue.is_reply:
            break
        cue = await _next(inbox, receive)
    with contextlib.suppress(OSError):
        await send({"type": "http.response.body", "body": b""})


async def _next(inbox: Inbox, receive: Receive) -> Cue | None:
    """What comes next; None when the client has gone, or all is over."""
    if not inbox.empty():
        return inbox.get_nowait()
    waiting = [asyncio.ensure_future(inbox.get()), asyncio.ensure_future(gone(receive))]
    try:
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
    return waiting[0].result() if waiting[0] in done else None
