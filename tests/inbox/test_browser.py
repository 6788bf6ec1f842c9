"""The page of an inbox in a real browser."""

import asyncio

import pytest

from antiphon import Accepted, Client, Context, Inbox, InputNeeded, MemoryStore, Server
from antiphon.testing.servers import serving
from browser import PHONE, browser, overflow

from .questions import BIDI, EVERY_ANSWER, HOSTILE, LOOK, MARKUP, WHERE, WRITE, form
from .test_inbox import round_of
from .test_page import CONFIRM, put

pytestmark = pytest.mark.heavy


@pytest.fixture
def inbox():
    return Inbox(MemoryStore())


def signed_in(scope):
    """The name in a header, as a proxy sets it."""
    return dict(scope["headers"]).get(b"x-user", b"").decode() or None


def person(name):
    return {"extra_http_headers": {"x-user": name}}


async def test_a_call_is_answered_in_the_page_round_by_round():
    app = Server("travel")

    @app.tool
    async def book(day: str, ctx: Context) -> str:
        seats = (await ctx.elicit(f"Seats on {day}?", int)).unwrap()
        return f"{seats} seats" if await ctx.confirm(f"{seats} seats, sure?") else "nothing"

    inbox = Inbox(MemoryStore())
    page = inbox.asgi(principal=signed_in)
    async with serving(lambda url: page) as url, browser() as chromium, Client(app, inbox=inbox) as client:
        with pytest.raises(InputNeeded) as needed:
            await client.call_tool("book", {"day": "Monday"})
        tab = await chromium.tab(**person("ada"))
        await tab.goto(f"{url}/")
        await tab.get_by_role("link", name="book").click()
        await tab.get_by_label("value").fill("2")
        await tab.get_by_role("button", name="Answer").click()
        await tab.get_by_text("Answered by ada").wait_for()
        result = asyncio.create_task(inbox.result(needed.value.ticket))
        await round_of(inbox, needed.value.ticket, 2)
        await tab.reload()
        await tab.get_by_role("group", name="confirm").get_by_label("Yes").check()
        await tab.get_by_role("button", name="Answer").click()
        assert (await result).text == "2 seats"
        await tab.reload()
        await tab.get_by_text("Answered by ada, and done.").wait_for()


async def test_of_two_tabs_one_answers_and_the_other_is_told(inbox):
    ticket = await put(inbox)
    page = inbox.asgi(principal=signed_in)
    async with serving(lambda url: page) as url, browser() as chromium:
        adas, bobs = await chromium.tab(**person("ada")), await chromium.tab(**person("bob"))
        for tab in (adas, bobs):
            await tab.goto(f"{url}/{ticket}")
            await tab.get_by_label("Yes").check()
        await adas.get_by_role("button", name="Answer").click()
        await adas.get_by_text("Answered by ada").wait_for()
        # Without a click, by the script.
        await bobs.get_by_role("alert").get_by_text("Already answered by ada").wait_for()
        assert await bobs.get_by_role("button", name="Answer").is_disabled()
        await bobs.get_by_role("link", name="See where it stands").click()
        await bobs.get_by_text("Answered by ada. The call goes on").wait_for()
        # And without a script, by the server.
        other = await put(inbox)
        plain = await chromium.tab(**person("bob"), java_script_enabled=False)
        await plain.goto(f"{url}/{other}")
        await inbox.answer(other, {"sure": Accepted(True)}, by="ada")
        await plain.get_by_role("button", name="Decline").click()
        await plain.get_by_role("alert").get_by_text("already answered by ada").wait_for()
        assert [fault for fault in chromium.faults if "409" not in fault] == []
        chromium.faults.clear()
    assert (await inbox.rows.get(other)).answers == {"sure": {"action": "accept", "content": {"confirm": True}}}


async def test_every_widget_is_filled_in_on_a_phone_by_its_label(inbox):
    ticket = await put(inbox, {"q": form("All about it?")})
    page = inbox.asgi(principal=signed_in)
    async with serving(lambda url: page) as url, browser() as chromium:
        tab = await chromium.tab(**person("ada"), viewport=PHONE, color_scheme="dark", has_touch=True)
        await tab.goto(f"{url}/{ticket}")
        assert await overflow(tab) == 0
        await tab.get_by_role("button", name="Answer").click()
        assert await tab.evaluate("document.querySelector(':invalid:not(form, fieldset)').name") == "0.0"
        await tab.get_by_label("Your name").fill("Ada")
        await tab.get_by_label("day").fill("2026-12-24")
        await tab.get_by_label("seats").fill("3")
        await tab.get_by_label("price").fill("1.5")
        await tab.get_by_role("group", name="sure").get_by_label("No").check()
        await tab.get_by_label("plan").select_option("Large")
        await tab.get_by_label("lounge").check()
        await tab.get_by_role("button", name="Answer").click()
        await tab.get_by_text("Answered by ada").wait_for()
    assert (await inbox.rows.get(ticket)).answers == {"q": {"action": "accept", "content": EVERY_ANSWER}}


async def test_an_answer_that_does_not_fit_keeps_what_was_entered(inbox):
    schema = {"type": "object", "properties": {"code": {"type": "string", "minLength": 4}}, "required": ["code"]}
    ticket = await put(inbox, {"q": form("Code?", schema)})
    page = inbox.asgi(principal=signed_in)
    async with serving(lambda url: page) as url, browser() as chromium:
        tab = await chromium.tab(**person("ada"))
        await tab.goto(f"{url}/{ticket}")
        await tab.get_by_label("code").fill("<7>")
        await tab.get_by_role("button", name="Answer").click()
        await tab.get_by_role("alert").get_by_text("code").wait_for()
        assert await tab.get_by_label("code").input_value() == "<7>"
        await tab.get_by_label("code").fill("<7777>")
        await tab.get_by_role("button", name="Answer").click()
        await tab.get_by_text("Answered by ada").wait_for()
        assert [fault for fault in chromium.faults if "422" not in fault] == []
        chromium.faults.clear()


@pytest.mark.parametrize("width", [360, 1200])
async def test_hostile_words_are_harmless(inbox, width):
    tickets = [
        await put(
            inbox,
            {MARKUP: form(MARKUP + BIDI, HOSTILE), "sure": CONFIRM, "look": LOOK, "write": WRITE, "where": WHERE},
            name=MARKUP,
            server=BIDI,
            on_behalf=MARKUP,
            arguments={MARKUP: BIDI},
        ),
        await put(inbox, {"q": form("m" * 1_000_000, HOSTILE)}),
    ]
    page = inbox.asgi(principal=signed_in)
    async with serving(lambda url: page) as url, browser() as chromium:
        tab = await chromium.tab(**person(MARKUP.encode("ascii").decode()), viewport={"width": width, "height": 800})
        for path in ("", *tickets):
            await tab.goto(f"{url}/{path}")
            assert await overflow(tab) == 0
            assert await tab.evaluate("[document.scripts.length, document.images.length]") == [1, 0]
            assert await tab.get_by_role("link", name="Inbox").is_visible()
        await tab.get_by_role("button", name="Decline").click()
        await tab.get_by_text("Answered by <script>").wait_for()
