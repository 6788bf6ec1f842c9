"""The Registry: the tools, prompts and resources of a server, and who hears when they change."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

import msgspec

from antiphon.errors import InvalidParams, ResourceNotFound
from antiphon.rounds.ask import supports
from antiphon.server.completion import Completer
from antiphon.server.prompts import PromptEntry
from antiphon.server.resources import ResourceEntry, checked_uri
from antiphon.server.subscriptions import Kind, Subscriptions
from antiphon.server.tools import ToolEntry
from antiphon.types import Annotations, Icon, JsonObject, Scope, ToolAnnotations

Function = TypeVar("Function", bound=Callable[..., Any])

_FORM = ("elicitation", "form")
_NEEDS = (
    *("elicitation", "elicitation.form", "elicitation.url"),
    *("sampling", "sampling.tools", "sampling.context", "roots"),
)


class Registry:
    """What a server offers."""

    def __init__(self) -> None:
        self.subscriptions = Subscriptions()
        self._tools: dict[str, ToolEntry] = {}
        self._prompts: dict[str, PromptEntry] = {}
        self._resources: dict[str, ResourceEntry] = {}
        self._templates: dict[str, ResourceEntry] = {}
        self._tables: dict[str, Mapping[str, Any]] = {"tools": self._tools, "prompts": self._prompts}
        self._tables |= {"resources": self._resources, "resourceTemplates": self._templates}
        self._completers: dict[tuple[str, str], Completer] = {}
        self._scopes: dict[tuple[Any, Any], tuple[str, ...]] = {}
        self._client_needs: dict[str, set[tuple[str, ...]]] = {}
        """What a client must have declared to be shown a tool."""
        self._asked_elsewhere: frozenset[str] = frozenset()
        """The capabilities that no client needs, since people are asked without it."""
        self._features: set[str] = set()
        self._listed: dict[str, list[JsonObject]] = {}

    @overload
    def tool(self, function: Function, /) -> Function: ...
    @overload
    def tool(
        self,
        name: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        input_schema: JsonObject | None = None,
        output_schema: JsonObject | None = None,
        annotations: ToolAnnotations | None = None,
        icons: Sequence[Icon] = (),
        meta: JsonObject | None = None,
        scopes: Sequence[str] = (),
        needs: str | Sequence[str] = (),
    ) -> Callable[[Function], Function]: ...
    def tool(self, *first: Any, **about: Any) -> Any:
        """Make a function a tool: ``@app.tool``, ``@app.tool("name")`` or ``@app.tool(title=...)``."""
        return _decorated(self.add_tool, first, about)

    def add_tool(
        self,
        function: Callable[..., Any],
        *,
        scopes: Sequence[str] = (),
        needs: str | Sequence[str] = (),
        **about: Any,
    ) -> None:
        """Add a tool, also while serving; listeners are told. On a protected server, its callers need ``scopes``.

        ``needs`` names what a client must have declared, such as ``"elicitation"``, to be shown the tool.
        """
        entry = ToolEntry(function, **about)
        wanted = _capabilities(needs) | ({_FORM} if entry.handler.asks_forms else set())
        self._need("tools/call", entry.name, scopes)
        _insert(self._tools, entry.name, entry, "tool")
        self._client_needs[entry.name] = {path for path in wanted if path[0] not in self._asked_elsewhere}
        self._offer("tools")

    def remove_tool(self, name: str) -> None:
        _remove(self._tools, name, "tool")
        del self._client_needs[name]
        self.changed("tools")

    @overload
    def prompt(self, function: Function, /) -> Function: ...
    @overload
    def prompt(
        self,
        name: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        icons: Sequence[Icon] = (),
        meta: JsonObject | None = None,
        scopes: Sequence[str] = (),
    ) -> Callable[[Function], Function]: ...
    def prompt(self, *first: Any, **about: Any) -> Any:
        """Make a function a prompt."""
        return _decorated(self.add_prompt, first, about)

    def add_prompt(self, function: Callable[..., Any], *, scopes: Sequence[str] = (), **about: Any) -> None:
        entry = PromptEntry(function, **about)
        self._need("prompts/get", entry.name, scopes)
        _insert(self._prompts, entry.name, entry, "prompt")
        self._offer("prompts")
        if any(entry.options.values()):
            self._features.add("completions")

    def remove_prompt(self, name: str) -> None:
        _remove(self._prompts, name, "prompt")
        self._forget_completers(name)
        self.changed("prompts")

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        ttl: float = 0,
        scope: Scope = "private",
        annotations: Annotations | None = None,
        icons: Sequence[Icon] = (),
        meta: JsonObject | None = None,
        scopes: Sequence[str] = (),
    ) -> Callable[[Function], Function]:
        """Make a function a resource; variables in braces make it a template of many (RFC 6570)."""
        checked_uri(uri)

        def register(function: Function) -> Function:
            self.add_resource(
                uri,
                function,
                name=name,
                title=title,
                description=description,
                mime_type=mime_type,
                size=size,
                ttl=ttl,
                scope=scope,
                annotations=annotations,
                icons=icons,
                meta=meta,
                scopes=scopes,
            )
            return function

        return register

    def add_resource(self, uri: str, function: Callable[..., Any], *, scopes: Sequence[str] = (), **about: Any) -> None:
        entry = ResourceEntry(uri, function, **about)
        self._need("resources/read", uri, scopes)
        _insert(self._resources if entry.template is None else self._templates, uri, entry, "resource")
        self._offer("resources")
        if any(entry.options.values()):
            self._features.add("completions")

    def remove_resource(self, uri: str) -> None:
        _remove(self._resources if uri in self._resources else self._templates, uri, "resource")
        self._forget_completers(uri)
        self.changed("resources")

    def complete(self, target: str | Callable[..., Any], argument: str) -> Callable[[Function], Function]:
        """Suggest values for an argument of a prompt, or a variable of a template.

        ``target`` is the prompt's name, the template's URI, or the function of either.
        """
        entries: dict[str, PromptEntry | ResourceEntry] = {**self._templates, **self._prompts}
        found = {key: entry for key, entry in entries.items() if target in (key, entry.handler.function)}
        if not found:
            told = getattr(target, "__name__", target)
            raise ValueError(f"There is no prompt or resource template {told!r} to complete: register it first")
        for key, entry in found.items():
            if argument not in entry.options:
                raise ValueError(f"{key!r} has no argument {argument!r}: expected {', '.join(entry.options) or 'none'}")

        def register(function: Function) -> Function:
            for key in found:
                self._completers[key, argument] = Completer(function)
            self._features.add("completions")
            return function

        return register

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def features(self) -> set[str]:
        """What is offered here, such as "tools"."""
        return self._features

    def capabilities(self) -> JsonObject:
        """What this server declares that it can do."""
        capabilities: JsonObject = {"logging": {}}
        features = self.features
        for kind in ("tools", "prompts", "resources"):
            if kind in features:
                capabilities[kind] = {"listChanged": True}
        if "resources" in features:
            capabilities["resources"]["subscribe"] = True
        if "completions" in features:
            capabilities["completions"] = {}
        return capabilities

    def functions(self) -> Iterator[Callable[..., Any]]:
        """The functions behind all tools, prompts and resources."""
        for table in self._tables.values():
            for entry in table.values():
                yield entry.handler.function

    def function_of(self, method: str, name: str) -> Callable[..., Any] | None:
        """The function that serves a call; None if there is none under that name."""
        entry = self._tables.get(method.partition("/")[0], {}).get(name)
        return None if entry is None else entry.handler.function

    def names(self) -> dict[str, list[str]]:
        """The names that are taken, by kind."""
        return {
            "tool": list(self._tools),
            "prompt": list(self._prompts),
            "resource": [*self._resources, *self._templates],
        }

    def offers(self, method: str, name: str) -> bool:
        """Whether a tool, prompt or resource is this server's own."""
        if Registry.function_of(self, method, name) is not None:
            return True
        return method == "resources/read" and self._matching(name) is not None

    def _hidden_from(self, capabilities: Mapping[str, Any]) -> set[str]:
        """The tools that a client with these capabilities cannot use."""
        needs = ((name, paths) for name, paths in self._client_needs.items() if paths)
        return {name for name, paths in needs if not all(supports(capabilities, path) for path in paths)}

    def _page(
        self,
        kind: str,
        key: str,
        cursor: object,
        size: int | None,
        *,
        hidden: Container[str] = (),
    ) -> JsonObject:
        """A list, or a page of it: a cursor is the key of the last item before the page."""
        listed = self._listed.get(kind)
        if listed is None:
            listed = self._listed[kind] = [msgspec.to_builtins(entry.listed) for entry in self._tables[kind].values()]
        start = 0
        if cursor is not None:
            start = 1 + next((at for at, item in enumerate(listed) if _cursor(item[key]) == cursor), -1)
            if start == 0:
                raise InvalidParams("Invalid cursor: list again from the beginning")
        rest = [item for item in listed[start:] if item[key] not in hidden] if hidden else listed[start:]
        page = rest[:size]
        result: JsonObject = {kind: page}
        if len(page) < len(rest):
            result["nextCursor"] = _cursor(page[-1][key])
        return result

    def _template_for(self, uri: str) -> tuple[ResourceEntry, dict[str, Any]]:
        found = self._matching(uri)
        if found is None:
            raise ResourceNotFound(uri)
        return found

    def _matching(self, uri: str) -> tuple[ResourceEntry, dict[str, Any]] | None:
        """The first template that a URI fits, and the values of its variables."""
        for entry in self._templates.values():
            assert entry.template is not None
            variables = entry.template.match(uri)
            if variables is not None:
                return entry, dict(variables)
        return None

    # --- scopes ---------------------------------------------------------------------------------------------------

    def scopes_for(self, message: JsonObject) -> tuple[str, ...]:
        """Return the scopes that a request needs beside those that every request needs."""
        params, method = message.get("params"), message.get("method")
        if not self._scopes or not isinstance(params, dict):
            return ()
        name = params.get("uri" if method == "resources/read" else "name")
        if method == "resources/read" and isinstance(name, str) and name not in self._resources:
            found = self._matching(name)
            name = name if found is None else found[0].key
        return self._scopes.get((method, name), ()) if isinstance(name, str) else ()

    def _need(self, method: str, name: str, scopes: Sequence[str]) -> None:
        if isinstance(scopes, str):
            raise TypeError(f"scopes= takes a list, got {scopes!r}: write [{scopes!r}]")
        if scopes:
            self._scopes[method, name] = tuple(dict.fromkeys(scopes))

    # --- telling of changes ---------------------------------------------------------------------------------------

    def changed(self, kind: Kind) -> None:
        """Tell listeners that the list of tools, prompts or resources changed."""
        if kind not in {"tools", "prompts", "resources"}:
            raise ValueError(f"changed() takes 'tools', 'prompts' or 'resources', got {kind!r}")
        self._listed.clear()
        self.subscriptions.changed(kind)

    def updated(self, uri: str) -> None:
        """Tell listeners of a resource that it changed."""
        self.subscriptions.updated(uri)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _forget_completers(self, target: str) -> None:
        self._completers = {key: value for key, value in self._completers.items() if key[0] != target}

    def _offer(self, kind: Kind) -> None:
        self._features.add(kind)
        self.changed(kind)


def _decorated(add: Callable[..., None], first: tuple[Any, ...], about: dict[str, Any]) -> Any:
    """Serve a decorator with and without parentheses: ``first`` is the function, or the name it shall have."""
    if len(first) > 1:
        raise TypeError(f"A decorator takes one name, or the function: got {len(first)} arguments")

    def register(function: Function) -> Function:
        add(function, **about)
        return function

    if first and first[0] is not None and not isinstance(first[0], str):
        return register(first[0])
    if first:
        about = {"name": first[0], **about}
    return register


def _insert(registry: dict[str, Any], key: str, entry: object, kind: str) -> None:
    if key in registry:
        raise ValueError(f"There is a {kind} {key!r} already: remove it first, or choose another name")
    registry[key] = entry


def _remove(registry: dict[str, Any], key: str, kind: str) -> None:
    if key not in registry:
        raise KeyError(f"There is no {kind} {key!r}")
    del registry[key]


def _capabilities(needs: str | Sequence[str]) -> set[tuple[str, ...]]:
    """What ``needs=`` names, as paths."""
    names = {needs} if isinstance(needs, str) else set(needs)
    unknown = sorted(name for name in names if name not in _NEEDS)
    if unknown:
        raise ValueError(f"needs= takes what a client declares, one or more of {', '.join(_NEEDS)}; got {unknown[0]!r}")
    return {tuple(name.split(".")) for name in names}


def _cursor(key: str) -> str:
    return key.encode().hex()
