"""The rounds of a call as a conversation: steps, each from one speaker to another, in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from antiphon.escaping import compact, counted, line, plain
from antiphon.testing.transcript import Turn
from antiphon.types import JsonObject

Speaker = Literal["client", "server", "user"]
Kind = Literal["call", "question", "answer", "wait", "retry", "result", "error", "silence"]

_DIRECTIONS: Final[dict[Kind, tuple[Speaker, Speaker]]] = {
    "call": ("client", "server"),
    "retry": ("client", "server"),
    "question": ("server", "user"),
    "answer": ("user", "server"),
    "wait": ("server", "client"),
    "result": ("server", "client"),
    "error": ("server", "client"),
    "silence": ("server", "client"),
}
_TARGETS: Final = {
    "tools/call": ("name", "arguments"),
    "prompts/get": ("name", "arguments"),
    "resources/read": ("uri", ""),
}
"""The parameters of each method that hold its target and its arguments."""
_MOST_CHOICES: Final = 6


class ShownField(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a form: ``replicas``, ``integer = 2``, ``How many.``"""

    name: str
    about: str
    description: str = ""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a conversation. All of it may come from a server: show it through ``visible``."""

    round: int
    """Counted from 1."""
    kind: Kind
    title: str
    """``deploy``, ``confirm``, ``accept`` ..."""
    text: str = ""
    """What people read."""
    data: object = msgspec.UNSET
    """What programs read."""
    fields: tuple[ShownField, ...] = ()
    failed: bool = False
    """An error: the tool's own, or the protocol's."""
    seconds: float | None = None

    @property
    def speaker(self) -> Speaker:
        return _DIRECTIONS[self.kind][0]

    @property
    def hearer(self) -> Speaker:
        return _DIRECTIONS[self.kind][1]


def conversation(turns: Sequence[Turn]) -> tuple[Step, ...]:
    """Return all steps in order. Where a test makes several calls, each begins with round 1."""
    steps: list[Step] = []
    number = 0
    for place, turn in enumerate(turns, 1):
        continues = number > 0 and (bool(turn.answers) or "requestState" in turn.params)
        number = number + 1 if continues else 1
        steps += _sent(turn, number)
        steps += _received(turn, number, is_last=place == len(turns))
    return tuple(steps)


# --- what a client sends ------------------------------------------------------------------------------------------


def _sent(turn: Turn, number: int) -> Iterator[Step]:
    if number == 1:
        yield _call(turn)
    elif not turn.answers:
        yield Step(round=number, kind="retry", title="tries again")
    for key, answer in turn.answers.items():
        title, text, data = _answer(answer)
        yield Step(round=number, kind="answer", title=f"{key}: {title}" if title else key, text=text, data=data)


def _call(turn: Turn) -> Step:
    target, arguments = _TARGETS.get(turn.method, ("", ""))
    params = {name: value for name, value in turn.params.items() if name not in {"_meta", "requestState"}}
    title = " ".join(filter(None, [turn.method, str(params.pop(target, "")) if target else ""]))
    data = params.pop(arguments, {}) if arguments else {}
    # Other params are shown as well: a suite may send its own.
    data = {**data, **params} if isinstance(data, Mapping) else {arguments: data, **params}
    return Step(round=1, kind="call", title=title, data=plain(data) if data else msgspec.UNSET)


def _answer(answer: object) -> tuple[str, str, object]:
    match answer:
        case {"action": str(action), "content": content} if content is not None:
            return action, "", plain(content)
        case {"action": str(action)}:
            return action, "", msgspec.UNSET
        case {"role": _, "content": content}:
            return "the model says", _blocks(content), msgspec.UNSET
        case {"roots": [*roots]}:
            return counted(len(roots), "root"), "\n".join(map(_root, roots)), msgspec.UNSET
        case _:
            return "", "", plain(answer)


def _root(root: object) -> str:
    return str(root.get("uri", "")) if isinstance(root, Mapping) else compact(root)


# --- what a server asks -------------------------------------------------------------------------------------------


def _received(turn: Turn, number: int, *, is_last: bool) -> Iterator[Step]:
    for key, request in turn.questions.items():
        title, text, fields = _question(key, request if isinstance(request, Mapping) else {})
        text = text.strip("\n")
        yield Step(round=number, kind="question", title=title, text=text, fields=fields, seconds=turn.seconds)
    if turn.result is not None:
        yield _result(number, turn.result, turn.seconds)
    elif turn.error is not None:
        yield _error(number, turn.error, turn.seconds)
    elif not turn.questions and is_last:
        yield Step(round=number, kind="silence", title="no answer", failed=True, seconds=turn.seconds)
    elif not turn.questions:
        yield Step(round=number, kind="wait", title="asks to be called again", seconds=turn.seconds)


def _question(key: str, request: Mapping[str, object]) -> tuple[str, str, tuple[ShownField, ...]]:
    wanted = request.get("params")
    params = wanted if isinstance(wanted, Mapping) else {}
    message = str(params.get("message", ""))
    match request.get("method"):
        case "elicitation/create" if params.get("mode") == "url" or "url" in params:
            return f"asks {key}, in a browser", f"{message}\n{params.get('url', '')}", ()
        case "elicitation/create":
            return f"asks {key}", message, tuple(described_fields(params.get("requestedSchema")))
        case "sampling/createMessage":
            return f"asks the model {key}", _messages(params.get("messages")), ()
        case "roots/list":
            return f"asks for roots {key}", "", ()
        case _:
            return f"asks {key}", *_listed_question(request)


def _listed_question(request: Mapping[str, object]) -> tuple[str, tuple[ShownField, ...]]:
    """A question of the ``mcptest`` dialect, or of none."""
    match request:
        case {"description": str(text), "kind": str(kind)}:
            return text, (ShownField(name=kind, about="required" if request.get("required", True) else "optional"),)
        case _:
            return compact(request), ()


def described_fields(schema: object) -> Iterator[ShownField]:
    """Yield what a schema of an object has: a form's fields, or a tool's arguments."""
    match schema:
        case {"properties": {**properties}, **rest}:
            required = rest.get("required")
            for name, definition in properties.items():
                known = definition if isinstance(definition, Mapping) else {}
                about = _type(known)
                about += f" = {compact(known['default'])}" if known.get("default") is not None else ""
                about += ", required" if isinstance(required, list) and name in required else ""
                yield ShownField(name=str(name), about=about, description=_description(known, str(name)))
        case _:
            pass


def _type(schema: object) -> str:
    match schema:
        case {"enum": [*choices]}:
            return " | ".join(map(_bare, choices[:_MOST_CHOICES])) + (" | ..." if len(choices) > _MOST_CHOICES else "")
        case {"const": value}:
            return _bare(value)
        case {"oneOf": [*choices]} | {"anyOf": [*choices]}:
            return " | ".join(dict.fromkeys(map(_type, choices)))
        case {"type": "array", "items": items}:
            return f"list of {_type(items)}"
        case {"type": str(name), "format": str(form)}:
            return f"{name} ({form})"
        case {"type": str(name)}:
            return name
        case {"type": [*names]}:
            return " | ".join(map(str, names))
        case {"$ref": _} | {"properties": _}:
            return "object"
        case _:
            return "anything"


def _bare(value: object) -> str:
    return value if isinstance(value, str) else compact(value)


def _description(schema: Mapping[str, object], name: str) -> str:
    found = line(str(schema.get("description") or schema.get("title") or ""))
    # A title that an SDK makes from the name says nothing new.
    return "" if found.casefold() == name.replace("_", " ").casefold() else found


# --- what a server answers ----------------------------------------------------------------------------------------


def _result(number: int, result: JsonObject, seconds: float) -> Step:
    text, data = _content(result)
    failed = result.get("isError") is True
    title = "fails" if failed else "answers"
    return Step(round=number, kind="result", title=title, text=text, data=data, failed=failed, seconds=seconds)


def _error(number: int, error: JsonObject, seconds: float) -> Step:
    # An error without a code is not the server's: the client has noted why no answer came.
    code = error.get("code")
    return Step(
        round=number,
        kind="error",
        title="no answer" if code is None else f"refuses ({compact(code)})",
        text=str(error.get("message", "")),
        data=plain(error["data"]) if error.get("data") is not None else msgspec.UNSET,
        failed=True,
        seconds=seconds,
    )


def _content(result: JsonObject) -> tuple[str, object]:
    """Text and structured content; only one of them where they say the same (server/tools, Structured Content)."""
    text = "\n".join(_texts(result))
    if "structuredContent" not in result:
        rest = {name: value for name, value in result.items() if name not in {"_meta", "resultType"}}
        return text, msgspec.UNSET if text else plain(rest)
    structured = plain(result["structuredContent"])
    if isinstance(structured, dict) and list(structured.values()) == [text]:
        return text, msgspec.UNSET
    return "" if repeats(text, structured) else text, structured


def repeats(text: str, structured: object) -> bool:
    """Whether a text says what the structured content says (server/tools, Structured Content)."""
    if text == structured:
        return True
    try:
        decoded: object = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return decoded == structured or (isinstance(structured, dict) and list(structured.values()) == [decoded])


def _texts(result: JsonObject) -> Iterator[str]:
    match result:
        case {"content": [*blocks]}:
            yield from map(_block, blocks)
        case {"messages": [*_]}:
            yield _messages(result["messages"])
        case {"contents": [*items]}:
            yield from (_block({"type": "resource", "resource": item}) for item in items)
        case _:
            pass


def _messages(messages: object) -> str:
    return "\n".join(map(_message, messages if isinstance(messages, list) else []))


def _message(message: object) -> str:
    match message:
        case {"role": str(role), "content": content}:
            return f"{role}: {_blocks(content)}"
        case _:
            return compact(message)


def _blocks(content: object) -> str:
    return "\n".join(map(_block, content if isinstance(content, list) else [content]))


def _block(block: object) -> str:
    match block:
        case {"type": "text", "text": str(text)} | {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "image" | "audio" as kind, "data": str(data), **rest}:
            return f"[{rest.get('mimeType', kind)}, {_size(data)}]"
        case {"type": "resource", "resource": {"blob": str(data), **rest}}:
            return f"[{rest.get('mimeType', 'bytes')}, {_size(data)}]"
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[{uri}]"
        case _:
            return compact(block)


def _size(base64: str) -> str:
    size = len(base64) * 3 // 4 - base64[-2:].count("=")
    return f"{size / 1000:,.1f} kB" if size >= 1000 else counted(size, "byte")
