"""How a contender in Python is served: one uvicorn worker with uvloop and httptools, no logs."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any


def main(
    modes: Mapping[str, Callable[[], Any]],
    stdio: Callable[[], None] | None = None,
    *,
    serve: Callable[[int], None] | None = None,
) -> None:
    """`--port N` serves over HTTP, by ``serve`` or an application of ``modes``; `--stdio` over the standard streams."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--mode", choices=modes)
    parser.add_argument("--stdio", action="store_true")
    options = parser.parse_args()
    if options.stdio and stdio is not None:
        stdio()
    elif options.port and options.mode:
        _serve(modes[options.mode](), options.port)
    elif options.port and serve is not None:
        serve(options.port)
    else:
        parser.error("needs --port N and a --mode, or --stdio where the server has it")


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
