"""The promises of a Link, the server that the check of them calls, and how a group of promises is run."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import isawaitable
from itertools import count
from secrets import token_hex
from typing import TypeAlias

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

Promise: TypeAlias = Callable[[bool, str], None]
LinkGroup: TypeAlias = "Callable[[LinkCalls, Promise], Awaitable[None]]"


async def check_link(make_link: Callable[[Server], Link | Awaitable[Link]]) -> None:
    """Check that a link keeps every promise of `antiphon.Link`.

    ``make_link`` is called once for each group of promises, with a `link_server` to connect to. The check opens and
    closes the link that it returns. A link to another process ignores the server, and starts
    ``python -m antiphon.testing.contracts``, which serves one on its standard streams.

    >>> import asyncio
    >>> from antiphon.transports.memory import MemoryLink
    >>> asyncio.run(check_link(MemoryLink))
    """
    broken: list[str] = []
    for group in _GROUPS:
        made = make_link(link_server())
        link = await made if isawaitable(made) else made
        await run_group(group.__name__, _opened(link, group, noting(broken)), link, broken, PATIENCE)
    if broken:
        raise AssertionError("\n".join(broken))


def noting(broken: list[str]) -> Promise:
    def promise(kept: bool, sentence: str) -> None:
        if not kept:
            broken.append(sentence)

    return promise


async def run_group(name: str, group: Awaitable[None], part: Store | Link, broken: list[str], patience: float) -> None:
    """Run one group of promises and close the part twice; note whatever goes wrong."""
    about = name.strip("_").replace("_", " ")
    try:
        async with asyncio.timeout(4 * patience):
            await group
            await part.close()
            await part.close()
    except TimeoutError:
        broken.append(f"The check of {about} did not finish within {4 * patience:.0f} s.")
    except Exception as error:  # noqa: BLE001 -- any exception is a finding
        broken.append(f"The check of {about} ended with {error!r}.")
    finally:
        with suppress(Exception):
            await part.close()


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
_GROUPS: tuple[LinkGroup, ...] = (
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
