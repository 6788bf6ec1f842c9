"""Clients of 2025-11-25: `tools/call` in a session, and what an idle session costs, compared with the official server.

`python benchmarks/legacy.py [--quick] [--strict]`, and a section of run.py. Each connection is a client with a
session of its own. Both servers answer with JSON, which is the fastest that either can do.
"""

import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from contender import Contender, Unavailable
from load import Load, drive, exchange
from section import run_alone
from threshold import Figures, Threshold

sys.path.insert(0, str(Path(__file__).parent / "servers"))
from serving import pin

NAMES = {"ours": "ours", "official": "official_sessions"}
REVISION = "2025-11-25"
CONNECTIONS = 16
IDLE = 1000
LOAD_CORE = 1
WARM_UP = 0.25

HELLO = {
    "protocolVersion": REVISION,
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "bench", "version": "1.0.0"},
}
ECHO = {"name": "echo", "arguments": {"text": "hello, bench"}}


# --- on the wire -------------------------------------------------------------------------------------------------


def _http(port: int, message: dict[str, Any], session: str | None) -> bytes:
    content = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode()
    fields = {
        "Host": f"127.0.0.1:{port}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(len(content)),
    }
    if session is not None:
        fields |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": REVISION}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n".encode() + content


def _open(port: int) -> str:
    """Open a session, from initialize to notifications/initialized, and return its id."""
    hello = _http(port, {"id": 1, "method": "initialize", "params": HELLO}, None)
    answer = exchange(Load(port=port, request=hello, marker=b"protocolVersion"))
    head = answer.partition(b"\r\n\r\n")[0].decode()
    session = next(line.split(": ", 1)[1] for line in head.splitlines() if line.lower().startswith("mcp-session-id:"))
    ready = _http(port, {"method": "notifications/initialized"}, session)
    exchange(Load(port=port, request=ready, marker=b"", status=202))
    return session


def _echo(port: int) -> Load:
    """Each connection in a session of its own."""
    calls = [_http(port, {"id": 2, "method": "tools/call", "params": ECHO}, _open(port)) for _ in range(CONNECTIONS)]
    return Load(port=port, request=calls[0], requests=tuple(calls), marker=b"hello, bench")


# --- measuring ---------------------------------------------------------------------------------------------------


def measure(*, rounds: int, seconds: float, unavailable: dict[str, str], idle: int = IDLE) -> Figures:
    """By server: rates and CPU time of a call each round, interleaved; and the memory of an idle session."""
    figures: Figures = {"rate": {}, "cpu_us": {}, "session_kb": {}}
    contenders: dict[str, Contender] = {}
    try:
        for name, server in NAMES.items():
            try:
                contenders[name] = Contender(server)
            except Unavailable as error:
                unavailable[f"{name}, sessions"] = str(error)
        for _ in range(rounds):
            for name, each in contenders.items():
                rate, cpu = _one(each, seconds)
                figures["rate"].setdefault(name, []).append(rate)
                if cpu is not None:
                    figures["cpu_us"].setdefault(name, []).append(cpu)
        for name, each in contenders.items():
            figures["session_kb"][name] = _idle_session_kb(each, idle)
    finally:
        for each in contenders.values():
            each.stop()
    return figures


def _one(contender: Contender, seconds: float) -> tuple[float, float | None]:
    # New sessions each time: at the end of a drive a request is under way on each, and its id is taken for a while.
    drive(_echo(contender.port), connections=CONNECTIONS, seconds=WARM_UP)
    load = _echo(contender.port)
    before = contender.cpu_seconds()
    measured = drive(load, connections=CONNECTIONS, seconds=seconds)
    after = contender.cpu_seconds()
    cpu = None if before is None or after is None else (after - before) / measured.requests * 1e6
    return measured.rate, cpu


def _idle_session_kb(contender: Contender, number: int) -> float | None:
    """What the process grows by for each session that is opened and then left alone."""
    for _ in range(number // 10):
        _open(contender.port)  # the first sessions also pay for caches
    before = contender.rss_mb()
    for _ in range(number):
        _open(contender.port)
    after = contender.rss_mb()
    return None if before is None or after is None else (after - before) * 1024 / number


# --- judging -----------------------------------------------------------------------------------------------------


def _ratio(figures: Figures) -> float | None:
    """The median over the rounds of ours against theirs in the same round."""
    rates = figures["legacy"]["rate"]
    if not rates.get("ours") or not rates.get("official"):
        return None
    return median(ours / theirs for ours, theirs in zip(rates["ours"], rates["official"], strict=True))


def _cpu_ratio(figures: Figures) -> float | None:
    cpu = figures["legacy"]["cpu_us"]
    if not cpu.get("ours") or not cpu.get("official"):
        return None
    return median(cpu["official"]) / median(cpu["ours"])


def _memory(figures: Figures) -> float | None:
    kilobytes = figures["legacy"]["session_kb"]
    ours, theirs = kilobytes.get("ours"), kilobytes.get("official")
    return None if ours is None or not theirs else ours / theirs


THRESHOLDS = (
    Threshold(title="2025 era, call in a session, rate / official", figure=_ratio, bound=5, goal=8),
    Threshold(title="2025 era, calls per CPU second / official", figure=_cpu_ratio, goal=8),
    Threshold(
        title="2025 era, idle session, ours / official", figure=_memory, bound=0.2, goal=0.05, less_is_better=True
    ),
)


def report(figures: Figures) -> None:
    for name, rates in figures["rate"].items():
        cpu, kilobytes = figures["cpu_us"].get(name), figures["session_kb"].get(name)
        print(
            f"2025 era, {name}: {median(rates):.0f} calls/s in sessions, "
            f"{f'{median(cpu):.0f}' if cpu else '-'} CPU us each; "
            f"an idle session {f'{kilobytes:.1f}' if kilobytes is not None else '-'} KB"
        )


def main() -> int:
    pin(LOAD_CORE)
    return run_alone(
        "legacy",
        about=__doc__,
        measure=measure,
        report=report,
        thresholds=THRESHOLDS,
        usual=(5, 2.0),
        quick=(2, 0.5),
    )


if __name__ == "__main__":
    sys.exit(main())
