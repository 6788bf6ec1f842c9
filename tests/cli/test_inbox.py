"""`antiphon inbox`: calls that wait in a store are listed, shown, answered and ended in the terminal."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from antiphon import Accepted, Client, Inbox, InputNeeded, SQLiteStore
from antiphon.cli import commands

sys.path.insert(0, str(Path(__file__).parent))

from pseudo_terminal import ENTER, PseudoTerminal

KEY = "k" * 32
SCRIPT = str(Path(sys.executable).with_name("antiphon"))
SERVER = """
from antiphon import Context, Seal, Server
app = Server("travel", seal=Seal(keys=["k" * 32], ttl=86400 * 2))
@app.tool
async def book(day: str, ctx: Context) -> str:
    answer = await ctx.elicit(f"Seats on {day}?", int, key="seats")
    return f"{answer.unwrap()} seats on {day}"
@app.tool
async def write(ctx: Context) -> str:
    return (await ctx.sample("Hi", max_tokens=9, key="reply")).text
if __name__ == "__main__":
    app.run()
"""


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The path of a store, and a server's file beside it; the environment names both."""
    monkeypatch.setenv("ANTIPHON_KEYS", KEY)
    monkeypatch.setenv("ANTIPHON_STORE", str(tmp_path / "inbox.db"))
    (tmp_path / "travel.py").write_text(SERVER)
    return tmp_path / "inbox.db"


def on(store, work):
    async def run():
        opened = SQLiteStore(store)
        try:
            return await work(Inbox(opened))
        finally:
            await opened.close()

    return asyncio.run(run())


def parked(store, tool="book", arguments=None, **about):
    """The ticket of a call to the server's file."""

    async def call(inbox):
        handlers = {"sample": lambda _: "unused"} if tool == "write" else {}
        file = str(store.parent / "travel.py")
        async with Client(file, auto=False, inbox=inbox.to(**about), **handlers) as client:
            with pytest.raises(InputNeeded) as needed:
                await client.call_tool(tool, arguments or ({"day": "Monday"} if tool == "book" else {}))
        return needed.value.ticket

    return on(store, call)


def antiphon(*words):
    return CliRunner().invoke(commands, ["inbox", *words])


def test_a_call_is_listed_shown_answered_and_ended(store, tmp_path):
    ticket = parked(store, who="finance", on_behalf="ada")
    for words in (["list"], []):
        listed = antiphon(*words)
        assert listed.exit_code == 0, listed.output
        assert listed.stdout.startswith(f"{ticket}  book (travel), for finance, on behalf of ada, until 2")
        assert "    Seats on Monday?\n" in listed.stdout
        assert listed.stderr == "1 call waiting\n"
    (row,) = json.loads(antiphon("list", "--output", "json").stdout)
    assert (row["id"], row["who"], row["arguments"]) == (ticket, "finance", {"day": "Monday"})
    assert not {"payload", "result"} & set(row)
    shown = antiphon("show", ticket).stdout
    for part in (
        "Status:         waiting",
        'Arguments:      {"day": "Monday"}',
        "On behalf of:   ada",
        "Seats on Monday?",
    ):
        assert part in shown
    assert antiphon("result", ticket, "--timeout", "0.05").exit_code == 5
    (tmp_path / "yes.yaml").write_text("seats: 3\n")
    answered = antiphon("answer", ticket, "--answers", str(tmp_path / "yes.yaml"), "--by", "bob")
    assert answered.exit_code == 0, answered.output
    done = antiphon("result", ticket)
    assert (done.exit_code, done.stdout) == (0, "3 seats on Monday\n"), done.output
    assert (
        json.loads(antiphon("result", ticket, "--output", "json").stdout)["content"][0]["text"] == "3 seats on Monday"
    )
    shown = json.loads(antiphon("show", ticket, "--output", "json").stdout)
    assert (shown["status"], shown["given"][0]["by"]) == ("done", "bob")
    assert antiphon("list").stdout == ""


def test_a_declined_call_goes_on_with_the_no(store):
    ticket = parked(store)
    assert antiphon("decline", ticket).exit_code == 0
    done = antiphon("result", ticket)
    assert done.exit_code == 1
    assert "declined" in done.output


def test_what_cannot_be_done_is_said_with_its_code(store, tmp_path):
    ticket = parked(store)
    (tmp_path / "no.yaml").write_text("seats: many\n")
    unfit = antiphon("answer", ticket, "--answers", str(tmp_path / "no.yaml"))
    assert (unfit.exit_code, "seats" in unfit.output) == (4, True)
    nowhere = antiphon("answer", ticket)
    assert (nowhere.exit_code, "not a terminal" in nowhere.output) == (4, True)
    on(store, lambda inbox: inbox.answer(ticket, {"seats": Accepted(1)}, by="ada"))
    for words in (["answer", ticket], ["decline", ticket]):
        late = antiphon(*words)
        assert (late.exit_code, "already answered by ada" in late.output) == (4, True)
    assert antiphon("show", "no-such-ticket").exit_code == 4
    sampling = parked(store, "write")
    assert antiphon("decline", sampling).exit_code == 2
    (tmp_path / "reply.yaml").write_text("reply: Hello\n")
    assert antiphon("answer", sampling, "--answers", str(tmp_path / "reply.yaml")).exit_code == 0
    assert antiphon("result", sampling).stdout == "Hello\n"


def test_a_store_and_its_keys_must_be_named(store, monkeypatch, tmp_path):
    assert antiphon("--store", str(store), "list").exit_code == 0
    assert antiphon("list", "--store", str(store)).exit_code == 0
    for wrong, why in {"ftp://x": "is no store", str(tmp_path / "no" / "x.db"): "There is no folder"}.items():
        refused = antiphon("list", "--store", wrong)
        assert (refused.exit_code, why in refused.output) == (2, True)
    down = antiphon("list", "--store", f"unix://{tmp_path}/no.sock")
    assert down.exit_code == 3, down.output
    ticket = parked(store)
    monkeypatch.setenv("ANTIPHON_KEYS", "o" * 32)
    other = antiphon("show", ticket)
    assert (other.exit_code, "cannot be opened" in other.output) == (3, True)
    monkeypatch.delenv("ANTIPHON_KEYS")
    keyless = antiphon("list")
    assert (keyless.exit_code, "ANTIPHON_KEYS" in keyless.output) == (2, True)
    monkeypatch.delenv("ANTIPHON_STORE")
    storeless = antiphon("list")
    assert (storeless.exit_code, "ANTIPHON_STORE" in storeless.output) == (2, True)


@pytest.mark.heavy
def test_questions_are_answered_in_a_real_terminal(store, tmp_path):
    ticket = parked(store)
    keys = {"ANTIPHON_KEYS": KEY, "ANTIPHON_STORE": str(store)}
    terminal = PseudoTerminal([SCRIPT, "inbox", "answer", ticket, "--by", "ada"], cwd=tmp_path, env=keys)
    try:
        terminal.asks("travel asks", "Seats on Monday?", "value").types("4", ENTER).asks("Send this?").types(ENTER)
        assert terminal.ends() == 0, terminal.text
    finally:
        terminal.close()
    assert antiphon("result", ticket).stdout == "4 seats on Monday\n"
