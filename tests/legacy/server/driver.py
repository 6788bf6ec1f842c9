"""An older client by hand: messages of 2024-11-05 to 2025-11-25 over an ASGI application, and a referee for them.

Nothing here comes from the library: the names are spelled out, so that a slip in it cannot hide in its tests.
"""

import asyncio
import json
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import asgi
from asgi import DEADLINE, Reply

LATEST = "2025-11-25"
REVISIONS = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}, "context": {}}, "roots": {}}
SESSION = "mcp-session-id"
MODERN = {"resultType", "ttlMs", "cacheScope", "requestState", "inputRequests"}

Json = dict[str, Any]
_ids = count(1)


# --- messages -----------------------------------------------------------------------------------------------------


def request(method: str, params: Json | None = None, *, id: int | str | None = None) -> Json:
    message: Json = {"jsonrpc": "2.0", "id": next(_ids) if id is None else id, "method": method}
    return message if params is None else {**message, "params": params}


def notification(method: str, params: Json | None = None) -> Json:
    message: Json = {"jsonrpc": "2.0", "method": method}
    return message if params is None else {**message, "params": params}


def initialize(revision: str = LATEST, capabilities: Json | None = None, *, id: int | str | None = None) -> Json:
    about = {"name": "by hand", "version": "1.0"}
    params = {"protocolVersion": revision, "capabilities": capabilities or {}, "clientInfo": about}
    return request("initialize", params, id=id)


def tool_call(name: str, arguments: Json | None = None, *, id: int | str | None = None, **params: Any) -> Json:
    return request("tools/call", {"name": name, "arguments": arguments or {}, **params}, id=id)


def accept(**content: Any) -> Json:
    return {"action": "accept", "content": content}


DECLINE: Json = {"action": "decline"}
CANCEL: Json = {"action": "cancel"}
SAMPLED: Json = {"role": "assistant", "content": {"type": "text", "text": "Two files."}, "model": "parrot"}


# --- the referee --------------------------------------------------------------------------------------------------


def check(message: Any) -> None:
    """What holds for everything that an older client is sent."""
    if isinstance(message, list):
        for each in message:
            check(each)
        return
    assert message["jsonrpc"] == "2.0", message
    if "method" in message:
        assert set(message) <= {"jsonrpc", "id", "method", "params"}, message
        return
    assert ("result" in message) != ("error" in message), message
    assert set(message) <= {"jsonrpc", "id", "result", "error"}, message
    if "error" in message:
        assert type(message["error"]["code"]) is int, message
        assert message["error"]["message"], message
        assert "Traceback" not in message["error"]["message"], message
        return
    assert type(message["id"]) in {int, str}, message
    result = message["result"]
    assert not MODERN & set(result), message
    assert not any(name.startswith("io.modelcontextprotocol/") for name in result.get("_meta") or {}), message
    assert isinstance(result.get("structuredContent", {}), dict), message


def text_of(message: Json) -> str:
    return "".join(block["text"] for block in message["result"]["content"])


# --- the wire -----------------------------------------------------------------------------------------------------


class Event(NamedTuple):
    id: str | None
    retry: int | None
    data: str


class Exchange(asgi.Exchange):
    """A request under way whose stream may carry events of no data."""

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"

    @property
    def events(self) -> list[Event]:
        found = []
        for block in self.body.decode().split("\n\n")[:-1]:
            fields = dict(line.split(": ", 1) if ": " in line else (line, "") for line in block.split("\n") if line)
            if "data" in fields:
                retry = int(fields["retry"]) if "retry" in fields else None
                found.append(Event(fields.get("id"), retry, fields["data"]))
        return found

    @property
    def messages(self) -> list[Any]:
        if self.is_stream:
            found = [json.loads(event.data) for event in self.events if event.data]
        else:
            found = [json.loads(self.body)] if self.body else []
        for message in found:
            check(message)
        return found

    @property
    def last_id(self) -> str | None:
        """What a client would send as Last-Event-ID."""
        return next((event.id for event in reversed(self.events) if event.id is not None), None)

    async def until(self, happened: Callable[[], object]) -> None:
        """Wait for something that shows in what was sent."""
        async with asyncio.timeout(DEADLINE), self._news:
            await self._news.wait_for(happened)

    async def opened(self) -> None:
        await self.until(lambda: self.status is not None and self.body)

    async def closed(self) -> list[Any]:
        """All messages, once the response has ended."""
        await self.until(lambda: self.ended)
        return self.messages


class Client:
    """Talks to an ASGI application as an older client does, or as badly as told."""

    def __init__(
        self,
        app: Any,
        *,
        revision: str = LATEST,
        capabilities: Json | None = None,
        headers: dict[str, str | None] | None = None,
    ) -> None:
        self.app = app
        self.revision = revision
        self.capabilities = EVERYTHING if capabilities is None else capabilities
        self.headers: dict[str, str | None] = {
            "host": "localhost:8000",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **(headers or {}),
        }
        self.session: str | None = None

    async def connect(self) -> Json:
        """Initialize; what the server said of itself."""
        reply = await self.post(initialize(self.revision, self.capabilities))
        assert reply.status == 200, reply
        self.session = reply.headers.get(SESSION)
        if self.session is not None:
            self.headers[SESSION] = self.session
        if reply.result["protocolVersion"] >= "2025-06-18":
            self.headers["mcp-protocol-version"] = reply.result["protocolVersion"]
        assert (await self.post(notification("notifications/initialized"))).status == 202
        return reply.result

    def open(self, body: Any, *, verb: str = "POST", headers: dict[str, str | None] | None = None) -> Exchange:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {**self.headers, **(headers or {})}
        pairs = [(name.encode(), value.encode("latin-1")) for name, value in sent.items() if value is not None]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": verb,
            "scheme": "http",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "query_string": b"",
            "root_path": "",
            "headers": pairs,
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8000),
        }
        return Exchange(self.app, scope, [content])

    async def post(self, body: Any, **how: Any) -> Reply:
        exchange = self.open(body, **how)
        return await exchange.reply()

    async def call(self, method: str, params: Json | None = None, **how: Any) -> Json:
        """A request from beginning to end: the last message, which answers it."""
        message = request(method, params)
        reply = await self.post(message, **how)
        assert reply.status == 200, reply
        assert reply.message["id"] == message["id"], reply
        return reply.message

    def tool(self, name: str, arguments: Json | None = None, **about: Any) -> Exchange:
        """A tool call under way."""
        return self.open(tool_call(name, arguments, **about))

    async def use(self, name: str, arguments: Json | None = None, **about: Any) -> Json:
        """A tool call that asks nothing: its answer."""
        return (await self.tool(name, arguments, **about).reply()).message

    def listen(self, last: str | None = None, **headers: str | None) -> Exchange:
        """The stream of a GET."""
        about = {"accept": "text/event-stream", "content-type": None, "last-event-id": last, **headers}
        return self.open(b"", verb="GET", headers=about)

    async def delete(self) -> Reply:
        return await self.open(b"", verb="DELETE").reply()

    async def tell(self, method: str, params: Json | None = None) -> None:
        reply = await self.post(notification(method, params))
        assert (reply.status, reply.body) == (202, b""), reply

    async def answer(self, question: Json, result: Any) -> None:
        reply = await self.post({"jsonrpc": "2.0", "id": question["id"], "result": result})
        assert (reply.status, reply.body) == (202, b""), reply

    async def refuse(self, question: Json, message: str = "no", code: int = -1) -> None:
        fault = {"code": code, "message": message}
        reply = await self.post({"jsonrpc": "2.0", "id": question["id"], "error": fault})
        assert (reply.status, reply.body) == (202, b""), reply

    async def converse(self, body: Json, answers: Json) -> "Told":
        """Call, and answer by the question's name until there is an answer; a callable makes one of the question."""
        exchange = self.open(body)
        told = Told()
        while True:
            message = await exchange.next_message()
            if "method" not in message:
                told.end = message
                await exchange.finished()
                return told
            if "id" in message:
                told.asked.append(message)
                given = answers[key_of(message)]
                await self.answer(message, given(message) if callable(given) else given)
            else:
                told.notified.append(message)


class Told:
    """How a conversation went."""

    def __init__(self) -> None:
        self.asked: list[Json] = []
        self.notified: list[Json] = []
        self.end: Json = {}

    @property
    def names(self) -> list[str]:
        return [key_of(question) for question in self.asked]

    @property
    def text(self) -> str:
        return text_of(self.end)

    @property
    def failed(self) -> bool:
        return bool(self.end["result"].get("isError", False))


def key_of(question: Json) -> str:
    """The name of a question, which these revisions have no place for: it travels in `_meta`."""
    return str(question["params"]["_meta"]["antiphon/key"])


def in_turn(*responses: Any) -> Callable[[Json], Any]:
    """Another answer each time the question comes; the last one for good."""
    left = list(responses)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]
