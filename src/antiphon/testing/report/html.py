"""The report to look at: one HTML file that needs nothing else, neither network nor server."""

import base64
import hashlib
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from itertools import groupby
from typing import Final

import msgspec

from antiphon.testing.outcome import Check, Outcome, Status, Summary, Turn
from antiphon.testing.report.conversation import Field, Said, conversation
from antiphon.testing.report.diff import RULES, Change, Difference, Line, Texts, Values, difference_of, says_it_all
from antiphon.testing.report.escaping import compact, counted, duration, indented, line, shortened, visible

# HTML from words that nobody vouches for.


_MOST_LETTERS: Final = 20_000
_MOST_LINES: Final = 400


def text_of(words: str) -> str:
    """Words as they may stand in an element or between the quotes of an attribute."""
    return html.escape(visible(shortened(words, letters=_MOST_LETTERS, lines=_MOST_LINES)), quote=True)


def element(tag: str, words: str, attributes: Mapping[str, str] | None = None) -> str:
    """An element that holds words, and no other element."""
    written = "".join(f' {name}="{text_of(value)}"' for name, value in (attributes or {}).items())
    return f"<{tag}{written}>{text_of(words)}</{tag}>"


# The sequence of a call, drawn in HTML: three lanes, and an arrow for everything that was said.


_LANES: Final = ("user", "client", "server")
_ONE_LINE: Final = 100
"""Letters of JSON that are not spread over several lines."""


def draw(turns: Sequence[Turn]) -> str:
    """The conversation as a list, which reads well aloud and looks like a diagram."""
    lanes = "".join(element("span", lane, {"class": lane}) for lane in _LANES)
    lines = "".join(element("i", "", {"class": f"line {lane}"}) for lane in _LANES)
    head = f'<li class="lanes" aria-hidden="true">{lanes}</li><li aria-hidden="true">{lines}</li>'
    label = f"The conversation, {counted(len(turns), 'round')}"
    return f'<ol class="sequence" aria-label="{text_of(label)}">{head}{"".join(_steps(turns))}</ol>'


def _steps(turns: Sequence[Turn]) -> Iterator[str]:
    before = 0
    for said in conversation(turns):
        if len(turns) > 1 and (said.round != before or said.kind == "call"):
            yield f'<li class="round"><span>round {said.round}</span></li>'
        before = said.round
        yield _step(said)


def _step(said: Said) -> str:
    classes = f"said-by from-{said.speaker}-to-{said.hearer}"
    classes += " bad" if said.failed else ""
    classes += " lost" if said.kind == "silence" else ""
    direction = "leftward" if said.speaker == "server" else "rightward"
    aloud = f'<span class="unseen">{said.speaker} to {said.hearer}: </span>'
    return (
        f'<li class="{classes}"><div class="span {direction}"><div class="bubble">'
        f'<div class="title">{aloud}{text_of(line(said.title))}{_took(said)}</div>{"".join(_body(said))}'
        "</div></div></li>"
    )


def _took(said: Said) -> str:
    if said.seconds is None:
        return ""
    return f'<span class="took">{duration(said.seconds)}</span>'


def _body(said: Said) -> Iterator[str]:
    if said.text:
        # A result's columns may be aligned; a question is prose.
        yield element("pre" if said.kind == "result" else "div", said.text, {"class": "words"})
    if said.fields:
        yield f'<ul class="fields">{"".join(map(_field, said.fields))}</ul>'
    if said.data is not msgspec.UNSET:
        written = compact(said.data)
        shown = written if len(written) <= _ONE_LINE else indented(said.data)
        yield element("pre", shown, {"class": "data"})


def _field(field: Field) -> str:
    described = f" — {field.description}" if field.description else ""
    return f"<li>{element('code', field.name)} {element('span', field.about + described, {'class': 'about'})}</li>"


_MARKS: Final[dict[Status, str]] = {"failed": "✗", "broken": "!", "skipped": "-", "passed": "✓"}
_ABSENT: Final = '<td class="absent">nothing</td>'
_ONE_LINE_CELL: Final = 60
_MOST_CHANGES: Final = 200


def render(summary: Summary, *, title: str = "antiphon test") -> str:
    """The whole run as a page."""
    style, script = _asset("page.css"), _asset("page.js")
    # Should a server's words ever get past the escaping, the browser still runs only what is signed here.
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{element('title', f'{_verdict(summary)}: {title}')}<style>{style}</style></head>\n"
        f"<body>{_head(summary, title)}{_tools(summary)}"
        f"<main>{''.join(_suites(summary))}"
        '<p class="none hidden" role="status">No test fits.</p></main>'
        f"<script>{script}</script></body></html>\n"
    )


def _asset(name: str) -> str:
    return files("antiphon.testing.report").joinpath(name).read_text("utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


# --- the head -----------------------------------------------------------------------------------------------------


def _head(summary: Summary, title: str) -> str:
    when = datetime.fromtimestamp(summary.started, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    told = f"{counted(len(summary.outcomes), 'test')} in {duration(summary.seconds)}, {when}"
    verdict = element("span", _verdict(summary), {"class": "verdict" if summary.passed else "verdict failed"})
    return f"<header><h1>{text_of(title)} {verdict}</h1>{element('p', told, {'class': 'when'})}{_bar(summary)}</header>"


def _verdict(summary: Summary) -> str:
    return "passed" if summary.passed else "failed"


def _bar(summary: Summary) -> str:
    # A rule of its own for every width would need an inline style, which the policy forbids; SVG needs none.
    total = max(len(summary.outcomes), 1)
    begin, drawn = 0.0, ""
    for status in ("passed", "skipped", "broken", "failed"):
        width = 100 * summary.count(status) / total
        drawn += f'<rect class="{status}" x="{begin:.2f}%" width="{width:.2f}%" height="100%"/>' if width else ""
        begin += width
    return f'<svg class="bar" width="100%" height="8" aria-hidden="true">{drawn}</svg>'


def _tools(summary: Summary) -> str:
    buttons = "".join(_switch(status, summary.count(status)) for status in _MARKS if summary.count(status))
    return (
        '<div class="tools hidden" role="toolbar" aria-label="Which tests are shown">'
        f'{buttons}<input type="search" id="search" placeholder="Search ( / )" aria-label="Search in the tests">'
        '<button type="button" id="open">Open all</button><button type="button" id="close">Close all</button>'
        '<span class="unseen" id="shown" role="status"></span></div>'
    )


def _switch(status: Status, count: int) -> str:
    return (
        f'<button type="button" class="{status}" data-status="{status}" aria-pressed="true">'
        f"<b>{_MARKS[status]} {count}</b> {status}</button>"
    )


# --- tests --------------------------------------------------------------------------------------------------------


def _suites(summary: Summary) -> Iterator[str]:
    for suite, outcomes in groupby(sorted(summary.outcomes, key=_suite_of), key=_suite_of):
        yield f"<section>{element('h2', line(suite))}{''.join(map(_test, outcomes))}</section>\n"


def _suite_of(outcome: Outcome) -> str:
    return outcome.suite


def _test(outcome: Outcome) -> str:
    is_open = " open" if outcome.status in {"failed", "broken"} else ""
    return (
        f'<details class="test {outcome.status}" data-status="{outcome.status}"{is_open}>'
        f'<summary><span class="mark" aria-hidden="true">{_MARKS[outcome.status]}</span>'
        f'<span class="unseen">{outcome.status}: </span>{element("span", line(outcome.name), {"class": "name"})}'
        f"{''.join(element('span', line(tag), {'class': 'tag'}) for tag in outcome.tags)}"
        f"{element('span', _facts(outcome), {'class': 'facts'})}</summary>"
        f'<div class="body">{"".join(_test_body(outcome))}</div></details>\n'
    )


def _facts(outcome: Outcome) -> str:
    rounds = counted(len(outcome.turns), "round") if outcome.turns else ""
    return " · ".join(filter(None, [line(outcome.era), rounds, duration(outcome.seconds)]))


def _test_body(outcome: Outcome) -> Iterator[str]:
    yield f'<div class="place mono">{text_of(str(outcome.place))}</div>'
    if outcome.problem:
        yield element("pre", outcome.problem, {"class": "problem"})
    if outcome.checks:
        failing_first = sorted(outcome.checks, key=lambda check: check.passed)
        yield f'<h3>Checks</h3><ul class="checks">{"".join(map(_check, failing_first))}</ul>'
    if outcome.turns:
        yield f"<h3>Conversation</h3>{draw(outcome.turns)}"
    if outcome.log.strip():
        yield f"<h3>The server's stderr</h3>{element('pre', outcome.log.rstrip(), {'class': 'log'})}"


# --- checks -------------------------------------------------------------------------------------------------------


def _check(check: Check) -> str:
    status: Status = "passed" if check.passed else "failed"
    mark = f'<span class="mark" aria-hidden="true">{_MARKS[status]}</span><span class="unseen">{status}: </span>'
    found = None if check.passed else difference_of(check)
    problem = "" if found is not None and says_it_all(check) else check.problem
    told = f'{mark} {element("code", check.name)} <span class="said">{text_of(problem)}</span>'
    place = f' <span class="place mono">{text_of(str(check.place))}</span>' if check.place and not check.passed else ""
    return f'<li class="{status}">{told}{place}{"" if check.passed else _difference(check, found)}</li>'


def _difference(check: Check, found: Difference | None) -> str:
    match found:
        case Texts(lines):
            legend = '<p class="legend"><span class="e">- expected</span> <span class="a">+ actual</span></p>'
            return f'{legend}<pre class="diff">{"".join(map(_line, lines))}</pre>'
        case Values(changes):
            return _paths(changes)
        case None if check.expected is None or check.name in RULES or says_it_all(check):
            return ""
        case None:
            return _paths([Change(path="", kind="changed", expected=check.expected, actual=check.actual)])


def _line(item: Line) -> str:
    if item.side == "gap":
        return element("span", f"… {counted(item.left_out, 'line')}", {"class": "row gap"})
    sign = {"both": " ", "expected": "-", "actual": "+"}[item.side]
    parts = "".join(element("mark", part.text) if part.marked else text_of(part.text) for part in item.parts)
    return f'<span class="row {item.side}"><span class="sign">{sign}</span><span>{parts}</span></span>'


def _paths(changes: Iterable[Change]) -> str:
    shown = list(changes)
    rows = "".join(map(_change, shown[:_MOST_CHANGES]))
    if len(shown) > _MOST_CHANGES:
        more = counted(len(shown) - _MOST_CHANGES, "more difference")
        rows += f'<tr><td colspan="3">… {more}</td></tr>'
    head = "<thead><tr><th scope=col>where</th><th scope=col>expected</th><th scope=col>actual</th></tr></thead>"
    return f'<div class="diff"><table class="paths">{head}<tbody>{rows}</tbody></table></div>'


def _change(change: Change) -> str:
    expected = _ABSENT if change.kind == "unexpected" else _cell("expected", change.expected)
    actual = _ABSENT if change.kind == "missing" else _cell("actual", change.actual)
    return f"<tr>{element('th', change.path, {'scope': 'row', 'class': 'mono'})}{expected}{actual}</tr>"


def _cell(side: str, value: object) -> str:
    written = compact(value)
    shown = text_of(written if len(written) <= _ONE_LINE_CELL else indented(value))
    return f'<td class="{side}"><pre>{shown}</pre></td>'
