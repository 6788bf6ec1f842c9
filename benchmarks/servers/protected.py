"""The same two tools, on a server that is protected: BENCH_ISSUER names its authorization server."""

import os

import ours
from serving import main

from antiphon.auth import Protected

ours.server.auth = Protected("http://127.0.0.1/mcp", issuer=os.environ["BENCH_ISSUER"])


if __name__ == "__main__":
    main({}, serve=lambda port: ours.server.run("http", port=port))
