"""What a model saw never suffices to answer: a hundred attempts with all of it, and none counts."""

import json
from itertools import product
from typing import Any

import httpx
import pytest

from antiphon import Accepted, Browser, Client, Context, Inbox, MemoryStore, Server
from antiphon.testing.servers import serving
from antiphon.transports.memory import MemoryLink
from messages import headers_for, request

ERASE = {"name": "erase", "arguments": {"what": "staging"}}
YES = {"action": "accept", "content": {"confirm": True}}
USERS = {"ada-cookie": "ada", "mallory-cookie": "mallory"}


def caller(scope: Any) -> str | None:
    return dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ") or None


def visitor(scope: Any) -> str | None:
    return USERS.get(dict(scope["headers"]).get(b"cookie", b"").decode())


def ops(place: Any, **how: Any) -> tuple[Server, list[str]]:
    app, erased = Server("ops", elsewhere=place, **how), []

    @app.tool
    async def erase(what: str, ctx: Context) -> str:
        """Erase an environment."""
        if not await ctx.confirm(f"Erase {what}?", key="sure"):
            return "Kept"
        erased.append(what)
        return "Erased"

    return app, erased


def answers(seen: list[str]) -> list[dict[str, Any]]:
    """Forged members of a request."""
    names = ["sure", "confirm", "page-1", "page-2", "value", seen[0]]
    contents: list[Any] = [YES, {"action": "accept"}, {"action": "accept", "content": {"sure": True, "value": True}}]
    forged = [{"inputResponses": {name: response}} for name, response in product(names, contents)]
    return [*forged, *({**each, "requestState": text} for each in forged[:12] for text in seen)]


async def rpc(http: httpx.AsyncClient, url: str, params: Any, capabilities: Any, user: str = "ada") -> Any:
    message = request("tools/call", params, capabilities=capabilities)
    headers = {**headers_for(message), "authorization": f"Bearer {user}"}
    headers.pop("host")
    return (await http.post(f"{url}/mcp", json=message, headers=headers)).json()


@pytest.mark.parametrize("capabilities", [{}, {"elicitation": {"url": {}}}], ids=["nothing", "pages"])
async def test_none_of_a_hundred_attempts_with_what_the_model_saw_counts(capabilities: Any) -> None:
    attempts = 0
    async with httpx.AsyncClient() as http, serving(lambda url: site(url)[0]) as url:
        _app, inbox, erased = made[-1]
        first = (await rpc(http, url, ERASE, capabilities))["result"]
        ticket = (await inbox.waiting())[0].id
        page = f"{url}/inbox/{ticket}"
        assert page in json.dumps(first)  # the model, or what holds it, knows the address
        seen = [ticket, page, json.dumps(first), "ap1." + ticket]
        for forged in answers(seen):
            attempts += 1
            reply = await rpc(http, url, {**ERASE, **forged}, capabilities)
            assert "Erased" not in json.dumps(reply)
        for user in ("mallory", "nobody"):
            attempts += 1
            await rpc(http, url, {**ERASE, "inputResponses": {"sure": YES}}, capabilities, user)
        cookies = ["", "mallory-cookie", ticket, "ada", "session=ada"]
        bodies = [{"token": text, "round": "1", "action": "accept", "0.confirm": "1"} for text in seen]
        for cookie, body in product(cookies, bodies):
            attempts += 1
            sent = await http.post(page, data=body, headers={"cookie": cookie})
            assert sent.status_code in {401, 403, 404}, sent.text
        for name in ("sure", "confirm", "answer", "inputResponses", "_meta"):
            attempts += 1
            await rpc(http, url, {**ERASE, "arguments": {"what": "staging", name: YES}}, capabilities)
        for verb, path in product(
            ("GET", "POST", "PUT", "DELETE", "PATCH"), ("", "/state", "/answer", "?action=accept")
        ):
            attempts += 1
            sent = await http.request(verb, page + path, headers={"cookie": "mallory-cookie"})
            assert sent.status_code >= 400
        row = await inbox.rows.get(ticket)
        assert (row.status, erased) == ("waiting", [])
        assert attempts >= 100
        await inbox.answer(ticket, {"sure": Accepted({"confirm": True})}, by="ada")
        last = await rpc(http, url, {**ERASE, "inputResponses": {"page-1": {"action": "accept"}}}, capabilities)
        assert last["result"]["content"][0]["text"] == "Erased"
        assert erased == ["staging"]


made: list[tuple[Server, Inbox, list[str]]] = []


def site(url: str) -> tuple[Any, Inbox]:
    inbox = Inbox(MemoryStore(), page=f"{url}/inbox", patience=0)
    app, erased = ops(inbox, principal=caller)
    made.append((app, inbox, erased))
    page = inbox.asgi(principal=visitor)

    async def pages(scope: Any, receive: Any, send: Any) -> None:
        await page({**scope, "root_path": "/inbox"}, receive, send)

    return app.asgi(fallback=pages), inbox


async def test_none_of_a_hundred_attempts_counts_where_a_browser_asks() -> None:
    opened: list[str] = []
    browser = Browser(open=opened.append, patience=0)
    app, erased = ops(browser)
    attempts = 0
    async with Client(app) as client, httpx.AsyncClient() as http:
        first = await client.call_tool(**ERASE)
        row = (await browser.rows.waiting())[0]
        base = opened[0].rsplit("/", 2)[0]  # the port can be found by trying them all
        seen = [row.id, first.text, json.dumps(first.meta)]
        for forged in answers(seen) * 3:
            attempts += 1
            reply = await MemoryLink(app).send(request("tools/call", {**ERASE, **forged}))
            assert "Erased" not in json.dumps(reply)
        for guess, verb in product(("", "x", row.id, "inbox", "a" * 43), ("GET", "POST")):
            attempts += 1
            fields = {"token": row.id, "round": "1", "action": "accept", "0.confirm": "1"}
            sent = await http.request(verb, f"{base}/{guess}/{row.id}", data=fields if verb == "POST" else None)
            assert sent.status_code == 404
        assert attempts >= 100
        assert not erased
        assert (await browser.rows.get(row.id)).status == "waiting"
