"""Running the ASGI application: uvicorn, set up the way that was measured to be fastest."""

import gc
import logging
import signal
import socket
from collections.abc import Callable
from typing import Any

from antiphon.http.exchange import Application
from antiphon.transports.shutdown import cancel_other_tasks


def run(
    app: Application,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    sockets: list[socket.socket] | None = None,
    log_level: int = logging.INFO,
    started: Callable[[], None] | None = None,
    stopping: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGINT or SIGTERM, then return; requests under way finish first.

    ``stopping`` is called before that, to end those that would not.
    """
    import uvicorn  # 100 ms that a stdio server need not pay

    class GracefulServer(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ARG002 -- uvicorn's signature
            # uvicorn would raise the signal once more at the end, and a clean end would look like a violent one.
            if stopping is not None:
                stopping()
            self.force_exit = self.should_exit and sig == signal.SIGINT
            self.should_exit = True

        async def serve(self, sockets: list[socket.socket] | None = None) -> None:
            await super().serve(sockets)
            await cancel_other_tasks()

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            # What is alive now stays alive: the collector need not look at it again.
            gc.collect()
            gc.freeze()
            if started is not None:
                started()

    GracefulServer(uvicorn.Config(app, host=host, port=port, log_level=log_level, **SETTINGS)).run(sockets)


SETTINGS: dict[str, Any] = {
    # Named, not imported: a supervisor of workers need not load it, and a worker finds it by its name.
    "http": "antiphon.http.connection:ServerConnection",
    "access_log": False,
    "ws": "none",
    "server_header": False,
    # Nothing here looks at the client's address, so no header that names another is believed.
    "proxy_headers": False,
    "date_header": True,
    "timeout_graceful_shutdown": 30,
}
