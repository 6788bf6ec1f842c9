"""A client of 2025-11-25 that is as plain as can be: raw HTTP, and a new connection for every request."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, NamedTuple

REVISION = "2025-11-25"
ATTEMPTS = 10

Json = dict[str, Any]
Answerer = Callable[[Json], Awaitable[Json | None]]
"""Gets the params of a question; None leaves it unanswered."""


class Event(NamedTuple):
    id: str
    retry: float | None
    message: Json | None


class Answer(NamedTuple):
    """The response to a request: its head, and its body as it comes."""

    status: int
    headers: dict[str, str]
    reader: asyncio.StreamReader

    async def chunks(self) -> AsyncIterator[bytes]:
        if self.headers.get("transfer-encoding") != "chunked":
            yield await self.reader.read()
            return
        while size := int(await self.reader.readline() or b"-1", 16):
            if size < 0:
                raise ConnectionError("the body broke off")
            yield (await self.reader.readexactly(size + 2))[:-2]

    async def json(self) -> Any:
        body = b"".join([chunk async for chunk in self.chunks()])
        return json.loads(body) if body else None

    async def events(self) -> AsyncGenerator[Event]:
        """The events of a stream; it ends with the connection, in whatever way that ends."""
        kept = b""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            async for chunk in self.chunks():
                kept += chunk
                *whole, kept = kept.split(b"\n\n")
                for text in whole:
                    if event := _event(text.decode()):
                        yield event


def _event(text: str) -> Event | None:
    fields = dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith(":"))
    if not fields:
        return None
    retry = int(fields["retry"]) / 1000 if "retry" in fields else None
    return Event(fields.get("id", ""), retry, json.loads(fields["data"]) if fields.get("data") else None)


class Refusal(Exception):
    """The server answered with an error of HTTP."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status
        self.body = body


class OlderClient:
    """One session at an address."""

    def __init__(self, port: int, answer: Answerer | None = None, *, name: str = "older") -> None:
        self.port = port
        self.name = name
        self.session = ""
        self.questions: list[Json] = []
        self.resumed = 0
        self._answer = answer
        self._ids = count(1)

    async def __aenter__(self) -> "OlderClient":
        async with self.post(
            "initialize",
            {
                "protocolVersion": REVISION,
                "capabilities": {"elicitation": {}},
                "clientInfo": {"name": self.name, "version": "1"},
            },
        ) as answer:
            assert (await answer.json())["result"]["protocolVersion"] == REVISION
            self.session = answer.headers["mcp-session-id"]
        await self.tell({"method": "notifications/initialized"})
        return self

    async def __aexit__(self, *_: object) -> None:
        """An older client may just go."""

    async def end(self) -> None:
        async with self._request("DELETE"):
            pass

    async def tell(self, message: Json) -> None:
        """Send something that is not a request."""
        async with self._request("POST", {"jsonrpc": "2.0", **message}) as answer:
            assert answer.status == 202, answer

    async def request(self, method: str, params: Json, *, id: int | None = None, port: int | None = None) -> Json:
        """The reply to a request, whatever is asked before, and however often the stream has to be taken up."""
        async with self.post(method, params, id=id, port=port) as answer:
            if answer.headers["content-type"] == "application/json":
                return await answer.json()
            last, reply = await self.follow(answer)
        for _ in range(ATTEMPTS):
            if reply is not None:
                return reply
            assert last.retry is not None, "the stream broke off, and cannot be taken up"
            await asyncio.sleep(last.retry)
            self.resumed += 1
            async with self.stream(last.id) as answer:
                following, reply = await self.follow(answer)
                last = Event(following.id or last.id, following.retry or last.retry, None)
        raise AssertionError(f"no reply to {method} after {ATTEMPTS} attempts")

    async def call(self, tool: str, /, **arguments: Any) -> Json:
        return await self.request("tools/call", {"name": tool, "arguments": arguments})

    async def follow(self, answer: Answer) -> tuple[Event, Json | None]:
        """Read a stream to its end, and answer what is asked: where it ended, and the reply if there was one."""
        last, retry = "", None
        async for event in answer.events():
            last, retry = event.id or last, event.retry or retry
            if event.message is None:
                continue
            if "method" not in event.message:
                return Event(last, retry, None), event.message
            if "id" in event.message:
                await self._asked(event.message)
        return Event(last, retry, None), None

    @asynccontextmanager
    async def post(
        self, method: str, params: Json, *, id: int | None = None, port: int | None = None
    ) -> AsyncGenerator[Answer]:
        message = {"jsonrpc": "2.0", "id": next(self._ids) if id is None else id, "method": method, "params": params}
        async with self._request("POST", message, port=port) as answer:
            yield answer

    @asynccontextmanager
    async def stream(self, last: str = "", *, port: int | None = None) -> AsyncGenerator[Answer]:
        """What no request asked for, or the rest of a stream."""
        async with self._request("GET", more={"last-event-id": last} if last else {}, port=port) as answer:
            yield answer

    async def _asked(self, question: Json) -> None:
        self.questions.append(question)
        if self._answer is None:
            return
        result = await self._answer(question["params"])
        if result is not None:
            await self.tell({"id": question["id"], "result": result})

    @asynccontextmanager
    async def _request(
        self, method: str, message: Json | None = None, *, more: dict[str, str] | None = None, port: int | None = None
    ) -> AsyncGenerator[Answer]:
        body = b"" if message is None else json.dumps(message).encode()
        fields = {
            "host": "127.0.0.1",
            "connection": "close",
            "content-type": "application/json",
            "content-length": str(len(body)),
            "accept": "application/json, text/event-stream",
            **(more or {}),
        }
        if self.session:
            fields |= {"mcp-session-id": self.session, "mcp-protocol-version": REVISION}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self.port, limit=2**20)
        try:
            writer.write(f"{method} /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
            status = int((await reader.readline()).split()[1])
            answer = Answer(status, _headers((await reader.readuntil(b"\r\n\r\n")).decode()), reader)
            if status >= 400:
                raise Refusal(status, await answer.json())
            yield answer
        finally:
            await closed(writer)


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _headers(text: str) -> dict[str, str]:
    pairs = (line.split(": ", 1) for line in text.splitlines() if line)
    return {name.lower(): value for name, value in pairs}
