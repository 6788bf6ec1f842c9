"""The bridge: the CPU time that it takes for a call, against that of our client and our server without it.

`python benchmarks/bridge.py [--quick] [--strict]`, and a section of run.py. A call is an echo, or a deploy with a
question, which takes two requests. The bridge is a server on one side and a client on the other, so its own share would
be 1 if it did nothing else.
"""

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from contender import Contender, Unavailable
from section import run_alone
from threshold import Figures, Threshold

sys.path.insert(0, str(Path(__file__).parent / "servers"))
from serving import pin

ERAS = ("2026-07-28", "legacy")
CALLS = {"echo": {"text": "hello, bench"}, "deploy": {"env": "prod"}}
CLIENT_CORE = 1
WARM_UP = 50
TIMEOUT = 60.0


async def _drive(url: str, tool: str, seconds: float) -> Figures:
    """Calls one after the other: how many there were, and the CPU time of all."""
    from antiphon import Accepted, Client

    async def agree(_question: Any) -> Any:
        return Accepted({"confirm": True})

    async with Client(url, elicit=agree) as client:
        for _ in range(WARM_UP):
            if (await client.call_tool(tool, CALLS[tool])).is_error:
                raise SystemExit(f"{tool} failed")
        gc.collect()
        count, began, end = 0, process_time(), perf_counter() + seconds
        while perf_counter() < end:
            await client.call_tool(tool, CALLS[tool])
            count += 1
        return {"calls": count, "cpu": process_time() - began}


def measure(*, rounds: int, seconds: float, unavailable: dict[str, str]) -> Figures:
    """By call: the CPU time in microseconds of client and server alone, and of a bridge to each era, each round."""
    figures: Figures = {tool: {} for tool in CALLS}
    contenders: dict[str, Contender] = {}
    try:
        contenders["direct"] = Contender("as_run")
        os.environ["BENCH_TARGET"] = f"http://127.0.0.1:{contenders['direct'].port}/mcp"
        for era in ERAS:
            os.environ["BENCH_ERA"] = era
            contenders[era] = Contender("bridged")
        for _ in range(rounds):
            for tool in CALLS:
                for name, each in contenders.items():
                    figures[tool].setdefault(name, []).append(_one(each, tool, seconds, direct=name == "direct"))
    except Unavailable as error:
        unavailable["bridge"] = str(error)
    finally:
        for each in contenders.values():
            each.stop()
    return figures


def _one(contender: Contender, tool: str, seconds: float, *, direct: bool) -> float:
    """The CPU time of one call: of the process alone; with ``direct``, together with the client's."""
    url = f"http://127.0.0.1:{contender.port}/mcp"
    before = contender.cpu_seconds() or 0.0
    done = subprocess.run(
        [sys.executable, __file__, "--drive", url, tool, str(seconds)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode:
        raise Unavailable(done.stderr.strip()[-500:])
    told = json.loads(done.stdout)
    served = ((contender.cpu_seconds() or 0.0) - before) / (told["calls"] + WARM_UP)
    return (served + (told["cpu"] / told["calls"] if direct else 0.0)) * 1e6


def _share(tool: str, era: str) -> Callable[[Figures], float | None]:
    """The bridge's CPU time against that of client and server, in the same round."""

    def figure(figures: Figures) -> float | None:
        found = figures["bridge"].get(tool, {})
        if not found.get(era) or not found.get("direct"):
            return None
        return median(own / other for own, other in zip(found[era], found["direct"], strict=True))

    return figure


THRESHOLDS = tuple(
    Threshold(
        title=f"bridge to {'a new' if era == '2026-07-28' else 'an old'} server, {tool}, CPU / client and server",
        figure=_share(tool, era),
        bound=2,
        goal=1.5,
        less_is_better=True,
    )
    for era in ERAS
    for tool in CALLS
)


def report(section: Figures) -> None:
    print("\nthe bridge, CPU us per call")
    for tool, found in section.items():
        told = ", ".join(f"{name} {median(values):.0f}" for name, values in found.items())
        print(f"  {tool:<8}{told}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--drive"]:
        pin(CLIENT_CORE)
        print(json.dumps(asyncio.run(_drive(sys.argv[2], sys.argv[3], float(sys.argv[4])))))
        sys.exit(0)
    sys.exit(
        run_alone(
            "bridge",
            about=__doc__,
            measure=measure,
            report=report,
            thresholds=THRESHOLDS,
            usual=(3, 1.0),
            quick=(1, 0.3),
        )
    )
