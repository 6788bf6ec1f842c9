"""A question that an old server pushes is a round like any other."""

import asyncio

import pytest

from antiphon import (
    Accepted,
    CallTimeout,
    CannotAnswer,
    CannotAsk,
    Client,
    Complete,
    Context,
    Declined,
    Disconnected,
    InputNeeded,
    Pending,
    Refused,
    Root,
    RoundsExceeded,
    Server,
)
from client.until import until

from .old import Error, Old, form, text

SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}], "maxTokens": 9}


def yes(question):
    return Accepted("yes")


async def asks_once(server, message):
    answer = await server.ask("elicitation/create", form())
    return text(answer["result"]["content"]["value"] if "result" in answer else "left")


async def test_a_question_is_answered_by_the_handler_and_the_call_goes_on():
    seen = []

    def elicit(question):
        seen.append((question.message, question.key, question.tool, question.round, question.server.name))
        return Accepted("blue")

    server = Old(asks_once)
    async with Client(server.link(), elicit=elicit) as client:
        result = await client.call_tool("paint")
    assert (result.text, result.rounds) == ("blue", 2)
    assert seen == [("Which?", "which", "paint", 1, "old")]
    assert len(server.sent_of("tools/call")) == 1


async def test_a_round_has_all_the_questions_that_wait():
    async def call(server, message):
        questions = [
            server.ask("elicitation/create", form("A?")),
            server.ask("elicitation/create", form("A?")),
            server.ask("sampling/createMessage", SAMPLING),
            server.ask("roots/list"),
        ]
        answers = await asyncio.gather(*questions)
        return text([one["result"] for one in answers])

    async with Client(Old(call).link(), elicit=yes, sample=lambda _: "Hi", roots=[Root("file:///a")]) as client:
        rounds = [one async for one in client.watch("tools/call", name="x", arguments={})]
    assert [list(one.questions) for one in rounds] == [["a", "a-2", "sampling", "roots"], []]
    assert "'uri': 'file:///a'" in rounds[-1].result.text
    assert "'text': 'Hi'" in rounds[-1].result.text


async def test_what_is_asked_during_a_round_makes_the_next():
    asked = asyncio.Event()

    async def call(server, message):
        first = asyncio.ensure_future(server.ask("elicitation/create", form("First?")))
        await asked.wait()
        second = await server.ask("elicitation/create", form("Second?"))
        return text(f"{(await first)['result']['action']} {second['result']['action']}")

    async def elicit(question):
        asked.set()
        await asyncio.sleep(0)
        return Accepted("x") if question.message == "First?" else Declined()

    async with Client(Old(call).link(), elicit=elicit) as client:
        result = await client.call_tool("x")
    assert (result.text, result.rounds) == ("accept decline", 3)


async def test_the_name_that_a_server_gives_its_question_is_used():
    async def call(server, message):
        for _ in range(2):
            await server.ask("elicitation/create", form(_meta={"antiphon/key": "colour"}))
        return text()

    async with Client(Old(call).link(), elicit=yes) as client:
        rounds = [one async for one in client.watch("tools/call", name="x", arguments={})]
    assert [list(one.questions) for one in rounds] == [["colour"], ["colour"], []]


async def test_a_question_goes_to_the_call_that_the_server_names():
    async def call(server, message):
        other = {"one": "two", "two": "one"}[message["params"]["name"]]
        await until(lambda: len(server.sent_of("tools/call")) == 2)
        (named,) = [one["id"] for one in server.sent_of("tools/call") if one["params"]["name"] == other]
        answer = await server.ask("elicitation/create", form(_meta={"antiphon/request": named}))
        return text(answer["result"]["content"]["value"])

    async with Client(Old(call).link(), elicit=lambda question: Accepted(question.tool)) as client:
        results = await asyncio.gather(client.call_tool("one"), client.call_tool("two"))
    assert [result.text for result in results] == ["two", "one"]


async def test_prompts_and_resources_ask_as_well():
    async def call(server, message):
        value = (await server.ask("elicitation/create", form()))["result"]["content"]["value"]
        if message["method"] == "prompts/get":
            return {"messages": [{"role": "user", "content": {"type": "text", "text": value}}]}
        return {"contents": [{"uri": "x://y", "text": value}]}

    async with Client(Old(call).link(), elicit=yes) as client:
        prompt = await client.get_prompt("p")
        assert (prompt.messages[0].content.text, prompt.rounds) == ("yes", 2)
        read = await client.read_resource("x://y")
        assert (read.text, read.rounds) == ("yes", 2)


async def test_the_time_that_a_person_takes_is_not_the_calls():
    async def elicit(question):
        await asyncio.sleep(0.3)
        return Accepted("slowly")

    async with Client(Old(asks_once).link(), elicit=elicit, timeout=0.2) as client:
        assert (await client.call_tool("x")).text == "slowly"


async def test_a_person_who_takes_too_long_ends_the_call_and_the_server_hears_of_it():
    async def elicit(question):
        await asyncio.Event().wait()

    server = Old(asks_once)
    async with Client(server.link(), elicit=elicit, patience=0.02) as client:
        with pytest.raises(CallTimeout, match="The question was not answered"):
            await client.call_tool("x")
        await until(lambda: server.sent_of("notifications/cancelled"))
    assert_left(server)


def assert_left(server, told="The client left the call"):
    """The question was answered with an error, and the call cancelled, in this order."""
    (call,) = server.sent_of("tools/call")
    answer, cancelled = server.sent[-2:]
    assert answer["error"] == {"code": -32603, "message": told}
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"] == {"requestId": call["id"], "reason": told}


async def test_a_handler_that_raises_ends_the_call():
    def elicit(question):
        raise ZeroDivisionError

    server = Old(asks_once)
    async with Client(server.link(), elicit=elicit) as client:
        with pytest.raises(ZeroDivisionError):
            await client.call_tool("x")
    assert_left(server)


async def test_an_answer_that_does_not_fit_is_not_sent():
    server = Old(asks_once)
    async with Client(server.link(), elicit=lambda _: Accepted(7)) as client:
        with pytest.raises(CannotAnswer, match="does not fit"):
            await client.call_tool("x")
    assert_left(server, "The client could not answer")


async def test_a_call_that_is_cancelled_while_it_asks_is_cancelled_there_too():
    asked = asyncio.Event()

    async def elicit(question):
        asked.set()
        await asyncio.Event().wait()

    server = Old(asks_once)
    async with Client(server.link(), elicit=elicit) as client:
        calling = asyncio.create_task(client.call_tool("x"))
        await asked.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
    assert_left(server)


async def test_a_call_that_is_cancelled_while_it_works_is_cancelled_there_too():
    async def call(server, message):
        await asyncio.Event().wait()

    server = Old(call)
    async with Client(server.link()) as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("x", timeout=0.02)
        await until(lambda: server.sent_of("notifications/cancelled"))
    (call_,), (cancelled,) = server.sent_of("tools/call"), server.sent_of("notifications/cancelled")
    assert cancelled["params"]["requestId"] == call_["id"]


async def test_watching_can_be_left_at_a_question():
    server = Old(asks_once)
    async with Client(server.link(), elicit=yes) as client:
        watched = client.watch("tools/call", name="x", arguments={})
        assert list((await anext(watched)).questions) == ["which"]
        await watched.aclose()
    assert_left(server)


async def test_answers_can_be_given_by_hand_while_watching():
    async with Client(Old(asks_once).link(), elicit=yes) as client:
        watched = client.watch("tools/call", name="x", arguments={})
        await anext(watched)
        last = await watched.asend({"which": Accepted("by hand")})
    assert last.result.text == "by hand"


async def test_a_server_that_asks_on_and_on_is_left():
    async def call(server, message):
        while True:
            await server.ask("elicitation/create", form())

    server = Old(call)
    async with Client(server.link(), elicit=yes, max_rounds=3) as client:
        with pytest.raises(RoundsExceeded):
            await client.call_tool("x")
    assert_left(server)


def resume(client):
    questions = {"which": {"method": "elicitation/create", "params": form()}}
    pending = Pending(method="tools/call", params={"name": "x"}, questions=questions, state="s")
    return client.resume(pending, {"which": Accepted("y")})


WAITING = {
    "begin": lambda client: client.begin("tools/call", name="x", arguments={}),
    "auto=False": lambda client: client.call_tool("x"),
    "resume": resume,
}


@pytest.mark.parametrize("how", WAITING)
async def test_a_call_cannot_wait_at_an_old_server(how):
    server = Old(asks_once)
    async with Client(server.link(), elicit=yes, auto=how != "auto=False") as client:
        with pytest.raises(CannotAnswer, match="speaks revision 2025-11-25.*handlers") as fault:
            await WAITING[how](client)
    assert not isinstance(fault.value, InputNeeded)
    assert fault.value.key == "which"
    if how != "resume":
        assert_left(server, "The client could not answer")


async def test_a_call_that_asks_nothing_can_be_begun():
    async with Client(Old().link(), elicit=yes) as client:
        outcome = await client.begin("tools/call", name="x", arguments={})
    assert isinstance(outcome, Complete)
    assert outcome.result.text == "done"


@pytest.mark.parametrize(
    ("method", "params", "handlers", "code", "told"),
    [
        ("elicitation/create", form(), {}, -32601, "Elicitation not supported"),
        ("sampling/createMessage", SAMPLING, {}, -32601, "Sampling not supported"),
        ("roots/list", None, {}, -32601, "Roots not supported"),
        ("elicitation/create", form(mode="url", url="https://a"), {"elicit": yes}, -32602, "in url mode"),
        ("elicitation/create", form(), {"elicit_url": yes}, -32602, "in form mode"),
        ("sampling/createMessage", {**SAMPLING, "tools": []}, {"sample": lambda _: "x"}, -32602, "with tools"),
        ("sampling/createMessage", [], {"sample": lambda _: "x"}, -32602, "must be an object"),
        ("tasks/get", {}, {}, -32601, "Method not found"),
    ],
)
async def test_what_was_not_declared_is_refused_and_the_call_goes_on(method, params, handlers, code, told, caplog):
    async def call(server, message):
        return text((await server.ask(method, params))["error"])

    async with Client(Old(call).link(), **handlers) as client:
        result = await client.call_tool("x")
    assert str(code) in result.text
    assert told in result.text
    assert result.rounds == 1
    assert told in caplog.text


async def test_a_ping_is_answered_at_any_time():
    async def call(server, message):
        return text((await server.ask("ping"))["result"])

    async with Client(Old(call).link()) as client:
        assert (await client.call_tool("x")).text == "{}"


async def test_a_question_that_is_withdrawn_before_it_is_asked_is_not_asked():
    async def call(server, message):
        asking = asyncio.ensure_future(server.ask("elicitation/create", form(), name="q"))
        await asyncio.sleep(0)
        server.note("cancelled", requestId="q")
        asking.cancel()
        return text()

    def elicit(question):
        raise AssertionError

    async with Client(Old(call).link(), elicit=elicit) as client:
        result = await client.call_tool("x")
    assert (result.text, result.rounds) == ("done", 1)


async def test_the_answer_to_a_question_that_was_withdrawn_is_not_sent():
    server = Old()

    async def call(server, message):
        asking = asyncio.ensure_future(server.ask("elicitation/create", form(), name="q"))
        await asked.wait()
        server.note("cancelled", requestId="q")
        asking.cancel()
        withdrawn.set()
        await asyncio.sleep(0.01)
        return text()

    async def elicit(question):
        asked.set()
        await withdrawn.wait()
        return Accepted("x")

    asked, withdrawn = asyncio.Event(), asyncio.Event()
    server = Old(call)
    async with Client(server.link(), elicit=elicit) as client:
        result = await client.call_tool("x")
    assert (result.text, result.rounds) == ("done", 2)
    assert "response" not in server.methods


async def test_a_server_that_dies_while_it_asks():
    server = Old(asks_once)

    async def elicit(question):
        server.lost(Disconnected("The server's process ended (exit code 3)"))
        return Accepted("x")

    async with Client(server.link(), elicit=elicit) as client:
        with pytest.raises(Disconnected, match="exit code 3"):
            await client.call_tool("x")


async def test_more_questions_than_anybody_can_answer_are_refused():
    async def call(server, message):
        answers = await asyncio.gather(*[server.ask("elicitation/create", form(str(at))) for at in range(105)])
        return text(sum("error" in answer for answer in answers))

    async with Client(Old(call).link(), elicit=yes) as client:
        assert (await client.call_tool("x")).text == "5"


# --- URLs that must be visited first ------------------------------------------------------------------------------


def visit(id="1", url="https://example.com/in"):
    return {"mode": "url", "message": "Sign in", "url": url, "elicitationId": id}


def wants_a_visit(*elicitations):
    return Error(-32042, "Sign in first", data={"elicitations": list(elicitations)})


async def test_a_url_that_must_be_visited_first_is_a_round_and_the_call_is_made_again():
    async def call(server, message):
        if len(server.sent_of("tools/call")) == 1:
            server.note("elicitation/complete", elicitationId="1")
            raise wants_a_visit(visit())
        return text("signed in")

    seen = []
    server = Old(call)
    async with Client(server.link(), elicit_url=lambda question: seen.append(question.url) or Accepted(None)) as client:
        result = await client.call_tool("x", {"a": 1})
    assert (result.text, result.rounds, seen) == ("signed in", 2, ["https://example.com/in"])
    first, second = server.sent_of("tools/call")
    assert first["params"] == second["params"] == {"name": "x", "arguments": {"a": 1}}
    assert first["id"] != second["id"]


async def test_the_call_is_made_again_when_the_server_says_that_the_visit_is_over():
    async def call(server, message):
        if len(server.sent_of("tools/call")) == 1:
            raise wants_a_visit(visit("1"), visit("2"))
        return text(len(over))

    over = []
    server = Old(call)

    async def finish():
        for visited in ("1", "2"):
            await asyncio.sleep(0.01)
            over.append(visited)
            server.note("elicitation/complete", elicitationId=visited)

    def elicit_url(question):
        if question.key == "sign-in":
            server.tasks.add(asyncio.ensure_future(finish()))
        return Accepted(None)

    async with Client(server.link(), elicit_url=elicit_url) as client:
        assert (await client.call_tool("x")).text == "2"


async def test_a_server_that_says_nothing_of_the_visit_is_called_again_after_a_while(monkeypatch):
    monkeypatch.setattr("antiphon.legacy.client.link.VISIT", 0.02)

    async def call(server, message):
        if len(server.sent_of("tools/call")) == 1:
            raise wants_a_visit(visit())
        return text("signed in")

    async with Client(Old(call).link(), elicit_url=lambda _: Accepted(None)) as client:
        assert (await client.call_tool("x")).text == "signed in"


async def test_a_url_that_is_declined_ends_the_call_with_the_servers_error():
    async def call(server, message):
        raise wants_a_visit(visit())

    server = Old(call)
    async with Client(server.link(), elicit_url=lambda _: Declined()) as client:
        with pytest.raises(Refused, match="Sign in first") as refused:
            await client.call_tool("x")
    assert refused.value.code == -32042
    assert server.methods[-1] == "tools/call"


@pytest.mark.parametrize("data", [None, {}, {"elicitations": []}, {"elicitations": [7]}, {"elicitations": [{}]}, []])
async def test_an_error_that_wants_urls_visited_and_names_none_is_an_error(data):
    async def call(server, message):
        raise Error(-32042, "Sign in first", data=data)

    async with Client(Old(call).link(), elicit_url=lambda _: Accepted(None)) as client:
        with pytest.raises(Refused, match="Sign in first"):
            await client.call_tool("x")


async def test_a_person_is_not_waited_for_once_the_call_is_over():
    app = Server("impatient", ask_timeout=0.05)
    cancelled = []

    @app.tool
    async def ask(ctx: Context) -> str:
        try:
            return str(await ctx.confirm("Still there?"))
        except CannotAsk as fault:
            return str(fault)

    async def think(_):
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append("thinking")

    async with Client(app, era="legacy", elicit=think) as client:
        result = await client.call_tool("ask")
    assert "did not answer" in result.text
    assert cancelled == ["thinking"]
