"""Checks for your own store or link: does it keep the promises that the framework relies on?

A check raises AssertionError with one sentence for each broken promise, and otherwise returns None. Below, each group
of promises is one function, and each call of ``promise`` is one promise: whether it was kept, and what it says.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from inspect import isawaitable
from itertools import count, pairwise
from secrets import token_hex
from typing import TypeAlias

from antiphon.app import Server
from antiphon.errors import CallFailed, CannotAnswer, Disconnected, InvalidParams, Refused
from antiphon.server.context import Context
from antiphon.stores.store import Store
from antiphon.transports.link import Caller, Link, OnNotification, refusal
from antiphon.types import JsonObject
from antiphon.wire.revisions import CLIENT_CAPABILITIES, CLIENT_INFO, PROGRESS_TOKEN, PROTOCOL_VERSION, REVISION

__all__ = ["check_link", "check_store", "link_server"]

PATIENCE = 2.0
"""Seconds that a check waits for what should happen at once."""
BRIEF = 0.05
"""The ttl that a check waits out, in seconds."""
CROWD = 50
"""How many tasks do the same thing at the same time."""
BIG = 1_000_000
"""Characters of a big message."""

Promise: TypeAlias = Callable[[bool, str], None]
StoreGroup: TypeAlias = Callable[[Store, str, Promise], Awaitable[None]]
LinkGroup: TypeAlias = "Callable[[LinkCalls, Promise], Awaitable[None]]"


async def check_store(make_store: Callable[[], Store | Awaitable[Store]]) -> None:
    """Check that a store keeps every promise of `antiphon.stores.Store`.

    ``make_store`` is called once for each group of promises, and its store is closed afterwards. The store need not be
    empty, since all names are random, but it must use the real clock: the check waits for an expiry.

    >>> import asyncio
    >>> from antiphon.stores import MemoryStore
    >>> asyncio.run(check_store(MemoryStore))
    """
    broken: list[str] = []
    for group in _STORE_GROUPS:
        made = make_store()
        store = await made if isawaitable(made) else made
        await _run(group.__name__, group(store, f"check-{token_hex(8)}", _noting(broken)), store, broken)
    if broken:
        raise AssertionError("\n".join(broken))


async def check_link(make_link: Callable[[Server], Link | Awaitable[Link]]) -> None:
    """Check that a link keeps every promise of `antiphon.Link`.

    ``make_link`` is called once for each group of promises, with a `link_server` to connect to. The check opens and
    closes the link that it returns. A link to another process ignores the server, and starts
    ``python -m antiphon.testing.contracts``, which serves one on its standard streams.

    >>> import asyncio
    >>> from antiphon.transports.memory import Memory
    >>> asyncio.run(check_link(Memory))
    """
    broken: list[str] = []
    for group in _LINK_GROUPS:
        made = make_link(link_server())
        link = await made if isawaitable(made) else made
        await _run(group.__name__, _opened(link, group, _noting(broken)), link, broken)
    if broken:
        raise AssertionError("\n".join(broken))


def _noting(broken: list[str]) -> Promise:
    def promise(kept: bool, sentence: str) -> None:
        if not kept:
            broken.append(sentence)

    return promise


async def _run(name: str, group: Awaitable[None], part: Store | Link, broken: list[str]) -> None:
    """Run one group of promises and close the part twice; note whatever goes wrong."""
    about = name.strip("_").replace("_", " ")
    try:
        async with asyncio.timeout(4 * PATIENCE):
            await group
            await part.close()
            await part.close()
    except TimeoutError:
        broken.append(f"The check of {about} did not finish within {4 * PATIENCE:.0f} s.")
    except Exception as error:  # noqa: BLE001 -- any exception is a finding
        broken.append(f"The check of {about} ended with {error!r}.")
    finally:
        with suppress(Exception):
            await part.close()


# --- stores -------------------------------------------------------------------------------------------------------


async def _values(store: Store, name: str, promise: Promise) -> None:
    promise(await store.get(name) is None, "get() returns None for a key that was not set.")
    await store.put(name, b"first")
    await store.put(name, b"second")
    promise(await store.get(name) == b"second", "get() returns what the latest put() set.")
    promise(not await store.add(name, b"third"), "add() returns False for a key that is taken.")
    promise(await store.get(name) == b"second", "add() leaves a key that is taken as it is.")
    promise(await store.take(name) == b"second", "take() returns the value.")
    promise(await store.get(name) is None and await store.take(name) is None, "take() deletes the value.")
    promise(await store.add(name, b"fourth"), "add() returns True for a key that take() has freed.")
    promise(await store.get(name) == b"fourth", "add() sets the value of a free key.")
    promise(not await store.add(name, b"fifth", replacing=b"other"), "add() replaces no value but the one it is given.")
    promise(await store.add(name, b"sixth", replacing=b"fourth"), "add() replaces the value that it is given.")
    promise(await store.get(name) == b"sixth", "add() sets the value in place of the one that it replaces.")
    absent = not await store.add(f"{name}-free", replacing=b"") and await store.get(f"{name}-free") is None
    promise(absent, "add() that is to replace a value leaves a free key free.")


async def _claims(store: Store, name: str, promise: Promise) -> None:
    claims = await asyncio.gather(*(store.add(name, b"%d" % task) for task in range(CROWD)))
    won = claims.count(True)
    promise(
        won == 1 and claims.count(False) == CROWD - 1,
        f"add() is True for exactly one of {CROWD} tasks; here it was for {won}.",
    )
    held = await store.get(name)
    claims = await asyncio.gather(*(store.add(name, b"%d" % task, replacing=held) for task in range(CROWD, 2 * CROWD)))
    replaced = claims.count(True)
    promise(
        replaced == 1,
        f"add() that replaces a value is True for exactly one of {CROWD} tasks; here it was for {replaced}.",
    )
    if won == replaced == 1:
        kept = await store.get(name)
        promise(
            kept == b"%d" % (CROWD + claims.index(True)), "add() keeps the value of the one task for which it is True."
        )
    await store.put(name, b"prize")
    taken = await asyncio.gather(*(store.take(name) for _ in range(CROWD)))
    got = taken.count(b"prize")
    promise(
        got == 1 and taken.count(None) == CROWD - 1,
        f"take() gives the value to exactly one of {CROWD} tasks; here {got} got it.",
    )


async def _bytes(store: Store, name: str, promise: Promise) -> None:
    for what, value in {"an empty value": b"", "every byte": bytes(range(256)), "a long value": b"x" * 100_000}.items():
        await store.put(name, value)
        kept = await store.get(name) == value and await store.take(name) == value
        promise(kept, f"put(), get() and take() carry {what} unchanged.")
        await store.append(name, value)
        promise(await _stream(store, name, last=1) == [value], f"append() and read() carry {what} unchanged.")
    claimed = await store.add(name) and await store.get(name) == b"" and not await store.add(name)
    promise(claimed, "add() without a value claims the key with an empty one.")


_SUFFIXES = ("", "a", "A", "a ", " a", "é", "e\u0301", "鍵🔑", "%", "_", "*", "'", '"', "\n", "a:b", "a/b", "a\x00b")


async def _keys(store: Store, name: str, promise: Promise) -> None:
    suffixes = [*_SUFFIXES, "k" * 2000 + "1", "k" * 2000 + "2"]
    for number, suffix in enumerate(suffixes):
        await store.put(name + suffix, b"%d" % number)
    for number, suffix in enumerate(suffixes):
        promise(
            await store.get(name + suffix) == b"%d" % number,
            f"Keys that differ in any character are different keys; {suffix[:12]!r} ({len(suffix)} long) is not.",
        )


async def _namespaces(store: Store, name: str, promise: Promise) -> None:
    async with store.subscribe(name) as messages:
        await store.put(name, b"value")
        await store.append(name, b"event")
        await store.publish(name, b"message")
        received = await _received(messages, 1)
    promise(received == [b"message"], "A channel is apart from a key and a stream of the same name.")
    promise(await store.get(name) == b"value", "A key is apart from a stream and a channel of the same name.")
    promise(await _stream(store, name) == [b"event"], "A stream is apart from a key and a channel of the same name.")


async def _expiry(store: Store, name: str, promise: Promise) -> None:
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
    promise(
        len(alive) == 3 or time.monotonic() - begun >= BRIEF,
        f"Nothing expires before its ttl; of put, add and append only {alive or 'none'} was still there.",
    )
    patience = time.monotonic() + PATIENCE
    while alive and time.monotonic() < patience:
        await asyncio.sleep(BRIEF / 5)
        alive = await _alive(store, name)
    for method in alive:
        promise(False, f"What {method}() stored with a ttl is gone when that time is over.")
    promise(bool(alive) or await store.take(f"{name}-put") is None, "take() does not return what has expired.")
    added = await store.add(f"{name}-add", b"y") and await store.get(f"{name}-add") == b"y"
    promise(added, "add() is True again once the key has expired.")
    second = await store.append(f"{name}-append", b"y")
    promise(await _stream(store, f"{name}-append") == [b"y"], "A stream that has expired begins again.")
    promise(second > first, "The ids of a stream go on rising after it has expired.")


async def _alive(store: Store, name: str) -> list[str]:
    found = {
        "put": await store.get(f"{name}-put") is not None,
        "add": await store.get(f"{name}-add") is not None,
        "append": bool(await store.read(f"{name}-append")),
    }
    return [method for method, there in found.items() if there]


async def _renewal(store: Store, name: str, promise: Promise) -> None:
    await store.put(f"{name}-kept", b"x", ttl=BRIEF)
    await store.put(f"{name}-kept", b"x")
    await store.put(f"{name}-longer", b"x", ttl=BRIEF)
    await store.put(f"{name}-longer", b"x", ttl=600)
    await store.append(f"{name}-events", b"1", ttl=BRIEF)
    await store.append(f"{name}-events", b"2", ttl=600)
    await store.append(f"{name}-events", b"3")
    await asyncio.sleep(1.2 * BRIEF)
    kept, longer = await store.get(f"{name}-kept"), await store.get(f"{name}-longer")
    promise(kept is not None, "put() without a ttl keeps the value for good, whatever ttl it had before.")
    promise(longer is not None, "put() with a ttl counts from the start, whatever ttl the value had before.")
    promise(
        await _stream(store, f"{name}-events", last=2) == [b"2", b"3"],
        "append() with a ttl counts from the start for the whole stream, and without one changes nothing.",
    )


async def _arguments(store: Store, name: str, promise: Promise) -> None:
    for ttl in (0, -1.0, float("nan"), float("inf")):
        promise(await _refused(store.put(name, b"", ttl=ttl)), f"put() raises a ValueError for the ttl {ttl}.")
        promise(await _refused(store.add(name, b"", ttl=ttl)), f"add() raises a ValueError for the ttl {ttl}.")
        promise(await _refused(store.append(name, b"", ttl=ttl)), f"append() raises a ValueError for the ttl {ttl}.")
    promise(await _refused(store.append(name, b"", limit=0)), "append() raises a ValueError for the limit 0.")
    for after in ("", "no id", "9" * 40):
        promise(
            await _refused(store.read(name, after=after)),
            f"read() raises a ValueError for an `after` such as {after!r}, for clients send it.",
        )
    nothing = await store.get(name) is None and not await store.read(name)
    promise(nothing, "A call that raises a ValueError stores nothing.")


async def _streams(store: Store, name: str, promise: Promise) -> None:
    promise(not await store.read(name), "read() returns an empty list for a stream without events.")
    ids = [await store.append(name, b"%d" % number, limit=100) for number in range(12)]
    await store.append(f"{name}-other", b"other")
    promise(_is_rising(ids), "append() returns ids of which each, as text, sorts after the one before.")
    events = [(made, b"%d" % number) for number, made in enumerate(ids)]
    promise(
        await store.read(name) == events,
        "read() returns the events of the stream with the ids that append() returned, oldest first.",
    )
    rest = await store.read(name, after=ids[6])
    promise(rest == events[7:], "read() with `after` returns exactly the events after that one.")
    promise(not await store.read(name, after=ids[-1]), "read() after the newest event returns an empty list.")
    newest = await store.append(name, b"12", limit=3)
    kept = [*events[-2:], (newest, b"12")]
    promise(await store.read(name) == kept, "append() keeps exactly the newest `limit` events.")
    promise(await store.read(name, after=ids[0]) == kept, "read() goes on after an id whose event was dropped.")


async def _crowded_streams(store: Store, name: str, promise: Promise) -> None:
    values = [b"%d" % task for task in range(CROWD)]
    ids = await asyncio.gather(*(store.append(name, value) for value in values))
    events = await store.read(name)
    whole = _is_rising([made for made, _ in events]) and sorted(events) == sorted(zip(ids, values, strict=True))
    promise(whole, f"append() gives {CROWD} tasks an id each, and loses no event.")


async def _messages(store: Store, name: str, promise: Promise) -> None:
    sent = [b"", bytes(range(256)), *(b"%d" % number for number in range(20))]
    await store.publish(name, b"too early")
    async with store.subscribe(name) as one, store.subscribe(name) as other:
        for message in sent:
            await store.publish(f"{name}-elsewhere", message)
            await store.publish(name, message)
        for messages in (one, other):
            received = await _received(messages, len(sent))
            early, all_came = received[:1] == [b"too early"], sorted(received) == sorted(sent)
            promise(not early, "A subscriber gets no message from before it subscribed.")
            promise(early or all_came, "Each subscriber gets each message of its channel once, and no other.")
            promise(not all_came or received == sent, "Messages arrive in the order in which they were published.")


async def _waiting(store: Store, name: str, promise: Promise) -> None:
    async with store.subscribe(name) as messages:
        waiting = asyncio.ensure_future(_received(messages, 1))
        await asyncio.sleep(0)
        await store.publish(name, b"news")
        promise(await waiting == [b"news"], "A message reaches a subscriber who was waiting for it.")


async def _leaving(store: Store, name: str, promise: Promise) -> None:
    async with store.subscribe(name) as staying:
        async with store.subscribe(name) as leaving:
            pass
        await store.publish(name, b"news")
        promise(await _received(staying, 1) == [b"news"], "A subscriber goes on when another one leaves.")
        promise(await _ends(leaving), "Leaving a subscription ends it: no message, and no waiting.")


async def _closing(store: Store, name: str, promise: Promise) -> None:
    await store.put(name, b"x")
    async with store.subscribe(name) as messages:
        waiting = asyncio.ensure_future(_ends(messages))
        await asyncio.sleep(0)
        await store.close()
        promise(await waiting, "close() ends the subscriptions that are open.")


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


_STORE_GROUPS: tuple[StoreGroup, ...] = (
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


# --- links --------------------------------------------------------------------------------------------------------


def link_server() -> Server:
    """Return the server that `check_link` calls: it answers on demand, and tells what was cancelled."""
    app = Server("check-link")
    gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
    cancelled: set[str] = set()

    @app.tool
    async def echo(text: str) -> str:
        return text

    @app.tool
    async def progress(steps: int, ctx: Context) -> str:
        for step in range(steps):
            await ctx.progress(step + 1, total=steps)
        return "done"

    @app.tool
    async def hold(name: str, ctx: Context) -> str:
        await ctx.progress(1)
        try:
            await gates[name].wait()
        except asyncio.CancelledError:
            cancelled.add(name)
            raise
        return name

    @app.tool
    async def release(name: str) -> str:
        gates[name].set()
        return name

    @app.tool
    async def is_cancelled(name: str) -> str:
        return "yes" if name in cancelled else "no"

    @app.tool
    async def fail() -> str:
        raise InvalidParams("Failed on demand", data=_DATA)

    return app


async def _opened(link: Link, group: LinkGroup, promise: Promise) -> None:
    before = asyncio.all_tasks()
    introduce: Callable[[Caller], None] | None = getattr(link, "introduce", None)
    if introduce is not None:
        introduce(Caller(_META, _no_answer, lambda _: None))
    await link.open()
    calls = LinkCalls(link)
    try:
        await group(calls, promise)
        await link.close()
    finally:
        await calls.end()
    if left := asyncio.all_tasks() - before:
        _, left = await asyncio.wait(left, timeout=PATIENCE)
    promise(not left, f"close() leaves no task behind; here {[task.get_coro() for task in left]}.")


class LinkCalls:
    """Requests over a link to a `link_server`, as a client sends them."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._ids = count(1)
        self._running: set[asyncio.Task[JsonObject]] = set()

    async def send(self, method: str, told: OnNotification | None = None, **params: object) -> JsonObject:
        id_ = next(self._ids)
        params["_meta"] = {**_META, PROGRESS_TOKEN: id_}
        headers = {"MCP-Protocol-Version": REVISION, "Mcp-Method": method}
        if "name" in params:
            headers["Mcp-Name"] = str(params["name"])
        message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        reply = await self.link.request(message, headers=headers, on_notification=told)
        if reply.get("id") != id_:
            raise AssertionError(f"The request {id_} got a reply to {reply.get('id')!r}")
        return reply

    async def reply(self, tool: str, told: OnNotification | None = None, **arguments: object) -> JsonObject:
        return await self.send("tools/call", told, name=tool, arguments=arguments)

    async def text(self, tool: str, told: OnNotification | None = None, **arguments: object) -> object:
        reply = await self.reply(tool, told, **arguments)
        return reply["result"]["content"][0]["text"]

    async def is_open(self) -> bool:
        return await self.text("echo", text="still here") == "still here"

    def start(self, tool: str, told: OnNotification | None, **arguments: object) -> "asyncio.Task[JsonObject]":
        task = asyncio.create_task(self.reply(tool, told, **arguments))
        self._running.add(task)
        return task

    async def held(self) -> "tuple[str, asyncio.Task[JsonObject]]":
        """Start a call that runs at the server until it is released; return its name and its task."""
        name, runs = token_hex(8), asyncio.Event()
        task = self.start("hold", lambda _: runs.set(), name=name)
        async with asyncio.timeout(PATIENCE):
            await runs.wait()
        return name, task

    async def end(self) -> None:
        """Cancel the calls that were not released."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


async def _replies(calls: LinkCalls, promise: Promise) -> None:
    for text in ("", "plain", "é e\u0301 鍵🔑", "\x00\t\r\n\x7f\u2028", "\"'\\{[", "data: x\n\n"):
        came = await calls.text("echo", text=text)
        promise(came == text, f"Requests and replies are carried unchanged; {text!r} is not.")


async def _big_messages(calls: LinkCalls, promise: Promise) -> None:
    for text in ("x" * BIG, "鍵" * (BIG // 4)):
        came = await calls.text("echo", text=text)
        promise(came == text, f"A message of {len(text.encode())} bytes is carried unchanged.")


async def _crowds(calls: LinkCalls, promise: Promise) -> None:
    texts = [f"text {number}" for number in range(CROWD)]
    came = await asyncio.gather(*(calls.text("echo", text=text) for text in texts))
    promise(came == texts, f"Each of {CROWD} requests at the same time gets its own reply.")


async def _order(calls: LinkCalls, promise: Promise) -> None:
    (first, one), (second, other) = await calls.held(), await calls.held()
    await calls.text("release", name=second)
    overtook = await _done(other) and not one.done()
    promise(overtook, "A reply is returned when it comes, whatever was asked before.")
    await calls.text("release", name=first)
    promise(await _done(one), "A reply is returned when it comes, whatever was answered before.")


async def _notifications(calls: LinkCalls, promise: Promise) -> None:
    async def told(number: int) -> list[object]:
        seen: list[object] = []

        async def note(message: JsonObject) -> None:
            await asyncio.sleep(0)
            seen.append(message["params"]["progress"])

        done = await calls.text("progress", note, steps=number)
        return seen if done == "done" else [done]

    alone = await told(5)
    promise(
        alone == [1, 2, 3, 4, 5],
        f"The notifications of a request go to its callback in order, before its reply; here {alone}.",
    )
    together = await asyncio.gather(*map(told, range(1, 6)))
    promise(
        together == [list(range(1, number + 1)) for number in range(1, 6)],
        "A notification goes to the callback of its own request, and to no other.",
    )
    unheard = await calls.text("progress", None, steps=3)
    promise(unheard == "done", "A request needs no callback for its notifications.")


async def _callbacks_that_raise(calls: LinkCalls, promise: Promise) -> None:
    class Raised(Exception):
        pass

    def told(_: JsonObject) -> None:
        raise Raised

    try:
        await calls.text("progress", told, steps=3)
    except Raised:
        pass
    else:
        promise(False, "request() raises what its callback raises.")
    promise(await calls.is_open(), "A link goes on after a callback has raised.")


async def _errors(calls: LinkCalls, promise: Promise) -> None:
    unknown = await _fault(calls.send("check/unknown"))
    promise(
        isinstance(unknown, Refused) and unknown.code == -32601,
        f"An error of the server is returned, or raised as Refused with its code; here {unknown!r}.",
    )
    failed = await _fault(calls.reply("fail"))
    promise(
        isinstance(failed, Refused) and (failed.code, failed.data) == (InvalidParams.code, _DATA),
        f"An error of the server keeps its data; here {failed!r}.",
    )
    promise(await calls.is_open(), "A link goes on after an error.")


async def _cancelling(calls: LinkCalls, promise: Promise) -> None:
    (name, one), (other_name, other) = await calls.held(), await calls.held()
    one.cancel()
    promise(await _done(one) and one.cancelled(), "A request that is cancelled raises CancelledError.")
    for _ in range(round(PATIENCE / BRIEF)):
        if await calls.text("is_cancelled", name=name) == "yes":
            break
        await asyncio.sleep(BRIEF)
    else:
        promise(False, "Cancelling a request cancels it at the server.")
    await calls.text("release", name=other_name)
    unharmed = await _done(other) and not other.cancelled()
    unharmed = unharmed and await calls.text("is_cancelled", name=other_name) == "no"
    promise(unharmed, "Cancelling a request leaves the others alone.")


async def _closing_under_way(calls: LinkCalls, promise: Promise) -> None:
    tasks = [(await calls.held())[1] for _ in range(3)]
    closing = asyncio.create_task(calls.link.close())
    ended = await _is_disconnected(tasks[0]) and await _is_disconnected(tasks[1]) and await _is_disconnected(tasks[2])
    promise(ended, "close() ends a request that is under way with Disconnected.")
    await closing


async def _closing_at_once(calls: LinkCalls, promise: Promise) -> None:
    task = calls.start("hold", None, name="never released")
    for _ in range(3):
        await asyncio.sleep(0)
    await calls.link.close()
    promise(await _is_disconnected(task), "close() ends a request that has just been made with Disconnected.")


async def _closed(calls: LinkCalls, promise: Promise) -> None:
    await calls.text("echo", text="x")
    await calls.link.close()
    fault = await _fault(calls.reply("echo", text="x"))
    promise(isinstance(fault, Disconnected), f"A request after close() raises Disconnected; here {fault!r}.")


async def _opening_again(calls: LinkCalls, promise: Promise) -> None:
    for _ in range(2):
        await calls.text("echo", text="x")
        await calls.link.close()
        await calls.link.open()
    promise(await calls.is_open(), "open() after close() opens the link again.")


async def _done(task: "asyncio.Task[JsonObject]") -> bool:
    await asyncio.wait({task}, timeout=PATIENCE)
    return task.done()


async def _is_disconnected(task: "asyncio.Task[JsonObject]") -> bool:
    return await _done(task) and not task.cancelled() and isinstance(task.exception(), Disconnected)


async def _fault(attempt: Awaitable[JsonObject]) -> CallFailed | None:
    """Return what a request fails with, whether that is raised or is the reply."""
    try:
        reply = await attempt
    except CallFailed as fault:
        return fault
    return refusal(reply["error"]) if "error" in reply else None


async def _no_answer(key: str, request: JsonObject) -> JsonObject:
    raise CannotAnswer(f"{request['method']} is not answered here", key=key)


_DATA = {"why": ["on demand", 1]}
_META: JsonObject = {
    PROTOCOL_VERSION: REVISION,
    CLIENT_INFO: {"name": "check-link", "version": "1"},
    CLIENT_CAPABILITIES: {},
}
_LINK_GROUPS: tuple[LinkGroup, ...] = (
    _replies,
    _big_messages,
    _crowds,
    _order,
    _notifications,
    _callbacks_that_raise,
    _errors,
    _cancelling,
    _closing_under_way,
    _closing_at_once,
    _closed,
    _opening_again,
)

if __name__ == "__main__":
    link_server().run()
