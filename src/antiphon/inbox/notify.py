"""The notice that a call waits: to a webhook, or to a function. It never fails, and never holds a secret."""

import asyncio
import inspect
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from antiphon.escaping import line, moment, shortened
from antiphon.http.client import ConnectionLost, Pool, ResponseBroken, proxy_for
from antiphon.inbox.rows import Row

log = logging.getLogger("antiphon")

Notify: TypeAlias = str | Callable[[Row], Awaitable[object] | object]

ATTEMPTS = 3
PATIENCE = 10.0
"""Seconds for all attempts: so long a hook that hangs keeps a call from its ticket."""
_PAUSE = 0.5
_LETTERS = 500
_MAX_REPLY = 64 * 1024


class Notice:
    """Tells people of calls that wait. A failure is logged: the row waits all the same."""

    def __init__(self, notify: Notify | None = None, *, page: str | None = None) -> None:
        for name, url in (("notify", notify), ("page", page)):
            if isinstance(url, str) and not url.startswith(("http://", "https://")):
                raise ValueError(f"{name} is a URL that starts with https:// or http://, not {url[:80]!r}")
        self._notify = notify
        self._page = None if page is None else page.rstrip("/")

    def address(self, ticket: str) -> str | None:
        """Return where a row can be answered; None if there is no page."""
        return None if self._page is None else f"{self._page}/{ticket}"

    async def tell(self, row: Row) -> None:
        if self._notify is None:
            return
        try:
            if isinstance(self._notify, str):
                await self._post(self._notify, msgspec.json.encode({"text": self.text(row)}))
                return
            told = self._notify(row)
            if inspect.isawaitable(told):
                await told
        except Exception as fault:  # noqa: BLE001 -- whatever a notice raises, the row waits
            # Its URL is a credential: whoever has it can post.
            log.warning("the notice of the waiting call %s failed: %s: %s", row.id, type(fault).__name__, fault)

    def text(self, row: Row) -> str:
        """Return the notice in words, without arguments: a channel has more readers than the inbox."""
        asked = [
            str((request.get("params") or {}).get("message") or request["method"]) for request in row.questions.values()
        ]
        words = " / ".join(line(shortened(text, letters=_LETTERS, lines=20)) for text in asked[:3])
        parts = [
            f"{line(row.name)}{f' ({line(row.server)})' if row.server else ''} asks: {words}",
            f"For {line(row.who)}." if row.who else "",
            f"On behalf of {line(row.on_behalf)}." if row.on_behalf else "",
            f"Until {moment(row.until)}.",
            self.address(row.id) or f"Ticket {row.id}",
        ]
        # Slack reads <...> as links and mentions, which a server must not make.
        return " ".join(filter(None, parts)).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    async def _post(self, url: str, body: bytes) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                for attempt in range(1, ATTEMPTS + 1):
                    status = await _sent(url, body)
                    if status is not None and status < 300:
                        return
                    if attempt == ATTEMPTS or (status is not None and status < 500 and status != 429):
                        raise ConnectionLost("no answer" if status is None else f"HTTP status {status}")
                    await asyncio.sleep(_PAUSE * attempt)
        except TimeoutError:
            raise ConnectionLost(f"no answer within {PATIENCE:g} seconds") from None


async def _sent(url: str, body: bytes) -> int | None:
    """Post once; return the status, None if there was no answer."""
    pool = Pool(url, proxy=proxy_for(url, os.environ), limit=1)
    try:
        connection = await pool.send("POST", "Content-Type: application/json\r\nConnection: close\r\n", body)
        await connection.read(_MAX_REPLY)
        return connection.status
    except (ConnectionLost, ResponseBroken, OSError):
        return None
    finally:
        await pool.close()
