"""The parts of a call's terminal that need no terminal: URLs, texts, fields."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.answering import Respondent, read_answers
from antiphon.cli.forms import read
from antiphon.client.results import Pending
from antiphon.escaping import line, visible
from antiphon.inbox.locations import read_location
from antiphon.shapes.form_fields import fields_of

# --- URLs


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.com/a?b=c#d", "example.com"),
        ("https://EXAMPLE.com:8443/", "EXAMPLE.com"),
        ("http://localhost:8000/x", "localhost"),
        ("http://127.0.0.1/x", "127.0.0.1"),
        ("http://[::1]:8000/x", "::1"),
        ("http://app.localhost/", "app.localhost"),
    ],
)
def test_a_plain_url_is_shown_whole_with_its_host_and_no_warning(url, host):
    found = read_location(url)
    assert (found.before + found.host + found.after, found.host, found.warnings) == (url, host, [])
    assert found.can_be_opened


@pytest.mark.parametrize(
    ("url", "host", "said"),
    [
        ("http://example.com/", "example.com", "not https"),
        ("https://bank.com@evil.com/bank.com", "evil.com", "the host is evil.com"),
        ("https://evil.com@evil.com/", "evil.com", "not the host"),
        ("https://xn--80ak6aa92e.com/", "xn--80ak6aa92e.com", "may look like another one: аррӏе.com"),
        ("https://a.xn--bcher-kva.example/", "a.xn--bcher-kva.example", "punycode"),
        ("https://аррӏе.com/", "аррӏе.com", "beyond ASCII"),
        ("https://example.com/\u202egpj", "example.com", "cannot be seen"),
        ("https://example.com/\x1b[2J", "example.com", "cannot be seen"),
    ],
)
def test_a_suspicious_url_is_warned_of(url, host, said):
    found = read_location(url)
    assert found.host == host
    assert said in " ".join(found.warnings)
    assert "\x1b" not in found.before + found.after


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "https://", "https://[::1", "x", ""])
def test_what_is_no_web_page_is_not_opened(url):
    found = read_location(url)
    assert not found.can_be_opened
    assert found.before == url


@pytest.mark.parametrize("url", [r"https://evil.example\@bank.example/", r"https://evil.example\.bank.example/"])
def test_no_host_is_shown_where_a_browser_may_open_another(url):
    found = read_location(url)
    assert (found.host, found.can_be_opened) == ("", False)
    assert "a browser may open another host" in " ".join(found.warnings)
    assert read_location(r"https://bank.example/a\b").host == "bank.example"


@given(st.text())
def test_any_text_may_be_a_url(text):
    found = read_location(f"https://{text}")
    assert found.before + found.host + found.after == visible(f"https://{text}")


# --- texts


def test_what_a_terminal_would_obey_is_written_out():
    assert visible("a\x1b[31mb\r\x07\x9b\u202ec\ue000") == "a\\x1b[31mb\\x0d\\x07\\x9b\\u202ec\ue000"
    assert visible("two\nlines\tand ü €") == "two\nlines\tand ü €"
    assert line(" a\n b ") == "a b"


@given(st.text())
def test_nothing_that_moves_the_cursor_is_left(text):
    assert all(letter in "\n\t" or (ord(letter) >= 32 and not 0x7F <= ord(letter) < 0xA0) for letter in visible(text))


# --- fields


def field(schema, *, required=True):
    (found,) = fields_of({"type": "object", "properties": {"x": schema}, "required": ["x"] if required else []})
    return found


@pytest.mark.parametrize(
    ("schema", "kind", "hint"),
    [
        ({"type": "string"}, "text", ""),
        ({"type": "string", "minLength": 2}, "text", "at least 2 characters"),
        ({"type": "string", "maxLength": 5}, "text", "at most 5 characters"),
        ({"type": "string", "format": "uri"}, "text", "a URI such as https://example.com"),
        ({"type": "string", "format": "date"}, "date", "YYYY-MM-DD, or the arrows up and down"),
        ({"type": "integer", "minimum": 1, "maximum": 3}, "number", "a whole number 1 to 3"),
        ({"type": "number"}, "number", "a number"),
        ({"type": "boolean"}, "boolean", ""),
        ({"type": "string", "enum": ["a"], "enumNames": ["A"]}, "choice", ""),
        ({"type": "array", "items": {"type": "string", "enum": ["a"]}, "maxItems": 1}, "several", "at most 1 of them"),
        ({"type": "object"}, "other", "as JSON"),
        ({"type": "array", "items": {"type": "integer"}}, "other", "as JSON"),
        ("nonsense", "other", "as JSON"),
    ],
)
def test_a_field_has_a_kind_and_a_hint(schema, kind, hint):
    found = field(schema)
    assert (found.kind, found.hint) == (kind, hint)


def test_options_are_shown_by_their_titles():
    titled = field({"type": "array", "items": {"anyOf": [{"const": "a", "title": "Ada"}]}})
    assert titled.options == [("a", "Ada")]
    assert titled.shown(["a"]) == "Ada"
    named = field({"type": "string", "enum": ["a"], "enumNames": ["Ada"]})
    assert named.options == [("a", "Ada")]


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, " 5 ", 5),
        ({"type": "number"}, "1e2", 100.0),
        ({"type": "string", "format": "date"}, " 2026-08-01 ", "2026-08-01"),
        ({"type": "string", "format": "date-time"}, "2026-08-01T09:30:00Z", "2026-08-01T09:30:00Z"),
        ({"type": "string", "format": "date-time"}, "2026-08-01T09:30Z", "2026-08-01T09:30:00+00:00"),
        ({"type": "array", "items": {"type": "integer"}}, "1,2", [1, 2]),
    ],
)
def test_what_is_typed_becomes_a_value(schema, text, value):
    assert read(field(schema), text) == value


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer"}, "1.5"),
        ({"type": "integer"}, "9" * 40),
        ({"type": "integer"}, "9" * 5000),
        ({"type": "number"}, "nan"),
        ({"type": "number"}, "1e999"),
        ({"type": "string", "format": "date"}, "2026-02-30"),
        ({"type": "string", "format": "date-time"}, "noon"),
    ],
)
def test_what_is_typed_wrong_is_a_value_error(schema, text):
    with pytest.raises(ValueError, match="expected"):
        read(field(schema), text)


def test_a_moment_without_an_offset_is_meant_here():
    text = read(field({"type": "string", "format": "date-time"}), "2026-08-01 09:30")
    assert text.startswith("2026-08-01T09:30:00")
    assert text[19] in "+-"


# --- answers from a file


async def test_a_file_answers_by_key_by_message_and_one_after_the_other(tmp_path):
    file = tmp_path / "answers.yaml"
    file.write_text("t.a: {city: Oslo}\nWhich one?: Lisbon\nc: [Kyoto, decline]\n")
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}

    def asked(key, message):
        params = {"mode": "form", "message": message, "requestedSchema": schema}
        questions = {key: {"method": "elicitation/create", "params": params}}
        return Pending(method="tools/call", params={"name": "t"}, questions=questions)

    respondent = Respondent(read_answers(file), [], target="a server", file=file)
    given = [
        await respondent.answer(asked(key, message), None, ask=False)
        for key, message in [("a", "?"), ("b", "Which one?"), ("c", "?"), ("c", "?"), ("c", "?"), ("d", "?")]
    ]
    cities = [None if each is None else next(iter(each.values())).get("content") for each in given]
    assert cities == [{"city": "Oslo"}, {"city": "Lisbon"}, {"city": "Kyoto"}, None, None, None]
    assert given[3] == {"c": {"action": "decline"}}
    assert given[4:] == [None, None]
