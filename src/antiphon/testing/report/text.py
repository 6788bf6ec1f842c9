"""A test told in lines: what a terminal colours and wraps, and what JUnit's files hold as they are."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from antiphon.testing.outcome import Check, Outcome, Turn
from antiphon.testing.report.conversation import Said, conversation
from antiphon.testing.report.diff import RULES, Change, Difference, Line, Texts, Values, difference_of, says_it_all
from antiphon.testing.report.escaping import compact, counted, duration, indented, line, shortened, visible

Style = Literal["", "strong", "dim", "good", "bad", "odd", "client", "server", "user", "bad-mark", "good-mark"]

LOG_LINES: Final = 20
_ONE_LINE: Final = 90
"""Letters of JSON that still stand on the line of what they belong to."""
_MOST_LINES: Final = 16
_MOST_LETTERS: Final = 1_200
_LONGEST_PROBLEM: Final = 4_000
_MOST_CHANGES: Final = 24
_SPEAKER: Final = 10
"""Columns of who speaks, with the number of the round."""


class Span(msgspec.Struct, frozen=True):
    """Some letters in one style."""

    text: str
    style: Style = ""


class Row(msgspec.Struct, frozen=True):
    """A line with what stands before it; ``hang`` stands before the rest of it if it has to be wrapped.

    Neither is ever empty where a server's words follow: a CI runner obeys lines that begin with ``::``.
    """

    lead: Span
    spans: tuple[Span, ...] = ()
    hang: str = ""

    def __str__(self) -> str:
        return (self.lead.text + "".join(span.text for span in self.spans)).rstrip()


def facts(outcome: Outcome) -> str:
    """Where a test stands and how it went, on one line."""
    known = [str(outcome.place), outcome.era, counted(len(outcome.turns), "round") if outcome.turns else ""]
    return " · ".join(filter(None, map(line, [*known, duration(outcome.seconds)])))


def tell(outcome: Outcome) -> Iterator[Row]:
    """Everything about a test: the conversation, what was wrong with it, and what the server logged."""
    sections = [list(tell_turns(outcome.turns)), list(tell_problems(outcome)), list(tell_log(outcome.log))]
    for number, section in enumerate(filter(None, sections)):
        if number:
            yield Row(Span(""))
        yield from section


def brief(outcome: Outcome) -> str:
    """What is wrong, in a line."""
    if outcome.problem:
        return line(outcome.problem)
    return "; ".join(f"{line(check.name)}: {line(_problem(check))}" for check in outcome.failures) or outcome.status


# --- the conversation ---------------------------------------------------------------------------------------------


def tell_turns(turns: Sequence[Turn]) -> Iterator[Row]:
    """The rounds of a call, drawn as a conversation."""
    before = 0
    for said in conversation(turns):
        begins = said.round != before or said.kind == "call"
        yield from _said(said, number=str(said.round) if begins else "")
        before = said.round


def _said(said: Said, *, number: str) -> Iterator[Row]:
    arrow = "◀─" if said.speaker == "server" else "─▶"
    lead = Span(f"{number:<3}{said.speaker:>{_SPEAKER - 3}} {arrow} ", said.speaker)
    hang = f"{'':{_SPEAKER}} │  "
    body = list(_body(said))
    beside = body.pop(0) if body and "\n" not in body[0].text and len(body[0].text) <= _ONE_LINE else None
    title = Span(line(said.title) + (": " if beside and said.text else " " if beside else ""), _title_style(said))
    yield Row(lead, (title, beside) if beside else (title,), hang)
    for span in body:
        yield from _lines(hang, span)
    for field in said.fields:
        name, about = line(field.name), line(field.about)
        note = Span(f"  {line(field.description)}", "dim")
        yield Row(Span(hang, "dim"), (Span(name, "strong"), Span(f"  {about}"), note), hang)


def _title_style(said: Said) -> Style:
    if said.failed:
        return "bad"
    return "strong" if said.kind in {"call", "question", "answer", "result"} else "dim"


def _body(said: Said) -> Iterator[Span]:
    if said.text:
        yield Span(_short(said.text))
    if said.data is not msgspec.UNSET:
        written = compact(said.data)
        yield Span(_short(written if len(written) <= _ONE_LINE else indented(said.data)), "dim" if said.text else "")


def _lines(hang: str, span: Span) -> Iterator[Row]:
    for text in span.text.split("\n"):
        yield Row(Span(hang, "dim"), (Span(text, span.style),), hang)


def _short(text: str) -> str:
    return visible(shortened(text, letters=_MOST_LETTERS, lines=_MOST_LINES))


# --- what was wrong -----------------------------------------------------------------------------------------------


def tell_problems(outcome: Outcome) -> Iterator[Row]:
    """Why a test is broken or skipped, and every check that failed."""
    if outcome.problem:
        mark = Span("! ", "odd") if outcome.status == "broken" else Span("- ", "dim")
        first, *rest = _short(outcome.problem).split("\n")
        yield Row(mark, (Span(first),), "│ ")
        yield from (Row(Span("│ ", "dim"), (Span(text),), "│ ") for text in rest)
    for check in outcome.failures:
        yield from tell_check(check)


def tell_check(check: Check) -> Iterator[Row]:
    """A failed check: its place, and how what came differs from what was expected."""
    found = difference_of(check)
    problem = "" if found is not None and says_it_all(check) else _problem(check)
    first, *rest = visible(shortened(problem, letters=_LONGEST_PROBLEM, lines=_MOST_LINES * 3)).split("\n")
    about = [f"  {line(first)}" if first else "", f"  {line(str(check.place))}" if check.place else ""]
    spans = (Span(line(check.name), "strong"), Span(about[0]), Span(about[1], "dim"))
    yield Row(Span("✗ ", "bad"), spans, "│ ")
    yield from (Row(Span("│ ", "dim"), (Span(text),), "│ ") for text in rest)
    if found is not None:
        yield from _difference(found)
    elif check.name not in RULES and not says_it_all(check):
        yield from _both(check)


def _problem(check: Check) -> str:
    return check.problem or "is not as expected"


def _both(check: Check) -> Iterator[Row]:
    if check.expected is None:
        return
    yield from _valued("expected", check.expected, "good")
    yield from _valued("actual", check.actual, "bad")


def _valued(name: str, value: object, style: Style) -> Iterator[Row]:
    written = compact(value)
    shown = _short(value if isinstance(value, str) else written if len(written) <= _ONE_LINE else indented(value))
    for number, text in enumerate(shown.split("\n")):
        yield Row(Span(f"│ {name if not number else '':<9}", "dim"), (Span(text, style),), f"│ {'':9}")


def _difference(found: Difference) -> Iterator[Row]:
    match found:
        case Texts(lines):
            yield Row(Span("│ ", "dim"), (Span("- expected", "good"), Span("  "), Span("+ actual", "bad")), "│ ")
            yield from _at_most(_MOST_LINES * 2, [_diff_line(item) for item in lines], "line")
        case Values(changes):
            yield from _at_most(_MOST_CHANGES, [_change(change) for change in changes], "difference")


def _at_most(most: int, rows: list[Row], noun: str) -> Iterable[Row]:
    if len(rows) <= most:
        return rows
    return [
        *rows[:most],
        Row(Span("│ ", "dim"), (Span(f"… {counted(len(rows) - most, f'more {noun}')}", "dim"),), "│ "),
    ]


def _diff_line(item: Line) -> Row:
    if item.side == "gap":
        return Row(Span("│   ", "dim"), (Span(f"… {counted(item.left_out, 'line')}", "dim"),), "│   ")
    sign, style, mark = _SIDES[item.side]
    spans = tuple(Span(_short(part.text), mark if part.marked else style) for part in item.parts)
    return Row(Span("│ ", "dim"), (Span(f"{sign} ", style), *spans), "│   ")


_SIDES: Final[dict[str, tuple[str, Style, Style]]] = {
    "both": (" ", "", ""),
    "expected": ("-", "good", "good-mark"),
    "actual": ("+", "bad", "bad-mark"),
}


def _change(change: Change) -> Row:
    told: tuple[Span, ...]
    match change.kind:
        case "missing":
            told = (Span("missing, expected "), Span(_value(change.expected), "good"))
        case "unexpected":
            told = (Span("not expected "), Span(_value(change.actual), "bad"))
        case "changed":
            told = (
                Span("expected "),
                Span(_value(change.expected), "good"),
                Span(" but was "),
                Span(_value(change.actual), "bad"),
            )
    return Row(Span("│ ", "dim"), (Span(f"{line(change.path)}  ", "strong"), *told), "│   ")


def _value(value: object) -> str:
    return line(shortened(compact(value), letters=300, lines=1))


# --- what the server logged ---------------------------------------------------------------------------------------


def tell_log(log: str) -> Iterator[Row]:
    """The end of the server's stderr."""
    lines = log.rstrip().split("\n")
    if lines == [""]:
        return
    shown = lines[-LOG_LINES:]
    left_out = f", the last {LOG_LINES} of {counted(len(lines), 'line')}" if len(lines) > LOG_LINES else ""
    yield Row(Span(""), (Span(f"the server's stderr{left_out}", "dim"),))
    for text in shown:
        yield Row(Span("│ ", "dim"), (Span(visible(shortened(text, letters=500, lines=1))),), "│ ")
