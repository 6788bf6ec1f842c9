"""MCP programs that converse: servers whose tools stop and ask, and clients that answer."""

from antiphon.app import Server
from antiphon.errors import (
    AntiphonError,
    CannotAsk,
    HeaderMismatch,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    ParseError,
    ProtocolError,
    Refused,
    ResourceNotFound,
    StateRefused,
    ToolError,
    UnstableQuestion,
    UnsupportedVersion,
)
from antiphon.rounds import ask
from antiphon.rounds.ask import Question
from antiphon.rounds.declare import Ask
from antiphon.rounds.replay import InputRequired, input_required
from antiphon.rounds.seal import Codec, Seal, SignedState
from antiphon.server.context import Context
from antiphon.shapes import Email, Format, Header, Several, Url
from antiphon.stores.memory import MemoryStore
from antiphon.stores.store import Store
from antiphon.types import (
    Accepted,
    Annotations,
    Answer,
    Audio,
    Cancelled,
    Completion,
    Contents,
    Declined,
    Elicited,
    EmbeddedResource,
    Icon,
    Image,
    Message,
    Missing,
    ModelHint,
    ModelPreferences,
    PromptResult,
    ResourceLink,
    ResourceResult,
    Root,
    Rooted,
    Sample,
    Sampled,
    Text,
    Tool,
    ToolAnnotations,
    ToolResult,
    ToolUse,
    ToolUseResult,
)

__version__ = "0.1.0"

__all__ = [
    "Accepted",
    "Annotations",
    "Answer",
    "AntiphonError",
    "Ask",
    "Audio",
    "Cancelled",
    "CannotAsk",
    "Codec",
    "Completion",
    "Contents",
    "Context",
    "Declined",
    "Elicited",
    "Email",
    "EmbeddedResource",
    "Format",
    "Header",
    "HeaderMismatch",
    "Icon",
    "Image",
    "InputRequired",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "MemoryStore",
    "Message",
    "MethodNotFound",
    "Missing",
    "MissingCapability",
    "ModelHint",
    "ModelPreferences",
    "ParseError",
    "PromptResult",
    "ProtocolError",
    "Question",
    "Refused",
    "ResourceLink",
    "ResourceNotFound",
    "ResourceResult",
    "Root",
    "Rooted",
    "SQLiteStore",
    "Sample",
    "Sampled",
    "Seal",
    "Server",
    "Several",
    "SignedState",
    "StateRefused",
    "Store",
    "Text",
    "Tool",
    "ToolAnnotations",
    "ToolError",
    "ToolResult",
    "ToolUse",
    "ToolUseResult",
    "UnstableQuestion",
    "UnsupportedVersion",
    "Url",
    "ask",
    "input_required",
]


def __getattr__(name: str) -> object:
    if name == "SQLiteStore":
        from antiphon.stores.sqlite import SQLiteStore  # noqa: PLC0415 -- sqlite3 only where it is used

        return SQLiteStore
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
