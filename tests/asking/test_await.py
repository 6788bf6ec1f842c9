"""The await style: straight-line code in any control flow, run from the top on every round."""

import asyncio
import contextlib
import itertools
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from random import Random
from typing import Any, Literal

import pytest

from antiphon import (
    Accepted,
    Cancelled,
    Context,
    Declined,
    Message,
    ModelHint,
    ModelPreferences,
    Root,
    Server,
    Tool,
    ToolError,
)

from .driver import accept, cancel, converse, decline, in_turn, leg, prompt, resource, roots, sampled, tool
from .handlers import ANSWERS, Colour, Where, asks, everywhere, gathered, grouped, steps_then_asks, together, turns

# --- what can be asked -------------------------------------------------------------------------------------------


async def test_a_form_is_asked_and_its_answer_comes_back_typed(app: Server) -> None:
    seen: list[object] = []

    @app.tool
    async def provision(name: str, ctx: Context) -> str:
        seen.append(await ctx.elicit(f"Where should {name} live?", Where))
        return "done"

    told = await converse(app, *tool("provision", name="orders"), answers={"where": accept(region="eu")})
    assert told.rounds[0].questions == {
        "where": {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": "Where should orders live?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"region": {"type": "string"}, "replicas": {"type": "integer", "default": 2}},
                    "required": ["region"],
                },
            },
        }
    }
    assert seen == [Accepted(Where("eu", 2))]
    assert told.text == "done"
    assert len(told.rounds) == 2


@pytest.mark.parametrize(
    ("shape", "sent", "value"),
    [
        (bool, True, True),
        (str, "a", "a"),
        (int, 3, 3),
        (float, 0.5, 0.5),
        (Literal["a", "b"], "b", "b"),
        (Colour, "blue", Colour.BLUE),
        (["small", "large"], "large", "large"),
    ],
)
async def test_a_single_value_is_one_field_named_value(app: Server, shape: object, sent: object, value: object) -> None:
    seen: list[object] = []

    @app.tool
    async def choose(ctx: Context) -> None:
        seen.append(await ctx.elicit("Which?", shape, key="choice"))

    told = await converse(app, *tool("choose"), answers={"choice": accept(value=sent)})
    assert list(told.rounds[0].questions["choice"]["params"]["requestedSchema"]["properties"]) == ["value"]
    assert seen == [Accepted(value)]


@pytest.mark.parametrize(("response", "answer"), [(decline(), Declined()), (cancel(), Cancelled())])
async def test_a_refusal_is_an_answer(app: Server, response: object, answer: object) -> None:
    seen: list[object] = []

    @app.tool
    async def choose(ctx: Context) -> str:
        seen.append(await ctx.elicit("Which?", str, key="choice"))
        return "went on"

    told = await converse(app, *tool("choose"), answers={"choice": response})
    assert (told.asked, told.text, seen) == ([["choice"]], "went on", [answer])


@pytest.mark.parametrize(("response", "verb"), [(decline(), "declined"), (cancel(), "cancelled")])
async def test_unwrapping_a_refusal_is_an_error_that_the_model_may_read(
    app: Server, response: object, verb: str
) -> None:
    @app.tool
    async def choose(ctx: Context) -> str:
        return (await ctx.elicit("Which?", str, key="choice")).unwrap()

    told = await converse(app, *tool("choose"), answers={"choice": response})
    assert told.failed
    assert verb in told.text


async def test_a_page_is_asked_for_and_accepting_means_agreeing_to_open_it(app: Server) -> None:
    @app.tool
    async def connect(ctx: Context) -> str:
        return repr(await ctx.elicit_url("Sign in", "https://example.com/in?flow=1", key="signin"))

    told = await converse(app, *tool("connect"), answers={"signin": {"action": "accept"}})
    assert told.rounds[0].questions == {
        "signin": {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "Sign in", "url": "https://example.com/in?flow=1"},
        }
    }
    assert told.text == repr(Accepted(None))
    refused = await converse(app, *tool("connect"), answers={"signin": decline()})
    assert refused.text == repr(Declined())


async def test_a_completion_is_asked_for_with_everything_it_may_carry(app: Server) -> None:
    @app.tool
    async def summarize(ctx: Context) -> str:
        sample = await ctx.sample(
            ["What changed?", Message.assistant("Nothing."), Message.user("Really?")],
            max_tokens=50,
            system="Be brief.",
            temperature=0.5,
            stop=["END"],
            model=ModelPreferences(hints=(ModelHint("small"),), speed_priority=0.9),
            tools=[Tool(name="diff", input_schema={"type": "object"})],
            tool_choice="auto",
            metadata={"trace": "1"},
            key="summary",
        )
        return f"{sample.text} by {sample.model}"

    told = await converse(app, *tool("summarize"), answers={"summary": sampled("A lot.")})
    question = told.rounds[0].questions["summary"]
    assert question["method"] == "sampling/createMessage"
    assert question["params"] == {
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "What changed?"}},
            {"role": "assistant", "content": {"type": "text", "text": "Nothing."}},
            {"role": "user", "content": {"type": "text", "text": "Really?"}},
        ],
        "maxTokens": 50,
        "systemPrompt": "Be brief.",
        "temperature": 0.5,
        "stopSequences": ["END"],
        "modelPreferences": {"hints": [{"name": "small"}], "speedPriority": 0.9},
        "tools": [{"name": "diff", "inputSchema": {"type": "object"}}],
        "toolChoice": {"mode": "auto"},
        "metadata": {"trace": "1"},
    }
    assert told.text == "A lot. by parrot"


async def test_the_roots_are_asked_for(app: Server) -> None:
    seen: list[list[Root]] = []

    @app.tool
    async def look(ctx: Context) -> None:
        seen.append(await ctx.roots())

    told = await converse(app, *tool("look"), answers={"roots": roots("file:///a", "file:///b")})
    assert told.rounds[0].questions == {"roots": {"method": "roots/list", "params": {}}}
    assert seen == [[Root("file:///a"), Root("file:///b")]]


async def test_no_roots_at_all_is_an_answer(app: Server) -> None:
    @app.tool
    async def look(ctx: Context) -> str:
        return str(await ctx.roots())

    told = await converse(app, *tool("look"), answers={"roots": roots()})
    assert (told.asked, told.text) == ([["roots"]], "[]")


async def test_names_on_the_wire_are_readable_and_the_same_on_every_round(app: Server) -> None:
    @app.tool
    async def plan(ctx: Context) -> str:
        first = await ctx.elicit("First?", Where)
        second = await ctx.elicit("Second?", Where)
        colour = await ctx.elicit("Colour?", Colour)
        sure = await ctx.confirm("Sure?")
        named = await ctx.elicit("Named?", int, key="how-many")
        return f"{first.unwrap().region} {second.unwrap().region} {colour.unwrap().value} {sure} {named.unwrap()}"

    answers = {
        "where": accept(region="eu"),
        "where-2": accept(region="us"),
        "colour": accept(value="red"),
        "confirm": accept(confirm=True),
        "how-many": accept(value=4),
    }
    told = await converse(app, *tool("plan"), answers=answers)
    assert told.asked == [["where"], ["where-2"], ["colour"], ["confirm"], ["how-many"]]
    assert told.text == "eu us red True 4"


# --- confirm fails closed ----------------------------------------------------------------------------------------

NOT_A_YES = [
    None,
    True,
    1,
    "yes",
    "accept",
    [],
    ["accept"],
    {},
    {"action": "accept"},
    {"action": "accept", "content": None},
    {"action": "accept", "content": True},
    {"action": "accept", "content": []},
    {"action": "accept", "content": {}},
    {"action": "accept", "content": {"confirm": None}},
    {"action": "accept", "content": {"confirm": 1}},
    {"action": "accept", "content": {"confirm": "true"}},
    {"action": "accept", "content": {"confirm": ["true"]}},
    {"action": "accept", "content": {"value": True}},
    {"action": "accept", "content": {"Confirm": True}},
    {"action": "ACCEPT", "content": {"confirm": True}},
    {"action": ["accept"], "content": {"confirm": True}},
    {"action": {"accept": True}, "content": {"confirm": True}},
    {"action": True, "content": {"confirm": True}},
    {"action": None, "content": {"confirm": True}},
    {"content": {"confirm": True}},
    {"confirm": True},
    {"result": {"action": "accept", "content": {"confirm": True}}},
    sampled("yes"),
    roots("file:///yes"),
]


@pytest.mark.parametrize("response", NOT_A_YES, ids=repr)
async def test_what_is_no_answer_to_a_confirmation_is_asked_again_and_never_a_yes(
    app: Server, response: object
) -> None:
    wiped: list[str] = []

    @app.tool
    async def wipe(ctx: Context) -> str:
        if await ctx.confirm("Really wipe it?"):
            wiped.append("all of it")
            return "wiped"
        return "left alone"

    told = await converse(app, *tool("wipe"), answers={"confirm": in_turn(response, response, decline())})
    assert told.asked == [["confirm"]] * 3
    assert (told.text, wiped) == ("left alone", [])


@pytest.mark.parametrize(
    "response",
    [
        decline(),
        cancel(),
        accept(confirm=False),
        {"action": "decline", "content": {"confirm": True}},
        {"action": "cancel", "content": {"confirm": True}},
    ],
    ids=repr,
)
async def test_only_accepting_and_ticking_confirms(app: Server, response: object) -> None:
    @app.tool
    async def wipe(ctx: Context) -> str:
        return str(await ctx.confirm("Really wipe it?"))

    told = await converse(app, *tool("wipe"), answers={"confirm": response})
    assert (told.asked, told.text) == ([["confirm"]], "False")
    sure = await converse(app, *tool("wipe"), answers={"confirm": accept(confirm=True)})
    assert sure.text == "True"


# --- control flow ------------------------------------------------------------------------------------------------


async def test_a_loop_asks_until_the_answer_is_good(app: Server) -> None:
    @app.tool
    async def guess(ctx: Context) -> str:
        hint = "Guess a number"
        for attempt in range(1, 10):
            number = (await ctx.elicit(hint, int, key="guess")).unwrap()
            if number == 7:
                return f"right after {attempt}"
            hint = "Too low" if number < 7 else "Too high"
        return "given up"

    answers = {
        "guess": accept(value=1),
        "guess-2": accept(value=9),
        "guess-3": accept(value=2),
        "guess-4": accept(value=7),
    }
    told = await converse(app, *tool("guess"), answers=answers)
    assert told.messages == [["Guess a number"], ["Too low"], ["Too high"], ["Too low"]]
    assert told.text == "right after 4"


@pytest.mark.parametrize(("way", "asked"), [("left", ["left"]), ("right", ["right"])])
async def test_a_branch_asks_only_its_own_question(app: Server, way: str, asked: list[str]) -> None:
    @app.tool
    async def walk(ctx: Context) -> str:
        if (await ctx.elicit("Which way?", Literal["left", "right"], key="way")).unwrap() == "left":
            return "L" + (await ctx.elicit("How far left?", str, key="left")).unwrap()
        return "R" + (await ctx.elicit("How far right?", str, key="right")).unwrap()

    answers = {"way": accept(value=way), "left": accept(value="1"), "right": accept(value="1")}
    told = await converse(app, *tool("walk"), answers=answers)
    assert told.asked == [["way"], asked]
    assert told.text == way[0].upper() + "1"


async def test_helpers_several_calls_deep_ask(app: Server) -> None:
    async def name(ctx: Context) -> str:
        return (await ctx.elicit("Name?", str, key="name")).unwrap()

    async def greeting(ctx: Context) -> str:
        return f"Hello {await name(ctx)}"

    class Door:
        async def open(self, ctx: Context) -> str:
            return f"{await greeting(ctx)}, {(await ctx.elicit('Password?', str, key='word')).unwrap()}"

    @app.tool
    async def enter(ctx: Context) -> str:
        return await Door().open(ctx)

    told = await converse(app, *tool("enter"), answers={"name": accept(value="Ada"), "word": accept(value="mellon")})
    assert (told.asked, told.text) == ([["name"], ["word"]], "Hello Ada, mellon")


@together
async def test_parallel_questions_are_one_round(app: Server, together) -> None:
    @app.tool
    async def many(ctx: Context) -> str:
        return "".join(await together(*(asks(ctx, key) for key in "abcd")))

    told = await converse(app, *tool("many"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a", "b", "c", "d"]], "ABCD")


@together
async def test_parallel_questions_are_one_round_though_some_come_a_few_turns_later(app: Server, together) -> None:
    @app.tool
    async def many(ctx: Context) -> str:
        return "".join(await together(*(asks(ctx, key, pause) for pause, key in enumerate("abcdef"))))

    told = await converse(app, *tool("many"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a", "b", "c", "d", "e", "f"]], "ABCDEF")


@together
async def test_parallel_questions_wait_for_each_others_steps(app: Server, together) -> None:
    effects: list[str] = []

    @app.tool
    async def many(ctx: Context) -> str:
        return "".join(await together(asks(ctx, "a"), steps_then_asks(ctx, "b", effects), asks(ctx, "c", 2)))

    told = await converse(app, *tool("many"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a", "b", "c"]], "ABC")
    assert effects == ["b"]


@together
async def test_parallel_steps_in_sequence_finish_before_the_round_ends(app: Server, together) -> None:
    effects: list[str] = []

    async def work(number: int) -> int:
        await asyncio.sleep(0.002)
        effects.append(str(number))
        return number

    async def worker(ctx: Context) -> str:
        done = [await ctx.step(f"step {number}", work, number) for number in range(4)]
        return f"{sum(done)}{await asks(ctx, 'b')}"

    @app.tool
    async def many(ctx: Context) -> str:
        return "".join(await together(asks(ctx, "a"), worker(ctx)))

    told = await converse(app, *tool("many"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a", "b"]], "A6B")
    assert effects == ["0", "1", "2", "3"]


@together
async def test_nested_parallel_questions_are_one_round(app: Server, together) -> None:
    @app.tool
    async def flat(ctx: Context) -> str:
        async def pair(left: str, right: str) -> str:
            return "".join(await together(asks(ctx, left), asks(ctx, right, 1)))

        return "".join(await together(pair("a", "b"), pair("c", "d"), asks(ctx, "e")))

    told = await converse(app, *tool("flat"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a", "b", "c", "d", "e"]], "ABCDE")


@together
async def test_a_round_of_parallel_questions_may_follow_another(app: Server, together) -> None:
    @app.tool
    async def many(ctx: Context) -> str:
        first = await together(asks(ctx, "a"), asks(ctx, "b"))
        second = await together(asks(ctx, "c"), asks(ctx, "d"))
        return "".join([*first, *second, await asks(ctx, "e")])

    told = await converse(app, *tool("many"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a", "b"], ["c", "d"], ["e"]], "ABCDE")


async def test_a_question_in_a_task_groups_body_joins_the_round_of_its_tasks(app: Server) -> None:
    @app.tool
    async def many(ctx: Context) -> str:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(asks(ctx, "a"))
            second = await asks(ctx, "b")
        return task.result() + second

    told = await converse(app, *tool("many"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a", "b"]], "AB")


async def test_questions_of_tasks_and_of_the_handler_itself_are_one_round(app: Server) -> None:
    @app.tool
    async def many(ctx: Context) -> str:
        task = asyncio.create_task(asks(ctx, "a"))
        try:
            second = await asks(ctx, "b")
        finally:
            first = await task
        return first + second

    told = await converse(app, *tool("many"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a", "b"]], "AB")


@together
async def test_answering_some_of_a_round_asks_for_the_rest(app: Server, together) -> None:
    @app.tool
    async def many(ctx: Context) -> str:
        return "".join(await together(asks(ctx, "a"), asks(ctx, "b"), asks(ctx, "c")))

    first = await leg(app, *tool("many"))
    second = await leg(app, *tool("many"), state=first.token, responses={"b": ANSWERS["b"]})
    assert sorted(second.questions) == ["a", "c"]
    third = await leg(app, *tool("many"), state=second.token, responses={"c": ANSWERS["c"]})
    assert sorted(third.questions) == ["a"]
    last = await leg(app, *tool("many"), state=third.token, responses={"a": ANSWERS["a"]})
    assert last.result["content"] == [{"type": "text", "text": "ABC"}]


async def test_finally_runs_on_every_round(app: Server) -> None:
    log: list[str] = []

    @app.tool
    async def careful(ctx: Context) -> str:
        log.append("open")
        try:
            first = await asks(ctx, "a")
            return first + await asks(ctx, "b")
        finally:
            await turns(2)
            log.append("close")

    told = await converse(app, *tool("careful"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a"], ["b"]], "AB")
    assert log == ["open", "close"] * 3


async def test_a_context_manager_that_suppresses_errors_does_not_suppress_the_question(app: Server) -> None:
    @app.tool
    async def careless(ctx: Context) -> str:
        answer = "nothing"
        with contextlib.suppress(Exception):
            answer = await asks(ctx, "a")
        return answer

    told = await converse(app, *tool("careless"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a"]], "A")


async def test_a_broad_except_does_not_catch_the_end_of_a_round(app: Server) -> None:
    caught: list[Exception] = []

    @app.tool
    async def careless(ctx: Context) -> str:
        try:
            return await asks(ctx, "a")
        except Exception as fault:
            caught.append(fault)
            return "deployed without asking"

    told = await converse(app, *tool("careless"), answers=ANSWERS)
    assert (told.asked, told.text, caught) == ([["a"]], "A", [])


async def test_a_handler_that_swallows_the_signal_still_asks(app: Server) -> None:
    @app.tool
    async def stubborn(ctx: Context) -> str:
        try:
            return await asks(ctx, "a")
        except BaseException:
            return "deployed without asking"

    told = await converse(app, *tool("stubborn"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a"]], "A")


async def test_a_handler_that_swallows_the_signal_and_asks_on_asks_both_in_one_round(app: Server) -> None:
    @app.tool
    async def stubborn(ctx: Context) -> str:
        answers = []
        for key in "ab":
            try:
                answers.append(await asks(ctx, key))
            except BaseException:
                answers.append("?")
        return "".join(answers)

    told = await converse(app, *tool("stubborn"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a", "b"]], "AB")


@pytest.mark.parametrize("error", [RuntimeError("on purpose"), ToolError("on purpose")])
async def test_a_handler_that_swallows_the_signal_and_fails_still_asks(app: Server, error: Exception) -> None:
    @app.tool
    async def stubborn(ctx: Context) -> str:
        try:
            return await asks(ctx, "a")
        except BaseException as fault:
            raise error from fault

    told = await converse(app, *tool("stubborn"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a"]], "A")


async def test_gathering_exceptions_as_values_still_asks(app: Server) -> None:
    @app.tool
    async def collecting(ctx: Context) -> str:
        answers = await asyncio.gather(asks(ctx, "a"), asks(ctx, "b"), return_exceptions=True)
        return "".join(map(str, answers))

    told = await converse(app, *tool("collecting"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a", "b"]], "AB")


async def test_a_question_gathered_as_an_exception_is_not_taken_for_a_yes(app: Server) -> None:
    wiped: list[str] = []

    @app.tool
    async def wipe(ctx: Context) -> str:
        (sure,) = await asyncio.gather(ctx.confirm("Wipe?"), return_exceptions=True)
        if sure:
            wiped.append("all of it")
        return f"{len(wiped)} wiped"

    told = await converse(app, *tool("wipe"), answers={"confirm": decline()})
    assert (told.asked, told.text, wiped) == ([["confirm"]], "0 wiped", [])


async def test_an_answer_of_nothing_is_nothing_on_every_round(app: Server) -> None:
    seen: list[object] = []

    @app.tool
    async def due(ctx: Context) -> str:
        seen.append((await ctx.elicit("When?", date | None, key="when")).unwrap())
        return (await ctx.elicit("What?", str, key="what")).unwrap()

    told = await converse(app, *tool("due"), answers={"when": accept(value=None), "what": accept(value="tea")})
    assert (told.asked, told.text, seen) == ([["when"], ["what"]], "tea", [None, None])


async def test_groups_of_other_exceptions_pass_beside_the_signal(app: Server) -> None:
    @app.tool
    async def careful(ctx: Context) -> str:
        found = "nothing"
        try:
            (found,) = await grouped(asks(ctx, "a"))
        except* ValueError:
            found = "a value error"
        return found

    told = await converse(app, *tool("careful"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a"]], "A")


async def test_groups_within_groups_of_only_the_signal_ask(app: Server) -> None:
    @app.tool
    async def deep(ctx: Context) -> str:
        async with asyncio.TaskGroup() as outer:
            task = outer.create_task(grouped(grouped(asks(ctx, "a")), grouped(asks(ctx, "b"))))
        return str(task.result())

    told = await converse(app, *tool("deep"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a", "b"]], "[['A'], ['B']]")


async def test_a_refusal_in_a_task_group_is_told_as_anywhere_else(app: Server) -> None:
    @app.tool
    async def both(ctx: Context) -> str:
        return "".join(await grouped(asks(ctx, "a"), asks(ctx, "b")))

    told = await converse(app, *tool("both"), answers={"a": decline(), "b": accept(value="B")})
    assert told.asked == [["a", "b"]]
    assert told.last.result["isError"] is True
    assert "declined" in told.text


async def test_a_group_that_failed_for_another_reason_reports_it(app: Server, logged: pytest.LogCaptureFixture) -> None:
    async def fail() -> str:
        raise RuntimeError("the disk is full")

    @app.tool
    async def unlucky(ctx: Context) -> str:
        return "".join(await grouped(asks(ctx, "a"), fail()))

    told = await converse(app, *tool("unlucky"), answers=ANSWERS)
    assert told.asked == []
    assert told.error == {"code": -32603, "message": "Internal error"}
    assert "the disk is full" in logged.text


@pytest.mark.parametrize("patience", [5, None])
async def test_a_question_may_stand_inside_wait_for(app: Server, patience: float | None) -> None:
    @app.tool
    async def patient(ctx: Context) -> str:
        return await asyncio.wait_for(asks(ctx, "a"), patience)

    told = await converse(app, *tool("patient"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a"]], "A")


async def test_a_question_may_stand_inside_a_timeout(app: Server) -> None:
    @app.tool
    async def patient(ctx: Context) -> str:
        async with asyncio.timeout(5):
            first = await asks(ctx, "a")
            return first + "".join(await gathered(asks(ctx, "b"), asks(ctx, "c")))

    told = await converse(app, *tool("patient"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a"], ["b", "c"]], "ABC")


async def test_questions_may_be_awaited_as_they_complete(app: Server) -> None:
    @app.tool
    async def eager(ctx: Context) -> str:
        return "".join(sorted([await done for done in asyncio.as_completed([asks(ctx, "a"), asks(ctx, "b")])]))

    told = await converse(app, *tool("eager"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a", "b"]], "AB")


async def test_a_cancelled_call_stays_cancelled(app: Server) -> None:
    entered = asyncio.Event()

    @app.tool
    async def slow(ctx: Context) -> str:
        with contextlib.suppress(BaseException):
            await asks(ctx, "a")
        entered.set()
        await asyncio.Event().wait()
        return "never"

    task = asyncio.create_task(leg(app, *tool("slow")))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- plain functions, in a thread --------------------------------------------------------------------------------


async def test_a_plain_function_asks_everything_from_its_thread(app: Server) -> None:
    threads: set[int] = set()
    effects: list[str] = []
    times: set[datetime] = set()
    numbers: set[float] = set()

    def work(name: str) -> Where:
        effects.append(name)
        return Where(name, 1)

    @app.tool
    def provision(ctx: Context) -> str:
        threads.add(threading.get_ident())
        times.add(ctx.sync.now())
        numbers.add(ctx.sync.random())
        where = ctx.sync.elicit("Where?", Where).unwrap()
        done = ctx.sync.step("work", work, where.region)
        page = ctx.sync.elicit_url("Sign in", "https://example.com/", key="signin")
        summary = ctx.sync.sample("Summarize", max_tokens=5, key="summary", system="Short.")
        folders = ctx.sync.roots()
        ctx.sync.progress(1, 2, "half")
        ctx.sync.log("info", "nearly")
        sure = ctx.sync.confirm("Sure?")
        return f"{where} {done} {page} {summary.text} {folders[0].uri} {sure}"

    answers = {
        "where": accept(region="eu"),
        "signin": {"action": "accept"},
        "summary": sampled("fine"),
        "roots": roots("file:///a"),
        "confirm": accept(confirm=True),
    }
    told = await converse(app, *tool("provision"), answers=answers)
    assert told.asked == [["where"], ["signin"], ["summary"], ["roots"], ["confirm"]]
    assert told.text == f"{Where('eu', 2)} {Where('eu', 1)} {Accepted(None)} fine file:///a True"
    assert effects == ["eu"]
    assert (len(times), len(numbers)) == (1, 1)
    assert threading.get_ident() not in threads


async def test_a_plain_function_that_swallows_everything_still_asks(app: Server) -> None:
    @app.tool
    def stubborn(ctx: Context) -> str:
        try:
            return ctx.sync.elicit("a?", str, key="a").unwrap()
        except BaseException:
            return "deployed without asking"

    told = await converse(app, *tool("stubborn"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a"]], "A")


async def test_a_failing_step_of_a_plain_function_raises_in_its_thread(app: Server) -> None:
    def fail() -> None:
        raise ToolError("No such region")

    @app.tool
    def provision(ctx: Context) -> str:
        ctx.sync.elicit("a?", str, key="a").unwrap()
        ctx.sync.step("fail", fail)
        return "unreachable"

    told = await converse(app, *tool("provision"), answers=ANSWERS)
    assert told.failed
    assert told.text == "No such region"


async def test_a_plain_function_may_ask_in_threads_of_its_own(app: Server) -> None:
    @app.tool
    def many(ctx: Context) -> str:
        def asking(key: str) -> str:
            return ctx.sync.elicit(f"{key}?", str, key=key).unwrap()

        with ThreadPoolExecutor(4) as threads:
            return "".join(threads.map(asking, "abcd"))

    told = await converse(app, *tool("many"), answers=ANSWERS)
    assert sorted(key for keys in told.asked for key in keys) == ["a", "b", "c", "d"]
    assert told.text == "ABCD"


async def test_the_steps_of_plain_functions_do_not_wait_for_the_threads_of_their_handlers() -> None:
    app = Server("narrow", threads=2)

    @app.tool
    def work(number: int, ctx: Context) -> str:
        made = ctx.sync.step("make", str, number)
        return made + ctx.sync.elicit("a?", str, key="a").unwrap()

    async with asyncio.timeout(5):
        told = await asyncio.gather(*(converse(app, *tool("work", number=n), answers=ANSWERS) for n in range(4)))
    assert [each.text for each in told] == ["0A", "1A", "2A", "3A"]


@pytest.fixture
def alarm() -> Iterator[None]:
    """Breaks a deadlock of the event loop's own thread, so that a test can tell of it."""

    def ring(*_: object) -> None:
        raise TimeoutError("the event loop waited for itself")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 3)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
async def test_the_context_for_threads_refuses_to_block_the_event_loop(
    app: Server, logged: pytest.LogCaptureFixture
) -> None:
    @app.tool
    async def confused(ctx: Context) -> str:
        return ctx.sync.step("work", str, "x")

    told = await converse(app, *tool("confused"))
    assert told.error["code"] == -32603
    (failure,) = [record.exc_info[1] for record in logged.records if record.exc_info]
    assert "ctx.sync" in str(failure)


# --- tools, prompts and resources --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        tool("brief", topic="news"),
        prompt("brief", topic="news"),
        resource("brief://news"),
        resource("brief://by-topic/news"),
    ],
    ids=["tool", "prompt", "static resource", "template resource"],
)
async def test_tools_prompts_and_resources_ask_alike_on_any_instance(call) -> None:
    answers = {"name": accept(value="Ada"), "confirm": accept(confirm=True), "length": accept(value="short")}
    told = await converse([everywhere(), everywhere(), everywhere()], *call, answers=answers)
    assert told.asked == [["confirm", "name"], ["length"]]
    assert told.text == "NEWS for Ada, short, True"


@pytest.mark.parametrize(
    "call",
    [prompt("brief", topic="news"), resource("brief://news"), resource("brief://by-topic/news")],
    ids=["prompt", "static resource", "template resource"],
)
async def test_a_refusal_that_was_unwrapped_tells_a_prompts_or_resources_reader_why(call) -> None:
    told = await converse(everywhere(), *call, answers={"name": decline(), "confirm": decline(), "length": decline()})
    assert "declined" in told.error["message"]


# --- without await ------------------------------------------------------------------------------------------------


async def test_a_question_that_is_not_awaited_is_never_a_yes(app: Server, logged: pytest.LogCaptureFixture) -> None:
    deleted: list[str] = []

    @app.tool
    def plain(ctx: Context) -> str:
        if ctx.confirm("Delete everything?"):
            deleted.append("everything")
        return "done"

    @app.tool
    async def forgetful(ctx: Context) -> str:
        if not ctx.confirm("Keep anything?"):
            deleted.append("everything")
        return "done"

    for name in ("plain", "forgetful"):
        told = await converse(app, *tool(name), answers={})
        assert told.error == {"code": -32603, "message": "Internal error"}
        assert "ctx.confirm(...) was not awaited, so it has no effect and no answer" in logged.text
        assert "write 'await ctx.confirm(...)'" in logged.text
        assert "'ctx.sync.confirm(...)' in a plain one" in logged.text
        logged.clear()
    assert deleted == []


@pytest.mark.parametrize("verb", ["elicit", "elicit_url", "confirm", "sample", "roots"])
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_call_whose_question_was_never_awaited_fails(
    app: Server, logged: pytest.LogCaptureFixture, verb: str, is_async: bool
) -> None:
    arguments: dict[str, Any] = {
        "elicit": {"message": "Who?", "shape": str},
        "elicit_url": {"message": "Open", "url": "https://a.example"},
        "confirm": {"message": "Sure?"},
        "sample": {"messages": "Sum up", "max_tokens": 10},
        "roots": {},
    }[verb]

    def made(ctx: Context) -> str:
        return f"Deployed by {getattr(ctx, verb)(**arguments)}"

    if is_async:

        @app.tool
        async def deploy(ctx: Context) -> str:
            return made(ctx)
    else:

        @app.tool
        def deploy(ctx: Context) -> str:
            return made(ctx)

    told = await converse(app, *tool("deploy"), answers={})
    assert told.error == {"code": -32603, "message": "Internal error"}
    assert f"ctx.{verb}(...) was not awaited" in logged.text


async def test_questions_may_be_made_before_they_are_awaited(app: Server) -> None:
    @app.tool
    async def later(ctx: Context) -> str:
        first, second, third = asks(ctx, "a"), ctx.elicit("b?", str, key="b"), ctx.elicit("c?", str, key="c")
        third.close()
        return await first + (await second).unwrap()

    told = await converse(app, *tool("later"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a"], ["b"]], "AB")


async def test_a_question_is_awaited_once(app: Server, logged: pytest.LogCaptureFixture) -> None:
    @app.tool
    async def twice(ctx: Context) -> str:
        question = ctx.elicit("a?", str, key="a")
        await question
        question.close()
        return (await question).unwrap()

    assert (await converse(app, *tool("twice"), answers=ANSWERS)).error == {"code": -32603, "message": "Internal error"}
    assert "ctx.elicit(...) was awaited before" in logged.text


async def test_a_question_is_a_coroutine_to_asyncio(app: Server) -> None:
    @app.tool
    async def tasks(ctx: Context) -> str:
        a = asyncio.create_task(ctx.elicit("a?", str, key="a"))
        b = asyncio.ensure_future(ctx.elicit("b?", str, key="b"))
        c = asyncio.wait_for(ctx.elicit("c?", str, key="c"), 60)
        return "".join([answer.unwrap() for answer in await asyncio.gather(a, b, c)])

    told = await converse(app, *tool("tasks"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a", "b", "c"]], "ABC")


# --- questions of threads and tasks -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["submit", "map", "loop"])
@pytest.mark.parametrize("can_be_asked", [True, False])
async def test_a_question_in_a_thread_of_ones_own_is_never_answered_by_nothing(
    app: Server, how: str, can_be_asked: bool
) -> None:
    done: list[object] = []
    loop = asyncio.get_running_loop()

    @app.tool
    def tidy(ctx: Context) -> str:
        with ThreadPoolExecutor() as pool:
            if how == "submit":
                keep = pool.submit(ctx.sync.confirm, "Keep the data?").result()
            elif how == "map":
                (keep,) = pool.map(ctx.sync.confirm, ["Keep the data?"])
            else:
                keep = asyncio.run_coroutine_threadsafe(ctx.confirm("Keep the data?"), loop).result()
        done.append(keep)
        return "kept" if keep else "deleted"

    capabilities: dict[str, Any] = {"elicitation": {}} if can_be_asked else {}
    told = await converse(app, *tool("tidy"), answers={"confirm": accept(confirm=True)}, capabilities=capabilities)
    if can_be_asked:
        assert (told.asked, told.text, done) == ([["confirm"]], "kept", [True])
    else:
        assert (told.error["code"], done) == (-32021, [])


async def test_a_signal_that_was_gathered_is_neither_yes_nor_no(app: Server) -> None:
    done: list[str] = []

    @app.tool
    async def wipe(ctx: Context) -> str:
        (keep,) = await asyncio.gather(ctx.confirm("Keep?"), return_exceptions=True)
        if not keep:
            done.append("wiped")
        return "done"

    told = await converse(app, *tool("wipe"), answers={"confirm": accept(confirm=True)})
    assert (told.asked, told.text, done) == ([["confirm"]], "done", [])


async def test_a_signal_behind_an_error_can_be_logged(app: Server, logged: pytest.LogCaptureFixture) -> None:
    @app.tool
    async def clumsy(ctx: Context) -> str:
        try:
            return str(await ctx.confirm("Sure?"))
        except BaseException:
            raise ValueError("clumsy") from None

    @app.tool
    async def chained(ctx: Context) -> str:
        try:
            return str(await ctx.confirm("Sure?"))
        except BaseException as signal:
            raise KeyError("chained") from signal

    for name in ("clumsy", "chained"):
        assert (await converse(app, *tool(name), capabilities={})).error["code"] in {-32603, -32021}
    assert "clumsy" in logged.text


@pytest.mark.parametrize("verb", ["confirm", "elicit"])
@pytest.mark.parametrize("seed", range(5))
async def test_parallel_questions_without_keys_are_each_put_once_whatever_comes_first(
    app: Server, verb: str, seed: int
) -> None:
    chance = Random(seed)

    @app.tool
    async def several(ctx: Context) -> str:
        async def one(place: int) -> bool:
            await asyncio.sleep(chance.random() / 100)
            asked = f"Delete {place}?"
            return await ctx.confirm(asked) if verb == "confirm" else (await ctx.elicit(asked, bool)).unwrap()

        return str(await asyncio.gather(*(one(place) for place in range(5))))

    def answer(question: dict[str, Any]) -> object:
        return accept(**{"confirm" if verb == "confirm" else "value": "1" in question["params"]["message"]})

    put: list[str] = []
    leg_ = await leg(app, *tool("several"))
    while leg_.asks:
        put += [question["params"]["message"] for question in leg_.questions.values()]
        answers = {name: answer(question) for name, question in leg_.questions.items()}
        leg_ = await leg(app, *tool("several"), state=leg_.token, responses=answers)
    assert leg_.result["content"][0]["text"] == "[False, True, False, False, False]"
    assert sorted(put) == [f"Delete {place}?" for place in range(5)]


async def test_a_parallel_question_that_is_never_the_same_twice_ends_all_the_same(app: Server) -> None:
    count = itertools.count()

    @app.tool
    async def restless(ctx: Context) -> str:
        return str(await asyncio.gather(ctx.confirm(f"Sure, {next(count)}?")))

    told = await converse(app, *tool("restless"), answers={"confirm": accept(confirm=True)}, max_rounds=100)
    assert "changes on every round" in told.error["message"]
    assert len(told.asked) < 40
