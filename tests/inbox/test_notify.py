"""The notice of a call that waits."""

import asyncio
import json
import logging
import time

import pytest

from antiphon import Client, Context, Inbox, InputNeeded, MemoryStore, Seal, Server
from antiphon.inbox import notify as notify_module
from antiphon.inbox.notify import Notice
from antiphon.inbox.rows import Row
from antiphon.testing.servers import serving

from .questions import BIDI, form


class Hook:
    """A webhook that notes what it gets, and answers with the given statuses, one after another."""

    def __init__(self, *statuses):
        self.statuses = list(statuses)
        self.got = []

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        body = (await receive())["body"]
        self.got.append((dict(scope["headers"]).get(b"content-type"), json.loads(body)))
        status = self.statuses.pop(0) if self.statuses else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


def row(**about):
    now = time.time()
    whole = {"id": "a-ticket", "method": "tools/call", "name": "book", "questions": {"q": form("How many?")}}
    return Row(**{**whole, "since": now, "until": 1_800_000_000.0, **about})


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(notify_module, "_PAUSE", 0.0)


async def test_a_webhook_gets_a_text_with_a_link_and_no_secret():
    app = Server("travel", seal=Seal(keys=["k" * 32], ttl=86400 * 3))

    @app.tool
    async def book(card: str, ctx: Context) -> str:
        return (await ctx.elicit("How many?", str)).unwrap()

    hook = Hook()
    async with serving(lambda url: hook) as url:
        inbox = Inbox(MemoryStore(), notify=f"{url}/T0/B0/secret", page="https://ops.example.com/inbox/")
        async with Client(app, inbox=inbox.to("finance", on_behalf="ada")) as client:
            with pytest.raises(InputNeeded) as needed:
                await client.call_tool("book", {"card": "4111-1111"})
    ((kind, body),) = hook.got
    assert kind == b"application/json"
    assert list(body) == ["text"]
    assert body["text"].startswith("book (travel) asks: How many? For finance. On behalf of ada. Until ")
    assert body["text"].endswith(f" https://ops.example.com/inbox/{needed.value.ticket}")
    assert "4111" not in body["text"]
    assert needed.value.pending.state not in body["text"]


async def test_a_server_cannot_mention_a_channel_or_hide_letters():
    text = Notice().text(row(questions={"q": form(f"<!channel> & <https://evil.example|x> {BIDI}\nmore")}, name="<b>"))
    assert text == (
        "&lt;b&gt; asks: &lt;!channel&gt; &amp; &lt;https://evil.example|x&gt; safe\\u202egnp.exe\\u2066"
        " \\u200b\\xad\\x00\\x1b[2J end more Until 2027-01-15 08:00 UTC. Ticket a-ticket"
    )
    assert len(Notice().text(row(questions={"q": form("x" * 1_000_000)}))) < 1000


@pytest.mark.parametrize(("statuses", "posts"), [((500, 429, 200), 3), ((500, 500, 500, 200), 3), ((404, 200), 1)])
async def test_a_failing_hook_is_tried_a_little_and_the_call_waits_all_the_same(statuses, posts, caplog):
    hook = Hook(*statuses)
    async with serving(lambda url: hook) as url:
        with caplog.at_level(logging.WARNING, "antiphon"):
            await Notice(f"{url}/secret").tell(row())
    assert len(hook.got) == posts
    assert ("the notice of the waiting call a-ticket failed" in caplog.text) == (statuses[posts - 1] != 200)
    assert "secret" not in caplog.text


async def test_a_hook_that_is_not_there_or_hangs_is_given_up(monkeypatch, caplog):
    monkeypatch.setattr(notify_module, "PATIENCE", 0.2)
    await Notice("http://127.0.0.1:1/").tell(row())
    assert "no answer" in caplog.text

    ended = asyncio.Event()

    async def hang(reader, writer):
        await reader.read()
        writer.close()
        await writer.wait_closed()
        ended.set()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        await Notice(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/").tell(row())
        await ended.wait()
    assert "no answer within 0.2 seconds" in caplog.text


async def test_a_function_is_told_and_may_fail(caplog):
    told = []

    async def later(row):
        await asyncio.sleep(0)
        told.append(row.id)

    def fail(row):
        raise RuntimeError("no phone")

    for notify in (lambda row: told.append(row.name), later, fail):
        await Notice(notify).tell(row())
    assert told == ["book", "a-ticket"]
    assert "no phone" in caplog.text
