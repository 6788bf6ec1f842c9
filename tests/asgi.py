"""An ASGI server without a network: requests go in as scopes, what the application sends comes out as a Reply."""

import asyncio
import json
from dataclasses import dataclass, field

from messages import check_notification, check_reply, headers_for, request, tool_call

DEADLINE = 10.0
"""Seconds after which something that should have happened has not."""


@dataclass
class Reply:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes
    messages: list[dict] = field(default_factory=list)
    """What the stream carried, or the one JSON message, or nothing."""

    @property
    def is_stream(self):
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def message(self):
        return self.messages[-1]

    @property
    def result(self):
        return self.message["result"]

    @property
    def error(self):
        return self.message["error"]


class Exchange:
    """A request under way. Watches that the application keeps to the ASGI specification."""

    def __init__(self, app, scope, chunks):
        self._incoming = chunks
        self._gone = asyncio.Event()
        self._news = asyncio.Condition()
        self._read = 0
        self.watched = asyncio.Event()
        """Set when the application waits for the client to go away."""
        self.reads = asyncio.Event()
        """Cleared while the client does not read, and so nothing can be sent."""
        self.reads.set()
        self.blocked = asyncio.Event()
        """Set when the application waits for the client to read."""
        self.status = None
        self.headers = {}
        self.body = b""
        self.ended = False
        self.disconnected = False
        self.late = []
        """What was sent after the client had gone."""
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self):
        if self._incoming:
            chunk = self._incoming.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(self._incoming)}
        self.watched.set()
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event):
        if not self.reads.is_set():
            self.blocked.set()
            await self.reads.wait()
        if self.disconnected:
            self.late.append(event)
            return
        if event["type"] == "http.response.start":
            assert self.status is None, "the response was started twice"
            self.status = event["status"]
            self.headers = _joined(event["headers"])
        else:
            assert event["type"] == "http.response.body", event
            assert self.status is not None, "a body came before the response was started"
            assert not self.ended, "a body came after the response had ended"
            self.body += event.get("body", b"")
            self.ended = not event.get("more_body", False)
        async with self._news:
            self._news.notify_all()

    def disconnect(self):
        self.disconnected = True
        self.reads.set()
        self._gone.set()

    async def finished(self):
        """Wait for the application to return; an exception out of it is one out of here."""
        async with asyncio.timeout(DEADLINE):
            await asyncio.wait({self.task})
        return self.task.result()

    async def next_message(self):
        """The next message of the stream."""
        async with asyncio.timeout(DEADLINE), self._news:
            await self._news.wait_for(lambda: len(self.messages) > self._read)
        self._read += 1
        return self.messages[self._read - 1]

    async def sends(self, chunk):
        """Wait until the body contains a chunk."""
        async with asyncio.timeout(DEADLINE), self._news:
            await self._news.wait_for(lambda: chunk in self.body)

    @property
    def messages(self):
        if self.headers.get("content-type") == "text/event-stream":
            return _events(self.body)
        return [json.loads(self.body)] if self.body else []

    async def reply(self):
        await self.finished()
        assert self.ended, "the application returned before the response had ended"
        return Reply(self.status, self.headers, self.body, self.messages)


class Http:
    """Talks to an ASGI application as a client of revision 2026-07-28 does, or as badly as told."""

    def __init__(self, app, **headers):
        self.app = app
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def open(self, body, *, headers=None, pairs=(), path="/mcp", verb="POST", chunks=None, root_path="", message=None):
        """Begin a request. A header that is None is left out; `pairs` come on top as they are."""
        message = body if isinstance(body, dict) else message
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {**headers_for(message or {}), **self.headers, **(headers or {})}
        raw = [(name.encode(), _bytes(value)) for name, value in sent.items() if value is not None]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": verb,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": root_path,
            "headers": [*raw, *pairs],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8000),
        }
        return Exchange(self.app, scope, [content] if chunks is None else chunks)

    async def post(self, body, **how):
        """A request from beginning to end, its messages checked by the referee."""
        reply = await self.open(body, **how).reply()
        if reply.messages:
            *told, last = reply.messages
            for message in told:
                check_notification(message)
            check_reply(body if isinstance(body, dict) else how.get("message"), last)
        return reply

    async def call(self, method, params=None, *, id=1, headers=None, **about):
        return await self.post(request(method, params, id=id, **about), headers=headers)

    async def tool(self, name, arguments=None, *, id=1, headers=None, **about):
        return await self.post(tool_call(name, arguments, id=id, **about), headers=headers)


def _joined(pairs):
    headers = {}
    for name, value in pairs:
        assert name == name.lower(), f"ASGI header names are lower case: {name!r}"
        headers[name.decode("latin-1")] = value.decode("latin-1")
    return headers


def _bytes(value):
    return value if isinstance(value, bytes) else value.encode("latin-1")


def _events(body):
    """The messages of a stream; comments carry none."""
    found = []
    for event in body.decode().split("\n\n"):
        data = [line[5:].removeprefix(" ") for line in event.split("\n") if line.startswith("data:")]
        if data:
            found.append(json.loads("\n".join(data)))
    return found
