"""Verifying: a live server is held to a recording, state-blind, and what differs is shown."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from wires import META, MemoryWire, Tape, asks, call, note, result, said

from antiphon import Accepted, Client, Context, Server
from antiphon.testing.cassette import Cassette, CassetteBroken, Recorder
from antiphon.testing.cassette.verifying import NotStarted, Verdict, Verification
from antiphon.testing.cassette.wire import Came, HttpWire, PipeWire


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
    return [each async for each in Verification(cassette, lambda: MemoryWire(app), **options).verdicts()]


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


async def test_notifications_count_unless_they_are_left_out(tmp_path: Path) -> None:
    cassette = await recording(releases(), tmp_path / "a")
    assert [each.status for each in await verdicts(cassette, releases(steps=2))] == ["same", "differs", "same"]
    found = await verdicts(cassette, releases(steps=2), notifications=False)
    assert [each.status for each in found] == ["same"] * 3


async def test_a_secret_has_to_be_given() -> None:
    tape = Tape().hear((">", call(1, "login", arguments={"password": "open sesame"}, _meta=META)), ("<", said(1, "in")))
    cassette = tape.scribe.cassette()
    with pytest.raises(
        CassetteBroken, match=r"entry 1 \(tools/call login\) sends \${secret:password}.*--secret password="
    ):
        await verdicts(cassette, releases())
    (wrong,) = await verdicts(cassette, releases(), secrets={"password": "hunter2"})
    assert '"text": "out"' in wrong.diff


async def test_what_cannot_be_asked_again_is_skipped() -> None:
    tape = Tape().hear(
        (">", call(1, _meta=META)), (">", note("cancelled", requestId=1)), ("<", note("tools/list_changed")),
    )  # fmt: skip
    found = await verdicts(tape.scribe.cassette(), releases())
    assert [(each.status, each.reason) for each in found] == [
        ("skipped", "no reply to it was recorded"),
        ("skipped", "the server sent it on its own"),
    ]


class Chatty:
    """An old server on a wire, that asks for roots before it answers, and tells of changes."""

    def __init__(self) -> None:
        self.came: list[Came] = []
        self.heard: list[Any] = []

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def send(self, message: Any, headers: Any) -> None:
        self.heard.append(message)
        if message.get("method") == "tools/call":
            aside = [{"id": 77, "method": "roots/list"}, note("tools/list_changed")]
            self.came += [Came(message=each) for each in (*aside, said(message["id"], "done"))]

    async def receive(self) -> Came:
        return self.came.pop(0)


async def test_what_a_server_says_of_its_own_accord_is_answered_and_not_compared() -> None:
    tape = Tape().hear(
        ("<", {"id": 9, "method": "roots/list"}), (">", result(9, roots=[])), (">", call(1)), ("<", said(1, "done"))
    )  # fmt: skip
    server = Chatty()
    found = [each async for each in Verification(tape.scribe.cassette(), lambda: server).verdicts()]
    assert [each.status for each in found] == ["skipped", "same"]
    assert server.heard[1] == result(77, roots=[])


async def test_a_server_that_says_nothing_is_not_waited_for_forever() -> None:
    tape = Tape().hear((">", call(1, _meta=META)), ("<", asks(1, "s")))
    silent = PipeWire([sys.executable, "-c", "import sys; sys.stdin.read()"])
    (found,) = [each async for each in Verification(tape.scribe.cassette(), lambda: silent, timeout=0.1).verdicts()]
    assert (found.status, found.reason) == ("differs", "the server did not answer in time")


@pytest.mark.parametrize(
    ("wire", "says"),
    [
        (lambda: PipeWire(["no-such-command"]), "Cannot start 'no-such-command'"),
        (
            lambda: PipeWire([sys.executable, "-c", "raise SystemExit(4)"]),
            "ended \\(exit code 4\\)",
        ),
        (lambda: HttpWire("http://127.0.0.1:9/mcp"), "Cannot connect to 127.0.0.1:9"),
    ],
)
async def test_a_server_that_does_not_start_is_said(wire: Any, says: str) -> None:
    tape = Tape().hear((">", call(1, _meta=META)), ("<", said(1, "x")))
    with pytest.raises(NotStarted, match=says):
        _ = [each async for each in Verification(tape.scribe.cassette(), wire).verdicts()]
