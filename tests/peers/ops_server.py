"""Our server with a destructive tool that asks twice, for clients that cannot be asked.

`python ops_server.py EFFECTS --http PORT [--store URL]` asks in an inbox, whose page it serves at `/inbox`;
`python ops_server.py EFFECTS --browser PORT` serves standard streams and asks in a browser, whose part is played by
what listens on that port. What the tool does is a line in the file EFFECTS.
"""

import socket
import sys
from pathlib import Path

from antiphon import Browser, Context, Inbox, MemoryStore, RedisStore, Server

effects, kind, port, *rest = sys.argv[1:]


def opened(url):
    with socket.create_connection(("127.0.0.1", int(port))) as person:
        person.sendall(url.encode())


def note(line):
    with Path(effects).open("a") as file:
        file.write(line)


def made_place():
    if kind == "--browser":
        return Browser(open=opened, patience=30)
    store = RedisStore(rest[1]) if rest else MemoryStore()
    return Inbox(store, page=f"http://127.0.0.1:{port}/inbox", patience=0.2)


place = made_place()
app = Server("ops", version="1.0.0", elsewhere=place)


@app.tool
async def erase(what: str, ctx: Context) -> dict[str, str]:
    """Erase an environment."""
    if not await ctx.confirm(f"Erase {what}?"):
        return {"kept": what}
    if not await ctx.confirm(f"Really erase {what}?"):
        return {"kept": what}
    note(f"erased {what}\n")
    return {"erased": what}


def signed_in(scope):
    """The page's own login: the session of a browser."""
    return dict(scope["headers"]).get(b"cookie", b"").decode().removeprefix("session=") or None


if __name__ == "__main__":
    if kind == "--browser":
        app.run()
    else:
        page = place.asgi(principal=signed_in)

        async def pages(scope, receive, send):
            await page({**scope, "root_path": "/inbox"}, receive, send)

        app.run("http", port=int(port), fallback=pages)
