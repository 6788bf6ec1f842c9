"""Answer a server's questions: from a file, else in the terminal, else not at all.

The file is a map in YAML or JSON, with names and answers as suites have them: see ``antiphon.testing.answers``.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from antiphon.client.answers import Answers, Asker, ElicitAnswer, Elicitation, SampleRequest
from antiphon.client.results import Pending
from antiphon.errors import CannotAnswer
from antiphon.escaping import line
from antiphon.testing.answer_values import AnswerUnfit
from antiphon.testing.answers import AnswerUnscripted, Script
from antiphon.types import Implementation, JsonObject, Root, Sample

if TYPE_CHECKING:
    from antiphon.cli.terminal import Terminal

A = TypeVar("A", bound=Elicitation | SampleRequest)
T = TypeVar("T")


def read_answers(path: Path | None) -> Script:
    """Return the answers in a file; none without one."""
    if path is None:
        return Script()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise click.UsageError(f"Cannot read the answers in {path}: {fault}") from None
    is_json = path.suffix == ".json"
    try:
        entries: object = msgspec.json.decode(text) if is_json else _yaml(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as fault:
        raise click.UsageError(f"{path} is not valid {'JSON' if is_json else 'YAML'}: {line(str(fault))}") from None
    if entries is None:
        entries = {}
    if type(entries) is not dict or not all(isinstance(name, str) for name in entries):
        raise click.UsageError(f"{path} must be a map from the keys of questions (strings) to answers")
    return Script(entries, called=str(path))


def _yaml(text: str) -> object:
    """Return what a text in YAML holds; ValueError if it holds itself, or too much."""
    import yaml

    from antiphon.testing.suite.document import check_nesting, check_size

    try:
        check_nesting(text)
    except yaml.YAMLError as fault:
        raise ValueError(" ".join(str(fault).split())) from None
    entries: object = msgspec.yaml.decode(text)
    check_size(entries)
    return entries


class Respondent:
    """The handlers of a client on the command line. A question without an answer fails: it is never accepted.

    ``file`` is where the answers of the script were read. ``hide`` clears the terminal for a question. ``waits`` says
    whether the call can wait for its answer in a file.
    """

    def __init__(
        self,
        script: Script,
        roots: list[Root],
        *,
        target: str,
        file: Path | None = None,
        hide: Callable[[], None] = lambda: None,
        waits: Callable[[], bool] = lambda: False,
    ) -> None:
        scripted = script.handlers()
        assert "elicit" in scripted
        assert "sample" in scripted
        self._elicit, self._sample = scripted["elicit"], scripted["sample"]
        """The answers of the script; a page to open is answered as a form is."""
        self._target = target
        self._file = file
        self._hide = hide
        self._waits = waits
        self._asks = True
        self._terminal_is_free = asyncio.Lock()
        self._terminal: Terminal | None = None
        self.roots = roots or None
        self._handlers = Answers(elicit=self.elicit, elicit_url=self.elicit_url, sample=self.sample, roots=self.roots)

    async def elicit(self, question: Elicitation) -> ElicitAnswer:
        return await self._answer(self._elicit, question, lambda: self._terminal_for(question).form(question))

    async def elicit_url(self, question: Elicitation) -> ElicitAnswer:
        return await self._answer(self._open, question, lambda: self._terminal_for(question).url(question))

    async def sample(self, request: SampleRequest) -> Sample | str:
        return await self._answer(self._sample, request, lambda: self._no_model(request))

    async def answer(self, pending: Pending, server: Implementation | None, *, ask: bool = True) -> JsonObject | None:
        """Return the responses to the questions of a waiting call; without ``ask``, None if the file lacks one."""
        name = pending.params.get("uri" if pending.method == "resources/read" else "name", pending.method)
        asker = Asker(server, str(name), pending.round)
        if not ask and not all(map(self._handlers.has, pending.questions.values())):
            return None
        self._asks = ask
        try:
            return {key: await self._handlers.answer(key, request, asker) for key, request in pending.questions.items()}
        except AnswerUnscripted:
            return None
        finally:
            self._asks = True

    async def _answer(self, scripted: Callable[[A], Awaitable[T]], question: A, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            return await scripted(question)
        except AnswerUnfit as fault:
            raise CannotAnswer(f"{fault} ({self._file})", key=question.key) from None
        except AnswerUnscripted:
            if not self._asks:
                raise
        async with self._terminal_is_free:
            return await ask()

    async def _open(self, question: Elicitation) -> ElicitAnswer:
        answer = await self._elicit(question)
        if answer.action == "accept":
            click.echo(f"Open this URL: {line(question.url or '')}", err=True)
        return answer

    async def _no_model(self, request: SampleRequest) -> Sample:
        self._opened_terminal().sample(request)
        raise CannotAnswer(
            f"Cannot answer {request.key!r}: the server asks for a model.\n"
            f"Pass its text with --answers FILE, as in  {request.key}: the text",
            key=request.key,
        )

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


def _no_terminal(question: Elicitation, *, waits: bool) -> str:
    fields = ", ".join(f"{line(name)}: ..." for name in question.schema.get("properties") or {})
    answer = "accept" if question.mode == "url" else f"{{{fields}}}"
    return (
        f"Cannot answer {question.key!r} ({line(question.message)}): not a terminal."
        f" Pass --answers FILE{' or --pending FILE' if waits else ''}.\n"
        f"An answer in a file:  {question.key}: {answer}"
    )
