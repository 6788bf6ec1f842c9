"""The requests of the benchmark on the wire, and what a server is loaded with."""

import json
import random
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from load import Load, LoadError, exchange

if TYPE_CHECKING:
    from contender import Contender

REVISION = "2026-07-28"
OLD_REVISION = "2025-11-25"
LITE_REVISION = "2025-06-18"
"""The newest that mcp-lite knows."""
CAPABILITIES: dict[str, Any] = {"elicitation": {}, "sampling": {}}
META = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1.0.0"},
    "io.modelcontextprotocol/clientCapabilities": CAPABILITIES,
}
MARKERS = {"echo": b"hello, bench", "leg 1": b'"input_required"', "leg 2": b"Deployed to prod"}
BOTH = "application/json, text/event-stream"

Json = dict[str, Any]


# --- messages ----------------------------------------------------------------------------------------------------


def call(name: str, arguments: Json, **more: Any) -> Json:
    params = {"name": name, "arguments": arguments, "_meta": META, **more}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def echo() -> Json:
    return call("echo", {"text": "hello, bench"})


def leg_1() -> Json:
    return call("deploy", {"env": "prod"})


def leg_2(asked: Json) -> Json:
    """The retry of a deploy, from the result that asked for the confirmation."""
    answers = {key: {"action": "accept", "content": {"confirm": True}} for key in asked["inputRequests"]}
    return call("deploy", {"env": "prod"}, inputResponses=answers, requestState=asked["requestState"])


def listen() -> Json:
    """A stream of changes: of the list of tools."""
    params = {"notifications": {"toolsListChanged": True}, "_meta": META}
    return {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}


def headers(message: Json, port: int) -> list[tuple[str, str]]:
    named = [("Mcp-Name", message["params"]["name"])] if "name" in message["params"] else []
    return [
        ("Host", f"127.0.0.1:{port}"),
        ("Content-Type", "application/json"),
        ("Accept", BOTH),
        ("MCP-Protocol-Version", REVISION),
        ("Mcp-Method", message["method"]),
        *named,
    ]


def body(message: Json) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def http(message: Json, port: int, more: Sequence[tuple[str, str]] = (), content: bytes | None = None) -> bytes:
    """A request of 2026-07-28; ``content`` is the message in other bytes than the usual ones."""
    content = body(message) if content is None else content
    return _post([*headers(message, port), *more], content)


def old_http(
    message: Json, port: int, session: str | None = None, accept: str = BOTH, revision: str | None = OLD_REVISION
) -> bytes:
    """A request of 2025-11-25, in a session or without."""
    fields = [("Host", f"127.0.0.1:{port}"), ("Content-Type", "application/json"), ("Accept", accept)]
    fields += [("Mcp-Session-Id", session)] if session else []
    fields += [("MCP-Protocol-Version", revision)] if revision else []
    return _post(fields, body({"jsonrpc": "2.0", **message}))


def _post(fields: Sequence[tuple[str, str]], content: bytes) -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in [*fields, ("Content-Length", str(len(content)))])
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + content


def result(answer: bytes) -> Json:
    """The JSON-RPC result in a whole HTTP answer, JSON or one event of a stream."""
    content = answer[answer.index(b"{") : answer.rindex(b"}") + 1]
    said: Json = json.loads(content)
    if "result" not in said:
        raise LoadError(f"expected a result, got {content[:600]!r}")
    return dict(said["result"])


# --- loads -------------------------------------------------------------------------------------------------------


def plain(contender: "Contender", more: Sequence[tuple[str, str]] = (), only: str | None = None) -> dict[str, Load]:
    """What this server can do: echo always, the two legs of a deploy if it asks."""
    port = contender.port
    if contender.program.era != REVISION:
        message = {"id": 2, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "hello, bench"}}}
        request = old_http(message, port, accept=contender.program.accept, revision=contender.program.era)
        return {"echo": Load(port=port, request=request, marker=MARKERS["echo"])}
    loads = {"echo": Load(port=port, request=http(echo(), port, more), marker=MARKERS["echo"])}
    if not contender.program.asks or only == "echo":
        return loads
    loads["leg 1"] = Load(port=port, request=http(leg_1(), port, more), marker=MARKERS["leg 1"])
    asked = result(exchange(loads["leg 1"]))
    loads["leg 2"] = Load(port=port, request=http(leg_2(asked), port, more), marker=MARKERS["leg 2"])
    return loads


FORMS = ("compact", "spaced", "escaped", "brackets")


def sized(port: int, form: str, size: int) -> Load:
    """A call with an argument of about so many bytes: a text, a table as most encoders write it, or a dense matrix."""
    if form in ("compact", "escaped"):
        text = prose(size) if form == "compact" else _escapes(size)
        message, marker = call("length", {"text": text}), f"{len(text)} characters"
    else:
        chance = random.Random(2322)
        row: Any = {"id": 17, "name": "item 17", "price": 4.5, "note": prose(60), "tags": ["new", "blue"]}
        if form == "brackets":
            row = [chance.randrange(10_000) for _ in range(8)]
        each = len(json.dumps(row)) + 1
        rows = [row] * max(1, size // each)
        message, marker = call("count", {"rows": rows}), f"{len(rows)} rows"
    content = json.dumps(message).encode() if form == "spaced" else body(message)
    return Load(port=port, request=http(message, port, content=content), marker=marker.encode())


def prose(size: int) -> str:
    """Text with the redundancy of text: words from a small vocabulary."""
    chance = random.Random(2322)
    vocabulary = ["".join(chance.choices(string.ascii_lowercase, k=chance.randint(2, 9))) for _ in range(600)]
    return " ".join(chance.choices(vocabulary, k=size))[:size]


def _escapes(size: int) -> str:
    """Text with a character every few that JSON escapes, as source code in many languages has it."""
    unit = 'say "é"\n\t'
    return unit * max(1, size // len(json.dumps(unit)))


def conversation(port: int, questions: int) -> tuple[Load, int, int]:
    """The legs of an interview, which are sent in turn, the bytes of its largest token, and of all its traffic."""
    more: Json = {}
    legs: list[bytes] = []
    largest = traffic = 0
    while True:
        legs.append(http(call("interview", {"questions": questions}, **more), port))
        answer = exchange(Load(port=port, request=legs[-1], marker=b'"resultType"'))
        told, traffic = result(answer), traffic + len(legs[-1]) + len(answer)
        if told["resultType"] == "complete":
            if len(legs) != questions + 1:
                raise LoadError(f"{questions} questions took {len(legs)} requests: {told}")
            return Load(port=port, request=legs[0], turns=tuple(legs), marker=b'"resultType"'), largest, traffic
        largest = max(largest, len(told["requestState"]))
        answers = {}
        for key, asked in told["inputRequests"].items():
            (field,) = asked["params"]["requestedSchema"]["properties"]
            answers[key] = {"action": "accept", "content": {field: "an answer"}}
        more = {"inputResponses": answers, "requestState": told["requestState"]}


def progress(port: int, steps: int) -> Load:
    """A call that is told of each step."""
    message = call("work", {"steps": steps}, _meta={**META, "progressToken": "t"})
    return Load(port=port, request=http(message, port), marker=b"did %d steps" % steps)


def open_session(port: int, revision: str = OLD_REVISION) -> str:
    """Open a session of an older revision, from initialize to notifications/initialized, and return its id."""
    about = {"name": "bench", "version": "1.0.0"}
    params = {"protocolVersion": revision, "capabilities": CAPABILITIES, "clientInfo": about}
    hello = old_http({"id": 1, "method": "initialize", "params": params}, port, revision=None)
    answer = exchange(Load(port=port, request=hello, marker=b"protocolVersion"))
    head = answer.partition(b"\r\n\r\n")[0].decode()
    session = next(line.split(": ", 1)[1] for line in head.splitlines() if line.lower().startswith("mcp-session-id:"))
    ready = old_http({"method": "notifications/initialized"}, port, session, revision=revision)
    exchange(Load(port=port, request=ready, marker=b"", status=202))
    return session


def in_sessions(port: int, connections: int, revision: str = OLD_REVISION) -> Load:
    """An echo in a session of its own on each connection."""
    params = {"name": "echo", "arguments": {"text": "hello, bench"}}
    message = {"id": 2, "method": "tools/call", "params": params}
    opened = [open_session(port, revision) for _ in range(connections)]
    requests = tuple(old_http(message, port, session, revision=revision) for session in opened)
    return Load(port=port, request=requests[0], requests=requests, marker=MARKERS["echo"])


def waiting_calls(port: int, connections: int) -> Load:
    """A call that waits for its answer, in a session of its own on each connection."""
    message = {"id": 2, "method": "tools/call", "params": {"name": "approve", "arguments": {"env": "prod"}}}
    requests = tuple(old_http(message, port, open_session(port)) for _ in range(connections))
    return Load(port=port, request=requests[0], requests=requests, marker=b"")


def session_streams(port: int, connections: int) -> Load:
    """A GET stream in a session of its own on each connection."""
    requests = []
    for _ in range(connections):
        fields = [("Host", f"127.0.0.1:{port}"), ("Accept", "text/event-stream")]
        fields += [("Mcp-Session-Id", open_session(port)), ("MCP-Protocol-Version", OLD_REVISION)]
        head = "".join(f"{name}: {value}\r\n" for name, value in fields)
        requests.append(f"GET /mcp HTTP/1.1\r\n{head}\r\n".encode())
    return Load(port=port, request=requests[0], requests=tuple(requests), marker=b"")
