"""500 cases in memory: `antiphon test` compared with the official client in pytest, each a whole run.

Half of the cases call a tool, half are asked one
question on the way. Each side tests the server of its own kind, in its own process, and is measured from the start of
the command to its end: what a person waits for. They run alternately, and the medians are compared.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter

from contender import LOAD_CORE, Unavailable, on_core
from goals import Goal
from load import LoadError
from measuring import Figures, Plan, Samples, add, ratios

CASES = 500

OUR_SERVER = '''\
from antiphon import Context, Server

app = Server("bench", version="1.0.0")


@app.tool
async def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@app.tool
async def deploy(env: str, ctx: Context) -> str:
    """Deploy after the operator confirms."""
    return f"Deployed to {env}" if await ctx.confirm(f"Deploy to {env}?") else "Not deployed"
'''
PLAIN = """\
  - name: adds {n}
    tool: add
    arguments: {{a: {n}, b: 1}}
    expect:
      structured: {{sum: {sum}}}
"""
ASKING = """\
  - name: deploys to place {n}
    tool: deploy
    arguments: {{env: place-{n}}}
    inputResponses:
      confirm: {{confirm: true}}
    expect:
      text: Deployed to place-{n}
      asked: ["confirm": "Deploy to place-{n}?"]
"""

THEIR_TESTS = '''\
from typing import Annotated, Any

import pytest
from mcp import Client
from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from mcp.types import ElicitResult
from pydantic import BaseModel

server = MCPServer("bench", version="1.0.0", log_level="ERROR")


class Confirm(BaseModel):
    confirm: bool


def ask_to_confirm(env: str) -> Elicit[Confirm]:
    return Elicit(f"Deploy to {{env}}?", Confirm)


@server.tool()
async def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {{"sum": a + b}}


@server.tool()
async def deploy(env: str, sure: Annotated[Confirm, Resolve(ask_to_confirm)]) -> str:
    """Deploy after the operator confirms."""
    return f"Deployed to {{env}}" if sure.confirm else "Not deployed"


@pytest.mark.parametrize("n", range({half}))
async def test_adds(n: int) -> None:
    async with Client(server) as client:
        result = await client.call_tool("add", {{"a": n, "b": 1}})
    assert result.structured_content == {{"sum": n + 1}}


@pytest.mark.parametrize("n", range({half}))
async def test_deploys(n: int) -> None:
    asked: list[str] = []

    async def agree(_context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={{"confirm": True}})

    async with Client(server, elicitation_callback=agree) as client:
        result = await client.call_tool("deploy", {{"env": f"place-{{n}}"}})
    assert result.content[0].text == f"Deployed to place-{{n}}"
    assert asked == [f"Deploy to place-{{n}}?"]
'''


def written(folder: Path, cases: int) -> dict[str, list[str]]:
    """Both sides' files, and the command that runs them."""
    half = cases // 2
    tests = "".join(PLAIN.format(n=n, sum=n + 1) + ASKING.format(n=n) for n in range(half))
    (folder / "server.py").write_text(OUR_SERVER)
    (folder / "many.mcp.yaml").write_text(f"server: {{app: server.py}}\ntests:\n{tests}")
    (folder / "test_many.py").write_text(THEIR_TESTS.format(half=half))
    (folder / "pytest.ini").write_text("[pytest]\nasyncio_mode = auto\n")
    pytest = ["pytest", "-q", "-p", "no:cacheprovider", "test_many.py"]
    return {
        "ours": [sys.executable, "-m", "antiphon", "test", "many.mcp.yaml"],
        "official": [sys.executable, "-m", *pytest],
    }


def environment(folder: Path) -> dict[str, str]:
    """Both sides start from compiled files, whatever the machine does otherwise."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}


def timed(command: list[str], folder: Path, cases: int) -> tuple[float, float]:
    """Seconds that a command took: on the clock, and of the processor."""
    before = getrusage(RUSAGE_CHILDREN)
    begun = perf_counter()
    with on_core(LOAD_CORE):
        done = subprocess.run(
            command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=600, check=False
        )
    seconds = perf_counter() - begun
    after = getrusage(RUSAGE_CHILDREN)
    if done.returncode or f"{cases} passed" not in done.stdout:
        raise Unavailable(f"{' '.join(command)} did not pass: {done.stdout[-500:]}{done.stderr[-500:]}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(plan: Plan) -> Figures:
    """By side: seconds of each run of all cases."""
    cases = 20 if plan.quick else CASES
    cells: Samples = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        commands = written(folder, cases)
        try:
            if not plan.quick:
                for command in commands.values():
                    timed(command, folder, cases)  # everything is compiled by then
            for _ in range(plan.rounds):
                for name, command in commands.items():
                    wall, cpu = timed(command, folder, cases)
                    add(cells, name, {"wall_s": wall, "cpu_s": cpu})
        except LoadError as fault:
            plan.cannot("suites", fault)
    return {"cases": cases, "cells": cells}


GOALS = (
    Goal(
        title=f"{CASES} test cases, wall time, official in pytest / ours",
        figure=lambda figures: ratios(figures["suites"]["cells"], "official", "ours", "wall_s"),
        at_least=15,
        bound=10,
    ),
)
