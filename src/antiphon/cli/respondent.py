"""The Respondent: answers a server's questions from a file, or from a person, or not at all."""

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from antiphon.cli.answers import AnswerFile
from antiphon.cli.bar import Bar
from antiphon.cli.text import line
from antiphon.client.answers import Answers, Asker, ElicitAnswer, Elicitation, SampleRequest
from antiphon.client.results import Pending
from antiphon.errors import CannotAnswer
from antiphon.types import Implementation, JsonObject, Root, Sample

if TYPE_CHECKING:
    from antiphon.cli.terminal import Terminal


class Respondent:
    """The handlers of a client on the command line. A question without an answer fails; it never becomes a yes."""

    def __init__(self, answers: AnswerFile, roots: list[Root], *, peer: str, bar: Bar) -> None:
        self._answers = answers
        self._peer = peer
        self._bar = bar
        self._turn = asyncio.Lock()
        self._made: Terminal | None = None
        self.roots = roots or None
        self._handlers = Answers(elicit=self.elicit, elicit_url=self.elicit_url, sample=self.sample, roots=self.roots)

    async def elicit(self, question: Elicitation) -> ElicitAnswer:
        if self._answers.has(question.tool, question.key):
            return self._answers.form(question)
        async with self._turn:
            return await self._person(question).form(question)

    async def elicit_url(self, question: Elicitation) -> ElicitAnswer:
        if self._answers.has(question.tool, question.key):
            answer = self._answers.url(question)
            if answer.action == "accept":
                click.echo(f"To be opened: {line(question.url or '')}", err=True)
            return answer
        async with self._turn:
            return await self._person(question).url(question)

    async def sample(self, request: SampleRequest) -> Sample | str:
        if self._answers.has(request.tool, request.key):
            return self._answers.sample(request)
        async with self._turn:
            self._bar.hide()
            self._terminal().sample(request)
        raise CannotAnswer(
            f"The server asks for a model ({request.key!r}), and a terminal is none:"
            f" give its text with --answers, as in  {request.key}: the text",
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
        """The responses to the questions of a call that waited."""
        asker = _asker(pending, server)
        return {key: await self._handlers.answer(key, request, asker) for key, request in pending.questions.items()}

    def _person(self, question: Elicitation) -> "Terminal":
        self._bar.hide()
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise CannotAnswer(_nobody(question), key=question.key)
        return self._terminal()

    def _terminal(self) -> "Terminal":
        if self._made is None:
            from antiphon.cli.terminal import Terminal  # 200 ms, and only questions need it

            self._made = Terminal(self._peer)
        return self._made


def _asker(pending: Pending, server: Implementation | None) -> Asker:
    name = pending.params.get("uri" if pending.method == "resources/read" else "name", pending.method)
    return Asker(server, str(name), pending.round)


def _nobody(question: Elicitation) -> str:
    who = "The server" if question.server is None else line(question.server.name)
    fields = ", ".join(f"{line(name)}: ..." for name in question.schema.get("properties") or {})
    answer = "{action: accept}" if question.mode == "url" else f"{{{fields}}}"
    return (
        f"{who} asks {question.key!r} ({line(question.message)}), and nobody is here to answer: this is no terminal.\n"
        f"Answer it in a file with --answers, as in  {question.key}: {answer}\n"
        "or keep the call for later with --pending FILE."
    )
