"""MCP programs that converse: servers whose tools stop and ask, and clients that answer."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from antiphon.stores.sqlite import SQLiteStore
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


# Each name is loaded when it is first used: a program that only serves loads no client, and the reverse.
_HOMES = {
    "antiphon.app": ("Server",),
    "antiphon.errors": (
        "AntiphonError",
        "CannotAsk",
        "HeaderMismatch",
        "InternalError",
        "InvalidParams",
        "InvalidRequest",
        "MethodNotFound",
        "MissingCapability",
        "ParseError",
        "ProtocolError",
        "Refused",
        "ResourceNotFound",
        "StateRefused",
        "ToolError",
        "UnstableQuestion",
        "UnsupportedVersion",
    ),
    "antiphon.rounds": ("ask",),
    "antiphon.rounds.ask": ("Question",),
    "antiphon.rounds.declare": ("Ask",),
    "antiphon.rounds.replay": ("InputRequired", "input_required"),
    "antiphon.rounds.seal": ("Codec", "Seal", "SignedState"),
    "antiphon.server.context": ("Context",),
    "antiphon.shapes": (
        "Email",
        "Format",
        "Header",
        "Several",
        "Url",
    ),
    "antiphon.stores.memory": ("MemoryStore",),
    "antiphon.stores.sqlite": ("SQLiteStore",),
    "antiphon.stores.store": ("Store",),
    "antiphon.types": (
        "Accepted",
        "Annotations",
        "Answer",
        "Audio",
        "Cancelled",
        "Completion",
        "Contents",
        "Declined",
        "Elicited",
        "EmbeddedResource",
        "Icon",
        "Image",
        "Message",
        "Missing",
        "ModelHint",
        "ModelPreferences",
        "PromptResult",
        "ResourceLink",
        "ResourceResult",
        "Root",
        "Rooted",
        "Sample",
        "Sampled",
        "Text",
        "Tool",
        "ToolAnnotations",
        "ToolResult",
        "ToolUse",
        "ToolUseResult",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
    value = globals()[name] = import_module(f"{module}.ask") if name == "ask" else getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
