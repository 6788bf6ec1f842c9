"""Asking older clients: all styles, in the middle of one call."""

import asyncio
import contextlib
import json
import logging
import threading
from dataclasses import dataclass
from typing import Annotated

import pytest

from antiphon import Ask, CannotAsk, Context, InputRequired, Server, ask, input_required

from .driver import (
    CANCEL,
    DECLINE,
    EVERYTHING,
    SAMPLED,
    Client,
    accept,
    in_turn,
    key_of,
    notification,
    request,
    text_of,
    tool_call,
)


@dataclass
class Where:
    region: str
    replicas: int = 2


def styles(app):
    """One conversation in every style: which region, and then whether to go on there."""

    @app.tool
    async def awaiting(ctx: Context) -> str:
        where = (await ctx.elicit("Where?", Where, key="where")).unwrap()
        sure = await ctx.confirm(f"Deploy to {where.region}?", key="sure")
        return f"{where.region} {where.replicas} {sure}"

    @app.tool
    def in_a_thread(ctx: Context) -> str:
        where = ctx.sync.elicit("Where?", Where, key="where").unwrap()
        sure = ctx.sync.confirm(f"Deploy to {where.region}?", key="sure")
        return f"{where.region} {where.replicas} {sure}"

    @app.tool
    async def returning(ctx: Context) -> str | InputRequired:
        where = ctx.accepted("where", Where)
        if where is None:
            return input_required({"where": ask.form("Where?", Where)})
        sure = ctx.response("sure")
        if not hasattr(sure, "action"):
            return input_required({"sure": ask.confirm(f"Deploy to {where.region}?")})
        return f"{where.region} {where.replicas} {sure.action == 'accept' and sure.content['confirm']}"

    @app.tool
    async def declaring(
        where: Annotated[Where, Ask("Where?")],
        sure: Annotated[bool, Ask(lambda where: ask.confirm(f"Deploy to {where.region}?", key="sure"))],
    ) -> str:
        return f"{where.region} {where.replicas} {sure}"

    @app.tool
    async def mixing(sure: Annotated[bool, Ask("Sure?")], ctx: Context) -> str | InputRequired:
        where = (await ctx.elicit("Where?", Where, key="where")).unwrap()
        last = ctx.accepted("last", str)
        if last is None:
            return input_required({"last": ask.form("Anything else?", str)})
        return f"{where.region} {sure} {last}"

    @app.prompt
    async def report(ctx: Context) -> str:
        return (await ctx.elicit("Where?", Where, key="where")).unwrap().region

    @app.resource("report://{year}")
    async def by_year(year: str, ctx: Context) -> str:
        return f"{year} {(await ctx.elicit('Where?', Where, key='where')).unwrap().region}"

    return app


@pytest.fixture
def app():
    return styles(Server("tests"))


STYLES = ["awaiting", "in_a_thread", "returning", "declaring"]
EU = accept(region="eu")


async def open_client(app, *, options=None, **about):
    client = Client(app.asgi(**(options or {})), **about)
    await client.connect()
    return client


# --- the styles ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
async def test_every_style_asks_in_the_middle_of_the_call(client, style):
    told = await client.converse(tool_call(style), {"where": EU, "sure": accept(confirm=True)})
    assert told.names == ["where", "sure"]
    assert [question["params"]["message"] for question in told.asked] == ["Where?", "Deploy to eu?"]
    assert told.text == "eu 2 True"
    assert len({question["id"] for question in told.asked}) == 2


@pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18"])
@pytest.mark.parametrize("style", STYLES)
async def test_a_form_looks_as_its_revision_wants_it(app, style, revision):
    client = await open_client(app, revision=revision, capabilities={"elicitation": {}})
    told = await client.converse(tool_call(style), {"where": EU, "sure": accept(confirm=True)})
    assert told.text == "eu 2 True"
    for question in told.asked:
        assert question["method"] == "elicitation/create"
        assert question["params"].get("mode") == ("form" if revision == "2025-11-25" else None)
        assert question["params"]["requestedSchema"]["type"] == "object"
        assert "elicitationId" not in question["params"]


async def test_the_styles_mix_in_one_handler(client):
    answers = {"sure": accept(value=True), "where": EU, "last": accept(value="no")}
    told = await client.converse(tool_call("mixing"), answers)
    assert told.names == ["sure", "where", "last"]
    assert told.text == "eu True no"


async def test_prompts_and_resources_ask_as_well(client):
    told = await client.converse(request("prompts/get", {"name": "report"}), {"where": EU})
    assert told.end["result"]["messages"][0]["content"]["text"] == "eu"
    told = await client.converse(request("resources/read", {"uri": "report://2025"}), {"where": EU})
    assert told.end["result"]["contents"][0]["text"] == "2025 eu"


async def test_every_kind_of_question_is_asked(app):
    @app.tool
    async def review(ctx: Context) -> str:
        go = await ctx.confirm("Go?")
        page = await ctx.elicit_url("Sign in", "https://example.com/in", key="page")
        summary = await ctx.sample("Summarize", max_tokens=10)
        roots = await ctx.roots()
        return f"{go} {type(page).__name__} {summary.text} {len(roots)}"

    client = await open_client(app)
    answers = {
        "confirm": accept(confirm=True),
        "page": {"action": "accept"},
        "sample": SAMPLED,
        "roots": {"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]},
    }
    told = await client.converse(tool_call("review"), answers)
    assert told.text == "True Accepted Two files. 2"
    assert [question["method"] for question in told.asked] == [
        "elicitation/create",
        "elicitation/create",
        "sampling/createMessage",
        "roots/list",
    ]


@pytest.mark.parametrize("group", ["gather", "TaskGroup", "returned"])
async def test_parallel_questions_are_asked_at_once_and_answered_in_any_order(app, group):
    async def one(ctx, key):
        return (await ctx.elicit(f"{key}?", str, key=key)).unwrap()

    @app.tool
    async def several(ctx: Context) -> str | InputRequired:
        if group == "gather":
            return " ".join(await asyncio.gather(*(one(ctx, key) for key in "abc")))
        if group == "TaskGroup":
            async with asyncio.TaskGroup() as tasks:
                made = [tasks.create_task(one(ctx, key)) for key in "abc"]
            return " ".join(task.result() for task in made)
        found = [ctx.accepted(key, str) for key in "abc"]
        if None in found:
            return input_required({key: ask.form(f"{key}?", str) for key in "abc"})
        return " ".join(found)

    client = await open_client(app)
    call = client.tool("several")
    questions = [await call.next_message() for _ in range(3)]
    assert [key_of(question) for question in questions] == ["a", "b", "c"]
    for question in reversed(questions):
        await client.answer(question, accept(value=key_of(question).upper()))
    assert text_of(await call.next_message()) == "A B C"
    await call.finished()


async def test_a_middleware_asks(app):
    @app.middleware
    async def gate(ctx, proceed):
        if ctx.method == "tools/call" and not await ctx.confirm("May it?", key="gate"):
            return {"content": [{"type": "text", "text": "stopped"}], "isError": True}
        return await proceed(ctx)

    client = await open_client(app)
    yes, no = accept(confirm=True), accept(confirm=False)
    for style in STYLES:
        told = await client.converse(tool_call(style), {"gate": yes, "where": EU, "sure": yes})
        assert told.names == ["gate", "where", "sure"], style
        assert told.text == "eu 2 True"
    told = await client.converse(tool_call("awaiting"), {"gate": no})
    assert (told.names, told.text, told.failed) == (["gate"], "stopped", True)


async def test_a_handler_that_loops_until_it_likes_the_answer_asks_each_time(app):
    @app.tool
    async def guess(ctx: Context) -> str:
        tries = 1
        while (await ctx.elicit("Which number?", int, key="number")).unwrap() != 7:
            tries += 1
        return f"{tries} tries"

    client = await open_client(app)
    answers = {"number": accept(value=1), "number-2": accept(value=2), "number-3": accept(value=7)}
    told = await client.converse(tool_call("guess"), answers)
    assert told.text == "3 tries"


# --- answers that are none ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("answer", "verb"), [(DECLINE, "declined"), (CANCEL, "cancelled")])
async def test_a_refusal_ends_a_call_that_needs_an_answer(client, style, answer, verb):
    told = await client.converse(tool_call(style), {"where": answer})
    assert told.failed
    assert f"The user {verb}" in told.text
    assert told.names == ["where"]


UNFIT = [None, 1, "yes", [], {}, {"action": "maybe"}, accept(), accept(region=1), {"action": "accept"}, accept(x=1)]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("unfit", UNFIT, ids=json.dumps)
async def test_an_answer_that_does_not_fit_is_asked_for_again(client, style, unfit):
    told = await client.converse(tool_call(style), {"where": in_turn(unfit, EU), "sure": accept(confirm=True)})
    assert told.names == ["where", "where", "sure"]
    assert told.text == "eu 2 True"


@pytest.mark.parametrize("style", STYLES)
async def test_who_never_answers_fittingly_is_not_asked_for_ever(app, style):
    app.max_rounds = 4
    client = await open_client(app)
    told = await client.converse(tool_call(style), {"where": accept(nonsense=True)})
    assert told.failed
    assert 1 < len(told.asked) <= 4
    assert "ends here" in told.text


async def test_a_handler_that_catches_every_exception_does_not_go_on_without_a_fitting_answer(app):
    deleted = []

    @app.tool
    async def delete(ctx: Context) -> str:
        sure = True
        with contextlib.suppress(Exception):
            sure = await ctx.confirm("Delete it?", key="sure")
        if sure:
            deleted.append("it")
        return "done"

    told = await (await open_client(app)).converse(tool_call("delete"), {"sure": accept(nonsense=True)})
    assert told.failed
    assert "ends here" in told.text
    assert not deleted


@pytest.mark.parametrize("style", STYLES)
async def test_an_error_for_an_answer_ends_the_call_with_its_text(client, style):
    call = client.tool(style)
    await client.refuse(await call.next_message(), "The dialog could not be shown")
    end = await call.next_message()
    assert end["result"]["isError"]
    assert text_of(end) == "The client could not be asked: The dialog could not be shown"


@pytest.mark.parametrize("style", ["awaiting", "returning", "declaring"])
async def test_so_it_does_where_there_is_no_result_for_a_model(app, style):
    @app.prompt
    async def awaiting(ctx: Context) -> str:
        return (await ctx.elicit("Who?", str)).unwrap()

    @app.prompt
    async def returning(ctx: Context) -> str | InputRequired:
        return ctx.accepted("who", str) or input_required({"who": ask.form("Who?", str)})

    @app.prompt
    async def declaring(who: Annotated[str, Ask("Who?")]) -> str:
        return who

    client = await open_client(app)
    call = client.open(request("prompts/get", {"name": style}))
    await client.refuse(await call.next_message(), "no")
    assert (await call.next_message())["error"] == {
        "code": -32603,
        "message": "The client could not be asked: no",
    }


# --- why an answer was not accepted -------------------------------------------------------------------------------


@dataclass
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("the number must be even")


@pytest.mark.parametrize("style", ["awaiting", "in_a_thread", "returning", "declaring"])
async def test_the_reason_why_an_answer_is_not_accepted_stands_before_the_question(style, caplog):
    app = Server("reasons")

    @app.tool
    async def awaiting(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", Even, key="which")).unwrap().number)

    @app.tool
    def in_a_thread(ctx: Context) -> str:
        return str(ctx.sync.elicit("Which?", Even, key="which").unwrap().number)

    @app.tool
    async def returning(ctx: Context) -> str | InputRequired:
        even = ctx.accepted("which", Even)
        return input_required({"which": ask.form("Which?", Even)}) if even is None else str(even.number)

    @app.tool
    async def declaring(which: Annotated[Even, Ask("Which?")]) -> str:
        return str(which.number)

    client = await open_client(app)
    told = await client.converse(tool_call(style), {"which": in_turn(accept(number=3), accept(number=4))})
    messages = [question["params"]["message"] for question in told.asked]
    assert messages == ["Which?", "Not accepted: the number must be even\n\nWhich?"]
    assert told.text == "4"
    assert "'which' was not accepted: the number must be even" in caplog.text


# --- results as the wire has them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("forged", [None, "v1"])
async def test_a_raw_result_that_asks_is_asked_and_its_answer_and_state_come_back(forged):
    app = Server("raw")

    @app.on("tools/call")
    async def call_tool(params: dict) -> dict:
        answer = (params.get("inputResponses") or {}).get("region")
        if params.get("requestState") != "v1":
            question = {
                "method": "elicitation/create",
                "params": {
                    "mode": "form",
                    "message": "Which region?",
                    "requestedSchema": {"type": "object", "properties": {"region": {"type": "string"}}},
                },
            }
            return {"resultType": "input_required", "inputRequests": {"region": question}, "requestState": "v1"}
        return {"content": [{"type": "text", "text": f"in {answer['content']['region']}"}]}

    call = tool_call("provision")
    if forged:
        call["params"]["requestState"] = forged
        call["params"]["inputResponses"] = {"region": accept(region="forged")}
    client = await open_client(app)
    told = await client.converse(call, {"region": accept(region="oslo")})
    assert told.names == ["region"]
    assert told.text == "in oslo"


async def test_an_error_for_one_of_several_takes_the_others_back(app):
    @app.tool
    async def several(ctx: Context) -> InputRequired:
        return input_required({key: ask.form(f"{key}?", str) for key in "ab"})

    client = await open_client(app)
    call = client.tool("several")
    first, second = await call.next_message(), await call.next_message()
    await client.refuse(first)
    assert await call.next_message() == notification("notifications/cancelled", {"requestId": second["id"]})
    assert text_of(await call.next_message()) == "The client could not be asked: no"
    await client.answer(second, accept(value="too late"))


async def test_cannot_ask_is_no_exception_that_a_handler_swallows(app):
    @app.tool
    async def careless(ctx: Context) -> str:
        try:
            ok = await ctx.confirm("Wipe?")
        except Exception:
            ok = True
        return f"wiped: {ok}"

    client = await open_client(app)
    call = client.tool("careless")
    await client.refuse(await call.next_message())
    assert "wiped" not in json.dumps(await call.next_message())


# --- whose answers count ------------------------------------------------------------------------------------------


async def test_an_answer_from_another_session_is_ignored(client):
    other = Client(client.app)
    await other.connect()
    call = client.tool("awaiting")
    question = await call.next_message()
    await other.answer(question, accept(region="stolen"))
    await other.refuse(question)
    await client.answer(question, EU)
    question = await call.next_message()
    assert question["params"]["message"] == "Deploy to eu?"
    await client.answer(question, accept(confirm=True))
    assert text_of(await call.next_message()) == "eu 2 True"


@pytest.mark.parametrize("id", ["nobody-1", "", "-", "x", 1, None, True, 1.5, [], {}, "antiphon-0"])
async def test_an_answer_that_nobody_waits_for_is_taken_and_forgotten(client, id):
    for body in ({"result": {}}, {"error": {"code": 1, "message": "x"}}, {"result": 1, "error": 2}):
        reply = await client.post({"jsonrpc": "2.0", "id": id, **body})
        assert (reply.status, reply.body) == (202, b"")
    told = await client.converse(tool_call("awaiting"), {"where": EU, "sure": accept(confirm=True)})
    assert told.text == "eu 2 True"


async def test_the_first_answer_counts(client):
    call = client.tool("awaiting")
    question = await call.next_message()
    await client.answer(question, EU)
    await client.answer(question, accept(region="us"))
    question = await call.next_message()
    assert question["params"]["message"] == "Deploy to eu?"
    await client.answer(question, DECLINE)
    await call.finished()


# --- what a client can be asked -----------------------------------------------------------------------------------


def kinds(app):
    @app.tool
    async def form(ctx: Context) -> str:
        return str((await ctx.elicit("?", str, key="q")).unwrap())

    @app.tool
    async def page(ctx: Context) -> str:
        return type(await ctx.elicit_url("?", "https://example.com", key="q")).__name__

    @app.tool
    async def sample(ctx: Context) -> str:
        return (await ctx.sample("?", max_tokens=1, key="q")).text

    @app.tool
    async def sample_with_tools(ctx: Context) -> str:
        return (await ctx.sample("?", max_tokens=1, tools=[], key="q")).text

    @app.tool
    async def folders(ctx: Context) -> str:
        return str(len(await ctx.roots(key="q")))

    return {
        "form": accept(value="yes"),
        "page": {"action": "accept"},
        "sample": SAMPLED,
        "sample_with_tools": SAMPLED,
        "folders": {"roots": []},
    }


@pytest.mark.parametrize(
    ("capabilities", "able"),
    [
        ({}, set()),
        ({"elicitation": {}}, {"form"}),
        ({"elicitation": {"form": {}}}, {"form"}),
        ({"elicitation": {"url": {}}}, {"page"}),
        ({"elicitation": {"form": {}, "url": {}}}, {"form", "page"}),
        ({"sampling": {}}, {"sample"}),
        ({"sampling": {"tools": {}}}, {"sample", "sample_with_tools"}),
        ({"roots": {"listChanged": True}}, {"folders"}),
        ({"elicitation": None, "sampling": [], "roots": "x"}, set()),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
async def test_only_what_initialize_declared_is_asked(app, capabilities, able):
    answers = kinds(app)
    client = await open_client(app, capabilities=capabilities)
    for name, answer in answers.items():
        told = await client.converse(tool_call(name), {"q": answer})
        if name in able:
            assert told.names == ["q"], name
            assert "result" in told.end
        else:
            assert told.asked == [], name
            assert "did not declare" in told.end["error"]["message"]
            assert told.end["error"]["data"]["requiredCapabilities"]


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-03-26"])
async def test_a_page_is_not_asked_of_a_revision_that_knows_none(app, revision):
    answers = kinds(app)
    client = await open_client(app, revision=revision, capabilities=EVERYTHING)
    told = await client.converse(tool_call("page"), {"q": answers["page"]})
    assert told.asked == []
    assert "elicitation.url" in told.end["error"]["message"]


@pytest.mark.parametrize("style", STYLES)
async def test_a_client_that_takes_no_streams_cannot_be_asked_and_hears_why(client, style):
    reply = await client.post(tool_call(style), headers={"accept": "application/json"})
    assert reply.status == 200
    assert "stream" in json.dumps(reply.message)


async def test_a_handler_knows_what_it_may_ask(app):
    @app.tool
    async def able(ctx: Context) -> str:
        wanted = ["elicitation", "elicitation.url", "sampling", "sampling.tools", "roots"]
        return " ".join(name for name in wanted if ctx.client.supports(name))

    client = await open_client(app, capabilities={"elicitation": {}, "sampling": {"tools": {}}})
    assert text_of(await client.use("able")) == "elicitation sampling sampling.tools"


# --- what is remembered -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["awaiting", "returning"])
async def test_a_step_runs_once_whatever_the_style(app, style):
    ran = []

    async def work(name: str) -> str:
        ran.append(name)
        return name.upper()

    @app.tool
    async def stepping(ctx: Context) -> str | InputRequired:
        first = await ctx.step("first", work, "a")
        moment = await ctx.now()
        if style == "awaiting":
            value = (await ctx.elicit("?", str, key="q")).unwrap()
        else:
            value = ctx.accepted("q", str)
            if value is None:
                return input_required({"q": ask.form("?", str)}, state=moment.isoformat())
            assert ctx.state(str) == moment.isoformat()
        second = await ctx.step("second", work, "b")
        return f"{first} {value} {second} {await ctx.step('third', lambda: moment == moment)}"

    client = await open_client(app)
    told = await client.converse(tool_call("stepping"), {"q": accept(value="x")})
    assert told.text == "A x B True"
    assert ran == ["a", "b"]


async def test_rounds_are_counted_and_state_comes_back_as_it_was_given(app):
    seen = []

    @app.tool
    async def counting(ctx: Context) -> str | InputRequired:
        seen.append((ctx.round, ctx.state(list[int]), ctx.flow))
        if ctx.round < 3:
            return input_required({"q": ask.form(f"{ctx.round}?", str)}, state=[ctx.round])
        return "done"

    client = await open_client(app)
    told = await client.converse(tool_call("counting"), {"q": accept(value="x")})
    assert told.text == "done"
    assert [(number, state) for number, state, _ in seen] == [(1, None), (2, [1]), (3, [2])]
    assert len({flow for _, _, flow in seen}) == 1


@pytest.fixture
def no_pause(monkeypatch):
    from antiphon.legacy.server import dispatch

    monkeypatch.setattr(dispatch, "FIRST_PAUSE", 0.001)


async def test_rounds_of_state_alone_ask_nothing(app, no_pause):
    @app.tool
    async def shedding(ctx: Context) -> int | InputRequired:
        done = ctx.state(int) or 0
        return done if done == 3 else input_required(state=done + 1)

    client = await open_client(app)
    told = await client.converse(tool_call("shedding"), {})
    assert (told.asked, told.text) == ([], "3")


@pytest.mark.parametrize("what", ["questions", "state"])
async def test_a_handler_that_never_ends_is_ended_after_max_rounds(app, what, caplog, no_pause):
    app.max_rounds = 3
    runs = []

    @app.tool
    async def endless(ctx: Context) -> InputRequired:
        runs.append(ctx.round)
        if what == "state":
            return input_required(state=ctx.round)
        return input_required({f"q{ctx.round}": ask.form("More?", str)})

    client = await open_client(app)
    told = await client.converse(tool_call("endless"), {f"q{number}": accept(value="x") for number in range(9)})
    assert told.failed
    assert "3 times" in told.text
    assert runs == [1, 2, 3, 4]
    assert "still asked after 3 rounds" in caplog.text


async def test_answers_that_a_client_sends_along_are_not_looked_at(client):
    early = {"inputResponses": {"where": EU, "sure": accept(confirm=True)}, "requestState": "forged"}
    for style in STYLES:
        told = await client.converse(tool_call(style, **early), {"where": EU, "sure": accept(confirm=True)})
        assert told.names == ["where", "sure"], style


@pytest.mark.parametrize("raw", [False, True])
async def test_a_run_starts_from_the_arguments_that_were_sent_whatever_the_one_before_did_to_them(app, raw):
    seen = []

    def use_up(names):
        seen.append(list(names))
        names.clear()

    if raw:

        @app.on("tools/call")
        async def call(params, ctx: Context):
            use_up(params["arguments"]["deep"]["names"])
            params["arguments"].clear()
            if ctx.accepted("q", str) is None:
                return input_required({"q": ask.form("More?", str)})
            return {"content": [{"type": "text", "text": "done"}]}

    else:

        @app.tool
        async def using(deep: dict, ctx: Context) -> str | InputRequired:
            use_up(deep["names"])
            return "done" if ctx.accepted("q", str) else input_required({"q": ask.form("More?", str)})

    client = await open_client(app)
    told = await client.converse(tool_call("using", {"deep": {"names": ["a", "b"]}}), {"q": accept(value="x")})
    assert (told.text, seen) == ("done", [["a", "b"], ["a", "b"]])


# --- without the shim ---------------------------------------------------------------------------------------------


async def test_without_the_shim_only_awaiting_asks(caplog):
    app = styles(Server("tests", shim=False))
    client = await open_client(app)
    answers = {"where": EU, "sure": accept(confirm=True)}
    for style in ("awaiting", "in_a_thread"):
        assert (await client.converse(tool_call(style), answers)).text == "eu 2 True"
    for style in ("returning", "declaring"):
        told = await client.converse(tool_call(style), {})
        assert told.failed
        assert "shim=False" in told.text
        assert f"{style!r} asks by returning" in caplog.text


# --- time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
async def test_a_question_waits_no_longer_than_ask_timeout(style):
    app = styles(Server("tests", ask_timeout=0.05))
    client = await open_client(app)
    call = client.tool(style)
    question = await call.next_message()
    assert await call.next_message() == notification("notifications/cancelled", {"requestId": question["id"]})
    end = await call.next_message()
    assert "0.05 seconds" in json.dumps(end)
    await client.answer(question, EU)  # nobody minds


@pytest.mark.parametrize("bad", [0, -1])
def test_a_senseless_ask_timeout_is_refused(bad):
    with pytest.raises(ValueError, match="ask_timeout"):
        Server("tests", ask_timeout=bad)


# --- cancelling ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
async def test_cancelling_a_call_takes_its_question_back_and_answers_nothing(client, style):
    call = client.open(tool_call(style, id="mine"))
    question = await call.next_message()
    await client.tell("notifications/cancelled", {"requestId": "mine", "reason": "no time"})
    assert await call.closed() == [question, notification("notifications/cancelled", {"requestId": question["id"]})]
    await call.finished()
    told = await client.converse(tool_call(style, id="mine"), {"where": EU, "sure": accept(confirm=True)})
    assert told.text == "eu 2 True"


async def test_a_thread_that_asks_ends_with_its_call(app):
    ended = threading.Event()
    heard = []

    @app.tool
    def asking(ctx: Context) -> str:
        try:
            return str(ctx.sync.confirm("Wipe?"))
        except Exception:
            heard.append("an exception that a careless handler takes for a yes")
            raise
        except CannotAsk:
            heard.append("cannot ask")
            raise
        finally:
            ended.set()

    client = await open_client(app)
    call = client.tool("asking", id="mine")
    await call.next_message()
    await client.tell("notifications/cancelled", {"requestId": "mine"})
    await call.finished()
    assert await asyncio.to_thread(ended.wait, 2)
    assert heard == ["cannot ask"]
    assert len(client.app.dialect.router.pushes) == 0


async def test_a_question_that_nobody_awaits_any_more_is_taken_back(app):
    @app.tool
    async def forgetful(ctx: Context) -> str:
        left = asyncio.ensure_future(ctx.elicit("Still there?", str))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        kept.append(left)
        return "done"

    kept = []
    client = await open_client(app)
    call = client.tool("forgetful")
    question = await call.next_message()
    assert await call.next_message() == notification("notifications/cancelled", {"requestId": question["id"]})
    assert text_of(await call.next_message()) == "done"
    await asyncio.wait(kept, timeout=2)
    assert isinstance(kept[0].exception(), CannotAsk)
    assert len(client.app.dialect.router.pushes) == 0


# --- pages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", ["awaiting", "returning"])
async def test_a_page_has_an_id_and_its_end_is_told_with_it(app, style):
    @app.tool
    async def sign_in(ctx: Context) -> str | InputRequired:
        url = "https://example.com/sign-in"
        if style == "awaiting":
            (await ctx.elicit_url("Sign in", url, key="page")).unwrap()
        elif not hasattr(ctx.response("page"), "action"):
            return input_required({"page": ask.url("Sign in", url)})
        await ctx.url_done("page")
        await ctx.url_done("no such page")
        return "signed in"

    client = await open_client(app)
    told = await client.converse(tool_call("sign_in"), {"page": {"action": "accept"}})
    about = told.asked[0]["params"]
    assert about["mode"] == "url"
    assert about["url"] == "https://example.com/sign-in"
    assert about["elicitationId"]
    assert told.notified == [
        notification("notifications/elicitation/complete", {"elicitationId": about["elicitationId"]})
    ]
    assert told.text == "signed in"
    again = await client.converse(tool_call("sign_in"), {"page": {"action": "accept"}})
    assert again.asked[0]["params"]["elicitationId"] != about["elicitationId"]


async def test_a_modern_client_hears_nothing_of_hanging_up_or_of_pages_that_are_done(app, use):
    @app.tool
    async def old_ways(ctx: Context) -> str:
        await ctx.hang_up()
        await ctx.url_done()
        return "fine"

    heard = []
    result = await use(app, "old_ways", told=heard)
    assert (result["content"][0]["text"], heard) == ("fine", [])


# --- the log ------------------------------------------------------------------------------------------------------


async def test_an_ordinary_conversation_warns_of_nothing(client, caplog):
    caplog.set_level(logging.DEBUG)
    for style in STYLES:
        await client.converse(tool_call(style), {"where": EU, "sure": accept(confirm=True)})
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
