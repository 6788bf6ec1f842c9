"""A site: what the recording gateway and the playing endpoint have in common as ASGI applications."""

import asyncio
import signal
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from antiphon.http.exchange import Receive, Scope, Send
from antiphon.transports.asgi import LOCAL_HOSTS

MAX_BODY: Final = 64 * 1024 * 1024


class Site:
    """Answers those who call it by a name of this machine; anybody else is a page that was led here."""

    def __init__(self, *, hosts: Iterable[str] = ()) -> None:
        self._hosts = {*LOCAL_HOSTS, *hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            headers = headers_of(scope)
            origin = headers.get("origin")
            if not self._admits(f"//{headers.get('host', '')}") or (origin is not None and not self._admits(origin)):
                await say(send, 403, "This Host or Origin is not allowed: --allow-host admits it")
            else:
                await self.serve(scope, receive, send)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """End the streams that are open."""

    def _admits(self, url: str) -> bool:
        if "*" in self._hosts:
            return True
        try:
            name = urlsplit(url).hostname or ""
        except ValueError:
            return False
        return name in self._hosts or f"[{name}]" in self._hosts


async def say(send: Send, status: int, text: str) -> None:
    await respond(send, status, text.encode(), "text/plain; charset=utf-8")


async def respond(
    send: Send, status: int, body: bytes, kind: str | None = None, headers: Iterable[tuple[str, str]] = ()
) -> None:
    pairs = [(b"content-length", str(len(body)).encode())]
    if kind is not None:
        pairs.append((b"content-type", kind.encode()))
    pairs += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def headers_of(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


async def body_of(receive: Receive) -> bytes | None:
    """The whole body; None if it is too large, or the client has gone."""
    body = bytearray()
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None
        body += event.get("body", b"")
        if len(body) > MAX_BODY:
            return None
        if not event.get("more_body", False):
            return bytes(body)


async def gone(receive: Receive) -> None:
    """Until the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _live(receive: Receive, send: Send) -> None:
    for moment in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{moment}.complete"})


def run(site: Site, sockets: list[socket.socket], *, started: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM."""
    import uvicorn  # 100 ms that standard streams need not pay

    from antiphon.transports.serve import SETTINGS

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ARG002 -- uvicorn's signature
            site.close()
            self.force_exit = self.should_exit and sig == signal.SIGINT
            self.should_exit = True

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started()

    settings: dict[str, Any] = {**SETTINGS, "log_level": "warning", "timeout_graceful_shutdown": 2}
    asyncio.run(Server(uvicorn.Config(site, **settings)).serve(sockets))
