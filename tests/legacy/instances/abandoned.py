"""A server that tells what it holds: `python abandoned.py FD SESSION_TTL`. Beside /mcp there is /held, and /forget."""

import asyncio
import ctypes
import gc
import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

from antiphon import Context, MemoryStore, Server
from antiphon.legacy.server import reply_stream
from antiphon.transports import serve

reply_stream.GRACE = 600.0  # clients that went away are waited for until /forget
libc: Any = ctypes.CDLL(None)
descriptor, session_ttl = int(sys.argv[1]), float(sys.argv[2])
store = MemoryStore()
app = Server("abandoned", store=store)


@app.tool
async def ask(ctx: Context) -> str:
    """Ask, and wait."""
    return (await ctx.elicit("Your name?", str)).unwrap()


async def held(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/forget":
        for reply in list(endpoint.dialect.router._replies.values()):
            if reply._timer is not None:  # its client went away
                reply._give_up()
    body = json.dumps(what_is_held()).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


FIELDS = (
    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
)


class Heap(ctypes.Structure):
    """What glibc tells of its heap (mallinfo2)."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in FIELDS)


def live_bytes() -> int:
    """What was allocated and not freed."""
    libc.mallinfo2.restype = Heap
    heap = libc.mallinfo2()
    return int(heap.uordblks + heap.hblkhd)


def what_is_held() -> dict[str, int]:
    gc.collect()
    libc.malloc_trim(0)
    router = endpoint.dialect.router
    return {
        "live": live_bytes(),
        "resident": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "tasks": len(asyncio.all_tasks()),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "sessions": len(endpoint.dialect.sessions),
        "entries": len(store),
        "deadlines": len(store._values._ends) + len(store._streams._ends),
        "channels": len(store._subscriptions),
        "questions": len(router.pushes),
        "streams": len(router._replies) + len(router._readers) + len(router._running),
    }


endpoint: Any = app.asgi(session_ttl=session_ttl, fallback=held)

if __name__ == "__main__":
    serve.run(endpoint, sockets=[socket.socket(fileno=descriptor)], log_level=30)
