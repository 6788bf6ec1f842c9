"""Verifying: a live server is held to a recording, state-blind, and what differs is shown."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from conversation import META, Conversation, MemoryServer, asks, call, note, result, said

from antiphon import Accepted, Client, Context, Server
from antiphon.testing.cassette import Cassette, CassetteBroken, CassetteTurn, Recorder
from antiphon.testing.cassette.http import LiveUrl
from antiphon.testing.cassette.stdio import LiveProcess
from antiphon.testing.cassette.verifying import LiveServer, NotStarted, Verdict, Verification
from antiphon.wire.revisions import KEY, REQUEST


def releases(greeting: str = "Deployed to", *, steps: int = 1) -> Server:
    app = Server("releases", version="1.0.0")

    @app.tool
    async def deploy(env: str, ctx: Context) -> str:
        """Deploy after a yes."""
        for step in range(steps):
            await ctx.progress(step + 1)
        return f"{greeting} {env}" if await ctx.confirm(f"Deploy to {env}?") else "Not deployed"

    @app.tool
    async def login(password: str) -> str:
        """Log in."""
        return "in" if password == "open sesame" else "out"

    return app


async def recording(app: Server, path: Path) -> Cassette:
    recorder = Recorder(app, path)
    async with Client(recorder, elicit=lambda _: Accepted({"confirm": True})) as client:
        await client.discover()
        await client.call_tool("deploy", {"env": "prod"}, progress=lambda *_: None)
        await client.list_tools()
    return Cassette.load(path)


async def verdicts(cassette: Cassette, app: Server, **options: Any) -> list[Verdict]:
    return await all_of(Verification(cassette, lambda: MemoryServer(app), **options))


def always(server: LiveServer) -> Callable[[], LiveServer]:
    return lambda: server


async def all_of(verification: Verification) -> list[Verdict]:
    return [each async for each in verification.verdicts()]


async def test_a_server_with_another_key_is_the_same(tmp_path: Path) -> None:
    cassette = await recording(releases(), tmp_path / "a")
    found = await verdicts(cassette, releases())
    assert [(each.title, each.status) for each in found] == [
        ("server/discover", "same"),
        ("tools/call deploy", "same"),
        ("tools/list", "same"),
    ]


async def test_a_server_that_answers_otherwise_is_shown(tmp_path: Path) -> None:
    cassette = await recording(releases(), tmp_path / "a")
    found = await verdicts(cassette, releases("Rolled out to"))
    assert [each.status for each in found] == ["same", "differs", "same"]
    assert '-          "text": "Deployed to prod",\n+          "text": "Rolled out to prod",' in found[1].diff


async def test_a_server_that_repeats_its_arguments_as_json_is_the_same(tmp_path: Path) -> None:
    app = Server("echo", version="1.0.0")

    @app.tool
    async def echo(given: dict[str, Any], ctx: Context) -> str:
        """Say what came, and what was answered, in the order in which it came."""
        return json.dumps([given, dict((await ctx.elicit("Sure?", Form)).unwrap())])

    Form = TypedDict("Form", {"zeal": int, "age": int})
    async with Client(Recorder(app, tmp_path / "a"), elicit=lambda _: Accepted({"zeal": 1, "age": 2})) as client:
        heard = await client.call_tool("echo", {"given": {"b": 1, "a": {"z": 1, "y": 2}}})
    assert heard.text == '[{"b": 1, "a": {"z": 1, "y": 2}}, {"zeal": 1, "age": 2}]'
    assert [each.diff or each.status for each in await verdicts(Cassette.load(tmp_path / "a"), app)] == ["same"]


async def test_notifications_are_not_compared(tmp_path: Path) -> None:
    cassette = await recording(releases(), tmp_path / "a")
    assert [each.status for each in await verdicts(cassette, releases(steps=2))] == ["same"] * 3


async def test_a_secret_has_to_be_given() -> None:
    tape = Conversation().hear(
        (">", call(1, "login", arguments={"password": "open sesame"}, _meta=META)), ("<", said(1, "in"))
    )
    cassette = tape.recording.cassette()
    with pytest.raises(
        CassetteBroken, match=r"entry 1 \(tools/call login\) has \${secret:password}.*--secret password="
    ):
        await verdicts(cassette, releases())
    (wrong,) = await verdicts(cassette, releases(), secrets={"password": "hunter2"})
    assert '"text": "out"' in wrong.diff


async def test_what_cannot_be_asked_again_is_skipped() -> None:
    tape = Conversation().hear(
        (">", call(1, _meta=META)), (">", note("cancelled", requestId=1)), ("<", note("tools/list_changed")),
    )  # fmt: skip
    found = await verdicts(tape.recording.cassette(), releases())
    assert [(each.status, each.reason) for each in found] == [("skipped", "no reply to it was recorded")]


class Chatty(LiveServer):
    """An old server on a wire, that asks for roots as soon as it may, and tells of changes."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    async def send(self, message: Any, headers: Any) -> None:
        self.heard.append(message)
        if message.get("method") == "notifications/initialized":
            self.inbox.put_nowait(CassetteTurn(server={"id": 77, "method": "roots/list"}))
        if message.get("method") == "tools/call":
            for each in (note("tools/list_changed"), said(message["id"], "done")):
                self.inbox.put_nowait(CassetteTurn(server=each))


async def test_what_a_server_asks_outside_of_calls_is_answered() -> None:
    tape = Conversation().hear(
        (">", note("initialized")), ("<", {"id": 9, "method": "roots/list"}), (">", result(9, roots=[])),
        (">", call(1)), ("<", said(1, "done")), ("<", note("tools/list_changed")),
    )  # fmt: skip
    server = Chatty()
    found = [each async for each in Verification(tape.recording.cassette(), lambda: server).verdicts()]
    assert [each.status for each in found] == ["same", "same"]
    assert [each.get("method") for each in server.heard] == ["notifications/initialized", None, "tools/call"]
    assert server.heard[1] == result(77, roots=[])


async def test_a_question_that_was_not_recorded_differs_at_once() -> None:
    tape = Conversation().hear((">", call(1)), ("<", said(1, "no")))
    wire = Asking({"id": 5, "method": "elicitation/create", "params": {"message": "Sure?"}})
    (found,) = await all_of(Verification(tape.recording.cassette(), lambda: wire))
    assert (found.status, found.reason) == ("differs", "")
    assert '+    "method": "elicitation/create"' in found.diff


async def test_a_server_that_says_nothing_is_not_waited_for_forever() -> None:
    tape = Conversation().hear((">", call(1, _meta=META)), ("<", asks(1, "s")))
    silent = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    cassette = tape.recording.cassette()
    with pytest.raises(NotStarted, match=r"did not answer within 0\.1 s"):
        await all_of(Verification(cassette, lambda: LiveProcess(silent), timeout=0.1))


async def test_a_server_that_falls_silent_differs() -> None:
    tape = Conversation().hear((">", call(1)), ("<", said(1, "x")), (">", call(2)), ("<", said(2, "y")))
    found = await answered(tape, said(1, "x"))
    assert [(each.status, each.reason) for each in found] == [
        ("same", ""),
        ("differs", "the server did not answer in time"),
    ]


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        (lambda: LiveProcess(["no-such-command"]), "Cannot start 'no-such-command'"),
        (
            lambda: LiveProcess([sys.executable, "-c", "raise SystemExit(4)"]),
            "ended \\(exit code 4\\)",
        ),
        (lambda: LiveUrl("http://127.0.0.1:9/mcp"), "Cannot connect to 127.0.0.1:9"),
    ],
)
async def test_a_server_that_does_not_start_is_said(wire: Any, says: str) -> None:
    tape = Conversation().hear((">", call(1, _meta=META)), ("<", said(1, "x")))
    with pytest.raises(NotStarted, match=says):
        await all_of(Verification(tape.recording.cassette(), wire))


ODD = """
import json, sys
for number, line in enumerate(sys.stdin):
    message = json.loads(line)
    print("just a print", flush=True)
    if number == 1:
        print('{"token": "sesame-99"', flush=True)
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"content": []}}), flush=True)
"""


async def test_a_server_that_writes_nonsense_differs_and_is_started_again() -> None:
    tape = Conversation()
    for number in range(6):
        tape.hear((">", call(number)), ("<", result(number, content=[])))
    server = [sys.executable, "-c", ODD]
    found = await all_of(Verification(tape.recording.cassette(), lambda: LiveProcess(server)))
    assert [(each.status, each.reason) for each in found] == [
        ("same", ""),
        ("differs", "The server sent what is no message"),
        ("same", ""),
        ("differs", "The server sent what is no message"),
        ("same", ""),
        ("differs", "The server sent what is no message"),
    ]


async def test_a_message_that_is_nested_too_deep_differs() -> None:
    tape = Conversation().hear((">", call(1)), ("<", said(1, "x")))
    deep: Any = {}
    for _ in range(900):
        deep = [deep]
    (found,) = await answered(tape, result(1, x=deep))
    assert (found.status, found.reason) == ("differs", "The server sent what is no message")


async def test_a_request_that_makes_no_sense_is_sent_as_it_was() -> None:
    for params in ([1], "x", {"_meta": 5, "name": "x"}):
        tape = Conversation().hear((">", call(1, _meta=META)), ("<", said(1, "x")))
        cassette = tape.recording.cassette()
        recorded = cassette.entries[0].turns[0].client
        assert recorded is not None
        recorded["params"] = params
        wire = Scripted(said(1, "x"))
        assert [each.status for each in await all_of(Verification(cassette, always(wire)))] == ["same"]
        sent = wire.heard[0][0]["params"]
        assert sent == ({**params, "_meta": META} if isinstance(params, dict) else params)


async def test_a_message_that_makes_no_sense_is_compared() -> None:
    tape = Conversation().hear((">", call(1)), ("<", said(1, "x")))
    for odd in ({"id": [1], "method": ["x"]}, {"method": {}}, {"id": {}, "result": []}):
        (found,) = await answered(tape, odd)
        assert found.status == "differs"


# --- secrets ------------------------------------------------------------------------------------------------------


class Scripted(LiveServer):
    """A server on a wire that says what it is told to say, one message for each request, then nothing."""

    def __init__(self, *replies: Any) -> None:
        super().__init__()
        self.replies = list(replies)
        self.heard: list[tuple[Any, Any]] = []

    async def send(self, message: Any, headers: Any) -> None:
        self.heard.append((message, headers))
        if self.replies:
            reply = self.replies.pop(0)
            self.inbox.put_nowait(CassetteTurn(server=reply if "method" in reply else {**reply, "id": message["id"]}))


async def answered(tape: Conversation, *replies: Any, **options: Any) -> list[Verdict]:
    return await all_of(Verification(tape.recording.cassette(), lambda: Scripted(*replies), timeout=0.2, **options))


def login(text: str = "thanks for hunter2") -> Conversation:
    return Conversation().hear((">", call(1, "login", arguments={"password": "hunter2"})), ("<", said(1, text)))


async def test_a_secret_is_the_one_that_was_given() -> None:
    given = {"password": "sw0rdfish"}
    (same,) = await answered(login(), said(1, "thanks for sw0rdfish"), secrets=given)
    assert same.status == "same"
    (other,) = await answered(login(), said(1, "thanks for an0ther"), secrets=given)
    assert '+          "text": "thanks for (not ${secret:password})",' in other.diff
    (whole,) = await answered(login("hunter2"), said(1, "Access denied"), secrets=given)
    assert whole.status == "differs"


async def test_a_secret_in_what_a_client_says_of_itself_has_to_be_given() -> None:
    who = {"name": "tests", "version": "1 ${x}", "apiKey": "k7-1234-5678"}
    meta = {**META, "io.modelcontextprotocol/clientInfo": who}
    cassette = Conversation().hear((">", call(1, _meta=meta)), ("<", said(1, "x"))).recording.cassette()
    with pytest.raises(CassetteBroken, match="--secret apiKey=VALUE"):
        Verification(cassette, Scripted)
    wire = Scripted(said(1, "x"))
    await all_of(Verification(cassette, lambda: wire, secrets={"apiKey": "another"}))
    sent = wire.heard[0][0]["params"]["_meta"]
    assert sent == {**meta, "io.modelcontextprotocol/clientInfo": {**who, "apiKey": "another"}}


async def test_a_diff_of_what_came_shows_no_secrets() -> None:
    live = {"content": [{"type": "text", "text": "sw0rdfish came with t0ken-1234"}], "token": "t0ken-1234"}
    more = {"text": '{"apiKey": "k7"}', "type": "text"}
    live["content"].append(more)  # type: ignore[attr-defined]
    headers = {"Authorization": "Bearer sesame-99"}
    live["again"] = "sesame-99"
    (found,) = await answered(login(), result(1, **live), secrets={"password": "sw0rdfish"}, headers=headers)
    assert not [word for word in ("sw0rdfish", "t0ken", "sesame", "k7") if word in found.diff]
    assert "${secret:password} came with ${secret:token}" in found.diff
    assert '"again": "${secret:authorization.credentials}"' in found.diff


async def test_a_secret_of_the_servers_own_is_another_one_and_the_same_throughout() -> None:
    tape = Conversation().hear(
        (">", call(1)), ("<", result(1, structuredContent={"token": "abcd-1234"}, content=[])),
        (">", call(2, arguments={"token": "abcd-1234"})), ("<", said(2, "abcd-1234 is valid")),
    )  # fmt: skip
    first = result(1, structuredContent={"token": "wxyz-9876"}, content=[])
    found = await answered(tape, first, said(2, "wxyz-9876 is valid"))
    assert [each.status for each in found] == ["same", "same"]
    found = await answered(tape, first, said(2, "qqqq-1111 is valid"))
    assert [each.status for each in found] == ["same", "differs"]
    assert "qqqq" not in found[1].diff


async def test_a_key_that_has_quotes_and_lines_is_the_same_in_json() -> None:
    def told(id_: int, key: str) -> Any:
        made = {"private_key": key}
        return result(id_, structuredContent=made, content=[{"type": "text", "text": json.dumps(made)}])

    tape = Conversation().hear((">", call(1)), ("<", told(1, 'BEGIN\n"a"\nEND')))
    assert [each.status for each in await answered(tape, told(1, 'BEGIN\n"b\\"\nEND'))] == ["same"]


def greeted(headers: dict[str, str], text: str) -> Conversation:
    tape = Conversation()
    exchange = tape.connection.sent(call(1), headers)
    tape.connection.received(said(1, text), on=exchange)
    return tape


async def test_a_header_that_the_server_repeats_has_to_be_given() -> None:
    tape = greeted({"authorization": "Bearer abcd-1234"}, "abcd-1234 it is")
    with pytest.raises(CassetteBroken, match=r"has \${secret:authorization.credentials}.*--secret authorization=VALUE"):
        await answered(tape, said(1, "None it is"))
    for given in ({"headers": {"Authorization": "Bearer x-99"}}, {"secrets": {"authorization": "Bearer x-99"}}):
        assert [each.status for each in await answered(tape, said(1, "x-99 it is"), **given)] == ["same"]
        assert [each.status for each in await answered(tape, said(1, "None it is"), **given)] == ["differs"]


async def test_a_header_that_the_wire_sends_is_not_sent_twice() -> None:
    cassette = greeted({"authorization": "Bearer abcd-1234"}, "hi").recording.cassette()
    wire = Scripted(said(1, "hi"))
    options: Any = {"headers": {"Authorization": "Bearer x-99"}}
    await all_of(Verification(cassette, lambda: wire, **options))
    assert "authorization" not in wire.heard[0][1]


async def test_which_call_asks_is_told_on_a_pipe_only() -> None:
    """A recording over HTTP holds for standard streams too, and the other way round."""

    def asking(hint: Any) -> Any:
        meta = {KEY: "confirm"} if hint is None else {KEY: "confirm", REQUEST: hint}
        return {"id": 5, "method": "elicitation/create", "params": {"message": "Sure?", "_meta": meta}}

    for recorded, live in ((4, None), (None, 77), (4, 77)):
        tape = Conversation().hear(
            (">", call(4)), ("<", asking(recorded)), (">", result(5, action="decline")), ("<", said(4, "no"))
        )
        found = await answered_by(Asking(asking(live)), tape)
        assert [each.diff or each.status for each in found] == ["same"]


class Asking(Scripted):
    """Puts a question to each request, and replies when it is answered."""

    async def send(self, message: Any, headers: Any) -> None:
        if "method" in message:
            self.request = message["id"]
            self.inbox.put_nowait(CassetteTurn(server=self.replies[0]))
        else:
            self.inbox.put_nowait(CassetteTurn(server=said(self.request, "no")))


async def answered_by(wire: Scripted, tape: Conversation) -> list[Verdict]:
    return await all_of(Verification(tape.recording.cassette(), lambda: wire, timeout=0.2))
