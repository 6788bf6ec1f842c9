"""What calls give: results with their content read, and calls that still wait."""

from typing import Any

import msgspec

from antiphon.errors import CallFailed, PeerBroken
from antiphon.types import UNSET, Content, Contents, JsonObject, Message, Text


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's result."""

    content: list[Content]
    structured: Any = UNSET
    is_error: bool = False
    meta: JsonObject = {}
    rounds: int = 1
    """How many requests it took: 1 when nothing was asked."""

    @property
    def text(self) -> str:
        return "\n".join(block.text for block in self.content if isinstance(block, Text))


class PromptReply(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, filled in."""

    messages: list[Message]
    description: str | None = None
    meta: JsonObject = {}
    rounds: int = 1


class ReadResult(msgspec.Struct, frozen=True, kw_only=True):
    """A resource's contents."""

    contents: list[Contents]
    meta: JsonObject = {}
    rounds: int = 1

    @property
    def text(self) -> str:
        return "\n".join(item.text for item in self.contents if item.text is not None)


class Complete(msgspec.Struct, frozen=True):
    """A call that is done."""

    result: CallResult | PromptReply | ReadResult


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for answers: plain data, to be kept, sent, and resumed anywhere."""

    method: str
    params: JsonObject
    """The call itself, as it was made."""
    questions: JsonObject
    """What the server asks, by key; empty when it only wants the call again."""
    state: str | None = None
    """The server's token: opaque, to be echoed as it is. It is a bearer credential: keep it as one."""
    round: int = 1
    version: int = 1

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> "Pending":
        try:
            made = msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
            raise ValueError(f"This is not a pending call: {fault}") from None
        if made.version != 1:
            raise ValueError(f"This pending call has version {made.version}, and only version 1 is known")
        return made


class InputNeeded(CallFailed):
    """The call waits for answers, and this client does not answer by itself."""

    def __init__(self, pending: Pending) -> None:
        asked = ", ".join(pending.questions) or "nothing, only to be called again"
        super().__init__(f"The call needs input: {asked}")
        self.pending = pending


class _Tool(msgspec.Struct, rename="camel"):
    content: list[Content] = []
    structured_content: Any = UNSET
    is_error: bool = False
    meta: JsonObject = msgspec.field(name="_meta", default_factory=dict)


class _Prompt(msgspec.Struct):
    messages: list[Message]
    description: str | None = None
    meta: JsonObject = msgspec.field(name="_meta", default_factory=dict)


class _Read(msgspec.Struct):
    contents: list[Contents]
    meta: JsonObject = msgspec.field(name="_meta", default_factory=dict)


def read_result(method: str, result: JsonObject, rounds: int) -> CallResult | PromptReply | ReadResult:
    """A complete result, typed; PeerBroken if it is not one."""
    try:
        if method == "tools/call":
            tool = msgspec.convert(result, _Tool)
            return CallResult(
                content=tool.content,
                structured=tool.structured_content,
                is_error=tool.is_error,
                meta=tool.meta,
                rounds=rounds,
            )
        if method == "prompts/get":
            prompt = msgspec.convert(result, _Prompt)
            return PromptReply(
                messages=prompt.messages, description=prompt.description, meta=prompt.meta, rounds=rounds
            )
        read = msgspec.convert(result, _Read)
    except msgspec.ValidationError as fault:
        raise PeerBroken(f"The server's result for {method} is malformed: {fault}") from None
    return ReadResult(contents=read.contents, meta=read.meta, rounds=rounds)
