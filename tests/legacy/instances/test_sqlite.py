"""Two processes that share a file: the same as with Redis, on one machine."""

import time
from collections.abc import Iterator

import pytest

from legacy.instances.cluster import Cluster, agree, text_of
from legacy.instances.older import Event

pytestmark = pytest.mark.heavy
SOON = 15.0
"""Seconds: the five that are promised, and what a busy machine adds."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("instances")
    cluster = Cluster(str(folder / "store.db"), folder, size=2, session_ttl=60)
    yield cluster
    cluster.stop()
    assert set(cluster.log().splitlines()) <= {"a stream was taken up whose instance is gone"}


@pytest.mark.parametrize("tool", ["order", "order_by_return"])
async def test_questions_and_answers_find_each_other(tool: str, cluster: Cluster) -> None:
    async with cluster.whole() as front:
        told = await front.orders(tool, 10)
        assert [text.rsplit(" ", 1)[0] for text in told] == [f"client-{one} eu True" for one in range(10)]
        assert {int(text.rsplit(" ", 1)[1]) for text in told} == {instance.pid for instance in front.instances}


async def test_a_change_at_one_instance_is_told_on_a_stream_at_the_other(cluster: Cluster) -> None:
    async with cluster.whole() as front, front.client() as client:
        first, second = front.ports
        async with client.stream(port=second) as answer:
            await client.request("tools/call", {"name": "change", "arguments": {"uri": "note://a"}}, port=first)
            async for event in answer.events():
                if event.message is not None:
                    assert event.message["method"] == "notifications/tools/list_changed"
                    break


async def test_a_stream_goes_on_at_the_other_instance_until_the_first_one_dies(cluster: Cluster) -> None:
    async with cluster.whole() as front, front.client() as client:
        first, second = front.ports
        call = {"name": "order", "arguments": {"name": "lamp"}}
        last = Event("", None, None)
        async with client.post("tools/call", call, id=7, port=first) as answer:
            async for event in answer.events():
                last = event
                if event.message is not None:
                    break
        client.port = second
        async with client.stream(last.id) as answer:
            assert last.message is not None
            await client.tell({"id": last.message["id"], "result": await agree(last.message["params"])})
            events = answer.events()
            async for event in events:
                if event.message is not None:
                    assert event.message["params"]["message"] == f"{front.instances[0].pid}: order lamp in eu?"
                    break
            front.instances[0].kill()
            killed = time.monotonic()
            replies = [event.message async for event in events if event.message is not None]
            assert time.monotonic() - killed < SOON
        assert [(reply["id"], reply["error"]["code"]) for reply in replies] == [(7, -32603)]


async def test_who_calls_again_is_served(cluster: Cluster) -> None:
    async with cluster.whole() as front, front.client(agree) as client:
        assert text_of(await client.call("order", name="lamp")).startswith("lamp eu True ")
