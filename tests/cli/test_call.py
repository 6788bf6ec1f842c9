"""`antiphon call` without a terminal: listing, results, exit codes, answers from a file."""

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))

from clinic import SNEAKY
from served import CLINIC, ODD, served

from antiphon.cli import commands


@pytest.fixture(scope="module")
def clinic():
    with served() as url:
        yield url


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command in this process, in a folder of its own; there is no terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTIPHON_KEYS", raising=False)
    return lambda *args: CliRunner().invoke(commands, args, prog_name="antiphon", catch_exceptions=False)


@pytest.fixture
def call(run, clinic):
    return lambda *args: run("call", clinic, *args)


# --- the ways to a server


def test_a_file_is_called_by_its_path(antiphon):
    ended = antiphon("call", str(CLINIC), "add", "text=hi")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert '"text": "hi"' in ended.stdout


def test_a_command_is_called_in_quotes(run, tmp_path):
    (tmp_path / "mine.py").write_text(CLINIC.read_text() + "\napp.run()\n")
    ended = run("call", f"{sys.executable} mine.py", "sure", "--answers", str(answers(tmp_path, "confirm: false")))
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "left alone\n", "")


def test_a_file_that_is_not_ours_is_run_as_it_is(run, tmp_path):
    (tmp_path / "other.py").write_text("import sys; sys.exit(3)")
    ended = run("call", "other.py")
    assert (ended.exit_code, ended.stderr) == (3, "Error: The server's process ended (exit code 3)\n")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("gone.py", "There is no file gone.py"),
        ("gone-command --x", "there is no command 'gone-command'"),
        ("localhost:8000/mcp", "did you mean http://localhost:8000/mcp?"),
        ("'unclosed", "its quotes do not match"),
        ("", "it is empty"),
        ("http://", "http://"),
    ],
)
def test_a_target_that_leads_nowhere_is_a_usage_error(run, target, said):
    ended = run("call", target)
    assert ended.exit_code == 2
    assert said in ended.stderr


# --- listing


def test_without_a_name_it_lists_what_there_is(call):
    ended = call()
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert ended.output.startswith("clinic 2.1.0\nBooks appointments.\n\nTools\n")
    lines = [" ".join(line.split()) for line in ended.output.splitlines()]
    assert "add Give back what was given." in lines
    assert "text string, required Anything." in lines
    assert "tags list of string = []" in lines
    assert "maybe integer | null" in lines
    assert lines.index("Prompts") < lines.index("letter Write a letter.") < lines.index("to required Who gets it.")
    assert {"card://{id} A patient's card.", "stamp://red A stamp."} <= set(lines)


def test_the_list_as_json_is_what_the_server_sent(call):
    found = json.loads(call("--output", "json").output)
    assert found["server"] == {"name": "clinic", "version": "2.1.0"}
    assert found["resourceTemplates"][0]["uriTemplate"] == "card://{id}"
    assert {tool["name"] for tool in found["tools"]} >= {"add", "visit"}


def test_a_server_need_not_know_every_list(run):
    ended = run("call", str(ODD))
    assert (ended.exit_code, ended.output.split()) == (0, ["Tools", "ask", "strange"])


# --- results


def test_arguments_are_converted_by_the_schema(call):
    ended = call(
        "add", "text=5", "count=5", "ratio=2.5", "loud=yes", "tags=a,b", "sizes=1,2", 'extra={"a": 1}', "maybe=3"
    )
    assert json.loads(ended.output) == {
        "text": "5",
        "count": 5,
        "ratio": 2.5,
        "loud": True,
        "tags": ["a", "b"],
        "sizes": [1, 2],
        "extra": {"a": 1},
        "maybe": 3,
    }


def test_arguments_may_come_as_json(call):
    ended = call("add", "--json", '{"text": "x", "count": 2}', "count=3", "--output", "json")
    assert json.loads(ended.output)["structuredContent"]["count"] == 3


def test_text_is_printed_as_it_is(call):
    assert call("card://7", "--resource").output == "Card 7\n"
    assert call("card://{id}", "id=a b", "--resource").output == "Card a b\n"


def test_a_letter_that_stdout_cannot_say_is_written_as_an_escape(antiphon, clinic):
    for output in ("text", "json"):
        ended = antiphon("call", clinic, "add", "text=\u20ac", "--output", output, env={"PYTHONIOENCODING": "latin-1"})
        assert ended.returncode == 0, ended.stderr
        assert r"\u20ac" in ended.stdout


def test_a_list_of_records_is_a_table(call):
    rows = [line.split() for line in call("patients").output.splitlines()]
    assert rows[0] == ["name", "age", "vip"]
    assert rows[2:] == [["Ada", "36", "true"], ["[bold]Bob", "5", "null"]]


def test_a_record_is_a_table_of_its_fields(call, tmp_path):
    ended = call("one", "kind=age", "--answers", str(answers(tmp_path, "one: 5")))
    assert ended.output.split() == ["age", "5"]


def test_images_are_saved_beside_what_is_there(call, tmp_path):
    (tmp_path / "scan.svg").write_text("mine")
    ended = call("scan")
    assert ended.output == "Saved scan-2.svg (image/svg+xml, 6 bytes)\ncard: file:///card (text/plain)\n"
    assert (tmp_path / "scan-2.svg").read_bytes() == b"<svg/>"
    assert (tmp_path / "scan.svg").read_text() == "mine"


def test_a_binary_resource_is_saved_in_the_folder_that_is_named(call, tmp_path):
    (tmp_path / "out").mkdir()
    ended = call("stamp://red", "--resource", "--save", "out")
    assert ended.output == f"Saved {Path('out/stamp-red.png')} (image/png, 4 bytes)\n"
    assert (tmp_path / "out/stamp-red.png").read_bytes() == b"\x89PNG"


def test_a_prompt_shows_its_messages(call, tmp_path):
    ended = call("letter", "to=Ada", "--prompt", "--answers", str(answers(tmp_path, "letter.about: tea")))
    assert ended.output == "user:\nWrite to Ada, kind, about tea.\n"


def test_the_whole_result_is_printed_as_json(call):
    result = json.loads(call("patients", "--output", "json").output)
    assert result["structuredContent"][0]["name"] == "Ada"
    assert result["content"][0]["type"] == "text"


# --- exit codes


def test_an_error_of_the_tool_goes_to_stderr_and_ends_with_1(call):
    ended = call("fail")
    assert (ended.exit_code, ended.stdout, ended.stderr) == (1, "", "There is no room.\n")
    ended = call("fail", "--output", "json")
    assert (ended.exit_code, json.loads(ended.stdout)["isError"]) == (1, True)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["nothing"], "There is no tool 'nothing'. The server's tools: visit, one,"),
        (["visti"], "There is no tool 'visti'; did you mean 'visit'? The server's tools: visit, one,"),
        (["lettr", "--prompt"], "There is no prompt 'lettr'; did you mean 'letter'?"),
        (["card://1"], "Read a resource with --resource."),
        (["nothing", "--prompt"], "There is no prompt 'nothing'. The server's prompts: letter."),
        (["add", "txt=x"], "There is no argument 'txt'; did you mean 'text'? Known arguments: text, count"),
        (["add"], "1 argument is missing:\n  text=...  Anything."),
        (["add", "text"], "'text' is not an argument: write key=value"),
        (["add", "text=x", "count=many"], "The argument 'count': expected a whole number, got 'many'"),
        (["letter", "--prompt"], "1 argument is missing:\n  to=...  Who gets it."),
        (["card://1", "a=b", "--resource"], "A resource takes no arguments"),
        (["card://{id}", "--resource"], "1 argument is missing:\n  id=..."),
        (["add", "--json", "[]"], "--json takes an object"),
        (["--prompt"], "need a NAME"),
        (["add", "--era", "1999"], "1999"),
        (["add", "--timeout", "0"], "Invalid value for '--timeout'"),
        (["add", "--answers", "gone.yaml"], "gone.yaml"),
        (["add", "--header", "no colon"], "expected 'Name: value'"),
        (["add", "--pending", "no/such/folder.json"], "There is no folder"),
    ],
)
def test_wrong_usage_is_said_and_ends_with_2(call, args, said):
    ended = call(*args)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert said in ended.stderr


def test_headers_belong_to_urls(run):
    assert "--header can only be used with a URL" in run("call", str(CLINIC), "add", "--header", "A: b").stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["crash"], "The server refused: Internal error (error -32603)"),
        (["card-less://1", "--resource"], "The server refused: Resource not found (error -32602)"),
        (["folders"], "Pass roots with --root PATH"),
        (["sleep", "seconds=30", "--timeout", "0.2"], "The server did not answer within 0.2 seconds"),
    ],
)
def test_a_call_that_fails_ends_with_3(call, args, said):
    ended = call(*args)
    assert (ended.exit_code, ended.stdout) == (3, "")
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_server_that_is_not_there_ends_with_3(run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ended = run("call", f"http://127.0.0.1:{taken.getsockname()[1]}/mcp")
    assert ended.exit_code == 3
    assert "Cannot connect to 127.0.0.1" in ended.stderr


def test_a_server_that_dies_ends_with_3(run):
    ended = run("call", str(CLINIC), "leave")
    assert (ended.exit_code, ended.stderr) == (3, "Error: The server's process ended (exit code 7)\n")


def test_a_server_that_breaks_the_protocol_ends_with_3(run):
    ended = run("call", str(ODD), "strange")
    assert (ended.exit_code, ended.stderr) == (3, "Error: The server sent a result of unknown type 'strange'\n")


def test_a_server_that_wants_authentication_is_told_with_the_option_to_give_it(run):
    with answering(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n") as (url, heard):
        ended = run("call", url, "x", "--header", "Authorization: Bearer wrong")
    assert ended.exit_code == 3
    assert "--header 'Authorization: Bearer ...'" in ended.stderr
    assert b"Authorization: Bearer wrong\r\n" in heard[0]


def test_ctrl_c_ends_with_130(start):
    called = start("call", str(CLINIC), "sleep", "seconds=30")
    while "sleeping" not in called.err.get(timeout=20):
        pass
    assert called.signal(2) == 130
    assert "Interrupted\n" in called.text()
    assert "Traceback" not in called.text()


def test_every_exit_code_is_in_the_help(run):
    for command in ("call", "resume"):
        shown = run(command, "--help").output
        assert all(f"\n    {code} " in shown for code in (0, 1, 2, 3, 4, 5, 130))


# --- questions without a terminal


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["twice"], "Cannot answer 'first' (First?): not a terminal. Pass --answers FILE or --pending FILE."),
        (["twice"], "An answer in a file:  first: {value: ...}"),
        (["sure"], "Cannot answer 'confirm' (Really?)"),
        (["consent"], "Cannot answer 'consent' (Do you agree?)"),
        (["defaults"], "Cannot answer 'seat' (Your seat?)"),
        (["page", "url=https://example.com/x"], "Cannot answer 'page' (Sign in, please.)"),
        (["poem"], "Cannot answer 'poem': the server asks for a model"),
        (["rude"], r"Cannot answer 'rude' (\x1b[2J\x1b[31mRed\u202e?)"),
    ],
)
def test_a_question_without_an_answer_fails_and_is_named(call, args, said):
    ended = call(*args)
    assert (ended.exit_code, ended.stdout) == (4, "")
    assert said in ended.stderr


def test_a_call_of_the_old_era_is_not_told_to_wait_in_a_file(call, tmp_path):
    ended = call("twice", "--era", "legacy")
    assert (ended.exit_code, "--pending" in ended.stderr) == (4, False)
    assert "Pass --answers FILE.\n" in ended.stderr
    ended = call("twice", "--era", "legacy", "--pending", str(tmp_path / "p.json"))
    said = "The server speaks 2025-11-25, in which a call cannot wait in a file: pass --answers FILE"
    assert (ended.exit_code, said in ended.stderr) == (4, True)


def test_json_holds_no_letter_that_steers_a_terminal_and_stays_the_same_json(call, tmp_path):
    (tmp_path / "a.yaml").write_text("sneaky: {}")
    ended = call("sneaky", "--output", "json", "--answers", str(tmp_path / "a.yaml"))
    assert json.loads(ended.stdout)["structuredContent"] == {"note": SNEAKY, SNEAKY: "x"}
    assert ended.stdout.isascii()
    assert "\x7f" not in ended.stdout
    assert "##[" not in ended.stdout


def test_what_a_model_is_asked_is_shown(call):
    ended = call("poem")
    assert "system: You are a poet." in ended.stderr
    assert "user: Write a poem." in ended.stderr


# --- answers from a file


def answers(folder, text, name="answers.yaml"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("args", "given", "printed"),
    [
        (["twice"], "first: a\nsecond: {value: b}", "a then b"),
        (["twice"], "twice.first: a\nfirst: x\nsecond: b", "a then b"),
        (["both"], "left: 1st\nright: {action: accept, content: {value: 2nd}}", "1st and 2nd"),
        (["sure"], "confirm: true", "done"),
        (["sure"], "confirm: {action: decline}", "left alone"),
        (["sure"], "confirm: {action: cancel}", "left alone"),
        (["sure"], "confirm: decline", "left alone"),
        (["consent"], "consent: {action: accept}", "accept"),
        (["consent"], "consent: {}", "accept"),
        (["consent"], "consent: {action: cancel}", "cancel"),
        (["page", "url=https://example.com/x"], "page: {action: accept}", "accept"),
        (["page", "url=https://example.com/x"], "page: true", "accept"),
        (["page", "url=https://example.com/x"], "page: {action: decline}", "decline"),
        (["poem"], "poem: Roses are red", "Roses are red"),
        (["poem"], "poem: {role: assistant, model: m, content: {type: text, text: Violets}}", "Violets"),
        (["one", "kind=day"], "one: {day: 2026-08-01}", "day  2026-08-01"),
        (["defaults"], "seat: {city: Rome}", '"city": "Rome"'),
    ],
)
def test_a_file_answers(call, tmp_path, args, given, printed):
    ended = call(*args, "--answers", str(answers(tmp_path, given)))
    assert ended.exit_code == 0, ended.stderr
    assert printed in ended.stdout


def test_a_json_file_answers_as_well(call, tmp_path):
    path = answers(tmp_path, '{"first": "a", "second": "b"}', "answers.json")
    assert call("twice", "--answers", str(path)).output == "a then b\n"


def test_defaults_are_filled_in(call, tmp_path):
    ended = call("defaults", "--answers", str(answers(tmp_path, "seat: {}")))
    assert json.loads(ended.stdout) == {"city": "Oslo", "seats": 2, "window": True, "meal": "tofu", "extras": ["bag"]}


@pytest.mark.parametrize(
    ("args", "given", "said"),
    [
        (["one", "kind=age"], "one: {age: 200}", "'age': expected a number <= 130, got 200"),
        (["one", "kind=age"], "one: {years: 3}", "has 'years', and the form has no such field: it has age"),
        (["one", "kind=age"], "one: {}", "missing required field 'age'"),
        (["one", "kind=age"], "one: old", "'age': expected int, got 'old'"),
        (["defaults"], "seat: {action: declin}", "has the action 'declin': it is accept, decline or cancel"),
        (["defaults"], "seat: {acton: decline}", "has 'acton', and the form has no such field"),
        (["page", "url=https://example.com/x"], "page: https://x", "must be accept, decline or cancel"),
        (["poem"], "poem: [1]", "must be what a model wrote: a text"),
        (["page", "url=https://example.com/x"], "page:", "The answer to 'page' is empty"),
        (["page", "url=https://example.com/x"], "page: [null]", "The answer to 'page' is empty"),
        (["consent"], "consent:", "The answer to 'consent' is empty"),
        (["defaults"], "seat: null", "The answer to 'seat' is empty"),
        (["sure"], "confirm: ~", "The answer to 'confirm' is empty"),
        (["poem"], "poem:", "The answer to 'poem' is empty"),
        (["twice"], "first: a", "Cannot answer 'second'"),
    ],
)
def test_an_answer_that_does_not_fit_fails_and_is_never_a_yes(call, tmp_path, args, given, said):
    ended = call(*args, "--answers", str(answers(tmp_path, given)))
    assert (ended.exit_code, ended.stdout) == (4, "")
    assert said in ended.stderr


@pytest.mark.parametrize(
    ("given", "name", "said"),
    [
        ("a: [", "a.yaml", "a.yaml is not valid YAML"),
        ("- a", "a.yaml", "must be a map"),
        ("5: a", "a.yaml", "must be a map"),
        ("{", "a.json", "a.json is not valid JSON"),
    ],
)
def test_a_file_that_holds_no_answers_is_a_usage_error(call, tmp_path, given, name, said):
    ended = call("twice", "--answers", str(answers(tmp_path, given, name)))
    assert ended.exit_code == 2
    assert said in ended.stderr


def test_roots_are_given_as_paths(call, tmp_path):
    assert call("folders", "--root", str(tmp_path)).output == f"{tmp_path.as_uri()}\n"


# --- verbose


def test_verbose_tells_each_round_and_never_the_token(call, tmp_path):
    path = answers(tmp_path, "first: a\nsecond: b\nthird: c")
    ended = call("twice", "--answers", str(path), "-v", "--pending", "p.json")
    assert ended.stdout == "a then b\n"
    told = ended.stderr
    assert "→ tools/call twice\n" in told
    assert "← asks first: First?, " in told
    assert '→ first: accept {"value": "a"}\n' in told
    assert "Unused answers: third" in told
    assert told.count("← answers, ") >= 2
    assert " ms" in told
    assert "ap1." not in told
    assert "requestState" not in told


def test_without_verbose_nothing_is_told(call, tmp_path):
    assert call("twice", "--answers", str(answers(tmp_path, "first: a\nsecond: b\nthird: c"))).stderr == ""


# --- what is loaded


def test_a_call_without_questions_loads_no_prompts(clinic, tmp_path):
    script = (
        "import sys; from antiphon.cli import commands;"
        f"commands.main(['call', {clinic!r}, 'card://1', '--resource'], standalone_mode=False);"
        "print([m for m in ('rich', 'questionary', 'prompt_toolkit', 'yaml', 'uvicorn') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ended.stdout == "Card 1\n[]\n"


# --- parts


class answering:
    """A server that answers every request with the same bytes."""

    def __init__(self, reply):
        self._reply = reply

    def __enter__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(10)
        self._heard = []
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/mcp", self._heard

    def _answer(self):
        connection, _ = self._socket.accept()
        with connection:
            connection.settimeout(10)
            self._heard.append(connection.recv(65536))
            connection.sendall(self._reply)

    def __exit__(self, *exc):
        self._thread.join()
        self._socket.close()
