"""`antiphon serve`, in processes of its own, over standard streams and over HTTP."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from messages import headers_for, tool_call

NOTES = """
import os, sys
from antiphon import Context, Server

print("printed while importing")
os.write(1, b"written to descriptor 1 while importing\\n")
app = Server("notes", version="1.0.0")


@app.tool
async def shout(text: str) -> str:
    print("printed by a handler")
    os.write(1, b"written to descriptor 1 by a handler\\n")
    return text.upper()


@app.tool
async def is_loaded(module: str) -> bool:
    return module in sys.modules


@app.tool
async def deploy(ctx: Context) -> str:
    asked_by = await ctx.step("process", os.getpid)
    confirmed = await ctx.confirm("Deploy?")
    return f"{confirmed} {asked_by} {os.getpid()}"


if __name__ == "__main__":
    sys.exit("the main block ran")
"""

FAILING_LIFESPAN = """
from contextlib import asynccontextmanager
from antiphon import Server


@asynccontextmanager
async def lifespan(app):
    raise RuntimeError("no database today")
    yield


app = Server("notes", lifespan=lifespan)
"""


@pytest.fixture
def notes(tmp_path):
    (tmp_path / "notes.py").write_text(NOTES)
    return "notes.py"


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


def text_of(reply):
    return reply["result"]["content"][0]["text"]


# --- standard streams


def test_a_file_is_served_on_standard_streams_until_they_end(start, notes):
    served = start("serve", notes)
    served.send("server/discover")
    discovered = served.receive()["result"]
    assert discovered["supportedVersions"] == ["2026-07-28"]
    assert discovered["_meta"]["io.modelcontextprotocol/serverInfo"] == {"name": "notes", "version": "1.0.0"}
    served.send("tools/call", call("shout", text="hello"), id="a")
    reply = served.receive()
    assert (reply["id"], text_of(reply)) == ("a", "HELLO")
    assert served.end_of_input() == 0


def test_nothing_but_the_protocol_reaches_stdout(start, notes):
    served = start("serve", notes)
    served.send("tools/call", call("shout", text="hello"))
    assert text_of(served.receive()) == "HELLO"
    assert served.end_of_input() == 0
    served.text()
    assert served.out.empty()
    said = "".join(served.err.queue)
    for origin in ("while importing", "by a handler"):
        assert f"printed {origin}" in said
        assert f"written to descriptor 1 {origin}" in said


def test_standard_streams_need_no_http_server(start, notes):
    served = start("serve", notes)
    for module, loaded in (("antiphon", True), ("uvicorn", False), ("antiphon.client", False), ("sqlite3", False)):
        served.send("tools/call", call("is_loaded", module=module))
        assert served.receive()["result"]["structuredContent"] is loaded, module


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_standard_streams_cleanly(start, notes, number):
    served = start("serve", notes)
    served.send("server/discover")
    served.receive()
    assert served.signal(number) == 0
    assert "Traceback" not in served.text()


def test_the_package_runs_as_a_module(start, notes):
    served = start("serve", notes, command=(sys.executable, "-m", "antiphon"))
    served.send("server/discover")
    assert "result" in served.receive()


# --- HTTP


def test_http_is_served_until_a_signal_ends_it_and_its_open_streams(start, notes, post, stream):
    served = start("serve", notes, "--http", "--port", "0", "--path", "/tools", "--allow-host", "notes.example.com")
    url = served.url()
    assert served.announced == f"Serving notes on {url}\n"
    assert url.startswith("http://127.0.0.1:")
    assert url.endswith("/tools")
    status, reply = post(url, "tools/call", call("shout", text="hello"))
    assert (status, text_of(reply)) == (200, "HELLO")
    assert post(url, "server/discover", host="notes.example.com")[0] == 200
    assert post(url, "server/discover", host="other.example.com")[0] == 403
    events = stream(url, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    assert b"notifications/subscriptions/acknowledged" in events.readline() + events.readline()
    assert served.signal(signal.SIGTERM) == 0
    assert b'"resultType":"complete"' in events.read()
    assert "Traceback" not in served.text()


def test_ctrl_c_ends_http_cleanly(start, notes, post):
    served = start("serve", notes, "--http", "--port", "0")
    assert post(served.url(), "server/discover")[0] == 200
    assert served.signal(signal.SIGINT) == 0
    assert "Traceback" not in served.text()


def test_serving_every_address_says_that_only_localhost_is_admitted(start, notes, post):
    served = start("serve", notes, "--http", "--host", "0.0.0.0", "--port", "0")
    url = served.url().replace("0.0.0.0", "127.0.0.1")
    assert post(url, "server/discover")[0] == 200
    assert post(url, "server/discover", host="notes.example.com")[0] == 403
    assert served.signal(signal.SIGTERM) == 0
    assert "Only requests to localhost are accepted. Pass --allow-host NAME to accept others." in served.text()


def test_workers_share_a_key_and_end_together(start, notes, post, stream):
    served = start("serve", notes, "--http", "--port", "0", "--workers", "2")
    url = served.url()
    ways = set()
    deadline = time.monotonic() + 10
    flows = 0
    while flows < 20 or (len(ways) < 4 and time.monotonic() < deadline):
        _, asked = post(url, "tools/call", call("deploy"))
        answers = {
            "inputResponses": {"confirm": {"action": "accept", "content": {"confirm": True}}},
            "requestState": asked["result"]["requestState"],
        }
        _, done = post(url, "tools/call", {**call("deploy"), **answers})
        confirmed, asked_by, finished_by = text_of(done).split()
        assert confirmed == "True"
        ways.add((asked_by, finished_by))
        flows += 1
    assert len(ways) == 4, "each of two workers continued what either of them had asked"
    events = stream(url, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    assert b"acknowledged" in events.readline() + events.readline()
    assert served.signal(signal.SIGTERM) == 0
    assert b'"resultType":"complete"' in events.read()
    assert "ak1_" not in served.text()
    for worker in {worker for way in ways for worker in way}:
        with pytest.raises(ProcessLookupError):
            os.kill(int(worker), 0)


def test_reload_serves_what_a_changed_file_says(start, tmp_path, post):
    source = 'from antiphon import Server\napp = Server("{}")\n'
    file = tmp_path / "notes.py"
    file.write_text(source.format("before"))
    served = start("serve", "notes.py", "--http", "--port", "0", "--reload")
    url = served.url()
    assert name_of(post(url, "server/discover")) == "before"
    deadline = time.monotonic() + 15
    seen = "before"
    while seen != "after" and time.monotonic() < deadline:
        # The watcher may not have been looking yet when the file was last written.
        file.write_text(source.format("after"))
        # A worker that is about to end may drop what it has just accepted.
        with contextlib.suppress(ConnectionError, http.client.HTTPException):
            seen = name_of(post(url, "server/discover"))
    assert seen == "after"
    assert served.signal(signal.SIGTERM) == 0


def name_of(answer):
    status, reply = answer
    assert status == 200
    return reply["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"]


STUBBORN = """
import asyncio
from antiphon import Server

app = Server("stubborn")

@app.tool
async def immortal() -> str:
    print("waiting", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except BaseException:
            pass
"""
HASTY = """
import sys
from antiphon.cli import main
from antiphon.transports import serve

serve.SETTINGS["timeout_graceful_shutdown"] = 0.1
if __name__ == "__main__":
    main()
"""


@pytest.mark.heavy
@pytest.mark.parametrize("more", [["--workers", "2"], ["--reload"]])
def test_the_exit_code_tells_of_a_worker_whose_handler_could_not_be_cancelled(tmp_path, more):
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    (tmp_path / "hasty.py").write_text(HASTY)
    command = [sys.executable, "hasty.py", "serve", "stubborn.py", "--http", "--port", "0", *more]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, text=True, **pipes) as process:
        try:
            port = next(int(found[1]) for line in process.stderr if (found := re.search(r"127.0.0.1:(\d+)", line)))
            message = tool_call("immortal")
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
                connection.request("POST", "/mcp", json.dumps(message), {**headers_for(message), "host": "localhost"})
                assert process.stdout.readline() == "waiting\n"
                process.terminate()
                assert "immortal" in process.stderr.read()
            assert process.wait(10) == 1
        finally:
            process.kill()


# --- what goes wrong


@pytest.mark.parametrize("more", [[], ["--workers", "2"], ["--reload"]])
def test_a_port_that_is_taken_is_said_in_one_line(antiphon, notes, more):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = antiphon("serve", notes, "--http", "--port", port, *more)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(f"Error: Port {port} on 127.0.0.1 is in use")
    assert "Traceback" not in ended.stderr


def test_an_unknown_host_is_named(antiphon, notes):
    ended = antiphon("serve", notes, "--http", "--host", "nowhere.invalid")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "Error: There is no host 'nowhere.invalid': see --host"


def test_a_target_that_raises_shows_its_own_traceback(antiphon, tmp_path):
    (tmp_path / "helper.py").write_text("def prepare():\n    return 1 / 0\n")
    (tmp_path / "notes.py").write_text("import helper\n\nhelper.prepare()\n")
    ended = antiphon("serve", "notes.py")
    assert (ended.returncode, ended.stdout) == (1, "")
    frames = [line for line in ended.stderr.splitlines() if line.startswith("  File")]
    assert [frame.split('"')[1] for frame in frames] == [str(tmp_path / "notes.py"), str(tmp_path / "helper.py")]
    assert ended.stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("more", [[], ["--workers", "2"]])
def test_a_lifespan_that_fails_ends_http_with_code_1(antiphon, tmp_path, more):
    (tmp_path / "notes.py").write_text(FAILING_LIFESPAN)
    ended = antiphon("serve", "notes.py", "--http", "--port", "0", *more)
    assert ended.returncode == 1
    assert "no database today" in ended.stderr


def test_reload_without_watchfiles_says_what_to_install(antiphon, notes, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['watchfiles'] = None\n")
    ended = antiphon("serve", notes, "--http", "--port", "0", "--reload", env={"PYTHONPATH": str(tmp_path)})
    assert ended.returncode == 1
    assert ended.stderr == "Error: --reload needs watchfiles: pip install 'antiphon[reload]'\n"


UNGUARDED = "from antiphon import Server\napp = Server('notes')\napp.run()\n"
GUARD = 'put what runs under if __name__ == "__main__":'


@pytest.mark.parametrize(
    "command",
    [["serve", "notes.py"], ["serve", "notes.py", "--http"], ["call", "notes.py"], ["test", "notes.mcp.yaml"]],
)
def test_a_file_that_serves_while_it_is_imported_is_told_of_the_guard_once(antiphon, tmp_path, command):
    (tmp_path / "notes.py").write_text(UNGUARDED)
    (tmp_path / "notes.mcp.yaml").write_text("server: {app: notes.py}\ntests: [{name: lists, method: tools/list}]\n")
    ended = antiphon(*command)
    assert ended.returncode in {1, 3}
    said = " ".join((ended.stdout + ended.stderr).replace("│", " ").split())  # however wide the terminal is
    assert said.count(f"RuntimeError: {tmp_path}/notes.py" if command[0] == "call" else "RuntimeError: notes.py") == 1
    assert GUARD in said
    assert "line 3, in <module>" in said


@pytest.mark.parametrize("command", [["serve", "notes.py"], ["call", "notes.py"], ["call", "notes.py", "--era=legacy"]])
def test_a_lifespan_that_fails_shows_the_authors_frames_once(antiphon, tmp_path, command):
    (tmp_path / "notes.py").write_text(FAILING_LIFESPAN)
    said = antiphon(*command).stderr
    assert said.count("no database today") == 2, "the line, and the error"
    assert said.count("  File ") == 1
    assert f'{tmp_path}/notes.py", line 8, in lifespan' in said


PROTECTED = """
import os
from antiphon import Context, Server


async def page(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"a page"})


app = Server("notes", principal=lambda scope: "ada", fallback=page)


@app.tool
def process(ctx: Context) -> str:
    return f"{ctx.principal} {os.getpid()}"


if __name__ == "__main__":
    import sys
    app.run("http", port=int(sys.argv[1]), workers=2)
"""


def test_the_file_says_who_calls_and_what_else_is_served(start, tmp_path, post):
    (tmp_path / "notes.py").write_text(PROTECTED)
    url = start("serve", "notes.py", "--http", "--port", "0").url()
    assert text_of(post(url, "tools/call", call("process"))[1]).startswith("ada ")
    assert _page(url) == b"a page"


def test_a_file_serves_itself_in_several_processes(start, tmp_path, post):
    (tmp_path / "notes.py").write_text(PROTECTED)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    served = start("notes.py", str(port), command=(sys.executable,))
    while "Started parent process" not in served.err.get(timeout=20):
        pass
    url = f"http://127.0.0.1:{port}/mcp"
    person, pid = text_of(post(url, "tools/call", call("process"))[1]).split()
    assert person == "ada"
    assert int(pid) != served.process.pid
    assert _page(url) == b"a page"
    assert served.signal(signal.SIGTERM) == 0


def test_workers_that_serve_while_they_are_imported_end_with_the_guard(start, tmp_path):
    (tmp_path / "notes.py").write_text(PROTECTED.replace('if __name__ == "__main__":', "if True:"))
    served = start("notes.py", "0", command=(sys.executable,))
    assert served.process.wait(20) == 1
    assert GUARD in served.text()


def _page(url):
    connection = http.client.HTTPConnection(*url.split("/")[2].split(":"), timeout=20)
    with contextlib.closing(connection):
        connection.request("GET", "/page")
        return connection.getresponse().read()
