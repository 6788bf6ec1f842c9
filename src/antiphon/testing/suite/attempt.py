"""An attempt: one test's call, carried out."""

import asyncio
from collections.abc import Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Final
from urllib.error import HTTPError, URLError

import msgspec

from antiphon.client.answers import Elicitation, SampleRequest
from antiphon.client.client import Client
from antiphon.errors import CallFailed, CallTimeout, CannotAnswer, PeerBroken, Refused, RoundsExceeded
from antiphon.testing.answers import Handlers, Script, keyless_in
from antiphon.testing.outcome import Turn
from antiphon.testing.paths import ABSENT
from antiphon.testing.servers import limited
from antiphon.testing.suite.model import Case, Responder
from antiphon.testing.transcript import Recorded
from antiphon.transports.link import Link
from antiphon.types import JsonObject
from antiphon.wire.revisions import METHODS, REVISION

# The REST source of answers: a question is posted as JSON, and the answer comes as JSON.


MOST: Final = 10_000_000
"""Bytes that an answer may have."""


class Rest:
    """Asks a Responder; a function as a Script takes it.

    What is posted: ``{"key", "tool", "round", "method", "params"}``. What comes back is an answer as ``inputResponses``
    has it; ``null`` means that there is none.
    """

    def __init__(self, responder: Responder) -> None:
        self._responder = responder

    def __str__(self) -> str:
        return f"The responder at {self._responder.url}"

    async def __call__(self, question: Elicitation | SampleRequest) -> object:
        return await self._answer(posted(question))

    async def roots(self) -> object:
        """Asked for roots, which a client hears of without a question."""
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
    """A question as it is posted."""
    about: dict[str, object] = {"key": question.key, "tool": question.tool, "round": question.round}
    if isinstance(question, SampleRequest):
        return {**about, "method": "sampling/createMessage", "params": question.params}
    params: dict[str, object] = {"mode": question.mode, "message": question.message}
    params |= {"url": question.url} if question.mode == "url" else {"requestedSchema": question.schema}
    return {**about, "method": "elicitation/create", "params": params}


def _is_local(url: str) -> bool:
    from urllib.parse import urlsplit

    return urlsplit(url).hostname in {"localhost", "127.0.0.1", "::1"}


def _reason(fault: Exception) -> str:
    return str(fault.reason) if isinstance(fault, URLError) else str(fault) or type(fault).__name__


# What was seen of a call: its result or its error, its rounds, its questions.


_ENVELOPE = frozenset({"_meta", "resultType", "ttlMs", "cacheScope"})
"""What the protocol wraps around a result, and what differs from era to era."""


class Asked(msgspec.Struct, frozen=True):
    """A question that came: its key, and its message if it has one."""

    key: str
    message: str


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """All that an expectation can look at."""

    method: str
    result: JsonObject | None = None
    error: JsonObject | None = None
    turns: tuple[Turn, ...] = ()
    seconds: float = 0.0
    names: Mapping[str, str] = {}
    """What the test calls the questions of an older server, which have no keys of their own."""

    @property
    def rounds(self) -> int:
        """How many requests the call took; what a client asks besides does not count."""
        return sum(turn.method == self.method for turn in self.turns)

    @property
    def asked(self) -> list[Asked]:
        return [
            Asked(self.names.get(key, key), _message(request))
            for turn in self.turns
            if turn.method == self.method
            for key, request in turn.questions.items()
        ]

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


def _message(request: Any) -> str:
    params = request.get("params") if isinstance(request, dict) else None
    message = params.get("message") if isinstance(params, dict) else None
    return message if isinstance(message, str) else ""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: something seen, or a problem that kept anything from being seen."""

    seen: Seen
    problem: str = ""
    unused: tuple[str, ...] = ()
    """The answers that must be used and were not, or not to their end; in words."""


def script_of(case: Case, *, keyless: bool = False) -> Script:
    """The answers of a case: what it says itself, then what its responder says."""
    script = Script(case.answers, keyless=keyless, called="test")
    if case.responder is not None:
        rest = Rest(case.responder)
        script._otherwise = rest
        if not script.has_roots:
            script(roots=rest.roots)
    return script


_script: ContextVar[Script] = ContextVar("script")
"""The answers of the test that is run here."""


def _answers() -> Handlers:
    """Handlers that answer from the script of whichever test makes the call."""
    return {
        "elicit": lambda question: _current()._elicit(question),
        "elicit_url": lambda question: _current()._elicit(question),
        "sample": lambda request: _current()._sample(request),
        "sample_tools": True,
        "roots": lambda: _current()._roots(),
    }


def _current() -> Script:
    return _script.get(_NOTHING)


_NOTHING: Final = Script()


class Clients:
    """The clients of one server: one for each limit that tests have, since a client for each test costs as much.

    Behind a link that ``rotates`` a request may wait for an instance to start, so there the link keeps the time.
    """

    def __init__(self, link: Link, *, rotates: bool = False) -> None:
        self.link = Recorded(link)
        self.rotates = rotates
        self._made: dict[tuple[float | None, int], Client] = {}

    async def client(self, case: Case) -> Client:
        limits = None if self.rotates else case.timeout, case.max_rounds
        if limits not in self._made:
            made = Client(self.link, **_answers(), timeout=limits[0], max_rounds=case.max_rounds, name="antiphon-test")
            self._made[limits] = await made.__aenter__()
        return self._made[limits]

    async def close(self) -> None:
        made, self._made = self._made, {}
        for client in made.values():
            await client.__aexit__(None, None, None)


async def attempt(case: Case, clients: Clients, *, keyless: bool = False) -> Attempt:
    """Make the call, answer what it asks, and note all of it. Nothing that a server does is raised."""
    client = await clients.client(case)
    script = script_of(case, keyless=keyless)
    before = _script.set(script)
    problem = ""
    begun = perf_counter()
    with clients.link.noting() as turns, limited(case.timeout) if clients.rotates else nullcontext():
        if keyless:
            script.keyless = keyless_in(turns)
        try:
            await _called(case, client, clients)
        except Refused:
            pass  # it is in the transcript, and perhaps expected
        except CallFailed as fault:
            problem = _explained(fault, case)
            # Whoever is told that nobody answers is told before the next call: simple servers wait for one thing.
            await asyncio.sleep(0)
        finally:
            _script.reset(before)
    seconds = sum(turn.seconds for turn in turns) if clients.rotates else perf_counter() - begun
    seen = _seen(case, tuple(turns), seconds, _names(script), problem)
    return Attempt(seen=seen, problem=problem or _malformed(seen), unused=_unused(case, script))


def _names(script: Script) -> dict[str, str]:
    """What the test calls the questions that have no keys of their own."""
    return {asked.key: asked.used for asked in script.asked if asked.used and script._is_keyless(asked.key)}


def _unused(case: Case, script: Script) -> tuple[str, ...]:
    unused = zip(script.unused, script.told_unused, strict=True)
    return tuple(told for name, told in unused if name in case.needed_answers)


_CONTENT: Final = {"tools/call": "content", "prompts/get": "messages", "resources/read": "contents"}
"""The list that a result must have (2026-07-28, server/tools, server/prompts, server/resources)."""


def _malformed(seen: Seen) -> str:
    name = _CONTENT.get(seen.method, "")
    if not name or seen.result is None or isinstance(seen.result.get(name), list):
        return ""
    return f"The server's result is malformed: it has no list {name!r}, which every result of {seen.method} has"


async def _called(case: Case, client: Client, clients: Clients) -> None:
    row = METHODS.get(case.method)
    if row is None or not row.asks or type(case.params.get(row.target or "")) is not str:
        await _plainly(case, client, clients)
        return
    async for _ in client.watch(case.method, **_wired(case)):
        pass


def _wired(case: Case) -> JsonObject:
    """The parameters as the wire has them: the arguments of a prompt are texts."""
    arguments = case.params.get("arguments")
    if case.method != "prompts/get" or not isinstance(arguments, dict):
        return case.params
    texts = {name: value if isinstance(value, str) else _json(value) for name, value in arguments.items()}
    return {**case.params, "arguments": texts}


async def _plainly(case: Case, client: Client, clients: Clients) -> None:
    """One request of any kind, as it was written, be it wrong."""
    params = {**case.params, "_meta": {**client._meta, **(case.params.get("_meta") or {})}}
    message: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": case.method, "params": params}
    headers = {"MCP-Protocol-Version": REVISION, "Mcp-Method": case.method}
    try:
        async with asyncio.timeout(None if clients.rotates else case.timeout):
            reply: Any = await clients.link.request(message, headers=headers)
    except TimeoutError:
        raise CallTimeout("server", case.timeout) from None
    if type(reply.get("result")) is not dict and type(reply.get("error")) is not dict:
        raise PeerBroken("The server's reply has neither a result nor an error")


def _seen(case: Case, turns: tuple[Turn, ...], seconds: float, names: dict[str, str], problem: str) -> Seen:
    last = next((turn for turn in reversed(turns) if turn.method == case.method), None)
    has_end = last is not None and not problem
    return Seen(
        method=case.method,
        result=last.result if last is not None and has_end else None,
        error=last.error if last is not None and has_end else None,
        turns=turns,
        seconds=seconds,
        names=names,
    )


def _explained(fault: CallFailed, case: Case) -> str:
    text = str(fault)
    if isinstance(fault, RoundsExceeded):
        return f"{text}: 'maxRounds' allows {case.max_rounds}"
    if isinstance(fault, CallTimeout):
        return f"The server did not answer within {case.timeout:g} s ('timeout' says how long it may take)"
    return text


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
