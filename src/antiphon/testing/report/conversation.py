"""The rounds of a call as a conversation: who said what to whom, in words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from antiphon.testing.outcome import Turn
from antiphon.testing.report.escaping import compact, counted, line, plain
from antiphon.types import JsonObject

Speaker = Literal["client", "server", "user"]
Kind = Literal["call", "question", "answer", "wait", "retry", "result", "error", "silence"]

_TARGETS: Final = {
    "tools/call": ("name", "arguments"),
    "prompts/get": ("name", "arguments"),
    "resources/read": ("uri", ""),
}


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a form: ``replicas``, ``integer = 2``, ``How many.``"""

    name: str
    about: str
    description: str = ""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a conversation. All of it may come from a server: show it through ``visible``."""

    round: int
    """Counted from 1."""
    kind: Kind
    speaker: Speaker
    hearer: Speaker
    title: str
    """``deploy``, ``confirm``, ``accept`` ..."""
    text: str = ""
    """What a person would read."""
    data: object = msgspec.UNSET
    """What a program would."""
    fields: tuple[Field, ...] = ()
    failed: bool = False
    """An error: the tool's own, or the protocol's."""
    seconds: float | None = None


def conversation(turns: Sequence[Turn]) -> tuple[Said, ...]:
    """Everything that was said, in order. Where a test made several calls, each begins with its round 1."""
    told: list[Said] = []
    number = 0
    for place, turn in enumerate(turns, 1):
        goes_on = number > 0 and (bool(turn.answers) or "requestState" in turn.params)
        number = number + 1 if goes_on else 1
        told += _sent(turn, number)
        told += _heard(turn, number, is_last=place == len(turns))
    return tuple(told)


def _heard(turn: Turn, number: int, *, is_last: bool) -> Iterator[Said]:
    for key, request in turn.questions.items():
        yield _question(number, key, request if isinstance(request, Mapping) else {}, turn.seconds)
    if turn.result is not None:
        yield _result(number, turn.result, turn.seconds)
    elif turn.error is not None:
        yield _error(number, turn.error, turn.seconds)
    elif not turn.questions:
        yield _pause(number, turn.seconds, is_last=is_last)


def _sent(turn: Turn, number: int) -> Iterator[Said]:
    if number == 1:
        yield _call(turn)
    elif not turn.answers:
        yield Said(round=number, kind="retry", speaker="client", hearer="server", title="tries again")
    for key, answer in turn.answers.items():
        yield _answer(number, key, answer)


def _call(turn: Turn) -> Said:
    named, holding = _TARGETS.get(turn.method, ("", ""))
    params = {name: value for name, value in turn.params.items() if name != "_meta"}
    title = " ".join(filter(None, [turn.method, str(params.pop(named, "")) if named else ""]))
    data = params.pop(holding, {}) if holding else {}
    # Whatever else was sent is shown as well: a suite may send params of its own.
    data = {**data, **params} if isinstance(data, Mapping) else {holding: data, **params}
    data.pop("requestState", None)
    return Said(
        round=1,
        kind="call",
        speaker="client",
        hearer="server",
        title=title,
        data=plain(data) if data else msgspec.UNSET,
    )


def _answer(number: int, key: str, answer: object) -> Said:
    title, text, data = _answered(answer)
    return Said(
        round=number,
        kind="answer",
        speaker="user",
        hearer="server",
        title=f"{key}: {title}" if title else key,
        text=text,
        data=data,
    )


def _answered(answer: object) -> tuple[str, str, object]:
    match answer:
        case {"action": str(action), "content": content} if content is not None:
            return action, "", plain(content)
        case {"action": str(action)}:
            return action, "", msgspec.UNSET
        case {"role": _, "content": content}:
            return (
                "the model says",
                "\n".join(map(_block, content if isinstance(content, list) else [content])),
                msgspec.UNSET,
            )
        case {"roots": [*roots]}:
            return counted(len(roots), "root"), "\n".join(map(_root, roots)), msgspec.UNSET
        case _:
            return "", "", plain(answer)


def _root(root: object) -> str:
    return str(root.get("uri", "")) if isinstance(root, Mapping) else compact(root)


# --- what a server asks -------------------------------------------------------------------------------------------


def _question(number: int, key: str, request: Mapping[str, object], seconds: float) -> Said:
    title, text, fields = _asked(key, request)
    return Said(
        round=number,
        kind="question",
        speaker="server",
        hearer="user",
        title=title,
        text=text.strip("\n"),
        fields=fields,
        seconds=seconds,
    )


def _asked(key: str, request: Mapping[str, object]) -> tuple[str, str, tuple[Field, ...]]:
    wanted = request.get("params")
    params = wanted if isinstance(wanted, Mapping) else {}
    message = str(params.get("message", ""))
    match request.get("method"):
        case "elicitation/create" if params.get("mode") == "url" or "url" in params:
            return f"asks {key}, in a browser", f"{message}\n{params.get('url', '')}", ()
        case "elicitation/create":
            return f"asks {key}", message, tuple(_fields(params))
        case "sampling/createMessage":
            return f"asks the model {key}", _messages(params.get("messages")), ()
        case "roots/list":
            return f"asks for roots {key}", "", ()
        case _:
            return f"asks {key}", *_other(request)


def _other(request: Mapping[str, object]) -> tuple[str, tuple[Field, ...]]:
    """A question of the list-shaped dialect, or of none."""
    match request:
        case {"description": str(text), "kind": str(kind)}:
            return text, (Field(name=kind, about="required" if request.get("required", True) else "optional"),)
        case _:
            return compact(request), ()


def _fields(params: Mapping[str, object]) -> Iterator[Field]:
    match params.get("requestedSchema"):
        case {"properties": {**properties}, **rest}:
            required = rest.get("required")
            for name, schema in properties.items():
                known = schema if isinstance(schema, Mapping) else {}
                must = isinstance(required, list) and name in required
                yield Field(name=str(name), about=_about(known, must=must), description=_described(known, str(name)))
        case _:
            pass


def _about(schema: Mapping[str, object], *, must: bool) -> str:
    words = [_type(schema)]
    if "default" in schema:
        words.append(f"= {compact(schema['default'])}")
    return " ".join(words) + (", required" if must else "")


def _type(schema: Mapping[str, object]) -> str:
    match schema:
        case {"enum": [*choices]}:
            return " | ".join(map(_bare, choices))
        case {"oneOf": [*choices]} | {"anyOf": [*choices]}:
            return " | ".join(_bare(choice.get("const")) for choice in choices if isinstance(choice, Mapping))
        case {"type": "array", "items": Mapping() as items}:
            return f"list of {_type(items)}"
        case {"type": str(name), "format": str(form)}:
            return f"{name} ({form})"
        case {"type": str(name)}:
            return name
        case _:
            return "anything"


def _bare(value: object) -> str:
    return value if isinstance(value, str) else compact(value)


def _described(schema: Mapping[str, object], name: str) -> str:
    described = line(str(schema.get("description") or schema.get("title") or ""))
    # A title that some SDKs make from the name says nothing new.
    return "" if described.casefold() == name.replace("_", " ").casefold() else described


# --- what a server answers ----------------------------------------------------------------------------------------


def _result(number: int, result: JsonObject, seconds: float) -> Said:
    text, data = _content(result)
    failed = result.get("isError") is True
    return Said(
        round=number,
        kind="result",
        speaker="server",
        hearer="client",
        title="fails" if failed else "answers",
        text=text,
        data=data,
        failed=failed,
        seconds=seconds,
    )


def _content(result: JsonObject) -> tuple[str, object]:
    """Text and structured content, where they say the same only one of them (server/tools, Structured Content)."""
    text = "\n".join(_texts(result))
    if "structuredContent" not in result:
        rest = {name: value for name, value in result.items() if name not in {"_meta", "resultType"}}
        return text, msgspec.UNSET if text else plain(rest)
    structured = plain(result["structuredContent"])
    if isinstance(structured, dict) and list(structured.values()) == [text]:
        return text, msgspec.UNSET
    return "" if _repeats(text, structured) else text, structured


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
    told: list[str] = []
    for message in messages if isinstance(messages, list) else []:
        match message:
            case {"role": str(role), "content": content}:
                blocks = content if isinstance(content, list) else [content]
                told.append(f"{role}: " + "\n".join(map(_block, blocks)))
            case _:
                told.append(compact(message))
    return "\n".join(told)


def _block(block: object) -> str:
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "image" | "audio" as kind, "data": str(data), **rest}:
            return f"[{rest.get('mimeType', kind)}, {_size(data)}]"
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource", "resource": {"blob": str(data), **rest}}:
            return f"[{rest.get('mimeType', 'bytes')}, {_size(data)}]"
        case {"type": "resource_link", "uri": str(uri)}:
            return f"[{uri}]"
        case _:
            return compact(block)


def _size(base64: str) -> str:
    size = len(base64) * 3 // 4 - base64[-2:].count("=")
    return f"{size / 1000:,.1f} kB" if size >= 1000 else counted(size, "byte")


def _repeats(text: str, structured: object) -> bool:
    try:
        told: object = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return text == structured
    return told == structured or (isinstance(structured, dict) and list(structured.values()) == [told])


def _error(number: int, error: JsonObject, seconds: float) -> Said:
    # Without a code it is no error of the server's: this side has noted that no answer came, and why.
    code = error.get("code")
    return Said(
        round=number,
        kind="error",
        speaker="server",
        hearer="client",
        title="no answer" if code is None else f"refuses ({compact(code)})",
        text=str(error.get("message", "")),
        data=plain(error["data"]) if error.get("data") is not None else msgspec.UNSET,
        failed=True,
        seconds=seconds,
    )


def _pause(number: int, seconds: float, *, is_last: bool) -> Said:
    return Said(
        round=number,
        kind="silence" if is_last else "wait",
        speaker="server",
        hearer="client",
        title="no answer" if is_last else "asks to be called again",
        failed=is_last,
        seconds=seconds,
    )
