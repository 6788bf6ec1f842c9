"""Revision 2026-07-28 as data. A method that has no row here does not exist in it."""

from typing import Literal, NamedTuple

REVISION = "2026-07-28"

# The `_meta` keys that this revision reserves (basic, General fields).
PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
PROGRESS_TOKEN = "progressToken"  # noqa: S105 -- a key's name


class Method(NamedTuple):
    """What the wire knows of one request."""

    target: Literal["name", "uri"] | None = None
    """The parameter that ``Mcp-Name`` mirrors."""
    asks: bool = False
    """Whether an InputRequiredResult may answer it (basic/patterns/mrtr, Supported Requests)."""
    cached: bool = False
    """Whether its result carries ``ttlMs`` and ``cacheScope`` (server/utilities/caching)."""
    feature: str | None = None
    """The server capability without which the method is not there."""


METHODS: dict[str, Method] = {
    "server/discover": Method(cached=True),
    "tools/list": Method(cached=True, feature="tools"),
    "tools/call": Method(target="name", asks=True, feature="tools"),
    "prompts/list": Method(cached=True, feature="prompts"),
    "prompts/get": Method(target="name", asks=True, feature="prompts"),
    "resources/list": Method(cached=True, feature="resources"),
    "resources/templates/list": Method(cached=True, feature="resources"),
    "resources/read": Method(target="uri", asks=True, cached=True, feature="resources"),
    "completion/complete": Method(feature="completions"),
    "subscriptions/listen": Method(),
}
