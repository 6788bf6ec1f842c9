"""The stage: a cassette answers clients. Messages in, messages out; no I/O, and nothing happens by itself."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from antiphon.testing.cassette.format import Cassette, Entry, Ref, Turn, filled, parts_of, title_of
from antiphon.testing.cassette.matching import UNBOUND, Candidate, Drift, Match, content, drift_from
from antiphon.testing.cassette.volatile import HINT, key_of
from antiphon.types import JsonObject
from antiphon.wire.revisions import PROGRESS_TOKEN, PROTOCOL_VERSION, REVISION, SERVER_INFO

Mint = Callable[[str, int], Any]
"""A fresh value for a placeholder's kind; the number tells one from the other."""

DRIFTED: Final = -32603
_METHOD_NOT_FOUND: Final = -32601
_REPEATABLE: Final = frozenset(
    {"initialize", "server/discover", "ping"}
    | {"tools/list", "prompts/list", "resources/list", "resources/templates/list"}
)
"""What only looks: a client may look as often as it likes, and gets what was recorded last."""
_THEN: Final = "2000-01-01T00:00:00Z"
_FEATURES: Final = {"tools": "tools", "prompts": "prompts", "resources": "resources", "completion": "completions"}


class Visitor:
    """A client, as long as its ids are unique: a connection, a session, or a single POST."""

    def __init__(self) -> None:
        self.session: str | None = None
        """Which of the recorded sessions it plays."""
        self.asked: dict[Any, Scene] = {}
        self.pushed: dict[Any, Scene] = {}
        self.count = 0


class Cue(msgspec.Struct, frozen=True, kw_only=True):
    """A message to a client. ``to`` is the id of the request on whose stream it goes; None: on none."""

    visitor: Visitor
    message: JsonObject | None
    to: Any = None
    is_reply: bool = False
    status: int | None = None
    headers: dict[str, str] = {}
    text: str | None = None


class Scene:
    """An entry that is being played."""

    __slots__ = ("at", "done", "entry", "number", "request", "values", "visitor")

    def __init__(self, number: int, entry: Entry, visitor: Visitor) -> None:
        self.number = number
        self.entry = entry
        self.visitor = visitor
        self.at = 0
        self.done: set[int] = set()
        """Turns of the client's that came before it was their turn."""
        self.request: Any = None
        """The id of the client's latest request."""
        self.values: dict[tuple[str, str], Any] = {}

    @property
    def turn(self) -> Turn | None:
        return self.entry.turns[self.at] if self.at < len(self.entry.turns) else None

    def answers(self) -> Iterator[tuple[int, Turn]]:
        """The client's turns that are still to come."""
        for index, turn in enumerate(self.entry.turns[self.at :], self.at):
            if turn.client is not None and index not in self.done:
                yield index, turn


class Stage:
    """Plays a cassette: ``heard(visitor, message)`` is what a client said, and gives what it is told."""

    def __init__(self, cassette: Cassette, mint: Mint, tell: Callable[[Drift], None] = lambda _: None) -> None:
        self._cassette = cassette
        self._mint = mint
        self._tell = tell
        self._left: dict[int, Entry] = dict(enumerate(cassette.entries, 1))
        self._scenes: list[Scene] = []
        """Those under way."""
        self._latest: dict[int, Scene] = {}
        """The latest scene of each entry that was begun."""
        self._over: set[int] = set()
        self._secrets: dict[str, Any] = {}
        """What clients have sent for each secret: the same one from then on."""
        self._cues: list[Cue] = []
        self.drifts: list[Drift] = []

    @property
    def unplayed(self) -> list[Entry]:
        """What clients did not ask for, or did not go on with to the end."""
        begun = {scene.number for scene in self._scenes if scene.turn is not None and scene.turn.after is None}
        return [
            entry
            for number, entry in enumerate(self._cassette.entries, 1)
            if (number in self._left or number in begun) and entry.turns[0].client is not None
        ]

    def heard(self, visitor: Visitor, message: object) -> list[Cue]:
        """A client's message, and all that is said because of it, to whomever."""
        self._cues = []
        for each in message if isinstance(message, list) else [message]:
            if not isinstance(each, dict):
                continue
            if each.get("method") is None:
                self._answer(visitor, each)
            elif "id" in each:
                self._request(visitor, each)
            else:
                self._note(visitor, each)
        self._wake(visitor)
        return self._cues

    def left(self, visitor: Visitor, request: Any) -> None:
        """A client no longer waits for an answer."""
        scene = visitor.asked.pop(_key(request), None)
        if scene is not None and scene in self._scenes:
            self._end(scene)

    # --- what clients say -----------------------------------------------------------------------------------------

    def _request(self, visitor: Visitor, message: JsonObject) -> None:
        scene = self._expecting(message) or self._beginning(visitor, message)
        if scene is None:
            self._unknown(visitor, message)
            return
        scene.visitor = visitor
        scene.request = message["id"]
        visitor.asked[_key(message["id"])] = scene
        self._take(scene, message)
        scene.at += 1
        self._play(scene)

    def _expecting(self, message: JsonObject) -> Scene | None:
        """The scene that a request goes on with."""
        for scene in self._scenes:
            turn = scene.turn
            if turn is not None and turn.client is not None and "id" in turn.client and "method" in turn.client:
                if self._fits(scene, turn.client, message):
                    return scene
                if self._echoes(scene, turn.client, message) and self._recast(scene, scene.at, message):
                    return scene
        return None

    def _beginning(self, visitor: Visitor, message: JsonObject) -> Scene | None:
        """The first entry that is left, and begins like this."""
        for number, entry in self._left.items():
            scene = Scene(number, entry, visitor)
            if self._is_for(entry, visitor, message) and self._fits(scene, entry.turns[0].client, message):
                return self._begin(number, visitor)
        if message["method"] in _REPEATABLE:
            for number, entry in reversed(list(enumerate(self._cassette.entries, 1))):
                scene = Scene(number, entry, visitor)
                if self._is_for(entry, visitor, message) and self._fits(scene, entry.turns[0].client, message):
                    return self._begin(number, visitor)
        return None

    def _is_for(self, entry: Entry, visitor: Visitor, message: JsonObject) -> bool:
        first = entry.turns[0].client
        if first is None or first.get("method") != message.get("method"):
            return False
        return entry.session is None or visitor.session in {None, entry.session} or message["method"] == "initialize"

    def _begin(self, number: int, visitor: Visitor) -> Scene:
        scene = Scene(number, self._cassette.entries[number - 1], visitor)
        self._left.pop(number, None)
        self._scenes.append(scene)
        self._latest[number] = scene
        if scene.entry.session is not None:
            visitor.session = scene.entry.session
        return scene

    def _answer(self, visitor: Visitor, message: JsonObject) -> None:
        """An answer to a question that was put to the client while its call was open."""
        scene = visitor.pushed.pop(_key(message.get("id")), None)
        if scene is None or scene not in self._scenes:
            return
        index = self._answered(scene, message)
        if index is None:
            expected = [
                Candidate(scene.number, index + 1, turn.client, self._known(scene))
                for index, turn in scene.answers()
                if turn.client is not None and self._same_id(scene, turn.client, message)
            ]
            reason = "the answer is not the one that was recorded"
            self._refuse(scene, drift_from(message, expected, reason, self._key_of(scene, message)))
            return
        scene.done.add(index)
        self._take(scene, message, index)
        self._play(scene)

    def _answered(self, scene: Scene, message: JsonObject) -> int | None:
        for index, turn in scene.answers():
            if turn.client is not None and self._same_id(scene, turn.client, message):
                if self._fits(scene, turn.client, message) or self._recast(scene, index, message):
                    return index
                return None
        return None

    def _key_of(self, scene: Scene, answer: JsonObject) -> str | None:
        for turn in scene.entry.turns:
            if turn.server is not None and filled(turn.server.get("id"), self._known(scene)) == answer.get("id"):
                return key_of(turn.server)
        return None

    def _same_id(self, scene: Scene, recorded: JsonObject, message: JsonObject) -> bool:
        return "method" not in recorded and filled(recorded.get("id"), self._known(scene)) == message.get("id")

    def _note(self, visitor: Visitor, message: JsonObject) -> None:
        """A notification: played if it was recorded, and no reason to complain otherwise."""
        if message["method"] == "notifications/cancelled":
            params = message.get("params")
            self.left(visitor, params.get("requestId") if isinstance(params, dict) else None)
            return
        for scene in self._scenes:
            turn = scene.turn
            is_note = turn is not None and turn.client is not None and "id" not in turn.client
            if turn is not None and is_note and scene.visitor is visitor and self._fits(scene, turn.client, message):
                scene.at += 1
                self._play(scene)
                return
        for number, entry in self._left.items():
            if self._is_for(entry, visitor, message) and "id" not in (entry.turns[0].client or {}):
                scene = self._begin(number, visitor)
                scene.at += 1
                self._play(scene)
                return

    # --- whether it was recorded ----------------------------------------------------------------------------------

    def _fits(self, scene: Scene, recorded: JsonObject | None, message: JsonObject) -> bool:
        return recorded is not None and Match(self._known(scene)).fits(content(recorded), content(message))

    def _echoes(self, scene: Scene, recorded: JsonObject, message: JsonObject) -> bool:
        """Whether a request brings back the token that this scene gave out."""
        ref = (recorded.get("params") or {}).get("requestState")
        sent = (message.get("params") or {}).get("requestState")
        return ref is not None and sent is not None and filled(ref, self._known(scene)) == sent

    def _recast(self, scene: Scene, index: int, message: JsonObject) -> bool:
        """Play another entry that went the same way up to here, and goes on like this.

        The same call may have been recorded with several answers, and nothing tells which it is before they come.
        """
        so_far = scene.entry.turns[: scene.at]
        for number, entry in list(self._left.items()):
            if entry.turns[: scene.at] == so_far and self._goes_on(scene, entry, index, message):
                self._left[scene.number] = scene.entry
                del self._left[number]
                self._left = dict(sorted(self._left.items()))
                scene.number, scene.entry = number, entry
                self._latest[number] = scene
                return True
        for other in self._scenes:
            same = other is not scene and other.at == scene.at and other.done == scene.done
            if same and other.entry.turns[: scene.at] == so_far and self._goes_on(scene, other.entry, index, message):
                scene.number, other.number = other.number, scene.number
                scene.entry, other.entry = other.entry, scene.entry
                self._latest[scene.number], self._latest[other.number] = scene, other
                return True
        return False

    def _goes_on(self, scene: Scene, entry: Entry, index: int, message: JsonObject) -> bool:
        return index < len(entry.turns) and self._fits(scene, entry.turns[index].client, message)

    def _take(self, scene: Scene, message: JsonObject, index: int | None = None) -> None:
        """Remember what the placeholders of a client's turn stand for this time."""
        recorded = scene.entry.turns[scene.at if index is None else index].client
        assert recorded is not None
        match = Match(self._known(scene))
        match.fits(content(recorded), content(message))
        for ref, value in match.bound.items():
            if ref.kind == "secret":
                self._secrets[ref.name] = value
            else:
                self._scope(scene, ref)[ref.kind, ref.name] = value
        for pattern, value in ((recorded.get("id"), message.get("id")), (_progress(recorded), _progress(message))):
            for part in parts_of(pattern) if isinstance(pattern, str) else ():
                if isinstance(part, Ref) and value is not None:
                    scene.values[part.kind, part.name] = value

    # --- what is said ---------------------------------------------------------------------------------------------

    def _play(self, scene: Scene) -> None:
        """Say what comes next, up to where the client has to speak."""
        while (turn := scene.turn) is not None:
            if turn.client is not None:
                if scene.at not in scene.done:
                    return
            elif turn.after is not None and not self._is_past(turn.after):
                return
            else:
                self._say(scene, turn)
            scene.at += 1
        self._end(scene)

    def _say(self, scene: Scene, turn: Turn) -> None:
        if turn.server is None:
            self._cue(scene, Cue(visitor=scene.visitor, message=None, to=scene.request, is_reply=True), turn)
            scene.visitor.asked.pop(_key(scene.request), None)
            return
        method = turn.server.get("method")
        if method == "notifications/progress" and not self._wants_progress(scene, turn.server):
            return
        message: JsonObject = {"jsonrpc": "2.0", **filled(turn.server, lambda ref: self._value(scene, ref))}
        if method is None:
            scene.visitor.asked.pop(_key(scene.request), None)
        elif "id" in message:
            scene.visitor.pushed[_key(message["id"])] = scene
            _hint_at(scene.request, message)
        self._cue(scene, Cue(visitor=scene.visitor, message=message, to=scene.request, is_reply=method is None), turn)

    def _cue(self, scene: Scene, cue: Cue, turn: Turn) -> None:
        headers = {name: filled(value, lambda ref: self._value(scene, ref)) for name, value in turn.headers.items()}
        text = None if turn.text is None else str(filled(turn.text, lambda ref: self._value(scene, ref)))
        self._cues.append(msgspec.structs.replace(cue, status=turn.status, headers=headers, text=text))

    def _wants_progress(self, scene: Scene, recorded: JsonObject) -> bool:
        """A client that gave no token hears of no progress."""
        pattern = (recorded.get("params") or {}).get(PROGRESS_TOKEN)
        parts = parts_of(pattern) if isinstance(pattern, str) else []
        return not any(isinstance(part, Ref) and self._known(scene)(part) is UNBOUND for part in parts)

    def _end(self, scene: Scene) -> None:
        if scene in self._scenes:
            self._scenes.remove(scene)
        self._over.add(scene.number)

    def _wake(self, visitor: Visitor) -> None:
        """What a server sent on its own comes when what was before it has been played."""
        while True:
            count = len(self._cues), len(self._over), len(self._scenes)
            for scene in list(self._scenes):
                if scene.turn is not None and scene.turn.after is not None:
                    self._play(scene)
            for number, entry in list(self._left.items()):
                first = entry.turns[0]
                if first.client is None and (first.after is None or self._is_past(first.after)):
                    cause = None if first.after is None else self._latest.get(first.after)
                    self._play(self._begin(number, visitor if cause is None else cause.visitor))
            if count == (len(self._cues), len(self._over), len(self._scenes)):
                return

    def _is_past(self, number: int) -> bool:
        scene = self._latest.get(number)
        if number in self._over or scene is None:
            return number in self._over
        return scene.turn is not None and scene.turn.after is not None

    # --- what was not recorded ------------------------------------------------------------------------------------

    def _unknown(self, visitor: Visitor, message: JsonObject) -> None:
        made = self._opening(message)
        if made is not None:
            reply: JsonObject = {"jsonrpc": "2.0", "id": message["id"], **made}
            self._cues.append(Cue(visitor=visitor, message=reply, to=message["id"], is_reply=True))
            return
        candidates = list(self._candidates(message))
        drift = drift_from(message, candidates, self._reason(message, candidates))
        self._drift(visitor, message["id"], drift)

    def _opening(self, message: JsonObject) -> JsonObject | None:
        """How clients begin is their own affair: what a recording does not have of it follows from the rest."""
        requests = [entry.turns[0].client for entry in self._cassette.entries if entry.turns[0].client is not None]
        methods = {str(request.get("method")) for request in requests if request is not None}
        if message["method"] == "ping":
            return {"result": {}}
        if message["method"] != "server/discover":
            return None
        if self._cassette.is_old:
            return {"error": {"code": _METHOD_NOT_FOUND, "message": "Method not found: server/discover"}}
        spoken_of = {method.partition("/")[0] for method in methods}
        offered: JsonObject = {feature: {} for part, feature in _FEATURES.items() if part in spoken_of}
        result: JsonObject = {
            "resultType": "complete",
            "supportedVersions": self._revisions(),
            "capabilities": offered,
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {SERVER_INFO: self._server()},
        }
        return {"result": result}

    def _revisions(self) -> list[str]:
        spoken = [party.meta.get(PROTOCOL_VERSION) for party in self._cassette.clients]
        return sorted({revision for revision in spoken if isinstance(revision, str)}) or [REVISION]

    def _server(self) -> JsonObject:
        for entry in self._cassette.entries:
            for turn in entry.turns:
                result = (turn.server or {}).get("result")
                meta = result.get("_meta") if isinstance(result, dict) else None
                if isinstance(meta, dict) and SERVER_INFO in meta:
                    return dict(meta[SERVER_INFO])
        return {"name": "cassette", "version": "0"}

    def _candidates(self, message: JsonObject) -> Iterator[Candidate]:
        for scene in self._scenes:
            turn = scene.turn
            if turn is not None and turn.client is not None:
                yield Candidate(scene.number, scene.at + 1, turn.client, self._known(scene))
        for number, entry in enumerate(self._cassette.entries, 1):
            for index, turn in enumerate(entry.turns):
                is_retry = index > 0 and "requestState" in (message.get("params") or {})
                if turn.client is not None and (index == 0 or is_retry):
                    scene = self._latest.get(number) or Scene(number, entry, Visitor())
                    yield Candidate(number, index + 1, turn.client, self._known(scene))

    def _reason(self, message: JsonObject, candidates: list[Candidate]) -> str:
        same = [each for each in candidates if each.message.get("method") == message["method"]]
        if not same:
            methods = sorted({title_of({"method": each.message.get("method")}) for each in candidates})
            return f"no such request was recorded; there are {', '.join(methods) or 'none at all'}"
        times = sum(Match(each.known).fits(content(each.message), content(message)) for each in same)
        if times:
            return f"it was recorded {'once' if times == 1 else f'{times} times'}, and this is one more"
        if any(_differs_in_state(each, message) for each in same):
            sent = (message.get("params") or {}).get("requestState")
            if sent is None:
                return "it brings no requestState back, and the one that was recorded does"
            return "its requestState is not the one that this replay gave out"
        return "it is not what was recorded"

    def _refuse(self, scene: Scene, drift: Drift) -> None:
        """A call whose questions were answered in another way ends here."""
        self._end(scene)
        scene.visitor.asked.pop(_key(scene.request), None)
        call = msgspec.structs.replace(drift, title=f"{scene.entry.title}, an answer")
        self._drift(scene.visitor, scene.request, call)

    def _drift(self, visitor: Visitor, request: Any, drift: Drift) -> None:
        self.drifts.append(drift)
        self._tell(drift)
        error = {"code": DRIFTED, "message": f"Not as recorded: {drift.title}: {drift.reason}"}
        reply: JsonObject = {"jsonrpc": "2.0", "id": request, "error": error}
        self._cues.append(Cue(visitor=visitor, message=reply, to=request, is_reply=True))

    # --- placeholders ---------------------------------------------------------------------------------------------

    def _scope(self, scene: Scene, ref: Ref) -> dict[tuple[str, str], Any]:
        if ref.entry is None or ref.entry == scene.number:
            return scene.values
        if ref.entry not in self._latest:
            self._latest[ref.entry] = Scene(ref.entry, self._cassette.entries[ref.entry - 1], scene.visitor)
        return self._latest[ref.entry].values

    def _known(self, scene: Scene) -> Callable[[Ref], Any]:
        def known(ref: Ref) -> Any:
            if ref.kind == "secret":
                return self._secrets.get(ref.name, UNBOUND)
            holder = scene if ref.entry is None else self._latest.get(ref.entry)
            return UNBOUND if holder is None else holder.values.get((ref.kind, ref.name), UNBOUND)

        return known

    def _value(self, scene: Scene, ref: Ref) -> Any:
        """The value of a placeholder that the server's side says: a fresh one if there is none yet."""
        if ref.kind == "time":
            return _THEN
        if ref.kind == "secret":
            return self._secrets.get(ref.name, "secret")
        values = self._scope(scene, ref)
        if (ref.kind, ref.name) not in values:
            values[ref.kind, ref.name] = self._fresh(scene, ref)
        return values[ref.kind, ref.name]

    def _fresh(self, scene: Scene, ref: Ref) -> Any:
        number = int(ref.name)
        match ref.kind:
            case "id" | "progress":
                scene.visitor.count += 1
                return scene.visitor.count
            case "text":
                return f"text-{scene.number if ref.entry is None else ref.entry}-{number}"
            case "integer":
                return number
            case "number":
                return number + 0.5
            case "boolean":
                return False
            case _:
                return self._mint(ref.kind, number)


def _differs_in_state(candidate: Candidate, message: JsonObject) -> bool:
    """Whether only the token is another one, or is not there."""
    recorded, sent = content(candidate.message), content(message)
    if "requestState" not in recorded.get("params", {}):
        return False
    without = [
        {**each, "params": {name: value for name, value in each.get("params", {}).items() if name != "requestState"}}
        for each in (recorded, sent)
    ]
    return Match(candidate.known).fits(without[0], without[1])


def _hint_at(request: Any, question: JsonObject) -> None:
    """A question that names the call it belongs to names the one of this client."""
    params = question.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if isinstance(meta, dict) and HINT in meta:
        meta[HINT] = request


def _progress(message: JsonObject) -> Any:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return meta.get(PROGRESS_TOKEN) if isinstance(meta, dict) else None


def _key(id_: Any) -> tuple[type, Any]:
    return type(id_), id_ if isinstance(id_, str | int | float) else repr(id_)
