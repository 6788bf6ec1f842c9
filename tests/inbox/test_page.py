"""The page of an inbox: who may see and answer, what is refused, and what a form sends."""

import re
import time
from html.parser import HTMLParser

import httpx
import pytest
from msgspec.structs import replace

from antiphon import Inbox, MemoryStore, StoreError
from antiphon.inbox.rows import Row, new_ticket

from .questions import BIDI, EVERY_ANSWER, HOSTILE, LOOK, MARKUP, WHERE, WRITE, form, url

CONFIRM = form("Sure?", {"type": "object", "properties": {"confirm": {"type": "boolean"}}, "required": ["confirm"]})
PEOPLE = {"ada": ["ada"], "bob": ["bob", "finance"], "eve": ["eve"]}


class Form(HTMLParser):
    """What a browser would send of a page's form if a person only pressed a button."""

    def __init__(self, page):
        super().__init__()
        self.sent, self.tags, self._select, self._area = {}, [], None, None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append((tag, found))
        match tag:
            case "input" if found.get("type") in {"radio", "checkbox"} and "checked" not in found:
                pass
            case "input":
                self.sent.setdefault(found["name"], []).append(found.get("value", ""))
            case "select":
                self._select = found["name"]
            case "option" if "selected" in found or self._select not in self.sent:
                self.sent[self._select] = [found["value"]]
            case "textarea":
                self._area = found["name"]
                self.sent[self._area] = [""]

    def handle_data(self, data):
        if self._area:
            self.sent[self._area] = [data.removeprefix("\n")]

    def handle_endtag(self, tag):
        if tag == "textarea":
            self._area = None


@pytest.fixture
def inbox():
    return Inbox(MemoryStore())


@pytest.fixture
async def people(inbox):
    """Browsers of people, each signed in by a header."""
    names = {name.encode(): groups for name, groups in PEOPLE.items()}
    page = inbox.asgi(principal=lambda scope: names.get(dict(scope["headers"]).get(b"x-user")))
    opened = []

    def browse(name, **headers):
        transport = httpx.ASGITransport(app=page)
        client = httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8000", headers={"x-user": name, **headers}
        )
        opened.append(client)
        return client

    yield browse
    for client in opened:
        await client.aclose()


async def put(inbox, questions=None, **about):
    now = time.time()
    row = Row(
        **{
            "id": new_ticket(),
            "method": "tools/call",
            "name": "book",
            "since": now,
            "until": now + 3600,
            "questions": questions or {"sure": CONFIRM},
            **about,
        }
    )
    assert await inbox.rows.add(row)
    return row.id


async def sent(browser, ticket, **changes):
    shown = await browser.get(f"/{ticket}")
    assert shown.status_code == 200, shown.text
    return await browser.post(f"/{ticket}", data={**Form(shown.text).sent, **changes})


# --- answering ----------------------------------------------------------------------------------------------------


async def test_a_question_is_listed_shown_and_answered(inbox, people):
    ticket = await put(inbox, server="travel", on_behalf="ada", who="finance", arguments={"day": "Monday"})
    bob = people("bob")
    listed = await bob.get("/")
    assert "1 question waiting" in listed.text
    assert f'href="/{ticket}"' in listed.text
    shown = await bob.get(f"/{ticket}")
    for part in ("Sure?", "travel", "on behalf of", "ada", "finance", "Monday"):
        assert part.lower() in shown.text.lower()
    done = await sent(bob, ticket, **{"0.0": "1", "action": "accept"})
    assert (done.status_code, done.headers["location"]) == (303, f"/{ticket}")
    row = await inbox.rows.get(ticket)
    assert (row.answers, row.answered_by) == ({"sure": {"action": "accept", "content": {"confirm": True}}}, "bob")
    after = await bob.get(f"/{ticket}")
    assert "Answered by bob" in after.text
    assert "<form" not in after.text
    assert "Nothing waits" in (await bob.get("/")).text


async def test_every_kind_of_field_is_read(inbox, people):
    ticket = await put(inbox, {"q": form("All?")})
    entered = {"0.0": "Ada", "0.3": "2026-12-24", "0.6": "3", "0.7": "1.5", "0.9": "0", "0.11": "1"}
    entered["0.12"] = ["", "1", "2"]
    done = await sent(people("bob"), ticket, **entered, action="accept")
    assert done.status_code == 303, done.text
    assert (await inbox.rows.get(ticket)).answers == {"q": {"action": "accept", "content": EVERY_ANSWER}}


async def test_nothing_is_a_yes_by_itself(inbox, people):
    ticket = await put(inbox)
    refused = await sent(people("bob"), ticket, action="accept")
    assert refused.status_code == 422
    assert "missing required field" in refused.text
    assert (await inbox.rows.get(ticket)).status == "waiting"


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_refusal_needs_no_field(inbox, people, action):
    ticket = await put(inbox)
    assert (await sent(people("bob"), ticket, action=action)).status_code == 303
    assert (await inbox.rows.get(ticket)).answers == {"sure": {"action": action}}


async def test_an_answer_that_does_not_fit_is_shown_again_with_the_reason(inbox, people):
    ticket = await put(inbox, {"q": form("All?")})
    entered = {"0.0": "A<", "0.3": "2026-12-24", "0.6": "99", "0.9": "1", "0.11": "0", "0.12": ["", "0"]}
    again = await sent(people("bob"), ticket, **entered, action="accept")
    assert again.status_code == 422
    assert 'role="alert"' in again.text
    assert "seats" in again.text
    kept = Form(again.text).sent
    assert (kept["0.0"], kept["0.6"], kept["0.9"], kept["0.12"]) == (["A<"], ["99"], ["1"], ["", "0"])
    assert (await inbox.rows.get(ticket)).status == "waiting"
    for odd in ({"0.6": "many"}, {"0.11": "77"}, {"0.11": "-9"}, {"0.4": "soon"}, {"0.6": "1e999"}):
        assert (await sent(people("bob"), ticket, **{**entered, "0.6": "2", **odd}, action="accept")).status_code == 422


async def test_several_questions_are_answered_one_by_one(inbox, people):
    ticket = await put(inbox, {"sure": CONFIRM, "look": LOOK})
    shown = (await people("bob").get(f"/{ticket}")).text
    assert "https://<b>sign.example.com</b>/doc" in shown
    assert 'rel="noopener noreferrer"' in shown
    assert (await sent(people("bob"), ticket, **{"0.action": "decline"})).status_code == 303
    answers = (await inbox.rows.get(ticket)).answers
    assert answers == {"sure": {"action": "decline"}, "look": {"action": "accept"}}


async def test_what_a_model_is_asked_is_shown_and_not_answered(inbox, people):
    ticket = await put(inbox, {"write": WRITE, "where": WHERE})
    shown = (await people("bob").get(f"/{ticket}")).text
    assert "What is &lt;b&gt;new&lt;/b&gt;?" in shown
    assert "antiphon inbox answer" in shown
    refused = await sent(people("bob"), ticket, action="accept")
    assert (refused.status_code, "takes no answer" in refused.text) == (422, True)
    assert (await inbox.rows.get(ticket)).status == "waiting"


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "http://[", ""])
async def test_only_web_pages_are_linked(inbox, people, address):
    ticket = await put(inbox, {"q": url("Open", address)})
    shown = Form((await people("bob").get(f"/{ticket}")).text)
    assert [found["href"] for tag, found in shown.tags if tag == "a"] == ["/"]


async def test_look_alike_letters_in_a_host_show(inbox, people):
    ticket = await put(inbox, {"q": url("Open", "https://аpple.com/")})
    assert "letters beyond ASCII" in (await people("bob").get(f"/{ticket}")).text


async def test_a_form_beyond_the_protocol_is_answered_as_json(inbox, people):
    ticket = await put(inbox, {"q": form("Odd", {"type": "object", "properties": {"x": {"type": "object"}}})})
    assert (await sent(people("bob"), ticket, **{"0.0": "{", "action": "accept"})).status_code == 422
    assert (await sent(people("bob"), ticket, **{"0.0": '{"a": 1}', "action": "accept"})).status_code == 303
    assert (await inbox.rows.get(ticket)).answers["q"]["content"] == {"x": {"a": 1}}


# --- who ----------------------------------------------------------------------------------------------------------


async def test_a_second_answer_is_told_who_was_first(inbox, people):
    ticket = await put(inbox)
    page = (await people("ada").get(f"/{ticket}")).text
    await sent(people("bob"), ticket, action="decline")
    late = await people("ada").post(f"/{ticket}", data={**Form(page).sent, "action": "decline"})
    assert late.status_code == 409
    assert "already answered by bob" in late.text
    state = await people("ada").get(f"/{ticket}/state")
    assert state.json() == {"status": "answered", "round": 1, "by": "bob"}
    assert [given.by for given in (await inbox.rows.get(ticket)).given] == ["bob"]


async def test_an_answer_to_a_round_that_is_over_does_not_count_for_the_next(inbox, people):
    ticket = await put(inbox)
    old = Form((await people("ada").get(f"/{ticket}")).text).sent
    await sent(people("bob"), ticket, action="decline")
    row = await inbox.rows.get(ticket)
    assert await inbox.rows.replace(replace(row, round=2), after=1)
    late = await people("ada").post(f"/{ticket}", data={**old, "0.0": "1", "action": "accept"})
    assert late.status_code == 409
    assert (await inbox.rows.get(ticket)).status == "waiting"


async def test_people_see_only_what_is_for_them(inbox, people):
    ticket = await put(inbox, who="finance", on_behalf="ada")
    assert "1 question waiting" in (await people("bob").get("/")).text
    assert "0 questions" in (await people("eve").get("/")).text
    assert (await people("eve").get(f"/{ticket}")).status_code == 404
    assert (await people("eve").get(f"/{ticket}/state")).status_code == 404
    bobs = Form((await people("bob").get(f"/{ticket}")).text).sent
    assert (await people("eve").post(f"/{ticket}", data={**bobs, "action": "decline"})).status_code == 404
    hers = await people("ada").get(f"/{ticket}")
    assert "Only finance may answer" in hers.text, "it runs on her behalf, so she sees it"
    assert "<form" not in hers.text
    assert (await people("ada").post(f"/{ticket}", data={**bobs, "action": "decline"})).status_code == 403
    assert (await inbox.rows.get(ticket)).status == "waiting"


async def test_without_a_sign_in_there_is_no_page(inbox, people):
    ticket = await put(inbox)
    for visitor in (people("nobody"), people("")):
        for path in ("/", f"/{ticket}", f"/{ticket}/state"):
            refused = await visitor.get(path)
            assert (refused.status_code, "Sure?" in refused.text) == (401, False)
    with pytest.raises(TypeError):
        inbox.asgi()
    with pytest.raises(TypeError, match="principal= is a function"):
        inbox.asgi(principal="ada")


async def test_a_sign_in_may_be_asynchronous_and_its_failure_refuses(inbox, caplog):
    async def principal(scope):
        if scope["path"] == "/broken":
            raise RuntimeError("no database")
        return "ada"

    transport = httpx.ASGITransport(app=inbox.asgi(principal=principal))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as browser:
        assert "ada" in (await browser.get("/")).text
        broken = await browser.get("/broken")
        assert (broken.status_code, "no database" in broken.text) == (500, False)


# --- other sites --------------------------------------------------------------------------------------------------


async def test_a_form_of_another_site_row_round_or_person_is_refused(inbox, people):
    ticket, other = await put(inbox), await put(inbox)
    bob = people("bob")
    own = {**Form((await bob.get(f"/{ticket}")).text).sent, "action": "decline"}
    foreign = Form((await bob.get(f"/{other}")).text).sent["token"]
    adas = Form((await people("ada").get(f"/{ticket}")).text).sent["token"]
    bad = [
        ({}, {**own, "token": ""}),
        ({}, {**own, "token": "x"}),
        ({}, {**own, "token": foreign}),
        ({}, {**own, "token": adas}),
        ({}, {**own, "round": "2"}),
        ({}, {**own, "round": "one"}),
        ({}, {"action": "decline"}),
        ({"origin": "https://evil.example"}, own),
        ({"origin": "null"}, own),
        ({"origin": "http://["}, own),
        ({"sec-fetch-site": "cross-site"}, own),
        ({"sec-fetch-site": "same-site"}, own),
    ]
    for headers, data in bad:
        refused = await bob.post(f"/{ticket}", data=data, headers=headers)
        assert refused.status_code == 403, (headers, data)
    assert (await bob.post(f"/{ticket}", content=b"\xff\xfe=1")).status_code == 403
    assert (await inbox.rows.get(ticket)).status == "waiting"
    good = {"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin"}
    assert (await bob.post(f"/{ticket}", data=own, headers=good)).status_code == 303


async def test_the_page_is_served_only_under_its_own_names():
    inbox = Inbox(MemoryStore(), page="https://ops.example.com/inbox")
    page = inbox.asgi(principal=lambda scope: "ada", hosts=["ops.internal:8443"])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=page)) as browser:
        for host, status in {
            "ops.example.com": 200,
            "ops.internal:8443": 200,
            "localhost:9": 200,
            "[::1]:9": 200,
            "evil.example": 403,
            "127.0.0.1.evil.example": 403,
        }.items():
            reply = await browser.get("http://x/", headers={"host": host})
            assert reply.status_code == status, host
    assert "page= or hosts=" in reply.text


async def test_every_response_forbids_frames_scripts_and_copies(inbox, people):
    ticket = await put(inbox)
    for path in ("/", f"/{ticket}", "/nothing-here", "/style.css", "/script.js", f"/{ticket}/state", f"/{ticket}/x"):
        headers = (await people("bob").get(path)).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'; script-src 'self';")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


async def test_odd_requests_are_refused(inbox, people):
    ticket = await put(inbox)
    bob = people("bob")
    assert (await bob.put(f"/{ticket}")).status_code == 405
    assert (await bob.post("/")).status_code == 405
    assert (await bob.get("/%2e%2e/%2e%2e/etc/passwd")).status_code == 404
    assert (await bob.post(f"/{ticket}", content=b"x" * (3 * 1024 * 1024))).status_code == 413
    assert (await bob.head(f"/{ticket}")).content == b""
    assert (await bob.get("/?from=999999999999")).status_code == 200


async def test_a_store_that_fails_is_said_and_nothing_more(inbox, people, caplog):
    async def fail(*_, **__):
        raise StoreError("redis://:password@host is down")

    inbox.rows.store.get = fail
    reply = await people("bob").get("/")
    assert (reply.status_code, "password" in reply.text) == (503, False)


# --- hostile words ------------------------------------------------------------------------------------------------


async def test_hostile_words_stay_words(inbox, people):
    ticket = await put(
        inbox,
        {
            MARKUP: form(MARKUP + BIDI, HOSTILE),
            "w": {"method": "sampling/createMessage", "params": {"messages": MARKUP}},
        },
        name=MARKUP,
        server=BIDI,
        on_behalf=MARKUP,
        arguments={MARKUP: BIDI},
        warning=MARKUP,
    )
    for path in ("/", f"/{ticket}"):
        page = await people("bob").get(path)
        tags = {tag for tag, _ in Form(page.text).tags}
        assert not tags & {"img", "b2", "style"}
        assert page.text.count("<script") == 1
        assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\x00\x1b]", page.text)


async def test_a_megabyte_is_cut_and_said_to_be(inbox, people):
    ticket = await put(inbox, {"q": form("x" * 1_000_000)})
    page = (await people("bob").get(f"/{ticket}")).text
    assert len(page) < 200_000
    assert "900,000 more characters" in page
    assert len((await people("bob").get("/")).text) < 10_000


# --- mounting -----------------------------------------------------------------------------------------------------


async def test_it_is_mounted_in_starlette_and_fastapi(inbox):
    from fastapi import FastAPI
    from starlette.applications import Starlette
    from starlette.routing import Mount

    ticket = await put(inbox)
    page = inbox.asgi(principal=lambda scope: "ada")
    fast = FastAPI()
    fast.mount("/ops/inbox", page)
    for outer in (fast, Starlette(routes=[Mount("/ops/inbox", page)])):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=outer), base_url="http://localhost") as browser:
            listed = await browser.get("/ops/inbox/")
            assert f'href="/ops/inbox/{ticket}"' in listed.text
            assert (await browser.get("/ops/inbox/style.css")).headers["content-type"].startswith("text/css")
            shown = Form((await browser.get(f"/ops/inbox/{ticket}?from=mail")).text)
            assert ("script", {"src": "/ops/inbox/script.js", "defer": None}) in shown.tags
    done = await sent(
        httpx.AsyncClient(transport=httpx.ASGITransport(app=fast), base_url="http://localhost/ops/inbox"),
        ticket,
        action="cancel",
    )
    assert done.headers["location"] == f"/ops/inbox/{ticket}"


async def test_a_long_list_has_pages(inbox, people):
    for number in range(150):
        await put(inbox, name=f"tool{number}")
    first = (await people("bob").get("/")).text
    assert "150 questions waiting" in first
    assert first.count("<li>") == 100
    (further,) = re.findall(r'href="(/\?from=\d+)"', first)
    assert (await people("bob").get(further)).text.count("<li>") == 50
