"""Requests of a client: their ids, their headers, their replies, and lists in pages."""

import functools
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from antiphon.client.catalogue import Cache, Catalogue
from antiphon.client.deadlines import Budget, Deadlines
from antiphon.client.results import CallResult, ReadResult, Result, implementation, read_result
from antiphon.errors import Disconnected, PeerBroken, Refused
from antiphon.rounds.client_loop import asked
from antiphon.transports.link import OnNotification, SessionLink, refusal
from antiphon.types import Implementation, JsonObject, LogLevel, Tool
from antiphon.wire.headers import encode_params, encode_value
from antiphon.wire.revisions import METHODS, PROGRESS_TOKEN, REVISION, SERVER_INFO

T = TypeVar("T")
OnProgress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None] | None]
OnLog: TypeAlias = Callable[[LogLevel, Any, str | None], Awaitable[None] | None]

HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022
MAX_PAGES = 10_000
"""Pages after which a list has no end."""


class Requests:
    """Sends requests over a link and reads their results. ``timeout`` is the server's time for one of them."""

    def __init__(self, link: SessionLink, meta: JsonObject, *, on_log: OnLog | None, timeout: float | None) -> None:
        self.link = link
        self.meta = meta
        self.server: Implementation | None = None
        """Who the server says it is, once it has answered anything."""
        self.is_open = False
        self.deadlines = Deadlines()
        self.timeout = timeout
        self.cache = Cache()
        self.catalogue = Catalogue()
        self._on_log = on_log
        self._ids = itertools.count(1)
        self._budgets: dict[object, Budget] = {}

    def budget(self, seconds: float | None) -> Budget:
        """The server's time."""
        return Budget(self.deadlines, "server", seconds)

    async def open(self) -> None:
        """Open the link; that is the server's time only where the link greets it."""
        with self.budget(self.timeout if self.link.stateful else None) as budget:
            self._budgets[None] = budget
            try:
                await self.link.open()
            finally:
                del self._budgets[None]
        self.is_open = True

    async def send(
        self,
        method: str,
        params: JsonObject,
        progress: OnProgress | None = None,
        *,
        tell: OnNotification | None = None,
        repeat: bool = True,
        budget: Budget | None = None,
        meta: JsonObject | None = None,
    ) -> JsonObject:
        """Send one request and return its result. An error that the specification lets a client mend is mended once.

        Raises Refused for any other error, PeerBroken for a reply that is none. ``budget`` is paused while a question
        is answered that may belong to this request. ``meta`` is what the request says instead of the client's own.
        """
        if not self.is_open:
            raise Disconnected("The client is not open: use it inside 'async with'")
        id_ = next(self._ids)
        told = self.meta if meta is None else meta
        if progress is not None or PROGRESS_TOKEN in told:
            told = {**told, PROGRESS_TOKEN: id_}
        if tell is None and (progress is not None or self._on_log is not None):
            tell = self.teller(progress)
        message: JsonObject = {"jsonrpc": "2.0", "id": id_, "method": method, "params": {**params, "_meta": told}}
        if budget is not None:
            self._budgets[id_] = budget
        try:
            reply = await self.link.request(message, headers=self._mirrored(method, params), on_notification=tell)
            if "error" in reply:
                raise refusal(reply["error"])
        except Refused as fault:
            if repeat and await self._mended(fault, method, params):
                return await self.send(method, params, progress, tell=tell, repeat=False, budget=budget, meta=meta)
            raise
        finally:
            self._budgets.pop(id_, None)
        if reply.get("id") != id_ or type(reply["id"]) is not int:
            # To Python, 1 is 1.0 and True as well.
            raise PeerBroken(f"The server answered request {reply.get('id')!r}, and not this one")
        result = reply.get("result")
        if type(result) is not dict:
            raise PeerBroken("The server's reply has neither a result nor an error")
        if self.server is None:
            self.server = _server_of(result)
        return result

    async def plain(self, method: str, params: JsonObject) -> JsonObject:
        """Send a request that may not be answered with questions."""
        with self.budget(self.timeout) as budget:
            result = await self.send(method, params, budget=budget)
        if asked(result, 1) is not None:
            raise PeerBroken(f"The server asks for input where it may not: {method}")
        return result

    async def cached(self, method: str, params: JsonObject) -> JsonObject:
        """Return the kept result if it is fresh, else a new one."""
        result = self.cache.get(method, params)
        if result is None:
            age = self.cache.age
            result = await self.plain(method, params)
            self.cache.keep(method, params, result, age)
        return result

    async def listed(self, method: str, key: str, type_: type[T]) -> AsyncIterator[T]:
        """The items of all pages; PeerBroken when the pages go round in a circle, or never end."""
        cursor: Any = None
        seen: set[str] = set()
        while len(seen) < MAX_PAGES:
            page = await self.cached(method, {} if cursor is None else {"cursor": cursor})
            for item in typed(page.get(key), list[Any], method):
                yield typed(item, type_, method)
            cursor = page.get("nextCursor")
            if cursor is None:
                return
            if type(cursor) is not str:
                raise PeerBroken("The server gave a cursor that is not a string")
            if cursor in seen:
                raise PeerBroken("The server gives the same pages again and again")
            seen.add(cursor)
        raise PeerBroken(f"The server's list has more than {MAX_PAGES} pages")

    async def tools(self) -> AsyncIterator[Tool]:
        async for tool in self.listed("tools/list", "tools", Tool):
            if self.catalogue.learn(tool):
                yield tool

    def learn(self, page: JsonObject) -> None:
        """Remember the tools of a page as it came."""
        for tool in page.get("tools") or ():
            with suppress(PeerBroken):
                self.catalogue.learn(typed(tool, Tool, "tools/list"))

    def read(self, method: str, params: JsonObject, result: JsonObject, *, count: int, age: int) -> Result:
        """The result of a call that took so many requests, checked; PeerBroken if it is malformed."""
        made = read_result(method, result, count)
        if isinstance(made, CallResult):
            self.catalogue.check(params["name"], made, is_structured="structuredContent" in result)
        elif isinstance(made, ReadResult) and count == 1:
            # server/utilities/caching, Cache Key: never a result that depends on answers.
            self.cache.keep(method, params, result, age)
        return made

    def clock(self, id_: object, runs: bool) -> None:
        """Stop or start the server's time for a request, or, with None, for all that are under way."""
        for budget in [*self._budgets.values()] if id_ is None else filter(None, [self._budgets.get(id_)]):
            if runs:
                budget.go_on()
            else:
                budget.pause()

    def teller(self, progress: OnProgress | None) -> OnNotification:
        async def tell(message: JsonObject) -> None:
            method, params = message["method"], message.get("params")
            told: Any = None
            if type(params) is not dict:
                return
            if method == "notifications/progress" and progress is not None:
                told = progress(params.get("progress", 0), params.get("total"), params.get("message"))
            elif method == "notifications/message" and self._on_log is not None:
                told = self._on_log(params.get("level", "info"), params.get("data"), params.get("logger"))
            if told is not None:
                await told

        return tell

    async def _mended(self, fault: Refused, method: str, params: JsonObject) -> bool:
        """Whether a refused request is worth repeating."""
        if fault.code == UNSUPPORTED_VERSION:
            supported = fault.data.get("supported") if isinstance(fault.data, dict) else None
            return isinstance(supported, list) and REVISION in supported
        if fault.code == HEADER_MISMATCH and method == "tools/call":
            # streamable-http, Client Behavior: the tool's schema may name headers that we did not know of.
            before = self.catalogue.headers.get(params["name"], ())
            self.cache.clear()
            async for _ in self.tools():
                pass
            return self.catalogue.headers.get(params["name"], ()) != before
        return False

    def _mirrored(self, method: str, params: JsonObject) -> Mapping[str, str]:
        """streamable-http, Request Metadata: the headers that repeat the body."""
        target = METHODS[method].target
        name = None if target is None else params[target]
        headers = (_known_standard if name is None or len(name) <= _SHORT else _standard)(method, name)
        if method == "tools/call" and (mirrored := self.catalogue.headers.get(params["name"])):
            return {**headers, **encode_params(mirrored, params.get("arguments") or {})}
        return headers


def _standard(method: str, name: str | None) -> Mapping[str, str]:
    headers = {"MCP-Protocol-Version": REVISION, "Mcp-Method": method}
    if name is not None:
        headers["Mcp-Name"] = encode_value(name)
    return MappingProxyType(headers)


_SHORT = 256
_known_standard = functools.lru_cache(maxsize=1024)(_standard)


def typed(value: object, type_: Any, method: str) -> Any:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as fault:
        raise PeerBroken(f"The server's result for {method} is malformed: {fault}") from None


def _server_of(result: JsonObject) -> Implementation | None:
    meta = result.get("_meta")
    info = meta.get(SERVER_INFO) if type(meta) is dict else None
    # Some servers still say it where the older revisions did.
    return implementation(info or result.get("serverInfo"))


class Pages(Generic[T]):
    """A list that comes in pages: ``await`` it whole, or iterate over it as the pages come."""

    __slots__ = ("_items",)

    def __init__(self, items: Callable[[], AsyncIterator[T]]) -> None:
        self._items = items

    def __await__(self) -> Generator[Any, None, list[T]]:
        return self._all().__await__()

    def __aiter__(self) -> AsyncIterator[T]:
        return self._items()

    async def _all(self) -> list[T]:
        return [item async for item in self._items()]
