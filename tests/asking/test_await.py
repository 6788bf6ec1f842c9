"""The await style: straight-line code in any control flow, run from the top on every round."""

import asyncio
import contextlib
import functools
import logging
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Literal

import httpx
import msgspec
import pytest

from antiphon import (
    Accepted,
    Cancelled,
    CannotAsk,
    Context,
    Declined,
    MemoryStore,
    Message,
    ModelHint,
    ModelPreferences,
    Refused,
    Root,
    Seal,
    Server,
    Tool,
    ToolError,
)
from antiphon.rounds.seal import generate_key

from .driver import (
    EVERYTHING,
    accept,
    cancel,
    converse,
    decline,
    in_turn,
    leg,
    prompt,
    resource,
    roots,
    sampled,
    tool,
)

KEY = generate_key(b"a" * 32)


@dataclass
class Where:
    region: str
    replicas: int = 2


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@pytest.fixture
def app() -> Server:
    return Server("asking")


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "antiphon")
    return caplog


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


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
async def test_a_single_value_is_one_field_named_value(
    app: Server, shape: object, sent: object, value: object
) -> None:
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


ANSWERS = {name: accept(value=name.upper()) for name in "abcdef"}


async def asks(ctx: Context, key: str, pause: int = 0) -> str:
    await turns(pause)
    return (await ctx.elicit(f"{key}?", str, key=key)).unwrap()


async def steps_then_asks(ctx: Context, key: str, effects: list[str]) -> str:
    async def work() -> str:
        await asyncio.sleep(0.005)
        effects.append(key)
        return "worked"

    await ctx.step(f"work {key}", work)
    return await asks(ctx, key)


async def grouped(*awaitables: object) -> list[str]:
    """What gather does, with a task group."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(awaitable) for awaitable in awaitables]  # type: ignore[arg-type]
    return [task.result() for task in tasks]


async def gathered(*awaitables: object) -> list[str]:
    return list(await asyncio.gather(*awaitables))  # type: ignore[call-overload]


together = pytest.mark.parametrize("together", [gathered, grouped], ids=["gather", "TaskGroup"])


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
    async def many(ctx: Context) -> str:
        async def pair(left: str, right: str) -> str:
            return "".join(await together(asks(ctx, left), asks(ctx, right, 1)))

        return "".join(await together(pair("a", "b"), together(asks(ctx, "c"), pair("d", "e")), asks(ctx, "f"))).replace(
            "'", ""
        )

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


async def test_a_group_that_failed_for_another_reason_reports_it(
    app: Server, logged: pytest.LogCaptureFixture
) -> None:
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
    assert "waited for itself" not in logged.text
    assert "ctx.step" in logged.text


# --- tools, prompts and resources --------------------------------------------------------------------------------


def everywhere() -> Server:
    app = Server("everywhere", seal=Seal(KEY))

    async def conversation(ctx: Context, topic: str) -> str:
        effect = await ctx.step("effect", str.upper, topic)
        name, sure = await asyncio.gather(ctx.elicit(f"Who reads {topic}?", str, key="name"), ctx.confirm("Sure?"))
        how = await ctx.elicit("How long?", Literal["short", "long"], key="length")
        return f"{effect} for {name.unwrap()}, {how.unwrap()}, {sure}"

    @app.tool
    async def brief(topic: str, ctx: Context) -> str:
        return await conversation(ctx, topic)

    @app.prompt(name="brief")
    async def brief_prompt(topic: str, ctx: Context) -> str:
        return await conversation(ctx, topic)

    @app.resource("brief://news")
    async def static(ctx: Context) -> str:
        return await conversation(ctx, "news")

    @app.resource("brief://by-topic/{topic}")
    async def template(topic: str, ctx: Context) -> str:
        return await conversation(ctx, topic)

    return app


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


# --- the rules of replay -----------------------------------------------------------------------------------------


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


async def test_a_middleware_and_the_log_see_one_entry_per_round(
    app: Server, logged: pytest.LogCaptureFixture
) -> None:
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


# --- steps -------------------------------------------------------------------------------------------------------


async def test_a_step_runs_once_however_many_rounds_follow(app: Server) -> None:
    effects: list[str] = []

    def reserve(name: str, *, region: str) -> str:
        effects.append(name)
        return f"{name}@{region}#{len(effects)}"

    async def pay(ticket: str) -> str:
        await turns(2)
        effects.append(ticket)
        return f"paid {ticket}"

    @app.tool
    async def provision(name: str, ctx: Context) -> str:
        region = await asks(ctx, "a")
        ticket = await ctx.step("reserve", reserve, name, region=region)
        await asks(ctx, "b")
        receipt = await ctx.step("pay", pay, ticket)
        await asks(ctx, "c")
        return receipt

    told = await converse(app, *tool("provision", name="orders"), answers=ANSWERS)
    assert told.text == "paid orders@A#1"
    assert effects == ["orders", "orders@A#1"]


async def test_a_plain_step_does_not_block_the_event_loop(app: Server) -> None:
    threads: list[int] = []

    @app.tool
    async def work(ctx: Context) -> str:
        await ctx.step("work", lambda: threads.append(threading.get_ident()))
        return "worked"

    assert (await converse(app, *tool("work"))).text == "worked"
    assert threads != [threading.get_ident()]


class Reservation(msgspec.Struct):
    ticket: str
    at: datetime


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Where, Where("eu", 3)),
        (Reservation, Reservation("t1", datetime(2026, 7, 28, tzinfo=UTC))),
        (datetime, datetime(2026, 7, 28, tzinfo=UTC)),
        (tuple[int, str], (1, "a")),
        (list[Where], [Where("eu"), Where("us")]),
        (dict[str, int], {"a": 1}),
        (Colour, Colour.RED),
        (bytes, b"\x00\xff"),
        (set[int], {1, 2}),
        (int | None, None),
        (None, None),
        (str, ""),
        (bool, False),
        (int, 2**63),
    ],
    ids=str,
)
async def test_a_steps_result_is_typed_by_its_return_annotation_on_every_round(
    app: Server, annotation: object, value: object
) -> None:
    seen: list[object] = []

    async def make():
        return value

    make.__annotations__["return"] = annotation

    @app.tool
    async def work(ctx: Context) -> None:
        seen.append(await ctx.step("make", make))
        await asks(ctx, "a")

    await converse(app, *tool("work"), answers=ANSWERS)
    assert seen == [value, value]
    assert [type(item) for item in seen] == [type(value)] * 2


async def test_a_step_without_an_annotation_gives_plain_data_from_the_first_round_on(app: Server) -> None:
    seen: list[object] = []

    @app.tool
    async def work(ctx: Context) -> None:
        seen.append(await ctx.step("make", lambda: (1, Where("eu"))))
        await asks(ctx, "a")

    await converse(app, *tool("work"), answers=ANSWERS)
    assert seen == [[1, {"region": "eu", "replicas": 2}]] * 2


class Shop:
    def __init__(self) -> None:
        self.calls = 0

    def buy(self, price: int) -> int:
        self.calls += 1
        return price * 2

    async def __call__(self, price: int) -> int:
        self.calls += 1
        return price * 2


async def test_every_kind_of_function_can_be_a_step(app: Server) -> None:
    shop = Shop()

    async def buy(price: int) -> int:
        return shop.buy(price)

    @app.tool
    async def work(ctx: Context) -> str:
        results = [
            await ctx.step("method", shop.buy, 1),
            await ctx.step("object", shop, 2),
            await ctx.step("partial", functools.partial(shop.buy, 3)),
            await ctx.step("async partial", functools.partial(buy, 4)),
            await ctx.step("lambda", lambda price: shop.buy(price), 5),
            await ctx.step("coroutine maker", lambda: buy(6)),
            await ctx.step("builtin", max, 7, 14),
            await ctx.step("class", int, "16"),
        ]
        await asks(ctx, "a")
        return str(results)

    told = await converse(app, *tool("work"), answers=ANSWERS)
    assert told.text == str([2, 4, 6, 8, 10, 12, 14, 16])
    assert shop.calls == 6


async def test_a_failing_step_is_not_recorded_and_its_error_reaches_the_handler(app: Server) -> None:
    attempts: list[int] = []

    def flaky() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError("try later")
        return "connected"

    @app.tool
    async def work(ctx: Context) -> str:
        try:
            state = await ctx.step("connect", flaky)
        except ConnectionError:
            state = "offline"
        await asks(ctx, "a")
        return state

    told = await converse(app, *tool("work"), answers=ANSWERS)
    assert told.text == "connected"
    assert len(attempts) == 2


class Unstorable:
    pass


def returns_an_object() -> object:
    return Unstorable()


def returns_a_function() -> object:
    return {"inside": print}


def returns_what_it_did_not_promise() -> int:
    return "text"  # type: ignore[return-value]


def returns_what_json_cannot_say() -> object:
    return {"ratio": math.nan}


@pytest.mark.parametrize(
    "make", [returns_an_object, returns_a_function, returns_what_it_did_not_promise, returns_what_json_cannot_say]
)
async def test_a_result_that_cannot_be_stored_fails_when_first_run_and_names_the_step(
    app: Server, logged: pytest.LogCaptureFixture, make
) -> None:
    @app.tool
    async def work(ctx: Context) -> str:
        await ctx.step("take a lock", make)
        return await asks(ctx, "a")

    told = await converse(app, *tool("work"), answers=ANSWERS)
    assert told.asked == []
    assert told.error == {"code": -32603, "message": "Internal error"}
    assert "'take a lock'" in logged.text


async def test_two_steps_with_one_key_are_an_error_that_names_it(
    app: Server, logged: pytest.LogCaptureFixture
) -> None:
    effects: list[int] = []

    @app.tool
    async def work(ctx: Context) -> str:
        for number in range(2):
            await ctx.step("append", effects.append, number)
        return "unreachable"

    told = await converse(app, *tool("work"))
    assert told.error["code"] == -32603
    assert "'append'" in logged.text
    assert effects == [0]


async def test_a_step_may_be_called_now_or_random(app: Server) -> None:
    @app.tool
    async def work(ctx: Context) -> str:
        moment, dice = await ctx.now(), await ctx.random()
        mine = await ctx.step("now", lambda: "mine")
        other = await ctx.step("random", lambda: "other")
        again = await ctx.now()
        await asks(ctx, "a")
        return f"{mine} {other} {type(moment).__name__} {type(again).__name__} {type(dice).__name__}"

    told = await converse(app, *tool("work"), answers=ANSWERS)
    assert told.text == "mine other datetime datetime float"


@together
async def test_a_siblings_question_does_not_stop_a_step_half_way(app: Server, together) -> None:
    log: list[str] = []

    async def transfer() -> str:
        log.append("debit")
        await asyncio.sleep(0.01)
        log.append("credit")
        return "transferred"

    async def move(ctx: Context) -> str:
        return await ctx.step("transfer", transfer)

    @app.tool
    async def work(ctx: Context) -> str:
        return " ".join(await together(asks(ctx, "a"), move(ctx)))

    told = await converse(app, *tool("work"), answers=ANSWERS)
    assert told.text == "A transferred"
    assert log == ["debit", "credit"]


@together
async def test_a_siblings_step_that_fails_while_a_question_waits_is_reported_not_lost(app: Server, together) -> None:
    async def fail() -> None:
        await asyncio.sleep(0.005)
        raise ToolError("No credit")

    async def pay(ctx: Context) -> str:
        await ctx.step("pay", fail)
        return "paid"

    @app.tool
    async def work(ctx: Context) -> str:
        try:
            return " ".join(await together(asks(ctx, "a"), pay(ctx)))
        except* ToolError:
            raise ToolError("No credit") from None

    told = await converse(app, *tool("work"), answers=ANSWERS)
    assert told.failed
    assert "No credit" in told.text


async def test_a_task_left_behind_by_a_round_runs_no_more_steps(app: Server) -> None:
    replied = asyncio.Event()
    left_behind: list[asyncio.Task[object]] = []
    effects: list[int] = []

    async def effect() -> str:
        effects.append(1)
        return "done"

    @app.tool
    async def work(ctx: Context) -> str:
        async def later() -> str:
            task = asyncio.current_task()
            assert task is not None
            left_behind.append(task)
            await replied.wait()
            return await ctx.step("effect", effect)

        return " ".join(await gathered(asks(ctx, "a"), later()))

    first = await leg(app, *tool("work"))
    assert list(first.questions) == ["a"]
    replied.set()
    await asyncio.wait(left_behind, timeout=5)
    assert effects == []
    last = await leg(app, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]})
    assert last.result["content"][0]["text"] == "A done"
    assert effects == [1]


@together
async def test_a_question_inside_a_step_is_asked_and_never_hangs(app: Server, together) -> None:
    effects: list[str] = []

    @app.tool
    async def work(ctx: Context) -> str:
        async def asking() -> str:
            answer = await asks(ctx, "a")
            effects.append(answer)
            return answer

        async def step() -> str:
            return await ctx.step("asking", asking)

        return "".join(await together(step(), asks(ctx, "b")))

    async with asyncio.timeout(5):
        told = await converse(app, *tool("work"), answers=ANSWERS)
    assert told.text == "AB"
    assert effects == ["A"]


async def test_a_question_inside_a_step_of_the_handler_itself_is_asked(app: Server) -> None:
    @app.tool
    async def work(ctx: Context) -> str:
        async def asking() -> str:
            return await asks(ctx, "a")

        return await ctx.step("asking", asking) + await asks(ctx, "b")

    async with asyncio.timeout(5):
        told = await converse(app, *tool("work"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a"], ["b"]], "AB")


def stepping(store: MemoryStore, effects: list[str], **options: object) -> Server:
    app = Server("stepping", seal=Seal(KEY), store=store, **options)  # type: ignore[arg-type]

    async def pay(name: str) -> int:
        await asyncio.sleep(0.01)
        effects.append(name)
        return len(effects)

    @app.tool
    async def buy(ctx: Context) -> str:
        name = (await ctx.elicit("Name?", str, key="name", ttl=5000)).unwrap()
        receipt = await ctx.step("pay", pay, name)
        await asks(ctx, "a")
        return f"receipt {receipt}"

    return app


async def test_with_a_store_a_leg_that_is_sent_twice_runs_its_steps_once() -> None:
    store, effects = MemoryStore(), list[str]()
    one, other = stepping(store, effects), stepping(store, effects)
    first = await leg(one, *tool("buy"))
    again = [leg(app, *tool("buy"), state=first.token, responses={"name": accept(value="Ada")}) for app in (one, other)]
    replies = [*await asyncio.gather(*again), await leg(other, *tool("buy"), state=first.token, responses={"name": accept(value="Ada")})]
    assert effects == ["Ada"]
    for reply in replies:
        last = await leg(one, *tool("buy"), state=reply.token, responses={"a": ANSWERS["a"]})
        assert last.result["content"][0]["text"] == "receipt 1"


async def test_with_a_store_steps_are_remembered_as_long_as_a_token_of_theirs_may_live() -> None:
    clock = [1000.0]
    effects: list[str] = []
    app = stepping(MemoryStore(clock=lambda: clock[0]), effects, clock=lambda: clock[0])
    first = await leg(app, *tool("buy"))
    answer = {"name": accept(value="Ada")}
    assert (await leg(app, *tool("buy"), state=first.token, responses=answer)).asks
    clock[0] += 4000
    assert (await leg(app, *tool("buy"), state=first.token, responses=answer)).asks
    assert effects == ["Ada"]


async def test_with_a_store_different_flows_do_not_share_steps() -> None:
    store, effects = MemoryStore(), list[str]()
    app = stepping(store, effects)
    answers = {"name": accept(value="Ada"), "a": ANSWERS["a"]}
    told = [await converse(app, *tool("buy"), answers=answers) for _ in range(3)]
    assert [each.text for each in told] == ["receipt 1", "receipt 2", "receipt 3"]


async def test_with_a_store_a_failing_step_lets_the_next_attempt_run() -> None:
    store = MemoryStore()
    app = Server("flaky", seal=Seal(KEY), store=store)
    attempts: list[int] = []

    async def flaky() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ToolError("try later")
        return "connected"

    @app.tool
    async def work(ctx: Context) -> str:
        await asks(ctx, "a")
        return await ctx.step("connect", flaky)

    first = await leg(app, *tool("work"))
    failed = await leg(app, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]})
    assert failed.result["isError"]
    async with asyncio.timeout(5):
        done = await leg(app, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]})
    assert done.result["content"][0]["text"] == "connected"


# --- who can be asked --------------------------------------------------------------------------------------------

NEEDS = {
    "form": {"elicitation": {"form": {}}},
    "page": {"elicitation": {"url": {}}},
    "completion": {"sampling": {}},
    "tools": {"sampling": {"tools": {}}},
    "context": {"sampling": {"context": {}}},
    "roots": {"roots": {}},
    "box": {"elicitation": {"form": {}}},
}


async def asks_for(ctx: Context, kind: str, pause: int = 0) -> object:
    await turns(pause)
    match kind:
        case "form":
            return await ctx.elicit("Where?", Where)
        case "page":
            return await ctx.elicit_url("Sign in", "https://example.com/")
        case "completion":
            return await ctx.sample("Hi", max_tokens=1)
        case "tools":
            return await ctx.sample("Hi", max_tokens=1, tools=[Tool(name="t", input_schema={"type": "object"})])
        case "context":
            return await ctx.sample("Hi", max_tokens=1, context="thisServer")
        case "roots":
            return await ctx.roots()
        case _:
            return await ctx.confirm("Sure?")


def missing(*kinds: str) -> dict[str, object]:
    tree: dict[str, dict[str, object]] = {}
    for kind in kinds:
        for name, below in NEEDS[kind].items():
            tree.setdefault(name, {}).update(below)
    return tree  # type: ignore[return-value]


@pytest.mark.parametrize("kind", NEEDS)
@pytest.mark.parametrize("plain", [True, False], ids=["bare", "behind except Exception"])
async def test_asking_a_client_for_what_it_did_not_declare_ends_the_call(app: Server, kind: str, plain: bool) -> None:
    effects: list[str] = []

    @app.tool
    async def work(ctx: Context) -> str:
        try:
            await asks_for(ctx, kind)
        except Exception:
            if plain:
                raise
        effects.append("went on")
        return "went on"

    told = await converse(app, *tool("work"), capabilities={})
    assert told.error["code"] == -32021
    assert told.error["data"] == {"requiredCapabilities": missing(kind)}
    assert effects == []


@pytest.mark.parametrize(
    ("capabilities", "kinds"),
    [
        ({"elicitation": {}}, ["form", "box"]),
        ({"elicitation": {"form": {}}}, ["form", "box"]),
        ({"elicitation": {"url": {}}}, ["page"]),
        ({"elicitation": {"form": {}, "url": {}}}, ["form", "box", "page"]),
        ({"sampling": {}}, ["completion"]),
        ({"sampling": {"tools": {}}}, ["completion", "tools"]),
        ({"sampling": {"context": {}}}, ["completion", "context"]),
        ({"roots": {}}, ["roots"]),
        ({}, []),
    ],
    ids=str,
)
async def test_each_kind_of_question_needs_its_own_capability(
    app: Server, capabilities: dict[str, object], kinds: list[str]
) -> None:
    @app.tool
    async def work(kind: str, ctx: Context) -> None:
        await asks_for(ctx, kind)

    asked = []
    for kind in NEEDS:
        first = await leg(app, *tool("work", kind=kind), capabilities=capabilities)
        if first.asks:
            asked.append(kind)
        else:
            assert first.reply["error"]["code"] == -32021
    assert sorted(asked) == sorted(kinds)


@together
@pytest.mark.parametrize("pause", [0, 1, 2])
async def test_all_that_is_missing_for_a_round_is_named(app: Server, together, pause: int) -> None:
    kinds = ["box", "page", "tools", "roots"]

    @app.tool
    async def work(ctx: Context) -> str:
        await together(*(asks_for(ctx, kind, pause * place) for place, kind in enumerate(kinds)))
        return "went on"

    told = await converse(app, *tool("work"), capabilities={})
    assert told.error["code"] == -32021
    required = told.error["data"]["requiredCapabilities"]
    assert required == missing(*kinds)
    for name in ("elicitation.form", "elicitation.url", "sampling.tools", "roots"):
        assert name in told.error["message"]


@together
@pytest.mark.parametrize("first", [True, False], ids=["missing first", "missing last"])
async def test_nothing_is_asked_if_one_question_of_the_round_cannot_be(app: Server, together, first: bool) -> None:
    kinds = ["page", "form"] if first else ["form", "page"]

    @app.tool
    async def work(ctx: Context) -> str:
        await together(*(asks_for(ctx, kind) for kind in kinds))
        return "went on"

    told = await converse(app, *tool("work"), capabilities={"elicitation": {"form": {}}})
    assert told.error["data"] == {"requiredCapabilities": missing("page")}


async def test_a_plain_function_cannot_ask_a_client_that_cannot_be_asked(app: Server) -> None:
    @app.tool
    def work(ctx: Context) -> str:
        try:
            return "yes" if ctx.sync.confirm("Sure?") else "no"
        except Exception:
            return "yes"

    told = await converse(app, *tool("work"), capabilities={})
    assert told.error["code"] == -32021


@pytest.mark.parametrize(
    "call",
    [prompt("brief", topic="news"), resource("brief://news"), resource("brief://by-topic/news")],
    ids=["prompt", "static resource", "template resource"],
)
async def test_prompts_and_resources_name_what_is_missing(call) -> None:
    told = await converse(everywhere(), *call, capabilities={"roots": {}})
    assert told.error["code"] == -32021
    assert told.error["data"] == {"requiredCapabilities": missing("form")}


async def test_a_client_that_no_longer_declares_what_it_did_is_not_asked(app: Server) -> None:
    @app.tool
    async def work(ctx: Context) -> str:
        return await asks(ctx, "a") + await asks(ctx, "b")

    first = await leg(app, *tool("work"))
    second = await leg(app, *tool("work"), state=first.token, responses={"a": ANSWERS["a"]}, capabilities={})
    assert second.reply["error"]["code"] == -32021


async def test_a_handler_may_catch_by_name_that_it_cannot_ask(app: Server) -> None:
    @app.tool
    async def work(ctx: Context) -> str:
        try:
            return await asks(ctx, "a")
        except CannotAsk as fault:
            return f"Pass it as an argument: {dict(fault.required)}"

    told = await converse(app, *tool("work"), capabilities={})
    assert told.text == f"Pass it as an argument: {missing('form')}"


async def test_that_a_question_could_not_be_asked_is_not_taken_for_a_yes(app: Server) -> None:
    wiped: list[str] = []

    @app.tool
    async def wipe(ctx: Context) -> str:
        (sure,) = await asyncio.gather(ctx.confirm("Wipe?"), return_exceptions=True)
        if sure:
            wiped.append("all of it")
        return "over"

    await converse(app, *tool("wipe"), capabilities={})
    assert wiped == []


def test_not_being_able_to_ask_is_no_ordinary_exception() -> None:
    assert not issubclass(CannotAsk, Exception)
    assert issubclass(Refused, ToolError)


async def test_over_http_a_missing_capability_is_a_bad_request(app: Server) -> None:
    @app.tool
    async def work(ctx: Context) -> str:
        return await asks(ctx, "a")

    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "work", "_meta": meta}}
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "work"}
    transport = httpx.ASGITransport(app.asgi())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.post("/mcp", json=body, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == -32021
    assert response.json()["error"]["data"] == {"requiredCapabilities": missing("form")}


@pytest.mark.parametrize(
    ("capabilities", "supported"),
    [
        ({}, set()),
        (EVERYTHING, {"elicitation", "elicitation.form", "elicitation.url", "sampling", "sampling.tools", "roots"}),
        ({"elicitation": {}}, {"elicitation", "elicitation.form"}),
        ({"elicitation": {"form": {}}}, {"elicitation", "elicitation.form"}),
        ({"sampling": {}}, {"sampling"}),
        ({"sampling": {"tools": {}}}, {"sampling", "sampling.tools"}),
        ({"roots": {}}, {"roots"}),
        ({"roots": {"listChanged": True}}, {"roots"}),
        ({"elicitation": None, "sampling": 1, "roots": []}, set()),
        ({"elicitation": True, "sampling": {"tools": None}}, {"sampling"}),
    ],
    ids=str,
)
async def test_a_handler_can_tell_what_the_client_supports(
    app: Server, capabilities: dict[str, object], supported: set[str]
) -> None:
    names = ["elicitation", "elicitation.form", "elicitation.url", "sampling", "sampling.tools", "roots"]

    @app.tool
    async def look(ctx: Context) -> str:
        return " ".join(name for name in names if ctx.client.supports(name))

    told = await converse(app, *tool("look"), capabilities=capabilities)
    assert set(told.text.split()) == supported


async def test_a_client_with_pages_only_supports_pages_only(app: Server) -> None:
    @app.tool
    async def look(ctx: Context) -> str:
        return f"{ctx.client.supports('elicitation.form')} {ctx.client.supports('elicitation.url')}"

    told = await converse(app, *tool("look"), capabilities={"elicitation": {"url": {}}})
    assert told.text == "False True"


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
