"""How a person gets to a sign-in page and back: a browser with a listener on this machine, or a function of yours."""

import asyncio
import hmac
import inspect
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qs, urlsplit

from antiphon.errors import SignInFailed
from antiphon.oauth.account import Login
from antiphon.oauth.urls import is_loopback
from antiphon.threads import Threads

T = TypeVar("T")
Visitor: TypeAlias = Callable[[str, str], str | Awaitable[str]]
"""Takes the URL of a sign-in page and the redirect URI, and returns the URL that the person came back to.

A plain function runs in a thread of its own: one that needs the event loop must be ``async def``. Two sign-ins may call
it at once.
"""

REDIRECT = "http://127.0.0.1/callback"
_MAX_HEAD = 32 * 1024
_READING = 10.0
"""Seconds that a browser has to send its request."""
_DONE = """<!doctype html><meta charset="utf-8"><title>Signed in</title>
<style>body { font: 16px/1.5 system-ui, sans-serif; margin: 20vh auto; max-width: 26em }
:root { color-scheme: light dark }</style>
<h1>Thank you</h1><p>You can close this page and go back to the program that sent you here.</p>"""


class Visiting(Protocol):
    """One person's way: ``listen`` before the URL is made, ``visit`` with it, ``close`` in any case."""

    async def listen(self, preferred: str | None) -> str: ...

    async def visit(self, login: Login) -> str: ...

    async def close(self) -> None: ...


class ByFunction:
    """Leaves the visit to a function."""

    def __init__(self, visit: Visitor, redirect: str) -> None:
        self._visit = visit
        self._redirect = redirect

    async def listen(self, preferred: str | None) -> str:  # noqa: ARG002 -- the redirect URI is given
        return self._redirect

    async def visit(self, login: Login) -> str:
        back: str | Awaitable[str]
        if inspect.iscoroutinefunction(self._visit):
            back = self._visit(login.url, login.redirect)
        else:
            # It may wait for the person: in a thread, so that other calls go on.
            back = await _in_thread(self._visit, login.url, login.redirect)
        return await back if inspect.isawaitable(back) else back

    async def close(self) -> None: ...


class ByBrowser:
    """Opens a browser, and listens on this machine for its return.

    ``redirect`` is a redirect URI on the loopback interface; without a port, or with port 0, a free one is taken.
    """

    def __init__(self, redirect: str = REDIRECT, *, show: Callable[[str], object] | None = None) -> None:
        parts = urlsplit(redirect)
        if parts.scheme != "http" or not is_loopback(parts.hostname or ""):
            raise ValueError(f"A browser comes back to a URL such as http://127.0.0.1:8765/callback, not {redirect!r}")
        self._host, self._port, self._path = parts.hostname or "", parts.port or 0, parts.path or "/"
        self._show = show or open_browser
        self._server: asyncio.Server | None = None
        self._state = b""
        self._back: asyncio.Future[str] | None = None

    async def listen(self, preferred: str | None) -> str:
        """Take the port of an earlier registration if it is free, so that the registration can be used again."""
        earlier = urlsplit(preferred or "").port
        ports = [self._port] if self._port else [*([earlier] if earlier else []), 0]
        for port in ports:
            with suppress(OSError):
                self._server = await asyncio.start_server(self._serve, self._host, port, limit=_MAX_HEAD)
                break
        if self._server is None:
            raise SignInFailed(
                f"Port {self._port} is in use, and the browser has to come back to it: free it, or choose another one"
            )
        self._port = self._server.sockets[0].getsockname()[1]
        self._back = asyncio.get_running_loop().create_future()
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}{self._path}"

    async def visit(self, login: Login) -> str:
        assert self._back is not None
        self._state = login.state.encode()
        await _in_thread(self._show, login.url)
        return await self._back

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READING):
                head = await reader.readuntil(b"\r\n\r\n")
            status, page = self._answer(head.decode("latin-1"))
            body = page.encode()
            lines = [f"HTTP/1.1 {status}", "Content-Type: text/html; charset=utf-8", f"Content-Length: {len(body)}"]
            lines += ["Cache-Control: no-store", "Referrer-Policy: no-referrer", "Connection: close"]
            lines += ["Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'", "", ""]
            writer.write("\r\n".join(lines).encode() + body)
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    def _answer(self, head: str) -> tuple[str, str]:
        """Answer a request; only the return of this very login counts, and nothing of any request is shown."""
        first, *lines = head.split("\r\n")
        verb, _, rest = first.partition(" ")
        target = rest.partition(" ")[0]
        hosts = [line.partition(":")[2].strip().lower() for line in lines if line.lower().startswith("host:")]
        ours = {f"{name}:{self._port}" for name in (self._host, "127.0.0.1", "localhost", f"[{self._host}]")}
        if verb != "GET" or not target.startswith("/") or len(hosts) != 1 or hosts[0] not in ours:
            return "400 Bad Request", ""
        path, _, query = target.partition("?")
        state = parse_qs(query, max_num_fields=100).get("state", [""])[0].encode()
        if path != self._path or not self._state or not hmac.compare_digest(state, self._state):
            return "404 Not Found", ""
        if self._back is not None and not self._back.done():
            self._back.set_result(f"http://{hosts[0]}{target}")
        return "200 OK", _DONE


async def _in_thread(function: Callable[..., T], *args: object) -> T:
    """Call a function that may wait for a person: in a thread that delays neither other work nor the program's end."""
    threads = Threads(1)
    try:
        value: T = await threads.run(function, *args)
        return value
    finally:
        threads.close()


def open_browser(url: str) -> None:
    """Open a page in the user's browser, and say where it is, should none open."""
    import webbrowser  # 20 ms, and few programs sign in by a browser

    print(f"Sign in at {url}", file=sys.stderr)  # noqa: T201 -- a person has to see it
    webbrowser.open(url)
