"""The requests of the benchmark on the 2026-07-28 wire."""

import json
from collections.abc import Sequence
from typing import Any

REVISION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1.0.0"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
MARKERS = {"echo": b"hello, bench", "leg 1": b'"input_required"', "leg 2": b"Deployed to prod"}


def call(name: str, arguments: dict[str, Any], **more: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, **more, "_meta": META}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def echo() -> dict[str, Any]:
    return call("echo", {"text": "hello, bench"})


def leg_1() -> dict[str, Any]:
    return call("deploy", {"env": "prod"})


def leg_2(asked: dict[str, Any]) -> dict[str, Any]:
    """The retry of a deploy, from the result that asked for the confirmation."""
    answers = {key: {"action": "accept", "content": {"confirm": True}} for key in asked["inputRequests"]}
    return call("deploy", {"env": "prod"}, inputResponses=answers, requestState=asked["requestState"])


def headers(message: dict[str, Any], port: int) -> list[tuple[str, str]]:
    return [
        ("Host", f"127.0.0.1:{port}"),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", REVISION),
        ("Mcp-Method", message["method"]),
        ("Mcp-Name", message["params"]["name"]),
    ]


def body(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def http(message: dict[str, Any], port: int, more: Sequence[tuple[str, str]] = ()) -> bytes:
    content = body(message)
    fields = [*headers(message, port), *more, ("Content-Length", str(len(content)))]
    head = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + content


def result(answer: bytes) -> dict[str, Any]:
    """The JSON-RPC result in a whole HTTP answer, JSON or one event of a stream."""
    content = answer[answer.index(b"{") : answer.rindex(b"}") + 1]
    return json.loads(content)["result"]
