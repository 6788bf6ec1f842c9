"""The cost of starting: imports, and the time from the start of a process to its first result over stdio and HTTP."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from threading import Timer
from time import perf_counter

import calls
from contender import LOAD_CORE, PROGRAMS, Contender, Unavailable, command, on_core
from goals import Goal
from load import LoadError, exchange
from measuring import Figures, Plan, Samples, add, ratios

TIMEOUT = 30.0
PACKAGES = {"ours": "antiphon", "official": "mcp", "fastmcp": "fastmcp"}
# The import that every server needs, even if the package imports lazily.
SERVER_IMPORTS = {
    "ours": "from antiphon import Server",
    "official": "from mcp.server.mcpserver import MCPServer",
    "fastmcp": "from fastmcp import FastMCP",
}
OVER_STDIO = ("ours", "official", "fastmcp", "typescript")
OVER_HTTP = ("ours", "official", "fastmcp", "typescript", "mcp-lite")


def measure(plan: Plan) -> Figures:
    """By server: milliseconds of its imports, and to its first result; by package: how many modules it loads."""
    cells: Samples = {}
    modules: dict[str, int] = {}
    work: dict[str, Callable[[], float]] = {"nothing|import": lambda: _python("pass", "nothing", modules)}
    for name, package in PACKAGES.items():
        work[f"{name}|import"] = lambda name=name, package=package: _python(f"import {package}", name, modules)
        work[f"{name}|import server"] = lambda name=name: _python(SERVER_IMPORTS[name], "", {})
    work |= {f"{name}|stdio": lambda name=name: _stdio(name) for name in OVER_STDIO}
    work |= {f"{name}|http": lambda name=name: _http(name) for name in OVER_HTTP}
    failed = set[str]()
    for _ in range(plan.rounds):
        for what, taken in work.items():
            if what in failed:
                continue
            try:
                add(cells, what, {"ms": taken()})
            except (LoadError, OSError) as fault:
                failed.add(what)
                cells.pop(what, None)
                plan.cannot(f"start: {what}", fault)
    bare = modules.pop("nothing", 0)
    return {"cells": cells, "modules": {name: number - bare for name, number in modules.items()}}


def _python(code: str, name: str, modules: dict[str, int]) -> float:
    """Milliseconds from start to end of `python -c code`; notes how many modules there are then."""
    start = perf_counter()
    with on_core(LOAD_CORE):
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; {code}; print(len(sys.modules))"],
            cwd=tempfile.gettempdir(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    elapsed = (perf_counter() - start) * 1000
    if done.returncode:
        raise Unavailable(done.stderr.strip().splitlines()[-1])
    modules[name] = int(done.stdout)
    return elapsed


def _stdio(name: str) -> float:
    """Milliseconds from process start to the first tool result over stdio."""
    start_command = [*command(PROGRAMS[name]), "--stdio"]
    start = perf_counter()
    with on_core(LOAD_CORE):
        process = subprocess.Popen(
            start_command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    killer = Timer(TIMEOUT, process.kill)
    killer.start()
    try:
        assert process.stdin
        assert process.stdout
        process.stdin.write(calls.body(calls.echo()) + b"\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        elapsed = (perf_counter() - start) * 1000
    finally:
        killer.cancel()
        process.kill()
        process.communicate()
    if calls.MARKERS["echo"] not in answer:
        raise Unavailable(f"it answered {answer[:200]!r}")
    return elapsed


def _http(name: str) -> float:
    """Milliseconds from process start to the first tool result over HTTP."""
    start = perf_counter()
    contender = Contender(name)
    try:
        exchange(calls.plain(contender, only="echo")["echo"])
        return (perf_counter() - start) * 1000
    finally:
        contender.stop()


# --- judging -----------------------------------------------------------------------------------------------------


def best_import(figures: Figures, name: str, what: str = "import") -> float:
    """The best time of an import, over a Python that does nothing."""
    cells: Samples = figures["start"]["cells"]
    return min(cells[f"{name}|{what}"]["ms"]) - min(cells["nothing|import"]["ms"])


def _import_ratio(what: str) -> Callable[[Figures], Sequence[float]]:
    return lambda figures: [best_import(figures, "ours", what) / best_import(figures, "official", what)]


def _first_result(way: str) -> Callable[[Figures], Sequence[float]]:
    return lambda figures: ratios(figures["start"]["cells"], f"ours|{way}", f"official|{way}", "ms")


GOALS = (
    Goal(
        title="import antiphon, ms, best", figure=lambda figures: [best_import(figures, "ours")], at_most=100, bound=150
    ),
    Goal(title="import, ours / mcp", figure=_import_ratio("import"), at_most=1 / 8, bound=1 / 6),
    Goal(title="import of the server class, ours / official", figure=_import_ratio("import server"), at_most=1 / 5),
    Goal(title="stdio, start to first result, ours / official", figure=_first_result("stdio"), at_most=1 / 4),
    Goal(title="HTTP, start to first result, ours / official", figure=_first_result("http"), at_most=1 / 4),
)
