"""Standard streams: one JSON message a line, many requests at once."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

from antiphon.errors import InternalError, InvalidRequest, ProtocolError
from antiphon.server.dispatch import Service
from antiphon.server.era_dialect import MODERN, Dialect
from antiphon.server.run import Channel
from antiphon.types import JsonObject
from antiphon.wire import jsonrpc
from antiphon.wire.jsonrpc import LOOK, RequestId, TooDeep, encode, id_in, notification

MAX_LINE = 4 * 1024 * 1024
GRACE = 5.0
"""Seconds that requests under way may take to finish after the input has ended."""

MAX_UNSENT = 1024 * 1024
"""Bytes that may wait for a client to read them before handlers that say more wait as well."""
MAX_UNREAD = 8 * MAX_UNSENT
"""The same before no more requests are read. It is larger, so that cancellations and answers are read until then."""
MAX_UNDER_WAY = 10_000
"""Requests that may be under way. Reading goes on, since each of them may wait for a client's answer."""

log = logging.getLogger("antiphon")


Put: TypeAlias = Callable[[bytes], None]
MakeDialect: TypeAlias = Callable[[Service, Put], Dialect]


async def serve(service: Service, *, max_line: int = MAX_LINE, dialect: MakeDialect | None = None) -> None:
    """Serve a client on stdin and stdout until the input ends or SIGTERM comes."""
    with _ProtocolOnly() as (source, sink):
        async with service.running():
            await Pipe(service, source, sink, max_line=max_line, dialect=dialect).run()


class Pipe:
    """A service on two file descriptors."""

    def __init__(
        self, service: Service, source: int, sink: int, *, max_line: int = MAX_LINE, dialect: MakeDialect | None = None
    ) -> None:
        self._service = service
        self._source = source
        self._max_line = max_line
        self._under_way: dict[RequestId | None, asyncio.Task[None]] = {}
        self._batches: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._busy = threading.Lock()
        """Locked by the reader when it hands lines over, and released when the event loop wants more."""
        self._loop = asyncio.get_running_loop()
        self._outgoing = Outgoing(sink, self._ended.set)
        self._dialect = MODERN if dialect is None else dialect(service, self._put_line)

    async def run(self) -> None:
        reader = threading.Thread(target=self._read, name="antiphon-stdin", daemon=True)
        writer = threading.Thread(target=self._outgoing.write, name="antiphon-stdout", daemon=True)
        reader.start()
        writer.start()
        handled = self._on_signals()
        try:
            await self._ended.wait()
            self._want_more()
            self._dialect.close()
            await self._finish()
        finally:
            for number in handled:
                self._loop.remove_signal_handler(number)
            self._outgoing.end()
            await asyncio.to_thread(writer.join, GRACE)

    # --- in -------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """In a thread: it works on every platform and on every kind of stream."""
        buffered = bytearray()
        skipped: _Skipped | None = None
        found: list[bytes | _Skipped] = []
        while chunk := self._next_chunk():
            *lines, rest = chunk.split(b"\n")
            for part in lines:
                line = bytes(buffered) + part
                buffered.clear()
                if skipped is not None or len(line) > self._max_line:
                    found.append((skipped or _Skipped()).add(line))
                    skipped = None
                elif line.strip():
                    found.append(line)
            buffered += rest
            if len(buffered) > self._max_line:
                # Keep next to none of a line that will be refused, however long it gets.
                skipped = (skipped or _Skipped()).add(buffered)
                buffered.clear()
            self._hand_over(found)
            found = []
        if skipped is not None:
            found.append(skipped.add(buffered))
        elif buffered.strip():
            found.append(bytes(buffered))
        self._hand_over(found)
        _call_on(self._loop, self._ended.set)

    def _next_chunk(self) -> bytes:
        try:
            return os.read(self._source, 65536)
        except OSError:
            return b""

    def _hand_over(self, lines: "list[bytes | _Skipped]") -> None:
        """Give lines to the event loop, once it has taken those before."""
        if lines:
            self._busy.acquire()
            _call_on(self._loop, self._take_lines, lines)

    def _take_lines(self, lines: "list[bytes | _Skipped]") -> None:
        for line in lines:
            self._received(line)
        if len(lines) == 1:
            self._want_more()
        else:
            # After the first step of each request: most have replied by then.
            self._loop.call_soon(self._want_more)

    def _want_more(self) -> None:
        if self._outgoing.unsent > MAX_UNREAD and not self._ended.is_set():
            self._resuming = asyncio.ensure_future(self._outgoing.room())
            self._resuming.add_done_callback(lambda _: self._want_more())
        elif self._busy.locked():
            self._busy.release()

    def _received(self, line: "bytes | _Skipped") -> None:
        if isinstance(line, _Skipped):
            self._refuse(line, InvalidRequest(f"The message is longer than {self._max_line} bytes"))
            return
        try:
            batch = self._dialect.batch(line)
            if batch is not None:
                self._take_batch(batch)
                return
            message = jsonrpc.decode(line)
        except TooDeep as fault:
            self._refuse(_Skipped().add(line), fault)
            return
        except ProtocolError as fault:
            self._put(jsonrpc.error(None, fault))
            return
        self._take(message, self._put_line)

    def _refuse(self, line: "_Skipped", fault: ProtocolError) -> None:
        """Refuse a message that was not decoded; by its id, if that can be read, so that the client does not wait."""
        id_ = id_in(line.start, line.end)
        # A request under way keeps its id to itself.
        self._put(jsonrpc.error(None if id_ in self._under_way else id_, fault))

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
        """Start serving a message; None if it needs no reply, or has it already."""
        if message.get("method") == "notifications/cancelled":
            under_way = self._under_way.get(jsonrpc.cancelled_id(message))
            if under_way is not None:
                under_way.cancel()
            return None
        if self._dialect.claims(message) and self._dialect.takes(message):
            return None
        id_ = jsonrpc.id_of(message)
        if id_ is not None and id_ in self._under_way:
            # Without the id: the request under way must not be answered twice.
            put(encode(jsonrpc.error(None, InvalidRequest(f"There is a request under way with the id {id_!r}"))))
            return None
        if id_ is not None and len(self._under_way) >= MAX_UNDER_WAY:
            fault = InvalidRequest(
                f"There are {MAX_UNDER_WAY} requests under way: wait for replies before you send more"
            )
            put(encode(jsonrpc.error(id_, fault)))
            return None
        task = asyncio.ensure_future(self._serve(message, put))
        if id_ is not None:
            self._under_way[id_] = task
            task.add_done_callback(lambda _: self._under_way.pop(id_, None))
        return task

    async def _serve(self, message: JsonObject, put: Put) -> None:
        channel = _RequestChannel(self._outgoing)
        reply: bytes | None
        try:
            if self._dialect.claims(message):
                reply = await self._dialect.answer(message, channel)
            else:
                _, reply = await self._service.answer(message, channel)
        except GeneratorExit:
            raise
        except BaseException as fault:
            if isinstance(fault, asyncio.CancelledError) and channel.silenced:
                raise
            log.exception("a request failed")
            id_ = jsonrpc.id_of(message)
            reply = None if id_ is None else encode(jsonrpc.error(id_, InternalError()))
        # The id is free again before the reply is out: a quick client may use it at once.
        self._under_way.pop(jsonrpc.id_of(message), None)
        if reply is not None and not channel.silenced:
            put(reply)

    # --- out ------------------------------------------------------------------------------------------------------

    def _put(self, message: JsonObject) -> None:
        self._put_line(encode(message))

    def _put_line(self, line: bytes) -> None:
        self._outgoing.put(line + b"\n")

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


def _call_on(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: object) -> None:
    """Call a function in the event loop, from a thread."""
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(function, *args)


class _Skipped:
    """The two ends of a line that is not kept."""

    __slots__ = ("end", "start")

    def __init__(self) -> None:
        self.start = self.end = b""

    def add(self, part: bytes | bytearray) -> "_Skipped":
        if not self.start:
            self.start = bytes(part[:LOOK])
        self.end = (self.end + part[-LOOK:])[-LOOK:]
        return self


class Outgoing:
    """Lines on their way to a client that reads them at its own pace. Put them from any thread."""

    def __init__(self, sink: int, broken: Callable[[], None]) -> None:
        self.is_full = False
        """Whether a coroutine that has more to send should wait in ``room``."""
        self._sink = sink
        self._broken = broken
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()
        self._lock = threading.Lock()
        self.unsent = 0
        self._is_open = True
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._loop = asyncio.get_running_loop()

    def put(self, line: bytes) -> None:
        with self._lock:
            if not self._is_open:
                return
            self.unsent += len(line)
            if self.unsent > MAX_UNSENT:
                self.is_full = True
        self._lines.put(line)

    async def room(self) -> None:
        """Wait while too much is unsent; waiting tasks go on one after the other."""
        while self.is_full:
            waiter = self._loop.create_future()
            self._waiting[waiter] = None
            try:
                await waiter
            finally:
                self._waiting.pop(waiter, None)

    def end(self) -> None:
        self._lines.put(None)

    def write(self) -> None:
        """In a thread: a client that does not read must not stop the event loop."""
        while (line := self._lines.get()) is not None:
            view = memoryview(line)
            try:
                while view:
                    view = view[os.write(self._sink, view) :]
            except OSError:
                self._close()
                return
            self._sent(len(line))

    def _sent(self, size: int) -> None:
        with self._lock:
            self.unsent -= size
            # Not before half of it is gone: to wake a task for every line would cost more than the line.
            has_room = self.is_full and self.unsent <= MAX_UNSENT // 2
            if has_room:
                self.is_full = False
        if has_room:
            _call_on(self._loop, self._release)

    def _close(self) -> None:
        """The client reads no more: drop what is put from now on."""
        with self._lock:
            self._is_open = self.is_full = False
        _call_on(self._loop, self._release)
        _call_on(self._loop, self._broken)

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


class _RequestChannel(Channel):
    """The channel of one request: silent once that was cancelled (basic/transports/stdio, Cancellation)."""

    __slots__ = ("_outgoing", "_task")

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._task = asyncio.current_task()

    @property
    def silenced(self) -> bool:
        return self._task is not None and self._task.cancelling() > 0

    async def emit(self, message: JsonObject) -> None:
        if self.silenced:
            return
        line = encode(message) + b"\n"
        if self._outgoing.is_full:
            await self._outgoing.room()
        if not self.silenced:
            self._outgoing.put(line)


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
