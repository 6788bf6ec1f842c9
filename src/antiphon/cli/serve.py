"""``antiphon serve``: serve a Server on standard streams or over HTTP, in one process or several."""

import gc
import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final

import click
import msgspec
from click.core import ParameterSource
from msgspec.structs import replace

from antiphon import loading
from antiphon.app import Server
from antiphon.cli.listen_address import Address, listen
from antiphon.eras import Legacy
from antiphon.loading import ImportFailed, ServerMissing, ServerName
from antiphon.rounds.token import generate_key
from antiphon.transports.asgi import LOCAL_HOSTS, Endpoint
from antiphon.transports.serve import SETTINGS

VARIABLE: Final = "ANTIPHON_SERVE"
"""The environment variable that tells a worker its job."""
STARTUP_FAILURE: Final = 3
"""The exit code that tells uvicorn not to start another worker in place of this one."""


class NotFound(click.UsageError):
    """The TARGET does not lead to a Server."""


class TargetFailed(click.ClickException):
    """The TARGET failed while it was imported. Shows the author's traceback, if there is one."""

    def __init__(self, fault: ImportFailed) -> None:
        super().__init__(fault.log or str(fault))
        self._is_traceback = bool(fault.log)

    def show(self, file: IO[Any] | None = None) -> None:
        if self._is_traceback:
            click.echo(self.message, file=file, err=True, nl=False)
        else:
            super().show(file)


def parse_server(text: str) -> ServerName:
    """Parse a TARGET such as ``notes.py`` or ``package.module:app``, relative to the current folder."""
    try:
        return loading.parse(text, Path.cwd())
    except ServerMissing as fault:
        raise NotFound(str(fault)) from None


def load_server(name: ServerName) -> Server:
    """Import the TARGET and return its Server."""
    try:
        return loading.load(name, Server)
    except ImportFailed as fault:
        raise TargetFailed(fault) from None
    except ServerMissing as fault:
        raise NotFound(str(fault)) from None


@click.command("serve")
@click.argument("target")
@click.option("--http", is_flag=True, help="Serve over HTTP instead of standard streams.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="The port to listen on; 0 for any free port.",
)
@click.option("--path", default="/mcp", show_default=True, help="The path of the MCP endpoint.")
@click.option(
    "--workers", metavar="N", type=click.IntRange(min=1), default=1, show_default=True, help="The number of processes."
)
@click.option("--reload", is_flag=True, help="Restart when a Python file changes.")
@click.option("--allow-host", multiple=True, metavar="HOST", help="Also accept requests for this Host (* for all).")
@click.option(
    "--allow-origin", multiple=True, metavar="ORIGIN", help="Also accept requests from this Origin (* for all)."
)
@click.option(
    "--legacy",
    type=click.Choice(["sessions", "stateless", "reject"]),
    default="sessions",
    show_default=True,
    help="How to serve clients of 2025-11-25 and earlier.",
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

    TARGET is a file (notes.py) or a module (package.module). If it holds several Servers, name one after a colon
    (notes.py:app).

    \b
    antiphon serve notes.py
    antiphon serve notes.py --http --port 8080 --reload
    antiphon serve shop.api:app --http --host 0.0.0.0 --allow-host mcp.example.com --workers 4
    """
    if not http:
        _refuse_http_options(ctx)
        _serve_streams(parse_server(target))
        return
    if not path.startswith("/"):
        raise click.BadParameter(f"{path!r} does not begin with /", param_hint="'--path'")
    if reload and workers > 1:
        raise click.UsageError("--reload runs one worker: remove --workers or --reload")
    address = Address(host=host, port=port, path=path)
    job = Job(
        target=parse_server(target),
        path=path,
        hosts=[*LOCAL_HOSTS, *address.names, *allow_host],
        origins=[*LOCAL_HOSTS, *allow_origin],
        legacy=legacy,
    )
    if address.is_everywhere and not allow_host:
        click.echo("Only requests to localhost are accepted. Pass --allow-host NAME to accept others.", err=True)
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
        raise click.UsageError(f"{', '.join(given)} can only be used with --http")


# --- standard streams ---------------------------------------------------------------------------------------------


def _serve_streams(target: ServerName) -> None:
    with _stdout_kept():
        server = load_server(target)
    if os.isatty(0):
        click.echo(f"Serving {server.info.name} on standard streams. Pass --http to serve it over HTTP.", err=True)
    server.run()


@contextmanager
def _stdout_kept() -> Generator[None, None, None]:
    """Send what a target prints while it is imported to stderr: stdout carries the protocol."""
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


# --- HTTP ---------------------------------------------------------------------------------------------------------


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a process serves. Workers read it from their environment."""

    target: ServerName
    path: str
    hosts: list[str]
    origins: list[str]
    legacy: Legacy = "sessions"
    store: str | None = None
    """The file in which all workers keep sessions and claims, unless the Server has a shared store of its own."""
    announce: str | None = None

    def endpoint(self) -> Endpoint:
        server = load_server(self.target)
        if self.announce is not None:
            _announce(server.info.name, self.announce)
        if self.store is not None and not server.has_shared_store:
            from antiphon.stores.sqlite import SQLiteStore  # only several processes need it

            server.use_store(SQLiteStore(self.store))
        return server.asgi(path=self.path, allowed_hosts=self.hosts, allowed_origins=self.origins, legacy=self.legacy)


def _serve_alone(job: Job, address: Address) -> None:
    from antiphon.transports import serve  # loads the HTTP server

    endpoint = job.endpoint()
    sockets = listen(address)
    name, url = endpoint.service.info.name, address.url(sockets)
    try:
        serve.run(endpoint, sockets=sockets, log_level=logging.WARNING, started=lambda: _announce(name, url))
    except SystemExit as end:
        # uvicorn has printed the reason.
        sys.exit(1 if end.code else 0)


def _serve_workers(job: Job, address: Address, count: int) -> None:
    """Keep ``count`` workers running until a signal arrives."""
    from uvicorn import Server as Uvicorn
    from uvicorn.supervisors import Multiprocess

    server = load_server(job.target)
    sockets = listen(address)
    _announce(server.info.name, address.url(sockets))
    with TemporaryDirectory(prefix="antiphon-") as folder:
        # A session of an earlier revision must be known to every worker.
        config = _config(replace(job, store=str(Path(folder, "workers.db"))), workers=count)
        options: dict[str, Any] = {"sockets": sockets}
        if "target" in signature(Multiprocess).parameters:  # uvicorn before 0.52
            options["target"] = Uvicorn(config).run
        supervisor = Multiprocess(config, **options)
        supervisor.run()
    codes = {worker.process.exitcode for worker in supervisor.processes}
    if STARTUP_FAILURE in codes:
        raise click.ClickException("A worker could not start")
    _check_end(codes)


def _serve_reloading(job: Job, address: Address) -> None:
    """Keep one worker running, and restart it when a Python file changes."""
    from uvicorn import Server as Uvicorn
    from uvicorn.supervisors import ChangeReload

    if find_spec("watchfiles") is None:
        raise click.ClickException("--reload needs watchfiles: pip install 'antiphon[reload]'")
    sockets = listen(address)
    job = replace(job, announce=address.url(sockets))
    folders = {str(Path.cwd()), str(job.target.folder)}
    config = _config(job, workers=1, reload=True, reload_dirs=sorted(folders))
    supervisor = ChangeReload(config, target=Uvicorn(config).run, sockets=sockets)
    supervisor.run()
    _check_end({supervisor.process.exitcode})


def _check_end(codes: set[int | None]) -> None:
    """Exit with code 1 if a worker did: it had to leave a handler that could not be cancelled."""
    if 1 in codes:
        sys.exit(1)


def _config(job: Job, **options: Any) -> Any:
    from uvicorn import Config

    if not os.environ.get("ANTIPHON_KEYS", "").strip():
        # Any worker must be able to open the tokens of the others.
        os.environ["ANTIPHON_KEYS"] = generate_key(os.urandom(32))
    os.environ[VARIABLE] = msgspec.json.encode(job).decode()
    return Config(f"{__name__}:endpoint", factory=True, log_level=logging.WARNING, **SETTINGS, **options)


def _announce(name: str, url: str) -> None:
    click.echo(f"Serving {name} on {url}", err=True)


# --- in a worker --------------------------------------------------------------------------------------------------


def endpoint() -> Endpoint:
    """Return the application of a worker. uvicorn calls it after it has installed its signal handlers."""
    try:
        built = msgspec.json.decode(os.environ[VARIABLE], type=Job).endpoint()
    except click.ClickException as fault:
        fault.show()
        sys.exit(STARTUP_FAILURE)
    built.ends_process = True
    # What is loaded now stays loaded: exempt it from garbage collection.
    gc.collect()
    gc.freeze()
    return built
