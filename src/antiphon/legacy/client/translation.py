"""Between the revisions: what a modern request is in an older one, and what comes back."""

import logging
from typing import Any

import msgspec

from antiphon.errors import PeerBroken
from antiphon.types import JsonObject
from antiphon.wire.revisions import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    SERVER_INFO,
    URL_REQUIRED,
)

METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL = -32601, -32602, -32603
_MODERN = {PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL}
_KINDS = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}

log = logging.getLogger("antiphon.client")


class ServerDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a server said to ``initialize``."""

    revision: str
    capabilities: JsonObject
    info: object = None
    instructions: str | None = None

    @property
    def discovery(self) -> JsonObject:
        """The same as the result of ``server/discover``."""
        made: JsonObject = {
            "resultType": "complete",
            "supportedVersions": [self.revision],
            "capabilities": self.capabilities,
            "_meta": self.signed({}),
        }
        if self.instructions is not None:
            made["instructions"] = self.instructions
        return made

    def signed(self, meta: JsonObject) -> JsonObject:
        """A result's ``_meta`` with who the server is, as in modern results."""
        return meta if self.info is None else {SERVER_INFO: self.info, **meta}

    def has(self, capability: str, part: str | None = None) -> bool:
        found: Any = self.capabilities.get(capability)
        return type(found) is dict and (part is None or bool(found.get(part)))


def described(result: JsonObject, accepted: tuple[str, ...]) -> ServerDescription:
    """Read the result of ``initialize``; PeerBroken if there is no common revision."""
    revision, capabilities = result.get("protocolVersion"), result.get("capabilities")
    if type(revision) is not str:
        raise PeerBroken("The server did not say which revision of the protocol it speaks")
    if revision not in accepted:
        raise PeerBroken(f"The server speaks revision {revision!r}, this client {' or '.join(accepted)}")
    instructions = result.get("instructions")
    return ServerDescription(
        revision=revision,
        capabilities=capabilities if type(capabilities) is dict else {},
        info=result.get("serverInfo"),
        instructions=instructions if type(instructions) is str else None,
    )


def old_params(params: JsonObject, id_: int) -> JsonObject:
    """A request's parameters without what only the modern revision has; its progress is told by its own id."""
    meta = {key: value for key, value in (params.get("_meta") or {}).items() if key not in _MODERN}
    if PROGRESS_TOKEN in meta:
        meta[PROGRESS_TOKEN] = id_
    made = {key: value for key, value in params.items() if key != "_meta"}
    return {**made, "_meta": meta} if meta else made


def modern_reply(reply: JsonObject, id_: object, server: ServerDescription) -> JsonObject:
    """A reply under the id that the caller knows, and with who answers."""
    result = reply.get("result")
    if type(result) is not dict:
        return {**reply, "id": id_}
    meta = result.get("_meta")
    return {**reply, "id": id_, "result": {**result, "_meta": server.signed(meta if type(meta) is dict else {})}}


def why_not(request: JsonObject, capabilities: JsonObject) -> tuple[int, str] | None:
    """The error for a question that this client did not say it could be asked; None if it may be."""
    kind, params = _KINDS.get(request["method"]), request.get("params", {})
    if kind is None:
        return METHOD_NOT_FOUND, "Method not found"
    declared = capabilities.get(kind)
    if declared is None:
        return METHOD_NOT_FOUND, f"{kind.capitalize()} not supported"
    if type(params) is not dict:
        return INVALID_PARAMS, "The parameters must be an object"
    if kind == "elicitation":
        # 2025-11-25, client/elicitation: no mode means a form, and an empty capability means forms only.
        mode = "url" if params.get("mode") == "url" else "form"
        if mode not in (declared or {"form"}):
            return INVALID_PARAMS, f"Elicitation not supported in {mode} mode"
    if kind == "sampling" and "tools" not in declared and ("tools" in params or "toolChoice" in params):
        return INVALID_PARAMS, "Sampling with tools not supported"
    return None


def urls_in(reply: JsonObject) -> list[JsonObject]:
    """The elicitations of an error that wants URLs visited first (2025-11-25, client/elicitation)."""
    fault: Any = reply.get("error")
    if type(fault) is not dict or fault.get("code") != URL_REQUIRED:
        return []
    data: Any = fault.get("data")
    asked: Any = data.get("elicitations") if type(data) is dict else None
    if type(asked) is not list or not all(type(one) is dict and type(one.get("url")) is str for one in asked):
        return []
    return [
        {"id": str(one.get("elicitationId")), "method": "elicitation/create", "params": {**one, "mode": "url"}}
        for one in asked
    ]
