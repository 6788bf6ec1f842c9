"""An old server behind HTTP whose every response is the test's own."""

import asyncio
import json

from client.hostile import END, STREAM, Hostile, answer, chunk

from .old import WELCOME, text

ACCEPTED = answer(b"", "202 Accepted", kind=None)


def result(message, value=None):
    return {"jsonrpc": "2.0", "id": message["id"], "result": text() if value is None else value}


def event(message=None, id=None, retry=None):
    """An event of a stream, as a chunk."""
    lines = [f"id: {id}"] * (id is not None) + [f"retry: {retry}"] * (retry is not None)
    lines.append(f"data: {'' if message is None else json.dumps(message)}")
    return chunk(("\n".join(lines) + "\n\n").encode())


class OldHttp(Hostile):
    """``post(server, message, writer)`` and ``get(server, headers, writer)`` write responses, or return one."""

    def __init__(self, post=None, get=None, *, session="s-1", welcome=WELCOME):
        super().__init__(OldHttp._behave)
        self._post = post
        self._get = get
        self._welcome = welcome
        self.session = session
        self.to_strangers = answer(b"", "404 Not Found")
        """What those hear who come from another session."""
        self.answers = asyncio.Queue()
        """The responses that came to what it asked."""

    async def _behave(self, reader, writer):
        while True:
            message = await self.request(reader)
            line, headers = self.heads[-1]
            writer.write(await self._response(line.split()[0], headers, message, writer) or b"")
            await writer.drain()

    async def _response(self, verb, headers, message, writer):
        if verb == "DELETE":
            return answer(b"", kind=None)
        if verb == "GET":
            return await self._get(self, headers, writer) if self._get else answer(b"", "405 Method Not Allowed")
        if "method" not in message:
            self.answers.put_nowait(message)
            return ACCEPTED
        if "io.modelcontextprotocol/protocolVersion" in json.dumps(message):
            return answer({"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "No"}}, "400 Bad Request")
        if message["method"] == "initialize":
            return answer(result(message, self._welcome), Mcp_Session_Id=self.session)
        if "id" not in message:
            return ACCEPTED
        if self.session and headers.get("mcp-session-id") != self.session:
            return self.to_strangers
        if self._post and message["method"] not in {"logging/setLevel", "resources/subscribe"}:
            return await self._post(self, message, writer)
        return answer(result(message))

    @property
    def said(self):
        """What arrived: verb and method."""
        made = []
        for (line, _), message in zip(self.heads, self.requests, strict=True):
            made.append((line.split()[0], message and message.get("method", "response")))
        return made

    def heads_of(self, verb):
        return [headers for line, headers in self.heads if line.startswith(verb)]

    def sent_of(self, method):
        return [message for message in self.requests if message and message.get("method") == method]


async def stream(writer, *pieces, end=True):
    writer.write(STREAM + b"".join(pieces) + (END if end else b""))
    await writer.drain()


def ask(id="q1", method="elicitation/create", params=None):
    asked = {"message": "Which?", "requestedSchema": {"type": "object", "properties": {"value": {"type": "string"}}}}
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": asked if params is None else params}
