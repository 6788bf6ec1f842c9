"""The page of `antiphon inspect`, in a real Chromium."""

import asyncio
import json
import re
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import expect

from antiphon import Accepted, Client
from antiphon.testing.cassette import Player
from browser import PHONE, browser, overflow

pytestmark = pytest.mark.heavy
expect.set_options(timeout=20_000)

TRAVEL = Path(__file__).with_name("travel.py")
WIDE = {"width": 1440, "height": 900}
CALL = re.compile(r"^Call( Ctrl.*)?$")
PROBES = Path(__file__).with_name("probes.js").read_text("utf-8")


class Program:
    """A running ``antiphon inspect``."""

    def __init__(self, folder, target=TRAVEL):
        command = [sys.executable, "-m", "antiphon", "inspect", str(target), "--no-browser", "--port", "0"]
        self.process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"http://\S+#key=\S+", line):
                self.url = found.group()
                break
        else:
            raise AssertionError("the program ended")

    def link(self, fragment):
        page, _, key = self.url.partition("#")
        return f"{page}#{fragment}?{key}"

    def end(self):
        self.process.terminate()
        self.process.communicate(timeout=30)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The program that most tests share; the calls of one are the history of the next."""
    running = Program(tmp_path_factory.mktemp("inspect"))
    yield running
    running.end()


@pytest.fixture
def run(tmp_path):
    """Start a program that a test may end, or has a server of its own for."""
    running = []

    def run(target=TRAVEL):
        running.append(Program(tmp_path, target))
        return running[-1]

    yield run
    for each in running:
        each.end()


@asynccontextmanager
async def opened(program, fragment="/", **about):
    """The page at a route, in a browser of its own."""
    async with browser() as chromium:
        tab = await chromium.tab(**{"viewport": WIDE, **about})
        await tab.goto(program.link(fragment))
        await expect(tab.locator(".offers")).to_contain_text("book")
        yield chromium, tab


async def probed(tab, name):
    return await tab.evaluate(f"() => {{ {PROBES}; return {name}(); }}")


async def book(tab, *, city="Lisbon", sure=True):
    """Make the call of two rounds, and answer in the page."""
    await tab.get_by_label("traveller").fill("Ada")
    await tab.keyboard.press("Control+Enter")
    await expect(tab.locator(".asking")).to_contain_text("Where to, Ada?")
    await tab.get_by_label("city").select_option(city)
    await tab.get_by_role("button", name="Answer").click()
    await tab.get_by_label("confirm").set_checked(sure)
    await tab.get_by_role("button", name="Answer").click()
    await expect(tab.locator(".card.result").first).to_be_visible()


@pytest.mark.parametrize("era", ["2026-07-28", "2025-11-25"])
async def test_a_call_of_two_rounds_is_answered_in_the_page(program, era):
    async with opened(program, "/tools/book") as (_, tab):
        await tab.get_by_role("radio", name=era).check()
        await book(tab)
        await expect(tab.locator(".card.result")).to_contain_text("Booked: 3 nights in Lisbon for Ada, 280 euros.")
        await expect(tab.locator(".talk > .round")).to_have_count(3)
        await expect(tab.locator("header.call")).to_contain_text(era)
        await tab.get_by_text("What travelled").first.click()
        await expect(tab.locator(".foot .leg").first).to_contain_text('"tools/call"')
        await expect(tab.locator(".foot .leg").first).to_contain_text("Where to, Ada?")


async def test_a_question_is_asked_in_place_and_says_what_was_said_before(program):
    async with opened(program, "/tools/book") as (_, tab):
        await tab.get_by_label("traveller").fill("Ada")
        await tab.keyboard.press("Enter")
        await tab.get_by_label("city").select_option("Oslo")
        await tab.get_by_role("button", name="Answer").click()
        await expect(tab.get_by_label("confirm")).to_be_visible()
        await expect(tab.locator(".card.answer")).to_contain_text('city = "Oslo", nights = 3')
        assert await tab.locator("dialog, [role=dialog]").count() == 0
        await tab.get_by_role("button", name="Decline").click()
        await expect(tab.locator(".card.result")).to_contain_text("Nothing was booked.")


async def test_a_fork_with_another_answer_shows_what_differs(program):
    async with opened(program, "/tools/book") as (_, tab):
        await book(tab)
        await tab.get_by_role("button", name="Fork here").first.click()
        await tab.get_by_role("button", name="Another answer").click()
        await tab.get_by_label("city").select_option("Kyoto")
        await tab.locator(".another").get_by_role("button", name="Fork").click()
        await tab.get_by_label("confirm").check()
        await tab.get_by_role("button", name="Answer").click()
        await expect(tab.locator(".card.result")).to_contain_text("3 nights in Kyoto")
        differs = tab.locator(".differs")
        await expect(differs).to_contain_text("Lisbon")
        await expect(differs).to_contain_text("Kyoto")
        await expect(tab.locator(".foot .seg").first).to_contain_text("Kyoto, 3")
        await expect(tab.locator(".offers .on")).to_contain_text("another answer")
        await differs.get_by_role("link", name="Side by side").click()
        await expect(tab.locator(".columns .card.result")).to_have_count(2)
        assert await overflow(tab) == 0


@pytest.mark.parametrize("how", ["A spoiled token", "An expired token"])
async def test_a_token_that_must_not_count_is_refused_and_the_page_says_so(program, how):
    async with opened(program, "/tools/book") as (_, tab):
        await book(tab)
        await tab.get_by_role("button", name="Fork here").last.click()
        await tab.get_by_role("button", name=how).click()
        await expect(tab.locator(".differs")).to_contain_text(f"{how}, from round 2")
        await expect(tab.locator(".talk > .round").last).to_contain_text("refuses")


@pytest.mark.parametrize("how", ["On a fresh instance", "The same token twice"])
async def test_a_leg_that_may_be_sent_again_ends_as_before(program, how):
    async with opened(program, "/tools/book") as (_, tab):
        await book(tab)
        await tab.get_by_role("button", name="Fork here").last.click()
        await tab.get_by_role("button", name=how).click()
        await expect(tab.locator(".differs")).to_contain_text("Nothing differs")


async def test_one_order_makes_the_call_in_both_eras_side_by_side(program):
    async with opened(program, "/tools/book") as (_, tab):
        await tab.get_by_role("radio", name="side by side").check()
        await book(tab)
        await expect(tab.locator(".columns .card.result")).to_have_count(2)
        await expect(tab.locator(".columns")).to_contain_text("2025-11-25")
        await expect(tab.locator(".columns")).to_contain_text("2026-07-28")
        await expect(tab.locator(".differs")).to_contain_text("Nothing differs")


async def test_a_token_is_opened_and_what_ran_again_is_said(program):
    async with opened(program, "/tools/book") as (_, tab):
        await book(tab)
        details = tab.get_by_label("Details", exact=True)
        await tab.locator(".talk > .round").nth(1).click(position={"x": 10, "y": 10})
        await expect(details).to_contain_text("Token of round 2, opened")
        await expect(details).to_contain_text('trip = {"city": "Lisbon", "nights": 3}')
        await expect(details).to_contain_text("price = 280")
        await expect(details).to_contain_text("price ran")
        await expect(details).to_contain_text("audience travel")
        await details.get_by_role("button", name="Check replay safety").click()
        await expect(details).to_contain_text("Safe to replay", timeout=60_000)


async def saved(tab, button, folder):
    async with tab.expect_download() as caught:
        await tab.get_by_role("button", name=button).click()
    download = await caught.value
    path = folder / download.suggested_filename
    await download.save_as(path)
    await expect(tab.get_by_role("status").filter(has_text="Saved as")).to_be_visible()
    return path


async def ran(*command, cwd):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "antiphon",
        *command,
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


async def test_a_saved_suite_passes_and_a_saved_cassette_replays(program, tmp_path):
    async with opened(program, "/tools/book", accept_downloads=True) as (_, tab):
        await book(tab)
        suite = await saved(tab, "Save as test", tmp_path)
        cassette = await saved(tab, "Save as cassette", tmp_path)
    code, output = await ran("test", str(suite), cwd=tmp_path)
    assert code == 0, output
    assert "1 passed" in output

    async def answer(question):
        return Accepted({"confirm": True} if "Book it?" in question.message else {"city": "Lisbon", "nights": 3})

    async with Client(Player(cassette), elicit=answer) as client:
        replayed = await client.call_tool("book", {"traveller": "Ada"})
    assert replayed.text == "Booked: 3 nights in Lisbon for Ada, 280 euros."


async def test_what_is_copied_is_said_and_stands_in_the_clipboard(program):
    async with opened(program, "/tools/book", permissions=["clipboard-read", "clipboard-write"]) as (_, tab):
        await book(tab)
        for name, words in (("antiphon call", "antiphon call"), ("curl", '"tools/call"'), ("Python", "import")):
            await tab.get_by_role("button", name=name, exact=True).click()
            await expect(tab.locator(".exported")).to_contain_text(f"Copied as {name}")
            assert words in await tab.evaluate("navigator.clipboard.readText()")


async def test_nested_arguments_are_filled_in_and_json_is_the_same(program):
    async with opened(program, "/tools/plan") as (_, tab):
        await tab.get_by_label("name").fill("Ada")
        await tab.get_by_role("button", name="Add an entry to stops").click()
        await tab.get_by_label("city").fill("Oslo")
        await tab.get_by_role("button", name="Add an entry to stops").click()
        await tab.get_by_label("city").last.fill("Kyoto")
        await tab.get_by_label("days").last.fill("4")
        await tab.get_by_label("green").check()
        await tab.get_by_label("budget").fill("99.5")
        await tab.get_by_label("insured").uncheck()
        await tab.get_by_role("checkbox", name="as JSON").check()
        box = tab.get_by_label("The same as JSON")
        stops = [{"city": "Oslo", "days": 1}, {"city": "Kyoto", "days": 4}]
        assert json.loads(await box.input_value())["stops"] == stops
        await box.fill((await box.input_value()).replace("Ada", "Bo"))
        await tab.get_by_role("checkbox", name="as JSON").uncheck()
        await expect(tab.get_by_label("name")).to_have_value("Bo")
        await tab.keyboard.press("Control+Enter")
        result = await tab.locator(".card.result .json").inner_text()
        assert json.loads(result) == {
            "name": "Bo",
            "stops": [["Oslo", 1], ["Kyoto", 4]],
            "home": None,
            "tags": ["green"],
            "budget": 99.5,
            "insured": False,
        }


async def test_a_page_a_model_and_roots_are_answered_as_well(program):
    async with opened(program, "/tools/review") as (_, tab):
        await tab.get_by_role("button", name=CALL).click()
        await expect(tab.locator(".host")).to_have_text("login.example")
        link = tab.get_by_role("link", name="Open login.example")
        assert await link.get_attribute("rel") == "noopener noreferrer"
        assert await link.get_attribute("target") == "_blank"
        await expect(tab.get_by_text("The part before the @ is not the host")).to_be_visible()
        await expect(tab.locator(".messages")).to_contain_text("Summarize the diff")
        await tab.get_by_label("confirm").check()
        await tab.get_by_label("The model's reply").fill("Two lines changed")
        await tab.get_by_role("button", name="Add a root").click()
        await tab.get_by_label("Root 1", exact=True).fill("file:///home/ada")
        await tab.get_by_role("button", name="Answer all 4").click()
        await expect(tab.locator(".card.result")).to_contain_text(
            "True, accept, Two lines changed, ['file:///home/ada']"
        )


async def test_prompts_are_completed_and_resources_are_read(program):
    async with opened(program, "/prompts/itinerary") as (_, tab):
        await tab.get_by_label("city").fill("Ky")
        await tab.get_by_role("button", name="Kyoto").click()
        await tab.get_by_role("button", name="Get Ctrl").click()
        await expect(tab.locator(".card.result")).to_contain_text("Write 2 days in Kyoto.")
        await tab.locator('.offers [href^="#/templates/"]').click()
        await tab.get_by_label("number").fill("7")
        await tab.keyboard.press("Enter")
        await expect(tab.locator(".card.result")).to_contain_text("Trip 7 goes to Oslo.")
        await tab.locator('.offers [href^="#/resources/"]').click()
        await tab.get_by_role("button", name="Read").click()
        await expect(tab.locator(".card.result")).to_contain_text("The last trip went to Kyoto.")


async def test_progress_and_logs_are_shown_and_failures_are_said(program):
    async with opened(program, "/tools/pack") as (_, tab):
        await tab.get_by_role("button", name=CALL).click()
        await expect(tab.locator(".card.result")).to_contain_text("packed")
        await expect(tab.locator(".notices")).to_contain_text("the suitcase is full")
        await expect(tab.locator(".progress")).to_contain_text("packing, 1 of 2")
        await tab.locator('.offers [href="#/tools/fail"]').click()
        await tab.get_by_role("button", name=CALL).click()
        await expect(tab.locator(".card.result.bad")).to_be_visible()


async def test_the_keyboard_alone_suffices(program):
    async with opened(program) as (_, tab):
        press = tab.keyboard.press
        await press("/")
        await tab.keyboard.type("boo")
        await press("Enter")
        await expect(tab.get_by_label("traveller")).to_be_focused()
        await tab.keyboard.type("Ada")
        await press("Control+Enter")
        await expect(tab.get_by_label("city")).to_be_focused()
        await tab.keyboard.type("Oslo")
        await press("Control+Enter")
        await expect(tab.get_by_label("confirm")).to_be_focused()
        await press("Space")
        await press("Control+Enter")
        await expect(tab.locator(".talk > .round").nth(2)).to_be_focused()
        await expect(tab.locator("[aria-live]").first).to_contain_text("Booked: 3 nights in Oslo")
        await press("k")
        await expect(tab.locator(".talk > .round").nth(1)).to_be_focused()
        await press("ArrowUp")
        await expect(tab.locator(".talk > .round").nth(0)).to_be_focused()
        await press("e")
        await expect(tab.locator(".frame").first).to_be_visible()
        await press("f")
        await press("Tab")
        await expect(tab.get_by_role("button", name="Another answer")).to_be_focused()
        await press("Escape")
        await expect(tab.get_by_role("button", name="Another answer")).to_have_count(0)
        await press("?")
        await expect(tab.get_by_label("Keyboard", exact=True)).to_be_focused()
        await press("Escape")
        await expect(tab.get_by_label("Keyboard", exact=True)).to_have_count(0)


async def test_a_deep_link_and_the_history_survive_a_reload(run):
    async with opened(run(), "/tools/book") as (_, tab):
        await book(tab)
        await tab.locator(".talk > .round").nth(1).click(position={"x": 10, "y": 10})
        await expect(tab).to_have_url(re.compile(r"#/calls/\w+/2$"))
        assert "key=" not in tab.url
        await tab.reload()
        await expect(tab.locator(".round.selected .number")).to_have_text("2")
        await expect(tab.locator(".card.result")).to_contain_text("Booked")
        await expect(tab.locator(".offers")).to_contain_text("traveller")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_text_is_legible_and_every_control_has_a_name(program, scheme):
    async with opened(program, "/tools/plan", color_scheme=scheme) as (_, tab):
        await tab.get_by_role("button", name="Add an entry to stops").click()
        assert await probed(tab, "illegible") == []
        assert await probed(tab, "nameless") == []
        await tab.locator('.offers [href="#/tools/book"]').click()
        await book(tab)
        await tab.get_by_text("What travelled").first.click()
        await tab.get_by_role("button", name="Fork here").last.click()
        assert await probed(tab, "illegible") == []
        await tab.get_by_role("button", name="A spoiled token").click()
        await expect(tab.locator(".card.bad")).to_be_visible()
        await tab.get_by_role("button", name="Save as").first.click()
        await tab.keyboard.press("?")
        assert await probed(tab, "illegible") == []
        assert await probed(tab, "nameless") == []


async def test_the_theme_is_switched_and_kept(program):
    async with opened(program, color_scheme="light") as (_, tab):
        background = "getComputedStyle(document.body).backgroundColor"
        light = await tab.evaluate(background)
        await tab.get_by_role("button", name="Theme").click()
        await tab.get_by_role("button", name="Theme").click()
        await expect(tab.get_by_role("button", name="Theme: dark")).to_be_visible()
        dark = await tab.evaluate(background)
        assert dark != light
        await tab.reload()
        await expect(tab.get_by_role("button", name="Theme: dark")).to_be_visible()
        assert await tab.evaluate(background) == dark


async def test_a_phone_shows_one_panel_at_a_time_and_nothing_scrolls_sideways(program):
    async with opened(program, "/tools/plan", viewport=PHONE) as (_, tab):
        await tab.get_by_role("button", name="Add an entry to stops").click()
        assert await overflow(tab) == 0
        await tab.get_by_role("button", name="Offers").click()
        assert await overflow(tab) == 0
        await tab.locator('.offers [href="#/tools/book"]').click()
        await book(tab)
        await tab.get_by_text("What travelled").first.click()
        await tab.get_by_role("button", name="Fork here").first.click()
        assert await overflow(tab) == 0
        await tab.get_by_role("button", name="In the other era").click()
        await expect(tab.locator(".columns .card.result")).to_have_count(2)
        assert await overflow(tab) == 0
        await tab.get_by_role("button", name="Details").click()
        await expect(tab.get_by_role("heading", name="Token")).to_be_visible()
        assert await overflow(tab) == 0


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
async def test_hostile_texts_are_shown_and_do_nothing(program, viewport):
    async with opened(program, "/tools/harm", viewport=viewport) as (_, tab):
        await tab.get_by_role("button", name=CALL).click()
        await expect(tab.locator(".asking")).to_contain_text("<script>document.title = 'gone'</script>")
        await expect(tab.locator(".asking mark.odd").first).to_have_text("\\u202e")
        await tab.get_by_role("button", name="Answer").click()
        result = tab.locator(".card.result")
        await expect(result).to_contain_text("<img src=x onerror=alert(1)>")
        await expect(result).to_contain_text("\\x1b[2J")
        assert len(await result.inner_text()) < 10_000
        assert await overflow(tab) == 0
        await result.get_by_role("button", name="Show all").click()
        assert len(await result.inner_text()) > 100_000
        await result.get_by_role("button", name="Show less").click()
        assert await tab.locator("main img, main script, main iframe").count() == 0
        assert "gone" not in await tab.title()
        assert not re.search("[\u202a-\u202e\u2066-\u2069\x1b]", await tab.evaluate("document.body.innerText"))
        assert await overflow(tab) == 0


async def test_two_tabs_show_the_same_call_and_one_answer_counts(program):
    async with opened(program, "/tools/book") as (chromium, tab):
        await tab.get_by_label("traveller").fill("Ada")
        await tab.keyboard.press("Enter")
        await expect(tab.get_by_label("city")).to_be_visible()
        other = await chromium.tab(viewport=WIDE)
        await other.goto(program.link(tab.url.partition("#")[2]))
        await other.get_by_label("city").select_option("Oslo")
        await other.get_by_role("button", name="Answer").click()
        await expect(tab.locator(".card.answer")).to_contain_text("Oslo")
        await expect(tab.get_by_label("confirm")).to_be_visible()


async def test_a_call_is_given_up_or_left_for_later(program):
    async with opened(program, "/tools/book", accept_downloads=True) as (_, tab):
        await tab.get_by_label("traveller").fill("Ada")
        await tab.keyboard.press("Enter")
        async with tab.expect_download() as caught:
            await tab.get_by_role("button", name="Leave for later").click()
        assert (await caught.value).suggested_filename.endswith(".json")
        await expect(tab.locator(".exported")).to_contain_text("antiphon resume")
        await tab.get_by_role("button", name="Give up").click()
        await expect(tab.locator("header.call")).to_contain_text("cancelled")


async def test_without_the_key_the_page_asks_for_the_address(program):
    async with browser() as chromium:
        tab = await chromium.tab()
        await tab.goto(program.url.partition("#")[0])
        await expect(tab.get_by_role("heading", name="Open the address that antiphon inspect printed")).to_be_visible()
        await tab.goto(program.url)
        await expect(tab.locator(".offers")).to_contain_text("book")


async def test_the_page_says_when_the_program_is_gone(run):
    program = run()
    async with opened(program) as (chromium, tab):
        program.end()
        await expect(tab.get_by_text("is lost. Trying again")).to_be_visible()
        chromium.faults = [fault for fault in chromium.faults if "ERR_" not in fault]


async def test_a_server_that_does_not_start_is_explained(run, tmp_path):
    (tmp_path / "broken.py").write_text("raise ValueError('the harbour is closed')\n")
    async with browser() as chromium:
        tab = await chromium.tab(viewport=WIDE)
        await tab.goto(run(tmp_path / "broken.py").url)
        await expect(tab.get_by_role("alert")).to_contain_text("The server could not be reached.")
        await expect(tab.get_by_role("button", name="Start it again")).to_be_visible()
