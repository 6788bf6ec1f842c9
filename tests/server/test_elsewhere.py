"""Clients that cannot be asked: their questions find a person elsewhere, and the same call goes on."""

import asyncio
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated, Any

import pytest

from antiphon import (
    Accepted,
    Ask,
    Client,
    Context,
    Declined,
    Refused,
    Root,
    Sample,
    Server,
    Text,
    ask,
    input_required,
)
from antiphon.errors import NotAllowed
from antiphon.inbox.rows import Rows
from antiphon.server import elsewhere
from antiphon.stores import MemoryStore
from antiphon.testing.servers import serving

from .desk import ERASE, NO, PAGE, YES, Desk, Ops

ERAS = pytest.mark.parametrize("era", ["2026-07-28", *(["legacy"] if find_spec("antiphon.legacy") else [])])
URL_ONLY = {"elicitation": {"url": {}}}


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def waits(text: str) -> bool:
    return text.startswith("This call is not done yet: a person has to answer first.")


# --- (c) a client that cannot be asked at all ------------------------------------------------------------------------


@ERAS
async def test_the_same_call_goes_on_with_each_answer_and_ends_once(era: str) -> None:
    ops = Ops(Desk())
    async with Client(ops.app, era=era) as client:
        first = await client.call_tool(**ERASE)
        assert first.is_error
        assert waits(first.text)
        assert "Erase 3 records of staging?" in first.text
        await ops.desk.answer()
        second = await client.call_tool(**ERASE)
        assert second.is_error
        assert "Really?" in second.text
        await ops.desk.answer()
        last = await client.call_tool(**ERASE)
    assert (last.is_error, last.text) == (False, "Erased staging")
    assert (ops.erased, ops.counted) == (["staging"], ["staging"])
    assert [(row.round, row.id) for row in ops.desk.told] == [(1, ops.desk.told[0].id), (2, ops.desk.told[0].id)]


@ERAS
async def test_the_three_styles_ask_elsewhere(era: str) -> None:
    desk = Desk()
    app = Server("ops", elsewhere=desk)

    @app.tool
    async def returns(ctx: Context) -> object:
        sure = ctx.accepted("sure", bool)
        return input_required({"sure": ask.form("Sure?", bool)}, state=7) if sure is None else f"{sure} {ctx.round}"

    @app.tool
    async def declares(sure: Annotated[bool, Ask("Sure?")]) -> str:
        return str(sure)

    @app.tool
    def plain(ctx: Context) -> str:
        return str(ctx.sync.confirm("Sure?"))

    async with Client(app, era=era) as client:
        for name, answer, text in [
            ("returns", "value", "True 2"),
            ("declares", "value", "True"),
            ("plain", "confirm", "True"),
        ]:
            assert waits((await client.call_tool(name)).text)
            await desk.answer({"action": "accept", "content": {answer: True}})
            assert (await client.call_tool(name)).text == text


async def test_a_call_that_waits_says_the_same_again_and_does_nothing() -> None:
    ops = Ops(Desk())
    first = await ops.send()
    for _ in range(3):
        assert (await ops.send())["result"] == first["result"]
    assert (len(ops.counted), len(ops.desk.told)) == (1, 1)
    text, row = first["result"]["content"][0]["text"], ops.desk.told[0]
    assert f"{PAGE}/{row.id}" in text
    assert "same arguments" in text
    assert first["result"]["_meta"][elsewhere.WAITING]["page"] == f"{PAGE}/{row.id}"


@ERAS
async def test_parallel_questions_stand_in_one_row(era: str) -> None:
    desk = Desk()
    app = Server("ops", elsewhere=desk)

    @app.tool
    async def both(ctx: Context) -> str:
        return str(await asyncio.gather(ctx.confirm("One?", key="one"), ctx.confirm("Two?", key="two")))

    async with Client(app, era=era) as client:
        await client.call_tool("both")
        row = desk.told[0]
        await desk.rows.answer(row.id, 1, {"one": YES, "two": NO}, "ada")
        assert (await client.call_tool("both")).text == "[True, False]"


@ERAS
@pytest.mark.parametrize(
    ("response", "text"), [({"action": "decline"}, "Kept"), ({"action": "cancel"}, "Kept"), (NO, "Kept")]
)
async def test_a_refusal_is_an_answer(era: str, response: Any, text: str) -> None:
    ops = Ops(Desk())
    async with Client(ops.app, era=era) as client:
        await client.call_tool(**ERASE)
        await ops.desk.answer(response)
        assert (await client.call_tool(**ERASE)).text == text
    assert not ops.erased


async def test_a_withdrawn_question_is_asked_anew() -> None:
    ops = Ops(Desk())
    await ops.send()
    await ops.desk.rows.withdraw(ops.desk.told[0].id)
    assert waits(await ops.text())
    assert len({row.id for row in ops.desk.told}) == 2


async def test_an_expired_question_is_asked_anew_and_takes_no_answer() -> None:
    clock = Clock()
    ops = Ops(Desk(MemoryStore(clock=clock), clock=clock))
    await ops.send()
    clock.now += Desk.lasts + 1
    with pytest.raises(Exception, match="over"):
        await ops.desk.answer()
    assert waits(await ops.text())
    assert len({row.id for row in ops.desk.told}) == 2
    assert not ops.erased


async def test_a_question_waits_as_long_as_it_says() -> None:
    clock = Clock()
    desk = Desk(MemoryStore(clock=clock), clock=clock)
    app = Server("ops", elsewhere=desk)

    @app.tool
    async def short(ctx: Context) -> str:
        return str(await ctx.confirm("Sure?", ttl=30))

    async with Client(app) as client:
        await client.call_tool("short")
    assert desk.told[0].until == clock.now + 30


# --- exactly once ----------------------------------------------------------------------------------------------------


async def test_of_many_requests_one_goes_on_and_the_others_get_its_result() -> None:
    ops = Ops(Desk(patience=10))
    begun, may_end = asyncio.Event(), asyncio.Event()

    @ops.app.tool
    async def slow(ctx: Context) -> str:
        if await ctx.confirm("Sure?"):
            ops.erased.append("slow")
            begun.set()
            await may_end.wait()
        return "Done"

    call = {"name": "slow", "arguments": {}}
    await ops.send(params=call)
    await ops.desk.answer()
    calls = [asyncio.create_task(ops.text(call)) for _ in range(20)]
    await begun.wait()
    may_end.set()
    texts = sorted(await asyncio.gather(*calls), key=len)
    assert texts[0] == "Done"
    assert all(text.startswith("Done(This is the result") for text in texts[1:])
    assert ops.erased == ["slow"]


async def test_a_request_beside_the_one_that_goes_on_is_told_so_when_patience_ends() -> None:
    ops = Ops(Desk())
    begun, may_end = asyncio.Event(), asyncio.Event()

    @ops.app.tool
    async def slow(ctx: Context) -> str:
        if await ctx.confirm("Sure?"):
            begun.set()
            await may_end.wait()
        return "Done"

    call = {"name": "slow", "arguments": {}}
    await ops.send(params=call)
    await ops.desk.answer()
    first = asyncio.create_task(ops.text(call))
    await begun.wait()
    assert "is carrying it out now" in await ops.text(call)
    may_end.set()
    assert await first == "Done"


async def test_the_result_is_given_again_for_a_minute_and_then_a_person_is_asked_anew() -> None:
    clock = Clock()
    ops = Ops(Desk(MemoryStore(clock=clock), clock=clock))
    for _ in range(2):
        await ops.send()
        await ops.desk.answer()
    assert await ops.text() == "Erased staging"
    assert "was not run again" in await ops.text()
    clock.now += elsewhere.AGAIN + 1
    assert waits(await ops.text())
    assert ops.erased == ["staging"]
    assert len({row.id for row in ops.desk.told}) == 2


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_answers_are_spent_when_the_handler_does_not_end(how: str) -> None:
    ops = Ops(Desk())
    begun, tries = asyncio.Event(), []

    @ops.app.tool
    async def breaks(ctx: Context) -> str:
        if await ctx.confirm("Sure?"):
            tries.append(1)
            begun.set()
            if how == "fails":
                raise OSError("no disk")
            await asyncio.Event().wait()
        return "Done"

    call = {"name": "breaks", "arguments": {}}
    await ops.send(params=call)
    await ops.desk.answer()
    first = asyncio.create_task(ops.send(params=call))
    await begun.wait()
    if how == "is cancelled":
        first.cancel()
    await asyncio.wait({first})
    await ops.desk.ended()
    assert waits(await ops.text(call))
    assert tries == [1]


async def test_answers_are_spent_when_the_process_dies_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    ops = Ops(Desk(MemoryStore(clock=clock), clock=clock))
    await ops.send()
    await ops.desk.answer()
    row = ops.desk.told[0]
    # What a process leaves behind that was killed while its handler ran: the claim, until it lapses, and the mark.
    await ops.desk.rows.store.add(f"antiphon:parked:taken:{row.id}:1", ttl=1000)
    await ops.desk.rows.store.add(f"antiphon:step:parked:{row.id}:1", b"dead", ttl=30)
    assert "is carrying it out now" in await ops.text()
    clock.now += 31
    assert waits(await ops.text())
    assert len({row.id for row in ops.desk.told}) == 2
    assert not ops.erased


async def test_two_first_requests_at_once_make_one_row() -> None:
    ops = Ops(Desk())
    texts = await asyncio.gather(*(ops.text() for _ in range(10)))
    assert len(set(texts)) == 1
    assert len(ops.desk.told) == 1
    assert [row.id for row in await ops.desk.rows.waiting()] == [ops.desk.told[0].id]


# --- whose call it is ------------------------------------------------------------------------------------------------


async def test_a_row_is_found_by_the_same_call_of_the_same_principal_only() -> None:
    ops = Ops(Desk())
    await ops.send(principal="ada")
    await ops.desk.answer()
    other = {"name": "erase", "arguments": {"what": "production"}}
    assert "Erase 3" in await ops.text(principal="bob")
    assert "Erase 3" in await ops.text()
    assert "Erase 3" in await ops.text(other, principal="ada")
    assert "Really?" in await ops.text(principal="ada")
    assert [row.who for row in ops.desk.told] == ["ada", "bob", None, "ada", "ada"]


async def test_only_the_principal_who_was_asked_may_answer() -> None:
    ops = Ops(Desk())
    await ops.send(principal="ada")
    with pytest.raises(NotAllowed):
        await ops.desk.answer(by="mallory")
    assert waits(await ops.text(principal="ada"))


async def test_the_store_tells_neither_arguments_nor_answers() -> None:
    seen: dict[str, bytes] = {}

    class Open(MemoryStore):
        async def add(self, key: str, value: bytes = b"", **how: Any) -> bool:
            seen[key] = value
            return await super().add(key, value, **how)

        async def put(self, key: str, value: bytes, **how: Any) -> None:
            seen[key] = value
            await super().put(key, value, **how)

    ops = Ops(Desk(Open()))
    for _ in range(2):
        await ops.send(principal="ada@example.com")
        await ops.desk.answer(by="ada@example.com")
    assert await ops.text(principal="ada@example.com") == "Erased staging"
    everything = b"".join(key.encode() + value for key, value in seen.items())
    assert len(seen) > 4
    assert not any(word in everything for word in (b"staging", b"@example", b"Erase"))


async def test_a_row_is_found_after_a_key_was_replaced() -> None:
    store, old, new = MemoryStore(), "o" * 32, "n" * 32
    before = Ops(Desk(store, keys=[old]))
    await before.send()
    await before.desk.answer()
    after = Ops(Desk(store, keys=[new, old]))
    assert "Really?" in await after.text()
    await after.desk.answer()
    assert await after.text() == "Erased staging"


# --- nothing that a model or a client sends is an answer -------------------------------------------------------------


@pytest.mark.parametrize("capabilities", [{}, URL_ONLY, {"sampling": {}, "roots": {}}])
async def test_an_answer_from_a_client_that_cannot_ask_never_counts(capabilities: Any) -> None:
    ops = Ops(Desk())

    @ops.app.tool("returns")
    async def returns(ctx: Context) -> object:
        if ctx.accepted("confirm", dict) is None and ctx.accepted("confirm", bool) is None:
            return input_required({"confirm": ask.confirm("Sure?")})
        ops.erased.append("returned")
        return "Erased"

    @ops.app.on("resources/read")
    async def raw(params: Any) -> Any:
        if params.get("inputResponses"):
            ops.erased.append("raw")
        return {"contents": []}

    forged = dict.fromkeys(("confirm", "confirm-2", "page-1", "page-2", "value"), YES)
    for name in ("erase", "returns"):
        call = {"name": name, "arguments": {"what": "staging"} if name == "erase" else {}}
        for _ in range(3):
            for extra in (
                {"inputResponses": forged},
                {"inputResponses": forged, "requestState": ops.desk.told and ops.desk.told[0].id},
            ):
                await ops.send(
                    params={**call, **{key: value for key, value in extra.items() if value}},
                    principal="ada",
                    capabilities=capabilities,
                )
    await ops.send("resources/read", {"uri": "a:b", "inputResponses": forged}, capabilities=capabilities)
    assert not ops.erased
    assert all(row.status == "waiting" for row in await ops.desk.rows.waiting())


async def test_an_argument_is_no_answer() -> None:
    desk = Desk()
    app = Server("ops", elsewhere=desk)

    @app.tool
    async def wipe(sure: Annotated[bool, Ask("Sure?")]) -> str:
        return "Wiped" if sure else "Left"

    async with Client(app) as client:
        for arguments in ({}, {"sure": True}, {"sure": YES}):
            assert waits((await client.call_tool("wipe", arguments)).text)


# --- (b) a client that opens pages -----------------------------------------------------------------------------------


def by_header(scope: Any) -> str | None:
    return dict(scope["headers"]).get(b"x-user", b"").decode() or None


@ERAS
async def test_a_client_that_opens_pages_is_sent_to_the_row(era: str) -> None:
    ops = Ops(Desk(patience=10), principal=by_header)
    opened: list[str] = []

    async def open_page(question: Any) -> Any:
        opened.append(f"{question.message} {question.url}")
        await ops.desk.answer()
        return Accepted(None)

    async with (
        serving(lambda _: ops.app.asgi()) as url,
        Client(f"{url}/mcp", elicit_url=open_page, era=era, headers={"x-user": "ada"}) as client,
    ):
        result = await client.call_tool(**ERASE)
    assert result.text == "Erased staging"
    assert ops.erased == ["staging"]
    assert ops.counted == ["staging"]
    page = f"{PAGE}/{ops.desk.told[0].id}"
    assert opened == [f"Erase 3 records of staging? {page}", f"Really? {page}"]


@ERAS
async def test_consent_to_open_the_page_is_no_answer(era: str) -> None:
    ops = Ops(Desk(), principal=by_header)
    async with (
        serving(lambda _: ops.app.asgi()) as url,
        Client(f"{url}/mcp", elicit_url=lambda _: Accepted(None), era=era, headers={"x-user": "ada"}) as client,
    ):
        told = await client.call_tool(**ERASE)
        assert told.is_error
        assert waits(told.text)
        await ops.desk.answer()
        assert "Really?" in (await client.call_tool(**ERASE)).text
    assert not ops.erased


@ERAS
async def test_who_does_not_want_to_open_the_page_declines(era: str) -> None:
    ops = Ops(Desk(), principal=by_header)
    async with (
        serving(lambda _: ops.app.asgi()) as url,
        Client(f"{url}/mcp", elicit_url=lambda _: Declined(), era=era, headers={"x-user": "ada"}) as client,
    ):
        assert (await client.call_tool(**ERASE)).text == "Kept"
    assert (await ops.desk.rows.get(ops.desk.told[0].id)).answered_by == "ada"


async def test_a_page_is_not_opened_for_a_user_who_is_not_known() -> None:
    ops = Ops(Desk())
    async with Client(ops.app, elicit_url=lambda _: pytest.fail("it was sent to a page")) as client:
        assert waits((await client.call_tool(**ERASE)).text)


async def test_a_page_that_a_handler_asks_for_is_the_clients_own_if_it_opens_pages() -> None:
    desk = Desk()
    app = Server("ops", elsewhere=desk)

    @app.tool
    async def link(ctx: Context) -> str:
        return type(await ctx.elicit_url("Sign in", "https://example.com/login")).__name__

    async with Client(
        app, elicit_url=lambda question: Accepted(None) if "login" in question.url else Declined()
    ) as client:
        assert (await client.call_tool("link")).text == "Accepted"
    async with Client(app, elicit=lambda _: pytest.fail("it was asked")) as client:
        told = await client.call_tool("link")
        assert waits(told.text)
        assert "example.com/login" not in told.text
        await desk.answer({"action": "accept"})
        assert (await client.call_tool("link")).text == "Accepted"


# --- (a) and (d) -----------------------------------------------------------------------------------------------------


@ERAS
async def test_a_client_that_shows_forms_is_asked_itself(era: str) -> None:
    ops = Ops(Desk())
    async with Client(ops.app, elicit=lambda _: Accepted(True), era=era) as client:
        assert (await client.call_tool(**ERASE)).text == "Erased staging"
    assert not ops.desk.told


@ERAS
async def test_a_place_that_always_asks_believes_no_form_of_a_client(era: str) -> None:
    desk = Desk()
    desk.always = True
    ops = Ops(desk)

    @ops.app.tool
    async def able(ctx: Context) -> str:
        return str(ctx.client.supports("elicitation"))

    async with Client(ops.app, elicit=lambda _: pytest.fail("the client was asked"), era=era) as client:
        for _ in range(2):
            assert waits((await client.call_tool(**ERASE)).text)
            await desk.answer()
        assert (await client.call_tool(**ERASE)).text == "Erased staging"
        assert (await client.call_tool("able")).text == "True"
    forged = {**ERASE, "arguments": {"what": "x"}, "inputResponses": {"confirm": YES, "confirm-2": YES}}
    for _ in range(3):
        assert waits(await ops.text(forged, capabilities={"elicitation": {"form": {}, "url": {}}}))
    assert ops.erased == ["staging"]


async def test_others_decide_if_the_inbox_names_them() -> None:
    desk = Desk()
    desk.who = "finance"
    ops = Ops(desk)
    assert waits(await ops.text(principal="ada", capabilities=URL_ONLY))  # a page is for the one who was asked
    row = desk.told[0]
    assert (row.who, row.on_behalf) == ("finance", "ada")
    with pytest.raises(NotAllowed):
        await desk.answer(by="ada")
    await desk.rows.answer(row.id, 1, {"confirm": YES}, "bob", groups=["finance"])
    assert "Really?" in await ops.text(principal="ada")


async def test_an_answer_that_the_handlers_own_check_refuses_is_asked_again() -> None:
    desk = Desk()
    app = Server("ops", elsewhere=desk)

    @dataclass
    class Even:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("an odd number")

    @app.tool
    async def pick(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", Even)).unwrap().number)

    async with Client(app) as client:
        await client.call_tool("pick")
        await desk.answer({"action": "accept", "content": {"number": 3}})
        assert "Not accepted: an odd number" in (await client.call_tool("pick")).text
        await desk.answer({"action": "accept", "content": {"number": 4}})
        assert (await client.call_tool("pick")).text == "4"


@ERAS
async def test_sampling_and_roots_are_not_asked_elsewhere(era: str) -> None:
    app = Server("ops", elsewhere=Desk())

    @app.tool
    async def sample(ctx: Context) -> str:
        return str(await ctx.sample("Hi", max_tokens=1))

    @app.tool
    async def roots(ctx: Context) -> str:
        return str(await ctx.roots())

    async with Client(app, era=era) as client:
        for name in ("sample", "roots"):
            with pytest.raises(Refused) as refused:
                await client.call_tool(name)
            assert refused.value.code == -32021


@ERAS
async def test_what_the_client_can_be_asked_comes_first(era: str) -> None:
    desk = Desk()
    app = Server("ops", elsewhere=desk)
    asked: list[str] = []

    @app.tool
    async def mixed(ctx: Context) -> str:
        sure, sample, roots = await asyncio.gather(ctx.confirm("Sure?"), ctx.sample("Hi", max_tokens=1), ctx.roots())
        return f"{sure} {sample.text} {roots[0].uri}"

    def answer(_: object) -> Sample:
        asked.append("sample")
        return Sample(role="assistant", content=Text("Hello"), model="parrot")

    async with Client(app, sample=answer, roots=[Root("file:///work")], era=era) as client:
        assert waits((await client.call_tool("mixed")).text)
        await desk.answer()
        assert (await client.call_tool("mixed")).text == "True Hello file:///work"
    assert asked == ["sample"]


@ERAS
async def test_a_person_a_model_and_a_person_are_asked_in_turn(era: str) -> None:
    desk = Desk()
    app = Server("ops", elsewhere=desk)

    @app.tool
    async def mixed(ctx: Context) -> str:
        one, sample, two = await ctx.confirm("One?"), await ctx.sample("Hi", max_tokens=1), await ctx.confirm("Two?")
        return f"{one} {sample.text} {two}"

    async with Client(app, sample=lambda _: "Hello", era=era) as client:
        assert "One?" in (await client.call_tool("mixed")).text
        await desk.answer()
        assert "Two?" in (await client.call_tool("mixed")).text
        await desk.answer(NO)
        assert (await client.call_tool("mixed")).text == "True Hello False"
    assert [list(row.questions) for row in desk.told] == [["confirm"], ["confirm-2"]]


@pytest.mark.parametrize("style", ["raw", "returned"])
async def test_one_yes_does_not_answer_two_questions_in_the_same_words(style: str) -> None:
    desk = Desk()
    app = Server("ops", elsewhere=desk)
    answers: list[Any] = []
    sure, said = ask.form("Erase the next one?", bool), ask.sample("Hi", max_tokens=1)

    if style == "returned":

        @app.tool
        async def erase(ctx: Context) -> object:
            """Erase one, and another one, which a text goes with."""
            answers.append((ctx.state(), ctx.accepted("sure", bool)))
            state = ctx.state() or 0
            if state == 2:
                return "ended"
            return input_required({"sure": sure, "said": said} if state else {"sure": sure}, state=state + 1)
    else:
        tool = {"name": "erase", "inputSchema": {"type": "object"}}
        app.on("tools/list")(lambda params: {"tools": [tool], "ttlMs": 0, "cacheScope": "public"})

        @app.on("tools/call")
        async def call(params: dict[str, Any]) -> dict[str, Any]:
            given = params.get("inputResponses") or {}
            state = int(params.get("requestState") or 0)
            answers.append((state or None, True if "sure" in given else None))
            if state == 2:
                return {"content": [{"type": "text", "text": "ended"}]}
            asked = {"sure": sure.to_wire(), **({"said": said.to_wire()} if state else {})}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": str(state + 1)}

    async with Client(app, sample=lambda _: "Hello") as client:
        assert waits((await client.call_tool("erase")).text)
        await desk.answer({"action": "accept", "content": {"value": True}})
        assert (await client.call_tool("erase")).text == "ended"
    assert answers == [(None, None), (1, True), (2, None)]


@ERAS
async def test_prompts_and_resources_say_so_in_an_error(era: str) -> None:
    desk = Desk()
    app = Server("ops", elsewhere=desk)

    @app.prompt
    async def write(ctx: Context) -> str:
        return f"Write as {(await ctx.elicit('Who?', str)).unwrap()}"

    @app.resource("notes://{name}")
    async def note(name: str, ctx: Context) -> str:
        return f"{name} {await ctx.confirm('Show it?')}"

    async with Client(app, era=era) as client:
        for call in (lambda: client.get_prompt("write"), lambda: client.read_resource("notes://a")):
            for _ in range(2):
                with pytest.raises(Refused) as refused:
                    await call()
                assert refused.value.code == -32021
                assert waits(refused.value.message)
            field = next(iter(desk.told[-1].questions.values()))["params"]["requestedSchema"]["properties"]
            await desk.answer(
                {"action": "accept", "content": {"value": "Ada"} if "value" in field else {"confirm": True}}
            )
        assert (await client.get_prompt("write")).messages[0].content.text == "Write as Ada"
        assert (await client.read_resource("notes://a")).contents[0].text == "a True"
    assert len(desk.told) == 2


# --- waiting where the person sits -----------------------------------------------------------------------------------


@ERAS
async def test_a_person_at_this_machine_is_waited_for(era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "BEAT", 0.01)
    desk = Desk(patience=10, is_local=True)
    ops = Ops(desk)
    seen: list[tuple[float, str | None]] = []

    async def progress(done: float, _: float | None, message: str | None) -> None:
        seen.append((done, message))
        if len(seen) % 3 == 0:
            await desk.answer()

    @ops.app.tool
    async def changes(items: list[str], ctx: Context) -> str:
        items.append("own")
        await ctx.progress(0.0005)
        await ctx.confirm(f"{len(items)}?")
        await ctx.progress(1)
        return str(await ctx.confirm(f"Still {len(items)}?"))

    async with Client(ops.app, era=era) as client:
        result = await client.call_tool("changes", {"items": ["a"]}, progress=progress)
    assert result.text == "True"
    assert [row.questions["confirm" if row.round == 1 else "confirm-2"]["params"]["message"] for row in desk.told] == [
        "2?",
        "Still 2?",
    ]
    numbers = [done for done, _ in seen]
    assert numbers == sorted(set(numbers))
    assert {message for _, message in seen} == {
        None,
        "Waiting for a person to answer",
    }


async def test_patience_is_for_the_whole_request_and_the_same_call_goes_on() -> None:
    desk = Desk(patience=0.05, is_local=True)
    ops = Ops(desk)
    told = await ops.text()
    assert waits(told)
    assert "browser" in told
    assert "127.0.0.1" not in told
    await desk.answer()
    assert "Really?" in await ops.text()
    await desk.answer()
    assert await ops.text() == "Erased staging"


async def test_a_row_that_ends_while_it_is_waited_for_ends_the_call() -> None:
    desk = Desk(patience=10, is_local=True)
    ops = Ops(desk)
    call = asyncio.create_task(ops.text())
    await desk.asked.wait()
    await desk.rows.withdraw(desk.told[0].id)
    assert "withdrawn" in await call
    assert len(desk.told) == 1


async def test_a_middleware_sees_what_becomes_of_a_call_and_keeps_its_notes() -> None:
    desk = Desk(patience=10, is_local=True)
    app = Server("ops", elsewhere=desk)
    heard: list[str] = []

    @app.middleware
    async def note(ctx: Any, proceed: Any) -> Any:
        ctx.who = "noted"
        result = await proceed(ctx)
        heard.append(f"{ctx.method} {result['resultType']} {ctx.round}")
        return result

    @app.tool
    async def tells(ctx: Context) -> str:
        await ctx.confirm("Sure?")
        return str(ctx.who)  # type: ignore[attr-defined]

    async def answer() -> None:
        await desk.asked.wait()
        await desk.answer()

    async with Client(app) as client:
        result, _ = await asyncio.gather(client.call_tool("tells"), answer())
    assert result.text == "noted"
    assert heard == ["tools/call complete 2"]


async def test_a_middleware_may_try_again() -> None:
    ops = Ops(Desk())
    tries: list[int] = []

    @ops.app.middleware
    async def again(ctx: Any, proceed: Any) -> Any:
        try:
            return await proceed(ctx)
        except OSError:
            return await proceed(ctx)

    @ops.app.tool
    async def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("once")
        return "Done"

    assert await ops.text({"name": "flaky", "arguments": {}}) == "Done"


# --- what it costs others --------------------------------------------------------------------------------------------


async def test_a_client_that_can_be_asked_everything_costs_the_store_nothing() -> None:
    class Broken(Rows):
        def marks(self, value: bytes) -> list[str]:
            raise AssertionError("the rows were looked at")

    desk = Desk()
    desk.rows = Broken(MemoryStore())
    ops = Ops(desk)
    both = {"elicit": lambda _: Accepted(True), "elicit_url": lambda _: Accepted(None)}
    async with Client(ops.app, **both) as client:
        assert (await client.call_tool(**ERASE)).text == "Erased staging"
