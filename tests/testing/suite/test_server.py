"""Servers that do not do what they should: each time, the message that a person needs."""

import logging
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from textwrap import dedent

import pytest

from antiphon.testing.suite import Settings, Summary, loads, run

SHOP = Path(__file__).parent / "shop.py"
TESTS = """tests:
  - {name: orders, tool: order, arguments: {item: x}}
  - {name: again, tool: order, arguments: {item: x}}
"""


async def summary(server: str, tests: str = TESTS, **settings: object) -> Summary:
    return await run(loads(f"server: {server}\n{tests}", "/tmp/s.mcp.yaml"), settings=Settings(**settings))  # type: ignore[arg-type]


def script(tmp_path: Path, code: str) -> str:
    (tmp_path / "server.py").write_text(dedent(code))
    return f"command: ['{sys.executable}', '{tmp_path / 'server.py'}']"


def told(made: Summary) -> str:
    """Why there was no server: the first test says it, and the others are skipped."""
    first, second = made.outcomes
    assert (first.status, second.status, second.problem) == ("broken", "skipped", "The server did not start")
    assert made.unstarted == (f"s: {first.problem}",)
    return first.problem


async def test_a_server_in_a_process_of_its_own_is_tested():
    made = await summary(f"{{command: [python, '{SHOP}'], era: modern}}")
    assert made.passed, made.outcomes
    assert [one.checks for one in made.outcomes] == [(), ()]


async def test_a_server_that_fails_to_start_is_told_with_its_stderr(tmp_path: Path):
    made = await summary(f"{{{script(tmp_path, 'import no_such_module')}, era: modern}}")
    assert told(made) == "The server did not start: The server's process ended (exit code 1)."
    assert "ModuleNotFoundError: No module named 'no_such_module'" in made.outcomes[0].log


async def test_a_program_on_no_path_is_looked_for_beside_the_interpreter(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/bin")
    made = await summary(f"{{command: [antiphon, serve, '{SHOP}'], era: modern}}")
    assert made.passed, made.outcomes


async def test_a_command_that_is_not_there_is_named():
    assert told(await summary("{command: [no-such-command]}")) == (
        "The server did not start: there is no command 'no-such-command'"
    )


async def test_a_server_that_hangs_is_told_with_the_time_it_had(tmp_path: Path):
    code = "import sys, time; print('warming up', file=sys.stderr, flush=True); sys.stdin.read()"
    made = await summary(f"{{{script(tmp_path, code)}, era: modern, startup: 400ms}}")
    assert told(made) == "The server did not answer within 0.4 s of its start ('startup' says how long it may take)."
    assert made.outcomes[0].log == "warming up"


async def test_a_server_that_prints_to_stdout_fails_and_is_told_what_it_printed(tmp_path: Path):
    code = f"""
        import sys
        print("Starting the shop", flush=True)
        sys.path.insert(0, {str(SHOP.parent)!r})
        import shop
        shop.app.run()
    """
    server = f"{script(tmp_path, code)}, era: modern"
    first, second = (await summary(f"{{{server}}}")).outcomes
    assert (first.status, second.status) == ("failed", "passed")
    (failed,) = first.failures
    assert failed.name == "stdout"
    assert failed.problem == (
        "The server printed 'Starting the shop' to standard output, which is for MCP messages alone:"
        " print to stderr instead."
    )
    assert (await summary(f"{{{server}, stray: ignore}}")).passed


async def test_what_a_server_in_this_process_logs_is_no_print_and_leaves_no_handler_behind(tmp_path: Path):
    (tmp_path / "logs.py").write_text(
        dedent("""
            import logging
            from antiphon import Server
            app = Server("logs")
            @app.tool
            def order(item: str) -> str:
                logging.getLogger("antiphon").warning("the server wrote a line that is no message: %r", item)
                return "ordered"
        """)
    )
    log = logging.getLogger("antiphon")
    handlers = list(log.handlers)
    made = await summary(f"{{app: '{tmp_path / 'logs.py'}:app', era: modern}}")
    assert made.passed, made.outcomes
    assert log.handlers == handlers


async def test_a_server_that_prints_and_says_nothing_else_is_told_what_it_printed(tmp_path: Path):
    made = await summary(f"{{{script(tmp_path, 'print(1)')}, era: modern}}")
    assert told(made).startswith(
        "The server did not start: The server's process ended (exit code 0). It printed '1' to"
    )


async def test_a_server_that_sends_nonsense_is_told(tmp_path: Path):
    made = await summary(f"{{{script(tmp_path, 'print(chr(123), flush=True); input()')}, era: modern}}")
    assert told(made).startswith("The server cannot be understood: The server sent what is not JSON")


async def test_a_server_that_cannot_be_reached_is_told():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        assert told(await summary(f"{{url: '{url}'}}")).startswith(
            "The server cannot be reached: Cannot connect to 127"
        )


class Porter(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


async def test_a_server_that_refuses_the_client_is_told_with_what_may_help():
    with HTTPServer(("127.0.0.1", 0), Porter) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            made = await summary(f"{{url: 'http://127.0.0.1:{server.server_port}/', era: modern}}")
        finally:
            server.shutdown()
            thread.join()
    assert "refuses this client" in told(made)
    assert "Set 'auth' to sign in, or 'headers'" in told(made)


async def test_a_server_that_dies_in_a_test_is_told_with_its_stderr(tmp_path: Path):
    code = """
        import os, sys
        from antiphon import Server
        app = Server("frail")
        @app.tool
        async def order(item: str) -> str:
            print("out of memory", file=sys.stderr, flush=True)
            os._exit(9)
        app.run()
    """
    made = await summary(
        f"{{{script(tmp_path, code)}, era: modern}}", TESTS.replace("again, tool: order", "again, tool: x")
    )
    first = made.outcomes[0]
    assert (first.status, first.problem) == ("broken", "The server's process ended (exit code 9)")
    assert first.log == "out of memory"
    assert made.unstarted == ()


@pytest.mark.parametrize(
    ("app", "problem"),
    [
        ("none.py", "There is no file /tmp/none.py"),
        ("no_such_package.app:x", "There is no module 'no_such_package' in /tmp, nor is one installed"),
        (f"{SHOP}:shop", "has no 'shop'; its Servers: app"),
        (f"{SHOP}:ORDERS", "is not an antiphon.Server: its type is list; its Servers: app"),
        ("{tmp}/empty.py", "empty.py has no Server: looked for an antiphon.Server among its top-level names"),
        ("{tmp}/two.py", "two.py has several Servers (a, b): choose one, as in"),
        ("{tmp}/bad.py", "bad.py failed while it was imported: ZeroDivisionError"),
        ("{tmp}/leaves.py", "leaves.py ended the process while it was imported (exit code 3)"),
        ("{tmp}/needs.py", 'needs.py failed while it was imported: ModuleNotFoundError("No module named'),
    ],
)
async def test_an_app_that_is_none_is_told(tmp_path: Path, app: str, problem: str):
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "two.py").write_text("from antiphon import Server\na, b = Server('a'), Server('b')\n")
    (tmp_path / "bad.py").write_text("1 / 0\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "needs.py").write_text("import no_such_thing\n")
    made = await summary(f"{{app: '{app.replace('{tmp}', str(tmp_path))}'}}")
    assert problem in told(made)
    assert ("line 1" in made.outcomes[0].log) == (app in {"{tmp}/bad.py", "{tmp}/needs.py"})


async def test_a_server_behind_a_url_cannot_be_rotated():
    assert "--rotate needs a command or an app" in told(await summary("{url: 'http://127.0.0.1:9/'}", rotate=2))


async def test_an_app_in_a_package_is_found_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "kiosk_for_suites"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "goods.py").write_text("NAME = 'kiosk'\n")
    (package / "app.py").write_text(
        "from antiphon import Server\nfrom .goods import NAME\napp = Server(NAME)\n"
        "@app.tool\ndef order(item: str) -> str:\n    return item + NAME\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    for app in ("kiosk_for_suites.app:app", "kiosk_for_suites.app", "kiosk_for_suites/app.py"):
        suite = loads(f"server: {{app: '{app}'}}\n{TESTS}", tmp_path / "s.mcp.yaml")
        assert (await run(suite)).passed, app


# --- the older era ------------------------------------------------------------------------------------------------


async def test_every_test_runs_in_both_eras():
    tests = """tests:
      - name: asks
        tool: survey
        inputResponses: {name: Ann, age: 7}
        expect: {text: Ann is 7, rounds: 3, asked: [name, age]}
      - {name: counts, tool: order, arguments: {item: x}, expect: {structured: {$.id: 1}}}
      - {name: old, tool: order, era: legacy, arguments: {item: x}, expect: {structured: {$.id: 2}}}
    """
    made = await summary(f"{{app: '{SHOP}', era: both}}", tests)
    assert made.passed, [(one.name, one.era, one.problem, one.failures) for one in made.outcomes]
    assert [(one.name, one.era[:4], one.status) for one in made.outcomes] == [
        ("asks", "2026", "passed"),
        ("counts", "2026", "passed"),
        ("old", "2026", "skipped"),
        ("asks", "2025", "passed"),
        ("counts", "2025", "passed"),
        ("old", "2025", "passed"),
    ]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_question_has_its_own_name_in_both_eras(era: str):
    tests = """tests:
      - name: counts
        tool: count
        inputResponses: {n: [1, 2, 3]}
        expect: {text: "[1, 2, 3]", rounds: 4, asked: [n, n-2, n-3]}
      - {name: archives, tool: wipe, inputResponses: {archive: true}, expect: {text: Wiped, asked: [archive]}}
    """
    counts, archives = (await summary(f"{{app: '{SHOP}'}}", tests, era=era)).outcomes
    assert counts.status == "passed", counts.failures
    assert archives.status == "broken"
    assert "The server asks 'wipe_all' (a form, 'Wipe all?', with confirm: boolean)" in archives.problem


ONE_THING_AT_A_TIME = """
    import json
    import sys

    def send(**message):
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

    def read(id):
        for line in sys.stdin:
            if json.loads(line).get("id") == id:
                return json.loads(line)

    for line in sys.stdin:
        message = json.loads(line)
        if message["method"] == "initialize":
            info = {"name": "simple", "version": "1"}
            send(id=message["id"], result={"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info})
        elif message["method"] == "tools/call":
            form = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
            send(id="q", method="elicitation/create", params={"message": "Sure?", "requestedSchema": form})
            answer = read("q")
            send(id=message["id"], result={"content": [{"type": "text", "text": json.dumps("result" in answer)}]})
"""


async def test_a_simple_older_server_is_told_that_nobody_answers_before_the_next_call(tmp_path: Path):
    tests = """tests:
      - {name: is not answered, tool: x, timeout: 5s}
      - {name: is answered, tool: x, timeout: 5s, inputResponses: {a: {ok: true}}, expect: {text: "true", asked: [a]}}
    """
    first, second = (await summary(f"{{{script(tmp_path, ONE_THING_AT_A_TIME)}, era: legacy}}", tests)).outcomes
    assert "the test has no answer for it" in first.problem
    assert second.status == "passed", second


@pytest.mark.parametrize(
    ("result", "expect", "problem"),
    [
        ("{}", "{text: {not: {contains: wrong}}}", "it has no list 'content', which every result of tools/call has"),
        ('{"structuredContent": {}}', "{structured: {}}", "it has no list 'content'"),
        ('{"content": "x"}', "{text: {not: {contains: wrong}}}", "content"),
        ('{"content": []}', "{text: {not: {contains: wrong}}}", ""),
    ],
)
async def test_a_result_without_its_content_is_malformed(tmp_path: Path, result: str, expect: str, problem: str):
    code = f"""
        import json, sys
        for line in sys.stdin:
            message = json.loads(line)
            if message["method"] == "tools/call":
                result = {result}
            else:
                result = {{"supportedVersions": ["2026-07-28"], "capabilities": {{}}}}
            result = {{"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}}
            print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], "result": result}}), flush=True)
    """
    tests = f"tests: [{{name: a, tool: x, expect: {expect}}}]"
    (made,) = (await summary(f"{{{script(tmp_path, code)}, era: modern}}", tests)).outcomes
    assert made.status == ("broken" if problem else "passed"), made
    assert problem in made.problem


async def test_a_server_of_the_newer_era_alone_is_told_in_the_older_one(tmp_path: Path):
    code = """
        import json, sys
        for line in sys.stdin:
            message = json.loads(line)
            error = {"code": -32601, "message": "What is this?"}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
    """
    made = await summary(f"{{{script(tmp_path, code)}, era: legacy}}")
    assert told(made).startswith("The server opens no session")


async def test_both_eras_are_recorded_and_replayed(tmp_path: Path):
    tests = """tests:
      - name: asks
        tool: survey
        inputResponses: {name: Ann, age: 7}
        expect: {text: Ann is 7, rounds: 3, asked: [name, age]}
    """
    assert (await summary(f"{{app: '{SHOP}', era: both}}", tests, record=tmp_path)).passed
    made = await summary("{app: gone.py, era: both}", tests, replay=tmp_path)
    assert made.passed, [(one.problem, one.failures) for one in made.outcomes]
    assert made.count("passed") == 2
