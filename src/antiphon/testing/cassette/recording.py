"""Record a conversation: hear the messages of both sides, and find out which belong to one exchange."""

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import structs

from antiphon.testing.cassette.format import Cassette, CassetteBroken, CassetteTurn
from antiphon.testing.cassette.patterns import CassetteBuilder, RecordedExchange
from antiphon.testing.cassette.placeholders import id_key, is_too_deep, meta_of, params_of
from antiphon.types import JsonObject
from antiphon.wire.revisions import PROGRESS_TOKEN, REQUEST, SUBSCRIPTION_ID

PAUSE: Final = 1.0
"""Seconds at least between two saves while the conversation goes on."""
_ASKING: Final = ("tools/call", "prompts/get", "resources/read")
_STREAM: Final = "subscriptions/listen"


class Recording:
    """A conversation that is recorded: its connections take the messages, ``cassette()`` returns what there is."""

    def __init__(self, *, blind: Iterable[str] = (), redact: Iterable[str] = (), keep_times: bool = False) -> None:
        self._options: dict[str, Any] = {"blind": list(blind), "redact": list(redact), "keep_times": keep_times}
        CassetteBuilder(**self._options)  # raises ValueError for a path that makes no sense
        self._exchanges: list[RecordedExchange] = []
        self.waiting: list[RecordedExchange] = []
        """Exchanges whose last message asked for input, in the order in which they asked."""
        self.latest = 0
        """The number of the client's latest request that is no retry."""

    def connect(self) -> "RecordedConnection":
        """Return another connection of this conversation."""
        return RecordedConnection(self)

    def cassette(self) -> Cassette:
        """Return what was recorded so far."""
        return CassetteBuilder(**self._options).build(self._exchanges)

    @property
    def is_idle(self) -> bool:
        """Whether every request was answered."""
        return all(exchange.open == 0 for exchange in self._exchanges)

    def begin(self, session: str | None) -> RecordedExchange:
        """Return a new exchange."""
        exchange = RecordedExchange(number=len(self._exchanges) + 1, session=session)
        self._exchanges.append(exchange)
        return exchange

    def resume(self, message: JsonObject) -> RecordedExchange | None:
        """Return the exchange that a request goes on with: a retry echoes its token, or repeats the call."""
        params = params_of(message)
        state = params.get("requestState")
        if state is None and "inputResponses" not in params:
            return None
        same = [
            exchange
            for exchange in self.waiting
            if exchange.state == state and exchange.turns[0].message.get("method") == message["method"]
        ]
        alike = [exchange for exchange in same if _call(exchange.turns[0].message) == _call(message)]
        chosen = next(iter(alike or (same if state is not None else [])), None)
        if chosen is not None:
            self.waiting.remove(chosen)
        return chosen


class RecordedConnection:
    """A connection, or a session: ids are unique on it. Messages are ``sent`` by the client, or ``received`` by it."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.session: str | None = None
        self._asked: dict[Any, RecordedExchange] = {}
        """The client's requests that were not answered yet."""
        self._pushed: dict[Any, RecordedExchange] = {}
        """The server's requests that were not answered yet."""
        self._handshake: RecordedExchange | None = None

    # --- the client -----------------------------------------------------------------------------------------------

    def sent(self, message: object, headers: Mapping[str, str] | None = None) -> RecordedExchange | None:
        """Record a message of the client; return its exchange if it is a request."""
        if isinstance(message, list):  # 2025-03-26 has batches
            exchanges = [self.sent(each, headers) for each in message]
            return next((exchange for exchange in exchanges if exchange is not None), None)
        if not isinstance(message, dict) or is_too_deep(message):
            return None
        turn = CassetteTurn(client=_copied(message), headers=dict(headers or {}))
        if message.get("method") is None:
            exchange = self._pushed.pop(id_key(message.get("id")), None)
            if exchange is not None:
                exchange.turns.append(turn)
                exchange.open -= 1
        elif "id" in message:
            return self._requested(message, turn)
        else:
            self._notified(message, turn)
        return None

    def _requested(self, message: JsonObject, turn: CassetteTurn) -> RecordedExchange:
        exchange = self._recording.resume(message) or self._recording.begin(self.session)
        if not exchange.turns:
            self._recording.latest = exchange.number
            exchange.is_stream = message["method"] == _STREAM
        exchange.turns.append(turn)
        exchange.open += 1
        exchange.can_ask = message["method"] in _ASKING
        token = meta_of(message).get(PROGRESS_TOKEN)
        if token is not None:
            exchange.tokens.add(id_key(token))
        self._asked[id_key(message["id"])] = exchange
        if message["method"] == "initialize":
            self._handshake = exchange
        return exchange

    def _notified(self, message: JsonObject, turn: CassetteTurn) -> None:
        exchange: RecordedExchange | None = None
        if message["method"] == "notifications/initialized":
            exchange = self._handshake
        elif message["method"] == "notifications/progress":
            exchange = self._likely()
        elif message["method"] == "notifications/cancelled":
            exchange = self._asked.pop(id_key(params_of(message).get("requestId")), None)
            if exchange is not None:
                exchange.open -= 1
        if exchange is None:
            exchange = self._recording.begin(self.session)
            self._recording.latest = exchange.number
        exchange.turns.append(turn)

    # --- the server -----------------------------------------------------------------------------------------------

    def received(self, message: object, on: RecordedExchange | None = None) -> None:
        """Record a message of the server; ``on`` is the exchange on whose stream it came."""
        for each in message if isinstance(message, list) else [message]:
            if isinstance(each, dict) and not is_too_deep(each):
                self.take(CassetteTurn(server=_copied(each)), on)

    def take(self, turn: CassetteTurn, on: RecordedExchange | None = None) -> None:
        """Record a turn of the server; also an HTTP response without a message, to the request of ``on``."""
        message = turn.server
        if message is None or message.get("method") is None:
            self._answered(message or {}, turn, on)
            return
        exchange = self._exchange_of(message, on)
        if exchange is None:
            exchange = self._recording.begin(self.session)
            exchange.is_stream = True
        if exchange.is_stream and self._recording.latest not in {0, exchange.number, exchange.after}:
            exchange.after = self._recording.latest
            turn = structs.replace(turn, after=exchange.after)
        exchange.turns.append(turn)
        if "id" in message:
            exchange.open += 1
            self._pushed[id_key(message["id"])] = exchange

    def _answered(self, message: JsonObject, turn: CassetteTurn, on: RecordedExchange | None) -> None:
        exchange = self._asked.pop(id_key(message.get("id")), None)
        if exchange is None and message.get("id") is None:
            # A status alone, or an error about a request whose id could not be read: no other answer to it comes.
            exchange = on or self._likely()
            self._asked = {id_: each for id_, each in self._asked.items() if each is not exchange}
        if exchange is None:
            return
        exchange.turns.append(turn)
        exchange.open -= 1
        result = message.get("result")
        if isinstance(result, dict) and _asks(result):
            state = result.get("requestState")
            exchange.state = state if isinstance(state, str) else None
            self._recording.waiting.append(exchange)

    def _exchange_of(self, message: JsonObject, on: RecordedExchange | None) -> RecordedExchange | None:
        """Return the exchange that a request or a notification of the server belongs to."""
        method, params, meta = message["method"], params_of(message), meta_of(message)
        if method == "notifications/progress":
            token = id_key(params.get(PROGRESS_TOKEN))
            return next((exchange for exchange in self._asked.values() if token in exchange.tokens), on)
        if method == "notifications/cancelled":
            id_ = id_key(params.get("requestId"))
            return self._pushed.pop(id_, None) or self._asked.get(id_) or on
        if meta.get(SUBSCRIPTION_ID) is not None:
            return self._asked.get(id_key(meta[SUBSCRIPTION_ID]), on)
        named = self._asked.get(id_key(meta.get(REQUEST)))
        if named is not None or on is not None:
            return named or on
        return None if "id" not in message and method != "notifications/message" else self._likely()

    def _likely(self) -> RecordedExchange | None:
        """Return the call that is most likely meant where nothing says so: one that waits for nothing else."""
        calls = [exchange for exchange in self._asked.values() if not exchange.is_stream]
        likely = [exchange for exchange in calls if exchange.can_ask] or calls
        free = [exchange for exchange in likely if exchange not in self._pushed.values()]
        return next(iter(free or likely), None)


class RecordingFile:
    """The file of a recording, saved also while the conversation goes on."""

    def __init__(self, recording: Recording, path: str | os.PathLike[str]) -> None:
        self._recording = recording
        self._path = path
        self._saved_at = time.monotonic()

    def save(self) -> int:
        """Write the file, unless nothing was recorded: there may be an older one. Return the number of entries."""
        cassette = self._recording.cassette()
        if cassette.entries:
            cassette.save(self._path)
        return len(cassette.entries)

    def save_when_idle(self) -> None:
        """Write the file if every request was answered, and some time has passed since the last time."""
        if self._recording.is_idle and time.monotonic() > self._saved_at + PAUSE:
            self._saved_at = time.monotonic()
            with contextlib.suppress(CassetteBroken):  # the last save raises it
                self.save()


def _asks(result: JsonObject) -> bool:
    return result.get("resultType") == "input_required" or (
        "resultType" not in result and bool(result.get("inputRequests")) and bool(result.get("requestState"))
    )


def _call(message: JsonObject) -> JsonObject:
    """Return the parameters of a call, without what a round adds to them."""
    params = params_of(message)
    return {name: params[name] for name in params if name not in {"_meta", "inputResponses", "requestState"}}


def _copied(message: JsonObject) -> JsonObject:
    copy: JsonObject = msgspec.json.decode(msgspec.json.encode(message))
    copy.pop("jsonrpc", None)
    return copy
