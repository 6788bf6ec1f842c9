"""Rounds of one's own: begin, resume, watch, and calls that wait as plain data."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import (
    Accepted,
    Cancelled,
    CannotAnswer,
    Client,
    Complete,
    Context,
    Declined,
    Image,
    InputNeeded,
    Pending,
    Refused,
    Root,
    RoundsExceeded,
    Sample,
    Server,
    Text,
)
from examples import examples

from .scripted import ROOTS, YES, Scripted, asks, done, form, refused, sampling, url

QUESTION = form("Sure?", a=YES)


@pytest.fixture
def app():
    server = Server("waiting")

    @server.tool
    async def book(day: str, ctx: Context) -> str:
        seats = (await ctx.elicit(f"Seats on {day}?", int)).unwrap()
        sure = await ctx.confirm(f"{seats} seats on {day}?")
        return f"{seats} seats on {day}" if sure else "nothing"

    @server.prompt
    async def greet(ctx: Context) -> str:
        return f"Hello {(await ctx.elicit('Name?', str)).unwrap()}"

    @server.resource("note://x")
    async def note(ctx: Context) -> str:
        return f"for {(await ctx.elicit('Name?', str)).unwrap()}"

    return server


def only(pending):
    (key,) = pending.questions
    return key


def unused(_question):
    raise AssertionError("the handlers of this client are not to be asked")


# --- begin and resume ---------------------------------------------------------------------------------------------


async def test_a_call_is_begun_and_resumed_step_by_step(app):
    async with Client(app, elicit=unused) as client:
        first = await client.begin("tools/call", name="book", arguments={"day": "Monday"})
        assert isinstance(first, Pending)
        assert (first.method, first.params) == ("tools/call", {"name": "book", "arguments": {"day": "Monday"}})
        assert first.questions[only(first)]["params"]["message"] == "Seats on Monday?"
        assert first.round == 1
        second = await client.resume(first, {only(first): Accepted(2)})
        assert isinstance(second, Pending)
        assert second.questions[only(second)]["params"]["message"] == "2 seats on Monday?"
        assert second.round == 2
        third = await client.resume(second, {only(second): Accepted({"confirm": True})})
    assert isinstance(third, Complete)
    assert (third.result.text, third.result.rounds) == ("2 seats on Monday", 3)


async def test_a_call_that_asks_nothing_is_complete_at_once():
    async with Client(Scripted(done("hi"))) as client:
        outcome = await client.begin("tools/call", name="greet")
    assert isinstance(outcome, Complete)
    assert (outcome.result.text, outcome.result.rounds) == ("hi", 1)


async def test_prompts_and_resources_wait_too(app):
    async with Client(app, elicit=unused) as client:
        prompt = await client.begin("prompts/get", name="greet")
        done = await client.resume(prompt, {only(prompt): Accepted("Ada")})
        assert done.result.messages[0].content == Text("Hello Ada")
        note = await client.begin("resources/read", uri="note://x")
        done = await client.resume(note, {only(note): Accepted("Ada")})
        assert done.result.text == "for Ada"


async def test_another_client_resumes(app):
    async with Client(app, elicit=unused) as one:
        pending = await one.begin("tools/call", name="book", arguments={"day": "Monday"})
    text = pending.to_json()
    async with Client(app, elicit=unused) as other:
        again = Pending.from_json(text)
        assert again == pending
        outcome = await other.resume(again, {only(again): Declined()})
    assert outcome.result.is_error
    assert "declined" in outcome.result.text


async def test_a_pending_call_can_be_resumed_twice_and_the_server_decides(app):
    async with Client(app, elicit=unused) as client:
        pending = await client.begin("tools/call", name="book", arguments={"day": "Monday"})
        for seats in (2, 3):
            outcome = await client.resume(pending, {only(pending): Accepted(seats)})
            assert outcome.questions[only(outcome)]["params"]["message"] == f"{seats} seats on Monday?"


async def test_a_changed_state_is_refused_by_the_server(app):
    async with Client(app, elicit=unused) as client:
        pending = await client.begin("tools/call", name="book", arguments={"day": "Monday"})
        forged = Pending.from_json(pending.to_json().replace("Monday", "Sunday"))
        with pytest.raises(Refused, match="requestState") as refused:
            await client.resume(forged, {only(forged): Accepted(2)})
    assert refused.value.code == -32602


@pytest.fixture
def owned(live):
    """The URL of a server that tells its callers apart by a header, and a clock of its tokens."""
    clock = [1_000_000.0]
    app = Server("owned", clock=lambda: clock[0])

    @app.tool
    async def paint(ctx: Context) -> str:
        return (await ctx.elicit("Which?", str, key="colour")).unwrap()

    port = live(app.asgi(principal=lambda scope: dict(scope["headers"]).get(b"x-user", b"").decode() or None))
    return f"http://127.0.0.1:{port}/mcp", clock


async def test_a_call_that_another_caller_resumes_is_refused_with_all_that_it_can_be(owned):
    url, _ = owned
    async with Client(url, elicit=unused, headers={"X-User": "ada"}) as client:
        pending = await client.begin("tools/call", name="paint", arguments={})
    async with Client(url, elicit=unused, headers={"X-User": "bob"}) as client:
        with pytest.raises(Refused, match=r"^Invalid or expired requestState\.") as caught:
            await client.resume(pending, {"colour": Accepted("red")})
    for cause in ("expired", "used", "another key or name", "another user began the call", "begin it again"):
        assert cause in str(caught.value)
    assert caught.value.code == -32602


async def test_a_call_that_waited_too_long_is_refused_in_the_same_words(owned):
    url, clock = owned

    async def think(_question):
        clock[0] += 3600
        return Accepted("red")

    async with Client(url, elicit=think) as client:
        with pytest.raises(Refused, match="may have expired"):
            await client.call_tool("paint")


async def test_another_error_of_a_later_round_is_quoted_as_it_is():
    async with Client(Scripted(asks("s", key=form(a=YES)), refused(-32602, "Bad colour"))) as client:
        pending = await client.begin("tools/call", name="x", arguments={})
        with pytest.raises(Refused, match="^Bad colour$"):
            await client.resume(pending, {"key": Accepted({"a": True})})


async def test_answers_by_hand_are_those_of_the_handlers():
    sample = Sample(role="assistant", content=Text("hi"), model="m")
    link = Scripted(
        asks("s", form=QUESTION, url=url(), model=sampling(), roots=ROOTS, no=QUESTION, later=QUESTION, raw=sampling()),
        done(),
    )
    async with Client(link) as client:
        pending = await client.begin("tools/call", name="x")
        await client.resume(
            pending,
            {
                "form": Accepted({"a": True}),
                "url": Accepted(None),
                "model": sample,
                "roots": [Root("file:///a")],
                "no": Declined(),
                "later": Cancelled(),
                "raw": {"role": "assistant", "content": [], "model": "by hand"},
                "unasked": Accepted(1),
            },
        )
    assert link.params[1]["inputResponses"] == {
        "form": {"action": "accept", "content": {"a": True}},
        "url": {"action": "accept"},
        "model": {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"},
        "roots": {"roots": [{"uri": "file:///a"}]},
        "no": {"action": "decline"},
        "later": {"action": "cancel"},
        "raw": {"role": "assistant", "content": [], "model": "by hand"},
    }
    assert link.params[1]["requestState"] == "s"


async def test_answers_by_hand_are_checked_and_completed():
    question = form(a=YES, size={"type": "integer", "default": 3})
    link = Scripted(asks("s", key=question), done())
    async with Client(link) as client:
        pending = await client.begin("tools/call", name="x")
        for wrong in (Accepted({"a": "yes"}), Accepted({}), Accepted(object()), "yes", 7, None, Image(b"")):
            with pytest.raises(CannotAnswer):
                await client.resume(pending, {"key": wrong} if not isinstance(wrong, Image) else {})
        assert len(link.sent) == 1
        await client.resume(pending, {"key": Accepted({"a": True})})
    assert link.params[1]["inputResponses"]["key"]["content"] == {"a": True, "size": 3}


async def test_a_question_without_an_answer_is_named():
    async with Client(Scripted(asks("s", one=QUESTION, two=QUESTION))) as client:
        pending = await client.begin("tools/call", name="x")
        with pytest.raises(CannotAnswer, match="'two'") as raised:
            await client.resume(pending, {"one": Accepted(True)})
    assert raised.value.key == "two"


async def test_a_round_that_asks_nothing_waits_as_well_and_is_resumed_without_answers():
    link = Scripted(asks("again"), done())
    async with Client(link) as client:
        pending = await client.begin("tools/call", name="x")
        assert (pending.questions, pending.state) == ({}, "again")
        assert isinstance(await client.resume(pending), Complete)
    assert link.params[1] == {"name": "x", "requestState": "again"}


async def test_the_limit_of_rounds_holds_across_resumptions():
    async with Client(Scripted(lambda _: asks("s", key=QUESTION)), max_rounds=3) as client:
        pending = await client.begin("tools/call", name="x")
        for _ in range(2):
            pending = Pending.from_json(pending.to_json())
            pending = await client.resume(pending, {"key": Accepted(True)})
        with pytest.raises(RoundsExceeded):
            await client.resume(pending, {"key": Accepted(True)})


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/list", {}),
        ("deploy", {"name": "x"}),
        ("tools/call", {}),
        ("tools/call", {"name": 7}),
        ("tools/call", {"uri": "x"}),
        ("resources/read", {"name": "x"}),
    ],
)
async def test_only_calls_can_be_begun(method, params):
    async with Client(Scripted()) as client:
        with pytest.raises(ValueError, match="call|needs"):
            await client.begin(method, **params)


# --- plain data ---------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)
PENDING = st.builds(
    Pending,
    method=st.just("tools/call"),
    params=st.builds(lambda name, arguments: {"name": name, "arguments": arguments}, st.text(), OBJECTS),
    questions=st.dictionaries(
        st.text(), st.builds(lambda method, params: {"method": method, "params": params}, st.text(), OBJECTS)
    ),
    state=st.none() | st.text(),
    round=st.integers(1, 100),
)


@given(PENDING)
def test_a_pending_call_survives_the_way_through_json(pending):
    text = pending.to_json()
    assert json.loads(text)["params"] == pending.params
    assert Pending.from_json(text) == pending
    assert Pending.from_json(text.encode()) == pending
    assert Pending.from_json(Pending.from_json(text).to_json()) == pending


@examples(300)
@given(st.binary() | st.text().map(str.encode) | JSON.map(lambda value: json.dumps(value).encode()))
def test_what_is_no_pending_call_is_a_clear_error(data):
    with pytest.raises(ValueError, match="pending call|call that can be|needs"):
        Pending.from_json(data)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"version": "1"},
        {"method": "tools/list"},
        {"method": 7},
        {"params": {}},
        {"params": []},
        {"questions": []},
        {"questions": {"a": "what?"}},
        {"questions": {"a": {"params": {}}}},
        {"state": 7},
        {"round": "first"},
    ],
)
def test_a_pending_call_that_was_damaged_is_refused(change):
    whole = json.loads(Pending(method="tools/call", params={"name": "x"}, questions={"a": QUESTION}).to_json())
    assert Pending.from_json(json.dumps(whole))
    with pytest.raises(ValueError):
        Pending.from_json(json.dumps({**whole, **change}))


# --- a client that does not answer by itself ----------------------------------------------------------------------


async def test_without_auto_a_call_that_needs_input_raises_with_the_pending_call(app):
    async with Client(app, auto=False, elicit=unused) as client:
        with pytest.raises(InputNeeded, match="needs input") as raised:
            await client.call_tool("book", {"day": "Monday"})
        pending = raised.value.pending
        second = await client.resume(pending, {only(pending): Accepted(4)})
        last = await client.resume(second, {only(second): Accepted(True)})
        assert last.result.text == "4 seats on Monday"
        for call in (client.get_prompt("greet"), client.read_resource("note://x")):
            with pytest.raises(InputNeeded):
                await call


async def test_without_auto_a_call_that_needs_none_gives_its_result():
    async with Client(Scripted(done("hi")), auto=False) as client:
        assert (await client.call_tool("greet")).text == "hi"


async def test_without_auto_the_capability_is_declared_all_the_same():
    link = Scripted(done())
    async with Client(link, auto=False, elicit=unused) as client:
        await client.call_tool("x")
    assert link.sent[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] == {
        "elicitation": {"form": {}}
    }


# --- watching -----------------------------------------------------------------------------------------------------


def answer(question):
    return Accepted(2) if "Seats" in question.message else Accepted(True)


async def test_the_rounds_of_a_call_are_watched_while_the_handlers_answer(app):
    seen = []
    async with Client(app, elicit=answer) as client:
        async for round_ in client.watch("tools/call", name="book", arguments={"day": "Monday"}):
            messages = [question["params"]["message"] for question in round_.questions.values()]
            seen.append((round_.number, messages, None if round_.result is None else round_.result.text))
    assert seen == [
        (1, ["Seats on Monday?"], None),
        (2, ["2 seats on Monday?"], None),
        (3, [], "2 seats on Monday"),
    ]


async def test_a_watcher_refuses_by_leaving(app):
    asked = []

    def note(question):
        asked.append(question.message)
        return answer(question)

    async with Client(app, elicit=note) as client:
        rounds = client.watch("tools/call", name="book", arguments={"day": "Monday"})
        async for round_ in rounds:
            if round_.number == 2:
                break
        await rounds.aclose()
    assert asked == ["Seats on Monday?"]


async def test_a_watcher_may_answer_instead_of_the_handlers(app):
    async with Client(app, elicit=unused) as client:
        rounds = client.watch("tools/call", name="book", arguments={"day": "Monday"})
        first = await anext(rounds)
        second = await rounds.asend({key: Accepted(7) for key in first.questions})
        last = await rounds.asend({key: {"action": "accept", "content": {"confirm": True}} for key in second.questions})
        assert last.result.text == "7 seats on Monday"
        with pytest.raises(StopAsyncIteration):
            await anext(rounds)


async def test_watching_shows_rounds_that_ask_nothing_and_keeps_the_limit():
    link = Scripted(asks("again"), asks("s", key=QUESTION), done())
    async with Client(link, elicit=lambda _: Accepted(True)) as client:
        rounds = [round_ async for round_ in client.watch("tools/call", name="x")]
    assert [(round_.number, list(round_.questions)) for round_ in rounds] == [(1, []), (2, ["key"]), (3, [])]
    async with Client(Scripted(lambda _: asks("s", key=QUESTION)), elicit=lambda _: Accepted(True)) as client:
        with pytest.raises(RoundsExceeded):
            async for _ in client.watch("tools/call", name="x"):
                pass
