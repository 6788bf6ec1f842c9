"""The Browser: asks the person at this machine, with a form on a loopback port that opens in their own browser.

The address holds a secret, and goes to that browser alone: never into a result, an error, progress or a log.
"""

import asyncio
import hmac
import logging
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final

from antiphon.errors import CannotAsk, TicketClosed
from antiphon.http.exchange import Receive, Scope, Send
from antiphon.inbox.page import Page
from antiphon.inbox.rows import Row, Rows
from antiphon.stores.memory import MemoryStore
from antiphon.stores.store import Store

log = logging.getLogger("antiphon")

PERSON: Final = "the person at this machine"
LASTS: Final = 86400.0
LOOKED: Final = 15.0
"""Seconds after which a form that no browser has looked at is closed, so that it is opened once more."""
_NO_BROWSER: Final = (
    "A person has to answer first, and no browser could be opened for them on this machine. Run the server in a desktop"
    " session, or give it an Inbox to ask in."
)


class Browser:
    """Where a server on a person's own machine asks them, if its client cannot: ``Server(elsewhere=Browser())``.

    A call waits ``patience`` seconds for the answer, which is less than the usual timeout of a host. Later, the same
    call goes on where it stood. With ``always``, it is asked even if the client shows forms. ``open`` opens an address
    in the browser. Questions wait in memory, or in a ``store``.
    """

    is_local = True
    who: str | None = None
    lasts = LASTS

    def __init__(
        self,
        *,
        patience: float = 50,
        always: bool = False,
        open: Callable[[str], object] | None = None,  # noqa: A002 -- it reads as what it does
        store: Store | None = None,
        keys: str | bytes | Sequence[str | bytes] | None = None,
    ) -> None:
        if not 0 <= patience < 86400:
            raise ValueError(f"patience is a number of seconds, not {patience!r}")
        self.rows = Rows(MemoryStore() if store is None else store, keys=keys)
        self.patience = patience
        self.always = always
        self._open = open or open_browser
        self._page = Page(self.rows, principal=lambda _: PERSON)
        self._secret = secrets.token_urlsafe(32)
        self._listening = asyncio.Lock()
        self._listener: asyncio.Server | None = None
        self._connections: set[Any] = set()
        self._looked: dict[str, tuple[int, float]] = {}
        """The rounds that a browser shows, and when it last asked for them."""

    def address(self, ticket: str) -> str | None:  # noqa: ARG002 -- of a place where a person signs in
        """None: only the browser may know it."""
        return None

    async def tell(self, row: Row) -> None:
        """Open the form, unless it is open; CannotAsk if there is no browser."""
        now = asyncio.get_running_loop().time()
        self._looked = {ticket: seen for ticket, seen in self._looked.items() if now - seen[1] < LOOKED}
        if self._looked.get(row.id, (0, 0.0))[0] == row.round:
            return
        port = await self._listen()
        self._looked[row.id] = row.round, now
        try:
            opened = await asyncio.to_thread(self._open, f"http://127.0.0.1:{port}/{self._secret}/{row.id}")
        except Exception as fault:  # noqa: BLE001 -- whatever a browser raises, none is there
            # Not its text, which may have the address.
            log.warning("no browser could be opened: %s", type(fault).__name__)
            opened = False
        if opened is False:
            with suppress(TicketClosed):
                await self.rows.withdraw(row.id)
            raise CannotAsk(_NO_BROWSER, required={})

    async def close(self) -> None:
        """Serve no form any more."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
            for connection in list(self._connections):
                connection.shutdown()

    async def _listen(self) -> int:
        """The port that forms are served on."""
        async with self._listening:
            if self._listener is None:
                from antiphon.http.connection import ServerConnection  # only a server that asks so needs one

                config: Any = SimpleNamespace(
                    loaded_app=self._serve, root_path="", limit_concurrency=None, timeout_keep_alive=5
                )
                state: Any = SimpleNamespace(
                    connections=self._connections, tasks=set(), total_requests=0, default_headers=[]
                )
                loop = asyncio.get_running_loop()
                self._listener = await loop.create_server(lambda: ServerConnection(config, state, {}), "127.0.0.1", 0)
            port: int = self._listener.sockets[0].getsockname()[1]
            return port

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        _, secret, ticket, *_ = f"{scope['path']}//".split("/")
        if not hmac.compare_digest(secret.encode(), self._secret.encode()):
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})
            return
        if ticket in self._looked:
            self._looked[ticket] = self._looked[ticket][0], asyncio.get_running_loop().time()
        await self._page({**scope, "root_path": f"/{secret}"}, receive, send)


def open_browser(url: str) -> bool:
    """Open a page in the user's browser; False if there is none with a window."""
    import webbrowser  # 20 ms, and only a server that asks so needs it

    has_windows = sys.platform in {"darwin", "win32"} or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    # Without a window, what opens is a text browser, which would take the server's own streams.
    return has_windows and webbrowser.open(url)
