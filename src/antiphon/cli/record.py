"""``antiphon record``, ``replay`` and ``verify``: write a cassette, answer from it, compare a server with it."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from antiphon.cli import exit_codes
from antiphon.cli.serve import ListenAddress, listen
from antiphon.cli.target import ServerTarget, read_headers, read_target
from antiphon.errors import Disconnected
from antiphon.escaping import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from antiphon.testing.cassette.drift import Drift
    from antiphon.testing.cassette.format import Cassette
    from antiphon.testing.cassette.recording import Recording
    from antiphon.testing.cassette.replaying import Replay
    from antiphon.testing.cassette.verifying import Came, LiveServer, Verdict, Verification

_target = click.option(
    "--target", required=True, help="The server: a URL, a Python file, mcp.json:NAME, or a command in quotes."
)
_cassette = click.argument("cassette", type=click.Path(path_type=Path))
_host = click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
_port = click.option(
    "--port", metavar="N", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes any free port."
)
_allow_host = click.option(
    "--allow-host", multiple=True, metavar="HOST", help="Also serve requests for this Host (* for all)."
)


def _fail(code: int, text: object) -> NoReturn:
    click.echo(f"Error: {text}", err=True)
    sys.exit(code)


# --- record -------------------------------------------------------------------------------------------------------


@click.command("record")
@_target
@click.option("--output", metavar="FILE", required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--http", is_flag=True, help="Only for a URL, which is recorded over HTTP in any case.")
@_host
@_port
@_allow_host
@click.option("--blind", multiple=True, metavar="FIELD", help="A field, or $.path, that is another value each time.")
@click.option("--redact", multiple=True, metavar="FIELD", help="A field, $.path or header that is a secret.")
@click.option("--keep-times", is_flag=True, help="Write the times in the server's texts down as they are.")
def record_command(
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
    from antiphon.testing.cassette.recording import Recording

    peer = read_target(target)
    try:
        recording = Recording(blind=blind, redact=redact, keep_times=keep_times)
    except ValueError as fault:
        raise click.UsageError(f"--blind and --redact take a field's name, or a path: {fault}") from None
    if peer.command is None:
        _record_http(peer, recording, output, ListenAddress(host=host, port=port), allow_host)
    elif http:
        raise click.UsageError("--http records a server at a URL: start it, and give its URL as --target")
    else:
        _record_streams(peer, recording, output)


def _record_streams(peer: ServerTarget, recording: "Recording", output: Path) -> None:
    from antiphon.testing.cassette.format import CassetteBroken
    from antiphon.testing.cassette.recording import RecordingFile
    from antiphon.testing.cassette.stdio import StdioProxy

    assert peer.command is not None
    try:
        file = RecordingFile(recording, output)
        code = StdioProxy(peer.command, recording, file, cwd=peer.folder, env=peer.env).run()
    except Disconnected as fault:
        _fail(exit_codes.NOT_STARTED, fault)
    except CassetteBroken as fault:
        raise click.ClickException(str(fault)) from None
    sys.exit(code)


def _record_http(
    peer: ServerTarget, recording: "Recording", output: Path, address: ListenAddress, hosts: tuple[str, ...]
) -> None:
    from antiphon.testing.cassette.format import CassetteBroken
    from antiphon.testing.cassette.http import RecordingProxy, run
    from antiphon.testing.cassette.recording import RecordingFile

    file = RecordingFile(recording, output)
    proxy = RecordingProxy(
        peer.text, recording, hosts=[*address.names, *hosts], headers=peer.headers, after=file.save_when_idle
    )
    sockets = listen(address)
    url = ListenAddress(host=address.host, port=address.port, path=proxy.path).url(sockets)
    try:
        run(proxy, sockets, started=lambda: click.echo(f"Recording {peer.text} on {url}", err=True))
        count = file.save()
    except CassetteBroken as fault:
        raise click.ClickException(str(fault)) from None
    told = f"{count} {'entry' if count == 1 else 'entries'} in {output}" if count else "nothing: no client came"
    click.echo(f"Recorded {told}", err=True)


# --- replay -------------------------------------------------------------------------------------------------------


@click.command("replay")
@_cassette
@click.option("--http", is_flag=True, help="Answer over HTTP instead of standard streams.")
@_host
@_port
@click.option("--path", default="/mcp", show_default=True, help="Where on the host MCP is served.")
@_allow_host
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
    from antiphon.testing.cassette.replaying import Replay

    replay = Replay(_load(cassette), _show_drift)
    if not http:
        _replay_streams(replay)
    else:
        _replay_http(replay, cassette, ListenAddress(host=host, port=port, path=path), allow_host)
    left = replay.unplayed
    if left:
        click.echo(f"Not asked for: {visible(', '.join(entry.title for entry in left))}", err=True)
    sys.exit(exit_codes.DRIFTED if replay.drifts or (complete and left) else 0)


def _load(path: Path) -> "Cassette":
    """Return the cassette; exit with code 2 if it is broken."""
    from antiphon.testing.cassette.format import Cassette, CassetteBroken

    try:
        return Cassette.load(path)
    except CassetteBroken as fault:
        _fail(exit_codes.BROKEN, fault)


def _replay_streams(replay: "Replay") -> None:
    from antiphon.testing.cassette.stdio import replay_on_stdio

    def stop(*_: object) -> None:
        raise SystemExit

    signal.signal(signal.SIGTERM, stop)
    try:
        replay_on_stdio(replay)
    except (KeyboardInterrupt, SystemExit):
        return


def _replay_http(replay: "Replay", cassette: Path, address: ListenAddress, hosts: tuple[str, ...]) -> None:
    from antiphon.testing.cassette.http import ReplayApp, run

    sockets = listen(address)
    app = ReplayApp(replay, path=address.path, hosts=[*address.names, *hosts])
    run(app, sockets, started=lambda: click.echo(f"Playing {cassette} on {address.url(sockets)}", err=True))


def _show_drift(drift: "Drift") -> None:
    click.echo(f"Not as recorded: {visible(str(drift))}\n", err=True)


# --- verify -------------------------------------------------------------------------------------------------------


@click.command("verify", epilog=exit_codes.VERIFY_TABLE)
@_cassette
@_target
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
def verify_command(
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
    from antiphon.testing.cassette.format import CassetteBroken
    from antiphon.testing.cassette.verifying import NotStarted, Verification

    peer = read_target(target)
    headers = read_headers(header, peer)
    recorded = _load(cassette)
    try:
        verification = Verification(
            recorded,
            lambda came: _live_server(peer, headers, came),
            secrets=_secrets(secret),
            headers=headers,
            timeout=timeout,
            notifications=not replies_only,
        )
        sys.exit(asyncio.run(_verify(verification)))
    except CassetteBroken as fault:
        _fail(exit_codes.BROKEN, f"{cassette}: {fault}")
    except NotStarted as fault:
        _fail(exit_codes.NOT_STARTED, visible(str(fault)))


def _live_server(peer: ServerTarget, headers: dict[str, str], came: "Callable[[Came], None]") -> "LiveServer":
    from antiphon.testing.cassette.http import LiveUrl
    from antiphon.testing.cassette.stdio import LiveProcess

    if peer.command is None:
        return LiveUrl(peer.text, came, headers)
    return LiveProcess(peer.command, came, cwd=peer.folder, env=peer.env)


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
