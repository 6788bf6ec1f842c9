"""Standard streams: one message a line, many requests at once, and nothing else on stdout."""

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import textwrap

import pytest

from antiphon import Context, Server
from messages import REVISION, SUBSCRIPTION, check_notification, check_reply, request, tool_call

DEADLINE = 10.0

SERVER = """
import asyncio, logging, os, subprocess, sys, threading, time
from antiphon import Context, Server
from antiphon.transports import stdio_server as stdio

app = Server("tests", version="1.0.0")
gates = {}

def gate(name):
    return gates.setdefault(name, asyncio.Event())

@app.tool
async def echo(text: str = "x") -> str:
    return text

@app.tool
async def open_gate(name: str) -> str:
    gate(name).set()
    return "opened"

@app.tool
async def wait_for(name: str, ctx: Context) -> str:
    await ctx.progress(1)
    try:
        await gate(name).wait()
    except asyncio.CancelledError:
        gate(f"{name} was cancelled").set()
        raise
    return "waited"

@app.tool
async def stubborn(ctx: Context) -> str:
    await ctx.progress(1)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await ctx.progress(2)
    return "an answer for nobody"

@app.tool
async def clumsy() -> str:
    inner = asyncio.ensure_future(asyncio.Event().wait())
    inner.cancel()
    await inner
    return "never"

@app.tool
async def unfit() -> str:
    return "\\ud800"

@app.tool
async def noisy(how: str) -> str:
    if how == "print":
        print("noise from print", flush=True)
    elif how == "stdout":
        sys.stdout.write("noise from sys.stdout")
        sys.stdout.buffer.write(b"noise from the buffer")
    elif how == "__stdout__":
        print("noise from __stdout__", file=sys.__stdout__, flush=True)
    elif how == "write":
        os.write(1, b"noise from os.write")
    elif how == "child":
        subprocess.run([sys.executable, "-c", "print('noise from a child')"], check=True)
    elif how == "input":
        return repr(sys.stdin.read())
    elif how == "child input":
        return repr(subprocess.run([sys.executable, "-c", "import sys; print(len(sys.stdin.read()))"],
                                   capture_output=True, text=True).stdout)
    return "quiet"

@app.tool
def noisy_thread() -> str:
    print("noise from a thread", flush=True)
    return "quiet"

@app.tool
async def touch() -> str:
    app.changed("tools")
    return "touched"

@app.tool
def asleep() -> str:
    time.sleep(60)
    return "awake"

@app.tool
async def finish_after_end(ctx: Context) -> str:
    await ctx.progress(1)
    while not app.subscriptions.closing:  # until the input has ended
        await asyncio.sleep(0.01)
    return "finished"
"""


class Peer:
    """A client of a server in a process of its own."""

    def __init__(self, code=""):
        script = f"{SERVER}\n{textwrap.dedent(code)}\napp.run()"
        # Unbuffered, what is printed before run() would be on the wire before anybody could stop it.
        env = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen([sys.executable, "-c", script], env=env, **pipes)

    def write(self, *lines):
        for line in lines:
            self.process.stdin.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def read(self):
        """The next line of stdout, which must be a message."""
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), line
        return json.loads(line)

    def call(self, message):
        """Send a request and wait for its reply; notifications in between are checked and dropped."""
        self.write(message)
        return self.reply_to(message)

    def reply_to(self, message):
        while "method" in (reply := self.read()):
            check_notification(reply)
        check_reply(message, reply)
        return reply

    def end(self):
        """Close stdin and give what is left on stdout, what came on stderr, and the exit code."""
        out, err = self.process.communicate(timeout=DEADLINE)
        return [json.loads(line) for line in out.splitlines()], err.decode(), self.process.returncode


@pytest.fixture
def peer():
    peers = []

    def start(code=""):
        peers.append(Peer(code))
        return peers[-1]

    # Whatever a server does not answer must not hang the tests.
    def give_up(*_):
        raise TimeoutError("the server did not answer")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(6)
    yield start
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    for one in peers:
        one.process.kill()
        one.process.wait()
        for stream in (one.process.stdin, one.process.stdout, one.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def text_of(reply):
    return reply["result"]["content"][0]["text"]


# --- requests -----------------------------------------------------------------------------------------------------


def test_a_conversation_and_a_clean_end(peer):
    one = peer()
    discovered = one.call(request("server/discover", id=0))
    assert discovered["result"]["supportedVersions"] == [REVISION]
    assert len(one.call(request("tools/list", id="list"))["result"]["tools"]) > 5
    assert text_of(one.call(tool_call("echo", {"text": "héllo\nthere\u2028"}, id=""))) == "héllo\nthere\u2028"
    assert one.call(tool_call("none", id=7))["error"]["code"] == -32602
    assert one.end() == ([], "", 0)


def test_requests_are_served_side_by_side_and_answered_as_they_finish(peer):
    one = peer()
    waiting = tool_call("wait_for", {"name": "a"}, id="slow")
    one.write(waiting)
    opening = tool_call("open_gate", {"name": "a"}, id="fast")
    assert one.call(opening)["id"] == "fast"
    assert text_of(one.reply_to(waiting)) == "waited"


def test_many_requests_in_one_write_are_all_answered(peer):
    one = peer()
    messages = [tool_call("echo", {"text": str(number)}, id=number) for number in range(200)]
    one.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
    replies = [one.read() for _ in messages]
    assert {reply["id"]: text_of(reply) for reply in replies} == {number: str(number) for number in range(200)}


def test_an_id_may_be_used_again_once_it_was_answered(peer):
    one = peer()
    for number in range(300):
        assert text_of(one.call(tool_call("echo", {"text": str(number)}, id="same"))) == str(number)


def test_an_id_that_is_under_way_may_not_be_used_again(peer):
    one = peer()
    waiting = tool_call("wait_for", {"name": "a"}, id=5, progress="t")
    one.write(waiting)
    assert one.read()["method"] == "notifications/progress"
    one.write(tool_call("echo", id=5))
    refused = one.read()
    assert refused["error"]["code"] == -32600
    assert "id" not in refused
    one.call(tool_call("open_gate", {"name": "a"}, id=6))
    assert text_of(one.reply_to(waiting)) == "waited"


def test_notifications_come_before_the_reply(peer):
    one = peer()
    message = tool_call("wait_for", {"name": "a"}, progress="t")
    one.write(tool_call("open_gate", {"name": "a"}, id="o"), message)
    lines = [one.read() for _ in range(3)]
    mine = [line for line in lines if line.get("id") != "o"]
    assert [line.get("method", "reply") for line in mine] == ["notifications/progress", "reply"]


def test_notifications_get_no_reply(peer):
    one = peer()
    for method in ("notifications/initialized", "notifications/com.example"):
        one.write({"jsonrpc": "2.0", "method": method})
    assert one.call(tool_call("echo", id=2))["id"] == 2


def test_an_old_client_is_told_which_revision_is_spoken_here_before_it_initializes(peer):
    one = peer()
    one.write({"jsonrpc": "2.0", "id": 0, "method": "tools/list", "params": {}})
    reply = one.read()
    assert reply["id"] == 0
    assert REVISION in json.dumps(reply["error"])


def test_a_handler_that_cancels_itself_is_answered(peer):
    assert peer().call(tool_call("clumsy"))["error"]["code"] == -32603


def test_a_result_that_cannot_be_written_is_an_internal_error(peer):
    assert peer().call(tool_call("unfit"))["error"]["code"] == -32603


# --- cancellation -------------------------------------------------------------------------------------------------


def cancel(id_, **more):
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id_, **more}}


def test_a_cancelled_request_is_stopped_and_not_answered(peer):
    one = peer()
    for id_ in (0, 1, "", "abc"):
        one.write(tool_call("wait_for", {"name": repr(id_)}, id=id_, progress="t"))
        assert one.read()["method"] == "notifications/progress"
        one.write(cancel(id_, reason="changed my mind"))
        told = tool_call("wait_for", {"name": f"{id_!r} was cancelled"}, id="next")
        assert one.call(told)["id"] == "next"
    assert one.end()[0] == []


def test_nothing_is_sent_for_a_request_after_it_was_cancelled(peer):
    # basic/transports/stdio, Cancellation: "MUST NOT send any further messages for it".
    one = peer()
    one.write(tool_call("stubborn", id=1, progress="t"))
    assert one.read()["params"]["progress"] == 1
    one.write(cancel(1))
    one.write(tool_call("echo", id=2))
    left, _, code = one.end()
    assert [message.get("id") for message in left] == [2]
    assert code == 0


INVALID = [
    cancel("unknown"),
    cancel(True),
    cancel(1.0),
    cancel(None),
    cancel([1]),
    cancel({"a": 1}),
    cancel("1"),
    {"jsonrpc": "2.0", "method": "notifications/cancelled"},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": [1]},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": None},
]


def test_a_cancellation_of_nothing_is_ignored(peer):
    # basic/patterns/cancellation, Error Handling: unknown ids and malformed notifications.
    one = peer()
    waiting = tool_call("wait_for", {"name": "a"}, id=1, progress="t")
    one.write(waiting)
    assert one.read()["method"] == "notifications/progress"
    one.write(*INVALID)
    one.call(tool_call("open_gate", {"name": "a"}, id=2))
    assert text_of(one.reply_to(waiting)) == "waited"


# --- subscriptions ------------------------------------------------------------------------------------------------


def test_changes_are_told_on_the_shared_channel_until_cancelled(peer):
    one = peer()
    for id_ in ("a", "b"):
        one.write(request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=id_))
        acknowledged = one.read()
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert acknowledged["params"]["_meta"] == {SUBSCRIPTION: id_}
    one.write(cancel("a"), tool_call("touch", id="t"))
    lines = [one.read(), one.read()]
    (told,) = [line for line in lines if "method" in line]
    assert told["method"] == "notifications/tools/list_changed"
    assert told["params"]["_meta"] == {SUBSCRIPTION: "b"}


def test_a_stream_that_the_server_ends_gets_its_reply(peer):
    one = peer()
    listen = request("subscriptions/listen", {"notifications": {}}, id="l")
    one.write(listen)
    assert one.read()["method"] == "notifications/subscriptions/acknowledged"
    left, _, code = one.end()
    closing = [message for message in left if message.get("id") == "l"]
    check_reply(listen, *closing)
    assert closing[0]["result"]["_meta"][SUBSCRIPTION] == "l"
    assert code == 0


# --- nothing but protocol on stdout -------------------------------------------------------------------------------


def test_whatever_a_handler_writes_to_stdout_goes_to_stderr(peer):
    one = peer()
    for how in ("print", "stdout", "__stdout__", "write", "child"):
        assert text_of(one.call(tool_call("noisy", {"how": how}))) == "quiet"
    assert text_of(one.call(tool_call("noisy_thread"))) == "quiet"
    left, errors, code = one.end()
    assert (left, code) == ([], 0)
    for whose in ("print", "sys.stdout", "the buffer", "__stdout__", "os.write", "a child", "a thread"):
        assert f"noise from {whose}" in errors


def test_what_was_printed_while_the_module_loaded_is_not_in_the_way(peer):
    one = peer("print('noise before', end='')")
    assert one.call(tool_call("echo"))["id"] == 1
    assert "noise before" in one.end()[1]


def test_logging_goes_to_stderr(peer):
    one = peer("logging.basicConfig(level=logging.INFO, stream=sys.stdout)")
    one.call(tool_call("echo"))
    left, errors, _ = one.end()
    assert left == []
    assert "tools/call" in errors


def test_a_handler_that_reads_stdin_takes_no_messages(peer):
    one = peer()
    assert text_of(one.call(tool_call("noisy", {"how": "input"}))) == "''"
    assert text_of(one.call(tool_call("noisy", {"how": "child input"}))) == repr("0\n")
    assert one.call(tool_call("echo", id=2))["id"] == 2


# --- lines --------------------------------------------------------------------------------------------------------


LINES = [
    (b"nonsense", -32700),
    (b"{", -32700),
    (b'{"a":"\xff"}', -32700),
    (b"[]", -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]', -32600),
    (b'{"jsonrpc":"2.0","id":1,"id":1,"method":"tools/list"}', -32600),
    (b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', -32600),
    (b'{"jsonrpc":"2.0","method":"tools/list"}', -32600),
    (b"[" * 100_000, -32600),
    (b"\x00", -32700),
]


def test_a_line_that_is_no_message_is_an_error_and_serving_goes_on(peer):
    one = peer()
    for number, (line, code) in enumerate(LINES):
        one.write(line + b"\n")
        reply = one.read()
        assert reply["error"]["code"] == code, line[:80]
        assert "id" not in reply
        assert one.call(tool_call("echo", id=number))["id"] == number


def test_a_response_is_refused_and_serving_goes_on(peer):
    one = peer()
    one.write({"jsonrpc": "2.0", "id": 9, "result": {}})
    assert one.read()["error"]["code"] == -32600
    assert one.call(tool_call("echo", id=2))["id"] == 2


def test_blank_lines_are_nothing(peer):
    one = peer()
    one.write(b"\n", b"   \n", b"\r\n", b"\n\n\n\t\n")
    assert one.call(tool_call("echo", id=2))["id"] == 2


def test_lines_may_end_as_on_windows(peer):
    one = peer()
    one.write(json.dumps(tool_call("echo", id=3)).encode() + b"\r\n")
    assert one.read()["id"] == 3


def test_a_line_may_come_in_pieces(peer):
    one = peer()
    whole = json.dumps(tool_call("echo", {"text": "é"}, id=3), ensure_ascii=False).encode() + b"\n"
    for start in range(0, len(whole), 7):
        one.write(whole[start : start + 7])
    assert text_of(one.read()) == "é"


LIMIT = "stdio.MAX_LINE = 1000; stdio.serve.__kwdefaults__['max_line'] = 1000"


def long_line(length):
    message = tool_call("echo", {"text": ""}, id="long")
    message["params"]["arguments"]["text"] = "x" * (length - len(json.dumps(message)))
    return json.dumps(message).encode()


def test_a_line_may_be_as_long_as_the_limit_and_no_longer(peer):
    one = peer(LIMIT)
    one.write(long_line(1000) + b"\n")
    assert one.read()["id"] == "long"
    for length in (1001, 70_000, 300_000):
        one.write(long_line(length) + b"\n")
        reply = one.read()
        assert reply["error"]["code"] == -32600
        assert "1000" in reply["error"]["message"]
        assert reply["id"] == "long"
        assert one.call(tool_call("echo", id=length))["id"] == length


def nested(depth, **members):
    """A message that is too deep, as text; its members come in the order given, ``params`` being the deep one."""
    deep = "[" * depth + "]" * depth
    parts = [f'"{key}":{deep if key == "params" else json.dumps(value)}' for key, value in members.items()]
    return ("{" + ",".join(parts) + "}").encode()


@pytest.mark.parametrize("depth", [80, 100_000])
def test_a_message_that_is_too_deep_is_refused_by_its_id(peer, depth):
    one = peer()
    for id_ in (7, "seven"):
        first = nested(depth, jsonrpc="2.0", id=id_, method="tools/call", params=None)
        last = nested(depth, method="tools/call", params=None, jsonrpc="2.0", id=id_)
        for line in (first, last):
            one.write(line + b"\n")
            reply = one.read()
            assert (reply["id"], reply["error"]["code"]) == (id_, -32600)


def test_a_refused_message_with_the_id_of_one_under_way_is_refused_without_it(peer):
    one = peer()
    waiting = tool_call("wait_for", {"name": "a"}, id=5, progress="t")
    one.write(waiting)
    assert one.read()["method"] == "notifications/progress"
    one.write(nested(80, jsonrpc="2.0", id=5, method="tools/call", params=None) + b"\n")
    assert "id" not in one.read()
    one.call(tool_call("open_gate", {"name": "a"}, id=6))
    assert text_of(one.reply_to(waiting)) == "waited"


# --- the end ------------------------------------------------------------------------------------------------------


def test_the_last_line_needs_no_newline(peer):
    one = peer()
    one.write(json.dumps(tool_call("echo", id="last")).encode())
    left, _, code = one.end()
    assert [message["id"] for message in left] == ["last"]
    assert code == 0


def test_what_is_under_way_at_the_end_of_input_is_finished(peer):
    one = peer()
    one.write(tool_call("finish_after_end", id="f", progress="t"))
    assert one.read()["method"] == "notifications/progress"
    left, errors, code = one.end()
    assert [text_of(message) for message in left] == ["finished"]
    assert (errors, code) == ("", 0)


def test_what_never_finishes_is_cancelled_at_the_end(peer):
    one = peer("stdio.GRACE = 0.2")
    one.write(tool_call("wait_for", {"name": "never"}, id="w", progress="t"))
    assert one.read()["method"] == "notifications/progress"
    left, errors, code = one.end()
    assert left == []
    assert "Traceback" not in errors
    assert code == 0


def test_a_thread_that_never_finishes_does_not_keep_the_process(peer):
    one = peer("stdio.GRACE = 0.2")
    one.write(tool_call("asleep", id="a"))
    assert one.call(tool_call("echo", id=2))["id"] == 2
    one.process.stdin.close()
    assert one.process.wait(5) == 0


def test_a_handler_that_cannot_be_cancelled_does_not_keep_the_process_and_is_told_by_its_exit_code(peer):
    one = peer(
        """
        from antiphon.transports import shutdown as ending

        stdio.GRACE = ending.GRACE = 0.1

        @app.tool
        async def immortal(ctx: Context) -> str:
            await ctx.progress(1)
            while True:
                try:
                    await asyncio.Event().wait()
                except BaseException:
                    pass
        """
    )
    one.write(tool_call("immortal", id="i", progress="t"))
    assert one.read()["method"] == "notifications/progress"
    left, errors, code = one.end()
    assert (left, code) == ([], 1)
    assert "immortal" in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(peer, number):
    one = peer()
    one.call(tool_call("echo"))
    one.process.send_signal(number)
    assert one.process.wait(5) == 0
    assert one.process.stderr.read() == b""


def test_a_signal_lets_what_is_under_way_finish(peer):
    one = peer()
    message = tool_call("finish_after_end", id="f", progress="t")
    one.write(message)
    assert one.read()["method"] == "notifications/progress"
    one.process.terminate()
    assert text_of(one.reply_to(message)) == "finished"
    assert one.process.wait(5) == 0


def test_a_client_that_stops_listening_ends_it(peer):
    one = peer()
    one.call(tool_call("echo"))
    one.process.stdout.close()
    one.write(tool_call("echo", id=2))
    assert one.process.wait(8) == 0
    assert b"Traceback" not in one.process.stderr.read()


def test_the_lifespan_surrounds_it_all(peer):
    one = peer(
        """
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def life(server):
            print("up", file=sys.stderr)
            yield "state"
            print("down", file=sys.stderr)

        app._lifespan = life

        @app.tool
        async def look(ctx: Context) -> str:
            return ctx.lifespan
        """
    )
    assert text_of(one.call(tool_call("look"))) == "state"
    assert one.end() == ([], "up\ndown\n", 0)


def test_stdout_is_given_back_at_the_end():
    script = f"{SERVER}\napp.run()\nprint('after')"
    done = subprocess.run([sys.executable, "-c", script], input=b"", capture_output=True, timeout=DEADLINE, check=True)
    assert done.stdout == b"after\n"


# --- in process ---------------------------------------------------------------------------------------------------


async def test_a_pipe_serves_any_two_descriptors(app):
    from antiphon.transports.stdio_server import Pipe

    app.add_tool(lambda: "x", name="echo")
    source, into = os.pipe()
    out_of, sink = os.pipe()
    serving = asyncio.ensure_future(Pipe(app, source, sink).run())
    os.write(into, json.dumps(tool_call("echo")).encode() + b"\n")
    line = await asyncio.wait_for(asyncio.to_thread(os.read, out_of, 65536), 5)
    check_reply(tool_call("echo"), json.loads(line))
    os.close(into)
    await asyncio.wait_for(serving, 5)
    for descriptor in (source, out_of, sink):
        os.close(descriptor)


@pytest.mark.parametrize("newline", [b"", b"\n"])
async def test_the_rest_of_a_line_that_is_too_long_is_not_taken_for_a_message(app, monkeypatch, newline):
    from antiphon.transports import stdio_server as stdio

    ran, written = [], []
    app.add_tool(lambda: ran.append(1), name="echo")
    # The line arrives in two reads, and what is left for the second one looks like a message.
    chunks = [b"x" * 2000, json.dumps(tool_call("echo")).encode() + newline, b""]

    class Files:
        @staticmethod
        def read(descriptor, size):
            return chunks.pop(0)

        @staticmethod
        def write(descriptor, data):
            written.append(bytes(data))
            return len(data)

    monkeypatch.setattr(stdio, "os", Files)
    await asyncio.wait_for(stdio.Pipe(app, 0, 1, max_line=1000).run(), 5)
    assert ran == []
    (reply,) = map(json.loads, written)
    assert reply["error"]["code"] == -32600
    assert "1000" in reply["error"]["message"]


# --- a client that does not read ----------------------------------------------------------------------------------


class Plumbing:
    """A Pipe on two real pipes, and the client's ends of them."""

    def __init__(self, app):
        from antiphon.transports.stdio_server import Pipe

        self.source, self._into = os.pipe()
        self._out_of, self.sink = os.pipe()
        self._pipe = Pipe(app, self.source, self.sink)

    async def __aenter__(self):
        self.serving = asyncio.ensure_future(self._pipe.run())
        return self

    async def __aexit__(self, *exc):
        self.leave()
        await asyncio.wait_for(self.serving, DEADLINE)
        os.close(self.source)
        os.close(self.sink)

    def write(self, *messages):
        os.write(self._into, b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def flood(self, most):
        """Call and read nothing, until no more can be written; return the ids of the calls."""
        os.set_blocking(self._into, False)
        ids, line, written = [], b"", 0
        while written < most and select.select([], [self._into], [], 0.5)[1]:
            if not line:
                ids.append(len(ids))
                line = json.dumps(tool_call("small", id=ids[-1])).encode() + b"\n"
            with contextlib.suppress(BlockingIOError):
                count = os.write(self._into, line)
                line, written = line[count:], written + count
        return ids[:-1] if line else ids

    def stop_reading(self):
        if self._out_of is not None:
            os.close(self._out_of)
            self._out_of = None

    def end(self):
        if self._into is not None:
            os.close(self._into)
            self._into = None

    def leave(self):
        self.end()
        self.stop_reading()

    async def read_until(self, id_):
        """All messages up to the reply to one of them."""
        found, rest = [], b""
        while not any(message.get("id") == id_ for message in found):
            rest += await asyncio.wait_for(asyncio.to_thread(os.read, self._out_of, 65536), DEADLINE)
            *lines, rest = rest.split(b"\n")
            found += map(json.loads, lines)
        return found


SIZE = 20_000


@pytest.fixture
def talker(app):
    """A server with a tool that says a lot."""
    app.said = 0
    app.stopped = asyncio.Event()

    @app.tool
    async def talk(ctx: Context) -> str:
        try:
            for number in range(1000):
                await ctx.progress(number, message="x" * SIZE)
                app.said += 1
        finally:
            app.stopped.set()
        return "done"

    @app.tool
    async def large() -> str:
        return "x" * (2 << 20)

    @app.tool
    async def small() -> str:
        app.stopped.set()
        return "x"

    return app


async def test_a_handler_waits_for_a_client_that_does_not_read(talker):
    from antiphon.transports import stdio_server as stdio

    async with Plumbing(talker) as plumbing:
        plumbing.write(tool_call("talk", id="t", progress="p"), tool_call("small", id="s"))
        await asyncio.wait_for(talker.stopped.wait(), DEADLINE)
        assert SIZE * talker.said < 2 * stdio.MAX_UNSENT
        told = await plumbing.read_until("t")
        assert len([message for message in told if "method" in message]) == 1000


async def test_a_handler_that_waits_can_be_cancelled(talker):
    async with Plumbing(talker) as plumbing:
        plumbing.write(tool_call("talk", id="t", progress="p"), tool_call("small", id="s"))
        await asyncio.wait_for(talker.stopped.wait(), DEADLINE)
        talker.stopped.clear()
        plumbing.write(cancel("t"))
        await asyncio.wait_for(talker.stopped.wait(), DEADLINE)
        assert talker.said < 1000
        assert "t" not in {message.get("id") for message in await plumbing.read_until("s")}


async def test_a_client_that_never_reads_is_not_read_either(talker, monkeypatch):
    from antiphon.transports import stdio_server as stdio

    monkeypatch.setattr(stdio, "MAX_UNSENT", 50_000)
    monkeypatch.setattr(stdio, "MAX_UNREAD", 100_000)
    async with Plumbing(talker) as plumbing:
        ids = await asyncio.to_thread(plumbing.flood, 8 << 20)
        assert len(ids) * len(json.dumps(tool_call("small"))) < 1 << 20
        told = await plumbing.read_until(ids[-1])
        assert [message["id"] for message in told] == ids


async def test_requests_under_way_are_bounded_and_can_still_be_cancelled(app, monkeypatch):
    from antiphon.transports import stdio_server as stdio

    @app.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(stdio, "MAX_UNDER_WAY", 2)
    async with Plumbing(app) as plumbing:
        plumbing.write(*(tool_call("wait", id=id_) for id_ in "abc"))
        (refused,) = await plumbing.read_until("c")
        assert "wait for replies" in refused["error"]["message"]
        plumbing.write(cancel("a"), cancel("b"))
        async with asyncio.timeout(DEADLINE):
            reply = refused
            while "error" in reply:  # until both have come to their end
                plumbing.write(request("server/discover", id="d"))
                (reply,) = await plumbing.read_until("d")


@pytest.mark.parametrize("how", ["end", "stop_reading", "leave"])
async def test_the_end_is_not_held_up_by_who_waits(talker, monkeypatch, how):
    from antiphon.transports import stdio_server as stdio

    monkeypatch.setattr(stdio, "GRACE", 0.1)
    async with Plumbing(talker) as plumbing:
        plumbing.write(tool_call("talk", id="t", progress="p"), tool_call("small", id="s"))
        await asyncio.wait_for(talker.stopped.wait(), DEADLINE)
        getattr(plumbing, how)()
        await asyncio.wait_for(asyncio.shield(plumbing.serving), DEADLINE)
        assert talker.said == 1000 if how == "stop_reading" else talker.said


@pytest.mark.parametrize("fault", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, RuntimeError])
async def test_whatever_comes_out_of_the_service_is_an_internal_error(fault, caplog):
    class Broken(Server):
        async def answer(self, message, *args):
            if message["id"] == "broken":
                raise fault
            return await super().answer(message, *args)

    async with Plumbing(Broken("broken")) as plumbing:
        plumbing.write(request("server/discover", id="broken"))
        (refused,) = await plumbing.read_until("broken")
        assert refused["error"]["code"] == -32603
        plumbing.write(request("server/discover", id="fine"))
        assert "result" in (await plumbing.read_until("fine"))[0]
    assert "a request failed" in caplog.text
