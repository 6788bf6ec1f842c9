"""A test as lines of styled text: a terminal colours and wraps them, JUnit's files hold them as they are."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from antiphon.escaping import compact, counted, duration, fitted, line, shortened, visible
from antiphon.testing.report.conversation import Step, conversation
from antiphon.testing.report.diff import (
    UNTOLD,
    Difference,
    DiffLine,
    TextDiff,
    ValueChange,
    ValueDiff,
    told_of,
)
from antiphon.testing.suite.model import Check, Outcome, Status
from antiphon.testing.transcript import Turn

Style = Literal["", "strong", "dim", "good", "bad", "odd", "client", "server", "user", "bad-mark", "good-mark"]

MARKS: Final[dict[Status, str]] = {"failed": "✗", "broken": "!", "skipped": "-", "passed": "✓"}
LOG_LINES: Final = 20
_ONE_LINE: Final = 90
"""Letters of JSON that are written on one line."""
_MOST_LINES: Final = 16
_MOST_LETTERS: Final = 1_200
_LONGEST_PROBLEM: Final = 4_000
_MOST_CHANGES: Final = 24
_SPEAKER: Final = 10
"""Columns of the round's number and the speaker."""
_BAR: Final = "│ "


class Span(msgspec.Struct, frozen=True):
    """Some letters in one style."""

    text: str
    style: Style = ""


class StyledLine(msgspec.Struct, frozen=True):
    """A line with what stands before it; ``hang`` stands before the rest of it if it has to be wrapped.

    Neither is ever empty where a server's words follow: a CI runner obeys lines that begin with ``::``.
    """

    lead: Span
    spans: tuple[Span, ...] = ()
    hang: str = ""

    def __str__(self) -> str:
        return (self.lead.text + "".join(span.text for span in self.spans)).rstrip()


def facts(outcome: Outcome) -> str:
    """Return how a test went, on one line."""
    rounds = counted(len(outcome.turns), "round") if outcome.turns else ""
    return " · ".join(filter(None, [line(outcome.era), rounds, duration(outcome.seconds)]))


def brief(outcome: Outcome) -> str:
    """Return what is wrong, on one line."""
    if outcome.problem:
        return line(outcome.problem)
    told = (f"{line(check.name)}: {line(check.problem or UNTOLD)}" for check in outcome.failures)
    return "; ".join(told) or outcome.status


def outcome_rows(outcome: Outcome) -> Iterator[StyledLine]:
    """Yield all of a test: the conversation, the problems, and the server's stderr."""
    sections = [list(turn_rows(outcome.turns)), list(problem_rows(outcome)), list(log_rows(outcome.log))]
    for number, section in enumerate(filter(None, sections)):
        if number:
            yield StyledLine(Span(""))
        yield from section


def _barred(*spans: Span, hang: str = _BAR) -> StyledLine:
    return StyledLine(Span(_BAR, "dim"), spans, hang)


# --- the conversation ---------------------------------------------------------------------------------------------


def turn_rows(turns: Sequence[Turn]) -> Iterator[StyledLine]:
    """Yield the rounds of a call, drawn as a conversation."""
    before = 0
    for step in conversation(turns):
        begins = step.round != before or step.kind == "call"
        yield from _step(step, number=str(step.round) if begins else "")
        before = step.round


def _step(step: Step, *, number: str) -> Iterator[StyledLine]:
    arrow = "◀─" if step.speaker == "server" else "─▶"
    lead = Span(f"{number:<3}{step.speaker:>{_SPEAKER - 3}} {arrow} ", step.speaker)
    hang = f"{'':{_SPEAKER}} │  "
    body = list(_body(step))
    beside = body.pop(0) if body and "\n" not in body[0].text and len(body[0].text) <= _ONE_LINE else None
    title = Span(line(step.title) + (": " if beside and step.text else " " if beside else ""), _title_style(step))
    yield StyledLine(lead, (title, beside) if beside else (title,), hang)
    for span in body:
        for text in span.text.split("\n"):
            yield StyledLine(Span(hang, "dim"), (Span(text, span.style),), hang)
    for field in step.fields:
        name, about = Span(line(field.name), "strong"), Span(f"  {line(field.about)}")
        yield StyledLine(Span(hang, "dim"), (name, about, Span(f"  {line(field.description)}", "dim")), hang)


def _title_style(step: Step) -> Style:
    if step.failed:
        return "bad"
    return "strong" if step.kind in {"call", "question", "answer", "result"} else "dim"


def _body(step: Step) -> Iterator[Span]:
    if step.text:
        yield Span(_short(step.text))
    if step.data is not msgspec.UNSET:
        yield Span(_short(fitted(step.data, _ONE_LINE)), "dim" if step.text else "")


def _short(text: str) -> str:
    return visible(shortened(text, letters=_MOST_LETTERS, lines=_MOST_LINES))


# --- problems -----------------------------------------------------------------------------------------------------


def problem_rows(outcome: Outcome) -> Iterator[StyledLine]:
    """Yield why a test is broken or skipped, and every check that failed."""
    if outcome.problem:
        mark = Span("! ", "odd") if outcome.status == "broken" else Span("- ", "dim")
        first, *rest = _short(outcome.problem).split("\n")
        yield StyledLine(mark, (Span(first),), _BAR)
        yield from (_barred(Span(text)) for text in rest)
    for check in outcome.failures:
        yield from _check(check)


def _check(check: Check) -> Iterator[StyledLine]:
    problem, found = told_of(check)
    first, *rest = visible(shortened(problem, letters=_LONGEST_PROBLEM, lines=_MOST_LINES * 3)).split("\n")
    told = Span(f"  {line(first)}" if first else "")
    place = Span(f"  {line(str(check.place))}" if check.place else "", "dim")
    yield StyledLine(Span("✗ ", "bad"), (Span(line(check.name), "strong"), told, place), _BAR)
    yield from (_barred(Span(text)) for text in rest)
    if found is not None:
        yield from _difference(found)


def _difference(found: Difference) -> Iterator[StyledLine]:
    match found:
        case TextDiff(lines):
            yield _barred(Span("- expected", "good"), Span("  "), Span("+ actual", "bad"))
            yield from _at_most(_MOST_LINES * 2, [_diff_line(item) for item in lines], "line")
        case ValueDiff([ValueChange(path="", expected=expected, actual=actual)]):
            yield from _labelled("expected", expected, "good")
            yield from _labelled("actual", actual, "bad")
        case ValueDiff(changes):
            yield from _at_most(_MOST_CHANGES, [_change(change) for change in changes], "difference")


def _labelled(name: str, value: object, style: Style) -> Iterator[StyledLine]:
    shown = _short(value if isinstance(value, str) else fitted(value, _ONE_LINE))
    for number, text in enumerate(shown.split("\n")):
        yield StyledLine(Span(f"│ {name if not number else '':<9}", "dim"), (Span(text, style),), f"│ {'':9}")


def _at_most(most: int, rows: list[StyledLine], noun: str) -> Iterable[StyledLine]:
    if len(rows) <= most:
        return rows
    return [*rows[:most], _barred(Span(f"… {counted(len(rows) - most, f'more {noun}')}", "dim"))]


_SIDES: Final[dict[str, tuple[str, Style, Style]]] = {
    "both": ("  ", "", ""),
    "expected": ("- ", "good", "good-mark"),
    "actual": ("+ ", "bad", "bad-mark"),
}


def _diff_line(item: DiffLine) -> StyledLine:
    if item.side == "gap":
        return _barred(Span(f"  … {counted(item.left_out, 'line')}", "dim"), hang="│   ")
    sign, style, mark = _SIDES[item.side]
    parts = (Span(_short(part.text), mark if part.marked else style) for part in item.parts)
    return _barred(Span(sign, style), *parts, hang="│   ")


def _change(change: ValueChange) -> StyledLine:
    expected, actual = Span(_value(change.expected), "good"), Span(_value(change.actual), "bad")
    told: tuple[Span, ...]
    match change.kind:
        case "missing":
            told = (Span("missing, expected "), expected)
        case "unexpected":
            told = (Span("not expected "), actual)
        case "changed":
            told = (Span("expected "), expected, Span(" but was "), actual)
    return _barred(Span(f"{line(change.path)}  ", "strong"), *told, hang="│   ")


def _value(value: object) -> str:
    return line(shortened(compact(value), letters=300, lines=1))


# --- the server's stderr ------------------------------------------------------------------------------------------


def log_rows(log: str) -> Iterator[StyledLine]:
    """Yield the end of the server's stderr."""
    lines = log.rstrip().split("\n")
    if lines == [""]:
        return
    left_out = f", the last {LOG_LINES} of {counted(len(lines), 'line')}" if len(lines) > LOG_LINES else ""
    yield StyledLine(Span(""), (Span(f"the server's stderr{left_out}", "dim"),))
    for text in lines[-LOG_LINES:]:
        yield _barred(Span(visible(shortened(text, letters=500, lines=1))))
