"""Two pages for load balancers and orchestrators: whether the process lives, and whether it can serve."""

import asyncio
import logging

from antiphon.http.exchange import Application, Receive, Scope, Send
from antiphon.server.dispatch import Service

ALIVE, READY = "/healthz", "/readyz"
PATIENCE = 2.0
"""Seconds within which a shared store must answer."""

log = logging.getLogger("antiphon")


class HealthPages:
    """Answers GET ``/healthz`` and ``/readyz``, for any Host; passes everything else on to another application.

    ``/healthz`` is 200 as long as the process answers. ``/readyz`` is 200 while the server takes requests and its
    shared store answers, else 503. Neither tells anything about the server.
    """

    def __init__(self, service: Service, otherwise: Application | None) -> None:
        self._service = service
        self._otherwise = otherwise

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root: str = scope.get("root_path", "")
        page = scope["path"].removeprefix(root)
        if page not in {ALIVE, READY}:
            if self._otherwise is None:
                await _say(send, 404, "Not found")
            else:
                await self._otherwise(scope, receive, send)
        elif scope["method"] not in {"GET", "HEAD"}:
            await _say(send, 405, "Use GET")
        elif page == ALIVE or await self._is_ready():
            await _say(send, 200, "ok")
        else:
            await _say(send, 503, "not ready")

    async def _is_ready(self) -> bool:
        service = self._service
        if service.subscriptions.closing:
            return False
        if not service.has_shared_store:
            return True
        try:
            async with asyncio.timeout(PATIENCE):
                await service.store.get("antiphon:ready")
        except Exception as fault:  # noqa: BLE001 -- a store of the user's may raise anything
            log.warning("not ready: the store does not answer: %s", fault or type(fault).__name__)
            return False
        return True


async def _say(send: Send, status: int, text: str) -> None:
    body = text.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
