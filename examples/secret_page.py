"""A secret that is never sent over MCP: the user types it into a page that this server hosts.

The tool asks the user to open a page (URL mode), and does not wait. The page puts the secret into the store, where the
next round of the call finds it, on any instance. What keeps it safe:

* the page's address holds a random ticket, kept in the store with the principal that started the call; a ticket
  expires, and can be used once;
* the page serves only that principal, so a link is of no use to others (the phishing attack of the specification,
  client/elicitation);
* the secret goes from the browser to the store: not into a result, a question, the token or the log.

Run it:  python examples/secret_page.py
"""

import html
import os
import secrets
from typing import Any
from urllib.parse import parse_qs

from antiphon import Accepted, Context, Seal, Server, SQLiteStore, ToolError

BASE = os.environ.get("BASE_URL", "http://127.0.0.1:8000")
MINUTES = 10 * 60
MOST = 4096

# One file for all instances on this machine; keys from ANTIPHON_KEYS, so that all of them can open all tokens.
store = SQLiteStore(os.environ.get("STORE", "secrets.db"))
app = Server("vault", version="1.0.0", store=store, seal=Seal(ttl=MINUTES))

# In place of your login: a bearer token for MCP clients, a session cookie for browsers, one user behind both.
USERS = {"ada-token": "ada", "bob-token": "bob"}

DONE = b""
"""The value of a used ticket; before, the value is its owner's name."""


def caller(scope: Any) -> str | None:
    """The caller of the tool: the owner of the bearer token. Cookies do not count: browsers add them to any request."""
    return USERS.get(header(scope, b"authorization").removeprefix("Bearer "))


def visitor(scope: Any) -> str | None:
    """The visitor of the page: the owner of the session cookie."""
    cookies = dict(pair.strip().partition("=")[::2] for pair in header(scope, b"cookie").split(";"))
    return USERS.get(cookies.get("session", ""))


def header(scope: Any, name: bytes) -> str:
    value: bytes = dict(scope["headers"]).get(name, b"")
    return value.decode("latin-1")


async def open_ticket(principal: str | None) -> str:
    """Make a ticket that belongs to the principal of this call."""
    if principal is None:
        raise ToolError("Sign in first.")
    ticket = secrets.token_urlsafe(24)
    await store.put(f"ticket:{ticket}", principal.encode(), ttl=MINUTES)
    return ticket


@app.tool
async def connect_account(ctx: Context) -> str:
    """Connect an account with an API key that only you see."""
    ticket = await ctx.step("ticket", open_ticket, ctx.principal)
    page = f"{BASE}/secret/{ticket}"
    message = "Enter your API key on our page, then continue."
    while (owner := await store.get(f"ticket:{ticket}")) != DONE:
        if owner is None:
            raise ToolError("The page has expired. Call again for a new one.")
        answer = await ctx.elicit_url(message, page)
        if not isinstance(answer, Accepted):
            return "No account connected."
        message = "The key has not arrived yet. Enter it on our page, then continue."
    return "Account connected."


async def page(scope: Any, receive: Any, send: Any) -> None:
    """Serve the page: a form on GET, and take the secret on POST."""
    ticket = scope["path"].removeprefix("/secret/")
    owner = await store.get(f"ticket:{ticket}") if scope["path"].startswith("/secret/") else None
    user = visitor(scope)
    if not owner:
        await respond(send, 404, "This page has expired, or does not exist.")
    elif user is None or user.encode() != owner:
        await respond(send, 403, "This page is for the person who started the request. Sign in as that person.")
    elif scope["method"] == "POST":
        await keep(send, ticket, user, await read(receive))
    else:
        field = '<input name="key" type="password" autocomplete="off" required>'
        label = f"<label>API key for {html.escape(user)}: {field}</label>"
        await respond(send, 200, f'<form method="post">{label} <button>Send</button></form>')


async def keep(send: Any, ticket: str, user: str, body: bytes) -> None:
    key = parse_qs(body.decode("latin-1")).get("key", [""])[0]
    if not key or len(body) > MOST:
        await respond(send, 400, "This is not a key. Go back and try again.")
        return
    await store.put(f"key:{user}", key.encode())
    await store.put(f"ticket:{ticket}", DONE, ttl=MINUTES)
    await respond(send, 200, "Thank you. You may close this page and continue.")


async def read(receive: Any) -> bytes:
    """Read the body, or as much as shows that it is too long."""
    body = bytearray()
    while True:
        event = await receive()
        body += event.get("body", b"")
        if not event.get("more_body") or len(body) > MOST:
            return bytes(body)


async def respond(send: Any, status: int, body: str) -> None:
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"referrer-policy", b"no-referrer"),
        (b"content-security-policy", b"default-src 'none'; form-action 'self'; frame-ancestors 'none'"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"<!doctype html><title>Vault</title>{body}".encode()})


asgi = app.asgi(principal=caller, fallback=page)

if __name__ == "__main__":
    app.run("http", principal=caller, fallback=page)
