"""Workers: processes of uvicorn that serve one target, several at once or one after every change."""

import gc
import logging
import os
import signal
import socket
import sys
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Final

import click
import msgspec
from msgspec.structs import replace

from antiphon.cli.find import find
from antiphon.eras import Legacy
from antiphon.home import Home
from antiphon.rounds.seal import generate_key
from antiphon.transports.asgi import Endpoint
from antiphon.transports.serve import SETTINGS

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
