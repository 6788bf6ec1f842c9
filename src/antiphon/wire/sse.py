"""Server-sent events: encodes and decodes them."""

KEEP_ALIVE = b":\n\n"
"""A comment that keeps proxies from closing a quiet stream."""


def event(data: bytes) -> bytes:
    return b"event: message\ndata: " + data + b"\n\n"


class Events:
    """Decodes bytes into the data of whole events (WHATWG, Server-sent events, 9.2.6); ignores other fields."""

    __slots__ = ("_data", "_limit", "_line", "_size", "_was_cr")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line = bytearray()
        self._data: bytes | bytearray | None = None
        self._size = 0
        self._was_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events that a chunk completes; raise ValueError if one exceeds the limit."""
        found: list[bytes] = []
        if self._was_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._was_cr = chunk.endswith(b"\r")
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            whole = bytes(self._line) + line if self._line else line
            self._line.clear()
            if not whole:
                if self._data is not None:
                    found.append(bytes(self._data))
                    self._data = None
                self._size = 0
            elif whole.startswith(b"data:") or whole == b"data":
                data = whole[6:] if whole.startswith(b"data: ") else whole[5:]
                self._add(data)
                self._grow(len(data) + 1)
        self._line += rest
        self._grow(0)
        return found

    def _add(self, data: bytes) -> None:
        """Join lines as they come: a list of many short ones would take many times their size in memory."""
        if self._data is None:
            self._data = data
            return
        if type(self._data) is not bytearray:
            self._data = bytearray(self._data)
        self._data += b"\n"
        self._data += data

    def _grow(self, by: int) -> None:
        self._size += by
        if self._size + len(self._line) > self._limit:
            raise ValueError(f"an event is larger than {self._limit} bytes")
