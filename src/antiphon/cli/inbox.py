"""``antiphon inbox``: list, show, answer and decline the calls that wait for a person, and get their results."""

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from getpass import getuser
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from antiphon.cli import exit_codes
from antiphon.cli.answering import Respondent, read_answers
from antiphon.cli.output import escape_unencodable, show
from antiphon.cli.stores import open_store, store_option
from antiphon.client.inbox import Inbox
from antiphon.client.results import Pending
from antiphon.errors import CallTimeout
from antiphon.escaping import compact, counted, line, moment, shortened, visible, visible_json
from antiphon.inbox.rows import Row
from antiphon.inbox.widgets import is_elicitation, summary
from antiphon.stores.store import Store
from antiphon.types import Implementation, JsonObject
from antiphon.wire.revisions import METHODS

T = TypeVar("T")
_LETTERS: Final = 2000


_output_option: Final = click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="How to print it."
)
_by_option: Final = click.option("--by", metavar="NAME", help="Who answers. Default: your user name here.")


@click.group("inbox", invoke_without_command=True, epilog=exit_codes.INBOX_TABLE)
@store_option
@click.pass_context
def inbox_command(ctx: click.Context, *, store: str | None) -> None:
    """List and answer the calls that wait for a person.

    The store is the one that the program's Inbox has, and ANTIPHON_KEYS holds its keys. Who has the keys may answer
    every call.

    \b
    antiphon inbox --store redis://127.0.0.1:6379/0
    antiphon inbox answer k3v7q2m4x5p6a7b2
    antiphon inbox result k3v7q2m4x5p6a7b2
    """
    ctx.obj = store
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_command, store=store, output="text")


@inbox_command.command("list", epilog=exit_codes.INBOX_TABLE)
@store_option
@_output_option
@click.pass_context
def list_command(ctx: click.Context, *, store: str | None, output: str) -> None:
    """List the calls that wait, the oldest first."""
    rows = _run(ctx, store, lambda inbox: inbox.waiting())
    if output == "json":
        click.echo(visible_json([_plain(row) for row in rows]))
        return
    for row in rows:
        click.echo(f"{row.id}  {_about(row)}")
        for request in row.questions.values():
            click.echo(f"    {line(shortened(summary(request), letters=200, lines=3))}")
    click.echo(f"{counted(len(rows), 'call')} waiting", err=True)


@inbox_command.command("show", epilog=exit_codes.INBOX_TABLE)
@click.argument("ticket")
@store_option
@_output_option
@click.pass_context
def show_command(ctx: click.Context, *, ticket: str, store: str | None, output: str) -> None:
    """Show a call: who asks what on whose behalf, until when, and who answered."""
    row = _run(ctx, store, lambda inbox: inbox.rows.get(ticket))
    if output == "json":
        click.echo(visible_json(_plain(row)))
        return
    facts = {
        "Status": row.status,
        "Server": row.server,
        "Call": f"{row.method} {row.name}",
        "Arguments": compact(row.arguments) if row.arguments else "",
        "On behalf of": row.on_behalf or "",
        "Since": moment(row.since),
        "Until": moment(row.until),
        "Who may answer": row.who or "",
        "Warning": row.warning or "",
    }
    for name, fact in facts.items():
        if fact:
            click.echo(f"{name + ':':16}{line(shortened(fact, letters=_LETTERS, lines=50))}")
    for given in row.given:
        click.echo(f"{'Answered:':16}round {given.round} by {line(given.by)}, {moment(given.at)}")
    for key, request in row.questions.items():
        click.echo(f"\n{line(key)}: {visible(shortened(summary(request), letters=_LETTERS, lines=50))}")


@inbox_command.command("answer", epilog=exit_codes.INBOX_TABLE)
@click.argument("ticket")
@store_option
@_by_option
@click.option(
    "--answers",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Answers in YAML or JSON, by the questions' keys; the rest is asked here.",
)
@click.pass_context
def answer_command(ctx: click.Context, *, ticket: str, store: str | None, by: str | None, answers: Path | None) -> None:
    """Answer the questions of a call: here in the terminal, or from a file."""
    given = read_answers(answers)

    async def answer(inbox: Inbox) -> Row:
        row = await inbox.rows.get(ticket)
        if row.status != "waiting":
            return await _record(inbox, row, {}, by)  # which says why not, before anything is asked
        given.is_resumed = row.round > 1
        respondent = Respondent(given, [], target=row.server, file=answers)
        server = Implementation(row.server, "") if row.server else None
        return await _record(inbox, row, await respondent.answer(_pending(row), server) or {}, by)

    _run(ctx, store, answer)
    click.echo(f"Answered {ticket}", err=True)


@inbox_command.command("decline", epilog=exit_codes.INBOX_TABLE)
@click.argument("ticket")
@store_option
@_by_option
@click.pass_context
def decline_command(ctx: click.Context, *, ticket: str, store: str | None, by: str | None) -> None:
    """Say no to all questions of a call, which goes on with that answer."""

    async def decline(inbox: Inbox) -> Row:
        row = await inbox.rows.get(ticket)
        if not all(map(is_elicitation, row.questions.values())):
            raise click.UsageError("The server asks for a model or for folders, which cannot be declined")
        return await _record(inbox, row, {key: {"action": "decline"} for key in row.questions}, by)

    _run(ctx, store, decline)
    click.echo(f"Declined {ticket}", err=True)


@inbox_command.command("result", epilog=exit_codes.INBOX_TABLE)
@click.argument("ticket")
@store_option
@_output_option
@click.option("--timeout", metavar="SECONDS", type=float, help="How long to wait for the answers. Default: no limit.")
@click.option("--save", metavar="FOLDER", type=click.Path(path_type=Path), default=".", help="Where images are saved.")
@click.pass_context
def result_command(
    ctx: click.Context, *, ticket: str, store: str | None, output: str, timeout: float | None, save: Path
) -> None:
    """Wait until a call is answered, go on with it, and print its result."""

    async def wait(inbox: Inbox) -> Any:
        try:
            return await inbox.result(ticket, timeout=timeout)
        except CallTimeout as fault:
            if fault.waiting_for == "person":
                return None
            raise

    result = _run(ctx, store, wait)
    if result is None:
        click.echo(f"{ticket} still waits for its answers", err=True)
        ctx.exit(exit_codes.WAITING)
    if show(result, name=ticket, output=output, folder=save):
        ctx.exit(exit_codes.TOOL_ERROR)


def _run(ctx: click.Context, store: str | None, work: Callable[[Inbox], Coroutine[Any, Any, T]]) -> T:
    """Run something on the inbox of the store that was named, here or before the subcommand."""
    address = store or (ctx.parent and ctx.parent.obj)
    if not isinstance(address, str):
        raise click.UsageError("Name the inbox's store: --store redis://HOST:PORT/0, --store FILE, or ANTIPHON_STORE")
    try:
        opened = open_store(address)
        inbox = Inbox(opened)
    except ValueError as fault:
        raise click.UsageError(str(fault)) from None
    escape_unencodable()
    return exit_codes.run(_closing(opened, work(inbox)))


async def _closing(store: Store, work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    finally:
        await store.close()


async def _record(inbox: Inbox, row: Row, responses: JsonObject, by: str | None) -> Row:
    # The keys open every row, so nothing is gained by refusing some.
    groups = () if row.who is None else (row.who,)
    return await inbox.rows.answer(row.id, row.round, responses, by or getuser(), groups=groups)


def _pending(row: Row) -> Pending:
    target = METHODS[row.method].target if row.method in METHODS else None
    return Pending(
        method=row.method,
        params={target or "name": row.name, "arguments": row.arguments},
        questions=row.questions,
        round=row.round,
    )


def _about(row: Row) -> str:
    parts = [
        line(row.name) + (f" ({line(row.server)})" if row.server else ""),
        f"for {line(row.who)}" if row.who else "",
        f"on behalf of {line(row.on_behalf)}" if row.on_behalf else "",
        f"until {moment(row.until)}",
    ]
    return ", ".join(filter(None, parts))


def _plain(row: Row) -> JsonObject:
    """A row as JSON, without what only its program needs: that holds the server's token."""
    made: JsonObject = msgspec.to_builtins(row)
    for name in ("payload", "result"):
        del made[name]
    return {**made, "since": _iso(row.since), "until": _iso(row.until)}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
