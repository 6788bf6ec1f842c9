"""Questions: how they are built, what they need of a client, and how an answer is read.

``ask.form(...)``, ``ask.url(...)``, ``ask.sample(...)`` and ``ask.roots()`` make questions to return; the ``ctx``
methods of the same kinds make and ask them in one go.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from antiphon.shapes import Form, Mismatch, form_of
from antiphon.types import (
    Accepted,
    Answer,
    Cancelled,
    Declined,
    Elicited,
    JsonObject,
    Message,
    MessageContent,
    Missing,
    ModelPreferences,
    Response,
    Root,
    Rooted,
    Sample,
    Sampled,
    Text,
    Tool,
)

__all__ = ["Question", "form", "roots", "sample", "url"]

_FORM = (("elicitation", "form"),)
_SHORT = 256
_encode = msgspec.json.Encoder(order="sorted").encode


class _Roots(msgspec.Struct):
    roots: tuple[Root, ...]


class Question:
    """One thing to ask a client: the request that travels, and the shape that its answer must have."""

    __slots__ = ("_params", "_print", "again", "beside", "form", "key", "kind", "method", "needs", "ttl")

    form: Form | None
    beside: bool
    """Whether it is asked beside others, so that its place among them may change from run to run."""

    def __init__(
        self,
        kind: Literal["form", "url", "sample", "roots"],
        method: str,
        params: JsonObject,
        needs: tuple[tuple[str, ...], ...],
        *,
        key: str | None = None,
        ttl: float | None = None,
        again: bool = False,
    ) -> None:
        self.kind = kind
        self.method = method
        self._params = params
        self.needs = needs
        self.form = None
        self.key = key
        self.ttl = ttl
        self.again = again
        self.beside = False
        self._print: bytes | None = None

    def __repr__(self) -> str:
        return f"<Question {self.kind} {self.params.get('message', '')!r}>"

    @property
    def params(self) -> JsonObject:
        return self._params

    @property
    def name(self) -> str:
        """A readable name for a question that was given no key."""
        return self.form.name if self.form is not None else self.kind

    @property
    def fingerprint(self) -> bytes:
        """What a recorded answer is tied to: the exact question, as it travels."""
        if self._print is None:
            self._print = blake2b(_encode([self.method, self.params]), digest_size=8).digest()
        return self._print

    def to_wire(self) -> JsonObject:
        return {"method": self.method, "params": self.params}

    def read(self, raw: object) -> Any:
        """The typed answer in a client's raw response; Mismatch if it is not an answer to this question."""
        if self.kind == "sample":
            return _convert(raw, Sample)
        if self.kind == "roots":
            return list(_convert(raw, _Roots).roots)
        fields: JsonObject = raw if type(raw) is dict else {}
        action = fields.get("action")
        if action == "accept":
            return Accepted(self._content(fields.get("content")))
        if action == "decline":
            return Declined()
        if action == "cancel":
            return Cancelled()
        raise Mismatch("expected an action of accept, decline or cancel")

    def recall(self, raw: JsonObject) -> Any:
        """The same for a response that was read before: forms need not be checked twice."""
        return self.read(raw)

    def _content(self, content: object) -> Any:  # noqa: ARG002 -- a page that was opened has none
        return None


class FormQuestion(Question):
    """A form. Cheap to make again on each round: its parameters and its schema's digest are made once, when needed."""

    __slots__ = ("_form", "_message")

    def __init__(self, message: str, form: Form, *, key: str | None, ttl: float | None, again: bool = False) -> None:
        self.kind = "form"
        self.method = "elicitation/create"
        self.needs = _FORM
        self.form = self._form = form
        self.key = key
        self.ttl = ttl
        self.again = again
        self.beside = False
        self._message = message
        self._print = None

    @property
    def params(self) -> JsonObject:
        return {"mode": "form", "message": self._message, "requestedSchema": self._form.schema}

    @property
    def fingerprint(self) -> bytes:
        if self._print is None:
            self._print = form_print(self._form, self._message)
        return self._print

    def recall(self, raw: JsonObject) -> Any:
        return form_recalled(self._form, raw)

    def _content(self, content: object) -> Any:
        return self._form.read(content)


def form_print(form: Form, message: str) -> bytes:
    """A form's fingerprint. It is wanted anew on each round, so those of short messages are remembered."""
    return _known_print(form, message) if len(message) <= _SHORT else _form_print(form, message)


def _form_print(form: Form, message: str) -> bytes:
    if form.stamp is None:
        form.stamp = blake2b(_encode(form.schema), digest_size=16).digest()
    return blake2b(form.stamp + message.encode(errors="surrogatepass"), digest_size=8).digest()


_known_print = lru_cache(maxsize=1024)(_form_print)


def form_recalled(form: Form, raw: JsonObject) -> Answer[Any]:
    """The answer to a form in a response that was read before."""
    action = raw["action"]
    if action == "accept":
        return Accepted(form.recall(raw["content"]))
    return Declined() if action == "decline" else Cancelled()


def form(
    message: str, shape: object, *, key: str | None = None, ttl: float | None = None, again: bool = False
) -> Question:
    """A form for the user. ``again=True`` allows asking again after a refusal."""
    return FormQuestion(message, form_of(shape), key=key, ttl=ttl, again=again)


def confirm(message: str, *, key: str | None = None, ttl: float | None = None, again: bool = False) -> Question:
    """A form with one box to tick."""
    return FormQuestion(message, _CONFIRM, key=key, ttl=ttl, again=again)


def url(message: str, url: str, *, key: str | None = None, ttl: float | None = None, again: bool = False) -> Question:
    """A page for the user to open. Accepting means "I agreed to open it", not "I am done there"."""
    parts = urlsplit(url)
    if not parts.scheme or not (parts.netloc or parts.path):
        raise ValueError(f"ask.url needs an absolute URL, got {url!r}")
    return Question(
        "url",
        "elicitation/create",
        {"mode": "url", "message": message, "url": url},
        (("elicitation", "url"),),
        key=key,
        ttl=ttl,
        again=again,
    )


def sample(
    messages: str | Message | Sequence[str | Message],
    *,
    max_tokens: int,
    system: str | None = None,
    temperature: float | None = None,
    stop: Sequence[str] | None = None,
    model: ModelPreferences | None = None,
    tools: Sequence[Tool] | None = None,
    tool_choice: Literal["auto", "required", "none"] | None = None,
    context: Literal["none", "thisServer", "allServers"] | None = None,
    metadata: JsonObject | None = None,
    key: str | None = None,
    ttl: float | None = None,
    again: bool = False,
) -> Question:
    """A completion from the client's model (deprecated by the protocol; ask your provider where you can)."""
    said = [messages] if isinstance(messages, str | Message) else messages
    params: JsonObject = {"messages": [_message(item) for item in said], "maxTokens": max_tokens}
    optional: dict[str, object] = {
        "systemPrompt": system,
        "temperature": temperature,
        "stopSequences": None if stop is None else list(stop),
        "modelPreferences": model,
        "tools": None if tools is None else list(tools),
        "toolChoice": None if tool_choice is None else {"mode": tool_choice},
        "includeContext": context,
        "metadata": metadata,
    }
    params.update({name: msgspec.to_builtins(value) for name, value in optional.items() if value is not None})
    needs: tuple[tuple[str, ...], ...] = (("sampling",),)
    if tools is not None or tool_choice is not None:
        needs += (("sampling", "tools"),)
    if context is not None and context != "none":
        needs += (("sampling", "context"),)
    return Question("sample", "sampling/createMessage", params, needs, key=key, ttl=ttl, again=again)


def roots(*, key: str | None = None, ttl: float | None = None) -> Question:
    """The folders that the user opened to this server (deprecated by the protocol)."""
    return Question("roots", "roots/list", {}, (("roots",),), key=key, ttl=ttl)


def supports(capabilities: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Whether declared capabilities include ``("elicitation", "url")`` and the like.

    client/elicitation, Capabilities: an empty elicitation object means form mode only.
    """
    if path[0] == "elicitation":
        declared = capabilities.get("elicitation")
        if type(declared) is not dict:
            return False
        mode = path[1] if len(path) > 1 else "form"
        return mode in declared or (mode == "form" and "url" not in declared)
    node: Any = capabilities
    for step in path:
        if not isinstance(node, Mapping) or step not in node:
            return False
        node = node[step]
    return isinstance(node, Mapping) or node is True


def missing(capabilities: Mapping[str, Any], questions: Iterable[Question]) -> JsonObject:
    """What a client would have to declare before these questions may be asked; empty if nothing."""
    tree: JsonObject = {}
    for question in questions:
        for path in question.needs:
            if not supports(capabilities, path):
                node = tree
                for step in path:
                    node = node.setdefault(step, {})
    return tree


def view(raw: object) -> Response:
    """A raw response told apart by its form; what fits none of them is Missing."""
    if type(raw) is not dict:
        return Missing()
    fields: JsonObject = raw
    action = fields.get("action")
    try:
        if action == "accept" or action == "decline" or action == "cancel":  # noqa: PLR1714 -- it may be a list
            content = fields.get("content")
            return Elicited(action, content if action == "accept" and type(content) is dict else None)
        if "roots" in fields:
            return Rooted(_convert(fields, _Roots).roots)
        return Sampled(_convert(fields, Sample))
    except Mismatch:
        return Missing()


def _message(item: str | Message) -> JsonObject:
    message = Message.user(item) if isinstance(item, str) else item
    content = message.content
    body: MessageContent | list[MessageContent] = Text(content) if isinstance(content, str) else content
    wire: JsonObject = {"role": message.role, "content": msgspec.to_builtins(body)}
    if message.meta is not None:
        wire["_meta"] = message.meta
    return wire


def _convert(raw: object, type_: Any) -> Any:
    try:
        return msgspec.convert(raw, type_)
    except msgspec.ValidationError as fault:
        raise Mismatch(str(fault)) from None


_CONFIRM = form_of(bool, field="confirm")
