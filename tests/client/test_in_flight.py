"""Many calls under way on one client: answers never cross."""

import asyncio

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from antiphon import Accepted, Client, Context, Server
from antiphon.transports.memory import MemoryLink
from examples import examples

MANY = 1000


@pytest.fixture
def app():
    return conversing()


def conversing():
    """A server that asks as many questions as it is told, and repeats the answers."""
    server = Server("conversing")

    @server.tool
    async def converse(number: int, questions: int, ctx: Context) -> str:
        answers = [
            (await ctx.elicit(f"{number} {question}", str, key=f"question{question}")).unwrap()
            for question in range(questions)
        ]
        return f"{number}: {', '.join(answers)}"

    return server


def expected(number, questions):
    return f"{number}: {', '.join(f'answer to {number} {question}' for question in range(questions))}"


async def a_thousand_calls(target):
    asyncio.get_running_loop().set_debug(False)

    async def answer(question):
        await asyncio.sleep(0)
        return Accepted(f"answer to {question.message}")

    async with Client(target, elicit=answer) as client:
        calls = [client.call_tool("converse", {"number": number, "questions": number % 3}) for number in range(MANY)]
        results = await asyncio.gather(*calls)
    assert [result.text for result in results] == [expected(number, number % 3) for number in range(MANY)]
    assert [result.rounds for result in results] == [1 + number % 3 for number in range(MANY)]


async def test_a_thousand_calls_in_memory(app):
    await a_thousand_calls(app)


@pytest.mark.heavy
async def test_a_thousand_calls_over_http_share_a_hundred_connections(app, live):
    seen = set()
    endpoint = app.asgi()

    async def noting(scope, receive, send):
        seen.add(scope.get("client"))
        await endpoint(scope, receive, send)

    await a_thousand_calls(f"http://127.0.0.1:{live(noting)}/mcp")
    assert 2 <= len(seen - {None}) <= 100


class Held(MemoryLink):
    """A way to the server on which every request waits until it is let go."""

    def __init__(self, service):
        super().__init__(service)
        self.waiting = {}
        self.ids = []

    async def request(self, message, *, headers, on_notification=None):
        self.ids.append(message["id"])
        gate = self.waiting[message["id"]] = asyncio.get_running_loop().create_future()
        try:
            await gate
        finally:
            del self.waiting[message["id"]]
        return await super().request(message, headers=headers, on_notification=on_notification)


class Conversations(RuleBasedStateMachine):
    """Calls begin, travel, are asked, answered and cancelled in any order whatever."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.link = Held(conversing())
        self.client = Client(self.link, elicit=self.ask, timeout=None)
        self.calls = {}
        self.asked = {}
        self.run(self.client.__aenter__())

    def run(self, work):
        return self.loop.run_until_complete(work)

    def turn(self):
        async def turns():
            for _ in range(20):
                await asyncio.sleep(0)

        self.run(turns())

    async def ask(self, question):
        assert question.message not in self.asked, "asked twice"
        answer = self.asked[question.message] = self.loop.create_future()
        try:
            return Accepted(await answer)
        finally:
            del self.asked[question.message]

    @rule(questions=st.integers(0, 3))
    def begin(self, questions):
        number = len(self.calls)
        call = self.client.call_tool("converse", {"number": number, "questions": questions})
        self.calls[number] = (questions, self.loop.create_task(call))
        self.turn()

    @precondition(lambda self: self.link.waiting)
    @rule(data=st.data())
    def let_a_request_go(self, data):
        self.link.waiting[data.draw(st.sampled_from(sorted(self.link.waiting)))].set_result(None)
        self.turn()

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def answer_a_question(self, data):
        message = data.draw(st.sampled_from(sorted(self.asked)))
        self.asked[message].set_result(f"answer to {message}")
        self.turn()

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def cancel_a_call(self, data):
        self.calls[data.draw(st.sampled_from(sorted(self.calls)))][1].cancel()
        self.turn()

    @invariant()
    def every_id_is_new(self):
        assert len(set(self.link.ids)) == len(self.link.ids)

    @invariant()
    def every_result_is_that_of_its_call(self):
        for number, (questions, call) in self.calls.items():
            if call.done() and not call.cancelled():
                assert call.result().text == expected(number, questions)

    @invariant()
    def every_call_waits_for_something_or_is_done(self):
        waiting = [call for _, call in self.calls.values() if not call.done()]
        assert len(waiting) == len(self.link.waiting) + len(self.asked)

    def teardown(self):
        while self.link.waiting or self.asked:
            for gate in list(self.link.waiting.values()):
                gate.set_result(None)
            for message, answer in list(self.asked.items()):
                answer.set_result(f"answer to {message}")
            self.turn()
        self.every_result_is_that_of_its_call()
        assert all(call.done() for _, call in self.calls.values())
        self.run(self.client.__aexit__())
        assert asyncio.all_tasks(self.loop) == set()
        self.loop.close()


TestConversations = Conversations.TestCase
TestConversations.settings = examples(40, stateful_step_count=30)
