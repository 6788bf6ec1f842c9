"""Whether a part of your own keeps the promises that the framework relies on.

A check raises an AssertionError with one sentence for each promise that is broken, and otherwise returns in silence.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from inspect import isawaitable
from itertools import pairwise
from secrets import token_hex
from typing import TypeAlias

from antiphon.stores.store import Store

__all__ = ["check_store"]

PATIENCE = 2.0
"""How many seconds a check waits for what should happen at once."""
BRIEF = 0.05
"""The ttl that a check waits out, in seconds."""
CROWD = 50
"""How many tasks do the same thing at the same time."""

Broken: TypeAlias = AsyncGenerator[str, None]
Promise: TypeAlias = Callable[[Store, str], Broken]


async def check_store(make_store: Callable[[], Store | Awaitable[Store]]) -> None:
    """Check that a store keeps every promise of `antiphon.stores.Store`.

    ``make_store`` is called once for each group of promises, and that store is closed again. It need not be empty, for
    all names are random, but it must run on the real clock: an expiry is waited for.

    >>> import asyncio
    >>> from antiphon.stores import MemoryStore
    >>> asyncio.run(check_store(MemoryStore))
    """
    broken: list[str] = []
    for promise in _STORE_PROMISES:
        made = make_store()
        store = await made if isawaitable(made) else made
        broken += await _broken(promise, store)
    if broken:
        raise AssertionError("\n".join(broken))


async def _broken(promise: Promise, store: Store) -> list[str]:
    broken: list[str] = []
    about = promise.__name__.strip("_").replace("_", " ")
    try:
        async with asyncio.timeout(4 * PATIENCE):
            async for sentence in promise(store, f"check-{token_hex(8)}"):
                broken.append(sentence)  # noqa: PERF401 -- what was found stays found when the next step fails
            await store.close()
            await store.close()
    except TimeoutError:
        broken.append(f"The check of {about} did not finish within {4 * PATIENCE:.0f} s.")
    except Exception as error:  # noqa: BLE001 -- whatever a store raises is a finding
        broken.append(f"The check of {about} ended with {error!r}.")
    finally:
        with suppress(Exception):
            await store.close()
    return broken


async def _values(store: Store, name: str) -> Broken:
    if await store.get(name) is not None:
        yield "get() returns None for a key that nobody set."
    await store.put(name, b"first")
    await store.put(name, b"second")
    if await store.get(name) != b"second":
        yield "get() returns what the latest put() set."
    if await store.add(name, b"third"):
        yield "add() returns False for a key that is taken."
    if await store.get(name) != b"second":
        yield "add() leaves a key that is taken as it is."
    if await store.take(name) != b"second":
        yield "take() returns the value."
    if await store.get(name) is not None or await store.take(name) is not None:
        yield "take() deletes the value."
    if not await store.add(name, b"fourth"):
        yield "add() returns True for a key that take() has freed."
    if await store.get(name) != b"fourth":
        yield "add() sets the value of a free key."


async def _claims(store: Store, name: str) -> Broken:
    claims = await asyncio.gather(*(store.add(name, b"%d" % task) for task in range(CROWD)))
    if claims.count(True) != 1 or claims.count(False) != CROWD - 1:
        yield f"add() is True for exactly one of {CROWD} tasks; here it was for {claims.count(True)}."
    elif await store.get(name) != b"%d" % claims.index(True):
        yield "add() keeps the value of the one task for which it is True."
    await store.put(name, b"prize")
    taken = await asyncio.gather(*(store.take(name) for _ in range(CROWD)))
    if taken.count(b"prize") != 1 or taken.count(None) != CROWD - 1:
        yield f"take() gives the value to exactly one of {CROWD} tasks; here {taken.count(b'prize')} got it."


async def _bytes(store: Store, name: str) -> Broken:
    for what, value in {"an empty value": b"", "every byte": bytes(range(256)), "a long value": b"x" * 100_000}.items():
        await store.put(name, value)
        if await store.get(name) != value or await store.take(name) != value:
            yield f"put(), get() and take() carry {what} unchanged."
        await store.append(name, value)
        if [kept for _, kept in await store.read(name)][-1:] != [value]:
            yield f"append() and read() carry {what} unchanged."
    if not await store.add(name) or await store.get(name) != b"" or await store.add(name):
        yield "add() without a value claims the key with an empty one."


async def _keys(store: Store, name: str) -> Broken:
    long = name + "k" * 2000
    keys = [
        name + suffix
        for suffix in (
            "",
            "a",
            "A",
            "a ",
            " a",
            "é",
            "e\u0301",
            "鍵🔑",
            "%",
            "_",
            "*",
            "'",
            '"',
            "\n",
            "a:b",
            "a/b",
            "a\x00b",
        )
    ]
    keys += [long + "1", long + "2"]
    for number, key in enumerate(keys):
        await store.put(key, b"%d" % number)
    for number, key in enumerate(keys):
        if await store.get(key) != b"%d" % number:
            shown = key.removeprefix(name)
            yield f"Keys that differ in any character are different keys; {shown[:12]!r} ({len(shown)} long) is not."


async def _namespaces(store: Store, name: str) -> Broken:
    async with store.subscribe(name) as messages:
        await store.put(name, b"value")
        await store.append(name, b"event")
        await store.publish(name, b"message")
        if await _received(messages, 1) != [b"message"]:
            yield "A channel is apart from a key and a stream of the same name."
    if await store.get(name) != b"value":
        yield "A key is apart from a stream and a channel of the same name."
    if [value for _, value in await store.read(name)] != [b"event"]:
        yield "A stream is apart from a key and a channel of the same name."


async def _expiry(store: Store, name: str) -> Broken:
    begun = time.monotonic()
    await store.put(f"{name}-put", b"x", ttl=BRIEF)
    await store.add(f"{name}-add", b"x", ttl=BRIEF)
    first = await store.append(f"{name}-append", b"x", ttl=BRIEF)
    await store.append(f"{name}-append", b"x")
    if time.monotonic() - begun >= BRIEF:
        # Too slow to tell: the stream may have expired in between and begun anew, for good.
        await store.append(f"{name}-append", b"x", ttl=BRIEF)
    alive = await _alive(store, name)
    if len(alive) < 3 and time.monotonic() - begun < BRIEF:
        yield f"Nothing expires before its ttl; of put, add and append only {alive or 'none'} was still there."
    patience = time.monotonic() + PATIENCE
    while alive and time.monotonic() < patience:
        await asyncio.sleep(BRIEF / 5)
        alive = await _alive(store, name)
    for method in alive:
        yield f"What {method}() stored with a ttl is gone when that time is over."
    if not alive and await store.take(f"{name}-put") is not None:
        yield "take() does not return what has expired."
    if not await store.add(f"{name}-add", b"y") or await store.get(f"{name}-add") != b"y":
        yield "add() is True again once the key has expired."
    second = await store.append(f"{name}-append", b"y")
    if [value for _, value in await store.read(f"{name}-append")] != [b"y"]:
        yield "A stream that has expired begins anew."
    if second <= first:
        yield "The ids of a stream go on rising after it has expired."


async def _renewal(store: Store, name: str) -> Broken:
    await store.put(f"{name}-kept", b"x", ttl=BRIEF)
    await store.put(f"{name}-kept", b"x")
    await store.put(f"{name}-longer", b"x", ttl=BRIEF)
    await store.put(f"{name}-longer", b"x", ttl=600)
    await store.append(f"{name}-events", b"1", ttl=BRIEF)
    await store.append(f"{name}-events", b"2", ttl=600)
    await store.append(f"{name}-events", b"3")
    await asyncio.sleep(1.2 * BRIEF)
    if await store.get(f"{name}-kept") is None:
        yield "put() without a ttl keeps the value for good, whatever ttl it had before."
    if await store.get(f"{name}-longer") is None:
        yield "put() with a ttl counts anew, whatever ttl the value had before."
    if [value for _, value in await store.read(f"{name}-events")][-2:] != [b"2", b"3"]:
        yield "append() with a ttl counts anew for the whole stream, and without one changes nothing."


async def _alive(store: Store, name: str) -> list[str]:
    found = {
        "put": await store.get(f"{name}-put") is not None,
        "add": await store.get(f"{name}-add") is not None,
        "append": bool(await store.read(f"{name}-append")),
    }
    return [method for method, there in found.items() if there]


async def _arguments(store: Store, name: str) -> Broken:
    for ttl in (0, -1.0, float("nan"), float("inf")):
        if not await _refused(store.put(name, b"", ttl=ttl)):
            yield f"put() raises a ValueError for the ttl {ttl}."
        if not await _refused(store.add(name, b"", ttl=ttl)):
            yield f"add() raises a ValueError for the ttl {ttl}."
        if not await _refused(store.append(name, b"", ttl=ttl)):
            yield f"append() raises a ValueError for the ttl {ttl}."
    if not await _refused(store.append(name, b"", limit=0)):
        yield "append() raises a ValueError for the limit 0."
    for after in ("", "no id", "9" * 40):
        if not await _refused(store.read(name, after=after)):
            yield f"read() raises a ValueError for an `after` such as {after!r}, for clients send it."
    if await store.get(name) is not None or await store.read(name):
        yield "A call that raises a ValueError stores nothing."


async def _refused(attempt: Awaitable[object]) -> bool:
    try:
        await attempt
    except ValueError:
        return True
    return False


async def _streams(store: Store, name: str) -> Broken:
    if await store.read(name):
        yield "read() returns an empty list for a stream that nobody appended to."
    ids = [await store.append(name, b"%d" % number, limit=100) for number in range(12)]
    await store.append(f"{name}-other", b"other")
    if not _rising(ids):
        yield "append() returns ids of which each, as text, sorts after the one before."
    events = [(made, b"%d" % number) for number, made in enumerate(ids)]
    if await store.read(name) != events:
        yield "read() returns the events of the stream with the ids that append() returned, oldest first."
    if await store.read(name, after=ids[6]) != events[7:]:
        yield "read() with `after` returns exactly the events after that one."
    if await store.read(name, after=ids[-1]):
        yield "read() after the newest event returns an empty list."
    newest = await store.append(name, b"12", limit=3)
    kept = [*events[-2:], (newest, b"12")]
    if await store.read(name) != kept:
        yield "append() keeps exactly the newest `limit` events."
    if await store.read(name, after=ids[0]) != kept:
        yield "read() goes on after an id whose event was dropped."


async def _crowded_streams(store: Store, name: str) -> Broken:
    values = [b"%d" % task for task in range(CROWD)]
    ids = await asyncio.gather(*(store.append(name, value) for value in values))
    events = await store.read(name)
    if not _rising([made for made, _ in events]) or sorted(events) != sorted(zip(ids, values, strict=True)):
        yield f"append() gives {CROWD} tasks an id each, and loses no event."


async def _messages(store: Store, name: str) -> Broken:
    sent = [b"", bytes(range(256)), *(b"%d" % number for number in range(20))]
    await store.publish(name, b"nobody listens")
    async with store.subscribe(name) as one, store.subscribe(name) as other:
        for message in sent:
            await store.publish(f"{name}-elsewhere", message)
            await store.publish(name, message)
        for messages in (one, other):
            received = await _received(messages, len(sent))
            if received[:1] == [b"nobody listens"]:
                yield "A subscriber gets no message from before it subscribed."
            elif sorted(received) != sorted(sent):
                yield "Each subscriber gets each message of its channel once, and no other."
            elif received != sent:
                yield "Messages arrive in the order in which they were published."


async def _waiting(store: Store, name: str) -> Broken:
    async with store.subscribe(name) as messages:
        waiting = asyncio.ensure_future(_received(messages, 1))
        await asyncio.sleep(0)
        await store.publish(name, b"news")
        if await waiting != [b"news"]:
            yield "A message reaches a subscriber who was waiting for it."


async def _leaving(store: Store, name: str) -> Broken:
    async with store.subscribe(name) as staying:
        async with store.subscribe(name) as leaving:
            pass
        await store.publish(name, b"news")
        if await _received(staying, 1) != [b"news"]:
            yield "A subscriber goes on when another one leaves."
        if not await _ends(leaving):
            yield "Leaving a subscription ends it: no message, and no waiting."


async def _closing(store: Store, name: str) -> Broken:
    await store.put(name, b"x")
    async with store.subscribe(name) as messages:
        waiting = asyncio.ensure_future(_ends(messages))
        await asyncio.sleep(0)
        await store.close()
        if not await waiting:
            yield "close() ends the subscriptions that are open."


async def _received(messages: AsyncIterator[bytes], count: int) -> list[bytes]:
    received: list[bytes] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            async for message in messages:
                received.append(message)
                if len(received) == count:
                    break
    return received


async def _ends(messages: AsyncIterator[bytes]) -> bool:
    try:
        async with asyncio.timeout(PATIENCE):
            await anext(messages)
    except StopAsyncIteration:
        return True
    except TimeoutError:
        return False
    return False


def _rising(ids: Sequence[str]) -> bool:
    return all(before < after for before, after in pairwise(ids))


_STORE_PROMISES: tuple[Promise, ...] = (
    _values,
    _claims,
    _bytes,
    _keys,
    _namespaces,
    _expiry,
    _renewal,
    _arguments,
    _streams,
    _crowded_streams,
    _messages,
    _waiting,
    _leaving,
    _closing,
)
