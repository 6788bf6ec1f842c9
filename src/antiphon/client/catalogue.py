"""What a client remembers of a server's tools: the headers they want, and the results they promise."""

import logging
from typing import TYPE_CHECKING

from antiphon.client.results import CallResult
from antiphon.errors import PeerBroken
from antiphon.types import UNSET, JsonObject, Tool
from antiphon.wire.headers import HeaderParam, encode_params, header_params

if TYPE_CHECKING:
    from antiphon.shapes import Shape

log = logging.getLogger("antiphon.client")


class Catalogue:
    """Filled by listing the tools; a call of a tool that was never listed is neither mirrored nor checked."""

    __slots__ = ("_headers", "_outputs", "_shapes")

    def __init__(self) -> None:
        self._headers: dict[str, tuple[HeaderParam, ...]] = {}
        self._outputs: dict[str, JsonObject] = {}
        self._shapes: dict[str, Shape] = {}

    def learn(self, tool: Tool) -> bool:
        """Remember a tool; False, with a warning, if its definition is invalid.

        streamable-http, Schema Extension: such a tool must not be shown, and the others must not suffer from it.
        """
        self.forget(tool.name)
        try:
            self._headers[tool.name] = header_params(tool.input_schema)
        except ValueError as fault:
            log.warning("the tool %r is left out: %s", tool.name, fault)
            return False
        if tool.output_schema is not None:
            self._outputs[tool.name] = tool.output_schema
        return True

    def forget(self, name: str) -> None:
        self._headers.pop(name, None)
        self._outputs.pop(name, None)
        self._shapes.pop(name, None)

    def headers_of(self, name: str) -> tuple[HeaderParam, ...]:
        return self._headers.get(name, ())

    def mirrored(self, name: str, arguments: JsonObject) -> dict[str, str]:
        return encode_params(self.headers_of(name), arguments)

    def check(self, name: str, result: CallResult) -> None:
        """PeerBroken if a result is not what the tool's output schema promises (server/tools, Output Schema)."""
        schema = self._outputs.get(name)
        if schema is None or result.is_error:
            return
        if result.structured is UNSET:
            raise PeerBroken(f"The result of {name} has no structured content, which its output schema promises")
        from antiphon.shapes import Mismatch, raw_shape  # 60 ms that only a promise costs

        try:
            if name not in self._shapes:
                self._shapes[name] = raw_shape(schema)
            self._shapes[name].read(result.structured)
        except Mismatch as fault:
            raise PeerBroken(f"The result of {name} does not fit its output schema: {fault}") from None
        except ValueError as fault:
            log.warning("the output schema of %r cannot be used: %s", name, fault)
            del self._outputs[name]
