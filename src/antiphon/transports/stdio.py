"""Standard streams: one JSON message a line, many requests at once."""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

from antiphon.errors import InvalidRequest, ProtocolError
from antiphon.server.context import Channel
from antiphon.server.service import Service
from antiphon.types import JsonObject
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import RequestId, encode, notification

MAX_LINE = 4 * 1024 * 1024
GRACE = 5.0
"""Seconds that requests under way may take to finish after the input has ended."""

log = logging.getLogger("antiphon")


class Older(Protocol):
    """What serves clients of earlier revisions on the same pipe."""

    def claims(self, message: JsonObject) -> bool: ...

    def batch(self, line: bytes) -> list[JsonObject] | None:
        """The messages of a line that holds several; None if it does not."""
        ...

    def takes(self, message: JsonObject) -> bool:
        """Take a message that needs no reply; False if it needs one."""
        ...

    async def answer(self, message: JsonObject, voice: Channel) -> bytes: ...

    def close(self) -> None: ...


Put: TypeAlias = Callable[[bytes], None]
MakeOlder: TypeAlias = Callable[[Service, Put], Older]


async def serve(service: Service, *, max_line: int = MAX_LINE, older: MakeOlder | None = None) -> None:
    """Serve a client on stdin and stdout until the input ends or SIGTERM comes."""
    with _ProtocolOnly() as (source, sink):
        async with service.running():
            await Pipe(service, source, sink, max_line=max_line, older=older).run()


class Pipe:
    """A service on two file descriptors."""

    def __init__(
        self, service: Service, source: int, sink: int, *, max_line: int = MAX_LINE, older: MakeOlder | None = None
    ) -> None:
        self._service = service
        self._older = None if older is None else older(service, self._put_line)
        self._source = source
        self._sink = sink
        self._max_line = max_line
        self._under_way: dict[RequestId | None, asyncio.Task[None]] = {}
        self._batches: set[asyncio.Task[None]] = set()
        self._outgoing: SimpleQueue[bytes | None] = SimpleQueue()
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        reader = threading.Thread(target=self._read, name="antiphon-stdin", daemon=True)
        writer = threading.Thread(target=self._write, name="antiphon-stdout", daemon=True)
        reader.start()
        writer.start()
        handled = self._on_signals()
        try:
            await self._ended.wait()
            if self._older is not None:
                self._older.close()
            await self._finish()
        finally:
            for number in handled:
                self._loop.remove_signal_handler(number)
            self._outgoing.put(None)
            await asyncio.to_thread(writer.join, GRACE)

    # --- in -------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """In a thread: it works on every platform and on every kind of stream."""
        buffered = bytearray()
        skipping = False
        while True:
            try:
                chunk = os.read(self._source, 65536)
            except OSError:
                chunk = b""
            if not chunk:
                break
            *lines, rest = chunk.split(b"\n")
            for part in lines:
                line = bytes(buffered) + part
                buffered.clear()
                if skipping or len(line) > self._max_line:
                    skipping = False
                    self._hand_over(None)
                elif line.strip():
                    self._hand_over(line)
            buffered += rest
            if len(buffered) > self._max_line:
                # Keep none of a line that will be refused, however long it gets.
                buffered.clear()
                skipping = True
        if skipping:
            self._hand_over(None)
        elif buffered.strip():
            self._hand_over(bytes(buffered))
        self._call(self._ended.set)

    def _hand_over(self, line: bytes | None) -> None:
        self._call(self._received, line)

    def _call(self, function: Any, *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            return  # the loop is closed: nobody is left to hear

    def _received(self, line: bytes | None) -> None:
        try:
            if line is None:
                raise InvalidRequest(f"The message is longer than {self._max_line} bytes")
            several = None if self._older is None else self._older.batch(line)
            if several is not None:
                self._take_batch(several)
                return
            message = jsonrpc.decode(line)
        except ProtocolError as fault:
            self._put(jsonrpc.error(None, fault))
            return
        self._take(message, self._put_line)

    def _take_batch(self, messages: list[JsonObject]) -> None:
        """2025-03-26, basic, Batching: one line of replies, when all are there."""
        replies: list[bytes] = []
        tasks = [task for message in messages if (task := self._take(message, replies.append)) is not None]

        async def reply() -> None:
            if tasks:
                await asyncio.wait(tasks)
            if replies:
                self._put_line(b"[" + b",".join(replies) + b"]")

        batch = asyncio.ensure_future(reply())
        self._batches.add(batch)
        batch.add_done_callback(self._batches.discard)

    def _take(self, message: JsonObject, put: Put) -> "asyncio.Task[None] | None":
        try:
            if message.get("method") == "notifications/cancelled":
                self._cancel(message)
                return None
            if self._older is not None and self._older.claims(message) and self._older.takes(message):
                return None
            id_ = jsonrpc.id_of(message)
            if id_ is not None and id_ in self._under_way:
                raise InvalidRequest(f"There is a request under way with the id {id_!r}")
        except ProtocolError as fault:
            # The id of a request under way must not be answered twice: this error is about no request at all.
            put(encode(jsonrpc.error(None, fault)))
            return None
        task = asyncio.ensure_future(self._serve(message, put))
        if id_ is not None:
            self._under_way[id_] = task
            task.add_done_callback(lambda _: self._under_way.pop(id_, None))
        return task

    def _cancel(self, message: JsonObject) -> None:
        params = message.get("params")
        id_ = params.get("requestId") if isinstance(params, dict) else None
        task = self._under_way.get(id_) if type(id_) is int or type(id_) is str else None
        if task is not None:
            task.cancel()

    async def _serve(self, message: JsonObject, put: Put) -> None:
        voice = _Voice(self._outgoing)
        reply: bytes | None
        if self._older is not None and self._older.claims(message):
            reply = await self._older.answer(message, voice)
        else:
            _, reply = await self._service.answer(message, voice)
        # The id is free again before the reply is out: a quick client may use it at once.
        self._under_way.pop(jsonrpc.id_of(message), None)
        if reply is not None and not voice.silenced:
            put(reply)

    # --- out ------------------------------------------------------------------------------------------------------

    def _put(self, message: JsonObject) -> None:
        self._put_line(encode(message))

    def _put_line(self, line: bytes) -> None:
        self._outgoing.put(line + b"\n")

    def _write(self) -> None:
        """In a thread: a client that does not read must not stop the event loop."""
        while (line := self._outgoing.get()) is not None:
            view = memoryview(line)
            try:
                while view:
                    view = view[os.write(self._sink, view) :]
            except OSError:
                self._call(self._ended.set)
                return

    # --- the end --------------------------------------------------------------------------------------------------

    def _on_signals(self) -> list[int]:
        handled: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._loop.add_signal_handler(number, self._ended.set)
            except (NotImplementedError, RuntimeError, ValueError):
                continue  # no signals on this platform, or not the main thread
            handled.append(number)
        return handled

    async def _finish(self) -> None:
        """Close subscriptions, let requests finish for a while, then cancel them."""
        for listener in self._service.subscriptions:
            # basic/patterns/cancellation: a server says so when it ends a subscription; its response follows.
            self._put(notification("notifications/cancelled", {"requestId": listener.id}))
        self._service.subscriptions.close()
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=GRACE)
        for task in list(self._under_way.values()):
            task.cancel()
        if self._under_way or self._batches:
            await asyncio.wait([*self._under_way.values(), *self._batches], timeout=GRACE)


class _Voice:
    """One request's way out: silent once the request was cancelled (basic/transports/stdio, Cancellation)."""

    __slots__ = ("_outgoing", "_task")

    def __init__(self, outgoing: "SimpleQueue[bytes | None]") -> None:
        self._outgoing = outgoing
        self._task = asyncio.current_task()

    @property
    def silenced(self) -> bool:
        return self._task is not None and self._task.cancelling() > 0

    async def emit(self, message: JsonObject) -> None:
        if not self.silenced:
            self._outgoing.put(encode(message) + b"\n")


class _ProtocolOnly:
    """Keeps stdout for the protocol: whatever else writes there goes to stderr."""

    def __enter__(self) -> tuple[int, int]:
        self._stdout = sys.stdout
        self._source = os.dup(0)
        self._sink = os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        # A handler that reads stdin must not eat messages, nor may a child process.
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        sys.stdout.flush()  # what was printed before now goes where everything else goes
        sys.stdout = sys.stderr
        return self._source, self._sink

    def __exit__(self, *exc: object) -> None:
        sys.stdout.flush()
        sys.stdout = self._stdout
        os.dup2(self._sink, 1)
        os.dup2(self._source, 0)
        os.close(self._sink)
        # The reader's thread may still be blocked on this descriptor; it ends with the process.
