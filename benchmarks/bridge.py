"""The bridge: the CPU time that it takes for a call, against that of our client and our server without it.

A call is an echo, or a deploy with a question, which takes two requests. The bridge is a server on one side and a
client on the other, so its own share would be 1 if it did nothing else.
"""

import asyncio
import gc
import json
import sys
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

from contender import Contender, Unavailable
from goals import Goal
from measuring import Figures, Plan, Samples, add, in_process, ratios

ERAS = ("2026-07-28", "legacy")
CALLS = {"echo": {"text": "hello, bench"}, "deploy": {"env": "prod"}}
WARM_UP = 50


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


def measure(plan: Plan) -> Figures:
    """By call: the CPU time in microseconds of client and server alone, and of a bridge to each era, each round."""
    samples: Samples = {}
    contenders: dict[str, Contender] = {}
    try:
        contenders["direct"] = Contender("ours")
        target = f"http://127.0.0.1:{contenders['direct'].port}/mcp"
        for era in ERAS:
            contenders[era] = Contender("bridged", env={"BENCH_TARGET": target, "BENCH_ERA": era})
        for _ in range(plan.rounds):
            for tool in CALLS:
                for name, each in contenders.items():
                    cost = _one(each, tool, plan.seconds, direct=name == "direct")
                    add(samples, f"{name}|{tool}", {"cpu_us": cost})
    except Unavailable as fault:
        plan.cannot("bridge", fault)
    finally:
        for each in contenders.values():
            each.stop()
    return {"cells": samples}


def _one(contender: Contender, tool: str, seconds: float, *, direct: bool) -> float:
    """The CPU time of one call: of the process alone; with ``direct``, together with the client's."""
    before = contender.cpu_seconds() or 0.0
    told = in_process("bridge.py", f"http://127.0.0.1:{contender.port}/mcp", tool, str(seconds))
    served = ((contender.cpu_seconds() or 0.0) - before) / (told["calls"] + WARM_UP)
    return (served + (told["cpu"] / told["calls"] if direct else 0.0)) * 1e6


def _share(tool: str, era: str) -> Callable[[Figures], list[float]]:
    """The bridge's CPU time against that of client and server, in the same round."""
    return lambda figures: ratios(figures["bridge"]["cells"], f"{era}|{tool}", f"direct|{tool}", "cpu_us")


GOALS = tuple(
    Goal(
        title=f"bridge to {'a new' if era == '2026-07-28' else 'an old'} server, {tool}, CPU / client and server",
        figure=_share(tool, era),
        at_most=1.5,
        bound=2,
    )
    for era in ERAS
    for tool in CALLS
)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_drive(sys.argv[1], sys.argv[2], float(sys.argv[3])))))
