"""What calls give: results with their content read, and calls that still wait."""

from typing import Any, TypeAlias

import msgspec

from antiphon.errors import CallFailed, PeerBroken
from antiphon.rounds.client_loop import is_request
from antiphon.types import Content, Contents, Implementation, JsonObject, Message, Text
from antiphon.wire.revisions import METHODS, SERVER_INFO


class Discovery(msgspec.Struct, frozen=True, rename="camel"):
    """What a server says of itself."""

    supported_versions: list[str] = []
    capabilities: JsonObject = {}
    instructions: str | None = None
    meta: JsonObject = msgspec.field(name="_meta", default_factory=dict)

    @property
    def server(self) -> Implementation | None:
        """Who the server says it is."""
        return implementation(self.meta.get(SERVER_INFO))


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """A tool's result."""

    content: list[Content] = []
    structured: Any = msgspec.field(name="structuredContent", default=None)
    """None if there is none, or if it is null."""
    is_error: bool = msgspec.field(name="isError", default=False)
    meta: JsonObject = msgspec.field(name="_meta", default_factory=dict)
    rounds: int = 1
    """How many requests it took: 1 when nothing was asked."""

    @property
    def text(self) -> str:
        """The text of the result, its blocks joined by line breaks."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))


class PromptReply(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, filled in."""

    messages: list[Message]
    description: str | None = None
    meta: JsonObject = msgspec.field(name="_meta", default_factory=dict)
    rounds: int = 1


class ReadResult(msgspec.Struct, frozen=True, kw_only=True):
    """A resource's contents."""

    contents: list[Contents]
    meta: JsonObject = msgspec.field(name="_meta", default_factory=dict)
    rounds: int = 1

    @property
    def text(self) -> str:
        """The text of the resource, its parts joined by line breaks."""
        return "\n".join(item.text for item in self.contents if item.text is not None)


Result: TypeAlias = CallResult | PromptReply | ReadResult


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One round of a watched call: questions to answer, or the end."""

    number: int
    questions: JsonObject
    result: Result | None = None


class Address(msgspec.Struct, frozen=True):
    """By what another process reaches a client's server."""

    target: str | list[str]
    cwd: str | None = None
    private: bool = False
    """Whether the client had headers, a login or variables, which are not kept."""


class Complete(msgspec.Struct, frozen=True):
    """A call that is done."""

    result: Result


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
    expires: float | None = None
    """When the server's token ends, in seconds since the epoch, where the server says so."""
    version: int = 1

    def to_json(self) -> str:
        """Return the call as JSON. Keep it safe: with the token in it, anyone can go on with the call."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> "Pending":
        """Read what ``to_json`` wrote; raise ValueError if it is something else."""
        try:
            made = msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
            raise ValueError(f"This is not a pending call: {fault}") from None
        if made.version != 1:
            raise ValueError(f"This pending call has version {made.version}, and only version 1 is known")
        check_call(made.method, made.params)
        if not all(map(is_request, made.questions.values())):
            raise ValueError("This pending call has questions that are no requests")
        return made


class InputNeeded(CallFailed):
    """The call waits for answers, and this client does not answer by itself.

    ``ticket`` is what ``inbox.result`` takes, if the client has an inbox.
    """

    def __init__(self, pending: Pending, ticket: str | None = None) -> None:
        asked = ", ".join(pending.questions) or "nothing, only to be called again"
        super().__init__(f"The call needs input: {asked}{f' (it waits in the inbox as {ticket})' if ticket else ''}")
        self.pending = pending
        self.ticket = ticket


def check_call(method: str, params: JsonObject) -> None:
    """ValueError unless it is a call that a server may answer with questions, and names what it calls."""
    row = METHODS.get(method)
    if row is None or row.target is None or not row.asks:
        callable_ = ", ".join(name for name, row in METHODS.items() if row.asks)
        raise ValueError(f"{method!r} is no call that can be asked about: {callable_} are")
    if type(params.get(row.target)) is not str:
        raise ValueError(f"{method} needs {row.target!r}, a string")


_RESULTS: dict[str, type[Result]] = {
    "tools/call": CallResult,
    "prompts/get": PromptReply,
    "resources/read": ReadResult,
}


def read_result(method: str, result: JsonObject, rounds: int) -> Result:
    """A complete result, typed; PeerBroken if it is not one."""
    try:
        return msgspec.convert({**result, "rounds": rounds}, _RESULTS[method])
    except msgspec.ValidationError as fault:
        raise PeerBroken(f"The server's result for {method} is malformed: {fault}") from None


def implementation(info: object) -> Implementation | None:
    try:
        return msgspec.convert(info, Implementation)
    except msgspec.ValidationError:
        return None
