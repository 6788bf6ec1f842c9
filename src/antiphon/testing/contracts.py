"""Checks for your own store or link: does it keep the promises that the framework relies on?

A check raises AssertionError with one sentence for each broken promise, and otherwise returns None. Each group of
promises is one function, and each ``yield`` is one promise: whether it was kept, and what it says. Those of a
store follow here, those of a link are in `antiphon.testing.link_contract`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from inspect import isawaitable
from itertools import pairwise
from secrets import token_hex

from antiphon.auth import Keep
from antiphon.stores.store import Store
from antiphon.testing.link_contract import BRIEF, CROWD, PATIENCE, Promises, check_groups, check_link, link_server

__all__ = ["check_keep", "check_link", "check_store", "link_server"]


async def check_store(make_store: Callable[[], Store | Awaitable[Store]]) -> None:
    """Check that a store keeps every promise of `antiphon.stores.Store`.

    ``make_store`` is called once for each group of promises, and its store is closed afterwards. The store need not be
    empty, since all names are random, but it must use the real clock: the check waits for an expiry.

    >>> import asyncio
    >>> from antiphon.stores import MemoryStore
    >>> asyncio.run(check_store(MemoryStore))
    """
    await check_groups(_STORE_GROUPS, make_store, lambda store, group: group(store, f"check-{token_hex(8)}"), PATIENCE)


async def check_keep(make_keep: Callable[[], Keep | Awaitable[Keep]]) -> None:
    """Check that a keep of tokens keeps every promise of `antiphon.auth.Keep`. It need not be empty.

    >>> import asyncio
    >>> from antiphon.auth import Memory
    >>> asyncio.run(check_keep(Memory))
    """
    made = make_keep()
    keep = await made if isawaitable(made) else made
    if broken := [sentence async for kept, sentence in _kept(keep) if not kept]:
        raise AssertionError("\n".join(broken))


async def _kept(keep: Keep) -> Promises:
    one, other = (f"https://check.example/{token_hex(8)} ü" for _ in range(2))
    yield await keep.get(one) is None, "What was never put is None"
    await keep.put(one, "first")
    await keep.put(one, big := "ü\n" * 20_000)
    yield await keep.get(one) == big, "The last value that was put is got"
    yield await keep.get(other) is None, "A key has its own value"
    await keep.drop(one)
    await keep.drop(one)
    yield await keep.get(one) is None, "What was dropped is gone, and may be dropped again"
    inside, most = 0, 0

    async def alone(key: str) -> None:
        nonlocal inside, most
        async with keep.alone(key):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    async with asyncio.timeout(PATIENCE * 5):
        await asyncio.gather(*(alone(one) for _ in range(10)))
        yield most == 1, "One task at a time is alone with a key"
        async with keep.alone(one):
            await alone(other)
        with suppress(ZeroDivisionError):
            async with keep.alone(one):
                raise ZeroDivisionError
        await alone(one)


# --- stores -------------------------------------------------------------------------------------------------------


async def _values(store: Store, name: str) -> Promises:
    yield await store.get(name) is None, "get() returns None for a key that was not set."
    await store.put(name, b"first")
    await store.put(name, b"second")
    yield await store.get(name) == b"second", "get() returns what the latest put() set."
    yield not await store.add(name, b"third"), "add() returns False for a key that is taken."
    yield await store.get(name) == b"second", "add() leaves a key that is taken as it is."
    yield await store.take(name) == b"second", "take() returns the value."
    yield await store.get(name) is None and await store.take(name) is None, "take() deletes the value."
    yield await store.add(name, b"fourth"), "add() returns True for a key that take() has freed."
    yield await store.get(name) == b"fourth", "add() sets the value of a free key."
    yield not await store.add(name, b"fifth", replacing=b"other"), "add() replaces no value but the one it is given."
    yield await store.add(name, b"sixth", replacing=b"fourth"), "add() replaces the value that it is given."
    yield await store.get(name) == b"sixth", "add() sets the value in place of the one that it replaces."
    absent = not await store.add(f"{name}-free", replacing=b"") and await store.get(f"{name}-free") is None
    yield absent, "add() that is to replace a value leaves a free key free."


async def _claims(store: Store, name: str) -> Promises:
    claims = await asyncio.gather(*(store.add(name, b"%d" % task) for task in range(CROWD)))
    won = claims.count(True)
    yield (
        won == 1 and claims.count(False) == CROWD - 1,
        f"add() is True for exactly one of {CROWD} tasks; here it was for {won}.",
    )
    held = await store.get(name)
    claims = await asyncio.gather(*(store.add(name, b"%d" % task, replacing=held) for task in range(CROWD, 2 * CROWD)))
    replaced = claims.count(True)
    yield (
        replaced == 1,
        f"add() that replaces a value is True for exactly one of {CROWD} tasks; here it was for {replaced}.",
    )
    if won == replaced == 1:
        kept = await store.get(name)
        yield (
            kept == b"%d" % (CROWD + claims.index(True)),
            "add() keeps the value of the one task for which it is True.",
        )
    await store.put(name, b"prize")
    taken = await asyncio.gather(*(store.take(name) for _ in range(CROWD)))
    got = taken.count(b"prize")
    yield (
        got == 1 and taken.count(None) == CROWD - 1,
        f"take() gives the value to exactly one of {CROWD} tasks; here {got} got it.",
    )


async def _bytes(store: Store, name: str) -> Promises:
    for what, value in {"an empty value": b"", "every byte": bytes(range(256)), "a long value": b"x" * 100_000}.items():
        await store.put(name, value)
        kept = await store.get(name) == value and await store.take(name) == value
        yield kept, f"put(), get() and take() carry {what} unchanged."
        await store.append(name, value)
        yield await _stream(store, name, last=1) == [value], f"append() and read() carry {what} unchanged."
    claimed = await store.add(name) and await store.get(name) == b"" and not await store.add(name)
    yield claimed, "add() without a value claims the key with an empty one."


_SUFFIXES = ("", "a", "A", "a ", " a", "é", "e\u0301", "鍵🔑", "%", "_", "*", "'", '"', "\n", "a:b", "a/b", "a\x00b")


async def _keys(store: Store, name: str) -> Promises:
    suffixes = [*_SUFFIXES, "k" * 2000 + "1", "k" * 2000 + "2"]
    for number, suffix in enumerate(suffixes):
        await store.put(name + suffix, b"%d" % number)
    for number, suffix in enumerate(suffixes):
        yield (
            await store.get(name + suffix) == b"%d" % number,
            f"Keys that differ in any character are different keys; {suffix[:12]!r} ({len(suffix)} long) is not.",
        )


async def _namespaces(store: Store, name: str) -> Promises:
    async with store.subscribe(name) as messages:
        await store.put(name, b"value")
        await store.append(name, b"event")
        await store.publish(name, b"message")
        received = await _received(messages, 1)
    yield received == [b"message"], "A channel is apart from a key and a stream of the same name."
    yield await store.get(name) == b"value", "A key is apart from a stream and a channel of the same name."
    yield await _stream(store, name) == [b"event"], "A stream is apart from a key and a channel of the same name."


async def _expiry(store: Store, name: str) -> Promises:
    begun = time.monotonic()
    await store.put(f"{name}-put", b"x", ttl=BRIEF)
    await store.add(f"{name}-add", b"x")
    await store.add(f"{name}-add", b"x", ttl=BRIEF, replacing=b"x")
    first = await store.append(f"{name}-append", b"x", ttl=BRIEF)
    await store.append(f"{name}-append", b"x")
    if time.monotonic() - begun >= BRIEF:
        # Too slow to tell: the stream may have expired in between, and begun again without a ttl.
        await store.append(f"{name}-append", b"x", ttl=BRIEF)
    alive = await _alive(store, name)
    yield (
        len(alive) == 3 or time.monotonic() - begun >= BRIEF,
        f"Nothing expires before its ttl; of put, add and append only {alive or 'none'} was still there.",
    )
    patience = time.monotonic() + PATIENCE
    while alive and time.monotonic() < patience:
        await asyncio.sleep(BRIEF / 5)
        alive = await _alive(store, name)
    for method in alive:
        yield False, f"What {method}() stored with a ttl is gone when that time is over."
    yield bool(alive) or await store.take(f"{name}-put") is None, "take() does not return what has expired."
    added = await store.add(f"{name}-add", b"y") and await store.get(f"{name}-add") == b"y"
    yield added, "add() is True again once the key has expired."
    second = await store.append(f"{name}-append", b"y")
    yield await _stream(store, f"{name}-append") == [b"y"], "A stream that has expired begins again."
    yield second > first, "The ids of a stream go on rising after it has expired."


async def _alive(store: Store, name: str) -> list[str]:
    found = {
        "put": await store.get(f"{name}-put") is not None,
        "add": await store.get(f"{name}-add") is not None,
        "append": bool(await store.read(f"{name}-append")),
    }
    return [method for method, there in found.items() if there]


async def _renewal(store: Store, name: str) -> Promises:
    await store.put(f"{name}-kept", b"x", ttl=BRIEF)
    await store.put(f"{name}-kept", b"x")
    await store.put(f"{name}-longer", b"x", ttl=BRIEF)
    await store.put(f"{name}-longer", b"x", ttl=600)
    await store.append(f"{name}-events", b"1", ttl=BRIEF)
    await store.append(f"{name}-events", b"2", ttl=600)
    await store.append(f"{name}-events", b"3")
    await asyncio.sleep(1.2 * BRIEF)
    kept, longer = await store.get(f"{name}-kept"), await store.get(f"{name}-longer")
    yield kept is not None, "put() without a ttl keeps the value for good, whatever ttl it had before."
    yield longer is not None, "put() with a ttl counts from the start, whatever ttl the value had before."
    yield (
        await _stream(store, f"{name}-events", last=2) == [b"2", b"3"],
        "append() with a ttl counts from the start for the whole stream, and without one changes nothing.",
    )


async def _arguments(store: Store, name: str) -> Promises:
    for ttl in (0, -1.0, float("nan"), float("inf")):
        yield await _refused(store.put(name, b"", ttl=ttl)), f"put() raises a ValueError for the ttl {ttl}."
        yield await _refused(store.add(name, b"", ttl=ttl)), f"add() raises a ValueError for the ttl {ttl}."
        yield await _refused(store.append(name, b"", ttl=ttl)), f"append() raises a ValueError for the ttl {ttl}."
    yield await _refused(store.append(name, b"", limit=0)), "append() raises a ValueError for the limit 0."
    for after in ("", "no id", "9" * 40):
        yield (
            await _refused(store.read(name, after=after)),
            f"read() raises a ValueError for an `after` such as {after!r}, for clients send it.",
        )
    nothing = await store.get(name) is None and not await store.read(name)
    yield nothing, "A call that raises a ValueError stores nothing."


async def _streams(store: Store, name: str) -> Promises:
    yield not await store.read(name), "read() returns an empty list for a stream without events."
    ids = [await store.append(name, b"%d" % number, limit=100) for number in range(12)]
    await store.append(f"{name}-other", b"other")
    yield _is_rising(ids), "append() returns ids of which each, as text, sorts after the one before."
    events = [(made, b"%d" % number) for number, made in enumerate(ids)]
    yield (
        await store.read(name) == events,
        "read() returns the events of the stream with the ids that append() returned, oldest first.",
    )
    rest = await store.read(name, after=ids[6])
    yield rest == events[7:], "read() with `after` returns exactly the events after that one."
    yield not await store.read(name, after=ids[-1]), "read() after the newest event returns an empty list."
    newest = await store.append(name, b"12", limit=3)
    kept = [*events[-2:], (newest, b"12")]
    yield await store.read(name) == kept, "append() keeps exactly the newest `limit` events."
    yield await store.read(name, after=ids[0]) == kept, "read() goes on after an id whose event was dropped."


async def _crowded_streams(store: Store, name: str) -> Promises:
    values = [b"%d" % task for task in range(CROWD)]
    ids = await asyncio.gather(*(store.append(name, value) for value in values))
    events = await store.read(name)
    whole = _is_rising([made for made, _ in events]) and sorted(events) == sorted(zip(ids, values, strict=True))
    yield whole, f"append() gives {CROWD} tasks an id each, and loses no event."


async def _messages(store: Store, name: str) -> Promises:
    sent = [b"", bytes(range(256)), *(b"%d" % number for number in range(20))]
    await store.publish(name, b"too early")
    async with store.subscribe(name) as one, store.subscribe(name) as other:
        for message in sent:
            await store.publish(f"{name}-elsewhere", message)
            await store.publish(name, message)
        for messages in (one, other):
            received = await _received(messages, len(sent))
            early, all_came = received[:1] == [b"too early"], sorted(received) == sorted(sent)
            yield not early, "A subscriber gets no message from before it subscribed."
            yield early or all_came, "Each subscriber gets each message of its channel once, and no other."
            yield not all_came or received == sent, "Messages arrive in the order in which they were published."


async def _waiting(store: Store, name: str) -> Promises:
    async with store.subscribe(name) as messages:
        waiting = asyncio.ensure_future(_received(messages, 1))
        await asyncio.sleep(0)
        await store.publish(name, b"news")
        yield await waiting == [b"news"], "A message reaches a subscriber who was waiting for it."


async def _leaving(store: Store, name: str) -> Promises:
    async with store.subscribe(name) as staying:
        async with store.subscribe(name) as leaving:
            pass
        await store.publish(name, b"news")
        yield await _received(staying, 1) == [b"news"], "A subscriber goes on when another one leaves."
        yield await _ends(leaving), "Leaving a subscription ends it: no message, and no waiting."


async def _closing(store: Store, name: str) -> Promises:
    await store.put(name, b"x")
    async with store.subscribe(name) as messages:
        waiting = asyncio.ensure_future(_ends(messages))
        await asyncio.sleep(0)
        await store.close()
        yield await waiting, "close() ends the subscriptions that are open."


async def _stream(store: Store, name: str, *, last: int = 0) -> list[bytes]:
    return [value for _, value in await store.read(name)][-last:]


async def _refused(attempt: Awaitable[object]) -> bool:
    try:
        await attempt
    except ValueError:
        return True
    return False


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


def _is_rising(ids: Sequence[str]) -> bool:
    return all(before < after for before, after in pairwise(ids))


_STORE_GROUPS = (
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


if __name__ == "__main__":
    link_server().run()
