"""What travels between us and a server: every message with its HTTP head, and the call that it belongs to."""

from collections import deque
from collections.abc import Callable, Collection
from contextvars import ContextVar
from time import time
from typing import Any, Final, Literal, Protocol

import msgspec

from antiphon.eras import WatchedKinds
from antiphon.errors import CallFailed
from antiphon.escaping import compact, plain
from antiphon.testing.cassette.secrets import HEADERS
from antiphon.transports.http_client import MAX_REPLY, Response, content_type
from antiphon.transports.stdio_client import Process
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import encode
from antiphon.wire.revisions import PROGRESS_TOKEN, REQUEST
from antiphon.wire.sse import Events

LONGEST: Final = 64 * 1024
"""Characters that are kept of a message that is shown."""
MOST_LOOSE: Final = 200
_MOST_KEPT: Final = 4 * 1024 * 1024
"""Bytes of a response that are read as a message."""
_MOST_OWNERS: Final = 1_000
_BLANK: Final = "[blanked]"


class Frame(msgspec.Struct, kw_only=True):
    """One message as it travelled. Texts that are longer than LONGEST are cut."""

    way: Literal["sent", "received"]
    via: Literal["http", "stdio"]
    at: float
    head: str | None = None
    headers: list[tuple[str, str]] | None = None
    message: object = None
    text: str | None = None
    bytes: int
    cut: bool = False


class FrameTaker(Protocol):
    """Takes the frames of one call."""

    def take(self, frame: Frame) -> None: ...


current: Final[ContextVar[FrameTaker | None]] = ContextVar("current", default=None)
"""The call that the running task makes."""


def bounded(value: object, most: int = LONGEST) -> tuple[Any, bool]:
    """Return a value as JSON of at most about that many characters, and whether something was left out.

    Long texts and lists are shortened; what is too large all the same becomes one text.
    """
    whole = plain(value)
    if len(compact(whole)) <= most:
        return whole, False
    shorter = _shortened(whole, most // 8)
    text = compact(shorter)
    return (shorter if len(text) <= most else f"{text[:most]}…"), True


def _shortened(value: object, letters: int) -> object:
    match value:
        case str():
            return value if len(value) <= letters else f"{value[:letters]}… ({len(value):,} characters)"
        case dict():
            return {name: _shortened(item, letters) for name, item in value.items()}
        case list():
            items = [_shortened(item, letters) for item in value[:_MOST_ITEMS]]
            return items if len(value) <= _MOST_ITEMS else [*items, f"… ({len(value):,} items)"]
        case _:
            return value


_MOST_ITEMS: Final = 200


class Traffic:
    """The traffic of one connection: frames go to the call in whose context they are sent, or which they answer.

    ``secret`` are the names of further headers whose values are not shown; ``lost`` hears that a process has ended.
    """

    def __init__(self, *, secret: Collection[str], lost: Callable[[CallFailed], None]) -> None:
        self.loose: deque[Frame] = deque(maxlen=MOST_LOOSE)
        """What belongs to no call."""
        self._secret = HEADERS | {name.lower() for name in secret}
        self._owners: dict[object, FrameTaker] = {}
        """The calls whose requests are under way, by id, on standard streams."""
        self.lost = lost

    def kinds(self) -> WatchedKinds:
        """Return the classes whose traffic this is."""
        traffic = self

        class WatchedResponse(_WatchedResponse):
            traffic_ = traffic

        class WatchedProcess(_WatchedProcess):
            traffic_ = traffic

        return WatchedKinds(response=WatchedResponse, process=WatchedProcess)

    def give(self, taker: FrameTaker | None, frame: Frame) -> None:
        if taker is None:
            self.loose.append(frame)
        else:
            taker.take(frame)

    def shown(self, lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return header lines with the secrets blanked."""
        return [(name, _BLANK if name.lower() in self._secret else value[:LONGEST]) for name, value in lines]

    # --- standard streams -----------------------------------------------------------------------------------------

    def sent(self, message: JsonObject) -> None:
        taker = current.get()
        if taker is not None and "method" in message and "id" in message:
            while len(self._owners) >= _MOST_OWNERS:
                del self._owners[next(iter(self._owners))]
            self._owners[message["id"]] = taker
        self.give(taker, frame_of("sent", "stdio", encode(message)))

    def received(self, line: bytes) -> None:
        frame = frame_of("received", "stdio", line)
        message = frame.message if isinstance(frame.message, dict) else {}
        self.give(self._owner(message), frame)

    def _owner(self, message: JsonObject) -> FrameTaker | None:
        if "method" not in message:
            return self._owners.pop(message.get("id"), None)
        params = message.get("params")
        about: JsonObject = params if isinstance(params, dict) else {}
        meta = about.get("_meta")
        named = about.get(PROGRESS_TOKEN, meta.get(REQUEST) if isinstance(meta, dict) else None)
        if isinstance(named, int | str) and named in self._owners:
            return self._owners[named]
        # Neither the stream nor the message says whose it is: questions and logs are most likely the newest call's.
        belongs = "id" in message or message["method"] == "notifications/message"
        return next(reversed(self._owners.values()), None) if belongs else None


def frame_of(way: Literal["sent", "received"], via: Literal["http", "stdio"], data: bytes) -> Frame:
    """Return bytes as a frame: as a message if they are JSON, else as text."""
    frame = Frame(way=way, via=via, at=time(), bytes=len(data))
    try:
        frame.message, frame.cut = bounded(msgspec.json.decode(data))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        text = data.decode(errors="replace")
        frame.text, frame.cut = text[:LONGEST], len(text) > LONGEST
    return frame


class _WatchedProcess(Process):
    traffic_: Traffic

    def send(self, message: JsonObject) -> None:
        self.traffic_.sent(message)
        super().send(message)

    def _received(self, line: bytes) -> None:
        if line.strip():
            self.traffic_.received(line)
        super()._received(line)

    def _fail(self, fault: CallFailed) -> None:
        is_first = self.fault is None
        super()._fail(fault)
        if is_first:
            self.traffic_.lost(fault)


class _WatchedResponse(Response):
    traffic_: Traffic

    def __init__(self) -> None:
        super().__init__()
        self._taker: FrameTaker | None = None
        self._events: Events | None = None
        self._body = bytearray()
        self._size = 0
        self._told_head = False

    async def send(self, request: bytes) -> None:
        self._taker = current.get()
        self._events, self._body, self._size, self._told_head = None, bytearray(), 0, False
        head, _, body = request.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        frame = frame_of("sent", "http", body) if body else Frame(way="sent", via="http", at=time(), bytes=0)
        pairs = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        frame.head, frame.headers = first, self.traffic_.shown(pairs)
        self.traffic_.give(self._taker, frame)
        await super().send(request)
        if content_type(self) == "text/event-stream":
            self._events = Events(MAX_REPLY)

    async def next_chunk(self) -> bytes:
        chunk = await super().next_chunk()
        if self._events is not None:
            try:
                for data in self._events.feed(chunk):
                    self._came(data, len(data))
            except ValueError:
                self._events = None  # too large: the link says so
        elif chunk:
            self._size += len(chunk)
            self._body += chunk[: max(_MOST_KEPT - len(self._body), 0)]
        elif not self._told_head:
            self._came(bytes(self._body), self._size)
        return chunk

    def _came(self, data: bytes, size: int) -> None:
        frame = frame_of("received", "http", data)
        frame.bytes = size
        if not self._told_head:
            self._told_head = True
            frame.head = f"HTTP/1.1 {self.status}"
            frame.headers = self.traffic_.shown(list(self.headers.items()))
        self.traffic_.give(self._taker, frame)
