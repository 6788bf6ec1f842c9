"""The stdio link: a server as a child process, one message a line."""

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from antiphon.errors import Disconnected, PeerBroken
from antiphon.transports.link import OnNotification
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import encode, notification
from antiphon.wire.rev2026 import PROGRESS_TOKEN, SUBSCRIPTION_ID

MAX_LINE = 64 * 1024 * 1024
GRACE = 2.0
"""Seconds that a child has to end by itself, and again after SIGTERM, before it is killed."""

_decode = msgspec.json.Decoder().decode


class ChildLink:
    """A server that this link starts, speaks to and ends."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        max_line: int = MAX_LINE,
    ) -> None:
        if not command or isinstance(command, str):
            raise ValueError("A command is a list such as ['python', 'server.py']")
        self._command = list(command)
        self._env = env
        self._cwd = cwd
        self._max_line = max_line
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._replies: dict[object, asyncio.Future[JsonObject]] = {}
        self._tellers: dict[object, OnNotification] = {}
        self._fault: Exception | None = None

    async def open(self) -> None:
        environment = None if self._env is None else {**os.environ, **self._env}
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=environment,
                cwd=self._cwd,
                limit=self._max_line,
            )
        except OSError as fault:
            raise Disconnected(f"Cannot start {self._command[0]!r}: {fault}") from None
        self._fault = None
        self._reader = asyncio.create_task(self._read())

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        del headers  # 2026-07-28, basic/transports/stdio: there is no header layer
        if self._fault is not None:
            raise self._fault
        id_ = message["id"]
        reply = self._replies[id_] = asyncio.get_running_loop().create_future()
        marks = _marks(message)
        if on_notification is not None:
            self._tellers.update(dict.fromkeys(marks, on_notification))
        try:
            await self._write(message)
            answer: JsonObject = await reply
            return answer
        except asyncio.CancelledError:
            # basic/transports/stdio, Cancellation: there is no stream to close, so say it.
            with contextlib.suppress(Disconnected):
                self._send(notification("notifications/cancelled", {"requestId": id_}))
            raise
        finally:
            self._replies.pop(id_, None)
            for mark in marks:
                self._tellers.pop(mark, None)

    async def close(self) -> None:
        process, self._process = self._process, None
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
            self._reader = None
        self._fail(Disconnected("The client is closed"))
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        for end in (None, process.terminate, process.kill):
            if end is not None:
                with contextlib.suppress(ProcessLookupError):
                    end()
            try:
                # Reads on, so that a child which still writes can end.
                await asyncio.wait_for(_drained(process), GRACE)
            except TimeoutError:
                continue
            break
        transport: Any = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()
        await asyncio.sleep(0)

    async def _write(self, message: JsonObject) -> None:
        self._send(message)
        process = self._process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                await process.stdin.drain()

    def _send(self, message: JsonObject) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdin.is_closing():
            raise self._fault or Disconnected("The server's process has ended")
        process.stdin.write(encode(message) + b"\n")

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        out = self._process.stdout
        try:
            while line := await out.readuntil(b"\n"):
                await self._received(line)
        except asyncio.IncompleteReadError:
            code = await self._process.wait()
            self._fail(Disconnected(f"The server's process ended (exit code {code})"))
        except asyncio.LimitOverrunError:
            self._fail(PeerBroken(f"The server sent a line of more than {self._max_line} bytes"))
        except (PeerBroken, OSError) as fault:
            self._fail(fault if isinstance(fault, PeerBroken) else Disconnected(str(fault)))

    async def _received(self, line: bytes) -> None:
        try:
            message: Any = _decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            if not line.strip():
                return
            raise PeerBroken(f"The server wrote a line that is no message: {line[:80]!r}") from None
        if type(message) is not dict:
            raise PeerBroken("The server wrote JSON that is no message")
        if "method" in message:
            teller = self._tellers.get(_mark(message)) or self._tellers.get("log")
            if teller is not None:
                told = teller(message)
                if told is not None:
                    await told
            return
        reply = self._replies.get(message.get("id"))
        if reply is not None and not reply.done():
            reply.set_result(message)

    def _fail(self, fault: Exception) -> None:
        self._fault = fault
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(fault)


def _marks(message: JsonObject) -> list[object]:
    """By what a request's notifications are known: its progress token, its subscription, or being a log message."""
    meta = message.get("params", {}).get("_meta", {})
    marks: list[object] = [("subscription", message["id"]), "log"]
    if PROGRESS_TOKEN in meta:
        marks.append(("progress", meta[PROGRESS_TOKEN]))
    return marks


def _mark(message: JsonObject) -> object:
    params = message.get("params") or {}
    if message["method"] == "notifications/progress":
        return ("progress", params.get(PROGRESS_TOKEN))
    if message["method"] == "notifications/message":
        return "log"
    return ("subscription", (params.get("_meta") or {}).get(SUBSCRIPTION_ID))


async def _drained(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    while await process.stdout.read(65536):
        pass
    await process.wait()
