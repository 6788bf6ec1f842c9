"""One instance of a server whose state lives in a file: `python instance.py FD STORE EFFECTS [once] [brief]`.

It serves on a socket that it inherits, so whoever started it need not wait until it is ready.
"""

import os
import socket
import sys
import time
from pathlib import Path

from antiphon import Context, Seal, Server, SQLiteStore
from antiphon.stores import shared_steps
from antiphon.transports import serve

descriptor, store, effects = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if "brief" in sys.argv:
    shared_steps.LEASE = 0.5
app = Server("instance", seal=Seal(single_use="once" in sys.argv), store=SQLiteStore(store))


def write_down(line: str) -> int:
    """An effect that the test can count: one short line, appended in one piece."""
    file = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)
    return os.getpid()


@app.tool
async def order(name: str, ctx: Context) -> str:
    """Reserve between two questions."""
    where = (await ctx.elicit(f"Where should {name} live?", str, key="where")).unwrap()
    reserved_by = await ctx.step("reserve", write_down, name)
    sure = await ctx.confirm(f"Order {name} in {where}?", key="sure")
    return f"{name} {where} {sure} {reserved_by}"


def write_down_and_wait() -> int:
    """An effect that lasts until there is a file for this process."""
    write_down(str(os.getpid()))
    while not Path(f"{effects}-{os.getpid()}").exists():
        time.sleep(0.01)
    return os.getpid()


@app.tool
async def hold(ctx: Context) -> str:
    """Run a step for as long as the test wants."""
    await ctx.confirm("Begin?")
    return str(await ctx.step("hold", write_down_and_wait))


@app.tool
async def redeem(code: str, ctx: Context) -> str:
    """An effect that is no step: whoever gets here, leaves a line."""
    if await ctx.confirm(f"Redeem {code}?"):
        write_down(code)
    return f"redeemed by {os.getpid()}"


if __name__ == "__main__":
    serve.run(app.asgi(), sockets=[socket.socket(fileno=descriptor)])
