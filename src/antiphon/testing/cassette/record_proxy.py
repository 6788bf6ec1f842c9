"""The gateway: stands between a client and a server over HTTP, and records. Bodies pass as they come, unchanged."""

import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, Final
from urllib.parse import urlsplit

from antiphon.errors import CallFailed, Disconnected
from antiphon.http.exchange import Receive, Scope, Send
from antiphon.testing.cassette.format import CassetteBroken
from antiphon.testing.cassette.http_listener import Site, body_of, gone, headers_of, say
from antiphon.testing.cassette.placeholders import Strand
from antiphon.testing.cassette.recording import Line, Scribe, read_line
from antiphon.transports.http import MAX_REPLY, Response
from antiphon.wire.sse import Events

PAUSE: Final = 1.0
"""Seconds between two times that it says that nothing is going on."""
_OUR_OWN: Final = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect"}
    | {"host", "content-length", "accept-encoding"}
)
"""What is said anew on the way up: RFC 9110, 7.6.1; and compression, which would hide the messages from us."""
_THEIRS: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "trailer", "upgrade"})
_TELLING: Final = frozenset({"www-authenticate", "retry-after", "location"})
"""Headers of a response without which its status cannot be understood."""


class Upstream(Response):
    """A connection to the server that keeps the headers as they were, repeated ones too."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self.pairs.append((name, value))


class Gateway(Site):
    """An ASGI application that passes everything on to the server's origin, and hears what goes to its MCP path."""

    def __init__(
        self, url: str, scribe: Scribe, *, hosts: Iterable[str] = (), rested: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(hosts=hosts)
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"A server's URL starts with http:// or https:// and a host, got {url!r}")
        self.path = parts.path or "/"
        self._host = parts.netloc.rpartition("@")[2]
        self._at = (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._scribe = scribe
        self._rested = rested
        self._rested_at = 0.0
        self._lines: dict[str, Line] = {}
        self._connections: set[Upstream] = set()

    def close(self) -> None:
        for connection in list(self._connections):
            connection.close(Disconnected("The gateway was closed"))

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await body_of(receive)
        if body is None:
            return
        headers = headers_of(scope)
        is_heard = scope["path"] == self.path
        line = self._lines.get(headers.get("mcp-session-id", "")) or Line()
        strand = self._scribe.sent(line, read_line(body), headers) if is_heard and scope["method"] == "POST" else None
        try:
            connection = await self._connected()
        except OSError as fault:
            await say(send, 502, f"antiphon record: cannot reach {self._host}: {fault}")
            return
        watcher = asyncio.create_task(_close_when_gone(receive, connection))
        try:
            await connection.send(self._head(scope, len(body)) + body)
            if is_heard:
                self._meet(connection.headers.get("mcp-session-id"), line, strand)
            await _passed_on(connection, send, Ear(self._scribe, line, strand, connection) if is_heard else None)
        except CallFailed as fault:
            if not connection.headers:
                await say(send, 502, f"antiphon record: {fault}")
        finally:
            watcher.cancel()
            self._connections.discard(connection)
            connection.close()
            self._rest()

    def _rest(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._scribe.is_idle and now > self._rested_at + PAUSE:
            self._rested_at = now
            with contextlib.suppress(CassetteBroken):  # the end will tell
                self._rested()

    async def _connected(self) -> Upstream:
        name = self._at[0] if self._tls else None
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Upstream, *self._at, ssl=self._tls, server_hostname=name)
        self._connections.add(connection)
        return connection

    def _head(self, scope: Scope, length: int) -> bytes:
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope["query_string"]
        lines = [scope["method"].encode() + b" " + path + (b"?" + query if query else b"") + b" HTTP/1.1"]
        lines.append(b"host: " + self._host.encode())
        lines += [name + b": " + value for name, value in scope["headers"] if name.decode("latin-1") not in _OUR_OWN]
        lines += [b"accept-encoding: identity", b"connection: close", b"content-length: %d" % length, b"", b""]
        return b"\r\n".join(lines)

    def _meet(self, session: str | None, line: Line, strand: Strand | None) -> None:
        """A session is known from the response to its first request on."""
        if session is not None and session not in self._lines:
            self._lines[session] = line
            line.session = session
            if strand is not None:
                strand.session = session


class Ear:
    """Hears the messages in a response."""

    def __init__(self, scribe: Scribe, line: Line, strand: Strand | None, response: Response) -> None:
        self._scribe = scribe
        self._line = line
        self._strand = strand
        self._status = response.status
        self._headers = {name: value for name, value in response.headers.items() if name in _TELLING}
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        self._events = Events(MAX_REPLY) if kind == "text/event-stream" else None
        self._body = bytearray()

    def hear(self, chunk: bytes) -> None:
        if self._events is None:
            self._body += chunk[: MAX_REPLY - len(self._body)]
            return
        with contextlib.suppress(ValueError):  # an event that is too large to be recorded
            for data in self._events.feed(chunk):
                self._scribe.came(self._line, read_line(data), near=self._strand)

    def end(self) -> None:
        if self._events is not None or self._strand is None:
            return
        status = None if self._status == 200 else self._status
        message = read_line(bytes(self._body))
        if isinstance(message, dict) and ("result" in message or "error" in message):
            self._scribe.came(self._line, message, near=self._strand, status=status, headers=self._headers)
        elif isinstance(message, list):
            self._scribe.came(self._line, message, near=self._strand, status=status)
        elif status is not None and status >= 300:
            text = self._body.decode(errors="replace") or None
            self._scribe.failed(self._line, self._strand, status=status, text=text, headers=self._headers)


async def _passed_on(connection: Upstream, send: Send, ear: Ear | None) -> None:
    pairs = [pair for pair in connection.pairs if pair[0].decode("latin-1").lower() not in _THEIRS]
    await send({"type": "http.response.start", "status": connection.status, "headers": pairs})
    with contextlib.suppress(CallFailed):  # a stream that breaks ends here as well
        while chunk := await connection.next_chunk():
            if ear is not None:
                ear.hear(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    if ear is not None:
        ear.end()
    await send({"type": "http.response.body", "body": b""})


async def _close_when_gone(receive: Receive, connection: Upstream) -> None:
    await gone(receive)
    connection.close(Disconnected("The client has gone"))


# The relay: stands between a client and a server on standard streams, and records. Bytes pass as they are.


GRACE: Final = 2.0
"""Seconds that the server has to end after its input has, and again after SIGTERM."""
"""Seconds between two savings while the conversation goes on."""


class Lines:
    """Bytes in, whole lines out."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        *lines, rest = chunk.split(b"\n")
        if not lines:
            self._rest += rest
            return []
        lines[0] = bytes(self._rest) + lines[0]
        self._rest = bytearray(rest)
        return lines


class Relay:
    """Starts the server, and passes on what either side says until one of them ends."""

    def __init__(
        self, command: Sequence[str], scribe: Scribe, save: Callable[[], None], cwd: str | None = None
    ) -> None:
        self._scribe = scribe
        self._save = save
        self._line = Line()
        self._lock = threading.Lock()
        self._saved = time.monotonic()
        self._ended = threading.Event()
        self._hung_up = False
        self._spoke = False
        self._was_stopped = False
        try:
            self._server: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 -- the command that the user gave
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=cwd,
                # A process group of its own, so that what the server starts ends with it.
                start_new_session=os.name == "posix",
            )
        except OSError as fault:
            raise Disconnected(f"Cannot start {command[0]!r}: {fault.strerror}") from None

    def run(self) -> int:
        """Until either side ends; the server's exit code. Disconnected if it ended without a word."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._hang_up())
        for work in (self._from_client, self._from_server):
            threading.Thread(target=work, daemon=True).start()
        self._ended.wait()
        self._save_at_last()  # before the server is waited for: clients are impatient, and kill
        code = self._stopped()
        self._save_at_last()
        if not self._spoke and (code > 0 or not self._hung_up):
            raise Disconnected(f"The server's process ended (exit code {code}) before it said anything")
        if code >= 0:
            return code
        return 0 if self._was_stopped else 128 - code  # as a shell tells that a signal ended it

    def _from_client(self) -> None:
        assert self._server.stdin is not None
        self._pass(0, self._server.stdin, self._scribe.sent)
        with contextlib.suppress(OSError):
            self._server.stdin.close()
        self._hung_up = True
        try:
            self._server.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._hang_up()

    def _from_server(self) -> None:
        assert self._server.stdout is not None
        self._pass(self._server.stdout.fileno(), sys.stdout.buffer, self._heard)
        self._ended.set()

    def _heard(self, line: Line, message: object) -> None:
        self._spoke = True
        self._scribe.came(line, message)

    def _pass(self, source: int, sink: IO[bytes], hear: Callable[[Line, object], Any]) -> None:
        lines = Lines()
        try:
            while chunk := os.read(source, 65536):
                # Written down before it is passed on: an answer is never heard before its question.
                for line in lines.feed(chunk):
                    message = read_line(line)
                    if message is not None:
                        with self._lock:
                            hear(self._line, message)
                            self._save_now_and_then()
                sink.write(chunk)
                sink.flush()
        except (OSError, ValueError):
            return  # either end has gone

    def _save_now_and_then(self) -> None:
        if self._scribe.is_idle and time.monotonic() - self._saved > PAUSE:
            self._saved = time.monotonic()
            with contextlib.suppress(CassetteBroken):  # the end will tell
                self._save()

    def _save_at_last(self) -> None:
        """What a silent server did not say is no recording, and there may be an older one in its place."""
        with self._lock:
            if self._spoke:
                self._save()

    def _hang_up(self) -> None:
        self._hung_up = True
        self._ended.set()

    def _stopped(self) -> int:
        for number in (None, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            if number is not None:
                self._signal(number)
            try:
                # A server that closed its output, or heard its input end, goes by itself.
                return self._server.wait(GRACE if number is not None else 0.5)
            except subprocess.TimeoutExpired:
                continue
        return -1

    def _signal(self, number: int) -> None:
        self._was_stopped = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.name == "posix":
                os.killpg(self._server.pid, number)
            else:
                self._server.send_signal(number)
