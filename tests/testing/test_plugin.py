"""The pytest plugin, in runs of pytest of its own."""

import json
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest

# A run of pytest inside this one forgets what it imports: import this once for all of them.
for module in (
    "antiphon.app",
    "antiphon.testing.client",
    "antiphon.testing.pytest_suites",
    "antiphon.testing.snapshots",
    "antiphon.transports.stdio_client",
    "antiphon.legacy.client.link",
    "cryptography.hazmat.primitives.ciphers.aead",
):
    import_module(module)

pytest_plugins = ["pytester"]

INSTALLED = any(point.value == "antiphon.testing.plugin" for point in entry_points(group="pytest11"))
PLUGIN = [] if INSTALLED else ["-p", "antiphon.testing.plugin"]
OPTIONS = [
    *PLUGIN,
    "-p",
    "no:cacheprovider",
    "-p",
    "no:hypothesispytest",
    "--strict-markers",
    "-o",
    "asyncio_default_fixture_loop_scope=function",
]

SHOP = """
import os
from antiphon import Context, Server, ask, input_required

app = Server("shop", version="1.0.0")
memory = []

@app.tool
async def deploy(env: str, ctx: Context) -> str:
    return f"Deployed to {env}" if await ctx.confirm(f"Deploy to {env}?") else "Left alone"

@app.tool
async def remember(ctx: Context) -> str:
    memory.append(1)
    await ctx.confirm("Sure?")
    return str(len(memory))

@app.tool
async def page(ctx: Context) -> str:
    return (await ctx.elicit_url("Log in", "https://example.com")).action

@app.tool
async def ticket(ctx: Context) -> dict[str, str]:
    return {"id": os.urandom(4).hex(), "state": "open"}

@app.prompt
async def letter(ctx: Context) -> str:
    return "Dear " + (await ctx.elicit("Who?", str, key="who")).unwrap()

@app.resource("shop://stock")
async def stock(ctx: Context) -> str:
    return "Stock of " + (await ctx.elicit("Where?", str, key="where")).unwrap()

if __name__ == "__main__":
    app.run()
"""
CONFTEST = """
import pytest

@pytest.fixture
def mcp_server():
    from shop import app
    return app

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


@pytest.fixture(autouse=True)
def no_other_shop(monkeypatch):
    """A run of pytest inside this one imports its own, whatever another test has imported by that name."""
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if not Path(folder, "shop.py").exists()])


@pytest.fixture
def project(pytester):
    pytester.makepyfile(shop=SHOP)
    pytester.makeconftest(CONFTEST)
    return pytester


def run(project, *options, mode="strict", inside=True):
    start = project.runpytest_inprocess if inside else project.runpytest_subprocess
    return start(*OPTIONS, "-o", f"asyncio_mode={mode}", *options)


# --- the client in every style --------------------------------------------------------------------------------------

STYLES = """
import asyncio
import pytest
from antiphon.errors import CannotAnswer, RoundsExceeded
from antiphon.testing import McpClient, Script, SyncMcpClient

def test_in_a_plain_function(mcp_client, answers):
    answers(confirm=True)
    result = mcp_client.call_tool("deploy", {"env": "prod"})
    assert isinstance(mcp_client, SyncMcpClient)
    assert result.text == "Deployed to prod"
    assert result.rounds == 2
    assert result.asked == ["confirm"]
    assert result.asked[0].message == "Deploy to prod?"
    assert result.asked[0].answer == {"action": "accept", "content": {"confirm": True}}
    assert [turn.method for turn in result.turns] == ["tools/call", "tools/call"]
    assert answers.unused == []

def test_everything_a_plain_client_has(mcp_client, answers):
    answers(who="Ada", where="Rome", confirm=False)
    assert mcp_client.get_prompt("letter").messages[0].content.text == "Dear Ada"
    assert mcp_client.read_resource("shop://stock").asked == ["where"]
    assert [tool.name for tool in mcp_client.list_tools()][0] == "deploy"
    assert [prompt.name for prompt in mcp_client.list_prompts()] == ["letter"]
    assert [resource.name for resource in mcp_client.list_resources()] == ["stock"]
    assert mcp_client.list_resource_templates() == []
    assert mcp_client.discover().server.name == "shop"
    assert (mcp_client.era, mcp_client.protocol_version) == ("modern", "2026-07-28")
    pending = mcp_client.begin("tools/call", name="deploy", arguments={"env": "x"})
    assert mcp_client.resume(pending, {"confirm": {"action": "decline"}}).result.text == "Left alone"
    assert mcp_client.check_replay_safety("deploy", {"env": "prod"}).ok
    assert len(mcp_client.turns) > 6
    assert mcp_client.script is answers

@pytest.mark.asyncio
async def test_with_asyncio(mcp_client, answers):
    answers({"Deploy to prod?": "decline"})
    assert isinstance(mcp_client, McpClient)
    assert (await mcp_client.call_tool("deploy", {"env": "prod"})).text == "Left alone"

@pytest.mark.anyio
async def test_with_anyio(mcp_client, answers):
    answers(lambda question: question.message == "Deploy to prod?")
    assert (await mcp_client.call_tool("deploy", {"env": "prod"})).text == "Deployed to prod"

@pytest.mark.asyncio
async def test_several_calls_at_a_time_keep_their_questions_apart(mcp_client, answers):
    answers(confirm=True, who="Ada", where="Rome")
    calls = mcp_client.call_tool("deploy", {"env": "x"}), mcp_client.get_prompt("letter"), mcp_client.read_resource("shop://stock")
    assert [result.asked for result in await asyncio.gather(*calls)] == [["confirm"], ["who"], ["where"]]

class TestInAClass:
    @pytest.mark.asyncio
    async def test_with_the_other_name(self, antiphon_client, answers):
        answers(confirm=True)
        assert (await antiphon_client.call_tool("deploy", {"env": "prod"})).rounds == 2

@pytest.mark.asyncio
async def test_changes_are_heard(mcp_client):
    from shop import app
    changes = mcp_client.subscribe(tools=True)
    waiting = asyncio.ensure_future(anext(changes))
    await mcp_client.list_tools()
    while not waiting.done():
        app.changed("tools")
        await asyncio.sleep(0)
    assert waiting.result().kind == "tools"
    await changes.aclose()

def test_a_missing_answer_names_the_question(mcp_client):
    with pytest.raises(CannotAnswer, match="'confirm'.*'Deploy to prod.'.*It has no answers at all"):
        mcp_client.call_tool("deploy", {"env": "prod"})

def test_answers_that_are_used_up_say_so(mcp_client, answers):
    answers(confirm=[True])
    mcp_client.call_tool("deploy", {"env": "prod"})
    with pytest.raises(CannotAnswer, match="its only answer is used up"):
        mcp_client.call_tool("deploy", {"env": "prod"})

@pytest.mark.mcp(declare=["elicitation"], max_rounds=1, timeout=5)
def test_a_mark_says_what_the_client_can(mcp_client, answers):
    with pytest.raises(Exception, match="elicitation.url"):
        mcp_client.call_tool("page")

@pytest.mark.rotate
@pytest.mark.asyncio
async def test_rotation_loses_what_is_kept_in_memory(mcp_client, answers):
    answers(confirm=True)
    assert (await mcp_client.call_tool("remember")).text == "1"

def test_without_rotation_it_is_kept(mcp_client, answers):
    answers(confirm=True)
    assert (mcp_client.call_tool("remember")).text == "2"

@pytest.mark.parametrize("mcp_server", [lambda: __import__("shop").app], ids=["factory"])
def test_a_function_may_make_the_server(mcp_client, mcp_server, answers):
    answers(confirm=True)
    assert mcp_client.call_tool("deploy", {"env": "x"}).rounds == 2
"""


def test_every_style_of_test_works(project):
    project.makepyfile(STYLES)
    run(project).assert_outcomes(passed=13)


@pytest.mark.heavy
def test_it_works_in_auto_mode_in_several_processes(project):
    project.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("env", ["a", "b"])
        async def test_async(mcp_client, answers, env):
            answers(confirm=True)
            assert (await mcp_client.call_tool("deploy", {"env": env})).text == f"Deployed to {env}"
        """
    )
    test = "  - {name: t%d, tool: deploy, arguments: {env: x}, expect: {snapshot: true}}\n"
    kept = "server: {app: 'shop:app', era: both}\ndefaults: {inputResponses: {confirm: true}}\ntests:\n"
    project.makefile(".mcp.yaml", suite=SUITE, kept=kept + "".join(test % number for number in range(4)))
    outcome = run(project, "-n", "2", "--update-snapshots", mode="auto", inside=False)
    outcome.assert_outcomes(passed=12, failed=1, skipped=1)
    # What each of the processes has kept.
    run(project, "kept.mcp.yaml").assert_outcomes(passed=8)


def test_a_command_is_started_again_for_every_round(project):
    project.makepyfile(
        """
        import pytest

        @pytest.mark.rotate(2)
        @pytest.mark.mcp("python shop.py")
        def test_a_command_in_rotation(mcp_client, answers):
            answers(confirm=True)
            assert mcp_client.call_tool("remember").text == "1"
        """
    )
    run(project).assert_outcomes(passed=1)


# --- which server ---------------------------------------------------------------------------------------------------


def test_the_configuration_may_name_the_server(pytester):
    pytester.makepyfile(
        shop=SHOP, test_it="def test(mcp_client):\n    assert mcp_client.discover().server.name == 'shop'"
    )
    run(pytester, "-o", "mcp_server=shop:app").assert_outcomes(passed=1)
    run(pytester, "--mcp-server", "shop.py:app").assert_outcomes(passed=1)
    run(pytester, "--mcp-server", "shop.py").assert_outcomes(passed=1)


def test_the_server_may_be_an_entry_of_a_configuration_file(pytester):
    pytester.makepyfile(shop=SHOP, test_it="def test(mcp_client):\n    mcp_client.discover()")
    shop = {"command": sys.executable, "args": ["-m", "antiphon", "serve", "shop.py"]}
    (pytester.path / "mcp.json").write_text(json.dumps({"mcpServers": {"shop": shop, "other": {"command": "x"}}}))
    run(pytester, "--mcp-server", "mcp.json:shop").assert_outcomes(passed=1)
    told = run(pytester, "--mcp-server", "mcp.json")
    told.stdout.fnmatch_lines(["mcp.json has several servers; there are shop, other: choose one, as in mcp.json:shop"])


def test_a_server_that_is_not_there_is_told_without_a_traceback(pytester):
    pytester.makepyfile(shop=SHOP, test_it="def test(mcp_client):\n    pass")
    for server, why in {
        "nowhere:app": "there is no module 'nowhere'",
        "shop:nothing": "shop has no 'nothing'",
        "none.py:app": "There is no file *none.py",
    }.items():
        outcome = run(pytester, "-o", f"mcp_server={server}")
        outcome.assert_outcomes(errors=1)
        outcome.stdout.fnmatch_lines([f"The server to test is '{server}'*{why}*"])
        outcome.stdout.no_fnmatch_line("*plugin.py*")
    run(pytester, "-o", "mcp_server='shop:app'").assert_outcomes(passed=1)


def test_a_failure_is_shown_where_the_test_is(project):
    project.makepyfile(
        """
        def test_it(mcp_client, answers):
            answers(confrim=True)
            mcp_client.call_tool("deploy", {"env": "prod"})
        """
    )
    outcome = run(project)
    outcome.stdout.fnmatch_lines(["E *AnswerUnscripted: The server asks 'confirm'*", "*.py:3: AnswerUnscripted"])
    outcome.stdout.no_fnmatch_line("*answers.py:*")
    run(project, "--full-trace").stdout.fnmatch_lines(["*answers.py:*"])


def test_without_a_server_it_says_how_to_name_one(pytester):
    pytester.makepyfile("def test(mcp_client):\n    pass")
    outcome = run(pytester)
    outcome.assert_outcomes(errors=1)
    outcome.stdout.fnmatch_lines(["*There is no server to test. Say which in conftest.py:*", "*def mcp_server():*"])
    outcome.stdout.no_fnmatch_line("*Traceback*")


def test_what_cannot_be_rotated_says_so(project):
    project.makepyfile(
        """
        import pytest

        @pytest.mark.rotate
        @pytest.mark.mcp("http://127.0.0.1:1/mcp")
        def test_it(mcp_client):
            pass
        """
    )
    outcome = run(project)
    outcome.assert_outcomes(errors=1)
    outcome.stdout.fnmatch_lines(["*rotate starts its server afresh for each request*"])


def test_eras_run_a_test_once_for_each(project):
    project.makepyfile(
        """
        import pytest

        @pytest.mark.eras
        def test_both(mcp_client, answers, mcp_era):
            answers(confirm=True)
            assert mcp_client.call_tool("deploy", {"env": "x"}).rounds == 2
            assert mcp_client.era == ("legacy" if mcp_era == "legacy" else "modern")

        @pytest.mark.eras("modern")
        def test_one(mcp_client, mcp_era):
            assert mcp_era == "2026-07-28"

        @pytest.mark.eras
        def test_without_a_client():
            pass

        @pytest.mark.eras
        @pytest.mark.rotate
        def test_rotated(mcp_client, answers):
            answers(confirm=True)
            assert mcp_client.call_tool("remember").text == "1"
        """
    )
    outcome = run(project, "-rs", "-v")
    outcome.assert_outcomes(passed=5, skipped=1)
    outcome.stdout.fnmatch_lines(["*test_both[[]legacy]*", "*An older session lives in one instance*"])


# --- snapshots and cassettes ----------------------------------------------------------------------------------------


def test_snapshots_are_kept_compared_and_renewed(project):
    project.makepyfile(
        test_shots="""
        def test_it(mcp_client, answers, assert_snapshot):
            answers(confirm=True)
            assert_snapshot(mcp_client.call_tool("deploy", {"env": "prod"}))
            assert_snapshot(mcp_client.call_tool("ticket"), "ticket", ignore=["$.content", "$.structured.id"])
            assert_snapshot({"plain": [1, 2]})
        """
    )
    outcome = run(project)
    outcome.assert_outcomes(failed=1)
    outcome.stdout.fnmatch_lines(["*There is no snapshot __snapshots__*test_it.json yet. Run with --update-snapshots*"])
    run(project, "--update-snapshots").assert_outcomes(passed=1)
    folder = project.path / "__snapshots__" / "test_shots"
    assert sorted(file.name for file in folder.iterdir()) == ["test_it-3.json", "test_it-ticket.json", "test_it.json"]
    assert '"asked": [' in (folder / "test_it.json").read_text()
    assert '"id": "(ignored)"' in (folder / "test_it-ticket.json").read_text()
    run(project).assert_outcomes(passed=1)
    kept = (folder / "test_it.json").read_text()
    (folder / "test_it.json").write_text(kept.replace("Deployed to prod", "Deployed to test"))
    outcome = run(project)
    outcome.assert_outcomes(failed=1)
    outcome.stdout.fnmatch_lines(["*-*Deployed to test*", "*+*Deployed to prod*"])


def test_a_cassette_is_made_and_then_answers(project):
    project.makepyfile(
        test_tapes="""
        import pytest

        @pytest.mark.cassette("tapes/deploy.json")
        def test_named(mcp_client, answers):
            answers(confirm=True)
            assert mcp_client.call_tool("deploy", {"env": "prod"}).text == "Deployed to prod"

        @pytest.mark.cassette
        @pytest.mark.asyncio
        async def test_unnamed(mcp_client, answers):
            answers(confirm=True)
            assert (await mcp_client.call_tool("deploy", {"env": "prod"})).text == "Deployed to prod"

        @pytest.mark.cassette
        def test_failing(mcp_client, answers):
            answers(confirm=True)
            assert mcp_client.call_tool("deploy", {"env": "prod"}).text == "Something else"
        """
    )
    run(project).assert_outcomes(passed=2, failed=1)
    tapes = sorted(str(file.relative_to(project.path)) for file in project.path.rglob("*.json"))
    assert tapes == ["cassettes/test_tapes/test_unnamed.json", "tapes/deploy.json"]
    shop = project.path / "shop.py"
    shop.write_text(SHOP.replace("Deployed to", "Sent to"))
    run(project, "-k", "named").assert_outcomes(passed=2)
    file = project.path / "test_tapes.py"
    file.write_text(file.read_text().replace('"env": "prod"', '"env": "test"'))
    outcome = run(project, "-k", "named")
    outcome.stdout.fnmatch_lines(["*Drifted*"])


def test_every_test_has_a_cassette_of_its_own(project):
    project.makepyfile(
        test_names="""
        import pytest

        class TestA:
            @pytest.mark.cassette
            def test_it(self, mcp_client, answers):
                answers(confirm=True)
                assert mcp_client.call_tool("deploy", {"env": "a"}).text == "Deployed to a"

        class TestB:
            @pytest.mark.cassette
            def test_it(self, mcp_client, answers):
                answers(confirm=True)
                assert mcp_client.call_tool("deploy", {"env": "b"}).text == "Deployed to b"

        @pytest.mark.cassette
        @pytest.mark.parametrize("env", ["a/b", "a b", "x" * 300])
        def test_them(mcp_client, answers, env):
            answers(confirm=True)
            assert mcp_client.call_tool("deploy", {"env": env}).text == f"Deployed to {env}"
        """
    )
    run(project).assert_outcomes(passed=5)
    names = sorted(file.name for file in (project.path / "cassettes" / "test_names").iterdir())
    assert len(names) == 5
    assert [name.partition("-")[0] for name in names[:2]] == ["TestA.test_it", "TestB.test_it"]
    run(project).assert_outcomes(passed=5)
    (project.path / "shop.py").write_text(SHOP.replace("Deployed to", "Sent to"))
    run(project).assert_outcomes(passed=5)


def test_two_snapshots_with_one_name_must_agree(project):
    project.makepyfile(
        """
        def test_they_agree(assert_snapshot):
            assert_snapshot(1, "n")
            assert_snapshot(1, "n")

        def test_they_do_not(assert_snapshot):
            assert_snapshot(1, "n")
            assert_snapshot(2, "n")
        """
    )
    outcome = run(project, "--update-snapshots")
    outcome.assert_outcomes(passed=1, failed=1)
    said = "*This test has two snapshots called *test_they_do_not-n.json, and they differ*"
    outcome.stdout.fnmatch_lines([said])
    outcome = run(project)
    outcome.assert_outcomes(passed=1, failed=1)
    outcome.stdout.fnmatch_lines([said])


# --- what a test says of itself -------------------------------------------------------------------------------------


def test_an_answer_that_nobody_asks_for_is_a_warning(project):
    project.makepyfile(
        """
        import pytest

        def test_unused(mcp_client, answers):
            answers(confirm=[True, True], sure=True)
            mcp_client.call_tool("deploy", {"env": "prod"})

        @pytest.mark.asyncio
        async def test_used(mcp_client, answers):
            answers(confirm=True)
            await mcp_client.call_tool("deploy", {"env": "prod"})

        def test_failing(mcp_client, answers):
            answers(sure=True)
            mcp_client.call_tool("nonsense")

        @pytest.mark.filterwarnings("ignore::antiphon.testing.answers.AnswersUnused")
        def test_silent(mcp_client, answers):
            answers(sure=True)
        """
    )
    outcome = run(project, "-W", "default")
    outcome.assert_outcomes(passed=3, failed=1, warnings=1)
    outcome.stdout.fnmatch_lines(
        ["*::test_unused", "*AnswersUnused: Answers that were not asked for: 'confirm' (used 1 of 2 times), 'sure'"]
    )


def test_a_mark_that_makes_no_sense_is_told(project):
    project.makepyfile(
        """
        import pytest

        for number, mark in enumerate([(0,), ("x",), (1, 2), (True,), (-1,)]):
            @pytest.mark.rotate(*mark)
            def test_it(mcp_client):
                pass

            globals()[f"test_{number}"] = test_it
        del test_it

        @pytest.mark.rotate(instances=0)
        def test_named(mcp_client):
            pass

        @pytest.mark.rotate(count=2)
        def test_unknown(mcp_client):
            pass

        @pytest.mark.rotate(instances=3)
        def test_right(mcp_client):
            assert mcp_client.list_tools()
        """
    )
    outcome = run(project)
    outcome.assert_outcomes(passed=1, errors=7)
    for said in ("0", "'x'", "1, 2", "True", "-1", "instances=0", "count=2"):
        outcome.stdout.fnmatch_lines([f"@pytest.mark.rotate({said}) makes no sense: it takes a whole number *"])
    outcome.stdout.no_fnmatch_line("*TypeError*")


# --- suites ---------------------------------------------------------------------------------------------------------

SUITE = """
server: {app: "shop:app"}
tests:
  - name: deploys after the operator confirms
    tool: deploy
    arguments: {env: prod}
    inputResponses: {confirm: {confirm: true}}
    expect: {text: Deployed to prod, rounds: 2, asked: [confirm]}
    capture: {said: {text: .*}}
    tags: [smoke]
  - name: uses what was captured
    tool: deploy
    arguments: {env: "${said}"}
    inputResponses: {confirm: true}
    expect: {text: Deployed to Deployed to prod}
  - name: is not what it should be
    tool: deploy
    arguments: {env: prod}
    inputResponses: {confirm: false}
    expect: {text: Deployed to prod}
  - name: is left out
    tool: deploy
    skip: not today
"""


def test_suites_are_collected_as_tests(project):
    project.makefile(".mcp.yaml", suite=SUITE)
    outcome = run(project, "-rs")
    outcome.assert_outcomes(passed=2, failed=1, skipped=1)
    outcome.stdout.fnmatch_lines(["*suite.mcp.yaml*is not what it should be*", "*- Deployed to prod", "*+ Left alone"])
    outcome.stdout.fnmatch_lines(["*not today*"])
    run(project, "-k", "smoke").assert_outcomes(passed=1, deselected=3)
    run(project, "-k", "captured").assert_outcomes(passed=1, deselected=3)


def test_a_suite_that_is_broken_says_where(project):
    project.makefile(".mcp.yaml", broken="server: {app: 'shop:app'}\ntests:\n  - name: x\n    tol: deploy\n")
    tests = "  - name: y\n    tool: deploy\n  - name: z\n    tool: deploy\n"
    project.makefile(".mcp.yml", absent=f"server: {{app: 'nowhere:app'}}\ntests:\n{tests}")
    outcome = run(project, "--continue-on-collection-errors")
    outcome.assert_outcomes(errors=1, failed=1, skipped=1)
    outcome.stdout.fnmatch_lines(["*broken.mcp.yaml:4:5: Unknown key 'tol'*", "*There is no module 'nowhere'*"])


# --- those who do not use it ----------------------------------------------------------------------------------------


def test_the_plugin_loads_nothing_until_it_is_used():
    code = (
        "import sys, pytest; before = set(sys.modules); import antiphon.testing.plugin;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    ours = {name for name in done.stdout.split() if name.split(".")[0] in {"antiphon", "msgspec", "yaml"}}
    assert ours == {"antiphon", "antiphon.testing", "antiphon.testing.plugin"}


def test_other_plugins_may_have_the_same_option(pytester):
    pytester.makeconftest(
        "def pytest_addoption(parser):\n    parser.addoption('--update-snapshots', action='store_true')"
    )
    pytester.makepyfile("def test(assert_snapshot):\n    assert_snapshot(1)")
    run(pytester, "--update-snapshots", inside=True).assert_outcomes(passed=1)


# --- replay safety --------------------------------------------------------------------------------------------------

LEDGER = """
import sqlite3
from antiphon import Context, Server

db = sqlite3.connect("real.db")

def make():
    app = Server("ledger")

    @app.tool
    async def book(ctx: Context) -> str:
        with open("log.txt", "a") as log:
            log.write("booked")
        return str(await ctx.confirm("Sure?"))

    @app.tool
    async def count(ctx: Context) -> str:
        await ctx.confirm("Sure?")
        return db.execute("SELECT 'real'").fetchone()[0] if db else "patched"

    return app

app = make()
"""


def test_a_failed_assertion_shows_the_whole_report(project):
    project.makepyfile(
        ledger=LEDGER,
        test_ledger="""
        import ledger, pytest

        @pytest.fixture
        def mcp_server():
            return ledger.app

        def test_book(mcp_client, answers):
            answers(confirm=True)
            report = mcp_client.check_replay_safety("book")
            assert report.ok, report
        """,
    )
    result = run(project)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: book (2 rounds, asking confirm) is not safe to replay:",
            "*ledger.py:11: open('log.txt', 'a') ran in rounds 1 and 2, outside of a step",
            "*Put it into a step, which runs once: *. Or move it below the last question.",
        ]
    )


def test_a_function_that_makes_the_server_keeps_what_a_test_has_patched(project):
    project.makepyfile(
        ledger=LEDGER,
        test_ledger="""
        import ledger, pytest

        @pytest.fixture
        def mcp_server():
            return ledger.make

        def test_count(mcp_client, answers, monkeypatch):
            monkeypatch.setattr(ledger, "db", None)
            answers(confirm=True)
            assert mcp_client.call_tool("count").text == "patched"
            report = mcp_client.check_replay_safety("count")
            assert report.ok, report
            assert report.notes == ()
        """,
    )
    run(project).assert_outcomes(passed=1)
