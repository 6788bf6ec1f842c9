"""Older clients on a pipe: one session for as long as it lasts, messages both ways, modern requests in between."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys

import pytest

from antiphon import Context, InputRequired, Server, ask, input_required
from antiphon.legacy.server.stdio import LegacyPipe
from antiphon.transports.stdio_server import Pipe
from messages import check_reply
from messages import request as modern_request
from messages import tool_call as modern_call

from .driver import (
    DECLINE,
    EVERYTHING,
    LATEST,
    REVISIONS,
    accept,
    check,
    initialize,
    key_of,
    notification,
    request,
    text_of,
    tool_call,
)

DEADLINE = 10.0


class Wire:
    """The client's end of a pipe."""

    def __init__(self, reader, write):
        self._reader = reader
        self._write = write
        self._read = []

    def send(self, *messages):
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode()
            os.write(self._write, line + b"\n")

    async def next(self, wanted=lambda _: True):
        """The next message that is wanted; what comes before it stays for others."""
        for at, message in enumerate(self._read):
            if wanted(message):
                return self._read.pop(at)
        while True:
            async with asyncio.timeout(DEADLINE):
                line = await self._reader.readline()
            assert line, "the pipe ended"
            message = json.loads(line)
            if type(message) is list or "resultType" not in message.get("result", {}):
                check(message)
            if wanted(message):
                return message
            self._read.append(message)

    async def reply(self, id):
        return await self.next(lambda message: message.get("id") == id and "method" not in message)

    async def question(self):
        return await self.next(lambda message: "id" in message and "method" in message)

    async def notified(self):
        return await self.next(lambda message: "id" not in message and "method" in message)

    async def call(self, message):
        self.send(message)
        return await self.reply(message["id"])

    async def initialize(self, revision=LATEST, capabilities=EVERYTHING):
        said = await self.call(initialize(revision, capabilities))
        self.send(notification("notifications/initialized"))
        return said["result"]

    def answer(self, question, result):
        self.send({"jsonrpc": "2.0", "id": question["id"], "result": result})

    def end(self):
        """End of the input."""
        if self._write is not None:
            os.close(self._write)
            self._write = None


@contextlib.asynccontextmanager
async def piped(app):
    """A client's end of a pipe, in whose other end a server talks."""
    source, to_server = os.pipe()
    from_server, sink = os.pipe()
    reader = asyncio.StreamReader(limit=1 << 22)
    stream = os.fdopen(from_server, "rb", 0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), stream
    )
    async with app.running():
        serving = asyncio.create_task(Pipe(app, source, sink, dialect=LegacyPipe).run())
        wire = Wire(reader, to_server)
        wire.serving = serving
        wire.pause, wire.resume = transport.pause_reading, transport.resume_reading
        try:
            yield wire
        finally:
            wire.end()
            async with asyncio.timeout(DEADLINE):
                await serving
            os.close(sink)
            os.close(source)
            transport.close()


@pytest.fixture
async def wire(app):
    async with piped(app) as wire:
        yield wire


@pytest.fixture
def app():
    app = Server("tests", version="1.2.3")

    @app.tool
    async def echo(text: str) -> str:
        return text

    @app.tool
    async def talk(ctx: Context) -> str:
        await ctx.log("info", "quiet")
        await ctx.log("error", "loud")
        await ctx.progress(1)
        return "said"

    @app.tool
    async def awaiting(ctx: Context, name: str = "") -> str:
        return f"{name}{await ctx.confirm(f'Sure, {name}?', key='sure')}"

    @app.tool
    def in_a_thread(ctx: Context) -> str:
        return f"{ctx.sync.confirm('Sure?', key='sure')}"

    @app.tool
    async def returning(ctx: Context) -> str | InputRequired:
        sure = ctx.response("sure")
        if not hasattr(sure, "action"):
            return input_required({"sure": ask.confirm("Sure?")})
        return f"{sure.content['confirm']}"

    @app.tool
    async def sign_in(ctx: Context) -> str:
        await ctx.elicit_url("Sign in", "https://example.com", key="page")
        await ctx.url_done("page")
        await ctx.hang_up()
        return "done"

    @app.resource("note://{id}")
    async def note(id: str) -> str:
        return id

    return app


YES = accept(confirm=True)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_initialize_opens_the_pipe(wire, revision):
    said = await wire.initialize(revision)
    assert said["protocolVersion"] == revision
    assert said["serverInfo"]["name"] == "tests"
    assert text_of(await wire.call(tool_call("echo", {"text": "hi"}))) == "hi"


async def test_an_unknown_revision_is_answered_with_the_latest(wire):
    assert (await wire.initialize("2099-01-01"))["protocolVersion"] == LATEST


async def test_a_pipe_is_opened_once(wire):
    await wire.initialize()
    assert "already" in (await wire.call(initialize()))["error"]["message"]
    assert (await wire.call(request("ping")))["result"] == {}


async def test_a_malformed_initialize_can_be_tried_again(wire):
    assert (await wire.call(request("initialize", {})))["error"]["code"] == -32602
    assert (await wire.initialize())["protocolVersion"] == LATEST


async def test_a_ping_may_come_first(wire):
    assert (await wire.call(request("ping")))["result"] == {}


async def test_anything_else_before_initialize_is_an_error(wire):
    for message in (request("tools/list"), tool_call("echo", {"text": "x"}), request("logging/setLevel")):
        assert "error" in await wire.call(message)
    wire.send({"jsonrpc": "2.0", "id": "ask-1", "result": {}})
    assert "error" in await wire.next()


@pytest.mark.parametrize("tool", ["awaiting", "in_a_thread", "returning"])
async def test_questions_are_pushed_over_the_pipe(wire, tool):
    await wire.initialize()
    call = tool_call(tool)
    wire.send(call)
    question = await wire.question()
    assert question["method"] == "elicitation/create"
    # Nothing else on a pipe says whose question it is.
    assert question["params"]["_meta"] == {"antiphon/key": "sure", "antiphon/request": call["id"]}
    wire.answer(question, YES)
    assert text_of(await wire.reply(call["id"])) == "True"


async def test_many_conversations_share_the_pipe(wire):
    await wire.initialize()
    calls = {name: tool_call("awaiting", {"name": name}) for name in "abcdefgh"}
    wire.send(*calls.values())
    questions = [await wire.question() for _ in calls]
    assert len({question["id"] for question in questions}) == len(calls)
    for question in reversed(questions):
        wire.answer(question, YES if "a" in question["params"]["message"] else DECLINE)
    for name, call in calls.items():
        assert text_of(await wire.reply(call["id"])) == f"{name}{name == 'a'}"


async def test_answers_are_read_while_replies_wait_for_the_client_to_read_them(app, wire):
    answered = asyncio.Event()

    @app.tool
    async def large() -> str:
        return "x" * (2 << 20)

    @app.tool
    async def sure_at_last(ctx: Context) -> str:
        sure = await ctx.confirm("Sure?")
        answered.set()
        return str(sure)

    await wire.initialize()
    wire.send(tool_call("sure_at_last", id="s"))
    question = await wire.question()
    wire.pause()
    wire.send(tool_call("large"))
    wire.answer(question, accept(confirm=True))
    async with asyncio.timeout(DEADLINE):
        await answered.wait()
    wire.resume()
    assert text_of(await wire.reply("s")) == "True"


async def test_a_page_and_its_end_are_told(wire):
    await wire.initialize()
    call = tool_call("sign_in")
    wire.send(call)
    question = await wire.question()
    wire.answer(question, {"action": "accept"})
    assert (await wire.notified())["params"] == {"elicitationId": question["params"]["elicitationId"]}
    assert text_of(await wire.reply(call["id"])) == "done"


async def test_what_nobody_declared_is_not_asked(wire):
    await wire.initialize(capabilities={})
    assert "did not declare" in (await wire.call(tool_call("awaiting")))["error"]["message"]


async def test_an_unsolicited_answer_is_forgotten(wire):
    await wire.initialize()
    wire.send({"jsonrpc": "2.0", "id": "ask-1", "result": {}}, {"jsonrpc": "2.0", "id": 7, "error": {}})
    assert (await wire.call(request("ping")))["result"] == {}


async def test_levels_progress_and_subscriptions_hold_for_the_pipe(app, wire):
    await wire.initialize()
    await wire.call(request("logging/setLevel", {"level": "error"}))
    call = tool_call("talk", _meta={"progressToken": "t"})
    wire.send(call)
    assert (await wire.notified())["params"]["data"] == "loud"
    assert (await wire.notified())["params"] == {"progressToken": "t", "progress": 1}
    await wire.reply(call["id"])
    await wire.call(request("resources/subscribe", {"uri": "note://1"}))
    app.updated("note://2")
    await asyncio.to_thread(app.updated, "note://1")
    app.changed("tools")
    assert (await wire.notified())["params"] == {"uri": "note://1"}
    assert (await wire.notified())["method"] == "notifications/tools/list_changed"
    await wire.call(request("resources/unsubscribe", {"uri": "note://1"}))
    app.updated("note://1")
    app.changed("prompts")
    assert (await wire.notified())["method"] == "notifications/prompts/list_changed"


@pytest.mark.parametrize("tool", ["awaiting", "in_a_thread", "returning"])
async def test_a_cancelled_call_takes_its_question_back_and_is_not_answered(wire, tool):
    await wire.initialize()
    call = tool_call(tool)
    wire.send(call)
    question = await wire.question()
    wire.send(notification("notifications/cancelled", {"requestId": call["id"]}))
    assert await wire.notified() == notification("notifications/cancelled", {"requestId": question["id"]})
    wire.answer(question, YES)
    assert (await wire.call(request("ping")))["result"] == {}
    assert wire._read == []


async def test_a_pipe_that_ends_while_somebody_is_asked_ends_the_call_at_once(app):
    async with piped(app) as wire:
        await wire.initialize()
        calls = [tool_call(tool) for tool in ("awaiting", "in_a_thread", "returning")]
        wire.send(*calls)
        for _ in calls:
            await wire.question()
        wire.end()
        for call in calls:
            assert "went away" in json.dumps(await wire.reply(call["id"]))
        async with asyncio.timeout(2):
            await wire.serving


async def test_modern_requests_come_in_between(wire):
    await wire.initialize()
    call = tool_call("awaiting", {"name": "old "})
    wire.send(call)
    question = await wire.question()
    modern = modern_call("awaiting", {"name": "new "}, id="m1", capabilities={"elicitation": {}})
    reply = await wire.call(modern)
    check_reply(modern, reply)
    assert reply["result"]["resultType"] == "input_required"
    discover = modern_request("server/discover", id="m2")
    reply = await wire.call(discover)
    check_reply(discover, reply)
    wire.answer(question, YES)
    assert text_of(await wire.reply(call["id"])) == "old True"


async def test_a_modern_client_may_be_followed_by_an_old_one(wire):
    first = modern_request("tools/list", id="m1")
    check_reply(first, await wire.call(first))
    assert (await wire.initialize())["protocolVersion"] == LATEST
    check_reply(first, await wire.call(first))


async def test_an_id_is_one_requests_own_whatever_its_era(wire):
    await wire.initialize()
    call = tool_call("awaiting", id="same")
    wire.send(call)
    question = await wire.question()
    wire.send(modern_request("tools/list", id="same"))
    assert "under way" in (await wire.next(lambda message: "error" in message))["error"]["message"]
    wire.answer(question, YES)
    assert text_of(await wire.reply("same")) == "True"


async def test_a_modern_pipe_asks_the_older_era_for_nothing_but_whose_a_message_is(app, monkeypatch):
    def touched(*args, **kwargs):
        raise AssertionError("a modern request used the older era")

    for name in ("takes", "answer", "tell"):
        monkeypatch.setattr(LegacyPipe, name, touched)
    async with piped(app) as wire:
        for message in (modern_call("echo", {"text": "x"}, id=1), modern_request("tools/list", id=2)):
            check_reply(message, await wire.call(message))
        wire.send(notification("notifications/cancelled", {"requestId": 1}))
        app.changed("tools")
        last = modern_request("server/discover", id=3)
        check_reply(last, await wire.call(last))


# --- batches ------------------------------------------------------------------------------------------------------


async def test_a_batch_is_a_line_of_several(wire):
    await wire.initialize("2025-03-26")
    messages = [tool_call("echo", {"text": "a"}), notification("notifications/x"), tool_call("awaiting")]
    wire.send(messages)
    question = await wire.question()
    wire.send([{"jsonrpc": "2.0", "id": question["id"], "result": YES}])
    replies = await wire.next(lambda message: type(message) is list)
    assert {reply["id"]: text_of(reply) for reply in replies} == {messages[0]["id"]: "a", messages[2]["id"]: "True"}


async def test_a_batch_without_requests_has_no_reply(wire):
    await wire.initialize("2025-03-26")
    wire.send([notification("notifications/x")])
    assert (await wire.call(request("ping")))["result"] == {}
    assert wire._read == []


async def test_a_request_of_a_batch_that_is_cancelled_has_no_reply(wire):
    await wire.initialize("2025-03-26")
    messages = [tool_call("echo", {"text": "a"}), tool_call("awaiting")]
    wire.send(messages)
    await wire.question()
    wire.send(notification("notifications/cancelled", {"requestId": messages[1]["id"]}))
    replies = await wire.next(lambda message: type(message) is list)
    assert [reply["id"] for reply in replies] == [messages[0]["id"]]


@pytest.mark.parametrize("line", [b"[]", b"[1]", b"[[]]", b"[", b'["x"]'])
async def test_a_batch_that_is_none_is_refused(wire, line):
    await wire.initialize("2025-03-26")
    wire.send(line)
    assert (await wire.next(lambda message: "error" in message))["error"]["code"] in {-32600, -32700}
    assert (await wire.call(request("ping")))["result"] == {}


async def test_no_other_revision_knows_batches(wire):
    await wire.initialize()
    wire.send([request("ping")])
    assert "batches" in (await wire.next(lambda message: "error" in message))["error"]["message"]


# --- garbage ------------------------------------------------------------------------------------------------------


async def test_garbage_does_not_stop_the_pipe(wire):
    await wire.initialize()
    for line in (b"{", b"null", b"[]", b'"x"', b"\xff", b"{}", b'{"jsonrpc":"2.0"}', b'{"id":1,"method":"ping"}'):
        wire.send(line)
        assert "error" in await wire.next()
    wire.send(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}')
    assert "error" in await wire.reply(1)
    assert (await wire.call(request("ping", id=2)))["result"] == {}


# --- a process ----------------------------------------------------------------------------------------------------

PROGRAM = """
from antiphon import Context, Server
app = Server("tests")

@app.tool
async def sure(ctx: Context) -> str:
    print("not on the pipe")
    return str(await ctx.confirm("Sure?"))

app.run()
"""


def test_a_process_serves_both_eras_on_its_standard_streams():
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:

        def call(*messages):
            for message in messages:
                process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        modern = modern_call("sure", id="m", capabilities={"elicitation": {}})
        assert call(modern)["result"]["resultType"] == "input_required"
        said = call(initialize(capabilities=EVERYTHING))
        assert said["result"]["protocolVersion"] == LATEST
        question = call(notification("notifications/initialized"), tool_call("sure", id=5))
        assert key_of(question) == "confirm"
        assert call(modern)["result"]["resultType"] == "input_required"
        assert text_of(call({"jsonrpc": "2.0", "id": question["id"], "result": YES})) == "True"
        process.stdin.close()
        assert process.wait(DEADLINE) == 0
