"""Calls that wait in files: `--pending`, and `antiphon resume` after the server has been started anew."""

import json
import os
import socket
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))

from served import CLINIC, served

from antiphon.cli import commands
from antiphon.rounds.token import generate_key

KEYS = {"ANTIPHON_KEYS": generate_key(bytes(32))}


@pytest.fixture(scope="module")
def clinic():
    with served() as url:
        yield url


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTIPHON_KEYS", raising=False)

    def run(*args, answers=None):
        if answers is not None:
            Path("answers.yaml").write_text(answers)
            args = (*args, "--answers", "answers.yaml")
        return CliRunner().invoke(commands, args, prog_name="antiphon", catch_exceptions=False)

    return run


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def waits_for(path="p.json"):
    return list(json.loads(Path(path).read_text())["pending"]["questions"])


# --- writing


def test_a_question_is_written_instead_of_asked(run, clinic):
    ended = run("call", clinic, "twice", "--pending", "p.json")
    assert (ended.exit_code, ended.stdout) == (5, "")
    assert "The call waits in p.json for 1 answer:\n  first: First?\n" in ended.stderr
    kept = json.loads(Path("p.json").read_text())
    assert kept["target"] == clinic
    assert kept["pending"]["params"] == {"name": "twice", "arguments": {}}
    assert kept["pending"]["state"] not in ended.stderr


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX's")
def test_nobody_else_may_read_the_file(run, clinic):
    run("call", clinic, "twice", "--pending", "p.json")
    assert stat.S_IMODE(Path("p.json").stat().st_mode) == 0o600
    assert [path.name for path in Path().iterdir()] == ["p.json"]


def test_what_a_file_answers_is_not_waited_for(run, clinic):
    ended = run("call", clinic, "twice", "--pending", "p.json", answers="first: a")
    assert (ended.exit_code, waits_for()) == (5, ["second"])
    assert run("resume", "p.json", answers="second: b").stdout == "a then b\n"


def test_a_round_of_which_only_a_part_is_answered_waits_as_a_whole(run, clinic):
    run("call", clinic, "both", "--pending", "p.json", answers="left: a")
    assert waits_for() == ["left", "right"]


def test_a_call_that_asks_nothing_writes_nothing(run, clinic):
    ended = run("call", clinic, "fail", "--pending", "p.json")
    assert ended.exit_code == 1
    assert not Path("p.json").exists()


def test_a_file_that_is_there_is_not_overwritten(run, clinic):
    Path("p.json").write_text("precious")
    ended = run("call", clinic, "twice", "--pending", "p.json")
    assert ended.exit_code == 2
    assert "p.json exists" in ended.stderr
    assert Path("p.json").read_text() == "precious"


def test_samples_prompts_and_resources_wait_too(run, clinic):
    assert run("call", clinic, "poem", "--pending", "p.json").exit_code == 5
    assert run("resume", "p.json", answers="poem: Roses").stdout == "Roses\n"
    assert run("call", clinic, "letter", "to=Ada", "--prompt", "--pending", "p.json").exit_code == 5
    assert run("resume", "p.json", answers="about: tea").stdout == "user:\nWrite to Ada, kind, about tea.\n"


# --- resuming


def test_a_call_is_answered_round_by_round_by_servers_that_come_and_go(run):
    port = free_port()
    with served(port=port, env=KEYS) as url:
        assert run("call", url, "twice", "--pending", "p.json").exit_code == 5
    with served(port=port, env=KEYS):
        ended = run("resume", "p.json", "--pending", "p.json", answers="first: a")
        assert (ended.exit_code, waits_for()) == (5, ["second"])
    with served(port=port, env=KEYS):
        ended = run("resume", "p.json", answers="second: b")
    assert (ended.exit_code, ended.stdout) == (0, "a then b\n")
    assert not Path("p.json").exists()


def test_a_server_on_standard_streams_gets_a_key_that_waits_with_the_call(run):
    assert run("call", str(CLINIC), "twice", "--pending", "p.json").exit_code == 5
    ended = run("resume", "p.json", answers="first: a")
    assert ended.exit_code == 4
    ended = run("resume", "p.json", answers="second: b")
    assert (ended.exit_code, ended.stdout) == (0, "a then b\n")


def test_a_server_on_standard_streams_goes_on_if_it_has_the_same_key(run, monkeypatch):
    monkeypatch.setenv(*next(iter(KEYS.items())))
    assert run("call", str(CLINIC), "twice", "--pending", "p.json").exit_code == 5
    with monkeypatch.context() as patch:
        patch.delenv("ANTIPHON_KEYS")
        ended = run("resume", "p.json", answers="first: a\nsecond: b")
    assert ended.exit_code == 3
    assert "Invalid or expired requestState" in ended.stderr
    assert "ANTIPHON_KEYS" in ended.stderr
    ended = run("resume", "p.json", answers="first: a\nsecond: b")
    assert (ended.exit_code, ended.stdout) == (0, "a then b\n")


def test_a_failure_leaves_the_file_as_it_was(run):
    with served(env=KEYS) as url:
        run("call", url, "twice", "--pending", "p.json")
    before = Path("p.json").read_bytes()
    ended = run("resume", "p.json", answers="first: a\nsecond: b")
    assert (ended.exit_code, Path("p.json").read_bytes()) == (3, before)
    assert "Cannot connect" in ended.stderr
    with served(env=KEYS) as url:
        assert run("resume", "p.json", "--target", url).exit_code == 4
        assert run("resume", "p.json", "--target", url, answers="first: [5]").exit_code == 4
        assert Path("p.json").read_bytes() == before
        assert run("resume", "p.json", "--target", url, answers="first: a\nsecond: b").stdout == "a then b\n"


def test_the_file_follows_the_rounds_so_that_nothing_is_asked_twice(run, clinic):
    run("call", clinic, "twice", "--pending", "p.json")
    ended = run("resume", "p.json", answers="first: a")
    assert ended.exit_code == 4
    assert "Cannot answer 'second'" in ended.stderr
    assert waits_for() == ["second"]
    assert run("resume", "p.json", answers="second: b").stdout == "a then b\n"


def test_the_next_round_may_go_to_another_file(run, clinic):
    run("call", clinic, "twice", "--pending", "p.json")
    ended = run("resume", "p.json", "--pending", "q.json", answers="first: a")
    assert (ended.exit_code, waits_for("q.json")) == (5, ["second"])
    assert not Path("p.json").exists()


def test_an_error_of_the_tool_ends_the_call_as_well(run, clinic):
    run("call", clinic, "twice", "--pending", "p.json")
    ended = run("resume", "p.json", answers="first: {action: decline}\nsecond: b")
    assert (ended.exit_code, ended.stderr) == (1, "The user declined the request.\n")
    assert not Path("p.json").exists()


# --- files that cannot be resumed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"target": "http://x", "pending": {}}',
        '{"target": "http://x", "pending": {"method": "tools/call", "params": {}, "questions": {"a": 5}}}',
        '{"target": "http://x", "pending": {"method": "tools/call", "params": {}, "questions": {}, "version": 9}}',
        "\xff",
    ],
)
def test_a_file_that_holds_no_waiting_call_is_a_usage_error(run, text):
    Path("p.json").write_bytes(text.encode("latin-1"))
    ended = run("resume", "p.json")
    assert ended.exit_code == 2
    assert "p.json holds no waiting call" in ended.stderr


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX's")
def test_a_file_that_others_could_have_written_starts_no_command(run, tmp_path):
    marker = tmp_path / "ran"
    kept = {"target": f"touch {marker}", "pending": {"method": "tools/call", "params": {"name": "x"}, "questions": {}}}
    Path("p.json").write_text(json.dumps(kept))
    Path("p.json").chmod(0o644)
    ended = run("resume", "p.json")
    assert ended.exit_code == 2
    assert "other users may have written it" in ended.stderr
    assert not marker.exists()


# --- lists of answers


ASKS = """
from antiphon import Context, Server, ask, input_required

app = Server("asks")


@app.tool
async def sure(ctx: Context) -> str:
    return f"{await ctx.confirm('One?')} {await ctx.confirm('Two?')}"


@app.tool
async def plain(ctx: Context) -> object:
    if ctx.round < 3:
        return input_required({"go": ask.form("Go on?", bool)})
    return "done"
"""


def test_a_list_of_answers_goes_on_at_the_number_of_the_key(run):
    Path("asks.py").write_text(ASKS)
    assert run("call", "asks.py", "sure", "--pending", "p.json").exit_code == 5
    assert run("resume", "p.json", "--pending", "p.json", answers="confirm: true").exit_code == 5
    assert waits_for() == ["confirm-2"]
    ended = run("resume", "p.json", answers="confirm: [true, false]")
    assert (ended.exit_code, ended.stdout) == (0, "True False\n")


def test_a_list_is_used_from_its_start_if_the_call_was_not_answered_before(run):
    Path("asks.py").write_text(ASKS)
    assert run("call", "asks.py", "sure", "--pending", "p.json").exit_code == 5
    assert run("resume", "p.json", answers="confirm: [true, false]").stdout == "True False\n"


def test_a_list_is_not_guessed_at_when_a_key_without_a_number_is_resumed(run):
    Path("asks.py").write_text(ASKS)
    assert run("call", "asks.py", "plain", "--pending", "p.json").exit_code == 5
    ended = run("resume", "p.json", "--pending", "p.json", answers="go: [true]")
    assert (ended.exit_code, waits_for()) == (5, ["go"])
    ended = run("resume", "p.json", answers="go: [false, true]")
    assert ended.exit_code == 4
    assert "it is not known which answer of the list under 'go' is next" in ended.stderr
    assert run("resume", "p.json", answers="go: true").stdout == "done\n"


def test_a_list_that_has_run_out_is_not_asked_for_again(run, clinic):
    Path("asks.py").write_text(ASKS)
    ended = run("call", "asks.py", "sure", answers="confirm: [true]")
    assert ended.exit_code == 4
    assert "answers.yaml has no answer for it, or none that is left" in ended.stderr
    assert "--answers FILE" not in ended.stderr
    assert "--answers FILE" not in run("call", clinic, "poem", answers="other: x").stderr


# --- files that cannot be read


@pytest.mark.parametrize(
    "answers",
    [
        "confirm: &a [*a]",
        "[" * 100_000,
        "confirm: " + "[" * 101 + "]" * 101,
        "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 50)),
        "- a: 1\n b",
    ],
    ids=["itself", "unclosed", "deep", "multiplied", "broken"],
)
def test_answers_that_contain_themselves_or_too_much_are_a_usage_error(run, answers):
    ended = run("call", str(CLINIC), "sure", answers=answers)
    assert ended.exit_code == 2
    assert "answers.yaml is not valid YAML" in ended.stderr
