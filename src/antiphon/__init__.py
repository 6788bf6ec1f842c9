"""MCP programs that converse: servers whose tools stop and ask, and clients that answer."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.app import Server
    from antiphon.client.answers import Elicitation, SampleRequest, elicitation_modes
    from antiphon.client.client import Change, Client, Discovery, Round
    from antiphon.client.inbox import Inbox
    from antiphon.client.results import CallResult, Complete, InputNeeded, Pending, PromptReply, ReadResult
    from antiphon.errors import (
        AlreadyAnswered,
        AnswerNeeded,
        AntiphonError,
        CallFailed,
        CallTimeout,
        CannotAnswer,
        CannotAsk,
        ConfigUnusable,
        Disconnected,
        HeaderMismatch,
        InternalError,
        InvalidParams,
        InvalidRequest,
        MethodNotFound,
        MissingCapability,
        NotAllowed,
        ParseError,
        PeerBroken,
        ProtocolError,
        Refused,
        ResourceNotFound,
        RoundsExceeded,
        SignInFailed,
        StateRefused,
        TicketClosed,
        TicketExpired,
        TicketUnknown,
        TicketWithdrawn,
        ToolError,
        Unauthorized,
        UnstableQuestion,
        UnsupportedVersion,
        UserRefused,
    )
    from antiphon.inbox.browser import Browser
    from antiphon.rounds import ask
    from antiphon.rounds.ask import Question
    from antiphon.rounds.asked_parameters import Ask
    from antiphon.rounds.journal import InputRequired, input_required
    from antiphon.rounds.token import Codec, Seal, SignedState
    from antiphon.server.context import Context
    from antiphon.server.middleware import Middleware, Proceed
    from antiphon.shapes import Email, Format, Header, Several, Url
    from antiphon.stores.memory import MemoryStore
    from antiphon.stores.redis import RedisStore
    from antiphon.stores.sqlite import SQLiteStore
    from antiphon.stores.store import Store, StoreError
    from antiphon.transports.link import Link
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
    "AlreadyAnswered",
    "Annotations",
    "Answer",
    "AnswerNeeded",
    "AntiphonError",
    "Ask",
    "Audio",
    "Browser",
    "CallFailed",
    "CallResult",
    "CallTimeout",
    "Cancelled",
    "CannotAnswer",
    "CannotAsk",
    "Change",
    "Client",
    "Codec",
    "Complete",
    "Completion",
    "ConfigUnusable",
    "Contents",
    "Context",
    "Declined",
    "Disconnected",
    "Discovery",
    "Elicitation",
    "Elicited",
    "Email",
    "EmbeddedResource",
    "Format",
    "Header",
    "HeaderMismatch",
    "Icon",
    "Image",
    "Inbox",
    "InputNeeded",
    "InputRequired",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "Link",
    "MemoryStore",
    "Message",
    "MethodNotFound",
    "Middleware",
    "Missing",
    "MissingCapability",
    "ModelHint",
    "ModelPreferences",
    "NotAllowed",
    "ParseError",
    "PeerBroken",
    "Pending",
    "Proceed",
    "PromptReply",
    "PromptResult",
    "ProtocolError",
    "Question",
    "ReadResult",
    "RedisStore",
    "Refused",
    "ResourceLink",
    "ResourceNotFound",
    "ResourceResult",
    "Root",
    "Rooted",
    "Round",
    "RoundsExceeded",
    "SQLiteStore",
    "Sample",
    "SampleRequest",
    "Sampled",
    "Seal",
    "Server",
    "Several",
    "SignInFailed",
    "SignedState",
    "StateRefused",
    "Store",
    "StoreError",
    "Text",
    "TicketClosed",
    "TicketExpired",
    "TicketUnknown",
    "TicketWithdrawn",
    "Tool",
    "ToolAnnotations",
    "ToolError",
    "ToolResult",
    "ToolUse",
    "ToolUseResult",
    "Unauthorized",
    "UnstableQuestion",
    "UnsupportedVersion",
    "Url",
    "UserRefused",
    "ask",
    "elicitation_modes",
    "input_required",
]


# Each name is loaded when it is first used: a program that only serves loads no client, and the reverse. The many names
# that have no line here are those of errors and types.
_HOMES = {
    "antiphon.app": ("Server",),
    "antiphon.client.answers": ("Elicitation", "SampleRequest", "elicitation_modes"),
    "antiphon.client.client": ("Change", "Client", "Discovery", "Round"),
    "antiphon.client.inbox": ("Inbox",),
    "antiphon.client.results": ("CallResult", "Complete", "InputNeeded", "Pending", "PromptReply", "ReadResult"),
    "antiphon.inbox.browser": ("Browser",),
    "antiphon.rounds.ask": ("Question",),
    "antiphon.rounds.asked_parameters": ("Ask",),
    "antiphon.rounds.journal": ("InputRequired", "input_required"),
    "antiphon.rounds.token": ("Codec", "Seal", "SignedState"),
    "antiphon.server.context": ("Context",),
    "antiphon.server.middleware": ("Middleware", "Proceed"),
    "antiphon.shapes": ("Email", "Format", "Header", "Several", "Url"),
    "antiphon.stores.memory": ("MemoryStore",),
    "antiphon.stores.redis": ("RedisStore",),
    "antiphon.stores.sqlite": ("SQLiteStore",),
    "antiphon.stores.store": ("Store", "StoreError"),
    "antiphon.transports.link": ("Link",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
    value = globals()[name] = import_module("antiphon.rounds.ask") if name == "ask" else getattr(_home_of(name), name)
    return value


def _home_of(name: str) -> ModuleType:
    if name in _HOME_OF:
        return import_module(_HOME_OF[name])
    errors = import_module("antiphon.errors")  # which types loads as well
    return errors if hasattr(errors, name) else import_module("antiphon.types")


def __dir__() -> list[str]:
    return sorted(__all__)
