"""Following a channel of a store for its news, whatever they say."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

from antiphon.stores.store import Store

Wait: TypeAlias = Callable[[float], Awaitable[bool]]
"""Waits for news, at most so many seconds; False if none came."""


@asynccontextmanager
async def following(store: Store, channel: str) -> AsyncGenerator[Wait]:
    """Hear of news on a channel."""
    news = asyncio.Event()

    async def listen(messages: AsyncIterator[bytes]) -> None:
        async for _ in messages:
            news.set()

    async def wait(seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await news.wait()
        except TimeoutError:
            return False
        news.clear()
        return True

    async with store.subscribe(channel) as messages:
        listening = asyncio.create_task(listen(messages))
        try:
            yield wait
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
