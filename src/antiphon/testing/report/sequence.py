"""The sequence of a call, drawn in HTML: three lanes, and an arrow for everything that was said."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from antiphon.testing.report.conversation import Field, Said, conversation
from antiphon.testing.report.markup import element, text_of
from antiphon.testing.report.plain import compact, counted, duration, indented, line
from antiphon.testing.suite.outcome import Turn

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
