"""``antiphon login`` and ``antiphon logout``, and how the other commands sign in."""

import asyncio
import os
import sys
from collections.abc import Coroutine, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import click

from antiphon.auth import File, Login, OAuth, SignInFailed
from antiphon.cli import exit_codes
from antiphon.cli.target import read_target
from antiphon.client.client import Client
from antiphon.client.signing_in import check_secure
from antiphon.client.visits import ByBrowser, Visiting
from antiphon.escaping import line

_SECRET: Final = "ANTIPHON_CLIENT_SECRET"  # noqa: S105 -- the name of a variable


class TerminalOAuth(OAuth):
    """Signs in by a browser, and asks before in the terminal; takes a pasted URL as well."""

    takes_turns = False  # a person is at this terminal, and need not know of another one

    def __init__(self, *, asks: bool, opens: bool = True, **options: Any) -> None:
        super().__init__(keep=File(), visit="browser" if sys.stdin.isatty() else None, **options)
        self._asks = asks
        self._opens = opens

    def visiting(self) -> Visiting | None:
        return None if super().visiting() is None else _TerminalVisit(self.redirect, asks=self._asks, opens=self._opens)


class _TerminalVisit(ByBrowser):
    def __init__(self, redirect: str, *, asks: bool, opens: bool) -> None:
        super().__init__(redirect, show=_open if opens else lambda _: None)
        self._asks = asks

    async def visit(self, login: Login) -> str:
        there, here = urlsplit(login.url).netloc, urlsplit(login.server).netloc
        scopes = f" ({' '.join(map(line, login.scopes))})" if login.scopes else ""
        if self._asks and not await _agrees(f"Sign in at {line(there)} for {line(here)}{scopes}?"):
            raise SignInFailed("You did not sign in")
        click.echo(f"Sign in at {line(login.url)}\nor paste the URL that your browser ends at here:", err=True)
        return await _first(super().visit(login), _pasted())


def auth_for(target: object, headers: Mapping[str, str]) -> TerminalOAuth | None:
    """Return how a command signs in to a server behind a URL: not at all if it was given a token."""
    if not isinstance(target, str) or any(name.lower() == "authorization" for name in headers):
        return None
    try:
        check_secure(target)
    except ValueError:
        return None  # without https, tokens are neither got nor sent
    return TerminalOAuth(asks=True)


# --- commands -----------------------------------------------------------------------------------------------------


@click.command("login", epilog=exit_codes.LOGIN_TABLE)
@click.argument("url", metavar="TARGET")
@click.option("--client-id", metavar="ID", help="A client registered beforehand, or the URL of its metadata document.")
@click.option("--issuer", metavar="URL", help=f"The only server that gets the client's secret, from {_SECRET}.")
@click.option("--scope", "scopes", metavar="SCOPE", multiple=True, help="A scope to ask for.")
@click.option("--port", type=click.IntRange(1, 65535), help="The port that the browser comes back to.")
@click.option("--no-browser", is_flag=True, help="Print the page's URL, and open no browser.")
def login_command(
    *, url: str, client_id: str | None, issuer: str | None, scopes: tuple[str, ...], port: int | None, no_browser: bool
) -> None:
    """Sign in to the server at TARGET, and stay signed in: other commands use the login.

    TARGET is a URL, or the entry of a configuration that has one: mcp.json:NAME, or HOST:NAME.

    Sign in with your browser on any machine: paste the URL that it ends at, if it cannot come back to this one.
    """
    if not sys.stdin.isatty():
        raise click.UsageError("antiphon login needs a terminal. In scripts, pass --header 'Authorization: Bearer ...'")
    url = _url(url)
    try:
        check_secure(url)
        auth = TerminalOAuth(
            asks=False,
            opens=not no_browser,
            client_id=client_id,
            client_secret=os.environ.get(_SECRET) if issuer else None,
            issuer=issuer,
            scopes=scopes or None,
            redirect=None if port is None else f"http://127.0.0.1:{port}/callback",
        )
    except (ValueError, TypeError) as fault:
        raise click.UsageError(str(fault)) from None
    exit_codes.run(_sign_in(url, auth))
    click.echo(f"Signed in to {line(url)}. The login is kept in {File().folder}.", err=True)


@click.command("logout", epilog=exit_codes.LOGIN_TABLE)
@click.argument("url", metavar="TARGET")
def logout_command(*, url: str) -> None:
    """Forget the login to the server at TARGET, and revoke its tokens."""
    url = _url(url)
    try:
        check_secure(url)
    except ValueError as fault:
        raise click.UsageError(str(fault)) from None
    exit_codes.run(_sign_out(url))
    click.echo(f"Signed out of {line(url)}.", err=True)


def _url(text: str) -> str:
    """Return the URL that a target has."""
    found = read_target(text)
    if found.command is not None:
        raise click.BadParameter(f"{found.text} has no URL to sign in to: it is a command", param_hint="'TARGET'")
    return found.text


async def _sign_in(url: str, auth: TerminalOAuth) -> None:
    async with Client(url, auth=auth) as client:
        await client.sign_in(again=True)


async def _sign_out(url: str) -> None:
    async with Client(url, auth=OAuth(keep=File(), visit=None)) as client:
        await client.sign_out()


# --- the terminal -------------------------------------------------------------------------------------------------


def _open(url: str) -> None:
    import webbrowser  # only a login needs it

    webbrowser.open(url)


async def _agrees(question: str) -> bool:
    click.echo(f"{question} [Y/n] ", err=True, nl=False)
    answer = await _line()
    return answer != "" and answer.strip().lower() in {"", "y", "yes"}


async def _pasted() -> str:
    """Return the first pasted line that is a URL with an answer in it."""
    while True:
        read = await _line()
        text = read.strip() if read else await asyncio.get_running_loop().create_future()  # its end: only the browser
        if text.startswith("http") and "state=" in text:
            return text
        click.echo("This is not the URL of an answer: it has state= in it. Paste it again:", err=True)


async def _line() -> str:
    """Read a line of the terminal without holding a thread; empty at its end."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def note() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(sys.stdin.fileno(), note)
    try:
        await ready
        text = sys.stdin.readline()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return text


async def _first(*ways: Coroutine[Any, Any, str]) -> str:
    """Return what the first of these gives, and end the others."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(iter(done)).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
