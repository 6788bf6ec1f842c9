"""An attempt: one call of a test, made, answered, and noted."""

import asyncio
from collections.abc import Mapping
from copy import copy
from typing import Any, Final
from urllib.error import HTTPError, URLError

import msgspec

from antiphon.client.answers import Answers, Elicitation, SampleRequest
from antiphon.client.client import Client
from antiphon.client.requests import Requests
from antiphon.errors import CallFailed, CallTimeout, CannotAnswer, PeerBroken, Refused, RoundsExceeded
from antiphon.rounds.client_loop import MAX_ROUNDS
from antiphon.testing.answers import Script, asked_in, keyless_in, request_of
from antiphon.testing.json_paths import ABSENT
from antiphon.testing.suite.model import Case, Responder
from antiphon.testing.transcript import Recorded, Turn
from antiphon.transports.link import Link
from antiphon.types import JsonObject
from antiphon.wire.revisions import METHODS, REVISION

MOST: Final = 10_000_000
"""Bytes that an answer may have."""


class Rest:
    """Asks a Responder over HTTP; a function as a Script takes it.

    Posts ``{"key", "tool", "round", "method", "params"}`` as JSON. The reply is an answer as ``inputResponses`` has it;
    ``null`` means that there is none.
    """

    def __init__(self, responder: Responder) -> None:
        self._responder = responder

    def __str__(self) -> str:
        return f"The responder at {self._responder.url}"

    async def __call__(self, question: Elicitation | SampleRequest) -> object:
        return await self._answer(posted(question))

    async def roots(self) -> object:
        """Answer a request for roots, which comes without a question."""
        return await self._answer({"key": "roots", "tool": "", "round": 0, "method": "roots/list", "params": {}})

    async def _answer(self, question: Mapping[str, object]) -> object:
        try:
            return await asyncio.to_thread(self._post, msgspec.json.encode(question))
        except (OSError, ValueError) as fault:
            why = f"HTTP status {fault.code}" if isinstance(fault, HTTPError) else _reason(fault)
            key = str(question["key"])
            raise CannotAnswer(
                f"The question {key!r} was posted to {self._responder.url}, which gave no answer: {why}", key=key
            ) from None

    def _post(self, body: bytes) -> Any:
        from urllib.request import ProxyHandler, Request, build_opener  # 20 ms, and few suites need it

        headers = {"Content-Type": "application/json", "Accept": "application/json", **self._responder.headers}
        request = Request(self._responder.url, data=body, headers=headers)  # noqa: S310 -- http(s) alone: the loader looks
        opener = build_opener(*([ProxyHandler({})] if _is_local(self._responder.url) else []))
        with opener.open(request, timeout=self._responder.timeout) as response:
            return msgspec.json.decode(response.read(MOST))


def posted(question: Elicitation | SampleRequest) -> dict[str, object]:
    """Return a question as it is posted."""
    return {"key": question.key, "tool": question.tool, "round": question.round, **request_of(question)}


def _is_local(url: str) -> bool:
    from urllib.parse import urlsplit

    return urlsplit(url).hostname in {"localhost", "127.0.0.1", "::1"}


def _reason(fault: Exception) -> str:
    return str(fault.reason) if isinstance(fault, URLError) else str(fault) or type(fault).__name__


# --- what was seen ------------------------------------------------------------------------------------------------

_ENVELOPE = frozenset({"_meta", "resultType", "ttlMs", "cacheScope"})
"""Fields that the protocol adds to a result, and that differ from era to era."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call: all that an expectation can look at, and the problem if the call did not end."""

    method: str
    result: JsonObject | None = None
    error: JsonObject | None = None
    turns: tuple[Turn, ...] = ()
    names: Mapping[str, str] = {}
    """What the test calls the questions of an older server, which have no keys of their own."""
    unused: tuple[str, ...] = ()
    """Answers that must be used and were not, or not all of them; in words."""
    problem: str = ""

    @property
    def rounds(self) -> int:
        """How many requests the call took; other requests of the client do not count."""
        return [turn.method for turn in self.turns].count(self.method)

    @property
    def asked(self) -> list[tuple[str, str]]:
        """The key and the message of each question, in their order."""
        return [(self.names.get(asked, asked), asked.message) for asked in asked_in(self.turns)]

    @property
    def is_error(self) -> bool:
        return self.result is not None and self.result.get("isError") is True

    @property
    def has_failed(self) -> bool:
        return self.error is not None or self.is_error

    @property
    def text(self) -> object:
        """The texts of the result, one a line; ABSENT if it has none."""
        texts = _texts(self.result or {})
        return "\n".join(texts) if texts else ABSENT

    @property
    def structured(self) -> object:
        return ABSENT if self.result is None else self.result.get("structuredContent", ABSENT)

    @property
    def essence(self) -> JsonObject:
        """The result without its envelope, or the error: what a snapshot keeps."""
        if self.result is None:
            return {"error": self.error}
        return {name: value for name, value in self.result.items() if name not in _ENVELOPE}


def _texts(result: JsonObject) -> list[str]:
    """The texts of a tool's content, of a resource's contents, of a prompt's messages."""
    found: list[str] = []
    for name in ("content", "contents", "messages"):
        items = result.get(name)
        for item in items if isinstance(items, list) else ():
            found += _text_of(item)
    return found


def _text_of(item: Any) -> list[str]:
    if not isinstance(item, dict):
        return []
    if "role" in item:
        content = item.get("content")
        return [text for block in (content if isinstance(content, list) else [content]) for text in _text_of(block)]
    text = item.get("text")
    return [text] if isinstance(text, str) else []


# --- the call -----------------------------------------------------------------------------------------------------


def script_of(case: Case) -> Script:
    """Return the answers of a case: what it says itself, then what its responder says."""
    script = Script(case.answers, called="test")
    if case.responder is not None:
        rest = Rest(case.responder)
        script(rest)
        if not script.has_roots:
            script(roots=rest.roots)
    return script


class _SuiteRequests(Requests):
    """The requests of a suite's client, which may be wrong."""

    async def send_as_written(self, method: str, params: JsonObject) -> None:
        """Send one request of any kind. Its reply is in the transcript."""
        id_, budget = next(self._ids), self.budget(self.timeout)
        meta = {**self.meta, **(params.get("_meta") or {})}
        message: JsonObject = {"jsonrpc": "2.0", "id": id_, "method": method, "params": {**params, "_meta": meta}}
        headers = {"MCP-Protocol-Version": REVISION, "Mcp-Method": method}
        self._budgets[id_] = budget
        try:
            with budget:
                reply: Any = await self.link.request(message, headers=headers)
        finally:
            del self._budgets[id_]
        if type(reply.get("result")) is not dict and type(reply.get("error")) is not dict:
            raise PeerBroken("The server's reply has neither a result nor an error")


class SuiteClient(Client):
    """The client of a suite's server. Each test has a copy of it, on the same connection, with its own answers."""

    _requests_type = _SuiteRequests
    _requests: _SuiteRequests

    def __init__(self, link: Link) -> None:
        self.transcript = Recorded(link)
        super().__init__(self.transcript, **Script().handlers(), timeout=None, name="antiphon-test")

    def prepare(self, script: Script, *, timeout: float, max_rounds: int = MAX_ROUNDS) -> None:
        """Use these answers and limits from here on."""
        self._answers = Answers(**script.handlers())
        self._max_rounds = max_rounds
        self._requests = copy(self._requests)
        self._requests.timeout = timeout

    async def send(self, method: str, params: JsonObject) -> None:
        """Send one request as it was written, be it wrong. Its reply is in the transcript."""
        await self._requests.send_as_written(method, params)


async def attempt(case: Case, client: SuiteClient, *, keyless: bool = False) -> Seen:
    """Make the call, answer what it asks, and note all of it. Nothing that a server does is raised."""
    script = script_of(case)
    own = copy(client)
    own.prepare(script, timeout=case.timeout, max_rounds=case.max_rounds)
    problem = ""
    with client.transcript.noting() as turns:
        is_keyless = keyless_in(turns) if keyless else None
        script.keyless = is_keyless or False
        try:
            await _call(case, own)
        except Refused:
            pass  # it is in the transcript, and perhaps expected
        except CallFailed as fault:
            problem = _explained(fault, case)
            # Simple servers do one thing at a time: let this one hear that no answer comes before the next call does.
            await asyncio.sleep(0)
    last = None
    for turn in turns:
        last = turn if turn.method == case.method else last
    # A call that did not come to an end has neither a result nor an error.
    result, error = (None, None) if problem or last is None else (last.result, last.error)
    unused = zip(script.unused, script.told_unused, strict=True) if case.needed_answers else ()
    return Seen(
        method=case.method,
        result=result,
        error=error,
        turns=tuple(turns),
        names={asked.key: asked.used for asked in script.asked if asked.used and is_keyless(asked)}
        if is_keyless
        else {},
        unused=tuple([words for name, words in unused if name in case.needed_answers]),
        problem=problem or _malformed(case.method, result),
    )


_CONTENT: Final = {"tools/call": "content", "prompts/get": "messages", "resources/read": "contents"}
"""The list that a result must have (2026-07-28, server/tools, server/prompts, server/resources)."""


def _malformed(method: str, result: JsonObject | None) -> str:
    """Return what is wrong with a result; empty if nothing is."""
    name = _CONTENT.get(method, "")
    if not name or result is None or isinstance(result.get(name), list):
        return ""
    return f"The server's result is malformed: it has no list {name!r}, which every result of {method} has"


async def _call(case: Case, client: SuiteClient) -> None:
    row, params = METHODS.get(case.method), case.params
    if row is None or not row.asks or type(params.get(row.target or "")) is not str:
        await client.send(case.method, params)
        return
    arguments = params.get("arguments")
    if case.method == "prompts/get" and isinstance(arguments, dict):
        # The arguments of a prompt are texts.
        texts = {name: value if isinstance(value, str) else _json(value) for name, value in arguments.items()}
        params = {**params, "arguments": texts}
    async for _ in client.watch(case.method, **params):
        pass


def _explained(fault: CallFailed, case: Case) -> str:
    text = str(fault)
    if isinstance(fault, RoundsExceeded):
        return f"{text}: 'maxRounds' allows {case.max_rounds}"
    if isinstance(fault, CallTimeout):
        return f"The server did not answer within {case.timeout:g} s ('timeout' says how long it may take)"
    return text


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
