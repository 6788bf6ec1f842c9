"""The stdio link: a server as a child process, one message a line."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast

from antiphon.errors import CallFailed, Disconnected, PeerBroken
from antiphon.transports.link import OnNotification, SessionLink, read_message, read_messages, tell
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import encode, notification
from antiphon.wire.revisions import PROGRESS_TOKEN, SUBSCRIPTION_ID

MAX_LINE = 64 * 1024 * 1024
GRACE = 2.0
"""Seconds that a child has to end by itself, and again after SIGTERM, before it is killed."""
LAST_WORDS = 0.2
"""Seconds between the end of a child and the end of its output, whichever comes first, before both count as ended."""

Receive: TypeAlias = Callable[[JsonObject], None]
Lost: TypeAlias = Callable[[CallFailed], None]
OnStrayLine: TypeAlias = Callable[[str], None]

log = logging.getLogger("antiphon.client")


class ChildLink(SessionLink):
    """A server that this link starts, speaks to and ends. One that has worked and then dies is started again.

    ``env`` is added to the variables that every server inherits. ``on_stray_line`` is called with every line of its
    output that is no message. Default: log a warning. ``kind`` is the class of the process, for one that is watched.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        max_line: int = MAX_LINE,
        on_stray_line: OnStrayLine | None = None,
        kind: "type[Process] | None" = None,
    ) -> None:
        if not command or isinstance(command, str):
            raise ValueError("A command is a list such as ['python', 'server.py']")
        self._command = list(command)
        self._env = env
        self._cwd = cwd
        self._max_line = max_line
        self._on_stray_line = on_stray_line
        self._kind = kind or Process
        self._process: Process | None = None
        self._starting = asyncio.Lock()

    async def open(self) -> None:
        self._process = await self.start()

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        del headers  # 2026-07-28, basic/transports/stdio: there is no header layer
        process = await self._living()
        incoming = Incoming(message, on_notification)
        process.waiting[incoming.id] = incoming
        replied = False
        try:
            process.send(message)
            reply = await incoming.reply()
            replied = True
            return reply
        finally:
            del process.waiting[incoming.id]
            if not replied:
                process.pass_on(incoming)
            if not replied and process.hears:
                # basic/transports/stdio, Cancellation: there is no stream to close, so say it.
                process.send(notification("notifications/cancelled", {"requestId": incoming.id}))

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await process.close()

    async def lend(self, receive: Receive, lost: Lost) -> "Process":
        """Hand the process over, until it is taken back: all that it says goes to these callbacks.

        Where none runs, it is started.
        """
        process = self._process
        if process is not None and process.fault is None:
            process.hand_to(receive, lost)
            return process
        started = await self.start(receive, lost)
        if self._process is not None:
            ended, self._process = self._process, started
            await ended.close()
        return started

    async def take_back(self, process: "Process") -> None:
        """Take back a process that was lent; end it, unless it was this link's before."""
        if process is self._process:
            process.hand_to(None, None)
        else:
            await process.close()

    async def start(self, receive: Receive | None = None, lost: Lost | None = None) -> "Process":
        """A process of its own; with callbacks, all that it says goes there, and no request of this link to it.

        Then it may be of an older revision, and say several things at once.
        """
        try:
            _, process = await asyncio.get_running_loop().subprocess_exec(
                lambda: self._kind(self._max_line, self._on_stray_line, receive, lost),
                *self._command,
                stderr=None,
                env={**inherited(os.environ), **(self._env or {})},
                cwd=self._cwd,
                # A process group of its own, so that what the child starts ends with it.
                start_new_session=os.name == "posix",
            )
        except (OSError, ValueError) as fault:
            raise Disconnected(f"Cannot start {self._command[0]!r}: {fault}") from None
        return process

    async def _living(self) -> "Process":
        """The process, started again if need be (basic/transports/stdio, Unexpected Termination)."""
        if self._process is not None and self._process.has_ended and self._process.has_spoken:
            async with self._starting:
                if self._process is not None and self._process.has_ended:
                    await self._start_again()
        if self._process is None:
            raise Disconnected("The client is closed")
        if self._process.fault is not None:
            raise again(self._process.fault)
        return self._process

    async def _start_again(self) -> None:
        process = await self.start()
        ended, self._process = self._process, process
        if ended is None:  # the link was closed meanwhile
            ended, self._process = process, None
        await ended.close()


class Incoming:
    """What comes back for one request: its notifications, then its reply."""

    __slots__ = ("_answered", "_fault", "_messages", "_tell", "_waiter", "id", "mark", "understood")

    def __init__(self, message: JsonObject, on_notification: OnNotification | None) -> None:
        self.id = message["id"]
        self.mark = _params(message).get("_meta", {}).get(PROGRESS_TOKEN)
        self.understood = False
        """Whether the server has said something that is for this request."""
        self._tell = on_notification
        self._messages: list[JsonObject] = []
        self._answered = False
        self._fault: CallFailed | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def reply(self) -> JsonObject:
        while True:
            while self._messages:
                message = self._messages.pop(0)
                if "method" not in message:
                    return message
                await tell(self._tell, message)
            if self._fault is not None:
                raise again(self._fault)
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    @property
    def listens(self) -> bool:
        return self._tell is not None

    @property
    def logs(self) -> list[JsonObject]:
        """The log messages that were not passed on yet."""
        return [message for message in self._messages if message.get("method") == _LOG]

    def put(self, message: JsonObject) -> None:
        if self._answered:
            # Nothing follows a reply, except a log message: it may belong to any request that is still read.
            if message.get("method") == _LOG and self._tell is not None:
                self._messages.insert(-1, message)
            return
        self._answered = "method" not in message
        if self._answered or self._tell is not None:
            self._messages.append(message)
            self._wake()

    def fail(self, fault: CallFailed) -> None:
        self._fault = fault
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Process(asyncio.SubprocessProtocol):
    """A running child: lines in, lines out."""

    def __init__(
        self, max_line: int, on_stray_line: OnStrayLine | None, receive: Receive | None = None, lost: Lost | None = None
    ) -> None:
        self.waiting: dict[object, Incoming] = {}
        self.hand_to(receive, lost)
        self.fault: CallFailed | None = None
        """Why nothing more will come."""
        self.has_spoken = False
        self._max_line = max_line
        self._on_stray_line = on_stray_line
        self._line = bytearray()
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._loop = asyncio.get_running_loop()
        self._exited = False
        self._silent = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None

    def hand_to(self, receive: Receive | None, lost: Lost | None) -> None:
        """Give all that it says to these callbacks; without any, to the requests that it belongs to."""
        self._receive = receive or self._sort
        self._takes_batches = receive is not None
        self._lost = lost

    @property
    def has_ended(self) -> bool:
        return isinstance(self.fault, Disconnected)

    @property
    def hears(self) -> bool:
        return self.fault is None and self._stdin is not None and not self._stdin.is_closing()

    def send(self, message: JsonObject) -> None:
        if self.fault is not None:
            raise again(self.fault)
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(encode(message) + b"\n")
        else:
            self._gone_soon()

    async def close(self) -> None:
        """basic/transports/stdio, Shutdown: end its input, then ask it to end, then kill it."""
        self._fail(Disconnected("The client was closed before the server had answered"))
        assert self._transport is not None
        if self._stdin is not None:
            self._stdin.close()
        try:
            for number in (None, signal.SIGTERM, _KILL):
                if number is not None:
                    self._signal(number)
                if await self._ends():
                    break
        finally:
            if not self._ended.done():
                self._signal(_KILL)
            if self._timer is not None:
                self._timer.cancel()
            self._transport.close()
        # Pipes close on the loop's next turn.
        await asyncio.sleep(0)

    async def _ends(self) -> bool:
        done, _ = await asyncio.wait({self._ended}, timeout=GRACE)
        return bool(done)

    def _signal(self, number: int) -> None:
        transport = self._transport
        if transport is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(transport.get_pid(), number)
            else:
                transport.send_signal(number)

    # --- asyncio.SubprocessProtocol -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none by inheritance.
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self._stdin = cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        del fd
        if self.fault is not None:
            return  # reads on, so that a child which still writes can end
        *lines, rest = data.split(b"\n")
        for part in lines:
            line = bytes(self._line) + part if self._line else part
            self._line.clear()
            try:
                self._received(line)
            except PeerBroken as fault:
                self._fail(fault)
                return
        self._line += rest
        if len(self._line) > self._max_line:
            self._fail(PeerBroken(f"The server sent a line of more than {self._max_line} bytes"))
            self._line.clear()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._silent = True
            self._leave()
        elif exc is not None:
            self._gone_soon()  # something was on its way

    def process_exited(self) -> None:
        self._exited = True
        self._leave()

    def _leave(self) -> None:
        """The child has exited, or closed its output: the other should follow at once."""
        if self._exited and self._silent:
            self._gone()
        else:
            self._gone_soon()

    def _gone_soon(self) -> None:
        """Most likely it has just died: how, is known in a moment."""
        if self._timer is None:
            self._timer = self._loop.call_later(LAST_WORDS, self._gone)

    def _gone(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._exited and self._silent and not self._ended.done():
            self._ended.set_result(None)
        code = None if self._transport is None else self._transport.get_returncode()
        if code is not None:
            how = f"ended (exit code {code})"
        else:
            how = "closed its output" if self._silent else "takes no more input"
        self._fail(Disconnected(f"The server's process {how}"))

    # --- messages -------------------------------------------------------------------------------------------------

    def _received(self, line: bytes) -> None:
        messages = self._messages(line)
        if messages:
            self.has_spoken = True
            for message in messages:
                self._receive(message)
        elif line.strip():
            if self._on_stray_line is None:
                log.warning("the server wrote a line that is no message: %r", line[:80])
            else:
                self._on_stray_line(line.decode(errors="replace"))

    def _messages(self, line: bytes) -> list[JsonObject]:
        """The messages of a line; PeerBroken if it begins like one and is broken: a reply must not pass as a print."""
        start = line.lstrip()[:1]
        if start == b"{":
            return [read_message(line)]
        if start == b"[" and self._takes_batches:
            # Prints begin like this as well: "[info] ..."
            with contextlib.suppress(PeerBroken):
                return read_messages(line)
        return []

    def pass_on(self, incoming: Incoming) -> None:
        """Give the log messages of a request that was given up to another one."""
        for message in incoming.logs:
            self._sort(message)

    def _sort(self, message: JsonObject) -> None:
        if message.get("method") == _LOG:
            # It does not name its request: the newest one that listens passes it on.
            incoming = next((incoming for incoming in reversed(self.waiting.values()) if incoming.listens), None)
        else:
            incoming = self._incoming(message)
            if incoming is not None:
                incoming.understood = True
        if incoming is not None:
            incoming.put(message)

    def _incoming(self, message: JsonObject) -> Incoming | None:
        """The incoming of a message: by id, by progress token, by subscription."""
        method, params = message.get("method"), _params(message)
        if method is None:
            id_ = message.get("id")
            if id_ is None and "error" in message:
                return self._not_understood(message)
        elif method == "notifications/progress":
            mark = params.get(PROGRESS_TOKEN)
            return next(
                (incoming for incoming in self.waiting.values() if mark is not None and incoming.mark == mark), None
            )
        elif method == "notifications/cancelled":
            id_ = params.get("requestId")
        else:
            meta = params.get("_meta")
            id_ = meta.get(SUBSCRIPTION_ID) if type(meta) is dict else None
        return self.waiting.get(id_) if type(id_) is int else None

    def _not_understood(self, message: JsonObject) -> Incoming | None:
        """The one request that the server can mean with an error that names none (2026-07-28, basic, Error Responses).

        None where it may mean several: a request that is answered by mistake may still be carried out.
        """
        error = message["error"]
        if type(error) is dict and error.get("code") in _UNREADABLE:
            open_ = [incoming for incoming in self.waiting.values() if not incoming.understood]
            if len(open_) == 1:
                return open_[0]
        log.warning("the server refused a message and does not say which: %.200r", error)
        return None

    def _fail(self, fault: CallFailed) -> None:
        if self.fault is None:
            self.fault = fault
            for incoming in self.waiting.values():
                incoming.fail(fault)
            if self._lost is not None:
                self._lost(fault)


def inherited(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that every server gets: no tokens and keys of the program that starts it.

    They are those of the official SDKs. Values that define shell functions are left out, as there.
    """
    found = {name: variables[name] for name in _INHERITED if name in variables}
    return {name: value for name, value in found.items() if not value.startswith("()")}


def again(fault: CallFailed) -> CallFailed:
    """The same fault for another request: an exception that is raised twice would carry both tracebacks."""
    return type(fault)(*fault.args)


def _params(message: JsonObject) -> JsonObject:
    params = message.get("params")
    return params if type(params) is dict else {}


_INHERITED = (
    ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
    if os.name == "posix"
    else (
        *("APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE"),
    )
)
_UNREADABLE = (-32700, -32600)
"""JSON-RPC 2.0, 5: the errors of a message whose id could not be read."""
_LOG = "notifications/message"
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
