"""Every link of ours keeps the promises of a Link, and the check finds one that does not."""

import asyncio
import sys

import pytest

from antiphon import Disconnected, eras
from antiphon.testing import link_contract
from antiphon.testing.contracts import check_link
from antiphon.transports import stdio_client as child
from antiphon.transports.http_client import HttpLink
from antiphon.transports.memory import MemoryLink
from antiphon.transports.stdio_client import ChildLink

COMMAND = [sys.executable, "-m", "antiphon.testing.contracts"]


@pytest.fixture
def url(live):
    return lambda server: f"http://127.0.0.1:{live(server.asgi(allowed_hosts=['*']))}/mcp"


@pytest.fixture(autouse=True)
def forgetful(monkeypatch):
    """No link knows of a server what another has found, nor waits long for a process to end."""
    monkeypatch.setattr(eras, "_found", {})
    monkeypatch.setattr(child, "GRACE", 0.2)


async def test_in_memory():
    await check_link(MemoryLink)


async def test_over_http(url):
    await check_link(lambda server: HttpLink(url(server)))


@pytest.mark.heavy
async def test_to_a_process():
    await check_link(lambda _: ChildLink(COMMAND))


async def test_over_http_to_a_server_of_an_unknown_era(url):
    await check_link(lambda server: eras.connect(url(server)))


@pytest.mark.heavy
async def test_to_a_process_of_an_unknown_era():
    await check_link(lambda _: eras.connect(COMMAND))


# --- links that are wrong -----------------------------------------------------------------------------------------


class Swapping(MemoryLink):
    """Gives the reply to another id."""

    async def request(self, message, *, headers, on_notification=None):
        return {**await super().request(message, headers=headers, on_notification=on_notification), "id": 0}


class OneAtATime(MemoryLink):
    __slots__ = ("_turn",)

    def __init__(self, service):
        super().__init__(service)
        self._turn = asyncio.Lock()

    async def request(self, message, *, headers, on_notification=None):
        async with self._turn:
            return await super().request(message, headers=headers, on_notification=on_notification)


class Short(MemoryLink):
    """Cuts what is long."""

    async def request(self, message, *, headers, on_notification=None):
        arguments = message["params"].get("arguments", {})
        arguments.update({name: value[:65536] for name, value in arguments.items() if isinstance(value, str)})
        return await super().request(message, headers=headers, on_notification=on_notification)


class Late(MemoryLink):
    """Tells notifications after the reply."""

    async def request(self, message, *, headers, on_notification=None):
        told = []
        if message["params"].get("name") != "progress":
            told = None
        reply = await super().request(
            message, headers=headers, on_notification=on_notification if told is None else told.append
        )
        for each in reversed(told or []):
            if on_notification is not None and (waiting := on_notification(each)) is not None:
                await waiting
        return reply


class Crossed(MemoryLink):
    """Tells every notification to the callback that came last."""

    __slots__ = ("_last",)

    async def request(self, message, *, headers, on_notification=None):
        self._last = on_notification

        def tell(each):
            return None if self._last is None else self._last(each)

        return await super().request(message, headers=headers, on_notification=tell)


class Quiet(MemoryLink):
    """Keeps to itself what a callback raises."""

    async def request(self, message, *, headers, on_notification=None):
        async def tell(each):
            try:
                if on_notification is not None and (waiting := on_notification(each)) is not None:
                    await waiting
            except Exception:
                pass

        return await super().request(message, headers=headers, on_notification=tell)


class Vague(MemoryLink):
    """Says of every error that it is internal."""

    async def request(self, message, *, headers, on_notification=None):
        reply = await super().request(message, headers=headers, on_notification=on_notification)
        if "error" in reply:
            reply["error"] = {"code": -32603, "message": "Something went wrong"}
        return reply


class Detached(MemoryLink):
    """Lets a request run on when it is cancelled."""

    async def request(self, message, *, headers, on_notification=None):
        return await asyncio.shield(
            asyncio.ensure_future(super().request(message, headers=headers, on_notification=on_notification))
        )


class Patient(MemoryLink):
    """Waits for what is under way."""

    async def close(self):
        if self._under_way:
            await asyncio.wait(set(self._under_way.values()))
        await super().close()


class Undead(MemoryLink):
    """Is open for ever."""

    async def close(self):
        await super().close()
        self._is_closed = False


class Once(MemoryLink):
    """Opens once."""

    async def open(self):
        if self._is_closed:
            raise Disconnected("It was closed")
        await super().open()


class Littering(MemoryLink):
    """Starts a task that it does not end."""

    __slots__ = ("_task",)

    async def open(self):
        await super().open()
        self._task = asyncio.ensure_future(asyncio.sleep(5))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (Swapping, "The check of replies ended with AssertionError('The request 1 got a reply to 0')."),
        (OneAtATime, "The check of order "),
        (Short, "A message of 1000000 bytes is carried unchanged."),
        (Late, "The notifications of a request go to its callback in order, before its reply; here [5, 4, 3, 2, 1]."),
        (Crossed, "A notification goes to the callback of its own request, and to no other."),
        (Quiet, "request() raises what its callback raises."),
        (Vague, "An error of the server is returned, or raised as Refused with its code; here Refused("),
        (Vague, "An error of the server keeps its data; here Refused("),
        (Detached, "Cancelling a request cancels it at the server."),
        (Patient, "close() ends a request that is under way with Disconnected."),
        (Undead, "A request after close() raises Disconnected; here None."),
        (Once, "The check of opening again ended with Disconnected("),
        (Littering, "close() leaves no task behind; here "),
    ],
    ids=lambda part: part.__name__ if isinstance(part, type) else "",
)
async def test_the_contract_finds_a_broken_link(wrong, sentence, monkeypatch):
    monkeypatch.setattr(link_contract, "PATIENCE", 0.1)
    with pytest.raises(AssertionError) as broken:
        await check_link(wrong)
    assert any(line.startswith(sentence) for line in str(broken.value).splitlines()), broken.value
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
