"""Clients: completed two-round calls over HTTP and in memory, and the time from the start of a process to a result.

Over HTTP all call the same fast server, ours, in a process of its own; in memory each calls the server of its own kind.
"""

import asyncio
import gc
import importlib
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from contender import LOAD_CORE, NODE, Contender, Unavailable, on_core
from goals import Goal
from load import LoadError
from measuring import TIMEOUT, Figures, Plan, Samples, add, in_process, ratios

WARM_UP = 50
DONE = "Deployed to prod"

Call = Callable[[], Awaitable[str]]


# --- one client, in a process of its own -------------------------------------------------------------------------


@asynccontextmanager
async def _ours(target: Any) -> AsyncGenerator[Call]:
    from antiphon import Accepted, Client

    async def agree(_question: Any) -> Any:
        return Accepted({"confirm": True})

    async with Client(target, elicit=agree) as client:

        async def call() -> str:
            return (await client.call_tool("deploy", {"env": "prod"})).text

        yield call


@asynccontextmanager
async def _official(target: Any) -> AsyncGenerator[Call]:
    from mcp import Client
    from mcp.types import ElicitResult

    async def agree(_context: Any, _params: Any) -> Any:
        return ElicitResult(action="accept", content={"confirm": True})

    async with Client(target, elicitation_callback=agree) as client:

        async def call() -> str:
            block: Any = (await client.call_tool("deploy", {"env": "prod"})).content[0]
            return str(block.text)

        yield call


@asynccontextmanager
async def _fastmcp(target: Any) -> AsyncGenerator[Call]:
    from fastmcp import Client
    from fastmcp.client.elicitation import ElicitResult

    async def agree(_message: str, _kind: Any, _params: Any, _context: Any) -> Any:
        return ElicitResult(action="accept", content={"confirm": True})

    async with Client(target, elicitation_handler=agree) as client:

        async def call() -> str:
            block: Any = (await client.call_tool("deploy", {"env": "prod"})).content[0]
            return str(block.text)

        yield call


CLIENTS = {"ours": _ours, "official": _official, "fastmcp": _fastmcp}
MODULES = {"ours": "ours", "official": "official", "fastmcp": "fast"}


async def _drive(name: str, target: str, seconds: float) -> Figures:
    """Calls one after the other: the median of their wall times, and the CPU time of one."""
    where: Any = importlib.import_module(MODULES[name]).server if target == "memory" else target
    async with CLIENTS[name](where) as call:
        for _ in range(WARM_UP):
            if (said := await call()) != DONE:
                raise SystemExit(f"{name}: {said!r} instead of {DONE!r}")
        gc.collect()
        walls: list[float] = []
        began, end = process_time(), perf_counter() + seconds
        now = perf_counter()
        while now < end:
            await call()
            before, now = now, perf_counter()
            walls.append(now - before)
        return {"wall_us": median(walls) * 1e6, "cpu_us": (process_time() - began) / len(walls) * 1e6}


# --- all of them, interleaved ------------------------------------------------------------------------------------

FIRST_RESULT = """
import asyncio
from {package} import Client
async def main():
    async with Client({url!r}) as client:
        result = await client.call_tool("echo", {{"text": "hello, bench"}})
        print(result.content[0].text, flush=True)
asyncio.run(main())
"""
PACKAGES = {"ours": "antiphon", "official": "mcp", "fastmcp": "fastmcp"}


def measure(plan: Plan) -> Figures:
    """By client and place: wall and processor time of a call; by client: milliseconds to its first result."""
    cells: Samples = {}
    failed = set[str]()
    try:
        server = Contender("ours")
    except Unavailable as fault:
        plan.cannot("clients", fault)
        return {"cells": cells}
    url = f"http://127.0.0.1:{server.port}/mcp"

    def measured(name: str, work: Callable[[], dict[str, float]]) -> None:
        if name in failed:
            return
        try:
            add(cells, name, work())
        except (LoadError, OSError) as fault:
            failed.add(name)
            cells.pop(name, None)
            plan.cannot(f"client: {name}", fault)

    try:
        for _ in range(plan.rounds):
            for name in CLIENTS:
                for place, target in (("http", url), ("memory", "memory")):
                    measured(
                        f"{name}|{place}",
                        lambda name=name, target=target: in_process("clients.py", name, target, str(plan.seconds)),
                    )
                measured(f"{name}|start", lambda name=name: {"ms": _first_result(name, url)})
            measured("typescript|http", lambda: _typescript(url, plan.seconds))
    finally:
        server.stop()
    return {"cells": cells}


def _first_result(name: str, url: str) -> float:
    """Milliseconds from the start of a process to the first result that it prints."""
    code = FIRST_RESULT.format(package=PACKAGES[name], url=url)
    start = perf_counter()
    with (
        on_core(LOAD_CORE),
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        elapsed = (perf_counter() - start) * 1000
        _, complaint = process.communicate(timeout=TIMEOUT)
    if b"hello" not in line:
        raise Unavailable((complaint.decode().strip().splitlines() or ["no output"])[-1])
    return elapsed


def _typescript(url: str, seconds: float) -> dict[str, float]:
    where = subprocess.run([sys.executable, str(NODE)], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if where.returncode:
        raise Unavailable(where.stderr.strip() or "Node is not there")
    found = json.loads(where.stdout)
    script = str(Path(__file__).with_name("client.mjs"))
    with on_core(LOAD_CORE):
        done = subprocess.run(
            [found["node"], script, found["modules"], url, str(seconds)],
            capture_output=True, text=True, timeout=TIMEOUT, check=False,
        )  # fmt: skip
    if done.returncode:
        raise Unavailable((done.stderr.strip().splitlines() or ["no output"])[-1])
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


# --- judging -----------------------------------------------------------------------------------------------------


def _times(place: str, metric: str) -> Callable[[Figures], list[float]]:
    """The official client's figure against ours, in the same round."""
    return lambda figures: ratios(figures["clients"]["cells"], f"official|{place}", f"ours|{place}", metric)


GOALS = (
    Goal(
        title="client, two-round calls per CPU second / official",
        figure=_times("http", "cpu_us"),
        at_least=4,
        bound=3,
    ),
    Goal(title="client, wall time of a call, official / ours", figure=_times("http", "wall_us"), at_least=2.5),
    Goal(title="client, in memory, CPU, official / ours", figure=_times("memory", "cpu_us"), at_least=15, bound=8),
    Goal(title="client, start to first result, official / ours", figure=_times("start", "ms"), at_least=3),
)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent / "servers"))
    print(json.dumps(asyncio.run(_drive(sys.argv[1], sys.argv[2], float(sys.argv[3])))))
