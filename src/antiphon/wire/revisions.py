"""Revision 2026-07-28 as data. A method that has no row here does not exist in it."""

from typing import Final, Literal, NamedTuple

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
    sealed: bool = False
    """Whether its conversation travels as a ``requestState`` under seal."""
    cached: bool = False
    """Whether its result carries ``ttlMs`` and ``cacheScope`` (server/utilities/caching)."""
    feature: str | None = None
    """The server capability without which the method is not there."""


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


# The earlier revisions as data: which there are, and what sets them apart.


LATEST: Final = "2025-11-25"
REVISIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
UNSEALED: Final = {method: row._replace(sealed=False) for method, row in METHODS.items()}
"""The methods of these: their questions are asked in the middle of a call, which stays in memory."""
UNSTATED: Final = "2025-03-26"
"""What a client speaks that does not say (2025-11-25, basic/transports, Protocol Version Header)."""

RESOURCE_NOT_FOUND: Final = -32002
URL_REQUIRED: Final = -32042

KEY: Final = "antiphon/key"
"""In the ``_meta`` of a pushed question: its name, which these revisions have no place for."""
REQUEST: Final = "antiphon/request"
"""And the id of the request that asks it, where the connection does not tell."""


def negotiated(wanted: object) -> str:
    """2025-11-25, basic/lifecycle, Version Negotiation: the client's revision if it is known here, else our latest."""
    return wanted if isinstance(wanted, str) and wanted in REVISIONS else LATEST


def knows_modes(revision: str) -> bool:
    """Whether an elicitation has a mode, and may be a URL."""
    return revision >= "2025-11-25"


def polls(revision: str) -> bool:
    """Whether a stream may begin with an event of no data, and be left before its end."""
    return revision >= "2025-11-25"


def batches(revision: str) -> bool:
    """Whether messages may come several at once."""
    return revision == "2025-03-26"
