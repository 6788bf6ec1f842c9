"""Several processes that serve one Server: each imports it again, and all listen on the same sockets."""

import gc
import logging
import os
import sys
from inspect import signature
from multiprocessing import current_process
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from antiphon import eras, loading
from antiphon.loading import GUARD, ServerMissing, ServerName
from antiphon.rounds.token import generate_key
from antiphon.server.dispatch import Service
from antiphon.transports.asgi import Endpoint
from antiphon.transports.serve import SETTINGS
from antiphon.types import JsonObject

if TYPE_CHECKING:
    from uvicorn import Config

VARIABLE: Final = "ANTIPHON_SERVE"
"""The environment variable that tells a worker its job."""
BACKLOG: Final = 2048
STARTUP_FAILURE: Final = 3
"""The exit code that tells uvicorn not to start another worker in place of this one."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker serves; it reads this from its environment."""

    target: ServerName
    options: JsonObject
    """Those of ``Server.asgi``."""
    store: str | None = None
    """The file in which all workers keep sessions and claims, unless the Server has a shared store of its own."""
    announce: str | None = None
    """The URL to name when the Server is loaded."""

    def endpoint(self, server: Service) -> Endpoint:
        """Return the application. Raise ServerMissing if the target has no Server."""
        if self.announce is not None:
            announce(server, self.announce)
        if self.store is not None and not server.has_shared_store:
            from antiphon.stores.sqlite import SQLiteStore  # only several processes need it

            server.use_store(SQLiteStore(self.store))
        return eras.asgi(server, **self.options)


def announce(server: Service, url: str) -> None:
    protected = "" if server.auth is None else f", protected as {server.auth}"
    _say(f"Serving {server.info.name} on {url}{protected}")


def serve_in_workers(server: Service, options: JsonObject, *, host: str, port: int, count: int) -> None:
    """Serve the Server of the program that runs, until a signal arrives. Exit with 1 if a worker cannot start."""
    if current_process().name != "MainProcess" and VARIABLE in os.environ:
        _say(f"Error: {sys.argv[0]} serves while a worker imports it: {GUARD}")
        sys.exit(STARTUP_FAILURE)
    main = sys.modules["__main__"]
    name = next((name for name, value in vars(main).items() if value is server), None)
    if name is None or not hasattr(main, "__file__"):
        raise ValueError(
            "workers= needs the Server in a variable at the top level of the file that runs: each worker imports it"
        )
    target = ServerName(place=str(main.__file__), base=str(Path.cwd()), module="__main__", variable=name)
    job = Job(target=target, options=options)
    opened = worker_config(job, logging.INFO, host=host, port=port).bind_socket()
    opened.listen(BACKLOG)  # clients queue there while workers start
    if not keep_running(job, [opened], count):
        sys.exit(1)


def keep_running(job: Job, sockets: list[socket], count: int, log_level: int = logging.INFO) -> bool:
    """Keep ``count`` workers running until a signal arrives. Return whether all could start.

    Exit with 1 if one had to leave a handler that could not be cancelled.
    """
    from uvicorn import Server as Uvicorn
    from uvicorn.supervisors import Multiprocess

    with TemporaryDirectory(prefix="antiphon-") as folder:
        # A session of an earlier revision must be known to every worker.
        config = worker_config(replace(job, store=str(Path(folder, "workers.db"))), log_level, workers=count)
        options: dict[str, Any] = {"sockets": sockets}
        if "target" in signature(Multiprocess).parameters:  # uvicorn before 0.52
            options["target"] = Uvicorn(config).run
        supervisor = Multiprocess(config, **options)
        supervisor.run()
    codes = {worker.process.exitcode for worker in supervisor.processes}
    if STARTUP_FAILURE not in codes:
        check_end(codes)
    return STARTUP_FAILURE not in codes


def check_end(codes: set[int | None]) -> None:
    """Exit with code 1 if a worker did: it had to leave a handler that could not be cancelled."""
    if 1 in codes:
        sys.exit(1)


def worker_config(job: Job, log_level: int, **options: Any) -> "Config":
    """Return uvicorn's settings for workers with this job, which is written to the environment."""
    from uvicorn import Config

    if not os.environ.get("ANTIPHON_KEYS", "").strip():
        # Any worker must be able to open the tokens of the others.
        os.environ["ANTIPHON_KEYS"] = generate_key(os.urandom(32))
    os.environ[VARIABLE] = msgspec.json.encode(job).decode()
    return Config(f"{__name__}:endpoint", factory=True, log_level=log_level, **SETTINGS, **options)


def endpoint() -> Endpoint:
    """Return the application of a worker. uvicorn calls it after it has installed its signal handlers."""
    job = msgspec.json.decode(os.environ[VARIABLE], type=Job)
    try:
        built = job.endpoint(loading.load(job.target, Service))
    except ServerMissing as fault:
        _say(fault.log or f"Error: {fault}")
        sys.exit(STARTUP_FAILURE)
    built.ends_process = True
    # What is loaded now stays loaded: exempt it from garbage collection.
    gc.collect()
    gc.freeze()
    return built


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201 -- to the person who starts the server
