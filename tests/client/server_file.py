"""A small server for the client's tests: `python server_file.py` over stdio, `python server_file.py PORT` over HTTP."""

import os
import sys
from pathlib import Path

from antiphon import Context, Server

app = Server("small", version="2.0.0")


@app.tool
async def where(name: str) -> str:
    """What this process sees of its environment."""
    return f"{os.environ.get(name)} in {Path.cwd().name}"


@app.tool
async def variables() -> str:
    return " ".join(os.environ)


@app.tool
async def deploy(env: str, ctx: Context) -> str:
    """Deploy after the operator confirms."""
    return f"deployed to {env}" if await ctx.confirm(f"Deploy to {env}?") else f"{env} left alone"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        app.run("http", port=int(sys.argv[1]))
    else:
        app.run()
