"""Replay a cassette: take the messages of clients, return the recorded ones. No I/O."""

import asyncio
import contextlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

import msgspec
from msgspec import structs

from antiphon.testing.cassette.format import Cassette, CassetteEntry, CassetteTurn
from antiphon.testing.cassette.matching import Candidate, Drift, Match, content, drift_from, drift_of_request
from antiphon.testing.cassette.placeholders import (
    UNBOUND,
    Bindings,
    filled,
    id_key,
    key_of,
    meta_of,
    params_of,
    refs_in,
)
from antiphon.types import JsonObject
from antiphon.wire.revisions import PROGRESS_TOKEN, REQUEST, REVISION, SERVER_INFO, SUBSCRIPTION_ID

REFUSED: Final = -32603
_METHOD_NOT_FOUND: Final = -32601
_GREETINGS: Final = ("server/discover", "ping")
"""Requests that some clients begin with and others do not: answered even if not recorded, and not missed."""
_REPEATABLE: Final = (
    *("initialize", *_GREETINGS),
    *("tools/list", "prompts/list", "resources/list", "resources/templates/list"),
)
"""Requests that change nothing: a client may repeat them, and gets what was recorded last."""
_FEATURES: Final = {"tools": "tools", "prompts": "prompts", "resources": "resources", "completion": "completions"}


class ReplayClient:
    """A client, as long as its ids are unique: a connection, a session, or a single POST."""

    def __init__(self) -> None:
        self.asked: dict[Any, ReplayedEntry] = {}
        """By the ids of its requests that were not answered yet."""
        self.pushed: dict[Any, tuple[ReplayedEntry, str | None]] = {}
        """By the ids of the server's questions that it did not answer yet, with their keys."""


class ReplayMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message to a client. ``to`` is the id of the request on whose stream it goes; None: on none."""

    client: ReplayClient
    message: JsonObject
    to: Any = None
    is_reply: bool = False
    status: int | None = None


class ReplayedEntry(msgspec.Struct, eq=False):
    """An entry that is being replayed."""

    number: int
    entry: CassetteEntry
    client: ReplayClient
    at: int = 0
    done: set[int] = set()
    """Turns of the client that came before it was their turn."""
    request: Any = None
    """The id of the client's latest request; None once it was answered."""

    @property
    def turn(self) -> CassetteTurn | None:
        return self.entry.turns[self.at] if self.at < len(self.entry.turns) else None

    def awaited(self) -> Iterator[tuple[int, JsonObject]]:
        """Yield the messages that the client may send now, with their indexes: the next one, and any answer."""
        for index, turn in enumerate(self.entry.turns[self.at :], self.at):
            if turn.client is not None and index not in self.done and (index == self.at or "method" not in turn.client):
                yield index, turn.client


class Replay:
    """Replays a cassette: ``answer(client, message)`` returns what clients are told because of a message."""

    def __init__(self, cassette: Cassette, on_drift: Callable[[Drift], None] = lambda _: None) -> None:
        self._cassette = cassette
        self._on_drift = on_drift
        self._unbegun = set(range(1, len(cassette.entries) + 1))
        self._begun: list[ReplayedEntry] = []
        """Those that did not end."""
        self._latest: dict[int, ReplayedEntry] = {}
        """By number, the latest replay of each entry, for what comes on its stream."""
        self._bindings = Bindings()
        self._replies: list[ReplayMessage] = []
        self.drifts: list[Drift] = []

    @property
    def unplayed(self) -> list[CassetteEntry]:
        """The entries that clients did not ask for, or did not go on with to the end."""
        numbers = self._unbegun | {each.number for each in self._begun}
        entries = [self._cassette.entries[number - 1] for number in sorted(numbers)]
        return [entry for entry in entries if entry.turns[0].message.get("method") not in _GREETINGS]

    def answer(self, client: ReplayClient, message: object) -> list[ReplayMessage]:
        """Take a message of a client; return all messages that follow from it, to this client and to others."""
        self._replies = []
        for each in message if isinstance(message, list) else [message]:
            if isinstance(each, dict):
                self._take(client, each)
        return self._replies

    def cancel(self, client: ReplayClient, request: Any) -> None:
        """End a request whose client no longer waits for the answer."""
        entry = client.asked.pop(id_key(request), None)
        if entry is not None and entry in self._begun:
            self._end(entry)

    # --- what clients send ----------------------------------------------------------------------------------------

    def _take(self, client: ReplayClient, message: JsonObject) -> None:
        """Take a request, a notification, or the answer to a question that was put to the client during its call."""
        if message.get("method") == "notifications/cancelled":
            self.cancel(client, params_of(message).get("requestId"))
            return
        kind = _kind(message)
        asking = client.pushed.pop(id_key(message.get("id")), None) if kind == "answer" else None
        found = self._awaiting(client, message) or self._beginning(client, message)
        if found is not None:
            entry, index = found
            if kind == "request":
                entry.client = client
                entry.request = message["id"]
                client.asked[id_key(message["id"])] = entry
            self._bind(entry, index, message)
            entry.done.add(index)
            self._play(entry)
        elif kind == "request":
            self._unrecorded(client, message)
        elif asking is not None and asking[0] in self._begun:
            self._refuse(message, *asking)

    def _awaiting(self, client: ReplayClient, message: JsonObject) -> tuple[ReplayedEntry, int] | None:
        """Return the entry that a message goes on with, and the index of its turn."""
        kind = _kind(message)
        for entry in self._begun:
            known = self._bindings.known(entry.number)
            for index, recorded in entry.awaited() if kind == "request" or entry.client is client else ():
                if _kind(recorded) != kind:
                    continue
                named, given = recorded.get("id"), message.get("id")
                if kind == "request":
                    named, given = params_of(recorded).get("requestState"), params_of(message).get("requestState")
                is_named = named is not None and given is not None and filled(named, known) == given
                is_it = (kind != "answer" or is_named) and self._fits(entry.number, recorded, message)
                if is_it or (is_named and self._switch(entry, index, message)):
                    return entry, index
        return None

    def _beginning(self, client: ReplayClient, message: JsonObject) -> tuple[ReplayedEntry, int] | None:
        """Begin the first entry that is left and begins with this request, or with such a notification."""
        numbers = sorted(self._unbegun)
        if message.get("method") in _REPEATABLE:
            numbers += range(len(self._cassette.entries), 0, -1)
        for number in numbers:
            if self._is_for(number, message):
                return self._begin(number, client), 0
        return None

    def _is_for(self, number: int, message: JsonObject) -> bool:
        entry, kind = self._cassette.entries[number - 1], _kind(message)
        first = entry.turns[0].client
        if first is None or kind == "answer" or (_kind(first), first.get("method")) != (kind, message["method"]):
            return False
        if first["method"] in _GREETINGS and all(turn.client is not None for turn in entry.turns):
            return False  # an old server that was silent: the client need not wait for that again
        return kind == "notification" or self._fits(number, first, message)

    def _begin(self, number: int, client: ReplayClient) -> ReplayedEntry:
        entry = ReplayedEntry(number, self._cassette.entries[number - 1], client)
        if number in self._unbegun:
            self._unbegun.remove(number)
        else:
            # It is repeated: with tokens of its own, and without what the server sent on its own afterwards.
            self._bindings.clear(number)
            entry.entry = structs.replace(entry.entry, turns=_first_round(entry.entry))
        self._begun.append(entry)
        self._latest[number] = entry
        return entry

    # --- whether it was recorded ----------------------------------------------------------------------------------

    def _fits(self, entry: int, recorded: JsonObject | None, message: JsonObject) -> bool:
        known = self._bindings.known(entry)
        return recorded is not None and Match(known).fits(content(recorded), content(message))

    def _switch(self, entry: ReplayedEntry, index: int, message: JsonObject) -> bool:
        """Replay another entry that is the same up to here, and goes on with this message.

        The same call may have been recorded with several answers, and nothing tells which it is before they come.
        """
        so_far = entry.entry.turns[: entry.at]

        def goes_on(other: CassetteEntry) -> bool:
            is_same = other.turns[: entry.at] == so_far and index < len(other.turns)
            return is_same and self._fits(entry.number, other.turns[index].client, message)

        begun = {each.number: each for each in self._begun if (each.at, each.done) == (entry.at, entry.done)}
        for number in sorted({*self._unbegun, *begun} - {entry.number}):
            other = self._cassette.entries[number - 1]
            if not goes_on(other):
                continue
            self._bindings.swap(entry.number, number)
            if number in begun:
                begun[number].number, begun[number].entry = entry.number, entry.entry
            else:
                self._unbegun ^= {number, entry.number}
            entry.number, entry.entry = number, other
            return True
        return False

    def _bind(self, entry: ReplayedEntry, index: int, message: JsonObject) -> None:
        """Remember the values that the placeholders of a client's turn have this time."""
        recorded = entry.entry.turns[index].message
        match = Match(self._bindings.known(entry.number))
        match.fits(content(recorded), content(message))
        own = [(recorded.get("id"), message.get("id"))]
        own += [(meta_of(recorded).get(PROGRESS_TOKEN), meta_of(message).get(PROGRESS_TOKEN))]
        values = {ref: value for pattern, value in own if value is not None for ref in refs_in(pattern)}
        self._bindings.bind(entry.number, match.bound | values)

    # --- what is sent ---------------------------------------------------------------------------------------------

    def _play(self, entry: ReplayedEntry) -> None:
        """Send the turns of the server, up to where the client has to speak."""
        while (turn := entry.turn) is not None:
            if turn.client is not None:
                if entry.at not in entry.done:
                    return
            elif self._is_wanted(entry, turn.message):
                self._send(entry, turn)
            entry.at += 1
        self._end(entry)

    def _is_wanted(self, entry: ReplayedEntry, recorded: JsonObject) -> bool:
        """Return False for progress to a client that gave no token, and for news to one that did not listen."""
        if _kind(recorded) != "notification":
            return True
        names = [params_of(recorded).get(PROGRESS_TOKEN), meta_of(recorded).get(SUBSCRIPTION_ID)]
        return UNBOUND not in filled(names, self._bindings.known(entry.number))

    def _send(self, entry: ReplayedEntry, turn: CassetteTurn) -> None:
        message = {"jsonrpc": "2.0", **filled(turn.message, self._bindings.made(entry.number))}
        streams = [ref.entry for ref in refs_in(meta_of(turn.message).get(SUBSCRIPTION_ID))]
        on = next((self._latest[number] for number in streams if number in self._latest), entry)
        is_reply = _kind(message) == "answer"
        if is_reply and message.get("id") is not None and entry.request is not None:
            message["id"] = entry.request  # also where the recording has no placeholder
        self._replies.append(
            ReplayMessage(
                client=on.client,
                message=message,
                to=on.request,
                is_reply=is_reply,
                status=turn.status,
            )
        )
        if is_reply:
            entry.client.asked.pop(id_key(entry.request), None)
            entry.request = None  # what follows belongs to no request
        elif "id" in message:
            entry.client.pushed[id_key(message["id"])] = entry, key_of(message)
            if REQUEST in meta_of(message):
                meta_of(message)[REQUEST] = entry.request

    def _end(self, entry: ReplayedEntry) -> None:
        if entry in self._begun:
            self._begun.remove(entry)

    # --- what was not recorded ------------------------------------------------------------------------------------

    def _unrecorded(self, client: ReplayClient, message: JsonObject) -> None:
        made = self._greeting(message)
        if made is None:
            self._drift(client, message["id"], drift_of_request(message, list(self._candidates(message))))
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
        used = {str(entry.turns[0].message.get("method")).partition("/")[0] for entry in self._cassette.entries}
        result: JsonObject = {
            "resultType": "complete",
            "supportedVersions": [REVISION],
            "capabilities": {feature: {} for part, feature in _FEATURES.items() if part in used},
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {SERVER_INFO: {"name": "cassette", "version": "0"}},
        }
        return {"result": result}

    def _candidates(self, message: JsonObject) -> Iterator[Candidate]:
        for begun in self._begun:
            for index, recorded in begun.awaited():
                yield Candidate(begun.number, index + 1, recorded, self._bindings.known(begun.number))
        is_retry = "requestState" in params_of(message)
        for number, entry in enumerate(self._cassette.entries, 1):
            for index, turn in enumerate(entry.turns):
                if turn.client is not None and (index == 0 or is_retry):
                    yield Candidate(number, index + 1, turn.client, self._bindings.known(number))

    def _refuse(self, message: JsonObject, entry: ReplayedEntry, key: str | None) -> None:
        """End a call whose question was answered in another way."""
        self._end(entry)
        entry.client.asked.pop(id_key(entry.request), None)
        known = self._bindings.known(entry.number)
        candidates = [
            Candidate(entry.number, index + 1, recorded, known)
            for index, recorded in entry.awaited()
            if filled(recorded.get("id"), known) == message.get("id")
        ]
        drift = drift_from(message, candidates, "the answer is not the one that was recorded", key)
        named = msgspec.structs.replace(drift, title=f"{entry.entry.title}, an answer")
        self._drift(entry.client, entry.request, named)

    def _drift(self, client: ReplayClient, request: Any, drift: Drift) -> None:
        self.drifts.append(drift)
        self._on_drift(drift)
        error = {"code": REFUSED, "message": f"Not as recorded: {drift.title}: {drift.reason}"}
        self._reply(client, request, {"error": error})

    def _reply(self, client: ReplayClient, request: Any, made: JsonObject) -> None:
        reply: JsonObject = {"jsonrpc": "2.0", "id": request, **made}
        self._replies.append(ReplayMessage(client=client, message=reply, to=request, is_reply=True))


def _first_round(entry: CassetteEntry) -> list[CassetteTurn]:
    """Return the turns of an entry up to its first reply."""
    replies = [
        number for number, turn in enumerate(entry.turns, 1) if turn.client is None and _kind(turn.message) == "answer"
    ]
    return entry.turns[: min(replies, default=None)]


def _kind(message: JsonObject) -> str:
    if message.get("method") is None:
        return "answer"
    return "request" if "id" in message else "notification"


Inbox = asyncio.Queue[ReplayMessage | None]


class Inboxes:
    """Passes the messages of a replay on to those that wait for them. None ends an inbox."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._inboxes: dict[tuple[ReplayClient, Any], Inbox] = {}
        """What belongs to a request, by its id; under None, what belongs to none."""

    def take(self, client: ReplayClient, message: object) -> None:
        """Take a message of a client."""
        for each in self._replay.answer(client, message):
            (self._inboxes.get((each.client, each.to)) or self.of(each.client)).put_nowait(each)

    def of(self, client: ReplayClient) -> Inbox:
        """Return the inbox of what belongs to no request."""
        return self._inboxes.setdefault((client, None), asyncio.Queue())

    @contextlib.contextmanager
    def request(self, client: ReplayClient, message: JsonObject) -> Generator[Inbox]:
        """Take a request of a client, and open the inbox of what belongs to it."""
        place = client, message["id"]
        self._inboxes[place] = asyncio.Queue()
        try:
            self.take(client, message)
            yield self._inboxes[place]
        finally:
            del self._inboxes[place]
            self._replay.cancel(client, message["id"])

    def close(self) -> None:
        for inbox in self._inboxes.values():
            inbox.put_nowait(None)
