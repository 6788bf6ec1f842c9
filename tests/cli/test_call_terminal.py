"""`antiphon call` in a real pseudo-terminal: every widget, refusals, reviews, URLs, progress."""

import datetime as dt
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pty", reason="pseudo-terminals are POSIX's")
sys.path.insert(0, str(Path(__file__).parent))

from pseudo_terminal import (
    BACKSPACE,
    CTRL_A,
    CTRL_C,
    CTRL_D,
    CTRL_K,
    DOWN,
    ENTER,
    ESC,
    SPACE,
    UP,
    PseudoTerminal,
)
from served import CLINIC, ODD, SCRIPT, served

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def clinic():
    with served() as url:
        yield url


@pytest.fixture
def call(clinic, tmp_path):
    """Runs a call in a terminal."""
    running = []

    def begin(*args, target=clinic, command="call", **options):
        words = [SCRIPT, command, *([target] if target else []), *args]
        running.append(PseudoTerminal(words, cwd=tmp_path, **options))
        return running[-1]

    yield begin
    for terminal in running:
        terminal.close()


def sent(terminal):
    """What the tool was answered, which these tools give back as JSON or as a table."""
    assert terminal.ends() == 0, terminal.text
    return json.loads(terminal.text[terminal.text.rindex("\n{") :])


# --- who asks


def test_the_server_its_tool_and_the_ways_out_are_shown(call, clinic):
    terminal = call("twice").asks("value:")
    top = terminal.text.splitlines()
    assert top[0].startswith("╭─ clinic asks ─")
    assert top[1].split("│")[1].strip() == "First?"
    assert f"Esc: decline or cancel · twice at {clinic}" in top[2]


def test_control_sequences_of_a_server_are_shown_and_not_obeyed(call):
    terminal = call("rude").asks(r"\x1b[2J\x1b[31mRed\u202e?")
    terminal.types("x", ENTER).asks("Send this?").types(ENTER)
    assert terminal.ends() == 0
    assert terminal.text.endswith(r"\x1b[2Jaccept")
    assert "clinic asks" in terminal.text


def test_a_default_is_shown_with_escapes_and_sent_as_it_is(call):
    terminal = call("sneaky").asks("note", r"\u202eb").types(ENTER).asks("Send this?", r"a\x9b31m\u202eb").types(ENTER)
    assert terminal.ends() == 0
    assert terminal.text.count(r"a\x9b31m\u202eb\U000e0041\x7f#\x23[error]") >= 2, "in the form and in the result"
    shown = terminal.raw.decode()
    assert not {"\x9b", "\u202e", "\U000e0041", "\x7f"} & set(shown)


def test_a_server_on_standard_streams_asks_in_the_same_way(call):
    terminal = call("sure", target=str(CLINIC)).asks("clinic asks", "Really?", "n) No")
    assert terminal.types("y", ENTER).ends() == 0
    assert terminal.text.endswith("\ndone")
    assert "Send this?" not in terminal.text, "yes was chosen, and there is nothing more to look over"


# --- every widget, wrong and then right


def test_every_kind_of_field_is_asked_checked_reviewed_and_sent(call):
    began = dt.datetime.now().astimezone().date()
    terminal = call("visit").asks("As on your card.", "Full name (2 to 30 characters):")
    terminal.types("A", ENTER).asks("Expected at least 2 characters, got 'A'", "Full name")
    terminal.types("da", ENTER).asks("age (a whole number 0 to 130):")
    terminal.types("old", ENTER).asks("Expected a whole number, got 'old'")
    terminal.types(CTRL_A, CTRL_K, "200", ENTER).asks("Expected a number <= 130, got 200")
    terminal.types(BACKSPACE, ENTER).asks("weight (a number at least 0.5):")
    terminal.types("0", ENTER).asks("Expected a number >= 0.5, got 0")
    terminal.types(".75", ENTER).asks("email (an email address):")
    terminal.types("ada", ENTER).asks("Expected an email address such as")
    terminal.types("@example.com", ENTER).asks("day (YYYY-MM-DD")
    terminal.types("2026-02-30", ENTER).asks("Expected a date such as '2026-07-28', got '2026-02-30'")
    terminal.types(CTRL_A, CTRL_K, UP, UP, UP, DOWN, ENTER).asks("moment (such as 2026-07-28 09:30")
    terminal.types("noon", ENTER).asks("Expected a date-time with its offset")
    terminal.types(CTRL_A, CTRL_K, "2026-08-01T09:30:00Z", ENTER).asks("Your first visit?", "» n) No")
    terminal.types("y").sees("» y) Yes").types(ENTER).asks("doctor:", "» Dr Ada")
    terminal.types(DOWN).sees("» Dr Grace").types(ENTER).asks("pains: (1 to 2 of them;", "» ○ head")
    terminal.types(ENTER).asks("Expected at least 1 of the options, got 0")
    terminal.types("a", ENTER).asks("Expected at most 2 of the options, got 3", "● knee")
    terminal.types(SPACE).sees("» ○ head").types(ENTER).asks("note (may be left empty):")
    terminal.types(ENTER).asks("Send this?", "Dr Grace", "back, knee", "left out", "» Send", "Change doctor", "Decline")
    terminal.types(ENTER)
    answer = sent(terminal)
    ended = dt.datetime.now().astimezone().date()
    assert dt.date.fromisoformat(answer.pop("day")) - dt.timedelta(days=1) in {began, ended}
    assert answer == {
        "name": "Ada",
        "age": 20,
        "weight": 0.75,
        "email": "ada@example.com",
        "moment": "2026-08-01T09:30:00Z",
        "first": True,
        "doctor": "g",
        "pains": ["back", "knee"],
    }


def test_defaults_are_filled_in_beforehand(call):
    terminal = call("defaults").asks("city: Oslo")
    terminal.types(ENTER).asks("seats (a whole number): 2")
    terminal.types(ENTER).asks("window:", "» y) Yes")
    terminal.types(ENTER).asks("meal:", "» tofu")
    terminal.types(ENTER).asks("extras:", "● bag", "○ wifi")
    terminal.types(ENTER).asks("Send this?").types(ENTER)
    assert sent(terminal) == {"city": "Oslo", "seats": 2, "window": True, "meal": "tofu", "extras": ["bag"]}


def test_what_is_not_required_may_be_left_out(call):
    terminal = call("optional", "--output", "json").asks("nick (may be left empty):")
    terminal.types(ENTER).asks("vip:", "» l) Leave it open")
    terminal.types(ENTER).asks("size:", "Leave it open")
    terminal.types(DOWN, DOWN).sees("» Leave it open").types(ENTER).asks("toys:")
    terminal.types(ENTER).asks("Send this?")
    assert terminal.fresh.count("left out") == 4
    terminal.types(ENTER)
    assert sent(terminal)["structuredContent"] == {}


def test_enter_alone_never_says_yes(call):
    assert (terminal := call("sure").asks("» n) No").types(ENTER)).ends() == 0
    assert terminal.text.endswith("\nleft alone")


def test_a_form_without_fields_is_accepted_or_not(call):
    terminal = call("consent").asks("Accept?", "» Decline").types(UP).sees("» Accept").types(ENTER)
    assert terminal.ends() == 0
    assert terminal.text.endswith("\naccept")


def test_a_form_beyond_the_protocol_is_asked_for_as_json(call):
    terminal = call("ask", target=str(ODD)).asks("The server asks", "(no message)", "place (as JSON):")
    terminal.types("5", ENTER).asks("Expected an object such as {\"key\": 1}, got '5'")
    terminal.types(CTRL_A, CTRL_K, '{"x": "a"}', ENTER).asks("sizes (as JSON):").types("1,2", ENTER)
    terminal.asks("This cannot be sent.", "» Change place").types(ENTER).asks('? place (as JSON): {"x":"a"}')
    terminal.types(CTRL_A, CTRL_K, '{"x": 1}', ENTER).asks("» Send").types(ENTER)
    assert terminal.ends() == 0
    assert terminal.text.endswith('\n{"action": "accept", "content": {"place": {"x": 1}, "sizes": [1, 2]}}')


# --- review


def test_an_answer_must_be_given_and_can_be_changed_before_it_is_sent(call):
    terminal = call("twice").asks("value:").types(ENTER).asks("This field is required", "? value:")
    terminal.types("wrong", ENTER).asks("value  wrong", "Send this?")
    terminal.types(DOWN).sees("» Change value").types(ENTER).asks("? value: wrong")
    terminal.types(CTRL_A, CTRL_K, "right", ENTER).asks("value  right", "Send this?").types(ENTER)
    terminal.asks("Second?").types("x", ENTER).asks("Send this?").types(ENTER)
    assert terminal.ends() == 0
    assert terminal.text.endswith("\nright then x")


# --- refusals


def test_esc_in_any_widget_offers_to_go_on_to_decline_and_to_cancel(call):
    terminal = call("many", "kinds=name,first,doctor,pains").asks("Question 0.", "Full name")
    terminal.types(ESC).asks("Leave this question?", "» Go on").types(ENTER).asks("? Full name")
    terminal.types(ESC).asks("» Go on").types(ESC).asks("? Full name")
    terminal.types(ESC).asks("» Go on").types(DOWN, ENTER).asks("Question 1.", "first:")
    terminal.types(ESC).asks("» Go on").types(DOWN, DOWN, ENTER).asks("Question 2.", "doctor:")
    terminal.types(ESC).asks("» Go on").types(DOWN, ENTER).asks("Question 3.", "pains:")
    terminal.types(ESC).asks("» Go on").types(DOWN, DOWN, ENTER)
    assert terminal.ends() == 0
    assert terminal.text.endswith("\ndecline cancel decline cancel")


def test_the_review_offers_to_decline_and_to_cancel(call):
    terminal = call("many", "kinds=age,age").asks("Question 0.").types("5", ENTER).asks("Send this?", "Decline: say no")
    terminal.types(DOWN, DOWN, ENTER).asks("Question 1.").types("5", ENTER).asks("Send this?", "Cancel: leave it")
    terminal.types(DOWN, DOWN, DOWN, ENTER)
    assert terminal.ends() == 0
    assert terminal.text.endswith("\ndecline cancel")


def test_an_error_of_the_tool_is_red_and_ends_with_1(call):
    terminal = call("twice").asks("value:").types(ESC).asks("Go on").types(DOWN, ENTER).asks("Second?")
    terminal.types(ESC).asks("Go on").types(DOWN, ENTER)
    assert terminal.ends() == 1
    assert b"\x1b[31mThe user declined the request." in terminal.raw


def test_ctrl_c_ends_with_130(call):
    terminal = call("twice").asks("value:").types(CTRL_C)
    assert terminal.ends() == 130
    assert terminal.text.endswith("Interrupted")
    assert "Traceback" not in terminal.text


def test_the_end_of_the_input_ends_with_4(call):
    terminal = call("twice").asks("value:").types(CTRL_D)
    assert terminal.ends() == 4
    assert "The terminal was closed before 'first' was answered" in terminal.text


def test_a_model_is_not_played_by_a_person(call):
    terminal = call("poem")
    assert terminal.ends() == 4
    assert "clinic asks a model" in terminal.text
    assert "user: Write a poem." in terminal.text
    assert "Pass its text with --answers FILE" in terminal.text


# --- rounds


def test_questions_of_one_round_are_asked_one_after_the_other(call):
    terminal = call("both").asks("Left?", "value:").types("l", ENTER).asks("Send this?").types(ENTER)
    terminal.asks("Right?", "value:").types("r", ENTER).asks("Send this?").types(ENTER)
    assert terminal.ends() == 0
    assert terminal.text.endswith("\nl and r")


def test_a_file_answers_what_it_knows_and_a_person_the_rest(call, tmp_path):
    (tmp_path / "a.yaml").write_text("first: a")
    terminal = call("twice", "--answers", "a.yaml").asks("Second?").types("b", ENTER).asks("Send this?").types(ENTER)
    assert terminal.ends() == 0
    assert terminal.text.endswith("\na then b")
    assert "First?" not in terminal.text


def test_a_waiting_call_is_resumed_in_the_terminal(call, clinic, tmp_path):
    waiting = subprocess.run([SCRIPT, "call", clinic, "twice", "--pending", "p.json"], cwd=tmp_path, check=False)
    assert waiting.returncode == 5
    terminal = call("p.json", target=None, command="resume").asks("clinic asks", "First?")
    terminal.types("a", ENTER).asks("Send this?").types(ENTER).asks("Second?").types(CTRL_C)
    assert terminal.ends() == 130
    terminal = call("p.json", target=None, command="resume").asks("Second?")
    terminal.types("b", ENTER).asks("Send this?").types(ENTER)
    assert terminal.ends() == 0
    assert terminal.text.endswith("\na then b")
    assert list(tmp_path.iterdir()) == []


def test_the_result_alone_goes_to_stdout(call, tmp_path):
    with (tmp_path / "out").open("w") as out:
        assert call("sure", stdout=out).asks("Really?").types("y", ENTER).ends() == 0
    assert (tmp_path / "out").read_text() == "done\n"


# --- URLs


@pytest.fixture
def browser(tmp_path):
    """A browser that writes down what it was given."""
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/visited\n')
    script.chmod(0o755)
    return {"BROWSER": str(script), "DISPLAY": "", "WAYLAND_DISPLAY": ""}


URL = "https://accounts.example.com/connect?" + "x" * 120 + "&end=1"


def test_a_url_is_shown_whole_and_opened_only_on_consent(call, tmp_path, browser):
    terminal = call("pages", f"urls={','.join([URL] * 4)}", env=browser).asks("Page 0.", "Host: accounts.example.com")
    assert URL in terminal.text.replace("\n", "")
    assert b"\x1b[1;7maccounts.example.com\x1b[0m" in terminal.raw
    assert "Warning" not in terminal.text
    terminal.types(DOWN, ENTER).asks("Page 1.").types(DOWN, DOWN, ENTER).asks("Page 2.")
    terminal.types(ESC).asks("Visit this page?").types(DOWN, DOWN, DOWN, ENTER).asks("Page 3.")
    assert not (tmp_path / "visited").exists()
    terminal.asks("» Open it in the browser").types(ENTER)
    assert terminal.ends() == 0
    assert terminal.text.endswith("\naccept decline cancel accept")
    assert (tmp_path / "visited").read_text() == f"{URL}\n"


def test_a_suspicious_url_comes_with_a_warning_and_enter_does_not_open_it(call, tmp_path, browser):
    terminal = call("page", "url=http://xn--80ak6aa92e.com/", env=browser)
    terminal.asks("Warning: It is not https", "Warning: The host is in punycode", "» Decline").types(ENTER)
    assert terminal.ends() == 0
    assert terminal.text.endswith("\ndecline")
    assert not (tmp_path / "visited").exists()


def test_a_browser_that_does_not_open_is_said(call):
    env = {"BROWSER": "/nowhere/browser %s", "DISPLAY": "", "WAYLAND_DISPLAY": "", "PATH": "/nowhere"}
    terminal = call("page", f"url={URL}", env=env).asks("» Open it").types(ENTER)
    terminal.asks("Cannot open a browser", "Visit this page?").types(DOWN, ENTER)
    assert terminal.ends() == 0


# --- progress


def test_progress_is_a_bar_that_makes_room_for_a_question_and_goes(call):
    terminal = call("work").asks("Go on?")
    assert re.search(rb"Step 1.*25%", terminal.raw, re.DOTALL)
    assert "Step" not in terminal.text
    terminal.types("x", ENTER).asks("Send this?").types(ENTER)
    assert terminal.ends() == 0
    assert b"Step 4" in terminal.raw
    assert "Step" not in terminal.text
    assert terminal.text.endswith("\nworked")


def test_results_are_drawn_as_tables(call):
    terminal = call("patients")
    assert terminal.ends() == 0
    assert terminal.text.splitlines()[0].split() == ["name", "age", "vip"]
    assert "[bold]Bob" in terminal.text
