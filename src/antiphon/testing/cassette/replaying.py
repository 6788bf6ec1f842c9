"""Replay a cassette: take the messages of clients, return the recorded ones. No I/O."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from antiphon.testing.cassette.format import Cassette, Entry, Lookup, Ref, Turn, filled, fresh, refs_in, title_of
from antiphon.testing.cassette.matching import UNBOUND, Candidate, Drift, Match, content, drift_from
from antiphon.testing.cassette.replaced_values import id_key, key_of, meta_of, params_of
from antiphon.types import JsonObject
from antiphon.wire.revisions import PROGRESS_TOKEN, PROTOCOL_VERSION, REQUEST, REVISION, SERVER_INFO

DRIFTED: Final = -32603
_METHOD_NOT_FOUND: Final = -32601
_REPEATABLE: Final = (
    *("initialize", "server/discover", "ping"),
    *("tools/list", "prompts/list", "resources/list", "resources/templates/list"),
)
"""Requests that change nothing: a client may repeat them, and gets what was recorded last."""
_GREETINGS: Final = ("server/discover", "ping")
"""Requests that some clients begin with and others do not: answered even if not recorded, and not missed."""
_TIME: Final = "2000-01-01T00:00:00Z"
_FEATURES: Final = {"tools": "tools", "prompts": "prompts", "resources": "resources", "completion": "completions"}


class ReplayClient:
    """A client, as long as its ids are unique: a connection, a session, or a single POST."""

    def __init__(self) -> None:
        self.session: str | None = None
        """The recorded session that is replayed to it."""
        self.asked: dict[Any, ReplayedEntry] = {}
        """By the ids of its requests that were not answered yet."""
        self.pushed: dict[Any, tuple[ReplayedEntry, str | None]] = {}
        """By the ids of the server's questions that it did not answer yet, with their keys."""
        self.ids = itertools.count(1)


class ReplayMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to a client. ``to`` is the id of the request on whose stream it goes; None: on none."""

    client: ReplayClient
    message: JsonObject | None
    """None: an HTTP status without a message."""
    to: Any = None
    is_reply: bool = False
    status: int | None = None
    headers: dict[str, str] = {}
    text: str | None = None

    @property
    def reason(self) -> str:
        """What an HTTP status without a message says."""
        return self.text or f"The server answered with HTTP status {self.status}"

    def to_jsonrpc(self) -> JsonObject:
        """Return the message; an error where HTTP has a status alone."""
        if self.message is not None:
            return self.message
        return {"jsonrpc": "2.0", "id": self.to, "error": {"code": DRIFTED, "message": self.reason}}


class ReplayedEntry:
    """An entry that is being replayed."""

    __slots__ = ("at", "client", "done", "entry", "number", "request", "values")

    def __init__(self, number: int, entry: Entry, client: ReplayClient) -> None:
        self.number = number
        self.entry = entry
        self.client = client
        self.at = 0
        self.done: set[int] = set()
        """Turns of the client that came before it was their turn."""
        self.request: Any = None
        """The id of the client's latest request."""
        self.values: dict[tuple[str, str], Any] = {}

    @property
    def turn(self) -> Turn | None:
        return self.entry.turns[self.at] if self.at < len(self.entry.turns) else None

    @property
    def expected(self) -> JsonObject | None:
        """The message that the client has to send now."""
        return None if self.turn is None else self.turn.client

    def answers(self) -> Iterator[tuple[int, JsonObject]]:
        """Yield the client's answers that are still to come, with their indexes."""
        for index, turn in enumerate(self.entry.turns[self.at :], self.at):
            if turn.client is not None and "method" not in turn.client and index not in self.done:
                yield index, turn.client


class Replay:
    """Replays a cassette: ``answer(client, message)`` returns what clients are told because of a message."""

    def __init__(self, cassette: Cassette, on_drift: Callable[[Drift], None] = lambda _: None) -> None:
        self._cassette = cassette
        self._on_drift = on_drift
        self._unbegun: dict[int, Entry] = dict(enumerate(cassette.entries, 1))
        self._begun: list[ReplayedEntry] = []
        """Those that did not end."""
        self._latest: dict[int, ReplayedEntry] = {}
        """By number, the latest replay of each entry."""
        self._ended: set[int] = set()
        self._secrets: dict[str, Any] = {}
        """What clients have sent for each secret: the same value from then on."""
        self._replies: list[ReplayMessage] = []
        self.drifts: list[Drift] = []

    @property
    def unplayed(self) -> list[Entry]:
        """The entries that clients did not ask for, or did not go on with to the end."""
        begun = {each.number for each in self._begun if each.turn is not None and each.turn.after is None}
        return [
            entry
            for number, entry in enumerate(self._cassette.entries, 1)
            if (number in self._unbegun or number in begun)
            and (entry.turns[0].client or {}).get("method") not in (None, *_GREETINGS)
        ]

    def answer(self, client: ReplayClient, message: object) -> list[ReplayMessage]:
        """Take a message of a client; return all messages that follow from it, to this client and to others."""
        self._replies = []
        for each in message if isinstance(message, list) else [message]:
            if not isinstance(each, dict):
                continue
            if each.get("method") is None:
                self._answered(client, each)
            elif "id" in each:
                self._requested(client, each)
            else:
                self._notified(client, each)
        self._send_on_its_own(client)
        return self._replies

    def cancel(self, client: ReplayClient, request: Any) -> None:
        """End a request whose client no longer waits for the answer."""
        entry = client.asked.pop(id_key(request), None)
        if entry is not None and entry in self._begun:
            self._end(entry)

    # --- what clients send ----------------------------------------------------------------------------------------

    def _requested(self, client: ReplayClient, message: JsonObject) -> None:
        entry = self._continued(message) or self._beginning(client, message)
        if entry is None:
            self._unrecorded(client, message)
            return
        entry.client = client
        entry.request = message["id"]
        client.asked[id_key(message["id"])] = entry
        self._take(entry, entry.at, message)
        entry.at += 1
        self._play(entry)

    def _continued(self, message: JsonObject) -> ReplayedEntry | None:
        """Return the entry that a request goes on with."""
        for entry in self._begun:
            expected = entry.expected
            if expected is not None and "id" in expected and "method" in expected:
                ref, sent = params_of(expected).get("requestState"), params_of(message).get("requestState")
                is_echo = ref is not None and sent is not None and filled(ref, self._known(entry)) == sent
                if self._fits(entry, expected, message) or (is_echo and self._switch(entry, entry.at, message)):
                    return entry
        return None

    def _beginning(self, client: ReplayClient, message: JsonObject) -> ReplayedEntry | None:
        """Begin the first entry that is left and begins with this request."""
        entries = list(self._unbegun.items())
        if message["method"] in _REPEATABLE:
            entries += reversed(list(enumerate(self._cassette.entries, 1)))
        for number, entry in entries:
            if self._is_for(entry, client, message):
                first = ReplayedEntry(number, entry, client)
                if self._fits(first, first.expected, message):
                    return self._begin(number, client)
        return None

    def _is_for(self, entry: Entry, client: ReplayClient, message: JsonObject) -> bool:
        first = entry.turns[0].client
        if first is None or first.get("method") != message.get("method"):
            return False
        if first["method"] in _GREETINGS and all(turn.client is not None for turn in entry.turns):
            return False  # an old server that was silent: the client need not wait for that again
        return entry.session is None or client.session in {None, entry.session} or message["method"] == "initialize"

    def _begin(self, number: int, client: ReplayClient) -> ReplayedEntry:
        entry = ReplayedEntry(number, self._cassette.entries[number - 1], client)
        self._unbegun.pop(number, None)
        self._begun.append(entry)
        self._latest[number] = entry
        if entry.entry.session is not None:
            client.session = entry.entry.session
        return entry

    def _answered(self, client: ReplayClient, message: JsonObject) -> None:
        """Take the answer to a question that was put to the client while its call was open."""
        entry, key = client.pushed.pop(id_key(message.get("id")), (None, None))
        if entry is None or entry not in self._begun:
            return
        expected = [
            (index, recorded)
            for index, recorded in entry.answers()
            if filled(recorded.get("id"), self._known(entry)) == message.get("id")
        ]
        if expected:
            index, recorded = expected[0]
            if self._fits(entry, recorded, message) or self._switch(entry, index, message):
                entry.done.add(index)
                self._take(entry, index, message)
                self._play(entry)
                return
        candidates = [Candidate(entry.number, index + 1, each, self._known(entry)) for index, each in expected]
        reason = "the answer is not the one that was recorded"
        self._refuse(entry, drift_from(message, candidates, reason, key))

    def _notified(self, client: ReplayClient, message: JsonObject) -> None:
        """Take a notification; one that was not recorded is ignored."""
        if message["method"] == "notifications/cancelled":
            self.cancel(client, params_of(message).get("requestId"))
            return
        for entry in self._begun:
            expected = entry.expected
            is_notification = expected is not None and "id" not in expected
            if is_notification and entry.client is client and self._fits(entry, expected, message):
                entry.at += 1
                self._play(entry)
                return
        for number, recorded in self._unbegun.items():
            if self._is_for(recorded, client, message) and "id" not in (recorded.turns[0].client or {}):
                entry = self._begin(number, client)
                entry.at += 1
                self._play(entry)
                return

    # --- whether it was recorded ----------------------------------------------------------------------------------

    def _fits(self, entry: ReplayedEntry, recorded: JsonObject | None, message: JsonObject) -> bool:
        return recorded is not None and Match(self._known(entry)).fits(content(recorded), content(message))

    def _switch(self, entry: ReplayedEntry, index: int, message: JsonObject) -> bool:
        """Replay another entry that is the same up to here, and goes on with this message.

        The same call may have been recorded with several answers, and nothing tells which it is before they come.
        """
        so_far = entry.entry.turns[: entry.at]

        def goes_on(other: Entry) -> bool:
            is_same = other.turns[: entry.at] == so_far and index < len(other.turns)
            return is_same and self._fits(entry, other.turns[index].client, message)

        for number, other in list(self._unbegun.items()):
            if goes_on(other):
                self._unbegun[entry.number] = entry.entry
                del self._unbegun[number]
                self._unbegun = dict(sorted(self._unbegun.items()))
                entry.number, entry.entry = number, other
                self._latest[number] = entry
                return True
        for begun in self._begun:
            is_alike = begun is not entry and begun.at == entry.at and begun.done == entry.done
            if is_alike and goes_on(begun.entry):
                entry.number, begun.number = begun.number, entry.number
                entry.entry, begun.entry = begun.entry, entry.entry
                self._latest[entry.number], self._latest[begun.number] = entry, begun
                return True
        return False

    def _take(self, entry: ReplayedEntry, index: int, message: JsonObject) -> None:
        """Remember the values that the placeholders of a client's turn have this time."""
        recorded = entry.entry.turns[index].client
        assert recorded is not None
        match = Match(self._known(entry))
        match.fits(content(recorded), content(message))
        for ref, value in match.bound.items():
            if ref.kind == "secret":
                self._secrets[ref.name] = value
            else:
                self._values(entry, ref)[ref.kind, ref.name] = value
        tokens = meta_of(recorded).get(PROGRESS_TOKEN), meta_of(message).get(PROGRESS_TOKEN)
        for pattern, value in ((recorded.get("id"), message.get("id")), tokens):
            for ref in refs_in(pattern) if value is not None else ():
                entry.values[ref.kind, ref.name] = value

    # --- what is sent ---------------------------------------------------------------------------------------------

    def _play(self, entry: ReplayedEntry) -> None:
        """Send the turns of the server, up to where the client has to speak."""
        while (turn := entry.turn) is not None:
            if turn.client is not None:
                if entry.at not in entry.done:
                    return
            elif turn.after is not None and not self._is_past(turn.after):
                return
            elif self._is_wanted(entry, turn.server or {}):
                self._send(entry, turn)
            entry.at += 1
        self._end(entry)

    def _is_wanted(self, entry: ReplayedEntry, recorded: JsonObject) -> bool:
        """Return False for progress to a client that gave no token."""
        token = params_of(recorded).get(PROGRESS_TOKEN)
        is_progress = recorded.get("method") == "notifications/progress"
        return not is_progress or not any(self._known(entry)(ref) is UNBOUND for ref in refs_in(token))

    def _send(self, entry: ReplayedEntry, turn: Turn) -> None:
        def value(ref: Ref) -> Any:
            return self._value(entry, ref)

        client, message = entry.client, None
        if turn.server is not None:
            message = {"jsonrpc": "2.0", **filled(turn.server, value)}
        is_reply = message is None or message.get("method") is None
        if is_reply:
            client.asked.pop(id_key(entry.request), None)
        elif message is not None and "id" in message:
            client.pushed[id_key(message["id"])] = entry, key_of(message)
            if REQUEST in meta_of(message):
                meta_of(message)[REQUEST] = entry.request
        self._replies.append(
            ReplayMessage(
                client=client,
                message=message,
                to=entry.request,
                is_reply=is_reply,
                status=turn.status,
                headers={name: str(filled(text, value)) for name, text in turn.headers.items()},
                text=None if turn.text is None else str(filled(turn.text, value)),
            )
        )

    def _end(self, entry: ReplayedEntry) -> None:
        if entry in self._begun:
            self._begun.remove(entry)
        self._ended.add(entry.number)

    def _send_on_its_own(self, client: ReplayClient) -> None:
        """Send what the server sent on its own, where what came before it has been replayed."""
        while True:
            count = len(self._replies), len(self._ended), len(self._begun)
            for begun in list(self._begun):
                if begun.turn is not None and begun.turn.after is not None:
                    self._play(begun)
            for number, entry in list(self._unbegun.items()):
                first = entry.turns[0]
                if first.client is None and (first.after is None or self._is_past(first.after)):
                    cause = None if first.after is None else self._latest.get(first.after)
                    self._play(self._begin(number, client if cause is None else cause.client))
            if count == (len(self._replies), len(self._ended), len(self._begun)):
                return

    def _is_past(self, number: int) -> bool:
        entry = self._latest.get(number)
        if number in self._ended or entry is None:
            return number in self._ended
        return entry.turn is not None and entry.turn.after is not None

    # --- what was not recorded ------------------------------------------------------------------------------------

    def _unrecorded(self, client: ReplayClient, message: JsonObject) -> None:
        made = self._greeting(message)
        if made is None:
            candidates = list(self._candidates(message))
            self._drift(client, message["id"], drift_from(message, candidates, self._reason(message, candidates)))
        else:
            self._reply(client, message["id"], made)

    def _greeting(self, message: JsonObject) -> JsonObject | None:
        """Return the answer to how clients begin, which differs from client to client; None for other requests."""
        if message["method"] == "ping":
            return {"result": {}}
        if message["method"] != "server/discover":
            return None
        if self._cassette.is_old:
            return {"error": {"code": _METHOD_NOT_FOUND, "message": "Method not found: server/discover"}}
        requests = [entry.turns[0].client or {} for entry in self._cassette.entries]
        used = {str(request.get("method")).partition("/")[0] for request in requests}
        versions = [party.meta.get(PROTOCOL_VERSION) for party in self._cassette.clients]
        result: JsonObject = {
            "resultType": "complete",
            "supportedVersions": sorted({each for each in versions if isinstance(each, str)}) or [REVISION],
            "capabilities": {feature: {} for part, feature in _FEATURES.items() if part in used},
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {SERVER_INFO: self._server_info()},
        }
        return {"result": result}

    def _server_info(self) -> JsonObject:
        for entry in self._cassette.entries:
            for turn in entry.turns:
                result = (turn.server or {}).get("result")
                meta = result.get("_meta") if isinstance(result, dict) else None
                if isinstance(meta, dict) and SERVER_INFO in meta:
                    return dict(meta[SERVER_INFO])
        return {"name": "cassette", "version": "0"}

    def _candidates(self, message: JsonObject) -> Iterator[Candidate]:
        for begun in self._begun:
            if begun.expected is not None:
                yield Candidate(begun.number, begun.at + 1, begun.expected, self._known(begun))
        is_retry = "requestState" in params_of(message)
        for number, entry in enumerate(self._cassette.entries, 1):
            for index, turn in enumerate(entry.turns):
                if turn.client is not None and (index == 0 or is_retry):
                    latest = self._latest.get(number) or ReplayedEntry(number, entry, ReplayClient())
                    yield Candidate(number, index + 1, turn.client, self._known(latest))

    def _reason(self, message: JsonObject, candidates: list[Candidate]) -> str:
        same = [each for each in candidates if each.message.get("method") == message["method"]]
        if not same:
            methods = sorted({title_of({"method": each.message.get("method")}) for each in candidates})
            return f"no such request was recorded; there are {', '.join(methods) or 'none at all'}"
        times = sum(Match(each.known).fits(content(each.message), content(message)) for each in same)
        if times:
            return f"it was recorded {'once' if times == 1 else f'{times} times'}, and this is one more"
        if any(_differs_in_state(each, message) for each in same):
            if params_of(message).get("requestState") is None:
                return "it brings no requestState back, and the one that was recorded does"
            return "its requestState is not the one that this replay gave out"
        return "it is not what was recorded"

    def _refuse(self, entry: ReplayedEntry, drift: Drift) -> None:
        """End a call whose question was answered in another way."""
        self._end(entry)
        entry.client.asked.pop(id_key(entry.request), None)
        named = msgspec.structs.replace(drift, title=f"{entry.entry.title}, an answer")
        self._drift(entry.client, entry.request, named)

    def _drift(self, client: ReplayClient, request: Any, drift: Drift) -> None:
        self.drifts.append(drift)
        self._on_drift(drift)
        error = {"code": DRIFTED, "message": f"Not as recorded: {drift.title}: {drift.reason}"}
        self._reply(client, request, {"error": error})

    def _reply(self, client: ReplayClient, request: Any, made: JsonObject) -> None:
        reply: JsonObject = {"jsonrpc": "2.0", "id": request, **made}
        self._replies.append(ReplayMessage(client=client, message=reply, to=request, is_reply=True))

    # --- placeholders ---------------------------------------------------------------------------------------------

    def _values(self, entry: ReplayedEntry, ref: Ref) -> dict[tuple[str, str], Any]:
        if ref.entry is None or ref.entry == entry.number:
            return entry.values
        if ref.entry not in self._latest:
            self._latest[ref.entry] = ReplayedEntry(ref.entry, self._cassette.entries[ref.entry - 1], entry.client)
        return self._latest[ref.entry].values

    def _known(self, entry: ReplayedEntry) -> Lookup:
        def known(ref: Ref) -> Any:
            if ref.kind == "secret":
                return self._secrets.get(ref.name, UNBOUND)
            holder = entry if ref.entry is None else self._latest.get(ref.entry)
            return UNBOUND if holder is None else holder.values.get((ref.kind, ref.name), UNBOUND)

        return known

    def _value(self, entry: ReplayedEntry, ref: Ref) -> Any:
        """Return the value of a placeholder that the server sends: a fresh one if there is none yet."""
        if ref.kind == "time":
            return _TIME
        if ref.kind == "secret":
            return self._secrets.get(ref.name, "secret")
        values = self._values(entry, ref)
        if (ref.kind, ref.name) not in values:
            is_text = ref.kind == "text"
            made = f"text-{ref.entry or entry.number}-{ref.name}" if is_text else fresh(ref, entry.client.ids)
            values[ref.kind, ref.name] = made
        return values[ref.kind, ref.name]


def _differs_in_state(candidate: Candidate, message: JsonObject) -> bool:
    """Return whether only the token is another one, or is not there."""
    if "requestState" not in params_of(candidate.message):
        return False
    return Match(candidate.known).fits(_without_state(candidate.message), _without_state(message))


def _without_state(message: JsonObject) -> JsonObject:
    made = content(message)
    return {**made, "params": {name: value for name, value in params_of(made).items() if name != "requestState"}}
