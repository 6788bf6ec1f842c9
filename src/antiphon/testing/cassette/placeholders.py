"""Naming: what was heard becomes a cassette. Volatile values turn into placeholders, secrets into nothing at all."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from antiphon.testing.cassette.format import TIME, VERSION, Cassette, Entry, Part, Party, Ref, Turn, written
from antiphon.testing.cassette.secrets import LONG, Redaction, wherever
from antiphon.testing.cassette.volatile import Place, Places, Side, is_protocols, key_of, volatile_in, without_hint
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
"""Headers that HTTP, or the message itself, brings along."""
_FOLLOWED: Final = frozenset({"elicitation", "task", "text"})
"""Kinds whose values are looked for in other texts too."""
_SHORT: Final = 4
_LARGE: Final = 1000
"""And at least to be taken for the same when the client repeats it whole."""
_TYPES: Final[dict[type, str]] = {str: "text", bool: "boolean", int: "integer", float: "number"}


class Heard(msgspec.Struct, kw_only=True):
    """A message as it was heard."""

    side: Side
    message: JsonObject
    headers: dict[str, str] = {}
    status: int | None = None
    text: str | None = None
    after: int | None = None


class Strand(msgspec.Struct, kw_only=True, eq=False):
    """One exchange under way: what was heard of it, and what it waits for."""

    number: int
    session: str | None = None
    heard: list[Heard] = []
    open: int = 0
    """Requests of either side that were not answered yet."""
    state: str | None = None
    tokens: set[Any] = set()
    can_ask: bool = False
    is_stream: bool = False
    """Whether its messages come of themselves, whenever something happens."""
    after: int = 0


class Namer:
    """Makes cassettes out of strands."""

    def __init__(self, *, blind: Iterable[str] = (), redact: Iterable[str] = (), keep_times: bool = False) -> None:
        self._blind = Places(blind)
        self._redact = list(redact)
        Places(self._redact)  # a path that makes no sense is said at once
        self._keep_times = keep_times

    def cassette(self, strands: list[Strand]) -> Cassette:
        """The same for the same conversation, whatever its tokens, ids and times were."""
        return _Naming(self._blind, Redaction(self._redact), keep_times=self._keep_times).cassette(strands)


class _Naming:
    def __init__(self, blind: Places, redaction: Redaction, *, keep_times: bool) -> None:
        self._blind = blind
        self._redaction = redaction
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

    def cassette(self, strands: list[Strand]) -> Cassette:
        for strand in strands:
            self._keys[strand.number] = _keys(strand)
            for heard in strand.heard:
                key = self._key_of(heard.message, heard.side, strand.number)
                self._redaction.learn(heard.message, heard.headers, key)
                self._redaction.learn_text(heard.text or "")
        for value, name in self._redaction.values.items():
            self._follow(value, Ref("secret", name))
        entries = [self._entry(strand) for strand in strands if strand.heard]
        return Cassette(version=VERSION, clients=self._parties, entries=entries)

    def _entry(self, strand: Strand) -> Entry:
        session = None
        if strand.session is not None:
            session = self._sessions.setdefault(strand.session, f"${{session:{len(self._sessions) + 1}}}")
        return Entry(session=session, turns=[self._turn(heard, strand.number) for heard in _in_order(strand.heard)])

    def _turn(self, heard: Heard, entry: int) -> Turn:
        message = _without_hints({name: value for name, value in heard.message.items() if name != "jsonrpc"})
        if heard.side == "server":
            made = self._named(message, "server", entry) if message else None
            text = None if heard.text is None else written(self._parts(heard.text, "server", entry))
            headers = self._headers(heard.headers)
            return Turn(server=made, status=heard.status, headers=headers, text=text, after=heard.after)
        message, own = _without_own(message)
        headers = self._headers(heard.headers)
        party = None
        if "method" in message and "id" in message:
            common = {name: value for name, value in headers.items() if not name.startswith("mcp-param-")}
            headers = {name: value for name, value in headers.items() if name not in common}
            party = self._party(Party(meta=own, headers=common))
        else:
            headers = {}
        return Turn(client=self._named(message, "client", entry), party=party, headers=headers)

    def _party(self, party: Party) -> int | None:
        if not party.meta and not party.headers:
            return None
        if party not in self._parties:
            self._parties.append(party)
        return self._parties.index(party) + 1

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        kept = {name.lower(): value for name, value in headers.items() if not _CARRIED.fullmatch(name.lower())}
        return {
            name: self._redaction.header(name, written(self._parts(value, "client", 0))) for name, value in kept.items()
        }

    # --- one message ----------------------------------------------------------------------------------------------

    def _named(self, message: JsonObject, side: Side, entry: int) -> JsonObject:
        marks: dict[Place, Ref] = {}
        for place, value in self._blind.find(message):
            kind = _TYPES.get(type(value))
            if kind is not None:
                marks[place] = self._blinded(kind, value, side, entry)
        for place, name in self._redaction.places(message, self._key_of(message, side, entry)):
            marks[place] = Ref("secret", name)
        for place, kind, value, owner in volatile_in(message, side):
            if place[-1] == "requestId" and (entry, f"id {owner}", _key(value)) not in self._scopes:
                owner = "client"  # noqa: PLW2901 -- a server that ends a subscription names the client's id
            marks[place] = self._ref(kind, value, side, owner, entry)
        made = self._walk(message, (), marks, side, entry)
        assert isinstance(made, dict)
        return made

    def _walk(self, value: Any, place: Place, marks: dict[Place, Ref], side: Side, entry: int) -> Any:
        mark = marks.get(place)
        if mark is not None:
            return str(mark)
        if isinstance(value, dict):
            return {name: self._walk(item, (*place, name), marks, side, entry) for name, item in value.items()}
        if isinstance(value, list):
            return [self._walk(item, (*place, index), marks, side, entry) for index, item in enumerate(value)]
        if isinstance(value, str):
            return written(self._parts(value, side, entry, place))
        if type(value) is int and side == "client" and abs(value) >= _LARGE:
            known = self._local(self._whole.get(("integer", (int, value))), entry)
            return value if known is None else str(known)
        return value

    def _key_of(self, message: JsonObject, side: Side, entry: int) -> str | None:
        """The key of the question that a message of the client's answers, in the older revisions."""
        is_answer = side == "client" and "method" not in message
        return self._keys[entry].get(_key(message.get("id"))) if is_answer else None

    def _parts(self, text: str, side: Side, entry: int, place: Place = ()) -> list[Part]:
        """A text with the values in it that are known to be volatile or secret."""
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
        """A JSON text without the values of its secret fields."""
        parts: list[Part] = []
        at = 0
        for field in self._redaction.fields(text):
            parts += [text[at : field.start], Ref("secret", field.name)]
            at = field.end
        return [*parts, text[at:]] if at < len(text) or not parts else parts

    def _followed_by(self, found: str, text: str, entry: int, place: Place) -> Ref | None:
        """The name of a value within a text; the protocol's own words are no secrets, whoever has them for one."""
        ref = self._followed[found]
        if ref.kind == "secret" and is_protocols(place):
            is_part_of_uri = place[-1] == "uri" and len(found) >= LONG and found != text
            return ref if is_part_of_uri else None
        return self._local(ref, entry)

    def _time(self, found: str, side: Side) -> Ref | None:
        """The client's times are its own, unless the server gave them to it."""
        if side == "server":
            self._times.add(found)
        return Ref("time") if found in self._times else None

    # --- names ----------------------------------------------------------------------------------------------------

    def _ref(self, kind: str, value: Any, sender: Side, owner: Side, entry: int) -> Ref:
        if kind in {"id", "progress"}:
            scope = f"{kind} {owner}"
            return self._scopes.get((entry, scope, _key(value))) or self._new(kind, value, entry, scope=scope)
        known = self._scopes.get((entry, kind, _key(value)))
        if known is None and (sender == "client" or kind in _FOLLOWED):
            known = self._local(self._whole.get((kind, _key(value))), entry)
        return known or self._new(kind, value, entry, scope=kind)

    def _blinded(self, kind: str, value: Any, sender: Side, entry: int) -> Ref:
        """Short values are equal by chance: each is a new one, unless the client repeats what it was given."""
        is_long = type(value) is str and len(value) >= LONG
        if is_long or sender == "client":
            known = self._scopes.get((entry, kind, _key(value)))
            known = known or self._local(self._whole.get((kind, _key(value))), entry)
            if known is not None:
                return known
        return self._new(kind, value, entry, scope=kind)

    def _local(self, known: Ref | None, entry: int) -> Ref | None:
        """A name as the entry says it: its own without a number."""
        return Ref(known.kind, known.name) if known is not None and known.entry == entry else known

    def _new(self, kind: str, value: Any, entry: int, *, scope: str) -> Ref:
        number = self._numbers[entry, kind] = self._numbers.get((entry, kind), 0) + 1
        ref = Ref(kind, str(number))
        self._scopes[entry, scope, _key(value)] = ref
        self._whole[kind, _key(value)] = Ref(kind, str(number), entry)
        if kind in _FOLLOWED and type(value) is str and len(value) >= LONG:
            self._follow(value, Ref(kind, str(number), entry))
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


def _keys(strand: Strand) -> dict[Any, str]:
    """The keys of the questions that a server of the older revisions has put, by their ids."""
    made: dict[Any, str] = {}
    for heard in strand.heard:
        key = key_of(heard.message)
        if heard.side == "server" and "id" in heard.message and key is not None:
            made[_key(heard.message["id"])] = key
    return made


def _without_hints(message: JsonObject) -> JsonObject:
    """The questions of a round belong to its call: what a link below has numbered its own call with says nothing."""
    result = message.get("result")
    asked = result.get("inputRequests") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(asked, dict):
        return message
    return {**message, "result": {**result, "inputRequests": {key: without_hint(asked[key]) for key in asked}}}


def _without_own(message: JsonObject) -> tuple[JsonObject, JsonObject]:
    """A client's message without what all of its messages repeat, and that."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(params, dict) or not isinstance(meta, dict) or "id" not in message:
        return message, {}
    own = {name: meta[name] for name in OWN if name in meta}
    rest = {name: value for name, value in meta.items() if name not in own and name not in TRACING}
    params = {name: value for name, value in params.items() if name != "_meta"}
    return {**message, "params": {**params, "_meta": rest} if rest else params}, own


def _in_order(heard: list[Heard]) -> list[Heard]:
    """Answers that follow each other come in the order of their questions: who was faster is chance."""
    asked = [each.message.get("id") for each in heard if each.side == "server" and "method" in each.message]
    made: list[Heard] = []
    run: list[Heard] = []
    for each in heard:
        if each.side == "client" and "method" not in each.message and each.message.get("id") in asked:
            run.append(each)
            continue
        made += sorted(run, key=lambda answer: asked.index(answer.message.get("id")))
        run = []
        made.append(each)
    return [*made, *sorted(run, key=lambda answer: asked.index(answer.message.get("id")))]


def _key(value: Any) -> tuple[type, Any]:
    return type(value), value if isinstance(value, str | int | float) else repr(value)
