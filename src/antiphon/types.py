"""The types of the public API, the same for every protocol revision."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NoReturn, TypeAlias, TypeVar, get_args

from msgspec import UNSET, Meta, Struct, UnsetType, field

from antiphon.errors import UserRefused

T_co = TypeVar("T_co", covariant=True)

Role: TypeAlias = Literal["user", "assistant"]
LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LOG_LEVELS: dict[str, int] = {level: rank for rank, level in enumerate(get_args(LogLevel))}
Scope: TypeAlias = Literal["public", "private"]
JsonObject: TypeAlias = dict[str, Any]


def no_truth(advice: str) -> Callable[[object], NoReturn]:
    """Return a ``__bool__`` for what may stand in place of an answer: as any object, it would be true."""

    def refuse(self: object) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is neither true nor false: {advice}")

    return refuse


_ANSWER_TRUTH = no_truth(
    "use 'await ctx.confirm(...)' for a yes or no, '.unwrap()' for the value, or 'match' for Accepted, Declined and"
    " Cancelled"
)
_RESPONSE_TRUTH = no_truth("use 'ctx.accepted(key, shape)' for the value, or 'match' for what has arrived")


class Annotations(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Hints on the audience of content and its importance."""

    audience: tuple[Role, ...] | None = None
    priority: Annotated[float, Meta(ge=0, le=1)] | None = None
    last_modified: str | None = None


class Icon(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A picture for a user interface."""

    src: str
    mime_type: str | None = None
    sizes: tuple[str, ...] | None = None
    theme: Literal["light", "dark"] | None = None


class Implementation(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The name and version a peer reports. For display and logs, not for decisions."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: tuple[Icon, ...] | None = None


class Text(Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="type", tag="text"):
    """Plain text."""

    text: str
    annotations: Annotations | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class Image(Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="type", tag="image"):
    """A picture as bytes: ``Image(png)`` or ``Image.open("plot.png")``."""

    data: bytes
    mime_type: str = field(name="mimeType", default_factory=lambda: "image/png")
    annotations: Annotations | None = None
    meta: JsonObject | None = field(name="_meta", default=None)

    @classmethod
    def open(cls, path: str | PathLike[str]) -> "Image":
        """Read a file; the end of its name says the type."""
        return cls(Path(path).read_bytes(), _guessed(path, "image/png"))


class Audio(Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="type", tag="audio"):
    """A sound as bytes: ``Audio(wav)`` or ``Audio.open("alarm.wav")``."""

    data: bytes
    mime_type: str = field(name="mimeType", default_factory=lambda: "audio/wav")
    annotations: Annotations | None = None
    meta: JsonObject | None = field(name="_meta", default=None)

    @classmethod
    def open(cls, path: str | PathLike[str]) -> "Audio":
        """Read a file; the end of its name says the type."""
        return cls(Path(path).read_bytes(), _guessed(path, "audio/wav"))


class ResourceLink(Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="type", tag="resource_link"):
    """A pointer to a resource that the client may read."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: tuple[Icon, ...] | None = None
    annotations: Annotations | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class Contents(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The contents of a resource: ``text`` or ``blob``. An empty ``uri`` means the URI that was read."""

    uri: str = ""
    text: str | None = None
    blob: bytes | None = None
    mime_type: str | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class EmbeddedResource(Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="type", tag="resource"):
    """A resource's contents inside a result or a message."""

    resource: Contents
    annotations: Annotations | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class ToolUse(Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="type", tag="tool_use"):
    """A model's request to call a tool, inside a sampled message."""

    id: str
    name: str
    input: JsonObject
    meta: JsonObject | None = field(name="_meta", default=None)


class ToolUseResult(Struct, frozen=True, omit_defaults=True, rename="camel", tag_field="type", tag="tool_result"):
    """The result of that tool, for the next sampling request."""

    tool_use_id: str
    content: tuple["Content", ...] = field(default_factory=tuple)
    structured_content: Any = UNSET
    is_error: bool = False
    meta: JsonObject | None = field(name="_meta", default=None)


Content: TypeAlias = Text | Image | Audio | ResourceLink | EmbeddedResource
MessageContent: TypeAlias = Content | ToolUse | ToolUseResult
CONTENT_TYPES = (Text, Image, Audio, ResourceLink, EmbeddedResource)


class Message(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One message of a prompt or of a sampling request; a plain string is text."""

    role: Role
    content: str | MessageContent | list[MessageContent]
    meta: JsonObject | None = field(name="_meta", default=None)

    @classmethod
    def user(cls, content: "str | MessageContent | list[MessageContent]") -> "Message":
        """Return a message of the user's."""
        return cls("user", content)

    @classmethod
    def assistant(cls, content: "str | MessageContent | list[MessageContent]") -> "Message":
        """Return a message of the model's."""
        return cls("assistant", content)


class ToolResult(Struct, frozen=True, kw_only=True):
    """A tool's complete result, for handlers that set every part of it."""

    content: "str | Content | list[str | Content]" = field(default_factory=list)
    structured: Any = UNSET
    is_error: bool = False
    meta: JsonObject | None = None


class PromptResult(Struct, frozen=True, kw_only=True):
    """A prompt's complete result."""

    messages: list[Message]
    description: str | None = None
    meta: JsonObject | None = None


class ResourceResult(Struct, frozen=True, kw_only=True):
    """The complete result of reading a resource: several contents, or its own ``ttl`` and ``scope``."""

    contents: list[Contents]
    ttl: float | None = None
    scope: Scope | None = None
    meta: JsonObject | None = None


class ToolAnnotations(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Hints to clients on the effects of a tool."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class Tool(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A tool as a client sees it."""

    name: str
    input_schema: JsonObject
    title: str | None = None
    description: str | None = None
    output_schema: JsonObject | None = None
    annotations: ToolAnnotations | None = None
    icons: tuple[Icon, ...] | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class PromptArgument(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One argument of a prompt, as a client sees it."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool = False


class Prompt(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A prompt as a client sees it."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: tuple[PromptArgument, ...] = ()
    icons: tuple[Icon, ...] | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class Resource(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A resource as a client sees it."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: tuple[Icon, ...] | None = None
    annotations: Annotations | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class ResourceTemplate(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A family of resources as a client sees it."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: tuple[Icon, ...] | None = None
    annotations: Annotations | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class Completion(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Suggestions for an argument; at most a hundred are sent."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class Root(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A folder or file that the user lets the server see."""

    uri: str
    name: str | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class ModelHint(Struct, frozen=True, omit_defaults=True):
    """A model's name, or a part of it."""

    name: str | None = None


class ModelPreferences(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Which models suit a sampling request."""

    hints: tuple[ModelHint, ...] | None = None
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None


class Sample(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The answer of the client's model."""

    role: Role
    content: MessageContent | list[MessageContent]
    model: str
    stop_reason: str | None = None
    meta: JsonObject | None = field(name="_meta", default=None)
    __bool__ = no_truth("look at its '.text' or '.content'")

    @property
    def text(self) -> str:
        """The model's words, without other content."""
        blocks = self.content if isinstance(self.content, list) else [self.content]
        return "".join(block.text for block in blocks if isinstance(block, Text))


class Accepted(Struct, Generic[T_co], frozen=True):
    """The user answered; ``value`` is validated and typed."""

    value: T_co
    action: Literal["accept"] = "accept"
    __bool__ = _ANSWER_TRUTH

    def unwrap(self) -> T_co:
        """Return the value."""
        return self.value


class Declined(Struct, frozen=True):
    """The user declined."""

    action: Literal["decline"] = "decline"
    __bool__ = _ANSWER_TRUTH

    def unwrap(self) -> Any:
        """Raise ToolError: the user declined."""
        raise UserRefused("decline")


class Cancelled(Struct, frozen=True):
    """The user closed the question without an answer."""

    action: Literal["cancel"] = "cancel"
    __bool__ = _ANSWER_TRUTH

    def unwrap(self) -> Any:
        """Raise ToolError: the user closed the question."""
        raise UserRefused("cancel")


T = TypeVar("T")
Answer: TypeAlias = Accepted[T] | Declined | Cancelled


class Missing(Struct, frozen=True):
    """No usable response has arrived under that key."""

    kind: Literal["missing"] = "missing"
    __bool__ = _RESPONSE_TRUTH


class Elicited(Struct, frozen=True):
    """The raw answer to an elicitation: not validated, as the client sent it."""

    action: Literal["accept", "decline", "cancel"]
    content: JsonObject | None = None
    kind: Literal["elicit"] = "elicit"
    __bool__ = _RESPONSE_TRUTH


class Sampled(Struct, frozen=True):
    """A sampling answer that has arrived."""

    result: Sample
    kind: Literal["sampling"] = "sampling"
    __bool__ = _RESPONSE_TRUTH


class Rooted(Struct, frozen=True):
    """A list of roots that has arrived."""

    roots: tuple[Root, ...]
    kind: Literal["roots"] = "roots"
    __bool__ = _RESPONSE_TRUTH


Response: TypeAlias = Missing | Elicited | Sampled | Rooted


def _guessed(path: str | PathLike[str], default: str) -> str:
    import mimetypes  # 5 ms

    return mimetypes.guess_type(str(path))[0] or default


__all__ = [
    "CONTENT_TYPES",
    "LOG_LEVELS",
    "UNSET",
    "Accepted",
    "Annotations",
    "Answer",
    "Audio",
    "Cancelled",
    "Completion",
    "Content",
    "Contents",
    "Declined",
    "Elicited",
    "EmbeddedResource",
    "Icon",
    "Image",
    "Implementation",
    "JsonObject",
    "LogLevel",
    "Message",
    "MessageContent",
    "Missing",
    "ModelHint",
    "ModelPreferences",
    "Prompt",
    "PromptArgument",
    "PromptResult",
    "Resource",
    "ResourceLink",
    "ResourceResult",
    "ResourceTemplate",
    "Response",
    "Role",
    "Root",
    "Rooted",
    "Sample",
    "Sampled",
    "Scope",
    "Text",
    "Tool",
    "ToolAnnotations",
    "ToolResult",
    "ToolUse",
    "ToolUseResult",
    "UnsetType",
]
