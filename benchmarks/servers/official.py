"""The official `mcp` package: its high-level server in JSON mode, stateless, with its dependency form of asking."""

from typing import Annotated, Any

from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from pydantic import BaseModel
from serving import main

server = MCPServer("bench", version="1.0.0", log_level="ERROR")


class Confirm(BaseModel):
    confirm: bool


def ask_to_confirm(env: str) -> Elicit[Confirm]:
    return Elicit(f"Deploy to {env}?", Confirm)


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool()
async def deploy(env: str, sure: Annotated[Confirm, Resolve(ask_to_confirm)]) -> str:
    """Deploy after the operator confirms."""
    return f"Deployed to {env}" if sure.confirm else "Left alone"


def http() -> Any:
    return server.streamable_http_app(json_response=True, stateless_http=True)


if __name__ == "__main__":
    main(http, server.run)
