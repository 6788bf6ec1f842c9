"""An attempt: one test's call, carried out."""

import asyncio
from contextlib import nullcontext
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Final

import msgspec

from antiphon.client.client import Client
from antiphon.errors import CallFailed, CallTimeout, PeerBroken, Refused, RoundsExceeded
from antiphon.testing.script import Handlers, Script, keyless_in
from antiphon.testing.suite.outcome import Turn
from antiphon.testing.suite.responder import Rest
from antiphon.testing.suite.rotation import limited
from antiphon.testing.suite.seen import Seen
from antiphon.testing.suite.suite import Case
from antiphon.testing.transcript import Recorded
from antiphon.transports.link import Link
from antiphon.types import JsonObject
from antiphon.wire.rev2026 import METHODS, REVISION


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
