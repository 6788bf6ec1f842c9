"""The earlier revisions as data: which there are, and what sets them apart."""

from typing import Final

LATEST: Final = "2025-11-25"
REVISIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
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
