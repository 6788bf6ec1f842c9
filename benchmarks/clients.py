"""Our client and the official Python one: completed two-round calls over HTTP and in memory, and a first result.

`python benchmarks/clients.py [--quick] [--strict]`, and a section of run.py. Over HTTP both call the same fast server,
ours, in a process of its own; in memory each calls the server of its own kind.
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

from contender import Contender, Unavailable
from section import run_alone
from threshold import Figures, Threshold

sys.path.insert(0, str(Path(__file__).parent / "servers"))
from serving import pin

NAMES = ("ours", "official")
CLIENT_CORE = 1
WARM_UP = 50
TIMEOUT = 60.0
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


CLIENTS = {"ours": _ours, "official": _official}


async def _drive(name: str, target: str, seconds: float) -> Figures:
    """Calls one after the other: the median of their wall times, and the CPU time of one."""
    where: Any = importlib.import_module(name).server if target == "memory" else target
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

FIRST_RESULT = {
    "ours": """
import asyncio
from antiphon import Client
async def main():
    async with Client({url!r}) as client:
        print((await client.call_tool("echo", {{"text": "hello, bench"}})).text, flush=True)
asyncio.run(main())
""",
    "official": """
import asyncio
from mcp import Client
async def main():
    async with Client({url!r}) as client:
        print((await client.call_tool("echo", {{"text": "hello, bench"}})).content[0].text, flush=True)
asyncio.run(main())
""",
}


def measure(*, rounds: int, seconds: float, unavailable: dict[str, str]) -> Figures:
    """By place and client: lists of a figure each round."""
    figures: Figures = {"http": {}, "memory": {}, "start_ms": {}}
    try:
        server = Contender("ours")
    except Unavailable as error:
        unavailable["clients"] = str(error)
        return figures
    url = f"http://127.0.0.1:{server.port}/mcp"
    try:
        for _ in range(rounds):
            for place, target in (("http", url), ("memory", "memory")):
                for name in NAMES:
                    for figure, value in _measured(name, target, seconds).items():
                        figures[place].setdefault(name, {}).setdefault(figure, []).append(value)
            for name in NAMES:
                figures["start_ms"].setdefault(name, []).append(_first_result(FIRST_RESULT[name].format(url=url)))
    except Unavailable as error:
        unavailable["clients"] = str(error)
    finally:
        server.stop()
    return figures


def _measured(name: str, target: str, seconds: float) -> Figures:
    done = subprocess.run(
        [sys.executable, __file__, "--drive", name, target, str(seconds)],
        capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Unavailable((done.stderr.strip().splitlines() or ["no output"])[-1])
    figures: Figures = json.loads(done.stdout)
    return figures


def _first_result(code: str) -> float:
    """Milliseconds from the start of a process to the first result that it prints."""
    start = perf_counter()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        elapsed = (perf_counter() - start) * 1000
        _, complaint = process.communicate(timeout=TIMEOUT)
    if b"hello" not in line:
        raise Unavailable((complaint.decode().strip().splitlines() or ["no output"])[-1])
    return elapsed


# --- judging -----------------------------------------------------------------------------------------------------


def _times(place: str, figure: str) -> Callable[[Figures], float | None]:
    """The official client's figure against ours: the median over the rounds of their ratio in the same round."""

    def ratio(figures: Figures) -> float | None:
        cells = figures["clients"][place]
        if set(cells) != set(NAMES):
            return None
        ours, theirs = ((cells[name][figure] if figure else cells[name]) for name in NAMES)
        return median(other / own for own, other in zip(ours, theirs, strict=False))

    return ratio


THRESHOLDS = (
    Threshold(title="client, HTTP, calls per CPU second / official", figure=_times("http", "cpu_us"), bound=4, goal=6),
    Threshold(title="client, HTTP, wall time, official / ours", figure=_times("http", "wall_us"), bound=2.5, goal=4),
    Threshold(title="client, in memory, official / ours", figure=_times("memory", "cpu_us"), bound=15, goal=20),
    Threshold(title="client, start to first result, official / ours", figure=_times("start_ms", ""), bound=3, goal=5),
)


# --- reporting ---------------------------------------------------------------------------------------------------


COLUMNS = ("HTTP wall us", "HTTP CPU us", "memory wall us", "memory CPU us", "start ms")


def report(clients: Figures) -> None:
    print("\na completed two-round call by a client, medians")
    print(f"{'client':<10}" + "".join(f"{column:>16}" for column in COLUMNS))
    for name in clients["start_ms"]:
        cells = [clients[place][name][figure] for place in ("http", "memory") for figure in ("wall_us", "cpu_us")]
        values = [median(cell) for cell in (*cells, clients["start_ms"][name])]
        print(f"{name:<10}" + "".join(f"{value:>16.0f}" for value in values))


def main() -> int:
    if sys.argv[1:2] == ["--drive"]:
        pin(CLIENT_CORE)
        name, target, seconds = sys.argv[2:]
        print(json.dumps(asyncio.run(_drive(name, target, float(seconds)))))
        return 0
    pin(CLIENT_CORE)
    return run_alone(
        "clients",
        about=__doc__,
        measure=measure,
        report=report,
        thresholds=THRESHOLDS,
        usual=(5, 1.0),
        quick=(1, 0.5),
    )


if __name__ == "__main__":
    sys.exit(main())
