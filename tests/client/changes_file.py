"""A server over stdio whose tools change things, and which can be told to die."""

import os

from antiphon import Server

app = Server("changing")


@app.tool
async def change(uri: str) -> str:
    """Change a resource, or the list of tools."""
    if uri:
        app.updated(uri)
    else:
        app.changed("tools")
    return f"{os.getpid()}"


@app.tool
async def listeners() -> str:
    """How many subscriptions are open."""
    return str(len(app.subscriptions))


@app.tool
async def die() -> str:
    """End the process without a word."""
    os._exit(7)


@app.resource("text://{name}")
async def text(name: str) -> str:
    return name


if __name__ == "__main__":
    app.run()
