"""Mounts: other servers whose tools, prompts and resources a server offers as well, under a prefix."""

import asyncio
import copy
import logging
import re
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from typing import Any, Final

import msgspec

from antiphon.errors import InvalidParams, ProtocolError, ResourceNotFound
from antiphon.server.run import Run
from antiphon.types import JsonObject
from antiphon.wire.call import Call

log = logging.getLogger("antiphon")

SEPARATOR: Final = "_"
"""Between a prefix and a name: every host allows it in the name of a tool."""
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
KEYS: Final = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}
_OWN: Final = "."
"""The server itself, in a cursor: no prefix has this name."""


class Unreachable(ProtocolError):
    """A mounted server is not there."""


class Mount:
    """A server that another one offers. What a mount does not override, its server does not have."""

    prefix: str
    """Stands before its names; empty where they are as they were."""

    @property
    def features(self) -> Iterable[str]:
        """What it offers, such as "tools", as far as is known."""
        return ()

    @property
    def instructions(self) -> str | None:
        return None

    @property
    def info(self) -> object:
        """Who it says it is, once that is known."""
        return None

    def running(self) -> AbstractAsyncContextManager[None]:
        """Serve while this is entered."""
        return nullcontext()

    async def ready(self, call: Call) -> None:
        """Find out what it offers to the client of this call."""

    async def answer(self, run: Run) -> JsonObject:
        """The result of a request in which the names are its own."""
        raise NotImplementedError

    async def has(self, call: Call, uri: str) -> bool:
        """Whether it has this resource, or a template for it."""
        raise NotImplementedError

    async def relays(self, call: Call) -> bool:
        """Whether the state of this call is its own, and not under the seal of the server that is called."""
        raise NotImplementedError

    def watch(self, call: Call, uri: str) -> Callable[[], None]:
        """Say when this resource changes, until what is returned is called."""
        raise NotImplementedError

    # what is known of a server in this process alone

    def scopes_for(self, message: JsonObject) -> tuple[str, ...]:  # noqa: ARG002 -- for those that know
        """The scopes that a request needs."""
        return ()

    def names(self) -> dict[str, list[str]]:
        """The names that it takes in the server that offers it, by kind."""
        return {}

    def functions(self) -> Iterable[Callable[..., Any]]:
        """The functions behind what it offers."""
        return ()

    def function_of(self, method: str, name: str) -> Callable[..., Any] | None:  # noqa: ARG002 -- for those that know
        """The function that serves a call, by the name that is called."""
        return None

    def check_apart(self, mounts: "Mounts") -> None:
        """ValueError if its server is the one with these mounts, or offers that."""


class Mounts:
    """The mounts of a server, in the order in which they were made. The server's own names come first."""

    def __init__(self) -> None:
        self._mounts: dict[str, Mount] = {}
        self._warned: set[str] = set()

    def __len__(self) -> int:
        return len(self._mounts)

    def __iter__(self) -> Iterator[Mount]:
        return iter(self._mounts.values())

    def check(self, prefix: str) -> None:
        """ValueError if nothing can be mounted under a prefix."""
        if prefix and not _PREFIX.fullmatch(prefix):
            raise ValueError(f"{prefix!r} is no prefix: use 1 to 32 of A-Z, a-z, 0-9, '_' and '-'")
        for other in self._mounts:
            if other == prefix:
                raise ValueError(f"There is something under {prefix!r} already: choose another prefix")
            longer, shorter = sorted((prefix, other), key=len, reverse=True)
            if shorter and longer.startswith(shorter + SEPARATOR):
                raise ValueError(f"The prefixes {shorter!r} and {longer!r} make the same names: choose another one")

    def add(self, mount: Mount) -> None:
        self._mounts[mount.prefix] = mount

    # --- finding --------------------------------------------------------------------------------------------------

    def split(self, name: str) -> tuple[Mount, str] | None:
        """The mount of a tool or prompt, and the name that it has there."""
        for prefix, mount in self._mounts.items():
            if prefix and name.startswith(prefix + SEPARATOR):
                return mount, name[len(prefix) + 1 :]
        bare = self._mounts.get("")
        return None if bare is None else (bare, name)

    async def holder(self, call: Call, uri: str) -> Mount | None:
        """The mount that has a resource. Where none is known to, the only one that may."""
        able = [mount for mount in self if "resources" in mount.features]
        if len(able) == 1:
            return able[0]
        for mount in able:
            if await mount.has(call, uri):
                return mount
        return None

    async def relays(self, call: Call) -> bool:
        """Whether the state of this call belongs to a mounted server."""
        found = await self._found(call)
        return found is not None and await found[0].relays(_renamed(call, found[1]))

    async def _found(self, call: Call) -> tuple[Mount, str] | None:
        if call.method != "resources/read":
            return self.split(call.name)
        mount = await self.holder(call, call.name)
        return None if mount is None else (mount, call.name)

    # --- serving --------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            for mount in self:
                await stack.enter_async_context(mount.running())
            yield

    async def ready(self, call: Call) -> None:
        if self._mounts:
            await asyncio.gather(*(mount.ready(call) for mount in self))

    def instructions(self, own: str | None) -> str | None:
        """The server's own instructions, and those of what is mounted."""
        told = [text for text in (own, *(mount.instructions for mount in self)) if text]
        return "\n\n".join(told) or None

    @property
    def info(self) -> object:
        """Who the server is that stands here under its own names."""
        bare = self._mounts.get("")
        return None if bare is None else bare.info

    async def call(self, run: Run) -> JsonObject:
        """Serve tools/call, prompts/get or resources/read."""
        call = run.call
        found = await self._found(call)
        if found is None:
            if call.method == "resources/read":
                return await self._try_all(run)
            kind = "tool" if call.method == "tools/call" else "prompt"
            raise InvalidParams(f"Unknown {kind}: {call.outer or call.name}")
        mount, name = found
        with _under(run, name):
            return await mount.answer(run)

    async def _try_all(self, run: Run) -> JsonObject:
        """Read a resource that is not listed anywhere: the first server that knows it has it."""
        for mount in self:
            if "resources" in mount.features:
                try:
                    return await mount.answer(run)
                except InvalidParams:
                    continue
        raise ResourceNotFound(run.call.name)

    async def complete(self, run: Run, target: str) -> JsonObject | None:
        """Serve completion/complete; None if the target is not mounted."""
        ref: JsonObject = run.call.params["ref"]
        if ref["type"] == "ref/prompt":
            found = self.split(target)
        else:
            mount = await self.holder(run.call, target)
            found = None if mount is None else (mount, target)
        if found is None or "completions" not in found[0].features:
            return None
        mount, name = found
        inner = copy.copy(run.call)
        inner.params = {**inner.params, "ref": {**ref, "name" if ref["type"] == "ref/prompt" else "uri": name}}
        return await mount.answer(Run(run.server, inner, run.channel))

    async def listed(self, run: Run, own: Callable[[Any], JsonObject]) -> JsonObject:
        """Serve a list: one page of all that is there. Its cursor says how far each list has come."""
        method = run.call.method
        kind, key = KEYS[method]
        feature = method.partition("/")[0]
        await self.ready(run.call)
        sources = [_OWN, *(mount.prefix for mount in self if feature in mount.features)]
        cursors = _read_cursor(run.call.params.get("cursor"), sources)
        alone = len(sources) == 2 and not own(None)[kind]
        pages = await asyncio.gather(
            *(self._page(run, source, cursor, own, alone=alone) for source, cursor in cursors.items())
        )
        merged: JsonObject = {kind: []}
        seen: set[object] = set()
        left: JsonObject = {}
        for source, page in zip(cursors, pages, strict=True):
            for item in page.get(kind, ()):
                if key == "name" and source not in {_OWN, ""}:
                    item = {**item, key: f"{source}{SEPARATOR}{item.get(key)}"}  # noqa: PLW2901 -- the same item
                if item.get(key) in seen:
                    self._warn(f"{kind} {item.get(key)!r} is there twice: the one in {source!r} is left out")
                    continue
                seen.add(item.get(key))
                merged[kind].append(item)
            if page.get("nextCursor") is not None:
                left[source] = page["nextCursor"]
        told = [page for page in pages if "ttlMs" in page]
        if told:
            merged["ttlMs"] = min(page["ttlMs"] for page in told)
            merged["cacheScope"] = min(str(page.get("cacheScope", "private")) for page in told)  # private before public
        if left:
            merged["nextCursor"] = msgspec.json.encode(left).hex()
        return merged

    async def _page(
        self, run: Run, source: str, cursor: object, own: Callable[[Any], JsonObject], *, alone: bool
    ) -> JsonObject:
        if source == _OWN:
            return own(cursor)
        inner = copy.copy(run.call)
        inner.params = {name: value for name, value in inner.params.items() if name != "cursor"}
        if cursor is not None:
            inner.params["cursor"] = cursor
        try:
            return await self._mounts[source].answer(Run(run.server, inner, run.channel))
        except Unreachable as fault:
            if alone:
                raise
            log.warning("%s is not complete: %s", run.call.method, fault)
            return {}

    def _warn(self, text: str) -> None:
        if text not in self._warned and len(self._warned) < 1000:
            self._warned.add(text)
            log.warning("%s", text)

    def watch(self, call: Call, uri: str) -> Callable[[], None]:
        """Listen for changes of a resource; call what is returned to stop."""
        stops = [mount.watch(call, uri) for mount in self if "resources" in mount.features]

        def stop_all() -> None:
            for stop in stops:
                stop()

        return stop_all

    def scopes_for(self, message: JsonObject, params: JsonObject) -> tuple[str, ...]:
        name = params.get("name")
        found = self.split(name) if isinstance(name, str) else None
        if found is not None:
            return found[0].scopes_for({**message, "params": {**params, "name": found[1]}})
        return tuple(dict.fromkeys(scope for mount in self for scope in mount.scopes_for(message)))


def _read_cursor(cursor: object, sources: list[str]) -> Mapping[str, object]:
    """Where to go on, by source; at the beginning, everywhere."""
    if cursor is None:
        return dict.fromkeys(sources)
    found: dict[str, object] | None
    try:
        found = msgspec.json.decode(bytes.fromhex(str(cursor)), type=dict[str, object])
    except (ValueError, msgspec.DecodeError):
        found = None
    if not found or not set(found) <= set(sources):
        raise InvalidParams("Invalid cursor: list again from the beginning")
    return found


def _renamed(call: Call, name: str) -> Call:
    inner = copy.copy(call)
    inner.name = name
    return inner


@contextmanager
def _under(run: Run, name: str) -> Generator[None]:
    """Let a call have the name that a mounted server knows it by. Its token stays bound to the one that was called."""
    call = run.call
    outer, params = call.name, call.params
    if call.outer is None:
        call.outer = outer
    if name != outer:
        call.name, call.params = name, {**params, "name": name}
    try:
        yield
    finally:
        call.name, call.params = outer, params
