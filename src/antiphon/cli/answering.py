"""The Respondent: answers a server's questions from a file, or from a person, or not at all."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from antiphon.cli.output import Bar, line
from antiphon.client.answers import Answers, Asker, ElicitAnswer, Elicitation, SampleRequest, fitted
from antiphon.client.results import Pending
from antiphon.errors import CannotAnswer
from antiphon.types import Accepted, Cancelled, Declined, Implementation, JsonObject, Root, Sample

if TYPE_CHECKING:
    from antiphon.cli.terminal import Terminal

# Answers from a file: what is answered to which question, without a person.
#
# A YAML or JSON map. Its keys are those of questions, or ``tool.key`` for one tool's alone; its values are the form's
# content, a bare value for a form of one field, the text of a sample, or ``action: accept | decline | cancel``.


_ACTIONS: Final = frozenset({"accept", "decline", "cancel"})
_ABSENT: Final = object()


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

    def form(self, question: Elicitation) -> ElicitAnswer:
        value = self._take(question.tool, question.key)
        action, content = self._read(value, question)
        if action != "accept":
            return Declined() if action == "decline" else Cancelled()
        properties: JsonObject = question.schema.get("properties") or {}
        if isinstance(content, dict):
            for name in content:
                if name not in properties:
                    known = ", ".join(properties) or "no fields"
                    raise self._unfit(question.key, f"the form has no field {name!r}: it has {known}")
        try:
            return Accepted(fitted(content, question.schema, question.key))
        except CannotAnswer as fault:
            raise self._unfit(question.key, str(fault).partition(": ")[2] or str(fault)) from None

    def url(self, question: Elicitation) -> ElicitAnswer:
        value = self._take(question.tool, question.key)
        if value is True:
            return Accepted(None)
        action, content = self._read(value, question)
        if action == "accept" and content is not _ABSENT:
            raise self._unfit(question.key, "a URL is consented to with 'action: accept', or declined, or cancelled")
        return Accepted(None) if action == "accept" else Declined() if action == "decline" else Cancelled()

    def sample(self, request: SampleRequest) -> Sample | str:
        value = self._take(request.tool, request.key)
        if isinstance(value, str):
            return value
        try:
            return msgspec.convert(value, Sample)
        except msgspec.ValidationError as fault:
            raise self._unfit(request.key, f"a sample is a text, or a whole result of sampling: {fault}") from None

    def _read(self, value: Any, question: Elicitation) -> tuple[str, Any]:
        """The action and the content. A form that has a field called action is answered with its content."""
        if isinstance(value, dict) and "action" in value and value.keys() <= {"action", "content"}:
            is_field = "action" in (question.schema.get("properties") or {}) and "content" not in value
            if not is_field:
                action = value["action"]
                if action not in _ACTIONS:
                    raise self._unfit(question.key, f"an action is accept, decline or cancel, not {action!r}")
                default = _ABSENT if question.mode == "url" else {}
                return action, value.get("content", default)
        return "accept", value

    def _take(self, tool: str, key: str) -> object:
        name = self._name(tool, key)
        assert name is not None
        self._used.add(name)
        return self._entries[name]

    def _name(self, tool: str, key: str) -> str | None:
        return next((name for name in (f"{tool}.{key}", key) if name in self._entries), None)

    def _unfit(self, key: str, why: str) -> CannotAnswer:
        return CannotAnswer(f"The answer to {key!r} in {self._place} cannot be used: {why}", key=key)


def read_answers(path: Path) -> AnswerFile:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise click.UsageError(f"Cannot read the answers in {path}: {fault}") from None
    entries = _json(text, path) if path.suffix == ".json" else _yaml(text, path)
    if entries is None:
        entries = {}
    if type(entries) is not dict or not all(isinstance(name, str) for name in entries):
        raise click.UsageError(f"{path} must hold a map from the keys of questions (texts) to answers")
    return AnswerFile(entries, str(path))


def _json(text: str, path: Path) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as fault:
        raise click.UsageError(f"{path} is not valid JSON: {fault}") from None


def _yaml(text: str, path: Path) -> object:
    import yaml  # 25 ms, and only a file of answers needs it

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as fault:
        problem = " ".join(str(fault).split())
        raise click.UsageError(f"{path} is not valid YAML: {problem}") from None


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
