"""``antiphon serve``: a Server on standard streams or over HTTP."""

import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import IO, Any, Final

import click
import msgspec
from click.core import ParameterSource
from msgspec.structs import replace

from antiphon import loading as home
from antiphon.app import Server
from antiphon.cli.address import Address, listen
from antiphon.eras import Legacy
from antiphon.loading import Home
from antiphon.rounds.token import generate_key
from antiphon.transports.asgi import LOCAL_HOSTS, Endpoint
from antiphon.transports.serve import SETTINGS

# Finding a Server: the TARGET on the command line is its home.


class NotFound(click.UsageError):
    """The TARGET does not lead to a Server."""


class TargetFailed(click.ClickException):
    """The TARGET failed while it was imported."""

    def __init__(self, fault: home.ImportFailed) -> None:
        super().__init__(fault.log or str(fault))
        self._is_traceback = bool(fault.log)

    def show(self, file: IO[Any] | None = None) -> None:
        if self._is_traceback:
            click.echo(self.message, file=file, err=True, nl=False)
        else:
            super().show(file)


def read(text: str) -> Home:
    """Where a TARGET such as ``notes.py`` or ``package.module:app`` leads from the current folder."""
    try:
        return home.read(text, Path.cwd())
    except home.ServerMissing as fault:
        raise NotFound(str(fault)) from None


def find(target: Home) -> Server:
    """Import the target and return its Server."""
    try:
        return home.find(target, Server)
    except home.ImportFailed as fault:
        raise TargetFailed(fault) from None
    except home.ServerMissing as fault:
        raise NotFound(str(fault)) from None


# Workers: processes of uvicorn that serve one target, several at once or one after every change.


VARIABLE: Final = "ANTIPHON_SERVE"
STARTUP_FAILURE: Final = 3
"""The exit code by which a worker tells uvicorn that another one would fail as well."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker must know; it reads it from its environment."""

    target: Home
    path: str
    hosts: list[str]
    origins: list[str]
    legacy: Legacy = "sessions"
    store: str | None = None
    """A file that all workers keep sessions and claims in, where the target names no store of its own."""
    announce: str | None = None

    def endpoint(self) -> Endpoint:
        server = find(self.target)
        if self.announce is not None:
            click.echo(f"Serving {server.info.name} on {self.announce}", err=True)
        if self.store is not None and not server.has_shared_store:
            from antiphon.stores.sqlite import SQLiteStore  # for several processes only

            server.use_store(SQLiteStore(self.store))
        return server.asgi(path=self.path, allowed_hosts=self.hosts, allowed_origins=self.origins, legacy=self.legacy)


def endpoint() -> Endpoint:
    """What uvicorn calls in a worker, after it has installed its signal handlers."""
    try:
        built = msgspec.json.decode(os.environ[VARIABLE], type=Job).endpoint()
    except click.ClickException as fault:
        fault.show()
        sys.exit(STARTUP_FAILURE)
    for number in (signal.SIGTERM, signal.SIGINT):
        _close_subscriptions_on(number, built)
    # What is alive now stays alive: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    return built


def run(job: Job, sockets: list[socket.socket], count: int) -> None:
    """Keep ``count`` workers running until a signal comes."""
    from uvicorn import Server  # what a stdio server need not load
    from uvicorn.supervisors import Multiprocess

    with TemporaryDirectory(prefix="antiphon-") as folder:
        # Whichever worker a client of an earlier revision comes to must know its session.
        config = _config(replace(job, store=str(Path(folder, "workers.db"))), workers=count)
        options: dict[str, Any] = {"sockets": sockets}
        if "target" in signature(Multiprocess).parameters:  # uvicorn before 0.52
            options["target"] = Server(config).run
        supervisor = Multiprocess(config, **options)
        supervisor.run()
    if any(worker.process.exitcode == STARTUP_FAILURE for worker in supervisor.processes):
        raise click.ClickException("A worker could not start")


def run_and_reload(job: Job, sockets: list[socket.socket]) -> None:
    """Keep one worker running, and start it anew when a Python file changes."""
    from uvicorn import Server  # what a stdio server need not load
    from uvicorn.supervisors import ChangeReload

    folders = {str(Path.cwd()), str(job.target.folder)}
    config = _config(job, workers=1, reload=True, reload_dirs=sorted(folders))
    ChangeReload(config, target=Server(config).run, sockets=sockets).run()


def require_reloader() -> None:
    if find_spec("watchfiles") is None:
        raise click.ClickException("--reload needs watchfiles: pip install 'antiphon[reload]'")


def _config(job: Job, **options: Any) -> Any:
    from uvicorn import Config  # what a stdio server need not load

    if not os.environ.get("ANTIPHON_KEYS", "").strip():
        # Whichever worker asked, any worker must be able to continue.
        os.environ["ANTIPHON_KEYS"] = generate_key(os.urandom(32))
    os.environ[VARIABLE] = msgspec.json.encode(job).decode()
    return Config(f"{__name__}:endpoint", factory=True, log_level=logging.WARNING, **SETTINGS, **options)


def _close_subscriptions_on(number: int, built: Endpoint) -> None:
    """Open subscription streams would otherwise hold the shutdown up until its time is over."""
    proceed = signal.getsignal(number)

    def close(sig: int, frame: FrameType | None) -> None:
        built.service.subscriptions.close()
        if callable(proceed):
            proceed(sig, frame)

    signal.signal(number, close)


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
def serve_command(
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
    job = Job(
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


def _serve_alone(job: Job, address: Address) -> None:
    from antiphon.transports import serve  # brings the HTTP server

    endpoint = job.endpoint()
    sockets = listen(address)
    name, url = endpoint.service.info.name, address.url(sockets)
    try:
        serve.run(endpoint, sockets=sockets, log_level=logging.WARNING, started=lambda: _announce(name, url))
    except SystemExit as end:
        # uvicorn has said why.
        sys.exit(1 if end.code else 0)


def _serve_workers(job: Job, address: Address, count: int) -> None:
    server = find(job.target)
    sockets = listen(address)
    _announce(server.info.name, address.url(sockets))
    run(job, sockets, count)


def _serve_reloading(job: Job, address: Address) -> None:
    require_reloader()
    sockets = listen(address)
    run_and_reload(replace(job, announce=address.url(sockets)), sockets)


def _announce(name: str, url: str) -> None:
    click.echo(f"Serving {name} on {url}", err=True)
