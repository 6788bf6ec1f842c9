"""The rounds of new clients: relayed as they are, or held for an old server, here and at another instance."""

import asyncio
import logging

import pytest
from conversing import Rude, Tapped, asker, bridged, upstream

from antiphon import Accepted, Client, Complete, MemoryStore, Pending, Refused, Seal, eras
from antiphon.bridge import waiting
from antiphon.stores.redis import RedisStore
from redis_server import start_redis

KEYS = ["a key of thirty-two letters or so"]


async def test_a_new_server_s_token_and_questions_are_relayed_untouched():
    front, back = [], []
    server = bridged(upstream(), wrap=lambda link: Tapped(link, back))
    async with asker(Tapped(eras.connect(server), front)) as client:
        await client.call_tool("confirm")
    asked = [reply["result"] for _, reply in back if reply["result"].get("resultType") == "input_required"]
    shown = [reply["result"] for _, reply in front if reply["result"].get("resultType") == "input_required"]
    sent = [message["params"]["requestState"] for message, _ in back if "requestState" in message["params"]]
    assert shown == asked != []
    assert sent == [asked[0]["requestState"]]


async def test_nothing_is_held_for_a_new_server():
    app = upstream()
    async with asker(bridged(app)) as client:
        pending = await client.begin("tools/call", name="confirm", arguments={})
    async with asker(bridged(app)) as other:
        done = await other.resume(pending, {"confirm": Accepted({"confirm": True})})
    assert isinstance(done, Complete)
    assert done.result.text == "True"


async def begun(client, name="ask_and_wait"):
    pending = await client.begin("tools/call", name=name, arguments={})
    assert isinstance(pending, Pending)
    return pending


async def test_an_old_server_s_call_waits_for_the_client_to_come_back():
    async with asker(bridged(upstream(), "legacy")) as client:
        pending = await begun(client)
        done = await client.resume(pending, dict.fromkeys(pending.questions, Accepted("Eve")))
    assert done.result.text == "Eve"


async def test_a_token_counts_once_for_its_own_call_and_as_it_is():
    async with asker(bridged(upstream(), "legacy")) as client:
        pending = await begun(client)
        answers = dict.fromkeys(pending.questions, Accepted("Eve"))
        for changed in (
            Pending(**{**fields(pending), "params": {**pending.params, "name": "confirm"}}),
            Pending(**{**fields(pending), "state": pending.state[:-2] + "AA"}),
        ):
            with pytest.raises(Refused, match="Invalid or expired requestState"):
                await client.resume(changed, answers)
        await client.resume(pending, answers)
        with pytest.raises(Refused, match="Invalid or expired requestState"):
            await client.resume(pending, answers)


def fields(pending):
    return {name: getattr(pending, name) for name in pending.__struct_fields__}


async def test_a_call_that_nobody_comes_back_for_is_cancelled():
    app = upstream()
    async with asker(bridged(app, "legacy", seal=Seal(keys=KEYS, ttl=0.2))) as client:
        pending = await begun(client)
        await asyncio.wait_for(app.left.wait(), 5)
        with pytest.raises(Refused, match="Invalid or expired requestState"):
            await client.resume(pending, dict.fromkeys(pending.questions, Accepted("Eve")))


async def test_too_many_waiting_calls_are_refused_and_cancelled(monkeypatch):
    monkeypatch.setattr(waiting, "MOST", 1)
    app = upstream()
    async with asker(bridged(app, "legacy")) as client:
        await begun(client)
        with pytest.raises(Refused, match="Too many calls wait for answers"):
            await begun(client)
        await asyncio.wait_for(app.left.wait(), 5)


async def test_one_caller_cannot_take_the_place_of_all(monkeypatch, call):
    monkeypatch.setattr(waiting, "MOST", 20)
    app = upstream()
    server, forms = bridged(app, "legacy"), {"elicitation": {"form": {}}}

    async def asks(**about):
        reply = await call(server, "tools/call", {"name": "ask_and_wait"}, capabilities=forms, **about)
        return reply["error"]["message"] if "error" in reply else reply["result"]["resultType"]

    async with server.running():
        for about in ({"principal": "ann"}, {"principal": "bob"}):
            assert {await asks(**about) for _ in range(10)} == {"input_required"}
            if about["principal"] == "ann":
                assert await asks(**about) == (
                    "Too many of your calls wait for answers: answer or cancel some, and call again"
                )
                await asyncio.wait_for(app.left.wait(), 5)
        assert (await asks(principal="eve")).startswith("Too many calls wait")


async def test_a_call_that_asks_an_older_client_what_it_did_not_declare_ends_at_the_server():
    app = upstream()
    async with asker(bridged(app, "legacy", wrap=Rude), era="legacy", sample=None) as client:
        with pytest.raises(Refused, match="did not declare"):
            await client.call_tool("ask_and_wait")
        await asyncio.wait_for(app.left.wait(), 5)


async def test_what_waits_is_cancelled_when_the_bridge_stops():
    app = upstream()
    async with app.running():
        async with asker(bridged(app, "legacy")) as client:
            await begun(client)
        await asyncio.wait_for(app.left.wait(), 5)


# --- two instances ------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "redis"])
def stores(request, tmp_path):
    """Stores of two instances that share what is in them."""
    if request.param == "memory":
        store = MemoryStore()
        yield lambda: store
        return
    with start_redis(tmp_path) as url:
        yield lambda: RedisStore(url)


def instance(app, store, **options):
    server = bridged(app, "legacy", seal=Seal(keys=KEYS), store=store, **options)
    server.has_shared_store = True
    return server


async def test_an_answer_finds_the_instance_that_holds_the_call(stores):
    one, two = stores(), stores()
    async with asker(instance(upstream(), one)) as client, asker(instance(upstream(), two)) as other:
        pending = await begun(client, "order")
        for answer in (Accepted("Eve"), Accepted(None), Accepted({"confirm": True})):
            pending = await other.resume(pending, dict.fromkeys(pending.questions, answer))
        assert isinstance(pending, Pending)
        assert [question["method"] for question in pending.questions.values()] == ["roots/list"]
        pending = await client.resume(pending, {key: {"roots": [{"uri": "file:///x"}]} for key in pending.questions})
        said = {"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m"}
        done = await other.resume(pending, dict.fromkeys(pending.questions, said))
    assert done.result.text == "Eve accept True file:///x Hi"
    await one.close()
    await two.close()


class Heard(MemoryStore):
    """A store that knows which channels are listened to."""

    def __init__(self):
        super().__init__()
        self.channels = []

    def subscribe(self, channel):
        self.channels.append(channel)
        return super().subscribe(channel)


async def test_what_is_no_message_of_an_instance_is_ignored():
    store = Heard()
    async with asker(instance(upstream(), store)) as client, asker(instance(upstream(), store)) as other:
        pending = await begun(client)
        for rubbish in (b"\xff", b"", b"[1]", b'{"resume": 1}'):
            await store.publish(store.channels[0], rubbish)
        done = await other.resume(pending, dict.fromkeys(pending.questions, Accepted("Eve")))
    assert done.result.text == "Eve"


async def test_an_answer_counts_once_at_all_instances(stores):
    one, two = stores(), stores()
    async with asker(instance(upstream(), one)) as client, asker(instance(upstream(), two)) as other:
        pending = await begun(client)
        answers = dict.fromkeys(pending.questions, Accepted("Eve"))
        ended = await asyncio.gather(
            *(each.resume(pending, answers) for each in (client, other, other)), return_exceptions=True
        )
    assert sorted(type(end).__name__ for end in ended) == ["Complete", "Refused", "Refused"]
    await one.close()
    await two.close()


async def test_a_client_that_leaves_the_other_instance_cancels_the_call(stores):
    one, two = stores(), stores()
    app = upstream()
    async with asker(instance(app, one)) as client, asker(instance(upstream(), two)) as other:
        pending = await begun(client, "slowly")
        call = asyncio.create_task(other.resume(pending, dict.fromkeys(pending.questions, Accepted("Eve"))))
        await asyncio.wait_for(app.entered.wait(), 5)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await asyncio.wait_for(app.left.wait(), 5)
    await one.close()
    await two.close()


async def test_a_call_whose_instance_is_gone_is_lost_and_says_so(monkeypatch, caplog):
    monkeypatch.setattr(waiting, "GREETING", 0.1)
    caplog.set_level(logging.ERROR)
    store = MemoryStore()
    async with asker(instance(upstream(), store)) as client:
        pending = await begun(client)
    async with asker(instance(upstream(), store)) as other:
        with pytest.raises(Refused, match=r"The call was lost.*Make the call again"):
            await other.resume(pending, dict.fromkeys(pending.questions, Accepted("Eve")))
    async with Client(bridged(upstream(), "legacy", seal=Seal(keys=KEYS)), elicit=lambda _: None) as alone:
        with pytest.raises(Refused, match="The call was lost"):
            await alone.resume(pending, dict.fromkeys(pending.questions, Accepted("Eve")))
