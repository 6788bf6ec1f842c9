"""The bridge in front of the server at BENCH_TARGET, to which it speaks BENCH_ERA."""

import os

from serving import main

from antiphon import Server

server = Server("bench-bridge", version="1.0.0")
server.mount("", os.environ["BENCH_TARGET"], era=os.environ.get("BENCH_ERA", "auto"))

if __name__ == "__main__":
    main({}, serve=lambda port: server.run("http", port=port))
