"""Make a cassette of what was recorded: values that change with every run, and secrets, become placeholders."""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Final

import msgspec
from msgspec import structs

from antiphon.testing.cassette.format import TIME, VERSION, Cassette, Entry, Part, Party, Ref, Turn, written
from antiphon.testing.cassette.replaced_values import (
    LONG,
    FieldSelector,
    Place,
    Redaction,
    Side,
    id_key,
    is_protocols,
    key_of,
    mapped,
    meta_of,
    params_of,
    volatile_in,
    wherever,
    without_call,
)
from antiphon.types import JsonObject
from antiphon.wire.revisions import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION

OWN: Final = (PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL)
"""What every request of a client repeats in its ``_meta``."""
TRACING: Final = frozenset({"traceparent", "tracestate", "baggage"})
_CARRIED: Final = re.compile(
    r"host|connection|content-.*|accept.*|user-agent|transfer-encoding|keep-alive|te|upgrade.*|via|forwarded|origin"
    r"|x-forwarded-.*|x-real-ip|sec-.*|date|cache-control|pragma|traceparent|tracestate|baggage|priority"
    r"|mcp-method|mcp-name|mcp-protocol-version|mcp-session-id|last-event-id|server|vary|set-cookie|x-powered-by|etag"
)
"""Headers that HTTP, or the message itself, brings along: they are not recorded."""
_FOLLOWED: Final = frozenset({"elicitation", "task", "text"})
"""Kinds whose values are looked for in other texts too."""
_SHORT: Final = 4
_LARGE: Final = 1000
"""A text of so many characters, or a number so large, is the server's where the client repeats it whole."""
_KINDS: Final[dict[type, str]] = {str: "text", bool: "boolean", int: "integer", float: "number"}


class RecordedExchange(msgspec.Struct, kw_only=True, eq=False):
    """The messages that belong together, as they went over the wire: an entry of the cassette."""

    number: int
    session: str | None = None
    turns: list[Turn] = []
    open: int = 0
    """Requests of either side that were not answered yet."""
    state: str | None = None
    tokens: set[Any] = set()
    can_ask: bool = False
    is_stream: bool = False
    """Whether its messages come of themselves, whenever something happens."""
    after: int = 0


class CassetteBuilder:
    """Makes one cassette: the same for the same conversation, whatever its tokens, ids and times were."""

    def __init__(self, *, blind: Iterable[str], redact: Iterable[str], keep_times: bool) -> None:
        self._blind = FieldSelector(blind)
        self._redaction = Redaction(redact)
        self._keep_times = keep_times
        self._numbers: dict[tuple[int, str], int] = {}
        self._scopes: dict[tuple[int, str, Any], Ref] = {}
        self._whole: dict[tuple[str, Any], Ref] = {}
        self._followed: dict[str, Ref] = {}
        self._pattern: re.Pattern[str] | None = None
        self._times: set[str] = set()
        self._parties: list[Party] = []
        self._sessions: dict[str, str] = {}
        self._keys: dict[int, dict[Any, str]] = {}

    def build(self, exchanges: list[RecordedExchange]) -> Cassette:
        for exchange in exchanges:
            self._keys[exchange.number] = _keys(exchange)
            for turn in exchange.turns:
                self._redaction.learn(turn.message, turn.headers, self._key_of(turn.client, exchange.number))
                self._redaction.learn_text(turn.text or "")
        for value, name in self._redaction.values.items():
            self._follow(value, Ref("secret", name))
        entries = [self._entry(exchange) for exchange in exchanges if exchange.turns]
        return Cassette(version=VERSION, clients=self._parties, entries=entries)

    def _entry(self, exchange: RecordedExchange) -> Entry:
        session = None
        if exchange.session is not None:
            session = self._sessions.setdefault(exchange.session, f"${{session:{len(self._sessions) + 1}}}")
        turns = [
            (self._server_turn if turn.client is None else self._client_turn)(turn, exchange.number)
            for turn in _in_order(exchange.turns)
        ]
        return Entry(session=session, turns=turns)

    def _server_turn(self, turn: Turn, entry: int) -> Turn:
        made = None if turn.server is None else self._named(_without_calls(turn.server), "server", entry)
        text = None if turn.text is None else written(self._parts(turn.text, "server", entry))
        return structs.replace(turn, server=made, text=text, headers=self._headers(turn.headers))

    def _client_turn(self, turn: Turn, entry: int) -> Turn:
        message, own = _without_own(turn.message)
        if "method" not in message or "id" not in message:
            return Turn(client=self._named(message, "client", entry))
        headers = self._headers(turn.headers)
        common = {name: value for name, value in headers.items() if not name.startswith("mcp-param-")}
        rest = {name: value for name, value in headers.items() if name not in common}
        party = self._party(Party(meta=own, headers=common))
        return Turn(client=self._named(message, "client", entry), party=party, headers=rest)

    def _party(self, party: Party) -> int | None:
        if not party.meta and not party.headers:
            return None
        if party not in self._parties:
            self._parties.append(party)
        return self._parties.index(party) + 1

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        kept = {name.lower(): value for name, value in headers.items() if not _CARRIED.fullmatch(name.lower())}
        secrets = self._redaction.headers_in(kept)
        return {
            name: str(Ref("secret", name)) if name in secrets else written(self._parts(value, "client", 0))
            for name, value in kept.items()
        }

    # --- one message ----------------------------------------------------------------------------------------------

    def _named(self, message: JsonObject, side: Side, entry: int) -> JsonObject:
        marks: dict[Place, Ref] = {}
        key = self._key_of(message, entry) if side == "client" else None
        for place, value in self._blind.find(message):
            kind = _KINDS.get(type(value))
            if kind is not None:
                marks[place] = self._blinded(kind, value, side, entry)
        for place, name in self._redaction.places(message, key):
            marks[place] = Ref("secret", name)
        for place, kind, value, owner in volatile_in(message, side):
            if place[-1] == "requestId" and (entry, f"id {owner}", id_key(value)) not in self._scopes:
                owner = "client"  # noqa: PLW2901 -- a server that ends a subscription names the client's id
            marks[place] = self._ref(kind, value, side, owner, entry)

        def named(value: Any, place: Place) -> Any:
            return str(marks[place]) if place in marks else self._named_scalar(value, place, side, entry)

        made: JsonObject = mapped(message, named)
        if ("id",) in marks:
            made["id"] = str(marks["id",])  # also one that is no scalar
        return made

    def _named_scalar(self, value: Any, place: Place, side: Side, entry: int) -> Any:
        if isinstance(value, str):
            return written(self._parts(value, side, entry, place))
        if type(value) is int and side == "client" and abs(value) >= _LARGE:
            known = self._local(self._whole.get(("integer", (int, value))), entry)
            return value if known is None else str(known)
        return value

    def _key_of(self, message: JsonObject | None, entry: int) -> str | None:
        """Return the key of the question that a message of the client answers, in the older revisions."""
        is_answer = message is not None and "method" not in message
        return self._keys[entry].get(id_key(message.get("id"))) if message is not None and is_answer else None

    def _parts(self, text: str, side: Side, entry: int, place: Place = ()) -> list[Part]:
        """Split a text at the values in it that are known to be volatile or secret."""
        if side == "client" and _SHORT <= len(text) < LONG:
            known = self._local(self._whole.get(("text", (str, text))), entry)
            if known is not None:
                return [known]
        if self._pattern is None and self._followed:
            longest_first = sorted(self._followed, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(wherever, longest_first)))
        parts = self._without_fields(text)
        if self._pattern is not None:
            parts = _split(parts, self._pattern, lambda found: self._followed_by(found, text, entry, place))
        if not self._keep_times:
            parts = _split(parts, TIME, lambda found: self._time(found, side))
        return parts

    def _without_fields(self, text: str) -> list[Part]:
        """Split a JSON text at the values of its secret fields."""
        parts: list[Part] = []
        at = 0
        for field in self._redaction.fields(text):
            parts += [text[at : field.start], Ref("secret", field.name)]
            at = field.end
        return [*parts, text[at:]] if at < len(text) or not parts else parts

    def _followed_by(self, found: str, text: str, entry: int, place: Place) -> Ref | None:
        """Return the name of a value within a text; the protocol's own words are never secrets."""
        ref = self._followed[found]
        if ref.kind == "secret" and is_protocols(place):
            is_part_of_uri = place[-1] == "uri" and len(found) >= LONG and found != text
            return ref if is_part_of_uri else None
        return self._local(ref, entry)

    def _time(self, found: str, side: Side) -> Ref | None:
        """Name a time; the client's times are its own, unless the server gave them to it."""
        if side == "server":
            self._times.add(found)
        return Ref("time") if found in self._times else None

    # --- names ----------------------------------------------------------------------------------------------------

    def _ref(self, kind: str, value: Any, sender: Side, owner: Side, entry: int) -> Ref:
        if kind in {"id", "progress"}:
            scope = f"{kind} {owner}"
            return self._scopes.get((entry, scope, id_key(value))) or self._new(kind, value, entry, scope=scope)
        known = self._scopes.get((entry, kind, id_key(value)))
        if known is None and (sender == "client" or kind in _FOLLOWED):
            known = self._local(self._whole.get((kind, id_key(value))), entry)
        return known or self._new(kind, value, entry, scope=kind)

    def _blinded(self, kind: str, value: Any, sender: Side, entry: int) -> Ref:
        """Name a listed value: short ones are equal by chance, unless the client repeats what it was given."""
        if sender == "client" or (type(value) is str and len(value) >= LONG):
            known = self._scopes.get((entry, kind, id_key(value)))
            known = known or self._local(self._whole.get((kind, id_key(value))), entry)
            if known is not None:
                return known
        return self._new(kind, value, entry, scope=kind)

    def _local(self, known: Ref | None, entry: int) -> Ref | None:
        """Return a name as an entry writes it: its own without the number of the entry."""
        return Ref(known.kind, known.name) if known is not None and known.entry == entry else known

    def _new(self, kind: str, value: Any, entry: int, *, scope: str) -> Ref:
        number = self._numbers[entry, kind] = self._numbers.get((entry, kind), 0) + 1
        ref, abroad = Ref(kind, str(number)), Ref(kind, str(number), entry)
        self._scopes[entry, scope, id_key(value)] = ref
        self._whole[kind, id_key(value)] = abroad
        if kind in _FOLLOWED and type(value) is str and len(value) >= LONG:
            self._follow(value, abroad)
        return ref

    def _follow(self, value: str, ref: Ref) -> None:
        self._followed[value] = ref
        self._pattern = None


def _split(parts: list[Part], pattern: re.Pattern[str], ref_of: Callable[[str], Ref | None]) -> list[Part]:
    made: list[Part] = []
    for part in parts:
        if isinstance(part, Ref):
            made.append(part)
            continue
        at = 0
        for found in pattern.finditer(part):
            ref = ref_of(found[0])
            if ref is not None:
                made += [part[at : found.start()], ref] if found.start() > at else [ref]
                at = found.end()
        if at < len(part) or not part:
            made.append(part[at:])
    return made


def _keys(exchange: RecordedExchange) -> dict[Any, str]:
    """Return the keys of the questions that a server of the older revisions has put, by their ids."""
    questions = [turn.server for turn in exchange.turns if turn.server is not None and "id" in turn.server]
    return {id_key(each["id"]): key for each in questions if (key := key_of(each)) is not None}


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


def _in_order(turns: list[Turn]) -> list[Turn]:
    """Put answers that follow each other in the order of their questions: which was faster is chance."""
    asked = [turn.server.get("id") for turn in turns if turn.server is not None and "method" in turn.server]

    def is_answer(turn: Turn) -> bool:
        return turn.client is not None and "method" not in turn.client and turn.client.get("id") in asked

    made: list[Turn] = []
    for are_answers, run in groupby(turns, is_answer):
        group = list(run)
        made += sorted(group, key=lambda answer: asked.index(answer.message.get("id"))) if are_answers else group
    return made
