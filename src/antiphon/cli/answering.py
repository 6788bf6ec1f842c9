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
from antiphon.testing.answer_values import AnswerUnfit, Supply, is_in_turn
from antiphon.testing.answers import AnswerUnscripted, Asked, Script
from antiphon.types import Implementation, JsonObject, Root, Sample

if TYPE_CHECKING:
    from antiphon.cli.terminal import Terminal

A = TypeVar("A", bound=Elicitation | SampleRequest)
T = TypeVar("T")


def read_answers(path: Path | None) -> "FileAnswers":
    """Return the answers in a file; none without one."""
    if path is None:
        return FileAnswers()
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
    return FileAnswers(entries, called=str(path))


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


class FileAnswers(Script):
    """The answers in a file."""

    is_resumed = False
    """Whether earlier rounds of the call were answered before: then it is not guessed where a list goes on."""

    def _find(self, asked: Asked) -> Supply | None:
        supply = super()._find(asked)
        if self.is_resumed and supply is not None and not supply.used and is_in_turn(supply.given, asked.request):
            raise _NextUnknown(
                f"the call was resumed, so it is not known which answer of the list under {supply.name!r} is next:"
                " write one answer instead of the list",
                key=asked,
            )
        return supply


class _NextUnknown(AnswerUnscripted):
    """A list has answers, and some of them may have been given before."""


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
        return await self._answer(self._elicit, question, lambda why: self._terminal_for(question, why).form(question))

    async def elicit_url(self, question: Elicitation) -> ElicitAnswer:
        return await self._answer(self._open, question, lambda why: self._terminal_for(question, why).url(question))

    async def sample(self, request: SampleRequest) -> Sample | str:
        return await self._answer(self._sample, request, lambda why: self._no_model(request, why))

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

    async def _answer(
        self, scripted: Callable[[A], Awaitable[T]], question: A, ask: Callable[[str], Awaitable[T]]
    ) -> T:
        """Return the answer of the script; else what ``ask`` returns, which is told why the file has none."""
        try:
            return await scripted(question)
        except AnswerUnfit as fault:
            raise CannotAnswer(f"{fault} ({self._file})", key=question.key) from None
        except AnswerUnscripted as fault:
            if not self._asks:
                raise
            why = "" if self._file is None else f"{self._file} has no answer for it, or none that is left"
            if isinstance(fault, _NextUnknown):
                why = f"{fault} ({self._file})"
        async with self._terminal_is_free:
            return await ask(why)

    async def _open(self, question: Elicitation) -> ElicitAnswer:
        answer = await self._elicit(question)
        if answer.action == "accept":
            click.echo(f"Open this URL: {line(question.url or '')}", err=True)
        return answer

    async def _no_model(self, request: SampleRequest, why: str) -> Sample:
        self._opened_terminal().sample(request)
        where = f"{why}. A text in it:" if why else "Pass its text with --answers FILE, as in"
        raise CannotAnswer(
            f"Cannot answer {request.key!r}: the server asks for a model.\n{where}  {request.key}: the text",
            key=request.key,
        )

    def _terminal_for(self, question: Elicitation, why: str) -> "Terminal":
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise CannotAnswer(_no_terminal(question, why, waits=self._waits()), key=question.key)
        return self._opened_terminal()

    def _opened_terminal(self) -> "Terminal":
        self._hide()
        if self._terminal is None:
            from antiphon.cli.terminal import Terminal  # 200 ms, and only questions need it

            self._terminal = Terminal(self._target)
        return self._terminal


def _no_terminal(question: Elicitation, why: str, *, waits: bool) -> str:
    fields = ", ".join(f"{line(name)}: ..." for name in question.schema.get("properties") or {})
    answer = "accept" if question.mode == "url" else f"{{{fields}}}"
    ways = [*([] if why else ["--answers FILE"]), *(["--pending FILE"] if waits else [])]
    told = f" Pass {' or '.join(ways)}." if ways else ""
    return (
        f"Cannot answer {question.key!r} ({line(question.message)}):"
        f" {f'{why}, and this is ' if why else ''}not a terminal.{told}\n"
        f"An answer in a file:  {question.key}: {answer}"
    )
