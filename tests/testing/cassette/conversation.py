"""What both sides say, in a few words; and a server in memory as a wire."""

from collections.abc import Mapping
from typing import Any

from antiphon import Server
from antiphon.testing.cassette import CassetteTurn
from antiphon.testing.cassette.recording import Recording
from antiphon.testing.cassette.verifying import LiveServer
from antiphon.transports.memory import MemoryLink
from antiphon.types import JsonObject

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}
FORM = {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": {"type": "object"}}}
YES = {"action": "accept", "content": {"confirm": True}}
NO = {"action": "decline"}


def request(id_: Any, method: str, /, **params: Any) -> JsonObject:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def call(id_: Any, tool: str = "deploy", /, **params: Any) -> JsonObject:
    return request(id_, "tools/call", name=tool, **params)


def note(method: str, /, **params: Any) -> JsonObject:
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


def result(id_: Any, /, **result: Any) -> JsonObject:
    return {"jsonrpc": "2.0", "id": id_, "result": result}


def asks(id_: Any, state: str | None = None, /, **requests: Any) -> JsonObject:
    made = {"resultType": "input_required", "inputRequests": requests}
    return result(id_, **made, **({} if state is None else {"requestState": state}))


def said(id_: Any, text: str) -> JsonObject:
    return result(id_, content=[{"type": "text", "text": text}])


class Conversation:
    """A recording with one line: ``tape > message`` is the client's, ``tape < message`` the server's."""

    def __init__(self, **options: Any) -> None:
        self.recording = Recording(**options)
        self.connection = self.recording.connect()

    def __gt__(self, message: object) -> "Conversation":
        self.connection.sent(message)
        return self

    def __lt__(self, message: object) -> "Conversation":
        self.connection.received(message)
        return self

    def hear(self, *messages: tuple[str, JsonObject]) -> "Conversation":
        for side, message in messages:
            _ = self > message if side == ">" else self < message
        return self

    def turns(self) -> list[list[tuple[str, Any]]]:
        """All entries: who said what."""
        return [
            [(">" if turn.client is not None else "<", turn.client or turn.server) for turn in entry.turns]
            for entry in self.recording.cassette().entries
        ]


class MemoryServer(LiveServer):
    """A server in memory, as a verification speaks to it."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._memory = MemoryLink(server)

    async def open(self) -> None:
        await self._memory.open()

    async def send(self, message: JsonObject, headers: Mapping[str, str]) -> None:
        del headers
        reply = await self._memory.send(message, lambda told: self.inbox.put_nowait(CassetteTurn(server=told)))
        if reply is not None:
            self.inbox.put_nowait(CassetteTurn(server=reply))

    async def close(self) -> None:
        await self._memory.close()
