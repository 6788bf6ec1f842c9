"""Answering: which handler is asked what, what it is told, and what of its answer is sent."""

import asyncio
import functools
import tracemalloc
from dataclasses import dataclass
from enum import Enum

import pytest

from antiphon import (
    Accepted,
    Cancelled,
    CannotAnswer,
    Client,
    Context,
    Declined,
    Image,
    Root,
    Sample,
    Server,
    Text,
    ToolUse,
    elicitation_modes,
)
from antiphon.client.answers import fitted

from .scripted import ROOTS, YES, Scripted, asks, done, form, sampling, url

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
REGION = {"type": "string", "enum": ["eu", "us"]}


async def answered(question, **handlers):
    """What a client with these handlers sends when a server asks one question."""
    link = Scripted(asks("s", key=question), done())
    async with Client(link, **handlers) as client:
        await client.call_tool("tool")
    return link.params[1]["inputResponses"]["key"]


# --- capabilities -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handlers", "declared"),
    [
        ({}, {}),
        ({"elicit": print}, {"elicitation": {"form": {}}}),
        ({"elicit_url": print}, {"elicitation": {"url": {}}}),
        ({"elicit": print, "elicit_url": print}, {"elicitation": {"form": {}, "url": {}}}),
        ({"sample": print}, {"sampling": {}}),
        ({"sample": print, "sample_tools": True}, {"sampling": {"tools": {}}}),
        ({"sample_tools": True}, {}),
        ({"roots": []}, {"roots": {}}),
        ({"roots": print}, {"roots": {}}),
    ],
)
async def test_a_handler_declares_its_capability_and_only_that(handlers, declared):
    link = Scripted(done())
    async with Client(link, **handlers) as client:
        await client.call_tool("x")
    assert link.sent[0]["params"]["_meta"][CAPABILITIES] == declared


@pytest.mark.parametrize(
    ("capability", "modes"),
    [
        (None, (False, False)),
        ({}, (True, False)),
        ({"form": {}}, (True, False)),
        ({"url": {}}, (False, True)),
        ({"form": {}, "url": {}}, (True, True)),
        ({"later": {}}, (True, False)),
    ],
)
def test_the_modes_of_an_elicitation_capability(capability, modes):
    assert elicitation_modes(capability) == modes
    assert (elicitation_modes(capability).form, elicitation_modes(capability).url) == modes


@pytest.mark.parametrize(
    ("question", "handlers", "told"),
    [
        (form(a=YES), {}, "Elicitation not supported"),
        (form(a=YES), {"elicit_url": print, "sample": print, "roots": []}, "Elicitation not supported"),
        (form(a=YES, mode=None), {}, "Elicitation not supported"),
        (url(), {}, "Elicitation not supported"),
        (url(), {"elicit": print}, "Elicitation not supported"),
        (sampling(), {"elicit": print}, "Sampling not supported"),
        (sampling(tools=[]), {"sample": print}, "Sampling with tools not supported"),
        (sampling(toolChoice={"mode": "auto"}), {"sample": print}, "Sampling with tools not supported"),
        (ROOTS, {"elicit": print}, "Roots not supported"),
        ({"method": "tasks/create", "params": {}}, {"elicit": print}, "'tasks/create'"),
    ],
)
async def test_what_was_not_declared_is_refused_on_our_side_too(question, handlers, told):
    link = Scripted(asks("s", key=question))
    async with Client(link, **handlers) as client:
        with pytest.raises(CannotAnswer, match=told) as raised:
            await client.call_tool("tool")
    assert raised.value.key == "key"
    assert len(link.sent) == 1, "nothing is sent on"


# --- what a handler is told ---------------------------------------------------------------------------------------


async def test_a_form_handler_is_told_the_question_and_who_asks():
    seen = []
    link = Scripted(
        asks("s", one=form("First?", a=YES)),
        asks("s", two=form("Second?", a=YES)),
        {**done(), "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "asker", "version": "1"}}},
    )

    def answer(question):
        seen.append(question)
        return Accepted({"a": True})

    async with Client(link, elicit=answer) as client:
        await client.call_tool("deploy")
    first, second = seen
    assert (first.message, first.mode, first.url, first.key) == ("First?", "form", None, "one")
    assert first.schema == {"type": "object", "properties": {"a": YES}, "required": ["a"]}
    assert (first.tool, first.round) == ("deploy", 1)
    assert (second.tool, second.round, second.key) == ("deploy", 2, "two")


async def test_a_handler_is_told_which_server_asks():
    app = Server("the asker", version="9")
    seen = []

    @app.tool
    async def deploy(ctx: Context) -> str:
        return str(await ctx.confirm("Sure?"))

    def answer(question):
        seen.append(question.server)
        return Accepted({"confirm": True})

    async with Client(app, elicit=answer) as client:
        await client.call_tool("deploy")
    assert [(server.name, server.version) for server in seen] == [("the asker", "9")]


async def test_a_url_handler_is_told_the_url():
    seen = []

    async def visit(question):
        seen.append((question.mode, question.message, question.url, question.schema))
        return Accepted(None)

    assert await answered(url("Sign in", "https://example.com/x"), elicit_url=visit) == {"action": "accept"}
    assert seen == [("url", "Sign in", "https://example.com/x", {})]


async def test_a_url_question_without_a_url_is_not_shown():
    question = {"method": "elicitation/create", "params": {"mode": "url", "message": "go"}}
    with pytest.raises(CannotAnswer, match="names none"):
        await answered(question, elicit_url=lambda _: Accepted(None))


@pytest.mark.parametrize("mode", [None, "form", "later"])
async def test_whatever_is_not_a_url_is_a_form(mode):
    sent = await answered(form(a=YES, mode=mode), elicit=lambda question: Accepted({"a": question.mode == "form"}))
    assert sent == {"action": "accept", "content": {"a": True}}


async def test_a_sample_handler_is_told_all_of_the_request():
    seen = []

    def sample(request):
        seen.append(request)
        return "Paris"

    more = {"systemPrompt": "Be brief", "temperature": 0.5, "stopSequences": ["."], "metadata": {"a": 1}}
    sent = await answered(sampling("Capital?", **more), sample=sample)
    assert sent == {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "unknown"}
    (request,) = seen
    assert request.messages[0].content == Text("Capital?")
    assert (request.max_tokens, request.system, request.temperature, request.stop) == (10, "Be brief", 0.5, ["."])
    assert (request.tool, request.round, request.key) == ("tool", 1, "key")
    assert request.params["metadata"] == {"a": 1}


async def test_a_sample_may_be_given_whole():
    sample = Sample(role="assistant", content=Image(b"png"), model="eye", stop_reason="endTurn")
    sent = await answered(sampling(), sample=lambda _: sample)
    assert sent["content"] == {"type": "image", "data": "cG5n", "mimeType": "image/png"}
    assert (sent["model"], sent["stopReason"]) == ("eye", "endTurn")


async def test_a_sampler_that_knows_tools_is_given_them():
    tool = {"name": "add", "inputSchema": {"type": "object"}}

    def sample(request):
        (known,) = request.tools
        use = ToolUse("1", known.name, {})
        return Sample(role="assistant", content=[use], model="m", stop_reason="toolUse")

    sent = await answered(sampling(tools=[tool]), sample=sample, sample_tools=True)
    assert sent["content"] == [{"type": "tool_use", "id": "1", "name": "add", "input": {}}]


@pytest.mark.parametrize(
    "params", [{}, {"messages": []}, {"messages": "x", "maxTokens": 1}, {"messages": [{"role": "x"}], "maxTokens": 1}]
)
async def test_a_malformed_sampling_request_is_not_passed_on(params):
    with pytest.raises(CannotAnswer, match="malformed"):
        await answered({"method": "sampling/createMessage", "params": params}, sample=lambda _: "x")


ROOT = Root("file:///work", name="Work")


async def roots_later():
    return (ROOT,)


@pytest.mark.parametrize("roots", [[ROOT], (ROOT,), lambda: [ROOT], roots_later])
async def test_roots_are_a_list_or_a_function_that_gives_one(roots):
    assert await answered(ROOTS, roots=roots) == {"roots": [{"uri": "file:///work", "name": "Work"}]}


async def test_no_roots_are_an_answer_too():
    assert await answered(ROOTS, roots=[]) == {"roots": []}


# --- handlers, sync and async -------------------------------------------------------------------------------------


class Desk:
    async def answer(self, question):
        return Accepted({"a": True})

    def __call__(self, question):
        return Accepted({"a": True})


async def async_yes(question):
    await asyncio.sleep(0)
    return Accepted({"a": True})


def sync_yes(question):
    return Accepted({"a": True})


@pytest.mark.parametrize(
    "handler",
    [async_yes, sync_yes, Desk().answer, Desk(), functools.partial(async_yes)],
    ids=["async", "sync", "method", "object", "partial"],
)
async def test_a_handler_is_any_function_sync_or_async(handler):
    assert await answered(form(a=YES), elicit=handler) == {"action": "accept", "content": {"a": True}}


@pytest.mark.parametrize(("answer", "action"), [(Declined(), "decline"), (Cancelled(), "cancel")])
async def test_a_refusal_is_sent_as_one(answer, action):
    assert await answered(form(a=YES), elicit=lambda _: answer) == {"action": action}
    assert await answered(url(), elicit_url=lambda _: answer) == {"action": action}


@pytest.mark.parametrize("answer", [None, True, {"a": True}, "yes", ("accept", {})])
async def test_an_answer_that_is_none_is_not_taken_for_a_yes(answer):
    with pytest.raises(CannotAnswer, match="must return Accepted, Declined or Cancelled"):
        await answered(form(a=YES), elicit=lambda _: answer)
    with pytest.raises(CannotAnswer, match="must return Accepted, Declined or Cancelled"):
        await answered(url(), elicit_url=lambda _: answer)


async def test_a_sample_that_is_none_is_not_sent():
    with pytest.raises(CannotAnswer, match="must return text or a Sample"):
        await answered(sampling(), sample=lambda _: 7)


# --- answers are checked ------------------------------------------------------------------------------------------

FIELDS = {
    "region": REGION,
    "replicas": {"type": "integer", "minimum": 1, "maximum": 5, "default": 2},
    "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": ["a"]},
}


async def test_defaults_are_filled_in():
    sent = await answered(form(**FIELDS), elicit=lambda _: Accepted({"region": "eu"}))
    assert sent["content"] == {"region": "eu", "replicas": 2, "tags": ["a"]}


async def test_an_answer_beats_a_default():
    sent = await answered(form(**FIELDS), elicit=lambda _: Accepted({"region": "us", "replicas": 5, "tags": ["b"]}))
    assert sent["content"] == {"region": "us", "replicas": 5, "tags": ["b"]}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, "missing required field 'region'"),
        ({"region": "mars"}, "region"),
        ({"region": "eu", "replicas": 6}, "replicas"),
        ({"region": "eu", "replicas": "2"}, "replicas"),
        ({"region": "eu", "tags": ["c"]}, "tags"),
        (["eu"], "must be an object"),
        ("eu", "must be an object"),
        (None, "missing required field 'region'"),
        (object(), "is not JSON"),
    ],
)
async def test_an_answer_that_does_not_fit_is_not_sent(value, told):
    link = Scripted(asks("s", key=form(**FIELDS)))
    async with Client(link, elicit=lambda _: Accepted(value)) as client:
        with pytest.raises(CannotAnswer, match=told) as raised:
            await client.call_tool("tool")
    assert raised.value.key == "key"
    assert len(link.sent) == 1


async def test_a_form_of_one_field_takes_its_bare_value():
    assert (await answered(form(ok=YES), elicit=lambda _: Accepted(False)))["content"] == {"ok": False}


class Region(Enum):
    EU = "eu"


@dataclass
class Where:
    region: Region
    replicas: int = 3


async def test_an_answer_may_be_a_typed_value():
    sent = await answered(form(**FIELDS), elicit=lambda _: Accepted(Where(Region.EU)))
    assert sent["content"] == {"region": "eu", "replicas": 3, "tags": ["a"]}


async def test_a_form_beyond_the_protocol_is_checked_by_its_schema_all_the_same():
    nested = form(where={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
    nested["params"]["requestedSchema"]["properties"]["size"] = {"type": ["integer", "null"], "default": 3}
    sent = await answered(nested, elicit=lambda _: Accepted({"where": {"city": "Ulm"}}))
    assert sent["content"] == {"where": {"city": "Ulm"}, "size": 3}
    with pytest.raises(CannotAnswer, match="does not fit"):
        await answered(nested, elicit=lambda _: Accepted({"where": {}}))


async def test_a_form_whose_schema_is_none_lets_the_answer_through_with_a_warning(caplog):
    broken = form(a={"type": "nonsense"})
    sent = await answered(broken, elicit=lambda _: Accepted({"a": 1}))
    assert sent["content"] == {"a": 1}
    assert "not checked" in caplog.text


@pytest.mark.parametrize("schema", [None, [], "x", {}])
async def test_a_form_without_a_schema_can_still_be_answered(schema):
    question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": schema}}
    sent = await answered(question, elicit=lambda _: Accepted({}))
    assert sent == {"action": "accept", "content": {}}


# --- several questions in a round ---------------------------------------------------------------------------------


async def test_all_questions_of_a_round_are_asked_at_once():
    waiting = asyncio.Barrier(3)

    async def answer(question):
        await waiting.wait()
        return Accepted({"a": True}) if question.mode == "form" else Accepted(None)

    async def sample(_request):
        await waiting.wait()
        return "hi"

    link = Scripted(asks("s", form=form(a=YES), url=url(), model=sampling(), roots=ROOTS), done())
    async with Client(link, elicit=answer, elicit_url=answer, sample=sample, roots=[]) as client:
        async with asyncio.timeout(5):
            await client.call_tool("tool")
    assert link.params[1]["inputResponses"] == {
        "form": {"action": "accept", "content": {"a": True}},
        "url": {"action": "accept"},
        "model": {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "unknown"},
        "roots": {"roots": []},
    }
    assert link.params[1]["requestState"] == "s"


class Oops(Exception):
    pass


@pytest.mark.parametrize("fault", [Oops("broken"), TimeoutError("mine"), asyncio.TimeoutError("mine")])
async def test_a_handler_that_raises_ends_the_call_with_its_error(fault):
    def answer(_question):
        raise fault

    link = Scripted(asks("s", key=form(a=YES)))
    async with Client(link, elicit=answer, patience=30) as client:
        with pytest.raises(type(fault)) as raised:
            await client.call_tool("tool")
    assert raised.value is fault
    assert len(link.sent) == 1


async def test_the_other_questions_of_the_round_are_cancelled_then():
    cancelled = []

    async def answer(question):
        if question.key == "bad":
            await asyncio.sleep(0)
            raise Oops
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(question.key)
            raise

    link = Scripted(asks("s", slow=form(a=YES), bad=form(a=YES), slower=form(a=YES)))
    async with Client(link, elicit=answer) as client:
        with pytest.raises(Oops):
            await client.call_tool("tool")
    assert sorted(cancelled) == ["slow", "slower"]
    assert len(link.sent) == 1


async def test_a_question_that_cannot_be_answered_cancels_the_others_too():
    asked = []

    async def answer(question):
        asked.append(question.key)
        await asyncio.Event().wait()

    link = Scripted(asks("s", form=form(a=YES), model=sampling()))
    async with Client(link, elicit=answer) as client:
        with pytest.raises(CannotAnswer, match="Sampling not supported"):
            await client.call_tool("tool")
    assert asked == ["form"]


async def test_a_call_that_is_cancelled_cancels_its_questions():
    asked = asyncio.Event()
    ended = []

    async def answer(question):
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(question.key)

    link = Scripted(asks("s", a=form(a=YES), b=form(a=YES)))
    async with Client(link, elicit=answer) as client:
        call = asyncio.create_task(client.call_tool("tool"))
        await asked.wait()
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert sorted(ended) == ["a", "b"]


# --- real servers, all three kinds of calls -----------------------------------------------------------------------


@pytest.fixture
def asking():
    app = Server("asking")

    @app.tool
    async def everything(ctx: Context) -> str:
        name = (await ctx.elicit("Name?", str)).unwrap()
        said = await ctx.sample(f"Greet {name}", max_tokens=10)
        roots = await ctx.roots()
        opened = await ctx.elicit_url("Visit", "https://example.com/")
        return f"{name}, {said.text}, {roots[0].uri}, {type(opened).__name__}"

    @app.prompt
    async def greeting(ctx: Context) -> str:
        return f"Greet {(await ctx.elicit('Name?', str)).unwrap()}"

    @app.resource("note://static")
    async def static(ctx: Context) -> str:
        return f"for {(await ctx.elicit('Name?', str)).unwrap()}"

    @app.resource("note://{id}/x")
    async def templated(id: str, ctx: Context) -> str:
        return f"{id} for {(await ctx.elicit('Name?', str)).unwrap()}"

    return app


@pytest.fixture
def talkative(asking):
    return Client(
        asking,
        elicit=lambda _: Accepted("Ada"),
        elicit_url=lambda _: Accepted(None),
        sample=lambda _: "Hello",
        roots=[Root("file:///work")],
    )


async def test_a_tool_asks_every_kind_one_after_the_other(talkative):
    async with talkative as client:
        result = await client.call_tool("everything")
    assert result.text == "Ada, Hello, file:///work, Accepted"
    assert result.rounds == 5


async def test_a_prompt_asks(talkative):
    async with talkative as client:
        reply = await client.get_prompt("greeting")
    assert reply.messages[0].content == Text("Greet Ada")
    assert reply.rounds == 2


@pytest.mark.parametrize(("uri", "text"), [("note://static", "for Ada"), ("note://7/x", "7 for Ada")])
async def test_a_resource_asks(talkative, uri, text):
    async with talkative as client:
        result = await client.read_resource(uri)
    assert (result.text, result.rounds) == (text, 2)
    assert result.contents[0].uri == uri


def test_forms_that_a_server_makes_large_are_not_kept():
    def form(number):
        options = [f"{number}-{index}" for index in range(20_000)]
        return {"type": "object", "properties": {"a": {"type": "string", "enum": options}}}

    fitted({"a": "0-0"}, form(0), "key")
    tracemalloc.start()
    for number in range(1, 20):
        assert fitted({"a": f"{number}-7"}, form(number), "key") == {"a": f"{number}-7"}
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000_000
