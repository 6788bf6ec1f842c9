"""Antiphon with the same two tools, as its users start it."""

from ours import http, server
from serving import main


def serve(port: int) -> None:
    server.run("http", port=port)


if __name__ == "__main__":
    main(http, server.run, serve=serve)
