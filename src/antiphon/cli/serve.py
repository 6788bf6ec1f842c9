"""``antiphon serve``: a Server on standard streams or over HTTP."""

import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout

import click
from click.core import ParameterSource
from msgspec.structs import replace

from antiphon.cli import workers as crew
from antiphon.cli.address import Address, listen
from antiphon.cli.find import find, read
from antiphon.eras import Legacy
from antiphon.home import Home
from antiphon.transports.asgi import LOCAL_HOSTS


@click.command("serve")
@click.argument("target")
@click.option("--http", is_flag=True, help="Serve over HTTP instead of standard streams.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", metavar="N", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes any free port."
)
@click.option("--path", default="/mcp", show_default=True, help="Where on the host MCP is served.")
@click.option(
    "--workers", metavar="N", type=click.IntRange(min=1), default=1, show_default=True, help="How many processes."
)
@click.option("--reload", is_flag=True, help="Start anew whenever a Python file changes.")
@click.option("--allow-host", multiple=True, metavar="HOST", help="Also serve requests for this Host (* for all).")
@click.option("--allow-origin", multiple=True, metavar="ORIGIN", help="Also serve pages of this Origin (* for all).")
@click.option(
    "--legacy",
    type=click.Choice(["sessions", "stateless", "reject"]),
    default="sessions",
    show_default=True,
    help="How clients of 2025-11-25 and before are served.",
)
@click.pass_context
def command(
    ctx: click.Context,
    *,
    target: str,
    http: bool,
    host: str,
    port: int,
    path: str,
    workers: int,
    reload: bool,
    allow_host: tuple[str, ...],
    allow_origin: tuple[str, ...],
    legacy: Legacy,
) -> None:
    """Serve the Server in TARGET.

    TARGET is a file (notes.py) or a module (package.module). Where it holds several Servers, the name of one follows
    after a colon (notes.py:app).

    \b
    antiphon serve notes.py
    antiphon serve notes.py --http --port 8080 --reload
    antiphon serve shop.api:app --http --host 0.0.0.0 --allow-host mcp.example.com --workers 4
    """
    if not http:
        _refuse_http_options(ctx)
        _serve_streams(read(target))
        return
    if not path.startswith("/"):
        raise click.BadParameter(f"{path!r} does not begin with /", param_hint="'--path'")
    if reload and workers > 1:
        raise click.UsageError("--reload serves with one worker: leave out --workers, or --reload")
    address = Address(host=host, port=port, path=path)
    job = crew.Job(
        target=read(target),
        path=path,
        hosts=[*LOCAL_HOSTS, *address.names, *allow_host],
        origins=[*LOCAL_HOSTS, *allow_origin],
        legacy=legacy,
    )
    if address.is_everywhere and not allow_host:
        click.echo("Only requests to localhost are answered: --allow-host NAME admits others", err=True)
    if reload:
        _serve_reloading(job, address)
    elif workers > 1:
        _serve_workers(job, address, workers)
    else:
        _serve_alone(job, address)


def _refuse_http_options(ctx: click.Context) -> None:
    given = [
        max(parameter.opts, key=len)
        for parameter in ctx.command.params
        if isinstance(parameter, click.Option)
        and ctx.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{', '.join(given)} can only be used with --http: without it, there is no network")


# --- standard streams ---------------------------------------------------------------------------------------------


def _serve_streams(target: Home) -> None:
    with _stdout_kept():
        server = find(target)
    if os.isatty(0):
        click.echo(f"Serving {server.info.name} on standard streams; --http serves it at an address", err=True)
    server.run()


@contextmanager
def _stdout_kept() -> Generator[None, None, None]:
    """Stdout is for the protocol alone: what a target prints while it is imported goes to stderr."""
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


# --- HTTP ---------------------------------------------------------------------------------------------------------


def _serve_alone(job: crew.Job, address: Address) -> None:
    from antiphon.transports import serve  # brings the HTTP server

    endpoint = job.endpoint()
    sockets = listen(address)
    name, url = endpoint.service.info.name, address.url(sockets)
    try:
        serve.run(endpoint, sockets=sockets, log_level=logging.WARNING, started=lambda: _announce(name, url))
    except SystemExit as end:
        # uvicorn has said why.
        sys.exit(1 if end.code else 0)


def _serve_workers(job: crew.Job, address: Address, count: int) -> None:
    server = find(job.target)
    sockets = listen(address)
    _announce(server.info.name, address.url(sockets))
    crew.run(job, sockets, count)


def _serve_reloading(job: crew.Job, address: Address) -> None:
    crew.require_reloader()
    sockets = listen(address)
    crew.run_and_reload(replace(job, announce=address.url(sockets)), sockets)


def _announce(name: str, url: str) -> None:
    click.echo(f"Serving {name} on {url}", err=True)
