"""Several server processes that share a store, behind a proxy that sends every connection to the next."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from legacy.instances.older import Answerer, OlderClient, closed
from legacy.instances.proxy import Proxy

INSTANCE = Path(__file__).parent / "instance.py"
PATIENCE = 60.0


class Instance:
    """A server process, and the socket that it was given."""

    def __init__(self, store: str, session_ttl: float, folder: Path) -> None:
        listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = listening.getsockname()[1]
        about = [str(listening.fileno()), store, str(session_ttl), str(folder / "effects")]
        with listening, (folder / "instances.log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(INSTANCE), *about], pass_fds=[listening.fileno()], stdout=log, stderr=log
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE)


class Cluster:
    """So many instances that share a store. One that was killed is replaced by `whole`."""

    def __init__(self, store: str, folder: Path, *, size: int, session_ttl: float) -> None:
        self.session_ttl = session_ttl
        self._store = store
        self._folder = folder
        self.instances = [self._start() for _ in range(size)]

    @asynccontextmanager
    async def whole(self) -> AsyncGenerator["Front"]:
        """All instances, up and running before anything counts, behind a proxy; for a bounded time."""
        self.instances = [instance if instance.lives else self._start() for instance in self.instances]
        async with asyncio.timeout(PATIENCE), Proxy([instance.port for instance in self.instances]) as proxy:
            await asyncio.gather(*(_is_up(instance) for instance in self.instances))
            yield Front(self, proxy)

    def effects(self) -> list[str]:
        """What the instances have written down."""
        written = self._folder / "effects"
        return written.read_text().splitlines() if written.exists() else []

    def log(self) -> str:
        return (self._folder / "instances.log").read_text()

    def stop(self) -> None:
        for instance in self.instances:
            instance.kill()

    def _start(self) -> Instance:
        return Instance(self._store, self.session_ttl, self._folder)


class Front:
    """A cluster as clients see it."""

    def __init__(self, cluster: Cluster, proxy: Proxy) -> None:
        self.cluster = cluster
        self.instances = cluster.instances
        self.ports = [instance.port for instance in cluster.instances]
        self.proxy = proxy

    def client(self, answer: Answerer | None = None) -> OlderClient:
        return OlderClient(self.proxy.port, answer)

    async def orders(self, tool: str, number: int) -> list[str]:
        """What so many clients are told at once that answer two questions each."""

        async def order(name: str) -> str:
            async with self.client(agree) as client:
                return text_of(await client.call(tool, name=name))

        return await asyncio.gather(*(order(f"client-{one}") for one in range(number)))


async def agree(question: dict[str, Any]) -> dict[str, Any]:
    """The answer to either question of the instances' tools."""
    wanted = question["requestedSchema"]["properties"]
    return {"action": "accept", "content": {name: "eu" if name == "value" else True for name in wanted}}


def text_of(reply: dict[str, Any]) -> str:
    assert "result" in reply, reply
    return str(reply["result"]["content"][0]["text"])


async def _is_up(instance: Instance) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", instance.port)
    try:
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        assert await reader.readline(), "an instance did not come up"
    finally:
        await closed(writer)
