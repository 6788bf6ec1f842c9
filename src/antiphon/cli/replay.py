"""``antiphon replay``: answers clients from a cassette."""

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from antiphon.cli.address import Address, listen
from antiphon.cli.text import visible

if TYPE_CHECKING:
    from antiphon.testing.cassette.drift import Drift
    from antiphon.testing.cassette.stage import Stage
    from antiphon.testing.cassette.tape import Cassette

DRIFTED = 1
BROKEN = 2


@click.command("replay")
@click.argument("cassette", type=click.Path(path_type=Path))
@click.option("--http", is_flag=True, help="Answer over HTTP instead of standard streams.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", metavar="N", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes any free port."
)
@click.option("--path", default="/mcp", show_default=True, help="Where on the host MCP is served.")
@click.option("--allow-host", multiple=True, metavar="HOST", help="Also serve requests for this Host (* for all).")
@click.option("--complete", is_flag=True, help="What was recorded and not asked for is a drift too.")
def command(
    *, cassette: Path, http: bool, host: str, port: int, path: str, allow_host: tuple[str, ...], complete: bool
) -> None:
    """Answer a client from CASSETTE, as the recorded server did.

    What the client sends must be what was recorded, tokens and ids aside. Anything else is refused: the client gets an
    error, the difference is shown here, and the exit code is 1.

    \b
    antiphon replay session.json
    antiphon replay session.json --http --port 8000
    """
    from antiphon.testing.cassette.player import fresh
    from antiphon.testing.cassette.stage import Stage

    stage = Stage(load(cassette), fresh, _show)
    if not http:
        _play_streams(stage)
    else:
        _play_http(stage, cassette, Address(host=host, port=port, path=path), allow_host)
    sys.exit(_told(stage, complete=complete))


def load(path: Path) -> "Cassette":
    """The cassette; exit code 2 if it is broken."""
    from antiphon.testing.cassette.tape import Cassette, CassetteBroken

    try:
        return Cassette.load(path)
    except CassetteBroken as fault:
        click.echo(f"Error: {fault}", err=True)
        sys.exit(BROKEN)


def _play_streams(stage: "Stage") -> None:
    from antiphon.testing.cassette.pipe import play

    def stop(*_: object) -> None:
        raise SystemExit

    signal.signal(signal.SIGTERM, stop)
    try:
        play(stage)
    except (KeyboardInterrupt, SystemExit):
        return


def _play_http(stage: "Stage", cassette: Path, address: Address, hosts: tuple[str, ...]) -> None:
    from antiphon.testing.cassette.endpoint import Endpoint
    from antiphon.testing.cassette.web import run

    sockets = listen(address)
    endpoint = Endpoint(stage, path=address.path, hosts=[*address.names, *hosts])
    run(endpoint, sockets, started=lambda: click.echo(f"Playing {cassette} on {address.url(sockets)}", err=True))


def _show(drift: "Drift") -> None:
    click.echo(f"Not as recorded: {visible(str(drift))}\n", err=True)


def _told(stage: "Stage", *, complete: bool) -> int:
    left = stage.unplayed
    if left:
        click.echo(f"Not asked for: {visible(', '.join(entry.title for entry in left))}", err=True)
    return DRIFTED if stage.drifts or (complete and left) else 0
