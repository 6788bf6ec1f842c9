"""A call to take away: as a test, as a cassette, as a command, as curl, as Python."""

import re
import shlex
from collections.abc import Callable
from pprint import pformat
from typing import Any, Final

import msgspec
from msgspec import structs

from antiphon.errors import AntiphonError, CannotAnswer
from antiphon.escaping import compact, line
from antiphon.inspect.calls import InspectedCall
from antiphon.inspect.instance import Spot
from antiphon.testing.answer_values import fields_of, kind_of, response_to
from antiphon.testing.cassette.recording import Recording
from antiphon.testing.suite.starter import yaml_of
from antiphon.types import JsonObject
from antiphon.wire.revisions import REVISION

_LONGEST: Final = 4_000
"""Characters of a text that a test expects as a whole."""
_KINDS: Final = {"tools/call": "tool", "prompts/get": "prompt", "resources/read": "resource"}
_HEADERS: Final = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class NotExportable(AntiphonError):
    """The call cannot be written down so; the text says why."""


def export(kind: str, call: InspectedCall, spot: Spot) -> JsonObject:
    """Return the name of a file, its text, and what to know about it."""
    writers: dict[str, tuple[str, Callable[[InspectedCall, Spot], tuple[str, str | None]]]] = {
        "test": (".mcp.yaml", _test),
        "cassette": (".cassette.json", _cassette),
        "call": (".sh", _command),
        "curl": (".sh", _curl),
        "python": (".py", _python),
    }
    if kind not in writers:
        raise NotExportable(f"A call is not written down as {kind!r}, but as {', '.join(writers)}")
    ending, write = writers[kind]
    text, note = write(call, spot)
    return {"name": f"{stem(call.title)}{ending}", "text": text, "note": note}


def stem(title: str) -> str:
    """Return the name of a file for something that a server named."""
    return "-".join(re.findall(r"[A-Za-z0-9_]+", title))[:60] or "call"


# --- a test -------------------------------------------------------------------------------------------------------


def _test(call: InspectedCall, spot: Spot) -> tuple[str, str | None]:
    note = f"Set {', '.join(map(_variable, spot.headers))} before you run it" if spot.headers else None
    head = f"# A conversation with {line(spot.label)}. Run it:  antiphon test {stem(call.title)}.mcp.yaml\n"
    return head + suite(call, spot, expect=_expected(call)), note


def suite(call: InspectedCall, spot: Spot, *, expect: JsonObject | None = None) -> str:
    """Return a suite that makes the call again, with the same answers."""
    kind = _KINDS[call.method]
    test: JsonObject = {"name": f"{line(call.title)} as it was seen", kind: call.title}
    if call.params.get("arguments"):
        test["arguments"] = call.params["arguments"]
    answers = _answers(call)
    if answers:
        test["inputResponses"] = answers
    if expect is not None:
        test["expect"] = expect
    server: JsonObject = {"url": spot.target} if isinstance(spot.target, str) else {"command": spot.target}
    if spot.file is not None:
        server = {"app": spot.file}
    elif spot.folder is not None:
        server["cwd"] = spot.folder
    if spot.headers:
        server["headers"] = {name: f"${{env:{_variable(name)}}}" for name in spot.headers}
    if call.revision != REVISION:
        server["era"] = "legacy"
    tests = "".join(f"  {each}\n" for each in yaml_of([_literal(test)]).splitlines())
    return f"{yaml_of({'server': server})}\ntests:\n{tests}"


def _answers(call: InspectedCall) -> JsonObject:
    """Return the answers by key; a list where a key was asked several times."""
    made: dict[str, list[object]] = {}
    for round_ in call.rounds:
        for key, response in (round_.answers or {}).items():
            made.setdefault(key, []).append(_short(key, round_.questions.get(key, {}), response))
    return {key: given if len(given) > 1 else given[0] for key, given in made.items()}


def _short(key: str, request: JsonObject, response: JsonObject) -> object:
    """Return the shortest answer that stands for a response."""
    content = response.get("content")
    candidates: list[object] = [response.get("action")]
    if kind_of(request) == "form" and isinstance(content, dict):
        candidates = [content] if content.keys() <= fields_of(request).keys() else []
    for candidate in candidates:
        try:
            if candidate is not None and response_to(key, request, candidate) == response:
                return candidate
        except CannotAnswer:
            continue
    return response


def _expected(call: InspectedCall) -> JsonObject:
    last = call.rounds[-1]
    asked = [key for round_ in call.rounds for key in round_.questions]
    expect: JsonObject = {"rounds": len(call.rounds)}
    if call.revision == REVISION:
        expect["asked"] = asked
    if last.result is None:
        error = last.error or {}
        if "code" not in error:
            raise NotExportable(f"The call failed without an answer of the server: {error.get('message', '')}")
        return {"error": {"code": error["code"]}}
    result = last.result
    texts = [block.get("text", "") for block in result.get("content", ()) if isinstance(block, dict)]
    if result.get("isError") is True:
        expect["isError"] = True
    if call.method != "tools/call":
        name = "messages" if call.method == "prompts/get" else "contents"
        expect["result"] = {f"$.{name}": {"equals": result.get(name)}}
    elif result.get("structuredContent") is not None:
        expect["structured"] = {"equals": result["structuredContent"]}
    elif texts and len("\n".join(texts)) <= _LONGEST:
        expect["text"] = {"equals": "\n".join(texts)}
    return expect


def _literal(value: Any) -> Any:
    """Return a value in whose texts a suite sees no variables."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, dict):
        return {_literal(name): _literal(item) for name, item in value.items()}
    return [_literal(item) for item in value] if isinstance(value, list) else value


def _variable(header: str) -> str:
    return re.sub(r"\W", "_", header).upper()


# --- a cassette ---------------------------------------------------------------------------------------------------


def _cassette(call: InspectedCall, spot: Spot) -> tuple[str, str | None]:
    if call.recorded is None:
        raise NotExportable("Its messages are too large to be kept")
    recording = Recording()
    connection = recording.connect()
    for message, headers, reply in call.instance.link.answered.values():
        connection.sent(message, headers)
        connection.received(reply)
    for message, sent_with in call.recorded:
        if sent_with is None:
            connection.received(message)
        else:
            connection.sent(message, {**sent_with, **spot.headers})
    revision = None if call.revision == REVISION else call.revision
    note = None if revision is None else "Play it with Client(Player(file)): other clients of that era greet it first"
    return structs.replace(recording.cassette(), revision=revision).to_json(), note


# --- commands and code --------------------------------------------------------------------------------------------


def _command(call: InspectedCall, spot: Spot) -> tuple[str, str | None]:
    words = ["antiphon", "call", spot.text, call.title]
    for name, value in (call.params.get("arguments") or {}).items():
        words.append(f"{name}={value}" if isinstance(value, str) else f"{name}:={compact(value)}")
    words += [] if call.method == "tools/call" else [f"--{_KINDS[call.method]}"]
    words += [] if call.revision == REVISION else ["--era", call.revision]
    for name in spot.headers:
        words += ["--header", f"{name}: …"]
    asked = ", ".join(dict.fromkeys(line(key) for round_ in call.rounds for key in round_.questions))
    return shlex.join(words) + "\n", f"It asks {asked} in the terminal" if asked else None


def _curl(call: InspectedCall, spot: Spot) -> tuple[str, str | None]:
    if call.revision != REVISION:
        raise NotExportable(f"{call.revision} needs a session, which no single request has")
    if call.recorded is None:
        raise NotExportable("Its messages are too large to be kept")
    lines: list[str] = []
    for number, (message, headers) in enumerate([each for each in call.recorded if each[1] is not None], 1):
        body = msgspec.json.encode(message).decode()  # its token included
        lines.append(f"# round {number}")
        if isinstance(spot.target, str):
            secret = dict.fromkeys(spot.headers, "…")
            words = ["curl", "-sS", spot.target, "--data-binary", body]
            for name, value in {**_HEADERS, **(headers or {}), **secret}.items():
                words += ["-H", f"{name}: {value}"]
            lines.append(shlex.join(words))
        else:
            lines.append(f"printf '%s\\n' {shlex.quote(body)} | {shlex.join(spot.target)}")
    is_url = isinstance(spot.target, str)
    note = "The tokens of later rounds are in it, until they expire: whoever has them can go on with the call"
    aside = "" if is_url else ". The server needs the keys that it has here (ANTIPHON_KEYS) to take them"
    return "\n".join(lines) + "\n", f"{note}{aside}" if len(lines) > 2 else None


def _python(call: InspectedCall, spot: Spot) -> tuple[str, str | None]:
    function = {"tools/call": "call_tool", "prompts/get": "get_prompt"}.get(call.method, "read_resource")
    given = [call.title, call.params["arguments"]] if call.params.get("arguments") else [call.title]
    answers = _answers(call)
    options = [repr(spot.target)]
    options += ["**answers.handlers()"] if answers else []
    if spot.headers:
        shown = ", ".join(f'"{name}": os.environ["{_variable(name)}"]' for name in spot.headers)
        options.append(f"headers={{{shown}}}")
    options += [] if call.revision == REVISION else [f"era={call.revision!r}"]
    lines = ["import asyncio", *(["import os"] if spot.headers else []), "", "from antiphon import Client"]
    lines += ["from antiphon.testing import Script"] if answers else []
    lines += ["", "", "async def main() -> None:"]
    lines += [f"    answers = Script({_python_value(answers)})"] if answers else []
    lines += [
        f"    async with Client({', '.join(options)}) as client:",
        f"        print(await client.{function}({', '.join(map(_python_value, given))}))",
        *("", "", "asyncio.run(main())", ""),
    ]
    return "\n".join(lines), None


def _python_value(value: object) -> str:
    return pformat(value, width=100, sort_dicts=False).replace("\n", "\n        ")
