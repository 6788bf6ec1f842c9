"""Clients that cannot be asked, answered with a real browser: pages that a client opens, and those that we open."""

import asyncio
from typing import Any

import pytest

from antiphon import Accepted, Browser, Client, Context, Inbox, MemoryStore, Server
from antiphon.testing.servers import serving
from browser import browser

pytestmark = pytest.mark.heavy

ERAS = pytest.mark.parametrize("era", ["2026-07-28", "legacy"])


def by_header(scope: Any) -> str | None:
    return dict(scope["headers"]).get(b"x-user", b"").decode() or None


def server(place: Any, **how: Any) -> tuple[Server, list[str]]:
    app, erased = Server("ops", elsewhere=place, **how), []

    @app.tool
    async def erase(what: str, ctx: Context) -> str:
        """Erase an environment."""
        where = (await ctx.elicit(f"Where do backups of {what} go?", str)).unwrap()
        if not await ctx.confirm(f"Erase {what}, with backups in {where}?"):
            return "Kept"
        erased.append(what)
        return f"Erased {what}, with backups in {where}"

    return app, erased


async def fill(tab: Any, url: str) -> None:
    await tab.goto(url)
    if await tab.get_by_label("Yes").count():
        await tab.get_by_label("Yes").check()
    else:
        await tab.get_by_label("value").fill("<b>attic</b>")
    await tab.get_by_role("button", name="Answer").click()
    await tab.get_by_text("Answered by").first.wait_for()


@ERAS
async def test_a_page_that_the_client_opens_is_answered_by_the_one_who_was_asked(era: str) -> None:
    made: list[Any] = []

    def site(url: str) -> Any:
        inbox = Inbox(MemoryStore(), page=f"{url}/inbox")
        made.extend(server(inbox, principal=by_header))
        page = inbox.asgi(principal=by_header)

        async def pages(scope: Any, receive: Any, send: Any) -> None:
            await page({**scope, "root_path": "/inbox"}, receive, send)

        return made[0].asgi(fallback=pages)

    async with serving(site) as url, browser() as chromium:
        mallory = await chromium.tab(extra_http_headers={"x-user": "mallory"})
        ada = await chromium.tab(extra_http_headers={"x-user": "ada"})

        async def open_page(question: Any) -> Any:
            await mallory.goto(question.url)
            await mallory.get_by_text("none for you").wait_for()
            await fill(ada, question.url)
            return Accepted(None)

        async with Client(f"{url}/mcp", elicit_url=open_page, era=era, headers={"x-user": "ada"}) as client:
            result = await client.call_tool("erase", {"what": "staging"})
        chromium.faults[:] = [fault for fault in chromium.faults if "404" not in fault]
    assert result.text == "Erased staging, with backups in <b>attic</b>"
    assert made[1] == ["staging"]


@ERAS
async def test_a_form_that_opens_at_this_machine_is_answered_while_the_call_waits(era: str) -> None:
    async with browser() as chromium:
        loop = asyncio.get_running_loop()

        async def in_a_new_tab(url: str) -> None:
            await fill(await chromium.tab(), url)

        def open_(url: str) -> None:
            asyncio.run_coroutine_threadsafe(in_a_new_tab(url), loop)

        app, erased = server(Browser(open=open_))
        async with Client(app, era=era) as client:
            result = await client.call_tool("erase", {"what": "staging"})
    assert result.text == "Erased staging, with backups in <b>attic</b>"
    assert erased == ["staging"]
