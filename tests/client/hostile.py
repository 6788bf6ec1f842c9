"""A raw HTTP server for the client's tests: every byte it says, and when, is the test's own."""

import asyncio
import contextlib
import json

DONE = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}


class Hostile:
    """Serves each connection with ``behave(server, reader, writer)`` until that returns, then closes it."""

    def __init__(self, behave):
        self._behave = behave
        self._tasks = set()
        self.connections = 0
        self.requests = []
        """The messages that arrived, in their order."""
        self.heads = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc):
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def port(self):
        return self._server.sockets[0].getsockname()[1]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/mcp"

    async def _serve(self, reader, writer):
        self.connections += 1
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            await self._behave(self, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def request(self, reader):
        """The next request of a connection: its message."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = head.split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:] if line)
        headers = {name.lower(): value for name, value in fields.items()}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        message = json.loads(body) if body else None
        self.heads.append((lines[0], headers))
        self.requests.append(message)
        return message


def result(message, value=None):
    return {"jsonrpc": "2.0", "id": message["id"], "result": DONE if value is None else value}


def asking(message, state="s"):
    question = {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": CONFIRM}}
    value = {"resultType": "input_required", "inputRequests": {"sure": question}, "requestState": state}
    return result(message, value)


CONFIRM = {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]}


def answer(body, status="200 OK", kind="application/json", **headers):
    """A response with its length."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Content-Type": kind, "Content-Length": str(len(content)), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items() if value is not None)
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + content


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(message):
    return chunk(b"data: " + json.dumps(message).encode() + b"\n\n")


END = b"0\r\n\r\n"
