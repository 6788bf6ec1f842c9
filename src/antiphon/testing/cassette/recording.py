"""The scribe: hears the messages of both sides, and knows which belong to one exchange."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import structs

from antiphon import eras
from antiphon.errors import Refused
from antiphon.testing.cassette.format import Cassette
from antiphon.testing.cassette.placeholders import Heard, Namer, Strand
from antiphon.testing.cassette.secrets import Redaction
from antiphon.testing.cassette.volatile import HINT
from antiphon.transports.link import Around, OnNotification, tell
from antiphon.types import JsonObject
from antiphon.wire.revisions import PROGRESS_TOKEN, SUBSCRIPTION_ID

_ASKING: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
_STREAMS: Final = frozenset({"subscriptions/listen"})

_decode = msgspec.json.Decoder().decode


class Line:
    """A connection, or a session: what ids are unique on."""

    def __init__(self) -> None:
        self.session: str | None = None
        self.asked: dict[Any, Strand] = {}
        """The client's requests that were not answered yet."""
        self.pushed: dict[Any, Strand] = {}
        """The server's requests that were not answered yet."""
        self.greeting: Strand | None = None


class Scribe:
    """Writes down a conversation: ``sent`` by the client, ``came`` from the server; ``cassette()`` is what it has."""

    def __init__(self, *, blind: Iterable[str] = (), redact: Iterable[str] = (), keep_times: bool = False) -> None:
        self._namer = Namer(blind=blind, redact=redact, keep_times=keep_times)
        self._strands: list[Strand] = []
        self._waiting: list[Strand] = []
        """Exchanges whose last message asked for input, in the order in which they asked."""
        self._latest = 0
        """The number of the client's latest request that is no retry."""

    def cassette(self) -> Cassette:
        return self._namer.cassette(self._strands)

    @property
    def is_idle(self) -> bool:
        return all(strand.open == 0 for strand in self._strands)

    # --- the client -----------------------------------------------------------------------------------------------

    def sent(self, line: Line, message: object, headers: Mapping[str, str] | None = None) -> Strand | None:
        """Hear a message of the client's; what it belongs to, if it is a request."""
        if isinstance(message, list):  # 2025-03-26 has batches
            strands = [self.sent(line, each, headers) for each in message]
            return next((strand for strand in strands if strand is not None), None)
        if not isinstance(message, dict):
            return None
        heard = Heard(side="client", message=_copied(message), headers=dict(headers or {}))
        method = message.get("method")
        if method is None:
            strand = line.pushed.pop(_key(message.get("id")), None)
            if strand is not None:
                strand.heard.append(heard)
                strand.open -= 1
        elif "id" in message:
            return self._requested(line, message, heard)
        else:
            self._noted(line, message, heard)
        return None

    def _requested(self, line: Line, message: JsonObject, heard: Heard) -> Strand:
        strand = self._continued(message) or self._begin(line)
        if not strand.heard:
            self._latest = strand.number
            strand.is_stream = message["method"] in _STREAMS
        strand.heard.append(heard)
        strand.open += 1
        strand.can_ask = message["method"] in _ASKING
        token = _meta(message).get(PROGRESS_TOKEN)
        if token is not None:
            strand.tokens.add(_key(token))
        line.asked[_key(message["id"])] = strand
        if message["method"] == "initialize":
            line.greeting = strand
        return strand

    def _noted(self, line: Line, message: JsonObject, heard: Heard) -> None:
        method, params = message["method"], _params(message)
        strand: Strand | None = None
        if method == "notifications/initialized":
            strand = line.greeting
        elif method == "notifications/cancelled":
            strand = line.asked.pop(_key(params.get("requestId")), None)
            if strand is not None:
                strand.open -= 1
        elif method == "notifications/progress":
            strand = self._in_hand(line)
        if strand is None:
            strand = self._begin(line)
            self._latest = strand.number
        strand.heard.append(heard)

    def _continued(self, message: JsonObject) -> Strand | None:
        """The exchange that a request goes on with: a retry echoes its token, or repeats the call with answers."""
        params = _params(message)
        state = params.get("requestState")
        if state is None and "inputResponses" not in params:
            return None
        same = [
            strand
            for strand in self._waiting
            if strand.state == state and strand.heard[0].message.get("method") == message["method"]
        ]
        alike = [strand for strand in same if _call(strand.heard[0].message) == _call(message)]
        chosen = next(iter(alike or (same if state is not None else [])), None)
        if chosen is not None:
            self._waiting.remove(chosen)
        return chosen

    def _begin(self, line: Line) -> Strand:
        strand = Strand(number=len(self._strands) + 1, session=line.session)
        self._strands.append(strand)
        return strand

    # --- the server -----------------------------------------------------------------------------------------------

    def came(
        self,
        line: Line,
        message: object,
        *,
        near: Strand | None = None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Hear a message of the server's; ``near`` is the exchange on whose stream it came."""
        if isinstance(message, list):
            for each in message:
                self.came(line, each, near=near, status=status, headers=headers)
        if not isinstance(message, dict):
            return
        heard = Heard(side="server", message=_copied(message), status=status, headers=dict(headers or {}))
        if message.get("method") is None:
            self._answered(line, message, heard, near)
            return
        strand = self._meant(line, message, near)
        if strand is None:
            strand = self._begin(line)
            strand.is_stream = True
        if strand.is_stream and self._latest not in {0, strand.number, strand.after}:
            strand.after = heard.after = self._latest
        strand.heard.append(heard)
        if "id" in message:
            strand.open += 1
            line.pushed[_key(message["id"])] = strand

    def failed(self, line: Line, strand: Strand, *, status: int, text: str | None, headers: Mapping[str, str]) -> None:
        """An HTTP response without a message."""
        for id_ in [id_ for id_, each in line.asked.items() if each is strand]:
            del line.asked[id_]
        strand.heard.append(Heard(side="server", message={}, status=status, text=text, headers=dict(headers)))
        strand.open -= 1

    def _answered(self, line: Line, message: JsonObject, heard: Heard, near: Strand | None) -> None:
        strand = line.asked.pop(_key(message.get("id")), None)
        if strand is None and message.get("id") is None:
            # An error about a request whose id could not be read.
            strand = near or self._in_hand(line)
            for id_ in [id_ for id_, each in line.asked.items() if each is strand]:
                del line.asked[id_]
        if strand is None:
            return
        strand.heard.append(heard)
        strand.open -= 1
        result = message.get("result")
        if isinstance(result, dict) and _asks(result):
            state = result.get("requestState")
            strand.state = state if isinstance(state, str) else None
            self._waiting.append(strand)

    def _meant(self, line: Line, message: JsonObject, near: Strand | None) -> Strand | None:
        """The exchange that a request or a notification of the server's belongs to."""
        method, params = message["method"], _params(message)
        if method == "notifications/progress":
            token = _key(params.get(PROGRESS_TOKEN))
            return next((strand for strand in line.asked.values() if token in strand.tokens), near)
        if method == "notifications/cancelled":
            id_ = _key(params.get("requestId"))
            return line.pushed.pop(id_, None) or line.asked.get(id_) or near
        subscription = _meta(message).get(SUBSCRIPTION_ID)
        if subscription is not None:
            return line.asked.get(_key(subscription), near)
        hint = line.asked.get(_key(_meta(message).get(HINT)))
        if hint is not None or near is not None:
            return hint or near
        return None if "id" not in message and method != "notifications/message" else self._in_hand(line)

    def _in_hand(self, line: Line) -> Strand | None:
        """The call that is most likely meant where the wire does not say: one that waits for nothing else."""
        calls = [strand for strand in line.asked.values() if not strand.is_stream]
        likely = [strand for strand in calls if strand.can_ask] or calls
        free = [strand for strand in likely if strand not in line.pushed.values()]
        return next(iter(free or likely), None)


def read_line(line: bytes) -> object:
    """The message in a line or a body; None if there is none."""
    try:
        message: object = _decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return message


def _asks(result: JsonObject) -> bool:
    return result.get("resultType") == "input_required" or (
        "resultType" not in result and bool(result.get("inputRequests")) and bool(result.get("requestState"))
    )


def _call(message: JsonObject) -> JsonObject:
    """The parameters of a call, without what a round adds to them."""
    params = _params(message)
    return {name: params[name] for name in params if name not in {"_meta", "inputResponses", "requestState"}}


def _params(message: JsonObject) -> JsonObject:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def _meta(message: JsonObject) -> JsonObject:
    meta = _params(message).get("_meta")
    return meta if isinstance(meta, dict) else {}


def _key(id_: Any) -> tuple[type, Any]:
    """JSON's 1, 1.0 and true are not the same id."""
    return type(id_), id_ if isinstance(id_, str | int | float) else repr(id_)


def _copied(message: JsonObject) -> JsonObject:
    copy: JsonObject = _decode(msgspec.json.encode(message))
    return copy


# The recorder: a Link around another one, that writes a cassette of what goes through it.


class Recorder(Around):
    """Records a client's conversation: ``Client(Recorder("server.py", "session.json"))``.

    ``target`` is whatever a Client takes. The file is written when the client closes. ``blind`` are fields, by name or
    by path, that are another each time; ``redact`` are those that must not be written down. ``headers`` are those that
    the target is sent; where it is a Link already, that link has them, and here they only say what is secret.
    """

    def __init__(
        self,
        target: object,
        path: str | os.PathLike[str],
        *,
        blind: Iterable[str] = (),
        redact: Iterable[str] = (),
        keep_times: bool = False,
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        era: str = "auto",
    ) -> None:
        super().__init__(eras.connect(target, headers=headers, env=env, cwd=cwd, era=era))
        self._path = path
        redact = list(redact)
        self._secrets = Redaction(redact).headers_in(headers or {})
        """What the target is sent beside each message, and may repeat."""
        self._scribe = Scribe(blind=blind, redact=redact, keep_times=keep_times)
        self._line = Line()

    @property
    def cassette(self) -> Cassette:
        """What was recorded so far."""
        return structs.replace(self._scribe.cassette(), revision=self.revision if self.stateful else None)

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        strand = self._scribe.sent(self._line, message, {**headers, **self._secrets})

        async def listen(notification: JsonObject) -> None:
            self._scribe.came(self._line, notification, near=strand)
            await tell(on_notification, notification)

        try:
            reply = await self._link.request(message, headers=headers, on_notification=listen)
        except Refused as fault:
            self._scribe.came(self._line, _error(message, fault), near=strand, status=fault.status)
            raise
        self._scribe.came(self._line, reply, near=strand)
        return reply

    async def close(self) -> None:
        try:
            await self._link.close()
        finally:
            self.cassette.save(self._path)


def _error(message: JsonObject, fault: Refused) -> JsonObject:
    error: JsonObject = {"code": -32603 if fault.code is None else fault.code, "message": fault.message}
    if fault.data is not None:
        error["data"] = fault.data
    return {"id": message["id"], "error": error}
