"""A round-robin TCP proxy without any memory: each connection goes to the next instance that takes it."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import count

from legacy.instances.older import closed

CHUNK = 65536


class Proxy:
    """In front of some ports. Where one does not answer, the next one gets the connection."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports = list(ports)
        self.port = 0
        self.taken: Counter[int] = Counter()
        """How many connections each port got."""
        self._turns = count()
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._connections.values():
            writer.close()
        await asyncio.gather(*self._connections)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            instance = await self._next()
            if instance is not None:
                await _join(reader, writer, *instance)
        finally:
            await closed(writer)

    async def _next(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        turn = next(self._turns)
        for offset in range(len(self.ports)):
            port = self.ports[(turn + offset) % len(self.ports)]
            with suppress(OSError):
                streams = await asyncio.open_connection("127.0.0.1", port)
                self.taken[port] += 1
                return streams
        return None


async def _join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far_reader: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
) -> None:
    """Carry bytes both ways until either side is done."""
    ways = [asyncio.create_task(_carry(reader, far_writer)), asyncio.create_task(_carry(far_reader, writer))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        await closed(far_writer)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
