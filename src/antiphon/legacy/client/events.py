"""Server-sent events that can be taken up again: their ids, and how long to wait before that."""

LONGEST_WAIT = 86_400.0
"""Seconds: a server that wants to be asked again later than that has no wish to be asked."""


class Events:
    """Bytes in, the data of whole messages out (WHATWG, Server-sent events, 9.2.6).

    An event of another type than ``message``, or without data, is not given out; its id counts all the same.
    """

    __slots__ = ("_data", "_id", "_limit", "_line", "_size", "_type", "_was_cr", "last_id", "retry", "types")

    def __init__(self, limit: int) -> None:
        self.last_id: str | None = None
        """What ``Last-Event-ID`` is to say, byte for byte in Latin-1."""
        self.retry: float | None = None
        """Seconds to wait before reconnecting."""
        self.types: set[bytes] = set()
        """The other types of events that came."""
        self._limit = limit
        self._start()

    def _start(self) -> None:
        self._line = bytearray()
        self._data: list[bytes] = []
        self._id: str | None = None
        self._type = b""
        self._size = 0
        self._was_cr = False

    def reconnected(self) -> None:
        """A new stream begins: what was left incomplete is lost, the last id is not."""
        self._start()

    def feed(self, chunk: bytes) -> list[bytes]:
        """The messages that a chunk completes; ValueError when one outgrows the limit."""
        found: list[bytes] = []
        if self._was_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._was_cr = chunk.endswith(b"\r")
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for part in lines:
            line = bytes(self._line) + part if self._line else part
            self._line.clear()
            if line:
                self._field(line)
            else:
                self._dispatch(found)
        self._line += rest
        self._grow(0)
        return found

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._grow(len(value) + 1)
        elif name == b"id":
            # A header cannot carry control characters: such an event cannot be gone on from.
            self._id = value.decode("latin-1") if all(byte >= 0x20 and byte != 0x7F for byte in value) else None
        elif name == b"event":
            self._type = value
        elif name == b"retry" and value.isdigit():
            self.retry = min(float(value[:12]) / 1000, LONGEST_WAIT)

    def _dispatch(self, found: list[bytes]) -> None:
        if self._id is not None:
            self.last_id = self._id or None  # an empty id says that there is none
        data = b"\n".join(self._data)
        if self._type not in {b"", b"message"}:
            if len(self.types) < 16:
                self.types.add(self._type)
        elif data:
            found.append(data)
        self._data.clear()
        self._id, self._type, self._size = None, b"", 0

    def _grow(self, by: int) -> None:
        self._size += by
        if self._size + len(self._line) > self._limit:
            raise ValueError(f"an event is larger than {self._limit} bytes")
