"""``antiphon serve``: serve a Server on standard streams or over HTTP, in one process or several.

Also the address that HTTP is served at, and the sockets that listen there.
"""

import errno
import logging
import os
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit

import click
import msgspec
from click.core import ParameterSource
from msgspec.structs import replace

from antiphon import loading
from antiphon.app import Server
from antiphon.cli.target import F, option_group
from antiphon.eras import Legacy
from antiphon.loading import ImportFailed, ServerMissing, ServerName
from antiphon.oauth.urls import UrlRefused, check_endpoint
from antiphon.tracebacks import own_traceback
from antiphon.transports.asgi import LOCAL_HOSTS, MAX_REQUESTS, Endpoint
from antiphon.transports.authorization import RESOURCE
from antiphon.transports.local_endpoint import check_reach
from antiphon.types import JsonObject
from antiphon.workers import BACKLOG, Job, announce, check_end, keep_running, worker_config

EVERYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104 -- recognised, not bound


class NotFound(click.UsageError):
    """The TARGET does not lead to a Server."""


class TargetFailed(click.ClickException):
    """The TARGET failed while it was imported or started. Shows the author's traceback, if there is one."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(log or message)
        self._is_traceback = bool(log)

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
        raise TargetFailed(str(fault), fault.log) from None
    except ServerMissing as fault:
        raise NotFound(str(fault)) from None


# --- the address --------------------------------------------------------------------------------------------------


class ListenAddress(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    port: int
    path: str = "/mcp"

    @property
    def is_everywhere(self) -> bool:
        return self.host in EVERYWHERE

    @property
    def names(self) -> list[str]:
        """The Host headers that this address allows by itself: its own name, none if it is every address."""
        return [] if self.is_everywhere else [self._host]

    def allowed(self, *more: str) -> list[str]:
        """Return the Host headers to serve beside those of this machine; say so if they are none."""
        if self.is_everywhere and not more:
            click.echo("Only requests to localhost are accepted. Pass --allow-host NAME to accept others.", err=True)
        return [*self.names, *more]

    def url(self, sockets: list[socket.socket]) -> str:
        port: int = sockets[0].getsockname()[1]
        return f"http://{self._host}:{port}{self.path}"

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def listen(address: ListenAddress) -> list[socket.socket]:
    """Listen on every address of the host. Clients queue there while workers start."""
    try:
        found = socket.getaddrinfo(address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise click.ClickException(f"There is no host {address.host!r}: see --host") from None
    sockets: list[socket.socket] = []
    refusal: OSError | None = None
    for family, host in dict.fromkeys((entry[0], str(entry[4][0])) for entry in found):
        # With --port 0, all addresses use the port that the first one was given.
        port: int = sockets[0].getsockname()[1] if sockets else address.port
        try:
            sockets.append(socket.create_server((host, port), family=family, backlog=BACKLOG))
        except OSError as fault:
            refusal = fault
            if fault.errno != errno.EADDRNOTAVAIL:  # such as ::1 on a machine without IPv6
                break
    if refusal is not None and (not sockets or refusal.errno != errno.EADDRNOTAVAIL):
        for opened in sockets:
            opened.close()
        raise click.ClickException(_why(address, refusal))
    for opened in sockets:
        opened.set_inheritable(True)  # for workers
    return sockets


def _why(address: ListenAddress, fault: OSError) -> str:
    if fault.errno == errno.EADDRINUSE:
        return f"Port {address.port} on {address.host} is in use: choose another with --port (0 for any free port)"
    return f"Cannot listen on port {address.port} of {address.host}: {fault.strerror}"


# --- the command --------------------------------------------------------------------------------------------------


def port_option(default: int) -> Callable[[F], F]:
    """Return the option for a port."""
    port = click.IntRange(0, 65535)
    about = "The port to listen on; 0 for any free port."
    return click.option("--port", metavar="N", type=port, default=default, show_default=True, help=about)


host_option: Final = click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
allow_host_option: Final = click.option(
    "--allow-host", multiple=True, metavar="HOST", help="Also accept requests for this Host (* for all)."
)
http_options: Final = option_group(
    click.option("--http", is_flag=True, help="Serve over HTTP instead of standard streams."),
    host_option,
    port_option(8000),
    click.option("--path", default="/mcp", show_default=True, help="The path of the MCP endpoint."),
    allow_host_option,
    click.option(
        "--allow-origin", multiple=True, metavar="ORIGIN", help="Also accept requests from this Origin (* for all)."
    ),
    click.option(
        "--legacy",
        type=click.Choice(["sessions", "stateless", "reject"]),
        default="sessions",
        show_default=True,
        help="How to serve clients of 2025-11-25 and earlier.",
    ),
    click.option(
        "--principal", metavar="HEADER", help="The header in which a gateway says who calls; requests need it, once."
    ),
    click.option(
        "--max-requests",
        metavar="N",
        type=click.IntRange(min=1),
        default=MAX_REQUESTS,
        show_default=True,
        help="Requests and streams that a process serves at once; more get 503.",
    ),
    click.option("--health", is_flag=True, help="Answer /healthz and /readyz, for load balancers."),
)
"""The options of what is served over HTTP: ``--http``, and those that an HttpOptions is made of."""


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The values of those options."""

    host: str
    port: int
    path: str
    allow_host: tuple[str, ...]
    allow_origin: tuple[str, ...]
    legacy: Legacy
    principal: str | None
    max_requests: int
    health: bool

    @property
    def address(self) -> ListenAddress:
        return ListenAddress(host=self.host, port=self.port, path=self.path)

    def of_endpoint(self, *hosts: str) -> JsonObject:
        """Return the options of ``asgi()``; ``hosts`` are further names of this server."""
        if not self.path.startswith("/"):
            raise click.BadParameter(f"{self.path!r} does not begin with /", param_hint="'--path'")
        allowed = self.address.allowed(*self.allow_host, *hosts)
        return {
            **({} if self.principal is None else {"principal": self.principal}),
            "path": self.path,
            "legacy": self.legacy,
            "max_requests": self.max_requests,
            "health": self.health,
            "allowed_hosts": [*LOCAL_HOSTS, *allowed],
            "allowed_origins": [*LOCAL_HOSTS, *self.allow_origin],
        }


@click.command("serve")
@click.argument("target")
@http_options
@click.option(
    "--workers", metavar="N", type=click.IntRange(min=1), default=1, show_default=True, help="The number of processes."
)
@click.option("--url", metavar="URL", help="The public URL, for a server that is protected by Protected().")
@click.option("--reload", is_flag=True, help="Restart when a Python file changes.")
@click.pass_context
def serve_command(
    ctx: click.Context, /, *, target: str, http: bool, workers: int, url: str | None, reload: bool, **served: Any
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
        refuse_http_options(ctx)
        _serve_streams(parse_server(target))
        return
    if reload and workers > 1:
        raise click.UsageError("--reload runs one worker: remove --workers or --reload")
    if url is not None:
        try:
            os.environ[RESOURCE] = check_endpoint(url, "It")  # for the workers, too
        except UrlRefused as fault:
            raise click.BadParameter(str(fault), param_hint="'--url'") from None
    options = HttpOptions(**served)
    address = options.address
    job = Job(target=parse_server(target), options=options.of_endpoint(*([urlsplit(url).netloc] if url else [])))
    if reload:
        _serve_reloading(job, address)
    elif workers > 1:
        _serve_workers(job, address, workers)
    else:
        _serve_alone(job, address)


def refuse_http_options(ctx: click.Context, *allowed: str) -> None:
    """Raise a usage error if an option was given that only HTTP has."""
    given = [
        max(parameter.opts, key=len)
        for parameter in ctx.command.params
        if isinstance(parameter, click.Option)
        and parameter.name not in allowed
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
    try:
        server.run()
    except Exception as fault:  # noqa: BLE001 -- such as that of a lifespan, which is the author's to see
        raise TargetFailed(str(fault), own_traceback(fault)) from None


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


def _serve_alone(job: Job, address: ListenAddress) -> None:
    serve_here(_loaded(job), job.options, address)


def serve_here(server: Server, options: dict[str, Any], address: ListenAddress) -> None:
    """Serve over HTTP, in this process."""
    from antiphon.transports import serve  # loads the HTTP server

    with _told():
        check_reach(server, address.host)
        endpoint: Endpoint = server.asgi(**options)
    sockets = listen(address)
    started = partial(announce, endpoint.service, address.url(sockets))
    try:
        serve.run(endpoint, sockets=sockets, log_level=logging.WARNING, started=started)
    except SystemExit as end:
        # uvicorn has printed the reason.
        sys.exit(1 if end.code else 0)


def _loaded(job: Job) -> Server:
    server = load_server(job.target)
    if "principal" in job.options and server.auth is not None:
        raise click.UsageError("The server's auth= says who calls, and so does --principal: use one of them")
    return server


@contextmanager
def _told() -> Generator[None, None, None]:
    """Say in one line why a server cannot be served so."""
    try:
        yield
    except ValueError as fault:
        raise click.UsageError(str(fault)) from None


def _serve_workers(job: Job, address: ListenAddress, count: int) -> None:
    server = _loaded(job)
    with _told():
        check_reach(server, address.host, count)
    sockets = listen(address)
    announce(server, address.url(sockets))
    if not keep_running(job, sockets, count, logging.WARNING):
        raise click.ClickException("A worker could not start")


def _serve_reloading(job: Job, address: ListenAddress) -> None:
    """Keep one worker running, and restart it when a Python file changes."""
    from uvicorn import Server as Uvicorn
    from uvicorn.supervisors import ChangeReload

    if find_spec("watchfiles") is None:
        raise click.ClickException("--reload needs watchfiles: pip install 'antiphon[reload]'")
    sockets = listen(address)
    job = replace(job, announce=address.url(sockets))
    folders = {str(Path.cwd()), str(job.target.folder)}
    config = worker_config(job, logging.WARNING, workers=1, reload=True, reload_dirs=sorted(folders))
    supervisor = ChangeReload(config, target=Uvicorn(config).run, sockets=sockets)
    supervisor.run()
    check_end({supervisor.process.exitcode})
