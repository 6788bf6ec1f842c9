"""Questions: how to make them, which capabilities they need, and how to read their answers.

``ask.form(...)``, ``ask.url(...)``, ``ask.sample(...)`` and ``ask.roots()`` make questions to return; the ``ctx``
methods of the same kinds make and ask them in one step.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
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
    no_truth,
)

__all__ = ["Question", "form", "roots", "sample", "url"]

_FORM = (("elicitation", "form"),)
_SHORT = 256
_encode = msgspec.json.Encoder(order="sorted").encode


class _Roots(msgspec.Struct):
    roots: tuple[Root, ...]


class Question:
    """One question to a client: the request to send, and the shape of its answer."""

    __slots__ = ("_params", "_print", "again", "beside", "form", "key", "kind", "method", "needs", "ttl")

    form: Form | None
    __bool__ = no_truth("return it with 'input_required({...})', or ask with 'await ctx.elicit(...)' and the like")
    beside: bool
    """Whether it is asked in parallel with others, so that their order may change from run to run."""

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
        self.kind: Literal["form", "url", "sample", "roots"] = kind
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
        """The parameters of the request, as the protocol has them."""
        return self._params

    @property
    def name(self) -> str:
        """A readable name for a question without a key."""
        return self.form.name if self.form is not None else self.kind

    @property
    def fingerprint(self) -> bytes:
        """A digest of the question as sent, and of its key: a recorded answer belongs to it."""
        if self._print is None:
            self._print = _keyed(blake2b(_encode([self.method, self.params]), digest_size=8).digest(), self.key)
        return self._print

    def under(self, key: str, ttl: float | None = None) -> "Question":
        """Return the same question under a key, and with a time to live if it has none."""
        named = copy(self)
        named.key = key
        named.ttl = ttl if self.ttl is None else self.ttl
        named._print = None  # noqa: SLF001 -- its own class
        return named

    def to_wire(self) -> JsonObject:
        """Return the request, as the protocol has it."""
        return {"method": self.method, "params": self.params}

    def read(self, raw: object) -> Any:
        """Return the typed answer in a client's raw response; raise Mismatch if it does not fit this question."""
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
        """Do the same for a response that `read` has accepted before: a form is not checked again."""
        return self.read(raw)

    def _content(self, content: object) -> Any:  # noqa: ARG002 -- a URL's answer has none
        return None


class FormQuestion(Question):
    """A form. Every round makes it again, so parameters and fingerprint are computed only when needed."""

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
            self._print = form_print(self._form, self._message, self.key)
        return self._print

    def recall(self, raw: JsonObject) -> Any:
        return form_recalled(self._form, raw)

    def _content(self, content: object) -> Any:
        return self._form.read(content)


def form_print(form: Form, message: str, key: str | None) -> bytes:
    """Return a form's fingerprint. Every round needs it, so those of short messages are cached."""
    if form.stamp is None:
        form.stamp = blake2b(_encode(form.schema), digest_size=16).digest()
    return (_known_print if len(message) <= _SHORT else _print)(form.stamp, message, key)


def _keyed(digest: bytes, key: str | None) -> bytes:
    """Tell questions with a key from those without: the same words under another key are another question."""
    return digest if key is None else blake2b(digest + key.encode(errors="surrogatepass"), digest_size=8).digest()


def _print(stamp: bytes, message: str, key: str | None) -> bytes:
    return _keyed(blake2b(stamp + message.encode(errors="surrogatepass"), digest_size=8).digest(), key)


_known_print = lru_cache(maxsize=1024)(_print)


def form_recalled(form: Form, raw: JsonObject) -> Answer[Any]:
    """Return the answer to a form in a response that was read before."""
    action = raw["action"]
    if action == "accept":
        return Accepted(form.recall(raw["content"]))
    return Declined() if action == "decline" else Cancelled()


def form(
    message: str, shape: object, *, key: str | None = None, ttl: float | None = None, again: bool = False
) -> Question:
    """Ask the user to fill in a form. ``again=True`` allows asking again after a refusal."""
    return FormQuestion(message, form_of(shape), key=key, ttl=ttl, again=again)


def confirm(message: str, *, key: str | None = None, ttl: float | None = None, again: bool = False) -> Question:
    """Ask the user to confirm: a form with one checkbox."""
    return FormQuestion(message, _CONFIRM, key=key, ttl=ttl, again=again)


def url(message: str, url: str, *, key: str | None = None, ttl: float | None = None, again: bool = False) -> Question:
    """Ask the user to open a page. Accepting means that the user agreed to open it, not that they are done there."""
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
    """Ask the client's model for a completion (deprecated by the protocol: call your provider where you can)."""
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
    return Question("sample", "sampling/createMessage", params, _sample_needs(params), key=key, ttl=ttl, again=again)


def roots(*, key: str | None = None, ttl: float | None = None) -> Question:
    """Ask for the folders that the user lets this server see (deprecated by the protocol)."""
    return Question("roots", "roots/list", {}, (("roots",),), key=key, ttl=ttl)


def of_wire(request: object) -> Question:
    """Return the question in a request as the wire has it; raise TypeError if it is none."""
    wire: JsonObject = request if type(request) is dict else {}
    method, params = wire.get("method"), wire.get("params", {})
    if type(params) is dict:
        if method == "elicitation/create":
            mode: Literal["form", "url"] = "url" if params.get("mode") == "url" else "form"
            return Question(mode, method, params, (("elicitation", mode),))
        if method == "sampling/createMessage":
            return Question("sample", method, params, _sample_needs(params))
        if method == "roots/list":
            return Question("roots", method, params, (("roots",),))
    raise TypeError(f"expected a request to elicit, to sample or to list roots, got {request!r}")


def _sample_needs(params: JsonObject) -> tuple[tuple[str, ...], ...]:
    needs: tuple[tuple[str, ...], ...] = (("sampling",),)
    if "tools" in params or "toolChoice" in params:
        needs += (("sampling", "tools"),)
    if params.get("includeContext", "none") != "none":
        needs += (("sampling", "context"),)
    return needs


def supports(capabilities: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Return whether the declared capabilities include a path such as ``("elicitation", "url")``.

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
    """Return the capabilities that a client lacks for these questions; empty if none."""
    tree: JsonObject = {}
    for question in questions:
        for path in question.needs:
            if not supports(capabilities, path):
                node = tree
                for step in path:
                    node = node.setdefault(step, {})
    return tree


def view(raw: object) -> Response:
    """Return a raw response as Elicited, Rooted or Sampled, by its form; Missing if it fits none."""
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
