"""Four processes, one Redis, no stickiness: every request of an older client may land anywhere."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import ElicitResult
from redis.asyncio import Redis

from legacy.instances.cluster import Cluster, agree, text_of
from legacy.instances.measure import CLIENTS
from legacy.instances.older import Answer, Event, OlderClient, Refusal
from redis_server import start_redis

pytestmark = pytest.mark.heavy
SOON = 15.0
"""Seconds: the five that are promised, and what a busy machine adds."""

Json = dict[str, Any]


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(scope="module")
def cluster(redis: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    # Longer than a client needs to come back, however busy the machine is.
    cluster = Cluster(redis, tmp_path_factory.mktemp("instances"), size=4, session_ttl=60)
    yield cluster
    cluster.stop()
    told = [line for line in cluster.log().splitlines() if "messages are lost until" not in line]
    assert set(told) <= {"a stream was taken up whose instance is gone"}


# --- questions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["order", "order_by_return"])
async def test_questions_and_answers_find_each_other_wherever_they_land(tool: str, cluster: Cluster) -> None:
    async with cluster.whole() as front:
        told = await front.orders(tool, CLIENTS)
        assert [text.rsplit(" ", 1)[0] for text in told] == [f"client-{one} eu True" for one in range(CLIENTS)]
        assert {int(text.rsplit(" ", 1)[1]) for text in told} == {instance.pid for instance in front.instances}
        assert max(front.proxy.taken.values()) - min(front.proxy.taken.values()) <= 2, "the proxy has favourites"


async def test_when_an_instance_dies_those_who_wait_for_it_hear_so_and_nobody_else_notices(
    cluster: Cluster,
) -> None:
    async with cluster.whole() as front:
        doomed = front.instances[0]
        waiting: dict[str, int] = {}
        all_wait, dead = asyncio.Event(), asyncio.Event()

        async def order(number: int) -> tuple[Json, float]:
            """Hold back the first answer, or the second one."""
            asked = 0

            async def hold(question: Json) -> Json:
                nonlocal asked
                asked += 1
                if asked == 1 + number % 2:
                    waiting[f"client-{number}"] = int(question["message"].split(":")[0])
                    if len(waiting) == CLIENTS:
                        all_wait.set()
                    await dead.wait()
                return await agree(question)

            async with front.client(hold) as client:
                reply = await client.call("order", name=f"client-{number}")
                return reply, time.monotonic()

        async with asyncio.TaskGroup() as group:
            orders = [group.create_task(order(number)) for number in range(CLIENTS)]
            await all_wait.wait()
            doomed.kill()
            killed = time.monotonic()
            dead.set()
        assert set(waiting.values()) == {instance.pid for instance in front.instances}
        for name, order_ in zip((f"client-{number}" for number in range(CLIENTS)), orders, strict=True):
            reply, at = order_.result()
            if waiting[name] == doomed.pid:
                gone = "The server instance that worked on this call is gone. Call again."
                assert reply["error"] == {"code": -32603, "message": gone}
                assert at - killed < SOON
            else:
                assert text_of(reply) == f"{name} eu True {waiting[name]}"


@pytest.mark.peers
async def test_official_clients_do_not_notice_that_there_are_several_instances(cluster: Cluster) -> None:
    async with cluster.whole() as front:
        url = f"http://127.0.0.1:{front.proxy.port}/mcp"

        async def consent(_context: Any, params: Any) -> ElicitResult:
            answer = await agree({"requestedSchema": params.requested_schema})
            return ElicitResult(action="accept", content=answer["content"])

        async def order(tool: str, name: str) -> str:
            async with Client(url, mode="legacy", elicitation_callback=consent) as client:
                result: Any = await client.call_tool(tool, {"name": name})
                return str(result.content[0].text)

        calls = [(tool, str(number)) for tool in ("order", "order_by_return") for number in range(4)]
        told = await asyncio.gather(*(order(tool, name) for tool, name in calls))
        assert [text.rsplit(" ", 1)[0] for text in told] == [f"{name} eu True" for _, name in calls]
        assert len({text.rsplit(" ", 1)[1] for text in told}) > 1


# --- streams ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def asked_at(
    client: OlderClient, port: int, *, tool: str = "order"
) -> AsyncGenerator[tuple[Event, AsyncGenerator[Event]]]:
    """A call to one instance that has asked its first question: the question, and the rest of the stream."""
    params = {"name": tool, "arguments": {"name": "lamp"}}
    async with client.post("tools/call", params, id=7, port=port) as answer:
        events = answer.events()
        async for event in events:
            if event.message is not None and "id" in event.message:
                yield event, events
                break


async def rest_of(answer: Answer) -> list[Json]:
    return [event.message async for event in answer.events() if event.message is not None]


async def test_a_stream_goes_on_at_a_fourth_instance_while_the_handler_waits_at_the_first(cluster: Cluster) -> None:
    async with cluster.whole() as front:
        first, second, third, fourth = front.ports
        async with front.client(agree) as client:
            async with asked_at(client, first) as (question, _):
                pass  # and the connection is closed
            assert question.message is not None
            async with client.stream(question.id, port=fourth) as answer:
                client.port = third
                await client.tell({"id": question.message["id"], "result": await agree(question.message["params"])})
                client.port = second
                _, reply = await client.follow(answer)
            assert reply is not None
            assert reply["id"] == 7
            assert text_of(reply) == f"lamp eu True {front.instances[0].pid}"


async def test_a_stream_survives_the_instance_that_it_was_resumed_at(cluster: Cluster) -> None:
    async with cluster.whole() as front:
        first, second, _, fourth = front.ports
        async with front.client(agree) as client:
            async with asked_at(client, first) as (question, _):
                pass
            async with client.stream(question.id, port=fourth) as answer:
                front.instances[3].kill()
                assert await rest_of(answer) == []
            assert question.message is not None
            async with client.stream(question.id, port=second) as answer:
                await client.tell({"id": question.message["id"], "result": await agree(question.message["params"])})
                _, reply = await client.follow(answer)
            assert reply is not None
            assert text_of(reply) == f"lamp eu True {front.instances[0].pid}"


async def test_what_a_client_missed_is_told_again_at_another_instance(cluster: Cluster) -> None:
    async with cluster.whole() as front:
        first, second, _, _ = front.ports
        async with front.client() as client:
            async with client.post(
                "tools/call", {"name": "order", "arguments": {"name": "lamp"}}, port=first
            ) as answer:
                beginning = await anext(answer.events())
            assert beginning.message is None
            async with client.stream(beginning.id, port=second) as answer:
                question = await anext(answer.events())
            assert question.message is not None
            assert question.message["method"] == "elicitation/create"
            await client.end()


async def test_a_client_that_stays_away_finds_out_that_its_call_was_given_up(cluster: Cluster, redis: str) -> None:
    async with cluster.whole() as front, Redis.from_url(redis) as connection:
        first, second, third, _ = front.ports
        async with front.client() as client:
            async with asked_at(client, first) as (question, _):
                pass
            async with client.stream(question.id, port=second):
                pass  # it comes back, and goes away for good
            async with front.client() as other, other.stream(port=third), asyncio.timeout(20):
                while await connection.keys("*antiphon:open:*"):  # noqa: ASYNC110 -- nothing here sets an Event
                    await asyncio.sleep(0.05)
            async with client.stream(question.id, port=third) as answer:
                *_, reply = await rest_of(answer)
        assert reply["id"] == 7
        assert "error" in reply


async def test_an_answer_is_not_lost_with_the_connection_that_tells_of_it(cluster: Cluster, redis: str) -> None:
    async with cluster.whole() as front, Redis.from_url(redis) as connection:
        first, second, _, _ = front.ports
        async with front.client() as client, asked_at(client, first) as (question, events):
            client.port = second
            told = question.message
            while told is not None and "method" in told:
                # Nobody listens now, until the connection is back.
                assert await connection.execute_command("CLIENT", "KILL", "TYPE", "pubsub") > 0
                await client.tell({"id": told["id"], "result": await agree(told["params"])})
                told = (await anext(event async for event in events if event.message is not None)).message
        assert told is not None
        assert text_of(told) == f"lamp eu True {front.instances[0].pid}"


# --- changes ----------------------------------------------------------------------------------------------------------


async def test_a_change_at_one_instance_is_told_on_a_stream_at_another(cluster: Cluster) -> None:
    async with cluster.whole() as front:
        first, second, third, fourth = front.ports
        async with front.client() as client:
            await client.request("resources/subscribe", {"uri": "note://a"}, port=second)
            async with client.stream(port=third) as answer:
                events = answer.events()
                for tool, uri in [("change", "note://b"), ("change_in_a_thread", "note://a"), ("change", "note://a")]:
                    call = {"name": tool, "arguments": {"uri": uri}}
                    await client.request("tools/call", call, port=first)
                told = [await next_of(events)]
                # Of equal changes only the newest waits, so either may be first.
                while told[-1].message["method"] == told[0].message["method"]:
                    told.append(await next_of(events))
            assert {event.message["method"] for event in told} == {
                "notifications/tools/list_changed",
                "notifications/resources/updated",
            }
            async with client.stream(told[0].id, port=fourth) as answer:
                again = answer.events()
                while (await next_of(again)).message != told[-1].message:
                    pass


async def next_of(events: AsyncIterator[Event]) -> Event:
    """The next event that holds a message."""
    return await anext(event async for event in events if event.message is not None)


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_a_request_is_cancelled_from_another_instance(cluster: Cluster) -> None:
    async with cluster.whole() as front:
        first, second, third, _ = front.ports
        async with front.client() as client:
            call = {"name": "linger", "arguments": {"name": "one"}}
            async with client.post("tools/call", call, id=7, port=first) as answer:
                events = answer.events()
                async for event in events:
                    if event.message is not None:
                        break
                async with client.stream(event.id, port=third) as elsewhere:
                    client.port = second
                    await client.tell({"method": "notifications/cancelled", "params": {"requestId": 7}})
                    assert await rest_of(elsewhere) == []
            assert "one was cancelled" in front.cluster.effects()


async def test_an_ended_session_ends_everywhere(cluster: Cluster) -> None:
    async with cluster.whole() as front:
        first, second, third, fourth = front.ports
        async with (
            front.client() as client,
            asked_at(client, first) as (_, events),
            client.stream(port=third) as changes,
        ):
            client.port = second
            await client.end()
            assert await rest_of(changes) == []
            assert [event.message async for event in events if event.message and "method" not in event.message] == []
            for port in (first, fourth):
                with pytest.raises(Refusal) as refused:
                    await client.request("ping", {}, port=port)
                assert refused.value.status == 404


async def test_nothing_is_left_in_redis_when_all_has_expired(tmp_path: Path) -> None:
    with start_redis(tmp_path) as redis:
        cluster = Cluster(redis, tmp_path, size=2, session_ttl=4)
        try:
            async with cluster.whole() as front, Redis.from_url(redis) as connection:
                await front.orders("order", 5)
                assert await connection.keys() != []
                while await connection.keys():  # noqa: ASYNC110 -- nothing here sets an Event
                    await asyncio.sleep(0.1)
        finally:
            cluster.stop()
