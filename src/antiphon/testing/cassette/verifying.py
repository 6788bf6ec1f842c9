"""Verify a live server: send it the requests of a recording, and compare what comes back."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from antiphon.errors import CallFailed, Disconnected, PeerBroken
from antiphon.testing.cassette.format import TIME, Cassette, CassetteBroken, Entry, Ref, Turn, filled, fresh, refs_in
from antiphon.testing.cassette.matching import MISSING, UNBOUND, Match, diff_of, masked
from antiphon.testing.cassette.recording import read_json
from antiphon.testing.cassette.replaced_values import Redaction, header_secrets, is_too_deep, without_call
from antiphon.transports.http_client import MAX_REPLY, HttpLink, content_type
from antiphon.transports.stdio_client import ChildLink, Process
from antiphon.types import JsonObject
from antiphon.wire.headers import encode_value
from antiphon.wire.jsonrpc import encode
from antiphon.wire.revisions import METHODS, PROTOCOL_VERSION
from antiphon.wire.sse import Events

_TIMEOUT: Final = 10.0
_OF_A_CALL: Final = ("notifications/progress", "notifications/message")
"""Notifications that belong to a call; others come at any time."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one entry."""

    number: int
    title: str
    status: Literal["same", "differs", "skipped"]
    reason: str = ""
    diff: str = ""


class NotStarted(Disconnected):
    """The server did not start, or did not answer the first request."""


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """What came from a server: a message, an HTTP response without one, or the end."""

    message: JsonObject | None = None
    status: int | None = None
    text: str | None = None
    fault: CallFailed | None = None


_SILENCE: Final = Received()


class LiveServer(Protocol):
    """A connection to a server of any revision: messages out, and all that comes in."""

    async def open(self) -> None: ...

    async def send(self, message: JsonObject, headers: Mapping[str, str]) -> None: ...

    async def receive(self) -> Received: ...

    async def close(self) -> None: ...


class LiveProcess:
    """A server that is started, and spoken to on its standard streams."""

    def __init__(self, command: Sequence[str], *, cwd: str | None = None) -> None:
        self._child = ChildLink(command, env=os.environ, cwd=cwd, on_stray_line=lambda _: None)
        self._inbox: asyncio.Queue[Received] = asyncio.Queue()
        self._process: Process | None = None

    async def open(self) -> None:
        self._process = await self._child.start(
            lambda message: self._inbox.put_nowait(Received(message=message)),
            lambda fault: self._inbox.put_nowait(Received(fault=fault)),
        )

    async def send(self, message: JsonObject, headers: Mapping[str, str]) -> None:
        del headers
        assert self._process is not None
        self._process.send(message)

    async def receive(self) -> Received:
        return await self._inbox.get()

    async def close(self) -> None:
        if self._process is not None:
            await self._process.close()


class LiveUrl:
    """A server behind a URL."""

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None) -> None:
        self._link = HttpLink(url, headers=headers)
        self._inbox: asyncio.Queue[Received] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: dict[str, str] = {}

    async def open(self) -> None:
        await self._link.open()

    async def send(self, message: JsonObject, headers: Mapping[str, str]) -> None:
        self._start("POST", {**headers, **self._session}, encode(message))
        if message.get("method") == "notifications/initialized" and self._session:
            self._start("GET", {**headers, **self._session}, b"")

    async def receive(self) -> Received:
        return await self._inbox.get()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._link.close()

    def _start(self, verb: str, headers: Mapping[str, str], body: bytes) -> None:
        task = asyncio.create_task(self._exchange(verb, headers, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _exchange(self, verb: str, headers: Mapping[str, str], body: bytes) -> None:
        response, answered = None, False
        try:
            response = await self._link.exchange(verb, headers, body)
            session = response.headers.get("mcp-session-id")
            if session is not None:
                self._session = {"Mcp-Session-Id": session}
            if content_type(response) == "text/event-stream":
                events = Events(MAX_REPLY)
                while chunk := await response.next_chunk():
                    for data in events.feed(chunk):
                        self._received(read_json(data), None, "")
            else:
                whole = await response.read(MAX_REPLY)
                if verb == "POST" and (whole or response.status >= 300):
                    status = None if response.status == 200 else response.status
                    self._received(read_json(whole), status, whole.decode(errors="replace"))
            answered = True
        except (CallFailed, ValueError) as fault:
            self._inbox.put_nowait(Received(fault=Disconnected(str(fault))))
        finally:
            if response is not None:
                self._link.give_back(response, answered=answered)

    def _received(self, message: object, status: int | None, text: str) -> None:
        for each in message if isinstance(message, list) else [message]:
            if isinstance(each, dict):
                self._inbox.put_nowait(Received(message=each, status=status))
            elif status is not None:
                self._inbox.put_nowait(Received(status=status, text=text))


class Verification:
    """Replays the client's side of a cassette: ``async for verdict in Verification(cassette, connect).verdicts()``."""

    def __init__(
        self,
        cassette: Cassette,
        connect: Callable[[], LiveServer],
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
        self._sent_anyway = {name.lower() for name in headers or {}}
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
        self._servers: dict[str | None, LiveServer] = {}
        """By session."""
        self._values: dict[int, dict[tuple[str, str], Any]] = {}
        self._ids = itertools.count(1)
        self._time = "2000-01-01T00:00:00Z"
        self._revisions: dict[str | None, str] = {}
        self._received_any = False
        self._check_secrets()

    async def verdicts(self) -> AsyncIterator[Verdict]:
        """Yield a verdict for each entry, in their order; raise NotStarted if the server never answers."""
        try:
            for number, entry in enumerate(self._cassette.entries, 1):
                self._values[number] = {}
                try:
                    yield await self._verdict(number, entry)
                except CallFailed as fault:
                    # What is no message may hold a secret: it is not shown.
                    reason = str(fault) if isinstance(fault, Disconnected) else "The server sent what is no message"
                    if not self._received_any:
                        raise NotStarted(reason) from None
                    server = self._servers.pop(entry.session, None)
                    if server is not None:
                        await server.close()
                    yield Verdict(number=number, title=entry.title, status="differs", reason=reason)
        finally:
            for server in self._servers.values():
                await server.close()

    async def _verdict(self, number: int, entry: Entry) -> Verdict:
        why = _unverifiable(entry)
        if why is not None:
            return Verdict(number=number, title=entry.title, status="skipped", reason=why)
        server = await self._server(entry.session)
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
                await server.send(message, self._headers(turn, message, entry.session, number))
        return Verdict(number=number, title=entry.title, status="same")

    async def _server(self, session: str | None) -> LiveServer:
        if session not in self._servers:
            server = self._connect()
            await server.open()
            self._servers[session] = server
        return self._servers[session]

    # --- what is sent ---------------------------------------------------------------------------------------------

    def _message(self, turn: Turn, number: int) -> JsonObject:
        recorded = turn.client or {}
        if "method" in recorded and "id" in recorded:
            # Ids are this client's own: the next number, whatever the recording's was.
            for ref in refs_in(recorded["id"]):
                self._values[number][ref.kind, ref.name] = next(self._ids)
        message: JsonObject = {"jsonrpc": "2.0", **filled(recorded, lambda ref: self._value(ref, number))}
        if turn.party is not None:
            meta = self._cassette.clients[turn.party - 1].meta
            params = message.get("params") or {}
            if meta:
                message["params"] = {**params, "_meta": {**meta, **(params.get("_meta") or {})}}
        return message

    def _headers(self, turn: Turn, message: JsonObject, session: str | None, number: int) -> dict[str, str]:
        """Return what HTTP needs beside the message, without recorded secrets and without the caller's own headers."""
        party = None if turn.party is None else self._cassette.clients[turn.party - 1]
        recorded = {**(party.headers if party is not None else {}), **turn.headers}
        headers = {
            name: str(filled(text, lambda ref: self._value(ref, number)))
            for name, text in recorded.items()
            if name.lower() not in self._sent_anyway
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
            values[ref.kind, ref.name] = fresh(ref, self._ids)
        return values[ref.kind, ref.name]

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

    async def _compare(
        self, server: LiveServer, number: int, entry: Entry, expected: list[Turn], request: Any
    ) -> Verdict | None:
        """Return None if what comes is what was recorded."""
        came = await self._received(server, expected, request)
        if not self._notifications:
            expected = [turn for turn in expected if not _is_notification(turn.server)]
            came = [each for each in came if not _is_notification(each.message)]
        match = Match(self._known(number))
        recorded = [_shape(turn.server, turn.status, turn.text) for turn in expected]
        actual = [_shape(each.message, each.status, each.text) for each in came]
        if match.fits(recorded, actual):
            self._learn(number, entry, match, actual)
            return None
        shown = match.shown(recorded, actual)
        diff = diff_of(recorded, self._without_secrets(shown, actual), f"recorded in entry {number}", "came now")
        reason = self._reason(came, recorded)
        return Verdict(number=number, title=entry.title, status="differs", reason=reason, diff=diff)

    def _reason(self, came: list[Received], recorded: list[JsonObject]) -> str:
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

    async def _received(self, server: LiveServer, expected: list[Turn], request: Any) -> list[Received]:
        """Return what the server sends up to its reply, or up to as many questions as it had."""
        questions = sum({"method", "id"} <= (turn.server or {}).keys() for turn in expected)
        is_last = any(turn.server is None or "method" not in turn.server for turn in expected)
        came: list[Received] = []
        try:
            async with asyncio.timeout(self._timeout):
                while is_last or questions > 0:
                    each = await server.receive()
                    if each.fault is not None:
                        raise each.fault
                    self._received_any = True
                    if is_too_deep(each.message):
                        raise PeerBroken("The server sent a message that is nested too deep")
                    if await self._is_aside(server, each.message, expected):
                        continue
                    came.append(each)
                    if each.message is None or _is_reply(each.message, request):
                        break
                    questions -= {"method", "id"} <= each.message.keys()
                    if not is_last and questions <= 0:
                        break
        except TimeoutError:
            if not self._received_any:
                raise Disconnected(f"The server did not answer within {self._timeout:g} s") from None
            came.append(_SILENCE)
        return came

    async def _is_aside(self, server: LiveServer, message: JsonObject | None, expected: list[Turn]) -> bool:
        """Return whether a message has nothing to do with the request; if it is a question, answer it as recorded."""
        methods = [(turn.server or {}).get("method") for turn in expected]
        if message is None or "method" not in message or message["method"] in methods:
            return False
        if "id" not in message:
            return message["method"] not in _OF_A_CALL
        answer = self._answer_to(message["method"])
        if answer is None:
            return False
        await server.send({"jsonrpc": "2.0", **answer, "id": message["id"]}, {})
        return True

    def _known(self, number: int) -> Callable[[Ref], Any]:
        def known(ref: Ref) -> Any:
            if ref.kind == "secret":
                told = self._secrets.get(ref.name, self._seen.get(ref.name, UNBOUND))
                return MISSING if told is UNBOUND and self._is_missing(ref) else told
            return self._values.get(ref.entry or number, {}).get((ref.kind, ref.name), UNBOUND)

        return known

    def _is_missing(self, ref: Ref) -> bool:
        """Return whether a secret, or the header that it is a part of, was not sent."""
        return ref.kind == "secret" and not {ref.name, ref.name.partition(".")[0]}.isdisjoint(self._missing)

    def _answer_to(self, method: object) -> JsonObject | None:
        """Return how a question was answered that the server asked on its own."""
        for entry in self._cassette.entries:
            answers = [turn.client for turn in entry.turns if turn.client is not None and "method" not in turn.client]
            if answers and (entry.turns[0].server or {}).get("method") == method:
                return answers[0]
        return None

    def _learn(self, number: int, entry: Entry, match: Match, actual: list[JsonObject]) -> None:
        """Remember what the server has told, to repeat it."""
        for ref, value in match.bound.items():
            if ref.kind == "secret":
                self._seen[ref.name] = value
            else:
                self._values.setdefault(ref.entry or number, {})[ref.kind, ref.name] = value
        times = TIME.findall(msgspec.json.encode(actual).decode())
        if times:
            self._time = times[-1]
        result = actual[-1].get("result") if actual else None
        if entry.turns[0].message.get("method") == "initialize" and isinstance(result, dict):
            self._revisions[entry.session] = str(result.get("protocolVersion"))


def _unverifiable(entry: Entry) -> str | None:
    """Return why an entry cannot be verified; None if it can."""
    if entry.turns[0].client is None:
        return "the server sent it on its own"
    if "id" not in entry.turns[0].client:
        return None
    replies = [turn for turn in entry.turns if turn.server is not None and "method" not in turn.server]
    failures = [turn for turn in entry.turns if turn.server is None and turn.client is None]
    return None if replies or failures else "no reply to it was recorded"


def _shape(message: JsonObject | None, status: int | None, text: str | None) -> JsonObject:
    """Return what is compared of a message, or of an HTTP response without one."""
    made: JsonObject = without_call({name: value for name, value in (message or {}).items() if name != "jsonrpc"})
    if status is not None:
        made["(HTTP status)"] = status
    if text is not None and message is None:
        made["(HTTP body)"] = text
    return made


def _is_reply(message: JsonObject, request: Any) -> bool:
    return "method" not in message and message.get("id") in (request, None)


def _is_notification(message: JsonObject | None) -> bool:
    return message is not None and "method" in message and "id" not in message
