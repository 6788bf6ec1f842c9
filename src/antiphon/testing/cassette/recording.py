"""Record a conversation: find out which messages belong to one exchange, and make a cassette of them."""

import contextlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import groupby
from typing import Any, Final

import msgspec
from msgspec import structs

from antiphon.testing.cassette.format import VERSION, Cassette, CassetteBroken, CassetteEntry, CassetteTurn, Party
from antiphon.testing.cassette.placeholders import (
    BLIND,
    OWN,
    TIME,
    TRACING,
    Part,
    Place,
    Ref,
    Side,
    id_key,
    is_too_deep,
    key_of,
    mapped,
    meta_of,
    params_of,
    split,
    volatile_in,
    without_call,
    written,
)
from antiphon.testing.cassette.secrets import LEAST, LONG, FieldSelector, Redaction
from antiphon.types import JsonObject
from antiphon.wire.revisions import PROGRESS_TOKEN, REQUEST, SUBSCRIPTION_ID

PAUSE: Final = 1.0
"""Seconds at least between two saves while the conversation goes on."""
_ASKING: Final = ("tools/call", "prompts/get", "resources/read")
_STREAM: Final = "subscriptions/listen"
_CARRIED: Final = re.compile(
    r"host|connection|content-.*|accept.*|user-agent|transfer-encoding|keep-alive|te|upgrade.*|via|forwarded|origin"
    r"|x-forwarded-.*|x-real-ip|sec-.*|date|cache-control|pragma|traceparent|tracestate|baggage|priority"
    r"|mcp-method|mcp-name|mcp-protocol-version|mcp-session-id|last-event-id|server|vary|set-cookie|x-powered-by|etag"
)
"""Headers that HTTP, or the message itself, brings along: they are not recorded."""
_FOLLOWED: Final = frozenset({"elicitation", "task", "text"})
"""Kinds whose values are looked for in other texts too."""


class RecordedExchange(msgspec.Struct, kw_only=True, eq=False):
    """The messages that belong together, as they went over the wire: an entry of the cassette."""

    number: int
    turns: list[CassetteTurn] = []
    later: list[CassetteTurn] = []
    """What the server told on its own while it owed a reply: it stands behind the reply, since either may be faster."""
    streams: dict[int, int] = {}
    """The numbers of the streams on which turns came, by ``id(turn)``: connections have the same request ids."""
    owes_reply: bool = False
    state: str | None = None
    tokens: set[Any] = set()
    is_stream: bool = False
    """Whether its messages come of themselves, whenever something happens."""


class Recording:
    """A conversation that is recorded: its connections take the messages, ``cassette()`` returns what there is."""

    def __init__(self, *, blind: Iterable[str] = (), redact: Iterable[str] = (), keep_times: bool = False) -> None:
        self._builder = partial(CassetteBuilder, blind=list(blind), redact=list(redact), keep_times=keep_times)
        self._builder()  # raises ValueError for a path that makes no sense
        self._exchanges: list[RecordedExchange] = []
        self._saved_at = time.monotonic()
        self.waiting: list[RecordedExchange] = []
        """Exchanges whose last message asked for input, in the order in which they asked."""
        self.latest: RecordedExchange | None = None
        """What the client began last."""

    def connect(self) -> "RecordedConnection":
        """Return another connection of this conversation."""
        return RecordedConnection(self)

    def cassette(self) -> Cassette:
        """Return what was recorded so far."""
        return self._builder().build(self._exchanges)

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write the file, unless nothing was recorded: there may be an older one. Return the number of entries."""
        cassette = self.cassette()
        if cassette.entries:
            cassette.save(path)
        return len(cassette.entries)

    def save_when_idle(self, path: str | os.PathLike[str]) -> None:
        """Write the file if every request was answered, and some time has passed since the last time."""
        if time.monotonic() > self._saved_at + PAUSE and not any(each.owes_reply for each in self._exchanges):
            self._saved_at = time.monotonic()
            with contextlib.suppress(CassetteBroken):  # the last save raises it
                self.save(path)

    def begin(self) -> RecordedExchange:
        """Return a new exchange."""
        self.latest = RecordedExchange(number=len(self._exchanges) + 1)
        self._exchanges.append(self.latest)
        return self.latest

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
        elif "id" in message:
            return self._requested(message, turn)
        else:
            self._notified(message, turn)
        return None

    def _requested(self, message: JsonObject, turn: CassetteTurn) -> RecordedExchange:
        exchange = self._recording.resume(message) or self._recording.begin()
        exchange.is_stream = message["method"] == _STREAM
        exchange.turns.append(turn)
        exchange.owes_reply = not exchange.is_stream
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
                exchange.owes_reply = False
        (exchange or self._recording.begin()).turns.append(turn)

    # --- the server -----------------------------------------------------------------------------------------------

    def received(self, message: object, on: RecordedExchange | None = None) -> None:
        """Record a message of the server; ``on`` is the exchange on whose stream it came."""
        for each in message if isinstance(message, list) else [message]:
            if isinstance(each, dict) and not is_too_deep(each):
                self.take(CassetteTurn(server=_copied(each)), on)

    def take(self, turn: CassetteTurn, on: RecordedExchange | None = None) -> None:
        """Record a turn of the server."""
        message = turn.message
        if message.get("method") is None:
            self._answered(message, turn, on)
            return
        found = self._exchange_of(message, on)
        exchange = found
        if found is None or found.is_stream:
            # It comes on its own: it stands where the conversation was at that moment.
            exchange = self._recording.latest
        if exchange is None:
            return
        if found is not None and exchange is not found:
            exchange.streams[id(turn)] = found.number
        if "id" in message:
            self._pushed[id_key(message["id"])] = exchange
        is_later = exchange is not found and exchange.owes_reply and "id" not in message
        (exchange.later if is_later else exchange.turns).append(turn)

    def _answered(self, message: JsonObject, turn: CassetteTurn, on: RecordedExchange | None) -> None:
        exchange = self._asked.pop(id_key(message.get("id")), None)
        if exchange is None and message.get("id") is None:
            # An error about a request whose id could not be read: no other answer to it comes.
            exchange = on or self._likely()
            self._asked = {id_: each for id_, each in self._asked.items() if each is not exchange}
        if exchange is None:
            return
        exchange.turns += [turn, *exchange.later]
        exchange.later = []
        exchange.owes_reply = False
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
        likely = [exchange for exchange in calls if exchange.turns[0].message["method"] in _ASKING] or calls
        free = [exchange for exchange in likely if exchange not in self._pushed.values()]
        return next(iter(free or likely), None)


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


# --- the cassette of it -----------------------------------------------------------------------------------------------


class CassetteBuilder:
    """Makes one cassette: the same for the same conversation, whatever its tokens, ids and times were."""

    def __init__(self, *, blind: Iterable[str], redact: Iterable[str], keep_times: bool) -> None:
        self._blind = FieldSelector(blind)
        self._redaction = Redaction(redact)
        self._keep_times = keep_times
        self._numbers: dict[tuple[int, str], int] = {}
        self._refs: dict[tuple[int, str, str, Any], Ref] = {}
        """By entry (0: any), kind, owner and value."""
        self._times: set[str] = set()
        self._parties: list[Party] = []

    def build(self, exchanges: list[RecordedExchange]) -> Cassette:
        keys = [_keys(exchange) for exchange in exchanges]
        for exchange, known in zip(exchanges, keys, strict=True):
            for turn in (*exchange.turns, *exchange.later):
                self._redaction.learn(turn.message, turn.headers, _key_of(turn.client, known))
        entries = [self._entry(exchange, known) for exchange, known in zip(exchanges, keys, strict=True)]
        return Cassette(version=VERSION, clients=self._parties, entries=entries)

    def _entry(self, exchange: RecordedExchange, keys: dict[Any, str]) -> CassetteEntry:
        turns = [
            self._server_turn(turn, exchange.number, exchange.streams.get(id(turn)))
            if turn.client is None
            else self._client_turn(turn, exchange.number, _key_of(turn.client, keys))
            for turn in _in_order([*exchange.turns, *exchange.later])
        ]
        return CassetteEntry(turns=turns)

    def _server_turn(self, turn: CassetteTurn, entry: int, stream: int | None) -> CassetteTurn:
        made = self._pattern(_without_calls(turn.message), "server", entry, stream=stream)
        return structs.replace(turn, server=made)

    def _client_turn(self, turn: CassetteTurn, entry: int, key: str | None) -> CassetteTurn:
        message, own = _without_own(self._pattern(turn.message, "client", entry, key=key))
        if "method" not in message or "id" not in message:
            return CassetteTurn(client=message)
        headers = self._headers(turn.headers)
        common = {name: value for name, value in headers.items() if not name.startswith("mcp-param-")}
        rest = {name: value for name, value in headers.items() if name not in common}
        party = Party(meta=own, headers=common)
        if party not in self._parties and party != Party():
            self._parties.append(party)
        number = self._parties.index(party) + 1 if party != Party() else None
        return CassetteTurn(client=message, party=number, headers=rest)

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        kept = {name.lower(): value for name, value in headers.items() if not _CARRIED.fullmatch(name.lower())}
        refs = {name: self._redaction.header_ref(name, value) for name, value in kept.items()}
        return {name: str(refs[name] or self._text(value, "client", 0)) for name, value in kept.items()}

    # --- one message ----------------------------------------------------------------------------------------------

    def _pattern(
        self, message: JsonObject, side: Side, entry: int, *, key: str | None = None, stream: int | None = None
    ) -> JsonObject:
        marks = {
            place: self._blinded(value, side, entry)
            for place, value in self._blind.find(message).items()
            if type(value) in BLIND
        }
        marks |= self._redaction.marks(message, key)
        for place, kind, value, owner in volatile_in(message, side):
            if place[-1] == "requestId" and (entry, kind, owner, id_key(value)) not in self._refs:
                owner = "client"  # noqa: PLW2901 -- a server that ends a subscription names the client's id
            if kind in {"id", "progress"}:
                first = entry if place == ("id",) else stream or entry
                marks[place] = self._ref(kind, value, entry, owner, [first, entry])
            else:
                is_anywhere = side == "client" or kind in _FOLLOWED
                marks[place] = self._ref(kind, value, entry, "", [entry, 0] if is_anywhere else [entry])

        def named(value: Any, place: Place) -> Any:
            if place in marks:
                return _written([marks[place]], entry)
            repeated = None
            if side == "client" and type(value) in BLIND and type(value) is not bool and len(str(value)) >= LEAST:
                repeated = self._refs.get((0, BLIND[type(value)], "", id_key(value)))
            if repeated is not None:
                return _written([repeated], entry)
            return self._text(value, side, entry, place) if isinstance(value, str) else value

        made: JsonObject = mapped(message, named)
        if ("id",) in marks:
            made["id"] = _written([marks["id",]], entry)  # also one that is no scalar
        return made

    def _text(self, text: str, side: Side, entry: int, place: Place = ()) -> str:
        """Return the pattern of a text: without secrets, what is followed, and times."""
        parts = self._redaction.split(text, place)
        if not self._keep_times:
            parts = split(parts, TIME, lambda found: self._time(found, side))
        return _written(parts, entry)

    def _time(self, found: str, side: Side) -> Ref | None:
        """Return the placeholder of a time; the client's times are its own, unless the server gave them to it."""
        if side == "server":
            self._times.add(found)
        return Ref("time") if found in self._times else None

    def _blinded(self, value: Any, side: Side, entry: int) -> Ref:
        """Return the placeholder of a listed value: short ones of the server are equal by chance."""
        can_repeat = side == "client" or (isinstance(value, str) and len(value) >= LONG)
        return self._ref(BLIND[type(value)], value, entry, "", [entry, 0] if can_repeat else [])

    def _ref(self, kind: str, value: Any, entry: int, owner: str, looked_up: list[int]) -> Ref:
        """Return the placeholder that a value has in one of these entries (0: any), or a new one."""
        key = kind, owner, id_key(value)
        for place in looked_up:
            if (place, *key) in self._refs:
                return self._refs[place, *key]
        number = self._numbers[entry, kind] = self._numbers.get((entry, kind), 0) + 1
        ref = self._refs[entry, *key] = self._refs[0, *key] = Ref(kind, str(number), entry)
        if kind in _FOLLOWED and isinstance(value, str) and len(value) >= LONG:
            self._redaction.follow([value], ref)
        return ref


def _written(parts: list[Part], entry: int) -> str:
    """Return the text of a pattern: placeholders of its own entry do not name it."""
    return written(
        [Ref(each.kind, each.name) if isinstance(each, Ref) and each.entry == entry else each for each in parts]
    )


def _keys(exchange: RecordedExchange) -> dict[Any, str]:
    """Return the keys of the questions that a server of the older revisions has put, by their ids."""
    questions = [turn.server for turn in exchange.turns if turn.server is not None and "id" in turn.server]
    return {id_key(each["id"]): key for each in questions if (key := key_of(each)) is not None}


def _key_of(message: JsonObject | None, keys: dict[Any, str]) -> str | None:
    """Return the key of the question that a message of the client answers, in the older revisions."""
    return None if message is None or "method" in message else keys.get(id_key(message.get("id")))


def _without_calls(message: JsonObject) -> JsonObject:
    """Return a message without the ids that a link below has numbered its calls with, in the questions of a round."""
    result = message.get("result")
    asked = result.get("inputRequests") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(asked, dict):
        return message
    return {**message, "result": {**result, "inputRequests": {key: without_call(asked[key]) for key in asked}}}


def _without_own(message: JsonObject) -> tuple[JsonObject, JsonObject]:
    """Return a client's message without what all of its messages repeat, and that."""
    params, meta = params_of(message), meta_of(message)
    if not isinstance(params.get("_meta"), dict) or "id" not in message:
        return message, {}
    own = {name: meta[name] for name in OWN if name in meta}
    rest = {name: value for name, value in meta.items() if name not in own and name not in TRACING}
    params = {name: value for name, value in params.items() if name != "_meta"}
    return {**message, "params": {**params, "_meta": rest} if rest else params}, own


def _in_order(turns: list[CassetteTurn]) -> list[CassetteTurn]:
    """Put answers that follow each other in the order of their questions: which was faster is chance."""
    asked = [turn.server.get("id") for turn in turns if turn.server is not None and "method" in turn.server]

    def is_answer(turn: CassetteTurn) -> bool:
        return turn.client is not None and "method" not in turn.client and turn.client.get("id") in asked

    made: list[CassetteTurn] = []
    for are_answers, run in groupby(turns, is_answer):
        group = list(run)
        made += sorted(group, key=lambda answer: asked.index(answer.message.get("id"))) if are_answers else group
    return made
