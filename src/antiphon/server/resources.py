"""Resources: a function becomes the contents under a URI, or under every URI of a template."""

from collections.abc import Callable
from typing import Any

import msgspec

from antiphon.errors import ResourceNotFound
from antiphon.server.completion import options_of
from antiphon.server.handler import Handler, label
from antiphon.server.run import Run
from antiphon.server.tools import typed
from antiphon.shapes import Mismatch, name_of, signature_of
from antiphon.types import (
    Contents,
    JsonObject,
    Resource,
    ResourceResult,
    ResourceTemplate,
    Scope,
)
from antiphon.uri import Template


class ResourceEntry:
    """A registered resource or template: how it is listed, and how it is read."""

    __slots__ = ("_read", "_scope", "_ttl", "handler", "key", "listed", "mime_type", "options", "template")

    def __init__(
        self,
        uri: str,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        ttl: float = 0,
        scope: Scope = "private",
        **about: Any,
    ) -> None:
        self.key = checked_uri(uri)
        self.mime_type = mime_type
        self._ttl = int(ttl * 1000)
        self._scope = scope
        if ttl < 0:
            raise ValueError(f"{label(function)}: ttl must not be negative")
        self.handler = Handler(function)
        template = Template(uri)
        signature = signature_of(function, skip=self.handler.hidden)
        self._read = signature.read
        taken = {item.name for item in signature.parameters}
        if taken != set(template.variables):
            raise TypeError(
                f"{label(function)} takes {_listed(taken)}, but the URI {uri!r} has {_listed(set(template.variables))}"
            )
        self.options = {item.name: options_of(item.annotation) for item in signature.parameters}
        own = name_of(function)
        about["name"] = name or (own if own != "<lambda>" else uri)
        about["description"] = description or signature.description
        self.template = template if template.variables else None
        self.listed: Resource | ResourceTemplate
        if self.template is None:
            self.listed = typed(Resource, function, uri=uri, mime_type=mime_type, size=size, **about)
        else:
            self.listed = typed(ResourceTemplate, function, uri_template=uri, mime_type=mime_type, **about)

    async def read(self, run: Run, variables: dict[str, Any]) -> Any:
        """Serve resources/read."""
        try:
            values = self._read(variables, lax=True)
        except Mismatch:
            # A URI whose variables do not fit names nothing, as one that no template matches.
            raise ResourceNotFound(run.call.name) from None
        value = await self.handler.run(run, values)
        return self._result(value, run.call.name)

    def _result(self, value: Any, uri: str) -> JsonObject:
        stated = value if isinstance(value, ResourceResult) else ResourceResult(contents=self._contents(value))
        result: JsonObject = {
            "contents": [self._located(item, uri) for item in stated.contents],
            "ttlMs": self._ttl if stated.ttl is None else max(0, int(stated.ttl * 1000)),
            "cacheScope": stated.scope or self._scope,
        }
        if stated.meta is not None:
            result["_meta"] = stated.meta
        return result

    def _contents(self, value: object) -> list[Contents]:
        if isinstance(value, Contents):
            return [value]
        if isinstance(value, list) and value and all(isinstance(item, Contents) for item in value):
            return value
        if isinstance(value, str):
            return [Contents(text=value, mime_type=self.mime_type or "text/plain")]
        if isinstance(value, bytes | bytearray | memoryview):
            return [Contents(blob=bytes(value), mime_type=self.mime_type or "application/octet-stream")]
        text = msgspec.json.encode(value).decode()
        return [Contents(text=text, mime_type=self.mime_type or "application/json")]

    def _located(self, item: Contents, uri: str) -> JsonObject:
        if (item.text is None) == (item.blob is None):
            raise TypeError("Contents needs either text or blob")
        wire: JsonObject = msgspec.to_builtins(item)
        if not item.uri:
            wire["uri"] = uri
        if item.mime_type is None and self.mime_type is not None:
            wire["mimeType"] = self.mime_type
        return wire


def checked_uri(uri: object) -> str:
    if not isinstance(uri, str):
        raise TypeError(f'A resource needs a URI, got {uri!r}: write @app.resource("note://{{id}}")')
    return uri


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "no variables"
