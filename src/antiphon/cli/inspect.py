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

from antiphon import eras
from antiphon.cli.login import auth_for
from antiphon.cli.serve import ListenAddress, allow_host_option, host_option, listen, port_option
from antiphon.cli.stores import open_store, store_option
from antiphon.cli.target import era_option, header_option, read_headers, read_target, timeout_option
from antiphon.client.inbox import Inbox
from antiphon.inspect.app import InspectApp
from antiphon.inspect.inspector import Inspector
from antiphon.inspect.instance import Spot
from antiphon.testing.servers import shared_key
from antiphon.transports.serve import run


@click.command("inspect")
@click.argument("target")
@port_option(6280)
@host_option
@allow_host_option
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@era_option
@header_option
@timeout_option
@store_option
def inspect_command(
    *, target: str, port: int, host: str, allow_host: tuple[str, ...], no_browser: bool, **about: Any
) -> None:
    """Look at the conversations of the server at TARGET, round by round, in a browser.

    TARGET is a URL, a Python file, or a command in quotes. The page is for you alone: its address holds a secret, and
    it is served to this machine only, unless --host says otherwise.

    \b
    antiphon inspect notes.py
    antiphon inspect "npx some-server"
    antiphon inspect https://mcp.example.com/mcp --header 'Authorization: Bearer ...'
    """
    inspector = _inspector(target, **about)
    address = ListenAddress(host=host, port=port, path="/")
    secret = secrets.token_urlsafe(32)
    app = InspectApp(inspector, secret=secret, hosts=address.allowed(*allow_host), user=getuser())
    sockets = listen(address)
    url = f"{address.url(sockets)}#key={secret}"
    tasks: list[asyncio.Task[None]] = []

    def started() -> None:
        tasks.append(asyncio.get_running_loop().create_task(inspector.run()))
        click.echo(f"Inspecting {target} at {url}", err=True)
        if not no_browser:
            webbrowser.open(url)

    run(app, sockets=sockets, log_level=logging.WARNING, started=started, stopping=app.close)


def _inspector(target: str, *, era: str, header: tuple[str, ...], timeout: float, store: str | None) -> Inspector:
    server = read_target(target)
    headers = read_headers(header, server)
    auth = auth_for(server.target, headers)
    # A server that we start gets a key, so that its tokens can be opened, and a fresh instance takes them.
    is_started = server.command is not None
    spot = Spot(
        target=server.target,
        text=server.text,
        label=target,
        file=server.text if is_started and server.versions else None,
        folder=server.folder or (str(Path.cwd()) if is_started else None),
        headers=headers,
        env={**shared_key(), **server.env} if is_started else {},
        versions=server.versions,
        timeout=timeout,
    )
    try:
        # The inspector connects later, and shows what fails then: what is wrong with the options is told here.
        eras.connect(
            server.target,
            headers=headers,
            env={**os.environ, **spot.env},
            cwd=spot.folder,
            era=era,
            versions=server.versions,
        )
        return Inspector(
            spot,
            era=era,
            auth=None if auth is None else auth.for_server(server.text, era=era),
            inbox=None if not store else Inbox(open_store(store)),
        )
    except (ValueError, TypeError) as fault:
        raise click.UsageError(str(fault)) from None
