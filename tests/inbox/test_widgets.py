"""Whatever a server asks and a browser sends, the form is drawn and read, or refused in words."""

from contextlib import suppress
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon import CannotAnswer
from antiphon.inbox import widgets
from antiphon.inbox.rows import checked_all

words = st.text(max_size=12) | st.sampled_from(["<b>", '"', "\u202e", "2026-01-01", "", "a@b.c"])
numbers = st.integers() | st.floats(allow_nan=False)
leaves = st.none() | st.booleans() | numbers | words
anything = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3))
options = st.lists(words | st.fixed_dictionaries({"const": words, "title": words}) | anything, max_size=4)
definitions = anything | st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "number", "boolean", "array", "object"])},
    optional={
        "title": words | anything,
        "description": words,
        "default": anything | st.sampled_from(["2026-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"]),
        "format": st.sampled_from(["date", "date-time", "email", "uri", "odd"]),
        "enum": options,
        "enumNames": options,
        "oneOf": options,
        "minimum": numbers,
        "maximum": numbers,
        "maxLength": st.integers(0, 999),
        "items": st.fixed_dictionaries({}, optional={"type": st.just("string"), "enum": options, "anyOf": options}),
    },
)
schemas = anything | st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(words, definitions, max_size=4)},
    optional={"required": st.lists(words, max_size=3) | anything},
)
forms = st.fixed_dictionaries(
    {"method": st.just("elicitation/create")},
    optional={"params": st.fixed_dictionaries({}, optional={"message": anything, "requestedSchema": schemas})},
)
pages = st.fixed_dictionaries(
    {
        "method": st.just("elicitation/create"),
        "params": st.fixed_dictionaries({"mode": st.just("url")}, optional={"url": anything | words}),
    }
)
samplings = st.fixed_dictionaries(
    {"method": st.just("sampling/createMessage")},
    optional={"params": st.fixed_dictionaries({}, optional={"messages": anything, "systemPrompt": anything})},
)
others = st.fixed_dictionaries({"method": words | st.just("roots/list")})
questions = st.dictionaries(words, forms | pages | samplings | others, min_size=1, max_size=3)
sent = st.dictionaries(
    st.builds(lambda number, place: f"{number}.{place}", st.integers(0, 2), st.integers(0, 3) | st.just("action"))
    | st.just("action"),
    st.lists(
        words | st.integers(-3, 9).map(str) | st.sampled_from(["accept", "decline", "{}", "1e999"]),
        min_size=1,
        max_size=3,
    ),
)


class Drawn(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags = set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)


FIELDS = {"fieldset", "legend", "label", "input", "select", "option", "textarea"}
ALLOWED = FIELDS | {"span", "div", "p", "pre", "code", "b", "a"}


@settings(deadline=None)
@given(questions=questions, sent=sent)
def test_every_question_is_drawn_and_every_form_read_or_refused(questions, sent):
    for number, (key, request) in enumerate(questions.items()):
        page = widgets.drawn(number, key, request, sent, several=len(questions) > 1)
        assert Drawn(page).tags <= ALLOWED
        page.encode("utf-8", "backslashreplace")
    with suppress(CannotAnswer):
        checked_all(questions, widgets.responses(questions, sent))
