"""Running suites against a server in this process."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from antiphon.testing.suite import Outcome, Running, Selection, Settings, Suite, Summary, loads, run

SHOP = Path(__file__).parent / "shop.py"


def suite(tests: str, more: str = "", *, server: str = f"{{app: {SHOP}}}", folder: Path = Path("/tmp")) -> Suite:
    text = f"server: {server}\n{dedent(more)}\ntests:\n{indent(dedent(tests), '  ')}"
    return loads(text, folder / "s.mcp.yaml")


async def outcomes(tests: str, more: str = "", selection: Selection | None = None, **settings: Any) -> list[Outcome]:
    made = await run(suite(tests, more), settings=Settings(**settings), selection=selection or Selection())
    return list(made.outcomes)


async def outcome(test: str, more: str = "", **settings: Any) -> Outcome:
    (made,) = await outcomes(test, more, **settings)
    return made


# --- what passes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "test",
    [
        "{tool: deploy, arguments: {env: x}, inputResponses: {confirm: {confirm: true}}, expect: {asked: [confirm]}}",
        "{tool: deploy, arguments: {env: x}, inputResponses: {confirm: true}, expect: {text: Deployed to x}}",
        "{tool: deploy, arguments: {env: x}, inputResponses: {confirm: true}, expect: {rounds: {min: 2, max: 2}}}",
        "{tool: survey, inputResponses: {name: cancel}, expect: {isError: true, asked: [name: Your name?]}}",
        "{tool: survey, inputResponses: {name: cancel}, expect: {isError: true, asked: [{name: {length: 10}}]}}",
        "{tool: deploy, arguments: {env: x}, inputResponses: {confirm: false}, expect: {text: {not: Deployed to x}}}",
        "{tool: deploy, arguments: {env: x}, inputResponses: {confirm: decline}, expect: {text: Not deployed}}",
        "{tool: survey, inputResponses: {name: {action: cancel}}, expect: {isError: true, text: {contains: cancel}}}",
        "{tool: survey, inputResponses: {name: Ann, age: 7}, expect: {text: Ann is 7, rounds: 3, asked: [name, age]}}",
        "{tool: four, inputResponses: {hello: {sample: Hi}, where: {roots: ['file:///x']}}, expect: {rounds: 2}}",
        "{tool: four, inputResponses: {hello: Hi, where: {roots: ['file:///x']}}, expect: {asked: [hello, where]}}",
        "{tool: order, arguments: {item: tea}, expect: {structured: {$.item: tea, $.tags: [new, paid]}}}",
        "{tool: order, arguments: {item: tea}, expect: {structured: {$.who.age: {min: 18}}}}",
        "{tool: order, arguments: {item: tea}, expect: {structured: {contains: {who: {name: Ann}}}}}",
        "{tool: order, arguments: {item: tea}, expect: {structured: {$.none: {exists: false}, $.id: {type: integer}}}}",
        "{tool: order, arguments: {item: tea}, expect: {schema: {required: [id], properties: {id: {type: integer}}}}}",
        "{tool: order, arguments: {item: tea}, expect: {result: {'$.content[0].type': text}}}",
        "{tool: order, arguments: {itm: tea}, expect: {isError: true, text: {contains: item}}}",
        "{tool: fail, expect: {isError: true, text: 'Failed: no reason', structured: {exists: false}}}",
        "{tool: nonsense, expect: {error: true}}",
        "{tool: order, arguments: {item: x}, expect: {error: false}}",
        "{tool: fail, expect: {error: false, isError: true}}",
        "{tool: nonsense, expect: {error: -32602}}",
        "{tool: nonsense, expect: {error: {code: -32602, message: {contains: nonsense}}, rounds: 1, asked: []}}",
        "{prompt: letter, arguments: {to: Ann}, expect: {text: 'Dear Ann,', result: {'$.messages[0].role': user}}}",
        "{prompt: letter, arguments: {to: 5}, expect: {text: 'Dear 5,'}}",
        "{resource: 'order://3', expect: {text: Order 3}}",
        "{resource: 'else://3', expect: {error: {data: {$.uri: 'else://3'}}}}",
        "{method: tools/list, expect: {result: {'$.tools[*].name': {contains: [order, deploy]}}}}",
        "{method: tools/call, params: {name: fail, arguments: {why: x}}, expect: {isError: true, text: 'Failed: x'}}",
        "{method: tools/call, params: {nme: fail}, expect: {error: -32602}}",
        "{method: no/such, expect: {error: {code: -32601}}}",
    ],
)
async def test_a_test_passes(test: str):
    made = await outcome(f"- {{name: a, {test[1:]}")
    assert made.status == "passed", (made.problem, made.failures)
    assert made.era == "2026-07-28"
    assert made.turns


# --- what does not ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("test", "name", "problem"),
    [
        ("{tool: fail}", "isError", "The tool failed: Failed: no reason"),
        ("{tool: fail, expect: {isError: false}}", "isError", "The tool failed: Failed: no reason"),
        ("{tool: order, arguments: {item: x}, expect: {isError: true}}", "isError", "The tool did not fail: "),
        ("{tool: fail, expect: {error: false}}", "isError", "The tool failed: Failed: no reason"),
        (
            "{tool: nonsense, expect: {error: false}}",
            "error",
            "The server refused: Unknown tool: nonsense (error -32602)",
        ),
        ("{tool: fail, expect: {error: true}}", "error", "A JSON-RPC error was expected, and the tool failed, which"),
        ("{tool: nonsense}", "error", "The server refused: Unknown tool: nonsense (error -32602)"),
        ("{tool: order, arguments: {item: x}, expect: {error: true}}", "error", "A JSON-RPC error was expected, and a"),
        ("{tool: nonsense, expect: {error: -32601}}", "error.code", "The error's code is -32602, and not -32601"),
        ("{tool: nonsense, expect: {error: {message: x}}}", "error.message", "The error's message is "),
        ("{tool: nonsense, expect: {error: true, text: x}}", "text", "There is no result: the server refused"),
        ("{tool: fail, expect: {isError: true, text: x}}", "text", 'The text is "Failed: no reason", and not "x"'),
        (
            "{tool: order, arguments: {item: x}, expect: {structured: {$.id: x}}}",
            "structured.$.id",
            "structured.$.id is ",
        ),
        (
            "{tool: fail, expect: {isError: true, structured: {}}}",
            "structured",
            "The structured content is nothing, and",
        ),
        (
            "{tool: fail, expect: {isError: true, schema: {}}}",
            "schema",
            "There is no structured content to hold to the",
        ),
        (
            "{tool: order, arguments: {item: x}, expect: {schema: {required: [z]}}}",
            "schema",
            "The structured content does",
        ),
        ("{tool: order, arguments: {item: x}, expect: {rounds: 2}}", "rounds", "The number of rounds is 1, and not 2"),
        ("{tool: order, arguments: {item: x}, expect: {asked: [a]}}", "asked", 'The server asked [], and not ["a"]'),
        (
            "{tool: deploy, arguments: {env: x}, inputResponses: {confirm: true}, expect: {asked: [confirm: Sure?]}}",
            "asked.confirm",
            'The message of \'confirm\' is "Deploy to x?", and not "Sure?"',
        ),
        (
            "{tool: order, arguments: {item: x}, capture: {z: $.z}}",
            "capture.z",
            "There is nothing to capture as 'z': resu",
        ),
        (
            "{tool: order, arguments: {item: x}, expect: {snapshot: true}}",
            "snapshot",
            "There is no snapshot 'a' yet: run",
        ),
    ],
)
async def test_a_test_fails_and_says_why(test: str, name: str, problem: str):
    made = await outcome(f"- {{name: a, {test[1:]}")
    assert made.status == "failed", made.problem
    (failed,) = made.failures
    assert failed.name == name
    assert failed.problem.startswith(problem), failed.problem
    assert failed.place is not None
    assert failed.place.line >= 4


@pytest.mark.parametrize(
    ("test", "problem"),
    [
        (
            "{tool: deploy, arguments: {env: prod}}",
            "The server asks 'confirm' (a form, 'Deploy to prod?', with confirm: boolean), and the test has no",
        ),
        (
            "{tool: deploy, arguments: {env: prod}, inputResponses: {confrim: true}}",
            "It answers 'confrim'. Is 'confrim' meant to be 'confirm'?",
        ),
        (
            "{tool: guess, maxRounds: 3, inputResponses: {guess-0: 1, guess-1: 1, guess-2: 1, guess-3: 1}}",
            "The server asked for input 4 times and still has no result: 'maxRounds' allows 3",
        ),
        (
            "{tool: slow, timeout: 20ms}",
            "The server did not answer within 0.02 s ('timeout' says how long it may",
        ),
        (
            "{tool: deploy, arguments: {env: x}, inputResponses: {confirm: maybe}}",
            "The answer to 'confirm' does not fit",
        ),
    ],
)
async def test_a_test_that_cannot_be_carried_out_says_why(test: str, problem: str):
    made = await outcome(f"- {{name: a, {test[1:]}")
    assert made.status == "broken"
    assert problem in made.problem


async def test_a_broken_test_shows_its_rounds():
    made = await outcome("- {name: a, tool: survey, inputResponses: {name: Ann}}")
    assert [list(turn.questions) for turn in made.turns] == [["name"], ["age"]]
    assert made.turns[1].answers == {"name": {"action": "accept", "content": {"value": "Ann"}}}


async def test_a_timeout_of_the_run_goes_before_those_of_suites():
    made = await outcome("- {name: a, tool: slow, timeout: 1m}", timeout=0.02)
    assert "within 0.02 s" in made.problem


# --- answers that nobody asks for ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("{tool: order, arguments: {item: x}, inputResponses: {sure: true}}", "'sure'. The server asked nothing."),
        (
            "{tool: deploy, arguments: {env: x}, inputResponses: {confirm: true, Sure?: true, roots: []}}",
            "'Sure?', 'roots'. The server asked 'confirm'.",
        ),
        (
            "{tool: count, inputResponses: {n: [1, 2, 3, 4, 5]}}",
            "'n' (used 3 of 5 times). The server asked 'n', 'n-2', 'n-3'.",
        ),
    ],
)
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_an_answer_that_nobody_asks_for_fails_the_test(test: str, told: str, era: Any):
    made = await outcome(f"- {{name: a, {test[1:]}", era=era)
    assert [(check.name, check.problem) for check in made.failures] == [
        (
            "inputResponses",
            f"Answers that were not asked for: {told} ('unusedResponses: ignore' allows it)",
        )
    ]
    assert (await outcome(f"- {{name: a, unusedResponses: ignore, {test[1:]}", era=era)).status == "passed"


async def test_a_call_that_fails_on_the_way_is_told_once():
    for test in ("{name: a, tool: fail, inputResponses: {x: 1}}", "{name: a, tool: nonsense, inputResponses: {x: 1}}"):
        assert [check.name for check in (await outcome(f"- {test}")).failures] in (["isError"], ["error"])
    made = await outcome("- {name: a, tool: fail, inputResponses: {x: 1}, expect: {isError: true}}")
    assert [check.name for check in made.failures] == ["inputResponses"]


async def test_answers_for_all_tests_need_not_be_used():
    made = await outcomes(
        """
        - {name: a, tool: order, arguments: {item: x}}
        - {name: b, tool: deploy, arguments: {env: x}, inputResponses: {confirm: false}, expect: {text: Not deployed}}
        - {name: c, tool: order, arguments: {item: x}, inputResponses: {'${word}': 1}}
        - {name: d, tool: order, arguments: {item: x}, inputResponses: {sure: 1}, unusedResponses: ignore}
        """,
        "variables: {word: sure}\ndefaults: {inputResponses: {confirm: true, spare: 1}}",
    )
    assert [one.status for one in made] == ["passed", "passed", "failed", "passed"], [one.failures for one in made]
    assert "not asked for: 'sure'." in made[2].failures[0].problem


async def test_several_choices_are_one_answer_and_used():
    test = "- {name: a, tool: colours, inputResponses: {which: [red, blue]}, expect: {text: \"['red', 'blue']\"}}"
    for era in ("modern", "legacy"):
        made = await outcome(test, era=era)
        assert made.status == "passed", made


# --- several tests ------------------------------------------------------------------------------------------------


async def test_values_are_captured_and_used():
    made = await outcomes("""
        - name: a
          tool: order
          arguments: {item: x}
          capture: {id: $.structuredContent.id, who: $.structuredContent.who}
        - {name: b, resource: 'order://${id}', expect: {text: 'Order ${id}'}, capture: {word: {text: '\\w+'}}}
        - {name: c, tool: order, arguments: {item: '${word}'}, expect: {structured: {$.item: Order, $.who: '${who}'}}}
        - {name: d, tool: fail, arguments: {why: '${word} ${id}'}, expect: {isError: true, text: 'Failed: Order 1'}}
    """)
    assert [one.status for one in made] == ["passed"] * 4, [one.failures for one in made]


async def test_a_test_whose_value_was_not_captured_is_skipped():
    made = await outcomes("""
        - {name: a, tool: nonsense, capture: {id: $.id}}
        - {name: b, resource: 'order://${id}'}
    """)
    assert [(one.status, one.problem) for one in made][1] == (
        "skipped",
        "It needs 'id', which no test before it has captured",
    )


async def test_variables_and_defaults_reach_every_test():
    made = await outcome(
        "- {name: a, tool: deploy, arguments: {env: '${env}'}, expect: {text: 'Deployed to ${env}'}}",
        "variables: {env: prod}\ndefaults: {inputResponses: {confirm: true}}",
    )
    assert made.status == "passed", made


async def test_tests_share_a_server_and_isolated_ones_do_not():
    made = await outcomes("""
        - {name: a, tool: order, arguments: {item: x}, expect: {structured: {$.id: 1}}}
        - {name: b, tool: order, arguments: {item: x}, expect: {structured: {$.id: 2}}}
        - {name: c, tool: order, arguments: {item: x}, isolated: true, expect: {structured: {$.id: 1}}}
        - {name: d, tool: order, arguments: {item: x}, expect: {structured: {$.id: 3}}}
    """)
    assert [one.status for one in made] == ["passed"] * 4, [one.failures for one in made]


async def test_a_test_is_skipped_with_its_reason():
    made = await outcomes(
        "- {name: a, tool: x, skip: true}\n- {name: b, tool: y, skip: not yet}\n- {name: c, tool: z, era: legacy}"
    )
    assert [(one.status, one.problem) for one in made] == [
        ("skipped", "skipped by the suite"),
        ("skipped", "not yet"),
        ("skipped", "It is for the legacy era alone"),
    ]


async def test_the_first_failure_stops_a_run_that_is_told_so():
    made = await outcomes("- {name: a, tool: fail}\n- {name: b, tool: fail}", fail_fast=True)
    assert [one.status for one in made] == ["failed", "skipped"]
    assert "--fail-fast" in made[1].problem


async def test_many_tests_run_at_a_time_and_are_told_in_order():
    tests = "\n".join(
        f"- {{name: t{n}, tool: deploy, arguments: {{env: e{n}}}, expect: {{text: Deployed to e{n}}}}}"
        for n in range(20)
    )
    heard: list[str] = []
    many = suite(tests, "defaults: {inputResponses: {confirm: true}}")
    made = await run(many, settings=Settings(jobs=8), on_outcome=lambda one: heard.append(one.name))
    assert [one.name for one in made.outcomes] == [f"t{n}" for n in range(20)]
    assert sorted(heard) == sorted(one.name for one in made.outcomes)
    assert made.passed


async def test_tests_at_a_time_wait_for_those_that_they_need():
    made = await outcomes(
        """
        - {name: a, tool: order, arguments: {item: x}, capture: {id: $.structuredContent.id}}
        - {name: b, resource: 'order://${id}', capture: {text: {text: .+}}}
        - {name: c, tool: fail, arguments: {why: '${text}'}, expect: {isError: true, text: 'Failed: Order 1'}}
        """,
        jobs=4,
    )
    assert [one.status for one in made] == ["passed"] * 3, [one.failures for one in made]


async def test_a_serial_suite_keeps_its_order_whatever_the_jobs():
    heard: list[str] = []
    tests = "\n".join(
        f"- {{name: t{n}, tool: order, arguments: {{item: x}}, expect: {{structured: {{$.id: {n + 1}}}}}}}"
        for n in range(9)
    )
    made = await run(
        suite(tests, "serial: true"), settings=Settings(jobs=9), on_outcome=lambda one: heard.append(one.name)
    )
    assert made.passed
    assert heard == [f"t{n}" for n in range(9)]


async def test_only_what_is_chosen_runs():
    made = await outcomes(
        "- {name: a, tool: fail}\n- {name: b, tool: order, arguments: {item: x}}", selection=Selection(expression="b")
    )
    assert [(one.name, one.status) for one in made] == [("b", "passed")]


async def test_a_summary_counts():
    made: Summary = await run(suite("- {name: a, tool: fail}\n- {name: b, tool: x, skip: true}"))
    assert (made.count("failed"), made.count("skipped"), made.passed, made.unstarted) == (1, 1, False, ())


async def test_a_suite_is_run_item_by_item():
    cases = suite("- {name: a, tool: order, arguments: {item: x}}\n- {name: b, tool: fail}")
    async with Running(cases) as running:
        made = [await running.run(case) for case in cases.cases]
    assert [one.status for one in made] == ["passed", "failed"]


async def test_an_app_sees_the_environment_of_its_suite_and_nobody_else_does():
    server = f"{{app: '{SHOP}:app', env: {{SHOP_COLOUR: red}}}}"
    made = await run(
        suite("- {name: a, tool: setting, arguments: {name: SHOP_COLOUR}, expect: {text: red}}", server=server)
    )
    assert made.passed, made.outcomes
    assert "SHOP_COLOUR" not in os.environ


async def test_what_an_app_logs_is_told_with_the_test_that_failed():
    first, second = await outcomes("- {name: a, tool: crash}\n- {name: b, tool: fail}")
    assert "RuntimeError: The till is on fire" in first.log
    assert second.log == ""


async def test_a_variable_that_spoils_a_regular_expression_is_told():
    test = "- {name: a, tool: fail, expect: {isError: true, text: {matches: '${word}'}}}"
    made = await outcome(test, "variables: {word: '('}")
    assert (made.status, made.problem[:31]) == ("broken", "'(' is not a regular expression")


# --- snapshots ----------------------------------------------------------------------------------------------------


async def test_a_snapshot_is_kept_compared_and_kept_anew(tmp_path: Path):
    def made(item: str) -> Suite:
        text = f"- {{name: a, tool: order, arguments: {{item: {item}}}, expect: {{snapshot: {{ignore: [$.content]}}}}}}"
        return suite(text, folder=tmp_path)

    async def ran(item: str, *, update: bool = False) -> Outcome:
        (one,) = (await run(made(item), settings=Settings(update_snapshots=update))).outcomes
        return one

    assert (await ran("tea")).status == "failed"
    assert (await ran("tea", update=True)).status == "passed"
    file = tmp_path / "__snapshots__" / "s.mcp.yaml" / "a.json"
    kept = json.loads(file.read_text())
    assert kept["structuredContent"]["item"] == "tea"
    assert kept["content"] == "(ignored)"
    assert "_meta" not in kept
    assert (await ran("tea")).status == "passed"
    other = await ran("coffee")
    assert "The result differs from the snapshot 'a'" in other.failures[0].problem
    assert (await ran("coffee", update=True)).status == "passed"
    assert json.loads(file.read_text())["structuredContent"]["item"] == "coffee"
    file.write_text("{")
    assert "cannot be read" in (await ran("coffee")).problem


async def test_a_snapshot_that_cannot_be_written_breaks_its_test_alone(tmp_path: Path):
    (tmp_path / "__snapshots__").symlink_to(tmp_path / "gone")
    test = "- {name: %s, tool: order, arguments: {item: tea}%s}"
    tests = f"{test % ('a', ', expect: {snapshot: true}')}\n{test % ('b', '')}"
    made = await run(suite(tests, folder=tmp_path), settings=Settings(update_snapshots=True))
    assert [one.status for one in made.outcomes] == ["broken", "passed"]
    assert "a.json cannot be written" in made.outcomes[0].problem


async def test_two_tests_with_one_snapshot_must_agree(tmp_path: Path):
    test = "- {name: %s, tool: fail, arguments: {why: %s}, expect: {isError: true, snapshot: shared}}"
    update = Settings(update_snapshots=True)
    agreed = suite(f"{test % ('a', 'x')}\n{test % ('b', 'x')}", folder=tmp_path)
    assert (await run(agreed, settings=update)).passed
    assert (await run(agreed)).passed
    made = await run(suite(f"{test % ('a', 'x')}\n{test % ('b', 'y')}", folder=tmp_path), settings=update)
    assert [one.status for one in made.outcomes] == ["passed", "failed"]
    assert "The snapshot 'shared' is also that of 'a', whose result differs" in made.outcomes[1].failures[0].problem
    again = await run(suite(test % ("b", "y"), folder=tmp_path), settings=update)
    assert again.passed, "it is another run"


async def test_snapshots_of_several_runs_at_a_time_are_all_kept(tmp_path: Path):
    test = "- {name: t%d, prompt: letter, arguments: {to: x}, expect: {snapshot: true}}"
    whole = suite("\n".join(test % number for number in range(6)), folder=tmp_path)
    update = Settings(update_snapshots=True)
    async with Running(whole, settings=update) as one, Running(whole, settings=update) as other:
        for number, case in enumerate(whole.cases):
            assert (await (one if number % 2 else other).run(case)).status == "passed"
    assert (await run(whole)).passed
    folder = tmp_path / "__snapshots__" / "s.mcp.yaml"
    kept = {file.name: file.read_text() for file in folder.iterdir()}
    assert sorted(kept) == [f"t{n}.json" for n in range(6)]
    for jobs in (1, 8):
        again = Settings(update_snapshots=True, era="both", jobs=jobs)
        shutil.rmtree(folder)
        assert (await run(whole, settings=again)).passed
        assert {file.name: file.read_text() for file in folder.iterdir()} == kept


WRITER = """
import sys
from pathlib import Path
from antiphon.testing.snapshots import Snapshots
kept = Snapshots(Path("kept"), update=True)
for number in range(20):
    kept.put(f"{sys.argv[1]}-{number}", number)
    kept.put("shared", sys.argv[1])
    assert kept.get("shared") in {"a", "b", "c"}
"""


def test_snapshots_of_several_processes_are_all_kept(tmp_path: Path):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name], cwd=tmp_path) for name in "abc"]
    assert [writer.wait(30) for writer in writers] == [0, 0, 0]
    found = {file.name for file in (tmp_path / "kept").iterdir()}
    assert found == {"shared.json", *(f"{name}-{number}.json" for name in "abc" for number in range(20))}


# --- answers over HTTP --------------------------------------------------------------------------------------------


class Desk(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.heard.append((question, self.headers.get("X-Token")))  # type: ignore[attr-defined]
        answers = {"name": b'"Ann"', "age": b'{"value": 41}', "confirm": b"null", "hello": b"not JSON"}
        answers["roots"] = b'["file:///desk"]'
        self.send_response(200 if question["key"] in answers else 404)
        self.end_headers()
        self.wfile.write(answers.get(question["key"], b""))

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def desk() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Desk) as server:
        server.heard = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("given", ["", "null", "[null]", "{action: null}"])
async def test_an_empty_answer_is_never_a_yes(given: str, tmp_path: Path):
    (tmp_path / "asking.py").write_text(
        dedent(
            """
            from antiphon import Context, Server

            app = Server("asking")

            @app.tool
            async def page(ctx: Context) -> str:
                return (await ctx.elicit_url("Pay", "https://example.com/pay", key="ok")).action

            @app.tool
            async def consent(ctx: Context) -> str:
                return (await ctx.elicit("Sure?", {"type": "object", "properties": {}}, key="ok")).action
            """
        )
    )
    tests = "\n".join(
        f"- {{name: {name}, tool: {name}, inputResponses: {{ok: {given}}}}}" for name in ("page", "consent")
    )
    made = await run(suite(tests, server=f"{{app: {tmp_path / 'asking.py'}}}"))
    assert [one.status for one in made.outcomes] == ["broken", "broken"]
    assert all("The answer to 'ok'" in one.problem for one in made.outcomes)


async def test_questions_are_posted_to_a_responder(desk: HTTPServer):
    url = f"http://127.0.0.1:{desk.server_port}/"
    responder = f"inputResponder: {{url: '{url}', headers: {{X-Token: s3cret}}}}"
    made = await outcomes(
        f"""
        - {{name: a, tool: survey, {responder}, expect: {{text: Ann is 41, asked: [name, age]}}}}
        - {{name: b, tool: survey, {responder}, inputResponses: {{age: 5}}, expect: {{text: Ann is 5}}}}
        - {{name: c, tool: deploy, arguments: {{env: x}}, {responder}}}
        - {{name: d, tool: guess, {responder}}}
        - {{name: e, tool: deploy, arguments: {{env: x}}, inputResponder: {{url: 'http://127.0.0.1:9/'}}}}
        """
    )
    assert [one.status for one in made] == ["passed", "passed", "broken", "broken", "broken"], [
        one.problem for one in made
    ]
    assert f"the test has no answer for it. The responder at {url} gave none." in made[2].problem
    assert f"was posted to {url}, which gave no answer: HTTP status 404" in made[3].problem
    assert "Connection refused" in made[4].problem
    assert "was posted to http://127.0.0.1:9/" in made[4].problem
    question, token = desk.heard[0]  # type: ignore[attr-defined]
    assert token == "s3cret"
    assert (question["key"], question["tool"], question["round"]) == ("name", "survey", 1)
    assert question["params"]["message"] == "Your name?"


async def test_roots_are_asked_of_a_responder_too(desk: HTTPServer):
    responder = f"inputResponder: {{url: 'http://127.0.0.1:{desk.server_port}/'}}"
    made = await outcomes(
        f"""
        - {{name: a, tool: four, {responder}, inputResponses: {{hello: Hi}}, expect: {{text: "Hi in file:///desk"}}}}
        - {{name: b, tool: four, {responder}, inputResponses: {{hello: Hi, x: {{roots: ["file:///x"]}}}},
            expect: {{text: "Hi in file:///x"}}}}
        """
    )
    assert [one.status for one in made] == ["passed", "passed"], [one.problem for one in made]
    assert [question["method"] for question, _ in desk.heard] == ["roots/list"]  # type: ignore[attr-defined]


# --- rotation, recording ------------------------------------------------------------------------------------------


async def test_every_leg_of_a_rotation_meets_a_fresh_server():
    made = await outcomes(
        """
        - {name: a, tool: survey, inputResponses: {name: Ann, age: 7}, expect: {text: Ann is 7, rounds: 3}}
        - {name: b, tool: order, arguments: {item: x}, expect: {structured: {$.id: 1}}}
        - {name: c, tool: order, arguments: {item: x}, expect: {structured: {$.id: 1}}}
        """,
        rotate=2,
    )
    assert [one.status for one in made] == ["passed"] * 3, [(one.problem, one.failures) for one in made]
    assert not os.environ.get("ANTIPHON_KEYS")


async def test_a_suite_is_recorded_and_replayed_without_its_server(tmp_path: Path):
    tests = (
        "- {name: a, tool: deploy, arguments: {env: x}, inputResponses: {confirm: %s}, expect: {text: Deployed to x}}"
    )
    assert (await outcome(tests % "true", record=tmp_path)).status == "passed"
    assert os.listdir(tmp_path) == ["s.json"]  # noqa: PTH208 -- in an async function
    first = (tmp_path / "s.json").read_bytes()
    assert (await outcome(tests % "true", record=tmp_path)).status == "passed"
    assert (tmp_path / "s.json").read_bytes() == first
    server = "{app: no_such_file.py}"
    made = await run(suite(tests % "true", server=server), settings=Settings(replay=tmp_path))
    assert made.passed, made.outcomes
    (drifted,) = (await run(suite(tests % "false", server=server), settings=Settings(replay=tmp_path))).outcomes
    assert drifted.status == "broken"
    assert "does not go as it was recorded" in drifted.problem


async def test_two_tests_whose_names_look_alike_have_two_recordings(tmp_path: Path):
    test = "- {name: %s, tool: fail, isolated: true, expect: {isError: true}}"
    made = await outcomes("\n".join(test % name for name in ("a b", "a/b", "c d")), record=tmp_path)
    assert [one.status for one in made] == ["passed"] * 3
    names = sorted(os.listdir(tmp_path))  # noqa: PTH208 -- in an async function
    assert [name for name in names if name.startswith("s-a-b-")] == names[:2]
    assert names[2:] == ["s-c-d.json", "s.json"]


async def test_what_was_not_recorded_cannot_be_replayed(tmp_path: Path):
    made = await run(suite("- {name: a, tool: x}"), settings=Settings(replay=tmp_path))
    assert "There is no recording" in made.unstarted[0]
    assert "--record makes it" in made.unstarted[0]


async def test_replay_safety_is_checked_beside_the_test():
    first, second, third = await outcomes(
        """
        - {name: safe, tool: deploy, arguments: {env: x}, expect: {text: Deployed to x}}
        - {name: not, tool: dated}
        - {name: asks nothing, tool: order, arguments: {item: x}}
        """,
        "defaults: {inputResponses: {confirm: true}}",
        replay_safety=True,
    )
    assert first.status == "passed", first
    assert [check.name for check in first.checks] == ["text", "replay safety"]
    assert (second.status, second.failures[0].name) == ("failed", "replay safety")
    assert "dated" in second.failures[0].problem
    assert (third.status, third.checks) == ("passed", ())


async def test_a_call_that_is_meant_to_fail_is_still_checked():
    refused, _, lost = await outcomes(
        """
        - {name: a, tool: survey, inputResponses: {name: cancel}, expect: {isError: true}}
        - {name: orders, tool: order, arguments: {item: x}}
        - {name: b, tool: till, inputResponses: {confirm: true}}
        """,
        replay_safety=True,
    )
    assert refused.status == "passed", refused
    (failed,) = lost.failures
    assert failed.problem.startswith("till (2 rounds, asking confirm) was not run to its end")
    assert "The tool failed: There are no orders" in failed.problem


@pytest.mark.parametrize("settings", [{"replay": Path()}, {"era": "legacy"}])
def test_replay_safety_of_what_is_not_replayed_is_refused(settings: Any):
    with pytest.raises(ValueError, match="--replay starts no server|nothing to check in the legacy era"):
        Settings(replay_safety=True, **settings)


async def test_effects_are_declared_for_replay_safety(tmp_path: Path):
    (tmp_path / "mailer_of_tests.py").write_text(
        "from antiphon import Context, Server\napp = Server('mailer')\ndef mail() -> None: ...\n"
        "@app.tool\nasync def send(ctx: Context) -> str:\n    mail()\n    return str(await ctx.confirm('Sure?'))\n"
    )
    mailer = suite(
        "- {name: a, tool: send, inputResponses: {confirm: true}}", server="{app: mailer_of_tests.py}", folder=tmp_path
    )
    for effects, passed in {(): True, ("mailer_of_tests.mail",): False}.items():
        made = await run(mailer, settings=Settings(replay_safety=True, effects=effects))
        assert made.passed == passed, made.outcomes
    assert "mailer_of_tests.mail() ran in rounds 1 and 2" in made.outcomes[0].failures[0].problem


async def test_effects_are_found_in_a_server_that_a_function_makes(tmp_path: Path):
    (tmp_path / "notes_of_tests.py").write_text(
        "from pathlib import Path\nfrom antiphon import Context, Server\n"
        "def make_app():\n    app = Server('notes')\n"
        "    @app.tool\n    async def note(ctx: Context) -> str:\n"
        "        (Path(__file__).parent / 'log.txt').write_text('noted')\n"
        "        return str(await ctx.confirm('Sure?'))\n"
        "    return app\n"
        "def broken():\n    raise ValueError('no database')\n"
    )
    test = "- {name: a, tool: note, inputResponses: {confirm: true}}"
    notes = suite(test, server="{app: 'notes_of_tests.py:make_app'}", folder=tmp_path)
    made = await run(notes, settings=Settings(replay_safety=True))
    problem = made.outcomes[0].failures[0].problem
    assert "notes_of_tests.py:7: open(" in problem
    assert "log.txt', 'w') ran in rounds 1 and 2, outside of a step" in problem
    assert (await run(notes, settings=Settings(replay_safety=True, ignore=["open"]))).passed
    made = await run(suite(test, server="{app: 'notes_of_tests.py:broken'}", folder=tmp_path))
    assert made.unstarted == ("s: broken() in notes_of_tests.py failed: ValueError('no database')",)


async def test_runs_do_not_leave_tasks_behind():
    before = asyncio.all_tasks()
    await outcomes("- {name: a, tool: slow, timeout: 10ms}\n- {name: b, tool: order, arguments: {item: x}}", jobs=2)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
