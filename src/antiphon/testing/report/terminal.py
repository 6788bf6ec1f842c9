"""The report for a terminal: a line for every test as it ends, and all of those that did not pass."""

import io
import os
from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal

from rich.console import Console
from rich.text import Text

from antiphon.escaping import counted, duration, line
from antiphon.testing.report.text import MARKS, Span, StyledLine, facts, outcome_rows, turn_rows
from antiphon.testing.suite.model import Outcome, Status, Summary

WIDTH: Final = 100
"""Columns of a report that no terminal shows."""
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
_COLOURS: Final[dict[Status, str]] = {
    "failed": "red",
    "broken": "yellow",
    "skipped": "bright_black",
    "passed": "green",
}
_ASCII: Final = str.maketrans({"✓": "+", "✗": "x", "▶": ">", "◀": "<", "─": "-", "│": "|", "·": "-", "…": "."})


def render(summary: Summary, *, verbose: bool = False, color: bool = False, width: int = WIDTH) -> str:
    """Return the whole report; ``color`` adds the control sequences of a terminal."""
    file = io.StringIO()
    system: Literal["truecolor"] | None = "truecolor" if color else None
    # The environment describes this process's terminal, not this text.
    console = Console(file=file, width=width, force_terminal=color, color_system=system, _environ={})
    printer = ReportPrinter(console, verbose=verbose)
    for outcome in summary.outcomes:
        printer.ended(outcome)
    printer.finish(summary)
    return file.getvalue()


def console() -> Console:
    """Return a console on stdout, with colours on a terminal unless ``NO_COLOR`` is set.

    ``FORCE_COLOR`` adds them elsewhere: CI logs show colours.
    """
    on_stdout = Console(highlight=False, emoji=False, markup=False)
    if not on_stdout.is_terminal:
        # Set once: rich would ask the system for each line.
        on_stdout.width = on_stdout.width if "COLUMNS" in os.environ else WIDTH
    return on_stdout


class ReportPrinter:
    """Print a run while it goes on."""

    def __init__(self, console: Console, *, quiet: bool = False, verbose: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._verbose = verbose
        self._suite: str | None = None
        self._encoding = console.encoding

    def ended(self, outcome: Outcome) -> None:
        """Print the line of a test that has ended, below the name of its suite; if quiet, only one that failed."""
        if self._quiet and outcome.status not in {"failed", "broken"}:
            return
        if outcome.suite != self._suite:
            if self._suite is not None:
                self._print(Text())
            self._suite = outcome.suite
            self._rows([StyledLine(Span(""), (Span(line(outcome.suite), "strong"),), "│ ")])
        self._print(self._headline(outcome))
        if self._verbose and outcome.status == "passed":
            self._rows(turn_rows(outcome.turns), indent=_INDENT * 2)

    def finish(self, summary: Summary) -> None:
        """Print all of every test that did not pass, and the counts."""
        for outcome in summary.outcomes:
            if outcome.status in {"failed", "broken"}:
                self._details(outcome)
        if self._suite is not None:
            self._print(Text())
        self._print(self._counts(summary))

    def _headline(self, outcome: Outcome) -> Text:
        mark, style = MARKS[outcome.status], _COLOURS[outcome.status]
        head = Text(f"{_INDENT}{mark} ", style)
        name = Text(line(outcome.name), "" if outcome.status == "passed" else style)
        if outcome.status == "skipped" and outcome.problem:
            name.append(f" ({line(outcome.problem)})")
        about = _about(outcome, is_narrow=self._console.width < _NARROW)
        room = self._console.width - head.cell_len - len(about) - 2
        self._shorten(name, room)
        return Text.assemble(head, name, " " * (room + 2 - name.cell_len), (about, "dim"))

    def _details(self, outcome: Outcome) -> None:
        style = _COLOURS[outcome.status]
        title = Text(f"── {outcome.status} ", style)
        title.append(line(outcome.name), f"bold {style}")
        self._shorten(title, self._console.width - 4)
        title.append(" " + "─" * (self._console.width - title.cell_len - 1), style)
        self._print(Text())
        self._print(title)
        self._rows(
            [
                StyledLine(Span(""), (Span(f"{line(str(outcome.place))} · {facts(outcome)}", "dim"),), "│ "),
                StyledLine(Span("")),
            ]
        )
        self._rows(outcome_rows(outcome), indent=_INDENT)

    def _rows(self, rows: Iterable[StyledLine], *, indent: str = "") -> None:
        for row in rows:
            for text in self._wrapped(row, indent):
                self._print(text)

    def _wrapped(self, row: StyledLine, indent: str) -> Iterable[Text]:
        lead = Text(indent).append(row.lead.text, _STYLES[row.lead.style])
        hang = Text(indent).append(row.hang, "dim")
        body = Text.assemble(*((span.text, _STYLES[span.style]) for span in row.spans))
        room = max(self._console.width - max(lead.cell_len, hang.cell_len), 10)
        is_short = body.cell_len <= room and "\t" not in body.plain
        first, *rest = [body] if is_short else body.wrap(self._console, room, overflow="fold") or [body]
        yield Text.assemble(lead, first)
        for text in rest:
            yield Text.assemble(hang, text)

    def _counts(self, summary: Summary) -> Text:
        counts = Counter(outcome.status for outcome in summary.outcomes)
        told = Text()
        for status, style in _COLOURS.items():
            if counts[status]:
                told.append(", " if told else "").append(f"{counts[status]:,} {status}", f"bold {style}")
        if not told:
            told.append("no tests", "yellow")
        return told.append(f" in {duration(summary.seconds)}", "dim")

    def _shorten(self, text: Text, room: int) -> None:
        if text.cell_len > room:
            text.truncate(max(room - 1, 1), overflow="crop")
            text.append("…")

    def _print(self, text: Text) -> None:
        text.rstrip()
        if not self._encoding.lower().startswith("utf"):
            known = text.plain.translate(_ASCII).encode(self._encoding, "backslashreplace").decode(self._encoding)
            text = Text(known, spans=text.spans if len(known) == len(text) else None)
        if self._console.is_terminal or self._console.color_system is not None:
            self._console.print(text, soft_wrap=True, highlight=False)
        else:
            # There is nothing to style, and rich would take longer than the tests.
            self._console.file.write(f"{text.plain}\n")


def _about(outcome: Outcome, *, is_narrow: bool) -> str:
    rounds = counted(len(outcome.turns), "round") if len(outcome.turns) > 1 else ""
    if outcome.status == "skipped":
        return ""
    known = [] if is_narrow else [line(outcome.era), rounds]
    return "  ".join(filter(None, [*known, duration(outcome.seconds)]))
