"""``antiphon record``, ``replay`` and ``verify``: write a cassette, answer from it, compare a server with it."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import click

from antiphon.cli import exit_codes
from antiphon.cli.serve import ListenAddress, listen
from antiphon.cli.target import ServerTarget, header_option, read_headers, read_target
from antiphon.errors import Disconnected
from antiphon.escaping import visible

if TYPE_CHECKING:
    from antiphon.testing.cassette.http import LocalApp
    from antiphon.testing.cassette.matching import Drift
    from antiphon.testing.cassette.recording import Recording
    from antiphon.testing.cassette.replaying import Replay
    from antiphon.testing.cassette.verifying import LiveServer, Verdict, Verification

F = TypeVar("F", bound=Callable[..., None])
_target = click.option(
    "--target", required=True, help="The server: a URL, a Python file, mcp.json:NAME, or a command in quotes."
)
_cassette = click.argument("cassette", type=click.Path(path_type=Path))
_ADDRESS = (
    click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on."),
    click.option(
        "--port",
        metavar="N",
        type=click.IntRange(0, 65535),
        default=8000,
        show_default=True,
        help="0 takes any free port.",
    ),
    click.option("--allow-host", multiple=True, metavar="HOST", help="Also serve requests for this Host (* for all)."),
)


def _address_options(function: F) -> F:
    for option in reversed(_ADDRESS):
        function = option(function)
    return function


@contextlib.contextmanager
def _failures() -> Generator[None]:
    """Exit with the code that says what failed: the cassette, or the server."""
    from antiphon.testing.cassette.format import CassetteBroken

    try:
        yield
    except (CassetteBroken, Disconnected) as fault:
        click.echo(f"Error: {visible(str(fault))}", err=True)
        sys.exit(exit_codes.BROKEN if isinstance(fault, CassetteBroken) else exit_codes.NOT_STARTED)


def _serve(app: "LocalApp", address: ListenAddress, doing: str) -> None:
    """Serve until SIGINT or SIGTERM; say what is done, and where."""
    from antiphon.transports.serve import run

    sockets = listen(address)

    def started() -> None:
        click.echo(f"{doing} on {address.url(sockets)}", err=True)

    run(app, sockets=sockets, log_level=logging.WARNING, started=started, stopping=app.close)


# --- record -------------------------------------------------------------------------------------------------------


@click.command("record")
@_target
@click.option("--output", metavar="FILE", required=True, type=click.Path(dir_okay=False, path_type=Path))
@_address_options
@click.option("--blind", multiple=True, metavar="FIELD", help="A field, or $.path, that is another value each time.")
@click.option("--redact", multiple=True, metavar="FIELD", help="A field, $.path or header that is a secret.")
@click.option("--keep-times", is_flag=True, help="Write the times in the server's texts down as they are.")
def record_command(
    *,
    target: str,
    output: Path,
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
    from antiphon.testing.cassette.recording import Recording

    peer = read_target(target)
    try:
        recording = Recording(blind=blind, redact=redact, keep_times=keep_times)
    except ValueError as fault:
        raise click.UsageError(f"--blind and --redact take a field's name, or a path: {fault}") from None
    with _failures():
        if peer.command is None:
            address = ListenAddress(host=host, port=port, path=urlsplit(peer.text).path or "/")
            _record_http(peer, recording, output, address, allow_host)
        else:
            from antiphon.testing.cassette.stdio import StdioProxy

            sys.exit(StdioProxy(peer.command, recording, output, cwd=peer.folder, env=peer.env).run())


def _record_http(
    peer: ServerTarget, recording: "Recording", output: Path, address: ListenAddress, hosts: tuple[str, ...]
) -> None:
    from antiphon.testing.cassette.http import RecordingProxy

    proxy = RecordingProxy(
        peer.text,
        recording,
        hosts=[*address.names, *hosts],
        headers=peer.headers,
        after=lambda: recording.save_when_idle(output),
    )
    _serve(proxy, address, f"Recording {peer.text}")
    count = recording.save(output)
    told = f"{count} {'entry' if count == 1 else 'entries'} in {output}" if count else "nothing: no client came"
    click.echo(f"Recorded {told}", err=True)


# --- replay -------------------------------------------------------------------------------------------------------


@click.command("replay")
@_cassette
@click.option("--http", is_flag=True, help="Answer over HTTP instead of standard streams.")
@_address_options
@click.option("--path", default="/mcp", show_default=True, help="Where on the host MCP is served.")
@click.option("--complete", is_flag=True, help="What was recorded and not asked for is a drift too.")
def replay_command(
    *, cassette: Path, http: bool, host: str, port: int, path: str, allow_host: tuple[str, ...], complete: bool
) -> None:
    """Answer a client from CASSETTE, as the recorded server did.

    What the client sends must be what was recorded, tokens and ids aside. Anything else is refused: the client gets an
    error, the difference is shown here, and the exit code is 1.

    \b
    antiphon replay session.json
    antiphon replay session.json --http --port 8000
    """
    from antiphon.testing.cassette.format import Cassette
    from antiphon.testing.cassette.replaying import Replay

    with _failures():
        replay = Replay(Cassette.load(cassette), _show_drift)
    if http:
        from antiphon.testing.cassette.http import ReplayApp

        address = ListenAddress(host=host, port=port, path=path)
        _serve(ReplayApp(replay, path=path, hosts=[*address.names, *allow_host]), address, f"Playing {cassette}")
    else:
        _replay_streams(replay)
    left = replay.unplayed
    if left:
        click.echo(f"Not asked for: {visible(', '.join(entry.title for entry in left))}", err=True)
    sys.exit(exit_codes.DRIFTED if replay.drifts or (complete and left) else 0)


def _replay_streams(replay: "Replay") -> None:
    from antiphon.testing.cassette.stdio import replay_on_stdio

    def stop(*_: object) -> None:
        raise SystemExit

    signal.signal(signal.SIGTERM, stop)
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        replay_on_stdio(replay)


def _show_drift(drift: "Drift") -> None:
    click.echo(f"Not as recorded: {visible(str(drift))}\n", err=True)


# --- verify -------------------------------------------------------------------------------------------------------


@click.command("verify", epilog=exit_codes.VERIFY_TABLE)
@_cassette
@_target
@header_option
@click.option(
    "--secret", metavar="NAME=VALUE", multiple=True, help="What was redacted; NAME alone takes it from the environment."
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="How long the server may take for a turn.",
)
def verify_command(
    *,
    cassette: Path,
    target: str,
    header: tuple[str, ...],
    secret: tuple[str, ...],
    timeout: float,
) -> None:
    """Send the requests of CASSETTE to the server at TARGET, and show where its answers differ.

    \b
    antiphon verify session.json --target server.py
    antiphon verify session.json --target https://example.com/mcp --header 'Authorization: Bearer ...'
    """
    from antiphon.testing.cassette.format import Cassette
    from antiphon.testing.cassette.verifying import Verification

    peer = read_target(target)
    headers = read_headers(header, peer)
    with _failures():
        verification = Verification(
            Cassette.load(cassette),
            lambda: _live_server(peer, headers),
            secrets=_secrets(secret),
            headers=headers,
            timeout=timeout,
        )
        sys.exit(asyncio.run(_verify(verification)))


def _live_server(peer: ServerTarget, headers: dict[str, str]) -> "LiveServer":
    from antiphon.testing.cassette.http import LiveUrl
    from antiphon.testing.cassette.stdio import LiveProcess

    if peer.command is None:
        return LiveUrl(peer.text, headers)
    return LiveProcess(peer.command, cwd=peer.folder, env=peer.env)


async def _verify(verification: "Verification") -> int:
    counts = {"same": 0, "differs": 0, "skipped": 0}
    async for verdict in verification.verdicts():
        counts[verdict.status] += 1
        _show_verdict(verdict)
    told = [f"{counts['same']} as recorded"]
    told += [f"{counts['differs']} not"] if counts["differs"] else []
    told += [f"{counts['skipped']} skipped"] if counts["skipped"] else []
    click.echo(", ".join(told))
    return 1 if counts["differs"] else 0


def _show_verdict(verdict: "Verdict") -> None:
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
