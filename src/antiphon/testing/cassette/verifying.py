"""Verify a live server: send it the requests of a recording, and compare what comes back."""

import asyncio
import collections
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from antiphon.errors import CallFailed, Disconnected, PeerBroken
from antiphon.testing.cassette.format import Cassette, CassetteBroken, CassetteEntry, CassetteTurn, Party
from antiphon.testing.cassette.matching import Match, diff_of
from antiphon.testing.cassette.placeholders import (
    TIME,
    Bindings,
    Ref,
    filled,
    is_too_deep,
    meta_of,
    params_of,
    refs_in,
    without_call,
)
from antiphon.testing.cassette.secrets import Redaction, header_secrets
from antiphon.types import JsonObject
from antiphon.wire.headers import encode_value
from antiphon.wire.revisions import METHODS, PROTOCOL_VERSION


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one entry."""

    number: int
    title: str
    status: Literal["same", "differs", "skipped"]
    reason: str = ""
    diff: str = ""


class NotStarted(Disconnected):
    """The server did not start, or did not answer the first request."""


Came: TypeAlias = CassetteTurn | CallFailed
"""What comes in: a message, or why nothing more comes."""


class LiveServer:
    """A connection to a server of any revision. ``inbox`` gets all that comes in."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[Came] = asyncio.Queue()

    async def open(self) -> None:
        """Connect."""

    async def send(self, message: JsonObject, headers: Mapping[str, str]) -> None:
        """Send a message; ``headers`` are for HTTP."""
        raise NotImplementedError

    async def close(self) -> None:
        """End the connection."""


class Verification:
    """Replays the client's side of a cassette: ``async for verdict in Verification(cassette, connect).verdicts()``."""

    def __init__(
        self,
        cassette: Cassette,
        connect: Callable[[], LiveServer],
        *,
        secrets: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
    ) -> None:
        self._cassette = cassette
        self._connect = connect
        self._timeout = timeout
        self._server: LiveServer | None = None
        self._revision: str | None = None
        """The older revision that the server agreed to."""
        self._received_any = False
        self._bindings = Bindings()
        self._redaction = Redaction()
        self._sent_anyway = {name.lower() for name in headers or {}}
        self._given: dict[str, str] = {}
        """The secrets that were given, by name: a header's value has its parts beside it."""
        sent = self._secret_headers()
        for name, value in {**Redaction(sent).headers_in(headers or {}), **(secrets or {})}.items():
            self._given |= header_secrets(name, value) if name in sent | self._sent_anyway else {name: value}
        self._learn({Ref("secret", name): value for name, value in self._given.items()})
        self._check_secrets(sent)

    async def verdicts(self) -> AsyncIterator[Verdict]:
        """Yield a verdict for each entry, in their order; raise NotStarted if the server never answers."""
        try:
            for number, entry in enumerate(self._cassette.entries, 1):
                try:
                    yield await self._verdict(number, entry)
                except CallFailed as fault:
                    # What is no message may hold a secret: it is not shown.
                    reason = str(fault) if isinstance(fault, Disconnected) else "The server sent what is no message"
                    if not self._received_any:
                        raise NotStarted(reason) from None
                    await self._close()
                    yield Verdict(number=number, title=entry.title, status="differs", reason=reason)
        finally:
            await self._close()

    async def _close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.close()

    async def _verdict(self, number: int, entry: CassetteEntry) -> Verdict:
        why = _unverifiable(entry)
        if why is not None:
            return Verdict(number=number, title=entry.title, status="skipped", reason=why)
        server = self._server
        if server is None:
            server = self._connect()
            await server.open()
            self._server = server
        request: Any = None
        for is_clients, turns in itertools.groupby(entry.turns, lambda turn: turn.client is not None):
            if not is_clients:
                verdict = await self._compare(server, number, entry, list(turns), request)
                if verdict is not None:
                    return verdict
                continue
            for turn in turns:
                message = self._message(turn, number)
                if "method" in message and "id" in message:
                    request = message["id"]
                await server.send(message, self._headers(turn, message, number))
        return Verdict(number=number, title=entry.title, status="same")

    # --- what is sent ---------------------------------------------------------------------------------------------

    def _message(self, turn: CassetteTurn, number: int) -> JsonObject:
        made = self._bindings.made(number)
        message: JsonObject = {"jsonrpc": "2.0", **filled(turn.message, made)}
        meta = filled(self._party(turn).meta, made)
        if meta and isinstance(message.get("params", {}), dict):
            message["params"] = {**params_of(message), "_meta": {**meta, **meta_of(message)}}
        return message

    def _party(self, turn: CassetteTurn) -> Party:
        return Party() if turn.party is None else self._cassette.clients[turn.party - 1]

    def _headers(self, turn: CassetteTurn, message: JsonObject, number: int) -> dict[str, str]:
        """Return what HTTP needs beside the message, without recorded secrets and without the caller's own headers."""
        party = self._party(turn)
        recorded = {**party.headers, **turn.headers}
        headers = {
            name: str(filled(text, self._bindings.made(number)))
            for name, text in recorded.items()
            if name.lower() not in self._sent_anyway
            and not any(ref.kind == "secret" and ref.name not in self._given for ref in refs_in(text))
        }
        revision = party.meta.get(PROTOCOL_VERSION)
        if isinstance(revision, str):
            headers["MCP-Protocol-Version"] = revision
            method = str(message.get("method"))
            headers["Mcp-Method"] = method
            row = METHODS.get(method)
            target = None if row is None or row.target is None else params_of(message).get(row.target)
            if isinstance(target, str):
                headers["Mcp-Name"] = encode_value(target)
        elif self._revision is not None:
            headers["MCP-Protocol-Version"] = self._revision
        return headers

    # --- secrets --------------------------------------------------------------------------------------------------

    def _learn(self, values: dict[Ref, Any], number: int = 0) -> None:
        """Remember the values of placeholders; later messages repeat them, and no difference shows the secrets."""
        self._bindings.bind(number, values)
        for ref, value in values.items():
            if ref.kind == "secret":
                self._redaction.learn_value(ref.name, value)

    def _secret_headers(self) -> set[str]:
        """Return the secret headers that were sent when this was recorded."""
        turns = [turn for entry in self._cassette.entries for turn in entry.turns if turn.client is not None]
        headers = [party.headers for party in self._cassette.clients] + [turn.headers for turn in turns]
        return {ref.name for ref in refs_in(headers) if ref.kind == "secret"}

    def _check_secrets(self, headers: set[str]) -> None:
        """Raise CassetteBroken for a secret that the client has to know: to send it, or because its header was sent."""
        known = set(self._given)
        turns = [
            (number, entry, turn)
            for number, entry in enumerate(self._cassette.entries, 1)
            for turn in (entry.turns if _unverifiable(entry) is None else ())
        ]
        for number, entry, turn in turns:
            for ref in refs_in([turn.message, self._party(turn).meta]):
                if ref.kind != "secret" or ref.name in known:
                    continue
                name = ref.name.partition(".")[0]
                if turn.client is not None or name in headers:
                    raise CassetteBroken(
                        f"entry {number} ({entry.title}) has {ref}, which was not recorded:"
                        f" give it with --secret {name}=VALUE"
                    )
                known.add(ref.name)

    # --- what comes back ------------------------------------------------------------------------------------------

    async def _compare(
        self, server: LiveServer, number: int, entry: CassetteEntry, turns: list[CassetteTurn], request: Any
    ) -> Verdict | None:
        """Return None if the replies and questions that come are those that were recorded."""
        expected = [turn for turn in turns if _kind(turn) != "notification"]
        came = await self._received(server, expected, request)
        match = Match(self._bindings.known(number))
        recorded, actual = [[_compared(turn) for turn in sorted(each, key=_kind)] for each in (expected, came)]
        if match.fits(recorded, actual):
            self._learn(match.bound, number)
            self._bindings.time = (TIME.findall(msgspec.json.encode(actual).decode()) or [self._bindings.time])[-1]
            result = actual[0].get("result") if actual else None
            if entry.turns[0].message.get("method") == "initialize" and isinstance(result, dict):
                self._revision = str(result.get("protocolVersion"))
            return None
        pairs = zip(match.shown(recorded, actual), actual, strict=True)
        shown = [self._redaction.masked(each, message) for each, message in pairs]
        diff = diff_of(recorded, shown, f"recorded in entry {number}", "came now")
        reason = "the server did not answer in time" if len(came) < len(expected) else ""
        return Verdict(number=number, title=entry.title, status="differs", reason=reason, diff=diff)

    async def _received(self, server: LiveServer, expected: list[CassetteTurn], request: Any) -> list[CassetteTurn]:
        """Return what the server sends until as many replies and questions have come, or one too many."""
        missing = collections.Counter(map(_kind, expected))
        came: list[CassetteTurn] = []
        try:
            async with asyncio.timeout(self._timeout):
                while max(missing.values(), default=0) > 0 <= min(missing.values()):
                    turn = await server.inbox.get()
                    if isinstance(turn, CallFailed):
                        raise turn
                    self._received_any = True
                    if is_too_deep(turn.message):
                        raise PeerBroken("The server sent a message that is nested too deep")
                    kind = _kind(turn)
                    is_late = kind == "answer" and turn.message.get("id") not in (request, None)
                    if kind != "notification" and not is_late:
                        came.append(turn)
                        missing[kind] -= 1
        except TimeoutError:
            if not self._received_any:
                raise Disconnected(f"The server did not answer within {self._timeout:g} s") from None
        return came


def _unverifiable(entry: CassetteEntry) -> str | None:
    """Return why an entry cannot be verified; None if it can."""
    is_answered = any(turn.client is None and "method" not in turn.message for turn in entry.turns)
    return None if is_answered or "id" not in entry.turns[0].message else "no reply to it was recorded"


def _compared(turn: CassetteTurn) -> JsonObject:
    """Return what is compared of a message."""
    made: JsonObject = without_call({name: value for name, value in turn.message.items() if name != "jsonrpc"})
    if turn.status is not None:
        made["(HTTP status)"] = turn.status
    return made


def _kind(turn: CassetteTurn) -> str:
    if "method" not in turn.message:
        return "answer"
    return "question" if "id" in turn.message else "notification"
