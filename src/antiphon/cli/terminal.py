"""Ask in the terminal: show who asks what, a widget for each field, and the whole answer before it is sent."""

import asyncio
import sys
import webbrowser
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from prompt_toolkit.application import create_app_session
from prompt_toolkit.output import create_output
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from antiphon.cli.forms import ABSENT, Escaped, ask, choose
from antiphon.cli.output import on_stderr
from antiphon.client.answers import ElicitAnswer, Elicitation, SampleRequest, fitted
from antiphon.errors import CannotAnswer
from antiphon.escaping import line, visible
from antiphon.inbox.locations import Location, read_location
from antiphon.shapes.form_fields import PromptField, fields_of
from antiphon.types import Accepted, Cancelled, Declined, Implementation, JsonObject
from antiphon.types import Text as TextBlock

DECLINE = ("Decline: say no", "decline")
CANCEL = ("Cancel: leave it unanswered", "cancel")


class Terminal:
    """A person at a terminal. Everything is written to stderr: stdout is for the result."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._console = on_stderr()

    async def form(self, question: Elicitation) -> ElicitAnswer:
        with self._session(question.key):
            self._introduce(question)
            return await self._fill(question)

    async def url(self, question: Elicitation) -> ElicitAnswer:
        assert question.url is not None
        with self._session(question.key):
            self._introduce(question)
            location = read_location(question.url)
            self._show(location)
            return await self._consent(question.url, location)

    def sample(self, request: SampleRequest) -> None:
        """Show what a model is asked. It is not asked in the terminal."""
        shown = Text()
        if request.system:
            shown.append("system: ", style="bold").append(visible(request.system) + "\n")
        for message in request.messages:
            content = message.content if isinstance(message.content, list) else [message.content]
            for block in content:
                text = block.text if isinstance(block, TextBlock) else block if isinstance(block, str) else "..."
                shown.append(f"{message.role}: ", style="bold").append(visible(text) + "\n")
        shown.rstrip()
        self._panel(f"{self._who(request.server)} asks a model", shown, request.tool, keys=False)

    # --- forms ----------------------------------------------------------------------------------------------------

    async def _fill(self, question: Elicitation) -> ElicitAnswer:
        fields = fields_of(question.schema)
        values: dict[str, Any] = {}
        waiting = list(fields)
        while True:
            try:
                while waiting:
                    field = waiting[0]
                    self._describe(field)
                    values[field.name] = await ask(field, values.get(field.name, ABSENT), self._complain)
                    waiting.pop(0)
                if len(fields) == 1 and fields[0].is_decision:
                    # The answer was chosen, not typed: there is nothing to look over.
                    return Accepted(fitted(values, question.schema, question.key))
                chosen = await self._review(question, fields, values)
            except Escaped:
                chosen = await self._leave()
            match chosen:
                case Accepted() | Declined() | Cancelled():
                    return chosen
                case PromptField():
                    waiting = [chosen]
                case _:
                    pass

    async def _review(self, question: Elicitation, fields: list[PromptField], values: dict[str, Any]) -> Any:
        """Show what will be sent, and ask whether to send it, change it or refuse."""
        given = {name: value for name, value in values.items() if value is not ABSENT}
        send: list[tuple[str, object]] = []
        try:
            content = fitted(given, question.schema, question.key)
        except CannotAnswer as fault:
            self._console.print(Text(f"This cannot be sent. {visible(str(fault))}", style="red"))
        else:
            self._table(fields, content)
            send = [("Send" if fields else "Accept", Accepted(content))]
        changes = [(f"Change {field.label}", field) for field in fields]
        refusals = [(DECLINE[0], Declined()), (CANCEL[0], Cancelled())]
        # A form without fields is answered by accepting it: Enter alone must not do that.
        start = None if fields else refusals[0][1]
        return await choose("Send this?" if fields else "Accept?", [*send, *changes, *refusals], start)

    def _table(self, fields: list[PromptField], content: JsonObject) -> None:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for field in fields:
            value = content.get(field.name, ABSENT)
            shown = Text("left out", style="dim") if value is ABSENT else Text(field.shown(value))
            table.add_row(Text(f"  {field.label}"), shown)
        if fields:
            self._console.print(table)

    async def _leave(self) -> Any:
        choices = [("Go on", None), (DECLINE[0], Declined()), (CANCEL[0], Cancelled())]
        try:
            return await choose("Leave this question?", choices)
        except Escaped:
            return None

    # --- URLs -----------------------------------------------------------------------------------------------------

    async def _consent(self, url: str, location: Location) -> ElicitAnswer:
        opening = [("Open it in the browser", "open")] if location.can_be_opened else []
        choices = [*opening, ("Go on: I open it myself, or have done so", "go on"), DECLINE, CANCEL]
        start = "decline" if location.warnings else None
        while True:
            try:
                chosen = await choose("Visit this page?", choices, start)
            except Escaped:
                continue
            if chosen == "open":
                if await asyncio.to_thread(_opened, url):
                    return Accepted(None)
                self._console.print(Text("Cannot open a browser: open the URL yourself.", style="yellow"))
                continue
            return Accepted(None) if chosen == "go on" else Declined() if chosen == "decline" else Cancelled()

    def _show(self, location: Location) -> None:
        # Do not wrap it: it must be possible to copy it.
        whole = Text.assemble("  ", location.before, (location.host, "bold reverse"), location.after)
        self._console.print(whole, soft_wrap=True)
        if location.host:
            self._console.print(Text.assemble("  Host: ", (location.host, "bold")), soft_wrap=True)
        for warning in location.warnings:
            self._console.print(Text(f"  Warning: {warning}", style="bold yellow"))

    # --- messages -------------------------------------------------------------------------------------------------

    def _introduce(self, question: Elicitation) -> None:
        self._panel(
            f"{self._who(question.server)} asks",
            Text(visible(question.message) or "(no message)"),
            question.tool,
        )

    def _panel(self, title: str, body: Text, tool: str, *, keys: bool = True) -> None:
        place = f"{line(tool)} at {line(self._target)}"
        # The keys come first: a narrow terminal cuts off the end.
        below = f"Esc: decline or cancel · {place}" if keys else place
        self._console.print(
            Panel(
                body, title=Text(title, style="bold"), title_align="left", subtitle=Text(below), subtitle_align="left"
            )
        )

    def _describe(self, field: PromptField) -> None:
        if field.description:
            self._console.print(Text(f"  {field.description}", style="dim"))

    def _complain(self, why: str) -> None:
        self._console.print(Text(f"  {visible(why)}", style="red"))

    def _who(self, server: Implementation | None) -> str:
        return "The server" if server is None else line(server.title or server.name)

    @contextmanager
    def _session(self, key: str) -> Generator[None, None, None]:
        with create_app_session(output=create_output(stdout=sys.stderr)):
            try:
                yield
            except EOFError:
                raise CannotAnswer(f"The terminal was closed before {key!r} was answered", key=key) from None


def _opened(url: str) -> bool:
    try:
        return webbrowser.open(url)
    except (webbrowser.Error, OSError):
        return False
