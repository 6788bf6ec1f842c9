"""Accepts decoded messages as calls of revision 2026-07-28."""

from typing import Any

from antiphon.errors import InvalidParams, MethodNotFound, UnsupportedVersion
from antiphon.types import LOG_LEVELS
from antiphon.wire import headers as http
from antiphon.wire.headers import RawHeaders
from antiphon.wire.jsonrpc import Message, RequestId
from antiphon.wire.revisions import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    METHODS,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    REVISION,
    Method,
)

_FOREIGN = Method()
_REVISION = REVISION.encode()
_ENCODED = {method: method.encode() for method in METHODS}


class Call:
    """One accepted request."""

    id: RequestId
    method: str
    params: Message
    meta: dict[str, Any]
    capabilities: dict[str, Any]
    headers: RawHeaders | None
    name: str
    row: Method
    revision: str = REVISION
    principal: str | None = None
    session: str = ""
    """The session of an older client, if it has one."""
    outer: str | None = None
    """The name that the client used, where a mounted server knows it by another."""
    arguments: object = None
    """A copy of the arguments as received, where the handler might change them."""
    talk: Any = None
    """The conversation that this is a run of, if it is kept in memory; after the run, the one that it was in."""


def accept(message: Message, headers: RawHeaders | None = None) -> Call:
    """Check a well-formed request and return its Call; raise the protocol error that refuses it.

    ``headers`` is None for a transport other than HTTP.
    """
    method: str = message["method"]
    params: Message = message.get("params") or {}
    meta: Any = params.get("_meta")
    version = meta.get(PROTOCOL_VERSION) if type(meta) is dict else None
    if version != REVISION or (headers is not None and headers.get(http.VERSION) != _REVISION):
        _check_version(headers, meta, version)
    capabilities = meta.get(CLIENT_CAPABILITIES)
    if type(capabilities) is not dict:
        raise InvalidParams(f'"params._meta" needs "{CLIENT_CAPABILITIES}", an object', status=400)
    info = meta.get(CLIENT_INFO)
    if len(meta) > 3 or type(info) is not dict or type(info.get("name")) is not str:
        _check_meta(meta, info)
    elif type(info.get("version")) is not str:
        raise _nameless()
    call = Call()
    call.id = message["id"]
    call.method = method
    call.params = params
    call.meta = meta
    call.capabilities = capabilities
    call.headers = headers
    call.row = row = METHODS.get(method, _FOREIGN)
    if headers is not None and headers.get(http.METHOD) != (_ENCODED.get(method) or method.encode(errors="replace")):
        http.check_method(headers.get(http.METHOD), method)
    if row.target is None:
        call.name = ""
        return call
    name = params.get(row.target)
    if type(name) is not str:
        raise InvalidParams(f'{method} needs "{row.target}", a string')
    responses = params.get("inputResponses")
    if type(responses) is not dict and responses is not None:
        raise InvalidParams(f'{method} needs "inputResponses" to be an object')
    if headers is not None:
        raw = headers.get(http.NAME)
        plain = name.isascii() and name.isprintable() and not name.startswith("=?")
        if not plain or raw != name.encode():
            http.check_equal(raw, name, "Mcp-Name")
    call.name = name
    return call


def unknown_method(method: str, revision: str = REVISION) -> MethodNotFound:
    return MethodNotFound(f"Method not found: {method} (this server speaks {revision})")


def _check_version(headers: RawHeaders | None, meta: object, version: object) -> None:
    """Raise if the version is missing, unknown, or different in header and body; white space does not count."""
    if headers is not None:
        http.check_version(headers.get(http.VERSION), version, REVISION)
    if type(meta) is not dict:
        raise InvalidParams(f'The request needs "params._meta" (this server speaks {REVISION})', status=400)
    if type(version) is not str:
        raise InvalidParams(f'"params._meta" needs "{PROTOCOL_VERSION}", such as "{REVISION}"', status=400)
    if version != REVISION:
        raise UnsupportedVersion(version, [REVISION])


def _nameless() -> InvalidParams:
    return InvalidParams(f'"{CLIENT_INFO}" needs a name and a version', status=400)


def _check_meta(meta: dict[str, Any], info: Any) -> None:
    if info is not None and (
        type(info) is not dict or type(info.get("name")) is not str or type(info.get("version")) is not str
    ):
        raise _nameless()
    level = meta.get(LOG_LEVEL)
    if level is not None and (type(level) is not str or level not in LOG_LEVELS):
        raise InvalidParams(f'"{LOG_LEVEL}" must be one of {", ".join(LOG_LEVELS)}', status=400)
    token = meta.get(PROGRESS_TOKEN)
    if token is not None and type(token) is not int and type(token) is not str:
        raise InvalidParams('"progressToken" must be a string or an integer', status=400)
