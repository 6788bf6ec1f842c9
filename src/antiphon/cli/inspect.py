"""``antiphon inspect``: look at a server's conversations in a browser."""

import asyncio
import logging
import os
import secrets
import webbrowser
from getpass import getuser
from pathlib import Path
from typing import Any

import click

from antiphon.cli.login import auth_for
from antiphon.cli.serve import ListenAddress, listen
from antiphon.cli.target import ServerTarget, header_option, read_headers, read_target


@click.command("inspect")
@click.argument("target")
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=6280,
    show_default=True,
    help="The port of the page; 0 for any free port.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--allow-host", multiple=True, metavar="HOST", help="Also serve requests for this Host (* for all).")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@click.option(
    "--era", metavar="ERA", default="auto", show_default=True, help="The protocol: auto, legacy, or a revision."
)
@header_option
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="The server's time for a call.",
)
@click.option(
    "--history",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where calls are remembered; default: a folder of your state directory.",
)
@click.option("--no-history", is_flag=True, help="Remember no calls.")
@click.option(
    "--store",
    metavar="STORE",
    envvar="ANTIPHON_STORE",
    help="The store of an inbox, to show it as well: redis://HOST:PORT/0, or the path of an SQLite file.",
)
def inspect_command(
    *,
    target: str,
    port: int,
    host: str,
    allow_host: tuple[str, ...],
    no_browser: bool,
    era: str,
    header: tuple[str, ...],
    timeout: float,
    history: Path | None,
    no_history: bool,
    store: str | None,
) -> None:
    """Look at the conversations of the server at TARGET, round by round, in a browser.

    TARGET is a URL, a Python file, or a command in quotes. The page is for you alone: its address holds a secret, and
    it is served to this machine only, unless --host says otherwise.

    \b
    antiphon inspect notes.py
    antiphon inspect "npx some-server"
    antiphon inspect https://mcp.example.com/mcp --header 'Authorization: Bearer ...'
    """
    from antiphon.cli.stores import open_store
    from antiphon.client.inbox import Inbox
    from antiphon.client.keeps import File, state_folder
    from antiphon.inspect.app import InspectApp
    from antiphon.inspect.inspector import Inspector
    from antiphon.transports.serve import run

    server = read_target(target)
    headers = read_headers(header, server)
    address = ListenAddress(host=host, port=port, path="/")
    auth = auth_for(server.target, headers)
    try:
        inspector = Inspector(
            _spot(server, target, headers, timeout),
            era=era,
            auth=None if auth is None else auth.for_server(server.text, era=era),
            history=None if no_history else File(history or state_folder() / "antiphon" / "inspect"),
            inbox=None if not store else Inbox(open_store(store)),
        )
    except (ValueError, TypeError) as fault:
        raise click.UsageError(str(fault)) from None
    if address.is_everywhere and not allow_host:
        click.echo("Only requests to localhost are accepted. Pass --allow-host NAME to accept others.", err=True)
    secret = secrets.token_urlsafe(32)
    app = InspectApp(inspector, secret=secret, hosts=[*address.names, *allow_host], user=getuser())
    sockets = listen(address)
    url = f"{address.url(sockets)}#key={secret}"
    tasks: list[asyncio.Task[None]] = []

    def started() -> None:
        tasks.append(asyncio.get_running_loop().create_task(inspector.run()))
        click.echo(f"Inspecting {target} at {url}", err=True)
        if not no_browser:
            webbrowser.open(url)

    run(app, sockets=sockets, log_level=logging.WARNING, started=started, stopping=app.close)


def _spot(server: ServerTarget, text: str, headers: dict[str, str], timeout: float) -> Any:
    from antiphon.inspect.instance import Spot
    from antiphon.testing.servers import shared_key

    # A server that we start gets a key, so that its tokens can be opened, and a fresh instance takes them.
    is_file = server.command is not None and bool(server.versions)
    return Spot(
        target=server.target,
        text=server.text,
        label=text,
        file=server.text if is_file else None,
        folder=server.folder or (os.getcwd() if server.command is not None else None),  # noqa: PTH109 -- a text
        headers=headers,
        env={} if server.command is None else {**shared_key(), **server.env},
        versions=server.versions,
        timeout=timeout,
    )
