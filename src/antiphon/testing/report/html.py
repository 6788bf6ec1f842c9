"""The report for a browser: one HTML file that loads nothing else."""

import base64
import hashlib
import html
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from itertools import groupby
from operator import attrgetter
from typing import Final

import msgspec

from antiphon.escaping import counted, duration, fitted, line, shortened, visible
from antiphon.testing.report.conversation import ShownField, Step, conversation
from antiphon.testing.report.diff import (
    Difference,
    DiffLine,
    TextDiff,
    ValueChange,
    ValueDiff,
    told_of,
)
from antiphon.testing.report.text import MARKS, facts
from antiphon.testing.suite.model import Check, Outcome, Status, Summary
from antiphon.testing.transcript import Turn

_CARDS: Final = {"retry": "answer", "wait": "question", "error": "result", "silence": "result"}
"""Kinds of steps that look like another one."""
_ABSENT: Final = '<td class="absent">nothing</td>'
_MOST_LETTERS: Final = 20_000
_MOST_LINES: Final = 400
_MOST_CHANGES: Final = 200
_ONE_LINE: Final = 100
"""Letters of JSON that are written on one line."""
_ONE_LINE_CELL: Final = 60


def render(summary: Summary, *, title: str = "antiphon test") -> str:
    """Return the whole run as a page."""
    style, script = _asset("conversation.css") + _asset("page.css"), _asset("page.js")
    # The browser runs only what has these digests, even if a server's words got past the escaping.
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{_element('title', f'{_verdict(summary)}: {title}')}<style>{style}</style></head>\n"
        f"<body>{_head(summary, title)}{_tools(summary)}"
        f"<main>{''.join(_suites(summary))}"
        '<p class="none hidden" role="status">No test fits.</p></main>'
        f"<script>{script}</script></body></html>\n"
    )


def _asset(name: str) -> str:
    return files("antiphon.testing.report").joinpath(name).read_text("utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _text(words: str) -> str:
    """Escape words for an element, or for an attribute between double quotes."""
    return html.escape(visible(shortened(words, letters=_MOST_LETTERS, lines=_MOST_LINES)), quote=True)


def _element(tag: str, words: str, attributes: Mapping[str, str] | None = None) -> str:
    """Return an element that holds words, and no other element."""
    written = "".join(f' {name}="{_text(value)}"' for name, value in (attributes or {}).items())
    return f"<{tag}{written}>{_text(words)}</{tag}>"


# --- the head -----------------------------------------------------------------------------------------------------


def _head(summary: Summary, title: str) -> str:
    when = datetime.fromtimestamp(summary.started, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    told = f"{counted(len(summary.outcomes), 'test')} in {duration(summary.seconds)}, {when}"
    verdict = _element("span", _verdict(summary), {"class": "verdict" if summary.passed else "verdict failed"})
    return f"<header><h1>{_text(title)} {verdict}</h1>{_element('p', told, {'class': 'when'})}{_bar(summary)}</header>"


def _verdict(summary: Summary) -> str:
    return "passed" if summary.passed else "failed"


def _bar(summary: Summary) -> str:
    # SVG takes widths as attributes; the policy forbids inline styles.
    total = max(len(summary.outcomes), 1)
    begin, drawn = 0.0, ""
    for status in ("passed", "skipped", "broken", "failed"):
        width = 100 * summary.count(status) / total
        drawn += f'<rect class="{status}" x="{begin:.2f}%" width="{width:.2f}%" height="100%"/>' if width else ""
        begin += width
    return f'<svg class="bar" width="100%" height="8" aria-hidden="true">{drawn}</svg>'


def _tools(summary: Summary) -> str:
    buttons = "".join(_switch(status, summary.count(status)) for status in MARKS if summary.count(status))
    return (
        '<div class="tools hidden" role="toolbar" aria-label="Which tests are shown">'
        f'{buttons}<input type="search" id="search" placeholder="Search ( / )" aria-label="Search in the tests">'
        '<button type="button" id="open">Open all</button><button type="button" id="close">Close all</button>'
        '<span class="unseen" id="shown" role="status"></span></div>'
    )


def _switch(status: Status, count: int) -> str:
    return (
        f'<button type="button" class="{status}" data-status="{status}" aria-pressed="true">'
        f"<b>{MARKS[status]} {count}</b> {status}</button>"
    )


# --- tests --------------------------------------------------------------------------------------------------------


def _suites(summary: Summary) -> Iterator[str]:
    by_suite = attrgetter("suite")
    for suite, outcomes in groupby(sorted(summary.outcomes, key=by_suite), key=by_suite):
        yield f"<section>{_element('h2', line(suite))}{''.join(map(_test, outcomes))}</section>\n"


def _test(outcome: Outcome) -> str:
    is_open = " open" if outcome.status in {"failed", "broken"} else ""
    return (
        f'<details class="test {outcome.status}" data-status="{outcome.status}"{is_open}>'
        f'<summary><span class="mark" aria-hidden="true">{MARKS[outcome.status]}</span>'
        f'<span class="unseen">{outcome.status}: </span>{_element("span", line(outcome.name), {"class": "name"})}'
        f"{''.join(_element('span', line(tag), {'class': 'tag'}) for tag in outcome.tags)}"
        f"{_element('span', facts(outcome), {'class': 'facts'})}</summary>"
        f'<div class="body">{"".join(_test_body(outcome))}</div></details>\n'
    )


def _test_body(outcome: Outcome) -> Iterator[str]:
    yield f'<div class="place mono">{_text(str(outcome.place))}</div>'
    if outcome.problem:
        yield _element("pre", outcome.problem, {"class": "problem"})
    if outcome.checks:
        failing_first = sorted(outcome.checks, key=lambda check: check.passed)
        yield f'<h3>Checks</h3><ul class="checks">{"".join(map(_check, failing_first))}</ul>'
    if outcome.turns:
        yield f"<h3>Conversation</h3>{_talk(outcome.turns)}"
    if outcome.log.strip():
        yield f"<h3>The server's stderr</h3>{_element('pre', outcome.log.rstrip(), {'class': 'log'})}"


# --- checks -------------------------------------------------------------------------------------------------------


def _check(check: Check) -> str:
    status: Status = "passed" if check.passed else "failed"
    mark = f'<span class="mark" aria-hidden="true">{MARKS[status]}</span><span class="unseen">{status}: </span>'
    problem, found = (check.problem, None) if check.passed else told_of(check)
    told = f'{mark} {_element("code", check.name)} <span class="said">{_text(problem)}</span>'
    place = f' <span class="place mono">{_text(str(check.place))}</span>' if check.place and not check.passed else ""
    return f'<li class="{status}">{told}{place}{_difference(found)}</li>'


def _difference(found: Difference | None) -> str:
    match found:
        case None:
            return ""
        case TextDiff(lines):
            legend = '<p class="legend"><span class="e">- expected</span> <span class="a">+ actual</span></p>'
            return f'{legend}<pre class="diff">{"".join(map(_diff_line, lines))}</pre>'
        case ValueDiff(changes):
            return _table(changes)


def _diff_line(item: DiffLine) -> str:
    if item.side == "gap":
        return _element("span", f"… {counted(item.left_out, 'line')}", {"class": "row gap"})
    sign = {"both": " ", "expected": "-", "actual": "+"}[item.side]
    parts = "".join(_element("mark", part.text) if part.marked else _text(part.text) for part in item.parts)
    return f'<span class="row {item.side}"><span class="sign">{sign}</span><span>{parts}</span></span>'


def _table(changes: Sequence[ValueChange]) -> str:
    rows = "".join(map(_change, changes[:_MOST_CHANGES]))
    if len(changes) > _MOST_CHANGES:
        more = counted(len(changes) - _MOST_CHANGES, "more difference")
        rows += f'<tr><td colspan="3">… {more}</td></tr>'
    head = "<thead><tr><th scope=col>where</th><th scope=col>expected</th><th scope=col>actual</th></tr></thead>"
    return f'<div class="diff"><table class="paths">{head}<tbody>{rows}</tbody></table></div>'


def _change(change: ValueChange) -> str:
    expected = _ABSENT if change.kind == "unexpected" else _cell("expected", change.expected)
    actual = _ABSENT if change.kind == "missing" else _cell("actual", change.actual)
    return f"<tr>{_element('th', change.path, {'scope': 'row', 'class': 'mono'})}{expected}{actual}</tr>"


def _cell(side: str, value: object) -> str:
    return f'<td class="{side}"><pre>{_text(fitted(value, _ONE_LINE_CELL))}</pre></td>'


# --- the conversation: a card for each step, on a rail of rounds ---------------------------------------------------


def _talk(turns: Sequence[Turn]) -> str:
    label = f"The conversation, {counted(len(turns), 'round')}"
    return f'<ol class="talk" aria-label="{_text(label)}">{"".join(_rounds(turns))}</ol>'


def _rounds(turns: Sequence[Turn]) -> Iterator[str]:
    # An answer stands below its question, though the next round carries it.
    cards: list[str] = []
    number = 1
    for step in conversation(turns):
        if cards and step.kind not in {"answer", "retry"} and (step.round != number or step.kind == "call"):
            yield _round(number, cards)
            cards = []
        number = number if step.kind in {"answer", "retry"} else step.round
        cards.append(_card(step))
    if cards:
        yield _round(number, cards)


def _round(number: int, cards: Sequence[str]) -> str:
    mark = f'<span class="number"><span class="unseen">round </span>{number}</span>'
    return f'<li class="round">{mark}{"".join(cards)}</li>'


def _card(step: Step) -> str:
    kind = _CARDS.get(step.kind, step.kind)
    classes = f"card {kind} from-{step.speaker}-to-{step.hearer}{' bad' if step.failed else ''}"
    aloud = f'<span class="unseen">{step.speaker} to {step.hearer}: </span>'
    took = "" if step.seconds is None else f"<span>{duration(step.seconds)}</span>"
    who = f'<div class="who">{aloud}<b>{_text(line(step.title))}</b>{took}</div>'
    return f'<div class="{classes}">{who}{"".join(_card_body(step))}</div>'


def _card_body(step: Step) -> Iterator[str]:
    if step.text:
        # A result's columns may be aligned; a question is prose.
        yield _element("pre" if step.kind == "result" else "div", step.text, {"class": "words"})
    if step.fields:
        yield f'<ul class="fields">{"".join(map(_field, step.fields))}</ul>'
    if step.data is not msgspec.UNSET:
        yield _element("pre", fitted(step.data, _ONE_LINE), {"class": "data"})


def _field(field: ShownField) -> str:
    about = f"{field.about} — {field.description}" if field.description else field.about
    return f"<li>{_element('code', field.name)} {_element('span', about, {'class': 'about'})}</li>"
