"""``antiphon resume``: goes on with a call that waits in a file."""

from pathlib import Path
from typing import Any

import click

from antiphon.cli import exits, waiting
from antiphon.cli.conversation import go_on, left
from antiphon.cli.options import Desk, Options, shared_options
from antiphon.cli.peer import read_headers
from antiphon.cli.show import Result, show
from antiphon.cli.text import line
from antiphon.client.results import Pending
from antiphon.errors import Refused


@click.command("resume", epilog=exits.TABLE)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--target", metavar="TARGET", help="Where the server is, if no longer where the file says.")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, *, file: Path, target: str | None, header: tuple[str, ...], **options: Any) -> None:
    """Go on with the call that waits in FILE, which 'antiphon call --pending FILE' wrote.

    Its questions are asked here, or answered with --answers. FILE always holds the round that waits: it changes when
    the server asks anew, stays when anything fails, and is removed when the call has come to its result. With
    --pending, only the questions of FILE are asked, and further ones are written.

    \b
    antiphon resume waiting.json
    antiphon resume waiting.json --answers yes.yaml --pending next.json
    """
    peer, pending = waiting.read(file, target)
    settings = Options(peer=peer, headers=read_headers(header, peer), **options)
    if settings.pending is not None and not _same(settings.pending, file):
        waiting.check_new(settings.pending)
    outcome = exits.run(_resumed(settings, file, pending))
    if isinstance(outcome, Pending):
        ctx.exit(_left(settings, file, outcome))
    # The call is done: sent again, it might do twice what it did.
    file.unlink(missing_ok=True)
    name = str(pending.params.get("name") or pending.params.get("uri") or "result")
    if show(outcome, name=name, output=settings.output, folder=settings.save):
        ctx.exit(exits.TOOL_ERROR)


async def _resumed(options: Options, file: Path, pending: Pending) -> Result | Pending:
    desk = Desk(options, auto=False, tapped=True)
    async with desk.open() as client:
        try:
            # Who asks, before anybody is asked; and whether anybody is there to be answered.
            await client.discover()
        except Refused as fault:
            desk.tell(f"  the server does not say who it is: {line(str(fault))}")
        return await go_on(
            desk,
            pending,
            ask=lambda waits: options.pending is None or waits is pending,
            keep=lambda waits: waiting.write(file, options.peer, waits),
        )


def _left(options: Options, file: Path, pending: Pending) -> int:
    path = options.pending or file
    code = left(path, options.peer, pending)
    if not _same(path, file):
        file.unlink(missing_ok=True)
    return code


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()
