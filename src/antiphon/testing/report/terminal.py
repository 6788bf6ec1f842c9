"""The report for people: a line for every test as it ends, and the whole story of those that did not pass."""

import io
import os
from collections import Counter
from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.text import Text

from antiphon.testing.outcome import Outcome, Status, Summary
from antiphon.testing.report.escaping import counted, duration, line
from antiphon.testing.report.text import Row, Span, facts, tell, tell_turns

WIDTH: Final = 100
"""Columns where no terminal says how many there are."""
_NARROW: Final = 60
_INDENT: Final = "  "

_STYLES: Final = {
    "": "",
    "strong": "bold",
    "dim": "dim",
    "good": "green",
    "bad": "red",
    "odd": "yellow",
    "client": "cyan",
    "server": "magenta",
    "user": "blue",
    "good-mark": "bold black on green",
    "bad-mark": "bold black on red",
}
_STATUSES: Final[dict[Status, tuple[str, str]]] = {
    "failed": ("✗", "red"),
    "broken": ("!", "yellow"),
    "skipped": ("-", "bright_black"),
    "passed": ("✓", "green"),
}
_ASCII: Final = str.maketrans({"✓": "+", "✗": "x", "▶": ">", "◀": "<", "─": "-", "│": "|", "·": "-", "…": "."})


def render(summary: Summary, *, verbose: bool = False, color: bool = False, width: int = WIDTH) -> str:
    """The whole report at once; ``color`` adds the control sequences of a terminal."""
    sheet = io.StringIO()
    # A page of text is not this process's terminal: no variable of the environment changes it.
    console = Console(
        file=sheet, width=width, force_terminal=color, color_system="truecolor" if color else None, _environ={}
    )
    printer = Printer(console, verbose=verbose)
    for outcome in summary.outcomes:
        printer.ended(outcome)
    printer.finish(summary)
    return sheet.getvalue()


def console() -> Console:
    """Stdout: colours only where a terminal shows them and ``NO_COLOR`` does not forbid it."""
    # FORCE_COLOR is for CI logs, which show colours and are no terminal.
    on_stdout = Console(highlight=False, emoji=False, markup=False)
    if not on_stdout.is_terminal and "COLUMNS" not in os.environ:
        on_stdout.width = WIDTH
    return on_stdout


class Printer:
    """Prints a run while it goes on."""

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self._console = console
        self._verbose = verbose
        self._suite: str | None = None
        self._encoding = console.encoding

    def ended(self, outcome: Outcome) -> None:
        """One test has ended: its line, below the name of its suite."""
        if outcome.suite != self._suite:
            if self._suite is not None:
                self._print(Text())
            self._suite = outcome.suite
            self._rows([Row(Span(""), (Span(line(outcome.suite), "strong"),), "│ ")])
        self._print(self._headline(outcome))
        if self._verbose and outcome.status == "passed":
            self._rows(tell_turns(outcome.turns), indent=_INDENT * 2)

    def finish(self, summary: Summary) -> None:
        """The story of every test that did not pass, and the sum."""
        for outcome in summary.outcomes:
            if outcome.status in {"failed", "broken"}:
                self._story(outcome)
        if self._suite is not None:
            self._print(Text())
        self._print(self._sum(summary))

    def _headline(self, outcome: Outcome) -> Text:
        mark, style = _STATUSES[outcome.status]
        head = Text(f"{_INDENT}{self._drawn(mark)} ", style)
        name = Text(self._drawn(line(outcome.name)), "" if outcome.status == "passed" else style)
        if outcome.status == "skipped" and outcome.problem:
            name.append(self._drawn(f" ({line(outcome.problem)})"))
        about = self._drawn(_about(outcome, is_narrow=self._console.width < _NARROW))
        room = self._console.width - head.cell_len - len(about) - 2
        self._shorten(name, room)
        return Text.assemble(head, name, " " * (room + 2 - name.cell_len), (about, "dim"))

    def _story(self, outcome: Outcome) -> None:
        _, style = _STATUSES[outcome.status]
        title = Text(f"{self._drawn('──')} {outcome.status} ", style)
        title.append(self._drawn(line(outcome.name)), f"bold {style}")
        self._shorten(title, self._console.width - 4)
        title.append(" " + self._drawn("─") * (self._console.width - title.cell_len - 1), style)
        self._print(Text())
        self._print(title)
        self._rows([Row(Span(""), (Span(facts(outcome), "dim"),), "│ "), Row(Span(""))])
        self._rows(tell(outcome), indent=_INDENT)

    def _rows(self, rows: Iterable[Row], *, indent: str = "") -> None:
        for row in rows:
            for text in self._wrapped(row, indent):
                self._print(text)

    def _wrapped(self, row: Row, indent: str) -> Iterable[Text]:
        lead = Text(indent).append(self._drawn(row.lead.text), _STYLES[row.lead.style])
        hang = Text(indent).append(self._drawn(row.hang), "dim")
        body = Text.assemble(*((self._drawn(span.text), _STYLES[span.style]) for span in row.spans))
        room = max(self._console.width - max(lead.cell_len, hang.cell_len), 10)
        is_short = body.cell_len <= room and "\t" not in body.plain
        first, *rest = [body] if is_short else body.wrap(self._console, room, overflow="fold") or [body]
        yield Text.assemble(lead, first)
        for text in rest:
            yield Text.assemble(hang, text)

    def _sum(self, summary: Summary) -> Text:
        counts = Counter(outcome.status for outcome in summary.outcomes)
        told = Text()
        for status, (_, style) in _STATUSES.items():
            if counts[status]:
                told.append(", " if told else "").append(f"{counts[status]:,} {status}", f"bold {style}")
        if not told:
            told.append("no tests", "yellow")
        return told.append(f" in {duration(summary.seconds)}", "dim")

    def _shorten(self, text: Text, room: int) -> None:
        if text.cell_len > room:
            text.truncate(max(room - 1, 1), overflow="crop")
            text.append(self._drawn("…"))

    def _drawn(self, text: str) -> str:
        """The text as the console's encoding can show it."""
        if self._encoding.lower().startswith("utf"):
            return text
        return text.translate(_ASCII).encode(self._encoding, "backslashreplace").decode(self._encoding)

    def _print(self, text: Text) -> None:
        text.rstrip()
        self._console.print(text, soft_wrap=True, highlight=False)


def _about(outcome: Outcome, *, is_narrow: bool) -> str:
    rounds = counted(len(outcome.turns), "round") if len(outcome.turns) > 1 else ""
    if outcome.status == "skipped":
        return ""
    known = [] if is_narrow else [line(outcome.era), rounds]
    return "  ".join(filter(None, [*known, duration(outcome.seconds)]))
