"""Answer a server's questions: from a file, else in the terminal, else not at all.

The file is a map in YAML or JSON. Its keys are those of questions, or ``tool.key`` for the questions of one tool. Its
values are answers as suites have them: see ``antiphon.testing.answer_values``.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from antiphon.client.answers import Answers, Asker, ElicitAnswer, Elicitation, SampleRequest
from antiphon.client.results import Pending
from antiphon.errors import CannotAnswer
from antiphon.escaping import line
from antiphon.testing.answer_values import response_to
from antiphon.testing.answers import request_of
from antiphon.types import Accepted, Cancelled, Declined, Implementation, JsonObject, Root, Sample

if TYPE_CHECKING:
    from antiphon.cli.terminal import Terminal


class AnswerFile:
    """The answers of one file, and which of them were used."""

    def __init__(self, entries: Mapping[str, object], place: str = "") -> None:
        self._entries = entries
        self._place = place
        self._used: set[str] = set()

    @property
    def unused(self) -> list[str]:
        return [name for name in self._entries if name not in self._used]

    def has(self, tool: str, key: str) -> bool:
        return self._name(tool, key) is not None

    def elicit(self, question: Elicitation) -> ElicitAnswer:
        response = self._response(question)
        if response["action"] == "accept":
            return Accepted(response.get("content"))
        return Declined() if response["action"] == "decline" else Cancelled()

    def sample(self, request: SampleRequest) -> Sample:
        return msgspec.convert(self._response(request), Sample)

    def _response(self, question: Elicitation | SampleRequest) -> JsonObject:
        name = self._name(question.tool, question.key)
        assert name is not None
        self._used.add(name)
        try:
            return response_to(question.key, request_of(question), self._entries[name])
        except CannotAnswer as fault:
            raise CannotAnswer(f"{fault} ({self._place})", key=question.key) from None

    def _name(self, tool: str, key: str) -> str | None:
        return next((name for name in (f"{tool}.{key}", key) if name in self._entries), None)


def read_answers(path: Path) -> AnswerFile:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise click.UsageError(f"Cannot read the answers in {path}: {fault}") from None
    is_json = path.suffix == ".json"
    try:
        entries: object = msgspec.json.decode(text) if is_json else msgspec.yaml.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as fault:
        raise click.UsageError(f"{path} is not valid {'JSON' if is_json else 'YAML'}: {line(str(fault))}") from None
    if entries is None:
        entries = {}
    if type(entries) is not dict or not all(isinstance(name, str) for name in entries):
        raise click.UsageError(f"{path} must be a map from the keys of questions (strings) to answers")
    return AnswerFile(entries, str(path))


class Respondent:
    """The handlers of a client on the command line. A question without an answer fails: it is never accepted.

    ``hide`` clears the terminal for a question. ``waits`` says whether the call can wait for its answer in a file.
    """

    def __init__(
        self,
        answers: AnswerFile,
        roots: list[Root],
        *,
        target: str,
        hide: Callable[[], None],
        waits: Callable[[], bool],
    ) -> None:
        self._answers = answers
        self._target = target
        self._hide = hide
        self._waits = waits
        self._terminal_is_free = asyncio.Lock()
        self._terminal: Terminal | None = None
        self.roots = roots or None
        self._handlers = Answers(elicit=self.elicit, elicit_url=self.elicit_url, sample=self.sample, roots=self.roots)

    async def elicit(self, question: Elicitation) -> ElicitAnswer:
        if self._answers.has(question.tool, question.key):
            return self._answers.elicit(question)
        async with self._terminal_is_free:
            return await self._terminal_for(question).form(question)

    async def elicit_url(self, question: Elicitation) -> ElicitAnswer:
        if self._answers.has(question.tool, question.key):
            answer = self._answers.elicit(question)
            if answer.action == "accept":
                click.echo(f"Open this URL: {line(question.url or '')}", err=True)
            return answer
        async with self._terminal_is_free:
            return await self._terminal_for(question).url(question)

    async def sample(self, request: SampleRequest) -> Sample | str:
        if self._answers.has(request.tool, request.key):
            return self._answers.sample(request)
        async with self._terminal_is_free:
            self._opened_terminal().sample(request)
        raise CannotAnswer(
            f"Cannot answer {request.key!r}: the server asks for a model.\n"
            f"Pass its text with --answers FILE, as in  {request.key}: the text",
            key=request.key,
        )

    def knows(self, pending: Pending) -> bool:
        """Whether every question can be answered without a person."""
        tool = _asker(pending, None).tool
        return all(
            self.roots is not None if request["method"] == "roots/list" else self._answers.has(tool, key)
            for key, request in pending.questions.items()
        )

    async def answer(self, pending: Pending, server: Implementation | None) -> JsonObject:
        """Return the responses to the questions of a waiting call."""
        asker = _asker(pending, server)
        return {key: await self._handlers.answer(key, request, asker) for key, request in pending.questions.items()}

    def _terminal_for(self, question: Elicitation) -> "Terminal":
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise CannotAnswer(_no_terminal(question, waits=self._waits()), key=question.key)
        return self._opened_terminal()

    def _opened_terminal(self) -> "Terminal":
        self._hide()
        if self._terminal is None:
            from antiphon.cli.terminal import Terminal  # 200 ms, and only questions need it

            self._terminal = Terminal(self._target)
        return self._terminal


def _asker(pending: Pending, server: Implementation | None) -> Asker:
    name = pending.params.get("uri" if pending.method == "resources/read" else "name", pending.method)
    return Asker(server, str(name), pending.round)


def _no_terminal(question: Elicitation, *, waits: bool) -> str:
    fields = ", ".join(f"{line(name)}: ..." for name in question.schema.get("properties") or {})
    answer = "accept" if question.mode == "url" else f"{{{fields}}}"
    return (
        f"Cannot answer {question.key!r} ({line(question.message)}): not a terminal."
        f" Pass --answers FILE{' or --pending FILE' if waits else ''}.\n"
        f"An answer in a file:  {question.key}: {answer}"
    )
