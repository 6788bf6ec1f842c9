"""A tap on a link: tells what travels, round by round, with its times. Never a token, only its length."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from antiphon.cli.output import line
from antiphon.errors import CallFailed
from antiphon.transports.link import Around, Link, OnNotification
from antiphon.types import JsonObject
from antiphon.wire.revisions import PROGRESS_TOKEN

CALLS: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_LONGEST: Final = 300

OnProgress = Callable[[Any, Any, Any], None]


class Tap(Around):
    """A Link around another: what passes is told to ``say``, and progress to ``report``."""

    def __init__(
        self, link: Link, *, say: Callable[[str], None] | None = None, report: OnProgress | None = None
    ) -> None:
        super().__init__(link)
        self._say = say
        self._report = report
        self._asked: float | None = None

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        if self._report is not None and message["method"] in CALLS:
            message, on_notification = self._reporting(message, on_notification)
        self._tell(f"→ {self._sent(message)}")
        started = time.monotonic()
        try:
            reply = await self._link.request(message, headers=headers, on_notification=on_notification)
        except CallFailed as fault:
            self._tell(f"← {line(str(fault))}, {_since(started)}")
            raise
        self._tell(f"← {_received(reply)}, {_since(started)}")
        self._asked = time.monotonic()
        return reply

    def _tell(self, text: str) -> None:
        if self._say is not None:
            self._say(text)

    def _reporting(
        self, message: JsonObject, otherwise: OnNotification | None
    ) -> tuple[JsonObject, OnNotification | None]:
        """The message with a wish for progress, where the client has none of its own."""
        params: JsonObject = message["params"]
        if PROGRESS_TOKEN in params["_meta"]:
            return message, otherwise
        params = {**params, "_meta": {**params["_meta"], PROGRESS_TOKEN: message["id"]}}

        async def tell(notification: JsonObject) -> None:
            told: Any = notification.get("params") or {}
            if notification["method"] == "notifications/progress" and self._report is not None:
                self._report(told.get("progress"), told.get("total"), told.get("message"))
            elif otherwise is not None and (more := otherwise(notification)) is not None:
                await more

        return {**message, "params": params}, tell

    def _sent(self, message: JsonObject) -> str:
        params: JsonObject = message.get("params") or {}
        method = message["method"]
        parts = [method]
        if method in CALLS:
            parts.append(str(params.get(CALLS[method])))
        if params.get("arguments"):
            parts.append(_json(params["arguments"]))
        told = line(" ".join(parts))
        answers = params.get("inputResponses")
        if answers:
            after = "" if self._asked is None else f" after {_since(self._asked)}"
            told += f", answers{after}: {', '.join(f'{key} {_answer(value)}' for key, value in answers.items())}"
        if params.get("requestState"):
            told += f", token of {len(params['requestState'])} characters"
        return told


def _received(reply: JsonObject) -> str:
    fault, result = reply.get("error"), reply.get("result")
    if isinstance(fault, dict):
        return line(f"error {fault.get('code')}: {fault.get('message')}")
    if not isinstance(result, dict) or result.get("resultType", "complete") == "complete":
        return "the result"
    asked = result.get("inputRequests")
    told = ", ".join(f"{key} ({_question(value)})" for key, value in asked.items()) if isinstance(asked, dict) else ""
    state = result.get("requestState")
    token = f", token of {len(state)} characters" if isinstance(state, str) else ""
    return line(f"asks {told}{token}" if told else f"wants the call again{token}")


def _question(request: object) -> str:
    if not isinstance(request, dict):
        return "?"
    params = request.get("params")
    if request.get("method") != "elicitation/create":
        return str(request.get("method"))
    message = params.get("message") if isinstance(params, dict) else ""
    mode = (params.get("mode") if isinstance(params, dict) else None) or "form"
    return f"{mode}: {message}"


def _answer(response: object) -> str:
    if not isinstance(response, dict):
        return _json(response)
    if "action" not in response:
        return _json(response)
    return f"{response['action']} {_json(response['content'])}" if "content" in response else str(response["action"])


def _json(value: object) -> str:
    text = line(msgspec.json.encode(value).decode())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _since(moment: float) -> str:
    seconds = time.monotonic() - moment
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
