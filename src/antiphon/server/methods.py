"""The methods of the protocol: what each answers from the registry, and from the servers that are mounted in it."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias

from antiphon.errors import InvalidParams
from antiphon.server.completion import completion, read_params
from antiphon.server.mounts import KEYS, Mount, Mounts
from antiphon.server.registry import Registry
from antiphon.server.run import Run
from antiphon.server.subscriptions import MAX_URIS
from antiphon.types import JsonObject
from antiphon.wire.call import Call
from antiphon.wire.revisions import REVISION, SERVER_INFO

Route: TypeAlias = Callable[[Run], Awaitable[Any]]


class Methods(Registry):
    """A registry whose entries are listed, called and read by requests."""

    def __init__(self, *, instructions: str | None, page_size: int | None, list_ttl: float, is_private: bool) -> None:
        super().__init__()
        if page_size is not None and page_size < 1:
            raise ValueError("page_size must be at least 1")
        if list_ttl < 0:
            raise ValueError("list_ttl must not be negative")
        self.instructions = instructions
        self.is_private = is_private
        """Whether who asks can matter, so that no cache may share what is listed."""
        self.mounts = Mounts()
        self._page_size = page_size
        self._list_ttl = int(list_ttl * 1000)

    def _methods(self) -> dict[str, Route]:
        """The methods by name."""
        return {
            "server/discover": self._discover,
            "tools/call": self._call_tool,
            "prompts/get": self._get_prompt,
            "resources/read": self._read_resource,
            "completion/complete": self._complete_argument,
            "subscriptions/listen": self._listen,
            **dict.fromkeys(KEYS, self._list),
        }

    # --- mounts ---------------------------------------------------------------------------------------------------

    def add_mount(self, mount: Mount) -> None:
        """Offer what another server offers; before anything is served."""
        self.mounts.check(mount.prefix)
        mount.check_apart(self.mounts)
        taken = self.names()
        for kind, names in mount.names().items():
            clash = set(names).intersection(taken[kind])
            if clash:
                raise ValueError(f"There is a {kind} {min(clash)!r} already: remove it first, or choose another prefix")
        self.mounts.add(mount)

    def names(self) -> dict[str, list[str]]:
        taken = super().names()
        for mount in self.mounts:
            for kind, names in mount.names().items():
                taken[kind] += names
        return taken

    def functions(self) -> Iterator[Callable[..., Any]]:
        yield from super().functions()
        for mount in self.mounts:
            yield from mount.functions()

    def function_of(self, method: str, name: str) -> Callable[..., Any] | None:
        own = super().function_of(method, name)
        found = (mount.function_of(method, name) for mount in self.mounts)
        return own or next((function for function in found if function is not None), None)

    def scopes_for(self, message: JsonObject) -> tuple[str, ...]:
        if not self._scopes and not self.mounts:
            return ()
        own, params = super().scopes_for(message), message.get("params")
        return self.mounts.scopes_for(message, params) if not own and self.mounts and type(params) is dict else own

    @property
    def features(self) -> set[str]:
        if not self.mounts:
            return self._features
        return self._features.union(*(mount.features for mount in self.mounts))

    async def ready(self, call: Call) -> None:
        """Find out what is mounted, before the client of this call is told what there is."""
        await self.mounts.ready(call)

    async def _relays(self, call: Call) -> bool:
        """Whether a mounted server gave the state of this call, and reads it itself."""
        return not self.offers(call.method, call.name) and await self.mounts.relays(call)

    # --- the methods ----------------------------------------------------------------------------------------------

    async def _discover(self, run: Run) -> JsonObject:
        await self.ready(run.call)
        result: JsonObject = {"supportedVersions": [REVISION], "capabilities": self.capabilities()}
        if self.mounts.info is not None:
            result["_meta"] = {SERVER_INFO: self.mounts.info}
        instructions = self.mounts.instructions(self.instructions)
        if instructions is not None:
            result["instructions"] = instructions
        return result

    async def _list(self, run: Run) -> JsonObject:
        call = run.call
        kind, key = KEYS[call.method]
        depends = kind == "tools" and any(self._client_needs.values())
        hidden = self._hidden_from(call.capabilities) if depends else ()

        def own(cursor: object) -> JsonObject:
            return self._page(kind, key, cursor, self._page_size, hidden=hidden)

        page = await self.mounts.listed(run, own) if self.mounts else own(call.params.get("cursor"))
        if depends:
            page["cacheScope"] = "private"
        if self.mounts.info is not None:
            page["_meta"] = {SERVER_INFO: self.mounts.info}
        return page

    def _call_tool(self, run: Run) -> Awaitable[Any]:
        entry = self._tools.get(run.call.name)
        return self.mounts.call(run) if entry is None else entry.call(run)

    def _get_prompt(self, run: Run) -> Awaitable[Any]:
        entry = self._prompts.get(run.call.name)
        return self.mounts.call(run) if entry is None else entry.get(run)

    def _read_resource(self, run: Run) -> Awaitable[Any]:
        if self.mounts and not self.offers("resources/read", run.call.name):
            return self.mounts.call(run)
        static = self._resources.get(run.call.name)
        entry, variables = (static, {}) if static is not None else self._template_for(run.call.name)
        return entry.read(run, variables)

    async def _complete_argument(self, run: Run) -> JsonObject:
        params = read_params(run.call.params)
        known = self._prompts if params.ref.type == "ref/prompt" else self._templates
        entry = known.get(params.target)
        if entry is None and params.ref.type == "ref/resource" and params.target in self._resources:
            return completion([])
        if entry is None and self.mounts:
            elsewhere = await self.mounts.complete(run, params.target)
            if elsewhere is not None:
                return elsewhere
        if entry is None:
            raise InvalidParams(f"Nothing to complete: {params.target} is not known")
        if params.argument.name not in entry.options:
            raise InvalidParams(f"{params.target} has no argument {params.argument.name!r}")
        completer = self._completers.get((params.target, params.argument.name))
        if completer is None:
            typed = params.argument.value.lower()
            options = entry.options[params.argument.name]
            return completion([item for item in options if item.lower().startswith(typed)])
        known_arguments: JsonObject = {} if params.context is None else dict(params.context.arguments)
        return await completer.suggest(run, params.argument.value, known_arguments)

    async def _listen(self, run: Run) -> JsonObject:
        wanted = run.call.params.get("notifications")
        found = wanted.get("resourceSubscriptions") if type(wanted) is dict else None
        uris = {uri for uri in found[:MAX_URIS] if type(uri) is str} if self.mounts and type(found) is list else ()
        stops = [self.mounts.watch(run.call, uri) for uri in uris]
        try:
            return await self.subscriptions.listen(run, self.features)
        finally:
            for stop in stops:
                stop()

    def _cache(self) -> JsonObject:
        return {"ttlMs": self._list_ttl, "cacheScope": "private" if self.is_private else "public"}
