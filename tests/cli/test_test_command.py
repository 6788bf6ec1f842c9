"""`antiphon test` and `antiphon init-tests`: what they print, what they write, and how they end."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from antiphon.cli import commands
from antiphon.cli.test import is_of_interest
from antiphon.testing.suite import load

SHOP = Path(__file__).parents[1] / "testing" / "suite" / "shop.py"
GOOD = f"""
server: {{app: '{SHOP}'}}
tests:
  - name: deploys
    tool: deploy
    arguments: {{env: prod}}
    inputResponses: {{confirm: true}}
    expect: {{text: Deployed to prod}}
    tags: [asking]
  - {{name: orders, tool: order, arguments: {{item: tea}}, expect: {{structured: {{$.id: 1}}}}}}
"""


@pytest.fixture
def antiphon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The command, in this process and in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def invoke(*words: str) -> Result:
        done = CliRunner().invoke(commands, [*words])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    return invoke


def write(text: str, name: str = "s.mcp.yaml") -> None:
    Path(name).write_text(text)


def test_what_passes_ends_with_0(antiphon):
    write(GOOD)
    done = antiphon("test", "s.mcp.yaml")
    assert done.exit_code == 0, done.output
    assert "✓ deploys" in done.output
    assert "2 passed in" in done.output


def test_without_a_name_all_suites_of_the_folder_are_run(antiphon):
    write(GOOD)
    Path("more").mkdir()
    write(GOOD, "more/t.mcp.yml")
    write("nonsense", "other.yaml")
    assert "4 passed" in antiphon("test").output
    assert "2 passed" in antiphon("test", "more").output


def test_a_folder_without_suites_is_told(antiphon):
    done = antiphon("test")
    assert done.exit_code == 2
    assert "There are no suites in .: their names end in .mcp.yaml" in done.output


def test_a_test_that_fails_ends_with_1_and_its_conversation(antiphon):
    write(GOOD.replace("Deployed to prod", "Deployed to mars"))
    done = antiphon("test", "s.mcp.yaml")
    assert done.exit_code == 1
    assert "server ◀─ asks confirm: Deploy to prod?" in done.output
    assert "- Deployed to mars" in done.output
    assert "s.mcp.yaml:8:14" in done.output
    assert "1 failed, 1 passed" in done.output


def test_a_broken_suite_ends_with_2_and_every_place(antiphon):
    write(GOOD.replace("arguments: {env", "argumens: {env").replace("structured", "structure"))
    done = antiphon("test", "s.mcp.yaml")
    assert done.exit_code == 2
    assert "s.mcp.yaml:6:5: Unknown key 'argumens' in a test; did you mean 'arguments'?" in done.output
    assert "s.mcp.yaml:10:66: Unknown key 'structure' in an expectation; did you mean 'structured'?" in done.output
    assert "2 problems; nothing was run." in done.output


def test_a_server_that_does_not_start_ends_with_3_and_its_stderr(antiphon):
    write("raise SystemExit('no database')\n", "server.py")
    write("server: {command: [python, server.py], era: modern}\ntests: [{name: a, tool: b}]\n")
    done = antiphon("test", "s.mcp.yaml")
    assert done.exit_code == 3, done.output
    assert "The server did not start: The server's process ended (exit code 1)" in done.output
    assert "no database" in done.output


def test_tests_are_chosen(antiphon):
    write(GOOD)
    assert "1 passed" in antiphon("test", "-k", "deploys and not orders").output
    assert "✓ deploys" in antiphon("test", "--tag", "asking").output
    done = antiphon("test", "-k", "nothing")
    assert (done.exit_code, "No test is selected" in done.output) == (2, True)
    done = antiphon("test", "-k", "a and")
    assert (done.exit_code, "'a and' makes no sense" in done.output) == (2, True)


def test_the_first_failure_stops_the_run_if_wanted(antiphon):
    write(GOOD.replace("Deployed to prod", "x"))
    done = antiphon("test", "-x")
    assert done.exit_code == 1
    assert "1 failed, 1 skipped" in done.output


def test_little_or_much_is_told(antiphon):
    write(GOOD)
    assert antiphon("test", "-q").output.strip().startswith("2 passed in")
    assert "client ─▶ tools/call deploy" in antiphon("test", "-v").output


def test_variables_are_given_on_the_command_line(antiphon):
    write(GOOD.replace("{env: prod}", "{env: '${place}'}").replace("Deployed to prod", "'Deployed to ${place}'"))
    assert "There is no variable 'place' here" in antiphon("test").output
    assert antiphon("test", "--var", "place=mars").exit_code == 0
    assert "expected NAME=VALUE, got 'place'" in antiphon("test", "--var", "place").output


def test_a_time_for_all_calls_is_given_on_the_command_line(antiphon):
    write(f"server: {{app: '{SHOP}'}}\ntests: [{{name: a, tool: slow}}]\n")
    done = antiphon("test", "--timeout", "20ms")
    assert (done.exit_code, "did not answer within 0.02 s" in done.output) == (1, True)
    assert "a duration is written 500ms" in antiphon("test", "--timeout", "soon").output


def test_snapshots_are_kept_and_compared(antiphon):
    write(GOOD.replace("text: Deployed to prod", "snapshot: true"))
    assert "run with --update-snapshots" in antiphon("test").output
    assert antiphon("test", "--update-snapshots").exit_code == 0
    assert antiphon("test").exit_code == 0


def test_reports_are_written(antiphon):
    write(GOOD)
    reports = ["--report", "json=out/r.json", "--report", "junit=r.xml", "--report", "html=r.html"]
    done = antiphon("test", *reports)
    assert done.exit_code == 0, done.output
    assert "2 passed" in done.output
    assert json.loads(Path("out/r.json").read_text())
    assert len(ET.parse("r.xml").findall(".//testcase")) == 2
    assert "deploys" in Path("r.html").read_text()


def test_a_report_without_a_file_is_all_that_is_printed(antiphon):
    write(GOOD)
    assert json.loads(antiphon("test", "--report", "json").output)
    done = antiphon("test", "--report", "pdf")
    assert (done.exit_code, "there is no report 'pdf'" in done.output) == (2, True)


def test_a_run_is_recorded_and_replayed(antiphon):
    write(GOOD)
    assert antiphon("test", "--record", "tapes").exit_code == 0
    write(GOOD.replace(str(SHOP), "gone.py"))
    assert antiphon("test", "--replay", "tapes").exit_code == 0
    assert "exclude each other" in antiphon("test", "--replay", "tapes", "--record", "tapes").output


def test_every_leg_goes_to_another_instance(antiphon):
    write(GOOD)
    assert antiphon("test", "--rotate", "2").exit_code == 0


def test_tests_run_in_both_eras(antiphon):
    write(GOOD)
    done = antiphon("test", "--era", "both")
    assert done.exit_code == 0, done.output
    assert "4 passed" in done.output


def test_several_at_a_time(antiphon):
    write(GOOD)
    assert "2 passed" in antiphon("test", "-j", "4").output


def test_the_format_is_printed_for_editors(antiphon):
    assert json.loads(antiphon("test", "--schema").output)["title"] == "A suite of tests for an MCP server"


def test_replay_safety_is_not_checked_at_the_same_time(antiphon):
    write(GOOD)
    assert "runs with -j 1" in antiphon("test", "--replay-safety", "-j", "2").output
    assert "--effect needs --replay-safety" in antiphon("test", "--effect", "shop.charge").output
    assert "--ignore needs --replay-safety" in antiphon("test", "--ignore", "open").output


def test_what_replay_safety_cannot_see_is_said_once(antiphon):
    write(GOOD)
    assert "cannot observe" not in antiphon("test", "--replay-safety").output
    started = GOOD.replace(f"{{app: '{SHOP}'}}", f"{{command: [python, '{SHOP}']}}")
    assert started != GOOD
    write(started)
    done = antiphon("test", "--replay-safety")
    assert done.exit_code == 0, done.output
    assert done.output.count("--replay-safety cannot observe what the server of s does") == 1


def test_replay_safety_is_not_checked_where_nothing_is_replayed(antiphon):
    write(GOOD)
    assert antiphon("test", "--record", "tapes").exit_code == 0
    done = antiphon("test", "--replay-safety", "--replay", "tapes")
    assert (done.exit_code, "--replay starts no server" in done.output) == (2, True)
    done = antiphon("test", "--replay-safety", "--era", "legacy")
    assert (done.exit_code, "has nothing to check in the legacy era" in done.output) == (2, True)


def test_a_variable_that_no_suite_has_is_refused(antiphon):
    write("variables: {place: prod}\n" + GOOD.replace("{env: prod}", "{env: '${place}'}"))
    write(GOOD, "t.mcp.yaml")
    assert antiphon("test", "--var", "place=prod").exit_code == 0
    done = antiphon("test", "--var", "plaec=prod")
    assert (done.exit_code, "no suite has or uses a variable 'plaec'; did you mean 'place'?" in done.output) == (
        2,
        True,
    )
    assert "'x'; there are place" in antiphon("test", "--var", "x=1").output
    assert "'x'; they have none" in antiphon("test", "t.mcp.yaml", "--var", "x=1").output


def test_two_suites_of_one_name_have_no_recording(antiphon):
    write(GOOD)
    Path("more").mkdir()
    write(GOOD, "more/s.mcp.yaml")
    assert antiphon("test").exit_code == 0
    done = antiphon("test", "--record", "tapes")
    assert (done.exit_code, "are both called 's', and would share a recording" in done.output) == (2, True)


def test_watching_looks_at_what_matters():
    assert is_of_interest("/x/server.py")
    assert is_of_interest("/x/s.mcp.yaml")
    assert not is_of_interest("/x/__snapshots__/s.mcp.yaml.json")
    assert not is_of_interest("/x/notes.txt")


def test_watching_does_not_look_at_what_the_tests_write():
    written = [Path("/x/report.json"), Path("/x/tapes")]
    assert not is_of_interest("/x/report.json", written)
    assert not is_of_interest("/x/tapes/s.json", written)
    assert is_of_interest("/x/data.json", written)


def test_a_change_runs_the_tests_again(tmp_path: Path):
    (tmp_path / "s.mcp.yaml").write_text(GOOD)
    command = [sys.executable, "-m", "antiphon", "test", "--watch", "-k", "orders"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            heard = iter(process.stdout.readline, "")
            assert any("Watching for changes" in line for line in heard)
            (tmp_path / "s.mcp.yaml").write_text(GOOD.replace("name: orders", "name: orders more"))
            assert any("✓ orders more" in line for line in heard)
        finally:
            process.terminate()


# --- init-tests ---------------------------------------------------------------------------------------------------


def test_a_starting_suite_runs_as_it_is(antiphon):
    done = antiphon("init-tests", str(SHOP), "-o", "shop.mcp.yaml")
    assert done.exit_code == 0, done.output
    assert "Wrote shop.mcp.yaml. Run it with  antiphon test shop.mcp.yaml" in done.output
    suite = load("shop.mcp.yaml")
    names = {case.name for case in suite.cases}
    assert {"offers its tools", "order works", "the prompt letter is filled in", "order://{id} is read"} <= names
    arguments = {case.target: case.params.get("arguments") for case in suite.cases}
    assert arguments["deploy"] == {"env": "text"}
    done = antiphon("test", "shop.mcp.yaml", "-k", "order or letter or offers")
    assert done.exit_code == 0, done.output


def test_a_file_that_is_there_is_not_written_over(antiphon):
    write("mine", "shop.mcp.yaml")
    done = antiphon("init-tests", str(SHOP), "-o", "shop.mcp.yaml")
    assert (done.exit_code, Path("shop.mcp.yaml").read_text()) == (2, "mine")
    assert "--force overwrites it" in done.output
    assert antiphon("init-tests", str(SHOP), "-o", "shop.mcp.yaml", "--force").exit_code == 0


def test_a_starting_suite_is_printed_with_the_way_to_its_server(antiphon):
    Path("sub").mkdir()
    write("from antiphon import Server\napp = Server('empty')\n", "sub/empty.py")
    done = antiphon("init-tests", "sub/empty.py")
    assert "server: {app: sub/empty.py}" in done.stdout
    assert "says what it can do" in done.stdout
    assert "server: {app: 'sub/empty.py:app'}" in antiphon("init-tests", "sub/empty.py:app").stdout
    antiphon("init-tests", "sub/empty.py", "-o", "tests/e.mcp.yaml")
    assert "server: {app: ../sub/empty.py}" in Path("tests/e.mcp.yaml").read_text()


def test_a_starting_suite_of_a_command_starts_it_again(antiphon):
    done = antiphon("init-tests", f"{sys.executable} {SHOP}", "-o", "tests/c.mcp.yaml")
    assert done.exit_code == 0, done.output
    suite = load("tests/c.mcp.yaml")
    assert suite.target.command == (sys.executable, str(SHOP))
    assert suite.target.cwd.resolve() == Path.cwd().resolve()


def test_a_server_that_does_not_start_has_no_tests(antiphon):
    write("import antiphon\n1 / 0\n", "bad.py")
    done = antiphon("init-tests", "bad.py")
    assert done.exit_code == 3
    assert "ZeroDivisionError" in done.output


def test_both_commands_explain_themselves(antiphon):
    for name in ("test", "init-tests"):
        assert antiphon(name, "--help").exit_code == 0
    assert isinstance(commands, click.Group)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "minItems": 10**12},
        {"type": "array", "minItems": "2"},
        {"type": "string", "minLength": 10**12},
        {"type": "array", "minItems": 900, "items": {"type": "array", "minItems": 900, "items": {"$ref": "#"}}},
        {
            "type": "object",
            "required": list(map(str, range(90))),
            "properties": {str(n): {"$ref": "#"} for n in range(90)},
        },
    ],
)
def test_a_hostile_schema_makes_up_no_endless_arguments(schema):
    from antiphon.testing.suite.starter import made_up

    assert len(json.dumps(made_up(schema, schema))) < 10_000_000


async def test_made_up_arguments_are_what_schemas_allow():
    from antiphon.shapes import raw_shape
    from antiphon.testing.suite.starter import made_up

    schemas = [
        {"type": "string", "minLength": 9},
        {"type": "string", "maxLength": 2},
        {"type": "string", "format": "email"},
        {"enum": ["b", "c"]},
        {"const": 5},
        {"type": "integer", "minimum": 10},
        {"type": "integer", "exclusiveMinimum": 10},
        {"type": "number", "exclusiveMinimum": 10},
        {"type": "number", "maximum": -3},
        {"type": "integer", "multipleOf": 7},
        {"type": "array", "minItems": 2, "items": {"type": "boolean"}},
        {
            "type": "object",
            "required": ["a"],
            "properties": {"a": {"$ref": "#/$defs/x"}},
            "$defs": {"x": {"type": "null"}},
        },
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"type": ["boolean", "null"]},
        {"$ref": "#/$defs/none"},
        {},
    ]
    for schema in schemas:
        value = made_up(schema, schema)
        if schema != {"$ref": "#/$defs/none"}:
            raw_shape(schema).read(value)
