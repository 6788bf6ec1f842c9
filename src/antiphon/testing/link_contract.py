"""The promises of a Link, the server that the check of them calls, and how a group of promises is run."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, suppress
from inspect import isawaitable
from itertools import count
from secrets import token_hex
from typing import TypeAlias, TypeVar

from antiphon.app import Server
from antiphon.errors import CallFailed, CannotAnswer, Disconnected, InvalidParams, Refused
from antiphon.server.context import Context
from antiphon.stores.store import Store
from antiphon.transports.link import Caller, Link, OnNotification, refusal
from antiphon.types import JsonObject
from antiphon.wire.revisions import CLIENT_CAPABILITIES, CLIENT_INFO, PROGRESS_TOKEN, PROTOCOL_VERSION, REVISION

PATIENCE = 2.0
"""Seconds that a check waits for what should happen at once."""
BRIEF = 0.05
"""Seconds between two looks at what takes a moment."""
CROWD = 50
"""How many tasks do the same thing at the same time."""
BIG = 1_000_000
"""Characters of a big message."""

Promises: TypeAlias = AsyncGenerator[tuple[bool, str]]
"""Promises of one group: whether each was kept, and what it says."""
P = TypeVar("P", Store, Link)


async def check_link(make_link: Callable[[Server], Link | Awaitable[Link]]) -> None:
    """Check that a link keeps every promise of `antiphon.Link`.

    ``make_link`` is called once for each group of promises, with a `link_server` to connect to. The check opens and
    closes the link that it returns. A link to another process ignores the server, and starts
    ``python -m antiphon.testing.contracts``, which serves one on its standard streams.

    >>> import asyncio
    >>> from antiphon.transports.memory import MemoryLink
    >>> asyncio.run(check_link(MemoryLink))
    """
    await check_groups(_GROUPS, lambda: make_link(link_server()), _opened, PATIENCE)


async def check_groups(
    groups: Iterable[Callable[..., Promises]],
    make: Callable[[], P | Awaitable[P]],
    run: Callable[[P, Callable[..., Promises]], Promises],
    patience: float,
) -> None:
    """Run each group of promises with a part of its own, which is closed twice; AssertionError says what is broken."""
    broken: list[str] = []
    for group in groups:
        made = make()
        part = await made if isawaitable(made) else made
        about = group.__name__.strip("_").replace("_", " ")
        try:
            async with asyncio.timeout(4 * patience):
                async with aclosing(run(part, group)) as promises:
                    async for kept, sentence in promises:
                        if not kept:
                            broken.append(sentence)
                await part.close()
                await part.close()
        except TimeoutError:
            broken.append(f"The check of {about} did not finish within {4 * patience:.0f} s.")
        except Exception as error:  # noqa: BLE001 -- any exception is a finding
            broken.append(f"The check of {about} ended with {error!r}.")
        finally:
            with suppress(Exception):
                await part.close()
    if broken:
        raise AssertionError("\n".join(broken))


# --- the server ---------------------------------------------------------------------------------------------------


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


# --- groups of promises -------------------------------------------------------------------------------------------


async def _opened(link: Link, group: Callable[..., Promises]) -> Promises:
    before = asyncio.all_tasks()
    introduce: Callable[[Caller], None] | None = getattr(link, "introduce", None)
    if introduce is not None:
        introduce(Caller(_META, _no_answer, lambda _: None))
    await link.open()
    calls = LinkCalls(link)
    try:
        async with aclosing(group(calls)) as promises:
            async for promise in promises:
                yield promise
        await link.close()
    finally:
        await calls.end()
    if left := asyncio.all_tasks() - before:
        _, left = await asyncio.wait(left, timeout=PATIENCE)
    yield not left, f"close() leaves no task behind; here {[task.get_coro() for task in left]}."


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


async def _replies(calls: LinkCalls) -> Promises:
    for text in ("", "plain", "é e\u0301 鍵🔑", "\x00\t\r\n\x7f\u2028", "\"'\\{[", "data: x\n\n"):
        came = await calls.text("echo", text=text)
        yield came == text, f"Requests and replies are carried unchanged; {text!r} is not."


async def _big_messages(calls: LinkCalls) -> Promises:
    for text in ("x" * BIG, "鍵" * (BIG // 4)):
        came = await calls.text("echo", text=text)
        yield came == text, f"A message of {len(text.encode())} bytes is carried unchanged."


async def _crowds(calls: LinkCalls) -> Promises:
    texts = [f"text {number}" for number in range(CROWD)]
    came = await asyncio.gather(*(calls.text("echo", text=text) for text in texts))
    yield came == texts, f"Each of {CROWD} requests at the same time gets its own reply."


async def _order(calls: LinkCalls) -> Promises:
    (first, one), (second, other) = await calls.held(), await calls.held()
    await calls.text("release", name=second)
    overtook = await _done(other) and not one.done()
    yield overtook, "A reply is returned when it comes, whatever was asked before."
    await calls.text("release", name=first)
    yield await _done(one), "A reply is returned when it comes, whatever was answered before."


async def _notifications(calls: LinkCalls) -> Promises:
    async def told(number: int) -> list[object]:
        seen: list[object] = []

        async def note(message: JsonObject) -> None:
            await asyncio.sleep(0)
            seen.append(message["params"]["progress"])

        done = await calls.text("progress", note, steps=number)
        return seen if done == "done" else [done]

    alone = await told(5)
    yield (
        alone == [1, 2, 3, 4, 5],
        f"The notifications of a request go to its callback in order, before its reply; here {alone}.",
    )
    together = await asyncio.gather(*map(told, range(1, 6)))
    yield (
        together == [list(range(1, number + 1)) for number in range(1, 6)],
        "A notification goes to the callback of its own request, and to no other.",
    )
    unheard = await calls.text("progress", None, steps=3)
    yield unheard == "done", "A request needs no callback for its notifications."


async def _callbacks_that_raise(calls: LinkCalls) -> Promises:
    class Raised(Exception):
        pass

    def told(_: JsonObject) -> None:
        raise Raised

    try:
        await calls.text("progress", told, steps=3)
    except Raised:
        pass
    else:
        yield False, "request() raises what its callback raises."
    yield await calls.is_open(), "A link goes on after a callback has raised."


async def _errors(calls: LinkCalls) -> Promises:
    unknown = await _fault(calls.send("check/unknown"))
    yield (
        isinstance(unknown, Refused) and unknown.code == -32601,
        f"An error of the server is returned, or raised as Refused with its code; here {unknown!r}.",
    )
    failed = await _fault(calls.reply("fail"))
    yield (
        isinstance(failed, Refused) and (failed.code, failed.data) == (InvalidParams.code, _DATA),
        f"An error of the server keeps its data; here {failed!r}.",
    )
    yield await calls.is_open(), "A link goes on after an error."


async def _cancelling(calls: LinkCalls) -> Promises:
    (name, one), (other_name, other) = await calls.held(), await calls.held()
    one.cancel()
    yield await _done(one) and one.cancelled(), "A request that is cancelled raises CancelledError."
    for _ in range(round(PATIENCE / BRIEF)):
        if await calls.text("is_cancelled", name=name) == "yes":
            break
        await asyncio.sleep(BRIEF)
    else:
        yield False, "Cancelling a request cancels it at the server."
    await calls.text("release", name=other_name)
    unharmed = await _done(other) and not other.cancelled()
    unharmed = unharmed and await calls.text("is_cancelled", name=other_name) == "no"
    yield unharmed, "Cancelling a request leaves the others alone."


async def _closing_under_way(calls: LinkCalls) -> Promises:
    tasks = [(await calls.held())[1] for _ in range(3)]
    closing = asyncio.create_task(calls.link.close())
    ended = await _is_disconnected(tasks[0]) and await _is_disconnected(tasks[1]) and await _is_disconnected(tasks[2])
    yield ended, "close() ends a request that is under way with Disconnected."
    await closing


async def _closing_at_once(calls: LinkCalls) -> Promises:
    task = calls.start("hold", None, name="never released")
    for _ in range(3):
        await asyncio.sleep(0)
    await calls.link.close()
    yield await _is_disconnected(task), "close() ends a request that has just been made with Disconnected."


async def _closed(calls: LinkCalls) -> Promises:
    await calls.text("echo", text="x")
    await calls.link.close()
    fault = await _fault(calls.reply("echo", text="x"))
    yield isinstance(fault, Disconnected), f"A request after close() raises Disconnected; here {fault!r}."


async def _opening_again(calls: LinkCalls) -> Promises:
    for _ in range(2):
        await calls.text("echo", text="x")
        await calls.link.close()
        await calls.link.open()
    yield await calls.is_open(), "open() after close() opens the link again."


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
_GROUPS = (
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
