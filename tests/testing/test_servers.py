"""Rotation: every leg goes to another instance, and the start of an instance is not the server's time."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from antiphon.client.client import Client
from antiphon.errors import CallTimeout, Disconnected
from antiphon.testing.servers import Rotation
from antiphon.testing.transcript import Recorded

SLOW_START = 0.12
LIMIT = 0.1
CALL: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x"}}


class Shed:
    """Instances that take long to start, and answer at once unless they are told not to."""

    def __init__(self, start: float = 0) -> None:
        self.start = start
        self.made: list[Copy] = []
        self.fails_from = 100

    def __call__(self) -> "Copy":
        self.made.append(Copy(len(self.made), self))
        return self.made[-1]

    @property
    def open(self) -> list[int]:
        return [copy.number for copy in self.made if copy.is_open]


class Copy:
    def __init__(self, number: int, shed: Shed) -> None:
        self.number = number
        self.is_open = False
        self._shed = shed

    async def open(self) -> None:
        await asyncio.sleep(self._shed.start)
        if self.number >= self._shed.fails_from:
            raise Disconnected("No more room")
        self.is_open = True

    async def close(self) -> None:
        for _ in range(20):  # turns of the loop: a process takes many to end
            await asyncio.sleep(0)
        self.is_open = False

    async def request(self, message: Any, *, headers: Mapping[str, str], on_notification: Any = None) -> Any:
        await asyncio.sleep(0)  # as any request does that leaves the process
        if message["params"].get("name") == "hang":
            await asyncio.Event().wait()
        result = {"resultType": "complete", "content": [], "structuredContent": {"number": self.number}}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}


async def leg(link: Any, name: str = "x") -> int:
    number: int = (await link.request({**CALL, "params": {"name": name}}, headers={}))["result"]["structuredContent"][
        "number"
    ]
    return number


async def number(client: Client) -> int:
    found: int = (await client.call_tool("x")).structured["number"]
    return found


async def test_every_leg_meets_another_instance_and_what_has_served_is_closed():
    shed = Shed()
    link = Rotation(shed, 2)
    await link.open()
    served = [await leg(link) for _ in range(5)]
    assert len({*served}) == 5
    assert not {*served[:3]} & {*shed.open}
    await link.close()
    assert shed.open == []


async def test_several_legs_at_a_time_wait_for_their_turn():
    shed = Shed()
    link = Rotation(shed, 2)
    await link.open()
    assert len({*await asyncio.gather(*(leg(link) for _ in range(6)))}) == 6
    await link.close()
    assert shed.open == []


async def test_the_start_of_an_instance_is_nobodys_time():
    link = Recorded(Rotation(Shed(SLOW_START), 1))
    async with Client(link, timeout=LIMIT) as client:
        assert [await number(client) for _ in range(2)] == [0, 1]
    assert all(turn.seconds < LIMIT for turn in link.turns)


async def test_a_leg_that_takes_too_long_is_given_up_and_the_next_one_is_served():
    shed = Shed()
    async with Client(Rotation(shed, 1), timeout=0.02) as client:
        with pytest.raises(CallTimeout):
            await client.call_tool("hang")
        assert await number(client) == 1
    assert shed.open == []


async def test_an_instance_that_does_not_start_fails_the_leg_that_needs_it():
    shed = Shed()
    shed.fails_from = 2
    link = Rotation(shed, 2)
    await link.open()
    assert [await leg(link), await leg(link)] == [0, 1]
    with pytest.raises(Disconnected, match="No more room"):
        await leg(link)
    await link.close()
    assert shed.open == []


async def test_what_has_started_is_closed_when_another_one_does_not_start():
    shed = Shed()
    shed.fails_from = 1
    with pytest.raises(Disconnected, match="No more room"):
        await Rotation(shed, 2).open()
    assert shed.open == []
