"""The revisions as data: the methods of 2026-07-28, and what sets the earlier ones apart. No row, no method."""

from typing import Final, Literal, NamedTuple

REVISION = "2026-07-28"

# The `_meta` keys that 2026-07-28 reserves (basic, General fields).
PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
STATE_TTL = "antiphon/stateTtl"  # ours: for how many seconds a requestState is good
PROGRESS_TOKEN = "progressToken"  # noqa: S105 -- a key's name


class Method(NamedTuple):
    """One request of 2026-07-28."""

    target: Literal["name", "uri"] | None = None
    """The parameter that ``Mcp-Name`` mirrors."""
    asks: bool = False
    """Whether an InputRequiredResult may answer it (basic/patterns/mrtr, Supported Requests)."""
    sealed: bool = False
    """Whether its conversation travels as a ``requestState`` under seal."""
    cached: bool = False
    """Whether its result carries ``ttlMs`` and ``cacheScope`` (server/utilities/caching)."""
    feature: str | None = None
    """The server capability that the method needs."""


METHODS: dict[str, Method] = {
    "server/discover": Method(cached=True),
    "tools/list": Method(cached=True, feature="tools"),
    "tools/call": Method(target="name", asks=True, sealed=True, feature="tools"),
    "prompts/list": Method(cached=True, feature="prompts"),
    "prompts/get": Method(target="name", asks=True, sealed=True, feature="prompts"),
    "resources/list": Method(cached=True, feature="resources"),
    "resources/templates/list": Method(cached=True, feature="resources"),
    "resources/read": Method(target="uri", asks=True, sealed=True, cached=True, feature="resources"),
    "completion/complete": Method(feature="completions"),
    "subscriptions/listen": Method(),
}


class Earlier(NamedTuple):
    """What sets one of the earlier revisions apart."""

    modes: bool = False
    """Whether an elicitation has a mode, and may be a URL."""
    polls: bool = False
    """Whether a stream may begin with an event without data, and be left before its end."""
    batches: bool = False
    """Whether several messages may come as a list."""


EARLIER: dict[str, Earlier] = {
    "2025-11-25": Earlier(modes=True, polls=True),
    "2025-06-18": Earlier(),
    "2025-03-26": Earlier(batches=True),
    "2024-11-05": Earlier(),
}
REVISIONS: Final = tuple(EARLIER)
LATEST: Final = REVISIONS[0]
UNSEALED: Final = {method: row._replace(sealed=False) for method, row in METHODS.items()}
"""The methods of the earlier revisions: their questions are asked in the middle of a call, which stays in memory."""
UNSTATED: Final = "2025-03-26"
"""The revision of a client that does not state one (2025-11-25, basic/transports, Protocol Version Header)."""

# Error codes of the earlier revisions.
RESOURCE_NOT_FOUND: Final = -32002
URL_REQUIRED: Final = -32042

# Keys of ours in the `_meta` of a pushed question: the earlier revisions have no place for its name, nor, where the
# connection does not tell, for the id of the request that asks it.
KEY: Final = "antiphon/key"
REQUEST: Final = "antiphon/request"


def negotiated(wanted: object) -> str:
    """Return the client's revision if known, else the latest (2025-11-25, basic/lifecycle, Version Negotiation)."""
    return wanted if isinstance(wanted, str) and wanted in EARLIER else LATEST
