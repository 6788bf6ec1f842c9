"""The link to a server whose era is not known: its first answers tell (2026-07-28, basic/versioning)."""

import asyncio
import logging
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Literal, TypeAlias

from antiphon.errors import CallFailed, Disconnected, PeerBroken, Refused
from antiphon.transports.link import Around, Caller, Link, OnNotification, SessionLink, refusal
from antiphon.types import JsonObject
from antiphon.wire.revisions import PROTOCOL_VERSION, REVISION

Era: TypeAlias = Literal["modern", "legacy"]

MOST_KNOWN = 1000
"""Servers whose era is remembered."""
_HEADER_MISMATCH, _MISSING_CAPABILITY, _UNSUPPORTED_VERSION = -32020, -32021, -32022
_INVALID_REQUEST, _METHOD_NOT_FOUND, _INVALID_PARAMS, _INTERNAL_ERROR = -32600, -32601, -32602, -32603
_OF_ANY_ERA = {401, 403, 407, 408, 413, 429, 431}
"""HTTP statuses below 500 that say nothing of the server's era."""

log = logging.getLogger("antiphon.client")


class LegacyMissing(ImportError):
    """The package that speaks older revisions is not installed."""


def era_of(versions: Any) -> Era | None:
    """The era in which to speak to a server that supports these revisions; None if they say nothing.

    A server whose revisions are all newer than ours is spoken to as a modern one: it says best what it wants.
    """
    if type(versions) is not list or not versions or not all(type(one) is str for one in versions):
        return None
    return "legacy" if REVISION not in versions and min(versions) < REVISION else "modern"


class NegotiatingLink(Around):
    """Speaks the new era to a server until that turns out to be old; ``old`` makes the link to it then.

    ``memory`` keeps what was found under ``key``, for the next link to the same server. A link that ``probes`` asks
    ``server/discover`` before anything else, and waits for the answer as long as its ``patience`` lasts.
    """

    request: Callable[..., Any]
    """Once the era is known, that of the chosen link itself: later requests do not go through here."""

    def __init__(
        self,
        new: Link,
        old: Callable[[], SessionLink] | None,
        *,
        memory: MutableMapping[object, Era],
        key: object,
        probes: bool,
        patience: float,
    ) -> None:
        super().__init__(new)
        self._new = self._link
        self._make_old = old
        self._memory = memory
        self._key = key
        self._probes = probes
        self._patience = patience
        self._caller: Caller | None = None
        self._new_is_open = False
        self._is_closed = False
        self._deciding = asyncio.Lock()
        self._is_decided = False
        self.request = self._first

    def introduce(self, caller: Caller) -> None:
        self._caller = caller
        self._new.introduce(caller)

    async def open(self) -> None:
        self._is_closed = False
        if self._known() != "legacy":
            await self._open_new()

    async def close(self) -> None:
        chosen, self._link = self._link, self._new
        self._is_closed = True
        self._is_decided, self.request = False, self._first
        try:
            if chosen is not self._new:
                await chosen.close()
        finally:
            await self._close_new()

    async def _first(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        """A request before the era is known."""
        async with self._deciding:
            if not self._is_decided:
                await self._look()
        if not self._is_decided:
            try:
                reply = await self._new.request(message, headers=headers, on_notification=on_notification)
            except Refused as fault:
                if not await self._is_old(message["method"], fault):
                    raise
            else:
                error = _refusal_in(message["method"], reply)
                if error is None:
                    await self._learn(reply)
                if error is None or not await self._is_old(message["method"], error):
                    return reply
        return await self._link.request(message, headers=headers, on_notification=on_notification)

    # --- finding out ----------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Find out before the first request: what is known, or what a probe tells."""
        self._check_open()
        if self._known() == "legacy":
            try:
                await self._turn_old()
            except Refused as fault:
                log.info("the server was an old one, and is no more: %s", fault)
                self._memory.pop(self._key, None)
            else:
                return
        await self._open_new()
        if self._probes and self._known() is None:
            await self._probe()

    async def _probe(self) -> None:
        """2026-07-28, basic/transports/stdio, Backward Compatibility."""
        try:
            is_modern, is_silent = await self._discovers(), False
        except (TimeoutError, Disconnected, PeerBroken):
            is_modern, is_silent = False, True
        if is_modern:
            self._settle("modern", self._new)
        elif self._make_old is not None:
            await self._turn_old_or_stay(is_silent=is_silent)
        elif not is_silent:
            await self._turn_old("it does not know server/discover")

    async def _turn_old_or_stay(self, *, is_silent: bool) -> None:
        """A server that does not know ``server/discover``, or says nothing at all, may still be no old one.

        It may be slow, or dead, or incomplete: only an old one knows ``initialize``.
        """
        try:
            await self._turn_old()
        except (Refused, Disconnected) as fault:
            if not is_silent and not _is_stranger_to_initialize(fault):
                raise
            log.info("the server does not speak the old era either: %s", fault)
            self._use(self._new)

    async def _is_old(self, method: str, fault: Refused) -> bool:
        """Whether a refusal means an old server; if so, it is spoken to as one from here on."""
        verdict = _verdict(method, fault)
        if verdict == "ask" or (verdict is None and self._probes):
            try:
                verdict = "modern" if await self._discovers() else "legacy"
            except (TimeoutError, Disconnected, PeerBroken):
                verdict = None
        if verdict == "modern":
            self._settle("modern", self._new)
        if verdict != "legacy":
            return False
        async with self._deciding:
            if self._link is self._new:
                if self._probes:
                    await self._close_new()  # late replies to what it was asked before must not be taken for others
                await self._turn_old(str(fault), fault)
        return True

    async def _learn(self, reply: JsonObject) -> None:
        """Settle on the era of a server that did what it was asked.

        Some old servers do so before they are greeted, but their results do not say what they are
        (2026-07-28, basic, ResultType). They are greeted now: what they push would not be heard otherwise.
        """
        result = reply.get("result")
        says = type(result) is not dict or "resultType" in result
        if not says and self._make_old is not None and self._known() is None:
            with suppress(TimeoutError, CallFailed):
                if not await self._discovers():
                    async with self._deciding:
                        if self._link is self._new:
                            await self._turn_old()
        if self._link is self._new:
            self._settle("modern", self._new)

    async def _discovers(self) -> bool:
        """Whether the server answers ``server/discover`` as a modern one does."""
        meta = {PROTOCOL_VERSION: REVISION} if self._caller is None else self._caller.meta
        message: JsonObject = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": meta}}
        headers = {"MCP-Protocol-Version": REVISION, "Mcp-Method": "server/discover"}
        try:
            async with asyncio.timeout(self._patience):
                reply = await self._new.request(message, headers=headers)
            error = _refusal_in("server/discover", reply)
        except Refused as fault:
            error = fault
        return error is None or _verdict("server/discover", error) != "legacy"

    # --- deciding -------------------------------------------------------------------------------------------------

    async def _turn_old(self, why: str = "", fault: Refused | None = None) -> None:
        """Speak the old era from here on; Refused if that is not allowed, or not understood either."""
        self._check_open()
        old = self._made_old(why, fault)
        if self._caller is not None:
            old.introduce(self._caller)
        try:
            await old.open()
        except Refused as refused:
            await self._open_new()
            if fault is not None and _is_stranger_to_initialize(refused):
                raise fault from None  # a modern server after all: what it said first is what matters
            raise
        if self._is_closed:
            await old.close()
        self._check_open()
        self._settle("legacy", old)

    def _made_old(self, why: str, fault: Refused | None) -> SessionLink:
        told = f"The server speaks only older revisions than {REVISION}" + (f" ({why})" if why else "")
        if self._make_old is None:
            told += ": era='auto' or era='legacy' would speak those"
        else:
            try:
                return self._make_old()
            except LegacyMissing as missing:
                told += f": {missing}"
        code, status = (None, None) if fault is None else (fault.code, fault.status)
        raise Refused(told, code=code, status=status)

    def _settle(self, era: Era, link: SessionLink) -> None:
        if len(self._memory) >= MOST_KNOWN:
            self._memory.clear()
        self._memory[self._key] = era
        self._use(link)

    def _use(self, link: SessionLink) -> None:
        self._is_decided, self._link, self.request = True, link, link.request

    def _known(self) -> Era | None:
        era = self._memory.get(self._key)
        return None if era == "legacy" and self._make_old is None else era

    async def _open_new(self) -> None:
        self._check_open()
        if not self._new_is_open:
            await self._new.open()
            self._new_is_open = True

    def _check_open(self) -> None:
        """What is under way when the link is closed opens nothing any more: it would never be closed."""
        if self._is_closed:
            raise Disconnected("The client is closed")

    async def _close_new(self) -> None:
        if self._new_is_open:
            self._new_is_open = False
            await self._new.close()


_MODERN = {_HEADER_MISMATCH, _MISSING_CAPABILITY, _UNSUPPORTED_VERSION}


def _is_stranger_to_initialize(fault: CallFailed) -> bool:
    """Whether a refused ``initialize`` was refused for what it is, and not for what it says."""
    if not isinstance(fault, Refused) or era_of(_supported(fault)) == "legacy":
        return False
    return fault.code in _MODERN | {_METHOD_NOT_FOUND, _INVALID_PARAMS}


def _verdict(method: str, fault: Refused) -> Literal["modern", "legacy", "ask"] | None:
    """What a refusal says of a server's era; None if it says nothing."""
    if fault.code == _UNSUPPORTED_VERSION:
        return era_of(_supported(fault)) or "modern"
    if fault.code in _MODERN:
        return "modern"
    status = fault.status
    if status is not None and (not 400 <= status < 500 or status in _OF_ANY_ERA):
        return None
    if method == "server/discover":
        return "legacy"  # every modern server knows it
    if status is None:
        return None
    if fault.code == _METHOD_NOT_FOUND and status == 404:
        # streamable-http, Protocol Version Header: with this body it is a modern server's.
        return "modern"
    # A modern handler may have failed with these, and must not run again for it.
    return "ask" if fault.code in (_INVALID_REQUEST, _INVALID_PARAMS, _INTERNAL_ERROR) else "legacy"


def _supported(fault: Refused) -> object:
    data: Any = fault.data
    return data.get("supported") if type(data) is dict else None


def _refusal_in(method: str, reply: JsonObject) -> Refused | None:
    """What a reply refuses. A discovery of older revisions only says the same as UnsupportedProtocolVersionError."""
    if "error" in reply:
        try:
            return refusal(reply["error"])
        except PeerBroken:
            return None  # for the caller to complain about
    result = reply.get("result")
    versions: Any = result.get("supportedVersions") if method == "server/discover" and type(result) is dict else None
    if era_of(versions) != "legacy":
        return None
    return Refused(f"it supports {', '.join(versions)}", code=_UNSUPPORTED_VERSION, data={"supported": versions})
