"""The page: whole in itself, and never the server's to write."""

import base64
import hashlib
import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from antiphon.testing.report.html import render
from antiphon.testing.suite.model import Check, Outcome, Summary
from antiphon.testing.transcript import Turn
from testing.report.sample import EVERYTHING, PASSED, RUN, TOKEN, at, form

VOID = {"meta", "input", "rect"}
TAGS = {
    "html head meta title style body header h1 h2 h3 p svg rect div span b i button input main section details summary",
    "ul ol li code pre mark table thead tbody tr th td script",
}
ALLOWED = {tag for row in TAGS for tag in row.split()}


class Page(HTMLParser):
    """A strict reader: what is opened is closed, and only what the report writes is there."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open = []
        self.count = {}
        self.classes = []
        self.words = []
        self.attributes = []
        self.raw = {"style": "", "script": ""}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert tag in ALLOWED, tag
        self.count[tag] = self.count.get(tag, 0) + 1
        self.attributes += [(tag, *pair) for pair in attributes]
        self.classes += (dict(attributes).get("class") or "").split()
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in self.raw:
            self.raw[self.open[-1]] += data
        else:
            self.words.append(data)

    @property
    def text(self):
        return "".join(self.words)


def of(*outcomes):
    return Summary(outcomes=outcomes, seconds=1.5, started=0.0)


def test_every_test_is_on_the_page_and_those_that_did_not_pass_are_open():
    page = Page(render(RUN))
    assert page.count["details"] == len(RUN.outcomes)
    assert [value for tag, name, value in page.attributes if tag == "details" and name == "data-status"] == [
        "passed",
        "failed",
        "broken",
        "skipped",
        "passed",
        "failed",
    ]
    assert sum((tag, name) == ("details", "open") for tag, name, _ in page.attributes) == 3


def test_the_conversation_is_drawn_and_can_be_read_aloud():
    page = Page(render(of(PASSED)))
    assert page.count["ol"] == 1
    assert "client to server: tools/call deploy" in page.text
    assert "server to user: asks confirm" in page.text
    assert "user to server: confirm: accept" in page.text
    assert "server to client: answers" in page.text
    assert {"from-client-to-server", "from-server-to-user", "from-user-to-server"} <= set(page.classes)


def test_differences_are_marked():
    page = Page(render(RUN))
    assert page.count["mark"] >= 4
    assert "$.nodes[2]" in page.text
    assert "the quota is 2" in page.text


def test_the_page_loads_nothing_and_allows_only_its_own_script():
    text = render(EVERYTHING)
    page = Page(text)
    assert not [name for _, name, _ in page.attributes if name in {"src", "href", "style"} or name.startswith("on")]
    assert not re.search(r"url\(|@import|https?:", page.raw["style"] + page.raw["script"])
    (policy,) = [
        value for tag, name, value in page.attributes if tag == "meta" and name == "content" and "src" in value
    ]
    assert policy == "default-src 'none'; " + "; ".join(
        f"{kind}-src 'sha256-{base64.b64encode(hashlib.sha256(page.raw[kind].encode()).digest()).decode()}'"
        for kind in ("style", "script")
    )


def test_what_can_be_pressed_has_a_name_and_states():
    page = Page(render(EVERYTHING))
    assert [value for _, name, value in page.attributes if name == "data-status"][:4] == [
        "failed",
        "broken",
        "skipped",
        "passed",
    ]
    assert ("input", "aria-label", "Search in the tests") in page.attributes
    assert ("html", "lang", "en") in page.attributes
    assert page.count["h1"] == 1


def test_a_hostile_server_adds_no_element():
    page = Page(render(EVERYTHING))
    assert page.count["script"] == 1
    assert "<script>alert(1)</script>" in page.text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", render(EVERYTHING))


def test_no_token_is_on_the_page():
    assert TOKEN[:24] not in render(EVERYTHING)


def test_a_run_without_tests_is_a_page_too():
    assert "0 tests in 1.5 s" in Page(render(of())).text


def test_a_page_with_long_texts_stays_small():
    assert len(render(RUN)) < 200_000


MARKUP = st.text(st.sampled_from("<>&\"'/=!-[]\x00\n a;#x") | st.characters(), max_size=30)


@given(MARKUP)
def test_whatever_a_server_says_it_stays_text(text):
    outcome = Outcome(
        name=text,
        suite=text,
        place=at(1),
        status="failed",
        tags=(text,),
        era=text,
        problem=text,
        checks=(
            Check(name=text, passed=False, problem=text, expected="", actual=text),
            Check(name=text, passed=False, problem=text, expected={text: 1}, actual={text: [text]}),
        ),
        turns=(
            Turn(method=text, params={text: text}, questions={text: form(text, **{text: {"description": text}})}),
            Turn(method=text, params={}, answers={text: text}, error={"code": text, "message": text, "data": text}),
        ),
        log=text,
    )
    text = render(of(outcome))
    text.encode()
    page = Page(text)
    assert (page.count["script"], page.count["details"], page.count["tr"]) == (1, 1, 2)
