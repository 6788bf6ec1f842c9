"""Whether a part of your own keeps the promises that the framework relies on.

A check raises an AssertionError with one sentence for each promise that is broken, and otherwise returns in silence.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from inspect import isawaitable
from itertools import count, pairwise
from secrets import token_hex
from typing import Any, TypeAlias

from antiphon.app import Server
from antiphon.errors import CallFailed, CannotAnswer, Disconnected, InvalidParams
from antiphon.server.context import Context
from antiphon.stores.store import Store
from antiphon.transports.link import Caller, Link, OnNotification, refusal
from antiphon.types import JsonObject
from antiphon.wire.revisions import CLIENT_CAPABILITIES, CLIENT_INFO, PROGRESS_TOKEN, PROTOCOL_VERSION, REVISION

__all__ = ["check_link", "check_store", "link_server"]

PATIENCE = 2.0
"""How many seconds a check waits for what should happen at once."""
BRIEF = 0.05
"""The ttl that a check waits out, in seconds."""
CROWD = 50
"""How many tasks do the same thing at the same time."""
BIG = 1_000_000
"""Characters of a big message."""

Broken: TypeAlias = AsyncGenerator[str, None]
Promise: TypeAlias = Callable[[Store, str], Broken]
LinkPromise: TypeAlias = "Callable[[_Calls], Broken]"


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
        broken += await _broken(promise.__name__, promise(store, f"check-{token_hex(8)}"), store)
    if broken:
        raise AssertionError("\n".join(broken))


async def _broken(name: str, steps: Broken, part: Store | Link) -> list[str]:
    broken: list[str] = []
    about = name.strip("_").replace("_", " ")
    try:
        async with asyncio.timeout(4 * PATIENCE):
            async for sentence in steps:
                broken.append(sentence)  # noqa: PERF401 -- what was found stays found when the next step fails
            await part.close()
            await part.close()
    except TimeoutError:
        broken.append(f"The check of {about} did not finish within {4 * PATIENCE:.0f} s.")
    except Exception as error:  # noqa: BLE001 -- whatever a part raises is a finding
        broken.append(f"The check of {about} ended with {error!r}.")
    finally:
        with suppress(Exception):
            await part.close()
    return broken


# --- stores -------------------------------------------------------------------------------------------------------


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


# --- links --------------------------------------------------------------------------------------------------------


async def check_link(make_link: Callable[[Server], Link | Awaitable[Link]]) -> None:
    """Check that a link keeps every promise of `antiphon.Link`.

    ``make_link`` is called once for each group of promises, with a `link_server` to connect to. The link that it
    returns is opened and closed here. A link to another process ignores the server that it is given, and starts
    ``python -m antiphon.testing.contracts``, which serves one on its standard streams.

    >>> import asyncio
    >>> from antiphon.transports.memory import Memory
    >>> asyncio.run(check_link(Memory))
    """
    broken: list[str] = []
    for promise in _LINK_PROMISES:
        made = make_link(link_server())
        link = await made if isawaitable(made) else made
        broken += await _broken(promise.__name__, _opened(link, promise), link)
    if broken:
        raise AssertionError("\n".join(broken))


def link_server() -> Server:
    """The server that `check_link` calls: it answers when it is told to, and tells what was cancelled."""
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


async def _opened(link: Link, promise: LinkPromise) -> Broken:
    before = asyncio.all_tasks()
    introduce: Callable[[Caller], None] | None = getattr(link, "introduce", None)
    if introduce is not None:
        introduce(Caller(_META, _no_answer, lambda _: None))
    await link.open()
    calls = _Calls(link)
    try:
        async for sentence in promise(calls):
            yield sentence
        await link.close()
    finally:
        await calls.end()
    left = asyncio.all_tasks() - before
    if left and (await asyncio.wait(left, timeout=PATIENCE))[1]:
        yield f"close() leaves no task behind; here {[task.get_coro() for task in left if not task.done()]}."


class _Calls:
    """Requests over a link to a `link_server`, as a client sends them."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._ids = count(1)
        self._running: set[asyncio.Task[JsonObject]] = set()

    async def send(self, method: str, told: OnNotification | None = None, **params: object) -> JsonObject:
        id_ = next(self._ids)
        message = {
            "jsonrpc": "2.0",
            "id": id_,
            "method": method,
            "params": {**params, "_meta": {**_META, PROGRESS_TOKEN: id_}},
        }
        headers = {"MCP-Protocol-Version": REVISION, "Mcp-Method": method}
        if "name" in params:
            headers["Mcp-Name"] = str(params["name"])
        reply = await self.link.request(message, headers=headers, on_notification=told)
        if reply.get("id") != id_:
            raise AssertionError(f"The request {id_} got a reply to {reply.get('id')!r}")
        return reply

    async def reply(self, tool: str, told: OnNotification | None = None, **arguments: object) -> JsonObject:
        return await self.send("tools/call", told, name=tool, arguments=arguments)

    async def text(self, tool: str, told: OnNotification | None = None, **arguments: object) -> object:
        reply = await self.reply(tool, told, **arguments)
        return reply["result"]["content"][0]["text"]

    def start(self, tool: str, told: OnNotification | None, **arguments: object) -> "asyncio.Task[JsonObject]":
        task = asyncio.create_task(self.reply(tool, told, **arguments))
        self._running.add(task)
        return task

    async def held(self) -> "tuple[str, asyncio.Task[JsonObject]]":
        """A call that runs at the server until it is released."""
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


async def _replies(calls: _Calls) -> Broken:
    for text in ("", "plain", "é e\u0301 鍵🔑", "\x00\t\r\n\x7f\u2028", "\"'\\{[", "data: x\n\n"):
        if await calls.text("echo", text=text) != text:
            yield f"Requests and replies are carried unchanged; {text!r} is not."


async def _big_messages(calls: _Calls) -> Broken:
    for text in ("x" * BIG, "鍵" * (BIG // 4)):
        if await calls.text("echo", text=text) != text:
            yield f"A message of {len(text.encode())} bytes is carried unchanged."


async def _crowds(calls: _Calls) -> Broken:
    texts = [f"text {number}" for number in range(CROWD)]
    if await asyncio.gather(*(calls.text("echo", text=text) for text in texts)) != texts:
        yield f"Each of {CROWD} requests at the same time gets its own reply."


async def _order(calls: _Calls) -> Broken:
    (first, one), (second, other) = await calls.held(), await calls.held()
    await calls.text("release", name=second)
    if not await _done(other) or one.done():
        yield "A reply is returned when it comes, whatever was asked before."
    await calls.text("release", name=first)
    if not await _done(one):
        yield "A reply is returned when it comes, whatever was answered before."


async def _notifications(calls: _Calls) -> Broken:
    async def steps(number: int) -> None:
        seen: list[object] = []

        async def told(message: JsonObject) -> None:
            await asyncio.sleep(0)
            seen.append(message["params"]["progress"])

        if await calls.text("progress", told, steps=number) != "done" or seen != list(range(1, number + 1)):
            different.append(seen)

    different: list[list[object]] = []
    await steps(5)
    if different:
        yield f"The notifications of a request go to its callback in order, before its reply; here {different[0]}."
    different.clear()
    await asyncio.gather(*(steps(number) for number in range(1, 6)))
    if different:
        yield "A notification goes to the callback of its own request, and to no other."
    if await calls.text("progress", None, steps=3) != "done":
        yield "A request needs no callback for its notifications."


async def _callbacks_that_raise(calls: _Calls) -> Broken:
    def told(_: JsonObject) -> None:
        raise _Raised

    try:
        await calls.text("progress", told, steps=3)
    except _Raised:
        pass
    else:
        yield "request() raises what its callback raises."
    if await calls.text("echo", text="still here") != "still here":
        yield "A link goes on after a callback has raised."


async def _errors(calls: _Calls) -> Broken:
    unknown = await _fault(calls.send("check/unknown"))
    if getattr(unknown, "code", None) != -32601:
        yield f"An error of the server is returned, or raised as Refused with its code; here {unknown!r}."
    failed: Any = await _fault(calls.reply("fail"))
    if (getattr(failed, "code", None), getattr(failed, "data", None)) != (InvalidParams.code, _DATA):
        yield f"An error of the server keeps its data; here {failed!r}."
    if await calls.text("echo", text="still here") != "still here":
        yield "A link goes on after an error."


async def _cancelling(calls: _Calls) -> Broken:
    (name, one), (other_name, other) = await calls.held(), await calls.held()
    one.cancel()
    if not await _done(one) or not one.cancelled():
        yield "A request that is cancelled raises CancelledError."
    for _ in range(round(PATIENCE / BRIEF)):
        if await calls.text("is_cancelled", name=name) == "yes":
            break
        await asyncio.sleep(BRIEF)
    else:
        yield "Cancelling a request cancels it at the server."
    await calls.text("release", name=other_name)
    if not await _done(other) or other.cancelled() or await calls.text("is_cancelled", name=other_name) != "no":
        yield "Cancelling a request leaves the others alone."


async def _closing_under_way(calls: _Calls) -> Broken:
    tasks = [(await calls.held())[1] for _ in range(3)]
    closing = asyncio.create_task(calls.link.close())
    for task in tasks:
        if not await _done(task) or not _is_disconnected(task):
            yield "close() ends a request that is under way with Disconnected."
            break
    await closing


async def _closing_at_once(calls: _Calls) -> Broken:
    task = calls.start("hold", None, name="never released")
    for _ in range(3):
        await asyncio.sleep(0)
    await calls.link.close()
    if not await _done(task) or not _is_disconnected(task):
        yield "close() ends a request that has just been made with Disconnected."


async def _closed(calls: _Calls) -> Broken:
    await calls.text("echo", text="x")
    await calls.link.close()
    fault = await _fault(calls.reply("echo", text="x"))
    if not isinstance(fault, Disconnected):
        yield f"A request after close() raises Disconnected; here {fault!r}."


async def _opening_again(calls: _Calls) -> Broken:
    for _ in range(2):
        await calls.text("echo", text="x")
        await calls.link.close()
        await calls.link.open()
    if await calls.text("echo", text="again") != "again":
        yield "open() after close() opens the link again."


async def _done(task: "asyncio.Task[JsonObject]") -> bool:
    await asyncio.wait({task}, timeout=PATIENCE)
    return task.done()


def _is_disconnected(task: "asyncio.Task[JsonObject]") -> bool:
    return not task.cancelled() and isinstance(task.exception(), Disconnected)


async def _fault(attempt: Awaitable[JsonObject]) -> CallFailed | None:
    """What a request fails with, whether that is raised or is the reply."""
    try:
        reply = await attempt
    except CallFailed as fault:
        return fault
    return refusal(reply["error"]) if "error" in reply else None


async def _no_answer(key: str, request: JsonObject) -> JsonObject:
    raise CannotAnswer(f"{request['method']} is not answered here", key=key)


class _Raised(Exception):
    """What a callback raises."""


_DATA = {"why": ["on demand", 1]}
_META: JsonObject = {
    PROTOCOL_VERSION: REVISION,
    CLIENT_INFO: {"name": "check-link", "version": "1"},
    CLIENT_CAPABILITIES: {},
}
_LINK_PROMISES: tuple[LinkPromise, ...] = (
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
