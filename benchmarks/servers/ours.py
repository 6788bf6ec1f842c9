"""Antiphon with the same two tools."""

from typing import Any

from serving import main

from antiphon import Context, Server

server = Server("bench", version="1.0.0")


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def deploy(env: str, ctx: Context) -> str:
    """Deploy after the operator confirms."""
    return f"Deployed to {env}" if await ctx.confirm(f"Deploy to {env}?") else "Left alone"


def http() -> Any:
    return server.asgi()


if __name__ == "__main__":
    main(http, server.run)
