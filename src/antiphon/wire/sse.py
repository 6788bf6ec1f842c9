"""Server-sent events: encodes and decodes them."""

import re

KEEP_ALIVE = b":\n\n"
"""A comment that keeps proxies from closing a quiet stream."""
LONGEST_WAIT = 86_400.0
"""Seconds: the most that a server's ``retry`` counts for."""

# A header cannot carry control characters: a stream cannot be resumed from such an id.
_is_header_value = re.compile(rb"[^\x00-\x1f\x7f]*\Z").match


def event(data: bytes) -> bytes:
    return b"event: message\ndata: " + data + b"\n\n"


class Events:
    """Decodes bytes into the data of whole events (WHATWG, Server-sent events, 9.2.6).

    With ``only_messages``, an event without data or of another type than ``message`` is not given out; its id counts
    all the same.
    """

    __slots__ = (
        "_data",
        "_id",
        "_limit",
        "_line",
        "_messages",
        "_size",
        "_type",
        "_was_cr",
        "last_id",
        "retry",
    )

    _data: bytes | bytearray | None
    _id: str | None
    _type: bytes
    _size: int

    def __init__(self, limit: int, *, only_messages: bool = False) -> None:
        self.last_id: str | None = None
        """What ``Last-Event-ID`` is to say, byte for byte in Latin-1."""
        self.retry: float | None = None
        """Seconds to wait before reconnecting."""
        self._limit = limit
        self._messages = only_messages
        self._line = bytearray()
        self._was_cr = False
        self._forget()

    def reconnected(self) -> None:
        """Begin a new stream: drop an incomplete event, keep the last id."""
        self._line.clear()
        self._was_cr = False
        self._forget()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events that a chunk completes; raise ValueError if one exceeds the limit."""
        found: list[bytes] = []
        if self._was_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._was_cr = chunk.endswith(b"\r")
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for part in lines:
            line = bytes(self._line) + part if self._line else part
            self._line.clear()
            if not line:
                self._end(found)
                continue
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                self._add(value)
            elif name == b"id":
                self._id = value.decode("latin-1") if _is_header_value(value) else None
            elif name == b"event":
                self._type = value
            elif name == b"retry" and value.isdigit():
                self.retry = min(float(value[:12]) / 1000, LONGEST_WAIT)
        self._line += rest
        if self._size + len(self._line) > self._limit:
            raise self._too_large()
        return found

    def _add(self, data: bytes) -> None:
        """Join lines as they come: a list of many short ones would take many times their size in memory."""
        self._size += len(data) + 1
        if self._size > self._limit:
            raise self._too_large()
        if self._data is None:
            self._data = data
            return
        if type(self._data) is not bytearray:
            self._data = bytearray(self._data)
        self._data += b"\n"
        self._data += data

    def _end(self, found: list[bytes]) -> None:
        if self._id is not None:
            self.last_id = self._id or None  # an empty id says that there is none
        if self._data is not None and (not self._messages or (self._type in {b"", b"message"} and self._data)):
            found.append(bytes(self._data))
        self._forget()

    def _forget(self) -> None:
        self._data = self._id = None
        self._type = b""
        self._size = 0

    def _too_large(self) -> ValueError:
        return ValueError(f"an event is larger than {self._limit} bytes")
