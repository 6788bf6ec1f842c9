"""The wire to a live server, as it is: any message out, whatever comes in. For either era, on a pipe or over HTTP."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from antiphon.errors import CallFailed, Disconnected
from antiphon.testing.cassette.recording import read_line
from antiphon.transports.http import MAX_REPLY, HttpLink, content_type
from antiphon.transports.stdio_client import LAST_WORDS
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import encode
from antiphon.wire.sse import Events

GRACE: Final = 2.0


class Came(msgspec.Struct, frozen=True, kw_only=True):
    """What came from a server: a message, an HTTP response without one, or the end."""

    message: JsonObject | None = None
    status: int | None = None
    text: str | None = None
    fault: CallFailed | None = None


class Wire(Protocol):
    """A connection to a server."""

    async def open(self) -> None: ...

    async def send(self, message: JsonObject, headers: Mapping[str, str]) -> None: ...

    async def receive(self) -> Came: ...

    async def close(self) -> None: ...


class PipeWire:
    """A server that is started, and spoken to on its standard streams."""

    def __init__(self, command: Sequence[str], *, cwd: str | None = None) -> None:
        self._command = command
        self._cwd = cwd
        self._came: asyncio.Queue[Came] = asyncio.Queue()

    async def open(self) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                cwd=self._cwd,
                limit=MAX_REPLY,
                start_new_session=os.name == "posix",
            )
        except OSError as fault:
            raise Disconnected(f"Cannot start {self._command[0]!r}: {fault.strerror}") from None
        self._reader = asyncio.create_task(self._read())

    async def send(self, message: JsonObject, headers: Mapping[str, str]) -> None:
        del headers
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(encode(message) + b"\n")
            await self._process.stdin.drain()
        except (OSError, RuntimeError):
            # Most likely it has just died: how, is known in a moment.
            await asyncio.wait({self._reader}, timeout=LAST_WORDS)
            raise Disconnected(_ended(self._process.returncode)) from None

    async def receive(self) -> Came:
        return await self._came.get()

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        for number in (None, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            if number is not None:
                self._signal(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._reader), GRACE)
                await asyncio.wait_for(self._process.wait(), GRACE)
                return

    async def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):  # a line that is too long
            while line := await self._process.stdout.readline():
                message = read_line(line)
                for each in message if isinstance(message, list) else [message]:
                    if isinstance(each, dict):
                        self._came.put_nowait(Came(message=each))
        code = await self._process.wait()
        self._came.put_nowait(Came(fault=Disconnected(_ended(code))))

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(self._process.pid, number)
            else:
                self._process.send_signal(number)


def _ended(code: int | None) -> str:
    how = "takes no more input" if code is None else f"ended (exit code {code})"
    return f"The server's process {how}"


class HttpWire:
    """A server behind a URL."""

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None) -> None:
        self._link = HttpLink(url, headers=headers)
        self._came: asyncio.Queue[Came] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: dict[str, str] = {}

    async def open(self) -> None:
        await self._link.open()

    async def send(self, message: JsonObject, headers: Mapping[str, str]) -> None:
        self._start("POST", {**headers, **self._session}, encode(message))
        if message.get("method") == "notifications/initialized" and self._session:
            self._start("GET", {**headers, **self._session}, b"")

    async def receive(self) -> Came:
        return await self._came.get()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._link.close()

    def _start(self, verb: str, headers: Mapping[str, str], body: bytes) -> None:
        task = asyncio.create_task(self._exchange(verb, headers, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _exchange(self, verb: str, headers: Mapping[str, str], body: bytes) -> None:
        try:
            response = await self._link.exchange(verb, headers, body)
        except CallFailed as fault:
            self._came.put_nowait(Came(fault=fault))
            return
        answered = False
        try:
            session = response.headers.get("mcp-session-id")
            if session is not None:
                self._session = {"Mcp-Session-Id": session}
            if content_type(response) == "text/event-stream":
                events = Events(MAX_REPLY)
                while chunk := await response.next_chunk():
                    for data in events.feed(chunk):
                        self._hear(read_line(data), None, "")
            else:
                whole = await response.read(MAX_REPLY)
                if verb == "POST" and (whole or response.status >= 300):
                    status = None if response.status == 200 else response.status
                    self._hear(read_line(whole), status, whole.decode(errors="replace"))
            answered = True
        except (CallFailed, ValueError) as fault:
            self._came.put_nowait(Came(fault=Disconnected(str(fault))))
        finally:
            self._link.give_back(response, answered=answered)

    def _hear(self, message: object, status: int | None, text: str) -> None:
        if isinstance(message, list):
            for each in message:
                self._hear(each, status, text)
        elif isinstance(message, dict):
            self._came.put_nowait(Came(message=message, status=status))
        elif status is not None:
            self._came.put_nowait(Came(status=status, text=text))
