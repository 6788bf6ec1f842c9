"""The same two tools, on a server that is protected: BENCH_ISSUER names its authorization server."""

import os
from typing import Any

import ours
from serving import main

from antiphon.auth import Protected

ours.server.auth = Protected("http://127.0.0.1/mcp", issuer=os.environ["BENCH_ISSUER"])


def http() -> Any:
    return ours.server.asgi()


if __name__ == "__main__":
    main(http)
