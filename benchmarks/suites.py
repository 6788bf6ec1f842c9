"""500 cases in memory: `antiphon test` compared with the official client in pytest, each a whole run.

`python benchmarks/suites.py [--cases N] [--runs N] [--strict]`. Half of the cases call a tool, half are asked one
question on the way. Each side tests the server of its own kind, in its own process, and is measured from the start of
the command to its end: what a person waits for. They run alternately, and the medians are compared.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from time import perf_counter

from threshold import Figures, Threshold, judge, save

CASES = 500
RUNS = 3
BOUND = 10.0

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
    done = subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=600, check=False
    )
    seconds = perf_counter() - begun
    after = getrusage(RUSAGE_CHILDREN)
    if done.returncode or f"{cases} passed" not in done.stdout:
        raise SystemExit(f"{' '.join(command)} did not pass:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(cases: int, runs: int) -> Figures:
    taken: dict[str, list[tuple[float, float]]] = {"ours": [], "official": []}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        commands = written(folder, cases)
        for command in commands.values():
            timed(command, folder, cases)  # everything is compiled by then
        for _ in range(runs):
            for name, command in commands.items():
                taken[name].append(timed(command, folder, cases))
    return {
        name: {
            "wall_s": round(median(wall for wall, _ in times), 3),
            "cpu_s": round(median(cpu for _, cpu in times), 3),
        }
        for name, times in taken.items()
    }


def ratio(figures: Figures, kind: str) -> float:
    return float(figures["official"][kind] / figures["ours"][kind])


THRESHOLDS = (
    Threshold(
        title="whole runs, official / ours, wall time", figure=lambda f: ratio(f, "wall_s"), goal=15, bound=BOUND
    ),
    Threshold(title="whole runs, official / ours, CPU time", figure=lambda f: ratio(f, "cpu_s"), goal=15),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--strict", action="store_true", help="fail when a bound is not kept")
    options = parser.parse_args()
    figures = measure(options.cases, options.runs)
    for name, found in figures.items():
        print(f"{name:<10} {options.cases} cases in {found['wall_s']:.2f} s, {found['cpu_s']:.2f} s of the processor")
    below = judge(THRESHOLDS, figures)
    figures["run"] = {"when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "cases": options.cases}
    save(figures, prefix="suites-")
    print(json.dumps(figures))
    if options.strict and below:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
