"""What the handlers under test are made of."""

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import pytest

from antiphon import Context, Seal, Server
from antiphon.rounds.token import generate_key

from .driver import accept

KEY = generate_key(b"a" * 32)


@dataclass
class Where:
    region: str
    replicas: int = 2


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


async def turns(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


ANSWERS = {name: accept(value=name.upper()) for name in "abcdef"}


async def asks(ctx: Context, key: str, pause: int = 0) -> str:
    await turns(pause)
    return (await ctx.elicit(f"{key}?", str, key=key)).unwrap()


async def steps_then_asks(ctx: Context, key: str, effects: list[str]) -> str:
    async def work() -> str:
        await asyncio.sleep(0.005)
        effects.append(key)
        return "worked"

    await ctx.step(f"work {key}", work)
    return await asks(ctx, key)


async def grouped(*awaitables: object) -> list[str]:
    """What gather does, with a task group."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(awaitable) for awaitable in awaitables]  # type: ignore[arg-type]
    return [task.result() for task in tasks]


async def gathered(*awaitables: object) -> list[str]:
    return list(await asyncio.gather(*awaitables))  # type: ignore[call-overload]


together = pytest.mark.parametrize("together", [gathered, grouped], ids=["gather", "TaskGroup"])


def everywhere() -> Server:
    app = Server("everywhere", seal=Seal(KEY))

    async def conversation(ctx: Context, topic: str) -> str:
        effect = await ctx.step("effect", str.upper, topic)
        name, sure = await asyncio.gather(ctx.elicit(f"Who reads {topic}?", str, key="name"), ctx.confirm("Sure?"))
        how = await ctx.elicit("How long?", Literal["short", "long"], key="length")
        return f"{effect} for {name.unwrap()}, {how.unwrap()}, {sure}"

    @app.tool
    async def brief(topic: str, ctx: Context) -> str:
        return await conversation(ctx, topic)

    @app.prompt(name="brief")
    async def brief_prompt(topic: str, ctx: Context) -> str:
        return await conversation(ctx, topic)

    @app.resource("brief://news")
    async def static(ctx: Context) -> str:
        return await conversation(ctx, "news")

    @app.resource("brief://by-topic/{topic}")
    async def template(topic: str, ctx: Context) -> str:
        return await conversation(ctx, topic)

    return app
