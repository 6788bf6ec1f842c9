"""One instance of a server that shares its store with others: `python instance.py FD STORE SESSION_TTL EFFECTS`.

STORE is the URL of a Redis server, or the path of a file. It serves on a socket that it inherits, so whoever started it
need not wait until it is ready.
"""

import asyncio
import os
import socket
import sys
from dataclasses import dataclass

from antiphon import Context, InputRequired, RedisStore, Server, SQLiteStore, ask, input_required
from antiphon.legacy.server import instances
from antiphon.transports import serve

instances.LINGER = 1.0  # nothing depends on it but how long a test has to wait until all has expired
descriptor, place, session_ttl, effects = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4]
app = Server("instance", store=RedisStore(place) if "://" in place else SQLiteStore(place))


@dataclass
class Place:
    value: str


@dataclass
class Sure:
    confirm: bool


@app.tool
async def order(name: str, ctx: Context) -> str:
    """Ask two questions, each of which tells which process waits for the answer."""
    where = (await ctx.elicit(f"{os.getpid()}: where should {name} live?", str, key="where")).unwrap()
    sure = await ctx.confirm(f"{os.getpid()}: order {name} in {where}?", key="sure")
    return f"{name} {where} {sure} {os.getpid()}"


@app.tool
async def order_by_return(name: str, ctx: Context) -> str | InputRequired:
    """The same, by returning the questions."""
    where = ctx.accepted("where", Place)
    if where is None:
        return input_required({"where": ask.form(f"{os.getpid()}: where should {name} live?", Place)})
    sure = ctx.accepted("sure", Sure)
    if sure is None:
        return input_required({"sure": ask.form(f"{os.getpid()}: order {name} in {where.value}?", Sure)})
    return f"{name} {where.value} {sure.confirm} {os.getpid()}"


@app.tool
async def whoami() -> int:
    """Which process this is."""
    return os.getpid()


@app.tool
async def change(uri: str, ctx: Context) -> str:
    """Let all instances tell of changes."""
    app.updated(uri)
    app.changed("tools")
    return "changed"


@app.tool
def change_in_a_thread(uri: str) -> str:
    """The same, from where there is no event loop."""
    app.updated(uri)
    return "changed"


@app.tool
async def linger(name: str, ctx: Context) -> str:
    """Go on until somebody puts an end to it."""
    await ctx.log("info", "begun")
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        write_down(f"{name} was cancelled")
        raise
    return "never"


@app.resource("note://{name}")
async def note(name: str) -> str:
    return name


def write_down(line: str) -> None:
    """An effect that a test can see: one short line, appended in one piece."""
    file = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


if __name__ == "__main__":
    serve.run(app.asgi(session_ttl=session_ttl), sockets=[socket.socket(fileno=descriptor)], log_level=30)
