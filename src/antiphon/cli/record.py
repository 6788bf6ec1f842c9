"""``antiphon record``: stands between a client and a server, and writes a cassette."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from antiphon.cli.address import Address, listen
from antiphon.cli.peer import Peer, read_peer
from antiphon.errors import Disconnected

if TYPE_CHECKING:
    from antiphon.testing.cassette.scribe import Scribe

NOT_STARTED = 3


@click.command("record")
@click.option("--target", required=True, help="The server: a URL, a Python file, or a command in quotes.")
@click.option("--output", metavar="FILE", required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--http", is_flag=True, help="Only for a URL, which is recorded over HTTP in any case.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", metavar="N", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes any free port."
)
@click.option("--allow-host", multiple=True, metavar="HOST", help="Also serve requests for this Host (* for all).")
@click.option("--blind", multiple=True, metavar="FIELD", help="A field, or $.path, that is another value each time.")
@click.option("--redact", multiple=True, metavar="FIELD", help="A field, $.path or header that is a secret.")
@click.option("--keep-times", is_flag=True, help="Write the times in the server's texts down as they are.")
def command(
    *,
    target: str,
    output: Path,
    http: bool,
    host: str,
    port: int,
    allow_host: tuple[str, ...],
    blind: tuple[str, ...],
    redact: tuple[str, ...],
    keep_times: bool,
) -> None:
    """Record what a client and the server at TARGET say to each other.

    A command is recorded on standard streams: let the client start this command as its server. A URL is recorded over
    HTTP: let the client connect to the address that is announced. The exit code of a command is passed on; 3 if it ends
    before it has said anything.

    \b
    antiphon record --target "python server.py" --output session.json
    antiphon record --target http://127.0.0.1:9000/mcp --output session.json --port 8000
    """
    from antiphon.testing.cassette.scribe import Scribe

    peer = read_peer(target)
    try:
        scribe = Scribe(blind=blind, redact=redact, keep_times=keep_times)
    except ValueError as fault:
        raise click.UsageError(f"--blind and --redact take a field's name, or a path: {fault}") from None
    if peer.command is None:
        _record_http(peer, scribe, output, Address(host=host, port=port), allow_host)
    elif http:
        raise click.UsageError("--http records a server at a URL: start it, and give its URL as --target")
    else:
        _record_streams(peer, scribe, output)


def _record_streams(peer: Peer, scribe: "Scribe", output: Path) -> None:
    from antiphon.testing.cassette.relay import Relay
    from antiphon.testing.cassette.tape import CassetteBroken

    assert peer.command is not None
    try:
        code = Relay(peer.command, scribe, lambda: scribe.cassette().save(output), peer.folder).run()
    except Disconnected as fault:
        click.echo(f"Error: {fault}", err=True)
        sys.exit(NOT_STARTED)
    except CassetteBroken as fault:
        raise click.ClickException(str(fault)) from None
    sys.exit(code)


def _record_http(peer: Peer, scribe: "Scribe", output: Path, address: Address, hosts: tuple[str, ...]) -> None:
    from antiphon.testing.cassette.gateway import Gateway
    from antiphon.testing.cassette.tape import CassetteBroken
    from antiphon.testing.cassette.web import run

    def save() -> None:
        cassette = scribe.cassette()
        if cassette.entries:  # there may be an older recording in its place
            cassette.save(output)

    gateway = Gateway(peer.text, scribe, hosts=[*address.names, *hosts], rested=save)
    sockets = listen(address)
    url = Address(host=address.host, port=address.port, path=gateway.path).url(sockets)
    try:
        run(gateway, sockets, started=lambda: click.echo(f"Recording {peer.text} on {url}", err=True))
        save()
    except CassetteBroken as fault:
        raise click.ClickException(str(fault)) from None
    count = len(scribe.cassette().entries)
    told = f"{count} {'entry' if count == 1 else 'entries'} in {output}" if count else "nothing: no client came"
    click.echo(f"Recorded {told}", err=True)
