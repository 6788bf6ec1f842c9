"""Playing over HTTP: an ASGI application that answers from a cassette, in either era."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

from antiphon.protocol import sse
from antiphon.testing.cassette.player import fresh
from antiphon.testing.cassette.scribe import read_line
from antiphon.testing.cassette.stage import Cue, Stage, Visitor
from antiphon.testing.cassette.web import Site, body_of, gone, headers_of, respond, say
from antiphon.transports.turn import Receive, Scope, Send
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import encode

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
