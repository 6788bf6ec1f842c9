"""Protocol work alone: a server's ASGI application called in process, without sockets."""

import asyncio
import gc
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import calls
from goals import Goal
from load import LoadError
from measuring import Figures, Plan, Samples, add, in_process, ratios

NAMES = ("bare", "official", "ours")
WARM_UP = 200
PORT = 8000


def measure(plan: Plan) -> Figures:
    """By server and work: CPU microseconds of a request."""
    cells: Samples = {}
    failed = set[str]()
    for _ in range(plan.rounds):
        for name in NAMES:
            if name in failed:
                continue
            try:
                found = in_process("alone.py", name, str(plan.seconds))
            except LoadError as fault:
                failed.add(name)
                plan.cannot(f"{name}, in process", fault)
            else:
                for work, cost in found.items():
                    add(cells, f"{name}|{work}", {"cpu_us": cost})
    return {"cells": cells}


async def _measure(name: str, seconds: float) -> dict[str, float]:
    app = importlib.import_module(name).http()
    async with _Lifespan(app):
        figures = {"echo": await _repeat(app, calls.echo(), "echo", seconds)}
        asked = await _post(app, calls.leg_1())
        if calls.MARKERS["leg 1"] in asked:
            figures["leg 1"] = await _repeat(app, calls.leg_1(), "leg 1", seconds)
            figures["leg 2"] = await _repeat(app, calls.leg_2(calls.result(asked)), "leg 2", seconds)
    return figures


async def _repeat(app: Any, message: dict[str, Any], scenario: str, seconds: float) -> float:
    for _ in range(WARM_UP):
        answer = await _post(app, message)
    if calls.MARKERS[scenario] not in answer:
        raise SystemExit(f"{scenario}: unexpected answer {answer[:500]!r}")
    gc.collect()
    scope, body = _scope(message), calls.body(message)
    count, start, end = 0, process_time(), perf_counter() + seconds
    while perf_counter() < end:
        await app(scope.copy(), _receiver(body), _ignore)
        count += 1
    return (process_time() - start) / count * 1e6


async def _post(app: Any, message: dict[str, Any]) -> bytes:
    parts: list[bytes] = []

    async def send(event: Any) -> None:
        parts.append(event.get("body", b""))

    await app(_scope(message), _receiver(calls.body(message)), send)
    return b"".join(parts)


async def _ignore(_event: Any) -> None: ...


def _receiver(body: bytes) -> Any:
    events = _events(body)

    async def receive() -> Any:
        event = next(events)
        if event is None:  # the client stays connected: nothing more to say
            await asyncio.get_running_loop().create_future()
        return event

    return receive


def _events(body: bytes) -> Iterator[dict[str, Any] | None]:
    yield {"type": "http.request", "body": body, "more_body": False}
    while True:
        yield None


def _scope(message: dict[str, Any]) -> dict[str, Any]:
    fields = [*calls.headers(message, PORT), ("Content-Length", str(len(calls.body(message))))]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "root_path": "",
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in fields],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", PORT),
        "state": {},
    }


class _Lifespan:
    """The app's start-up and shut-down events around a block."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._events: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self._started = asyncio.Event()

    async def __aenter__(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
        await self._events.put({"type": "lifespan.startup"})
        self._task = asyncio.ensure_future(self._app(scope, self._events.get, self._send))
        started = asyncio.ensure_future(self._started.wait())
        await asyncio.wait({self._task, started}, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()

    async def __aexit__(self, *_: object) -> None:
        await self._events.put({"type": "lifespan.shutdown"})
        await asyncio.wait({self._task}, timeout=5)

    async def _send(self, event: dict[str, str]) -> None:
        if event["type"] == "lifespan.startup.complete":
            self._started.set()


def _goal(work: str) -> Goal:
    def figure(figures: Figures) -> list[float]:
        return ratios(figures["alone"]["cells"], f"ours|{work}", f"official|{work}", "cpu_us")

    return Goal(title=f"protocol work alone, {work}, CPU / official", figure=figure, at_most=1 / 15, bound=1 / 8)


GOALS = tuple(_goal(work) for work in ("echo", "leg 1", "leg 2"))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent / "servers"))
    import uvloop

    print(json.dumps(uvloop.run(_measure(sys.argv[1], float(sys.argv[2])))))
