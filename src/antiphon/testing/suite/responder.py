"""The REST source of answers: a question is posted as JSON, and the answer comes as JSON."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from urllib.error import HTTPError, URLError

import msgspec

from antiphon.client.answers import Elicitation, SampleRequest
from antiphon.errors import CannotAnswer
from antiphon.testing.suite.suite import Responder

MOST: Final = 10_000_000
"""Bytes that an answer may have."""


class Rest:
    """Asks a Responder; a function as a Script takes it.

    What is posted: ``{"key", "tool", "round", "method", "params"}``. What comes back is an answer as ``inputResponses``
    has it; ``null`` means that there is none.
    """

    def __init__(self, responder: Responder) -> None:
        self._responder = responder

    def __str__(self) -> str:
        return f"The responder at {self._responder.url}"

    async def __call__(self, question: Elicitation | SampleRequest) -> object:
        return await self._answer(posted(question))

    async def roots(self) -> object:
        """Asked for roots, which a client hears of without a question."""
        return await self._answer({"key": "roots", "tool": "", "round": 0, "method": "roots/list", "params": {}})

    async def _answer(self, question: Mapping[str, object]) -> object:
        try:
            return await asyncio.to_thread(self._post, msgspec.json.encode(question))
        except (OSError, ValueError) as fault:
            why = f"HTTP status {fault.code}" if isinstance(fault, HTTPError) else _reason(fault)
            key = str(question["key"])
            raise CannotAnswer(
                f"The question {key!r} was posted to {self._responder.url}, which gave no answer: {why}", key=key
            ) from None

    def _post(self, body: bytes) -> Any:
        from urllib.request import ProxyHandler, Request, build_opener  # 20 ms, and few suites need it

        headers = {"Content-Type": "application/json", "Accept": "application/json", **self._responder.headers}
        request = Request(self._responder.url, data=body, headers=headers)  # noqa: S310 -- http(s) alone: the loader looks
        opener = build_opener(*([ProxyHandler({})] if _is_local(self._responder.url) else []))
        with opener.open(request, timeout=self._responder.timeout) as response:
            return msgspec.json.decode(response.read(MOST))


def posted(question: Elicitation | SampleRequest) -> dict[str, object]:
    """A question as it is posted."""
    about: dict[str, object] = {"key": question.key, "tool": question.tool, "round": question.round}
    if isinstance(question, SampleRequest):
        return {**about, "method": "sampling/createMessage", "params": question.params}
    params: dict[str, object] = {"mode": question.mode, "message": question.message}
    params |= {"url": question.url} if question.mode == "url" else {"requestedSchema": question.schema}
    return {**about, "method": "elicitation/create", "params": params}


def _is_local(url: str) -> bool:
    from urllib.parse import urlsplit

    return urlsplit(url).hostname in {"localhost", "127.0.0.1", "::1"}


def _reason(fault: Exception) -> str:
    return str(fault.reason) if isinstance(fault, URLError) else str(fault) or type(fault).__name__
