"""``antiphon verify``: sends a cassette's requests to a live server, and compares."""

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from antiphon.cli.peer import Peer, read_headers, read_peer
from antiphon.cli.replay import BROKEN, load
from antiphon.cli.text import visible

if TYPE_CHECKING:
    from antiphon.testing.cassette.verifying import Verdict, Verification
    from antiphon.testing.cassette.wire import Wire

TABLE = """\b
Exit codes:
  0    the server answers as it did
  1    it answers in another way
  2    the cassette is broken, or the usage wrong
  3    the server did not start, cannot be reached, or does not answer"""
NOT_STARTED = 3


@click.command("verify", epilog=TABLE)
@click.argument("cassette", type=click.Path(path_type=Path))
@click.option("--target", required=True, help="The server: a URL, a Python file, or a command in quotes.")
@click.option("--header", metavar="'NAME: VALUE'", multiple=True, help="An HTTP header to send.")
@click.option(
    "--secret", metavar="NAME=VALUE", multiple=True, help="What was redacted; NAME alone takes it from the environment."
)
@click.option("--replies-only", is_flag=True, help="Do not compare notifications.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="How long the server may take for a turn.",
)
def command(
    *,
    cassette: Path,
    target: str,
    header: tuple[str, ...],
    secret: tuple[str, ...],
    replies_only: bool,
    timeout: float,
) -> None:
    """Send the requests of CASSETTE to the server at TARGET, and show where its answers differ.

    \b
    antiphon verify session.json --target server.py
    antiphon verify session.json --target https://example.com/mcp --header 'Authorization: Bearer ...'
    """
    from antiphon.testing.cassette.tape import CassetteBroken
    from antiphon.testing.cassette.verifying import NotStarted, Verification

    peer = read_peer(target)
    headers = read_headers(header, peer)
    tape = load(cassette)
    try:
        verification = Verification(
            tape,
            lambda: _wire(peer, headers),
            secrets=_secrets(secret),
            headers=headers,
            timeout=timeout,
            notifications=not replies_only,
        )
        sys.exit(asyncio.run(_verified(verification)))
    except CassetteBroken as fault:
        click.echo(f"Error: {cassette}: {fault}", err=True)
        sys.exit(BROKEN)
    except NotStarted as fault:
        click.echo(f"Error: {visible(str(fault))}", err=True)
        sys.exit(NOT_STARTED)


def _wire(peer: Peer, headers: dict[str, str]) -> "Wire":
    from antiphon.testing.cassette.wire import HttpWire, PipeWire

    return HttpWire(peer.text, headers=headers) if peer.command is None else PipeWire(peer.command, cwd=peer.folder)


async def _verified(verification: "Verification") -> int:
    counts = {"same": 0, "differs": 0, "skipped": 0}
    async for verdict in verification.verdicts():
        counts[verdict.status] += 1
        _show(verdict)
    told = [f"{counts['same']} as recorded"]
    told += [f"{counts['differs']} not"] if counts["differs"] else []
    told += [f"{counts['skipped']} skipped"] if counts["skipped"] else []
    click.echo(", ".join(told))
    return 1 if counts["differs"] else 0


def _show(verdict: "Verdict") -> None:
    mark = {"same": "=", "differs": "≠", "skipped": "-"}[verdict.status]
    reason = f": {verdict.reason}" if verdict.reason else ""
    click.echo(visible(f"{mark} {verdict.number}. {verdict.title}{reason}"))
    if verdict.diff:
        click.echo(visible(verdict.diff))


def _secrets(given: tuple[str, ...]) -> dict[str, str]:
    secrets: dict[str, str] = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not sign:
            value = os.environ.get(name, "")
            if not value:
                raise click.UsageError(f"--secret {name}: there is no environment variable of that name")
        secrets[name] = value
    return secrets
