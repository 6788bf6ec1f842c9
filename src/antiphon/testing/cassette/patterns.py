"""CassetteTurn messages into the patterns of a cassette, and match messages with those patterns."""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final

import msgspec
from msgspec import structs

from antiphon.testing.cassette.format import VERSION, Cassette, CassetteEntry, CassetteTurn, Party
from antiphon.testing.cassette.placeholders import (
    BLIND,
    TIME,
    TYPES,
    UNBOUND,
    Lookup,
    Part,
    Place,
    Ref,
    Side,
    id_key,
    literal,
    mapped,
    meta_of,
    params_of,
    parts_of,
    split,
    volatile_in,
    written,
)
from antiphon.testing.cassette.secrets import LEAST, LONG, FieldSelector, Redaction, forms
from antiphon.types import JsonObject
from antiphon.wire.revisions import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    KEY,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    REQUEST,
)

_OWN: Final = (PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL)
"""What every request of a client repeats in its ``_meta``."""
_TRACING: Final = frozenset({"traceparent", "tracestate", "baggage"})
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
    session: str | None = None
    turns: list[CassetteTurn] = []
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
        self._refs: dict[tuple[int, str, str, Any], Ref] = {}
        """By entry (0: any), kind, owner and value."""
        self._times: set[str] = set()
        self._parties: list[Party] = []
        self._sessions: dict[str, str] = {}

    def build(self, exchanges: list[RecordedExchange]) -> Cassette:
        keys = [_keys(exchange) for exchange in exchanges]
        for exchange, known in zip(exchanges, keys, strict=True):
            for turn in exchange.turns:
                self._redaction.learn(turn.message, turn.headers, _key_of(turn.client, known))
                self._redaction.learn_text(turn.text or "")
        entries = [
            self._entry(exchange, known) for exchange, known in zip(exchanges, keys, strict=True) if exchange.turns
        ]
        return Cassette(version=VERSION, clients=self._parties, entries=entries)

    def _entry(self, exchange: RecordedExchange, keys: dict[Any, str]) -> CassetteEntry:
        session = None
        if exchange.session is not None:
            session = self._sessions.setdefault(exchange.session, f"${{session:{len(self._sessions) + 1}}}")
        turns = [
            self._server_turn(turn, exchange.number)
            if turn.client is None
            else self._client_turn(turn, exchange.number, _key_of(turn.client, keys))
            for turn in _in_order(exchange.turns)
        ]
        return CassetteEntry(session=session, turns=turns)

    def _server_turn(self, turn: CassetteTurn, entry: int) -> CassetteTurn:
        made = None if turn.server is None else self._pattern(_without_calls(turn.server), "server", entry)
        text = None if turn.text is None else self._text(turn.text, "server", entry)
        return structs.replace(turn, server=made, text=text, headers=self._headers(turn.headers))

    def _client_turn(self, turn: CassetteTurn, entry: int, key: str | None) -> CassetteTurn:
        message, own = _without_own(self._pattern(turn.message, "client", entry, key))
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

    def _pattern(self, message: JsonObject, side: Side, entry: int, key: str | None = None) -> JsonObject:
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
                marks[place] = self._ref(kind, value, entry, owner, [entry])
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


def key_of(question: JsonObject) -> str | None:
    """Return the key of a question that an older server pushes, where it says one."""
    key = meta_of(question).get(KEY)
    return key if isinstance(key, str) else None


def _keys(exchange: RecordedExchange) -> dict[Any, str]:
    """Return the keys of the questions that a server of the older revisions has put, by their ids."""
    questions = [turn.server for turn in exchange.turns if turn.server is not None and "id" in turn.server]
    return {id_key(each["id"]): key for each in questions if (key := key_of(each)) is not None}


def _key_of(message: JsonObject | None, keys: dict[Any, str]) -> str | None:
    """Return the key of the question that a message of the client answers, in the older revisions."""
    return None if message is None or "method" in message else keys.get(id_key(message.get("id")))


def without_call(question: Any) -> Any:
    """Return a question without the id of its call, which our server writes only where the transport does not tell."""
    if not isinstance(question, dict) or REQUEST not in meta_of(question):
        return question
    meta = {name: value for name, value in meta_of(question).items() if name != REQUEST}
    params = {name: value for name, value in question["params"].items() if name != "_meta" or meta}
    return {**question, "params": {**params, "_meta": meta} if meta else params}


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
    own = {name: meta[name] for name in _OWN if name in meta}
    rest = {name: value for name, value in meta.items() if name not in own and name not in _TRACING}
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


# --- matching -----------------------------------------------------------------------------------------------------


class Match:
    """Compares recorded messages with those that came; ``bound`` are the values of placeholders found on the way.

    ``known`` returns the value of a placeholder, or UNBOUND.
    """

    def __init__(self, known: Lookup) -> None:
        self._known = known
        self.bound: dict[Ref, Any] = {}

    def fits(self, pattern: Any, value: Any) -> bool:
        """Return whether a value is the recorded one."""
        if isinstance(pattern, str):
            return self._text_fits(parts_of(pattern), value)
        if isinstance(pattern, dict):
            is_like = isinstance(value, dict) and pattern.keys() == value.keys()
            return is_like and all(self.fits(item, value[name]) for name, item in pattern.items())
        if isinstance(pattern, list):
            is_like = isinstance(value, list) and len(pattern) == len(value)
            return is_like and all(self.fits(item, other) for item, other in zip(pattern, value, strict=True))
        return _is_same(pattern, value)

    def shown(self, pattern: Any, value: Any) -> Any:
        """Return a value as the recording would have it: what fits a placeholder is written as that placeholder."""
        if isinstance(pattern, str):
            return pattern if self.fits(pattern, value) else self._told(parts_of(pattern), value)
        if isinstance(pattern, dict) and isinstance(value, dict):
            return {name: self.shown(pattern.get(name), item) for name, item in value.items()}
        if isinstance(pattern, list) and isinstance(value, list):
            padded = [*pattern, *[None] * len(value)]
            return [self.shown(other, item) for other, item in zip(padded, value, strict=False)]
        return literal(value)

    def _told(self, parts: list[Part], value: Any) -> Any:
        """Return what to show of a value that does not fit a text; not the secrets in which it differs."""
        apart = [Ref("secret", str(at)) if _is_secret(part) else part for at, part in enumerate(parts)]
        loose = Match(lambda ref: UNBOUND if _is_secret(ref) else self._value(ref))
        if apart != parts and loose._text_fits(apart, value):
            return "".join(f"(not {part})" if _is_secret(part) else written([part]) for part in parts)
        if isinstance(value, str) and isinstance(parts[0], Ref) and len(parts) == 1 and len(value) > 60:
            # A token is opaque, and long; that it is another one is all there is to say.
            return f"{value[:24]}... ({len(value)} characters)"
        return literal(value)

    def _text_fits(self, parts: list[Part], value: Any) -> bool:
        if len(parts) == 1:
            return self._fits(parts[0], value)
        if not isinstance(value, str):
            return False
        groups: dict[Ref, str] = {}
        found = re.fullmatch(self._expression(parts, groups), value, re.DOTALL)
        return found is not None and all(self._fits(ref, found[name]) for ref, name in groups.items())

    def _expression(self, parts: list[Part], groups: dict[Ref, str]) -> str:
        """Return an expression for a text; ``groups`` gets those of placeholders whose values are not known yet.

        Such a value ends where what follows it is found. It is not looked for again: the groups are atomic, so the time
        this takes grows with the text, and not with the ways to split it.
        """
        made = ""
        for part in parts:
            if isinstance(part, str):
                made += re.escape(part)
            elif part.kind == "time":
                made += f"(?>{TIME.pattern})"
            elif part in groups:
                made += f"(?P={groups[part]})"
            elif (known := self._value(part)) is not UNBOUND:
                longest_first = sorted(
                    _forms(_text(known)) if _is_secret(part) else [_text(known)], key=len, reverse=True
                )
                made += f"(?>{'|'.join(map(re.escape, longest_first))})"
            else:
                made += f"{')' if groups else ''}(?>(?P<_{len(groups)}>.+?)"
                groups[part] = f"_{len(groups)}"
        return made + (r"\Z)" if groups else "")

    def _value(self, ref: Ref) -> Any:
        return self.bound[ref] if ref in self.bound else self._known(ref)

    def _fits(self, part: Part, value: Any) -> bool:
        if isinstance(part, str):
            return bool(part == value)
        if part.kind == "time":
            return isinstance(value, str) and TIME.fullmatch(value) is not None
        if type(value) not in TYPES.get(part.kind, (str,)) or (_is_secret(part) and value == ""):
            return False
        known = self._value(part)
        if known is not UNBOUND:
            return _text(value) in _forms(_text(known)) if _is_secret(part) else _is_same(known, value)
        self.bound[part] = value
        return True


def _is_secret(part: Part) -> bool:
    return isinstance(part, Ref) and part.kind == "secret"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _forms(secret: str) -> list[str]:
    """Return a secret as it may stand in a text; the one that is known may itself have been read out of JSON."""
    try:
        inner: Any = json.loads(f'"{secret}"') if "\\" in secret else secret
    except ValueError:
        inner = secret
    return [*dict.fromkeys([*forms(secret), *forms(inner)])]


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    return type(one) is type(other) and bool(one == other)


def content(message: JsonObject) -> JsonObject:
    """Return what a client's message asks for, without what each client has of its own: name, ids, empty fields."""
    made = {name: value for name, value in message.items() if name not in {"jsonrpc", "id"}}
    error = made.get("error")
    if isinstance(error, dict):
        return {"error": {"code": error.get("code")}}  # the message is each client's own
    params = made.get("params")
    if not isinstance(params, dict):
        return {name: value for name, value in made.items() if value is not None}
    if made.get("method") == "initialize":
        return {"method": "initialize"}  # who the client is, and what it can do
    own = _TRACING | {*_OWN, PROGRESS_TOKEN}
    meta = {name: value for name, value in meta_of(message).items() if name not in own}
    kept = {name: value for name, value in params.items() if name != "_meta" and (name != "arguments" or value)}
    made["params"] = {**kept, "_meta": meta} if meta else kept
    return made if made["params"] else {name: value for name, value in made.items() if name != "params"}


def diff_of(one: Any, other: Any, one_name: str, other_name: str) -> str:
    """Return a unified diff of two JSON values, indented."""
    ours, theirs = (
        json.dumps(each, indent=2, sort_keys=True, ensure_ascii=False).splitlines() for each in (one, other)
    )
    return "\n".join(difflib.unified_diff(ours, theirs, one_name, other_name, lineterm=""))
