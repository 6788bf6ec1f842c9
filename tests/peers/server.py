"""The server the official clients talk to: `python server.py` over stdio, `python server.py --http PORT` over HTTP."""

import asyncio
import sys
from typing import TypedDict

from antiphon import Context, Server, ToolError

app = Server("peer", version="1.2.3", instructions="Ask it anything small.")


# A client may drop progress that arrives together with the result; so the result waits until progress was seen.
heard = asyncio.Event()


class Sum(TypedDict):
    total: int


@app.tool
def add(a: int, b: int = 1) -> Sum:
    """Add two numbers.

    Args:
        a: The first one.
        b: The second one.
    """
    print("a handler's print must not reach the client as protocol")  # noqa: T201
    return {"total": a + b}


@app.tool
async def count(to: int, ctx: Context) -> str:
    """Count, say how far along it is, and end when the client has heard it all."""
    for number in range(1, to + 1):
        await ctx.progress(number, to)
    async with asyncio.timeout(20):
        await heard.wait()
    heard.clear()
    return f"counted to {to}"


@app.tool
async def hear() -> str:
    """Let a count come to its end, while it is still under way."""
    heard.set()
    return "heard"


@app.tool
async def refuse(why: str) -> str:
    """Fail in a way a model may read."""
    raise ToolError(f"No: {why}")


@app.tool
async def deploy(env: str, ctx: Context) -> str:
    """Deploy after the operator confirms."""
    return f"deployed to {env}" if await ctx.confirm(f"Deploy to {env}?") else f"{env} left alone"


@app.resource("text://greeting", mime_type="text/plain")
async def greeting() -> str:
    """A greeting."""
    return "good day"


@app.resource("note://{id}", mime_type="text/markdown")
async def note(id: str) -> str:
    """One note."""
    return f"# Note {id}"


@app.prompt
def summarise(topic: str) -> str:
    """Ask for a summary."""
    return f"Summarise {topic}."


if __name__ == "__main__":
    if "--http" in sys.argv:
        app.run("http", port=int(sys.argv[sys.argv.index("--http") + 1]))
    else:
        app.run()
