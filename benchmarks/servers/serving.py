"""How a contender is served: one uvicorn worker with uvloop and httptools, no logs, on core 0."""

import argparse
import os
from collections.abc import Callable
from typing import Any

SERVER_CORE = 0


def pin(core: int) -> bool:
    """Keep this process on one core; False where the system cannot, or has no such core."""
    if not hasattr(os, "sched_setaffinity"):
        return False
    try:
        os.sched_setaffinity(0, {core})
    except OSError:
        return False
    return True


def main(
    http: Callable[[], Any], stdio: Callable[[], None] | None = None, *, serve: Callable[[int], None] | None = None
) -> None:
    """`--port N` serves over HTTP, `--stdio` over standard input and output; `serve` is a server's own way."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--stdio", action="store_true")
    options = parser.parse_args()
    pin(SERVER_CORE)
    if options.stdio and stdio is not None:
        stdio()
    elif options.port and serve is not None:
        serve(options.port)
    elif options.port:
        _serve(http(), options.port)
    else:
        parser.error("needs --port N, or --stdio where the server has it")


def _serve(app: Any, port: int) -> None:
    import uvicorn

    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        ws="none",
        access_log=False,
        log_level="error",
        proxy_headers=False,
        server_header=False,
    )
