"""Replay safety: what does not survive a second run is found, and told with its place and its remedy."""

import asyncio
import inspect
import logging
import sys
from functools import partial
from pathlib import Path

import pytest

from antiphon import Client, Context, Seal, Server, SQLiteStore
from antiphon.errors import RoundsExceeded
from antiphon.testing import AnswerUnscripted, McpClient, NoFreshInstance, Script, ServerUnderTest, check_replay_safety
from antiphon.testing.replay_observer import Observer, named
from antiphon.testing.servers import fresh_of
from testing import desk, till

YES = {"confirm": True, "confirm-2": True}


def line_of(function, text):
    lines, start = inspect.getsourcelines(function)
    return next(start + number for number, line in enumerate(lines) if text in line)


def place_of(function, text):
    return f"tests/testing/till.py:{line_of(function, text)}"


async def check(call, answers=None, **options):
    return await check_replay_safety(till.app, call, YES if answers is None else answers, **options)


# --- what differs -------------------------------------------------------------------------------------------------


async def test_a_question_with_the_time_in_it_is_found():
    report = await check("hurry")
    assert not report.ok
    changed, clock = report.findings
    assert (changed.kind, changed.key, changed.rounds) == ("question", "confirm", (1,))
    assert "The question 'confirm' changed when the round was run again: 'It is" in changed.what
    assert changed.where == place_of(till.hurry, "time_ns")
    assert f"It may come from time.time_ns() at {changed.where}" in changed.what
    assert "ctx.now()" in changed.advice
    assert (clock.kind, clock.rounds[:2]) == ("clock", (1, 2))
    assert str(report).startswith(
        "hurry (3 rounds, asking confirm, confirm) is not safe to replay:\n  tests/testing/till.py:"
    )


async def test_a_returned_question_with_a_random_number_is_found():
    report = await check("lottery", {"bet": True})
    (changed, *_) = report.findings
    assert (changed.kind, changed.key) == ("question", "bet")
    assert "random.randint()" in changed.what
    assert changed.where == place_of(till.lottery, "@app.tool")
    assert "ctx.random()" in changed.advice


async def test_a_result_with_the_time_in_it_is_found():
    (changed,) = (await check("stamp")).findings
    assert changed.kind == "result"
    assert "The result changed when the round was run again: 'Done at" in changed.what
    assert f"datetime.now() at {place_of(till.stamp, 'datetime.now')}" in changed.what
    assert changed.where == place_of(till.stamp, "@app.tool")


async def test_what_stays_in_a_process_is_missed_on_a_fresh_instance():
    (changed,) = (await check("memory")).findings
    assert changed.kind == "result"
    assert changed.what == "The result changed on a fresh instance: '5' became '0'."
    assert "Keep nothing in the process" in changed.advice
    assert till.app is sys.modules["testing.till"].app


async def test_a_question_that_comes_only_sometimes_is_found():
    till.opened["count"] = 0
    report = await check("fickle", {"odd": True, "even": True})
    assert {finding.key for finding in report.findings} >= {"odd", "even"}
    assert "it was not asked" in report.findings[0].what


async def test_prompts_and_resources_are_checked_too():
    report = await check({"prompt": "letter"}, {"name": "Ada"})
    assert [finding.kind for finding in report.findings] == ["result"]
    assert report.call == "letter"
    assert (await check({"resource": "till://drawer"})).ok
    assert (await check({"method": "resources/read", "params": {"uri": "till://drawer"}})).rounds == 2


# --- what runs again ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", [till.charge, "testing.till.charge", "testing.till:charge"])
async def test_a_declared_effect_outside_of_a_step_is_found(effect):
    report = await check(("pay", {"amount": 3}), {"confirm": [True, True]}, effects=[effect])
    (effect,) = report.findings
    assert (effect.kind, effect.rounds) == ("effect", (1, 2, 3))
    assert "charge() ran in rounds 1, 2 and 3, outside of a step" in effect.what
    assert effect.where == place_of(till.pay, "await charge")
    assert "ctx.step" in effect.advice
    assert report.asked == ("confirm", "confirm-2")


async def test_steps_the_handed_out_time_and_seeded_numbers_are_safe():
    report = await check(("pay_well", {"amount": 3}), effects=[till.charge, till.ring])
    assert report.ok, report
    assert str(report) == "pay_well (2 rounds, asking confirm) is safe to replay."


async def test_every_reading_of_clock_and_chance_is_seen_whatever_its_name():
    found = {finding.what.partition(" ran")[0]: finding for finding in (await check("reads")).findings}
    assert found.keys() == {
        "time.time()",
        "time.time_ns()",
        "datetime.now()",
        "date.today()",
        "random.random()",
        "random.choice()",
        "uuid.uuid4()",
        "secrets.token_hex()",
    } | {"random.choice()"}
    assert found["time.time()"].where == place_of(till.reads, "clock()")
    assert {finding.kind for finding in found.values()} == {"clock", "random"}


async def test_what_is_known_to_be_harmless_is_left_out():
    report = await check("reads", ignore=["clock", "random.choice", "uuid.uuid4", "secrets.token_hex"])
    assert [finding.what.partition(" ran")[0] for finding in report.findings] == ["random.random()"]
    assert (await check("reads", ignore=["clock", "random"])).ok
    where = place_of(till.hurry, "time_ns")
    assert [finding.kind for finding in (await check("hurry", ignore=[where])).findings] == ["question"]


async def test_a_plain_function_in_a_thread_is_observed_and_its_steps_are_not():
    report = await check("plain", effects=[till.ring])
    assert [finding.where for finding in report.findings] == [
        place_of(till.plain, "ring()"),
        place_of(till.ring, "time.time()"),
    ]


async def test_an_effect_that_runs_as_a_task_of_its_own_is_found_where_it_is_written():
    (effect,) = (await check("together", effects=[till.charge])).findings
    assert effect.where == place_of(till.charge, "async def charge")


async def test_logging_and_the_library_itself_are_not_reported(caplog):
    app = Server("chatty", seal=Seal(single_use=True))

    @app.tool
    async def chat(ctx: Context) -> str:
        logging.getLogger("chat").warning("asking")
        return str(await ctx.confirm("Sure?"))

    report = await check_replay_safety(app, "chat", YES)
    assert report.ok, report
    assert caplog.records
    async with Client(app, **Script(YES).handlers()) as client:
        # The server is as it was: a token counts once again.
        pending = await client.begin("tools/call", name="chat", arguments={})
        answers = {"confirm": {"action": "accept", "content": {"confirm": True}}}
        await client.resume(pending, answers)
        with pytest.raises(Exception, match="requestState"):
            await client.resume(pending, answers)


# --- effects that are seen without being named ---------------------------------------------------------------------


def at(text):
    lines = Path(desk.__file__).read_text().splitlines()
    return f"tests/testing/desk.py:{next(number for number, line in enumerate(lines, 1) if text in line)}"


async def test_a_file_and_a_row_written_above_the_question_are_found(tmp_path):
    report = await check_replay_safety(partial(desk.desk, tmp_path), "note", YES)
    written, row = report.findings
    assert (written.kind, written.where, written.rounds) == ("effect", at('file.open("a")'), (1, 2))
    assert written.what == f"open('{tmp_path}/log.txt', 'a') ran in rounds 1 and 2, outside of a step"
    assert (row.kind, row.where) == ("effect", at("INSERT INTO notes VALUES ('noted')"))
    assert row.what == "sqlite3.Connection.execute() ran in rounds 1 and 2, outside of a step"
    assert "ctx.step" in row.advice
    assert "below the last question" in row.advice
    assert f"  {written.where}: {written.what}\n" in str(report)


async def test_reading_logging_steps_and_what_follows_the_last_question_are_no_effects(tmp_path):
    handler = logging.FileHandler(tmp_path / "server.log", delay=True)
    logging.getLogger("desk").addHandler(handler)
    report = await check_replay_safety(partial(desk.desk, tmp_path), "note_well", YES)
    logging.getLogger("desk").removeHandler(handler)
    handler.close()
    assert (tmp_path / "server.log").read_text()
    assert report.ok, report


async def test_effects_of_a_function_in_a_thread_are_found_with_the_line_that_called_for_them(tmp_path):
    report = await check_replay_safety(partial(desk.desk, tmp_path), "plain", YES)
    written, row = report.findings
    assert written.where == at("file.write_text(text)")
    called = at('save(file, "noted")')
    assert f"called at {called}" in written.what
    assert row.what.startswith("sqlite3.Cursor.executemany() ran in rounds 1 and 2")


async def test_folders_processes_and_connections_are_effects(tmp_path):
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    report = await check_replay_safety(partial(desk.desk, tmp_path, port), "everything", YES, ignore=["os.system"])
    server.close()
    await server.wait_closed()
    found = [(finding.what.partition("(")[0], finding.where) for finding in report.findings]
    assert found == [
        ("os.mkdir", at(".mkdir(parents=True)")),
        ("os.rename", at("os.rename")),
        ("os.rmdir", at("shutil.rmtree")),
        ("subprocess.Popen", at("subprocess.run")),
        ("subprocess.Popen", at("create_subprocess_exec")),
        ("socket.connect", at("create_connection")),
        ("socket.connect", at("open_connection")),
    ]


async def test_rounds_that_each_do_their_own_share_do_nothing_twice(tmp_path):
    report = await check_replay_safety(partial(desk.desk, tmp_path), "own_rounds", YES)
    assert (report.rounds, report.findings) == (2, ())


async def test_nothing_is_recorded_outside_of_a_check(tmp_path):
    with Observer() as observer:
        with observer.seeing() as seen:
            (tmp_path / "a").write_text("a")
        (tmp_path / "b").write_text("b")
    assert [sight.what for sight in seen] == [f"open('{tmp_path}/a', 'w')"]


# --- what cannot be checked ---------------------------------------------------------------------------------------


async def test_a_new_step_in_the_last_round_is_a_note_and_no_finding(tmp_path):
    report = await check("number")
    assert report.ok
    (note,) = report.notes
    assert "'number', ctx.now(), ctx.random()" in note
    assert "unless the server has a store" in note
    store = SQLiteStore(tmp_path / "steps.db")

    def make():
        app = Server("stored", store=store)

        @app.tool
        async def number(ctx: Context) -> str:
            await ctx.confirm("Sure?")
            return f"Ticket {await ctx.step('number', till.ring)}"

        return app

    assert (await check_replay_safety(make, "number", YES)).notes == ()
    await store.close()


async def test_a_call_that_asks_nothing_is_never_replayed():
    report = await check("quiet")
    assert report.ok
    assert report.notes == ("It asks nothing, so nothing is replayed.",)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("no_such_tool", "The call ended with an error: Unknown tool: no_such_tool"),
        (("pay", {"amuont": 3}), "The tool failed: "),
        ({"prompt": "leter"}, "The call ended with an error: "),
        ("broke", "The tool failed: No money"),
    ],
)
async def test_a_call_that_fails_was_not_checked(call, problem):
    report = await check(call)
    assert not report.ok
    assert report.findings == ()
    assert report.problem.startswith(problem), report.problem
    assert "was not run to its end, so its replay safety is unknown. " + problem in str(report)
    meant = await check(call, may_fail=True)
    assert (meant.ok, meant.problem, meant.notes[0]) == (True, "", report.problem)


async def test_rounds_without_questions_are_gone_through():
    report = await check("wait")
    assert (report.ok, report.rounds, report.asked) == (True, 3, ())


async def test_a_server_that_cannot_be_made_again_is_checked_without():
    app = Server("local")

    @app.tool
    async def ask_me(ctx: Context) -> str:
        return str(await ctx.confirm("Sure?"))

    report = await check_replay_safety(app, "ask_me", YES)
    assert report.ok
    assert (
        "Not run on a fresh instance. There is no way to make another instance of the server 'local'" in report.notes[0]
    )
    with pytest.raises(NoFreshInstance, match="should make a Server, and made 7"):
        await check_replay_safety(lambda: 7, "ask_me", YES)


async def test_an_unscripted_question_is_an_error_and_so_is_an_endless_one():
    with pytest.raises(AnswerUnscripted, match="'confirm'"):
        await check("hurry", {})
    with pytest.raises(RoundsExceeded):
        await check(("pay", {"amount": 1}), {"confirm": [True] * 9}, max_rounds=1)


@pytest.mark.parametrize("call", [7, ("a",), {}, {"tol": "pay"}])
async def test_a_call_that_is_none_is_refused(call):
    with pytest.raises(TypeError, match="A call is a tool's name"):
        await check(call)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("testing.till.nothing", "There is no 'nothing' in"),
        ("nowhere.at_all", "There is no module"),
        ("testing.till.charged", "it is not a function"),
    ],
)
def test_an_effect_that_is_none_is_refused(name, error):
    with pytest.raises((ValueError, TypeError), match=error):
        named(name)


async def test_a_process_is_run_twice_and_in_another_one(tmp_path):
    file = tmp_path / "keyed.py"
    file.write_text(
        "import os\n"
        "from antiphon import Context, Seal, Server\n"
        "app = Server('keyed', seal=Seal(keys=[os.urandom(32)], single_use=True))\n"
        "@app.tool\n"
        "async def keep(ctx: Context) -> str:\n"
        "    return str(await ctx.confirm('Sure?'))\n"
        "app.run()\n"
    )
    command = ServerUnderTest(target=[sys.executable, "keyed.py"], cwd=tmp_path)
    with pytest.raises(ValueError, match="in a Server of this process alone"):
        await check_replay_safety(command, "keep", YES, effects=[till.charge])
    report = await check_replay_safety(command, "keep", YES)
    assert report.notes[1] == "Round 2 was not run twice: Invalid or expired requestState"
    assert [(finding.kind, finding.rounds) for finding in report.findings] == [("instance", (1,))]
    assert "ANTIPHON_KEYS" in report.findings[0].advice


async def test_a_step_does_not_excuse_what_stands_beside_it():
    report = await check("labelled")
    assert [finding.kind for finding in report.findings] == ["result"]
    assert "It may come from uuid.uuid4()" in report.findings[0].what
    report = await check_replay_safety(till.app, "labelled", YES, ignore=["random"])
    assert report.ok
    assert "which may come from a step" in report.notes[0]


async def test_several_checks_at_a_time_do_not_disturb_each_other():
    reports = await asyncio.gather(*(check(tool) for tool in ("hurry", "stamp", "memory", "reads", "hurry")))
    assert [report.findings[0].kind for report in reports] == ["question", "result", "result", "clock", "question"]
    assert sys.getprofile() is None


# --- fresh instances ----------------------------------------------------------------------------------------------


def test_a_fresh_instance_has_its_own_memory_and_leaves_the_old_one_alone():
    till.opened["count"] = 3
    other = fresh_of(ServerUnderTest(target=till.app))().target
    assert other is not till.app
    assert len(list(other.functions())) == len(list(till.app.functions()))
    assert sys.modules["testing.till"] is till
    assert other.function_of("tools/call", "memory").__globals__["opened"] == {"count": 0}
    assert till.opened["count"] == 3


def test_a_package_is_imported_anew_as_a_whole(tmp_path, monkeypatch):
    package = tmp_path / "bakery_of_tests"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "app.py").write_text("from antiphon import Server\napp = Server('bakery')\n")
    (package / "tools.py").write_text(
        "from bakery_of_tests.app import app\n@app.tool\ndef bake() -> str:\n    return 'bread'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from bakery_of_tests import tools
    from bakery_of_tests.app import app

    other = fresh_of(ServerUnderTest(target=app))().target
    assert other is not app
    assert list(other._tools) == ["bake"]
    assert sys.modules["bakery_of_tests.tools"] is tools
    for name in [name for name in sys.modules if name.startswith("bakery_of_tests")]:
        monkeypatch.delitem(sys.modules, name)


# --- from the tester's client -------------------------------------------------------------------------------------


async def test_the_testers_client_checks_its_own_server():
    client = McpClient(ServerUnderTest(target=till.app), Script(YES))
    report = await client.check_replay_safety("pay_well", {"amount": 1}, effects=[till.charge])
    assert report.ok
    assert not (await client.check_replay_safety("hurry")).ok
    await client.close()


def test_a_client_on_another_event_loop_says_so():
    with pytest.raises(RuntimeError, match="Antiphon runs on asyncio"):
        McpClient(ServerUnderTest(target=till.app)).call_tool("quiet").send(None)


def test_the_places_are_those_of_this_repository():
    assert Path("tests/testing/till.py").is_file()


def test_a_package_of_the_user_ends_at_the_first_folder_that_is_none(tmp_path):
    from antiphon.testing.replay_safety import _homes

    for folder in ("", "project/shop", "project/shop/tools"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "__init__.py").touch()

    def handler_in(folder):
        space = {}
        exec(compile("def tool(): pass", str(tmp_path / folder / "handlers.py"), "exec"), space)
        return space["tool"]

    assert _homes(handler_in("project/shop/tools")) == [tmp_path / "project" / "shop"]
    assert _homes(handler_in("project")) == []
