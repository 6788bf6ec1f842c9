"""Verifying: a recording's requests go to a live server, and what comes back is held against the recording."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from antiphon.errors import Disconnected
from antiphon.testing.cassette.format import TIME, Cassette, CassetteBroken, Entry, Ref, Turn, filled, refs_in
from antiphon.testing.cassette.matching import MISSING, UNBOUND, Match, diff_of, masked
from antiphon.testing.cassette.replay_server import fresh
from antiphon.testing.cassette.secrets import Redaction, header_secrets
from antiphon.testing.cassette.volatile import without_hint
from antiphon.testing.cassette.wire import Came, Wire
from antiphon.types import JsonObject
from antiphon.wire.headers import encode_value
from antiphon.wire.revisions import METHODS, PROTOCOL_VERSION

Values = dict[tuple[str, str], Any]
_TIMEOUT: Final = 10.0
_SILENCE: Final = Came()
_OF_A_CALL: Final = frozenset({"notifications/progress", "notifications/message"})
"""Notifications that belong to a call; others come when they come."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one entry."""

    number: int
    title: str
    status: Literal["same", "differs", "skipped"]
    reason: str = ""
    diff: str = ""


class NotStarted(Disconnected):
    """The server was not there to be asked."""


class Verification:
    """Plays the client's side of a cassette: ``async for verdict in Verification(cassette, connect).verdicts()``."""

    def __init__(
        self,
        cassette: Cassette,
        connect: Callable[[], Wire],
        *,
        secrets: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = _TIMEOUT,
        notifications: bool = True,
    ) -> None:
        self._cassette = cassette
        self._connect = connect
        sent = self._secret_headers()
        self._secrets: dict[str, str] = {}
        """What was given, by name: a header's value has its parts beside it."""
        self._with_wire = {name.lower() for name in headers or {}}
        for name, value in Redaction(sent).headers_in(headers or {}).items():
            self._secrets |= header_secrets(name, value)
        for name, value in (secrets or {}).items():
            self._secrets |= header_secrets(name, value) if name in sent else {name: value}
        self._missing = sent - self._secrets.keys()
        """Secret headers that were sent when this was recorded, and are not now."""
        self._seen: dict[str, Any] = {}
        """Secrets that the server has told."""
        self._timeout = timeout
        self._notifications = notifications
        self._wires: dict[str | None, Wire] = {}
        self._values: dict[int, Values] = {}
        self._ids = 0
        self._time = "2000-01-01T00:00:00Z"
        self._revisions: dict[str | None, str] = {}
        self._heard_any = False
        self._check_secrets()

    async def verdicts(self) -> AsyncIterator[Verdict]:
        """One after the other, in the order of the recording; NotStarted if nobody answers the first of them at all."""
        try:
            for number, entry in enumerate(self._cassette.entries, 1):
                self._values[number] = {}
                try:
                    yield await self._verdict(number, entry)
                except Disconnected as fault:
                    if not self._heard_any:
                        raise NotStarted(str(fault)) from None
                    self._wires.pop(entry.session, None)
                    yield Verdict(number=number, title=entry.title, status="differs", reason=str(fault))
        finally:
            for wire in self._wires.values():
                await wire.close()

    async def _verdict(self, number: int, entry: Entry) -> Verdict:
        why = _unverifiable(entry)
        if why is not None:
            return Verdict(number=number, title=entry.title, status="skipped", reason=why)
        wire = await self._wire(entry.session)
        turns = list(entry.turns)
        request: Any = None
        while turns:
            while turns and turns[0].client is not None:
                turn = turns.pop(0)
                message = self._message(turn, number)
                if "method" in message and "id" in message:
                    request = message["id"]
                await wire.send(message, self._headers(turn, message, entry.session, number))
            expected: list[Turn] = []
            while turns and turns[0].client is None:
                expected.append(turns.pop(0))
            verdict = await self._compared(wire, number, entry, expected, request)
            if verdict is not None:
                return verdict
        return Verdict(number=number, title=entry.title, status="same")

    async def _wire(self, session: str | None) -> Wire:
        if session not in self._wires:
            wire = self._connect()
            await wire.open()
            self._wires[session] = wire
        return self._wires[session]

    # --- what is sent ---------------------------------------------------------------------------------------------

    def _message(self, turn: Turn, number: int) -> JsonObject:
        recorded = turn.client or {}
        if "method" in recorded and "id" in recorded:
            # Ids are this client's own: the next number, whatever the recording's was.
            for ref in refs_in(recorded["id"]):
                self._ids += 1
                self._values[number][ref.kind, ref.name] = self._ids
        message: JsonObject = {"jsonrpc": "2.0", **filled(recorded, lambda ref: self._value(ref, number))}
        if turn.party is not None:
            meta = self._cassette.clients[turn.party - 1].meta
            params = message.get("params") or {}
            if meta:
                message["params"] = {**params, "_meta": {**meta, **(params.get("_meta") or {})}}
        return message

    def _headers(self, turn: Turn, message: JsonObject, session: str | None, number: int) -> dict[str, str]:
        """What HTTP needs beside the message; a recorded secret is not sent, the caller's own headers are."""
        party = None if turn.party is None else self._cassette.clients[turn.party - 1]
        recorded = {**(party.headers if party is not None else {}), **turn.headers}
        headers = {
            name: str(filled(text, lambda ref: self._value(ref, number)))
            for name, text in recorded.items()
            if name.lower() not in self._with_wire
            and not any(ref.kind == "secret" and ref.name not in self._secrets for ref in refs_in(text))
        }
        revision = None if party is None else party.meta.get(PROTOCOL_VERSION)
        if isinstance(revision, str):
            headers["MCP-Protocol-Version"] = revision
            method = str(message.get("method"))
            headers["Mcp-Method"] = method
            row = METHODS.get(method)
            target = None if row is None or row.target is None else message["params"].get(row.target)
            if isinstance(target, str):
                headers["Mcp-Name"] = encode_value(target)
        elif session in self._revisions or None in self._revisions:
            headers["MCP-Protocol-Version"] = self._revisions.get(session) or self._revisions[None]
        return headers

    def _value(self, ref: Ref, number: int) -> Any:
        if ref.kind == "secret":
            return self._secrets.get(ref.name, self._seen.get(ref.name, "secret"))
        if ref.kind == "time":
            return self._time
        values = self._values.setdefault(ref.entry or number, {})
        if (ref.kind, ref.name) not in values:
            values[ref.kind, ref.name] = self._fresh(ref)
        return values[ref.kind, ref.name]

    def _fresh(self, ref: Ref) -> Any:
        match ref.kind:
            case "id" | "progress":
                self._ids += 1
                return self._ids
            case "integer":
                return int(ref.name)
            case "number":
                return int(ref.name) + 0.5
            case "boolean":
                return False
            case _:
                return fresh(ref.kind, int(ref.name))

    def _check_secrets(self) -> None:
        told = set(self._secrets)
        for number, entry in enumerate(self._cassette.entries, 1):
            if _unverifiable(entry) is not None:
                continue
            for turn in entry.turns:
                told |= {ref.name for ref in refs_in(turn.server) if ref.kind == "secret"}
                for ref in refs_in(turn.client):
                    if ref.kind == "secret" and ref.name not in told:
                        raise CassetteBroken(
                            f"entry {number} ({entry.title}) sends {ref}, which was not recorded:"
                            f" give it with --secret {ref.name}=VALUE"
                        )

    def _secret_headers(self) -> set[str]:
        turns = [turn for entry in self._cassette.entries for turn in entry.turns if turn.client is not None]
        headers = [party.headers for party in self._cassette.clients] + [turn.headers for turn in turns]
        return {ref.name for ref in refs_in(headers) if ref.kind == "secret"}

    # --- what comes back ------------------------------------------------------------------------------------------

    async def _compared(
        self, wire: Wire, number: int, entry: Entry, expected: list[Turn], request: Any
    ) -> Verdict | None:
        """None if what comes is what was recorded."""
        if not expected:
            return None
        came = await self._received(wire, expected, request)
        if not self._notifications:
            expected = [turn for turn in expected if not _is_notification(turn.server)]
            came = [each for each in came if not _is_notification(each.message)]
        match = Match(self._known(number))
        recorded = [_shape(without_hint(turn.server), turn.status, turn.text) for turn in expected]
        actual = [_shape(_plain(each.message), each.status, each.text) for each in came]
        if match.fits(recorded, actual):
            self._bind(number, match)
            self._learn(entry, actual)
            return None
        shown = match.shown(recorded, actual)
        diff = diff_of(recorded, self._without_secrets(shown, actual), f"recorded in entry {number}", "came now")
        reason = self._reason(came, recorded)
        return Verdict(number=number, title=entry.title, status="differs", reason=reason, diff=diff)

    def _reason(self, came: list[Came], recorded: list[JsonObject]) -> str:
        if came and came[-1] == _SILENCE:
            return "the server did not answer in time"
        missing = next((ref for ref in refs_in(recorded) if self._is_missing(ref)), None)
        if missing is None:
            return ""
        return f"it repeats {missing}, which was not sent: --header or --secret gives it"

    def _without_secrets(self, shown: list[Any], actual: list[JsonObject]) -> list[Any]:
        redaction = Redaction()
        for name, value in {**self._seen, **self._secrets}.items():
            redaction.learn_value(name, value)
        return [masked(each, message, redaction) for each, message in zip(shown, actual, strict=True)]

    async def _received(self, wire: Wire, expected: list[Turn], request: Any) -> list[Came]:
        """What the server says up to its reply, or up to as many questions as it had."""
        questions = sum({"method", "id"} <= (turn.server or {}).keys() for turn in expected)
        is_last = any(turn.server is None or "method" not in turn.server for turn in expected)
        came: list[Came] = []
        try:
            async with asyncio.timeout(self._timeout):
                while is_last or questions > 0:
                    each = await wire.receive()
                    if each.fault is not None:
                        raise each.fault
                    self._heard_any = True
                    if await self._is_aside(wire, each.message, expected):
                        continue
                    came.append(each)
                    if each.message is None or _is_reply(each.message, request):
                        break
                    questions -= {"method", "id"} <= each.message.keys()
                    if not is_last and questions <= 0:
                        break
        except TimeoutError:
            if not self._heard_any:
                raise Disconnected(f"The server did not answer within {self._timeout:g} s") from None
            came.append(_SILENCE)
        return came

    async def _is_aside(self, wire: Wire, message: JsonObject | None, expected: list[Turn]) -> bool:
        """Whether a server says something of its own accord, beside what it is asked; a question is answered."""
        methods = {str((turn.server or {}).get("method")) for turn in expected}
        if message is None or "method" not in message or message["method"] in methods:
            return False
        if "id" not in message:
            return message["method"] not in _OF_A_CALL
        answer = next(
            (answer for answer in map(_own_answer, self._cassette.entries) if answer[0] == message["method"]), None
        )
        if answer is None:
            return False
        await wire.send({"jsonrpc": "2.0", **answer[1], "id": message["id"]}, {})
        return True

    def _known(self, number: int) -> Callable[[Ref], Any]:
        def known(ref: Ref) -> Any:
            if ref.kind == "secret":
                told = self._secrets.get(ref.name, self._seen.get(ref.name, UNBOUND))
                return MISSING if told is UNBOUND and self._is_missing(ref) else told
            return self._values.get(ref.entry or number, {}).get((ref.kind, ref.name), UNBOUND)

        return known

    def _is_missing(self, ref: Ref) -> bool:
        """Whether a secret, or the header that it is a part of, was not sent."""
        return ref.kind == "secret" and not {ref.name, ref.name.partition(".")[0]}.isdisjoint(self._missing)

    def _bind(self, number: int, match: Match) -> None:
        for ref, value in match.bound.items():
            if ref.kind == "secret":
                self._seen[ref.name] = value
                continue
            self._values.setdefault(ref.entry or number, {})[ref.kind, ref.name] = value

    def _learn(self, entry: Entry, actual: list[JsonObject]) -> None:
        text = msgspec.json.encode(actual).decode()
        times = TIME.findall(text)
        if times:
            self._time = times[-1]
        result = actual[-1].get("result") if actual else None
        if entry.turns[0].message.get("method") == "initialize" and isinstance(result, dict):
            self._revisions[entry.session] = str(result.get("protocolVersion"))


def _own_answer(entry: Entry) -> tuple[str, JsonObject]:
    """What a server asked of its own accord, and how that was answered."""
    asked = entry.turns[0].server or {}
    answers = [turn.client for turn in entry.turns if turn.client is not None and "method" not in turn.client]
    return (str(asked.get("method")), answers[0]) if asked and answers else ("", {})


def _unverifiable(entry: Entry) -> str | None:
    if entry.turns[0].client is None:
        return "the server sent it on its own"
    if "id" not in entry.turns[0].client:
        return None
    replies = [turn for turn in entry.turns if turn.server is not None and "method" not in turn.server]
    failures = [turn for turn in entry.turns if turn.server is None and turn.client is None]
    return None if replies or failures else "no reply to it was recorded"


def _shape(message: JsonObject | None, status: int | None, text: str | None) -> JsonObject:
    made: JsonObject = dict(message or {})
    if status is not None:
        made["(HTTP status)"] = status
    if text is not None and message is None:
        made["(HTTP body)"] = text
    return made


def _plain(message: JsonObject | None) -> JsonObject | None:
    if message is None:
        return None
    plain: JsonObject = without_hint({name: value for name, value in message.items() if name != "jsonrpc"})
    return plain


def _is_reply(message: JsonObject, request: Any) -> bool:
    return "method" not in message and message.get("id") in {request, None}


def _is_notification(message: JsonObject | None) -> bool:
    return message is not None and "method" in message and "id" not in message
