"""A Session: what `initialize` agreed on, as plain data that any instance can take up."""

from functools import lru_cache

import msgspec

from antiphon.errors import InvalidParams
from antiphon.legacy.revisions import knows_modes, negotiated
from antiphon.server.service import Service
from antiphon.types import JsonObject, LogLevel

MAX_URIS = 1000
"""Resources that one session may subscribe to."""
MAX_BYTES = 64 * 1024
"""And what it may weigh: every session is kept, and read with each of its requests."""


class Session(msgspec.Struct, kw_only=True, array_like=True, gc=False):
    """One client, from its initialize on."""

    id: str = ""
    revision: str
    capabilities: JsonObject
    client: JsonObject
    principal: str | None = None
    level: LogLevel = "info"
    """2025-11-25, server/utilities/logging: the server decides until the client has said."""
    uris: list[str] = []

    def pack(self) -> bytes:
        """All but the id, under which it is kept: so that thousands of sessions of one client are the same bytes."""
        return _known(_pack(msgspec.structs.replace(self, id="")))

    @staticmethod
    def unpack(packed: bytes, id_: str) -> "Session":
        """The same object for the same session, while it is among those used most recently: do not change it."""
        return _unpack(packed, id_)

    def copy(self) -> "Session":
        return msgspec.structs.replace(self)


_pack = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Session).decode


@lru_cache(maxsize=128)
def _known(packed: bytes) -> bytes:
    """The same object for equal bytes."""
    return packed


@lru_cache(maxsize=128)
def _unpack(packed: bytes, id_: str) -> Session:
    return msgspec.structs.replace(_decode(packed), id=id_)


class _Hello(msgspec.Struct, rename="camel"):
    protocol_version: str
    capabilities: dict[str, object]
    client_info: "_Client"


class _Client(msgspec.Struct):
    name: str
    version: str


def opened(message: JsonObject, id_: str, principal: str | None = None) -> Session:
    """The session that an initialize request opens; InvalidParams if it is malformed."""
    params = message.get("params")
    try:
        hello = msgspec.convert(params, _Hello)
    except msgspec.ValidationError as fault:
        raise InvalidParams(f"initialize is malformed: {fault}") from None
    assert isinstance(params, dict)
    revision, capabilities = negotiated(hello.protocol_version), hello.capabilities
    if not knows_modes(revision) and type(capabilities.get("elicitation")) is dict:
        capabilities["elicitation"] = {}  # forms: there are no pages yet, whatever it says
    session = Session(
        id=id_,
        revision=revision,
        capabilities=capabilities,
        client=params["clientInfo"],
        principal=principal,
    )
    if len(_pack(session.capabilities)) + len(_pack(session.client)) > MAX_BYTES:
        raise InvalidParams(f"initialize is too large: capabilities and clientInfo may have {MAX_BYTES} bytes")
    return session


def welcome(service: Service, session: Session) -> JsonObject:
    """The result of initialize."""
    able = service.capabilities()
    result: JsonObject = {
        "protocolVersion": session.revision,
        # Whoever has no session cannot be told later what changed.
        "capabilities": able if session.id else {name: {} for name in able},
        "serverInfo": service.info,
    }
    if service.instructions is not None:
        result["instructions"] = service.instructions
    return result
