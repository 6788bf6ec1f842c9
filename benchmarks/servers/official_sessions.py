"""The official `mcp` server with sessions for clients of 2025-11-25, in JSON mode, which is its fastest."""

from typing import Any

from official import server
from serving import main


def http() -> Any:
    return server.streamable_http_app(json_response=True)


if __name__ == "__main__":
    main(http)
