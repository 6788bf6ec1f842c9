"""Servers that ask the person at this machine, and so may be reached from this machine alone."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from antiphon.http.exchange import Receive, Scope, Send
from antiphon.oauth.urls import is_loopback
from antiphon.server.dispatch import Service
from antiphon.transports.asgi import LOCAL_HOSTS, Endpoint


class LocalEndpoint(Endpoint):
    """An Endpoint for programs on this machine alone: its server asks the person who sits there."""

    def __init__(self, service: Service, *, allowed_hosts: Iterable[str] | None = None, **options: Any) -> None:
        hosts = [allowed_hosts] if isinstance(allowed_hosts, str) else list(allowed_hosts or LOCAL_HOSTS)
        for name in hosts:
            check_reach(service, urlsplit(name if "://" in name else f"//{name}").hostname or name)
        super().__init__(service, allowed_hosts=hosts, **options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        if scope["type"] == "http" and client is not None and not is_loopback(client[0]):
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"This server is for the machine that it runs on.\n"})
            return
        await super().__call__(scope, receive, send)


def check_reach(service: Service, host: str, workers: int = 1) -> None:
    """ValueError if a server that asks the person at this machine is served to others, or by several processes."""
    if service.elsewhere is None or not service.elsewhere.is_local:
        return
    if workers > 1:
        raise ValueError("Browser() asks for one process: give the Server an Inbox to ask in, or one worker")
    if not is_loopback(host):
        raise ValueError(
            f"Browser() asks the person at this machine, so only this machine may call: not {host!r}. For other"
            " clients, give the Server an Inbox to ask in"
        )
