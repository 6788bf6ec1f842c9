"""Scripts: answers by key, by message and by function, and what is said when there is none."""

import asyncio
import re

import pytest

from antiphon import (
    Accepted,
    Cancelled,
    Client,
    Context,
    Declined,
    Elicitation,
    Root,
    Sample,
    SampleRequest,
    Server,
    Text,
    Tool,
    ask,
    eras,
    input_required,
)
from antiphon.errors import CannotAnswer, Disconnected, Refused
from antiphon.testing import AnswerUnfit, AnswerUnscripted, Asked, Recorded, Script
from antiphon.testing.answer_values import response_to
from antiphon.testing.answers import asked_in
from antiphon.transports.link import SessionLink

app = Server("scripted")


@app.tool
async def deploy(env: str, ctx: Context) -> str:
    region = await ctx.elicit("Which region?", ["eu", "us"], key="region")
    sure = await ctx.confirm(f"Deploy to {env}?")
    return f"{region.action} {getattr(region, 'value', '-')} {sure}"


@app.tool
async def twice(ctx: Context) -> str:
    return f"{await ctx.confirm('One?')} {await ctx.confirm('Two?')}"


@app.tool
async def together(ctx: Context) -> str:
    return str(await asyncio.gather(ctx.confirm("One?"), ctx.confirm("Two?"), ctx.confirm("Three?")))


@app.tool
async def paint(ctx: Context) -> str:
    schema = {
        "type": "object",
        "properties": {"colours": {"type": "array", "items": {"type": "string", "enum": ["red", "blue"]}}},
        "required": ["colours"],
    }
    return str((await ctx.elicit("Colours?", schema, key="colours")).unwrap())


@app.tool
async def open_page(ctx: Context) -> str:
    return (await ctx.elicit_url("Log in", "https://example.com/login", key="login")).action


@app.tool
async def seat(ctx: Context) -> str:
    schema = {"type": "object", "properties": {"seats": {"type": "integer", "default": 2}, "row": {"type": "string"}}}
    return (await ctx.elicit("Which seats?", schema, key="seat")).action


@app.tool
async def notice(ctx: Context) -> str:
    return (await ctx.elicit("Everything is deleted", {"type": "object", "properties": {}}, key="notice")).action


@app.tool
async def poem(ctx: Context) -> str:
    return (await ctx.sample("Write a poem", max_tokens=10, key="poem")).text


@app.tool
async def use_tools(ctx: Context) -> str:
    tools = [Tool(name="t", input_schema={"type": "object"})]
    return (await ctx.sample("Use a tool", max_tokens=10, tools=tools)).text


@app.tool
async def folders(ctx: Context) -> str:
    return " ".join(root.uri for root in await ctx.roots(key="folders"))


@app.tool
async def stubborn(ctx: Context) -> object:
    return input_required({"again": ask.form("Again?", bool, again=True)})


async def call(script, name, **arguments):
    async with Client(app, **script.handlers()) as client:
        return await client.call_tool(name, arguments)


# --- by key, by message, by function --------------------------------------------------------------------------------


async def test_answers_are_found_by_key():
    script = Script({"region": "eu", "confirm": {"confirm": True}})
    result = await call(script, "deploy", env="prod")
    assert result.text == "accept eu True"
    assert script.asked == ["region", "confirm"]
    assert script.unused == []


@pytest.mark.parametrize(
    "answers",
    [
        {"Which region?": "us", "Deploy to prod?": False},
        {re.compile("region"): "us", re.compile(r"^Deploy to \w+\?$"): False},
        {"deploy.region": "us", "region": "eu", "deploy.confirm": False},
    ],
    ids=["message", "pattern", "tool and key"],
)
async def test_answers_are_found_by_message_and_by_tool(answers):
    assert (await call(Script(answers), "deploy", env="prod")).text == "accept us False"


async def test_a_key_goes_before_a_message_and_a_message_before_a_pattern():
    script = Script({re.compile("."): "us", "Which region?": "cancel", "region": "eu", "confirm": True})
    assert (await call(script, "deploy", env="prod")).text == "accept eu True"
    script = Script({re.compile("."): True, "Which region?": "cancel"})
    assert (await call(script, "deploy", env="prod")).text == "cancel - True"
    assert [asked.used for asked in script.asked] == ["Which region?", "/./"]


async def test_a_function_answers_what_it_is_asked():
    seen = []

    def region(question):
        seen.append(question)
        return "eu"

    async def confirm(question):
        return question.message == "Deploy to prod?"

    assert (await call(Script({"region": region, "confirm": [confirm]}), "deploy", env="prod")).text == "accept eu True"
    assert isinstance(seen[0], Elicitation)
    assert (seen[0].tool, seen[0].round, seen[0].schema["required"]) == ("deploy", 1, ["value"])


async def test_one_function_can_answer_everything():
    def answer(question):
        return "A poem" if isinstance(question, SampleRequest) else "decline"

    script = Script(answer)
    assert (await call(script, "deploy", env="prod")).text == "decline - False"
    assert (await call(script, "poem")).text == "A poem"
    with pytest.raises(AnswerUnscripted, match="the script has no answer for it. Its function gave none"):
        await call(Script(lambda question: None), "poem")


async def test_a_function_that_returns_nothing_is_named():
    with pytest.raises(AnswerUnscripted) as caught:
        await call(Script({"region": lambda question: None, "confirm": True}), "deploy", env="prod")
    assert "'region' (a form, 'Which region?'" in str(caught.value)
    assert str(caught.value).endswith(
        "and the function that answers 'region' returned None."
        " It returns what is answered: a value, 'decline' or 'cancel'."
    )


async def test_more_answers_can_be_written_down_later():
    script = Script({"region": "eu"})
    assert script({"Deploy to prod?": True}, region="us") is script
    assert (await call(script, "deploy", env="prod")).text == "accept us True"
    script(lambda question: "Anything")
    assert (await call(script, "poem")).text == "Anything"


# --- what an answer can be ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("region", "action"),
    [
        (Accepted("eu"), "accept eu"),
        ({"value": "eu"}, "accept eu"),
        ({"action": "accept", "content": {"value": "eu"}}, "accept eu"),
        (Declined(), "decline -"),
        ("decline", "decline -"),
        ({"action": "decline"}, "decline -"),
        (Cancelled(), "cancel -"),
        ("cancel", "cancel -"),
    ],
)
async def test_an_answer_accepts_declines_or_cancels(region, action):
    script = Script({"region": region, "confirm": False})
    assert (await call(script, "deploy", env="x")).text == f"{action} False"


def test_an_action_alone_accepts_with_what_the_form_has_by_itself():
    schema = {"type": "object", "properties": {"seats": {"type": "integer", "default": 2}}}
    request = {"method": "elicitation/create", "params": {"message": "How many?", "requestedSchema": schema}}
    for given in ("accept", {"action": "accept"}):
        assert response_to("seats", request, given) == {"action": "accept", "content": {"seats": 2}}


@pytest.mark.parametrize("login", [True, "accept", Accepted(None), {"action": "accept"}])
async def test_a_page_is_agreed_to_or_not(login):
    assert (await call(Script({"login": login}), "open_page")).text == "accept"
    assert (await call(Script({"login": "decline"}), "open_page")).text == "decline"


@pytest.mark.parametrize("given", [None, [None]])
@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("deploy", "region"),
        ("open_page", "login"),
        ("open_page", "Log in"),
        ("poem", "poem"),
        ("poem", "sample"),
        ("folders", "roots"),
        ("seat", "seat"),
        ("notice", "notice"),
    ],
)
@pytest.mark.parametrize("keyless", [False, True])
async def test_null_is_never_a_yes(tool, name, given, keyless):
    script = Script({name: given}, keyless=keyless)
    with pytest.raises(CannotAnswer):
        await call(script, tool, **({"env": "x"} if tool == "deploy" else {}))
    assert script.asked == []


@pytest.mark.parametrize("shape", [{}, {"properties": {}}, {"properties": {"seats": {"default": 2}}}])
@pytest.mark.parametrize("given", [None, {"action": None}, {"action": None, "content": {}}])
def test_null_does_not_accept_a_form(shape, given):
    request = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": shape}}
    with pytest.raises(AnswerUnfit):
        response_to("seats", request, given)


@pytest.mark.parametrize("given", [None, {"action": None}, {"action": None, "content": None}, {"roots": None}])
def test_null_answers_nothing(given):
    page = {"method": "elicitation/create", "params": {"mode": "url", "message": "?", "url": "https://example.com"}}
    for request in (page, {"method": "roots/list"}, {"method": "sampling/createMessage"}):
        with pytest.raises(AnswerUnfit, match="The answer to 'pay'"):
            response_to("pay", request, given)


@pytest.mark.parametrize(
    "script",
    [
        Script({"poem": "Roses"}),
        Script({"poem": {"sample": "Roses"}}),
        Script({"poem": Sample(role="assistant", content=Text("Roses"), model="m")}),
        Script({"Write a poem": "Roses"}),
        Script({"sample": "Roses"}),
        Script(sample="Roses"),
        Script(sample=["Roses"]),
        Script(sample=lambda request: f"Roses{'' if request.max_tokens == 10 else '?'}"),
    ],
)
async def test_a_model_is_played_by_a_text(script):
    assert (await call(script, "poem")).text == "Roses"
    assert script.asked[0].kind == "sample"
    assert script.asked[0].message == "Write a poem"


@pytest.mark.parametrize(
    "script",
    [
        Script(roots=["file:///a", Root("file:///b")]),
        Script({"roots": [{"uri": "file:///a"}, "file:///b"]}),
        Script({"folders": {"roots": ["file:///a", "file:///b"]}}),
        Script(roots=lambda: ["file:///a", "file:///b"]),
        Script(roots=[["file:///a", "file:///b"], []]),
    ],
)
async def test_roots_are_a_list(script):
    assert (await call(script, "folders")).text == "file:///a file:///b"
    assert script.asked[0].kind == "roots"


async def test_a_list_has_one_answer_for_each_time():
    script = Script({"confirm": [True, "decline"]})
    assert (await call(script, "twice")).text == "True False"
    assert script.asked == ["confirm", "confirm-2"]
    script = Script({"confirm": [False, True, False]})
    assert (await call(script, "together")).text == "[False, True, False]"


async def test_several_choices_are_one_answer():
    whole = Script({"colours": ["red", "blue"], "confirm": [True, False]})
    assert (await call(whole, "paint")).text == "{'colours': ['red', 'blue']}"
    assert whole.unused == ["confirm"]
    script = Script({"colours": [["red"], ["blue"]]})
    assert [(await call(script, "paint")).text for _ in range(2)] == ["{'colours': ['red']}", "{'colours': ['blue']}"]


# --- what was asked -------------------------------------------------------------------------------------------------


async def test_what_was_asked_is_kept():
    script = Script({"region": "eu", "Deploy to prod?": "decline", "spare": 1})
    await call(script, "deploy", env="prod")
    region, confirm = script.asked
    assert isinstance(region, Asked)
    assert region == "region"
    assert (region.key, region.kind, region.message) == ("region", "form", "Which region?")
    assert (region.tool, region.round) == ("deploy", 1)
    assert region.request["params"]["requestedSchema"]["properties"]["value"]["enum"] == ["eu", "us"]
    assert region.answer == {"action": "accept", "content": {"value": "eu"}}
    assert (confirm.used, confirm.answer, confirm.round) == ("Deploy to prod?", {"action": "decline"}, 2)
    assert script.unused == ["spare"]


async def test_a_transcript_tells_the_same():
    script = Script({"region": "eu", "confirm": "decline", "poem": "Roses"})
    link = Recorded(eras.connect(app))
    async with Client(link, **script.handlers()) as client:
        with link.noting() as turns:
            await client.call_tool("deploy", {"env": "prod"})
        await client.call_tool("poem")
    asked = asked_in(turns)
    assert asked == ["region", "confirm"]
    assert [(item.round, item.answer["action"], item.tool) for item in asked] == [
        (1, "accept", "deploy"),
        (2, "decline", "deploy"),
    ]
    assert asked_in(link.turns) == script.asked
    assert [item.answer for item in asked_in(link.turns)] == [item.answer for item in script.asked]


# --- what is missing ------------------------------------------------------------------------------------------------


async def test_a_missing_answer_says_what_was_asked_and_what_there_is():
    with pytest.raises(AnswerUnscripted) as caught:
        await call(Script({"regoin": "eu", "confirm": True}), "deploy", env="prod")
    assert str(caught.value) == (
        "The server asks 'region' (a form, 'Which region?', with value: eu | us), and the script has no answer for it."
        " It answers 'regoin', 'confirm'. Is 'regoin' meant to be 'region'?"
    )
    assert caught.value.key == "region"
    assert isinstance(caught.value, CannotAnswer)


async def test_an_empty_script_says_so():
    with pytest.raises(AnswerUnscripted, match="'login' .a URL to open, 'Log in'.*It has no answers at all"):
        await call(Script(), "open_page")
    with pytest.raises(AnswerUnscripted, match="'poem' .for a model, 'Write a poem'."):
        await call(Script(), "poem")
    with pytest.raises(AnswerUnscripted, match="'roots' .for roots."):
        await call(Script(), "folders")


async def test_answers_that_are_used_up_say_so():
    with pytest.raises(AnswerUnscripted) as caught:
        await call(Script({"region": "eu", "confirm": [True]}), "twice")
    assert "asks 'confirm-2' (a form, 'Two?', with confirm: boolean) once more" in str(caught.value)
    assert "its only answer is used up" in str(caught.value)
    assert "Asked before: 'confirm'." in str(caught.value)
    with pytest.raises(AnswerUnscripted, match="its 2 answers are used up"):
        await call(Script({"again": [True, False]}), "stubborn")


async def test_a_list_without_answers_says_so():
    with pytest.raises(AnswerUnscripted, match="'region'.*and its list of answers is empty"):
        await call(Script({"region": []}), "deploy", env="prod")


def test_names_for_a_whole_kind_are_not_taken_for_misspelt_keys():
    asked = Asked("samples", kind="form")
    assert "Is 'sampels' meant to be 'samples'?" in Script({"sampels": 1})._nothing_for(asked)
    assert "meant to be" not in Script({"sample": "x"})._nothing_for(asked)


async def test_without_keys_two_answers_that_fit_are_one_too_many():
    with pytest.raises(AnswerUnscripted, match="have no keys, and 'a' and 'b' would all fit: put the message"):
        await call(Script({"a": "eu", "b": "us"}, keyless=True), "deploy", env="prod")
    with pytest.raises(AnswerUnscripted, match="None of those that are left fits"):
        await call(Script({"a": "mars", "b": "venus"}, keyless=True), "deploy", env="prod")


async def test_an_answer_that_does_not_fit_says_why():
    with pytest.raises(AnswerUnfit, match="'region' does not fit its form.*eu"):
        await call(Script({"region": "mars"}), "deploy", env="prod")
    with pytest.raises(AnswerUnfit, match="has 'place', and the form has no such field: it has value"):
        await call(Script({"region": {"place": "eu"}}), "deploy", env="prod")


async def test_a_script_declares_what_it_is_told_to():
    assert Script(declare=["elicitation"]).handlers().keys() == {"elicit"}
    assert Script(declare=["sampling"]).handlers()["sample_tools"] is False
    assert (await call(Script(sample="Used"), "use_tools")).text == "Used"
    with pytest.raises(Refused, match="did not declare"):
        await call(Script({"login": True}, declare=["elicitation"]), "open_page")
    with pytest.raises(ValueError, match="Unknown capability 'everything'"):
        Script(declare=["everything"])


def test_a_name_is_a_text_or_a_pattern():
    with pytest.raises(TypeError, match="a key, a message or a compiled pattern, got 7"):
        Script({7: True})


# --- questions without keys -----------------------------------------------------------------------------------------


async def test_without_keys_the_one_answer_that_fits_is_used():
    script = Script({"where": "eu", "sure": True, "who": {"name": "Ada"}}, keyless=True)
    assert (await call(script, "deploy", env="prod")).text == "accept eu True"
    assert [asked.used for asked in script.asked] == ["where", "sure"]
    with pytest.raises(AnswerUnscripted):
        await call(Script({"where": "eu", "sure": True}), "deploy", env="prod")


async def test_without_keys_an_answer_is_not_guessed():
    with pytest.raises(AnswerUnscripted, match="'confirm'"):
        await call(Script({"where": "eu", "first": True, "second": False}, keyless=True), "deploy", env="prod")
    same = Script({"first": True, "second": True}, keyless=True)
    assert (await call(same, "twice")).text == "True True"
    assert same.unused == []


# --- the transcript -------------------------------------------------------------------------------------------------


async def test_a_transcript_has_every_round_and_no_token():
    script = Script({"region": "eu", "confirm": True})
    link = Recorded(eras.connect(app))
    async with Client(link, **script.handlers()) as client:
        with link.noting() as turns:
            await client.call_tool("deploy", {"env": "prod"})
    first, second, last = turns
    assert link.turns == turns
    assert (first.method, first.params) == ("tools/call", {"name": "deploy", "arguments": {"env": "prod"}})
    assert list(first.questions) == ["region"]
    assert first.result is None
    assert second.answers == {"region": {"action": "accept", "content": {"value": "eu"}}}
    assert re.fullmatch(r"<\d+ characters>", second.params["requestState"])
    assert last.questions == {}
    assert last.result is not None
    assert last.result["content"][0]["text"] == "accept eu True"
    assert all(turn.seconds > 0 for turn in turns)


async def test_calls_side_by_side_have_transcripts_of_their_own():
    link = Recorded(eras.connect(app))

    async def one(client, name):
        with link.noting() as turns:
            await client.call_tool(name)
        return [(turn.params["name"], list(turn.questions)) for turn in turns]

    async with Client(link, **Script({"confirm": [True] * 3, "poem": "Roses"}).handlers()) as client:
        told = await asyncio.gather(one(client, "together"), one(client, "poem"))
    assert told == [
        [("together", ["confirm", "confirm-2", "confirm-3"]), ("together", [])],
        [("poem", ["poem"]), ("poem", [])],
    ]
    assert len(link.turns) == 4


class Failing(SessionLink):
    """A link on which every request fails."""

    revision = "2025-06-18"

    def __init__(self, fault):
        self.fault = fault

    async def open(self):
        pass

    async def request(self, message, *, headers, on_notification=None):
        raise self.fault

    async def close(self):
        pass


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (
            Refused("No", code=-32602, data={"x": 1}, status=400),
            {"message": "No", "code": -32602, "data": {"x": 1}, "status": 400},
        ),
        (Disconnected("Gone"), {"message": "Gone"}),
        (asyncio.CancelledError(), {"message": "The call was given up"}),
    ],
)
async def test_a_failed_request_is_in_the_transcript_as_well(fault, error):
    link = Recorded(Failing(fault))
    assert link.revision == "2025-06-18"
    async with Client(link) as client:
        with pytest.raises(type(fault)):
            await client.call_tool("deploy")
    assert [turn.error for turn in link.turns] == [error]


async def test_an_error_reply_is_in_the_transcript():
    link = Recorded(eras.connect(app))
    async with Client(link) as client:
        with pytest.raises(Refused):
            await client.call_tool("nothing")
    assert link.turns[0].error is not None
    assert link.turns[0].error["code"] == -32602
