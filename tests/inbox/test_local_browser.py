"""The Browser: a person at this machine answers in a page that only their browser knows."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from antiphon import Browser, Client, Context, Server
from antiphon.inbox import browser as module

ERAS = pytest.mark.parametrize("era", ["2026-07-28", "legacy"])


class Person:
    """Sits in front of the browser: fills in what opens."""

    def __init__(self, *answers: dict[str, str]) -> None:
        self.answers = list(answers)
        self.opened: list[str] = []
        self.pages: list[str] = []
        self.told = asyncio.Event()

    def open(self, url: str) -> None:
        self.opened.append(url)
        asyncio.run(self.fill(url))

    async def fill(self, url: str) -> None:
        if self.answers:
            async with httpx.AsyncClient(headers={"origin": url[: url.index("/", 8)]}) as http:
                page = (await http.get(url)).text
                self.pages.append(page)
                fields = dict(re.findall(r'name="(token|round)" value="([^"]*)"', page))
                answer = self.answers.pop(0)
                ticked = dict(re.findall(r'type="radio" name="([^"]*)" value="(1)"', page)) if "ticks" in answer else {}
                sent = await http.post(url, data={**fields, **ticked, "action": answer["action"]})
                assert sent.status_code == 303, sent.text


YES = {"action": "accept", "ticks": "yes"}


def server(browser: Browser) -> tuple[Server, list[str]]:
    app, erased = Server("ops", elsewhere=browser), []

    @app.tool
    async def erase(what: str, ctx: Context) -> str:
        """Erase an environment."""
        if not await ctx.confirm(f"Erase {what}?") or not await ctx.confirm("Really?"):
            return "Kept"
        erased.append(what)
        return f"Erased {what}"

    return app, erased


@ERAS
async def test_a_person_answers_both_questions_while_the_call_waits(era: str) -> None:
    person = Person(YES, YES)
    app, erased = server(Browser(open=person.open, patience=20))
    async with Client(app, era=era) as client:
        assert (await client.call_tool("erase", {"what": "staging"})).text == "Erased staging"
    assert erased == ["staging"]
    assert len(person.opened) == 2
    assert "Erase staging?" in person.pages[0]
    assert "Really?" in person.pages[1]


@ERAS
async def test_a_person_who_declines_ends_it(era: str) -> None:
    app, erased = server(Browser(open=Person({"action": "decline"}).open, patience=20))
    async with Client(app, era=era) as client:
        assert (await client.call_tool("erase", {"what": "staging"})).text == "Kept"
    assert not erased


@ERAS
async def test_the_same_call_goes_on_where_it_stood(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person()
    app, erased = server(Browser(open=person.open, patience=0.1))
    async with Client(app, era=era) as client:
        told = await client.call_tool("erase", {"what": "staging"})
        assert told.is_error
        assert "browser" in told.text
        await client.call_tool("erase", {"what": "staging"})
        assert len(person.opened) == 1  # it is open, for all that is known
        monkeypatch.setattr(module, "LOOKED", 0)
        person.answers = [YES, YES]
        done = await client.call_tool("erase", {"what": "staging"})
        if "Really" in done.text:
            done = await client.call_tool("erase", {"what": "staging"})
    assert done.text.startswith("Erased staging")
    assert erased == ["staging"]


async def test_the_address_is_in_nothing_that_a_client_sees(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    person = Person()
    browser = Browser(open=person.open, patience=60)
    app, _ = server(browser)
    seen: list[Any] = []

    async def progress(*told: object) -> None:
        seen.append(told)
        for row in await browser.rows.waiting():
            await browser.rows.withdraw(row.id)

    async with Client(app, on_log=lambda *told: seen.append(told)) as client:
        for patience in (60, 0):
            browser.patience = patience
            result = await client.call_tool("erase", {"what": "a"}, progress=progress)
            seen += [result.text, json.dumps(result.meta)]
    port, secret = person.opened[0].split(":")[2].split("/")[:2]
    everything = repr(seen) + caplog.text
    assert len(secret) == 43
    assert secret not in everything
    assert f":{port}" not in everything
    assert "withdrawn" in everything
    assert "browser" in everything
    assert "Waiting" in everything


@asynccontextmanager
async def opened(browser: Browser, person: Person) -> AsyncIterator[str]:
    """The address of a form that waits."""
    app, _ = server(browser)
    async with Client(app) as client:
        await client.call_tool("erase", {"what": "a"})
        yield person.opened[0]


async def test_no_other_address_name_or_site_answers() -> None:
    person = Person()
    browser = Browser(open=person.open, patience=0.05)
    async with opened(browser, person) as url, httpx.AsyncClient() as http:
        base, secret, ticket = url.rsplit("/", 2)
        form = (await http.get(url)).text
        fields = dict(re.findall(r'name="(token|round)" value="([^"]*)"', form)) | {"action": "accept"}
        for wrong in (
            base,
            f"{base}/",
            f"{base}/{ticket}",
            f"{base}/{secret[:-1]}/{ticket}",
            f"{base}/{secret[::-1]}/",
        ):
            assert (await http.get(wrong)).status_code == 404
            assert (await http.post(wrong, data=fields)).status_code == 404
        assert (await http.get(url, headers={"host": "evil.example.com"})).status_code == 403
        assert (await http.post(url, data=fields, headers={"origin": "https://evil.example.com"})).status_code == 403
        assert (await http.post(url, data={**fields, "token": "ap1.forged"})).status_code == 403
        assert [row.status for row in await browser.rows.waiting()] == ["waiting"]


async def test_the_port_closes_with_the_server() -> None:
    person = Person()
    async with opened(Browser(open=person.open, patience=0.05), person) as url, httpx.AsyncClient() as http:
        assert (await http.get(url)).status_code == 200
    async with httpx.AsyncClient() as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(url)


def fails(_: str) -> None:
    raise OSError("no display at http://127.0.0.1/secret")


@ERAS
@pytest.mark.parametrize("open_", [lambda _: False, fails], ids=["none", "fails"])
async def test_without_a_browser_the_call_says_so_and_the_next_tries_again(
    era: str, open_: Any, caplog: pytest.LogCaptureFixture
) -> None:
    browser = Browser(open=open_)
    app, erased = server(browser)
    async with Client(app, era=era) as client:
        for _ in range(2):
            told = await client.call_tool("erase", {"what": "a"})
            assert told.is_error
            assert "no browser could be opened" in told.text
    assert not erased
    assert not await browser.rows.waiting()
    assert "secret" not in caplog.text


def test_a_text_browser_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("webbrowser.open", lambda _: pytest.fail("a browser was opened"))
    assert module.open_browser("http://127.0.0.1/") is False


def test_it_is_not_served_beyond_this_machine() -> None:
    app, _ = server(Browser())
    for hosts in (["*"], "mcp.example.com", ["localhost", "10.0.0.1:8000"]):
        with pytest.raises(ValueError, match="only this machine may call"):
            app.asgi(allowed_hosts=hosts)
    app.asgi(allowed_hosts=["localhost:8000", "[::1]", "http://127.0.0.1:8000"])
    for host in ("0.0.0.0", "::", "192.168.1.2"):
        with pytest.raises(ValueError, match="only this machine may call"):
            app.run("http", host=host)
    with pytest.raises(ValueError, match="one worker"):
        app.run("http", workers=2)


@pytest.mark.parametrize(
    ("client", "status"), [("10.1.2.3", 403), ("::ffff:10.0.0.1", 403), ("127.0.0.1", 400), ("::1", 400)]
)
async def test_a_caller_from_beyond_is_refused(client: str, status: int) -> None:
    app, _ = server(Browser())
    transport = httpx.ASGITransport(app.asgi(), client=(client, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        reply = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert reply.status_code == status or (status == 400 and reply.status_code != 403)
