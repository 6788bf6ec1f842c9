"""The inspector: the instances of one server, the calls that are made to it, and their forks."""

import asyncio
import os
import re
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from antiphon import __version__
from antiphon.client.inbox import Inbox
from antiphon.client.results import Pending, check_call
from antiphon.errors import AntiphonError, CallFailed
from antiphon.escaping import compact
from antiphon.inspect import exports
from antiphon.inspect.calls import How, InspectedCall, InspectedRound, Parent, log_of, shown, summary_of
from antiphon.inspect.differences import differs
from antiphon.inspect.feed import Feed
from antiphon.inspect.instance import Instance, Spot
from antiphon.inspect.traffic import LONGEST, MOST_LOOSE, Frame, bounded
from antiphon.rounds.opened_token import TokenKeys
from antiphon.rounds.token import parse_keys
from antiphon.testing.servers import KEYS
from antiphon.transports.link import Authorizer
from antiphon.types import JsonObject
from antiphon.wire.revisions import LATEST, REVISION

MOST_CALLS: Final = 100
MOST_UNDER_WAY: Final = 50
_MOST_NOTICES: Final = 200
_LOOK: Final = 1.0
"""Seconds between two looks at the server's file."""
_RARELY: Final = 0.05
"""Seconds at least between two events of one call's progress."""
_LONG: Final = 86_400.0
"""Seconds since which an expired token is over."""
_FILE: Final = re.compile(r"(?<=\.py):[\w.]+$")
"""The name of the Server in a file."""
_NO_TOKEN: Final = "The older era has no token: the server keeps the call open instead"  # noqa: S105 -- a sentence


class Absent(LookupError):
    """There is no such call."""


class Unfit(ValueError):
    """What is asked for is not possible; the text says why."""


class Inspector:
    """All that the page shows, and does."""

    def __init__(
        self,
        spot: Spot,
        *,
        era: str = "auto",
        auth: Authorizer | None = None,
        inbox: Inbox | None = None,
    ) -> None:
        self.spot = spot
        self.feed = Feed()
        self.status = "connecting"
        self.problem: str | None = None
        self.inbox = inbox
        self.inbox_path: str | None = None
        """Where the page of the inbox is."""
        self.offers: JsonObject = {"tools": [], "prompts": [], "resources": [], "templates": [], "problems": []}
        self.notices: deque[JsonObject] = deque(maxlen=_MOST_NOTICES)
        self.subscriptions: list[str] = []
        self._era = era
        self._auth = auth
        self._calls: dict[str, InspectedCall] = {}
        self._main = self._instance(era)
        self._other: Instance | None = None
        self._fresh: dict[str, Instance] = {}
        """Instances that were started for one call, and end with it."""
        self._last = 0
        self._told = 0.0
        self._opening = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    # --- the server -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Connect, and look after the connection until this is cancelled."""
        await self.restart()
        changed = self._changed_at()
        try:
            while True:
                await asyncio.sleep(_LOOK)
                found = self._changed_at()
                # A call of the older era lives in the process: let it end first.
                if found != changed and not self._holds_process():
                    changed = found
                    await self.restart()
        finally:
            self.feed.close()
            for call in self._calls.values():
                await call.cancel()
            await self._close()

    async def restart(self) -> None:
        """Connect anew; a server that we started is started again, with the same keys."""
        async with self._opening:
            self._state("connecting")
            for call in list(self._calls.values()):
                if not call.is_modern:
                    await call.cancel("The server was restarted, and the older era keeps a call in its process")
            await self._close()
            self._main = self._instance(self._era)
            try:
                await self._main.open()
            except (AntiphonError, OSError, ValueError) as fault:
                self._state("failed", str(fault))
                return
            for call in self._calls.values():
                call.instance = self._main if call.revision == self.revision else call.instance
            await self.refresh()
            self._main.listen_to_lists()
            self._main.listen(resources=self.subscriptions)
            self._state("connected")

    async def refresh(self) -> None:
        """List again what the server offers."""
        if self._main.is_open:
            self.offers = await self._main.offers()

    @property
    def revision(self) -> str:
        return self._main.client.protocol_version if self._main.is_open else REVISION

    @property
    def eras(self) -> list[str]:
        """The revisions in which calls can be made."""
        return [REVISION, LATEST] if self.revision == REVISION and self._era == "auto" else [self.revision]

    async def in_era(self, revision: str | None = None) -> Instance:
        """Return an instance that speaks a revision, once it is connected."""
        async with self._opening:
            if not self._main.is_open:
                raise Unfit(f"The server is not there: {self.problem}")
            revision = revision or self.revision
            if revision == self.revision:
                return self._main
            if revision not in self.eras:
                raise Unfit(f"{revision!r} is not spoken here: {', '.join(self.eras)}")
            if self._other is None or not self._other.is_open:
                self._other = self._instance(revision)
                await self._other.open()
            return self._other

    def _instance(self, era: str) -> Instance:
        def lost(fault: CallFailed) -> None:
            if made is self._main and made.is_open and self.status == "connected":
                self._state("lost", str(fault))

        made = Instance(self.spot, era=era, auth=self._auth, hear=self._hear, lost=lost, stray=self._stray)
        return made

    def _keys(self, instance: Instance) -> TokenKeys | None:
        given = {**os.environ, **self.spot.env}.get(KEYS, "").strip()
        server = instance.client.server
        return None if not given or server is None else TokenKeys(parse_keys(given), audience=server.name)

    def _holds_process(self) -> bool:
        return any(call.status == "running" or not (call.is_over or call.is_modern) for call in self._calls.values())

    def _changed_at(self) -> int:
        try:
            return 0 if self.spot.file is None else Path(_FILE.sub("", self.spot.file)).stat().st_mtime_ns
        except OSError:
            return 0

    async def _close(self) -> None:
        others = [self._other] if self._other is not None else []
        for instance in (self._main, *others, *self._fresh.values()):
            with suppress(AntiphonError, OSError):
                await instance.close()
        self._other = None
        self._fresh.clear()

    # --- what it says ---------------------------------------------------------------------------------------------

    def _hear(self, message: JsonObject, call: object) -> None:
        method, params = message.get("method"), message.get("params")
        about: JsonObject = params if isinstance(params, dict) else {}
        id_ = None
        if isinstance(call, InspectedCall):
            call.hears(method, about)
            call.receives(message)
            id_ = call.id
        if method == "notifications/progress":
            if isinstance(call, InspectedCall) and time() - self._told > _RARELY:
                self._told = time()
                self.feed.tell("progress", {"call": id_, "round": len(call.rounds), **(call.rounds[-1].progress or {})})
        elif method == "notifications/message":
            self._notice("log", {"call": id_, **log_of(about)})
        else:
            if self.status == "lost":
                self._soon(self._back())
            if method != "notifications/subscriptions/acknowledged":
                told, _ = bounded({"method": method, "params": about}, LONGEST // 8)
                self._notice("notification", {"method": str(method)[:200], **_map(told), "at": time()})
            if isinstance(method, str) and method.endswith("/list_changed"):
                self._soon(self._list_again(method.split("/")[1]))

    async def _back(self) -> None:
        await self.refresh()
        self._state("connected")

    async def _list_again(self, kind: str) -> None:
        await self.refresh()
        self.feed.tell("offers", {"kind": kind})

    def _stray(self, line: str) -> None:
        self._notice("stderr", {"text": line[: LONGEST // 8], "at": time()})

    def _notice(self, kind: str, data: JsonObject) -> None:
        self.notices.append({"kind": kind, **data})
        self.feed.tell(kind, data)

    def _state(self, status: str, problem: str | None = None) -> None:
        self.status, self.problem = status, problem
        self.feed.tell("status", {"status": status, "problem": problem})

    def _soon(self, work: Any) -> None:
        task = asyncio.create_task(_quietly(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- what the page reads --------------------------------------------------------------------------------------

    def state(self) -> JsonObject:
        client = self._main.client if self._main.is_open else None
        found = self._main.discovery if client is not None else None
        return {
            "version": __version__,
            "target": {"text": self.spot.text, "label": self.spot.label, "kind": self.spot.kind},
            "status": self.status,
            "problem": self.problem,
            "server": None if client is None or client.server is None else msgspec.to_builtins(client.server),
            "instructions": None if found is None else found.instructions,
            "capabilities": {} if found is None else found.capabilities,
            "era": self.revision,
            "eras": self.eras,
            "keys": client is not None and self._keys(self._main) is not None,
            "inbox": self.inbox_path,
            "offers": self.offers,
            "calls": self.summaries(),
            "subscriptions": self.subscriptions,
            "notices": list(self.notices),
        }

    def summaries(self) -> list[JsonObject]:
        """Return the calls, newest first."""
        return [summary_of(call) for call in reversed(self._calls.values())]

    def call(self, id_: str) -> InspectedCall:
        if id_ not in self._calls:
            raise Absent(f"There is no call {id_}: it may have been forgotten")
        return self._calls[id_]

    def shown(self, id_: str) -> JsonObject:
        """Return a call as the page shows it."""
        call = self.call(id_)
        parent = self._calls.get(call.parent.id) if call.parent is not None else None
        forks = [self._calls[fork] for fork in call.forks if fork in self._calls]
        return {
            **shown(call),
            "forks": [{**summary_of(fork), **_parentage(fork)} for fork in forks],
            "differs": None if parent is None else differs(parent, call),
            "can": self._can(call),
        }

    def _can(self, call: InspectedCall) -> JsonObject:
        asks = any(round_.questions for round_ in call.rounds)
        token: bool | str = True if call.is_modern else _NO_TOKEN
        unasked: bool | str = True if asks else "Nothing was asked, so there is no round to fork at"
        sealed = any(round_.opened is not None for round_ in call.rounds) or "The keys of the server are not at hand"
        whole = call.recorded is not None or "Its messages are too large to be kept"
        over = call.status in {"done", "failed"} or "The call is not over yet"
        other = len(self.eras) > 1 or f"The server speaks {self.revision} alone"
        waits = call.status == "waiting" or "It does not wait for an answer"
        return {
            "cancel": not call.is_over or "The call is over",
            "later": _all(waits, token),
            "fork": {
                "answer": unasked,
                "twice": _all(token, unasked),
                "spoiled": _all(token, unasked),
                "expired": _all(token, unasked, sealed),
                "fresh": _all(unasked, self._can_start()),
                "era": other,
            },
            "test": over,
            "cassette": _all(over, whole),
            "replay_safety": self._can_check(call),
        }

    def _can_start(self) -> bool | str:
        return self.spot.kind != "url" or "The server is behind a URL: no other instance of it can be started here"

    def _can_check(self, call: InspectedCall) -> bool | str:
        if self.spot.file is None:
            return "Only a server that is started from its file can be observed"
        return call.is_modern or "The older era runs a call once, so nothing is replayed"

    # --- what the page does ---------------------------------------------------------------------------------------

    async def begin(self, method: str, params: JsonObject, era: str | None = None) -> InspectedCall:
        check_call(method, params)
        return self._started(await self.in_era(era), method, params)

    def subscribe(self, uri: str, *, on: bool) -> None:
        """Be told when a resource changes, or no more."""
        kept = [each for each in self.subscriptions if each != uri]
        self.subscriptions = [*kept, uri][-_MOST_NOTICES:] if on else kept
        if self._main.is_open:
            self._main.listen(resources=self.subscriptions)

    async def complete(self, given: Mapping[str, Any]) -> JsonObject:
        """Return suggestions; none if the server has none to make."""
        try:
            made: JsonObject = msgspec.to_builtins(await (await self.in_era()).client.complete(**given))
        except CallFailed:
            made = {"values": []}
        return made

    async def fork(self, id_: str, number: int, how: How, answers: JsonObject | None) -> InspectedCall:
        """Go on from a round of a call in another way."""
        call = self.call(id_)
        possible = self._can(call)["fork"].get(how, f"There is no way to fork that is called {how!r}")
        if possible is not True:
            raise Unfit(str(possible))
        if how == "era":
            revision = next(each for each in self.eras if each != call.revision)
            return self._again(call, await self.in_era(revision), Parent(id=id_, round=0, how=how), {})
        if not 0 < number <= len(call.rounds) or not call.rounds[number - 1].questions:
            raise Unfit(f"Round {number} asked nothing: fork at one that did")
        round_ = call.rounds[number - 1]
        given = answers or round_.answers
        if given is None or (how == "answer" and answers is None):
            raise Unfit("Say what to answer: this round has no answer yet" if given is None else "Say what to answer")
        self._check_room()
        instance = await self._another(call.revision) if how == "fresh" else call.instance
        parent = Parent(id=id_, round=number, how=how)
        if round_.pending is None:
            note = "The older era has no token: the call was made again from its beginning, with the same answers"
            return self._again(call, instance, replace(parent, note=note), given, number)
        pending = replace(round_.pending, state=self._state_for(how, call, round_.pending))
        fork = self._new(instance, call.method, call.params, parent)
        fork.rounds = [replace(each, frames=list(each.frames), logs=list(each.logs)) for each in call.rounds[:number]]
        fork.rounds[-1] = _answered(fork.rounds[-1], given)
        fork.turns = call.turns[:number]
        fork.start(pending, {key: given[key] for key in pending.questions if key in given})
        return fork

    async def later(self, id_: str) -> JsonObject:
        """Put a call that waits into the inbox; without one, return it as a file, for ``antiphon resume``."""
        call = self.call(id_)
        possible = self._can(call)["later"]
        pending = call.rounds[-1].pending if possible is True else None
        if pending is None:
            raise Unfit(str(possible))
        if self.inbox is not None:
            ticket = await self.inbox.put(call.instance.client, pending)
            await call.cancel(f"The call waits in the inbox, under {ticket}")
            self._soon(self.inbox.result(ticket))
            return {"inbox": f"{self.inbox_path}{ticket}", "command": f"antiphon inbox show {ticket}"}
        name = f"{exports.stem(call.title)}.waiting.json"
        waiting: JsonObject = {"target": self.spot.text, "pending": msgspec.to_builtins(pending)}
        waiting |= {} if self.spot.folder is None else {"cwd": self.spot.folder}
        return {"inbox": None, "name": name, "text": compact(waiting), "command": f"antiphon resume {name}"}

    def checked(self, id_: str) -> InspectedCall:
        """Return a call whose replay safety can be checked."""
        call = self.call(id_)
        possible = self._can_check(call)
        if possible is not True:
            raise Unfit(str(possible))
        return call

    def loose_frames(self) -> list[Frame]:
        """Return what travelled and belongs to no call."""
        frames = [*self._main.traffic.loose, *(self._other.traffic.loose if self._other is not None else ())]
        return sorted(frames, key=lambda frame: frame.at)[-MOST_LOOSE:]

    def _state_for(self, how: How, call: InspectedCall, pending: Pending) -> str | None:
        token = pending.state
        if token is None or how not in {"spoiled", "expired"}:
            return token
        if how == "spoiled":
            place = len(token) // 2
            return f"{token[:place]}{'A' if token[place] != 'A' else 'B'}{token[place + 1 :]}"
        assert call.keys is not None
        long_ago = time() - _LONG
        return call.keys.seal(token, method=call.method, params=call.params, now=long_ago, entropy=os.urandom(12))

    def _again(
        self, call: InspectedCall, instance: Instance, parent: Parent, changed: JsonObject, until: int = 0
    ) -> InspectedCall:
        """Make a call again from its beginning, with the answers that it got before round ``until``, or all of them."""
        made = self._new(instance, call.method, call.params, parent)
        for round_ in call.rounds[: until - 1] if until else call.rounds:
            made.known |= round_.answers or {}
        made.known |= changed
        made.start()
        return made

    async def _another(self, revision: str) -> Instance:
        """Start another instance, with the same keys."""
        made = self._instance(revision)
        await made.open()
        return made

    def _started(self, instance: Instance, method: str, params: JsonObject) -> InspectedCall:
        call = self._new(instance, method, params, None)
        call.start()
        return call

    def _new(self, instance: Instance, method: str, params: JsonObject, parent: Parent | None) -> InspectedCall:
        self._check_room()
        self._last += 1
        keys = self._keys(instance)
        call = InspectedCall(f"c{self._last}", instance, method, params, keys=keys, changed=self._moved, parent=parent)
        self._calls[call.id] = call
        if parent is not None and parent.id in self._calls:
            self._calls[parent.id].forks.append(call.id)
        if instance is not self._main and instance is not self._other:
            self._fresh[call.id] = instance
        for old in [each for each in self._calls.values() if each.is_over][: max(len(self._calls) - MOST_CALLS, 0)]:
            del self._calls[old.id]
            self.feed.tell("gone", {"id": old.id})
        return call

    def _check_room(self) -> None:
        if sum(not call.is_over for call in self._calls.values()) >= MOST_UNDER_WAY:
            raise Unfit(f"{MOST_UNDER_WAY} calls are under way or wait: answer or give up some of them first")

    def _moved(self, call: InspectedCall) -> None:
        self.feed.tell("call", summary_of(call))
        if not call.is_over:
            return
        fresh = self._fresh.pop(call.id, None)
        if fresh is not None:
            self._soon(fresh.close())
        if self.status == "lost" and call.instance is self._main and call.status == "done":
            self._soon(self._back())


async def _quietly(work: Any) -> None:
    with suppress(AntiphonError, OSError):
        await work


def _all(*conditions: bool | str) -> bool | str:
    """Return True, or the first reason why not."""
    return next((why for why in conditions if why is not True), True)


def _map(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {"params": value}


def _parentage(fork: InspectedCall) -> JsonObject:
    return {} if fork.parent is None else {"round": fork.parent.round, "how": fork.parent.how}


def _answered(round_: InspectedRound, answers: JsonObject) -> InspectedRound:
    return replace(round_, answers=answers, status="answered", person_seconds=round_.person_seconds or 0.0)
