"""Verify a live server: send it the requests of a recording, and compare what comes back."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from antiphon.errors import CallFailed, Disconnected, PeerBroken
from antiphon.testing.cassette.format import Cassette, CassetteBroken, CassetteEntry, CassetteTurn, Party
from antiphon.testing.cassette.patterns import Match, diff_of, without_call
from antiphon.testing.cassette.placeholders import TIME, Bindings, Ref, filled, is_too_deep, meta_of, params_of, refs_in
from antiphon.testing.cassette.secrets import Redaction, header_secrets
from antiphon.types import JsonObject
from antiphon.wire.headers import encode_value
from antiphon.wire.revisions import METHODS, PROTOCOL_VERSION

_OF_A_CALL: Final = ("notifications/progress", "notifications/message")
"""Notifications that belong to a call; others come at any time."""
_SILENCE: Final = CassetteTurn()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one entry."""

    number: int
    title: str
    status: Literal["same", "differs", "skipped"]
    reason: str = ""
    diff: str = ""


class NotStarted(Disconnected):
    """The server did not start, or did not answer the first request."""


class LiveServer(Protocol):
    """A connection to a server of any revision. It is made with a callback for all that comes in."""

    async def open(self) -> None: ...

    async def send(self, message: JsonObject, headers: Mapping[str, str]) -> None: ...

    async def close(self) -> None: ...


Came: TypeAlias = CassetteTurn | CallFailed
"""What comes in: a message, an HTTP response without one, or why nothing more comes."""


class _Connection(NamedTuple):
    """A live server, and what came from it."""

    server: LiveServer
    inbox: asyncio.Queue[Came]


class Verification:
    """Replays the client's side of a cassette: ``async for verdict in Verification(cassette, connect).verdicts()``."""

    def __init__(
        self,
        cassette: Cassette,
        connect: Callable[[Callable[[Came], None]], LiveServer],
        *,
        secrets: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        notifications: bool = True,
    ) -> None:
        self._cassette = cassette
        self._connect = connect
        self._timeout = timeout
        self._notifications = notifications
        self._servers: dict[str | None, _Connection] = {}
        """By session."""
        self._revisions: dict[str | None, str] = {}
        self._received_any = False
        self._bindings = Bindings()
        self._redaction = Redaction()
        self._sent_anyway = {name.lower() for name in headers or {}}
        sent = self._secret_headers()
        given = Redaction(sent).headers_in(headers or {}) | dict(secrets or {})
        self._given = {
            part: text
            for name, value in given.items()
            for part, text in (
                header_secrets(name, value) if name in sent | self._sent_anyway else {name: value}
            ).items()
        }
        """The secrets that were given, by name: a header's value has its parts beside it."""
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
                    if entry.session in self._servers:
                        await self._servers.pop(entry.session).server.close()
                    yield Verdict(number=number, title=entry.title, status="differs", reason=reason)
        finally:
            for connection in self._servers.values():
                await connection.server.close()

    async def _verdict(self, number: int, entry: CassetteEntry) -> Verdict:
        why = _unverifiable(entry)
        if why is not None:
            return Verdict(number=number, title=entry.title, status="skipped", reason=why)
        if entry.session not in self._servers:
            inbox: asyncio.Queue[Came] = asyncio.Queue()
            server = self._connect(inbox.put_nowait)
            await server.open()
            self._servers[entry.session] = _Connection(server, inbox)
        connection = self._servers[entry.session]
        request: Any = None
        for is_clients, turns in itertools.groupby(entry.turns, lambda turn: turn.client is not None):
            if not is_clients:
                verdict = await self._compare(connection, number, entry, list(turns), request)
                if verdict is not None:
                    return verdict
                continue
            for turn in turns:
                message = self._message(turn, number)
                if "method" in message and "id" in message:
                    request = message["id"]
                await connection.server.send(message, self._headers(turn, message, entry.session, number))
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

    def _headers(self, turn: CassetteTurn, message: JsonObject, session: str | None, number: int) -> dict[str, str]:
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
        elif session in self._revisions or None in self._revisions:
            headers["MCP-Protocol-Version"] = self._revisions.get(session) or self._revisions[None]
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
        told = set(self._given)
        for number, entry in enumerate(self._cassette.entries, 1):
            for turn in entry.turns if _unverifiable(entry) is None else ():
                repeated = [ref for ref in refs_in(turn.server) if ref.kind == "secret"]
                told |= {ref.name for ref in repeated if ref.name.partition(".")[0] not in headers}
                for ref in (*repeated, *refs_in([turn.client, self._party(turn).meta])):
                    if ref.kind == "secret" and ref.name not in told:
                        raise CassetteBroken(
                            f"entry {number} ({entry.title}) has {ref}, which was not recorded:"
                            f" give it with --secret {ref.name.partition('.')[0]}=VALUE"
                        )

    # --- what comes back ------------------------------------------------------------------------------------------

    async def _compare(
        self, connection: _Connection, number: int, entry: CassetteEntry, expected: list[CassetteTurn], request: Any
    ) -> Verdict | None:
        """Return None if what comes is what was recorded."""
        came = await self._received(connection, expected, request)
        if not self._notifications:
            expected = [turn for turn in expected if not _is_notification(turn)]
            came = [turn for turn in came if not _is_notification(turn)]
        match = Match(self._bindings.known(number))
        recorded, actual = [[_compared(turn) for turn in turns] for turns in (expected, came)]
        if match.fits(recorded, actual):
            self._learn(match.bound, number)
            self._bindings.time = (TIME.findall(msgspec.json.encode(actual).decode()) or [self._bindings.time])[-1]
            result = actual[-1].get("result") if actual else None
            if entry.turns[0].message.get("method") == "initialize" and isinstance(result, dict):
                self._revisions[entry.session] = str(result.get("protocolVersion"))
            return None
        pairs = zip(match.shown(recorded, actual), actual, strict=True)
        shown = [self._redaction.masked(each, message) for each, message in pairs]
        diff = diff_of(recorded, shown, f"recorded in entry {number}", "came now")
        reason = "the server did not answer in time" if came and came[-1] == _SILENCE else ""
        return Verdict(number=number, title=entry.title, status="differs", reason=reason, diff=diff)

    async def _received(
        self, connection: _Connection, expected: list[CassetteTurn], request: Any
    ) -> list[CassetteTurn]:
        """Return what the server sends up to its reply, or up to as many questions as it had."""
        questions = sum(_is_question(turn.message) for turn in expected)
        is_last = any("method" not in turn.message for turn in expected)
        came: list[CassetteTurn] = []
        try:
            async with asyncio.timeout(self._timeout):
                while is_last or questions > 0:
                    turn = await connection.inbox.get()
                    if isinstance(turn, CallFailed):
                        raise turn
                    self._received_any = True
                    message = turn.message
                    if is_too_deep(message):
                        raise PeerBroken("The server sent a message that is nested too deep")
                    if await self._is_aside(connection.server, message, expected):
                        continue
                    came.append(turn)
                    if "method" not in message and message.get("id") in (request, None):
                        break
                    questions -= _is_question(message)
                    if not is_last and questions <= 0:
                        break
        except TimeoutError:
            if not self._received_any:
                raise Disconnected(f"The server did not answer within {self._timeout:g} s") from None
            came.append(_SILENCE)
        return came

    async def _is_aside(self, server: LiveServer, message: JsonObject, expected: list[CassetteTurn]) -> bool:
        """Return whether a message has nothing to do with the request; if it is a question, answer it as recorded."""
        method = message.get("method")
        if method is None or method in [turn.message.get("method") for turn in expected]:
            return False
        if "id" not in message:
            return method not in _OF_A_CALL
        for entry in self._cassette.entries:
            answers = [turn.client for turn in entry.turns if turn.client is not None and "method" not in turn.client]
            if answers and (entry.turns[0].server or {}).get("method") == method:
                await server.send({"jsonrpc": "2.0", **answers[0], "id": message["id"]}, {})
                return True
        return False


def _unverifiable(entry: CassetteEntry) -> str | None:
    """Return why an entry cannot be verified; None if it can."""
    if entry.turns[0].client is None:
        return "the server sent it on its own"
    is_answered = any(turn.client is None and "method" not in turn.message for turn in entry.turns)
    return None if is_answered or "id" not in entry.turns[0].client else "no reply to it was recorded"


def _compared(turn: CassetteTurn) -> JsonObject:
    """Return what is compared of a message, or of an HTTP response without one."""
    made: JsonObject = without_call({name: value for name, value in turn.message.items() if name != "jsonrpc"})
    if turn.status is not None:
        made["(HTTP status)"] = turn.status
    if turn.text is not None:
        made["(HTTP body)"] = turn.text
    return made


def _is_question(message: JsonObject) -> bool:
    return "method" in message and "id" in message


def _is_notification(turn: CassetteTurn) -> bool:
    return "method" in turn.message and "id" not in turn.message
