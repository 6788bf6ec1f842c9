"""A question of which nobody can say whose it is: asked once and answered once, whatever becomes of the calls."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import Accepted, CallTimeout, Client, Disconnected
from antiphon.transports.link import Caller
from client.until import until
from examples import examples

from .old import Old, form, text
from .old_http import OldHttp, answer, ask, event, result, stream

HINT = "antiphon/request"
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}], "maxTokens": 9}


class Two(Old):
    """``work`` goes on until it may end; every other tool asks its own name, and gives the answer."""

    def __init__(self, **options):
        super().__init__(Two._called, **options)
        self.may_end = asyncio.Event()
        self.may_ask = asyncio.Event()
        self.may_ask.set()

    async def _called(self, message):
        if message["params"]["name"] == "work":
            await self.may_end.wait()
            return text("worked")
        await self.may_ask.wait()
        return text(said(await self.ask("elicitation/create", form(message["params"]["name"]))))

    def responses(self, name="q1"):
        return [message for message in self.sent if "method" not in message and message["id"] == name]


def said(response):
    return response["result"]["content"]["value"] if "result" in response else response["error"]["message"]


class Person:
    """Thinks until told not to, and remembers what was asked."""

    def __init__(self):
        self.asked = []
        self.interrupted = 0
        self.knows = asyncio.Event()

    async def __call__(self, question):
        self.asked.append(question)
        try:
            await self.knows.wait()
        except asyncio.CancelledError:
            self.interrupted += 1
            raise
        return Accepted(f"{question.message}!")


async def start(client, server, *tools):
    """Calls that the server has got, in this order."""
    calls = []
    for tool in tools:
        calls.append(asyncio.create_task(client.call_tool(tool)))
        await until(lambda: len(server.sent_of("tools/call")) == len(calls))
    return calls


async def asked_of(person, server):
    server.may_ask.set()
    await until(lambda: person.asked)


@pytest.mark.parametrize("tools", [("work", "ask"), ("ask", "work")])
async def test_a_question_outlives_the_calls_that_did_not_ask_it(tools):
    server, person = Two(), Person()
    server.may_ask.clear()
    async with asyncio.timeout(5), Client(server.link(), elicit=person) as client:
        calls = dict(zip(tools, await start(client, server, *tools), strict=True))
        await asked_of(person, server)
        server.may_end.set()
        assert (await calls["work"]).text == "worked"
        person.knows.set()
        assert (await calls["ask"]).text == "ask!"
    (asked,) = person.asked
    assert (asked.message, asked.key, asked.tool, asked.round) == ("ask", "ask", "", 0)
    assert len(server.responses()) == 1


async def test_many_calls_that_ask_at_once_get_their_own_answers():
    server = Two()
    tools = [f"ask {at}" for at in range(10)]
    async with asyncio.timeout(5), Client(server.link(), elicit=lambda asked: Accepted(f"{asked.message}!")) as client:
        results = await asyncio.gather(*[client.call_tool(tool) for tool in tools])
    assert [one.text for one in results] == [f"{tool}!" for tool in tools]


async def test_a_question_outlives_a_call_that_is_left():
    server, person = Two(), Person()
    async with asyncio.timeout(5), Client(server.link(), elicit=person) as client:
        work, asking = await start(client, server, "work", "ask")
        await until(lambda: person.asked)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        person.knows.set()
        assert (await asking).text == "ask!"
    assert (len(person.asked), person.interrupted) == (1, 0)


async def test_a_handler_that_fails_is_an_error_for_the_server_and_ends_no_call(caplog):
    def elicit(question):
        raise ZeroDivisionError

    server = Two()
    async with asyncio.timeout(5), Client(server.link(), elicit=elicit) as client:
        work, asking = await start(client, server, "work", "ask")
        assert (await asking).text == "The client could not answer"
        server.may_end.set()
        assert (await work).text == "worked"
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("first", ["left", "over"])
async def test_nobody_is_asked_for_calls_that_were_left(first):
    server, person = Two(), Person()
    async with asyncio.timeout(5), Client(server.link(), elicit=person) as client:
        work, asking = await start(client, server, "work", "ask")
        await until(lambda: person.asked)
        if first == "over":
            server.may_end.set()
            await work
            asking.cancel()
        else:
            asking.cancel()
            await until(lambda: server.sent_of("notifications/cancelled"))
            assert not person.interrupted
            server.may_end.set()
            await work
        await until(lambda: person.interrupted)
        await until(server.responses)
        await asyncio.gather(asking, return_exceptions=True)
    assert [said(one) for one in server.responses()] == ["The client left the call"]


async def test_a_question_that_is_withdrawn_is_not_asked_any_more():
    server, person = Two(), Person()
    async with asyncio.timeout(5), Client(server.link(), elicit=person) as client:
        calls = await start(client, server, "work", "ask")
        await until(lambda: person.asked)
        server.note("cancelled", requestId="q1")
        await until(lambda: person.interrupted)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
    assert not server.responses()


async def test_a_question_that_is_withdrawn_at_once_is_never_asked():
    server, person = Old(), Person()
    async with Client(server.link(), elicit=person) as client:
        server.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form()})
        server.note("cancelled", requestId="q")
        await client.call_tool("x")
    assert not person.asked


async def test_a_question_that_is_said_twice_is_answered_once():
    server, person = Two(), Person()
    async with asyncio.timeout(5), Client(server.link(), elicit=person) as client:
        calls = await start(client, server, "work", "ask")
        await until(lambda: person.asked)
        server.say({"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": form()})
        person.knows.set()
        server.may_end.set()
        await asyncio.gather(*calls)
    assert (len(person.asked), len(server.responses())) == (1, 1)


async def test_nobody_is_asked_for_a_server_that_died():
    server, person = Two(), Person()
    async with asyncio.timeout(5), Client(server.link(), elicit=person) as client:
        calls = await start(client, server, "work", "ask")
        await until(lambda: person.asked)
        server.lost(Disconnected("gone"))
        assert [str(end) for end in await asyncio.gather(*calls, return_exceptions=True)] == ["gone", "gone"]
        await until(lambda: person.interrupted)


async def test_a_server_that_asks_on_and_on_among_several_calls_is_refused():
    class Nosy(Two):
        async def _result(self, message):
            if message.get("params", {}).get("name") != "nosy":
                return await super()._result(message)
            count = 0
            while "result" in (await self.ask("elicitation/create", form())):
                count += 1
            return text(count)

    server = Nosy()
    async with asyncio.timeout(5), Client(server.link(), elicit=lambda _: Accepted("x")) as client:
        work, nosy = await start(client, server, "work", "nosy")
        assert (await nosy).text == "100"
        # The share of a call is its own: what came later may still ask.
        assert (await client.call_tool("ask")).text == "x"
        server.may_end.set()
        assert (await work).text == "worked"


async def test_a_server_that_asks_on_and_on_outside_of_calls_is_refused_until_the_next_call():
    async def count_samples(server):
        count = 0
        while "result" in (response := await server.ask("sampling/createMessage", SAMPLING)):
            count += 1
        assert "asks too much" in response["error"]["message"]
        return count

    server = Two()
    async with asyncio.timeout(5), Client(server.link(), sample=lambda _: "Hi", elicit=Person()) as client:
        assert await count_samples(server) == 100
        server.may_end.set()
        assert (await client.call_tool("work")).text == "worked"
        assert await count_samples(server) == 100


async def test_the_servers_time_does_not_run_while_a_question_of_some_call_is_answered():
    server, person = Two(), Person()
    server.may_ask.clear()
    async with asyncio.timeout(5), Client(server.link(), elicit=person, timeout=0.2) as client:
        calls = await start(client, server, "work", "ask")
        await asked_of(person, server)
        done, _ = await asyncio.wait(calls, timeout=0.4)
        assert not done
        person.knows.set()
        assert (await calls[1]).text == "ask!"
        with pytest.raises(CallTimeout):
            await calls[0]


async def test_a_call_that_goes_on_while_another_question_is_open_does_not_run_out_of_time():
    async def call(server, message):
        if message["params"]["name"] == "work":
            await asyncio.Event().wait()
        own = asyncio.ensure_future(server.ask("elicitation/create", form("own")))
        await apart.wait()
        another = await server.ask("elicitation/create", form("another"))
        return text(said(await own) + said(another))

    server, apart = Old(call), asyncio.Event()
    asked, known = [], {"own": asyncio.Event(), "another": asyncio.Event()}

    async def elicit(question):
        asked.append(question.message)
        await known[question.message].wait()
        return Accepted("x")

    async with asyncio.timeout(5), Client(server.link(), elicit=elicit, timeout=0.2) as client:
        calling = asyncio.create_task(client.call_tool("ask"))
        await until(lambda: asked == ["own"])
        work = asyncio.create_task(client.call_tool("work"))
        await until(lambda: len(server.sent_of("tools/call")) == 2)
        apart.set()
        await until(lambda: asked == ["own", "another"])
        known["own"].set()
        done, _ = await asyncio.wait([calling, work], timeout=0.4)
        assert not done
        known["another"].set()
        assert (await calling).text == "xx"
        with pytest.raises(CallTimeout):
            await work


async def test_the_servers_time_goes_on_when_no_question_is_open():
    server, known = Two(), {"one": asyncio.Event(), "two": asyncio.Event()}
    clocks = []

    async def think(key, request):
        await known[request["params"]["message"]].wait()
        return {"action": "accept", "content": {"value": "x"}}

    link = server.link()
    meta = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    link.introduce(Caller(meta, think, lambda _: None, lambda id_, runs: clocks.append((id_, runs))))

    def request(id_, tool):
        return asyncio.create_task(
            link.request({"id": id_, "method": "tools/call", "params": {"name": tool, "arguments": {}}}, headers={})
        )

    async with asyncio.timeout(5):
        await link.open()
        first, second = request("a", "one"), request("b", "two")
        await until(lambda: clocks)
        known["one"].set()
        await first
        assert clocks == [(None, False)] * 2
        known["two"].set()
        await second
        assert clocks == [(None, False)] * 2 + [(None, True)]
        await link.close()


async def test_a_call_that_begins_and_asks_while_a_question_is_open_does_not_run_out_of_time():
    async def call(server, message):
        if message["params"]["name"] == "work":
            await asyncio.Event().wait()
        return text(said(await server.ask("elicitation/create", form(message["params"]["name"]))))

    server, person = Old(call), Person()
    async with asyncio.timeout(5), Client(server.link(), elicit=person, timeout=0.2) as client:
        calls = await start(client, server, "work", "first")
        await until(lambda: len(person.asked) == 1)
        late = asyncio.create_task(client.call_tool("late"))
        await until(lambda: len(person.asked) == 2)
        done, _ = await asyncio.wait([late, *calls], timeout=0.4)
        assert not done
        person.knows.set()
        assert (await late).text == "late!"
        assert (await calls[1]).text == "first!"
        with pytest.raises(CallTimeout):
            await calls[0]


class Named(Old):
    """Each call goes on until its name is ended."""

    def __init__(self, names):
        super().__init__(Named._called)
        self.ends = {name: asyncio.Event() for name in names}

    async def _called(self, message):
        await self.ends[message["params"]["name"]].wait()
        return text("done")

    def put(self, question):
        return asyncio.create_task(self.ask("elicitation/create", form(question)))

    async def end(self, calls, *names):
        for name in names:
            self.ends[name].set()
            assert (await calls[name]).text == "done"


@pytest.mark.parametrize("overlap", [True, False])
async def test_a_question_is_not_refused_for_a_call_that_was_left_before_it_came(overlap):
    server, known, asked, interrupted = Named("abc"), {name: asyncio.Event() for name in "12"}, [], []

    async def elicit(question):
        asked.append(question.message)
        try:
            await known[question.message].wait()
        except asyncio.CancelledError:
            interrupted.append(question.message)
            raise
        return Accepted("x")

    async with asyncio.timeout(5), Client(server.link(), elicit=elicit) as client:
        calls = dict(zip("ab", await start(client, server, "a", "b"), strict=True))
        first = server.put("1")  # of a or b
        await until(lambda: asked == ["1"])
        calls["a"].cancel()
        await until(lambda: server.sent_of("notifications/cancelled"))
        if not overlap:
            known["1"].set()
            await first
        calls["c"] = asyncio.create_task(client.call_tool("c"))
        await until(lambda: len(server.sent_of("tools/call")) == 3)
        second = server.put("2")  # of b or c
        await until(lambda: asked == ["1", "2"])
        known["1"].set()
        assert said(await first) == "x"
        await server.end(calls, "b", "c")
        known["2"].set()
        assert said(await second) == "x"
    assert interrupted == []


async def test_a_question_is_refused_when_the_calls_that_may_have_asked_it_were_left_though_others_go_on():
    server, person = Named("abc"), Person()
    async with asyncio.timeout(5), Client(server.link(), elicit=person) as client:
        calls = dict(zip("ab", await start(client, server, "a", "b"), strict=True))
        question = server.put("?")  # of a or b
        await until(lambda: person.asked)
        calls["c"] = asyncio.create_task(client.call_tool("c"))
        await until(lambda: len(server.sent_of("tools/call")) == 3)
        calls["a"].cancel()
        await server.end(calls, "b")
        assert said(await question) == "The client left the call"
        assert person.interrupted == 1
        await server.end(calls, "c")


@pytest.mark.parametrize("method", ["initialize", "tools/list"])
async def test_a_server_cannot_stop_its_time_with_a_question_that_no_open_call_may_ask(method):
    class Hostile(Old):
        async def _result(self, message):
            if message["method"] != method:
                return await super()._result(message)
            self.say({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form()})
            return await asyncio.Event().wait()

    async def use():
        async with Client(server.link(), elicit=person, timeout=0.2) as client:
            await client.list_tools()

    server, person = Hostile(), Person()
    async with asyncio.timeout(5):
        with pytest.raises(CallTimeout):
            await use()
    assert len(person.asked) == 1


async def test_a_handler_that_is_cancelled_by_itself_is_an_error_for_the_server_and_stops_no_time(caplog):
    async def elicit(question):
        dialog = asyncio.create_task(asyncio.Event().wait())
        dialog.cancel()
        await dialog

    server = Two()
    async with asyncio.timeout(5), Client(server.link(), elicit=elicit, timeout=0.2) as client:
        work, asking = await start(client, server, "work", "ask")
        assert (await asking).text == "The client could not answer"
        with pytest.raises(CallTimeout):
            await work
    assert "the handler was cancelled" in caplog.text
    assert len(server.responses()) == 1


# --- the only call ------------------------------------------------------------------------------------------------


async def test_a_question_outlives_the_only_call_it_may_have_come_from():
    server, person = Two(), Person()
    async with asyncio.timeout(5), Client(server.link(), elicit=person) as client:
        (work,) = await start(client, server, "work")
        asking = asyncio.ensure_future(server.ask("elicitation/create", form("Nobody's?")))
        await until(lambda: person.asked)
        server.may_end.set()
        assert (await work).text == "worked"
        person.knows.set()
        assert said(await asking) == "Nobody's?!"
    assert len(server.responses()) == 1


async def test_a_question_that_came_with_the_reply_is_asked_once():
    async def call(server, message):
        server.asking = asyncio.ensure_future(server.ask("elicitation/create", form("Still?")))
        await asyncio.sleep(0)
        return text()

    server, person = Old(call), Person()
    person.knows.set()
    async with asyncio.timeout(5), Client(server.link(), elicit=person) as client:
        assert (await client.call_tool("x")).rounds == 1
        assert said(await server.asking) == "Still?!"
    assert len(person.asked) == 1


@pytest.mark.parametrize("hint", [True, False])
async def test_an_answer_that_meets_the_reply_is_sent(hint):
    async def call(server, message):
        meta = {"_meta": {HINT: message["id"]}} if hint else {}
        server.id = message["id"]
        server.asking = asyncio.ensure_future(server.ask("elicitation/create", form(**meta)))

    server = Old(call)

    def elicit(question):
        server.say({"jsonrpc": "2.0", "id": server.id, "result": text("without")})
        return Accepted("late")

    async with asyncio.timeout(5), Client(server.link(), elicit=elicit) as client:
        assert (await client.call_tool("x")).text == "without"
        assert said(await server.asking) == "late"
    assert server.methods.count("response") == 1


async def test_a_question_of_a_call_that_is_over_is_refused():
    async def call(server, message):
        server.asking = asyncio.ensure_future(
            server.ask("elicitation/create", form(_meta={HINT: message["id"]}), name="q1")
        )
        await until(lambda: person.asked)
        server.say({"jsonrpc": "2.0", "id": message["id"], "result": text("without")})
        server.after = asyncio.ensure_future(
            server.ask("elicitation/create", form(_meta={HINT: message["id"]}), name="q2")
        )

    server, person = Old(call), Person()
    async with asyncio.timeout(5), Client(server.link(), elicit=person) as client:
        assert (await client.call_tool("x")).text == "without"
        assert {said(await server.asking), said(await server.after)} == {"The call is over"}
    assert (len(person.asked), person.interrupted) == (1, 1)
    assert server.methods.count("response") == 2


# --- over HTTP ----------------------------------------------------------------------------------------------------


async def test_a_question_on_the_servers_own_stream_outlives_the_calls_that_did_not_ask_it():
    listening, asked, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def get(server, headers, writer):
        await stream(writer, end=False)
        server.writer = writer
        listening.set()
        await asyncio.sleep(5)

    async def post(server, message, writer):
        if message["params"]["name"] == "work":
            await may_end.wait()
            return answer(result(message))
        await listening.wait()
        server.writer.write(event(ask()))
        said_ = await server.answers.get()
        return answer(result(message, text(said_["result"]["content"]["value"])))

    async def elicit(question):
        asked.set()
        may_end.set()
        await work
        return Accepted("in time")

    async with (
        asyncio.timeout(5),
        OldHttp(post, get) as server,
        Client(server.url, era="legacy", elicit=elicit) as client,
    ):
        work = asyncio.create_task(client.call_tool("work"))
        await until(lambda: server.sent_of("tools/call"))
        assert (await client.call_tool("ask")).text == "in time"
    assert server.answers.empty()


# --- whatever happens ---------------------------------------------------------------------------------------------


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


TURNS = st.integers(0, 12)
PLANS = st.lists(
    st.fixed_dictionaries(
        {
            "before": TURNS,
            "questions": st.lists(st.booleans(), max_size=3),
            "waits": st.booleans(),
            "left": st.none() | TURNS,
        }
    ),
    min_size=1,
    max_size=4,
)


@examples(60)
@given(plans=PLANS, thinking=TURNS, fails=st.booleans())
async def test_every_question_gets_one_response_and_every_call_that_is_not_left_ends(plans, thinking, fails):
    async def call(server, message):
        plan = plans[int(message["params"]["name"])]
        await turns(plan["before"])
        asking = []
        for hinted in plan["questions"]:
            params = form(**({"_meta": {HINT: message["id"]}} if hinted else {}))
            asking.append(asyncio.ensure_future(server.ask("elicitation/create", params)))
        await turns(1)
        if plan["waits"]:
            await asyncio.gather(*asking)
        return text()

    async def elicit(question):
        await turns(thinking)
        if fails and question.round == 0:
            raise ZeroDivisionError
        return Accepted("x")

    async def run(client, at, plan):
        calling = asyncio.create_task(client.call_tool(str(at)))
        if plan["left"] is not None:
            await turns(plan["left"])
            calling.cancel()
        await asyncio.wait({calling})
        return "left" if calling.cancelled() else calling.result().text

    def responses():
        return sorted(message["id"] for message in server.sent if "method" not in message)

    server = Old(call)
    async with asyncio.timeout(5), Client(server.link(), elicit=elicit) as client:
        ends = await asyncio.gather(*[run(client, at, plan) for at, plan in enumerate(plans)])
        await until(lambda: len(responses()) >= len(server._answers))
        await turns(5)
    assert responses() == sorted(server._answers)
    assert all(end == "done" for end, plan in zip(ends, plans, strict=True) if plan["left"] is None)
