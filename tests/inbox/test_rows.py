"""Rows: one answer counts, a bad one spends nothing, and nothing stays for ever."""

import asyncio
import os
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import AlreadyAnswered, CannotAnswer, MemoryStore, NotAllowed, SQLiteStore, StoreError
from antiphon.errors import TicketExpired, TicketUnknown, TicketWithdrawn
from antiphon.inbox import rows as rows_module
from antiphon.inbox.rows import Row, Rows, new_ticket

KEY = "k" * 32
SEATS = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "How many?",
        "requestedSchema": {
            "type": "object",
            "properties": {
                "seats": {"type": "integer", "minimum": 1},
                "class": {"type": "string", "enum": ["a", "b"], "default": "b"},
            },
            "required": ["seats"],
        },
    },
}
LOOK = {"method": "elicitation/create", "params": {"mode": "url", "message": "Look", "url": "https://example.com/"}}
WRITE = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 9}}
WHERE = {"method": "roots/list"}


def seats(number):
    return {"q": {"action": "accept", "content": {"seats": number}}}


def row(id_=None, **changes):
    now = time.time()
    whole = {"id": id_ or new_ticket(), "method": "tools/call", "name": "book", "questions": {"q": SEATS}}
    return Row(**{**whole, "since": now, "until": now + 3600, **changes})


@pytest.fixture
def rows(store):
    return Rows(store, keys=KEY)


async def put(rows, **changes):
    made = row(**changes)
    assert await rows.add(made)
    return made.id


# --- the life of a row --------------------------------------------------------------------------------------------


async def test_a_row_comes_back_as_it_was_put(rows):
    made = row(arguments={"day": "Monday"}, on_behalf="ada", who="finance", payload=b"\x00 token")
    assert await rows.add(made)
    assert await rows.get(made.id) == made
    assert await rows.waiting() == [made]


async def test_the_second_row_of_an_id_is_refused(rows):
    id_ = await put(rows, name="first")
    assert not await rows.add(row(id_, name="second"))
    assert (await rows.get(id_)).name == "first"
    await rows.forget(id_)
    assert await rows.add(row(id_, name="second"))
    assert [one.name for one in await rows.waiting()] == ["second"]


async def test_an_answer_is_filled_in_and_recorded_with_who_gave_it(rows):
    id_ = await put(rows)
    answered = await rows.answer(id_, 1, seats(2), "ada")
    assert answered.answers == {"q": {"action": "accept", "content": {"seats": 2, "class": "b"}}}
    assert (answered.status, answered.answered_by) == ("answered", "ada")
    assert await rows.get(id_) == answered
    assert await rows.waiting() == []


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_refusal_is_an_answer_too(rows, action):
    id_ = await put(rows)
    assert (await rows.answer(id_, 1, {"q": {"action": action, "content": {}}}, "ada")).answers == {
        "q": {"action": action}
    }


async def test_rounds_follow_each_other_and_the_end_is_recorded_once(rows):
    id_ = await put(rows, payload=b"one")
    assert not await rows.replace(row(id_, round=2), after=1), "round 1 is not answered yet"
    await rows.answer(id_, 1, seats(2), "ada")
    assert await rows.replace(row(id_, round=2, payload=b"two"), after=1)
    assert not await rows.replace(row(id_, round=2, payload=b"late"), after=1)
    second = await rows.get(id_)
    assert (second.round, second.status, second.payload, second.answers) == (2, "waiting", b"two", None)
    with pytest.raises(AlreadyAnswered, match="by ada"):
        await rows.answer(id_, 1, seats(3), "bob")
    await rows.answer(id_, 2, seats(4), "bob")
    done = await rows.finish(id_, b"result")
    assert await rows.finish(id_, b"another") == done
    assert (done.status, done.result, done.payload) == ("done", b"result", b"")
    assert [(given.round, given.by) for given in done.given] == [(1, "ada"), (2, "bob")]
    with pytest.raises(AlreadyAnswered, match="by bob"):
        await rows.answer(id_, 2, seats(5), "eve")


async def test_what_was_withdrawn_takes_no_answer(rows):
    id_ = await put(rows)
    await rows.withdraw(id_)
    assert await rows.waiting() == []
    with pytest.raises(TicketWithdrawn):
        await rows.answer(id_, 1, seats(2), "ada")
    other = await put(rows)
    await rows.answer(other, 1, seats(2), "ada")
    with pytest.raises(AlreadyAnswered):
        await rows.withdraw(other)


async def test_a_waiter_hears_of_the_answer(rows):
    id_ = await put(rows)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiters = [group.create_task(rows.settled(id_)) for _ in range(3)]
        await asyncio.sleep(0)
        await rows.answer(id_, 1, seats(2), "ada")
    assert {waiter.result().answered_by for waiter in waiters} == {"ada"}
    assert (await rows.settled(await put(rows), 0.01)).status == "waiting"


# --- who counts ---------------------------------------------------------------------------------------------------


async def test_of_ten_simultaneous_answers_one_counts_and_the_others_are_told_whose(rows):
    id_ = await put(rows)
    outcomes = await asyncio.gather(
        *(rows.answer(id_, 1, seats(number), f"person {number}") for number in range(1, 11)), return_exceptions=True
    )
    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, Row)]
    late = [outcome for outcome in outcomes if isinstance(outcome, AlreadyAnswered)]
    assert len(late) == 9
    assert {fault.by for fault in late} == {winner.answered_by}
    assert await rows.get(id_) == winner


async def test_only_the_named_person_or_group_answers(rows):
    id_ = await put(rows, who="finance")
    with pytest.raises(NotAllowed, match="Only finance"):
        await rows.answer(id_, 1, seats(2), "ada", groups=("sales",))
    assert (await rows.get(id_)).status == "waiting"
    await rows.answer(id_, 1, seats(2), "ada", groups=("sales", "finance"))
    own = await put(rows, who="ada")
    await rows.answer(own, 1, seats(2), "ada")


@pytest.mark.parametrize(
    ("question", "response", "why"),
    [
        (SEATS, {"action": "accept", "content": {"seats": 0}}, "seats"),
        (SEATS, {"action": "accept", "content": {"seats": "two"}}, "seats"),
        (SEATS, {"action": "accept", "content": {"seats": 1, "class": "z"}}, "class"),
        (SEATS, {"action": "accept", "content": {}}, "missing required field 'seats'"),
        (SEATS, {"action": "accept"}, "content"),
        (SEATS, {"action": "maybe"}, "accept, decline or cancel"),
        (SEATS, "yes", "accept, decline or cancel"),
        (LOOK, {}, "accept, decline or cancel"),
        (WRITE, {"role": "assistant"}, "content"),
        (WHERE, {"roots": [{"name": "no uri"}]}, "uri"),
        ({"method": "tools/call"}, {"action": "accept"}, "expected a request"),
    ],
)
async def test_an_answer_that_does_not_fit_is_refused_and_spends_nothing(question, response, why):
    rows = Rows(MemoryStore())
    id_ = await put(rows, questions={"q": question})
    with pytest.raises(CannotAnswer, match=why) as refused:
        await rows.answer(id_, 1, {"q": response}, "ada")
    assert refused.value.key == "q"
    assert (await rows.get(id_)).status == "waiting"


async def test_every_question_needs_an_answer_and_no_other_counts():
    rows = Rows(MemoryStore())
    id_ = await put(rows, questions={"q": SEATS, "look": LOOK, "write": WRITE, "where": WHERE})
    with pytest.raises(CannotAnswer, match="no answer for 'look'"):
        await rows.answer(id_, 1, seats(2), "ada")
    said = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "ada"}
    given = {**seats(2), "look": {"action": "accept"}, "write": said, "where": {"roots": []}, "more": {}}
    assert set((await rows.answer(id_, 1, given, "ada")).answers) == {"q", "look", "write", "where"}


# --- time and size ------------------------------------------------------------------------------------------------


async def test_an_expired_row_takes_no_answer_and_leaves_list_and_store():
    now = [time.time()]
    store = MemoryStore(clock=lambda: now[0])
    rows = Rows(store, clock=lambda: now[0])
    id_ = await put(rows, since=now[0], until=now[0] + 60)
    now[0] += 61
    assert await rows.waiting() == []
    assert (await rows.get(id_)).status == "expired"
    with pytest.raises(TicketExpired):
        await rows.answer(id_, 1, seats(2), "ada")
    assert (await rows.settled(id_)).status == "expired"
    now[0] += rows_module.KEEP
    with pytest.raises(TicketUnknown):
        await rows.get(id_)
    for _ in range(64):
        await store.get("sweep")
    assert len(store) == 0


async def test_the_list_heals_itself_of_rows_that_ended_while_their_process_did():
    store = MemoryStore()
    rows = Rows(store)
    id_ = await put(rows)

    async def crash(*_):
        raise KeyboardInterrupt

    broken = Rows(store)
    broken._seal, broken._index = rows._seal, crash
    with pytest.raises(KeyboardInterrupt):
        await broken.withdraw(id_)
    assert await rows.waiting() == []
    shards = [await store.get(rows_module._shard(number)) for number in range(rows_module._SHARDS)]
    assert all(not msgspec.msgpack.decode(shard) for shard in shards if shard is not None)


async def test_a_full_inbox_says_so(monkeypatch):
    monkeypatch.setattr(rows_module, "_SHARDS", 1)
    monkeypatch.setattr(rows_module, "_PER_SHARD", 2)
    rows = Rows(MemoryStore())
    first = await put(rows)
    await put(rows)
    with pytest.raises(StoreError, match="the inbox is full"):
        await rows.add(row())
    await rows.withdraw(first)
    await put(rows)


async def test_a_call_that_is_too_large_is_refused():
    rows = Rows(MemoryStore())
    hostile = {**SEATS, "params": {**SEATS["params"], "message": "x" * 1_000_000}}
    id_ = await put(rows, questions={"q": hostile})
    assert len((await rows.get(id_)).questions["q"]["params"]["message"]) == 1_000_000
    with pytest.raises(StoreError, match="too large"):
        await rows.add(row(payload=os.urandom(rows_module.MAX_BYTES - 1000)))
    with pytest.raises(StoreError, match="too large"):
        await rows.add(row(payload=bytes(rows_module.MAX_BYTES)))


@pytest.mark.parametrize("id_", ["short", "with space", "x" * 65, "", "a/b/c/d/e", "ümläute-"])
async def test_an_id_is_short_and_plain(id_):
    rows = Rows(MemoryStore())
    with pytest.raises(ValueError, match="8 to 64"):
        await rows.add(Row(**{**msgspec.structs.asdict(row()), "id": id_}))
    with pytest.raises(TicketUnknown):
        await rows.get(id_)


@pytest.mark.parametrize("until", [0.0, 1e12, float("inf"), float("nan")])
async def test_a_row_has_an_end_in_the_future(until):
    with pytest.raises(ValueError, match="end in the next ten years"):
        await Rows(MemoryStore()).add(row(until=until))


@pytest.mark.parametrize("by", ["", "x" * 1001])
async def test_who_answers_has_a_name(by):
    rows = Rows(MemoryStore())
    id_ = await put(rows)
    with pytest.raises(ValueError, match="a name"):
        await rows.answer(id_, 1, seats(2), by)


# --- at rest ------------------------------------------------------------------------------------------------------


async def test_rows_are_sealed_at_rest_and_bound_to_their_id(tmp_path):
    store = SQLiteStore(tmp_path / "s.db")
    rows = Rows(store, keys=[KEY])
    id_, other = await put(rows, name="secret-name", payload=b"secret-token"), await put(rows)
    await rows.answer(id_, 1, seats(424242), "secret-person")
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for secret in (b"secret-name", b"secret-token", b"424242", b"secret-person"):
        assert secret not in kept
    await store.put(f"antiphon:inbox:row:{other}", await store.get(f"antiphon:inbox:row:{id_}"))
    with pytest.raises(StoreError, match="cannot be opened"):
        await rows.get(other)
    with pytest.raises(StoreError, match="ANTIPHON_KEYS"):
        await Rows(store, keys="other" * 8).get(id_)
    assert (await Rows(store, keys=["n" * 32, KEY]).get(id_)).name == "secret-name", "a key can be replaced"
    await store.close()


def test_a_store_that_outlives_the_process_needs_keys(tmp_path, monkeypatch):
    monkeypatch.delenv("ANTIPHON_KEYS", raising=False)
    with pytest.raises(ValueError, match="ANTIPHON_KEYS"):
        Rows(SQLiteStore(tmp_path / "s.db"))
    monkeypatch.setenv("ANTIPHON_KEYS", KEY)
    Rows(SQLiteStore(tmp_path / "s.db"))


@given(damage=st.binary(max_size=200), place=st.integers(min_value=0))
async def test_a_damaged_row_is_an_error_and_never_another_row(damage, place):
    rows = Rows(MemoryStore())
    id_ = await put(rows)
    kept = await rows.store.get(f"antiphon:inbox:row:{id_}")
    place %= len(kept)
    spoiled = kept[:place] + damage + kept[place + len(damage) :]
    await rows.store.put(f"antiphon:inbox:row:{id_}", spoiled)
    if spoiled == kept:
        await rows.get(id_)
    else:
        with pytest.raises(StoreError):
            await rows.get(id_)
