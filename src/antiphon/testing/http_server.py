"""Serve an application over real HTTP for the time of a test."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from antiphon.http.exchange import Application


@asynccontextmanager
async def serving(make: Callable[[str], Application]) -> AsyncGenerator[str]:
    """Serve what ``make`` returns on a free port of this machine; give the address, which ``make`` got as well.

    >>> import asyncio
    >>> from antiphon import Client, Server
    >>> async def tools():
    ...     async with serving(lambda url: Server("empty").asgi()) as url, Client(f"{url}/mcp") as client:
    ...         return (await client.discover()).server.name
    >>> asyncio.run(tools())
    'empty'
    """
    import uvicorn  # 100 ms that most tests need not pay

    from antiphon.transports.serve import SETTINGS

    started = asyncio.Event()

    class Quiet(uvicorn.Server):
        """Leaves the signals to the program that runs the test."""

        @contextmanager
        def capture_signals(self) -> Generator[None]:
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            started.set()

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        options: dict[str, Any] = {**SETTINGS, "timeout_graceful_shutdown": 1}
        server = Quiet(uvicorn.Config(make(url), log_level="error", **options))
        task = asyncio.create_task(server.serve([listener]))
        task.add_done_callback(lambda _: started.set())
        await started.wait()
        try:
            yield url
        finally:
            server.should_exit = True
            await task
