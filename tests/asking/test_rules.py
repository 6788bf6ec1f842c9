"""The rules of replay: which answer belongs to which question, and what is asked again."""

import asyncio
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, field_validator

from antiphon import Ask, Context, Declined, InputRequired, Seal, Server, ask, input_required

from .driver import accept, cancel, converse, decline, in_turn, leg, roots, sampled, tool
from .handlers import ANSWERS, KEY, Colour, asks, gathered


async def test_a_changed_question_is_asked_again(app: Server) -> None:
    price = {"now": 10}

    @app.tool
    async def buy(ctx: Context) -> str:
        sure = await ctx.confirm(f"Pay {price['now']}?", key="pay")
        note = await ctx.elicit("A note?", str, key="note")
        return f"{price['now']} {sure} {note.unwrap()}"

    first = await leg(app, *tool("buy"))
    second = await leg(app, *tool("buy"), state=first.token, responses={"pay": accept(confirm=True)})
    assert list(second.questions) == ["note"]
    price["now"] = 20
    third = await leg(app, *tool("buy"), state=second.token, responses={"note": accept(value="hi")})
    assert third.questions["pay"]["params"]["message"] == "Pay 20?"
    last = await leg(app, *tool("buy"), state=third.token, responses={"pay": accept(confirm=False)})
    assert last.result["content"][0]["text"] == "20 False hi"


async def test_an_answer_to_the_question_before_it_changed_does_not_count(app: Server) -> None:
    price = {"now": 10}

    @app.tool
    async def buy(ctx: Context) -> str:
        return str(await ctx.confirm(f"Pay {price['now']}?", key="pay"))

    first = await leg(app, *tool("buy"))
    price["now"] = 10_000
    second = await leg(app, *tool("buy"), state=first.token, responses={"pay": accept(confirm=True)})
    assert second.questions["pay"]["params"]["message"] == "Pay 10000?"


async def test_a_question_that_changes_on_every_round_fails_with_an_error_that_names_it(
    app: Server, logged: pytest.LogCaptureFixture
) -> None:
    @app.tool
    async def hasty(ctx: Context) -> str:
        return str(await ctx.confirm(f"It is {time.time_ns()}. Go on?", key="go-on"))

    told = await converse(app, *tool("hasty"), answers={"go-on": accept(confirm=True)}, max_rounds=6)
    assert told.error["code"] == -32603
    assert "'go-on'" in told.error["message"]
    assert "ctx.now()" in told.error["message"]
    assert len(told.asked) <= 3
    assert "'go-on'" in logged.text


async def test_one_unstable_question_among_stable_ones_is_named(app: Server) -> None:
    @app.tool
    async def hasty(ctx: Context) -> str:
        return str(
            await asyncio.gather(ctx.confirm("Sure?", key="steady"), ctx.confirm(f"{time.time_ns()}?", key="hasty"))
        )

    answers = {"hasty": accept(confirm=True), "steady": accept(confirm=True)}
    told = await converse(app, *tool("hasty"), answers=answers, max_rounds=6)
    assert "'hasty'" in told.error["message"]
    assert told.asked[1:] == [["hasty"]] * (len(told.asked) - 1)


async def test_time_and_chance_from_the_context_are_the_same_on_every_round(app: Server) -> None:
    @app.tool
    async def punctual(ctx: Context) -> str:
        now, later, dice, other = await ctx.now(), await ctx.now(), await ctx.random(), await ctx.random()
        assert now.tzinfo is UTC
        assert 0 <= dice < 1
        assert dice != other
        first = await ctx.confirm(f"{now.isoformat()} {dice}?", key="first")
        second = await ctx.confirm(f"{later.isoformat()} {other}?", key="second")
        return f"{first} {second} {now.isoformat()} {dice}"

    told = await converse(app, *tool("punctual"), answers=dict.fromkeys(("first", "second"), accept(confirm=True)))
    assert told.asked == [["first"], ["second"]]
    assert told.text == "True True " + told.messages[0][0].rstrip("?")


async def test_the_time_is_the_servers_clock_when_first_asked() -> None:
    clock = [1_800_000_000.25]
    app = Server("clock", clock=lambda: clock[0])

    @app.tool
    async def punctual(ctx: Context) -> str:
        now = await ctx.now()
        await ctx.confirm("Go on?")
        return now.isoformat()

    first = await leg(app, *tool("punctual"))
    clock[0] += 100
    last = await leg(app, *tool("punctual"), state=first.token, responses={"confirm": accept(confirm=True)})
    assert last.result["content"][0]["text"] == datetime.fromtimestamp(1_800_000_000.25, UTC).isoformat()


async def test_an_answer_that_nobody_asked_for_is_ignored(app: Server) -> None:
    @app.tool
    async def wipe(ctx: Context) -> str:
        return f"{await ctx.confirm('First?', key='first')} {await ctx.confirm('Second?', key='second')}"

    yes = {"first": accept(confirm=True), "second": accept(confirm=True)}
    first = await leg(app, *tool("wipe"), responses=yes)
    assert list(first.questions) == ["first"]
    second = await leg(app, *tool("wipe"), state=first.token, responses=yes)
    assert list(second.questions) == ["second"]
    last = await leg(app, *tool("wipe"), state=second.token, responses={"second": accept(confirm=False)})
    assert last.result["content"][0]["text"] == "True False"


async def test_a_given_answer_cannot_be_taken_back_by_sending_another(app: Server) -> None:
    @app.tool
    async def wipe(ctx: Context) -> str:
        return f"{await ctx.confirm('First?', key='first')} {await ctx.confirm('Second?', key='second')}"

    first = await leg(app, *tool("wipe"))
    second = await leg(app, *tool("wipe"), state=first.token, responses={"first": decline()})
    late = {"first": accept(confirm=True), "second": decline()}
    last = await leg(app, *tool("wipe"), state=second.token, responses=late)
    assert last.result["content"][0]["text"] == "False False"


@pytest.mark.parametrize(
    ("shape", "wrong"),
    [
        (int, "7"),
        (int, 7.5),
        (int, True),
        (int, None),
        (str, 7),
        (bool, "true"),
        (float, "0.5"),
        (Literal["a", "b"], "c"),
        (Colour, "green"),
        (["small", "large"], "medium"),
        (Annotated[int, msgspec.Meta(ge=1, le=9)], 10),
        (Annotated[str, msgspec.Meta(max_length=3)], "toolong"),
        (list[Literal["a", "b"]], ["a", "c"]),
        (list[Literal["a", "b"]], "a"),
    ],
    ids=repr,
)
async def test_an_invalid_answer_is_asked_for_again(app: Server, shape: object, wrong: object) -> None:
    @app.tool
    async def choose(ctx: Context) -> str:
        return repr(await ctx.elicit("Which?", shape, key="choice"))

    told = await converse(app, *tool("choose"), answers={"choice": in_turn(accept(value=wrong), decline())})
    assert (told.asked, told.text) == ([["choice"], ["choice"]], repr(Declined()))


async def test_an_answer_that_the_class_itself_refuses_is_asked_for_again(app: Server) -> None:
    @dataclass
    class Even:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("odd")

    @app.tool
    async def choose(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", Even)).unwrap().number)

    told = await converse(app, *tool("choose"), answers={"even": in_turn(accept(number=3), accept(number=4))})
    assert (told.asked, told.text) == ([["even"], ["even"]], "4")


@pytest.mark.parametrize("wrong", [{}, [], None, "file:///a", {"roots": None}, {"roots": [{}]}, accept(roots=[])])
async def test_what_are_no_roots_is_asked_for_again(app: Server, wrong: object) -> None:
    @app.tool
    async def look(ctx: Context) -> str:
        return str(len(await ctx.roots()))

    told = await converse(app, *tool("look"), answers={"roots": in_turn(wrong, roots("file:///a"))})
    assert (told.asked, told.text) == ([["roots"], ["roots"]], "1")


@pytest.mark.parametrize(
    "wrong", [{}, [], None, "text", decline(), accept(text="x"), {"role": "assistant"}, {**sampled("x"), "content": 5}]
)
async def test_what_is_no_completion_is_asked_for_again(app: Server, wrong: object) -> None:
    @app.tool
    async def summarize(ctx: Context) -> str:
        return (await ctx.sample("Summarize", max_tokens=5, key="summary")).text

    told = await converse(app, *tool("summarize"), answers={"summary": in_turn(wrong, sampled("fine"))})
    assert (told.asked, told.text) == ([["summary"], ["summary"]], "fine")


@pytest.mark.parametrize("refusal", [decline(), cancel()])
async def test_a_refusal_is_recorded_and_not_asked_again(app: Server, refusal: object) -> None:
    @app.tool
    async def plan(ctx: Context) -> str:
        first = await ctx.elicit("First?", str, key="first")
        second = await ctx.elicit("Second?", str, key="second")
        third = await ctx.elicit("Third?", str, key="third")
        return " ".join(answer.action for answer in (first, second, third))

    answers = {"first": refusal, "second": accept(value="x"), "third": refusal}
    told = await converse(app, *tool("plan"), answers=answers)
    assert told.asked == [["first"], ["second"], ["third"]]
    assert told.text == f"{refusal['action']} accept {refusal['action']}"  # type: ignore[index]


async def test_an_answer_whose_question_is_not_reached_in_a_round_is_kept(app: Server) -> None:
    replied = asyncio.Event()

    @app.tool
    async def uneven(ctx: Context) -> str:
        async def swift() -> str:
            return await asks(ctx, "a") + await asks(ctx, "c")

        async def slow() -> str:
            if ctx.round > 1:
                await replied.wait()
            return await asks(ctx, "b")

        return "".join(await gathered(swift(), slow()))

    first = await leg(app, *tool("uneven"))
    assert sorted(first.questions) == ["a", "b"]
    second = await leg(app, *tool("uneven"), state=first.token, responses={"a": ANSWERS["a"], "b": ANSWERS["b"]})
    assert sorted(second.questions) == ["c"]
    replied.set()
    last = await leg(app, *tool("uneven"), state=second.token, responses={"c": ANSWERS["c"]})
    assert last.result.get("content") == [{"type": "text", "text": "ACB"}]


def release(*keys: str) -> Server:
    """A release of a tool that asks for these, one after the other."""
    app = Server("release", seal=Seal(KEY))

    @app.tool
    async def connect(ctx: Context) -> str:
        return " ".join([await asks(ctx, key) for key in keys])

    @app.tool
    async def unnamed(ctx: Context) -> str:
        return " ".join([(await ctx.elicit(f"{key}?", str)).unwrap() for key in keys])

    return app


async def test_a_newer_release_that_asks_something_else_first_loses_no_answer() -> None:
    old, new = release("a", "b"), release("c", "a", "b")
    told = await converse([old, new, new, new], *tool("connect"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a"], ["c"], ["b"]], "C A B")


async def test_a_newer_release_finds_answers_though_their_automatic_names_moved() -> None:
    old, new = release("a", "b"), release("c", "a", "b")
    first = await leg(old, *tool("unnamed"))
    (name,) = first.questions
    second = await leg(old, *tool("unnamed"), state=first.token, responses={name: accept(value="A")})
    assert [question["params"]["message"] for question in second.questions.values()] == ["b?"]
    (name,) = second.questions
    third = await leg(new, *tool("unnamed"), state=second.token, responses={name: accept(value="B")})
    assert [question["params"]["message"] for question in third.questions.values()] == ["c?"]
    (name,) = third.questions
    last = await leg(new, *tool("unnamed"), state=third.token, responses={name: accept(value="C")})
    assert last.result.get("content") == [{"type": "text", "text": "C A B"}]


async def test_a_middleware_and_the_log_see_one_entry_per_round(app: Server, logged: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[int, str]] = []

    @app.middleware
    async def watch(ctx, proceed):
        result = await proceed(ctx)
        seen.append((ctx.round, ctx.flow))
        return result

    @app.tool
    async def plan(ctx: Context) -> str:
        return await asks(ctx, "a") + await asks(ctx, "b")

    await converse(app, *tool("plan"), answers=ANSWERS)
    await converse(app, *tool("plan"), answers=ANSWERS)
    assert [number for number, _ in seen] == [1, 2, 3, 1, 2, 3]
    flows = [flow for _, flow in seen]
    assert len(set(flows[:3])) == len(set(flows[3:])) == 1
    assert len(set(flows)) == 2
    entries = [record for record in logged.records if hasattr(record, "mcp_round")]
    assert [(record.mcp_round, record.mcp_flow) for record in entries] == seen  # type: ignore[attr-defined]
    assert [record.mcp_result for record in entries] == ["input_required", "input_required", "complete"] * 2  # type: ignore[attr-defined]


async def test_a_middleware_that_asks_is_answered_and_takes_nothing_down(app: Server) -> None:
    @app.middleware
    async def gate(ctx, proceed):
        if ctx.method == "tools/call":
            await ctx.confirm("May this tool run?", key="gate")
        return await proceed(ctx)

    @app.tool
    async def work() -> str:
        return "worked"

    first = await leg(app, *tool("work"))
    assert first.asks or first.reply["error"]["code"] == -32603


async def test_the_flow_is_the_same_on_every_round_and_differs_between_calls(app: Server) -> None:
    flows: list[str] = []

    @app.tool
    async def work(ctx: Context) -> str:
        flows.append(ctx.flow)
        return await asks(ctx, "a")

    await converse(app, *tool("work"), answers=ANSWERS)
    await converse(app, *tool("work"), answers=ANSWERS)
    assert flows[0] == flows[1] != flows[2] == flows[3]


async def test_the_process_is_no_part_of_a_conversation(app: Server) -> None:
    """Every leg on a fresh instance, and nothing but the token between them."""

    def fresh() -> Server:
        server = Server("fresh", seal=Seal(KEY))

        @server.tool
        async def work(ctx: Context) -> str:
            dice = await ctx.random()
            made = await ctx.step("pid", os.getpid)
            answers = [await asks(ctx, key) for key in "abc"]
            return f"{''.join(answers)} {made} {dice}"

        return server

    told = await converse([fresh() for _ in range(4)], *tool("work"), answers=ANSWERS)
    assert told.asked == [["a"], ["b"], ["c"]]
    assert told.text.startswith(f"ABC {os.getpid()} 0.")


# --- keys ---------------------------------------------------------------------------------------------------------


async def test_the_same_words_under_a_key_and_without_one_are_two_questions(app: Server) -> None:
    @app.tool
    async def publish(ctx: Context) -> str:
        delete, notify = await asyncio.gather(ctx.confirm("Are you sure?"), ctx.confirm("Are you sure?", key="notify"))
        return f"delete {delete}, notify {notify}"

    answers = {"notify": accept(confirm=True), "confirm": in_turn(None, accept(confirm=False))}
    told = await converse(app, *tool("publish"), answers=answers)
    assert told.asked == [["confirm", "notify"], ["confirm"]]
    assert told.text == "delete False, notify True"


@pytest.mark.parametrize("returned", [True, False])
@pytest.mark.parametrize("read", [True, False])
async def test_an_answer_given_under_a_key_does_not_move_to_a_question_without_one(
    app: Server, returned: bool, read: bool
) -> None:
    @app.tool
    async def publish(ctx: Context) -> Any:
        if ctx.round == 1 or (read and not returned):
            if returned:
                return input_required({"confirm": ask.confirm("Are you sure?")})
            assert await ctx.confirm("Are you sure?", key="confirm")
            return f"{await ctx.confirm('Are you sure?')}"
        return f"{await ctx.confirm('Are you sure?')}"

    first = await leg(app, *tool("publish"))
    second = await leg(app, *tool("publish"), state=first.token, responses={"confirm": accept(confirm=True)})
    assert second.asks


async def test_an_answer_given_without_a_key_does_not_count_under_one(app: Server) -> None:
    @app.tool
    async def publish(ctx: Context) -> str:
        return f"{await ctx.confirm('Are you sure?', key=None if ctx.round == 1 else 'confirm')}"

    first = await leg(app, *tool("publish"))
    second = await leg(app, *tool("publish"), state=first.token, responses={"confirm": accept(confirm=True)})
    assert second.asks


async def test_an_answer_does_not_move_from_one_key_to_another(app: Server) -> None:
    @app.tool
    async def publish(ctx: Context) -> str:
        names = ("a", "b") if ctx.round == 1 else ("b", "a")
        return " ".join([f"{key} {await ctx.confirm('Are you sure?', key=key)}" for key in names])

    answers = {"a": accept(confirm=True), "b": accept(confirm=False)}
    told = await converse(app, *tool("publish"), answers=answers)
    assert told.text == "b False a True"


# --- why an answer was not accepted -------------------------------------------------------------------------------


@dataclass
class Span:
    begin: int
    end: int

    def __post_init__(self) -> None:
        if self.end <= self.begin:
            raise ValueError("end must be after begin")


def spans(app: Server) -> Server:
    @app.tool
    async def awaiting(ctx: Context) -> str:
        return repr((await ctx.elicit("When?", Span, key="when")).unwrap())

    @app.tool
    async def returning(ctx: Context) -> str | InputRequired:
        span = ctx.accepted("when", Span)
        return input_required({"when": ask.form("When?", Span)}) if span is None else repr(span)

    @app.tool
    async def declaring(when: Annotated[Span, Ask("When?")]) -> str:
        return repr(when)

    @app.tool
    def in_a_thread(ctx: Context) -> str:
        return repr(ctx.sync.elicit("When?", Span, key="when").unwrap())

    return app


@pytest.mark.parametrize("style", ["awaiting", "returning", "declaring", "in_a_thread"])
async def test_the_reason_why_an_answer_is_not_accepted_stands_before_the_question(
    app: Server, logged: pytest.LogCaptureFixture, style: str
) -> None:
    answers = in_turn(accept(begin=5, end=1), accept(begin=5, end=5), accept(begin=5, end=6))
    told = await converse(spans(app), *tool(style), answers={"when": answers})
    refused = ["Not accepted: end must be after begin\n\nWhen?"]
    assert told.messages == [["When?"], refused, refused]
    assert told.text == "Span(begin=5, end=6)"
    assert logged.text.count("'when' was not accepted: end must be after begin") == 2


async def test_a_field_that_does_not_fit_is_named(app: Server) -> None:
    told = await converse(
        spans(app), *tool("awaiting"), answers={"when": in_turn(accept(begin=1, end="x"), accept(begin=1, end=2))}
    )
    assert told.messages[1] == ["Not accepted: 'end': expected int, got 'x'\n\nWhen?"]


async def test_a_pydantic_validator_gives_its_reason_and_nothing_else(app: Server) -> None:
    class Booking(BaseModel):
        nights: int

        @field_validator("nights")
        @classmethod
        def few(cls, nights: int) -> int:
            if nights > 3:
                raise ValueError("at most three nights")
            return nights

    @app.tool
    async def book(ctx: Context) -> str:
        return f"{(await ctx.elicit('How long?', Booking, key='stay')).unwrap().nights}"

    told = await converse(app, *tool("book"), answers={"stay": in_turn(accept(nights=9), accept(nights=2))})
    assert told.messages[1] == ["Not accepted: 'nights': value error, at most three nights\n\nHow long?"]
    assert told.text == "2"


async def test_a_long_reason_is_cut_and_stays_one_line(app: Server) -> None:
    @dataclass
    class Endless:
        text: str

        def __post_init__(self) -> None:
            if self.text == "no":
                raise ValueError("not\nthis " * 1000)

    @app.tool
    async def work(ctx: Context) -> str:
        return (await ctx.elicit("What?", Endless, key="what")).unwrap().text

    told = await converse(app, *tool("work"), answers={"what": in_turn(accept(text="no"), accept(text="yes"))})
    ((message,),) = told.messages[1:]
    reason, _, question = message.partition("\n\n")
    assert question == "What?"
    assert "\n" not in reason
    assert len(reason) < 350


async def test_a_fault_in_a_class_is_not_shown_to_the_user(app: Server, logged: pytest.LogCaptureFixture) -> None:
    @dataclass
    class Faulty:
        text: str

        def __post_init__(self) -> None:
            if self.text == "no":
                len(5)  # type: ignore[arg-type]

    @app.tool
    async def work(ctx: Context) -> str:
        return (await ctx.elicit("What?", Faulty, key="what")).unwrap().text

    told = await converse(app, *tool("work"), answers={"what": in_turn(accept(text="no"), accept(text="yes"))})
    assert told.messages[1] == ["Not accepted.\n\nWhat?"]
    assert "object of type 'int' has no len()" in logged.text


@pytest.mark.parametrize("response", [7, {}, {"action": "perhaps"}], ids=repr)
async def test_a_response_that_no_user_gave_changes_no_question(app: Server, response: Any) -> None:
    told = await converse(spans(app), *tool("awaiting"), answers={"when": in_turn(response, accept(begin=1, end=2))})
    assert told.messages == [["When?"], ["When?"]]
