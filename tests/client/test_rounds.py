"""A call over many rounds: limits, waits, whose time runs, and that calls do not mix."""

import asyncio
import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import Accepted, CallTimeout, Client, Context, Declined, Disconnected, RoundsExceeded, Server
from examples import examples

from .scripted import YES, Scripted, asks, done, form

QUESTION = form(a=YES)


def yes(_question):
    return Accepted({"a": True})


async def test_a_call_that_asks_leaves_nothing_to_the_garbage_collector():
    app = Server("tidy")

    @app.tool
    async def deploy(ctx: Context) -> bool:
        return await ctx.confirm("Deploy?")

    async with Client(app, elicit=lambda _: Accepted(True)) as client:
        await client.call_tool("deploy")
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            assert (await client.call_tool("deploy")).rounds == 2
            gc.collect()
            left = [type(item).__qualname__ for item in gc.garbage if type(item).__module__.startswith("antiphon")]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
    assert left == []


# --- limits -------------------------------------------------------------------------------------------------------


async def test_ten_rounds_are_enough_and_eleven_too_many():
    link = Scripted(*[asks("s", key=QUESTION)] * 10, done())
    async with Client(link, elicit=yes) as client:
        assert (await client.call_tool("tool")).rounds == 11
    link = Scripted(lambda _: asks("s", key=QUESTION))
    async with Client(link, elicit=yes) as client:
        with pytest.raises(RoundsExceeded) as raised:
            await client.call_tool("tool")
    assert raised.value.code == "INPUT_REQUIRED_ROUNDS_EXCEEDED"
    assert len(link.sent) == 11


async def test_the_limit_can_be_chosen():
    link = Scripted(lambda _: asks("s", key=QUESTION))
    async with Client(link, elicit=yes, max_rounds=2) as client:
        with pytest.raises(RoundsExceeded):
            await client.call_tool("tool")
    assert len(link.sent) == 3


@pytest.mark.parametrize("rounds", [0, -1])
def test_a_limit_below_one_makes_no_sense(rounds):
    with pytest.raises(ValueError, match="max_rounds"):
        Client(Scripted(), max_rounds=rounds)


async def test_rounds_that_ask_nothing_wait_between_requests(monkeypatch):
    waits = []
    sleep = asyncio.sleep

    async def note(seconds, result=None):
        waits.append(seconds)
        return await sleep(0, result)

    monkeypatch.setattr(asyncio, "sleep", note)
    link = Scripted(*[asks("again")] * 5, done())
    async with Client(link) as client:
        assert (await client.call_tool("tool")).rounds == 6
    assert waits == [0.05, 0.1, 0.2, 0.25, 0.25]
    assert link.params[1:] == [{"name": "tool", "arguments": {}, "requestState": "again"}] * 5


# --- time ---------------------------------------------------------------------------------------------------------


async def test_a_server_that_does_not_answer_in_time():
    async with Client(Scripted(lambda _: asyncio.Event().wait()), timeout=60) as client:
        with pytest.raises(CallTimeout, match="server did not answer within 0.05 seconds") as raised:
            await client.call_tool("tool", timeout=0.05)
    assert raised.value.waiting_for == "server"
    assert raised.value.seconds == 0.05


async def watched(client):
    return [round_ async for round_ in client.watch("tools/call", name="x")]


async def listed(client):
    return await client.list_tools()


@pytest.mark.parametrize(
    "make",
    [
        listed,
        watched,
        lambda client: client.get_prompt("x"),
        lambda client: client.read_resource("x://y"),
        lambda client: client.complete(prompt="x", argument="y", value="z"),
        lambda client: client.discover(),
        lambda client: client.begin("tools/call", name="x"),
    ],
    ids=["list", "watch", "prompt", "read", "complete", "discover", "begin"],
)
async def test_every_request_has_the_clients_timeout(make):
    async with Client(Scripted(lambda _: asyncio.Event().wait()), timeout=0.05) as client:
        with pytest.raises(CallTimeout):
            await make(client)


async def test_the_time_a_person_takes_does_not_count():
    async def think(_question):
        await asyncio.sleep(0.3)
        return Accepted({"a": True})

    link = Scripted(asks("s", key=QUESTION), asks("s", key=QUESTION), done())
    async with Client(link, elicit=think) as client:
        assert (await client.call_tool("tool", timeout=0.2)).rounds == 3


async def test_the_servers_time_is_one_budget_over_all_rounds():
    async def slow(_message):
        await asyncio.sleep(0.08)
        return asks("s", key=QUESTION)

    link = Scripted(slow)
    async with Client(link, elicit=yes) as client:
        with pytest.raises(CallTimeout) as raised:
            await client.call_tool("tool", timeout=0.2)
    assert raised.value.waiting_for == "server"
    assert 2 <= len(link.sent) <= 3


async def test_waiting_for_a_server_that_asks_nothing_counts_as_the_servers_time():
    link = Scripted(lambda _: asks("again"))
    async with Client(link, max_rounds=1000) as client:
        with pytest.raises(CallTimeout) as raised:
            await client.call_tool("tool", timeout=0.2)
    assert raised.value.waiting_for == "server"


async def test_a_person_has_a_limit_of_their_own():
    async def never(_question):
        await asyncio.Event().wait()

    async with Client(Scripted(asks("s", key=QUESTION)), elicit=never, patience=0.05) as client:
        with pytest.raises(CallTimeout, match="The question was not answered within 0.05 seconds") as raised:
            await client.call_tool("tool")
    assert raised.value.waiting_for == "person"


async def test_a_timeout_of_a_progress_callback_is_not_the_calls():
    def report(*_):
        raise TimeoutError("mine")

    told = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
    async with Client(Scripted(done(), told=[told])) as client:
        with pytest.raises(TimeoutError, match="mine"):
            await client.call_tool("tool", progress=report, timeout=60)


async def test_calls_under_way_have_timeouts_of_their_own():
    order = []

    async def note(client, timeout):
        with pytest.raises(CallTimeout) as raised:
            await client.call_tool("tool", timeout=timeout)
        order.append(raised.value.seconds)

    async with Client(Scripted(lambda _: asyncio.Event().wait())) as client:
        await asyncio.gather(*[note(client, timeout) for timeout in (0.2, 0.05, 0.15, 0.1)])
    assert order == [0.05, 0.1, 0.15, 0.2]


async def test_a_cancelled_call_is_cancelled_and_not_timed_out():
    async with Client(Scripted(lambda _: asyncio.Event().wait()), timeout=0.05) as client:
        calling = asyncio.create_task(client.call_tool("tool"))
        await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await client.call_tool("tool")


async def test_a_task_that_ran_into_a_timeout_goes_on_as_if_nothing_had_been():
    async with Client(Scripted(lambda _: asyncio.Event().wait())) as client:
        for _ in range(3):
            with pytest.raises(CallTimeout):
                await client.call_tool("tool", timeout=0.01)
        assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0.01)


async def test_a_call_that_outlives_its_client_still_has_a_timeout():
    """A link of a test's own may let it run on."""
    async with Client(Scripted(lambda _: asyncio.Event().wait())) as client:
        calling = asyncio.create_task(client.call_tool("wait", timeout=0.05))
        await asyncio.sleep(0)
    with pytest.raises(CallTimeout):
        await calling


async def test_a_call_in_memory_ends_with_its_client():
    app = Server("slow")

    @app.tool
    async def wait() -> str:
        await asyncio.Event().wait()

    async with Client(app) as client:
        calling = asyncio.create_task(client.call_tool("wait", timeout=5))
        await asyncio.sleep(0)
    with pytest.raises(Disconnected):
        await calling


async def test_a_call_may_take_as_long_as_it_likes():
    async with Client(Scripted(done()), timeout=None) as client:
        assert (await client.call_tool("tool")).text == "done"


# --- requests are independent -------------------------------------------------------------------------------------


async def test_every_leg_has_an_id_of_its_own():
    link = Scripted(asks("s", key=QUESTION), asks("s", key=QUESTION), done(), done())
    async with Client(link, elicit=yes) as client:
        await client.call_tool("one")
        await client.call_tool("two")
    assert len(set(link.ids)) == 4


@examples(50)
@given(st.text(), st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists))
def test_the_state_and_the_arguments_are_repeated_exactly(state, argument):
    link = Scripted(asks(state, key=QUESTION), done())

    async def call():
        async with Client(link, elicit=yes) as client:
            await client.call_tool("tool", {"argument": argument})

    asyncio.run(call())
    assert link.params[1]["requestState"] == state
    assert [params["arguments"] for params in link.params] == [{"argument": argument}] * 2


async def test_no_state_is_sent_when_none_came():
    link = Scripted(asks("first", key=QUESTION), asks(None, key=QUESTION), done())
    async with Client(link, elicit=yes) as client:
        await client.call_tool("tool")
    assert [params.get("requestState", "none") for params in link.params] == ["none", "first", "none"]


async def test_neither_answers_nor_states_leak_into_other_calls():
    asked = asyncio.Event()
    go_on = asyncio.Event()

    async def think(_question):
        asked.set()
        await go_on.wait()
        return Accepted({"a": True})

    link = Scripted(lambda message: asks("secret", key=QUESTION) if message["id"] == 1 else done())
    async with Client(link, elicit=think) as client:
        asking = asyncio.create_task(client.call_tool("asking"))
        await asked.wait()
        await client.call_tool("asking")
        await client.call_tool("other")
        go_on.set()
        await asking
    first, second, third, retried = link.params
    assert "secret" not in str([first, second, third])
    assert retried["requestState"] == "secret"


async def test_calls_under_way_get_their_own_answers():
    app = Server("many")

    @app.tool
    async def echo(number: int, ctx: Context) -> str:
        given = (await ctx.elicit(f"Number {number}?", int)).unwrap()
        again = (await ctx.elicit(f"Again {number}?", int)).unwrap()
        return f"{number} {given} {again}"

    async def answer(question):
        await asyncio.sleep(0)
        return Accepted(int(question.message.split()[1][:-1]))

    async with Client(app, elicit=answer) as client:
        results = await asyncio.gather(*[client.call_tool("echo", {"number": number}) for number in range(50)])
    assert [result.text for result in results] == [f"{number} {number} {number}" for number in range(50)]


async def test_what_a_caller_does_to_its_arguments_later_does_not_matter():
    arguments = {"tags": ["a"]}

    def answer(_question):
        arguments["tags"].append("b")
        return Accepted({"a": True})

    link = Scripted(asks("s", key=QUESTION), done())
    async with Client(link, elicit=answer) as client:
        await client.call_tool("tool", arguments)
    assert [params["arguments"] for params in link.params] == [{"tags": ["a"]}] * 2


async def test_a_refusal_goes_back_to_the_server_which_decides():
    app = Server("polite")

    @app.tool
    async def deploy(ctx: Context) -> str:
        return "deployed" if await ctx.confirm("Sure?") else "left alone"

    async with Client(app, elicit=lambda _: Declined()) as client:
        assert (await client.call_tool("deploy")).text == "left alone"


# --- progress and logs --------------------------------------------------------------------------------------------


@pytest.fixture
def reporting():
    app = Server("reporting")

    @app.tool
    async def count(to: int, ctx: Context) -> str:
        for number in range(1, to + 1):
            await ctx.progress(number, to, f"step {number}")
        await ctx.log("warning", {"counted": to}, logger="counter")
        return str(to)

    return app


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_progress_is_reported_as_it_comes(reporting, live, kind):
    seen = []

    def report(*told):
        seen.append(told)

    async def report_later(*told):
        await asyncio.sleep(0)
        seen.append(told)

    for target in (reporting, f"http://127.0.0.1:{live(reporting.asgi())}/mcp"):
        seen.clear()
        async with Client(target) as client:
            await client.call_tool("count", {"to": 3}, progress=report if kind == "sync" else report_later)
        assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


async def test_a_progress_callback_that_raises_ends_the_call(reporting, live):
    def report(*_):
        raise ZeroDivisionError

    async with Client(f"http://127.0.0.1:{live(reporting.asgi())}/mcp") as client:
        with pytest.raises(ZeroDivisionError):
            await client.call_tool("count", {"to": 3}, progress=report)
        assert (await client.call_tool("count", {"to": 1})).text == "1"


async def test_each_leg_has_a_progress_token_of_its_own():
    link = Scripted(asks("s", key=QUESTION), done())
    async with Client(link, elicit=yes) as client:
        await client.call_tool("tool", progress=print)
    tokens = [message["params"]["_meta"]["progressToken"] for message in link.sent]
    assert len(set(tokens)) == 2
    assert tokens == link.ids


async def test_nobody_asks_for_progress_that_nobody_reads():
    link = Scripted(done())
    async with Client(link) as client:
        await client.call_tool("tool")
    assert "progressToken" not in link.sent[0]["params"]["_meta"]


async def test_logs_are_heard_by_those_who_ask(reporting):
    seen = []
    async with Client(reporting, on_log=lambda *told: seen.append(told), log_level="debug") as client:
        await client.call_tool("count", {"to": 1})
    assert seen == [("warning", {"counted": 1}, "counter")]
    seen.clear()
    async with Client(reporting, on_log=lambda *told: seen.append(told), log_level="error") as client:
        await client.call_tool("count", {"to": 1})
    assert seen == []


@pytest.mark.parametrize("params", [None, [], "x", 7, {}])
async def test_a_notification_that_makes_no_sense_is_no_ones_error(params):
    told = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    async with Client(Scripted(done(), told=[told])) as client:
        assert (await client.call_tool("tool", progress=lambda *_: None)).text == "done"
